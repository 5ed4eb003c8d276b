"""Produce requests with several batches, served in the short way and in the general one: nobody can tell them apart"""

import errno
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.broker.handlers.data_path import (
    decoded,
    fetch,
    instead_of_a_sync,
    make_topic,
    produce_request,
    records,
    unknown_topic,
)
from tests.broker.handlers.short_way import PEER, TOPICS, Served, answer_bytes, one
from tidemill.broker.handlers import produce_several
from tidemill.broker.handlers.produce_memo import ProduceMemo
from tidemill.broker.node import Broker
from tidemill.broker.quorum.image import TopicImage
from tidemill.broker.quorum.metadata import TopicRef
from tidemill.core.error_code import ErrorCode
from tidemill.core.types import ZERO_UUID
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import encode_request
from tidemill.core.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

Batches = list[tuple[int, bytes | None]]


def several(version: int, *topics: tuple[TopicImage, Batches], acks: int = -1, **more: Any) -> ProduceRequest:
    """A request for several topics, each with several partitions."""
    by_id = version >= 13
    return ProduceRequest(
        acks=acks,
        topic_data=tuple(
            TopicProduceData(
                name="" if by_id else topic.name,
                topic_id=topic.topic_id if by_id else ZERO_UUID,
                partition_data=tuple(PartitionProduceData(index=index, records=batch) for index, batch in batches),
            )
            for topic, batches in topics
        ),
        **more,
    )


def flipped() -> bytes:
    batch = bytearray(records(b"flipped"))
    batch[-1] ^= 1
    return bytes(batch)


def idempotent(number: int) -> bytes:
    return records(b"i%d" % number, producer_id=4, producer_epoch=0, base_sequence=number)


