"""Messages on a pipe: their length as a varint, then the message

This is how protobuf libraries write delimited messages, so that a plugin in another language mostly has it already.
"""

from collections.abc import Iterator

MESSAGE_BYTES_MAX = 64 << 20
"""Sixty times what a topic takes by default as its largest record; one message is in memory as a whole."""

LENGTH_BYTES_MAX = 4
"""Of a length: enough for twice the largest message."""

SHOWN_BYTES = 120
"""Of what is no message, quoted so that people know their own print statement again."""


class FrameError(ValueError):
    """What comes is no message, or is too large for one."""


def frame(data: bytes) -> bytes:
    """A message as it goes over the pipe; raises FrameError when it is too large.

    >>> frame(b"x" * 300)[:2].hex()
    'ac02'
    """
    if len(data) > MESSAGE_BYTES_MAX:
        raise FrameError(f"a message of {len(data)} bytes, of {MESSAGE_BYTES_MAX} at most")
    length, head = len(data), bytearray()
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + data


class FrameReader:
    """Messages out of bytes, however they were cut."""

    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def pending(self) -> bytes:
        """The beginning of what has come of a message that is not complete."""
        return bytes(self._rest[:SHOWN_BYTES])

    def take(self, data: bytes) -> Iterator[bytes]:
        """Yield the messages that are complete; raises FrameError."""
        self._rest += data
        while (place := self._next()) is not None:
            begin, end = place
            message = bytes(memoryview(self._rest)[begin:end])
            del self._rest[:end]
            yield message

    def _next(self) -> tuple[int, int] | None:
        """Where the first message begins and ends, once it is there as a whole."""
        length = 0
        for index, byte in enumerate(self._rest[: LENGTH_BYTES_MAX + 1]):
            if index == LENGTH_BYTES_MAX:
                raise FrameError(f"a length of more than {LENGTH_BYTES_MAX} bytes: {shown(self.pending)}")
            length |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                break
        else:
            return None
        if length > MESSAGE_BYTES_MAX:
            raise FrameError(f"a message of {length} bytes, of {MESSAGE_BYTES_MAX} at most: {shown(self.pending)}")
        begin, end = index + 1, index + 1 + length
        return None if len(self._rest) < end else (begin, end)


def shown(data: bytes) -> str:
    """Bytes as people may know them again: text as text, the rest escaped.

    >>> shown(b"hello\\n\\xff")
    "it begins with 'hello\\\\n\\\\xff'"
    """
    return f"it begins with {repr(data[:SHOWN_BYTES])[1:]}"
