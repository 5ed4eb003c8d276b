"""ListOffsets over the wire"""

from pathlib import Path

import pytest

from tests.broker.broker_world import WireClient, broker_and_client
from tests.broker.handlers.data_path import make_topic, produce, records, unknown_topic
from tidemill.broker.quorum.image import TopicImage
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

T0 = 1_700_000_000_000


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
