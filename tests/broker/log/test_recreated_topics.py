"""A topic deleted and made again under the same name owes nothing to the one before, whatever the checkpoints say"""

import errno
import random
import uuid

import pytest

from tests.broker.log.log_world import NOW_MS, batch, read_all
from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.new_logs import NewLogs
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.log.store import LogStore
from tidemill.core.errors import KafkaStorageError
from tidemill.core.runtime.clock import ManualClock

CONFIG = LogConfig(file_delete_delay_ms=0)
SMALL = LogConfig(file_delete_delay_ms=0, segment_bytes=300)


def opened(disk: SimulatedDisk) -> LogStore:
    store = LogStore(disk.root, clock=ManualClock(NOW_MS), node_id=1)
    store.open_all(lambda _topic: CONFIG)
    return store


async def fill(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        await log.durable(log.append(batch(1), now_ms=NOW_MS).last_offset)


@pytest.mark.parametrize("restarted", [False, True])
async def test_an_old_log_start_hides_nothing_of_the_new_topic(restarted: bool) -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    old = store.create("t", uuid.UUID(int=1), 0, CONFIG)
    await fill(old, 10)
    assert await store.delete_records(old, 8) == 8
    if restarted:
        await store.close()
        store = opened(disk)
    await store.delete("t")
    await store.create_many([NewLogs(topic="t", topic_id=uuid.UUID(int=2), partitions=[0], config=CONFIG)])
    new = store.get("t", 0)
    assert new is not None
    await fill(new, 3)
    disk.crash(random.Random(1))
    found = opened(disk).get("t", 0)
    assert found is not None
    assert (found.topic_id, found.log_start_offset) == (uuid.UUID(int=2), 0)
    assert [view.base_offset for view in read_all(found)] == [0, 1, 2]


async def test_an_old_recovery_point_passes_nothing_of_the_new_topic_for_durable() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    await fill(store.create("t", uuid.UUID(int=1), 0, CONFIG), 10)
    await store.checkpoint()
    await store.delete("t")
    await store.create_many([NewLogs(topic="t", topic_id=uuid.UUID(int=2), partitions=[0], config=CONFIG)])
    new = store.get("t", 0)
    assert new is not None
    new.append(batch(1, value_bytes=2000), now_ms=NOW_MS)  # nobody waits until it is durable
    new.active.file.write_at(600, bytes(1000))  # and these sectors never reached the disk
    found = opened(disk).get("t", 0)
    assert found is not None
    assert found.log_end_offset == 0
    assert found.active.damaged == [], "torn, not damaged: it was never acknowledged"


async def test_deleted_records_are_not_reported_deleted_while_that_cannot_be_written_down() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    log = store.create("t", uuid.UUID(int=1), 0, CONFIG)
    await fill(log, 10)
    disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(KafkaStorageError, match="log start"):
        await store.delete_records(log, 5)
    disk.capacity_bytes = None
    assert await store.delete_records(log, 5) == 5, "the same again, though the log begins there already"
    disk.crash(random.Random(2))
    found = opened(disk).get("t", 0)
    assert found is not None
    assert found.log_start_offset == 5


async def old_and_new(disk: SimulatedDisk, store: LogStore, *, told: bool) -> None:
    """Delete a topic of several segments, make it again, restart: nothing of the old one is in the new one."""
    if told:
        with pytest.raises(OSError):
            await store.delete("t")
    else:
        await store.delete("t")
    disk.capacity_bytes = None
    await store.create_many([NewLogs(topic="t", topic_id=uuid.UUID(int=2), partitions=[0, 1], config=SMALL)])
    for number in (0, 1):
        new = store.get("t", number)
        assert new is not None
        await fill(new, 2)
    for stop_in_order in (True, False):
        if stop_in_order:
            await store.close()
        disk.crash(random.Random(3))
        store = opened(disk)
        for number in (0, 1):
            found = store.get("t", number)
            assert found is not None
            assert (found.topic_id, found.log_end_offset) == (uuid.UUID(int=2), 2)
            assert [view.base_offset for view in read_all(found)] == [0, 1]
            assert len(found.segments) == 1


async def with_old_segments() -> tuple[SimulatedDisk, LogStore]:
    disk = SimulatedDisk()
    store = opened(disk)
    for number in (0, 1):
        await fill(store.create("t", uuid.UUID(int=1), number, SMALL), 20)
    assert len([name for name in disk.root.subdirectory("t-1").list() if name.endswith(".log")]) > 2
    return disk, store


async def test_a_topic_deleted_on_a_full_disk_is_gone_and_frees_it() -> None:
    disk, store = await with_old_segments()
    used = disk.used_bytes()
    disk.capacity_bytes = used
    await store.delete("t")
    await store.checkpoint()  # what was renamed, where there was room for a name again, goes before that is written
    assert disk.used_bytes() < used / 2
    await old_and_new(disk, store, told=False)


@pytest.mark.parametrize("what", ["rename", "sync"])
async def test_files_of_a_deleted_topic_that_could_not_be_moved_are_no_files_of_the_new_one(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    disk, store = await with_old_segments()
    real = getattr(disk.root, what)
    failures = [OSError(errno.EIO, "Input/output error")]

    def failing(*names: str) -> None:
        if failures:
            raise failures.pop()
        real(*names)

    monkeypatch.setattr(disk.root, what, failing)
    await old_and_new(disk, store, told=True)


async def test_a_folder_in_the_way_of_a_new_log_is_neither_used_nor_removed() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    disk.root.subdirectory("t-0").replace("00000000000000000000.log", b"somebody's")
    for _ in range(2):
        with pytest.raises(KafkaStorageError, match="did not make"):
            await store.create_many([NewLogs(topic="t", topic_id=uuid.UUID(int=2), partitions=[0, 1], config=CONFIG)])
    assert disk.root.subdirectory("t-0").read("00000000000000000000.log") == b"somebody's"
    assert not disk.root.exists("t-1")
