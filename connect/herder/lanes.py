"""Work in order per key, keys side by side

What is done to one task must be done in order: a stop that overtakes its start would find nothing to stop. What is done
to different tasks must not wait for each other. A lane is the queue of one key; it exists while it has work.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeAlias

Work: TypeAlias = Coroutine[Any, Any, None]

Spawn: TypeAlias = Callable[[Work, str], None]
"""Starts a coroutine as a task that somebody owns, under a name."""


class Lanes:
    """Runs coroutine functions, those of one key one after the other."""

    def __init__(self, spawn: Spawn) -> None:
        self._spawn = spawn
        self._lanes: dict[Hashable, deque[Callable[[], Work]]] = {}

    def put(self, key: Hashable, work: Callable[[], Work]) -> None:
        """Queue `work` behind everything put under the same key."""
        lane = self._lanes.get(key)
        if lane is not None:
            lane.append(work)
            return
        self._lanes[key] = deque([work])
        self._spawn(self._drain(key), f"lane {key}")

    async def _drain(self, key: Hashable) -> None:
        lane = self._lanes[key]
        try:
            while lane:
                await lane.popleft()()
        finally:
            del self._lanes[key]
