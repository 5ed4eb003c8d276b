"""The map topic on a real broker: table, ownership, doubt."""

import asyncio
import uuid

import pytest

from tests.mirror.conftest import Pair
from tidemill.core.client.admin import Admin, NewTopic
from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.runtime.clock import ManualClock, SystemClock
from tidemill.core.types import TopicPartition
from tidemill.mirror.identity import producer_id
from tidemill.mirror.map_records import SegmentKey, SegmentValue
from tidemill.mirror.map_store import (
    ROW_BYTES_MAX,
    ROWS_PER_TURN,
    SILENCE_MS,
    Fenced,
    MapStore,
    Row,
    SetBack,
    Unreadable,
)
from tidemill.mirror.offsets import Run

pytestmark = pytest.mark.integration


def store(pair: Pair) -> MapStore:
    return MapStore(pair.target, source_alias=pair.topic, target_alias="B", clock=SystemClock(), replication_factor=1)


def row(segment: int, *runs: Run) -> Row:
    value = SegmentValue(
        source_topic_id=uuid.UUID(int=1), target_topic_id=uuid.UUID(int=2), target_topic="A.t", runs=runs
    )
    return SegmentKey(topic="t", partition=0, segment=segment).encode(), value.encode()


async def test_rows_come_back_in_their_latest_version(pair: Pair) -> None:
    first = store(pair)
    assert await first.open() == {}
    await first.write([[row(0, Run(0, 0)), row(1, Run(50, 40))]])
    await first.write([[row(0, Run(0, 0), Run(9, 8))]])
    await first.write([[(row(1, Run(0, 0))[0], None)]])
    maps = await store(pair).open()
    assert {key: found.segments for key, found in maps.items()} == {("t", 0): {0: (Run(0, 0), Run(9, 8))}}


async def test_the_second_owner_fences_the_first(pair: Pair) -> None:
    first, second = store(pair), store(pair)
    await first.open()
    await first.write([[row(0, Run(0, 0))]])
    await second.open()
    await second.write([[row(0, Run(5, 0))]])
    with pytest.raises(Fenced, match="another mirror has taken over"):
        await first.write([[row(0, Run(7, 0))]])
    maps = await store(pair).open()
    assert maps["t", 0].segments == {0: (Run(5, 0),)}


async def test_two_claims_of_the_same_epoch_are_told_apart(pair: Pair) -> None:
    first, second = store(pair), store(pair)
    await first.open()
    await second._create()
    assert not await second._claim(first._epoch), "the broker takes the claim for a repeat of the first one's"
    assert await second._claim(first._epoch + 1)


