"""A JSON text as a structure with a schema, as Debezium expands payloads

A schema is guessed from the value: numbers are 32 or 64 bits wide as they need, everything may be null, and a struct is
called by its path. What has no type is left out (an empty list) or, as told, kept as bytes (a null). Objects in a list
are one struct with the fields of all of them. A list of different things has no schema, nor has a payload that is not
an object or a list of objects; it stays the text it was.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from tidemill.connect.api import Json, Schema, SchemaField, SchemaType

_BYTES: Final = Schema(type=SchemaType.BYTES, optional=True)
_INT_MAX: Final = 1 << 31
_LONG_MAX: Final = 1 << 63


def expanded(name: str, text: str, *, keep_nulls: bool) -> tuple[Json, Schema]:
    """The value and its schema; a ValueError says why there is none."""
    if not text.startswith(("{", "[")):
        raise ValueError("it does not begin with { or [")
    try:
        value, _ = json.JSONDecoder(parse_constant=_no_number).raw_decode(text)
    except json.JSONDecodeError:
        raise ValueError("it is not JSON") from None
    schema = _schema(name, value, keep_nulls)
    if schema is None or schema.type is not SchemaType.STRUCT:
        raise ValueError("only an object can be expanded")
    return _value(value, schema), schema


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _schema(name: str | None, value: Any, keep_nulls: bool) -> Schema | None:
    match value:
        case None:
            return _BYTES if keep_nulls else None
        case bool():
            return Schema(type=SchemaType.BOOLEAN, optional=True)
        case int():
            return Schema(type=_width(value), optional=True)
        case float():
            return Schema(type=SchemaType.FLOAT64, optional=True)
        case str():
            return Schema(type=SchemaType.STRING, optional=True)
        case list():
            items = _items(name, value, keep_nulls) if value else None
            return None if items is None else Schema(type=SchemaType.ARRAY, optional=True, items=items)
        case _:
            return _struct(name, value, keep_nulls)


def _width(number: int) -> SchemaType:
    if -_INT_MAX <= number < _INT_MAX:
        return SchemaType.INT32
    return SchemaType.INT64 if -_LONG_MAX <= number < _LONG_MAX else SchemaType.FLOAT64


def _struct(name: str | None, value: Mapping[str, Any], keep_nulls: bool) -> Schema:
    fields = []
    for member, each in value.items():
        schema = _schema(f"{name}.{member}" if name and name.strip() else member, each, keep_nulls)
        if schema is not None:
            fields.append(SchemaField(name=member, schema=schema))
    return Schema(type=SchemaType.STRUCT, optional=True, name=name, fields=tuple(fields))


def _items(name: str | None, values: list[Any], keep_nulls: bool) -> Schema:
    there = [each for each in values if each is not None]
    first = there[0] if there else None
    if any(_kind(each) is not _kind(first) for each in there):
        raise ValueError("a list of different things")
    if isinstance(first, dict):
        return _merged([_struct(name, each, keep_nulls) for each in there])
    if type(first) in (int, float):
        kinds = {_schema(None, each, keep_nulls) and _number(each) for each in there}
        if len(kinds) > 1:
            raise ValueError("a list of numbers of different types")
    items = _schema(None, first, keep_nulls)
    if items is None:
        raise ValueError("a list of nothing that has a type")
    return items


def _kind(value: Any) -> type:
    return float if type(value) is int else type(value)


def _number(value: int | float) -> SchemaType:
    return SchemaType.FLOAT64 if type(value) is float else _width(int(value))


def _merged(structs: list[Schema]) -> Schema:
    fields: dict[str, SchemaField] = {}
    for each in structs:
        for field in each.fields:
            old = fields.get(field.name)
            if old is None or (old.schema.type is SchemaType.BYTES and field.schema.type is not SchemaType.BYTES):
                fields[field.name] = field
    optional = len({repr(each) for each in structs}) == 1
    return replace(structs[0], optional=optional, fields=tuple(fields.values()))


def _value(value: Any, schema: Schema) -> Json:
    match value:
        case dict():
            members = {each.name: each.schema for each in schema.fields}
            return {name: _value(value[name], each) if name in value else None for name, each in members.items()}
        case list():
            assert schema.items is not None, "a list has items"
            return [_value(each, schema.items) for each in value]
        case int() if schema.type is SchemaType.FLOAT64 and not isinstance(value, bool):
            return Decimal(value)
        case _:
            return value
