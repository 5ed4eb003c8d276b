"""Which log to compact next, how far, and in which pieces

Pure: facts about the logs and the time in, a choice out. The rules are Apache Kafka's. A log is cut in three by two
offsets:

    cleaned   [log start, first dirty)       compacted before
    dirty     [first dirty, uncleanable)     to be compacted now
    rest      [uncleanable, log end)         the active segment; what is not stable or not settled on the disk yet; from
                                             the first segment with a record younger than `min.compaction.lag.ms`

The dirtiest log with more than `min.cleanable.dirty.ratio` of dirty bytes comes first; one with a record older than
`max.compaction.lag.ms` is cleaned whatever its ratio. A log that could not be cleaned is left alone for a while that
doubles with every attempt, and then tried again: one bad batch must not stop a log from being cleaned for ever, nor
the others from being cleaned now.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tidemill.core.types import TopicPartition

from .config import LogConfig
from .index import OFFSET_ENTRY_BYTES

RETRY_MS = 15_000
"""Wait before the first repetition of a cleaning that failed: Kafka's `log.cleaner.backoff.ms`."""

RETRY_MS_MAX = 3_600_000
_BATCH_BYTES_MIN = 61
_OFFSET_RANGE_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentState:
    """One segment; the last of a log is its active one."""

    base_offset: int
    size_bytes: int
    oldest_ms: int = -1  # largest timestamp of its first batch; -1 when it has none or nobody needs it
    newest_ms: int = -1  # largest timestamp, or the time of the file; -1 when nobody needs it


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """One log, as the choice needs it."""

    topic_partition: TopicPartition
    config: LogConfig
    segments: tuple[SegmentState, ...]
    log_start_offset: int
    stable_offset: int  # what lies beyond may still be taken back, or be changed by the event loop or the flusher
    cleaned_offset: int | None  # the cleaner's checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """A log that is due, with the offsets that bound its dirty part."""

    topic_partition: TopicPartition
    first_dirty: int
    uncleanable: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool  # by max.compaction.lag.ms

    @property
    def dirty_ratio(self) -> float:
        """Dirty bytes as a share of all that can be cleaned."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningFailure:
    """Why a log is not being cleaned at the moment."""

    reason: str
    attempts: int
    since_ms: int
    retry_at_ms: int


def measure(log: LogState, now_ms: int) -> Cleanable:
    """Cut a log in its three parts."""
    active = log.segments[-1]
    first_dirty = log.cleaned_offset if log.cleaned_offset is not None else log.log_start_offset
    if not log.log_start_offset <= first_dirty <= active.base_offset:
        first_dirty = log.log_start_offset  # retention went past it, or the checkpoint is about another log
    uncleanable = min(active.base_offset, _segment_start(log, log.stable_offset))
    dirty = [segment for segment, following in pairwise(log.segments) if following.base_offset > first_dirty]
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        young = (segment.base_offset for segment in dirty if segment.newest_ms > now_ms - lag_ms)
        uncleanable = min(uncleanable, next(young, uncleanable))
    due_ms = now_ms - log.config.max_compaction_lag_ms
    return Cleanable(
        topic_partition=log.topic_partition,
        first_dirty=first_dirty,
        uncleanable=max(uncleanable, first_dirty),
        clean_bytes=sum(segment.size_bytes for segment in log.segments if segment.base_offset < first_dirty),
        dirty_bytes=sum(segment.size_bytes for segment in dirty if segment.base_offset < uncleanable),
        overdue=any(0 < segment.oldest_ms < due_ms for segment in dirty),
    )


def _segment_start(log: LogState, offset: int) -> int:
    """Base offset of the segment that `offset` lies in: a segment is cleaned as a whole or not at all."""
    bases = [segment.base_offset for segment in log.segments if segment.base_offset <= offset]
    return bases[-1] if bases else log.segments[0].base_offset


def groups(segments: Sequence[SegmentState], config: LogConfig) -> list[list[SegmentState]]:
    """Neighbours that become one segment each, so that compaction leaves no crowd of small files behind.

    No group is larger than `segment.bytes`, its index not larger than `segment.index.bytes`, and its offsets fit an
    index; the last segment given is only a mark of where the one before it ends.
    """
    result: list[list[SegmentState]] = []
    size_bytes = index_bytes = 0
    for segment, following in pairwise(segments):
        entries_bytes = OFFSET_ENTRY_BYTES * (
            segment.size_bytes // max(config.index_interval_bytes, _BATCH_BYTES_MIN) + 1
        )
        joins = (
            bool(result)
            and size_bytes + segment.size_bytes <= config.segment_bytes
            and index_bytes + entries_bytes <= config.segment_index_bytes
            and following.base_offset - 1 - result[-1][0].base_offset <= _OFFSET_RANGE_MAX
        )
        if joins:
            result[-1].append(segment)
            size_bytes += segment.size_bytes
            index_bytes += entries_bytes
        else:
            result.append([segment])
            size_bytes, index_bytes = segment.size_bytes, entries_bytes
    return result


class CleanerMachine:
    """Chooses logs, and remembers which could not be cleaned."""

    __slots__ = ("_failures", "failures_total")

    def __init__(self) -> None:
        self._failures: dict[TopicPartition, CleaningFailure] = {}
        self.failures_total = 0

    @property
    def failures(self) -> dict[TopicPartition, CleaningFailure]:
        """The logs that could not be cleaned the last time, and why."""
        return dict(self._failures)

    def rests(self, topic_partition: TopicPartition, now_ms: int) -> bool:
        """Whether a log failed so lately that it is not to be touched yet."""
        failure = self._failures.get(topic_partition)
        return failure is not None and now_ms < failure.retry_at_ms

    def choose(self, logs: Iterable[LogState], now_ms: int) -> Cleanable | None:
        """The log to clean next; None if none is due."""
        due = []
        for log in logs:
            if not log.config.compacted or self.rests(log.topic_partition, now_ms):
                continue
            found = measure(log, now_ms)
            dirty_enough = found.dirty_ratio > log.config.min_cleanable_dirty_ratio
            if found.dirty_bytes > 0 and (found.overdue or dirty_enough):
                due.append(found)
        return max(due, key=lambda found: found.dirty_ratio, default=None)

    def succeeded(self, topic_partition: TopicPartition) -> CleaningFailure | None:
        """A log was cleaned; the failure that this ends."""
        return self._failures.pop(topic_partition, None)

    def keep_only(self, logs: Container[TopicPartition]) -> None:
        """Forget the failures of all other logs: they are gone, or are not compacted any more."""
        self._failures = {key: failure for key, failure in self._failures.items() if key in logs}

    def try_again(self, now_ms: int) -> None:
        """Let every log that rests be due now: what it failed for may have been put right."""
        self._failures = {key: replace(failure, retry_at_ms=now_ms) for key, failure in self._failures.items()}

    def failed(self, topic_partition: TopicPartition, reason: str, now_ms: int) -> CleaningFailure:
        """A log could not be cleaned: leave it alone for a while."""
        before = self._failures.get(topic_partition)
        attempts = 1 if before is None else before.attempts + 1
        wait_ms = min(RETRY_MS << min(attempts - 1, 16), RETRY_MS_MAX)
        failure = CleaningFailure(
            reason=reason,
            attempts=attempts,
            since_ms=now_ms if before is None else before.since_ms,
            retry_at_ms=now_ms + wait_ms,
        )
        self._failures[topic_partition] = failure
        self.failures_total += 1
        return failure
