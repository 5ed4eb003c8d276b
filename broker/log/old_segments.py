"""Retention at work: old segments are taken out of their logs

`retention` decides; this finds out what it has to know and does what it says, in short turns and off the event loop:

1. Judge which of the oldest segments of a log are to go. Ages come from the disk, a few ahead at a time.
2. When enough have come together, from one log or from many, look again whether they are still there, then take them
   out of their logs and let the logs begin behind them.
3. Write down where the logs begin, once for all of them.
4. Only then rename their files, oldest first: to recovery a gap between segments is a torn log. They are removed later.

Wherever a crash falls, the log begins where it was written down, and nothing is missing behind that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TypeVar

import structlog

from tidemill.core.errors import KafkaStorageError
from tidemill.core.runtime.clock import Clock

from .config import LogConfig
from .flusher import Flusher
from .open_logs import OpenLogs
from .partition import PartitionLog
from .removals import DelayedRemovals
from .retention import Fate, active_may_be_due, age_needs_proof, fate, too_old
from .segment import Segment
from .segment_age import FoundAge, age_in_memory, age_on_disk, take_over_age
from .segment_files import segment_name
from .threads import LogThreads, parts_of, run_all
from .turns import Turns

log = structlog.get_logger("tidemill.broker.log")

_Result = TypeVar("_Result")

SEGMENTS_AT_ONCE = 256
"""Segments that go with one checkpoint: it is a file of all partitions, and an fsync."""

RENAMES_AT_ONCE = 8
"""Segments whose files are renamed between two rounds of fsync: about a millisecond, as producers wait behind it."""

AGES_AT_ONCE_MAX = 64
"""Ages that are read ahead of what is judged; fewer at first, because mostly the first segment stays."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The oldest segments of a log, which are to go, and the settings by which they were judged."""

    partition_log: PartitionLog
    config: LogConfig
    segments: list[Segment]


