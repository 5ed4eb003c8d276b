"""Waiting longer after every failure"""

from tidemill.connect.tasks.backoff import CAP_S, Backoff


def test_it_doubles_up_to_its_cap() -> None:
    backoff = Backoff()
    assert [backoff.next_s() for _ in range(8)] == [1, 2, 4, *[CAP_S] * 5]
    assert backoff.attempts == 8


def test_success_starts_over() -> None:
    backoff = Backoff()
    backoff.next_s()
    backoff.next_s()
    backoff.reset()
    assert (backoff.attempts, backoff.next_s()) == (0, 1)
