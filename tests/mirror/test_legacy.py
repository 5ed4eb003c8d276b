"""Message sets of magic 0 and 1, built by hand from their description."""

import gzip
import struct
import zlib

import pytest

from tidemill.core.records.record import Record
from tidemill.mirror.legacy import OldMessageView, decode_message_set


def field(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message(
    offset: int, key: bytes | None, value: bytes | None, *, magic: int = 1, timestamp: int = 77, attributes: int = 0
) -> bytes:
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    body += field(key) + field(value)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def row(offset: int, timestamp: int, key: bytes | None, value: bytes | None) -> Record:
    return Record(offset=offset, timestamp=timestamp, key=key, value=value, headers=())


def test_plain_messages() -> None:
    data = message(5, b"k", b"v", magic=0) + message(6, None, None)
    assert decode_message_set(data) == [row(5, -1, b"k", b"v"), row(6, 77, None, None)]


def test_compressed_magic_0_has_absolute_inner_offsets() -> None:
    inner = message(10, b"a", b"1", magic=0) + message(12, b"b", b"2", magic=0)
    wrapper = message(12, None, gzip.compress(inner), magic=0, attributes=1)
    assert [record.offset for record in decode_message_set(wrapper)] == [10, 12]


def test_compressed_magic_1_counts_from_the_wrapper() -> None:
    inner = message(0, b"a", b"1") + message(3, b"b", b"2")
    wrapper = message(12, None, gzip.compress(inner), attributes=1, timestamp=99)
    assert decode_message_set(wrapper) == [row(9, 77, b"a", b"1"), row(12, 77, b"b", b"2")]


def test_append_time_is_that_of_the_wrapper() -> None:
    inner = message(0, b"a", b"1") + message(1, b"b", b"2")
    wrapper = message(1, None, gzip.compress(inner), attributes=1 | 8, timestamp=99)
    assert [record.timestamp for record in decode_message_set(wrapper)] == [99, 99]


def test_damage_is_refused() -> None:
    data = message(5, b"key", b"value")
    for cut in range(1, len(data)):
        with pytest.raises(ValueError):
            decode_message_set(data[:cut])
    for index in range(12, len(data)):
        broken = bytearray(data)
        broken[index] ^= 0x10
        with pytest.raises(ValueError):
            decode_message_set(bytes(broken))


def test_a_view_knows_size_and_offset() -> None:
    data = message(4, b"k", b"v") + message(5, b"k", b"v")
    view = OldMessageView(memoryview(data), 0)
    assert (view.base_offset, view.last_offset, view.magic, view.size_bytes) == (4, 4, 1, len(data) // 2)
    assert bytes(view.message_bytes()) == data[: len(data) // 2]
    with pytest.raises(ValueError, match="message of 3 bytes"):
        OldMessageView(memoryview(struct.pack(">qi", 1, 3) + bytes(40)), 0)