async def test_a_write_in_doubt_is_not_mistaken_for_the_next(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = store(pair)
    await owner.open()
    append = pair.target.append

    async def lost(partition: TopicPartition, batch: bytes) -> int:
        await append(partition, batch)
        raise ConnectionFailed(pair.target._bootstrap[0], "the answer was lost")

    monkeypatch.setattr(pair.target, "append", lost)
    with pytest.raises(ConnectionFailed):
        await owner.write([[row(0, Run(0, 0))]])
    monkeypatch.setattr(pair.target, "append", append)
    await owner.write([[row(0, Run(3, 0))]])
    assert (await store(pair).open())["t", 0].segments == {0: (Run(3, 0),)}


async def by_hand(pair: Pair, topic: str, key: bytes, value: bytes | None) -> None:
    batch = build_batch([NewRecord(timestamp=1, key=key, value=value)])
    await pair.target.append(TopicPartition(topic, 0), batch)


async def test_who_cannot_read_a_row_lets_go_for_one_that_can(pair: Pair) -> None:
    first, second, waiting = store(pair), store(pair), Waiting()
    await first.open()
    await first.write([[row(0, Run(0, 0))]])
    await by_hand(pair, first.topic, b"note", b"of somebody else")
    with pytest.raises(Unreadable, match=f"{first.topic} holds a row that cannot be read: the key 6e6f7465"):
        await second.open()
    assert second.has_let_go
    await second.wait_for_turn(waiting.sleep, waiting.told.append)
    assert (waiting.slept, waiting.told) == (0, [])
    await by_hand(pair, first.topic, b"note", None)
    assert (await second.open())["t", 0].segments == {0: (Run(0, 0),)}
    assert not second.has_let_go


async def test_many_rows_are_written_in_several_batches(pair: Pair) -> None:
    owner = store(pair)
    await owner.open()
    runs = [Run(3 * i, 2 * i) for i in range(128)]
    count = ROW_BYTES_MAX // len(row(0, *runs)[1]) + 10
    await owner.write([[row(number, *runs) for number in range(count)]])
    assert len((await store(pair).open())["t", 0].segments) == count


class Waiting:
    """What `wait_for_turn` is given: sleeps that only count, and what it tells."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.slept = 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds
        await asyncio.sleep(seconds)


async def test_nobody_waits_for_an_owner_that_has_let_go(pair: Pair) -> None:
    waiting = Waiting()
    first = store(pair)
    await first.wait_for_turn(waiting.sleep, waiting.told.append)
    await first.open()
    await first.write([[row(0, Run(0, 0))]])
    await first.let_go()
    await store(pair).wait_for_turn(waiting.sleep, waiting.told.append)
    assert (waiting.slept, waiting.told) == (0, [])


async def test_an_owner_that_renews_its_claim_is_waited_for_and_a_silent_one_is_not(pair: Pair) -> None:
    owner, waiting = store(pair), Waiting()
    await owner.open()
    renewals = 0

    async def sleep(seconds: float) -> None:
        nonlocal renewals
        await waiting.sleep(seconds)
        if renewals < 2:
            before = await pair.target.bounds(TopicPartition(owner.topic, 0))
            await owner.renew()
            renewals += before != await pair.target.bounds(TopicPartition(owner.topic, 0))

    await store(pair).wait_for_turn(sleep, waiting.told.append)
    assert renewals == 2
    assert len(waiting.told) == 1
    assert waiting.slept * 1000 > SILENCE_MS


async def test_a_target_that_does_not_answer_makes_no_owner_silent(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, waiting, clock = store(pair), Waiting(), ManualClock()
    await owner.open()
    bounds, looks = pair.target.bounds, 0

    async def slow(partition: TopicPartition) -> tuple[int, int]:
        nonlocal looks
        looks += 1
        if looks == 3:  # a leader is elected; only then can anybody write
            clock.advance(2 * SILENCE_MS)
        return await bounds(partition)

    async def sleep(seconds: float) -> None:
        waiting.slept += seconds
        clock.advance(round(seconds * 1000))

    monkeypatch.setattr(pair.target, "bounds", slow)
    other = MapStore(pair.target, source_alias=pair.topic, target_alias="B", clock=clock, replication_factor=1)
    await other.wait_for_turn(sleep, waiting.told.append)
    assert looks > 3
    assert waiting.slept * 1000 >= SILENCE_MS, "it was away, and so was whoever would have renewed the claim"


async def test_who_reads_a_long_map_is_not_silent_meanwhile(pair: Pair) -> None:
    class Laborious(ManualClock):
        """Every look at it costs half a second."""

        def monotonic(self) -> float:
            self.advance(500)
            return super().monotonic()

    first = store(pair)
    await first.open()
    await first.write([[row(number, Run(number, number)) for number in range(4 * ROWS_PER_TURN)]])
    await first.let_go()
    place = TopicPartition(first.topic, 0)
    _, before = await pair.target.bounds(place)
    other = MapStore(pair.target, source_alias=pair.topic, target_alias="B", clock=Laborious(), replication_factor=1)
    maps = await other.open()
    assert list(maps["t", 0].segments) == list(range(4 * ROWS_PER_TURN))
    _, after = await pair.target.bounds(place)
    assert after - before > 1, "the claim is not renewed"
    await other.write([[row(0, Run(0, 0))]])


async def test_epochs_that_are_used_up_begin_a_new_generation(pair: Pair) -> None:
    first = store(pair)
    await first.open()
    await first.write([[row(0, Run(0, 0))]])
    last_but_two = build_batch(
        [NewRecord(timestamp=1, key=row(1, Run(9, 9))[0], value=None)],
        producer_id=producer_id(pair.topic, "B", first.topic, 0),
        producer_epoch=2**15 - 3,
        base_sequence=0,
    )
    await pair.target.append(TopicPartition(first.topic, 0), last_but_two)
    owners = [store(pair) for _ in range(4)]
    for before, owner in zip([first, *owners], owners, strict=False):
        maps = await owner.open()
        assert maps["t", 0].segments == {0: (Run(0, 0),)}, "the map stays"
        await owner.write([[row(0, Run(0, 0))]])
        with pytest.raises(Fenced):
            await before.write([[row(0, Run(7, 7))]])


async def test_something_is_written_also_when_there_is_nothing_to_store(pair: Pair) -> None:
    """It shows that what was stored before is still there."""
    owner = store(pair)
    await owner.open()
    before = await pair.target.bounds(TopicPartition(owner.topic, 0))
    await owner.write([[], []])
    assert await pair.target.bounds(TopicPartition(owner.topic, 0)) == (before[0], before[1] + 1)


async def test_a_topic_that_ends_before_what_was_written_is_noticed(pair: Pair) -> None:
    owner = store(pair)
    await owner.open()
    for number in range(3):
        await owner.write([[row(number, Run(number, number))]])
    admin = Admin(pair.target)
    assert await admin.delete_topics([owner.topic]) == {owner.topic: None}
    topic = NewTopic(name=owner.topic, partitions=1)
    assert await admin.create_topics([topic]) == {owner.topic: None}
    with pytest.raises(SetBack, match="had records up to offset 3 and goes on at 0 now"):
        await owner.write([[row(3, Run(3, 3))]])
