"""Measures of a task, by a clock that is told"""

from tidemill.connect.tasks.meter import PAUSED, RUNNING, TaskMeter, Window
from tidemill.core.runtime.clock import ManualClock


def test_a_window_forgets_what_is_older_than_two_samples() -> None:
    clock = ManualClock()
    window = Window(clock)
    assert (window.average(), window.maximum()) == (None, None)
    window.add(10)
    clock.advance(29_000)
    window.add(20)
    assert (window.average(), window.maximum()) == (15, 20)
    clock.advance(2_000)  # in the second sample
    window.add(0)
    assert (window.average(), window.maximum()) == (10, 20)
    clock.advance(30_000)  # in the third: the first is gone
    assert (window.average(), window.maximum()) == (0, 0)
    clock.advance(30_000)
    assert (window.average(), window.maximum()) == (None, None)
    window.add(7)
    clock.advance(600_000)
    assert window.average() is None


def test_shares_of_a_life() -> None:
    clock = ManualClock()
    meter = TaskMeter(clock)
    assert meter.facts("poll", "source")["running-ratio"] == 0.0
    clock.advance(2_000)  # it starts
    meter.enters(RUNNING)
    clock.advance(5_000)
    meter.enters(PAUSED)
    clock.advance(2_000)
    meter.enters("")  # its session is over
    clock.advance(1_000)
    facts = meter.facts("poll", "source")
    assert (facts["running-ratio"], facts["pause-ratio"]) == (0.5, 0.2)
    meter.enters(RUNNING)
    clock.advance(10_000)
    assert meter.facts("poll", "source")["running-ratio"] == 0.75


def test_errors_are_counted_by_what_becomes_of_them() -> None:
    clock = ManualClock()
    meter = TaskMeter(clock)
    assert meter.facts("put", "sink")["last-error-timestamp"] == 0
    meter.failed(tolerated=True, logged=True)
    meter.failed(tolerated=True)
    clock.advance(9)
    meter.failed(tolerated=False)
    meter.retries += 1
    facts = meter.facts("put", "sink")
    assert (facts["total-record-errors"], facts["total-record-failures"]) == (3, 1)
    assert (facts["total-errors-logged"], facts["total-retries"]) == (1, 1)
    assert facts["last-error-timestamp"] == clock.now_ms()


def test_a_sink_and_a_source_have_names_of_their_own() -> None:
    meter = TaskMeter(ManualClock())
    meter.call_ms.add(3)
    meter.active_records.add(5)
    assert meter.facts("put", "sink")["put-batch-max-time-ms"] == 3
    assert meter.facts("poll", "source")["source-record-active-count-avg"] == 5
