"""Flatten: inner fields become fields of the whole, under longer names

Lists stay as they are. A field within a structure that may be null may be null itself.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tidemill.connect.api import Json, Record, Schema, SchemaField, SchemaType
from tidemill.connect.transforms.options import FlattenOptions
from tidemill.connect.transforms.role import PartTransform, Role, SchemaMemory, as_map, as_struct, basics, member


class Flatten(PartTransform):
    """Flattens structures of any depth."""

    def __init__(self, role: Role, options: FlattenOptions) -> None:
        super().__init__(role)
        self._delimiter = options.delimiter
        self._schemas = SchemaMemory(self._flat_schema)

    def one(self, record: Record) -> Record:
        """Flatten what is there; null stays null."""
        value, schema = self.role.of(record)
        if value is None:
            return record
        if schema is None:
            return self.role.put(record, dict(self._members(as_map(value, "flattening"), "")), None)
        given = as_struct(value, schema, "flattening")
        made = self._schemas(schema)
        return self.role.put(record, dict(self._values(given, schema, "")), made)

    def _members(self, value: Mapping[str, Json], prefix: str) -> Iterator[tuple[str, Json]]:
        for name, each in value.items():
            if isinstance(each, Mapping):
                yield from self._members(each, f"{prefix}{name}{self._delimiter}")
            else:
                yield f"{prefix}{name}", each

    def _values(self, value: Mapping[str, Json], schema: Schema, prefix: str) -> Iterator[tuple[str, Json]]:
        for field in schema.fields:
            each = member(value, field, replace_null=True)
            if field.schema.type is SchemaType.STRUCT:
                yield from self._values({} if each is None else each, field.schema, self._below(prefix, field))
            else:
                yield f"{prefix}{field.name}", each

    def _flat_schema(self, schema: Schema) -> Schema:
        return replace(basics(schema), fields=tuple(self._fields(schema, "", schema.optional)))

    def _fields(self, schema: Schema, prefix: str, optional: bool) -> Iterator[SchemaField]:
        for field in schema.fields:
            may_be_null = optional or field.schema.optional
            if field.schema.type is SchemaType.STRUCT:
                yield from self._fields(field.schema, self._below(prefix, field), may_be_null)
            elif field.schema.type is SchemaType.MAP:
                raise ValueError(f"a map with a schema cannot be flattened: {prefix}{field.name}")
            else:
                yield SchemaField(name=f"{prefix}{field.name}", schema=replace(field.schema, optional=may_be_null))

    def _below(self, prefix: str, field: SchemaField) -> str:
        return f"{prefix}{field.name}{self._delimiter}"
