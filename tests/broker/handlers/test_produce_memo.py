"""The short way of Produce against the general one: two brokers, the same requests, the same bytes back"""

import dataclasses
import errno
import struct
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.broker.handlers.data_path import (
    decoded,
    fetch,
    instead_of_a_sync,
    make_topic,
    out_of_sync,
    produce,
    produce_request,
    records,
)
from tests.broker.handlers.short_way import PEER, TOPICS, Served, answer_bytes, one
from tidemill.broker import admission
from tidemill.broker.handlers import produce_memo, produce_several
from tidemill.broker.handlers.produce_memo import ProduceMemo
from tidemill.broker.node import Broker
from tidemill.broker.quorum.delta import ImageDelta
from tidemill.broker.quorum.image import RESOURCE_TOPIC, apply_batch
from tidemill.broker.quorum.metadata import ConfigChange, ConfigOp, ResourceChange, TopicRef
from tidemill.broker.quorum.records import PartitionChangeRecord
from tidemill.core.errors import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import encode_request
from tidemill.core.wire.messages.produce import ProduceRequest


def requests(broker: Broker, version: int) -> list[ProduceRequest]:
    """Good ones and all kinds of bad ones, each kind between good ones of the same prefix."""
    plain = broker.controller.image.topics["plain"]

    def to(topic: str, batch: bytes | None, partition: int = 0, acks: int = -1, **more: Any) -> ProduceRequest:
        image = broker.controller.image.topics.get(topic)
        if image is None:
            image = dataclasses.replace(plain, name=topic, topic_id=uuid.UUID(int=3))
        return produce_request(image, {partition: batch}, version, acks, **more)  # type: ignore[dict-item]

    flipped = bytearray(records(b"flipped"))
    flipped[-1] ^= 1
    idempotent = [
        records(b"i%d" % number, producer_id=4, producer_epoch=0, base_sequence=number) for number in (0, 1, 1, 7, 2)
    ]
    odd = [
        bytes(flipped),
        b"",
        None,
        records(b"long" * 300_000),
        records(b"late", timestamp=99_000_000_000_000),
        records(b"zstd" * 10, codec="zstd"),
        records(b"tx", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
        *idempotent,
    ]
    made = [to("plain", records(b"%d" % number)) for number in range(3)]
    for batch in odd:
        made += [to("plain", batch), to("plain", records(b"between"))]
    for topic in (*TOPICS, "unknown"):
        made += [to(topic, records(b"x"), acks=acks) for acks in (1, -1, 1)]
        made += [to(topic, records(b"x" * 200), partition) for partition in (0, 1, 2, -1)]
    made.append(to("plain", records(b"x"), transactional_id="t"))
    made.append(to("plain", records(b"x"), acks=7))
    made.append(produce_request(plain, {0: records(b"both"), 1: records(b"both")}, version, 1))
    return made + [to("plain", records(b"last"), acks=acks) for acks in (1, -1)]


@pytest.mark.parametrize("policy", ["os", "group"])
@pytest.mark.parametrize("version", range(3, 14))
async def test_nobody_can_tell_the_difference(tmp_path: Path, version: int, policy: str) -> None:
    served = Served()
    async with (
        one(tmp_path / "a", served, policy) as (short, client),
        one(tmp_path / "b", None, policy) as (
            general,
            other,
        ),
    ):
        for number, (left, right) in enumerate(zip(requests(short, version), requests(general, version), strict=True)):
            assert left == right
            frame = encode_request(ApiKey.PRODUCE, version, number, "c", left)
            assert await answer_bytes(client, frame) == await answer_bytes(other, frame), f"request {number}: {left}"
        assert served.count > 30
        for name in TOPICS:
            for partition in (0, 1):
                found = await fetch(client, short.controller.image.topics[name], partition=partition)
                expected = await fetch(other, general.controller.image.topics[name], partition=partition)
                assert bytes(found.records or b"") == bytes(expected.records or b"")


async def test_a_deleted_topic_is_forgotten_and_its_successor_is_found(tmp_path: Path) -> None:
    served = Served()
    async with one(tmp_path, served) as (broker, client):
        topic = broker.controller.image.topics["plain"]
        assert [(await produce(client, topic, records(b"a"))).base_offset for _ in range(3)] == [0, 1, 2]
        assert served.count == 2
        await broker.controller.delete_topics([TopicRef(name="plain")])
        assert (await produce(client, topic, records(b"b"))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        again = await make_topic(broker, "plain")
        assert (await produce(client, topic, records(b"c"))).base_offset == 0
        assert served.count == 3
        assert [record.value for record in decoded(await fetch(client, again))] == [b"c"]


def changed(broker: Broker, topic: str) -> None:
    """The broker hears of another ISR of the first partition of a topic."""
    image = broker.controller.image
    change = PartitionChangeRecord(partition_id=0, topic_id=image.topics[topic].topic_id, isr=(1,))
    broker.following.hear(ImageDelta.between(image, apply_batch(image, (change,))))


async def test_a_change_of_one_partition_lets_nothing_else_be_looked_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[tuple[str | None, int]] = []

    def find_place(broker: Any, who: Any, name: str | None, topic_id: uuid.UUID, partition: int) -> Any:
        looked_up.append((name, partition))
        return admission.find_place(broker, who, name, topic_id, partition)

    monkeypatch.setattr(produce_memo, "find_place", find_place)
    monkeypatch.setattr(produce_several, "find_place", find_place)
    names = [f"t{number}" for number in range(40)]
    async with one(tmp_path, Served()) as (broker, client):
        topics = [await make_topic(broker, name, partitions=2) for name in names]

        async def write() -> list[tuple[str | None, int]]:
            """To every partition, one by one and both together."""
            looked_up.clear()
            for topic in topics:
                for batches in ({0: records(b"a")}, {1: records(b"a")}, {0: records(b"a"), 1: records(b"a")}):
                    request = produce_request(topic, batches, 9)
                    await answer_bytes(client, encode_request(ApiKey.PRODUCE, 9, 1, "c", request))
            return sorted(looked_up)

        assert len(await write()) >= 4 * 40 - 2, "the first requests of a connection are read by the general way"
        assert len(await write()) <= 2
        assert await write() == []
        changed(broker, "t7")
        assert await write() == [("t7", 0), ("t7", 0)], "once for each way"
        assert await write() == []


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("min.insync.replicas", "2", ErrorCode.NOT_ENOUGH_REPLICAS),
        ("max.message.bytes", "100", ErrorCode.MESSAGE_TOO_LARGE),
        ("message.timestamp.before.max.ms", "1", ErrorCode.INVALID_TIMESTAMP),
    ],
)
async def test_changed_settings_are_obeyed_at_once(tmp_path: Path, key: str, value: str, code: int) -> None:
    served = Served()
    async with one(tmp_path, served) as (broker, client):
        topic = broker.controller.image.topics["plain"]
        out_of_sync(broker, topic)
        batch = records(b"a" * 100, timestamp=1_600_000_000_000)
        assert [(await produce(client, topic, batch)).error_code for _ in range(2)] == [0, 0]
        change = ConfigChange(name=key, op=ConfigOp.SET, value=value)
        (result,) = await broker.controller.alter_configs(
            [ResourceChange(resource_type=RESOURCE_TOPIC, resource_name="plain", changes=(change,))]
        )
        assert result.error is None
        assert (await produce(client, topic, batch)).error_code == code
        assert served.count == 2


