"""No upkeep of the data folder keeps the event loop for long, however many logs and segments there are

Twice: a crowded folder shows how long a turn lasts, and there a step that is cheap may hide that it asks nobody. So in
a small one it is counted how often each walk gives way by a clock after which every turn is over.
"""

import gc
import itertools
import os
import shutil
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.log.crowded_folder import write_clean_stop
from tests.broker.log.log_world import NOW_MS
from tests.loop_watch import LoopWatch, watched_loop
from tidemill.broker.log.cleaner import CleanerSettings, LogCleaner
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.new_logs import NewLogs
from tidemill.broker.log.store import LogStore
from tidemill.broker.log.turns import TURN_S, Turns
from tidemill.core.runtime.clock import SystemClock
from tidemill.core.runtime.disk import OsDirectory

TURN_MS_MAX = 15
"""A turn of a walk is over after 3 ms, but for the step it is in; a client may have to wait 50 ms, its own machine's
troubles included. Five thousand segments gone over in one turn take more than 20."""

SCALE = int(os.environ.get("TIDEMILL_CROWD", "1"))
"""Times the number of segments."""

TOPICS = {"deep": (1, 5000 * SCALE), "wide": (40 * SCALE, 3)}


class WallAt(SystemClock):
    """The machine's clock, but for what it says of the date."""

    __slots__ = ("_now_ms",)

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms


KEEP = LogConfig(retention_ms=-1, file_delete_delay_ms=0)
DAY_MS = 86_400_000


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LogStore]:
    store = LogStore(OsDirectory(tmp_path), clock=SystemClock(), node_id=1)
    write_clean_stop(store.directory, TOPICS)
    store.open_all(lambda _topic: KEEP)
    gc.collect()
    gc.freeze()
    yield store
    await store.close()
    gc.unfreeze()
    shutil.rmtree(tmp_path)  # more files than others should have to clean up


def told(watch: LoopWatch, what: str) -> None:
    print(f"{what}: longest turn {watch.longest_busy_ms:.1f} ms busy, {watch.longest_ms:.1f} ms on the wall")


async def use(store: LogStore, config: LogConfig) -> None:
    for topic in TOPICS:
        await store.apply_config(topic, config)


async def test_retention_that_keeps_everything_and_then_nearly_nothing(store: LogStore) -> None:
    await use(store, LogConfig(retention_ms=DAY_MS, file_delete_delay_ms=60_000))
    for _ in range(2):
        async with watched_loop() as watch:
            assert await store.enforce_retention(NOW_MS) == 0
        told(watch, "retention, nothing to do")
        assert watch.longest_busy_ms < TURN_MS_MAX
    await use(store, LogConfig(retention_ms=500, file_delete_delay_ms=60_000))
    async with watched_loop() as watch:
        removed = await store.enforce_retention(NOW_MS)
    told(watch, f"retention of {removed} segments")
    assert removed == sum(partitions * (segments - 1) for partitions, segments in TOPICS.values())
    for log in store:
        assert log.log_start_offset == log.segments[0].base_offset == log.log_end_offset - 1
    assert watch.longest_busy_ms < TURN_MS_MAX


async def test_checkpoints_and_the_deletion_of_a_topic(store: LogStore) -> None:
    async with watched_loop() as watch:
        await store.checkpoint()
        await store.delete("deep")
        await store.delete("wide")
    told(watch, "a checkpoint, and two topics deleted")
    assert store.partitions() == []
    assert watch.longest_busy_ms < TURN_MS_MAX


async def test_the_cleaner_looks_for_work(store: LogStore) -> None:
    await use(store, LogConfig(cleanup_policy=("compact",), min_compaction_lag_ms=DAY_MS, max_compaction_lag_ms=DAY_MS))
    await store.checkpoint()
    cleaner = LogCleaner(store, WallAt(NOW_MS), CleanerSettings())
    async with watched_loop() as watch:
        assert not await cleaner.clean_dirtiest()
    told(watch, "the cleaner's choice")
    assert watch.longest_busy_ms < TURN_MS_MAX
    cleaner.close()


