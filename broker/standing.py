"""Standing: what a connection may ask before anybody knows whose it is

Where clients log in, a connection belongs to nobody until they have. Until then it may find out which versions are
spoken and say who it is, as in Kafka; whatever else it sends ends it. At listeners where the certificate says who a
client is, or where nobody asks, its standing is known from the first byte.
"""

import enum
from typing import Final

from tidemill.core.wire.api import ApiKey


class Standing(enum.Enum):
    """Whether it is known who is at the other end of a connection."""

    UNKNOWN = "nobody has logged in yet"
    KNOWN = "the principal is who it says"

    def may_ask(self, api_key: int) -> bool:
        """Whether a request with that key may be served."""
        return self is Standing.KNOWN or api_key in ASKED_BY_ANYBODY


ASKED_BY_ANYBODY: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
