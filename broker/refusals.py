"""Why a request is refused before anybody has looked at what it asks for

Such a request ends its connection, since no answer would be understood. For most of them Kafka has an error code, under
which they are counted with the errors of their API where that can be told.
"""

import enum
from collections.abc import Mapping
from typing import Final

from tidemill.core.error_code import ErrorCode


class Refusal(enum.StrEnum):
    """The reasons there are."""

    SIZE = "size"
    """Larger than `socket.request.max.bytes`, or no size at all; what it asks for has not been read."""

    TOO_SLOW = "too_slow"
    """A large request that takes too long to arrive while others wait for its memory."""

    UNKNOWN_API = "unknown_api"
    UNSUPPORTED_VERSION = "unsupported_version"
    MALFORMED = "malformed"
    """A header or a body that ends early or says what cannot be."""

    NOT_LOGGED_IN = "not_logged_in"
    """Anything that is asked for before it is known who asks."""


CODES: Final[Mapping[Refusal, ErrorCode]] = {
    Refusal.UNKNOWN_API: ErrorCode.INVALID_REQUEST,
    Refusal.UNSUPPORTED_VERSION: ErrorCode.UNSUPPORTED_VERSION,
    Refusal.MALFORMED: ErrorCode.INVALID_REQUEST,
    Refusal.NOT_LOGGED_IN: ErrorCode.ILLEGAL_SASL_STATE,
}
"""What Kafka would answer, if it did; of requests that have been read."""
