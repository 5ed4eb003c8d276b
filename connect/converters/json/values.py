"""One compiled function per schema, from values to JSON and back

A schema is walked once, when it is first met; what comes out is a tree of closures that touch only values. Types are
checked on the way: a wrong value is an error at the source that made it, not a puzzle for every reader.

Logical types go by their name, as in Connect: Decimal is the big-endian unscaled number in base64 (or a JSON number
with `decimal.format=NUMERIC`), Date counts days, Time and Timestamp count milliseconds. Python's date, time and
datetime objects are taken for these when writing; reading gives the plain counts, which reach further than Python's
calendar.
"""

import datetime as dt
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, TypeAlias

import orjson

from tidemill.connect.api import Json, Schema, SchemaType

Codec: TypeAlias = Callable[[Json], Json]

DECIMAL = "org.apache.kafka.connect.data.Decimal"
DATE = "org.apache.kafka.connect.data.Date"
TIME = "org.apache.kafka.connect.data.Time"
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_MILLISECOND = dt.timedelta(milliseconds=1)
_EXACT = Context(prec=10_000, traps=[Inexact, InvalidOperation])  # more digits than any database keeps

_INTEGER_BITS = {SchemaType.INT8: 8, SchemaType.INT16: 16, SchemaType.INT32: 32, SchemaType.INT64: 64}


# -------------------------------------------------------------------- writing


def compile_encoder(schema: Schema, *, decimal_numeric: bool, replace_null: bool) -> Codec:
    """Make the function that turns a value of `schema` into what orjson can write."""
    inner = _encoder(schema, decimal_numeric, replace_null)
    default = None if schema.default is None or not replace_null else inner(schema.default)
    optional = schema.optional

    def encode(value: Json) -> Json:
        if value is not None:
            return inner(value)
        if default is None and not optional:
            raise ValueError("null, but the field is required and has no default")
        return default

    return encode


def _encoder(schema: Schema, decimal_numeric: bool, replace_null: bool) -> Codec:
    if schema.name is not None and schema.name in _LOGICAL_ENCODERS:
        return _LOGICAL_ENCODERS[schema.name](schema, decimal_numeric)
    match schema.type:
        case SchemaType.BOOLEAN:
            return _checked(bool, "a boolean")
        case SchemaType.STRING:
            return _encode_string
        case SchemaType.BYTES:
            return encode_bytes
        case SchemaType.FLOAT32 | SchemaType.FLOAT64:
            return encode_float
        case SchemaType.ARRAY:
            return _array_encoder(_child(schema.items, "items", decimal_numeric, replace_null))
        case SchemaType.MAP:
            return _map_encoder(schema, decimal_numeric, replace_null)
        case SchemaType.STRUCT:
            return _struct_encoder(schema, decimal_numeric, replace_null)
        case _:
            return _integer(_INTEGER_BITS[schema.type])


def _child(schema: Schema | None, member: str, decimal_numeric: bool, replace_null: bool) -> Codec:
    if schema is None:
        raise ValueError(f"the schema lacks {member!r}")
    return compile_encoder(schema, decimal_numeric=decimal_numeric, replace_null=replace_null)


def _checked(kind: type, wanted: str) -> Codec:
    def check(value: Json) -> Json:
        if type(value) is not kind:
            raise ValueError(f"expected {wanted}, got {type(value).__name__}")
        return value

    return check


def _integer(bits: int) -> Codec:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def check(value: Json) -> Json:
        if type(value) is not int:
            raise ValueError(f"expected an integer, got {type(value).__name__}")
        if not low <= value <= high:
            raise ValueError(f"{value} does not fit {bits} bits")
        return value

    return check


def _encode_string(value: Json) -> Json:
    if not isinstance(value, str):
        raise ValueError(f"expected a string, got {type(value).__name__}")
    return value


