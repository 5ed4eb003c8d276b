"""Messages on a stream: four bytes of length, then the message

The stream between a worker and a task is a pair of sockets that nobody else can reach, so there is nothing to be
addressed, compressed or proved; a client library would cost every task threads and megabytes for that.
"""

import struct
from collections.abc import Iterator
from typing import Protocol

MESSAGE_BYTES_MAX = (
    64 << 20
)  # a configuration may hold whole certificates and schemas, and no more than the REST API takes
_LENGTH = struct.Struct(">I")


class FrameError(ValueError):
    """What comes is no message of ours."""


class Serializable(Protocol):
    """A message of protobuf."""

    def SerializeToString(self) -> bytes: ...


def frame(message: Serializable) -> bytes:
    """A message as it goes over the stream; raises FrameError when it is too large for it."""
    data = message.SerializeToString()
    if len(data) > MESSAGE_BYTES_MAX:
        raise FrameError(f"a message of {len(data)} bytes, of {MESSAGE_BYTES_MAX} at most")
    return _LENGTH.pack(len(data)) + data


class FrameReader:
    """Messages out of bytes, however they were cut."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def take(self, data: bytes) -> Iterator[bytes]:
        """Yield the messages that are complete; raises FrameError."""
        rest = self._rest
        rest += data
        while len(rest) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(rest)
            if length > MESSAGE_BYTES_MAX:
                raise FrameError(f"a message of {length} bytes, of {MESSAGE_BYTES_MAX} at most")
            end = _LENGTH.size + length
            if len(rest) < end:
                return
            message = bytes(rest[_LENGTH.size : end])
            del rest[:end]
            yield message
