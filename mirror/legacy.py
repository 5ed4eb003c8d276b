"""Message sets of the old formats, magic 0 and 1

Topics written before Kafka 0.11 may still hold them; a modern target takes only v2 batches, so they are read here and
rebuilt. One entry is

    offset INT64, size INT32, CRC-32 UINT32, magic INT8, attributes INT8, [timestamp INT64 if magic 1], key, value

with INT32-sized nullable bytes. A compressed entry's value is itself a message set. Its offset is that of its last
inner message; inner offsets are absolute in magic 0 and count from 0 in magic 1. Attribute bits 0-2 are the codec,
bit 3 says that the wrapper's timestamp is the append time of all.
"""

import struct
import zlib

from tidemill.core.records.compression import decompress
from tidemill.core.records.record import Record

_ENTRY = struct.Struct(">qiIbb")
_PREFIX_BYTES = 12  # offset and size, not counted by size
_CODEC_BITS = 0x07
_APPEND_TIME = 0x08
_NO_TIMESTAMP = -1
INNER_BYTES_MAX = 64 * 1024 * 1024  # far beyond message.max.bytes of any broker of that time


class OldMessageView:
    """One entry of a message set, as `tidemill.core.records.batch.BatchView` is one of a batch."""

    __slots__ = ("base_offset", "buffer", "codec", "magic", "offset", "size_bytes")

    def __init__(self, buffer: memoryview, offset: int) -> None:
        self.buffer = buffer
        self.offset = offset
        self.base_offset, size = struct.unpack_from(">qi", buffer, offset)
        self.magic: int = buffer[offset + 16]
        self.codec = "none"  # the records are rebuilt uncompressed
        self.size_bytes = size + _PREFIX_BYTES
        if size < _ENTRY.size - _PREFIX_BYTES:
            raise ValueError(f"message of {size} bytes at offset {self.base_offset}")

    @property
    def last_offset(self) -> int:
        """A compressed entry carries the offset of its last message."""
        return int(self.base_offset)

    def message_bytes(self) -> memoryview:
        """The whole entry."""
        return self.buffer[self.offset : self.offset + self.size_bytes]


def decode_message_set(data: bytes | memoryview) -> list[Record]:
    """Records of a message set, nested compression undone; raises ValueError for anything malformed."""
    return _decode(memoryview(data), nested=False)


def _decode(data: memoryview, nested: bool) -> list[Record]:
    records: list[Record] = []
    at = 0
    while at < len(data):
        if at + _ENTRY.size > len(data):
            raise ValueError("message set is cut short")
        offset, size, crc, magic, attributes = _ENTRY.unpack_from(data, at)
        end = at + _PREFIX_BYTES + size
        if magic not in (0, 1) or size < _ENTRY.size - _PREFIX_BYTES or end > len(data):
            raise ValueError(f"message of {size} bytes with magic {magic} does not fit its set")
        if zlib.crc32(data[at + 16 : end]) != crc:
            raise ValueError("its checksum is wrong")
        records.extend(_message(data[at + _ENTRY.size : end], offset, magic, attributes, nested))
        at = end
    return records


def _message(body: memoryview, offset: int, magic: int, attributes: int, nested: bool) -> list[Record]:
    timestamp = _NO_TIMESTAMP
    if magic == 1:
        if len(body) < 8:
            raise ValueError("message is cut short")
        timestamp = int.from_bytes(body[:8], "big", signed=True)
        body = body[8:]
    key, body = _bytes(body)
    value, rest = _bytes(body)
    if len(rest):
        raise ValueError(f"{len(rest)} bytes behind the message")
    codec = attributes & _CODEC_BITS
    if not codec:
        return [Record(offset=offset, timestamp=timestamp, key=key, value=value, headers=())]
    if nested or value is None or codec not in (1, 2, 3):
        raise ValueError(f"message with codec {codec} cannot hold a message set")
    inner = _decode(memoryview(decompress(codec, value, INNER_BYTES_MAX)), nested=True)
    if not inner:
        raise ValueError("compressed message is empty")
    shift = offset - inner[-1].offset if magic == 1 else 0
    append_time = timestamp if magic == 1 and attributes & _APPEND_TIME else None
    return [
        record._replace(
            offset=record.offset + shift, timestamp=record.timestamp if append_time is None else append_time
        )
        for record in inner
    ]


def _bytes(body: memoryview) -> tuple[bytes | None, memoryview]:
    if len(body) < 4:
        raise ValueError("message is cut short")
    size = int.from_bytes(body[:4], "big", signed=True)
    if size == -1:
        return None, body[4:]
    if not 0 <= size <= len(body) - 4:
        raise ValueError(f"field of {size} bytes does not fit its message")
    return bytes(body[4 : 4 + size]), body[4 + size :]
