"""Ids as text, the way Kafka's files and tools write them

The 16 bytes in URL-safe base64, without padding.
"""

import base64
import binascii
import uuid


def encode_id(value: uuid.UUID) -> str:
    """An id as text."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_id(text: str) -> uuid.UUID:
    """The id behind its text; raises ValueError."""
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not an id") from error
