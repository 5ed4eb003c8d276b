"""ListOffsets over the wire"""

import asyncio
from pathlib import Path

import pytest

from tests.broker.broker_world import WireClient, broker_and_client
from tests.broker.handlers.data_path import make_topic, produce, records, unknown_topic
from tests.loop_watch import watched_loop
from tidemill.broker.dispatch import RequestContext
from tidemill.broker.handlers import list_offsets
from tidemill.broker.quorum.image import TopicImage
from tidemill.core.error_code import ErrorCode
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

T0 = 1_700_000_000_000
CONTEXT = RequestContext(api_version=7, client_id="c", client_host="127.0.0.1", listener="PLAINTEXT", connection_id="1")


async def ask(
    client: WireClient, topic: TopicImage, timestamp: int, version: int = 7, partition: int = 0, epoch: int = -1
) -> ListOffsetsPartitionResponse:
    row = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=topic.name, partitions=(row,)),))
    response = await client.ask(ApiKey.LIST_OFFSETS, version, request)
    answer: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
    return answer


@pytest.mark.parametrize("version", range(1, 12))
async def test_ends_and_times_in_every_version(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        assert (await ask(client, topic, -1, version)).offset == 0
        await produce(client, topic, records(b"a", b"b", timestamp=T0))
        await produce(client, topic, records(b"c", timestamp=T0 + 100))
        await produce(client, topic, records(b"d", timestamp=T0 + 50))
        log = broker.logs.get("t", 0)
        assert log is not None
        await broker.logs.delete_records(log, 1)
        expected = {-1: (-1, 4), -2: (-1, 1), T0: (T0 + 1, 1), T0 + 2: (T0 + 100, 2), T0 + 101: (-1, -1)}
        if version >= 7:
            expected[-3] = (T0 + 100, 2)
        if version >= 8:
            expected[-4] = (-1, 1)
        if version >= 9:
            expected[-5] = (-1, -1)
        for timestamp, place in expected.items():
            answer = await ask(client, topic, timestamp, version)
            assert answer.error_code == 0
            assert (answer.timestamp, answer.offset) == place
            if version >= 4 and place[1] >= 0:
                assert answer.leader_epoch == topic.partitions[0].leader_epoch


async def test_the_ends_of_an_empty_log_are_those_of_its_leader(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        for timestamp in (-1, -2, -4):
            answer = await ask(client, topic, timestamp, version=11)
            assert (answer.offset, answer.leader_epoch) == (0, topic.partitions[0].leader_epoch)


async def test_errors(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        assert (await ask(client, unknown_topic(), -1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await ask(client, topic, -1, partition=1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await ask(client, topic, -3, version=6)).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await ask(client, topic, -9)).error_code == ErrorCode.UNSUPPORTED_VERSION
        epoch = topic.partitions[0].leader_epoch + 1
        assert (await ask(client, topic, -1, epoch=epoch)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_partition_that_is_named_twice_is_refused_once(tmp_path: Path) -> None:
    """As Apache Kafka 4.3.1 does it: tests/integration/test_answers_kafka.py asks both."""
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, partitions=2)
        rows = tuple(ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1, 0))
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=(
                ListOffsetsTopic(name=topic.name, partitions=rows[:2]),
                ListOffsetsTopic(name=topic.name, partitions=rows[2:]),
            ),
        )
        response = await client.ask(ApiKey.LIST_OFFSETS, 7, request)
        answers = [(row.partition_index, row.error_code) for each in response.topics for row in each.partitions]
        assert [each.name for each in response.topics] == [topic.name]
        assert answers == [(0, ErrorCode.INVALID_REQUEST), (1, 0)]


RECORDS = 200_000


async def test_searches_in_large_batches_hold_up_nobody(tmp_path: Path) -> None:
    """Of each partition the last of 200,000 records, 1.6 MB in a batch of a few KB, is looked for."""
    batch = build_batch([NewRecord(T0 + number, None, None) for number in range(RECORDS)], codec="zstd")
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, partitions=4)
        for partition in range(4):
            assert (await produce(client, topic, batch, partition=partition)).error_code == 0
        rows = tuple(ListOffsetsPartition(partition_index=n, timestamp=T0 + RECORDS - 1) for n in range(4))
        request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=topic.name, partitions=rows),))
        async with watched_loop() as watch:
            response = await client.ask(ApiKey.LIST_OFFSETS, 7, request)
        assert [row.offset for row in response.topics[0].partitions] == [RECORDS - 1] * 4
        assert watch.longest_own_ms < 50


async def test_a_client_that_goes_away_takes_its_search_along(tmp_path: Path) -> None:
    batch = build_batch([NewRecord(T0 + number, None, None) for number in range(RECORDS)], codec="zstd")
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        await produce(client, topic, batch)
        row = ListOffsetsPartition(partition_index=0, timestamp=T0 + RECORDS - 1)
        request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=topic.name, partitions=(row,)),))
        pending = list_offsets.handle(broker, request, CONTEXT)
        assert isinstance(pending, asyncio.Future)
        pending.cancel()
        assert (await ask(client, topic, T0)).offset == 0


async def test_a_topic_that_is_deleted_meanwhile_is_an_error_of_its_own(tmp_path: Path) -> None:
    batch = build_batch([NewRecord(T0 + number, None, None) for number in range(RECORDS)], codec="zstd")
    async with broker_and_client(tmp_path) as (broker, client):
        topic, other = await make_topic(broker), await make_topic(broker, "other")
        await produce(client, topic, batch)
        await produce(client, other, records(b"a", timestamp=T0))
        row = ListOffsetsPartition(partition_index=0, timestamp=T0)
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=tuple(ListOffsetsTopic(name=name, partitions=(row,)) for name in (other.name, topic.name)),
        )
        pending = list_offsets.handle(broker, request, CONTEXT)
        assert isinstance(pending, asyncio.Future)
        log = broker.logs.get(topic.name, 0)
        assert log is not None
        log.detach()
        response = await pending
        answers = [(topic.partitions[0].offset, topic.partitions[0].error_code) for topic in response.topics]
        assert answers == [(0, 0), (-1, ErrorCode.KAFKA_STORAGE_ERROR)]
