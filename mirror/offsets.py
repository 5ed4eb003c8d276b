"""The exact offset map of one mirrored partition, both ways

A mirror copies records in order, so target offset and source offset advance together except where the source has an
offset that carries no record to copy: a transaction marker, aborted data, a hole left by compaction. Between two such
places lies a run. A run is stored as the pair (source offset, target offset) of its first record; its length is implied
by the start of the next run, and for the last one by the end of the target log. A topic without holes has one run.

Rules. Both columns increase strictly. A source offset inside a hole translates to the next surviving record. A run is
stored before the first record after its hole is produced, therefore the target log end and the map together always
tell where to go on, and no position has to be committed anywhere. Runs may reach beyond the log end: they were
written ahead, and if the source turns out otherwise by then (compaction), the run that is true replaces them.

Runs are grouped into numbered segments of fixed size, because the map is persisted one segment per record in a
compacted topic (`tidemill.mirror.map_records`): storing a run rewrites only the segment it is in. They are joined again
by `tidemill.mirror.map_join`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

RUNS_PER_SEGMENT = 128  # about 1 KiB as stored; one run per transaction rewrites 0.5 KiB on average


class Run(NamedTuple):
    """First record of a stretch in which source and target offsets advance together."""

    source: int
    target: int


class OffsetMap:
    """Runs in order; `first_segment` grows as the oldest segments are dropped."""

    __slots__ = ("_first_segment", "_segment_runs", "_sources", "_targets")

    def __init__(self, runs: Iterable[Run] = (), first_segment: int = 0, segment_runs: int = RUNS_PER_SEGMENT) -> None:
        self._sources: list[int] = []
        self._targets: list[int] = []
        self._first_segment = first_segment
        self._segment_runs = segment_runs
        for run in runs:
            self.append(run)

    def __len__(self) -> int:
        return len(self._sources)

    @property
    def first_target(self) -> int | None:
        """Below this target offset the map says nothing."""
        return self._targets[0] if self._targets else None

    def runs(self) -> tuple[Run, ...]:
        """All runs, oldest first."""
        return tuple(map(Run, self._sources, self._targets))

    def append(self, run: Run) -> int:
        """Add a run, first dropping those that begin at or behind it; returns the number of the segment to store."""
        keep = bisect_left(self._targets, run.target)
        del self._sources[keep:], self._targets[keep:]
        if self._sources and (fault := fault_between(Run(self._sources[-1], self._targets[-1]), run)):
            raise ValueError(fault)
        self._sources.append(run.source)
        self._targets.append(run.target)
        return self._first_segment + (len(self._sources) - 1) // self._segment_runs

    def drop_behind(self, target: int) -> int:
        """Drop the runs that begin behind `target`; returns the number of the segment to store."""
        keep = bisect_right(self._targets, target)
        del self._sources[keep:], self._targets[keep:]
        return self._first_segment + (keep - 1) // self._segment_runs

    def extend(self, runs: Sequence[Run]) -> None:
        """Add runs that are known to follow one another and all there are."""
        self._sources.extend(run.source for run in runs)
        self._targets.extend(run.target for run in runs)

    def collect(self, target_start: int) -> tuple[int, ...]:
        """Forget whole segments that lie below the target's log start; returns their numbers, to be deleted."""
        needed = max(0, bisect_right(self._targets, target_start) - 1)
        count = needed // self._segment_runs
        del self._sources[: count * self._segment_runs], self._targets[: count * self._segment_runs]
        gone = tuple(range(self._first_segment, self._first_segment + count))
        self._first_segment += count
        return gone

    def segment(self, number: int) -> tuple[Run, ...]:
        """Runs of one segment; empty when there is none."""
        low = (number - self._first_segment) * self._segment_runs
        if low < 0:
            return ()
        high = low + self._segment_runs
        return tuple(map(Run, self._sources[low:high], self._targets[low:high]))

    def segment_numbers(self) -> range:
        """Numbers of the segments in use."""
        count = -(-len(self._sources) // self._segment_runs)
        return range(self._first_segment, self._first_segment + count)

    def source_for(self, target: int) -> int | None:
        """Source offset of the record at `target`; for the log end, where to go on. None before the first run."""
        index = bisect_right(self._targets, target) - 1
        return None if index < 0 else self._sources[index] + target - self._targets[index]

    def target_for(self, source: int, target_end: int) -> int | None:
        """Target offset of the first surviving record at or after `source`, at most `target_end`; None on an empty map.

        An offset before the first run translates to the start of the map.
        """
        known = bisect_left(self._targets, target_end)  # runs that begin before the log end
        index = bisect_right(self._sources, source, 0, known) - 1
        if index < 0:
            return min(self._targets[0], target_end) if self._targets else None
        limit = self._targets[index + 1] if index + 1 < known else target_end
        return min(self._targets[index] + source - self._sources[index], limit)


def fault_between(before: Run, run: Run) -> str:
    """Why one run cannot follow the other, empty if it can."""
    if run.target <= before.target or run.source - before.source < run.target - before.target:
        return f"{run} overlaps the run before it, {before.source} -> {before.target}"
    return ""