def encode_bytes(value: Json) -> str:
    """Bytes as JSON carries them: base64."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise ValueError(f"expected bytes, got {type(value).__name__}")
    return b64encode(value).decode("ascii")


def encode_float(value: Json) -> Json:
    """A number as JSON carries it, by its name where JSON has none."""
    if type(value) is int:
        return float(value)
    if not isinstance(value, float):
        raise ValueError(f"expected a number, got {type(value).__name__}")
    if math.isfinite(value):
        return value
    # JSON has no such numbers; Jackson, and so JsonConverter, writes their names.
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _array_encoder(item: Codec) -> Codec:
    def encode(value: Json) -> Json:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"expected a list, got {type(value).__name__}")
        return [item(each) for each in value]

    return encode


def _map_encoder(schema: Schema, decimal_numeric: bool, replace_null: bool) -> Codec:
    key = _child(schema.keys, "keys", decimal_numeric, replace_null)
    item = _child(schema.items, "values", decimal_numeric, replace_null)
    # JSON's keys are strings; a map with any other becomes an array of pairs.
    as_object = schema.keys is not None and schema.keys.type is SchemaType.STRING

    def encode(value: Json) -> Json:
        if not isinstance(value, Mapping):
            raise ValueError(f"expected a map, got {type(value).__name__}")
        if as_object:
            return {key(name): item(each) for name, each in value.items()}
        return [[key(name), item(each)] for name, each in value.items()]

    return encode


def _struct_encoder(schema: Schema, decimal_numeric: bool, replace_null: bool) -> Codec:
    members = [(each.name, _child(each.schema, each.name, decimal_numeric, replace_null)) for each in schema.fields]
    names = {name for name, _ in members}

    def encode(value: Json) -> Json:
        if not isinstance(value, Mapping):
            raise ValueError(f"expected a struct, got {type(value).__name__}")
        get = value.get
        out = {}
        name = ""
        try:
            for name, member in members:
                out[name] = member(get(name))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        if len(value) > len(out) or not value.keys() <= names:
            raise ValueError(f"the schema has no field {sorted(set(value) - names)[0]!r}")
        return out

    return encode


def _decimal_encoder(schema: Schema, decimal_numeric: bool) -> Codec:
    scale = decimal_scale(schema)

    def encode(value: Json) -> Json:
        number = Decimal(value) if type(value) is int else value
        if not isinstance(number, Decimal):
            raise ValueError(f"expected a Decimal, got {type(value).__name__}")
        try:
            unscaled = int(number.scaleb(scale, _EXACT).to_integral_exact(context=_EXACT))
        except (Inexact, InvalidOperation):
            raise ValueError(f"{number} does not fit a scale of {scale}") from None
        if decimal_numeric:
            return orjson.Fragment(format(Decimal(unscaled).scaleb(-scale, _EXACT), "f"))
        return b64encode(unscaled_bytes(unscaled)).decode("ascii")

    return encode


def unscaled_bytes(number: int) -> bytes:
    """A two's complement big-endian integer in as few bytes as Java's BigInteger uses.

    >>> unscaled_bytes(128), unscaled_bytes(-128), unscaled_bytes(0)
    (b'\\x00\\x80', b'\\x80', b'\\x00')
    """
    bits = number.bit_length() if number >= 0 else (number + 1).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def decimal_scale(schema: Schema) -> int:
    """The scale a Decimal schema names."""
    try:
        return int(schema.parameters["scale"])
    except (KeyError, ValueError):
        raise ValueError("a Decimal schema needs the parameter 'scale', a number") from None


def _date_encoder(schema: Schema, decimal_numeric: bool) -> Codec:
    count = _integer(32)

    def encode(value: Json) -> Json:
        if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            return value.toordinal() - _EPOCH_DAY
        return count(value)

    return encode


def _time_encoder(schema: Schema, decimal_numeric: bool) -> Codec:
    count = _integer(32)

    def encode(value: Json) -> Json:
        if isinstance(value, dt.time):
            return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
        return count(value)

    return encode


def _timestamp_encoder(schema: Schema, decimal_numeric: bool) -> Codec:
    count = _integer(64)

    def encode(value: Json) -> Json:
        if isinstance(value, dt.datetime):
            return timestamp_ms(value)
        return count(value)

    return encode


def timestamp_ms(value: dt.datetime) -> int:
    """Milliseconds since 1970; a datetime without a zone is taken as UTC."""
    aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
    return (aware - _EPOCH) // _MILLISECOND


_LOGICAL_ENCODERS: Mapping[str, Callable[[Schema, bool], Codec]] = {
    DECIMAL: _decimal_encoder,
    DATE: _date_encoder,
    TIME: _time_encoder,
    TIMESTAMP: _timestamp_encoder,
}


# -------------------------------------------------------------------- reading


class ImpreciseNumber(ValueError):
    """A decimal came through a parser that rounds: parse again, with one that does not."""


def compile_decoder(schema: Schema, *, replace_null: bool) -> Codec:
    """Make the function that turns parsed JSON into a value of `schema`."""
    inner = _decimal_decoder(schema) if schema.name == DECIMAL else _decoder(schema, replace_null)
    default = schema.default if replace_null else None
    optional = schema.optional

    def decode(given: Json) -> Json:
        if given is not None:
            return inner(given)
        if default is None and not optional:
            raise ValueError(f"null for a required {schema.type}")
        return default

    return decode


def _decoder(schema: Schema, replace_null: bool) -> Codec:
    match schema.type:
        case SchemaType.BOOLEAN:
            return _checked(bool, "a boolean")
        case SchemaType.STRING:
            return _checked(str, "a string")
        case SchemaType.BYTES:
            return _decode_bytes
        case SchemaType.FLOAT32 | SchemaType.FLOAT64:
            return _decode_float
        case SchemaType.ARRAY:
            return _array_decoder(_child_decoder(schema.items, replace_null))
        case SchemaType.MAP:
            return _map_decoder(schema, replace_null)
        case SchemaType.STRUCT:
            return _struct_decoder(schema, replace_null)
        case _:
            return _integer(_INTEGER_BITS[schema.type])


def _child_decoder(schema: Schema | None, replace_null: bool) -> Codec:
    assert schema is not None, "a schema that was read is whole"
    return compile_decoder(schema, replace_null=replace_null)


def _decode_bytes(given: Json) -> Json:
    try:
        return b64decode(given, validate=True)
    except (TypeError, ValueError):
        raise ValueError("expected bytes in base64") from None


def _decode_float(given: Json) -> Json:
    if type(given) is float or type(given) is int or type(given) is Decimal:
        return float(given)
    if given in ("NaN", "Infinity", "-Infinity"):
        return float(given)
    raise ValueError(f"expected a number, got {type(given).__name__}")


def _array_decoder(item: Codec) -> Codec:
    def decode(given: Json) -> Json:
        if not isinstance(given, list):
            raise ValueError(f"expected an array, got {type(given).__name__}")
        return [item(each) for each in given]

    return decode


def _map_decoder(schema: Schema, replace_null: bool) -> Codec:
    key, item = _child_decoder(schema.keys, replace_null), _child_decoder(schema.items, replace_null)

    def decode(given: Json) -> Json:
        if isinstance(given, dict):
            return {key(name): item(each) for name, each in given.items()}
        if not isinstance(given, list) or not all(isinstance(each, list) and len(each) == 2 for each in given):
            raise ValueError("expected an object or an array of pairs")
        return {key(name): item(each) for name, each in given}

    return decode


def _struct_decoder(schema: Schema, replace_null: bool) -> Codec:
    members = [(each.name, _child_decoder(each.schema, replace_null)) for each in schema.fields]

    def decode(given: Json) -> Json:
        if not isinstance(given, dict):
            raise ValueError(f"expected an object, got {type(given).__name__}")
        out: dict[str, Any] = {}
        name = ""
        try:
            for name, member in members:
                out[name] = member(given.get(name))
        except ImpreciseNumber:
            raise
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        return out

    return decode


def _decimal_decoder(schema: Schema) -> Codec:
    scale = decimal_scale(schema)

    def decode(given: Json) -> Json:
        if isinstance(given, str):
            return Decimal(int.from_bytes(_decode_bytes(given), "big", signed=True)).scaleb(-scale, _EXACT)
        if type(given) is int or type(given) is Decimal:
            return Decimal(given)
        if type(given) is float:
            raise ImpreciseNumber("a decimal that was read as a binary fraction")
        raise ValueError("expected a decimal as base64 or as a number")

    return decode
