"""What a task measures beside its totals: times, sizes, shares, errors

A task has one meter for all its sessions. Times and sizes are averages and maxima of the last 30 to 60 seconds, kept
as Kafka keeps its own: in two samples of half a minute each, of which the older is thrown away when a third begins.
Where nothing happened in that time there is no value, rather than a stale one.

The names are Kafka Connect's. Its rates are not kept: whoever collects totals computes them.
"""

from typing import Final

from tidemill.connect.api import Json
from tidemill.core.runtime.clock import Clock

SAMPLE_S: Final = 30.0
"""Kafka's metrics.sample.window.ms; as there, two samples are kept."""

RUNNING: Final = "running"
PAUSED: Final = "pause"


class Window:
    """Average and maximum of what was added lately."""

    __slots__ = ("_clock", "_samples", "_since")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()
        self._samples: list[tuple[int, float, float]] = [(0, 0.0, 0.0)]  # count, sum, maximum; the newest is last

    def add(self, value: float) -> None:
        """Take a value, not below 0."""
        self._age()
        count, total, highest = self._samples[-1]
        self._samples[-1] = (count + 1, total + value, max(highest, value))

    def average(self) -> float | None:
        """Of the values there are, None when there are none."""
        self._age()
        count = sum(each[0] for each in self._samples)
        return round(sum(each[1] for each in self._samples) / count, 3) if count else None

    def maximum(self) -> float | None:
        """Of the values there are, None when there are none."""
        self._age()
        return round(max(each[2] for each in self._samples), 3) if any(each[0] for each in self._samples) else None

    def _age(self) -> None:
        passed = int((self._clock.monotonic() - self._since) / SAMPLE_S)
        if passed:
            self._since += passed * SAMPLE_S
            kept = self._samples[-1:] if passed == 1 else [(0, 0.0, 0.0)]
            self._samples = [*kept, (0, 0.0, 0.0)]


class TaskMeter:
    """The measures of one task."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.call_ms = Window(clock)  # of a poll that brought something, or of a put
        self.batch_records = Window(clock)
        self.commit_ms = Window(clock)
        self.active_records = Window(clock)
        self.record_errors = 0
        self.record_failures = 0  # errors that ended the task
        self.retries = 0  # batches offered again
        self.errors_logged = 0
        self._last_error_ms = 0
        self._began = self._entered = clock.monotonic()
        self._state = ""
        self._spent_s = {RUNNING: 0.0, PAUSED: 0.0}

    def enters(self, state: str) -> None:
        """The task is RUNNING or PAUSED from now on, or, with an empty string, neither."""
        now = self._clock.monotonic()
        if self._state:
            self._spent_s[self._state] += now - self._entered
        self._state, self._entered = state, now

    def failed(self, *, tolerated: bool, logged: bool = False) -> None:
        """One record cannot be processed."""
        self.record_errors += 1
        self.record_failures += not tolerated
        self.errors_logged += logged
        self._last_error_ms = self._clock.now_ms()

    def facts(self, call: str, record: str) -> dict[str, Json]:
        """Everything under Kafka Connect's names, for a source ("poll", "source") or a sink ("put", "sink")."""
        return {
            f"{call}-batch-max-time-ms": self.call_ms.maximum(),
            f"{call}-batch-avg-time-ms": self.call_ms.average(),
            "batch-size-max": self.batch_records.maximum(),
            "batch-size-avg": self.batch_records.average(),
            "offset-commit-max-time-ms": self.commit_ms.maximum(),
            "offset-commit-avg-time-ms": self.commit_ms.average(),
            f"{record}-record-active-count-max": self.active_records.maximum(),
            f"{record}-record-active-count-avg": self.active_records.average(),
            "running-ratio": self._share(RUNNING),
            "pause-ratio": self._share(PAUSED),
            "total-record-errors": self.record_errors,
            "total-record-failures": self.record_failures,
            "total-retries": self.retries,
            "total-errors-logged": self.errors_logged,
            "last-error-timestamp": self._last_error_ms,
        }

    def _share(self, state: str) -> float:
        now = self._clock.monotonic()
        spent_s = self._spent_s[state] + (now - self._entered if self._state == state else 0.0)
        lived_s = now - self._began
        return round(spent_s / lived_s, 2) if lived_s > 0 else 0.0
