"""Zigzag varints"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.errors import CorruptMessage
from tidemill.core.records.varint import decode_varint, encode_varint, varint_tail


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_survive(value: int) -> None:
    encoded = encode_varint(value)
    assert decode_varint(b"\xff" + encoded + b"\xff", 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (8191, "fe7f"), (8192, "808001")],
)
def test_golden_bytes(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded


def test_the_extremes_take_ten_bytes() -> None:
    assert len(encode_varint(-(2**63))) == 10
    assert len(encode_varint(2**63 - 1)) == 10


def test_more_than_ten_bytes_are_damage() -> None:
    with pytest.raises(CorruptMessage, match="longer than ten bytes"):
        varint_tail(b"\x80" * 20, 1, 0x80)
    with pytest.raises(IndexError):
        decode_varint(b"\x80\x80", 0)
