"""The data folder: partitions made, found, deleted, kept in bounds"""

import asyncio
import contextlib
import errno
import os
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.broker.log.log_world import NOW_MS, batch, read_all
from tests.sim.disk import SimulatedDisk
from tests.sim.log_store import SteppedThread
from tidemill.broker.log.checkpoints import RECOVERY_POINTS, read_offsets
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.flusher import WHOLE_FROM_FILES
from tidemill.broker.log.identity import FolderRefused
from tidemill.broker.log.new_logs import NewLogs
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.log.partition_folders import DELETE_SUFFIX
from tidemill.broker.log.segment_files import segment_name
from tidemill.broker.log.store import LogStore
from tidemill.broker.log.threads import LogThreads
from tidemill.core.errors import CorruptMessage, KafkaStorageError, OffsetOutOfRange, TopicAlreadyExists
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.runtime.clock import ManualClock
from tidemill.core.runtime.disk import OsDirectory
from tidemill.core.types import TopicPartition

TOPIC_ID = uuid.UUID(int=5)
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200, file_delete_delay_ms=0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[LogStore]:
    store = LogStore.at(str(tmp_path), clock=clock, node_id=1)
    store.open_all(lambda _topic: SMALL)
    yield store
    await store.close()


async def reopened(store: LogStore, clock: ManualClock) -> LogStore:
    """The folder of `store` after an orderly restart."""
    await store.close()
    again = LogStore.at(store.directory.path, clock=clock, node_id=1)
    again.open_all(lambda _topic: SMALL)
    return again


def logs_of(topic: str, partitions: int, topic_id: uuid.UUID = TOPIC_ID) -> NewLogs:
    return NewLogs(topic=topic, topic_id=topic_id, partitions=range(partitions), config=SMALL)


async def fill(log: PartitionLog, count: int, timestamp: int = NOW_MS) -> None:
    for _ in range(count):
        await log.durable(log.append(batch(1, value_bytes=200, timestamp=timestamp), now_ms=NOW_MS).last_offset)


async def test_partitions_are_found_again_with_all_they_held(store: LogStore, clock: ManualClock) -> None:
    for partition in range(3):
        await fill(store.create("t", TOPIC_ID, partition, SMALL), partition + 1)
    with pytest.raises(TopicAlreadyExists):
        store.create("t", TOPIC_ID, 1, SMALL)
    again = await reopened(store, clock)
    assert again.partitions() == [TopicPartition("t", partition) for partition in range(3)]
    for partition in range(3):
        log = again.get("t", partition)
        assert log is not None
        assert (log.topic_id, log.log_end_offset, len(read_all(log))) == (TOPIC_ID, partition + 1, partition + 1)
    assert again.cluster_id == store.cluster_id
    assert again.get("t", 3) is None
    await again.close()


async def test_many_partitions_are_made_side_by_side(store: LogStore, clock: ManualClock) -> None:
    store.create("t", TOPIC_ID, 3, SMALL)
    await store.create_many([logs_of("t", 20)])
    assert store.partitions() == [TopicPartition("t", partition) for partition in range(20)]
    again = await reopened(store, clock)
    assert len(again.partitions()) == 20
    assert {log.topic_id for log in again} == {TOPIC_ID}
    await again.close()


async def test_logs_of_many_topics_are_made_at_once(clock: ManualClock) -> None:
    disk = SimulatedDisk()
    store = LogStore(disk.root, clock=clock, node_id=1)
    wanted = [
        replace(logs_of(f"t{number}", 2, uuid.UUID(int=number + 1)), config=replace(SMALL, segment_bytes=500 + number))
        for number in range(20)
    ]
    gone = replace(logs_of("gone", 2), still_wanted=lambda: False)
    await store.create_many([*wanted, gone])
    await store.create_many([*wanted, logs_of("another", 1)])
    assert {(log.topic_partition.topic, log.topic_id.int, log.config.segment_bytes) for log in store} == {
        ("another", TOPIC_ID.int, SMALL.segment_bytes),
        *((f"t{number}", number + 1, 500 + number) for number in range(20)),
    }
    disk.capacity_bytes = disk.used_bytes() + 100
    before = store.partitions()
    with pytest.raises(KafkaStorageError):
        await store.create_many([logs_of("x", 1), logs_of("y", 2)])
    assert store.partitions() == before
    assert not [name for name in disk.root.list() if name.startswith(("x-", "y-"))]
    disk.capacity_bytes = None
    await store.close()


