"""A thread that hears whether the source answers"""

import threading

import pytest

from tests.spark_sink.conftest import poll
from tidemill.core.runtime.clock import ManualClock
from tidemill.spark_sink.cluster import ClusterRefused, ClusterUnreachable, UnknownTopic
from tidemill.spark_sink.figures import JobFigures
from tidemill.spark_sink.report import PROGRESS, JobReport
from tidemill.spark_sink.source_watch import SourceWatch


def report_to(lines: list[str]) -> JobReport:
    clock = ManualClock()
    return JobReport(lines.append, clock, JobFigures(clock))


@pytest.mark.parametrize(
    "error",
    [ClusterUnreachable("h:1 is away"), ClusterRefused("h:1 says no"), UnknownTopic("no topic 't'")],
    ids=lambda error: type(error).__name__,
)
def test_what_it_hears_is_reported_and_so_is_the_end(error: Exception) -> None:
    lines: list[str] = []
    away, asked = threading.Event(), threading.Event()

    def ask() -> None:
        asked.set()
        if away.is_set():
            raise error

    with SourceWatch(ask, report_to(lines)):
        assert asked.wait(30)
        assert lines == []
        away.set()
        poll(lambda: f"tidemill spark problem: source: {error}" in lines, "the problem", 30)
        away.clear()
        poll(lambda: "tidemill spark problem over: source, after 0 s" in lines, "its end", 30)
    told = [line for line in lines if not line.startswith(PROGRESS)]
    assert len(told) == 2


def test_it_goes_on_asking_whatever_goes_wrong() -> None:
    lines: list[str] = []
    asked: list[int] = []

    def ask() -> None:
        asked.append(1)
        if len(asked) == 1:
            raise ValueError("odd")

    with SourceWatch(ask, report_to(lines)):
        poll(lambda: "tidemill spark problem over: source, after 0 s" in lines, "its end", 30)
    assert lines[0] == "tidemill spark problem: source: cannot be asked: ValueError: odd"
