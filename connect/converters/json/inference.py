"""A schema for plain Python values that came without one

A source in Python yields dictionaries; a reader with `schemas.enable=true` wants types. One value shows only so much,
so everything inside a structure is optional, and a null alone is taken for an optional string. What has no one type
(a list of mixed things, keys that are not strings, an integer beyond 64 bits) has no schema.
"""

import datetime as dt
from collections.abc import Hashable
from decimal import Decimal
from typing import cast

from tidemill.connect.api import Json, Schema, SchemaField, SchemaType
from tidemill.connect.converters.json.values import DATE, DECIMAL, TIME, TIMESTAMP


class NoSchema(ValueError):
    """The value has no schema that would describe it."""


_PLAIN = {
    bool: SchemaType.BOOLEAN,
    int: SchemaType.INT64,
    float: SchemaType.FLOAT64,
    str: SchemaType.STRING,
    bytes: SchemaType.BYTES,
}


def shape(value: Json) -> Hashable:
    """What `infer` looks at, as a cache key: equal shapes have equal schemas."""
    kind = type(value)
    if kind in _PLAIN:
        return cast(Hashable, kind)
    if isinstance(value, dict):  # a subclass, too: its schema tells of members, which its type does not
        return tuple([(name, shape(each)) for name, each in value.items()])
    if isinstance(value, (list, tuple)):
        return frozenset([shape(each) for each in value])
    if isinstance(value, Decimal):
        return (Decimal, _scale(value))
    return cast(Hashable, kind)


def infer(value: Json, optional: bool = False) -> Schema:
    """Make the schema of a value; raises NoSchema."""
    if value is None:
        return Schema(type=SchemaType.STRING, optional=True)
    if type(value) in _PLAIN:
        return Schema(type=_PLAIN[type(value)], optional=optional)
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise NoSchema("a map with keys that are not strings")
        named = [(str.__str__(name), each) for name, each in value.items()]  # plain text, whatever type of text it was
        fields = tuple(SchemaField(name=name, schema=infer(each, True)) for name, each in named)
        return Schema(type=SchemaType.STRUCT, optional=optional, fields=fields)
    if isinstance(value, (list, tuple)):
        return Schema(type=SchemaType.ARRAY, optional=optional, items=_items(value))
    if isinstance(value, Decimal):
        parameters = {"scale": str(_scale(value))}
        return Schema(type=SchemaType.BYTES, optional=optional, name=DECIMAL, version=1, parameters=parameters)
    if isinstance(value, dt.datetime):
        return Schema(type=SchemaType.INT64, optional=optional, name=TIMESTAMP, version=1)
    if isinstance(value, dt.date):
        return Schema(type=SchemaType.INT32, optional=optional, name=DATE, version=1)
    if isinstance(value, dt.time):
        return Schema(type=SchemaType.INT32, optional=optional, name=TIME, version=1)
    raise NoSchema(f"a {type(value).__name__}")


def _items(values: list[Json] | tuple[Json, ...]) -> Schema:
    found: Schema | None = None
    for each in values:
        schema = infer(each, True)
        if each is None:
            continue
        if found is not None and schema != found:
            raise NoSchema("a list of different things")
        found = schema
    return found if found is not None else Schema(type=SchemaType.STRING, optional=True)


def _scale(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise NoSchema(f"the decimal {value}")
    return max(0, -exponent)
