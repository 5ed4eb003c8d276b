"""The data folder of a broker and every partition in it

Owns the folder: its lock, its identity, its checkpoints, the thread that makes rounds of fsync and the one that
removes files. One folder per broker. Everything runs on the broker's event loop except those two threads, and they
see only files that nobody else is about to close.

What is promised follows from `flush_policy`. `group`: a record is acknowledged, and visible to consumers, when it is
on the disk. `os`: it is acknowledged from the page cache, as on Apache Kafka; fsync happens when a segment is sealed
and by `flush.messages` and `flush.ms`.
"""

import asyncio
import errno
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import structlog

from tidemill.core.errors import KafkaStorageError, TopicAlreadyExists
from tidemill.core.runtime.clock import Clock
from tidemill.core.runtime.disk import DISK_FULL, Directory, OsDirectory, lock_directory, raise_open_files_limit
from tidemill.core.types import TopicPartition

from . import swap
from .checkpoints import (
    CLEANED,
    LOG_STARTS,
    RECOVERY_POINTS,
    find_offsets,
    read_offsets,
    take_clean_shutdown,
    write_clean_shutdown,
    write_offsets,
)
from .config import LogConfig
from .epochs import LeaderEpochs
from .flusher import Flusher
from .identity import META, PARTITION_METADATA, FolderIdentity, FolderRefused, claim_folder, write_topic_id
from .lookup import Found
from .lookup_queue import LookupQueue, Question
from .partition import PartitionLog
from .producers import ProducerStates
from .recovery import LoadedLog, load
from .retention import SegmentFacts, active_is_due, removable
from .segment import Segment
from .segment_age import newest_of, prove_latest

log = structlog.get_logger("tidemill.broker.log")

FLUSH_POLICIES = ("group", "os")
DELETE_SUFFIX = "-delete"
_NAME_MAX = 255  # bytes of a file name on every file system we know
_UNIQUE_BYTES = 1 + 32 + len(DELETE_SUFFIX)
METADATA_FOLDER = "__cluster_metadata-0"  # looks like a partition, but the metadata quorum looks after it itself
CREATE_THREADS = 8
READ_THREADS = 4  # reads from the disk at a time; more would only queue in the device
CHECKPOINT_INTERVAL_S = 5.0  # how often a job should call `checkpoint`; Kafka's own interval is a minute


