"""Converters by kind"""

import pytest

from tidemill.connect.api import ConverterSpec
from tidemill.connect.converters.registry import CONVERTERS, make_converter


@pytest.mark.parametrize(("kind", "data"), [("json", b'"x"'), ("string", b"x")])
def test_makes_a_converter_with_its_options(kind: str, data: bytes) -> None:
    converter = make_converter(ConverterSpec(kind=kind, options={"schemas.enable": "false"}))
    assert converter.encode("x", None) == data


def test_every_kind_passes_tombstones_through() -> None:
    for kind in CONVERTERS:
        converter = make_converter(ConverterSpec(kind=kind))
        assert converter.encode(None, None) is None
        assert converter.decode(None)[0] is None


def test_an_unknown_kind_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no converter 'avro'.*json, string, bytes"):
        make_converter(ConverterSpec(kind="avro"))
