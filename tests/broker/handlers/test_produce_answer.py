"""What is said to batches of every outcome"""

import asyncio
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker_world import WireClient, broker_and_client, running_broker, wire_client
from tests.broker.handlers.data_path import make_topic, produce, produce_request, records
from tidemill.broker.handlers import produce_answer
from tidemill.broker.handlers.produce_answer import AskedTopic, all_failed, answer_later, produce_response
from tidemill.broker.node import Broker
from tidemill.broker.quorum.image import TopicImage
from tidemill.broker.replication.replica import ACKS_ALL, ACKS_LEADER
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import InvalidRecord, KafkaStorageError
from tidemill.core.records.batch import stamp
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.wire.api import ApiKey

NOW_MS = 1_700_000_000_000
ASKED: list[AskedTopic] = [("a", uuid.UUID(int=1), (4, 2)), ("b", uuid.UUID(int=2), (0,))]


def refused(count: int) -> InvalidRecord:
    error = InvalidRecord("some")
    error.record_errors = tuple((number, "why") for number in range(count))
    return error


def test_a_response_names_so_many_records_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of a hundred bytes may have thousands of them, and a request thousands of such batches."""
    monkeypatch.setattr(produce_answer, "RECORD_ERRORS_MAX", 5)
    response = produce_response(ASKED, (None,) * 3, [refused(3)] * 3)
    rows = [row for topic in response.responses for row in topic.partition_responses]
    assert [len(row.record_errors) for row in rows] == [3, 2, 0]
    assert [(row.index, row.error_code) for row in rows] == [(n, ErrorCode.INVALID_RECORD) for n in (4, 2, 0)]


async def test_what_waits_for_the_rest_of_its_request_names_so_many_records_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nine kilobytes name ten thousand, of which each takes memory until the last batch of the request is judged."""
    monkeypatch.setattr(produce_answer, "RECORD_ERRORS_MAX", 5)
    errors = [refused(3) for _ in range(5)]
    waiting = [asyncio.get_running_loop().create_future() for _ in range(4)]
    answer = answer_later((), [errors[0], *waiting], ACKS_ALL, list)
    for number in (3, 1, 2):
        waiting[number].set_result(errors[number + 1])
        await asyncio.sleep(0)
    assert [len(error.record_errors) for error in errors] == [3, 3, 0, 0, 2]
    waiting[0].set_result(errors[1])
    assert await answer == errors
    assert sum(len(error.record_errors) for error in errors) == 5


def test_all_failed_is_said_for_every_partition() -> None:
    response = all_failed(ASKED, KafkaStorageError("gone"))
    assert [(topic.name, [row.index for row in topic.partition_responses]) for topic in response.responses] == [
        ("a", [4, 2]),
        ("b", [0]),
    ]


async def test_an_answer_that_cannot_be_made_is_an_error_of_its_own() -> None:
    waiting = asyncio.get_running_loop().create_future()
    answer = answer_later((), [waiting], ACKS_ALL, lambda _outcomes: 1 // 0)
    waiting.set_result(refused(1))
    with pytest.raises(ZeroDivisionError):
        await answer


async def test_whoever_leaves_takes_what_waits_with_him() -> None:
    waiting = asyncio.get_running_loop().create_future()
    answer = answer_later((), [refused(1), waiting], ACKS_ALL, list)
    answer.cancel()
    await asyncio.sleep(0)
    assert waiting.cancelled()


@pytest.mark.parametrize("version", range(3, 14))
async def test_the_records_at_fault_are_named(tmp_path: Path, version: int) -> None:
    """As Apache Kafka 4.3.1 does it: tests/integration/test_record_errors.py asks both."""
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, cleanup_policy="compact")
        batch = build_batch([NewRecord(NOW_MS, None if n in (1, 3) else b"k", b"v") for n in range(5)])
        for _ in range(2):
            answer = await produce(client, topic, batch, version=version)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
            if version >= 8:
                assert [row.batch_index for row in answer.record_errors] == [1, 3]
                assert (answer.error_message or "").startswith("2 of 5 records cannot be stored")
                assert answer.log_start_offset == 0
            else:
                assert answer.record_errors == ()


async def test_the_rest_of_a_request_is_stored(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, partitions=2, cleanup_policy="compact")
        keyed = build_batch([NewRecord(NOW_MS, b"k", b"v")])
        for _ in range(2):
            response = await client.ask(ApiKey.PRODUCE, 9, produce_request(topic, {0: records(b"x"), 1: keyed}, 9))
            codes = [row.error_code for row in response.responses[0].partition_responses]
            assert codes == [ErrorCode.INVALID_RECORD, 0]


@pytest.mark.parametrize("beside", [(), (1, 2)], ids=["one batch", "several"])
async def test_a_duplicate_whose_place_is_not_known_waits_for_others_as_a_batch_does(
    tmp_path: Path, beside: tuple[int, ...]
) -> None:
    """Who is told that it is stored may forget it."""
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, partitions=3)

        async def send(sequence: int, acks: int) -> Any:
            batch = records(b"a", producer_id=5, producer_epoch=0, base_sequence=sequence)
            request = produce_request(topic, {0: batch, **{index: records(b"z") for index in beside}}, 9, acks=acks)
            return await client.ask(ApiKey.PRODUCE, 9, request)

        for number in range(9):
            await send(number, ACKS_ALL)
        in_sync(broker, topic, 99)
        await send(9, ACKS_LEADER)
        waiting = asyncio.create_task(send(1, ACKS_ALL))
        await asyncio.wait([waiting], timeout=0.2)
        assert not waiting.done()
        in_sync(broker, topic)
        row = (await waiting).responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