async def test_pipelined_requests_are_answered_in_order_when_only_some_take_the_short_way(tmp_path: Path) -> None:
    served = Served()
    async with one(tmp_path, served, "group") as (broker, client):
        topic = broker.controller.image.topics["plain"]
        stream = b""
        for number in range(200):
            batches = {0: records(b"%d" % number)} | ({} if number % 3 else {7: records(b"there is no such partition")})
            stream += encode_request(ApiKey.PRODUCE, 9, number, "c", produce_request(topic, batches, 9))
        client._writer.write(stream)
        for number in range(200):
            (size,) = struct.unpack(">i", await client._reader.readexactly(4))
            answer = await client._reader.readexactly(size)
            assert struct.unpack_from(">i", answer)[0] == number
        assert 100 < served.count < 200
        values = [record.value for record in decoded(await fetch(client, topic))]
        assert values == [b"%d" % number for number in range(200)]


@pytest.mark.parametrize("version", [3, 9])
async def test_a_frame_that_ends_before_the_last_prefix_did(tmp_path: Path, version: int) -> None:
    served = Served()
    long = "l" * 240
    async with one(tmp_path / "a", served) as (short, client), one(tmp_path / "b", None) as (general, other):
        answers = []
        for broker, asked in ((short, client), (general, other)):
            topics = {"long": await make_topic(broker, long), "short": broker.controller.image.topics["plain"]}
            frames = []
            for to, batch in (
                ("long", records(b"a")),
                ("long", records(b"b")),
                ("short", b""),
                ("long", records(b"c")),
                ("short", None),
                ("long", records(b"d")),
                ("short", b"x" * 20),
                ("short", records(b"e")),
                ("long", records(b"f")),
            ):
                request = produce_request(topics[to], {0: batch}, version)  # type: ignore[dict-item]
                frames.append(encode_request(ApiKey.PRODUCE, version, len(frames), "c", request))
            answers.append([await answer_bytes(asked, frame) for frame in frames])
        assert answers[0] == answers[1]
        assert served.count > 0


