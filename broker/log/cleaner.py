"""The cleaner at work: one log after the other, in a thread of its own

`cleanable` chooses, `compaction` writes new segments, `LogStore.replace_segments` puts them in place; this is what
joins them. The event loop is asked for facts and for the exchange of segments, everything that reads, computes or
writes happens in the cleaner's thread, which works on its own file descriptors and gives way after every few batches.

Only segments that lie below the *checkpointed* recovery point are cleaned. A start after a crash then knows where gaps
between offsets are to be expected, and that a segment which ends early was not torn.

A log that cannot be cleaned (a corrupt batch, a full disk) is logged, is written down where `tidemill doctor` finds it
(`cleaner_report`) and is tried again, later and later; the others go on.
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import structlog

from tidemill.core.errors import KafkaError
from tidemill.core.records.batch import HEADER_BYTES, plausible_size, read_header
from tidemill.core.runtime.clock import Clock
from tidemill.core.runtime.threads import OS_THREADS
from tidemill.core.types import TopicPartition

from . import swap
from .cleanable import Cleanable, CleanerMachine, CleaningFailure, LogState, SegmentState, groups
from .cleaner_report import write_failures
from .compaction import CleaningFailed, Rules, SourceSegment, compact, fill, last_of_producers
from .config import LONG_MAX
from .offset_map import OffsetMap
from .pacer import Pacer
from .partition import PartitionLog
from .segment import Segment
from .segment_age import age_in_memory, age_on_disk
from .segment_files import segment_name
from .store import LogStore
from .turns import Turns

log = structlog.get_logger("tidemill.broker.log")

LOOK_PAUSE_MS_MIN = 10
"""Least pause between two looks at all logs: with a backoff of 0 the event loop would do nothing else."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerSettings:
    """The `log.cleaner.*` settings of a broker."""

    dedupe_buffer_bytes: int = 128 * 2**20
    load_factor: float = 0.9
    io_bytes_per_second_max: float = sys.float_info.max
    backoff_ms: int = 15_000


