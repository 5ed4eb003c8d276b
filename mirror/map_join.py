"""Stored segments joined into one map, some at a time

A map of transactions has millions of runs, and joining them takes seconds: whoever joins takes a number of segments per
turn and lets others have theirs. Of the segments only the last may be short; what follows a short one is left over from
before. Behind a missing one the map begins anew: what the log's end means is told by the newest segments.

Two neighbours that cannot both be true are left out both, since nothing here tells which of them is wrong, and so is a
segment that cannot be read. What follows is a map that nothing contradicts; whether it is enough, the logs tell.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidemill.mirror.offsets import RUNS_PER_SEGMENT, OffsetMap, Run, fault_between

SEGMENTS_PER_TURN = 100  # a few milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What is wrong with stored segments: the first thing, and the number of the oldest one."""

    what: str
    first_segment: int


class MapJoin:
    """The joining of one partition's segments; a segment without runs is one that cannot be read."""

    def __init__(self, segments: Mapping[int, tuple[Run, ...]], segment_runs: int = RUNS_PER_SEGMENT) -> None:
        self.damage: Damage | None = None
        self._segments = sorted(segments.items())
        self._segment_runs = segment_runs
        self._taken = 0
        self._last: Run | None = None  # of the segment before
        self.offsets = OffsetMap(first_segment=min(segments, default=0), segment_runs=segment_runs)
        self._expected = min(segments, default=0)

    @property
    def last_segment(self) -> int:
        """The segment that ends the map; -1 when there is none, or one was damaged."""
        numbers = self.offsets.segment_numbers()
        return numbers.stop - 1 if numbers and self.damage is None else -1

    def take(self, count: int = SEGMENTS_PER_TURN) -> bool:
        """Join that many more; True when all are."""
        until = min(len(self._segments), self._taken + count)
        while self._taken < until:
            number, runs = self._segments[self._taken]
            self._taken += 1
            self._add(number, runs)
            if 0 < len(runs) < self._segment_runs:
                self._taken = len(self._segments)
        return self._taken == len(self._segments)

    def turns(self) -> Iterator[None]:
        """Join everything, with a pause for others between two turns."""
        while not self.take():
            yield

    def _add(self, number: int, runs: tuple[Run, ...]) -> None:
        if number != self._expected:
            self._begin_at(number)
            self._last = None
        self._expected = number + 1
        damage = _damage(number, self._last, runs)
        self._last = runs[-1] if runs else None
        if not damage:
            self.offsets.extend(runs)
            return
        if self.damage is None:
            self.damage = Damage(what=damage, first_segment=self._segments[0][0])
        self._begin_at(number + 1)

    def _begin_at(self, number: int) -> None:
        self.offsets = OffsetMap(first_segment=number, segment_runs=self._segment_runs)


def join_segments(segments: Mapping[int, tuple[Run, ...]], segment_runs: int = RUNS_PER_SEGMENT) -> OffsetMap:
    """Join all at once; raises ValueError where they contradict one another."""
    join = MapJoin(segments, segment_runs)
    join.take(len(segments))
    if join.damage is not None:
        raise ValueError(join.damage.what)
    return join.offsets


def _damage(number: int, before: Run | None, runs: tuple[Run, ...]) -> str:
    if not runs:
        return f"segment {number} cannot be read"
    for run in runs:
        if before is not None and (fault := fault_between(before, run)):
            return f"segment {number}: {fault}"
        before = run
    return ""
