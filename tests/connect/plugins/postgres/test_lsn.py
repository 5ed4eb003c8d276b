"""Positions as text and as numbers"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.plugins.postgres.lsn import format_lsn, parse_lsn


@given(st.integers(0, 2**64 - 1))
def test_text_and_number_are_the_same_position(lsn: int) -> None:
    assert parse_lsn(format_lsn(lsn)) == lsn


def test_positions_look_like_the_servers() -> None:
    assert format_lsn(0x16B374D848) == "16/B374D848"
    assert parse_lsn("0/0") == 0


@pytest.mark.parametrize("text", ["", "123", "x/y"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_lsn(text)
