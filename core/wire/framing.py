"""Request headers and response headers, with the size prefix before them

On the wire every message is a 4-byte size followed by a header and a body. The flexible request header keeps the client
id as a plain string (only tags follow it), and the ApiVersions response header has no tags in any version.

Not here: sockets; cutting a stream into frames, which the broker does in place (its `input_buffer`) and a client into
buffers of their own (`tidemill.core.runtime.net`); matching responses to requests in flight.
"""

import struct
from typing import NamedTuple

from tidemill.core.types import new_tuple

from .api import ALL_APIS, ApiKey, response_of
from .codec import DecodeError, decode_exact, encode_into
from .message import Buffer, Message
from .primitives import fail_length, skip_tags

_SIZE = struct.Struct(">i")
_REQUEST_HEADER = struct.Struct(">hhih")
_RESPONSE_HEADER = struct.Struct(">ii")
_NEVER = 1 << 15
_FLEXIBLE_REQUEST_FROM: dict[int, int] = {entry.key: entry.flexible_from for entry in ALL_APIS}
_FLEXIBLE_RESPONSE_FROM = {**_FLEXIBLE_REQUEST_FROM, ApiKey.API_VERSIONS: _NEVER}


class RequestHeader(NamedTuple):
    """What precedes every request body."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


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
            count = frame[offset]
            offset += 1
            if count:
                offset = skip_tags(memoryview(frame), offset, count, end)
    except DecodeError as error:
        raise DecodeError(f"request header: {error}") from error
    except (struct.error, IndexError) as error:
        raise DecodeError("request header: the bytes end inside it") from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"request header: the client id is not UTF-8: {error.reason}") from error
    return new_tuple(RequestHeader, (key, version, correlation_id, client_id)), offset


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
    return response_correlation_id(frame), decode_response_message(key, version, frame)


def decode_response_message(key: int, version: int, frame: bytes | bytearray | memoryview) -> Message:
    """Read the message of a response frame (without size prefix), whose correlation id has been read."""
    buffer = memoryview(frame) if isinstance(frame, bytearray) else frame
    offset = 4
    if version >= _FLEXIBLE_RESPONSE_FROM[key]:
        try:
            count = buffer[offset]
            offset += 1
            if count:
                offset = skip_tags(buffer, offset, count, len(buffer))
        except IndexError as error:
            raise DecodeError("response header: the bytes end inside it") from error
    return decode_exact(response_of(key), version, buffer, offset)
