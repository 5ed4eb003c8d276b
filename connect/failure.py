"""The classes of failures: why a connector or task ended, in one word

Whoever looks at what has failed wants to know first what would help: to wait, to change a setting or a right, to look
at a record, or at the code. `classify` says it of an exception, and nothing else does: the process of a task asks it of
what its plugin raised, the worker of what kept it from starting one. That a process was killed only the kernel knows.

    transient       it may pass by itself: who asks for patience, a connection, what Kafka calls retriable
    configuration   somebody has to change something first: a setting, a right, or what a `Fatal` says
    poison          a record stands in the way that cannot be processed and may not be left out
    killed          by a signal, for want of memory, or because it hung
    bug             anything else; the trace says where

What a control error says is believed. Of others the type decides, not what it was raised from: a plugin that knows
better says so with a control error. A group of exceptions is what all of it is. Records that were refused are poison
unless each of them was refused for a reason that may pass.
"""

import contextlib
import enum
import errno
import traceback
from typing import Final

from tidemill.connect.api import Fatal, InvalidConfig, NotConnected, PartialFailure, Poison, RetryAfter
from tidemill.core.config import ConfigError
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError, error_for_code


class Failure(enum.StrEnum):
    """What would help."""

    KILLED = "killed"
    TRANSIENT = "transient"
    CONFIGURATION = "configuration"
    POISON = "poison"
    BUG = "bug"


REFUSED_RECORDS: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
    }
)
"""What brokers have against records."""

AWAY: Final = frozenset({-195, -193, -192, -187, -185, -180, -166})
"""librdkafka's own words for a cluster that does not answer: _TRANSPORT, _RESOLVE, _MSG_TIMED_OUT, _ALL_BROKERS_DOWN,
_TIMED_OUT, _WAIT_COORD, _TIMED_OUT_QUEUE."""

NOT_LET_IN: Final = -169
"""librdkafka's _AUTHENTICATION."""

EAI_AGAIN: Final = -3
"""Of Linux, in a socket.gaierror: nobody who knows names answers."""

WAY_IS_CUT: Final = frozenset({errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, EAI_AGAIN})
"""Of the system's errors, those of networks that have no class of their own in Python."""


def classify(error: BaseException) -> Failure:
    """The class of what was raised."""
    match error:
        case Poison():
            return Failure.POISON
        case PartialFailure(errors=refused):
            passes = refused and all(classify(each) is Failure.TRANSIENT for each in refused.values())
            return Failure.TRANSIENT if passes else Failure.POISON
        case NotConnected() | RetryAfter():
            return Failure.TRANSIENT
        case Fatal() | InvalidConfig() | ConfigError() | PermissionError():
            return Failure.CONFIGURATION
        case KafkaError():
            return _of_cluster(error)
        case ConnectionError() | TimeoutError():
            return Failure.TRANSIENT
        case OSError(errno=number) if number in WAY_IS_CUT:
            return Failure.TRANSIENT
        case BaseExceptionGroup(exceptions=inner):
            classes = {classify(each) for each in inner}
            return classes.pop() if len(classes) == 1 else Failure.BUG
    return _of_librdkafka(error)


def _of_cluster(error: KafkaError) -> Failure:
    if error.retriable:
        return Failure.TRANSIENT
    if error.code in REFUSED_RECORDS:
        return Failure.POISON
    return Failure.CONFIGURATION if error.permanent else Failure.BUG


def _of_librdkafka(error: BaseException) -> Failure:
    """By the code in an exception of confluent-kafka, which is not imported for this: many tasks do without it."""
    inner = error.args[0] if error.args else None
    ask = getattr(inner, "code", None) if type(inner).__name__ == "KafkaError" else None
    if not callable(ask):
        return Failure.BUG
    code = int(ask())
    if code in AWAY:
        return Failure.TRANSIENT
    if code == NOT_LET_IN:
        return Failure.CONFIGURATION
    return _of_cluster(error_for_code(code)) if code > 0 else Failure.BUG


def class_named(name: str) -> Failure:
    """The class as another process has named it; a name that nobody knows is a bug's.

    >>> class_named("poison"), class_named("")
    (<Failure.POISON: 'poison'>, <Failure.BUG: 'bug'>)
    """
    return next((each for each in Failure if each.value == name), Failure.BUG)


def trace_of(error: BaseException) -> str:
    """What a status tells of what was raised: the sentence if it was written for people, else all that is known."""
    if isinstance(error, Fatal | InvalidConfig):
        with contextlib.suppress(Exception):  # a plugin's own may be unable to say
            return str(error)  # the stack would only hide it
    return "".join(traceback.format_exception(error))
