"""JSON of a value that has no schema

Written by orjson in one go, as far as it knows what stands in the value; bytes and decimals are written as with a
schema. Two things take a second look, and only records that may need it pay for that. A map whose names are not all
strings becomes an array of pairs. And for a number that is none, or infinite, orjson writes null, which nobody could
tell from a null any more: it gets its name, `"NaN"`, `"Infinity"` or `"-Infinity"`, as JsonConverter writes it with and
without a schema.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import orjson

from tidemill.connect.api import Json
from tidemill.connect.converters.json.values import encode_bytes, encode_float

_SCALARS: Final = frozenset({str, int, bool, type(None)})
"""Nearly all that stands in a value, told without a call."""


def dump(value: Json) -> bytes:
    """Write what orjson knows; a ValueError says what it does not."""
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise ValueError(str(error)) from None


def dump_plain(value: Json) -> bytes:
    """Write a value without a schema; a ValueError says what cannot be written."""
    try:
        data = orjson.dumps(value, default=_plain)
    except TypeError as error:
        if "key must be str" not in str(error):
            raise ValueError(str(error.__cause__ or error)) from None
        return dump(_spelled_out(value))
    return _looked_at(value, data) if b"null" in data else data


def dump_all_plain(values: Sequence[Json]) -> list[bytes]:
    """Write values without schemas as `dump_plain` writes each."""
    try:
        written = [orjson.dumps(value, _plain) for value in values]
    except TypeError:
        return [dump_plain(value) for value in values]
    return [_looked_at(value, data) if b"null" in data else data for value, data in zip(values, written, strict=True)]


def _looked_at(value: Json, data: bytes) -> bytes:
    """A value in whose text stands a null: that text, or the right one."""
    return dump(_spelled_out(value)) if holds_no_number(value) else data


def holds_no_number(value: Json) -> bool:
    """Whether a float in it is no number, or infinite: what JSON has no number for, and orjson writes null.

    >>> holds_no_number({"a": [1.5, None]}), holds_no_number({"a": [float("inf")]})
    (False, True)
    """
    if isinstance(value, float):
        return value - value != 0
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    for each in inner:
        kind = type(each)
        if kind is float:
            if each - each != 0:
                return True
        elif kind not in _SCALARS and holds_no_number(each):
            return True
    return False


def _plain(value: Any) -> Any:
    """What orjson does not know by itself."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return encode_bytes(value)
    if isinstance(value, Decimal) and value.is_finite():
        return orjson.Fragment(format(value, "f"))
    raise TypeError(f"a value of type {type(value).__name__} cannot be written as JSON")


def _spelled_out(value: Any) -> Any:
    """The slow way: what orjson writes otherwise, or not at all."""
    if isinstance(value, dict):
        if all(isinstance(name, str) for name in value):
            return {str.__str__(name): _spelled_out(each) for name, each in value.items()}
        return [[_spelled_out(name), _spelled_out(each)] for name, each in value.items()]
    if isinstance(value, (list, tuple)):
        return [_spelled_out(each) for each in value]
    if isinstance(value, float):
        return encode_float(value)
    if isinstance(value, (bytes, bytearray, memoryview, Decimal)):
        return _plain(value)
    return value
