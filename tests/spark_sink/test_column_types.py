"""Connect schemas and the `columns` setting as column types"""

import pyarrow as pa
import pytest

from tidemill.spark_sink.column_types import (
    Kind,
    UnsupportedSchema,
    column_type,
    decimal_type,
    inferred_type,
    parse_columns,
)


@pytest.mark.parametrize(
    ("schema", "stored"),
    [
        ({"type": "int16"}, pa.int16()),
        ({"type": "int32"}, pa.int32()),
        ({"type": "int64"}, pa.int64()),
        ({"type": "float"}, pa.float32()),
        ({"type": "double"}, pa.float64()),
        ({"type": "boolean"}, pa.bool_()),
        ({"type": "string"}, pa.string()),
        ({"type": "string", "name": "io.debezium.data.Uuid"}, pa.string()),
        ({"type": "string", "name": "io.debezium.data.Json"}, pa.string()),
        ({"type": "bytes"}, pa.binary()),
        ({"type": "int32", "name": "io.debezium.time.Date"}, pa.date32()),
        ({"type": "int64", "name": "io.debezium.time.Timestamp"}, pa.timestamp("us")),
        ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, pa.timestamp("us")),
        ({"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}, pa.timestamp("us")),
        ({"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, pa.timestamp("us", "UTC")),
        ({"type": "int64", "name": "io.debezium.time.MicroTime"}, pa.string()),
        ({"type": "int64", "name": "io.debezium.time.MicroDuration"}, pa.int64()),
        ({"type": "array", "items": {"type": "int32"}}, pa.list_(pa.int32())),
        ({"type": "struct", "fields": [{"field": "x", "type": "double"}]}, pa.struct([("x", pa.float64())])),
        ({"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}, pa.string()),
    ],
)
def test_stored_types(schema: dict[str, object], stored: pa.DataType) -> None:
    assert column_type(schema).stored == stored


def test_decimals_keep_precision_and_scale() -> None:
    schema = {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "3", "connect.decimal.precision": "9"},
    }
    assert column_type(schema).stored == pa.decimal128(9, 3)
    assert column_type({**schema, "parameters": {"scale": "3"}}).stored == pa.decimal128(38, 3)
    assert decimal_type(60, 2).stored == pa.string()
    assert decimal_type(5, -2).stored == pa.string()


def test_what_no_column_can_hold_is_named() -> None:
    with pytest.raises(UnsupportedSchema, match=r"row\.extra has the type 'map'"):
        column_type({"type": "struct", "fields": [{"field": "extra", "type": "map"}]}, "row")


def test_guesses_leave_text_alone_and_unknown_columns_out() -> None:
    guess = inferred_type(
        pa.struct(
            [
                ("n", pa.int64()),
                ("when", pa.timestamp("s")),
                ("nothing", pa.null()),
                ("tags", pa.list_(pa.string())),
                ("empty", pa.list_(pa.null())),
            ]
        )
    )
    assert guess is not None
    assert guess.stored == pa.struct([("n", pa.int64()), ("when", pa.string()), ("tags", pa.list_(pa.string()))])
    assert inferred_type(pa.null()) is None


def test_the_columns_setting() -> None:
    columns = parse_columns("id:int64, price: decimal(10, 2), placed:timestamp_us, tags:string[]")
    assert [(name, str(each.stored)) for name, each in columns.items()] == [
        ("id", "int64"),
        ("price", "decimal128(10, 2)"),
        ("placed", "timestamp[us]"),
        ("tags", "list<item: string>"),
    ]
    assert columns["placed"].kind is Kind.TIMESTAMP_US
    assert parse_columns("") == {}


@pytest.mark.parametrize("text", ["id", "id:", "id:money", "price:decimal", "id:int64(3,2)", "id:int64;x:int32"])
def test_a_columns_setting_that_makes_no_sense(text: str) -> None:
    with pytest.raises(UnsupportedSchema, match="columns"):
        parse_columns(text)