async def test_a_topic_of_many_partitions_is_made(tmp_path: Path) -> None:
    store = LogStore(OsDirectory(tmp_path), clock=SystemClock(), node_id=1)
    store.open_all()
    async with watched_loop() as watch:
        await store.create_many(
            [NewLogs(topic="new", topic_id=uuid.UUID(int=7), partitions=range(50 * SCALE), config=KEEP)]
        )
    told(watch, "a topic made")
    await store.close()
    assert watch.longest_busy_ms < TURN_MS_MAX


FEW = {"deep": (1, 30), "wide": (4, 3)}
LOGS = sum(partitions for partitions, _ in FEW.values())
SEGMENTS = sum(partitions * segments for partitions, segments in FEW.values())


class TurnsAreOver(WallAt):
    """A clock by which a turn is over whenever it is asked."""

    __slots__ = ("_asked",)

    def __init__(self) -> None:
        super().__init__(NOW_MS)
        self._asked = itertools.count()  # in threads, too

    def monotonic(self) -> float:
        return next(self._asked) * 2 * TURN_S


class GivenWay:
    """How often turns have ended since it was asked the last time."""

    def __init__(self) -> None:
        self.count = 0

    def take(self) -> int:
        count, self.count = self.count, 0
        return count


@pytest.fixture
def given_way(monkeypatch: pytest.MonkeyPatch) -> GivenWay:
    given_way, begin = GivenWay(), Turns.begin

    def counted(turns: Turns) -> None:
        given_way.count += 1
        begin(turns)

    monkeypatch.setattr(Turns, "begin", counted)
    return given_way


@pytest.fixture
async def small_store(tmp_path: Path) -> AsyncIterator[LogStore]:
    store = LogStore(OsDirectory(tmp_path), clock=TurnsAreOver(), node_id=1)
    write_clean_stop(store.directory, FEW)
    store.open_all(lambda _topic: KEEP)
    yield store
    await store.close()


async def test_retention_gives_way_at_each_log_and_each_segment(small_store: LogStore, given_way: GivenWay) -> None:
    for topic, (partitions, _) in FEW.items():
        await small_store.apply_config(topic, LogConfig(retention_ms=DAY_MS, file_delete_delay_ms=60_000))
        assert given_way.take() == partitions
    assert await small_store.enforce_retention(NOW_MS) == 0
    assert given_way.take() == LOGS + LOGS, "each log, and its oldest segment, which stays"
    for topic in FEW:
        await small_store.apply_config(topic, LogConfig(retention_ms=500, file_delete_delay_ms=60_000))
    given_way.take()
    assert await small_store.enforce_retention(NOW_MS) == SEGMENTS - LOGS
    judged, taken_out, in_the_checkpoint = LOGS + (SEGMENTS - LOGS), LOGS, LOGS
    assert given_way.take() == judged + taken_out + in_the_checkpoint


async def test_a_checkpoint_and_a_deletion_give_way_at_each_log(small_store: LogStore, given_way: GivenWay) -> None:
    await small_store.checkpoint()
    assert given_way.take() == LOGS
    for topic, (partitions, _) in FEW.items():
        await small_store.delete(topic)
        assert given_way.take() == partitions


async def test_the_cleaner_gives_way_at_each_log_and_each_segment(small_store: LogStore, given_way: GivenWay) -> None:
    for topic in FEW:
        await small_store.apply_config(topic, LogConfig(cleanup_policy=("compact",), min_compaction_lag_ms=DAY_MS))
    given_way.take()
    cleaner = LogCleaner(small_store, TurnsAreOver(), CleanerSettings())
    assert not await cleaner.clean_dirtiest()
    assert given_way.take() == LOGS + LOGS + SEGMENTS, "each log, each that may be tried, and each of its segments"
    cleaner.close()


async def test_the_making_of_logs_gives_way_at_each(small_store: LogStore, given_way: GivenWay) -> None:
    await small_store.create_many([NewLogs(topic="new", topic_id=uuid.UUID(int=7), partitions=range(20), config=KEEP)])
    assert given_way.take() == 20
