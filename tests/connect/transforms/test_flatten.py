"""Flatten: beyond what Kafka was asked (see test_registry)"""

from hypothesis import given
from hypothesis import strategies as st

from tests.connect.transforms.options_of import applied, made
from tidemill.connect.api import Json, Schema, SchemaField, SchemaType

FLATTEN = made("Flatten$Value", delimiter="/")
NAMES = st.sampled_from(["a", "b", "ab", "c"])
LEAVES = st.none() | st.integers(0, 9) | st.lists(st.integers(0, 9), max_size=2)
TREES = st.recursive(LEAVES, lambda inner: st.dictionaries(NAMES, inner, min_size=1, max_size=3), max_leaves=8)


@given(st.dictionaries(NAMES, TREES, max_size=4))
def test_every_leaf_stands_under_its_path(value: dict[str, Json]) -> None:
    flat = applied(FLATTEN, value).value
    assert not any(isinstance(each, dict) for each in flat.values())
    for path, leaf in flat.items():
        found: Json = value
        for name in path.split("/"):
            found = found[name]
        assert found == leaf


def test_fields_of_what_may_be_null_may_be_null() -> None:
    inner = Schema(type=SchemaType.STRUCT, optional=True, fields=(field("b", Schema(type=SchemaType.INT32)),))
    schema = Schema(type=SchemaType.STRUCT, name="n", fields=(field("a", inner),))
    out = applied(FLATTEN, {"a": None}, schema)
    assert out.value == {"a/b": None}
    assert out.value_schema == Schema(
        type=SchemaType.STRUCT, name="n", fields=(field("a/b", Schema(type=SchemaType.INT32, optional=True)),)
    )


def field(name: str, schema: Schema) -> SchemaField:
    return SchemaField(name=name, schema=schema)
