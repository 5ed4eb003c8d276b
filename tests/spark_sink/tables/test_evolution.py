"""What fits a table's column and what does not"""

from decimal import Decimal

import pyarrow as pa
import pytest

from tidemill.spark_sink.tables.evolution import SchemaConflict, fitted, missing_fields, widens


@pytest.mark.parametrize(
    ("narrow", "wide", "fits"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.int64(), pa.int32(), False),
        (pa.int32(), pa.float64(), True),
        (pa.int64(), pa.float64(), False),
        (pa.float32(), pa.float64(), True),
        (pa.decimal128(10, 2), pa.decimal128(12, 2), True),
        (pa.decimal128(10, 2), pa.decimal128(10, 3), False),
        (pa.date32(), pa.timestamp("us"), True),
        (pa.date32(), pa.timestamp("us", "UTC"), False),
        (pa.string(), pa.int64(), False),
        (pa.int64(), pa.string(), False),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), True),
        (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64())]), True),
        (pa.struct([("a", pa.int32())]), pa.struct([("b", pa.int32())]), False),
    ],
)
def test_widening(narrow: pa.DataType, wide: pa.DataType, fits: bool) -> None:
    assert widens(narrow, wide) is fits


def test_a_column_is_widened_or_filled_with_nulls() -> None:
    rows = pa.table({"n": pa.array([1, 2], pa.int32())})
    assert fitted(rows, pa.field("n", pa.int64())).type == pa.int64()
    assert fitted(rows, pa.field("other", pa.decimal128(5, 2))).to_pylist() == [None, None]
    nothing = pa.table({"n": pa.array([None, None], pa.string())})
    assert fitted(nothing, pa.field("n", pa.int64())).to_pylist() == [None, None]
    exact = pa.table({"n": pa.array([Decimal("1.5")], pa.decimal128(3, 1))})
    assert fitted(exact, pa.field("n", pa.decimal128(9, 3))).to_pylist() == [Decimal("1.500")]


def test_a_conflict_says_what_changed_and_what_to_do() -> None:
    rows = pa.table({"n": ["x"]})
    with pytest.raises(
        SchemaConflict, match="column 'n' is int64 in the table but string in the topic; start a new table"
    ):
        fitted(rows, pa.field("n", pa.int64()))


def test_new_columns() -> None:
    table, batch = pa.schema([("a", pa.int64())]), pa.schema([("a", pa.int32()), ("b", pa.string())])
    assert [each.name for each in missing_fields(table, batch)] == ["b"]
