"""Text as it is"""

from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.api import Json
from tidemill.connect.converters.string import StringConverter


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_comes_back(text: str) -> None:
    """Every text survives, in every encoding that has it."""
    for encoding in ("utf-8", "UTF-16"):
        converter = StringConverter.from_options({"converter.encoding": encoding})
        assert converter.decode(converter.encode(text, None))[0] == text


@pytest.mark.parametrize(
    ("value", "data"),
    [(None, None), ("", b""), (True, b"true"), (12, b"12"), (1.5, b"1.5"), ({"a": [1]}, b'{"a":[1]}')],
)
def test_scalars_have_their_text(value: Json, data: bytes | None) -> None:
    assert StringConverter().encode(value, None) == data


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_within_a_structure_are_base64_as_in_json(kind: Callable[[bytes], Json]) -> None:
    value = {"a": kind(b"\x01\xff"), "b": [kind(b"")], "c": Decimal("1.50")}
    assert StringConverter().encode(value, None) == b'{"a":"Af8=","b":[""],"c":"1.50"}'


def test_a_tombstone_stays_one() -> None:
    assert StringConverter().decode(None)[0] is None


def test_refuses_what_has_no_text() -> None:
    with pytest.raises(ValueError, match="no text form"):
        StringConverter().encode(b"x", None)
    with pytest.raises(ValueError, match="no text form: Dict key must be str"):
        StringConverter().encode({1: 2}, None)
    with pytest.raises(ValueError, match="not text"):
        StringConverter().decode(b"\xff")
    with pytest.raises(ValueError, match="does not fit"):
        StringConverter("ascii").encode("é", None)
    with pytest.raises(ValueError, match="no encoding"):
        StringConverter("morse")
