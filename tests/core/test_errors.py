"""Errors carry their code, and codes find their error"""

import inspect

import kafka.errors
import pytest

from tidemill.core import errors
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import (
    CorruptMessage,
    KafkaError,
    KafkaStorageError,
    MetadataError,
    NotLeaderOrFollower,
    RetriableError,
    TopicAuthorizationFailed,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnrecognizedError,
    error_for_code,
)

CODES = [code for code in ErrorCode if code is not ErrorCode.NONE]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_each_code_has_the_class_of_its_name(code: ErrorCode) -> None:
    error = error_for_code(code)
    assert type(error).__name__ == "".join(word.capitalize() for word in code.name.split("_"))
    assert getattr(errors, type(error).__name__) is type(error)
    assert error.code == code
    assert error.message
    assert "\n" not in error.message
    assert not error.message.endswith(".")
    assert error_for_code(code, "said the server").message == "said the server"


def test_what_a_client_may_do_is_part_of_the_class() -> None:
    assert (NotLeaderOrFollower.retriable, NotLeaderOrFollower.refresh_metadata) == (True, True)
    assert (CorruptMessage.retriable, CorruptMessage.refresh_metadata) == (True, False)
    assert CorruptMessage.permanent  # for whoever reads it again
    assert (TopicAuthorizationFailed.permanent, TopicAuthorizationFailed.retriable) == (True, False)
    assert not NotLeaderOrFollower.permanent
    assert (UnknownServerError.retriable, UnknownServerError.refresh_metadata) == (False, False)
    assert issubclass(KafkaStorageError, MetadataError)
    assert issubclass(MetadataError, RetriableError)


def test_retriable_errors_agree_with_kafka_python() -> None:
    theirs = {
        cls.errno: cls.retriable
        for _, cls in inspect.getmembers(kafka.errors, inspect.isclass)
        if isinstance(getattr(cls, "errno", None), int)
    }
    differing = {
        code.name
        for code in CODES
        if theirs.get(code, error_for_code(code).retriable) != (error_for_code(code).retriable)
    }
    assert differing == {"CORRUPT_MESSAGE"}  # Kafka's own clients retry a batch that was damaged on the way


def test_a_code_from_the_future_keeps_its_number() -> None:
    error = error_for_code(31000, "new")
    assert isinstance(error, UnrecognizedError)
    assert (error.code, error.unrecognized_code, str(error)) == (ErrorCode.UNKNOWN_SERVER_ERROR, 31000, "new")
    assert "31000" in str(error_for_code(31000))


def test_zero_is_not_an_error() -> None:
    with pytest.raises(ValueError, match="success"):
        error_for_code(0)


def test_a_code_has_one_class() -> None:
    with pytest.raises(TypeError, match="both claim error code 3"):

        class Second(KafkaError, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            """Claims a taken code."""

    class Local(UnknownTopicOrPartition):
        """Has no code of its own."""

    assert Local.code == 3
    assert type(error_for_code(3)) is UnknownTopicOrPartition
