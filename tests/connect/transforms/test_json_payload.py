"""Payloads that become structures: their schemas, and which stay text"""

from typing import Any

import pytest

from tidemill.connect.api import SchemaType
from tidemill.connect.transforms.json_payload import expanded


def kinds(text: str, *, keep_nulls: bool = False) -> dict[str, Any]:
    _, schema = expanded("payload", text, keep_nulls=keep_nulls)
    return {each.name: each.schema.type for each in schema.fields}


def test_numbers_are_as_wide_as_they_need() -> None:
    assert kinds('{"a":2147483647,"b":2147483648,"c":9223372036854775808,"d":1.0,"e":true}') == {
        "a": SchemaType.INT32,
        "b": SchemaType.INT64,
        "c": SchemaType.FLOAT64,
        "d": SchemaType.FLOAT64,
        "e": SchemaType.BOOLEAN,
    }


def test_nulls_and_empty_lists_are_left_out_unless_nulls_are_kept() -> None:
    text = '{"n":null,"e":[],"s":"x"}'
    assert kinds(text) == {"s": SchemaType.STRING}
    assert kinds(text, keep_nulls=True) == {"n": SchemaType.BYTES, "s": SchemaType.STRING}
    assert expanded("payload", text, keep_nulls=True)[0] == {"n": None, "s": "x"}


def test_structs_are_called_by_their_path() -> None:
    _, schema = expanded("payload", '{"a":{"b":{"c":1}}}', keep_nulls=False)
    a = schema.fields[0].schema
    assert (schema.name, a.name, a.fields[0].schema.name) == ("payload", "payload.a", "payload.a.b")


def test_objects_of_a_list_are_one_struct() -> None:
    value, schema = expanded("payload", '{"l":[{"a":1},{"b":"x"}]}', keep_nulls=False)
    items = schema.fields[0].schema.items
    assert items is not None and [each.name for each in items.fields] == ["a", "b"]
    assert value == {"l": [{"a": 1, "b": None}, {"a": None, "b": "x"}]}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "text",
        " {}",
        '{"a":',
        "[1]",
        '[{"a":1}]',
        '{"a":[1,"x"]}',
        '{"a":[1,3000000000]}',
        '{"a":[null]}',
        '{"a":NaN}',
    ],
)
def test_what_has_no_schema_stays_text(text: str) -> None:
    with pytest.raises(ValueError):
        expanded("payload", text, keep_nulls=False)
