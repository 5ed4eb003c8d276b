"""A thread that hears whether the source answers"""

import threading

import pytest

from tests.spark_sink.conftest import poll
from tidemill.core.runtime.clock import ManualClock
from tidemill.spark_sink.cluster import ClusterRefused, ClusterUnreachable, UnknownTopic
from tidemill.spark_sink.report import PROGRESS, JobReport
from tidemill.spark_sink.source_watch import SourceWatch


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

    with SourceWatch(ask, JobReport(lines.append, ManualClock())):
        assert asked.wait(30)
        assert lines == []
        away.set()
        poll(lambda: f"tidemill spark problem: source: {error}" in lines, "the problem", 30)
        away.clear()
        poll(lambda: "tidemill spark problem over: source, after 0 s" in lines, "its end", 30)
    told = [line for line in lines if not line.startswith(PROGRESS)]
    assert len(told) == 2
