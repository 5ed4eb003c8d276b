"""Cleaned segments in the place of old ones: in memory, on the disk, or nowhere"""

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.broker.log.log_world import NOW_MS, batch, read_all
from tests.sim.disk import SimulatedDisk
from tests.sim.log_store import SteppedThread
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.log.segment import Segment
from tidemill.broker.log.segment_files import segment_name
from tidemill.broker.log.store import LogStore
from tidemill.broker.log.threads import LogThreads
from tidemill.core.runtime.clock import ManualClock

CONFIG = LogConfig(segment_bytes=300, file_delete_delay_ms=0)


async def filled(disk: SimulatedDisk) -> tuple[LogStore, PartitionLog]:
    store = LogStore(disk.root, clock=ManualClock(NOW_MS), node_id=1)
    store.open_all(lambda _topic: CONFIG)
    log = store.create("t", uuid.UUID(int=1), 0, CONFIG)
    for _ in range(20):
        await log.durable(log.append(batch(1), now_ms=NOW_MS).last_offset)
    return store, log


def merged(log: PartitionLog, old: list[Segment]) -> Segment:
    """What the cleaner writes: here all batches of the old segments in one."""
    cleaned = Segment.create_cleaned(log.directory, old[0].base_offset)
    for segment in old:
        for position, header in segment.batches():
            data = segment.file.read_at(position, header.size_bytes)
            cleaned.append(data, header.max_timestamp, header.last_offset, 100)
    cleaned.next_offset = old[-1].next_offset
    cleaned.sync_cleaned()
    return cleaned


async def test_the_log_says_the_same_from_one_segment_as_from_three() -> None:
    disk = SimulatedDisk()
    store, log = await filled(disk)
    before, size_bytes, count = [view.base_offset for view in read_all(log)], log.size_bytes, len(log.segments)
    old = log.segments[:3]
    assert await store.replace_segments(log, old, merged(log, old))
    assert ([view.base_offset for view in read_all(log)], log.size_bytes) == (before, size_bytes)
    assert len(log.segments) == count - 2
    await store.close()
    names = disk.root.subdirectory("t-0").list()
    assert segment_name(old[0].base_offset) in names
    assert not {segment_name(segment.base_offset) for segment in old[1:]} & set(names)
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]


async def test_segments_that_have_gone_are_replaced_by_nothing() -> None:
    disk = SimulatedDisk()
    store, log = await filled(disk)
    old = log.segments[:3]
    cleaned = merged(log, old)
    await store.delete_records(log, old[1].base_offset)
    assert not await store.replace_segments(log, old, cleaned)
    assert read_all(log)[0].base_offset == old[1].base_offset
    await store.close()


async def test_nothing_is_replaced_while_the_end_is_being_cut_off() -> None:
    """What is left is read from the files meanwhile, to find out what is known of producers."""
    disk = SimulatedDisk()
    store, log = await filled(disk)
    old = log.segments[:3]
    cutting = asyncio.ensure_future(store.truncate(log, log.log_end_offset - 2, unclean=True))
    await asyncio.sleep(0)
    assert log.cutting
    assert not await store.replace_segments(log, old, merged(log, old))
    await cutting
    assert await store.replace_segments(log, old, merged(log, old))
    await store.close()


async def test_a_full_disk_leaves_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    store, log = await filled(disk)
    old, before = log.segments[:3], [view.base_offset for view in read_all(log)]
    cleaned = merged(log, old)

    def full(old: str, new: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(log.directory, "rename", full)
        with pytest.raises(OSError, match="No space"):
            await store.replace_segments(log, old, cleaned)
    assert (store.failure, log.replacing, log.segments[:3]) == (None, False, old)
    assert [view.base_offset for view in read_all(log)] == before
    await store.close()


async def test_a_topic_deleted_while_the_disk_is_full_does_not_end_the_folder() -> None:
    disk, flush = SimulatedDisk(), SteppedThread()
    store, _ = await filled(disk)
    await store.close()
    threads = LogThreads(flush=flush, files=ThreadPoolExecutor(1), reads=ThreadPoolExecutor(1))
    store = LogStore(disk.root, clock=ManualClock(NOW_MS), node_id=1, threads=threads)
    store.open_all(lambda _topic: CONFIG)
    log = store.get("t", 0)
    assert log is not None
    old = log.segments[:3]
    exchange = asyncio.ensure_future(store.replace_segments(log, old, merged(log, old)))
    await asyncio.sleep(0)
    disk.capacity_bytes = disk.used_bytes()
    flush.work()
    deletion = asyncio.ensure_future(store.delete("t"))
    await asyncio.sleep(0)
    disk.capacity_bytes = None
    while not (exchange.done() and deletion.done()):
        flush.notice()
        flush.work()
        await asyncio.sleep(0)
    assert exchange.exception() is not None
    assert store.failure is None
    closing = asyncio.ensure_future(store.close())
    while not closing.done():
        flush.work()
        flush.notice()
        await asyncio.sleep(0)
