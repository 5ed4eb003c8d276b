"""Named deadlines for a machine that may not know timers

Setting a deadline again moves it, which is what a heartbeat does, so moving later must be cheap: the heap keeps the
old entry, and only when that one comes up is the new time looked at. The machine asks for what is due on every tick;
the shell asks when the next tick has to come.
"""

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class Deadlines(Generic[KeyT]):
    """At most one deadline per key."""

    __slots__ = ("_at", "_heap", "_queued", "_sequence")

    def __init__(self) -> None:
        self._at: dict[KeyT, int] = {}
        self._heap: list[tuple[int, int, KeyT]] = []
        self._queued: dict[KeyT, int] = {}  # the earliest heap entry of each key
        self._sequence = 0

    def __contains__(self, key: object) -> bool:
        return key in self._at

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: KeyT, at_ms: int) -> None:
        """Let `key` be due at `at_ms`, whatever it was before."""
        self._at[key] = at_ms
        self._queue(key, at_ms)

    def clear(self, key: KeyT) -> None:
        """Forget `key`; no error if it is not set."""
        self._at.pop(key, None)

    def next_ms(self) -> int | None:
        """When to look again; never later than the first deadline."""
        while self._heap and self._heap[0][2] not in self._at:
            self._pop()
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Iterator[KeyT]:
        """Take out the keys whose time has come, one by one, earliest first.

        What is done about one key may clear or move others: they are looked at only when it is their turn. A key that
        is set again on the way is left for the next time, and so is the rest if the caller stops.
        """
        taken: set[KeyT] = set()
        again: list[KeyT] = []
        try:
            while self._heap and self._heap[0][0] <= now_ms:
                queued_ms, _, key = self._pop()
                at_ms = self._at.get(key)
                if at_ms is None:
                    continue
                if at_ms != queued_ms:
                    self._queue(key, at_ms)
                elif key in taken:
                    again.append(key)
                else:
                    del self._at[key]
                    taken.add(key)
                    yield key
        finally:
            for key in again:
                if key in self._at:
                    self._queue(key, self._at[key])

    def _queue(self, key: KeyT, at_ms: int) -> None:
        queued_ms = self._queued.get(key)
        if queued_ms is None or at_ms < queued_ms:
            self._push(key, at_ms)

    def _push(self, key: KeyT, at_ms: int) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (at_ms, self._sequence, key))
        self._queued[key] = at_ms

    def _pop(self) -> tuple[int, int, KeyT]:
        entry = heapq.heappop(self._heap)
        if self._queued.get(entry[2]) == entry[0]:
            del self._queued[entry[2]]
        return entry
