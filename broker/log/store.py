"""The data folder of a broker and every partition in it

One folder per broker. This joins what has rooms of its own: whose folder it is (`data_folder`), the open logs
(`open_logs`), rounds of fsync (`flusher`), checkpoints (`folder_checkpoints`), folders of partitions made and taken
away (`partition_folders`), old segments that go (`old_segments`), cleaned ones that come (`segment_exchange`), files
that go a little later (`removals`). The event loop decides; whatever waits for the disk happens in the folder's
`threads`, and whatever goes over all logs does so in short `turns`.

What is promised follows from `flush_policy`. `group`: a record is acknowledged, and visible to consumers, when it is
on the disk. `os`: it is acknowledged from the page cache, as on Apache Kafka; fsync happens when a segment is sealed
and by `flush.messages` and `flush.ms`.
"""

import asyncio
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, TypedDict

import structlog

from tidemill.core.errors import KafkaStorageError, TopicAlreadyExists
from tidemill.core.runtime.clock import Clock
from tidemill.core.runtime.disk import DISK_FULL, Directory
from tidemill.core.types import TopicPartition

from .checkpoints import take_clean_shutdown, write_clean_shutdown
from .config import LogConfig
from .data_folder import cannot_use, claim, lock_folder
from .epochs import LeaderEpochs
from .flusher import Flusher
from .folder_checkpoints import FolderCheckpoints
from .lookup import Found
from .lookup_queue import LookupQueue, Question
from .new_logs import NewLogs
from .old_segments import OldSegments
from .open_logs import OpenLogs
from .partition import PartitionLog, Traffic
from .partition_folders import KnownFolder, PartitionFolders, find_partition_folders, name_of_deleted
from .producers import ProducerStates
from .recovery import LoadedLog, load
from .removals import DelayedRemovals
from .reopening import describe, reopen
from .segment import Segment
from .segment_exchange import SegmentExchange
from .stopped_logs import LOGS_AT_STOP, write_stopped_logs
from .threads import LogThreads, parts_of, run_all, run_each
from .truncation import Truncations
from .turns import Turns

log = structlog.get_logger("tidemill.broker.log")

FLUSH_POLICIES = ("group", "os")
CHECKPOINT_INTERVAL_S = 5.0  # how often a job should call `checkpoint`; Kafka's own interval is a minute
AT_ONCE = 16  # files written, or folders renamed, between two rounds of fsync: a millisecond or two
CLOSED_AT_ONCE = 256  # files


class _Known(TypedDict):
    """What the folder and the clock say of a log that is about to be opened."""

    recovery_point: int | None
    log_start_offset: int
    now_ms: int
    cleaned_offset: int | None


