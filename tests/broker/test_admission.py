"""Batches that are judged in a thread: nobody waits for them but those behind them, and nobody overtakes"""

import asyncio
import gzip
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker_world import WireClient, broker_and_client, wire_client
from tests.broker.handlers.data_path import decoded, fetch, make_topic, produce, produce_request
from tests.broker.handlers.short_way import answer_bytes
from tests.broker.log.log_world import LogWorld, read_all
from tests.broker.many_records import NOW_MS, many_records
from tests.broker.replication.replica_world import image, led
from tests.loop_watch import watched_loop
from tests.sim.disk import SimulatedDisk
from tidemill.broker import admission
from tidemill.broker.admission import Admission, Outcome
from tidemill.broker.log import examination
from tidemill.broker.log.appended import AppendResult
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.quorum.image import RESOURCE_TOPIC
from tidemill.broker.quorum.metadata import ConfigChange, ConfigOp, ResourceChange, TopicRef
from tidemill.broker.replication.replica import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import InvalidRecord, KafkaStorageError, NotLeaderOrFollower, OutOfOrderSequenceNumber
from tidemill.core.records.batch import HEADER_BYTES, with_records
from tidemill.core.records.builder import build_batch
from tidemill.core.records.compression import CODECS
from tidemill.core.records.record import NewRecord
from tidemill.core.types import TopicPartition
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import encode_request

COMPACTED = LogConfig(cleanup_policy=("compact",))
HEAVY = many_records(20_000)
HEAVY_WITHOUT_KEYS = many_records(20_000, keyed=False)
LIGHT = build_batch([NewRecord(NOW_MS, b"k", b"light")])


async def until(condition: Callable[[], object]) -> None:
    """Let others run until it holds."""
    async with asyncio.timeout(30):
        while True:
            if condition():
                return
            await asyncio.sleep(0)


class Door:
    """One log and the door to it."""

    def __init__(self, config: LogConfig = COMPACTED) -> None:
        self.log: PartitionLog = LogWorld(SimulatedDisk().root, config, group_commit=False).open()
        self.replica = led(self.log)
        self.in_touch = True
        self.admission = Admission(in_touch=lambda: self.in_touch)

    def admit(self, batch: bytes, acks: int = ACKS_ALL) -> "Outcome | asyncio.Future[Outcome]":
        return self.admission.admit(self.replica, bytearray(batch), acks, NOW_MS, 13)

    def later(self, batch: bytes, acks: int = ACKS_ALL) -> "asyncio.Future[Outcome]":
        outcome = self.admit(batch, acks)
        assert asyncio.isfuture(outcome)
        return outcome

    async def settled(self) -> None:
        await until(lambda: not self.admission.waiting_bytes)


async def test_few_records_are_judged_at_once() -> None:
    door = Door()
    assert isinstance(door.admit(LIGHT), AppendResult)
    assert isinstance(door.admit(build_batch([NewRecord(NOW_MS, None, b"v")])), InvalidRecord)
    assert isinstance(door.admit(many_records(1000)), AppendResult)
    assert door.log.log_end_offset == 1001


async def test_whoever_comes_behind_a_batch_that_is_being_judged_waits_for_it() -> None:
    door = Door()
    outcomes = [door.later(batch) for batch in (HEAVY, LIGHT, HEAVY_WITHOUT_KEYS, LIGHT)]
    assert door.log.log_end_offset == 0
    first, second, third, fourth = await asyncio.gather(*outcomes)
    assert isinstance(first, AppendResult) and first.base_offset == 0
    assert isinstance(second, AppendResult) and second.base_offset == 20_000
    assert isinstance(third, InvalidRecord) and len(third.record_errors) == 10_000
    assert isinstance(fourth, AppendResult) and fourth.base_offset == 20_001
    assert isinstance(door.admit(LIGHT), AppendResult), "nobody is in front any more"
    assert [view.record_count for view in read_all(door.log)] == [20_000, 1, 1, 1]


