"""What a column of a change event is, on the wire and in the warehouse

A Connect schema names each field's type and, for logical types, its meaning. Both together give a `ColumnType`: the
type as which the JSON text is parsed, and the type the column has in the table, chosen so that the warehouse row equals
the source row. Decimals keep precision and scale, instants become timestamps in UTC, local times timestamps without a
zone, dates dates. What Delta has no type for becomes text that loses nothing: times of day, numbers of unknown scale,
intervals keep Debezium's own number.

`parse_columns` reads the same types from the `columns` setting, for topics without the schema part.

Pure; turning parsed values into table values is `conversions`' business.
"""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

DECIMAL_PRECISION_MAX = 38
NESTING_MAX = 100  # structs and arrays within one another; every level takes Python a few calls of a thousand
_DEFAULT_PRECISION = 38  # Connect's Decimal names no precision unless the source adds it


class Kind(enum.StrEnum):
    """How a column's JSON form becomes its table form."""

    PLAIN = "plain"  # as parsed
    BYTES = "bytes"  # base64 text
    DECIMAL = "decimal"  # base64 of the unscaled number, big-endian
    VARIABLE_DECIMAL = "variable_decimal"  # {scale, value}
    DATE = "date"  # days since 1970
    TIMESTAMP_MS = "timestamp_ms"
    TIMESTAMP_US = "timestamp_us"
    TIMESTAMP_NS = "timestamp_ns"
    ZONED_TIMESTAMP = "zoned_timestamp"  # ISO text
    TIME_MS = "time_ms"
    TIME_US = "time_us"
    TIME_NS = "time_ns"
    LIST = "list"
    STRUCT = "struct"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnType:
    """One column: `parsed` is the Arrow type of its JSON, `stored` that of its table column."""

    kind: Kind
    parsed: pa.DataType
    stored: pa.DataType
    scale: int = 0
    items: "ColumnType | None" = None
    fields: Mapping[str, "ColumnType"] = field(default_factory=dict)


class UnsupportedSchema(ValueError):
    """A field that cannot be stored; the message names it and its type."""

    permanent: ClassVar[bool] = True


def _plain(arrow: pa.DataType, parsed: pa.DataType | None = None) -> ColumnType:
    return ColumnType(kind=Kind.PLAIN, parsed=parsed or arrow, stored=arrow)


def _as(kind: Kind, parsed: pa.DataType, stored: pa.DataType) -> ColumnType:
    return ColumnType(kind=kind, parsed=parsed, stored=stored)


STRING = _plain(pa.string())
_LOCAL, _UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")

