"""The code table against an independent one"""

import inspect

import kafka.errors

from tidemill.core.error_code import ErrorCode

RENAMED = {  # codes that kafka-python still spells as Kafka once did
    -1: "UNKNOWN",
    0: "NO_ERROR",
    6: "NOT_LEADER_FOR_PARTITION",
    10: "MESSAGE_SIZE_TOO_LARGE",
    17: "INVALID_TOPIC",
    39: "INVALID_REPLICATION_ASSIGNMENT",
}


def test_numbers_and_names_agree_with_kafka_python() -> None:
    theirs = {
        cls.errno: cls.message
        for _, cls in inspect.getmembers(kafka.errors, inspect.isclass)
        if isinstance(getattr(cls, "errno", None), int)
    }
    assert len(theirs) > 120
    for number, name in theirs.items():
        assert name == RENAMED.get(number, ErrorCode(number).name)


def test_codes_are_dense() -> None:
    assert sorted(ErrorCode) == list(range(-1, 134))