def numbered(sequence: int) -> bytes:
    """A batch of a producer that has several under way."""
    return build_batch([NewRecord(NOW_MS, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=sequence)


async def test_who_may_have_been_replaced_does_not_say_that_something_is_missing() -> None:
    door = Door()
    assert isinstance(door.admit(numbered(0)), AppendResult)
    door.in_touch = False
    refused = door.admit(numbered(2))
    assert isinstance(refused, NotLeaderOrFollower) and "where 1 was due" in str(refused)
    assert isinstance(door.admit(numbered(1)), AppendResult), "whatever is due is stored as ever"
    assert [isinstance(door.admit(numbered(number)), AppendResult) for number in (2, 3)] == [True, True]
    door.in_touch = True
    assert isinstance(door.admit(numbered(7)), OutOfOrderSequenceNumber)


async def test_what_is_really_missing_is_told_to_all_that_come_behind_once_the_broker_is_in_touch() -> None:
    """A client that gives one batch up and goes on with the next would ask for ever, and the answer grow each time."""
    door = Door(LogConfig())
    assert isinstance(door.admit(numbered(0)), AppendResult)
    door.in_touch = False
    assert [isinstance(door.admit(numbered(number)), NotLeaderOrFollower) for number in (2, 3, 3)] == [True] * 3
    assert len(str(door.admit(numbered(3)))) == len(str(door.admit(numbered(3))))
    door.in_touch = True
    assert [isinstance(door.admit(numbered(number)), OutOfOrderSequenceNumber) for number in (2, 3)] == [True] * 2


async def test_what_stands_behind_a_batch_that_came_too_early_does_not_overtake_it() -> None:
    """Its broker is about to lead: the client has heard of it first."""
    door = Door()
    assert isinstance(door.admit(numbered(0)), AppendResult)
    door.replica.assign(image(2, (1, 2), epoch=1, version=1), now_ms=0)
    assert isinstance(door.admit(numbered(1)), NotLeaderOrFollower)
    door.replica.assign(image(1, (1, 2), epoch=2, version=2), now_ms=0)
    behind = door.admit(numbered(2))
    assert isinstance(behind, NotLeaderOrFollower) and "number 1 of the same producer" in str(behind)
    assert [isinstance(door.admit(numbered(number)), AppendResult) for number in (1, 2)] == [True, True]


async def test_nor_where_there_was_no_log_for_it_yet() -> None:
    door = Door()
    here = door.log.topic_partition
    for partition, sequence in ((TopicPartition("elsewhere", 0), 0), (here, 4), (here, 5)):
        door.admission.turned_away.note(partition, numbered(sequence), NOW_MS)
    behind = door.admit(numbered(6))
    assert isinstance(behind, KafkaStorageError) and "number 4 of the same producer was refused" in str(behind)
    assert [isinstance(door.admit(numbered(number)), AppendResult) for number in (4, 5, 6)] == [True] * 3
    assert door.admission.turned_away.by_partition, "the other partition is not open"


async def test_nor_while_the_end_of_a_log_is_cut_off() -> None:
    door = Door()
    assert isinstance(door.admit(numbered(0)), AppendResult)
    door.log.cutting = True
    assert isinstance(door.admit(numbered(1)), NotLeaderOrFollower)
    door.log.cutting = False
    assert isinstance(door.admit(numbered(2)), NotLeaderOrFollower)
    assert [isinstance(door.admit(numbered(number)), AppendResult) for number in (1, 2)] == [True, True]


@pytest.mark.parametrize("known", [False, True])
async def test_what_is_refused_at_the_door_while_one_before_it_is_being_judged_lets_that_one_in(known: bool) -> None:
    door = Door()
    assert not known or isinstance(door.admit(numbered(0)), AppendResult)
    records = [NewRecord(NOW_MS, b"k%d" % number, b"v") for number in range(20_000)]
    heavy = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=1)
    judged = door.later(heavy)
    door.replica.assign(image(2, (1, 2), epoch=1, version=1), now_ms=0)
    assert isinstance(door.admit(numbered(20_001)), NotLeaderOrFollower)
    assert isinstance(await judged, NotLeaderOrFollower)
    door.replica.assign(image(1, (1, 2), epoch=2, version=2), now_ms=0)
    assert isinstance(door.admit(numbered(20_001)), NotLeaderOrFollower)
    assert isinstance(await door.later(heavy), AppendResult)
    assert isinstance(door.admit(numbered(20_001)), AppendResult)


async def test_another_partition_does_not_wait() -> None:
    door, other = Door(), Door()
    waiting = door.later(HEAVY)
    assert isinstance(other.admit(LIGHT), AppendResult)
    await waiting


async def test_one_turn_of_the_event_loop_looks_at_so_many_bytes_only() -> None:
    """Each of them is small, whatever it was that came in."""
    door = Door()
    bomb = many_records(1400)
    assert len(bomb) < 8000
    here = 0
    while isinstance(door.admit(bomb), AppendResult):
        here += 1
        assert here < 100
    assert here >= 3
    await door.settled()
    assert isinstance(door.admit(bomb), AppendResult), "it was another turn"


@pytest.mark.parametrize(
    ("codec", "packed"),
    [("gzip", gzip.compress(b"", mtime=0)), ("snappy", bytes(4)), ("snappy", b"\0\0\0\1\0")],
    ids=["an empty member", "an empty block", "a block of nothing"],
)
async def test_what_holds_no_record_counts_as_what_came_in(codec: str, packed: bytes) -> None:
    """Empty members and blocks, or no blocks at all: thousands of steps, and a batch that is refused."""
    start = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) if codec == "snappy" else b""
    empty = with_records(LIGHT[:HEADER_BYTES], start + packed * (12_000 // len(packed)), CODECS[codec])
    door = Door()
    outcomes = [door.admit(bytes(empty)) for _ in range(10)]
    assert [isinstance(outcome, InvalidRecord) for outcome in outcomes] == [True] * 6 + [False] * 4
    for outcome in outcomes[6:]:
        assert asyncio.isfuture(outcome)
        assert isinstance(await outcome, InvalidRecord)
    assert isinstance(door.admit(LIGHT), AppendResult), "it is another turn"


async def test_the_callers_buffer_may_be_used_again_at_once() -> None:
    door = Door()
    buffer = bytearray(HEAVY)
    outcome = door.admission.admit(door.replica, memoryview(buffer), ACKS_ALL, NOW_MS, 13)
    buffer[:] = bytes(len(buffer))
    assert asyncio.isfuture(outcome)
    assert isinstance(await outcome, AppendResult)


async def test_a_log_that_is_closed_meanwhile_refuses_all_that_wait() -> None:
    door = Door()
    outcomes = [door.later(HEAVY), door.later(LIGHT)]
    door.log.detach()
    assert [type(outcome) for outcome in await asyncio.gather(*outcomes)] == [KafkaStorageError, KafkaStorageError]
    assert door.log.log_end_offset == 0


async def test_settings_that_are_changed_meanwhile_are_obeyed() -> None:
    door = Door(LogConfig(record_validation="records"))
    outcome = door.later(HEAVY_WITHOUT_KEYS)
    door.log.config = COMPACTED
    assert isinstance(await outcome, InvalidRecord)
    door.log.config = LogConfig(record_validation="records")
    outcome = door.later(HEAVY_WITHOUT_KEYS)
    door.log.config = LogConfig()
    assert isinstance(await outcome, AppendResult)


async def test_what_nobody_waits_for_any_more_is_not_kept() -> None:
    door = Door()
    kept, first, second, last = (door.later(batch) for batch in (HEAVY, HEAVY, LIGHT, LIGHT))
    first.cancel()
    second.cancel()
    await asyncio.sleep(0)
    assert door.admission.waiting_bytes == len(HEAVY) + len(LIGHT)
    assert isinstance(await kept, AppendResult)
    found = await last
    assert isinstance(found, AppendResult) and found.base_offset == 20_000


async def test_the_one_that_is_being_judged_may_be_left_too() -> None:
    door = Door()
    first, second = door.later(HEAVY), door.later(LIGHT)
    first.cancel()
    found = await second
    assert isinstance(found, AppendResult) and found.base_offset == 0


async def test_a_producer_that_wants_no_answer_may_leave_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "ORPHANS_BYTES_MAX", len(HEAVY) + len(LIGHT))
    door = Door()
    for batch in (HEAVY, LIGHT, LIGHT):
        door.later(batch, ACKS_NONE).cancel()
    await asyncio.sleep(0)
    assert door.admission.waiting_bytes == len(HEAVY) + len(LIGHT), "there is no room for the last"
    await door.settled()
    assert door.log.log_end_offset == 20_001


async def test_when_the_broker_stops_everybody_hears_of_it() -> None:
    doors = [Door() for _ in range(4)]
    one = doors[0].admission
    outcomes = []
    for door in doors:
        door.admission = one
        outcomes += [door.later(HEAVY), door.later(HEAVY)]
    one.close()
    for outcome in await asyncio.gather(*outcomes):
        assert isinstance(outcome, AppendResult | KafkaStorageError)
    assert one.waiting_bytes == 0


@pytest.mark.parametrize("batch", [many_records(10, keyed=False), HEAVY_WITHOUT_KEYS], ids=["light", "heavy"])
async def test_a_refused_batch_is_walked_once(tmp_path: Path, batch: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    walks: list[int] = []
    validate: Callable[..., None] = examination.validate_records

    def counting(header: Any, data: Any, **more: Any) -> None:
        walks.append(header.record_count)
        validate(header, data, **more)

    monkeypatch.setattr(examination, "validate_records", counting)
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, cleanup_policy="compact")
        for number in range(3):  # the first goes the general way, the others the short one
            answer = await produce(client, topic, batch)
            assert answer.error_code == ErrorCode.INVALID_RECORD
            assert len(walks) == number + 1


@pytest.mark.parametrize(
    ("settings", "keyed"),
    [
        ({"cleanup_policy": "compact"}, True),
        ({"cleanup_policy": "compact"}, False),
        ({"compression_type": "gzip"}, True),
    ],
    ids=["compacted", "refused", "recoded"],
)
async def test_a_million_records_hold_up_nobody(tmp_path: Path, settings: dict[str, str], keyed: bool) -> None:
    batch = many_records(1_000_000, keyed=keyed)
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, max_message_bytes="20000000", **settings)
        frame = encode_request(ApiKey.PRODUCE, 9, 1, "c", produce_request(topic, {0: batch}, 9))
        async with watched_loop() as watch:
            await answer_bytes(client, frame)
        print(f"longest turn of the event loop: {watch.longest_own_ms:.1f} ms, on the clock {watch.longest_ms:.1f} ms")
        assert watch.longest_busy_ms < 50
        assert watch.longest_own_ms < 50
        log = broker.logs.get("t", 0)
        assert log is not None and (log.log_end_offset > 0) is keyed


