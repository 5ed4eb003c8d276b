"""Whether the thread that runs a job still does

The thread says what it is about, again and again. Whoever watches the job is told that, as what it is not ready for
until it reads, and that the process is dead when nothing was heard for longer than a query may stand still
(`stall.timeout.ms`): by then the job should have ended by itself. A commit may take its time, and the thread that waits
for it with it, so silence is counted from its end. One that takes longer than that is told as well, as something that
the job is not ready for: it may end, so nobody ends the job for it.

Not here: what is in the job's way (`report`). A job that waits and tries again is alive.
"""

import contextlib
import math
import threading
from collections.abc import Iterator, Mapping
from typing import Final

from tidemill.spark_sink.core_api import Clock

GRACE_S: Final = 30.0
"""For a job to end itself, in words that say more than a probe can."""


COMMIT_S: Final = 600.0
"""After so long a commit is told of where a query may stand still for ever; the default of the other limit."""


class Pulse:
    """Heard from a job's own thread and from that of its commits, felt by others."""

    def __init__(self, limit_s: float, clock: Clock) -> None:
        self._limit_s = limit_s  # 0: a job that has not ended is alive
        self._clock = clock
        self._lock = threading.Lock()
        self._waits_for: str | None = "Spark is starting"
        self._heard_at = clock.monotonic()
        self._pause_s = math.inf  # a cluster may keep a job waiting for its turn
        self._commits: list[tuple[str, float]] = []  # to which table and since when
        self._has_ended = False

    def begins(self, what: str, pause_s: float = 0.0) -> None:
        """The job is about something before it can read, and may not be heard for `pause_s`."""
        self._hear(what, pause_s)

    def reads(self) -> None:
        """The job's query runs."""
        self._hear(None)

    def ends(self) -> None:
        """The job has nothing to do any more."""
        with self._lock:
            self._has_ended = True
        self._hear("the job has ended")

    @contextlib.contextmanager
    def commit(self, path: str) -> Iterator[None]:
        """While a batch goes into that table."""
        at_work = (path, self._clock.monotonic())
        with self._lock:
            self._commits.append(at_work)
        try:
            yield
        finally:
            with self._lock:
                self._commits.remove(at_work)
                self._heard_at = max(self._heard_at, self._clock.monotonic())

    def _hear(self, waits_for: str | None, pause_s: float = 0.0) -> None:
        with self._lock:
            self._waits_for, self._pause_s = waits_for, pause_s
            self._heard_at = self._clock.monotonic()

    @property
    def waits_for(self) -> str | None:
        """What is to be done before the job reads, None when it does."""
        return self._waits_for

    def endless(self) -> Mapping[str, float]:
        """Tables with a commit that takes longer than a query may stand still, and for how many seconds it has."""
        with self._lock:
            now = self._clock.monotonic()
            taken = {path: now - since for path, since in reversed(self._commits)}  # the oldest of a table last
        return {path: taken_s for path, taken_s in taken.items() if taken_s > (self._limit_s or COMMIT_S)}

    def why_dead(self) -> str | None:
        """Why the process cannot do anything any more, None while it can."""
        with self._lock:
            silent_s = self._clock.monotonic() - self._heard_at - self._pause_s
            if self._commits or silent_s <= GRACE_S:
                return None
            if self._has_ended:
                return f"the job has ended, and its process has not for {silent_s:.0f} s"
            if self._limit_s and silent_s > self._limit_s + GRACE_S:
                return f"the job's thread was not heard for {silent_s:.0f} s; it was about this: {self._was_about}"
        return None

    @property
    def _was_about(self) -> str:
        return self._waits_for or "looking after its query"
