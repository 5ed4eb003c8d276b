"""Old segments while everything else goes on: what changes between a look and the next turn"""

import asyncio
import os
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.broker.log.log_world import NOW_MS, batch
from tests.sim.disk import SimulatedDisk
from tests.sim.log_store import SteppedThread
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.new_logs import NewLogs
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.log.store import LogStore
from tidemill.broker.log.threads import LogThreads
from tidemill.core.runtime.clock import ManualClock

KEEP = LogConfig(segment_bytes=300, retention_ms=-1, file_delete_delay_ms=0)
BY_AGE = LogConfig(segment_bytes=300, retention_ms=1000, file_delete_delay_ms=0)


async def restarted(disk: SimulatedDisk, reads: SteppedThread) -> tuple[LogStore, PartitionLog]:
    """A log of many old segments after a restart: their ages have to be read, and reading waits to be let go."""
    store = LogStore(disk.root, clock=ManualClock(NOW_MS), node_id=1)
    log = store.create("t", uuid.UUID(int=1), 0, KEEP)
    for number in range(30):
        await log.durable(log.append(batch(1, timestamp=NOW_MS - 60_000 + number), now_ms=NOW_MS).last_offset)
    await log.durable(log.append(batch(1), now_ms=NOW_MS).last_offset)
    await store.close()
    threads = LogThreads(flush=ThreadPoolExecutor(1), files=ThreadPoolExecutor(1), reads=reads)
    store = LogStore(disk.root, clock=ManualClock(NOW_MS), node_id=1, threads=threads)
    store.open_all(lambda _topic: BY_AGE)
    found = store.get("t", 0)
    assert found is not None
    return store, found


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it does not come true")


async def finished(task: "asyncio.Future[int]", reads: SteppedThread) -> int:
    def let_go() -> bool:
        reads.work()
        reads.notice()
        return task.done()

    await until(let_go)
    return task.result()


async def judging(store: LogStore, reads: SteppedThread) -> "asyncio.Future[int]":
    """Retention, waiting for the age of the oldest segment."""
    task = asyncio.ensure_future(store.enforce_retention(NOW_MS))
    await until(lambda: not reads.idle)
    return task


async def test_all_that_is_too_old_goes_and_the_log_begins_behind_it() -> None:
    disk, reads = SimulatedDisk(), SteppedThread()
    store, log = await restarted(disk, reads)
    count = len(log.segments)
    removed = await finished(await judging(store, reads), reads)
    assert removed == 10
    assert (len(log.segments), log.log_start_offset) == (count - removed, log.segments[0].base_offset)
    assert log.size_bytes == sum(segment.size_bytes for segment in log.segments)
    await store.close()


async def test_a_topic_deleted_meanwhile_is_left_alone() -> None:
    disk, reads = SimulatedDisk(), SteppedThread()
    store, log = await restarted(disk, reads)
    task = await judging(store, reads)
    await store.delete("t")
    assert await finished(task, reads) == 0
    await store.create_many([NewLogs(topic="t", topic_id=uuid.UUID(int=2), partitions=[0], config=BY_AGE)])
    new = store.get("t", 0)
    assert new is not None
    assert (new.log_start_offset, new.log_end_offset) == (0, 0)
    await store.close()


async def test_settings_that_keep_more_hold_at_once() -> None:
    disk, reads = SimulatedDisk(), SteppedThread()
    store, log = await restarted(disk, reads)
    task = await judging(store, reads)
    await store.apply_config("t", KEEP)
    assert await finished(task, reads) == 0
    assert log.log_start_offset == 0
    await store.close()


async def test_records_deleted_and_appended_meanwhile_do_not_confuse_it() -> None:
    disk, reads = SimulatedDisk(), SteppedThread()
    store, log = await restarted(disk, reads)
    task = await judging(store, reads)
    deleting = asyncio.ensure_future(store.delete_records(log, 7))
    for _ in range(5):
        log.append(batch(1), now_ms=NOW_MS)
    assert await finished(deleting, reads) == 7 or log.log_start_offset > 7
    await finished(task, reads)
    await finished(asyncio.ensure_future(store.enforce_retention(NOW_MS)), reads)
    assert log.log_start_offset == log.segments[0].base_offset > 7
    assert (log.log_end_offset, log.size_bytes) == (36, sum(segment.size_bytes for segment in log.segments))
    await store.close()


