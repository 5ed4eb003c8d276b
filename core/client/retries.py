"""What to do about a failed request: a table by error class

A lost connection says nothing about the request, only that the picture of the cluster may be old. A protocol error
carries its own answer. Anything else is a bug or bad input and must come through.
"""

import enum

from ..errors import KafkaError, error_for_code
from .connection import ConnectionFailed

BACKOFF_MS = 100
BACKOFF_MAX_MS = 10_000


class Retry(enum.Enum):
    """The three answers."""

    NO = enum.auto()
    AFTER_BACKOFF = enum.auto()
    AFTER_REFRESH = enum.auto()  # back off, then ask who leads what


def retry_of(error: BaseException) -> Retry:
    """Look `error` up."""
    if isinstance(error, ConnectionFailed):
        return Retry.AFTER_REFRESH
    if isinstance(error, KafkaError):
        if error.refresh_metadata:
            return Retry.AFTER_REFRESH
        return Retry.AFTER_BACKOFF if error.retriable else Retry.NO
    return Retry.NO


def fault(code: int, where: str, detail: str | None = None) -> KafkaError:
    """The exception for an error code in an answer, its message saying where it came from."""
    return error_for_code(code, f"{where}: {detail or error_for_code(code)}")


def backoff_ms(failures: int) -> int:
    """How long to wait after that many failures in a row: doubling, bounded.

    >>> [backoff_ms(failures) for failures in (0, 1, 2, 3, 50)]
    [0, 100, 200, 400, 10000]
    """
    return min(BACKOFF_MAX_MS, BACKOFF_MS << min(failures - 1, 20)) if failures else 0
