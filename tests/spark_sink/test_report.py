"""Lines about progress and problems"""

import json
from typing import Any

from tidemill.core.runtime.clock import ManualClock
from tidemill.spark_sink.report import PROGRESS, QUERY, SOURCE, TABLE, JobReport


class Told:
    """A report, its clock and its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.clock = ManualClock()
        self.report = JobReport(self.lines.append, self.clock)

    def take(self) -> list[str]:
        """What was told since the last look, progress lines left out."""
        found = [line for line in self.lines if not line.startswith(PROGRESS)]
        self.lines.clear()
        return found

    @property
    def facts(self) -> dict[str, Any]:
        """The latest progress line."""
        (*_, line) = [line for line in self.lines if line.startswith(PROGRESS)]
        return dict(json.loads(line.removeprefix(PROGRESS)))


def test_a_problem_is_told_when_it_begins_and_when_it_is_over() -> None:
    told = Told()
    told.report.found(SOURCE, "h:1 does not answer")
    told.report.found(SOURCE, "h:1 does not answer")
    began = told.facts["problem_since_ms"]
    assert told.facts["problem"] == "source: h:1 does not answer"
    assert told.take() == ["tidemill spark problem: source: h:1 does not answer"]
    told.clock.advance(12_400)
    told.report.found(SOURCE, "topic 't' does not exist")
    assert (told.facts["problem"], told.facts["problem_since_ms"]) == ("source: topic 't' does not exist", began)
    told.report.over(SOURCE)
    assert (told.facts["problem"], told.facts["problem_since_ms"]) == (None, None)
    assert told.take() == [
        "tidemill spark problem: source: topic 't' does not exist",
        "tidemill spark problem over: source, after 12 s",
    ]
    told.report.over(SOURCE)
    assert told.take() == []


def test_one_problem_does_not_hide_another() -> None:
    told = Told()
    told.report.found(SOURCE, "gone")
    told.report.found(TABLE, "full")
    told.report.over(SOURCE)
    assert told.facts["problem"] == "table: full"


def test_a_batch_ends_what_kept_batches_from_happening() -> None:
    told = Told()
    told.report.found(TABLE, "full")
    told.report.found(QUERY, "it fell over")
    told.report.committed(records=7, rows=5, table_version=3)
    told.report.batch_done()
    assert told.facts["problem"] is None
    told.report.progress({"lag": 2})
    assert (told.report.batches, told.facts["records"], told.facts["rows"]) == (1, 7, 5)
    assert (told.facts["lag"], told.facts["table_version"]) == (2, 3)


def test_progress_is_due_soon_after_a_batch_and_now_and_then_without() -> None:
    told = Told()
    assert told.report.is_due()
    told.report.progress({})
    assert not told.report.is_due()
    told.clock.advance(9_000)
    assert not told.report.is_due()
    told.clock.advance(1_500)
    assert told.report.is_due()
    told.report.progress({})
    told.report.batch_done()
    assert not told.report.is_due()
    told.clock.advance(1_500)
    assert told.report.is_due()
