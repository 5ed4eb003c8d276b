"""What is counted of requests that are refused."""

from tidemill.broker.refusals import CODES, Refusal


def test_whatever_has_been_read_has_a_code() -> None:
    assert set(Refusal) - CODES.keys() == {Refusal.SIZE, Refusal.TOO_SLOW}