_PLAIN_TYPES: Mapping[str, ColumnType] = {
    "boolean": _plain(pa.bool_()),
    "int8": _plain(pa.int8(), pa.int64()),
    "int16": _plain(pa.int16(), pa.int64()),
    "int32": _plain(pa.int32(), pa.int64()),
    "int64": _plain(pa.int64()),
    "float": _plain(pa.float32(), pa.float64()),
    "float32": _plain(pa.float32(), pa.float64()),
    "double": _plain(pa.float64()),
    "float64": _plain(pa.float64()),
    "string": STRING,
    "bytes": _as(Kind.BYTES, pa.string(), pa.binary()),
}
_LOGICAL_TYPES: Mapping[str, ColumnType] = {
    "io.debezium.time.Date": _as(Kind.DATE, pa.int64(), pa.date32()),
    "org.apache.kafka.connect.data.Date": _as(Kind.DATE, pa.int64(), pa.date32()),
    "io.debezium.time.Timestamp": _as(Kind.TIMESTAMP_MS, pa.int64(), _LOCAL),
    "org.apache.kafka.connect.data.Timestamp": _as(Kind.TIMESTAMP_MS, pa.int64(), _LOCAL),
    "io.debezium.time.MicroTimestamp": _as(Kind.TIMESTAMP_US, pa.int64(), _LOCAL),
    "io.debezium.time.NanoTimestamp": _as(Kind.TIMESTAMP_NS, pa.int64(), _LOCAL),
    "io.debezium.time.ZonedTimestamp": _as(Kind.ZONED_TIMESTAMP, pa.string(), _UTC),
    "io.debezium.time.Time": _as(Kind.TIME_MS, pa.int64(), pa.string()),
    "org.apache.kafka.connect.data.Time": _as(Kind.TIME_MS, pa.int64(), pa.string()),
    "io.debezium.time.MicroTime": _as(Kind.TIME_US, pa.int64(), pa.string()),
    "io.debezium.time.NanoTime": _as(Kind.TIME_NS, pa.int64(), pa.string()),
    "io.debezium.data.VariableScaleDecimal": ColumnType(
        kind=Kind.VARIABLE_DECIMAL,
        parsed=pa.struct([("scale", pa.int64()), ("value", pa.string())]),
        stored=pa.string(),
    ),
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


def column_type(schema: Mapping[str, Any], where: str = "value", level: int = 0) -> ColumnType:
    """The column type of a Connect schema in its JSON form; raises UnsupportedSchema."""
    if level > NESTING_MAX:
        raise UnsupportedSchema(f"{where[:NESTING_MAX]}… is nested more than {NESTING_MAX} levels deep")
    name = schema.get("name")
    if name == _DECIMAL:
        parameters = schema.get("parameters") or {}
        return decimal_type(
            int(parameters.get("connect.decimal.precision", _DEFAULT_PRECISION)), int(parameters.get("scale", 0))
        )
    if isinstance(name, str) and name in _LOGICAL_TYPES:
        return _LOGICAL_TYPES[name]
    match schema.get("type"):
        case "array":
            return list_type(column_type(schema["items"], f"{where}[]", level + 1))
        case "struct":
            return struct_type(
                {
                    each["field"]: column_type(each, f"{where}.{each['field']}", level + 1)
                    for each in schema.get("fields", ())
                }
            )
        case str(plain) if plain in _PLAIN_TYPES:
            return _PLAIN_TYPES[plain]
        case other:
            raise UnsupportedSchema(f"{where} has the type {other!r}, which a table column cannot hold")


def decimal_type(precision: int, scale: int) -> ColumnType:
    """An exact number; one that no decimal column can hold becomes text."""
    if precision > DECIMAL_PRECISION_MAX or not 0 <= scale <= precision:
        return ColumnType(kind=Kind.DECIMAL, parsed=pa.string(), stored=pa.string(), scale=scale)
    return ColumnType(kind=Kind.DECIMAL, parsed=pa.string(), stored=pa.decimal128(precision, scale), scale=scale)


def list_type(items: ColumnType) -> ColumnType:
    """An array."""
    return ColumnType(kind=Kind.LIST, parsed=pa.list_(items.parsed), stored=pa.list_(items.stored), items=items)


def struct_type(fields: Mapping[str, ColumnType]) -> ColumnType:
    """A row, or a nested value."""
    return ColumnType(
        kind=Kind.STRUCT,
        parsed=pa.struct([(name, each.parsed) for name, each in fields.items()]),
        stored=pa.struct([(name, each.stored) for name, each in fields.items()]),
        fields=dict(fields),
    )


def inferred_type(arrow: pa.DataType) -> ColumnType | None:
    """The column type for what a JSON reader made of values without schema; None for a column with no value at all.

    Text stays text, also where it looks like a date: the reader's guess would change from batch to batch.
    """
    if pa.types.is_null(arrow):
        return None
    if pa.types.is_list(arrow):
        items = inferred_type(arrow.value_type)
        return list_type(items) if items else None
    if pa.types.is_struct(arrow):
        inner = {each.name: inferred_type(each.type) for each in arrow}
        known = {name: kind for name, kind in inner.items() if kind is not None}
        return struct_type(known) if known else None
    if pa.types.is_boolean(arrow) or pa.types.is_int64(arrow) or pa.types.is_float64(arrow):
        return _plain(arrow)
    return STRING


_COLUMN = re.compile(r"\s*([^\s:,]+)\s*:\s*([a-zA-Z0-9_]+)\s*(?:\(\s*(\d+)\s*,\s*(\d+)\s*\))?(\[\])?\s*(?:,|$)")
_NAMED: Mapping[str, ColumnType] = {
    **_PLAIN_TYPES,
    "date": _LOGICAL_TYPES["io.debezium.time.Date"],
    "timestamp_ms": _LOGICAL_TYPES["io.debezium.time.Timestamp"],
    "timestamp_us": _LOGICAL_TYPES["io.debezium.time.MicroTimestamp"],
    "timestamp_ns": _LOGICAL_TYPES["io.debezium.time.NanoTimestamp"],
    "zoned_timestamp": _LOGICAL_TYPES["io.debezium.time.ZonedTimestamp"],
    "time_ms": _LOGICAL_TYPES["io.debezium.time.Time"],
    "time_us": _LOGICAL_TYPES["io.debezium.time.MicroTime"],
}


def parse_columns(text: str) -> dict[str, ColumnType]:
    """Read `id:int64, price:decimal(10,2), placed:timestamp_us, tags:string[]`; raises UnsupportedSchema."""
    columns: dict[str, ColumnType] = {}
    position = 0
    while position < len(text):
        match = _COLUMN.match(text, position)
        if match is None:
            raise UnsupportedSchema(f"columns: expected name:type at {text[position : position + 20]!r}")
        name, kind, precision, scale, many = match.groups()
        if kind == "decimal" and precision is not None:
            one = decimal_type(int(precision), int(scale))
        elif kind in _NAMED and precision is None:
            one = _NAMED[kind]
        else:
            raise UnsupportedSchema(
                f"columns: {name} has the unknown type {kind!r}; known are decimal(p,s), {', '.join(sorted(_NAMED))}"
            )
        columns[name] = list_type(one) if many else one
        position = match.end()
    return columns
