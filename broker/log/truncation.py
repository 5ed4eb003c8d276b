"""The cutting off of a log's end, safe at every step

A follower cuts its log where it parts from its leader's. Whenever the power goes, what is found afterwards is the log
as it was or as it is to be, or something between that ends in whole batches, and never old records behind new ones:

1. Nothing is appended from now on. The folder's checkpoints are lowered, durably: what comes after the cut would pass
   for durable and committed otherwise. Where the cleaner's is lowered, the gaps that it has left are named first.
2. In one turn of the event loop the log ends there, for reads, for rounds of fsync, for its leader epochs.
3. In the flusher's thread, behind the round that may be at work on the same files: segments behind the cut get names
   that no start takes up, the newest first, so that there is never a gap. Snapshots of producers and index files that
   speak of what goes, go. Only then the file is cut, and synced: sectors of old records must not come back among those
   of new ones. Then the leader epochs are written.
4. What the producer states say of the records that have gone is found out anew from snapshots and batches, in a thread.
   Then appends go on.

Bytes that were read and are still being sent may be a map of the file, whose end must not go away under them: the first
step waits for them, for a while. Who is cancelled in it has changed nothing; behind it he waits for the end, for a log
that is cut in memory only can neither go on nor go back.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar

import structlog

from tidemill.core.errors import KafkaStorageError
from tidemill.core.runtime.clock import Clock
from tidemill.core.runtime.disk import DISK_FULL, Directory

from .flusher import Flusher
from .folder_checkpoints import FolderCheckpoints
from .partition import Cut, PartitionLog
from .recovery import producers_at_end, rewrite_epochs, snapshot_offsets
from .removals import DelayedRemovals
from .segment_files import INDEX_SUFFIXES, SNAPSHOT_SUFFIX, name_gaps, segment_name
from .threads import LogThreads, run_all

log = structlog.get_logger("tidemill.broker.log")

_Result = TypeVar("_Result")

VIEWS_LOOKED_AT_EVERY_S = 0.02
VIEWS_LOOKED_AT_MAX = 250
"""Times: an answer that a client does not take for five seconds is not waited for, the one who asked tries again."""


class Truncations:
    """Cuts off ends of the logs of one folder."""

    def __init__(
        self,
        *,
        flusher: Flusher,
        threads: LogThreads,
        checkpoints: FolderCheckpoints,
        removals: DelayedRemovals,
        clock: Clock,
        on_failure: Callable[[OSError], None],
    ) -> None:
        self._flusher = flusher
        self._threads = threads
        self._checkpoints = checkpoints
        self._removals = removals
        self._clock = clock
        self._on_failure = on_failure
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def wait(self) -> None:
        """Return when none is at work."""
        await self._idle.wait()

    async def truncate(self, partition_log: PartitionLog, offset: int, *, unclean: bool = False) -> int:
        """Have nothing from `offset` on; returns the log end offset, which is less if a batch begins before `offset`.

        Raises OffsetOutOfRange for an offset beyond the end, before the first segment (such a log has to be begun
        anew), or, unless it is to be `unclean`, below what was committed; KafkaStorageError when it could not be done,
        and then everything is as it was, or the log takes nothing more.
        """
        end = partition_log.check_cut(offset, unclean=unclean)
        if offset == partition_log.log_end_offset:
            return offset
        if partition_log.cutting:
            raise KafkaStorageError(f"the end of {partition_log.topic_partition} is being cut off already")
        partition_log.cutting = True
        self._checkpoints.caps[partition_log.topic_partition] = end
        self._running += 1
        self._idle.clear()
        try:
            await self._prepare(partition_log, offset, end, unclean=unclean)
        except BaseException:
            self._over(partition_log)
            raise
        else:
            to_the_end = _ToTheEnd()
            try:
                end = await self._cut(partition_log, offset, to_the_end)  # if that fails nothing is appended any more
                self._over(partition_log)
                return end
            finally:
                to_the_end.give_up()
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    def _over(self, partition_log: PartitionLog) -> None:
        partition_log.cutting = False
        self._checkpoints.caps.pop(partition_log.topic_partition, None)

    async def _prepare(self, partition_log: PartitionLog, offset: int, end: int, *, unclean: bool) -> None:
        await self._lower(partition_log, offset, end)
        await self._views_gone(partition_log, offset)
        changed = partition_log.replacing or partition_log.has_gaps_from(offset)  # the cleaner has been there
        if partition_log.check_cut(offset, unclean=unclean) < end or changed:
            raise KafkaStorageError(f"{partition_log.topic_partition} has changed meanwhile")

    async def _lower(self, partition_log: PartitionLog, offset: int, end: int) -> None:
        steps = [partial(self._checkpoints.lower, partition_log.topic_partition, end)]
        gaps = partition_log.has_gaps_from(offset)
        if gaps:
            steps.insert(0, partial(name_gaps, partition_log.directory))
        try:
            await self._in_thread(self._threads.files, partial(run_all, steps))
        except OSError as error:
            if error.errno not in DISK_FULL and not partition_log.closed:  # else its folder may have gone
                self._on_failure(error)
            raise KafkaStorageError(f"cannot write the checkpoints: {error.strerror}") from error
        if gaps:
            partition_log.note_gaps()

    @staticmethod
    async def _views_gone(partition_log: PartitionLog, offset: int) -> None:
        for _ in range(VIEWS_LOOKED_AT_MAX):
            if partition_log.release_views(offset):
                return
            await asyncio.sleep(VIEWS_LOOKED_AT_EVERY_S)
        raise KafkaStorageError(f"records of {partition_log.topic_partition} that are to go are still being sent")

    async def _cut(self, partition_log: PartitionLog, offset: int, to_the_end: "_ToTheEnd") -> int:
        ended = partition_log.log_end_offset
        try:
            cut = partition_log.cut(offset)
            end = partition_log.log_end_offset
            log.info("log end cut off", partition=str(partition_log.topic_partition), log_end_offset=end, was=ended)
            # asked for in the same turn: no round of fsync that knows the new end comes before it
            work = partial(_cut_files, partition_log.directory, cut, end, partition_log.epochs.entries())
            await to_the_end.of(self._flusher.between_rounds(work))
            if partition_log.producers.reach(end):
                segments = tuple(partition_log.segments)
                find_out = partial(producers_at_end, partition_log.directory, segments, self._clock.now_ms())
                before = await to_the_end.of(self._in_thread(self._threads.reads, find_out))
                partition_log.producers.cut(end, before)
        except OSError as error:
            if partition_log.closed:  # with its topic, whose files are no longer there
                self._over(partition_log)
                raise KafkaStorageError(f"{partition_log.topic_partition} is closed") from error
            self._on_failure(error)
            raise KafkaStorageError(f"cannot cut {partition_log.topic_partition}: {error.strerror}") from error
        remove = partial(run_all, [segment.remove_deleted for segment in cut.gone])
        self._removals.later(partition_log.config.file_delete_delay_ms, remove)
        if not partition_log.closed:
            self._flusher.add(partition_log)
        return end

    @staticmethod
    def _in_thread(thread: Executor, call: Callable[[], _Result]) -> "asyncio.Future[_Result]":
        return asyncio.get_running_loop().run_in_executor(thread, call)


class _ToTheEnd:
    """Waits for what must not be left half done; a cancellation comes behind it."""

    def __init__(self) -> None:
        self._cancelled = False

    async def of(self, work: "asyncio.Future[_Result]") -> _Result:
        """What comes of `work`."""
        while not work.done():
            try:
                await asyncio.wait((work,))
            except asyncio.CancelledError:
                self._cancelled = True
        return work.result()

    def give_up(self) -> None:
        """Be cancelled now, if that was wanted."""
        if self._cancelled:
            raise asyncio.CancelledError


def _cut_files(directory: Directory, cut: Cut, end: int, epochs: list[tuple[int, int]]) -> None:
    """Step 3. Files that are to go are retired even where some of it was done before."""
    for segment in reversed(cut.gone):
        segment.mark_deleted()
    for offset in snapshot_offsets(directory.list()):
        if offset > end:
            directory.remove(segment_name(offset, SNAPSHOT_SUFFIX))
    for suffix in INDEX_SUFFIXES:
        directory.remove(segment_name(cut.active.base_offset, suffix))
    directory.sync()
    cut.whole.close()
    cut.active.file.truncate(cut.active.size_bytes)
    cut.active.file.sync()
    rewrite_epochs(directory, epochs)
