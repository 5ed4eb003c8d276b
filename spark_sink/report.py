"""What a running job says of itself: how far it is, and what is in its way

A problem has a place (the source, a table, the query) and is told twice: when it begins and when it is over. Between
the two every progress line carries it, so whoever reads only the latest line knows. The lines are

    tidemill spark problem: source: localhost:9092 does not answer: Connection refused
    tidemill spark progress: {"batches": 3, ..., "problem": "source: ...", "problem_since_ms": 1700000000000}
    tidemill spark problem over: source, after 12 s

Several threads report; nothing here asks Spark, whose JVM may be what does not answer.
"""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.spark_sink.core_api import Clock

PROGRESS = "tidemill spark progress:"
PROBLEM, PROBLEM_OVER = "tidemill spark problem:", "tidemill spark problem over:"
SOURCE, TABLE, QUERY = "source", "table", "query"
_INTERVAL_S, _INTERVAL_MIN_S = 10.0, 1.0  # between two progress lines: when nothing happens, and when much does


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that keeps the job from going on."""

    where: str
    what: str
    since_ms: int


class JobReport:
    """Counts what a job does and tells of it, a line at a time."""

    def __init__(self, tell: Callable[[str], None], clock: Clock) -> None:
        self._tell, self._clock = tell, clock
        self._lock = threading.RLock()
        self._problems: dict[str, Problem] = {}
        self._facts: dict[str, Any] = {"batches": 0, "records": 0, "rows": 0}
        self._told_at: float | None = None
        self._told_batches = 0

    @property
    def batches(self) -> int:
        """Batches that are in their tables."""
        return int(self._facts["batches"])

    def committed(self, records: int, rows: int, table_version: int) -> None:
        """Part of a batch is in its table."""
        with self._lock:
            self._facts["records"] += records
            self._facts["rows"] += rows
            if table_version >= 0:
                self._facts["table_version"] = max(table_version, self._facts.get("table_version", 0))

    def batch_done(self) -> None:
        """A batch is in all of its tables."""
        with self._lock:
            self._facts["batches"] += 1
            self.over(TABLE)
            self.over(QUERY)

    def found(self, where: str, what: str) -> None:
        """Tell of a problem, unless it is known."""
        with self._lock:
            known = self._problems.get(where)
            if known is not None and known.what == what:
                return
            since_ms = self._clock.now_ms() if known is None else known.since_ms
            self._problems[where] = Problem(where=where, what=what, since_ms=since_ms)
            self._tell(f"{PROBLEM} {where}: {what}")
            self._tell_facts()

    def over(self, where: str) -> None:
        """Tell that a problem is over, if there was one."""
        with self._lock:
            known = self._problems.pop(where, None)
            if known is None:
                return
            self._tell(f"{PROBLEM_OVER} {where}, after {(self._clock.now_ms() - known.since_ms) / 1000:.0f} s")
            self._tell_facts()

    def is_due(self) -> bool:
        """Whether a progress line should be told now."""
        with self._lock:
            if self._told_at is None:
                return True
            waited = self._clock.monotonic() - self._told_at
            return waited >= (_INTERVAL_S if self._told_batches == self.batches else _INTERVAL_MIN_S)

    def progress(self, more: Mapping[str, Any]) -> None:
        """Tell how far the job is; `more` are facts that stay until they are told anew."""
        with self._lock:
            self._facts |= more
            self._tell_facts()

    def _tell_facts(self) -> None:
        first = next(iter(self._problems.values()), None)
        problem = {
            "problem": f"{first.where}: {first.what}" if first else None,
            "problem_since_ms": first.since_ms if first else None,
        }
        self._told_at, self._told_batches = self._clock.monotonic(), self.batches
        self._tell(f"{PROGRESS} {json.dumps(self._facts | problem)}")
