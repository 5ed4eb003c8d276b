"""MaskField: values that nobody may see

What is masked is empty or zero of its own type, or the replacement; null stays null. What cannot be masked fails the
record: it must not pass unmasked.
"""

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

from tidemill.connect.api import Json, Record, Schema, SchemaType
from tidemill.connect.converters.json.values import decimal_scale
from tidemill.connect.transforms.options import MaskFieldOptions
from tidemill.connect.transforms.role import PartTransform, Role, as_map, as_struct, member
from tidemill.connect.transforms.text import logical_ms

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class MaskField(PartTransform):
    """Masks fields by their names."""

    def __init__(self, role: Role, options: MaskFieldOptions) -> None:
        super().__init__(role)
        self._fields = tuple(options.fields)
        self._names = frozenset(options.fields)
        self._replacement = options.replacement
        self._replace_null = options.replace_null

    def one(self, record: Record) -> Record:
        """Build the structure anew."""
        value, schema = self.role.of(record)
        if schema is None:
            given = as_map(value, "mask fields")
            masked = {name: self._masked(given.get(name), None) for name in self._fields}
            return self.role.put(record, {**given, **masked}, None)
        given = as_struct(value, schema, "mask fields")
        out = {}
        for field in schema.fields:
            found = member(given, field, replace_null=self._replace_null)
            out[field.name] = self._masked(found, field.schema) if field.name in self._names else found
        return self.role.put(record, out, schema)

    def _masked(self, value: Json, schema: Schema | None) -> Json:
        if value is None:
            return None
        if self._replacement is None:
            return _empty(value, schema)
        return _replaced(value, schema, self._replacement)


def _empty(value: Json, schema: Schema | None) -> Json:
    if logical_ms(value, schema) is not None:
        return _first(value)
    if isinstance(value, Decimal):
        return Decimal(0)
    if isinstance(value, (bool, int, float, str, list)):
        return type(value)()
    if isinstance(value, tuple):
        return []
    if isinstance(value, Mapping) and (schema is None or schema.type is SchemaType.MAP):
        return {}
    raise ValueError(f"Cannot mask value of type: {type(value).__name__}")


def _first(value: Json) -> Json:
    if isinstance(value, dt.datetime):
        return _EPOCH
    if isinstance(value, dt.date):
        return _EPOCH.date()
    return dt.time() if isinstance(value, dt.time) else 0


def _replaced(value: Json, schema: Schema | None, replacement: str) -> Json:
    if isinstance(value, str):
        return replacement
    numeric = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    if not numeric or logical_ms(value, schema) is not None:
        raise ValueError(f"Cannot mask value of type {type(value).__name__} with custom replacement.")
    try:
        if isinstance(value, Decimal):
            number = Decimal(replacement)
            return number if schema is None else round(number, decimal_scale(schema))
        return type(value)(replacement)
    except (ValueError, InvalidOperation):
        raise ValueError(f"Unable to convert {replacement} to a number") from None
