"""ExtractNewRecordState: the row of a change, without its envelope

As Debezium's (`io.debezium.transforms.ExtractNewRecordState`, 3.6). A row that was written is what stands in `after`,
perhaps with fields of the envelope behind its own; what becomes of deletes and tombstones is for the mode. A truncate
has no row and is left out; what is no change passes. Headers are bytes here, so the one that lists fields to drop is
read as JSON.

Where a source has serialised its changes itself, rows are cut out of the bytes (`new_record_bytes.py`), and nothing
below is called.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import orjson

from tidemill.connect.api import EncodedBatch, Headers, Json, Record, Schema, SchemaField, SchemaType
from tidemill.connect.transforms.chain import OfBytes, Unread
from tidemill.connect.transforms.change_event import (
    DELETE,
    OPERATION,
    Reference,
    field_of,
    has_members,
    is_change,
    references,
    text_member,
)
from tidemill.connect.transforms.debezium_options import ExtractNewRecordStateOptions
from tidemill.connect.transforms.new_record_bytes import RowCutter
from tidemill.connect.transforms.role import SCHEMAS_MAX, RecordTransform, SchemaMemory, as_struct, basics, member
from tidemill.connect.transforms.text import value_text

DELETED: Final = "__deleted"
REWRITES: Final = ("rewrite", "rewrite-with-tombstone")
_FLAG: Final = SchemaField(name=DELETED, schema=Schema(type=SchemaType.STRING, optional=True))


class ExtractNewRecordState(RecordTransform, OfBytes):
    """Takes rows out of their envelopes."""

    def __init__(self, options: ExtractNewRecordStateOptions) -> None:
        self.options = options
        self.rewrites = options.handling in REWRITES
        self.fields = references(options.fields, options.fields_prefix, "add.fields")
        self.headers = references(options.headers, options.headers_prefix, "add.headers")
        self.uses_key = bool(options.drop_header) and options.drop_from_key
        self._schemas = {side: SchemaMemory(partial(self.row_schema, side)) for side in ("before", "after")}
        self._known: dict[tuple[int, int], tuple[Schema, Sequence[tuple[Reference, Schema | None]]]] = {}
        self._cutter = RowCutter(self)
        self._narrow: dict[tuple[int, frozenset[str]], tuple[Schema, Schema]] = {}  # the value keeps the schema alive

    def of_bytes(self, record: Record) -> Record | Unread | None:
        """Cut the row out, where that can be done."""
        return self._cutter.cut(record)

    def of_batch(self, batch: EncodedBatch) -> EncodedBatch | None:
        """Cut the rows of a whole batch out, where that can be done with all."""
        return self._cutter.cut_all(batch)

    def one(self, record: Record) -> Record | None:
        """Look what kind of record it is."""
        if record.value is None:
            return self.tombstone(record)
        if not is_change(record):
            return record
        schema = record.value_schema
        envelope: Mapping[str, Json] = record.value
        if schema is not None:
            envelope = as_struct(envelope, schema, "Debezium envelope")
        if self.headers:
            record = replace(record, headers=record.headers + self.headers_of(envelope, schema))
        if envelope.get("after") is not None:
            return self._written(record, envelope, schema)
        if envelope.get("before") is not None:
            return self._deleted(record, envelope, schema)
        return None  # a truncate

    def tombstone(self, record: Record) -> Record | None:
        """What follows a delete."""
        if self.options.handling != "rewrite-with-tombstone":
            return None
        added = tuple((each.name, DELETE.encode()) for each in self.headers if each.field == OPERATION)
        return replace(record, headers=record.headers + added) if added else record

    def headers_of(self, envelope: Mapping[str, Json], schema: Schema | None) -> Headers:
        """The headers that are asked for."""
        found: list[tuple[str, bytes | None]] = []
        for each, described in self._described(self.headers, envelope, schema):
            value = each.value(envelope)
            found.append((each.name, None if value is None else value_text(value, described).encode()))
        return tuple(found)

    def added(self, envelope: Mapping[str, Json], schema: Schema | None) -> dict[str, Json]:
        """The fields that rows get of their envelope."""
        found = {each.name: each.value(envelope) for each, _ in self._described(self.fields, envelope, schema)}
        if any(has_members(each) for each in found.values()):
            raise ValueError("add.fields names a structure, of which only fields can be added")
        return found

    def _described(
        self, wanted: tuple[Reference, ...], envelope: Mapping[str, Json], schema: Schema | None
    ) -> Sequence[tuple[Reference, Schema | None]]:
        """Those that these envelopes have: with a schema, that tells it once for all."""
        if schema is None:
            return [(each, None) for each in wanted if each.known(envelope, None)]
        known = self._known.get((id(schema), id(wanted)))
        if known is None or known[0] is not schema:
            described = [(each, each.described(schema)) for each in wanted]
            known = (schema, [(each, found) for each, found in described if found is not None])
            if len(self._known) >= SCHEMAS_MAX:
                self._known.clear()
            self._known[id(schema), id(wanted)] = known
        return known[1]

    # ------------------------------------------------------------------- rows

    def _written(self, record: Record, envelope: Mapping[str, Json], schema: Schema | None) -> Record:
        record = self._routed(record, envelope, schema, "after")
        return self._dropped(self._row(record, envelope, schema, "after"))

    def _deleted(self, record: Record, envelope: Mapping[str, Json], schema: Schema | None) -> Record | None:
        mode = self.options.handling
        if mode == "drop":
            return None
        record = self._routed(record, envelope, schema, "before")
        if self.rewrites:
            return self._dropped(self._row(record, envelope, schema, "before"))
        left = None if schema is None or mode == "delete-to-tombstone" else field_of(schema, "after").schema
        return self._dropped(replace(record, value=None, value_schema=left))

    def _row(self, record: Record, envelope: Mapping[str, Json], schema: Schema | None, side: str) -> Record:
        given = envelope[side]
        deleted = {DELETED: "true" if side == "before" else "false"} if self.rewrites else {}
        added = self.added(envelope, schema)
        if schema is None:
            return replace(record, value={**given, **deleted, **added})
        fields = field_of(schema, side).schema.fields
        keep_null = not (self.rewrites and self.options.replace_null)
        row = {each.name: member(given, each, replace_null=not keep_null) for each in fields}
        return replace(record, value={**row, **deleted, **added}, value_schema=self._schemas[side](schema))

    def row_schema(self, side: str, envelope: Schema) -> Schema:
        """The schema of rows, from that of the envelope."""
        row = field_of(envelope, side).schema
        fields = [*row.fields, *([_FLAG] if self.rewrites else [])]
        for each in self.fields:
            described = each.described(envelope)
            if described is not None:
                fields.append(SchemaField(name=each.name, schema=described))
        names = [each.name for each in fields]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"Cannot create field because of field name duplication {twice}")
        return replace(basics(row), fields=tuple(fields))

    def _routed(self, record: Record, envelope: Mapping[str, Json], schema: Schema | None, side: str) -> Record:
        name = self.options.route_field
        if not name:
            return record
        topic = text_member(envelope[side], None if schema is None else field_of(schema, side).schema, name)
        return replace(record, topic=topic) if topic and topic.strip() else record

    # ---------------------------------------------------------------- dropping

    def _dropped(self, record: Record) -> Record:
        names = self._unwanted(record)
        if not names:
            return record
        if self.options.drop_from_key and record.key is not None:
            key, key_schema = self._without(record.key, record.key_schema, names)
            record = replace(record, key=key, key_schema=key_schema)
        if record.value is None:
            return record
        value, value_schema = self._without(record.value, record.value_schema, names)
        return replace(record, value=value, value_schema=value_schema)

    def _unwanted(self, record: Record) -> frozenset[str]:
        header = self.options.drop_header.strip() and self.options.drop_header
        text = next((text for name, text in record.headers if name == header), None) if header else None
        if text is None:
            return frozenset()
        try:
            names = orjson.loads(text)
        except orjson.JSONDecodeError:
            names = None
        if not isinstance(names, list):
            raise ValueError(f'the header {header} does not hold a list of fields, such as ["a","b"]')
        return frozenset(each for each in names if isinstance(each, str))

    def _without(self, value: Json, schema: Schema | None, names: frozenset[str]) -> tuple[Json, Schema | None]:
        if schema is None:
            return {name: each for name, each in value.items() if name not in names}, None
        given = as_struct(value, schema, "field replacement")
        compatibly = self.options.drop_compatibly
        gone = {each.name for each in schema.fields if each.name in names and (each.schema.optional or not compatibly)}
        if not gone:
            return value, schema
        return self._narrowed(given, schema, frozenset(gone))

    def _narrowed(
        self, given: Mapping[str, Json], schema: Schema, gone: frozenset[str]
    ) -> tuple[Mapping[str, Json], Schema]:
        known = self._narrow.get((id(schema), gone))
        if known is None or known[0] is not schema:
            kept = tuple(each for each in schema.fields if each.name not in gone)
            known = (schema, replace(basics(schema), fields=kept))
            if len(self._narrow) >= SCHEMAS_MAX:
                self._narrow.clear()
            self._narrow[id(schema), gone] = known
        made = known[1]
        return {each.name: member(given, each, replace_null=True) for each in made.fields}, made
