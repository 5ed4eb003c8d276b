"""Lines about progress and problems"""

import json
from typing import Any

from tidemill.core.runtime.clock import ManualClock
from tidemill.core.types import TopicPartition
from tidemill.spark_sink.figures import JobFigures
from tidemill.spark_sink.report import PROGRESS, QUERY, SOURCE, TABLE, JobReport


class Told:
    """A report, its clock and its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.clock = ManualClock()
        self.figures = JobFigures(self.clock)
        self.report = JobReport(self.lines.append, self.clock, self.figures)

    def batch(self, records: int = 0, rows: int = 0, version: int = -1) -> None:
        """A batch is in its table."""
        ends = {TopicPartition("t", 0): records}
        self.figures.committed("/w", records=records, rows=rows, version=version, ends=ends, took_s=0.1)
        self.figures.batch_done()
        self.report.batch_done()

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
    assert [(each.where, each.what) for each in told.report.problems] == [(SOURCE, "gone"), (TABLE, "full")]
    told.report.over(SOURCE)
    assert told.facts["problem"] == "table: full"


def test_a_batch_ends_what_kept_batches_from_happening() -> None:
    told = Told()
    told.report.found(TABLE, "full")
    told.report.found(QUERY, "it fell over")
    told.batch(records=7, rows=5, version=3)
    assert told.facts["problem"] is None
    told.report.progress({"lag": 2})
    assert (told.facts["batches"], told.facts["records"], told.facts["rows"]) == (1, 7, 5)
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
    told.batch()
    assert not told.report.is_due()
    told.clock.advance(1_500)
    assert told.report.is_due()


def test_a_fact_that_no_longer_holds_is_left_out() -> None:
    told = Told()
    told.report.progress({"lag": 0})
    told.report.forget("lag")
    told.report.found(TABLE, "full")
    assert "lag" not in told.facts


def test_what_was_left_out_is_told_once_there_is_any() -> None:
    told = Told()
    told.report.progress({})
    assert told.facts.keys().isdisjoint({"refused", "missing_values", "table_version"})
    told.figures.committed("/w", records=9, rows=5, version=1, ends={}, took_s=0.1, values_missing=2, refused=4)
    told.report.progress({})
    assert (told.facts["refused"], told.facts["missing_values"], told.facts["table_version"]) == (4, 2, 1)