async def test_a_folder_that_fails_meanwhile_keeps_its_files() -> None:
    disk, reads = SimulatedDisk(), SteppedThread()
    store, log = await restarted(disk, reads)
    names = log.directory.list()
    task = await judging(store, reads)
    disk.fail_sync = OSError(5, "Input/output error")
    log.append(batch(1), now_ms=NOW_MS)
    await until(lambda: store.failure is not None)
    assert await finished(task, reads) == 0
    assert log.directory.list() == names
    disk.fail_sync = None
    await store.close()


async def test_an_age_is_not_read_from_files_that_a_round_has_yet_to_write() -> None:
    disk, flush = SimulatedDisk(), SteppedThread()
    store, _ = await restarted(disk, SteppedThread())
    await store.close()
    reads = SteppedThread()
    threads = LogThreads(flush=flush, files=ThreadPoolExecutor(1), reads=reads)
    store = LogStore(disk.root, clock=ManualClock(NOW_MS), node_id=1, threads=threads)
    store.open_all(lambda _topic: BY_AGE)
    log = store.get("t", 0)
    assert log is not None
    loaded = log.active
    while log.active is loaded:  # the newest of it is from a clock that is ahead
        log.append(batch(1, timestamp=NOW_MS + 60_000), now_ms=NOW_MS)
    task = asyncio.ensure_future(store.enforce_retention(NOW_MS + 5000))
    for _ in range(100):
        await let_go(reads)  # all that it reads ahead
    await driven(task, reads, flush)
    await driven(asyncio.ensure_future(store.enforce_retention(NOW_MS + 5000)), reads, flush)
    assert log.segments[0] is loaded
    await driven(asyncio.ensure_future(store.close()), flush)


async def let_go(*threads: SteppedThread) -> None:
    for thread in threads:
        thread.work()
        thread.notice()
    await asyncio.sleep(0.0001)


async def driven(task: "asyncio.Future[Any]", *threads: SteppedThread) -> None:
    while not task.done():
        await let_go(*threads)
    task.result()


async def test_many_logs_share_a_checkpoint() -> None:
    disk = SimulatedDisk()
    store = LogStore(disk.root, clock=ManualClock(NOW_MS), node_id=1)
    config = LogConfig(segment_bytes=150, retention_bytes=0, file_delete_delay_ms=0)
    await store.create_many([NewLogs(topic="t", topic_id=uuid.UUID(int=1), partitions=range(50), config=config)])
    for log in store:
        for _ in range(3):
            log.append(batch(1), now_ms=NOW_MS)
    for log in store:
        await log.durable(log.log_end_offset - 1)
    await store.checkpoint()
    syncs = disk.syncs
    assert await store.enforce_retention(NOW_MS) >= 50
    assert disk.syncs - syncs < 50
    await store.close()


@pytest.mark.parametrize("count", [300, 600])
async def test_more_segments_than_go_at_once_all_go(count: int) -> None:
    disk = SimulatedDisk()
    store = LogStore(disk.root, clock=ManualClock(NOW_MS), node_id=1)
    config = LogConfig(segment_bytes=100, retention_bytes=0, file_delete_delay_ms=0)
    log = store.create("t", uuid.UUID(int=1), 0, config)
    for _ in range(count):
        log.append(batch(1), now_ms=NOW_MS)
    await log.durable(count - 1)
    assert await store.enforce_retention(NOW_MS) == count - 1
    assert log.log_start_offset == count - 1
    await store.close()
    assert len([name for name in log.directory.list() if name.endswith(".log")]) == 1
    assert os.path.basename(log.directory.path) == "t-0"
