"""Named deadlines for a machine that may not know timers

Setting a deadline again moves it, which is what a heartbeat does, so moving later must be cheap: the heap keeps the
old entry, and only when that one comes up is the new time looked at. The machine asks for what is due on every tick;
the shell asks when the next tick has to come.
"""

import heapq
from collections.abc import Hashable
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
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._push(key, at_ms)

    def clear(self, key: KeyT) -> None:
        """Forget `key`; no error if it is not set."""
        self._at.pop(key, None)

    def next_ms(self) -> int | None:
        """When to look again; never later than the first deadline."""
        while self._heap and self._heap[0][2] not in self._at:
            self._pop()
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[KeyT]:
        """Take out the keys whose time has come, earliest first."""
        ready: list[tuple[int, int, KeyT]] = []
        while self._heap and self._heap[0][0] <= now_ms:
            _, sequence, key = self._pop()
            at_ms = self._at.get(key)
            if at_ms is None:
                continue
            if at_ms > now_ms:
                self._push(key, at_ms)
                continue
            del self._at[key]
            ready.append((at_ms, sequence, key))
        return [key for _, _, key in sorted(ready, key=lambda entry: entry[:2])]

    def _push(self, key: KeyT, at_ms: int) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (at_ms, self._sequence, key))
        self._queued[key] = at_ms

    def _pop(self) -> tuple[int, int, KeyT]:
        entry = heapq.heappop(self._heap)
        if self._queued.get(entry[2]) == entry[0]:
            del self._queued[entry[2]]
        return entry
