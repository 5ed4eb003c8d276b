"""The retry table."""

import pytest

from tidemill.core.client.connection import Address, ConnectionFailed, RequestTimedOut
from tidemill.core.client.retries import Retry, backoff_ms, fault, retry_of
from tidemill.core.error_code import ErrorCode


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionFailed(Address("h", 1), "gone"), Retry.AFTER_REFRESH),
        (RequestTimedOut(Address("h", 1), "slow"), Retry.AFTER_REFRESH),
        (fault(ErrorCode.NOT_LEADER_OR_FOLLOWER, "x"), Retry.AFTER_REFRESH),
        (fault(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "x"), Retry.AFTER_BACKOFF),
        (fault(ErrorCode.TOPIC_ALREADY_EXISTS, "x"), Retry.NO),
        (ValueError("a bug"), Retry.NO),
    ],
)
def test_table(error: Exception, expected: Retry) -> None:
    assert retry_of(error) is expected


def test_pauses_grow_and_are_bounded() -> None:
    pauses = [backoff_ms(failures) for failures in range(12)]
    assert pauses[:4] == [0, 100, 200, 400]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 10_000


def test_a_fault_says_where_and_what() -> None:
    assert str(fault(ErrorCode.TOPIC_ALREADY_EXISTS, "b:1: orders", "it is there")) == "b:1: orders: it is there"
    assert str(fault(ErrorCode.TOPIC_ALREADY_EXISTS, "b:1: orders")).startswith("b:1: orders: ")
