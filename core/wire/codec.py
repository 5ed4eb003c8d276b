"""Messages to bytes and back, by (message, version)

The work is done by functions compiled from the schema when a message is first read or written (`compiled`); this module
finds them. It turns every failure of malformed input into `DecodeError`, so that a caller has one exception to expect
whatever a peer sends. Decoding takes bytes, bytearray or memoryview; `records` fields come back as
memoryview slices of the input, strings and byte fields as copies. Encoding into chunks passes `records` through
uncopied.
"""

import struct
from typing import TypeVar

from .message import Buffer, Message, Reader, Writer
from .primitives import DecodeError, EncodeError

__all__ = [
    "DecodeError",
    "EncodeError",
    "UnsupportedVersionError",
    "decode",
    "decode_exact",
    "encode",
    "encode_chunks",
    "encode_into",
]

MessageT = TypeVar("MessageT", bound=Message)


class UnsupportedVersionError(DecodeError):
    """A version outside the window of the message."""


def _find_reader(cls: type[Message], version: int) -> Reader:
    from .compiled import compile_reader  # a process that has spoken to nobody needs no compiler

    reader = compile_reader(cls, version)
    if reader is None:
        raise UnsupportedVersionError(f"{cls.__name__} has no version {version}")
    return reader


def _find_writer(cls: type[Message], version: int) -> Writer:
    from .compiled import compile_writer

    writer = compile_writer(cls, version)
    if writer is None:
        raise EncodeError(f"{cls.__name__} has no version {version}")
    return writer


def decode(
    cls: type[MessageT], version: int, buffer: bytes | bytearray | memoryview, offset: int = 0
) -> tuple[MessageT, int]:
    """Decode one message from `buffer` at `offset`; return it and the offset behind it."""
    reader = cls.READERS.get(version) or _find_reader(cls, version)
    if isinstance(buffer, bytearray):
        buffer = memoryview(buffer)
    try:
        return reader(buffer, offset)
    except _MALFORMED as error:
        raise _refusal(cls, version, error) from error


def decode_exact(
    cls: type[MessageT], version: int, buffer: bytes | bytearray | memoryview, offset: int = 0
) -> MessageT:
    """Decode one message that must fill `buffer` from `offset` to its end."""
    reader = cls.READERS.get(version) or _find_reader(cls, version)
    if isinstance(buffer, bytearray):
        buffer = memoryview(buffer)
    message: MessageT
    try:
        message, end = reader(buffer, offset)
    except _MALFORMED as error:
        raise _refusal(cls, version, error) from error
    if end != len(buffer):
        raise DecodeError(f"{cls.__name__} v{version}: {len(buffer) - end} bytes behind the message")
    return message


_MALFORMED = (DecodeError, struct.error, IndexError, UnicodeDecodeError)
"""What a reader fails with, whatever the bytes are."""


def _refusal(cls: type[Message], version: int, error: Exception) -> DecodeError:
    if isinstance(error, DecodeError):
        reason = str(error)
    elif isinstance(error, UnicodeDecodeError):
        reason = f"a string is not UTF-8: {error.reason}"
    else:
        reason = "the bytes end inside the message"
    return DecodeError(f"{cls.__name__} v{version}: {reason}")


def encode_into(out: bytearray, message: Message, version: int) -> list[bytearray | Buffer]:
    """Append `message` to `out` and return all chunks in order; unless empty, `out` itself is the first."""
    writer = message.WRITERS.get(version) or _find_writer(type(message), version)
    chunks: list[bytearray | Buffer] = []
    try:
        tail = writer(message, out, chunks)
    except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
        raise EncodeError(f"{type(message).__name__} v{version}: {error}") from error
    if tail:
        chunks.append(tail)
    return chunks


def encode_chunks(message: Message, version: int) -> list[Buffer]:
    """Encode `message`; each non-empty `records` field is a chunk of its own, not copied."""
    return [bytes(chunk) if isinstance(chunk, bytearray) else chunk for chunk in _chunks(message, version)]


def encode(message: Message, version: int) -> bytes:
    """Encode `message` into one bytes object."""
    return b"".join(_chunks(message, version))


def _chunks(message: Message, version: int) -> list[bytearray | Buffer]:
    return encode_into(bytearray(), message, version)