async def test_what_is_deleted_while_it_is_being_made_is_not_left_behind(store: LogStore, tmp_path: Path) -> None:
    making = asyncio.ensure_future(store.create_many([logs_of("t", 5)]))
    await asyncio.sleep(0)
    await store.delete("t")
    await making
    assert store.partitions() == []
    await store.create_many([replace(logs_of("t", 5), still_wanted=lambda: False)])
    assert store.partitions() == []
    assert not [name for name in os.listdir(tmp_path) if name.startswith("t-") and not name.endswith(DELETE_SUFFIX)]


async def test_files_are_laid_out_as_kafka_lays_them_out(store: LogStore, tmp_path: Path, clock: ManualClock) -> None:
    log = store.create("orders", TOPIC_ID, 0, SMALL)
    await fill(log, 9)
    again = await reopened(store, clock)
    await again.close()
    assert {".kafka_cleanshutdown", "meta.properties", "log-start-offset-checkpoint", "orders-0",
            "recovery-point-offset-checkpoint"} <= set(os.listdir(tmp_path))  # fmt: skip
    files = set(os.listdir(tmp_path / "orders-0"))
    assert {"leader-epoch-checkpoint", "partition.metadata"} < files
    for segment in log.segments:
        assert {segment_name(segment.base_offset, suffix) for suffix in (".log", ".index", ".timeindex")} <= files
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 9\n"


async def test_a_folder_belongs_to_one_process(store: LogStore, tmp_path: Path, clock: ManualClock) -> None:
    with pytest.raises(FolderRefused, match="in use by another process"):
        LogStore.at(str(tmp_path), clock=clock, node_id=1)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderRefused, match="cannot write to"):
        LogStore.at(str(tmp_path / "file" / "data"), clock=clock, node_id=1)


