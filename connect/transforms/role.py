"""The part of a record a transform is about: its key or its value

`Cast$Key` and `Cast$Value` are the same transform of different parts. A part is a value and perhaps a schema: with one,
a structure is a struct whose fields the schema lists; without one it is a map of anything.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidemill.connect.api import Json, Record, Schema, SchemaField, SchemaType, Transform


@dataclass(frozen=True, slots=True)
class Role:
    """Key or value."""

    name: str

    def of(self, record: Record) -> tuple[Json, Schema | None]:
        """The part of a record."""
        if self is KEY:
            return record.key, record.key_schema
        return record.value, record.value_schema

    def put(self, record: Record, value: Json, schema: Schema | None) -> Record:
        """The record with another such part."""
        if self is KEY:
            return replace(record, key=value, key_schema=schema)
        return replace(record, value=value, value_schema=schema)


SCHEMAS_MAX: Final = 1_000
"""Schemas that are remembered, as many as a JSON converter does."""

KEY: Final = Role("Key")
VALUE: Final = Role("Value")


class RecordTransform(Transform):
    """A transform that looks at one record at a time."""

    def apply(self, records: Sequence[Record]) -> list[Record | None]:
        """One after the other."""
        return [self.one(record) for record in records]

    @abstractmethod
    def one(self, record: Record) -> Record | None:
        """What becomes of a record."""


class PartTransform(RecordTransform):
    """A transform of a key or a value."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.uses_key = role is KEY
        self.uses_value = role is VALUE


def as_map(value: Json, purpose: str) -> Mapping[str, Json]:
    """A value that has members; a ValueError says what it is instead."""
    if not isinstance(value, Mapping):
        found = "null" if value is None else type(value).__name__
        raise ValueError(f"Only maps and structs are supported for [{purpose}], found: {found}")
    return value


def as_struct(value: Json, schema: Schema, purpose: str) -> Mapping[str, Json]:
    """A value whose schema lists its members."""
    if schema.type is not SchemaType.STRUCT:
        raise ValueError(f"Only structs are supported for [{purpose}], found: {schema.type}")
    return as_map(value, purpose)


def member(value: Mapping[str, Json], field: SchemaField, *, replace_null: bool) -> Json:
    """A member of a struct, or the default in its place where it is null and that is wanted."""
    found = value.get(field.name)
    return field.schema.default if found is None and replace_null else found


class SchemaMemory:
    """What was made of a schema, once per schema: converters know a schema again by its identity."""

    def __init__(self, make: Callable[[Schema], Schema]) -> None:
        self._make = make
        self._made: dict[int, tuple[Schema, Schema]] = {}  # by identity: the entry keeps the schema alive

    def __call__(self, schema: Schema) -> Schema:
        """The schema made of this one."""
        known = self._made.get(id(schema))
        if known is not None and known[0] is schema:
            return known[1]
        made = self._make(schema)
        if len(self._made) >= SCHEMAS_MAX:
            self._made.clear()
        self._made[id(schema)] = (schema, made)
        return made


def basics(schema: Schema) -> Schema:
    """What a changed struct keeps of its schema: what it is called, not whether it may be null."""
    return replace(schema, optional=False, default=None)