async def test_a_topic_that_is_deleted_meanwhile(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, cleanup_policy="compact")
        asked = asyncio.create_task(produce(client, topic, many_records(200_000)))
        await until(lambda: broker.admission.waiting_bytes)
        await broker.controller.delete_topics([TopicRef(name="t")])
        again = await make_topic(broker, cleanup_policy="compact")
        assert (await asked).error_code in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
        assert (await produce(client, again, LIGHT)).base_offset == 0


async def test_a_topic_that_becomes_compacted_meanwhile_takes_no_record_without_a_key(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, compression_type="gzip", max_message_bytes="20000000")
        asked = asyncio.create_task(produce(client, topic, many_records(500_000, keyed=False)))
        await until(lambda: broker.admission.waiting_bytes)
        change = ConfigChange(name="cleanup.policy", op=ConfigOp.SET, value="compact")
        await broker.controller.alter_configs(
            [ResourceChange(resource_type=RESOURCE_TOPIC, resource_name="t", changes=(change,))]
        )
        assert broker.admission.waiting_bytes, "it was changed while the batch was being judged"
        assert (await asked).error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("acks", [ACKS_NONE, ACKS_LEADER])
async def test_a_client_that_goes_away_meanwhile_leaves_nothing_behind(tmp_path: Path, acks: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, cleanup_policy="compact")
        log = broker.logs.get("t", 0)
        assert log is not None
        async with wire_client(broker) as other:
            request = produce_request(topic, {0: HEAVY}, 9, acks)
            other.send(b"".join(encode_request(ApiKey.PRODUCE, 9, n, "c", request) for n in range(4)))
            await until(lambda: broker.admission.waiting_bytes)
        await until(lambda: not broker.admission.waiting_bytes)
        stored = log.log_end_offset
        assert stored == 80_000 if acks == ACKS_NONE else stored % 20_000 == 0
        assert (await produce(client, topic, LIGHT)).base_offset == stored
        assert all(server.memory.held_bytes == 0 for server in broker.servers)


