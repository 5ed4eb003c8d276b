"""Byte-level pieces that the generated codecs share

The generated functions read fixed-size runs with precompiled `struct.Struct` objects and slice strings in place; what
is left for this module is the rare or variable part: the tail of a varint, skipping unknown tagged fields, arrays of
fixed-size numbers, UUIDs with a cache (topic ids repeat in every request).

Rule: a length that came from the peer is compared with the bytes that are really there before anything is sliced or
allocated. Readers take `(buffer, offset)` and return `(value, offset)`; a read past the end raises `IndexError` or
`struct.error`, which `tidemill.core.wire.codec` turns into `DecodeError`.
"""

import struct
import uuid
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

VARINT_BYTES_MAX = 5  # 32 bits, seven per byte
UUID_CACHE_ENTRIES = 8192  # topic ids of a large cluster; a client that sends random ids only loses the cache hit


class DecodeError(ValueError):
    """Bytes from a peer that do not form the message they claim to be."""


class EncodeError(ValueError):
    """A message whose values do not fit the wire format of the chosen version."""


def fail_length(length: int, offset: int, end: int) -> NoReturn:
    """Raise for a length that is negative where null is not allowed, or larger than what is left."""
    if length < 0:
        raise DecodeError(f"null at byte {offset}, where the field may not be null")
    raise DecodeError(f"length {length} at byte {offset}, but only {end - offset} bytes are left")


def fail_tag(tag: int, offset: int, tag_end: int) -> NoReturn:
    """Raise for a tagged field whose content does not fill the size it announced."""
    raise DecodeError(f"tagged field {tag} ends at byte {offset}, its size says {tag_end}")


def uvarint_tail(buffer: bytes | memoryview, offset: int, first: int) -> tuple[int, int]:
    """Finish an unsigned varint whose `first` byte (continuation bit set) has been read."""
    value = first & 0x7F
    shift = 7
    while True:
        byte = buffer[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise DecodeError(f"varint before byte {offset} does not fit 32 bits")
            return value, offset
        shift += 7
        if shift >= 7 * VARINT_BYTES_MAX:
            raise DecodeError(f"varint before byte {offset} is longer than {VARINT_BYTES_MAX} bytes")


def read_uvarint(buffer: bytes | memoryview, offset: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits."""
    first = buffer[offset]
    if first < 0x80:
        return first, offset + 1
    return uvarint_tail(buffer, offset + 1, first)


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(buffer: bytes | memoryview, offset: int, count: int, end: int) -> int:
    """Pass over a tag section whose first count byte has been read; return the offset behind it."""
    if count > 0x7F:
        count, offset = uvarint_tail(buffer, offset, count)
    for _ in range(count):
        _tag, offset = read_uvarint(buffer, offset)
        size, offset = read_uvarint(buffer, offset)
        if size > end - offset:
            fail_length(size, offset, end)
        offset += size
    return offset


@lru_cache(maxsize=UUID_CACHE_ENTRIES)
def uuid_from_bytes(raw: bytes) -> uuid.UUID:
    """Build the UUID of 16 bytes; equal bytes give the same object while it is cached."""
    return uuid.UUID(bytes=raw)


@lru_cache(maxsize=256)
def array_reader(code: str, count: int) -> Callable[[bytes | memoryview, int], tuple[Any, ...]]:
    """Return `unpack_from` for `count` big-endian numbers of struct type `code`."""
    return struct.Struct(f">{count}{code}").unpack_from


@lru_cache(maxsize=256)
def array_writer(code: str, count: int) -> Callable[..., bytes]:
    """Return `pack` for `count` big-endian numbers of struct type `code`."""
    return struct.Struct(f">{count}{code}").pack
