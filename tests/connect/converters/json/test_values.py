"""Values to JSON and back, one schema at a time"""

import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.api import Schema, SchemaType
from tidemill.connect.converters.json.values import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    ImpreciseNumber,
    compile_decoder,
    compile_encoder,
    decimal_scale,
    timestamp_ms,
    unscaled_bytes,
)


def encode(schema: Schema, value: object, *, numeric: bool = False, replace_null: bool = True) -> object:
    return compile_encoder(schema, decimal_numeric=numeric, replace_null=replace_null)(value)


def decode(schema: Schema, value: object, *, replace_null: bool = True) -> object:
    return compile_decoder(schema, replace_null=replace_null)(value)


@given(st.integers(-(1 << 200), 1 << 200))
def test_unscaled_bytes_are_minimal_and_come_back(number: int) -> None:
    """Two's complement, with no byte too many: dropping the first would change the number."""
    data = unscaled_bytes(number)
    assert int.from_bytes(data, "big", signed=True) == number
    assert len(data) == 1 or int.from_bytes(data[1:], "big", signed=True) != number


@given(st.dates())
def test_dates_are_days(date: dt.date) -> None:
    """Every date of Python's calendar has its number of days."""
    days = encode(Schema(type=SchemaType.INT32, name=DATE), date)
    assert isinstance(days, int)
    assert dt.date(1970, 1, 1) + dt.timedelta(days=days) == date


@given(st.datetimes(timezones=st.sampled_from([dt.UTC, dt.timezone(dt.timedelta(hours=-5)), None])))
def test_timestamps_are_milliseconds(moment: dt.datetime) -> None:
    """Exact to the millisecond, before 1970 too; without a zone it is UTC."""
    milliseconds = timestamp_ms(moment)
    exact = (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert dt.timedelta(milliseconds=milliseconds) <= exact < dt.timedelta(milliseconds=milliseconds + 1)


def test_logical_types_take_counts_as_they_are() -> None:
    assert encode(Schema(type=SchemaType.INT32, name=DATE), 19000) == 19000
    assert encode(Schema(type=SchemaType.INT32, name=TIME), 5) == 5
    assert encode(Schema(type=SchemaType.INT64, name=TIMESTAMP), 1 << 40) == 1 << 40
    with pytest.raises(ValueError, match="32 bits"):
        encode(Schema(type=SchemaType.INT32, name=TIME), 1 << 40)


def test_a_datetime_is_no_date() -> None:
    with pytest.raises(ValueError, match="expected an integer"):
        encode(Schema(type=SchemaType.INT32, name=DATE), dt.datetime(2020, 1, 1, tzinfo=dt.UTC))


def test_defaults_stand_in_for_null_when_asked() -> None:
    schema = Schema(type=SchemaType.INT32, optional=True, default=7)
    assert encode(schema, None) == 7
    assert encode(schema, None, replace_null=False) is None
    assert decode(schema, None) == 7
    assert decode(schema, None, replace_null=False) is None


@pytest.mark.parametrize("parameters", [{}, {"scale": "two"}])
def test_a_decimal_needs_its_scale(parameters: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="scale"):
        decimal_scale(Schema(type=SchemaType.BYTES, name=DECIMAL, parameters=parameters))


def test_decimals_are_read_from_all_their_forms() -> None:
    schema = Schema(type=SchemaType.BYTES, name=DECIMAL, parameters={"scale": "2"})
    assert decode(schema, "PT4=") == Decimal("156.78")
    assert decode(schema, 3) == Decimal(3)
    assert decode(schema, Decimal("1.25")) == Decimal("1.25")
    with pytest.raises(ImpreciseNumber):
        decode(schema, 1.25)
    with pytest.raises(ValueError, match="base64"):
        decode(schema, [])


def test_integers_are_decimals_and_floats_where_those_are_wanted() -> None:
    assert encode(Schema(type=SchemaType.BYTES, name=DECIMAL, parameters={"scale": "1"}), 12) == "eA=="
    assert encode(Schema(type=SchemaType.FLOAT64), 12) == 12.0


def test_a_schema_without_its_parts_is_refused() -> None:
    with pytest.raises(ValueError, match="items"):
        encode(Schema(type=SchemaType.ARRAY), [])
    with pytest.raises(ValueError, match="keys"):
        encode(Schema(type=SchemaType.MAP, items=Schema(type=SchemaType.STRING)), {})