async def send_all(client: WireClient, frames: list[bytes]) -> list[bytes]:
    """Pipelined; the answers in the order in which they came."""
    client.send(b"".join(frames))
    return [await client.receive() for _ in frames]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("policy", ["os", "group"])
async def test_batches_of_all_sizes_stay_in_order(
    tmp_path: Path, policy: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two idempotent producers pipeline requests for one or several partitions; whatever overtakes is out of order."""
    monkeypatch.setattr(admission, "LIGHT_BYTES", 600)
    monkeypatch.setattr(admission, "TURN_BYTES", 2000)
    rng = random.Random(seed)
    async with broker_and_client(tmp_path, flush_policy=policy) as (broker, client), wire_client(broker) as second:
        topics = [
            await make_topic(broker, "keyed", partitions=3, cleanup_policy="compact"),
            await make_topic(broker, "packed", partitions=2, compression_type="zstd"),
            await make_topic(broker, "plain", partitions=2),
        ]
        sent: dict[tuple[str, int, int], list[bytes]] = {}
        frames = [[_random_request(rng, topics, producer, number, sent) for number in range(60)] for producer in (1, 2)]
        for answers in await asyncio.gather(send_all(client, frames[0]), send_all(second, frames[1])):
            assert [struct.unpack_from(">i", answer)[0] for answer in answers] == [*range(60)]
        for (name, partition, producer), values in sent.items():
            image = broker.controller.image.topics[name]
            found = [row.value for row in decoded(await fetch(client, image, partition=partition)) if row.value]
            assert [value for value in found if value.startswith(b"%d:" % producer)] == values


def _random_request(
    rng: random.Random, topics: list[Any], producer: int, number: int, sent: dict[tuple[str, int, int], list[bytes]]
) -> bytes:
    topic = rng.choice(topics)
    partitions = rng.sample(range(len(topic.partitions)), rng.choice((1, 1, len(topic.partitions))))
    batches = {}
    for partition in partitions:
        values = sent.setdefault((topic.name, partition, producer), [])
        value = b"%d:%d:" % (producer, number) + b"x" * rng.choice((1, 100, 700, 5000))
        batches[partition] = build_batch(
            [NewRecord(NOW_MS, b"k", value)],
            codec=rng.choice(("none", "none", "gzip", "zstd")),
            producer_id=producer,
            producer_epoch=0,
            base_sequence=len(values),
        )
        values.append(value)
    return encode_request(ApiKey.PRODUCE, 9, number, "c", produce_request(topic, batches, 9, acks=rng.choice((1, -1))))