@pytest.mark.parametrize("is_late", [False, True], ids=["new", "stored long ago"])
async def test_what_is_cut_off_while_others_of_its_request_are_waited_for_is_not_acknowledged(
    tmp_path: Path, is_late: bool
) -> None:
    """The next leader does not have it, and has written more since than was there."""
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, partitions=2)
        in_sync(broker, topic, 99)

        async def send(sequence: int, acks: int, *beside: int) -> Any:
            batch = records(b"mine", producer_id=5, producer_epoch=0, base_sequence=sequence)
            request = produce_request(topic, {**{index: records(b"x") for index in beside}, 1: batch}, 9, acks=acks)
            return await client.ask(ApiKey.PRODUCE, 9, request)

        for number in range(8):
            await send(number, ACKS_LEADER)
        waiting = asyncio.create_task(send(0 if is_late else 8, ACKS_ALL, 0))
        first, replica = broker.replicas.get("t", 0), broker.replicas.get("t", 1)
        assert first is not None
        assert replica is not None
        await asyncio.wait([waiting], timeout=0.2)
        await first.log.durable(0)
        await replica.log.durable(7 if is_late else 8)
        now = replica.image
        assert now is not None
        followed = replace(now, leader=99, isr=(99,), leader_epoch=now.leader_epoch + 1)
        replica.assign(replace(followed, partition_epoch=now.partition_epoch + 1), now_ms=0)
        await broker.logs.truncate(replica.log, 0)
        others = bytearray(records(*(b"another leader's" for _ in range(20))))
        stamp(others, 0, 0, followed.leader_epoch)
        replica.log.append_at(0, others, now_ms=0)
        await replica.log.durable(19)
        told = replica.machine.answered(
            followed.leader_epoch, high_watermark=20, divergence=None, epochs=replica.log.epochs, log_end=20
        )
        replica.take(told)
        assert replica.high_watermark == 20
        assert not waiting.done()
        in_sync(broker, replace(topic, partitions=topic.partitions[:1]))
        rows = (await waiting).responses[0].partition_responses
        assert [row.error_code for row in rows] == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_too_few_in_sync_is_told_also_of_what_is_waited_for_behind_others_of_its_request(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, partitions=2, min_insync_replicas="2")
        in_sync(broker, topic, 99)
        request = produce_request(topic, {0: records(b"x"), 1: records(b"y")}, 9)
        waiting = asyncio.create_task(client.ask(ApiKey.PRODUCE, 9, request))
        await asyncio.wait([waiting], timeout=0.2)
        first, second = broker.replicas.get("t", 0), broker.replicas.get("t", 1)
        assert first is not None
        assert second is not None
        now = second.image
        assert now is not None
        fewer = replace(now, isr=(broker.node_id,), partition_epoch=now.partition_epoch + 1)
        second.assign(fewer, now_ms=0)
        assert not waiting.done()
        epoch = first.machine.leader_epoch
        first.take(first.machine.fetched(99, 1, leader_epoch=epoch, log_end=1, now_ms=0))
        rows = (await asyncio.wait_for(waiting, 5)).responses[0].partition_responses
        assert [row.error_code for row in rows] == [0, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


async def test_a_duplicate_whose_place_is_not_known_is_counted_whichever_way_it_came(tmp_path: Path) -> None:
    async with running_broker(tmp_path, metrics_listener="127.0.0.1:0") as broker, wire_client(broker) as client:
        assert broker.meter is not None
        topic = await make_topic(broker, partitions=2)

        async def send(by: WireClient, sequence: int, beside: dict[int, bytes]) -> None:
            batch = records(b"a", producer_id=5, producer_epoch=0, base_sequence=sequence)
            await by.ask(ApiKey.PRODUCE, 9, produce_request(topic, {0: batch, **beside}, 9))

        for number in range(9):
            await send(client, number, {})
        ways: list[dict[int, bytes]] = [{}, {}, {1: records(b"z")}]
        counted = (int(ApiKey.PRODUCE), int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
        async with wire_client(broker) as other:  # whose first request goes the general way
            for number, beside in enumerate(ways, 1):
                await send(other, 1, beside)
                assert broker.meter.errors[counted] == number


def in_sync(broker: Broker, topic: TopicImage, *others: int) -> None:
    """Let every partition have these replicas in sync beside its leader, on brokers that there are not."""
    for partition in topic.partitions:
        replica = broker.replicas.get(topic.name, partition.partition)
        assert replica is not None
        held = (broker.node_id, *others)
        version = replica.image.partition_epoch + 1
        replica.assign(replace(partition, replicas=held, isr=held, partition_epoch=version), now_ms=0)
