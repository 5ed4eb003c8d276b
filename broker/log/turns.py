"""A long walk on the event loop, in short turns

Whoever goes over all logs, or all segments of one, asks at each step whether the turn is over; if so, everybody else
has theirs before the walk goes on. What was true before may not be afterwards: a topic may be deleted, a segment rolled
or replaced. The time decides and not a number of steps, because one step may cost a hundred times what another does.
"""

import asyncio
from collections.abc import Callable

TURN_S = 0.003
"""A client that comes in the middle of a turn hardly notices; and the loop's own cost per turn is a percent of it."""


class Turns:
    """One walk."""

    __slots__ = ("_end", "_monotonic")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._end = monotonic() + TURN_S

    @property
    def over(self) -> bool:
        """Whether this turn has lasted long enough; waiting for anything begins the next one (`begin`)."""
        return self._monotonic() >= self._end

    def begin(self) -> None:
        """Others have had the event loop: a turn begins."""
        self._end = self._monotonic() + TURN_S

    async def give_way(self) -> None:
        """Let others have the event loop if the turn has lasted long enough."""
        if self._monotonic() >= self._end:
            await asyncio.sleep(0)
            self.begin()
