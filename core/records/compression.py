"""The codec table: none, gzip, snappy, lz4, zstd as Kafka frames them

Snappy is written in the block framing of the xerial library and read in that framing or raw; LZ4 is written as frames
of independent 64 KiB blocks, the only kind Kafka's Java reader follows across blocks, and read in any frame. Output is
bounded: a batch that would grow past `max_bytes` is refused while at most that much memory is in use.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Any

from ..errors import CorruptMessage, MessageTooLarge, UnsupportedCompressionType

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
CODEC_NAMES = {number: name for name, number in CODECS.items()}

_GZIP_LEVEL = 6  # what -1 stands for
_GZIP_WINDOW_BITS = 31  # a gzip wrapper around a 32 KiB window
_GZIP_INPUT_BYTES, _GZIP_OUTPUT_BYTES = 64 * 1024, 2**20  # at a time
_ZSTD_LEVEL = 3
_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)  # magic, version, oldest compatible version
_XERIAL_MAGIC = _XERIAL_HEADER[:8]
_SNAPPY_BLOCK_BYTES = 32 * 1024  # the xerial library's default
_SNAPPY_RATIO_MAX = 64  # a copy element turns three bytes into at most 64; the claim comes from the sender
_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"  # magic; version 1, independent blocks; 64 KiB blocks; header checksum
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_UNCOMPRESSED_BIT = 0x80000000
_OUTPUT_BYTES_MIN = 16 * 1024  # first guess of an output size; doubling beyond it is cheap
_FULL = "whole buffer"  # how cramjam says that the output did not fit
_BLOCK_SIZE = struct.Struct(">i")


def codec_number(codec: str | int) -> int:
    """Number of a codec given by name or number."""
    number = CODECS.get(codec) if isinstance(codec, str) else codec
    if number is None or number not in CODEC_NAMES:
        raise UnsupportedCompressionType(f"unknown compression codec {codec!r}; known are {', '.join(CODECS)}")
    return number


def _cramjam() -> Any:
    """The compression library: 1.6 MB, and a process that hands on batches as they are never needs it."""
    import cramjam

    return cramjam


def compress(codec: str | int, data: bytes | memoryview, level: int | None = None) -> bytes:
    """Compress `data` with `codec`; gzip and zstd have levels (KIP-390), None is their default."""
    number = codec_number(codec)
    if number == 0:
        return bytes(data)
    if number == 1:
        compressor = zlib.compressobj(_GZIP_LEVEL if level in (None, -1) else level, zlib.DEFLATED, _GZIP_WINDOW_BITS)
        return compressor.compress(data) + compressor.flush()
    if number == 2:
        return _compress_snappy(data)
    if number == 3:
        return _compress_lz4(data)
    return bytes(_cramjam().zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))


def decompress(codec: str | int, data: bytes | memoryview, max_bytes: int) -> bytes:
    """Decompress `data`; CorruptMessage if it is damaged, MessageTooLarge if it would exceed `max_bytes`."""
    number = 0 if codec == 0 else codec_number(codec)
    if number == 0:
        if len(data) > max_bytes:
            raise _too_large(number, max_bytes)
        return bytes(data)
    if number == 1:
        return b"".join(_gunzip(data, max_bytes))
    if number == 2:
        return _decompress_snappy(data, max_bytes)
    return _decompress_frames(number, data, max_bytes)


def decompress_into(codec: str | int, data: bytes | memoryview, room: memoryview) -> int:
    """Decompress `data` into `room`, with the same errors; returns how many bytes it is.

    For what may be large: no object of that size is made on the way, and while a codec writes other threads run.
    """
    number = codec_number(codec)
    if number == 1:
        at = 0
        for part in _gunzip(data, len(room)):
            room[at : at + len(part)] = part
            at += len(part)
        return at
    if number == 2:
        return _unsnappy_into(data, room)
    if number == 0:
        if len(data) > len(room):
            raise _too_large(number, len(room))
        room[: len(data)] = data
        return len(data)
    into = _cramjam().lz4.decompress_into if number == 3 else _cramjam().zstd.decompress_into
    try:
        return int(into(data, room))
    except _cramjam().DecompressionError as error:
        raise (_too_large(number, len(room)) if _FULL in str(error) else _corrupt(number, error)) from error


def _too_large(number: int, max_bytes: int) -> MessageTooLarge:
    return MessageTooLarge(f"{CODEC_NAMES[number]} data is larger than {max_bytes} bytes uncompressed")


def _corrupt(number: int, reason: object) -> CorruptMessage:
    return CorruptMessage(f"{CODEC_NAMES[number]} data is damaged: {reason}")


def _compress_snappy(data: bytes | memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _SNAPPY_BLOCK_BYTES):
        block = bytes(_cramjam().snappy.compress_raw(data[start : start + _SNAPPY_BLOCK_BYTES]))
        parts.append(_BLOCK_SIZE.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _compress_lz4(data: bytes | memoryview) -> bytes:
    parts = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        plain = bytes(data[start : start + _LZ4_BLOCK_BYTES])
        block = bytes(_cramjam().lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts.append(len(block).to_bytes(4, "little"))
            parts.append(block)
        else:
            parts.append((len(plain) | _LZ4_UNCOMPRESSED_BIT).to_bytes(4, "little"))
            parts.append(plain)
    parts.append(bytes(4))
    return b"".join(parts)


def _gunzip(data: bytes | memoryview, max_bytes: int) -> Iterator[bytes]:
    """What one or more gzip members hold, in pieces; a member that ends leaves little behind that must be copied."""
    source, begin, room = memoryview(data), 0, max_bytes
    member = zlib.decompressobj(_GZIP_WINDOW_BITS)
    while True:
        piece = source[begin : begin + _GZIP_INPUT_BYTES]
        try:
            part = member.decompress(piece, min(_GZIP_OUTPUT_BYTES, room + 1))
        except zlib.error as error:
            raise _corrupt(1, error) from error
        if len(part) > room:
            raise _too_large(1, max_bytes)
        yield part
        room -= len(part)
        begin += len(piece) - len(member.unconsumed_tail) - len(member.unused_data)
        if member.eof:
            if begin == len(source):
                return
            member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        elif not part and begin == len(source):
            raise _corrupt(1, "it ends too early")


def _decompress_snappy(data: bytes | memoryview, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    room = max_bytes
    for block in _snappy_blocks(data):
        room -= _claimed_size(block, room, max_bytes)
        try:
            parts.append(bytes(_cramjam().snappy.decompress_raw(block)))
        except _cramjam().DecompressionError as error:
            raise _corrupt(2, error) from error
    return b"".join(parts)


def _snappy_blocks(data: bytes | memoryview) -> Iterator[bytes]:
    """The blocks of xerial framing if its magic is there, else the one raw block."""
    if data[:8] != _XERIAL_MAGIC:
        yield bytes(data)
        return
    at = len(_XERIAL_HEADER)
    end = len(data)
    if end < at:
        raise _corrupt(2, "it ends inside the header")
    while at < end:
        if end - at < 4:
            raise _corrupt(2, "it ends inside a block size")
        size: int = _BLOCK_SIZE.unpack_from(data, at)[0]
        at += 4
        if not 0 <= size <= end - at:
            raise _corrupt(2, f"block of {size} bytes, {end - at} are left")
        yield bytes(data[at : at + size])
        at += size


def _claimed_size(block: bytes, room: int, max_bytes: int) -> int:
    """How large a block will be, which it says itself."""
    if not block:
        raise _corrupt(2, "an empty block")
    try:
        claimed: int = _cramjam().snappy.decompress_raw_len(block)
    except _cramjam().DecompressionError as error:
        raise _corrupt(2, error) from error
    if claimed > _SNAPPY_RATIO_MAX * len(block):
        raise _corrupt(2, f"{len(block)} bytes cannot hold {claimed}")
    if claimed > room:
        raise _too_large(2, max_bytes)
    return claimed


def _decompress_frames(number: int, data: bytes | memoryview, max_bytes: int) -> bytes:
    """Read LZ4 or Zstandard frames into a buffer that grows up to the limit."""
    decompress_into = _cramjam().lz4.decompress_into if number == 3 else _cramjam().zstd.decompress_into
    size = min(max(_OUTPUT_BYTES_MIN, 4 * len(data)), max_bytes)
    while True:
        output = bytearray(size)
        try:
            length: int = decompress_into(data, output)
        except _cramjam().DecompressionError as error:
            if _FULL not in str(error):
                raise _corrupt(number, error) from error
            if size >= max_bytes:
                raise _too_large(number, max_bytes) from error
            size = min(4 * size, max_bytes)
            continue
        with memoryview(output) as view:
            return bytes(view[:length])


def _unsnappy_into(data: bytes | memoryview, room: memoryview) -> int:
    at = 0
    for block in _snappy_blocks(data):
        size = _claimed_size(block, len(room) - at, len(room))
        try:
            at += int(_cramjam().snappy.decompress_raw_into(block, room[at : at + size])) if size else 0
        except _cramjam().DecompressionError as error:
            raise _corrupt(2, error) from error
    return at
