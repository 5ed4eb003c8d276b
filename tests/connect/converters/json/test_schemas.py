"""Schemas to the envelope's spelling and back"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.api import Json, Schema, SchemaField, SchemaType
from tidemill.connect.converters.json.schemas import schema_from_json, schema_to_json

T = SchemaType
PLAIN = [kind for kind in T if kind not in (T.ARRAY, T.MAP, T.STRUCT)]


def same(schema: Schema, default: Json) -> Json:
    return default


LEAVES = st.builds(
    Schema,
    type=st.sampled_from(PLAIN),
    optional=st.booleans(),
    name=st.none() | st.text(max_size=5),
    version=st.none() | st.integers(1, 9),
    doc=st.none() | st.text(max_size=5),
    default=st.none() | st.integers(),
    parameters=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)


def grow(children: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    fields = st.lists(st.builds(SchemaField, name=st.text(max_size=4), schema=children), max_size=3).map(tuple)
    return st.one_of(
        st.builds(Schema, type=st.just(T.ARRAY), items=children),
        st.builds(Schema, type=st.just(T.MAP), keys=children, items=children),
        st.builds(Schema, type=st.just(T.STRUCT), fields=fields, optional=st.booleans()),
    )


@given(st.recursive(LEAVES, grow, max_leaves=8))
def test_schemas_come_back(schema: Schema) -> None:
    """Written and read again, a schema is equal to itself."""
    assert schema_from_json(schema_to_json(schema, same), same) == schema


def test_no_schema_is_null() -> None:
    assert schema_to_json(None, same) is None
    assert schema_from_json(None, same) is None


def test_members_stand_in_kafka_connects_order() -> None:
    schema = Schema(
        type=T.STRUCT,
        name="n",
        version=1,
        doc="d",
        parameters={"p": "q"},
        default={},
        fields=(SchemaField(name="f", schema=Schema(type=T.STRING)),),
    )
    written = schema_to_json(schema, same)
    assert written is not None
    assert list(written) == ["type", "fields", "optional", "name", "version", "doc", "parameters", "default"]
    assert list(written["fields"][0]) == ["type", "optional", "field"]


def test_what_is_missing_takes_the_default() -> None:
    assert schema_from_json({"type": "int32"}, same) == Schema(type=T.INT32)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (1, "JSON object"),
        ({}, "unknown schema type"),
        ({"type": None}, "unknown schema type"),
        ({"type": "array"}, "'items'"),
        ({"type": "map", "values": {"type": "int8"}}, "'keys'"),
        ({"type": "map", "keys": {"type": "int8"}}, "'values'"),
        ({"type": "struct", "fields": {}}, "'fields'"),
        ({"type": "struct", "fields": [None]}, "'field'"),
        ({"type": "struct", "fields": [{"type": "int8", "field": 1}]}, "'field'"),
    ],
)
def test_refuses_what_is_no_schema(given: Json, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        schema_from_json(given, same)
