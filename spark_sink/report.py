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
from tidemill.spark_sink.figures import JobFigures, Snapshot

PROGRESS = "tidemill spark progress:"
PROBLEM, PROBLEM_OVER = "tidemill spark problem:", "tidemill spark problem over:"
PLACES = SOURCE, TABLE, QUERY = "source", "table", "query"
_INTERVAL_S, _INTERVAL_MIN_S = 10.0, 1.0  # between two progress lines: when nothing happens, and when much does


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that keeps the job from going on."""

    where: str
    what: str
    since_ms: int


class JobReport:
    """Tells what a job does, a line at a time."""

    def __init__(self, tell: Callable[[str], None], clock: Clock, figures: JobFigures) -> None:
        self._tell, self._clock = tell, clock
        self._figures = figures
        self._lock = threading.RLock()
        self._problems: dict[str, Problem] = {}
        self._facts: dict[str, Any] = {}
        self._told_at: float | None = None
        self._told_batches = 0

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is in the job's way now, the oldest first."""
        with self._lock:
            return tuple(self._problems.values())

    def batch_done(self) -> None:
        """A batch is in all of its tables, so what kept batches from that is over."""
        with self._lock:
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
            return waited >= (_INTERVAL_S if self._told_batches == self._figures.batches else _INTERVAL_MIN_S)

    def progress(self, more: Mapping[str, Any]) -> None:
        """Tell how far the job is; `more` are facts that stay until they are told anew."""
        with self._lock:
            self._facts |= more
            self._tell_facts()

    def forget(self, fact: str) -> None:
        """Leave a fact out until it is told anew."""
        with self._lock:
            self._facts.pop(fact, None)

    def _tell_facts(self) -> None:
        first = next(iter(self._problems.values()), None)
        problem = {
            "problem": f"{first.where}: {first.what}" if first else None,
            "problem_since_ms": first.since_ms if first else None,
        }
        figures = self._figures.snapshot()
        self._told_at, self._told_batches = self._clock.monotonic(), figures.batches
        self._tell(f"{PROGRESS} {json.dumps(_counted(figures) | self._facts | problem)}")


def _counted(figures: Snapshot) -> dict[str, Any]:
    facts = {"batches": figures.batches, "records": figures.records, "rows": figures.rows}
    if figures.version >= 0:
        facts["table_version"] = figures.version
    if figures.refused:
        facts["refused"] = figures.refused
    if figures.values_missing:
        facts["missing_values"] = figures.values_missing
    return facts
