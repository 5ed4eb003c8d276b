"""DropHeaders, HeaderFrom, InsertHeader: beyond what Kafka was asked (see test_registry)"""

import pytest

from tests.connect.transforms.options_of import applied, made
from tidemill.connect.api import InvalidConfig


def test_names_come_in_pairs() -> None:
    with pytest.raises(InvalidConfig, match="same number") as caught:
        made("HeaderFrom$Value", fields="a,b", headers="x", operation="copy")
    assert caught.value.field_name == "headers"


@pytest.mark.parametrize(("literal", "text"), [("1.50", b"1.5"), ("[1, 2.5]", b"[1.0,2.5]"), ("null", None)])
def test_a_literal_is_inserted_as_connect_writes_it(literal: str, text: bytes | None) -> None:
    assert applied(made("InsertHeader", header="h", value_literal=literal)).headers == (("h", text),)


def test_headers_alone_need_neither_key_nor_value() -> None:
    for transform in (made("DropHeaders", headers="a"), made("InsertHeader", header="b", value_literal="x")):
        assert not transform.uses_key and not transform.uses_value
    given = (("a", b"1"), ("c", None))
    assert applied(made("DropHeaders", headers="a"), headers=given).headers == (("c", None),)


def test_the_record_given_is_not_changed() -> None:
    value = {"a": "é", "b": 1}
    out = applied(made("HeaderFrom$Value", fields="a", headers="x", operation="move"), value)
    assert out.value == {"b": 1} and out.headers == (("x", "é".encode()),) and value == {"a": "é", "b": 1}