async def test_a_failed_fsync_refuses_all_that_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served()
    async with one(tmp_path, served, "group") as (broker, client):
        topic = broker.controller.image.topics["plain"]
        for value in (b"a", b"b"):
            assert (await produce(client, topic, records(value))).error_code == 0

        def fail(_files: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        instead_of_a_sync(monkeypatch, fail)
        before = served.count
        assert (await produce(client, topic, records(b"lost"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert served.count == before + 1
        assert [record.value for record in decoded(await fetch(client, topic))] == [b"a", b"b"]


async def test_a_connection_remembers_a_bounded_number_of_prefixes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_memo, "ENTRIES_MAX", 3)
    async with one(tmp_path, None) as (broker, _):
        memo = ProduceMemo(broker, 9, PEER)
        await make_topic(broker, "wide", partitions=10)
        topic = broker.controller.image.topics["wide"]
        for number in (*range(10), *range(10)):
            request = produce_request(topic, {number: records(b"a")}, 9)
            frame = encode_request(ApiKey.PRODUCE, 9, 1, "c", request)[4:]
            assert memo(memoryview(bytearray(frame))) is not None
            assert len(memo._known) <= 3


async def test_a_full_memo_that_learns_one_anew_forgets_none_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_memo, "ENTRIES_MAX", 5)
    looked_up: list[str | None] = []

    def find_place(broker: Any, who: Any, name: str | None, topic_id: uuid.UUID, partition: int) -> Any:
        looked_up.append(name)
        return admission.find_place(broker, who, name, topic_id, partition)

    monkeypatch.setattr(produce_memo, "find_place", find_place)
    async with one(tmp_path, None) as (broker, _):
        memo = ProduceMemo(broker, 9, PEER)
        topics = [await make_topic(broker, f"t{number}") for number in range(5)]

        def write() -> list[str | None]:
            looked_up.clear()
            for topic in topics:
                request = produce_request(topic, {0: records(b"a")}, 9)
                frame = encode_request(ApiKey.PRODUCE, 9, 1, "c", request)[4:]
                assert memo(memoryview(bytearray(frame))) is not None
            return looked_up

        assert (len(write()), write()) == (5, [])
        changed(broker, "t1")
        assert write() == ["t1"]


async def test_a_long_client_id_is_not_remembered_but_served(tmp_path: Path) -> None:
    served = Served()
    async with one(tmp_path, served) as (broker, client):
        topic = broker.controller.image.topics["plain"]
        for client_id, counted in (("c", 1), ("c" * produce_memo.PREFIX_BYTES_MAX, 1), ("d", 2)):
            for _ in range(2):
                request = produce_request(topic, {0: records(b"a")}, 9)
                await answer_bytes(client, encode_request(ApiKey.PRODUCE, 9, 1, client_id, request))
            assert served.count == counted + (client_id == "d")
        assert len(decoded(await fetch(client, topic))) == 6
