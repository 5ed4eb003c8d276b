"""DeleteRecords over the wire"""

import asyncio
from pathlib import Path

import pytest

from tests.broker.broker_world import WireClient, broker_and_client
from tests.broker.handlers.data_path import decoded, fetch, make_topic, produce, records
from tests.broker.replication.cluster_world import cluster_of, until
from tidemill.broker.quorum.metadata import NewTopic
from tidemill.core.error_code import ErrorCode
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)


async def delete(
    client: WireClient, name: str, offset: int, version: int = 2, timeout_ms: int = 1000
) -> DeleteRecordsPartitionResult:
    row = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=name, partitions=(row,)),), timeout_ms=timeout_ms)
    response = await client.ask(ApiKey.DELETE_RECORDS, version, request)
    answer: DeleteRecordsPartitionResult = response.topics[0].partitions[0]
    return answer


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_records_are_gone_for_good(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        for value in (b"a", b"b", b"c"):
            await produce(client, topic, records(value))
        answer = await delete(client, "t", 2, version)
        assert (answer.error_code, answer.low_watermark) == (0, 2)
        assert (await fetch(client, topic, offset=1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert [record.value for record in decoded(await fetch(client, topic, offset=2))] == [b"c"]
        assert (await delete(client, "t", 1, version)).low_watermark == 2
    async with broker_and_client(tmp_path) as (_, client):
        assert (await fetch(client, topic, offset=1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        answer = await delete(client, "t", -1, version)
        assert (answer.error_code, answer.low_watermark) == (0, 3)


async def test_errors(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await make_topic(broker)
        await broker.ensure_offsets_topic()
        assert (await delete(client, "t", 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await delete(client, "t", -2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await delete(client, "nowhere", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await delete(client, "__consumer_offsets", 0)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(("policy", "code"), [("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", 0)])
async def test_the_last_values_of_a_compacted_topic_stay(tmp_path: Path, policy: str, code: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await broker.controller.ensure_topic(NewTopic(name="t", configs={"cleanup.policy": policy}))
        await produce(client, topic, build_batch([NewRecord(0, b"k", b"v")]))
        answer = await delete(client, "t", 1)
        assert (answer.error_code, answer.low_watermark) == (code, -1 if code else 1)


async def test_many_partitions_are_written_down_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, partitions=100)
        for partition in range(100):
            await produce(client, topic, records(b"a", b"b"), partition=partition)
        real, checkpoints = broker.logs.checkpoint, []

        async def checkpoint() -> None:
            checkpoints.append(broker.logs)
            await real()

        monkeypatch.setattr(broker.logs, "checkpoint", checkpoint)
        rows = tuple([DeleteRecordsPartition(partition_index=each, offset=1) for each in range(100)])
        request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name="t", partitions=rows),), timeout_ms=1000)
        response = await client.ask(ApiKey.DELETE_RECORDS, 2, request)
        found = [(row.partition_index, row.error_code, row.low_watermark) for row in response.topics[0].partitions]
        assert found == [(each, 0, 1) for each in range(100)]
        assert len(checkpoints) <= 2


# --- where others have the partition too

PATIENCE_MS = 50_000


async def test_it_is_answered_when_nobody_has_them_any_more(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, wait_ms=10 * PATIENCE_MS) as cluster:  # nobody waits so long
        cluster.refusing = True  # whoever is slow stays in the ISR: here nobody else says who is live
        one, two, three = cluster.members.values()
        await one.produce(b"a", b"b")
        answer = await delete(one.client, "t", 1, timeout_ms=PATIENCE_MS)
        assert (answer.error_code, answer.low_watermark) == (0, 1)
        assert [member.log_start for member in (one, two, three)] == [1, 1, 1]
        await one.stop()
        cluster.decide(leader=2, isr=(2, 3))
        assert (await fetch(two.client, cluster.topic, offset=0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_it_waits_for_whoever_may_be_elected_for_as_long_as_the_client_says(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 2) as cluster:
        one, two = cluster.members.values()
        await one.produce(b"a", b"b")
        await two.stop()
        answer = await delete(one.client, "t", 1, timeout_ms=100)
        assert (answer.error_code, answer.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        assert one.log_start == 1, "and done where it could be"
        cluster.decide(isr=(1,), eligible_leader_replicas=(2,))
        assert (await delete(one.client, "t", 1, timeout_ms=0)).error_code == ErrorCode.REQUEST_TIMED_OUT
        later = asyncio.get_running_loop().create_task(delete(one.client, "t", 2, timeout_ms=PATIENCE_MS))
        await until(lambda: one.replica in one.broker.replicas.deleting and one.replica.waiting > 0, "it waits")
        cluster.decide(eligible_leader_replicas=())
        answer = await later
        assert (answer.error_code, answer.low_watermark, one.broker.replicas.deleting) == (0, 2, {})


async def test_a_leader_that_is_replaced_meanwhile_says_so(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, 2) as cluster:
        one, two = cluster.members.values()
        await one.produce(b"a", b"b")
        await two.stop()
        later = asyncio.get_running_loop().create_task(delete(one.client, "t", 1, timeout_ms=PATIENCE_MS))
        await until(lambda: one.replica in one.broker.replicas.deleting and one.replica.waiting > 0, "it waits")
        cluster.decide(leader=2)
        assert (await later).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
