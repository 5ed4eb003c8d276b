"""How fast the cleaner may go, and when it stops"""

import threading
import time
from collections.abc import Callable

import pytest

from tests.broker.log.log_world import NOW_MS
from tidemill.broker.log.pacer import PAUSE_EVERY_BYTES, CleaningStopped, Pacer
from tidemill.core.runtime.clock import ManualClock


def test_the_throttle_waits_as_long_as_the_bytes_are_worth() -> None:
    clock, waits = ManualClock(NOW_MS), []

    class Recorder(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            waits.append(timeout)
            clock.advance(int(timeout * 1000))
            return False

    pace = Pacer(100_000, clock.monotonic, Recorder())
    pace(50_000)
    assert waits == []
    pace(50_000)
    assert waits == [1.0]
    clock.advance(600)
    pace(100_000)
    assert waits == [1.0, pytest.approx(0.4)]
    clock.advance(5000)
    pace(100_000)
    assert 0 < waits[-1] < 0.001, "it gives way even when it is late"
    pace.set_rate(50_000)
    pace(100_000)
    assert waits[-1] == 2.0


def test_the_throttle_is_where_a_stop_is_noticed() -> None:
    pace = Pacer(1e9, ManualClock(NOW_MS).monotonic)
    pace(1 << 20)
    pace.stop()
    with pytest.raises(CleaningStopped):
        pace(1 << 20)


@pytest.mark.parametrize(
    ("change", "outcome"), [(lambda pace: pace.set_rate(1e9), "went on"), (lambda pace: pace.stop(), "stopped")]
)
def test_a_wait_ends_with_the_reason_for_it(change: Callable[[Pacer], None], outcome: str) -> None:
    pace, outcomes = Pacer(1, time.monotonic), []

    def work() -> None:
        try:
            pace(PAUSE_EVERY_BYTES)
            outcomes.append("went on")
        except CleaningStopped:
            outcomes.append("stopped")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive(), "these bytes are worth most of a day"
    pace.set_rate(2)
    thread.join(0.1)
    assert thread.is_alive(), "still half of it"
    change(pace)
    thread.join(10)
    assert outcomes == [outcome]
