"""Frames, request headers and response headers

On the wire every message is a 4-byte size followed by a header and a body. `FrameReader` cuts a byte stream into
frames, however the bytes arrive; its buffer grows with what was received, never with what a size prefix promises, and a
prefix above the limit is refused before its body is read. The flexible request header keeps the client id as a plain
string (only tags follow it), and the ApiVersions response header has no tags in any version.

Not here: sockets, timeouts, matching responses to requests in flight.
"""

import struct
from typing import NamedTuple

from .api import ALL_APIS, ApiKey, api
from .codec import DecodeError, decode_exact, encode_into
from .message import Buffer, Message
from .primitives import fail_length, skip_tags

FRAME_BYTES_MAX = 100 * 1024 * 1024  # socket.request.max.bytes of Kafka
_SIZE = struct.Struct(">i")
_REQUEST_HEADER = struct.Struct(">hhih")
_RESPONSE_HEADER = struct.Struct(">ii")
_NEVER = 1 << 15
_FLEXIBLE_REQUEST_FROM: dict[int, int] = {entry.key: entry.flexible_from for entry in ALL_APIS}
_FLEXIBLE_RESPONSE_FROM = {**_FLEXIBLE_REQUEST_FROM, ApiKey.API_VERSIONS: _NEVER}


class FrameTooLarge(DecodeError):
    """A size prefix above the limit."""


class RequestHeader(NamedTuple):
    """What precedes every request body."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


_new_header = tuple.__new__  # twice as fast as the NamedTuple's own constructor, once per request


class FrameReader:
    """Cuts a byte stream into frames."""

    def __init__(self, max_frame_bytes: int = FRAME_BYTES_MAX) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()
        self._wanted = 4  # bytes the buffer must hold before parsing it again can yield anything

    @property
    def buffered_bytes(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Take received bytes and return the frames they complete, without size prefix."""
        self._buffer += data
        if len(self._buffer) < self._wanted:
            return []
        frames: list[bytes] = []
        start = 0
        with memoryview(self._buffer) as view:
            available = len(view)
            while True:
                self._wanted = 4
                if available - start < 4:
                    break
                size: int = _SIZE.unpack_from(view, start)[0]
                if size < 0:
                    raise DecodeError(f"frame size {size} is negative")
                if size > self.max_frame_bytes:
                    raise FrameTooLarge(f"frame of {size} bytes; the limit is {self.max_frame_bytes}")
                end = start + 4 + size
                if end > available:
                    self._wanted = 4 + size
                    break
                frames.append(bytes(view[start + 4 : end]))
                start = end
        if start:
            del self._buffer[:start]
        return frames


def decode_request_header(frame: bytes | bytearray | memoryview) -> tuple[RequestHeader, int]:
    """Read a request header; return it and the offset of the body.

    For a key we have no schema for, the header is read up to the client id and the offset points behind that.
    """
    try:
        key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame, 0)
        offset = _REQUEST_HEADER.size
        end = len(frame)
        if length < 0:
            client_id = None
        else:
            if length > end - offset:
                fail_length(length, offset, end)
            client_id = str(frame[offset : offset + length], "utf-8")
            offset += length
        if version >= _FLEXIBLE_REQUEST_FROM.get(key, _NEVER):
            buffer = frame if isinstance(frame, bytes) else memoryview(frame)
            count = buffer[offset]
            offset += 1
            if count:
                offset = skip_tags(buffer, offset, count, end)
    except DecodeError as error:
        raise DecodeError(f"request header: {error}") from error
    except (struct.error, IndexError) as error:
        raise DecodeError("request header: the bytes end inside it") from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"request header: the client id is not UTF-8: {error.reason}") from error
    return _new_header(RequestHeader, (key, version, correlation_id, client_id)), offset


def encode_request_chunks(
    key: int, version: int, correlation_id: int, client_id: str | None, message: Message
) -> list[Buffer]:
    """Return a request with size prefix and header, records uncopied."""
    name = b"" if client_id is None else client_id.encode()
    out = bytearray(4)
    out += _REQUEST_HEADER.pack(key, version, correlation_id, -1 if client_id is None else len(name))
    out += name
    if version >= _FLEXIBLE_REQUEST_FROM[key]:
        out.append(0)
    return _framed(encode_into(out, message, version), out)


def encode_request(key: int, version: int, correlation_id: int, client_id: str | None, message: Message) -> bytes:
    """Return a request with size prefix and header as one bytes object."""
    return b"".join(encode_request_chunks(key, version, correlation_id, client_id, message))


def encode_response(key: int, version: int, correlation_id: int, message: Message) -> list[Buffer]:
    """Return a response with size prefix and header, records uncopied."""
    out = bytearray(_RESPONSE_HEADER.pack(0, correlation_id))
    if version >= _FLEXIBLE_RESPONSE_FROM[key]:
        out.append(0)
    return _framed(encode_into(out, message, version), out)


def _framed(chunks: list[bytearray | Buffer], out: bytearray) -> list[Buffer]:
    """Fill in the size, for which `out` (the first chunk) has room, and freeze the chunks."""
    size = -4
    for chunk in chunks:
        size += len(chunk)
    _SIZE.pack_into(out, 0, size)
    return [bytes(chunk) if isinstance(chunk, bytearray) else chunk for chunk in chunks]


def response_correlation_id(frame: bytes | bytearray | memoryview) -> int:
    """Return the correlation id a response frame starts with."""
    if len(frame) < 4:
        raise DecodeError("response header: the bytes end inside it")
    correlation_id: int = _SIZE.unpack_from(frame, 0)[0]
    return correlation_id


def decode_response(key: int, version: int, frame: bytes | bytearray | memoryview) -> tuple[int, Message]:
    """Read a response frame (without size prefix): correlation id and message."""
    correlation_id = response_correlation_id(frame)
    offset = 4
    if version >= _FLEXIBLE_RESPONSE_FROM[key]:
        buffer = frame if isinstance(frame, bytes) else memoryview(frame)
        try:
            count = buffer[offset]
            offset += 1
            if count:
                offset = skip_tags(buffer, offset, count, len(buffer))
        except IndexError as error:
            raise DecodeError("response header: the bytes end inside it") from error
    return correlation_id, decode_exact(api(key).response, version, frame, offset)
