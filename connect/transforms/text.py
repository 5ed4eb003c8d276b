"""The text of a value, as Connect writes it into headers and strings

Numbers are spelled as Java spells them, structures as JSON without blanks, points in time as ISO 8601 in UTC, bytes in
base64.
"""

import datetime as dt
import math
from base64 import b64encode
from collections.abc import Mapping
from decimal import Decimal

from tidemill.connect.api import Json, Schema
from tidemill.connect.converters.json.values import DATE, TIME, TIMESTAMP, timestamp_ms
from tidemill.connect.transforms.java_dates import DAY_MS, compile_format

_TIMES = {
    TIMESTAMP: compile_format("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"),
    DATE: compile_format("yyyy-MM-dd"),
    TIME: compile_format("HH:mm:ss.SSS'Z'"),
}


def logical_ms(value: Json, schema: Schema | None) -> int | None:
    """Milliseconds since 1970 of a point in time, a day or a time of the day; None for any other value."""
    if isinstance(value, dt.datetime):
        return timestamp_ms(value)
    if isinstance(value, dt.date):
        return (value.toordinal() - dt.date(1970, 1, 1).toordinal()) * DAY_MS
    if isinstance(value, dt.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
    if schema is None or schema.name not in _TIMES or type(value) is not int:
        return None
    return value * DAY_MS if schema.name == DATE else value


def value_text(value: Json, schema: Schema | None = None, *, within: bool = False) -> str:
    """The text of anything but null; strings within something else are quoted."""
    ms = logical_ms(value, schema)
    if ms is not None:
        return _TIMES[_logical_name(value, schema)](ms)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, Decimal):
        return str(value)  # by the same rule as Java's BigDecimal: with an exponent where there would be many zeros
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return "{" + ",".join(_member(name, each, schema) for name, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        items = None if schema is None else schema.items
        return "[" + ",".join(_inner(each, items) for each in value) + "]"
    if within and isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)


def _logical_name(value: Json, schema: Schema | None) -> str:
    if schema is not None and schema.name in _TIMES:
        return schema.name
    if isinstance(value, dt.datetime):
        return TIMESTAMP
    return DATE if isinstance(value, dt.date) else TIME


def _member(name: Json, value: Json, schema: Schema | None) -> str:
    inner = None
    if schema is not None:
        inner = next((each.schema for each in schema.fields if each.name == name), schema.items)
    return _inner(name, None) + ":" + _inner(value, inner)


def _inner(value: Json, schema: Schema | None) -> str:
    return "null" if value is None else value_text(value, schema, within=True)


def double_text(value: float) -> str:
    """A number as Java's Double.toString spells it.

    >>> double_text(12345678.9), double_text(0.1), double_text(1e21)
    ('1.23456789E7', '0.1', '1.0E21')
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return format(Decimal(repr(value)), "f") if "e" in repr(value) else repr(value)
    sign, digits, _ = Decimal(repr(value)).normalize().as_tuple()
    tail = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{tail}E{Decimal(repr(value)).adjusted()}"
