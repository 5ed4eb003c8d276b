"""DeleteRecords over the wire"""

from pathlib import Path

import pytest

from tests.broker.broker_world import WireClient, broker_and_client
from tests.broker.handlers.data_path import decoded, fetch, make_topic, produce, records
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


async def delete(client: WireClient, name: str, offset: int, version: int = 2) -> DeleteRecordsPartitionResult:
    row = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=name, partitions=(row,)),), timeout_ms=1000)
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