class LogCleaner:
    """Compacts the logs of a folder; `close` it before the folder."""

    def __init__(
        self, store: LogStore, clock: Clock, settings: CleanerSettings, *, thread: Executor | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._machine = CleanerMachine()
        self._pace = Pacer(settings.io_bytes_per_second_max, clock.monotonic)
        self._changed = asyncio.Event()
        self._reported: Mapping[TopicPartition, CleaningFailure] | None = None  # as the folder has it
        self._thread = thread or OS_THREADS.pool("cleaner")

    @property
    def settings(self) -> CleanerSettings:
        """What holds now. A new rate or backoff holds at once, a new size of the map from the next round on.

        Logs that failed are tried again at once: a map that was too small is what an operator can put right here.
        """
        return self._settings

    @settings.setter
    def settings(self, settings: CleanerSettings) -> None:
        if settings != self._settings:
            self._settings = settings
            self._pace.set_rate(settings.io_bytes_per_second_max)
            self._machine.try_again(self._clock.now_ms())
            self._changed.set()

    @property
    def failures(self) -> dict[TopicPartition, CleaningFailure]:
        """The logs that could not be cleaned the last time, and why."""
        return self._machine.failures

    async def run(self) -> None:
        """Clean whatever is due, look again after `log.cleaner.backoff.ms`, until cancelled."""
        try:
            while True:
                self._changed.clear()  # before the look, so that a change in the middle of it is seen after it
                while await self.clean_dirtiest():
                    pass
                pause_s = max(self._settings.backoff_ms, LOOK_PAUSE_MS_MIN) / 1000
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._changed.wait()
        finally:
            self.close()

    def close(self) -> None:
        """Stop the thread; what it has not finished is removed by the next start."""
        self._pace.stop()
        self._thread.shutdown()

    async def clean_dirtiest(self) -> bool:
        """Clean the log that needs it most; False if none is due."""
        if self._store.failure is not None:
            return False
        turns, logs = Turns(self._clock.monotonic), dict[TopicPartition, PartitionLog]()
        for each in self._store:
            await turns.give_way()
            if each.config.compacted and not each.closed:
                logs[each.topic_partition] = each
        self._machine.keep_only(logs)
        states = await self._states(logs.values(), turns)
        chosen = await self._in_thread(partial(self._machine.choose, states, self._clock.now_ms()))
        if chosen is not None:
            await self._try(logs[chosen.topic_partition], chosen)
        if self._machine.failures != self._reported:
            await self._write_report()
        return chosen is not None

    async def _states(self, logs: Iterable[PartitionLog], turns: Turns) -> list[LogState]:
        """The logs that may be tried; one that cannot even be looked at has failed."""
        now_ms, states = self._clock.now_ms(), list[LogState]()
        for each in logs:
            await turns.give_way()
            if self._machine.rests(each.topic_partition, now_ms) or each.closed:
                continue
            try:
                states.append(await self._state(each, turns))
            except Exception as error:
                if not each.closed:
                    self._failed(each.topic_partition, error)
        return states

    async def _state(self, partition_log: PartitionLog, turns: Turns) -> LogState:
        """A log as it is now: what changes while its segments are gone over only makes less of it cleanable."""
        store, key, config = self._store, partition_log.topic_partition, partition_log.config
        log_start_offset, cleaned_offset = partition_log.log_start_offset, store.cleaned_offset(key)
        stable_offset = min(
            partition_log.committed_offset, partition_log.settled_offset, store.checkpointed_offset(key)
        )
        first_dirty, states = cleaned_offset or 0, list[SegmentState]()
        needs_times = config.min_compaction_lag_ms > 0 or config.max_compaction_lag_ms < LONG_MAX
        segments = tuple(partition_log.segments)
        for segment in segments:
            await turns.give_way()
            oldest_ms = newest_ms = -1
            if needs_times and segment.next_offset > first_dirty and segment is not segments[-1]:
                oldest_ms, newest_ms = await self._in_thread(_times_of(segment))
            states.append(
                SegmentState(
                    base_offset=segment.base_offset,
                    size_bytes=segment.size_bytes,
                    oldest_ms=oldest_ms,
                    newest_ms=newest_ms,
                )
            )
        return LogState(
            topic_partition=key,
            config=config,
            segments=tuple(states),
            log_start_offset=log_start_offset,
            stable_offset=stable_offset,
            cleaned_offset=cleaned_offset,
        )

    async def _try(self, partition_log: PartitionLog, chosen: Cleanable) -> None:
        key = chosen.topic_partition
        old = [segment for segment in partition_log.segments if segment.base_offset < chosen.uncleanable]
        if partition_log.closed or not old:
            return  # while the choice was made it was deleted, or retention took what was to be cleaned
        try:
            await self._clean(partition_log, chosen, old)
        except Exception as error:
            if partition_log.closed or partition_log.segments[0].base_offset > old[0].base_offset:
                self._machine.succeeded(key)  # its files were removed, by retention or with their topic
            else:
                self._failed(key, error)
        else:
            over = self._machine.succeeded(key)
            if over is not None:
                log.info("a log can be compacted again", partition=str(key), failed_attempts=over.attempts)

    def _failed(self, key: TopicPartition, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        failure = self._machine.failed(key, reason, self._clock.now_ms())
        expected = isinstance(error, CleaningFailed | OSError | KafkaError)
        log.error(
            "a log cannot be compacted; it will be tried again",
            partition=str(key),
            reason=reason,
            attempts=failure.attempts,
            retry_at_ms=failure.retry_at_ms,
            logs_failing=len(self._machine.failures),
            failures_total=self._machine.failures_total,
            exc_info=None if expected else error,
        )

    async def _write_report(self) -> None:
        failures, total = self._machine.failures, self._machine.failures_total
        try:
            await self._in_thread(partial(write_failures, self._store.directory, failures, total))
        except OSError as error:  # the next look tries again; the broker's log has told of every failure
            log.warning("the list of logs that cannot be compacted is not written", reason=str(error))
        else:
            self._reported = failures

    async def _clean(self, partition_log: PartitionLog, chosen: Cleanable, old: list[Segment]) -> None:
        store, config, begun = self._store, partition_log.config, self._clock.monotonic()
        cuts = partition_log.cuts
        if store.cleaned_offset(chosen.topic_partition) is None:
            # From here on a start expects gaps; it must know before there are any.
            await store.set_cleaned_offset(partition_log, chosen.first_dirty)
        ends = [*(segment.base_offset for segment in old[1:]), chosen.uncleanable]
        dirty = [_source(segment) for segment, end in zip(old, ends, strict=True) if end > chosen.first_dirty]
        settings = self._settings
        offset_map = OffsetMap(
            settings.dedupe_buffer_bytes,
            keys_expected=chosen.uncleanable - chosen.first_dirty,
            load_factor=settings.load_factor,
        )
        span = (chosen.first_dirty, chosen.uncleanable)
        covered = await self._in_thread(partial(fill, partition_log.directory, dirty, span, offset_map, self._pace))
        everything = [_source(segment) for segment in old]
        last = await self._in_thread(partial(last_of_producers, partition_log.directory, everything))
        known = {state.producer_id for state in partition_log.producers}
        rules = Rules(
            now_ms=self._clock.now_ms(),
            delete_retention_ms=config.delete_retention_ms,
            covered_offset=covered,
            producers={producer_id: offset for producer_id, offset in last.items() if producer_id in known},
        )
        states = [SegmentState(base_offset=each.base_offset, size_bytes=each.size_bytes) for each in old]
        states.append(SegmentState(base_offset=chosen.uncleanable, size_bytes=0))
        by_base = {segment.base_offset: segment for segment in old}
        after_bytes = 0
        for group in groups(states, config):
            if group[0].base_offset >= covered:
                break
            members = [by_base[state.base_offset] for state in group]
            cleaned = await self._compact(partition_log, members, offset_map, rules)
            if cleaned is None:
                return  # retention or a deletion came first: begin anew with what is left
            after_bytes += cleaned.size_bytes
        if partition_log.cuts != cuts:
            return  # its end is not there any more, and what comes there is not compacted
        await store.set_cleaned_offset(partition_log, covered)
        log.info(
            "log compacted",
            partition=str(chosen.topic_partition),
            offsets=f"{chosen.first_dirty}-{covered}",
            keys=len(offset_map),
            bytes_before=sum(state.size_bytes for state in states),
            bytes_after=after_bytes,
            map_bytes=offset_map.size_bytes,
            seconds=round(self._clock.monotonic() - begun, 3),
        )

    async def _compact(
        self, partition_log: PartitionLog, members: list[Segment], offset_map: OffsetMap, rules: Rules
    ) -> Segment | None:
        """The segment that has taken the place of `members`; None if they were gone."""
        directory, interval = partition_log.directory, partition_log.config.index_interval_bytes
        sources = [_source(segment) for segment in members]
        cleaned = await self._in_thread(partial(compact, directory, sources, offset_map, rules, interval, self._pace))
        cleaned.next_offset = members[-1].next_offset
        if await self._store.replace_segments(partition_log, members, cleaned):
            return cleaned
        with contextlib.suppress(OSError):  # the folder may have gone with its topic
            await self._in_thread(partial(swap.discard, directory, cleaned.base_offset))
        return None

    async def _in_thread(self, call: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)


def _source(segment: Segment) -> SourceSegment:
    return SourceSegment(base_offset=segment.base_offset, size_bytes=segment.size_bytes, dense=segment.dense)


def _times_of(segment: Segment) -> Callable[[], tuple[int, int]]:
    """What reads the oldest and the newest time of a segment, on files of its own; raises OSError if they have gone."""
    directory, base_offset = segment.directory, segment.base_offset
    known, find_newest = age_in_memory(segment), age_on_disk(segment, lambda _newest_ms: False)

    def read() -> tuple[int, int]:
        file = directory.open(segment_name(base_offset))
        try:
            data = file.read_at(0, HEADER_BYTES)
        finally:
            file.close()
        newest_ms = (known or find_newest().age).newest_ms
        if len(data) < HEADER_BYTES:
            return -1, newest_ms
        header = read_header(data)
        return (header.max_timestamp if plausible_size(header) else -1), newest_ms

    return read