def parse_partition_folder(name: str) -> TopicPartition | None:
    """The partition whose folder is called `name`; None for folders of anything else."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isdigit() or (len(number) > 1 and number[0] == "0"):
        return None
    return TopicPartition(topic, int(number))


class LogStore:
    """All partitions of one data folder."""

    def __init__(
        self,
        directory: Directory,
        *,
        clock: Clock,
        node_id: int,
        cluster_id: str | None = None,
        flush_policy: str = "group",
        on_failure: Callable[[OSError], None] = lambda _error: None,
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        if flush_policy not in FLUSH_POLICIES:
            raise ValueError(f"flush.policy {flush_policy!r} is not one of {', '.join(FLUSH_POLICIES)}")
        self.directory = directory
        self._clock = clock
        self._group_commit = flush_policy == "group"
        self.producer_id_expiration_ms = 86_400_000  # may be changed at any time
        self._on_failure = on_failure
        self._new_id = new_id
        self._flush_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tidemill-flush")
        self._file_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tidemill-files")
        self._read_threads = ThreadPoolExecutor(max_workers=READ_THREADS, thread_name_prefix="tidemill-read")
        self._lookups = LookupQueue(clock.monotonic)
        self._flusher = Flusher(
            self._flush_thread,
            self._failed,
            monotonic=clock.monotonic,
            sync_everything=directory.file_system_sync(),
        )
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._removals: set[asyncio.TimerHandle] = set()
        self._due: list[Callable[[], None]] = []
        self._undeleted: set[str] = set()  # folders of deleted partitions that still have their names
        self._making = asyncio.Lock()  # folders of one name are made and deleted one after the other
        self._removing = asyncio.Lock()  # segments go oldest first: to recovery a gap between them is a torn log
        self._cleaned: Mapping[TopicPartition, int] = {}  # as the folder has it
        self._checkpointed: tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]] = ({}, {})
        self._closed = False
        self._opened: bool | None = None  # what was in the folder; None if nobody asked for it
        self.failure: OSError | None = None
        self.identity = self._claim(node_id, cluster_id)

    @classmethod
    def at(cls, path: str, **settings: object) -> "LogStore":
        """A store in the folder `path`, locked for this process; raises FolderRefused with a one-line reason."""
        raise_open_files_limit()
        try:
            directory = OsDirectory(path)
            descriptor = lock_directory(directory)
        except BlockingIOError:
            raise FolderRefused(f"{path} is in use by another process: stop it or use another data folder") from None
        except OSError as error:
            raise FolderRefused(
                f"cannot write to {path}: {error.strerror}; give the broker a writable folder"
            ) from error
        try:
            store = cls(directory, **settings)  # type: ignore[arg-type]
        except BaseException:
            os.close(descriptor)
            raise
        store._lock = descriptor
        return store

    _lock: int | None = None

    def _claim(self, node_id: int, cluster_id: str | None) -> FolderIdentity:
        try:
            if not self.directory.exists(META) and any(map(parse_partition_folder, self.directory.list())):
                raise FolderRefused(  # it is the first file of a folder: without it nobody knows whose data this is
                    f"{self.directory.path} holds partitions and no {META}: restore that file or use another folder"
                )
            return claim_folder(self.directory, node_id, cluster_id, self._new_id())
        except OSError as error:
            raise FolderRefused(
                f"cannot write to {self.directory.path}: {error.strerror}; give the broker a writable folder"
            ) from error

    @property
    def cluster_id(self) -> str:
        """The cluster this folder belongs to."""
        return self.identity.cluster_id

    # -- start and end

    def open_all(self, configs: Callable[[str], LogConfig] = lambda _topic: LogConfig()) -> None:
        """Open every partition found in the folder; `configs` gives the settings of a topic.

        Blocks for as long as recovery takes: call it before serving, in a thread if something must go on meanwhile.
        """
        self._opened = False
        clean = take_clean_shutdown(self.directory)
        recovery_points = read_offsets(self.directory, RECOVERY_POINTS)
        log_starts = read_offsets(self.directory, LOG_STARTS)
        self._checkpointed = (recovery_points, log_starts)
        cleaned = find_offsets(self.directory, CLEANED)
        expected: dict[TopicPartition, int] = dict(cleaned or {})
        for name in self.directory.list():
            if name == METADATA_FOLDER or not self.directory.is_directory(name):
                continue
            if name.endswith(DELETE_SUFFIX):
                self.directory.remove_tree(name)
                continue
            topic_partition = parse_partition_folder(name)
            if topic_partition is None:
                continue
            folder = self.directory.subdirectory(name)
            config = configs(topic_partition.topic)
            if cleaned is None and config.compacted:
                expected[topic_partition] = 0  # it may have been cleaned to any point: gaps are no sign of a torn log
            loaded = load(
                folder,
                config,
                clean=clean,
                recovery_point=recovery_points.get(topic_partition),
                log_start_offset=log_starts.get(topic_partition, 0),
                now_ms=self._clock.now_ms(),
                cleaned_offset=expected.get(topic_partition),
            )
            self._logs[topic_partition] = self._partition(topic_partition, folder, config, loaded)
        if not clean:
            self.directory.sync()  # a killed process may have made folders whose names are in memory only
        self._cleaned = expected
        self._opened = True
        self._correct_checkpoints(cleaner_knows=cleaned is not None)
        log.info(
            "log folder opened",
            folder=self.directory.path,
            partitions=len(self._logs),
            recovered=not clean and bool(self._logs),
            flush_policy="group" if self._group_commit else "os",
            promise="acknowledged records are on the disk"
            if self._group_commit
            else "acknowledged records are in the page cache; a power cut can lose the last of them",
        )

    def _correct_checkpoints(self, *, cleaner_knows: bool) -> None:
        """Where a log ends before what the checkpoints say of it, they would pass judgement on what is appended now.

        The cleaner's is there from the first start on, or a lost one could not be told from one that never was.
        """
        points, starts = self._checkpointed
        try:
            if not cleaner_knows:
                self._write_cleaned(self._cleaned)
            if any(
                max(points.get(key, 0), starts.get(key, 0)) > partition_log.log_end_offset
                for key, partition_log in self._logs.items()
            ):
                self._write_checkpoints(self._recovery_points(), self._log_starts())
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            log.warning("checkpoint could not be written", error=str(error))

    def _partition(
        self, topic_partition: TopicPartition, folder: Directory, config: LogConfig, loaded: LoadedLog
    ) -> PartitionLog:
        return PartitionLog(
            topic_partition=topic_partition,
            topic_id=loaded.topic_id or uuid.UUID(int=0),
            directory=folder,
            config=config,
            flusher=self._flusher,
            durable_before_visible=self._group_commit,
            segments=loaded.segments,
            epochs=loaded.epochs,
            producers=loaded.producers,
            log_start_offset=loaded.log_start_offset,
            on_failure=self._failed,
        )

    async def close(self) -> None:
        """Make everything durable, close all files and leave the mark of a clean shutdown; once."""
        if self._closed:
            return
        self._closed = True
        logs = list(self._logs.values())
        # A folder that was not opened, or not to its end, has logs that nobody looked at: they are not closed in order.
        if self.failure is None and (self._opened or (self._opened is None and logs)):
            try:
                for partition_log in logs:
                    self._flusher.add(partition_log)
                await self._flusher.drain()
                for partition_log in logs:
                    partition_log.detach()
                await self._flusher.between_rounds(partial(self._finish, logs))
            except (KafkaStorageError, OSError) as error:
                log.error("the log folder could not be closed in order", error=str(error))
        self._logs.clear()
        for handle in self._removals:
            handle.cancel()
        await self._in_file_thread(self._remove_due)
        for partition_log in logs:
            partition_log.detach()
        self._lookups.close()
        self._read_threads.shutdown()
        self._file_thread.shutdown()
        self._flush_thread.shutdown()
        for partition_log in logs:
            partition_log.close_files()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _finish(self, logs: "list[PartitionLog]") -> None:
        for partition_log in logs:
            partition_log.finish()
        self._write_checkpoints(self._recovery_points(), self._log_starts())
        write_clean_shutdown(self.directory)

    def _failed(self, error: OSError) -> None:
        if self.failure is None:
            self.failure = error
            self._on_failure(error)

    # -- partitions

    def create(self, topic: str, topic_id: uuid.UUID, partition: int, config: LogConfig) -> PartitionLog:
        """Make the log of a new partition; raises TopicAlreadyExists, KafkaStorageError. Blocks for a few syncs."""
        topic_partition = TopicPartition(topic, partition)
        if topic_partition in self._logs:
            raise TopicAlreadyExists(f"there is a log of {topic_partition} already")
        self._refuse_after_failure()
        return self._take(topic_partition, topic_id, config, self._make_files([topic_partition], topic_id)[0])

    async def create_many(
        self,
        topic: str,
        topic_id: uuid.UUID,
        partitions: Iterable[int],
        config: LogConfig,
        still_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Make the logs of those `partitions` of a topic that have none, off the event loop and side by side.

        `still_wanted` is asked when nothing else is being made or deleted: the topic may have gone meanwhile. Raises
        KafkaStorageError and then none of them was made.
        """
        async with self._making:
            wanted = [TopicPartition(topic, partition) for partition in partitions]
            missing = [topic_partition for topic_partition in wanted if topic_partition not in self._logs]
            if not missing or not still_wanted():
                return
            self._refuse_after_failure()
            loop = asyncio.get_running_loop()
            made = await loop.run_in_executor(self._file_thread, self._make_files, missing, topic_id)
            for topic_partition, files in zip(missing, made, strict=True):
                self._take(topic_partition, topic_id, config, files)

    def _refuse_after_failure(self) -> None:
        if self.failure is not None:
            raise KafkaStorageError(f"the log folder failed: {self.failure}")

    def _make_files(
        self, topic_partitions: "list[TopicPartition]", topic_id: uuid.UUID
    ) -> "list[tuple[Directory, Segment]]":
        """Folders with an empty log each, all of them durable or none there."""
        try:
            self._make_way(topic_partitions)
        except OSError as error:
            where = f"{self.directory.path}/{topic_partitions[0]}"
            raise KafkaStorageError(f"cannot make {where}: what is there cannot be removed: {error}") from error
        try:
            self._forget_checkpoints(topic_partitions)
            if len(topic_partitions) == 1:
                made = [self._make_folder(topic_partitions[0], topic_id)]
            else:
                with ThreadPoolExecutor(max_workers=CREATE_THREADS) as pool:  # their syncs share the disk's journal
                    made = list(pool.map(partial(self._make_folder, topic_id=topic_id), topic_partitions))
            self.directory.sync()
        except OSError as error:
            for topic_partition in topic_partitions:
                self._undo_folder(str(topic_partition))
            where = f"{self.directory.path}/{topic_partitions[0]}"
            raise KafkaStorageError(f"cannot make {where}: {error.strerror}") from error
        return made

    def _make_way(self, topic_partitions: "list[TopicPartition]") -> None:
        """A new log never takes up files that are there: they would come back as its own with the next start."""
        for name in map(str, topic_partitions):
            if not self.directory.exists(name):
                continue
            if name not in self._undeleted:
                raise FileExistsError(errno.EEXIST, "a folder that this broker did not make", name)
            self._empty_folder(name)

    def _undo_folder(self, name: str) -> None:
        if self.directory.exists(name):
            try:
                self.directory.remove_tree(name)
            except OSError:
                self._undeleted.add(name)

    def _empty_folder(self, name: str) -> None:
        """Remove the folder of a partition so that it names its topic until nothing else is in it."""
        folder = self.directory.subdirectory(name)
        for each in folder.list():
            if each != PARTITION_METADATA and not folder.is_directory(each):
                folder.remove(each)
        folder.sync()
        self.directory.remove_tree(name)
        self.directory.sync()
        self._undeleted.discard(name)

    def _forget_checkpoints(self, topic_partitions: "list[TopicPartition]") -> None:
        """Take out of the checkpoints what they say of an earlier partition of the same name.

        After a crash its offsets would hide records of the new one, or pass what was never durable for durable.
        """
        stale = set(topic_partitions)
        points, starts = self._checkpointed
        if not stale.isdisjoint(points) or not stale.isdisjoint(starts):
            self._write_checkpoints(
                {key: offset for key, offset in points.items() if key not in stale},
                {key: offset for key, offset in starts.items() if key not in stale},
            )
        if not stale.isdisjoint(self._cleaned):
            self._write_cleaned({key: offset for key, offset in self._cleaned.items() if key not in stale})

    def _make_folder(self, topic_partition: TopicPartition, topic_id: uuid.UUID) -> tuple[Directory, Segment]:
        folder = self.directory.subdirectory(str(topic_partition))
        write_topic_id(folder, topic_id)
        segment = Segment.create(folder, 0)
        folder.sync()
        return folder, segment

    def _take(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        config: LogConfig,
        files: tuple[Directory, Segment],
    ) -> PartitionLog:
        folder, segment = files
        loaded = LoadedLog(
            topic_id=topic_id,
            segments=[segment],
            epochs=LeaderEpochs(),
            producers=ProducerStates(),
            log_start_offset=0,
        )
        partition_log = self._partition(topic_partition, folder, config, loaded)
        self._logs[topic_partition] = partition_log
        return partition_log

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The log of a partition, None if it is not stored here."""
        return self._logs.get((topic, partition))  # type: ignore[call-overload,no-any-return]

    def partitions(self) -> "list[TopicPartition]":
        """Everything stored here."""
        return sorted(self._logs)

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(list(self._logs.values()))

    async def delete(self, topic: str) -> None:
        """Remove all partitions of `topic`: at once from sight, its files a little later.

        Raises OSError when some of the files could not be; the others have gone all the same.
        """
        gone = self._detach(topic)
        failure: OSError | None = None
        async with self._making:
            for partition_log in (*gone, *self._detach(topic)):  # what was being made when the first were detached
                name = str(partition_log.topic_partition)
                deleted = f"{name[: _NAME_MAX - _UNIQUE_BYTES]}.{self._new_id().hex}{DELETE_SUFFIX}"
                try:
                    await self._flusher.between_rounds(partial(self._retire_folder, partition_log, name, deleted))
                except OSError as error:
                    failure = error
                if self.directory.exists(deleted):
                    self._remove_later(partition_log.config, partial(self.directory.remove_tree, deleted))
        if failure is not None:
            raise failure

    def _detach(self, topic: str) -> "list[PartitionLog]":
        gone = [partition_log for key, partition_log in self._logs.items() if key.topic == topic]
        for partition_log in gone:
            del self._logs[partition_log.topic_partition]
            self._flusher.remove(partition_log)
            partition_log.detach()
        return gone

    def _retire_folder(self, partition_log: PartitionLog, name: str, deleted: str) -> None:
        partition_log.close_files()
        self._undeleted.add(name)
        try:
            self.directory.rename(name, deleted)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self._empty_folder(name)  # there is no room for a name, and soon there will be
        else:
            self._undeleted.discard(name)
            self.directory.sync()

    def apply_config(self, topic: str, config: LogConfig) -> None:
        """Let the partitions of `topic` follow new settings from now on."""
        for partition_log in self._logs.values():
            if partition_log.topic_partition.topic == topic:
                partition_log.config = config

    # -- upkeep

    async def enforce_retention(self, now_ms: int) -> int:
        """Remove what retention no longer keeps; returns the number of segments. A job calls it now and then.

        A log whose files give trouble keeps no other from getting smaller.
        """
        removed = 0
        for partition_log in self:
            if partition_log.closed or self.failure is not None:
                continue
            partition_log.producers.expire(now_ms, self.producer_id_expiration_ms)
            try:
                if active_is_due(_facts(partition_log)[-1], partition_log.config, now_ms):
                    await self._roll_for_retention(partition_log)
                removed += await self._remove_segments(partition_log, now_ms)
            except OSError as error:
                log.error("retention failed", partition=str(partition_log.topic_partition), error=str(error))
        return removed

    async def _roll_for_retention(self, partition_log: PartitionLog) -> None:
        try:
            partition_log.roll()
            await asyncio.shield(self._flusher.next_round())
        except (OSError, KafkaStorageError) as error:
            log.warning("cannot roll", partition=str(partition_log.topic_partition), error=str(error))

    async def _remove_segments(self, partition_log: PartitionLog, now_ms: int) -> int:
        async with self._removing:
            if partition_log.replacing or self.failure is not None:
                return 0  # the next time will do; and a folder that failed keeps its files, in whatever order they are
            facts, count = self._judge_age(partition_log, now_ms)
            judged = partition_log.segments[: count + (facts[count].newest_ms > now_ms and count + 1 < len(facts))]
            if [segment for segment in judged if not prove_latest(segment)]:
                facts, count = self._judge_age(partition_log, now_ms)
            if count == 0 or partition_log.closed:
                return 0
            log.info(
                "old segments removed",
                partition=str(partition_log.topic_partition),
                segments=count,
                log_start_offset=facts[count].base_offset,
            )
            partition_log.advance_log_start(facts[count].base_offset)
            gone = partition_log.detach_segments(count)
            await self.checkpoint()  # before any file goes: the log must never seem to begin where nothing is left
            for segment in gone:
                # the folder goes as a whole, and another may have its name by now; or the log start is not written down
                if partition_log.closed or self.failure is not None:
                    await self._flusher.between_rounds(segment.close)
                    continue
                await self._flusher.between_rounds(segment.mark_deleted)
                self._remove_later(partition_log.config, segment.remove_deleted)
            return count

    @staticmethod
    def _judge_age(partition_log: PartitionLog, now_ms: int) -> tuple[list[SegmentFacts], int]:
        """The facts about the segments, and how many of the oldest are to be removed."""
        facts = _facts(partition_log)
        config, start = partition_log.config, partition_log.log_start_offset
        return facts, removable(facts, config, now_ms, start, partition_log.recovery_point)

    async def delete_records(self, partition_log: PartitionLog, offset: int) -> int:
        """Let the log begin at `offset` durably; returns the log start offset.

        Raises KafkaStorageError when that could not be written down (a full disk): the log begins there all the same,
        until a restart, what it does not need any more goes, and the next checkpoint tries again.
        """
        advanced = partition_log.advance_log_start(offset)
        if self._start_written(partition_log) < offset:  # also when somebody else's advance is still being written
            await self.checkpoint()
        if advanced:
            await self._remove_segments(partition_log, self._clock.now_ms())
        if self._start_written(partition_log) < offset:
            raise KafkaStorageError(f"cannot write the log start of {partition_log.topic_partition}")
        return partition_log.log_start_offset

    def _start_written(self, partition_log: PartitionLog) -> int:
        """The log start as the folder's checkpoint has it."""
        return self._checkpointed[1].get(partition_log.topic_partition, 0)

    async def checkpoint(self) -> None:
        """Write down how far the logs are durable and where they begin; bounds the work after a crash."""
        now_ms = self._clock.now_ms()
        for partition_log in self._logs.values():
            if partition_log.flush_is_due(now_ms):
                self._flusher.add(partition_log)
        index_writes = [
            write for partition_log in self._logs.values() if (write := partition_log.take_index_writes()) is not None
        ]
        try:
            await self._flusher.between_rounds(partial(_run_all, index_writes))
            # Asked now, and written in this order: an older answer must not follow the making of a new partition.
            write = partial(self._write_checkpoints, self._recovery_points(), self._log_starts())
            await self._in_file_thread(write)
        except OSError as error:
            if error.errno not in DISK_FULL:
                self._failed(error)
            log.warning("checkpoint could not be written", error=str(error))

    def _recovery_points(self) -> Mapping[TopicPartition, int]:
        return {key: partition_log.recovery_point for key, partition_log in self._logs.items()}

    def _log_starts(self) -> Mapping[TopicPartition, int]:
        return {key: partition_log.log_start_offset for key, partition_log in self._logs.items()}

    def _write_checkpoints(self, points: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int]) -> None:
        written_points, written_starts = self._checkpointed
        if points != written_points:
            write_offsets(self.directory, RECOVERY_POINTS, points)
        if starts != written_starts:
            write_offsets(self.directory, LOG_STARTS, starts)
        self._checkpointed = (points, starts)

    # -- compaction

    def cleaned_offset(self, topic_partition: TopicPartition) -> int | None:
        """Where the part of a log begins that was never compacted; None if the cleaner has never been at work on it."""
        return self._cleaned.get(topic_partition)

    def checkpointed_offset(self, topic_partition: TopicPartition) -> int:
        """The recovery point as the folder has it: what a start after a crash takes to be durable."""
        return self._checkpointed[0].get(topic_partition, 0)

    async def set_cleaned_offset(self, partition_log: PartitionLog, offset: int) -> None:
        """Remember durably how far a log is compacted; raises OSError."""
        if not partition_log.closed:
            await self._in_file_thread(partial(self._note_cleaned, partition_log.topic_partition, offset))

    def _note_cleaned(self, topic_partition: TopicPartition, offset: int) -> None:
        """In the file thread, where nobody else can change the checkpoint between its reading and writing."""
        offsets = {**self._cleaned, topic_partition: offset}
        self._write_cleaned({key: offset for key, offset in offsets.items() if key in self._logs})

    def _write_cleaned(self, offsets: Mapping[TopicPartition, int]) -> None:
        write_offsets(self.directory, CLEANED, offsets)
        self._cleaned = offsets

    async def replace_segments(self, partition_log: PartitionLog, old: "list[Segment]", cleaned: Segment) -> bool:
        """Let `cleaned` be in the place of `old`, on the disk too; False if they are not there any more.

        Raises OSError when there is no room for it; then everything is as it was.
        """
        if not partition_log.replace_segments(old, [cleaned]):
            cleaned.close()
            return False
        old_offsets = [segment.base_offset for segment in old]
        partition_log.replacing = True
        try:
            await self._flusher.between_rounds(partial(_swap, partition_log.directory, cleaned, old_offsets))
        except OSError as error:
            if error.errno in DISK_FULL and partition_log.replace_segments([cleaned], old):
                cleaned.close()
            else:
                self._failed(error)
            raise
        finally:
            partition_log.replacing = False
        cleaned.indexes.take_names()
        for segment in old:
            segment.close()
        remove = partial(swap.remove_replaced, partition_log.directory, cleaned.base_offset, old_offsets)
        self._remove_later(partition_log.config, remove)
        return True

    def prefetch(self, reads: "Iterable[Callable[[], None]]") -> "asyncio.Future[list[object]]":
        """Run what `PartitionLog.cold` returned; once done the bytes are in memory. An error is left to the read."""
        loop = asyncio.get_running_loop()
        pending = [loop.run_in_executor(self._read_threads, read) for read in reads]
        return asyncio.gather(*pending, return_exceptions=True)

    def look_up(self, partition_log: PartitionLog, question: Question) -> "asyncio.Future[Found]":
        """What a search finds in what is visible of a log; raises KafkaStorageError once the log is closed."""
        return self._lookups.ask(partition_log, question)

    async def _in_file_thread(self, call: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._file_thread, call)

    def _remove_later(self, config: LogConfig, remove: Callable[[], None]) -> None:
        """Remove files after `file.delete.delay.ms`, or at the end, off the event loop."""
        self._due.append(remove)
        if config.file_delete_delay_ms == 0:
            self._file_thread.submit(self._remove_one, remove)  # a timer without a delay is no timer to uvloop
            return
        loop = asyncio.get_running_loop()
        handle = loop.call_later(config.file_delete_delay_ms / 1000, self._file_thread.submit, self._remove_one, remove)
        self._removals = {other for other in self._removals if not other.cancelled() and other.when() > loop.time()}
        self._removals.add(handle)

    def _remove_one(self, remove: Callable[[], None]) -> None:
        self._due.remove(remove)
        try:
            remove()
        except OSError as error:
            log.warning("a deleted file could not be removed; the next start will", error=str(error))

    def _remove_due(self) -> None:
        for remove in list(self._due):
            self._remove_one(remove)


def _swap(directory: Directory, cleaned: Segment, old_offsets: "list[int]") -> None:
    """In the flusher's thread. A disk that is full before anything is decided leaves everything as it was."""
    try:
        swap.decide(directory, cleaned.base_offset)
    except OSError:
        swap.discard(directory, cleaned.base_offset)
        raise
    try:
        swap.finish(directory, cleaned.base_offset, old_offsets)
    except OSError as error:  # it cannot be taken back any more, whatever the reason
        raise OSError(errno.EIO, f"segments half replaced: {error.strerror}") from error


def _run_all(calls: "list[Callable[[], None]]") -> None:
    for call in calls:
        call()


def _facts(partition_log: PartitionLog) -> list[SegmentFacts]:
    segments = partition_log.segments
    ends = [segment.base_offset for segment in segments[1:]] + [partition_log.log_end_offset]
    return [
        SegmentFacts(
            base_offset=segment.base_offset,
            end_offset=end,
            size_bytes=segment.size_bytes,
            newest_ms=newest_of(segment),
        )
        for segment, end in zip(segments, ends, strict=True)
    ]
