"""A job that is heard, that is silent for a reason, and that is silent for none"""

import pytest

from tidemill.core.runtime.clock import ManualClock
from tidemill.spark_sink.pulse import COMMIT_S, Pulse

MINUTE = 60_000


def test_a_job_that_waits_for_its_first_session_is_alive_however_long() -> None:
    clock = ManualClock()
    pulse = Pulse(60.0, clock)
    clock.advance(600 * MINUTE)
    assert pulse.why_dead() is None
    assert pulse.waits_for == "Spark is starting"


def test_a_thread_that_is_not_heard_is_dead_after_the_query_should_have_been_given_up() -> None:
    clock = ManualClock()
    pulse = Pulse(60.0, clock)
    pulse.reads()
    assert pulse.waits_for is None
    clock.advance(90_000)
    assert pulse.why_dead() is None
    clock.advance(1_000)
    assert pulse.why_dead() == "the job's thread was not heard for 91 s; it was about this: looking after its query"
    pulse.begins("its query is starting")
    assert pulse.why_dead() is None


def test_a_pause_is_no_silence() -> None:
    clock = ManualClock()
    pulse = Pulse(60.0, clock)
    pulse.begins("its query starts again", pause_s=300)
    clock.advance(389_000)
    assert pulse.why_dead() is None
    clock.advance(2_000)
    assert pulse.why_dead() is not None


def test_a_commit_may_take_its_time_and_so_may_the_thread_that_waits_for_it() -> None:
    clock = ManualClock()
    pulse = Pulse(60.0, clock)
    with pulse.commit("/w"):
        pulse.begins("the job stops")
        clock.advance(600 * MINUTE)
        assert pulse.why_dead() is None
    assert pulse.why_dead() is None
    clock.advance(2 * MINUTE)
    assert pulse.why_dead() is not None


def test_a_job_that_may_stand_still_for_ever_is_alive_until_it_has_ended() -> None:
    clock = ManualClock()
    pulse = Pulse(0.0, clock)
    pulse.reads()
    clock.advance(600 * MINUTE)
    assert pulse.why_dead() is None
    pulse.ends()
    assert (pulse.why_dead(), pulse.waits_for) == (None, "the job has ended")
    clock.advance(31_000)
    assert pulse.why_dead() == "the job has ended, and its process has not for 31 s"


@pytest.mark.parametrize(("limit_s", "told_after_s"), [(60.0, 60), (0.0, COMMIT_S)])
def test_a_commit_that_does_not_end_is_told_and_nobody_is_dead_of_it(limit_s: float, told_after_s: int) -> None:
    clock = ManualClock()
    pulse = Pulse(limit_s, clock)
    with pulse.commit("/quick"):
        clock.advance(told_after_s * 1_000)
        with pulse.commit("/slow"):
            assert pulse.endless() == {}
            clock.advance(1_000)
            assert pulse.endless() == {"/quick": told_after_s + 1}
        assert pulse.why_dead() is None
    assert pulse.endless() == {}
