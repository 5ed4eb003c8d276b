"""Plain JSON, and what orjson would write otherwise"""

import json
import math
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.api import Json
from tidemill.connect.converters.json.plain import dump, dump_all_plain, dump_plain, holds_no_number


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"a": [1, None, "null"], "b": 1.5}, b'{"a":[1,null,"null"],"b":1.5}'),
        ({"a": math.nan, "b": [math.inf, -math.inf], "c": None}, b'{"a":"NaN","b":["Infinity","-Infinity"],"c":null}'),
        (math.nan, b'"NaN"'),
        ((-math.inf, b"\x01", Decimal("1.10")), b'["-Infinity","AQ==",1.10]'),
        ({1: math.nan, 2: {"x": None}}, b'[[1,"NaN"],[2,{"x":null}]]'),
        ({"a": {2.5: b"\x01"}}, b'{"a":[[2.5,"AQ=="]]}'),
    ],
)
def test_values_are_written_as_with_a_schema(value: Json, data: bytes) -> None:
    assert dump_plain(value) == data


VALUES = st.recursive(
    st.none() | st.integers(-5, 5) | st.floats() | st.text(max_size=4) | st.just("null"),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=4), children, max_size=3),
    max_leaves=8,
)


def named(value: Json) -> Json:
    """The same with names, the plain way."""
    if isinstance(value, dict):
        return {name: named(each) for name, each in value.items()}
    if isinstance(value, list):
        return [named(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


@given(VALUES)
def test_what_is_written_is_json_and_loses_nothing(value: Json) -> None:
    assert json.loads(dump_plain(value), parse_constant=pytest.fail) == named(value)
    assert holds_no_number(value) == (named(value) != value)


MORE = st.one_of(
    VALUES,
    st.sampled_from([{1: math.nan}, b"\x01", Decimal("1.10"), {"a": [Decimal(2), None]}, {"a": math.inf, "b": None}]),
)


@given(st.lists(MORE, max_size=6))
def test_values_are_written_together_as_alone(values: list[Json]) -> None:
    assert dump_all_plain(values) == [dump_plain(value) for value in values]


@pytest.mark.parametrize("write", [dump, dump_plain, lambda value: dump_all_plain([1, value])])
@pytest.mark.parametrize("value", [object(), {"a": object()}, 1 << 70])
def test_what_cannot_be_written_is_the_values_fault(write: Callable[[Json], object], value: Json) -> None:
    with pytest.raises(ValueError):
        write(value)
    with pytest.raises(ValueError, match="a value of type Decimal cannot be written"):
        dump_plain(Decimal("NaN"))