@pytest.mark.parametrize(("number", "advice"), [(errno.EIO, "repair the disk"), (errno.ENOSPC, "make room")])
def test_a_folder_that_cannot_be_synced_is_refused_and_not_left_locked(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    def files_sync(_folder: OsDirectory) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(OsDirectory, "files_sync", files_sync)
        with pytest.raises(FolderRefused, match=f"cannot use .*{os.strerror(number)}; {advice}"):
            LogStore.at(str(tmp_path), clock=clock, node_id=1)
    asyncio.run(LogStore.at(str(tmp_path), clock=clock, node_id=1).close())


@pytest.mark.parametrize("name", ["t-0", "__cluster_metadata-0"])
def test_data_that_nobody_knows_the_owner_of_is_refused(tmp_path: Path, clock: ManualClock, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(FolderRefused, match=r"no meta\.properties: restore"):
        LogStore.at(str(tmp_path), clock=clock, node_id=1)
    assert not (tmp_path / "meta.properties").exists()


def test_a_folder_of_another_node_is_refused_and_not_left_locked(tmp_path: Path, clock: ManualClock) -> None:
    asyncio.run(LogStore.at(str(tmp_path), clock=clock, node_id=1).close())
    for _ in range(2):
        with pytest.raises(FolderRefused, match=r"node\.id 1, not 2"):
            LogStore.at(str(tmp_path), clock=clock, node_id=2)


async def test_a_deleted_topic_is_gone_at_once_and_its_files_later(store: LogStore, tmp_path: Path) -> None:
    await fill(store.create("t", TOPIC_ID, 0, LogConfig(file_delete_delay_ms=60_000)), 3)
    other = store.create("t2", TOPIC_ID, 0, SMALL)
    log = store.get("t", 0)
    assert log is not None
    log.append(batch(1), now_ms=NOW_MS)  # not flushed yet
    await store.delete("t")
    assert store.partitions() == [TopicPartition("t2", 0)]
    with pytest.raises(KafkaStorageError):
        log.append(batch(1), now_ms=NOW_MS)
    left = [name for name in os.listdir(tmp_path) if name.endswith(DELETE_SUFFIX)]
    assert len(left) == 1
    assert left[0].startswith("t-0.")
    await fill(store.create("t", uuid.UUID(int=6), 0, SMALL), 1)
    await fill(other, 2)
    await store.close()
    assert [name for name in os.listdir(tmp_path) if name.endswith(DELETE_SUFFIX)] == []
    assert store.failure is None


async def test_the_longest_topic_name_can_be_deleted(store: LogStore) -> None:
    name = "x" * 249
    store.create(name, TOPIC_ID, 0, SMALL)
    await store.delete(name)
    assert store.partitions() == []


async def test_retention_by_age_moves_the_log_start_for_good(store: LogStore, clock: ManualClock) -> None:
    config = LogConfig(segment_bytes=1000, retention_ms=1000, file_delete_delay_ms=0)
    log = store.create("t", TOPIC_ID, 0, config)
    await fill(log, 9, timestamp=NOW_MS - 5000)
    await fill(log, 2)
    start = log.active.base_offset
    removed = await store.enforce_retention(NOW_MS)
    assert removed >= 2
    assert 0 < log.log_start_offset <= start
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 100)
    kept = log.log_start_offset
    again = await reopened(store, clock)
    log_again = again.get("t", 0)
    assert log_again is not None
    assert (log_again.log_start_offset, log_again.log_end_offset) == (kept, 11)
    assert not [name for name in os.listdir(Path(log.directory.path)) if name.endswith(".deleted")]
    await again.close()


@pytest.mark.parametrize("byte", range(12))
async def test_a_damaged_time_index_makes_no_segment_older_or_younger(
    store: LogStore, clock: ManualClock, tmp_path: Path, byte: int
) -> None:
    log = store.create("t", TOPIC_ID, 0, SMALL)
    await fill(log, 9)
    assert len(log.segments) > 2
    await store.close()
    for path in (tmp_path / "t-0").glob("*.timeindex"):
        data = bytearray(path.read_bytes())
        if data:
            data[byte - 12] ^= 1 << 7 - byte % 4
            path.write_bytes(data)
    store = LogStore.at(str(tmp_path), clock=clock, node_id=1)
    store.open_all(lambda _topic: SMALL)
    found = store.get("t", 0)
    assert found is not None
    await store.enforce_retention(NOW_MS + 1000)
    assert found.log_start_offset == 0
    assert [view.base_offset for view in read_all(found)] == list(range(9))
    for _ in range(5):
        await store.enforce_retention(NOW_MS + SMALL.retention_ms + 1000)
    assert found.log_start_offset == 9
    await store.close()


@pytest.mark.parametrize("fails", ["before", "meanwhile"])
async def test_a_folder_that_failed_keeps_its_segments(clock: ManualClock, fails: str) -> None:
    """Where the log begins cannot be written down any more: files that went would leave a hole after a restart."""
    disk = SimulatedDisk()
    store = LogStore(disk.root, clock=clock, node_id=1)
    store.open_all(lambda _topic: SMALL)
    log = store.create("t", TOPIC_ID, 0, SMALL)
    await fill(log, 20)
    names = log.directory.list()
    await store.apply_config("t", LogConfig(segment_bytes=1000, retention_bytes=0, file_delete_delay_ms=0))
    disk.fail_sync = OSError(errno.EIO, "Input/output error")
    if fails == "before":
        await store.checkpoint()
        with pytest.raises(KafkaStorageError):
            await log.durable(log.append(batch(1), now_ms=NOW_MS).last_offset)
        with pytest.raises(KafkaStorageError):
            await store.delete_records(log, 10)
    await store.enforce_retention(NOW_MS)
    assert store.failure is not None
    assert log.directory.list() == names
    disk.fail_sync = None


async def test_a_file_system_that_was_given_up_is_told_though_a_sync_of_all_of_it_says_nothing(
    clock: ManualClock,
) -> None:
    """So does ext4 of Linux 6.1 once its own error has made it read-only; writes go on succeeding in the page cache."""
    disk = SimulatedDisk(syncs_everything=True)
    disk.whole_sync_lies = True
    failures: list[OSError] = []
    store = LogStore(disk.root, clock=clock, node_id=1, on_failure=failures.append)
    store.open_all(lambda _topic: SMALL)
    logs = [store.create("t", TOPIC_ID, partition, SMALL) for partition in range(WHOLE_FROM_FILES + 2)]
    for _ in range(3):
        offsets = [log.append(batch(1), now_ms=NOW_MS).last_offset for log in logs]
        await asyncio.gather(*(log.durable(offset) for log, offset in zip(logs, offsets, strict=True)))
    disk.fail_sync = OSError(errno.EROFS, "Read-only file system")
    offsets = [log.append(batch(1), now_ms=NOW_MS).last_offset for log in logs]
    waits = await asyncio.gather(
        *(log.durable(offset) for log, offset in zip(logs, offsets, strict=True)), return_exceptions=True
    )
    assert [type(each) for each in waits] == [KafkaStorageError] * len(logs)
    assert failures == [disk.fail_sync]
    disk.fail_sync = None


async def test_retention_rolls_an_active_segment_that_is_all_too_old(store: LogStore) -> None:
    log = store.create("t", TOPIC_ID, 0, LogConfig(retention_ms=1000))
    await fill(log, 3, timestamp=NOW_MS - 5000)
    assert await store.enforce_retention(NOW_MS) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (3, 3, 0)
    await fill(log, 1)
    assert [view.base_offset for view in read_all(log)] == [3]


async def test_retention_by_size_and_new_settings(store: LogStore) -> None:
    log = store.create("t", TOPIC_ID, 0, SMALL)
    await fill(log, 20)
    assert await store.enforce_retention(NOW_MS) == 0
    await store.apply_config("t", LogConfig(segment_bytes=1000, retention_bytes=2000))
    assert await store.enforce_retention(NOW_MS) > 0
    assert 2000 <= log.size_bytes < 3200


async def test_compacted_topics_are_left_alone(store: LogStore) -> None:
    config = LogConfig(cleanup_policy=("compact",), retention_ms=1, retention_bytes=1, segment_bytes=1000)
    log = store.create("t", TOPIC_ID, 0, config)
    for _ in range(9):
        keyed = build_batch([NewRecord(NOW_MS - 10_000, b"key", b"v" * 200)])
        await log.durable(log.append(keyed, now_ms=NOW_MS).last_offset)
    assert await store.enforce_retention(NOW_MS) == 0
    assert log.log_start_offset == 0


async def test_retention_forgets_producers_that_were_not_heard_of(store: LogStore) -> None:
    log = store.create("t", TOPIC_ID, 0, SMALL)
    log.append(batch(1, producer=(4, 0, 0)), now_ms=NOW_MS)
    await store.enforce_retention(NOW_MS + 86_399_000)
    assert len(log.producers) == 1
    await store.enforce_retention(NOW_MS + 86_400_000)
    assert len(log.producers) == 0


async def test_deleted_records_stay_deleted(store: LogStore, clock: ManualClock) -> None:
    log = store.create("t", TOPIC_ID, 0, SMALL)
    await fill(log, 10)
    assert await store.delete_records(log, 7) == 7
    assert await store.delete_records(log, 5) == 7
    with pytest.raises(OffsetOutOfRange):
        await store.delete_records(log, 11)
    assert log.segments[0].base_offset > 0
    again = await reopened(store, clock)
    log_again = again.get("t", 0)
    assert log_again is not None
    assert (log_again.log_start_offset, log_again.log_end_offset) == (7, 10)
    assert read_all(log_again)[0].base_offset == 7
    await again.close()


async def test_retention_and_deletion_while_rounds_of_fsync_are_at_work(store: LogStore) -> None:
    config = LogConfig(segment_bytes=600, retention_bytes=0, file_delete_delay_ms=0)
    for topic in ("a", "b"):
        store.create(topic, TOPIC_ID, 0, config)

    async def produce(topic: str) -> None:
        for _ in range(60):
            log = store.get(topic, 0)
            if log is None:
                return
            with contextlib.suppress(KafkaStorageError):  # the log may be deleted while it is waited for
                result = log.append(batch(1, value_bytes=200), now_ms=NOW_MS)
                if result.base_offset % 3 == 0:
                    await asyncio.sleep(0)
                if result.base_offset % 7 == 0:
                    await log.durable(result.last_offset)

    async def clean() -> None:
        for _ in range(15):
            await store.enforce_retention(NOW_MS)
        await store.delete("b")

    async with asyncio.TaskGroup() as tasks:
        for topic in ("a", "b", "a"):
            tasks.create_task(produce(topic))
        tasks.create_task(clean())
    assert store.failure is None
    assert store.partitions() == [TopicPartition("a", 0)]


async def test_a_checkpoint_bounds_what_a_crash_costs(clock: ManualClock) -> None:
    disk = SimulatedDisk()
    store = LogStore(disk.root, clock=clock, node_id=1)
    store.open_all()
    log = store.create("t", TOPIC_ID, 0, LogConfig())
    await fill(log, 50)
    await store.checkpoint()
    index = disk.root.subdirectory("t-0").read(segment_name(0, ".index"))
    assert index == log.active.index.to_bytes() != b""
    assert log.active.index.last_position > 200
    disk.root.subdirectory("t-0").open(segment_name(0)).write_at(80, b"\xff")
    again = LogStore(disk.root, clock=clock, node_id=1)
    again.open_all()
    log_again = again.get("t", 0)
    assert log_again is not None
    assert log_again.log_end_offset == 50
    assert log_again.active.damaged == [], "only what the index does not cover is checked again"
    with pytest.raises(CorruptMessage):
        log_again.read(0, 100)
    await store.close()
    await again.close()


async def test_an_unchanged_checkpoint_costs_nothing(clock: ManualClock) -> None:
    disk = SimulatedDisk()
    store = LogStore(disk.root, clock=clock, node_id=1)
    store.open_all()
    await fill(store.create("t", TOPIC_ID, 0, LogConfig()), 3)
    await store.checkpoint()
    syncs = disk.syncs
    await store.checkpoint()
    assert disk.syncs == syncs
    await store.close()


async def test_a_partition_that_cannot_be_made_leaves_nothing(clock: ManualClock) -> None:
    disk = SimulatedDisk()
    store = LogStore(disk.root, clock=clock, node_id=1)
    disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(KafkaStorageError):
        store.create("t", TOPIC_ID, 0, SMALL)
    with pytest.raises(KafkaStorageError):
        await store.create_many([logs_of("t", 2)])
    assert not disk.root.exists("t-0")
    assert not disk.root.exists("t-1")
    disk.capacity_bytes = None
    await fill(store.create("t", TOPIC_ID, 0, SMALL), 1)
    await store.close()


async def test_a_full_disk_costs_a_checkpoint_and_nothing_else(clock: ManualClock) -> None:
    disk = SimulatedDisk()
    store = LogStore(disk.root, clock=clock, node_id=1)
    store.open_all()
    log = store.create("t", TOPIC_ID, 0, SMALL)
    await fill(log, 3)
    disk.capacity_bytes = disk.used_bytes()
    await store.checkpoint()
    assert store.failure is None
    disk.capacity_bytes = None
    await store.checkpoint()
    assert disk.root.read("recovery-point-offset-checkpoint") == b"0\n1\nt 0 3\n"
    await store.close()


async def test_a_log_whose_files_give_trouble_keeps_no_other_from_getting_smaller(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LogStore(SimulatedDisk().root, clock=clock, node_id=1)
    store.open_all()
    for number in (0, 1, 2):
        await fill(store.create("t", TOPIC_ID, number, LogConfig(retention_bytes=300, segment_bytes=300)), 20)
    bad = store.get("t", 0)
    assert bad is not None

    def broken(old: str, new: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(bad.directory, "rename", broken)
    await store.enforce_retention(clock.now_ms())
    for number in (1, 2):
        log = store.get("t", number)
        assert log is not None
        assert log.log_start_offset > 0
    await store.close()


async def test_deleted_records_free_a_full_disk(clock: ManualClock) -> None:
    disk = SimulatedDisk()
    store = LogStore(disk.root, clock=clock, node_id=1)
    store.open_all()
    log = store.create("t", TOPIC_ID, 0, LogConfig(segment_bytes=300, file_delete_delay_ms=0))
    await fill(log, 20)
    used = disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(KafkaStorageError):
        await store.delete_records(log, 15)
    await store.checkpoint()
    assert disk.used_bytes() < used / 2
    assert await store.delete_records(log, 15) == 15
    await fill(log, 1)
    await store.close()


async def test_a_failed_fsync_is_told_to_the_owner_and_no_clean_mark_is_left(clock: ManualClock) -> None:
    disk, failures = SimulatedDisk(), list[OSError]()
    store = LogStore(disk.root, clock=clock, node_id=1, on_failure=failures.append)
    store.open_all()
    log = store.create("t", TOPIC_ID, 0, SMALL)
    await fill(log, 1)
    disk.fail_sync = OSError(errno.EIO, "Input/output error")
    with pytest.raises(KafkaStorageError):
        await fill(log, 1)
    assert [failure.errno for failure in failures] == [errno.EIO]
    with pytest.raises(KafkaStorageError):
        store.create("t", TOPIC_ID, 1, SMALL)
    disk.fail_sync = None
    await store.close()
    assert not disk.root.exists(".kafka_cleanshutdown")


def test_an_unknown_flush_policy_is_refused(clock: ManualClock) -> None:
    with pytest.raises(ValueError, match=r"flush\.policy"):
        LogStore(SimulatedDisk().root, clock=clock, node_id=1, flush_policy="sometimes")


def test_files_go_at_once_when_there_is_no_delay_whatever_the_event_loop(tmp_path: Path, clock: ManualClock) -> None:
    uvloop = pytest.importorskip("uvloop")  # its timers without a delay are no timers

    async def scenario() -> None:
        store = LogStore.at(str(tmp_path), clock=clock, node_id=1)
        store.open_all(lambda _topic: SMALL)
        for number in range(2):
            store.create(f"t{number}", TOPIC_ID, 0, SMALL)
            await store.delete(f"t{number}")
        for _ in range(500):
            if not list(tmp_path.glob(f"*{DELETE_SUFFIX}")):
                break
            await asyncio.sleep(0.01)
        assert not list(tmp_path.glob(f"*{DELETE_SUFFIX}"))
        await store.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


async def test_a_checkpoint_that_is_late_takes_nothing_back_of_what_closing_wrote() -> None:
    disk, files = SimulatedDisk(), SteppedThread()
    threads = LogThreads(flush=ThreadPoolExecutor(1), files=files, reads=ThreadPoolExecutor(1))
    store = LogStore(disk.root, clock=ManualClock(NOW_MS), node_id=1, threads=threads)
    log = store.create("t", TOPIC_ID, 0, SMALL)
    await fill(log, 3)
    log.advance_log_start(2)
    checkpoint = asyncio.ensure_future(store.checkpoint())
    await asyncio.sleep(0.05)  # to where it waits for the file thread
    assert not files.idle
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0.05)  # all that closing does in other threads
    while not (closing.done() and checkpoint.done()):
        files.work()
        files.notice()
        await asyncio.sleep(0)
    again = LogStore(disk.root, clock=ManualClock(NOW_MS), node_id=1)
    again.open_all(lambda _topic: SMALL)
    found = again.get("t", 0)
    assert found is not None
    assert (found.log_start_offset, found.log_end_offset) == (2, 3)
    assert read_offsets(disk.root, RECOVERY_POINTS) == {log.topic_partition: 3}
    await again.close()


async def test_a_log_that_is_begun_anew_is_empty_and_begins_further_on(store: LogStore, clock: ManualClock) -> None:
    log = store.create("t", TOPIC_ID, 0, SMALL)
    await fill(log, 12)
    await store.checkpoint()
    again = await store.begin_anew(log, 40)
    assert (log.closed, store.get("t", 0) is again) == (True, True)
    assert (again.log_start_offset, again.held_offset, again.log_end_offset, again.leader_epoch) == (40, 40, 40, -1)
    with pytest.raises(KafkaStorageError, match="closed"):
        await store.begin_anew(log, 50)
    await fill(again, 2)
    assert [view.base_offset for view in read_all(again)] == [40, 41]
    store = await reopened(store, clock)
    found = store.get("t", 0)
    assert found is not None
    assert (found.topic_id, found.log_start_offset, found.log_end_offset) == (TOPIC_ID, 40, 42)
    await store.close()


async def test_a_log_that_is_begun_anew_while_its_topic_is_deleted_is_not_there(store: LogStore) -> None:
    log = store.create("t", TOPIC_ID, 0, SMALL)
    anew = asyncio.gather(store.begin_anew(log, 40), store.delete("t"))
    made, _ = await anew
    assert (made.closed, store.partitions()) == (True, [])
