"""Cast: other types for values

Numbers are cut as Java cuts them: what does not fit loses its upper bits, a fraction its fraction, and a fraction that
is too large becomes the largest there is. A text that is no number is an error.
"""

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Final

from tidemill.connect.api import InvalidConfig, Json, Record, Schema, SchemaField, SchemaType
from tidemill.connect.converters.json.values import DATE
from tidemill.connect.transforms.java_dates import DAY_MS
from tidemill.connect.transforms.options import CastOptions
from tidemill.connect.transforms.role import PartTransform, Role, SchemaMemory, as_map, as_struct, member
from tidemill.connect.transforms.text import logical_ms, value_text

_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_SCHEMAS: Final = {
    "int8": SchemaType.INT8,
    "int16": SchemaType.INT16,
    "int32": SchemaType.INT32,
    "int64": SchemaType.INT64,
    "float32": SchemaType.FLOAT32,
    "float64": SchemaType.FLOAT64,
    "boolean": SchemaType.BOOLEAN,
    "string": SchemaType.STRING,
}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"\s*[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)[fFdD]?\s*")


class Cast(PartTransform):
    """Casts fields, or the whole value."""

    def __init__(self, role: Role, options: CastOptions) -> None:
        super().__init__(role)
        self._replace_null = options.replace_null
        self._fields, self._whole = _spec(options.spec)
        self._schemas = SchemaMemory(self._cast_schema)

    def one(self, record: Record) -> Record:
        """Cast what is there; null stays null."""
        value, schema = self.role.of(record)
        if value is None:
            return record
        if self._whole is not None:
            made = None if schema is None else self._schemas(schema)
            return self.role.put(record, cast(value, schema, self._whole), made)
        if schema is None:
            given = as_map(value, "cast types")
            changed = {name: cast(given.get(name), None, kind) for name, kind in self._fields.items()}
            return self.role.put(record, {**given, **changed}, None)
        return self.role.put(
            record, self._cast_struct(as_struct(value, schema, "cast types"), schema), self._schemas(schema)
        )

    def _cast_struct(self, value: Mapping[str, Json], schema: Schema) -> dict[str, Json]:
        out = {}
        for field in schema.fields:
            found = member(value, field, replace_null=self._replace_null)
            kind = self._fields.get(field.name)
            out[field.name] = found if kind is None else cast(found, field.schema, kind)
        return out

    def _cast_schema(self, schema: Schema) -> Schema:
        if self._whole is not None:
            return _schema_of(schema, self._whole)
        fields = [
            SchemaField(name=each.name, schema=_schema_of(each.schema, self._fields[each.name]))
            if each.name in self._fields
            else each
            for each in schema.fields
        ]
        return replace(schema, fields=tuple(fields))


def _schema_of(schema: Schema, kind: str) -> Schema:
    default = None if schema.default is None else cast(schema.default, schema, kind)
    return Schema(type=_SCHEMAS[kind], optional=schema.optional, default=default)


def _spec(pairs: list[str]) -> tuple[dict[str, str], str | None]:
    fields, whole = {}, None
    for pair in pairs:
        name, colon, kind = pair.rpartition(":")
        kind = kind.strip().lower()
        if kind not in _SCHEMAS:
            raise InvalidConfig("spec", f"{pair!r} does not name one of the types {', '.join(_SCHEMAS)}")
        if colon:
            fields[name.strip()] = kind
        elif len(pairs) > 1:
            raise InvalidConfig("spec", "a type for the value as a whole stands alone")
        else:
            whole = kind
    return fields, whole


# -------------------------------------------------------------------- values


def cast(value: Json, schema: Schema | None, kind: str) -> Json:
    """A value in another type; a ValueError if that cannot be."""
    if value is None:
        return None
    if isinstance(value, (Mapping, list, tuple)):
        raise ValueError(f"a {type(value).__name__} cannot be cast to {kind}")
    if kind == "string":
        return value_text(value, schema)
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise ValueError(f"bytes cannot be cast to {kind}")
    return _CASTS[kind](_counted(value, schema))


def _counted(value: Json, schema: Schema | None) -> Json:
    """What Connect counts of a point in time: days of a date, else milliseconds."""
    ms = logical_ms(value, schema)
    if ms is None:
        return value
    return ms // DAY_MS if schema is not None and schema.name == DATE else ms


def _integer_cast(kind: str) -> Callable[[Json], int]:
    bits = _BITS[kind]
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    saturated = 64 if bits == 64 else 32  # a fraction goes by way of an int

    def narrow(value: Json) -> int:
        if isinstance(value, str):
            if not _INTEGER.fullmatch(value) or not low <= int(value) <= high:
                raise ValueError(f"Value ({value}) was out of range for requested data type")
            return int(value)
        if isinstance(value, float):
            value = _saturated(value, saturated)
        if isinstance(value, Decimal) and value.is_finite() and value.adjusted() - len(value.as_tuple().digits) >= 64:
            return 0  # a multiple of 2**64, whose digits need not be counted
        number = int(value)
        return (number - low) % (1 << bits) + low

    return narrow


def _saturated(value: float, bits: int) -> int:
    limit = 1 << (bits - 1)
    if value != value:
        return 0
    return limit - 1 if value >= limit else -limit if value <= -limit else int(value)


def _float(value: Json) -> float:
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            raise ValueError(f"Value ({value}) was out of range for requested data type")
        return float(value.strip().rstrip("fFdD"))
    return float(value)


def float32(value: float) -> float:
    """The nearest number of 32 bits, as the shortest decimal that stands for it: what Java writes of one.

    >>> float32(0.1), float32(1709212455678.0), float32(1e300)
    (0.1, 1709212430000.0, inf)
    """
    try:
        exact: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    if exact != exact or exact in (0.0, float("inf"), float("-inf")):
        return exact
    for digits in range(2, 10):
        shown = float(f"{exact:.{digits}g}")
        if abs(shown) < 3.4028235677973366e38 and struct.unpack("f", struct.pack("f", shown))[0] == exact:
            return shown
    return exact


def _boolean(value: Json) -> bool:
    if isinstance(value, str):
        return value.lower() == "true"
    return bool(_saturated(value, 64) if isinstance(value, float) else int(value))


_CASTS: Final[Mapping[str, Callable[[Json], Json]]] = {
    **{kind: _integer_cast(kind) for kind in _BITS},
    "float32": lambda value: float32(_float(value)),
    "float64": _float,
    "boolean": _boolean,
}