def all_at_once(image: dict[str, TopicImage], version: int) -> list[ProduceRequest]:
    """What the short way has to serve, batches that the log refuses included."""
    plain, longer = image["plain"], image["a-much-longer-name"]
    a, b = (0, records(b"a")), (1, records(b"b"))
    transactional = records(b"tx", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    to_all: list[tuple[TopicImage, Batches]] = [(image[name], [a, b]) for name in TOPICS if name != "careful"]
    return [
        several(version, (plain, [a, b])),
        several(version, (plain, [b, a]), acks=1),
        several(version, (plain, [a, b, a, a])),
        several(version, (plain, [a]), (longer, [b])),
        several(version, (plain, [a]), (longer, [a, b]), (plain, [b])),
        several(version, *to_all),
        several(version, (plain, [(0, flipped()), b])),
        several(version, (plain, [a, (1, flipped())])),
        several(version, (plain, [a]), (longer, [(0, flipped()), (1, flipped())]), (plain, [b])),
        several(version, (plain, [a, (1, records(b"late", timestamp=99_000_000_000_000))])),
        several(version, (plain, [a, (0, records(b"zstd" * 10, codec="zstd"))])),
        several(version, (image["small"], [a, (1, records(b"x" * 200)), b])),
        several(version, (image["careful"], [a, b]), acks=1),
        *(several(version, (plain, [(0, idempotent(n)), (1, idempotent(n))])) for n in (0, 1, 1, 7, 2)),
        several(version, (plain, [(0, idempotent(3)), (0, idempotent(4)), (0, idempotent(3)), (0, idempotent(9))])),
        several(version, (plain, [a, b]), (longer, [])),
        several(version, (plain, [a, (1, b"")])),
        several(version, (plain, [a, (1, b"short")])),
        several(version, (plain, [a, (1, transactional)])),
        several(version, (plain, [a]), (image["careful"], [b])),
        several(version, (plain, [])),
        several(version, (unknown_topic(), [])),
        several(version),
    ]


def left_alone(image: dict[str, TopicImage], version: int) -> list[ProduceRequest]:
    """What the general handler has to judge, and of which it stores what is good."""
    plain = image["plain"]
    a, b = (0, records(b"a")), (1, records(b"b"))
    return [
        several(version, (plain, [a, (2, records(b"x"))])),
        several(version, (plain, [a, (-1, records(b"x"))])),
        several(version, (plain, [a]), (unknown_topic(), [b])),
        several(version, (plain, [a, (1, None)])),
        several(version, (plain, [a, b]), acks=7),
        several(version, (plain, [a, b]), transactional_id="t"),
    ]


async def answers(client: Any, requests: list[ProduceRequest], version: int) -> list[bytes]:
    return [
        await answer_bytes(client, encode_request(ApiKey.PRODUCE, version, number, "c", request))
        for number, request in enumerate(requests)
    ]


@pytest.mark.parametrize("policy", ["os", "group"])
@pytest.mark.parametrize("version", range(3, 14))
async def test_nobody_can_tell_the_difference(tmp_path: Path, version: int, policy: str) -> None:
    served = Served()
    async with (
        one(tmp_path / "a", served, policy) as (short, client),
        one(tmp_path / "b", None, policy) as (general, other),
    ):
        topics = dict(short.controller.image.topics)
        assert topics == dict(general.controller.image.topics)
        first = [several(version, (topics["plain"], [(0, records(b"a"))]))]  # from the second request on
        assert await answers(client, first, version) == await answers(other, first, version)
        for build, expected in ((all_at_once, len(all_at_once(topics, version))), (left_alone, 0)):
            requests, before = build(topics, version), served.count
            found = await answers(client, requests, version)
            for number, answer in enumerate(await answers(other, build(topics, version), version)):
                assert found[number] == answer, f"request {number}: {requests[number]}"
            assert served.count == before + expected
        assert await stored(short, client) == await stored(general, other)


async def stored(broker: Broker, client: Any) -> dict[tuple[str, int], bytes]:
    """The bytes of every partition."""
    return {
        (name, index): bytes(
            (await fetch(client, broker.controller.image.topics[name], partition=index)).records or b""
        )
        for name in TOPICS
        for index in (0, 1)
    }


async def test_a_failed_fsync_refuses_every_batch_that_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served()
    async with one(tmp_path, served, "group") as (broker, client):
        topic = broker.controller.image.topics["plain"]
        request = produce_request(topic, {0: records(b"a"), 1: records(b"b")}, 9)
        for _ in range(2):
            response = await client.ask(ApiKey.PRODUCE, 9, request)
            assert [row.error_code for row in response.responses[0].partition_responses] == [0, 0]
        assert served.count == 1

        def fail(_files: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        instead_of_a_sync(monkeypatch, fail)
        response = await client.ask(ApiKey.PRODUCE, 9, request)
        assert served.count == 2
        rows = response.responses[0].partition_responses
        assert [(row.index, row.error_code) for row in rows] == [
            (0, ErrorCode.KAFKA_STORAGE_ERROR),
            (1, ErrorCode.KAFKA_STORAGE_ERROR),
        ]
        for partition in (0, 1):
            assert len(decoded(await fetch(client, topic, partition=partition))) == 2


async def test_the_answer_waits_for_the_disk_and_keeps_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served()
    async with one(tmp_path, served, "group") as (broker, client):
        topic = broker.controller.image.topics["plain"]
        request = produce_request(topic, {0: records(b"a"), 1: records(b"b")}, 9)
        await client.ask(ApiKey.PRODUCE, 9, request)
        synced: list[int] = []
        instead_of_a_sync(monkeypatch, synced.append)
        client._writer.write(b"".join(encode_request(ApiKey.PRODUCE, 9, n, "c", request) for n in range(50)))
        for number in range(50):
            (size,) = struct.unpack(">i", await client._reader.readexactly(4))
            assert struct.unpack_from(">i", await client._reader.readexactly(size))[0] == number
            assert sum(synced) >= 2, "both files are safe before anything is said"
        assert served.count == 50
        logs = [broker.logs.get("plain", index) for index in (0, 1)]
        assert [log.recovery_point for log in logs if log is not None] == [51, 51]


async def test_a_deleted_topic_is_forgotten_and_its_successor_is_found(tmp_path: Path) -> None:
    served = Served()
    async with one(tmp_path, served) as (broker, client):
        topic = broker.controller.image.topics["plain"]

        async def send(value: bytes) -> list[tuple[int, int]]:
            request = produce_request(topic, {0: records(value), 1: records(value)}, 9)
            response = await client.ask(ApiKey.PRODUCE, 9, request)
            return [(row.error_code, row.base_offset) for row in response.responses[0].partition_responses]

        assert [await send(b"a") for _ in range(3)] == [[(0, number), (0, number)] for number in range(3)]
        await broker.controller.delete_topics([TopicRef(name="plain")])
        assert await send(b"b") == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)] * 2
        again = await make_topic(broker, "plain", partitions=2)
        assert await send(b"c") == [(0, 0), (0, 0)]
        assert served.count == 3
        assert [record.value for record in decoded(await fetch(client, again))] == [b"c"]


async def test_a_connection_remembers_a_bounded_number_of_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_several, "PLACES_MAX", 3)
    async with one(tmp_path, None) as (broker, _):
        memo = ProduceMemo(broker, 9, PEER)
        topic = await make_topic(broker, "wide", partitions=10)
        for _ in range(2):
            for first in range(9):
                request = produce_request(topic, {first: records(b"a"), first + 1: records(b"b")}, 9)
                frame = encode_request(ApiKey.PRODUCE, 9, 1, "c", request)[4:]
                assert memo(memoryview(bytearray(frame))) is not None
                assert len(memo._several._places) <= 3
        ends = [broker.logs.get("wide", index).log_end_offset for index in range(10)]  # type: ignore[union-attr]
        assert ends == [2, *[4] * 8, 2]


async def test_the_clusters_own_topics_are_not_written_by_clients(tmp_path: Path) -> None:
    async with one(tmp_path, None) as (broker, _):
        await broker.ensure_offsets_topic()
        internal = broker.controller.image.topics["__consumer_offsets"]
        frame = encode_request(
            ApiKey.PRODUCE, 9, 1, "c", produce_request(internal, dict.fromkeys((0, 1), records(b"x")), 9)
        )
        assert ProduceMemo(broker, 9, PEER)(memoryview(bytearray(frame[4:]))) is None
        log = broker.logs.get("__consumer_offsets", 0)
        assert log is not None and log.log_end_offset == 0
