"""Parsed values as table values"""

import base64
import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark_sink.debezium_events import decimal_text
from tidemill.spark_sink.column_types import ColumnType, column_type, decimal_type, list_type, struct_type
from tidemill.spark_sink.conversions import ConversionError, coerce, convert


def logical(kind: str, name: str) -> ColumnType:
    return column_type({"type": kind, "name": name})


numbers = st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-300, 300)


@given(st.lists(st.none() | numbers, max_size=30), st.integers(0, 38), st.integers(0, 3))
def test_decimals_are_exact(values: list[int | None], scale: int, padding: int) -> None:
    texts = [None if value is None else decimal_text(value) for value in values]
    array = pa.array([None] * padding + texts, pa.string()).slice(padding)
    expected = [
        None if value is None else Decimal((value < 0, tuple(map(int, str(abs(value)))), -scale)) for value in values
    ]
    assert convert(array, decimal_type(38, scale)).to_pylist() == expected


@given(st.lists(st.integers(-(10**80), 10**80), max_size=5), st.integers(0, 70))
def test_longer_decimals_are_exact_text(values: list[int], scale: int) -> None:
    found = convert(pa.array([decimal_text(value) for value in values], pa.string()), decimal_type(80, scale))
    assert [Decimal(text).as_tuple() for text in found.to_pylist()] == [
        Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -scale)).as_tuple() for value in values
    ]


def test_decimals_written_with_more_bytes_than_needed() -> None:
    wide = base64.b64encode((-5).to_bytes(20, "big", signed=True)).decode()
    assert convert(pa.array([wide]), decimal_type(5, 0)).to_pylist() == [Decimal(-5)]


@pytest.mark.parametrize("text", ["AQ", "!!!!", base64.b64encode((10**39).to_bytes(20, "big")).decode()])
def test_what_is_no_decimal_is_refused(text: str) -> None:
    with pytest.raises(ConversionError):
        convert(pa.array([text]), decimal_type(38, 0))


def test_a_decimal_that_its_column_cannot_hold_is_refused() -> None:
    with pytest.raises(ConversionError, match="precision"):
        convert(pa.array([decimal_text(12345)]), decimal_type(4, 2))


def test_decimals_of_any_scale_become_text() -> None:
    column = logical("struct", "io.debezium.data.VariableScaleDecimal")
    array = pa.array([{"scale": 4, "value": decimal_text(1234500)}, None], column.parsed)
    assert convert(array, column).to_pylist() == ["123.4500", None]


def test_instants_dates_and_times() -> None:
    utc = dt.UTC
    zoned = logical("string", "io.debezium.time.ZonedTimestamp")
    array = pa.array(["2026-01-02T01:04:05.1Z", "2026-01-02T01:04:05Z", "1969-12-31T23:59:59.999999Z", None])
    assert convert(array, zoned).to_pylist() == [
        dt.datetime(2026, 1, 2, 1, 4, 5, 100_000, utc),
        dt.datetime(2026, 1, 2, 1, 4, 5, 0, utc),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, utc),
        None,
    ]
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, 678_000)
    millis = int((moment - dt.datetime(1970, 1, 1)).total_seconds() * 1000)
    for name, factor in (("Timestamp", 1), ("MicroTimestamp", 1_000), ("NanoTimestamp", 1_000_000)):
        column = logical("int64", f"io.debezium.time.{name}")
        assert convert(pa.array([millis * factor, None]), column).to_pylist() == [moment, None]
    date = logical("int32", "io.debezium.time.Date")
    assert convert(pa.array([-1, 0]), date).to_pylist() == [dt.date(1969, 12, 31), dt.date(1970, 1, 1)]
    time = logical("int64", "io.debezium.time.MicroTime")
    assert convert(pa.array([0, 86_400_000_000, 3_723_000_400, None]), time).to_pylist() == [
        "00:00:00",
        "24:00:00",
        "01:02:03.0004",
        None,
    ]


def test_instants_that_python_cannot_write() -> None:
    zoned = logical("string", "io.debezium.time.ZonedTimestamp")
    texts = [
        "+10000-01-01T00:00:00Z",
        "-0001-01-01T00:00Z",
        "2026-01-02T01:04:05.123456789+01:30",
        "1969-12-31T23:59:59.5Z",
    ]
    assert convert(pa.array(texts), zoned).cast(pa.int64()).to_pylist() == [
        253_402_300_800_000_000,
        -62_198_755_200_000_000,
        1_767_310_445_123_456,
        -500_000,
    ]
    with pytest.raises(ConversionError, match="'infinity' is not an instant"):
        convert(pa.array(["infinity"]), zoned)


def test_lists_and_structs_convert_what_is_in_them() -> None:
    column = list_type(decimal_type(6, 2))
    array = pa.array([[decimal_text(150), None], None, [], [decimal_text(-1)]], column.parsed)
    expected = [[Decimal("1.50"), None], None, [], [Decimal("-0.01")]]
    assert convert(array, column).to_pylist() == expected
    assert convert(array.slice(1), column).to_pylist() == expected[1:]
    nested = struct_type({"at": logical("int32", "io.debezium.time.Date"), "raw": column_type({"type": "bytes"})})
    found = convert(pa.array([{"at": 1, "raw": "AQI="}, None], nested.parsed), nested)
    assert found.to_pylist() == [{"at": dt.date(1970, 1, 2), "raw": b"\x01\x02"}, None]


def test_whole_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConversionError):
        convert(pa.array([40_000]), column_type({"type": "int16"}))


def test_values_the_fast_reader_refuses() -> None:
    double = column_type({"type": "double"})
    assert coerce("Infinity", double) == float("inf")
    assert coerce(5, double) == 5
    assert coerce([None, 1], list_type(column_type({"type": "int32"}))) == [None, 1]
    for value, column in (("x", double), (True, column_type({"type": "int64"})), (1, column_type({"type": "boolean"}))):
        with pytest.raises(ConversionError, match="is not a value of"):
            coerce(value, column)
