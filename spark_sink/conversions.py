"""Parsed JSON columns turned into table columns, column by column

The one costly form is Connect's Decimal: base64 of a big-endian two's complement number of as few bytes as possible.
All values of one length are decoded together: their characters form a matrix, a look-up table turns it into six-bit
numbers, shifts into bytes, and the bytes, sign-extended and reversed, are exactly how Arrow stores a decimal.
"""

import base64
import binascii
import datetime
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.spark_sink.column_types import ColumnType, Kind

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_INVALID, _PADDING = 255, 254
_SIX_BITS = np.full(256, _INVALID, dtype=np.uint8)
_SIX_BITS[np.frombuffer(_ALPHABET, dtype=np.uint8)] = np.arange(64, dtype=np.uint8)
_SIX_BITS[ord("=")] = _PADDING
_DECIMAL_BYTES = 16
_NANOS, _MICROS, _MILLIS = 1_000_000_000, 1_000_000, 1_000
_EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()
_INT64_MAX = 2**63 - 1


class ConversionError(ValueError):
    """A value that does not fit its column's type."""


def convert(array: pa.Array, column: ColumnType) -> pa.Array:
    """Bring a parsed column to its stored type; raises ConversionError."""
    if array.null_count == len(array):  # whatever its type: where types are guessed, nulls have their own
        return pa.nulls(len(array), column.stored)
    try:
        return _CONVERT[column.kind](array, column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, binascii.Error, ValueError, OverflowError) as error:
        raise ConversionError(str(error).split("\n", 1)[0]) from error


def _plain(array: pa.Array, column: ColumnType) -> pa.Array:
    if pa.types.is_float32(column.stored):
        return pc.cast(array, column.stored, safe=False)  # the text of a float has more digits than the float
    return array.cast(column.stored)


def _bytes(array: pa.Array, column: ColumnType) -> pa.Array:
    decode = binascii.a2b_base64
    return pa.array([None if text is None else decode(text) for text in array.to_pylist()], pa.binary())


def _decimal(array: pa.Array, column: ColumnType) -> pa.Array:
    if not pa.types.is_decimal(column.stored):
        texts = [None if text is None else str(_exact(text, column.scale)) for text in array.to_pylist()]
        return pa.array(texts, pa.string())
    width = _DECIMAL_BYTES
    words = np.zeros((len(array), width), dtype=np.uint8)
    lengths = pc.binary_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)[array.offset : array.offset + len(array)]
    data = array.buffers()[2]
    raw = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
    for length in np.unique(lengths):
        if length == 0:
            continue
        rows = np.flatnonzero(lengths == length)
        characters = raw[offsets[rows, None].astype(np.int64) + np.arange(length)]
        words[rows] = _little_endian(_SIX_BITS[characters], width)
    valid = array.is_valid()
    bitmap = valid.buffers()[1] if array.null_count else None
    stored = pa.Array.from_buffers(pa.decimal128(38, column.scale), len(array), [bitmap, pa.py_buffer(words)])
    return stored.cast(column.stored)  # checks the precision


def _little_endian(sextets: npt.NDArray[np.uint8], width: int) -> npt.NDArray[np.uint8]:
    """Decode rows of base64 digits, all of one length, to sign-extended little-endian integers of `width` bytes."""
    count, length = sextets.shape
    if length % 4 or (sextets == _INVALID).any():
        raise ConversionError("a decimal is not base64")
    is_padding = sextets[:, -2:] == _PADDING
    padding = is_padding[:, 0].astype(np.int64) + is_padding[:, 1]
    if (sextets[:, :-2] == _PADDING).any() or (is_padding[:, 0] & ~is_padding[:, 1]).any():
        raise ConversionError("a decimal is not base64")
    groups = np.where(sextets == _PADDING, 0, sextets).reshape(count, length // 4, 4).astype(np.uint32)
    triple = groups[:, :, 0] << 18 | groups[:, :, 1] << 12 | groups[:, :, 2] << 6 | groups[:, :, 3]
    plain = np.stack([triple >> 16, triple >> 8, triple], axis=2).astype(np.uint8).reshape(count, length // 4 * 3)
    result = np.zeros((count, width), dtype=np.uint8)
    for pad in np.unique(padding):
        rows = np.flatnonzero(padding == pad)
        used = plain.shape[1] - int(pad)
        big = plain[rows, :used]
        negative = (big[:, 0] & 0x80) != 0
        extra = big[:, : max(used - width, 0)]
        if used > width:
            if (extra != np.where(negative, 0xFF, 0)[:, None]).any():
                raise ConversionError("a decimal has more than 38 digits")
            big = big[:, used - width :]
        little = big[:, ::-1]
        block = np.where(negative, 0xFF, 0).astype(np.uint8)[:, None].repeat(width, axis=1)
        block[:, : little.shape[1]] = little
        result[rows] = block
    return result


def _exact(text: str, scale: int) -> Decimal:
    unscaled = int.from_bytes(base64.b64decode(text), "big", signed=True)
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -scale))  # exact at any length, unlike arithmetic in a context


def _variable_decimal(array: pa.Array, column: ColumnType) -> pa.Array:
    texts = [
        None if item is None or item["value"] is None else format(_exact(item["value"], item["scale"] or 0), "f")
        for item in array.to_pylist()
    ]
    return pa.array(texts, pa.string())


def _date(array: pa.Array, column: ColumnType) -> pa.Array:
    return array.cast(pa.int32()).cast(pa.date32())


