"""Produce over the wire, in every version"""

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker_world import broker_and_client, running_broker, wire_client
from tests.broker.handlers.data_path import (
    decoded,
    fetch,
    instead_of_a_sync,
    make_topic,
    out_of_sync,
    produce,
    produce_request,
    records,
    unknown_topic,
)
from tidemill.core.error_code import ErrorCode
from tidemill.core.records.batch import TRANSACTIONAL_BIT
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import decode_response, encode_request
from tidemill.core.wire.messages.produce import ProduceRequest, TopicProduceData


async def test_every_version_stores_and_answers(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        for number, version in enumerate(range(3, 14)):
            answer = await produce(client, topic, records(b"%d" % version, b"x"), version=version)
            assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, 2 * number, -1)
        assert [record.value for record in decoded(await fetch(client, topic))][::2] == [
            b"%d" % version for version in range(3, 14)
        ]


@pytest.mark.parametrize("policy", ["group", "os"])
async def test_acks_decide_what_is_waited_for(tmp_path: Path, policy: str) -> None:
    async with broker_and_client(tmp_path, flush_policy=policy) as (broker, client):
        topic = await make_topic(broker)
        for acks in (1, -1):
            answer = await produce(client, topic, records(b"a"), acks=acks)
            log = broker.logs.get("t", 0)
            assert log is not None
            assert answer.error_code == 0
            assert log.committed_offset == answer.base_offset + 1
            if policy == "group":
                assert log.recovery_point == answer.base_offset + 1
        answer = await produce(client, topic, records(b"a"), acks=2)
        assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS


