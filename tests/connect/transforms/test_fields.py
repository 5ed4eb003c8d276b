"""ExtractField, HoistField, ValueToKey: beyond what Kafka was asked (see test_registry)"""

import pytest

from tests.connect.transforms.options_of import applied, made
from tidemill.connect.api import InvalidConfig, Schema, SchemaField, SchemaType
from tidemill.connect.transforms.fields import field_path, pick


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a", ("a",)),
        ("a.b", ("a", "b")),
        ("`a.b`.c", ("a.b", "c")),
        ("a`b.c", ("a`b", "c")),
        ("`a`b`.c", ("a`b", "c")),
        ("a.", ("a", "")),
    ],
)
def test_paths_have_points_and_backticks(text: str, path: tuple[str, ...]) -> None:
    assert field_path(text) == path


def test_an_open_backtick_is_told() -> None:
    with pytest.raises(InvalidConfig):
        field_path("`a.b")


def test_a_field_of_nothing_is_nothing() -> None:
    extract = made("ExtractField$Value", field="a.b", field_syntax_version="V2")
    assert applied(extract, {"a": None}).value is None
    with pytest.raises(ValueError, match="found: int"):
        applied(extract, {"a": 1})


def test_a_key_is_not_looked_at_to_make_another() -> None:
    transform = made("ValueToKey", fields="a")
    assert not transform.uses_key and transform.uses_value
    assert applied(transform, {"a": 1, "b": 2}, key=b"bytes").key == {"a": 1}


def test_schemas_are_made_once() -> None:
    schema = Schema(type=SchemaType.INT32)
    hoist = made("HoistField$Value", field="a")
    assert applied(hoist, 1, schema).value_schema is applied(hoist, 2, schema).value_schema


def test_fields_are_picked_in_the_order_asked() -> None:
    one, two = (SchemaField(name=name, schema=Schema(type=SchemaType.STRING)) for name in "ab")
    schema = Schema(type=SchemaType.STRUCT, fields=(one, two))
    assert pick(schema, ["b", "a"]) == [two, one]
    with pytest.raises(ValueError, match="c"):
        pick(schema, ["c"])
