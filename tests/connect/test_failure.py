"""Which class a failure has, by what was raised"""

import errno
import socket
from collections.abc import Iterator

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from tidemill.connect.api import EndOfInput, Fatal, InvalidConfig, NotConnected, PartialFailure, Poison, RetryAfter
from tidemill.connect.failure import AWAY, EAI_AGAIN, NOT_LET_IN, Failure, class_named, classify, trace_of
from tidemill.connect.loader import Plugins, UnknownPlugin
from tidemill.connect.unsupported import CannotRun
from tidemill.core import errors
from tidemill.core.config import ConfigError
from tidemill.core.error_code import ErrorCode


def code_of(name: str) -> int:
    """The number of an error as confluent-kafka names it."""
    return int(getattr(confluent_kafka.KafkaError, name))


def of_client(error: str | int) -> confluent_kafka.KafkaException:
    """As confluent-kafka raises it."""
    code = error if isinstance(error, int) else code_of(error)
    return confluent_kafka.KafkaException(confluent_kafka.KafkaError(code))


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (RetryAfter(1, "busy"), Failure.TRANSIENT),
        (NotConnected("away"), Failure.TRANSIENT),
        (ConnectionResetError(errno.ECONNRESET, "reset"), Failure.TRANSIENT),
        (TimeoutError("slow"), Failure.TRANSIENT),
        (OSError(errno.EHOSTUNREACH, "no route"), Failure.TRANSIENT),
        (socket.gaierror(socket.EAI_AGAIN, "temporary failure in name resolution"), Failure.TRANSIENT),
        (errors.NotLeaderOrFollower(), Failure.TRANSIENT),
        (of_client("_TRANSPORT"), Failure.TRANSIENT),
        (of_client("NOT_ENOUGH_REPLICAS"), Failure.TRANSIENT),
        (Fatal("make room"), Failure.CONFIGURATION),
        (InvalidConfig("port", "is bad"), Failure.CONFIGURATION),
        (ConfigError("port is bad"), Failure.CONFIGURATION),
        (CannotRun("no such thing"), Failure.CONFIGURATION),
        (PermissionError(errno.EACCES, "denied"), Failure.CONFIGURATION),
        (errors.TopicAuthorizationFailed(), Failure.CONFIGURATION),
        (errors.SaslAuthenticationFailed(), Failure.CONFIGURATION),
        (of_client("_AUTHENTICATION"), Failure.CONFIGURATION),
        (of_client("GROUP_AUTHORIZATION_FAILED"), Failure.CONFIGURATION),
        (Poison("row 7"), Failure.POISON),
        (PartialFailure({0: ValueError("row 7")}), Failure.POISON),
        (PartialFailure({0: RetryAfter(1, "locked"), 3: NotConnected("away")}), Failure.TRANSIENT),
        (PartialFailure({0: RetryAfter(1, "locked"), 3: ValueError("row 7")}), Failure.POISON),
        (PartialFailure({}), Failure.POISON),
        (errors.MessageTooLarge(), Failure.POISON),
        (of_client("MSG_SIZE_TOO_LARGE"), Failure.POISON),
        (of_client("INVALID_RECORD"), Failure.POISON),
        (of_client("_INVALID_ARG"), Failure.BUG),
        (errors.UnknownServerError(), Failure.BUG),
        (EndOfInput(), Failure.BUG),
        (ValueError("no"), Failure.BUG),
        (FileNotFoundError(errno.ENOENT, "gone"), Failure.BUG),
        (socket.gaierror(socket.EAI_NONAME, "name or service not known"), Failure.BUG),
        (SystemExit(0), Failure.BUG),
        (ZeroDivisionError(), Failure.BUG),
    ],
    ids=repr,
)
def test_what_would_help(error: BaseException, failure: Failure) -> None:
    assert classify(error) is failure


def test_a_plugin_that_is_not_installed_is_a_matter_of_configuration() -> None:
    with pytest.raises(UnknownPlugin) as caught:
        Plugins([]).find("X")
    assert classify(caught.value) is Failure.CONFIGURATION
    assert trace_of(caught.value).startswith("Failed to find any class")