class Opening(NamedTuple):
    """How far `open_all` has come: partitions that are open, of those found in the folder."""

    opened: int
    found: int


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
        threads: LogThreads | None = None,
        unlock: Callable[[], None] = lambda: None,
    ) -> None:
        if flush_policy not in FLUSH_POLICIES:
            raise ValueError(f"flush.policy {flush_policy!r} is not one of {', '.join(FLUSH_POLICIES)}")
        self.directory = directory
        self.producer_id_expiration_ms = 86_400_000  # may be changed at any time
        self.failure: OSError | None = None
        self.opening = Opening(0, 0)  # replaced as it goes; may be read by any thread
        self.identity = claim(directory, node_id, cluster_id, new_id())
        self._clock = clock
        self._group_commit = flush_policy == "group"
        self._on_failure = on_failure
        self._new_id = new_id
        self._threads = threads = threads or LogThreads.start()
        self.flusher = Flusher(
            threads.flush,
            self._failed,
            monotonic=clock.monotonic,
            sync_everything=directory.file_system_sync(),
            sync_files=directory.files_sync(),
        )
        self._lookups = LookupQueue(clock.monotonic, threads.lookups)
        self._logs = OpenLogs()
        self._checkpoints = FolderCheckpoints(directory)
        self._folders = PartitionFolders(directory, self._checkpoints.forget, threads.makers, monotonic=clock.monotonic)
        self._removals = DelayedRemovals(threads.files)
        self._exchange = SegmentExchange(self.flusher, self._removals, self._failed)
        self._old_segments = OldSegments(
            self._logs,
            flusher=self.flusher,
            threads=threads,
            removals=self._removals,
            clock=clock,
            checkpoint=self.checkpoint,
            folder_failed=lambda: self.failure is not None,
        )
        self._truncations = Truncations(
            flusher=self.flusher,
            threads=threads,
            checkpoints=self._checkpoints,
            removals=self._removals,
            clock=clock,
            on_failure=self._failed,
        )
        self._making = asyncio.Lock()  # folders of one name are made and deleted one after the other
        self._unlock = unlock  # once
        self._closed = False
        self._one_writes_starts = asyncio.Lock()  # what others have moved meanwhile is written with it
        self._opened: bool | None = None  # what was in the folder; None if nobody asked for it

    @classmethod
    def at(cls, path: str, **settings: object) -> "LogStore":
        """A store in the folder `path`, locked for this process; raises FolderRefused with a one-line reason."""
        directory, descriptor = lock_folder(path)
        try:
            return cls(directory, unlock=partial(os.close, descriptor), **settings)  # type: ignore[arg-type]
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError):
                raise cannot_use(path, error) from error
            raise

    @property
    def cluster_id(self) -> str:
        """The cluster this folder belongs to."""
        return self.identity.cluster_id

    def _failed(self, error: OSError) -> None:
        if self.failure is None:
            self.failure = error
            self._on_failure(error)

    def _refuse_after_failure(self) -> None:
        if self.failure is not None:
            raise KafkaStorageError(f"the log folder failed: {self.failure}")

    async def _in_file_thread(self, call: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads.files, call)

    # -- start and end

    def open_all(
        self,
        configs: Callable[[str], LogConfig] = lambda _topic: LogConfig(),
        known: Mapping[TopicPartition, KnownFolder] = MappingProxyType({}),
    ) -> None:
        """Open every partition found in the folder; `configs` gives the settings of a topic.

        `known` are folders that somebody has looked at already.

        Blocks for as long as recovery takes: call it before serving, in a thread if something must go on meanwhile.
        """
        self._opened = False
        clean = take_clean_shutdown(self.directory)
        self.directory.remove(LOGS_AT_STOP)  # without the mark nobody believes it
        cleaner_known = self._checkpoints.read()
        folders = list(find_partition_folders(self.directory, known))
        for number, (topic_partition, folder) in enumerate(folders):
            self.opening = Opening(number, len(folders))
            config = configs(topic_partition.topic)
            if not cleaner_known and config.compacted:
                # It may have been cleaned to any point: gaps are no sign of a torn log.
                self._checkpoints.cleaned[topic_partition] = 0
            loaded = self._load(topic_partition, folder, config, clean=clean)
            self._logs.add(self._partition(topic_partition, folder.directory, config, loaded))
        self.opening = Opening(len(folders), len(folders))
        if not clean:
            self.directory.sync()  # a killed process may have made folders whose names are in memory only
        self._opened = True
        self._correct_checkpoints(cleaner_known=cleaner_known)
        log.info(
            "log folder opened",
            folder=self.directory.path,
            partitions=len(self._logs),
            recovered=not clean and len(self._logs) > 0,
            flush_policy="group" if self._group_commit else "os",
            promise="acknowledged records are on the disk"
            if self._group_commit
            else "acknowledged records are in the page cache; a power cut can lose the last of them",
        )

    def _load(self, key: TopicPartition, folder: KnownFolder, config: LogConfig, *, clean: bool) -> LoadedLog:
        known = _Known(
            recovery_point=self._checkpoints.points.get(key),
            log_start_offset=self._checkpoints.starts.get(key, 0),
            now_ms=self._clock.now_ms(),
            cleaned_offset=self._checkpoints.cleaned.get(key),
        )
        reopened = reopen(folder.directory, folder.stopped, **known) if clean and folder.stopped is not None else None
        return reopened or load(folder.directory, config, clean=clean, topic_id=folder.topic_id, **known)

    def _correct_checkpoints(self, *, cleaner_known: bool) -> None:
        try:
            self._checkpoints.correct(self._logs, cleaner_known=cleaner_known)
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
            flusher=self.flusher,
            held_when_durable=self._group_commit,
            segments=loaded.segments,
            epochs=loaded.epochs,
            producers=loaded.producers,
            log_start_offset=loaded.log_start_offset,
            on_failure=self._failed,
            epochs_written=loaded.epochs_written,
        )

    async def close(self) -> None:
        """Make everything durable, close all files and leave the mark of a clean shutdown; once."""
        if self._closed:
            return
        self._closed = True
        await self._truncations.wait()
        logs = list(self._logs)
        # A folder that was not opened, or not to its end, has logs that nobody looked at: they are not closed in order.
        if self.failure is None and (self._opened or (self._opened is None and logs)):
            try:
                await self._close_in_order(logs)
            except (KafkaStorageError, OSError) as error:
                log.error("the log folder could not be closed in order", error=str(error))
        for partition_log in logs:
            partition_log.detach()
        self._removals.all_now()
        await self._in_file_thread(lambda: None)  # what was handed to it before is done, and knew all logs
        self._logs.clear()
        self._lookups.close()
        self.flusher.end()
        self._threads.shutdown()
        for partition_log in logs:
            partition_log.close_files()
        self._unlock()

    async def _close_in_order(self, logs: Sequence[PartitionLog]) -> None:
        for partition_log in logs:
            self.flusher.add(partition_log)
        await self.flusher.drain()
        for partition_log in logs:
            partition_log.detach()
        await self.flusher.between_rounds(partial(run_all, [partition_log.finish for partition_log in logs]))
        await self._in_file_thread(partial(self._finish, logs))  # behind a checkpoint that is being written

    def _finish(self, logs: Sequence[PartitionLog]) -> None:
        self._checkpoints.write(logs)
        write_clean_shutdown(self.directory, self._describe(logs))

    def _describe(self, logs: Sequence[PartitionLog]) -> int | None:
        """Write down what spares the next start to look for it; the CRC of that, None if there is no room for it."""
        found = ((each.topic_partition, describe(each, self.directory)) for each in logs)
        try:
            return write_stopped_logs(self.directory, [(key, stopped) for key, stopped in found if stopped is not None])
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            return None

    # -- partitions

    def create(self, topic: str, topic_id: uuid.UUID, partition: int, config: LogConfig) -> PartitionLog:
        """Make the log of a new partition; raises TopicAlreadyExists, KafkaStorageError. Blocks for a few syncs."""
        topic_partition = TopicPartition(topic, partition)
        if topic_partition in self._logs:
            raise TopicAlreadyExists(f"there is a log of {topic_partition} already")
        self._refuse_after_failure()
        (made,) = self._make([NewLogs(topic=topic, topic_id=topic_id, partitions=[partition], config=config)])
        self._logs.add(made)
        return made

    async def create_many(self, wanted: Iterable[NewLogs]) -> None:
        """Make those logs of `wanted` that are not there, off the event loop and side by side.

        Raises KafkaStorageError and then none of them was made.
        """
        async with self._making:
            missing = [rest for each in wanted if (rest := self._missing(each)).partitions and rest.still_wanted()]
            if not missing:
                return
            self._refuse_after_failure()
            make = partial(self._make, missing)
            turns = Turns(self._clock.monotonic)
            for made in await asyncio.get_running_loop().run_in_executor(self._threads.files, make):
                self._logs.add(made)
                await turns.give_way()

    def _missing(self, wanted: NewLogs) -> NewLogs:
        absent = [number for number in wanted.partitions if TopicPartition(wanted.topic, number) not in self._logs]
        return replace(wanted, partitions=absent)

    def _make(self, wanted: Sequence[NewLogs], base_offset: int = 0) -> list[PartitionLog]:
        of_topic = {TopicPartition(each.topic, number): each for each in wanted for number in each.partitions}
        folders = self._folders.make({key: each.topic_id for key, each in of_topic.items()}, base_offset)
        made = []
        for (key, each), (folder, segment) in zip(of_topic.items(), folders, strict=True):
            empty = LoadedLog(
                topic_id=each.topic_id,
                segments=[segment],
                epochs=LeaderEpochs(),
                producers=ProducerStates(),
                log_start_offset=base_offset,
            )
            made.append(self._partition(key, folder, each.config, empty))
        return made

    async def begin_anew(self, partition_log: PartitionLog, offset: int) -> PartitionLog:
        """Throw a log away and have an empty one in its place, which begins at `offset`.

        The old one is closed. A crash on the way leaves it as it was, or none at all. Raises KafkaStorageError: then
        it is as it was if it is not closed, else the partition has no log until one is made.
        """
        key = partition_log.topic_partition
        async with self._making:
            self._refuse_after_failure()
            if partition_log.closed or partition_log.cutting:
                raise KafkaStorageError(f"{key} is closed, or its end is being cut off")
            partition_log.detach()
            self._logs.remove(partition_log)
            self.flusher.remove(partition_log)
            segments = list(partition_log.segments)
            for part in parts_of(segments, CLOSED_AT_ONCE):
                await self.flusher.between_rounds(partial(run_all, [segment.close for segment in part]))
            if (failure := await self._retire([partition_log])) is not None:
                raise KafkaStorageError(f"cannot throw away {key}: {failure.strerror}") from failure
            wanted = NewLogs(
                topic=key.topic,
                topic_id=partition_log.topic_id,
                partitions=[key.partition],
                config=partition_log.config,
            )
            make = partial(self._make, [wanted], offset)
            (made,) = await asyncio.get_running_loop().run_in_executor(self._threads.files, make)
            self._logs.add(made)
            log.info("log begun anew", partition=str(key), log_start_offset=offset, was=partition_log.log_end_offset)
            return made

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """The log of a partition, None if it is not stored here."""
        return self._logs.get(topic, partition)

    def partitions(self) -> "list[TopicPartition]":
        """Everything stored here."""
        return self._logs.partitions()

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(self._logs)

    @property
    def removed_traffic(self) -> Traffic:
        """Of the logs that have been deleted since the start; together with those here it never goes back."""
        return self._logs.removed_traffic

    async def delete(self, topic: str) -> None:
        """Remove all partitions of `topic`: at once from sight, its files a little later.

        Raises OSError when some of the files could not be; the others have gone all the same.
        """
        gone = await self._detach(topic)
        async with self._making:
            gone += await self._detach(topic)  # what was being made when the first were detached
            segments = [segment for partition_log in gone for segment in partition_log.segments]
            for part in parts_of(segments, CLOSED_AT_ONCE):
                await self.flusher.between_rounds(partial(run_all, [segment.close for segment in part]))
            failures = [await self._retire(part) for part in parts_of(gone, AT_ONCE)]
        for failure in failures:
            if failure is not None:
                raise failure

    async def _detach(self, topic: str) -> "list[PartitionLog]":
        gone, turns = [], Turns(self._clock.monotonic)
        for partition_log in self._logs.of_topic(topic):
            if not partition_log.closed:  # two may delete the same topic
                partition_log.detach()
                self._logs.remove(partition_log)
                self.flusher.remove(partition_log)
                gone.append(partition_log)
            await turns.give_way()
        return gone

    async def _retire(self, gone: Sequence[PartitionLog]) -> OSError | None:
        names = [(str(each.topic_partition), name_of_deleted(each.topic_partition, self._new_id())) for each in gone]
        failure = await self.flusher.between_rounds(partial(self._folders.retire, names))
        for partition_log, (_, deleted) in zip(gone, names, strict=True):
            remove = partial(self._folders.remove_deleted, deleted)
            self._removals.later(partition_log.config.file_delete_delay_ms, remove)
        return failure

    async def apply_config(self, topic: str, config: LogConfig) -> None:
        """Let the partitions of `topic` follow new settings from now on."""
        turns = Turns(self._clock.monotonic)
        for partition_log in self._logs.of_topic(topic):
            partition_log.config = config
            await turns.give_way()

    # -- upkeep

    async def enforce_retention(self, now_ms: int) -> int:
        """Remove what retention no longer keeps; returns the number of segments. A job calls it now and then."""
        return await self._old_segments.enforce(now_ms, self.producer_id_expiration_ms)

    async def delete_records(self, partition_log: PartitionLog, offset: int) -> int:
        """Let the log begin at `offset` durably; returns the log start offset.

        Raises KafkaStorageError when that could not be written down (a full disk): the log begins there all the same,
        until a restart, what it does not need any more goes, and the next checkpoint tries again. Many at the same time
        share a checkpoint or two.
        """
        advanced = partition_log.advance_log_start(offset)
        async with self._one_writes_starts:
            if self.durable_start(partition_log) < offset:  # also when somebody else's advance is still being written
                await self.checkpoint()
        if advanced:
            await self._old_segments.shrink(partition_log, self._clock.now_ms())
        if self.durable_start(partition_log) < offset:
            raise KafkaStorageError(f"cannot write the log start of {partition_log.topic_partition}")
        return partition_log.log_start_offset

    async def truncate(self, partition_log: PartitionLog, offset: int, *, unclean: bool = False) -> int:
        """Let a log have nothing from `offset` on, durably; see `Truncations.truncate`."""
        return await self._truncations.truncate(partition_log, offset, unclean=unclean)

    def durable_start(self, partition_log: PartitionLog) -> int:
        """Where the log begins after a crash, at least: the log start as the folder's checkpoint has it."""
        return min(self._checkpoints.starts.get(partition_log.topic_partition, 0), partition_log.log_start_offset)

    async def checkpoint(self) -> None:
        """Write down how far the logs are durable and where they begin; bounds the work after a crash."""
        try:
            await self._write_indexes()
            await self._in_file_thread(self._write_checkpoints)
        except OSError as error:
            if error.errno not in DISK_FULL:
                self._failed(error)
            log.warning("checkpoint could not be written", error=str(error))

    async def _write_indexes(self) -> None:
        """Bring the index files of active segments up to date, and have logs flushed whose `flush.ms` has passed."""
        now_ms, turns = self._clock.now_ms(), Turns(self._clock.monotonic)
        writes: list[Callable[[], None]] = []
        for partition_log in self._logs:
            if partition_log.closed:
                continue
            if partition_log.flush_is_due(now_ms):
                self.flusher.add(partition_log)
            write = partition_log.take_index_writes()
            if write is not None:
                writes.append(write)
            if len(writes) >= AT_ONCE or turns.over:
                # In the turn they were taken in: whatever renames those files queues behind them.
                writes, taken = [], writes
                await self.flusher.between_rounds(partial(run_each, taken))
                turns.begin()
        if writes:
            await self.flusher.between_rounds(partial(run_each, writes))

    def _write_checkpoints(self) -> None:
        """In the file thread. A log that is deleted now may be in it: the making of its successor forgets it."""
        logs = list(self._logs)
        if not self._closed:  # else `close` writes them, all of them
            self._checkpoints.write(logs)

    # -- compaction

    def cleaned_offset(self, topic_partition: TopicPartition) -> int | None:
        """Where the part of a log begins that was never compacted; None if the cleaner has never been at work on it."""
        return self._checkpoints.cleaned.get(topic_partition)

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """As the folder has them: at a start, how far each log was known to be committed, which may be beyond it."""
        return self._checkpoints.high_watermarks

    def checkpointed_offset(self, topic_partition: TopicPartition) -> int:
        """The recovery point as the folder has it: what a start after a crash takes to be durable."""
        return self._checkpoints.points.get(topic_partition, 0)

    async def set_cleaned_offset(self, partition_log: PartitionLog, offset: int) -> None:
        """Remember durably how far a log is compacted; raises OSError. Where it is cut off meanwhile: no further."""
        key, cuts = partition_log.topic_partition, partition_log.cuts

        def note() -> None:
            reached = offset if partition_log.cuts == cuts else min(offset, self._checkpoints.cleaned.get(key, 0))
            self._checkpoints.note_cleaned(key, reached, self._logs.__contains__)

        if not partition_log.closed:
            await self._in_file_thread(note)

    async def replace_segments(self, partition_log: PartitionLog, old: "list[Segment]", cleaned: Segment) -> bool:
        """Let `cleaned` be in the place of `old`, on the disk too; False if they are not there any more.

        Raises OSError when there is no room for it; then everything is as it was.
        """
        return await self._exchange.replace(partition_log, old, cleaned)

    # -- reading

    def prefetch(self, reads: "Iterable[Callable[[], None]]") -> "asyncio.Future[list[object]]":
        """Run what `PartitionLog.cold` returned; once done the bytes are in memory. An error is left to the read."""
        loop = asyncio.get_running_loop()
        pending = [loop.run_in_executor(self._threads.reads, read) for read in reads]
        return asyncio.gather(*pending, return_exceptions=True)

    def look_up(self, partition_log: PartitionLog, question: Question) -> "asyncio.Future[Found]":
        """What a search finds in what is visible of a log; raises KafkaStorageError once the log is closed."""
        return self._lookups.ask(partition_log, question)
