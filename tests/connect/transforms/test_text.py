"""Values as text"""

import datetime as dt
import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.api import Json, Schema, SchemaField, SchemaType
from tidemill.connect.converters.json.values import DATE, TIME
from tidemill.connect.transforms.text import double_text, logical_ms, value_text

DAY = Schema(type=SchemaType.INT32, name=DATE)


@pytest.mark.parametrize(
    ("value", "schema", "text"),
    [
        ('say "x"', None, 'say "x"'),
        (['a"\\', None, True, 1], None, '["a\\"\\\\",null,true,1]'),
        ({"a": {"b": [1.0]}}, None, '{"a":{"b":[1.0]}}'),
        (b"\x01\x02", None, "AQI="),
        (Decimal("12.30"), None, "12.30"),
        (Decimal("0.000001"), None, "0.000001"),
        ([Decimal("0.0000001"), Decimal("1E+3"), Decimal("0E-7")], None, "[1E-7,1E+3,0E-7]"),
        (0, DAY, "1970-01-01"),
        (dt.date(2024, 2, 29), None, "2024-02-29"),
        (dt.datetime(2024, 2, 29, 1, 2, 3, 456000), None, "2024-02-29T01:02:03.456Z"),
        (dt.time(1, 2, 3), None, "01:02:03.000Z"),
        (61_000, Schema(type=SchemaType.INT32, name=TIME), "00:01:01.000Z"),
        (
            {"d": 1},
            Schema(type=SchemaType.STRUCT, fields=(SchemaField(name="d", schema=DAY),)),
            '{"d":1970-01-02}',
        ),
    ],
)
def test_values_have_connects_text(value: Json, schema: Schema | None, text: str) -> None:
    assert value_text(value, schema) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_back_from_its_text(value: float) -> None:
    text = double_text(value)
    assert float(text) == value and ("." in text) and "e" not in text


def test_what_is_no_finite_number_has_a_name() -> None:
    assert [double_text(each) for each in (math.nan, math.inf, -math.inf)] == ["NaN", "Infinity", "-Infinity"]


def test_points_in_time_are_milliseconds() -> None:
    assert logical_ms(1, DAY) == 86_400_000
    assert logical_ms(1, None) is None and logical_ms("x", DAY) is None
