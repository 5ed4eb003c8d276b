"""The clock as a constructor argument

Two clocks, because they answer different questions: `now_ms` is the wall clock that goes into records, log files and
retention decisions and may jump; `monotonic` measures how long something took and never goes back. Code that needs
either takes a `Clock`; nothing outside `core/runtime` calls the `time` module.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """What a component may ask about time."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since 1970, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """Seconds since an arbitrary start; never goes back. The very function, for some ask it with each request."""


def seconds_since_boot() -> float:
    """Seconds since the machine was started, one number for all processes; they go on while it sleeps, if it can tell.

    What somebody else counts on another machine ends here in time by it.
    """
    return time.clock_gettime(_BOOT_CLOCK)


_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class BootClock(SystemClock):
    """The machine's clocks, the second of which does not stand still while the machine sleeps."""

    __slots__ = ()

    monotonic = staticmethod(seconds_since_boot)
    """Seconds since the machine was started."""


class ManualClock:
    """A clock that moves only when told to: for tests and for the simulator."""

    __slots__ = ("_now_ms", "_started_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._started_ms = now_ms

    def now_ms(self) -> int:
        """The time it was last set to."""
        return self._now_ms

    def monotonic(self) -> float:
        """Seconds advanced since it was made."""
        return (self._now_ms - self._started_ms) / 1000

    def advance(self, elapsed_ms: int) -> None:
        """Move both clocks forward by `elapsed_ms`."""
        if elapsed_ms < 0:
            raise ValueError(f"a clock cannot go back: {elapsed_ms} ms")
        self._now_ms += elapsed_ms
