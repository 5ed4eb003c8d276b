"""ByLogicalTableRouter: changes of several tables in one topic

As Debezium's (`io.debezium.transforms.ByLogicalTableRouter`, 3.6; the class that 3.7 calls ToLogicalTopicRouter). A
topic that an expression matches as a whole gets another name, and the schemas of its records with it. Keys of different
tables may be equal, so a field that tells the table is put into them unless that is not wanted.

A schema is made anew once per topic it goes to. Debezium remembers it by the old schema alone.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import Final

from tidemill.connect.api import InvalidConfig, Json, Record, Schema, SchemaField, SchemaType
from tidemill.connect.transforms.change_event import ENVELOPE_SUFFIX, field_of, is_change
from tidemill.connect.transforms.debezium_options import ByLogicalTableRouterOptions
from tidemill.connect.transforms.java_regex import Replacement, compile_java, compile_replacement
from tidemill.connect.transforms.role import RecordTransform, as_map, as_struct, member
from tidemill.connect.transforms.schema_names import ADJUSTERS

_STRING: Final = Schema(type=SchemaType.STRING)


class ByLogicalTableRouter(RecordTransform):
    """Renames topics and what is called after them."""

    def __init__(self, options: ByLogicalTableRouterOptions) -> None:
        self._rename = _rename("topic", options.topic_regex, options.topic_replacement)
        self._unique = options.unique
        self._field = options.field_name
        self._identify = None
        if options.field_regex.strip():
            self._identify = _rename("key.field", options.field_regex, options.field_replacement)
        self._adjusted = ADJUSTERS[options.adjustment]
        self._schemas_max = options.cache_size
        self._keys: dict[tuple[int, str], tuple[Schema, Schema]] = {}  # by identity: the value keeps the schema alive
        self._envelopes: dict[tuple[int, str], tuple[Schema, Schema]] = {}

    def one(self, record: Record) -> Record:
        """Rename what matches."""
        topic = record.topic or ""
        renamed = self._rename(topic)
        if not renamed:
            return record
        key, key_schema = None, None
        if record.key is not None:
            key, key_schema = self._key(record, topic, renamed)
        value, value_schema = record.value, record.value_schema
        if value_schema is not None and value is not None and is_change(record):
            value, value_schema = self._envelope(value, value_schema, renamed)
        return replace(record, topic=renamed, key=key, key_schema=key_schema, value=value, value_schema=value_schema)

    def _key(self, record: Record, topic: str, renamed: str) -> tuple[Json, Schema | None]:
        table = {}
        if self._unique:
            table = {self._field: topic if self._identify is None else self._identify(topic) or topic}
        schema = record.key_schema
        if schema is None:
            given = as_map(record.key, "Updating schema")
            self._refuse_twice(given)
            return {**given, **table}, None
        given = as_struct(record.key, schema, "Updating schema")
        key = {each.name: member(given, each, replace_null=True) for each in schema.fields}
        return {**key, **table}, self._known(self._keys, schema, renamed, self._key_schema)

    def _refuse_twice(self, names: Container[str]) -> None:
        if self._unique and self._field in names:
            raise ValueError(f"Cannot create field because of field name duplication {self._field}")

    def _key_schema(self, schema: Schema, renamed: str) -> Schema:
        fields = schema.fields
        if self._unique:
            self._refuse_twice([each.name for each in fields])
            fields = (*fields, SchemaField(name=self._field, schema=_STRING))
        return replace(schema, name=self._adjusted(renamed + ".Key"), fields=fields, default=None)

    def _envelope(self, value: Json, schema: Schema, renamed: str) -> tuple[Json, Schema]:
        given = as_struct(value, schema, "Updating schema")
        made = self._known(self._envelopes, schema, renamed, self._envelope_schema)
        out = {each.name: member(given, each, replace_null=True) for each in schema.fields}
        for side in ("before", "after"):
            row = out.get(side)
            if isinstance(row, Mapping):
                fields = field_of(schema, side).schema.fields
                out[side] = {each.name: member(row, each, replace_null=True) for each in fields}
        return out, made

    def _envelope_schema(self, schema: Schema, renamed: str) -> Schema:
        old = field_of(schema, "before").schema
        row = replace(old, name=self._adjusted(renamed + ".Value"), default=None)
        fields = tuple(
            replace(each, schema=row) if each.name in ("before", "after") else each for each in schema.fields
        )
        return replace(schema, name=self._adjusted(renamed + ENVELOPE_SUFFIX), fields=fields, default=None)

    def _known(
        self,
        memory: dict[tuple[int, str], tuple[Schema, Schema]],
        schema: Schema,
        renamed: str,
        make: Callable[[Schema, str], Schema],
    ) -> Schema:
        known = memory.get((id(schema), renamed))
        if known is not None and known[0] is schema:
            return known[1]
        made = make(schema, renamed)
        if len(memory) >= self._schemas_max:
            memory.pop(next(iter(memory)))
        memory[id(schema), renamed] = (schema, made)
        return made


def _rename(option: str, regex: str, replacement: str) -> Callable[[str], str | None]:
    """What a topic becomes; None if the expression does not match it as a whole."""
    try:
        pattern = compile_java(regex)
    except ValueError as error:
        raise InvalidConfig(f"{option}.regex", str(error)) from error
    try:
        replaced: Replacement = compile_replacement(replacement, pattern)
    except ValueError as error:
        raise InvalidConfig(f"{option}.replacement", str(error)) from error

    def rename(topic: str) -> str | None:
        return pattern.sub(replaced, topic, count=1) if pattern.fullmatch(topic) else None

    return rename
