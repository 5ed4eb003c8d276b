"""Keys and values, and schemas made once"""

import gc

import pytest

from tidemill.connect.api import Record, Schema, SchemaField, SchemaType
from tidemill.connect.transforms.role import KEY, SCHEMAS_MAX, VALUE, SchemaMemory, as_map, as_struct, basics, member

TEXT = Schema(type=SchemaType.STRING, default="x")


def test_a_role_is_about_its_part() -> None:
    record = Record(key=1, value=2, value_schema=TEXT)
    assert KEY.of(record) == (1, None) and VALUE.of(record) == (2, TEXT)
    changed = VALUE.put(KEY.put(record, 3, TEXT), 4, None)
    assert (changed.key, changed.key_schema, changed.value, changed.value_schema) == (3, TEXT, 4, None)


def test_a_schema_is_made_once_and_never_confused() -> None:
    made: list[Schema] = []

    def make(schema: Schema) -> Schema:
        made.append(schema)
        return Schema(type=schema.type, name=f"of {schema.name}")

    memory = SchemaMemory(make)
    assert memory(TEXT) is memory(TEXT) and len(made) == 1
    for number in range(SCHEMAS_MAX + 10):
        assert memory(Schema(type=SchemaType.STRING, name=str(number))).name == f"of {number}"
        gc.collect(0)


def test_what_has_no_members_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\[testing\], found: null"):
        as_map(None, "testing")
    with pytest.raises(ValueError, match="found: string"):
        as_struct("x", TEXT, "testing")


def test_null_is_the_default_where_that_is_wanted() -> None:
    field = SchemaField(name="a", schema=TEXT)
    assert member({}, field, replace_null=True) == "x"
    assert member({"a": None}, field, replace_null=False) is None
    assert basics(Schema(type=SchemaType.STRUCT, optional=True, default={}, name="n")) == Schema(
        type=SchemaType.STRUCT, name="n"
    )
