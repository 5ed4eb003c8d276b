"""One line for many of the same"""

from tidemill.broker.repeated_warnings import KINDS_MAX, RepeatedWarnings


def test_the_first_is_told_and_those_that_follow_are_counted() -> None:
    warnings = RepeatedWarnings(quiet_s=60)
    assert warnings.take("a", 0.0) == 0
    assert [warnings.take("a", now) for now in (1.0, 2.0, 59.0)] == [None, None, None]
    assert warnings.take("b", 3.0) == 0
    assert warnings.take("a", 60.0) == 3
    assert warnings.take("a", 121.0) == 0


def test_many_kinds_take_no_more_memory_and_make_no_flood() -> None:
    warnings = RepeatedWarnings(quiet_s=60)
    told = [number for number in range(3 * KINDS_MAX) if warnings.take(number, 0.0) is not None]
    assert len(told) == KINDS_MAX
    assert warnings.take("later", 100.0) == 0
