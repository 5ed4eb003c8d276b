"""Clocks: the real one moves, the manual one does as it is told"""

import pytest

from tidemill.core.runtime.clock import Clock, ManualClock, SystemClock


def test_the_system_clock_is_about_now_and_does_not_go_back() -> None:
    clock: Clock = SystemClock()
    assert clock.now_ms() > 1_700_000_000_000
    before = clock.monotonic()
    assert clock.monotonic() >= before


def test_the_manual_clock_moves_when_told() -> None:
    clock: Clock = (manual := ManualClock(5_000))
    assert (clock.now_ms(), clock.monotonic()) == (5_000, 0)
    manual.advance(1_500)
    assert (clock.now_ms(), clock.monotonic()) == (6_500, 1.5)
    with pytest.raises(ValueError):
        manual.advance(-1)