async def test_acks_0_gets_no_response_and_an_error_closes_the_connection(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        request = produce_request(topic, {0: records(b"a")}, 9, acks=0)
        client._writer.write(encode_request(ApiKey.PRODUCE, 9, 1, "c", request))
        answer = await produce(client, topic, records(b"b"), acks=1)
        assert answer.base_offset == 1
        bad = produce_request(topic, {0: b"not a batch" * 10}, 9, acks=0)
        client._writer.write(encode_request(ApiKey.PRODUCE, 9, 2, "c", bad))
        assert await asyncio.wait_for(client._reader.read(1), 5) == b""


async def test_each_partition_has_its_own_result(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, partitions=2)
        broken = bytearray(records(b"hello"))
        broken[-1] ^= 1
        request = produce_request(topic, {0: records(b"a"), 1: bytes(broken), 5: records(b"c")}, 9)
        response = await client.ask(ApiKey.PRODUCE, 9, request)
        codes = {row.index: row.error_code for row in response.responses[0].partition_responses}
        assert codes == {0: 0, 1: ErrorCode.CORRUPT_MESSAGE, 5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert all(row.error_message for row in response.responses[0].partition_responses if row.error_code)


@pytest.mark.parametrize(
    ("version", "code"), [(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)]
)
async def test_unknown_topics(tmp_path: Path, version: int, code: int) -> None:
    async with broker_and_client(tmp_path) as (_, client):
        answer = await produce(client, unknown_topic(), records(b"a"), version=version)
        assert (answer.error_code, answer.base_offset) == (code, -1)


TRANSACTIONAL = records(b"a", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (records(b"a") + records(b"b"), ErrorCode.INVALID_RECORD),
        (records(b"a" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
        (records(b"a", timestamp=99_000_000_000_000), ErrorCode.INVALID_TIMESTAMP),
        (TRANSACTIONAL, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
async def test_batches_that_are_refused(tmp_path: Path, batch: bytes, code: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        assert (await produce(client, topic, batch)).error_code == code
        assert (await produce(client, topic, records(b"fine"))).base_offset == 0


def test_the_transactional_bit_is_where_the_handler_looks() -> None:
    assert TRANSACTIONAL[22] & TRANSACTIONAL_BIT


async def test_zstd_needs_version_7(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        batch = records(b"a", codec="zstd")
        code = (await produce(client, topic, batch, version=6)).error_code
        assert code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert (await produce(client, topic, batch, version=7)).error_code == 0


async def test_a_transactional_producer_is_refused_whole(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        request = produce_request(topic, {0: records(b"a")}, 9, transactional_id="tx")
        response = await client.ask(ApiKey.PRODUCE, 9, request)
        code = response.responses[0].partition_responses[0].error_code
        assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_a_retry_gets_the_original_offset_also_after_a_restart(tmp_path: Path) -> None:
    batches = [records(b"%d" % n, b"x", producer_id=5, producer_epoch=0, base_sequence=2 * n) for n in range(4)]
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        for number, batch in enumerate(batches):
            assert (await produce(client, topic, batch)).base_offset == 2 * number
        assert (await produce(client, topic, batches[1])).base_offset == 2
    async with broker_and_client(tmp_path) as (_, client):
        for number, batch in enumerate(batches):
            answer = await produce(client, topic, batch)
            assert (answer.error_code, answer.base_offset) == (0, 2 * number)
        gap = records(b"z", producer_id=5, producer_epoch=0, base_sequence=50)
        assert (await produce(client, topic, gap)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert len(decoded(await fetch(client, topic))) == 8


@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize("others", [0, 2], ids=["one batch", "several"])
async def test_a_retry_whose_offset_is_not_kept_any_more_is_a_duplicate(
    tmp_path: Path, version: int, others: int
) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, partitions=3)

        async def send(sequence: int) -> Any:
            batch = records(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=sequence)
            beside = {index: records(b"z") for index in range(1, 1 + others)}
            answer = await client.ask(ApiKey.PRODUCE, version, produce_request(topic, {0: batch, **beside}, version))
            rows = answer.responses[0].partition_responses
            assert [row.error_code for row in rows[1:]] == [0] * others
            return rows[0]

        for number in range(20):
            assert (await send(2 * number)).base_offset == 2 * number
        for _ in range(2):
            late = await send(4)
            assert (late.error_code, late.base_offset) == (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)
        assert (await send(40)).base_offset == 40


async def test_the_clusters_own_topics_are_not_written_by_clients(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.ensure_offsets_topic()
        topic = broker.controller.image.topics["__consumer_offsets"]
        assert (await produce(client, topic, records(b"a"))).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_too_few_replicas(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, min_insync_replicas="2")
        assert (await produce(client, topic, records(b"a"))).error_code == 0, "more than there are is not demanded"
        out_of_sync(broker, topic)
        assert (await produce(client, topic, records(b"a"))).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await produce(client, topic, records(b"a"), acks=1)).error_code == 0


async def test_a_batch_behind_one_that_was_refused_for_a_while_is_not_out_of_order(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, min_insync_replicas="2")

        async def send(sequence: int, acks: int) -> int:
            batch = records(b"a", producer_id=5, producer_epoch=0, base_sequence=sequence)
            return (await produce(client, topic, batch, acks=acks)).error_code

        assert await send(0, -1) == 0
        out_of_sync(broker, topic)
        assert await send(1, -1) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await send(2, 1) == ErrorCode.NOT_ENOUGH_REPLICAS, "what is due was refused for that"
        assert [await send(number, 1) for number in (1, 2)] == [0, 0]
        assert await send(9, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_pipelined_requests_are_appended_in_order(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, wire_client(broker) as client:
        topic = await make_topic(broker)
        stream = b""
        for number in range(50):
            request = produce_request(topic, {0: records(b"%02d" % number)}, 9)
            stream += encode_request(ApiKey.PRODUCE, 9, number, "c", request)
        client._writer.write(stream)
        client._correlation = 49
        answer = await _skip_to(client, 50)
        assert answer.base_offset == 49
        values = [record.value for record in decoded(await fetch(client, topic))]
        assert values == [b"%02d" % number for number in range(50)]


async def _skip_to(client: Any, count: int) -> Any:
    for number in range(count):
        size = int.from_bytes(await client._reader.readexactly(4), "big")
        correlation, response = decode_response(ApiKey.PRODUCE, 9, await client._reader.readexactly(size))
        assert correlation == number
    return response.responses[0].partition_responses[0]


async def test_a_failed_fsync_refuses_what_waits_and_stops_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        await produce(client, topic, records(b"kept"))

        def fail(_files: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        instead_of_a_sync(monkeypatch, fail)
        assert (await produce(client, topic, records(b"lost"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await produce(client, topic, records(b"late"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert [record.value for record in decoded(await fetch(client, topic))] == [b"kept"]
        assert broker.stop.is_set()


async def test_a_request_for_nothing_is_answered(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (_, client):
        response = await client.ask(
            ApiKey.PRODUCE, 9, ProduceRequest(acks=-1, topic_data=(TopicProduceData(name="t"),))
        )
        assert response.responses[0].partition_responses == ()
