"""Bytes untouched"""

import pytest

from tidemill.connect.api import Json, Schema, SchemaType
from tidemill.connect.converters.bytes import BytesConverter


@pytest.mark.parametrize("value", [None, b"", b"\x00\xff", bytearray(b"ab"), memoryview(b"ab")])
def test_bytes_come_back(value: Json) -> None:
    converter = BytesConverter.from_options({})
    assert converter.decode(converter.encode(value, None))[0] == (None if value is None else bytes(value))


def test_refuses_everything_else() -> None:
    with pytest.raises(ValueError, match="takes bytes, not str"):
        BytesConverter().encode("x", None)
    with pytest.raises(ValueError, match="schema of type string"):
        BytesConverter().encode(b"x", Schema(type=SchemaType.STRING))