def _timestamp(unit_per_us: int, us_per_unit: int) -> Callable[[pa.Array, ColumnType], pa.Array]:
    def to_micros(array: pa.Array, column: ColumnType) -> pa.Array:
        micros = pc.multiply_checked(array, us_per_unit) if us_per_unit > 1 else pc.divide(array, unit_per_us)
        return micros.cast(column.stored)

    return to_micros


def _zoned_timestamp(array: pa.Array, column: ColumnType) -> pa.Array:
    try:
        return array.cast(column.stored)
    except pa.ArrowInvalid:
        return pa.array([_instant_us(text) for text in array.to_pylist()], pa.int64()).cast(column.stored)


_INSTANT = re.compile(r"([+-]?\d{4,6})-(\d\d)-(\d\d)T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d:\d\d)")


def _instant_us(text: str | None) -> int | None:
    """Microseconds since 1970 of any instant: years beyond 9999 and before 1, offsets, nanoseconds (cut off)."""
    if text is None:
        return None
    match = _INSTANT.fullmatch(text)
    if match is None:
        raise ConversionError(f"{text!r} is not an instant")
    year, month, day, hour, minute = (int(part) for part in match.groups()[:5])
    zone = match[8]
    shift = 0 if zone == "Z" else int(f"{zone[0]}1") * (int(zone[1:3]) * 60 + int(zone[4:]))
    shifted_year = 2000 + year % 400  # the calendar repeats every 400 years, and datetime ends at 9999
    days = datetime.date(shifted_year, month, day).toordinal() - _EPOCH_ORDINAL + (year - shifted_year) // 400 * 146_097
    seconds = days * 86_400 + hour * 3_600 + (minute - shift) * 60 + int(match[6] or 0)
    micros = seconds * _MICROS + int(f"{match[7] or 0:0<6}"[:6])
    return max(min(micros, _INT64_MAX), -_INT64_MAX)


def _time(per_second: int) -> Callable[[pa.Array, ColumnType], pa.Array]:
    """Times of day as `HH:MM:SS[.ffffff]` in the shortest form, as PostgreSQL prints them; 24:00:00 is one."""

    def text(value: int) -> str:
        seconds, part = divmod(value, per_second)
        digits = len(str(per_second)) - 1
        fraction = f".{part:0{digits}d}".rstrip("0") if part else ""
        return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"

    def to_text(array: pa.Array, column: ColumnType) -> pa.Array:
        return pa.array([None if value is None else text(value) for value in array.to_pylist()], pa.string())

    return to_text


def _list(array: pa.Array, column: ColumnType) -> pa.Array:
    assert column.items is not None
    if not pa.types.is_list(array.type):
        raise ConversionError(f"{array.type} where a list is expected")
    items = convert(array.flatten(), column.items)
    edges = np.zeros(len(array) + 1, dtype=np.int32)
    np.cumsum(array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), out=edges[1:])
    bitmap = array.is_valid().buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(
        column.stored, len(array), [bitmap, pa.py_buffer(edges)], children=[items], null_count=array.null_count
    )


def _struct(array: pa.Array, column: ColumnType) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise ConversionError(f"{array.type} where an object is expected")
    names = list(column.fields)
    inner = dict(zip((each.name for each in array.type), array.flatten(), strict=True))
    children = [
        convert(inner[name], each) if name in inner else pa.nulls(len(array), each.stored)
        for name, each in column.fields.items()
    ]
    return pa.StructArray.from_arrays(
        children, fields=[column.stored.field(name) for name in names], mask=array.is_null()
    )


_CONVERT: Mapping[Kind, Callable[[pa.Array, ColumnType], pa.Array]] = {
    Kind.PLAIN: _plain,
    Kind.BYTES: _bytes,
    Kind.DECIMAL: _decimal,
    Kind.VARIABLE_DECIMAL: _variable_decimal,
    Kind.DATE: _date,
    Kind.TIMESTAMP_MS: _timestamp(1, 1_000),
    Kind.TIMESTAMP_US: _timestamp(1, 1),
    Kind.TIMESTAMP_NS: _timestamp(1_000, 1),
    Kind.ZONED_TIMESTAMP: _zoned_timestamp,
    Kind.TIME_MS: _time(_MILLIS),
    Kind.TIME_US: _time(_MICROS),
    Kind.TIME_NS: _time(_NANOS),
    Kind.LIST: _list,
    Kind.STRUCT: _struct,
}


_JSON_TYPES: Mapping[pa.DataType, tuple[type, ...]] = {
    pa.bool_(): (bool,),
    pa.int64(): (int,),
    pa.float64(): (int, float),
    pa.string(): (str,),
}


def coerce(value: Any, column: ColumnType) -> Any:
    """Bring one JSON value, which the fast reader refused, to what `column.parsed` accepts; raises ConversionError."""
    if value is None:
        return None
    if column.kind is Kind.LIST and isinstance(value, list) and column.items is not None:
        return [coerce(item, column.items) for item in value]
    if column.kind is Kind.STRUCT and isinstance(value, dict):
        return {name: coerce(value.get(name), each) for name, each in column.fields.items()}
    if pa.types.is_floating(column.parsed) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    expected = _JSON_TYPES.get(column.parsed, (dict,))
    if not isinstance(value, expected) or (isinstance(value, bool) and bool not in expected):
        raise ConversionError(f"{value!r} is not a value of a {column.stored} column")
    return value
