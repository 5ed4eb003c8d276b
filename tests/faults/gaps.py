"""How long nobody was told anything: gaps between acknowledgements, by kind of fault, and who is stuck

A gap belongs to a fault if it overlaps with it, or with the seconds after it in which the next one has not begun. Of
all partitions the longest counts: it is what some user has seen.

A partition is stuck that had no acknowledgement for longer than a limit in which nothing was broken and nodes enough
were up and had started: a majority of the controllers, and so many of any partition's replicas as acknowledge. A node
has started when it says that it is ready. Until then its absence is the fault's that took it away, and not longer than
`START_MAX_S`: who does not come up, or ends by itself again and again, is no excuse. Nor is one node alone that starts.
What was broken in between, and put back, is no excuse for what a partition was silent before and after: the times in
which it had no excuse add up.

A client is stuck alone that was told nothing of a partition for longer than its limit, counted in the same way, while
others were. Its limit is longer, for connections that were cut off take a client as long as it is set to wait.
"""

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.faults.history import Place

AFTERWARDS_S = 10.0
SILENCE_S = 1.0
START_MAX_S = 60.0
"""A node may take so long to start, on a machine that is busy with all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A fault as it was: from when to when."""

    kind: str
    nodes: tuple[int, ...]
    begin: float
    end: float


def longest(moments: Sequence[float], begin: float, end: float) -> float:
    """The longest time between two of these moments that touches what lies between `begin` and `end`."""
    first = max(bisect_right(moments, begin) - 1, 0)
    last = bisect_left(moments, end) + 1
    return max((after - before for before, after in pairwise(moments[first:last])), default=0.0)


def of_faults(acknowledged: Mapping[Place, Sequence[float]], faults: Sequence[Broken]) -> list[tuple[Broken, float]]:
    """Each fault with its gap; `acknowledged` are the moments, rising."""
    ordered = sorted(faults, key=lambda each: each.begin)
    starts = [each.begin for each in ordered]
    found = []
    for each in ordered:
        following = bisect_right(starts, each.end)
        until = min(each.end + AFTERWARDS_S, starts[following] if following < len(starts) else float("inf"))
        found.append((each, max((longest(all_of, each.begin, until) for all_of in acknowledged.values()), default=0.0)))
    return found


def by_kind(found: Sequence[tuple[Broken, float]]) -> dict[str, dict[str, Any]]:
    """How many, median and maximum."""
    gaps: dict[str, list[float]] = {}
    for each, gap in found:
        gaps.setdefault(each.kind, []).append(gap)
    return {
        kind: {"faults": len(each), "median_s": round(statistics.median(each), 3), "max_s": round(max(each), 3)}
        for kind, each in sorted(gaps.items())
    }


def well(faults: Sequence[Broken], begin: float, end: float) -> list[tuple[float, float]]:
    """The times between `begin` and `end` in which nothing was broken."""
    found = []
    at = begin
    for each in sorted(faults, key=lambda each: each.begin):
        if each.begin > at:
            found.append((at, min(each.begin, end)))
        at = max(at, each.end)
    found.append((at, end))
    return [(first, last) for first, last in found if last > first]


def starting(starts: Sequence[Broken], spare: int) -> list[Broken]:
    """The times in which more nodes were starting than can be spared."""
    moments = sorted([(each.begin, 1) for each in starts] + [(each.end, -1) for each in starts])
    found: list[Broken] = []
    count, begin = 0, 0.0
    for at, change in moments:
        if count <= spare < count + change:
            begin = at
        elif count + change <= spare < count:
            found.append(Broken(kind="start", nodes=(), begin=begin, end=at))
        count += change
    return found


def alone(
    told: Mapping[Place, Sequence[float]],
    others: Mapping[Place, Sequence[float]],
    faults: Sequence[Broken],
    begin: float,
    end: float,
    limit_s: float,
) -> list[str]:
    """Of which partitions a client was told nothing for too long, and from when on, while others were."""
    return [
        f"{place}: nothing for {after - before:.1f} s from {before - begin:.1f} s on, and nothing was broken for "
        f"{well_s:.1f} s of them"
        for place, before, after, well_s in silences(told, faults, begin, end)
        if well_s > limit_s and bisect_left(others[place], after) > bisect_right(others[place], before)
    ]


def stuck(
    acknowledged: Mapping[Place, Sequence[float]], faults: Sequence[Broken], begin: float, end: float, limit_s: float
) -> list[str]:
    """The partitions that were, and from when on, counted from `begin`."""
    return [
        f"{place}: {after - before:.1f} s without an acknowledgement from {before - begin:.1f} s on, and nothing was "
        f"broken for {well_s:.1f} s of them"
        for place, before, after, well_s in silences(acknowledged, faults, begin, end)
        if well_s > limit_s
    ]


def quiet_s(told: Mapping[Place, Sequence[float]], faults: Sequence[Broken], begin: float, end: float) -> float:
    """The longest that nothing was told about some partition while nothing was broken, as `stuck` counts it."""
    return max((well_s for _, _, _, well_s in silences(told, faults, begin, end)), default=0.0)


def silences(
    told: Mapping[Place, Sequence[float]], faults: Sequence[Broken], begin: float, end: float
) -> Iterator[tuple[Place, float, float, float]]:
    """Those of a second and more: from when to when, and for how much of it nothing was broken."""
    times = well(faults, begin, end)
    for place, moments in told.items():
        inside = moments[bisect_left(moments, begin) : bisect_right(moments, end)]
        for before, after in pairwise([begin, *inside, end]):
            if after - before >= SILENCE_S:
                yield place, before, after, overlap_s(times, before, after)


def overlap_s(times: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    """How much of these lies between `begin` and `end`."""
    return sum(max(min(last, end) - max(first, begin), 0.0) for first, last in times)
