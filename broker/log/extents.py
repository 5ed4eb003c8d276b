"""A set of byte positions kept as few ranges

Remembers which parts of a file have been checked. Reading goes mostly forward, so the ranges grow together and the list
stays short.
"""

from bisect import bisect_left, bisect_right


class Extents:
    """Half-open ranges `[start, end)`, disjoint and in order."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def covers(self, start: int, end: int) -> bool:
        """Whether every position of `[start, end)` is in the set."""
        found = bisect_right(self._starts, start) - 1
        return end <= start or (found >= 0 and end <= self._ends[found])

    def add(self, start: int, end: int) -> None:
        """Put `[start, end)` into the set."""
        if end <= start:
            return
        if self._ends and start == self._ends[-1]:  # the common case: an append
            self._ends[-1] = end
            return
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def remove(self, start: int, end: int) -> None:
        """Take `[start, end)` out of the set."""
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        if end <= start or first >= last:
            return
        low, high = self._starts[first], self._ends[last - 1]
        kept = [piece for piece in ((low, start), (end, high)) if piece[0] < piece[1]]
        self._starts[first:last] = [piece[0] for piece in kept]
        self._ends[first:last] = [piece[1] for piece in kept]

    def ranges(self) -> list[tuple[int, int]]:
        """The ranges, in order."""
        return list(zip(self._starts, self._ends, strict=True))
