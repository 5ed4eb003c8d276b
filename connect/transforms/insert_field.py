"""InsertField: what is known of a record, as fields of it"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from tidemill.connect.api import InvalidConfig, Json, Record, Schema, SchemaField, SchemaType
from tidemill.connect.converters.json.values import TIMESTAMP
from tidemill.connect.transforms.options import InsertFieldOptions
from tidemill.connect.transforms.role import PartTransform, Role, SchemaMemory, as_map, as_struct, basics, member


class _Insertion(NamedTuple):
    """A field and where its value comes from."""

    name: str
    schema: Schema
    value: Callable[[Record], Json]


class InsertField(PartTransform):
    """Adds fields behind those there are; a tombstone stays one."""

    def __init__(self, role: Role, options: InsertFieldOptions) -> None:
        super().__init__(role)
        self.uses_value = True  # whose null says that nothing is inserted
        self._replace_null = options.replace_null
        self._insertions = tuple(_insertions(options))
        self._schemas = SchemaMemory(self._with_fields)

    def one(self, record: Record) -> Record:
        """Add what is known."""
        if record.value is None:
            return record
        value, schema = self.role.of(record)
        if schema is None and value is None:
            return record
        found = [(each.name, each.value(record)) for each in self._insertions]
        if schema is None:
            known = {name: each for name, each in found if each is not None}
            return self.role.put(record, {**as_map(value, "field insertion"), **known}, None)
        if value is None:
            return record
        given = as_struct(value, schema, "field insertion")
        made = self._schemas(schema)
        out = {each.name: member(given, each, replace_null=self._replace_null) for each in schema.fields}
        return self.role.put(record, {**out, **dict(found)}, made)

    def _with_fields(self, schema: Schema) -> Schema:
        fields = [*schema.fields, *(SchemaField(name=each.name, schema=each.schema) for each in self._insertions)]
        names = [each.name for each in fields]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"Cannot create field because of field name duplication {twice}")
        return replace(basics(schema), fields=tuple(fields))


def _offset(record: Record) -> int:
    if record.kafka_offset is None:
        raise ValueError("offset.field: a record on its way from a source has no offset yet")
    return record.kafka_offset


def _insertions(options: InsertFieldOptions) -> list[_Insertion]:
    wanted: list[tuple[str | None, Schema, Callable[[Record], Json]]] = [
        (options.topic, Schema(type=SchemaType.STRING), lambda record: record.topic),
        (options.partition, Schema(type=SchemaType.INT32), lambda record: record.kafka_partition),
        (options.offset, Schema(type=SchemaType.INT64), _offset),
        (
            options.timestamp,
            Schema(type=SchemaType.INT64, name=TIMESTAMP, version=1),
            lambda record: record.timestamp_ms,
        ),
        (options.static, Schema(type=SchemaType.STRING), lambda record: options.static_value),
    ]
    found = [_insertion(name, schema, value) for name, schema, value in wanted if name is not None]
    if not found:
        raise InvalidConfig("topic.field", "No field insertion configured")
    if options.static is not None and options.static_value is None:
        raise InvalidConfig("static.value", "No value specified for static field: " + options.static)
    return found


def _insertion(name: str, schema: Schema, value: Callable[[Record], Json]) -> _Insertion:
    optional = not name.endswith("!")
    return _Insertion(name[:-1] if name.endswith(("!", "?")) else name, replace(schema, optional=optional), value)
