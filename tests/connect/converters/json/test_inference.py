"""Schemas guessed from values"""

import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.api import Json, SchemaType
from tidemill.connect.converters.json.inference import NoSchema, infer, shape
from tidemill.connect.converters.json.values import compile_encoder

T = SchemaType


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, T.BOOLEAN),
        (1, T.INT64),
        (1.5, T.FLOAT64),
        ("x", T.STRING),
        (b"x", T.BYTES),
        (Decimal("1.5"), T.BYTES),
        (dt.datetime(2020, 1, 1, tzinfo=dt.UTC), T.INT64),
        (dt.date(2020, 1, 1), T.INT32),
        (dt.time(1), T.INT32),
        ([1], T.ARRAY),
        ((), T.ARRAY),
        ({}, T.STRUCT),
    ],
)
def test_types(value: Json, kind: SchemaType) -> None:
    assert infer(value).type is kind


def test_members_are_optional_because_one_value_proves_nothing() -> None:
    schema = infer({"a": 1, "b": None})
    assert not schema.optional
    assert all(each.schema.optional for each in schema.fields)


def test_a_decimal_brings_its_scale() -> None:
    assert infer(Decimal("1.50")).parameters == {"scale": "2"}
    assert infer(Decimal("1E+3")).parameters == {"scale": "0"}


def test_nulls_in_a_list_do_not_change_its_type() -> None:
    items = infer([None, 1, None]).items
    assert items is not None
    assert items.type is T.INT64


@pytest.mark.parametrize("value", [[1, "a"], {1: 2}, object(), Decimal("NaN"), {"a": [{"b": 1}, {"c": 1}]}])
def test_some_values_have_none(value: Json) -> None:
    with pytest.raises(NoSchema):
        infer(value)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.text(max_size=2)
    | st.binary(max_size=2)
    | st.decimals(-9, 9, places=1),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=2), children, max_size=3),
    max_leaves=8,
)


@given(VALUES, VALUES)
def test_equal_shapes_have_equal_schemas(left: Json, right: Json) -> None:
    """The shape is a faithful cache key, and an inferred schema fits its value."""
    try:
        schema = infer(left)
    except NoSchema:
        return
    if left is not None:
        compile_encoder(schema, decimal_numeric=False, replace_null=True)(left)
    if shape(left) == shape(right):
        assert infer(right) == schema
