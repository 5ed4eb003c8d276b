"""Arrays, points, vectors"""

import re
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.api import Json, SchemaType
from tidemill.connect.plugins.postgres.types import composite, number, text
from tidemill.connect.plugins.postgres.types.conversion import Conversion, Modes
from tidemill.connect.plugins.postgres.types.resolve import TypeCatalog

any_character = st.characters(exclude_characters="\0", exclude_categories=("Cs",))
rare_character = st.sampled_from(';,{}"\\= \t\n')
any_text = st.text(rare_character | any_character) | st.sampled_from(["", "NULL", "null", "a;b", "c d", "[1:2]={x}"])
"""What means something in an array is as frequent as all the rest together."""


def convert(conversion: Conversion, value: str) -> Json:
    return orjson.loads(conversion.convert(value.encode()))


def written(items: list[Any], delimiter: str = ",") -> str:
    """An array the way PostgreSQL writes it: quotes only where they are needed."""
    out = []
    for item in items:
        if isinstance(item, list):
            out.append(written(item, delimiter))
        elif item is None:
            out.append("NULL")
        elif item == "" or item.upper() == "NULL" or re.search(rf'[\s{{}}{delimiter}"\\]', item):
            out.append('"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"')
        else:
            out.append(item)
    return "{" + delimiter.join(out) + "}"


TEXTS = composite.array(text.text(Modes()))


@given(st.lists(st.none() | any_text, max_size=6))
def test_arrays_of_text(items: list[str | None]) -> None:
    assert convert(TEXTS, written(items)) == items


@given(st.lists(st.none() | any_text, max_size=6))
def test_arrays_of_a_type_that_is_separated_by_semicolons(items: list[str | None]) -> None:
    separated = composite.array(text.text(Modes()), delimiter=b";")
    assert convert(separated, written(items, ";")) == items


@given(st.lists(st.lists(st.none() | any_text, min_size=2, max_size=2), min_size=1, max_size=4))
def test_declared_depth_is_kept(items: list[list[str | None]]) -> None:
    assert convert(composite.array(text.text(Modes()), 2), written(items)) == items


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("{}", []),
        ("{1,NULL,3}", [1, None, 3]),
        ("[0:1]={1,2}", [1, 2]),
        ("{{1,2},{3,4}}", [1, 2, 3, 4]),
    ],
)
def test_arrays_of_numbers(value: str, expected: Json) -> None:
    assert convert(composite.array(number.whole(SchemaType.INT32)), value) == expected


def test_boxes_are_separated_by_semicolons() -> None:
    boxes = TypeCatalog().conversion(1020, -1, Modes())
    assert len(convert(boxes, "{(2,2),(1,1);NULL;(4,4),(3,3)}")) == 3
    assert convert(TEXTS, '{a;b,"c d"}') == ["a;b", "c d"]


def test_a_flat_value_in_a_deep_column_is_wrapped() -> None:
    deep = composite.array(number.whole(SchemaType.INT32), 2)
    assert convert(deep, "{1,2}") == [[1, 2]]
    assert convert(deep, "{}") == []
    assert convert(deep, "{{{1},{2}},{{3},{4}}}") == [[1, 2], [3, 4]]


@pytest.mark.parametrize("value", ["", "{", "}", "{1", "{1}}", '{"a}', "1,2", "{1}{2}"])
def test_what_is_no_array_is_refused(value: str) -> None:
    with pytest.raises(ValueError):
        TEXTS.convert(value.encode())


@given(st.binary(max_size=30))
def test_arbitrary_bytes_never_hang_or_crash(value: bytes) -> None:
    try:
        composite.parse_array(value)
    except ValueError:
        return


def test_schema_of_arrays() -> None:
    schema = composite.array(number.whole(SchemaType.INT32), 2).schema
    assert schema.type is SchemaType.ARRAY
    assert schema.items is not None and schema.items.optional and schema.items.type is SchemaType.ARRAY
    assert schema.items.items is not None and schema.items.items.type is SchemaType.INT32


@pytest.mark.parametrize(
    ("element", "expected"),
    [
        ("text", ["__debezium_unavailable_value"]),
        ("int4", list(b"__debezium_unavailable_value")),
        ("uuid", ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]),
        ("bytea", ["X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="]),
        ("bool", None),
        ("inet", None),
    ],
)
def test_stand_ins_of_arrays(element: str, expected: Json) -> None:
    assert orjson.loads(composite.stand_in(element, Modes())) == expected


def test_coordinates_that_are_no_numbers_are_said_as_floats_say_them() -> None:
    """The fields are required: a null in them is not a valid record."""
    point = convert(composite.point(), "(NaN,-Infinity)")
    assert (point["x"], point["y"]) == ("NaN", "-Infinity")
    point = convert(composite.point(), "(Infinity,-0)")
    assert (point["x"], str(point["y"])) == ("Infinity", "-0.0")


def test_points() -> None:
    assert convert(composite.point(), "(1.5,2)") == {
        "x": 1.5,
        "y": 2.0,
        "wkb": "AQEAAAAAAAAAAAD4PwAAAAAAAABA",
        "srid": None,
    }


def test_vectors() -> None:
    assert convert(composite.vector(SchemaType.FLOAT64, "io.debezium.data.DoubleVector"), "[1,2.5,3]") == [1, 2.5, 3]


def test_sparse_vectors() -> None:
    sparse = composite.sparse_vector()
    assert convert(sparse, "{1:1,3:2.5}/5") == {"dimensions": 5, "vector": [[1, 1], [3, 2.5]]}
    assert convert(sparse, "{}/5") == {"dimensions": 5, "vector": []}
    for garbage in ("", "{1}/5", "{a:1}/5", "{1:1}"):
        with pytest.raises(ValueError):
            sparse.convert(garbage.encode())
