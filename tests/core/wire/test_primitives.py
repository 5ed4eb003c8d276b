"""Varints, tags, arrays and UUIDs at the byte level"""

import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.wire.primitives import (
    DecodeError,
    array_reader,
    array_writer,
    fail_length,
    fail_tag,
    read_uvarint,
    skip_tags,
    uuid_from_bytes,
    uvarint,
    uvarint_tail,
)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_uvarints_survive(value: int, before: bytes) -> None:
    encoded = uvarint(value)
    assert len(encoded) == max(1, -(-value.bit_length() // 7))
    assert read_uvarint(before + encoded + b"\xff", len(before)) == (value, len(before) + len(encoded))


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (16384, "808001")]
)
def test_golden_uvarints(value: int, encoded: str) -> None:
    assert uvarint(value).hex() == encoded


def test_a_uvarint_ends_after_five_bytes_and_32_bits() -> None:
    assert uvarint_tail(b"\xff\xff\xff\xff\x0f", 1, 0xFF) == (2**32 - 1, 5)
    with pytest.raises(DecodeError, match="32 bits"):
        uvarint_tail(b"\xff\xff\xff\xff\x1f", 1, 0xFF)
    with pytest.raises(DecodeError, match="longer than 5 bytes"):
        uvarint_tail(b"\x80" * 9 + b"\x01", 1, 0x80)
    with pytest.raises(IndexError):
        read_uvarint(b"\x80\x80", 0)


def test_tags_are_skipped_by_their_size() -> None:
    section = b"\x00\x02ab" + b"\x81\x01\x00" + b"rest"
    assert skip_tags(section, 0, 2, len(section)) == 7
    many = uvarint(200)
    section = many[1:] + b"\x01\x00" * 200
    assert skip_tags(section, 0, many[0], len(section)) == len(section)
    with pytest.raises(DecodeError, match="length 9 at byte 2, but only 1"):
        skip_tags(b"\x00\x09a", 0, 1, 3)


def test_a_huge_tag_count_ends_with_the_bytes() -> None:
    with pytest.raises(IndexError):
        skip_tags(b"\xff\xff\xff\x0f" + b"\0\0" * 10, 0, 0xFF, 24)


def test_number_arrays() -> None:
    packed = array_writer("i", 3)(1, -2, 3)
    assert packed == struct.pack(">3i", 1, -2, 3)
    assert array_reader("i", 3)(b"\0" + packed, 1) == (1, -2, 3)
    assert array_writer("h", 0)() == b""
    assert array_reader("q", 0)(b"", 0) == ()


def test_equal_uuids_are_built_once() -> None:
    raw = bytes(range(16))
    assert uuid_from_bytes(raw) == uuid.UUID(bytes=raw)
    assert uuid_from_bytes(raw) is uuid_from_bytes(bytes(bytearray(raw)))


def test_failures_name_the_place() -> None:
    with pytest.raises(DecodeError, match="null at byte 7"):
        fail_length(-1, 7, 9)
    with pytest.raises(DecodeError, match="length 5 at byte 7, but only 2 bytes are left"):
        fail_length(5, 7, 9)
    with pytest.raises(DecodeError, match="tagged field 3 ends at byte 7, its size says 9"):
        fail_tag(3, 7, 9)