def test_what_it_was_raised_from_does_not_count() -> None:
    """A plugin that wraps what happened to it has said what it means, or has not thought of it."""
    wrapped = ValueError("of all things")
    wrapped.__cause__ = ConnectionResetError()
    assert classify(wrapped) is Failure.BUG
    stopped = Fatal("give the user the right to read")
    stopped.__cause__ = TimeoutError()
    assert classify(stopped) is Failure.CONFIGURATION


def test_a_group_is_what_all_of_it_is() -> None:
    """So do plugins fail whose work is asyncio's, be it a single task."""
    away, reset = NotConnected("away"), ConnectionResetError()
    assert classify(ExceptionGroup("tasks", [away, ExceptionGroup("more", [reset])])) is Failure.TRANSIENT
    assert classify(ExceptionGroup("tasks", [Fatal("make room")])) is Failure.CONFIGURATION
    assert classify(ExceptionGroup("tasks", [away, ValueError()])) is Failure.BUG
    assert classify(BaseExceptionGroup("tasks", [SystemExit(0)])) is Failure.BUG


def test_the_numbers_are_librdkafkas() -> None:
    away = ("_TRANSPORT", "_RESOLVE", "_MSG_TIMED_OUT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_WAIT_COORD")
    assert {code_of(name) for name in (*away, "_TIMED_OUT_QUEUE")} == AWAY
    assert code_of("_AUTHENTICATION") == NOT_LET_IN


def test_the_number_of_names_that_nobody_can_tell_is_linuxs() -> None:
    assert EAI_AGAIN == socket.EAI_AGAIN


def every_class(parent: type[BaseException]) -> Iterator[type[BaseException]]:
    for each in parent.__subclasses__():
        yield each
        yield from every_class(each)


@given(st.sampled_from([code for code in ErrorCode if code > 0]))
def test_both_clients_errors_have_the_class_of_their_code(code: ErrorCode) -> None:
    ours = errors.error_for_code(code)
    assert classify(of_client(int(code))) is classify(ours)
    if ours.retriable:
        assert classify(ours) is Failure.TRANSIENT


@given(st.one_of(st.integers(), st.text(), st.binary(), st.none()), st.sampled_from(list(every_class(Exception))))
def test_whatever_is_raised_has_a_class_and_never_that_of_a_kill(argument: object, kind: type[BaseException]) -> None:
    try:
        error = kind(argument)
    except Exception:
        return  # it takes other arguments
    assert classify(error) in set(Failure) - {Failure.KILLED}


class Strange(Exception):
    """Its argument looks like the client's error and is none."""


def test_a_stranger_with_a_code_is_a_bug() -> None:
    kind = type("KafkaError", (), {"code": 7})
    assert classify(Strange(kind())) is Failure.BUG


class Unfit:
    """Its code is not to be had."""

    @property
    def code(self) -> int:
        raise RuntimeError("not connected")


def test_nothing_is_asked_of_what_is_not_the_clients() -> None:
    assert classify(Strange(Unfit())) is Failure.BUG


def test_a_class_goes_by_its_name_between_processes() -> None:
    assert all(class_named(each.value) is each for each in Failure)
    assert class_named("of a later version") is Failure.BUG


def test_a_trace_is_for_bugs_and_a_sentence_for_people() -> None:
    assert trace_of(Fatal("make room")) == "make room"
    assert trace_of(InvalidConfig("port", "is bad.", "Use 1.")) == "is bad. Use 1."
    speechless = type("Speechless", (Fatal,), {"__str__": lambda self: 1 / 0})
    assert "Speechless" in trace_of(speechless())
    with pytest.raises(KeyError) as caught:
        raise KeyError("x")
    assert "test_failure.py" in trace_of(caught.value)


class Settings(BaseModel):
    port: int


def test_a_model_that_refuses_a_record_is_no_setting() -> None:
    """pydantic speaks of settings only where settings are read, which says so itself."""
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"port": "x"})
    assert classify(caught.value) is Failure.BUG
