"""What counts of the time that passes: listening does, as far as it was meant, and work as far as it is work"""

from tidemill.broker.quorum.own_time import LATE_MS, WORK_MS_MAX, OwnTime

AGAIN_MS = 500


class Passing:
    """A clock that a test moves; satisfies `tidemill.core.runtime.clock.Clock`."""

    def __init__(self) -> None:
        self.ms = 5_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


def test_nothing_counts_before_the_owner_listens() -> None:
    clock = Passing()
    time = OwnTime(clock, again_ms=AGAIN_MS)
    clock.ms += 3_000
    assert time.now_ms() == 5_000
    assert time.listen(6_000) == 1.0


def test_listening_counts_up_to_what_was_meant() -> None:
    clock = Passing()
    time = OwnTime(clock, again_ms=AGAIN_MS)
    time.listen(6_000)
    clock.ms += 400
    assert time.now_ms() == 5_400
    clock.ms += 600
    time.work()
    assert time.now_ms() == 5_999, "what was heard came before the time was over"
    time.listen(None)
    clock.ms += 70_000
    assert time.now_ms() == 75_999


def test_who_hears_something_late_goes_on_to_listen() -> None:
    clock = Passing()
    time = OwnTime(clock, again_ms=AGAIN_MS)
    time.listen(6_000)
    clock.ms += 4_000
    time.work()
    assert time.now_ms() == 5_500


def test_work_counts_as_far_as_it_is_work() -> None:
    clock = Passing()
    time = OwnTime(clock, again_ms=AGAIN_MS)
    time.work()
    clock.ms += 20
    assert time.now_ms() == 5_020
    clock.ms += 10_000
    assert time.listen(6_000) == (1_000 - WORK_MS_MAX) / 1000


def test_who_wakes_up_late_listens_once_more() -> None:
    clock = Passing()
    time = OwnTime(clock, again_ms=AGAIN_MS)
    time.listen(6_000)
    clock.ms += 1_000 + LATE_MS
    assert time.is_over(late_too=False)
    assert time.now_ms() == 6_000
    time.listen(7_000)
    clock.ms += 1_000 + LATE_MS + 1
    assert not time.is_over(late_too=False)
    assert time.now_ms() == 6_500
    time.listen(7_000)
    clock.ms += 4_000
    assert time.is_over(late_too=True), "nobody is waited for without end"
    assert time.now_ms() == 7_000


def test_a_time_that_is_over_already_does_not_go_back() -> None:
    clock = Passing()
    time = OwnTime(clock, again_ms=AGAIN_MS)
    assert time.listen(4_000) == 0.0
    assert time.is_over(late_too=False)
    assert time.now_ms() == 5_000
