"""The map topic on a real broker: table, ownership, doubt."""

import uuid

import pytest

from tests.mirror.conftest import Pair
from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.runtime.clock import SystemClock
from tidemill.core.types import TopicPartition
from tidemill.mirror.map_records import SegmentKey, SegmentValue
from tidemill.mirror.map_store import ROW_BYTES_MAX, Fenced, MapStore, Row
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


async def test_many_rows_are_written_in_several_batches(pair: Pair) -> None:
    owner = store(pair)
    await owner.open()
    runs = [Run(3 * i, 2 * i) for i in range(128)]
    count = ROW_BYTES_MAX // len(row(0, *runs)[1]) + 10
    await owner.write([[row(number, *runs) for number in range(count)]])
    assert len((await store(pair).open())["t", 0].segments) == count
