"""What a refused batch leads to."""

import pytest

from tidemill.core.error_code import ErrorCode
from tidemill.mirror.faults import judge_fetch, judge_produce, leaves_in_doubt
from tidemill.mirror.link_events import Trouble


@pytest.mark.parametrize(
    ("code", "trouble"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Trouble.RETRY),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Trouble.RETRY),
        (ErrorCode.CORRUPT_MESSAGE, Trouble.REREAD),
        (ErrorCode.KAFKA_STORAGE_ERROR, Trouble.RETRY),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, Trouble.OUT_OF_ORDER),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, Trouble.OUT_OF_ORDER),
        (ErrorCode.INVALID_PRODUCER_EPOCH, Trouble.FAIL),
        (ErrorCode.MESSAGE_TOO_LARGE, Trouble.PARK),
        (ErrorCode.INVALID_RECORD, Trouble.PARK),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Trouble.PARK),
        (9999, Trouble.PARK),
    ],
)
def test_every_error_has_a_consequence(code: int, trouble: Trouble) -> None:
    found, reason = judge_produce(code, None, 100)
    assert found is trouble
    assert reason


def test_the_reason_says_what_to_do_and_what_the_broker_said() -> None:
    _, reason = judge_produce(ErrorCode.MESSAGE_TOO_LARGE, "too big for me", 2_000_000)
    assert "2000000 bytes" in reason
    assert "too big for me" in reason
    assert "max.message.bytes" in reason


@pytest.mark.parametrize(
    ("code", "in_doubt"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS, False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.MESSAGE_TOO_LARGE, False),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False),
    ],
)
def test_what_may_be_in_the_log_in_spite_of_the_error(code: int, in_doubt: bool) -> None:
    assert leaves_in_doubt(code) is in_doubt


def test_what_the_source_refuses_says_what_to_do() -> None:
    assert "grant the mirror READ" in judge_fetch(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert judge_fetch(ErrorCode.NOT_LEADER_OR_FOLLOWER).startswith("the source: ")
