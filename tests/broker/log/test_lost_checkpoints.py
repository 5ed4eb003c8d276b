"""A compacted log whose checkpoints are gone or cannot be read: what the cleaner left out is not taken for damage"""

import asyncio
import functools
import uuid

import pytest

from tests.broker.log.log_world import NOW_MS, read_all
from tests.broker.log.test_damaged_files import Image, disk_with, files_of
from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.checkpoints import CLEAN_SHUTDOWN, CLEANED, RECOVERY_POINTS
from tidemill.broker.log.cleaner import CleanerSettings, LogCleaner
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.store import LogStore
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.runtime.clock import ManualClock
from tidemill.core.types import TopicPartition

CONFIG = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=600,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    min_cleanable_dirty_ratio=0.0,
)
RECORDS, KEYS = 60, 5
KEY = TopicPartition("t", 0)


async def produce(store: LogStore) -> None:
    log = store.create("t", uuid.UUID(int=3), 0, CONFIG)
    for number in range(RECORDS):
        data = build_batch([NewRecord(NOW_MS + number, b"k%d" % (number % KEYS), b"v%d" % number)])
        await log.durable(log.append(data, now_ms=NOW_MS).last_offset)
    await store.checkpoint()


def started(image: Image) -> LogStore:
    store = LogStore(disk_with(image).root, clock=ManualClock(NOW_MS), node_id=1)
    store.open_all(lambda _topic: CONFIG)
    return store


def offsets(store: LogStore) -> list[int]:
    log = store.get("t", 0)
    assert log is not None
    assert log.log_end_offset == RECORDS
    return [view.base_offset for view in read_all(log)]


@functools.cache
def compacted() -> Image:
    """The folder of a store with a compacted log, closed in order."""

    async def write() -> Image:
        disk = SimulatedDisk()
        store = LogStore(disk.root, clock=ManualClock(NOW_MS), node_id=1)
        store.open_all(lambda _topic: CONFIG)
        await produce(store)
        cleaner = LogCleaner(store, ManualClock(NOW_MS), CleanerSettings())
        while await cleaner.clean_dirtiest():
            pass
        cleaner.close()
        await store.close()
        return files_of(disk.root)

    return asyncio.run(write())


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lost", [(CLEANED,), (RECOVERY_POINTS,), (CLEANED, RECOVERY_POINTS)])
@pytest.mark.parametrize("damaged", [True, False])
def test_every_record_that_was_kept_is_served_all_the_same(clean: bool, lost: tuple[str, ...], damaged: bool) -> None:
    sound = offsets(started(compacted()))
    assert 0 not in sound and len(sound) < RECORDS / 2, "it must have gaps"
    image = {path: data for path, data in compacted().items() if clean or path != CLEAN_SHUTDOWN}
    for name in lost:
        if damaged:
            image[name] = image[name][:-1]
        else:
            del image[name]
    assert offsets(started(image)) == sound


def test_a_lost_checkpoint_of_the_cleaner_is_made_anew_so_that_the_next_start_knows() -> None:
    image = {path: data for path, data in compacted().items() if path != CLEANED}
    disk = disk_with(image)
    for _ in range(2):
        store = LogStore(disk.root, clock=ManualClock(NOW_MS), node_id=1)
        store.open_all(lambda _topic: CONFIG)
        assert offsets(store)
        assert store.cleaned_offset(KEY) == 0, "cleaned to an unknown point: the cleaner begins anew"


async def test_a_log_that_was_never_cleaned_has_no_gaps_excused() -> None:
    disk = SimulatedDisk()
    store = LogStore(disk.root, clock=ManualClock(NOW_MS), node_id=1)
    store.open_all(lambda _topic: CONFIG)
    await produce(store)
    await store.close()
    store = LogStore(disk.root, clock=ManualClock(NOW_MS), node_id=1)
    store.open_all(lambda _topic: CONFIG)
    assert store.cleaned_offset(KEY) is None
    log = store.get(*KEY)
    assert log is not None
    assert all(segment.dense for segment in log.segments)