class OldSegments:
    """Retention at work on the logs of one folder."""

    def __init__(
        self,
        logs: OpenLogs,
        *,
        flusher: Flusher,
        threads: LogThreads,
        removals: DelayedRemovals,
        clock: Clock,
        checkpoint: Callable[[], Awaitable[None]],
        folder_failed: Callable[[], bool],
    ) -> None:
        self._logs = logs
        self._flusher = flusher
        self._threads = threads
        self._removals = removals
        self._clock = clock
        self._checkpoint = checkpoint
        self._folder_failed = folder_failed
        self._removing = asyncio.Lock()

    async def enforce(self, now_ms: int, producer_id_expiration_ms: int) -> int:
        """Remove from all logs what is not kept any more; returns the number of segments.

        A log whose files give trouble keeps no other from getting smaller.
        """
        removed, pending = 0, list[Judged]()
        turns = Turns(self._clock.monotonic)
        for partition_log in self._logs:
            await turns.give_way()
            if partition_log.closed or self._folder_failed():
                continue
            partition_log.producers.expire(now_ms, producer_id_expiration_ms)
            try:
                if await self._active_is_due(partition_log, now_ms):
                    await self._roll(partition_log)
                while judged := await self._judge(partition_log, now_ms, turns):
                    pending.append(judged)
                    if len(judged.segments) < SEGMENTS_AT_ONCE or (gone := await self._remove(pending, turns)) == 0:
                        break
                    removed, pending = removed + gone, []
            except OSError as error:
                self._troubled(partition_log, error)
            if sum(len(judged.segments) for judged in pending) >= SEGMENTS_AT_ONCE:
                removed, pending = removed + await self._remove(pending, turns), []
        return removed + await self._remove(pending, turns)

    async def shrink(self, partition_log: PartitionLog, now_ms: int) -> None:
        """Remove from one log what is not kept any more; raises OSError."""
        turns = Turns(self._clock.monotonic)
        while judged := await self._judge(partition_log, now_ms, turns):
            if await self._remove([judged], turns) == 0 or len(judged.segments) < SEGMENTS_AT_ONCE:
                return

    # -- judging

    async def _active_is_due(self, partition_log: PartitionLog, now_ms: int) -> bool:
        active, config = partition_log.active, partition_log.config
        if not active_may_be_due(active.size_bytes, config):
            return False
        age = age_in_memory(active)
        if age is not None:
            return too_old(age.newest_ms, config, now_ms)
        name = segment_name(active.base_offset)
        modified_ms = await self._read(partial(active.directory.modified_ms, name))
        return partition_log.active is active and not partition_log.closed and too_old(modified_ms, config, now_ms)

    async def _roll(self, partition_log: PartitionLog) -> None:
        try:
            partition_log.roll()
            await asyncio.shield(self._flusher.next_round())
        except (OSError, KafkaStorageError) as error:
            log.warning("cannot roll", partition=str(partition_log.topic_partition), error=str(error))

    async def _judge(self, partition_log: PartitionLog, now_ms: int, turns: Turns) -> Judged | None:
        """The oldest segments that are to go, some of them if there are many; None if all stay."""
        config = partition_log.config
        surplus_bytes = partition_log.size_bytes - config.retention_bytes
        durable_offset = min(partition_log.recovery_point, partition_log.committed_offset)
        oldest = list(pairwise(partition_log.segments[: SEGMENTS_AT_ONCE + 1]))
        # Of what is not durable yet the index files may say less than the log has, and so a wrong age.
        segments = [segment for segment, following in oldest if following.base_offset <= durable_offset]
        ages = _Ages(self._read, segments, config, now_ms)
        going = 0
        for segment, following in oldest:
            await turns.give_way()
            surplus_bytes -= segment.size_bytes
            decided = fate(
                following.base_offset,
                surplus_bytes,
                config,
                log_start_offset=partition_log.log_start_offset,
                durable_offset=durable_offset,
            )
            if decided is Fate.STAYS or (decided is Fate.DEPENDS_ON_AGE and not await ages.too_old(going)):
                break
            going += 1
        return Judged(partition_log, config, segments[:going]) if going else None

    async def _read(self, call: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads.reads, call)

    # -- removing

    async def _remove(self, pending: Sequence[Judged], turns: Turns) -> int:
        """Take out what was judged, if it still is as it was; returns the number of segments."""
        async with self._removing:
            gone: list[tuple[PartitionLog, list[Segment]]] = []
            for judged in pending:
                await turns.give_way()
                segments = self._take_out(judged)
                if segments:
                    gone.append((judged.partition_log, segments))
            if gone:
                await self._checkpoint()  # before any file goes: a log must never seem to begin where nothing is left
            for partition_log, segments in gone:
                try:
                    await self._remove_files(partition_log, segments)
                except OSError as error:
                    self._troubled(partition_log, error)
            return sum(len(segments) for _, segments in gone)

    def _take_out(self, judged: Judged) -> list[Segment]:
        """In one turn: nothing may change between the second look and the log's new beginning."""
        partition_log, segments = judged.partition_log, judged.segments
        if partition_log.closed or partition_log.replacing or partition_log.cutting or self._folder_failed():
            return []  # the next time will do; and a folder that failed keeps its files, in whatever order they are
        if partition_log.config is not judged.config or partition_log.segments[: len(segments)] != segments:
            return []
        start = partition_log.segments[len(segments)].base_offset
        log.info(
            "old segments removed",
            partition=str(partition_log.topic_partition),
            segments=len(segments),
            log_start_offset=start,
        )
        partition_log.advance_log_start(start)
        return partition_log.detach_segments(len(segments))

    async def _remove_files(self, partition_log: PartitionLog, segments: Sequence[Segment]) -> None:
        for part in parts_of(segments, RENAMES_AT_ONCE):
            # the folder goes as a whole, and another may have its name by now; or the log start is not written down
            if partition_log.closed or self._folder_failed():
                await self._flusher.between_rounds(partial(run_all, [segment.close for segment in part]))
                continue
            try:
                await self._flusher.between_rounds(partial(run_all, [segment.mark_deleted for segment in part]))
            finally:
                remove = partial(run_all, [segment.remove_deleted for segment in part])
                self._removals.later(partition_log.config.file_delete_delay_ms, remove)

    @staticmethod
    def _troubled(partition_log: PartitionLog, error: OSError) -> None:
        log.error("retention failed", partition=str(partition_log.topic_partition), error=str(error))


class _Ages:
    """The ages of some segments of a log, oldest first, read in another thread where they are not known."""

    def __init__(
        self,
        read: Callable[[Callable[[], list[FoundAge]]], Awaitable[list[FoundAge]]],
        segments: Sequence[Segment],
        config: LogConfig,
        now_ms: int,
    ) -> None:
        self._read = read
        self._segments = segments
        self._too_old = partial(too_old, config=config, now_ms=now_ms)
        self._needs_proof = partial(age_needs_proof, config=config, now_ms=now_ms)
        self._ahead = 1

    async def too_old(self, number: int) -> bool:
        """Whether a segment is surely too old."""
        if not self._is_known(self._segments[number]):
            await self._find_out(number)
        age = age_in_memory(self._segments[number])
        return age is not None and self._is_known(self._segments[number]) and self._too_old(age.newest_ms)

    def _is_known(self, segment: Segment) -> bool:
        age = age_in_memory(segment)
        return age is not None and (age.proven or not self._needs_proof(age.newest_ms))

    async def _find_out(self, number: int) -> None:
        ahead = [each for each in self._segments[number : number + self._ahead] if not self._is_known(each)]
        self._ahead = min(2 * self._ahead, AGES_AT_ONCE_MAX)
        found = await self._read(partial(_read_ages, [age_on_disk(each, self._needs_proof) for each in ahead]))
        for segment, age in zip(ahead, found, strict=False):
            take_over_age(segment, age)


def _read_ages(reads: Sequence[Callable[[], FoundAge]]) -> list[FoundAge]:
    """As many as can be read; files may have gone meanwhile, with their topic or by compaction."""
    found: list[FoundAge] = []
    for read in reads:
        try:
            found.append(read())
        except FileNotFoundError:
            break
        except OSError:
            if not found:
                raise
            break
    return found
