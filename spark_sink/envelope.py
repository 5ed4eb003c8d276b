"""Debezium's JSON turned into typed columns, thousands of records at once

With `schemas.enable=true` every record carries its schema, the same text in each. So the text is not parsed: the bytes
up to the payload are compared with those of a record seen before, and cut off. What is left is parsed by Arrow's JSON
reader with the types that the schema names.

Without the schema part, types come from the `columns` setting or from what the values look like: whole numbers are
`bigint`, others `double`, everything quoted is text. A column that was null so far has no type and is left out.

A document is first reduced to the members that are wanted, where the compiled kernel is there to do it: what the source
says about itself is often half of the text. New columns are found all the same, since the row is kept whole.

A record that the fast reader refuses is looked at alone: it may hold what the reader does not know (NaN) or be no
change event at all, which is a `BadRecord` that names its offset.

Not here: which change of a key wins (`changes`).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from tidemill.spark_sink.column_types import (
    NESTING_MAX,
    STRING,
    ColumnType,
    Kind,
    UnsupportedSchema,
    column_type,
    inferred_type,
    struct_type,
)
from tidemill.spark_sink.conversions import ConversionError, coerce, convert
from tidemill.spark_sink.kernel import kernel
from tidemill.spark_sink.rows import Rows

UPSERT_OPS = ("c", "r", "u")
OPS = (*UPSERT_OPS, "d", "t", "m")
UNAVAILABLE = "__debezium_unavailable_value"
_ENVELOPE = ("op", "before", "after")  # what a document without schema is looked at for: the row's columns too
PREFIXES_MAX = 64  # schemas remembered; a topic has one or two at a time
_PAYLOAD = b'"payload":'
_BLANKS = " \t\r\n"
_DEEP = f"it is nested more than {NESTING_MAX} levels deep"
_REFUSED = (pa.ArrowInvalid, pa.ArrowTypeError)
_TYPES_DIFFER = "types differ between records, set columns ({})"
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)

Projector = Callable[[pa.Array, tuple[str, ...]], pa.Array | None]
"""Documents and the names of members to documents with these alone, or None where that is not to be had."""


def fastest() -> Projector:
    """The compiled projection where there is one."""
    found, _ = kernel()
    return unprojected if found is None else found.project


def unprojected(documents: pa.Array, names: tuple[str, ...]) -> pa.Array | None:
    """Leave documents as they are."""
    return None


class BadRecord(ValueError):
    """A record that is not a change event; `offset` says which."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"the record at offset {offset} is not a Debezium change event: {reason}")
        self.offset = offset
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeOptions:
    """How change events of a topic look."""

    columns: Mapping[str, ColumnType] | None = None  # for values without schema part
    key_columns: tuple[str, ...] = ()  # taken from the row where the message key is not used
    want_before: bool = False  # the old row of a delete is needed
    unavailable: str = UNAVAILABLE


class Events(NamedTuple):
    """Change events with the same columns, one entry per record, tombstones left out.

    `row` is the new row, null for a delete; `before` the old one where wanted; `key` the message key, null without one.
    """

    op: pa.Array  # string
    offset: pa.Array  # int64
    key: pa.StructArray | None
    row: pa.StructArray
    before: pa.StructArray | None
    row_type: ColumnType


@dataclass(slots=True)
class KnownSchema:
    """Mutable. A schema part, and the columns that it came to be once somebody asked."""

    tree: Mapping[str, Any]
    columns: ColumnType | None = None


class _Group(NamedTuple):
    """Records with the same schema text: their indices and bare payloads."""

    schema: KnownSchema | None
    indices: pa.Array | None  # None: all
    payload: pa.Array


@dataclass(slots=True)
class SchemaPrefixes:
    """Schema texts seen, most recent first: `{"schema":…,"payload":` -> the parsed schema (None for a null one)."""

    known: dict[bytes, KnownSchema | None] = field(default_factory=dict)

    def remember(self, prefix: bytes, schema: Mapping[str, Any] | None) -> None:
        """Add a text; forget the oldest when there are too many."""
        self.known = {prefix: None if schema is None else KnownSchema(schema), **self.known}
        while len(self.known) > PREFIXES_MAX:
            self.known.popitem()


def find_prefix(document: bytes) -> tuple[bytes, Mapping[str, Any] | None] | None:
    """The bytes before the payload and the schema in them, or None when the document is not wrapped."""
    try:
        tree = orjson.loads(document)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(tree, dict) or tree.keys() != {"schema", "payload"}:
        return None
    if tree["schema"] is not None and not (isinstance(tree["schema"], dict) and "type" in tree["schema"]):
        return None
    at = document.find(_PAYLOAD)
    while at >= 0:
        prefix = document[: at + len(_PAYLOAD)]
        try:
            if orjson.loads(prefix + b"null}") == {"schema": tree["schema"], "payload": None}:
                return prefix, tree["schema"]
        except (orjson.JSONDecodeError, RecursionError):
            pass
        at = document.find(_PAYLOAD, at + 1)
    return None


class EnvelopeReader:
    """Parses the records of one topic; remembers schemas and inferred types from piece to piece."""

    def __init__(self, options: EnvelopeOptions, project: Projector | None = None) -> None:
        self._options = options
        self._project = project or fastest()
        self._value_prefixes, self._key_prefixes = SchemaPrefixes(), SchemaPrefixes()
        self._guessed: dict[str, pa.Schema] = {}  # "key", "value": types of documents without schema

    def read(self, rows: Rows) -> Iterator[Events]:
        """Yield the change events of a piece, grouped by schema; raises BadRecord."""
        present = pc.is_valid(rows.value)
        if not pc.all(present).as_py():
            rows = Rows(*(None if column is None else column.filter(present) for column in rows))
        if not len(rows):
            return
        for group in _groups(rows.value, self._value_prefixes):
            offset = _take(rows.offset, group.indices)
            key = _take(rows.key, group.indices)
            for inner in _key_groups(key, self._key_prefixes):
                yield self._events(
                    _take(offset, inner.indices), inner, _take(group.payload, inner.indices), group.schema
                )

    def _events(self, offset: pa.Array, key: _Group, payload: pa.Array, schema: KnownSchema | None) -> Events:
        names = ("after", "before") if self._needs_before(key) else ("after",)
        if schema is None and self._options.columns is None:
            table = self._guess("value", self._reduced(payload, _ENVELOPE), offset, _ENVELOPE)
            row_type = _guessed_row(table.schema, offset)
            parsed = _convert(table, _envelope_type(names, row_type), offset)
        else:
            row_type = struct_type(self._options.columns or {}) if schema is None else _row_type(schema, offset)
            parsed = _parse(self._reduced(payload, ("op", *names)), _envelope_type(names, row_type), offset)
        op = parsed.field("op")
        known = pc.fill_null(pc.is_in(op, pa.array(OPS)), False)
        if not pc.all(known).as_py():
            index = pc.index(known, pa.scalar(False)).as_py()
            raise BadRecord(offset[index].as_py(), f"its operation is {op[index].as_py()!r}")
        return Events(
            op=op,
            offset=offset,
            key=self._key(key, offset),
            row=parsed.field("after"),
            before=parsed.field("before") if "before" in names else None,
            row_type=row_type,
        )

    def _needs_before(self, key: _Group) -> bool:
        return self._options.want_before or bool(self._options.key_columns) or key.payload.null_count > 0

    def _reduced(self, documents: pa.Array, members: tuple[str, ...]) -> pa.Array:
        reduced = self._project(documents, members)
        return documents if reduced is None else reduced

    def _guess(
        self, what: str, documents: pa.Array, offset: pa.Array, members: tuple[str, ...] | None = None
    ) -> pa.Table:
        """Parse documents without schema, with the types seen so far if they fit; no more of them than `members`."""
        known = self._guessed.get(what)
        try:
            if known is not None:
                try:
                    return _read_json(documents, known, "error")
                except pa.ArrowInvalid:
                    pass
            seen = _unified(known, _read_json(_shallow(documents), None).schema)
            table = _read_json(documents, seen, "error")
        except _REFUSED as error:
            slow = _slow_lines(documents, offset, members)
            if known is not None and members is not None:
                known = pa.schema([each for each in known if each.name in members])
            seen = _unified_slowly(known, slow, offset, str(error))
            table = _read_slowly(slow, offset, str(error), seen)
        if members is not None:
            _check_envelope(seen, documents, offset)
        self._guessed[what] = seen
        return table

    def _key(self, key: _Group, offset: pa.Array) -> pa.StructArray | None:
        if self._options.key_columns or key.payload.null_count == len(key.payload):
            return None
        present = pc.is_valid(key.payload)
        payload, places = key.payload.filter(present), offset.filter(present)
        parsed = self._key_columns(key.schema, payload, places)
        if len(payload) == len(key.payload):
            return parsed
        back = pc.subtract(pc.cumulative_sum(present.cast(pa.int64())), 1)
        return parsed.take(pc.if_else(present, back, pa.scalar(None, pa.int64())))

    def _key_columns(self, schema: KnownSchema | None, payload: pa.Array, offset: pa.Array) -> pa.StructArray:
        if schema is not None:
            if schema.columns is None:
                schema.columns = _column_type(schema.tree, "key", offset[0].as_py())
            return _parse(payload, _not_empty(schema.columns, offset), offset)
        table = self._guess("key", payload, offset)
        kind = _not_empty(inferred_type(pa.struct(list(table.schema))) or struct_type({}), offset)
        named = {name: each for name, each in (self._options.columns or {}).items() if name in kind.fields}
        if not named:
            return _convert(table, kind, offset)
        return _parse(payload, struct_type({**kind.fields, **named}), offset)


def _not_empty(kind: ColumnType, offset: pa.Array) -> ColumnType:
    if not kind.fields:
        raise BadRecord(offset[0].as_py(), "its key is not a JSON object of key columns")
    return kind


def _take(array: pa.Array, indices: pa.Array | None) -> pa.Array:
    return array if indices is None else array.take(indices)


def _groups(documents: pa.Array, prefixes: SchemaPrefixes) -> Iterator[_Group]:
    """Split documents by their schema text, cutting it off."""
    left: pa.Array | None = None  # None: all of them
    for _ in range(len(documents)):
        rest = _take(documents, left)
        if not len(rest):
            return
        prefix = _matching(rest[0].as_py(), prefixes)
        if prefix is None:
            same = pc.invert(pc.starts_with(rest, b'{"schema"'))
            if not same[0].as_py():  # looks wrapped but is not: on its own
                same = pa.array(np.arange(len(rest)) == 0)
            payload, schema = rest.filter(same), None
        else:
            same = pc.starts_with(rest, prefix)
            payload, schema = pc.binary_slice(rest.filter(same), len(prefix), -1), prefixes.known[prefix]
        if len(payload) == len(rest):
            yield _Group(schema, left, payload)
            return
        positions = pa.array(np.arange(len(documents))) if left is None else left
        yield _Group(schema, positions.filter(same), payload)
        left = positions.filter(pc.invert(same))


def _matching(document: bytes, prefixes: SchemaPrefixes) -> bytes | None:
    for prefix in prefixes.known:
        if document.startswith(prefix):
            return prefix
    found = find_prefix(document)
    if found is None:
        return None
    prefixes.remember(*found)
    return found[0]


def _key_groups(keys: pa.Array, prefixes: SchemaPrefixes) -> Iterator[_Group]:
    """Split keys by schema text; absent keys stay in the group of the others where there is only one."""
    present = pc.is_valid(keys)
    if pc.all(present).as_py():
        yield from _groups(keys, prefixes)
        return
    positions = pa.array(np.arange(len(keys)))
    absent = positions.filter(pc.invert(present))
    if len(absent):
        yield _Group(None, absent, pa.nulls(len(absent), pa.binary()))
    held = positions.filter(present)
    if len(held):
        for group in _groups(keys.filter(present), prefixes):
            yield _Group(group.schema, _take(held, group.indices), group.payload)


def _row_type(schema: KnownSchema, offset: pa.Array) -> ColumnType:
    if schema.columns is None:
        schema.columns = _row_columns(schema.tree, offset[0].as_py())
    return schema.columns


def _row_columns(schema: Mapping[str, Any], offset: int) -> ColumnType:
    try:
        fields = {each.get("field"): each for each in schema.get("fields", ())}
    except (AttributeError, TypeError):
        raise BadRecord(offset, "its schema is none of Kafka Connect's: fields") from None
    row = fields.get("after") or fields.get("before")
    if row is None or "op" not in fields:
        raise BadRecord(offset, "its schema has no op and after; is ExtractNewRecordState configured at the source?")
    found = _column_type(row, "row", offset)
    if found.kind is not Kind.STRUCT:
        raise BadRecord(offset, f"its row is a {found.stored}, not a struct")
    return found


def _column_type(schema: Mapping[str, Any], where: str, offset: int) -> ColumnType:
    """The column type of a schema that anybody may have written; raises BadRecord."""
    try:
        return column_type(schema, where)
    except UnsupportedSchema as error:
        raise BadRecord(offset, str(error)) from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"the schema of its {where} is none of Kafka Connect's: {type(error).__name__}: {error}"
        raise BadRecord(offset, reason) from None


def _envelope_type(names: Sequence[str], row: ColumnType) -> ColumnType:
    return struct_type({"op": STRING, **dict.fromkeys(names, row)})


def _guessed_row(schema: pa.Schema, offset: pa.Array) -> ColumnType:
    """The row's columns, as far as either image of it has shown values."""
    fields: dict[str, ColumnType] = {}
    for name in ("before", "after"):
        if name in schema.names and pa.types.is_struct(schema.field(name).type):
            guess = inferred_type(schema.field(name).type)
            fields |= guess.fields if guess is not None else {}
    if "op" not in schema.names:
        raise BadRecord(offset[0].as_py(), "it has no op; is ExtractNewRecordState configured at the source?")
    return struct_type(fields)


def _check_envelope(schema: pa.Schema, documents: pa.Array, offset: pa.Array) -> None:
    """Refuse an op that is no text and a row that is no object, before their types are remembered; raises BadRecord."""
    odd = [each.name for each in schema if each.name in _ENVELOPE and not _fits_envelope(each)]
    if not odd:
        return
    for document, place in zip(documents.to_pylist(), offset.to_pylist(), strict=True):
        tree = _load(document, place)
        for name in odd:
            if not isinstance(tree.get(name), (str if name == "op" else dict) | None):
                raise BadRecord(place, f"its {name} is not {'text' if name == 'op' else 'a JSON object'}")


def _fits_envelope(member: pa.Field) -> bool:
    expected = pa.types.is_string if member.name == "op" else pa.types.is_struct
    return bool(expected(member.type) or pa.types.is_null(member.type))


def _unified(known: pa.Schema | None, found: pa.Schema) -> pa.Schema:
    """What was known and what was found now; raises ArrowTypeError where they contradict each other."""
    plain = _plain_schema(found)
    return plain if known is None else pa.unify_schemas([known, plain], promote_options="permissive")


def _unified_slowly(known: pa.Schema | None, lines: pa.Array, offset: pa.Array, problem: str) -> pa.Schema:
    found = _read_slowly(lines, offset, problem).schema
    try:
        return _unified(known, found)
    except _REFUSED as error:
        raise BadRecord(offset[0].as_py(), _TYPES_DIFFER.format(error)) from None


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(each.name, _plain_type(each.type)) for each in schema])


def _plain_type(arrow: pa.DataType) -> pa.DataType:
    """What the JSON reader guessed, with text left as text."""
    if pa.types.is_struct(arrow):
        return pa.struct([(each.name, _plain_type(each.type)) for each in arrow])
    if pa.types.is_list(arrow):
        return pa.list_(_plain_type(arrow.value_type))
    return pa.string() if pa.types.is_timestamp(arrow) else arrow


def _read_json(documents: pa.Array, schema: pa.Schema | None, unexpected: str = "ignore") -> pa.Table:
    text = _lines(documents)
    table = arrow_json.read_json(
        pa.BufferReader(text),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=text.size + 1),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else unexpected
        ),
    )
    if table.num_rows != len(documents):
        raise pa.ArrowInvalid("a document spans several lines or none")
    return table


def _lines(documents: pa.Array) -> pa.Buffer:
    """Documents one behind the other, each with a line feed at its end; raises ArrowInvalid.

    Each begins and ends with a brace, so no value reaches from one into the next: between braces that face away from
    each other nothing can go on. As many rows as documents are then one row in each.
    """
    if _framed(documents, b"}\n"):
        _, edges, data = documents.buffers()
        edge = np.frombuffer(edges, np.int32)[documents.offset : documents.offset + len(documents) + 1]
        return _utf8(data.slice(edge[0], edge[-1] - edge[0]))
    if not _framed(documents, b"}"):
        documents = pc.ascii_trim(documents.cast(pa.string()), _BLANKS).cast(pa.binary())
        if not _framed(documents, b"}"):
            raise pa.ArrowInvalid("a document is not a JSON object")
    newline, nothing = pa.scalar(b"\n", pa.large_binary()), pa.scalar(b"", pa.large_binary())
    text = pc.binary_join_element_wise(documents.cast(pa.large_binary()), newline, nothing)
    return _utf8(text.buffers()[2].slice(0, pc.sum(pc.binary_length(text)).as_py() or 0))


def _framed(documents: pa.Array, end: bytes) -> bool:
    found: bool = pc.all(pc.and_(pc.starts_with(documents, b"{"), pc.ends_with(documents, end))).as_py()
    return found


def _utf8(text: pa.Buffer) -> pa.Buffer:
    """The text, which the JSON reader would take whatever its bytes are; raises ArrowInvalid."""
    edges = pa.py_buffer(np.array([0, text.size], np.int64))
    pa.Array.from_buffers(pa.large_string(), 1, [None, edges, text]).validate(full=True)
    return text


def _shallow(documents: pa.Array) -> pa.Array:
    """Documents for whose nesting the JSON reader has the stack when it is to find types; raises ArrowInvalid.

    At 20,000 levels it ends the process.
    """
    opened = pc.add(pc.count_substring(documents, b"{"), pc.count_substring(documents, b"["))
    if any(_is_deep(document.as_py()) for document in documents.filter(pc.greater(opened, NESTING_MAX))):
        raise pa.ArrowInvalid(_DEEP)
    return documents


def _is_deep(document: bytes) -> bool:
    """Whether a document is nested too deeply, as far as it is JSON."""
    if document.count(b"{") + document.count(b"[") <= NESTING_MAX:
        return False
    marks = np.frombuffer(_STRINGS.sub(b"", document), np.uint8) | 0x20  # [ and ] become { and }
    levels = np.cumsum((marks == ord("{")).astype(np.int64) - (marks == ord("}")))
    return bool((levels > NESTING_MAX).any())


def _slow_lines(documents: pa.Array, offset: pa.Array, members: tuple[str, ...] | None) -> pa.Array:
    """Documents parsed and written one by one; raises BadRecord for the first that is no JSON object."""
    trees = [_load(document, place) for document, place in zip(documents.to_pylist(), offset.to_pylist(), strict=True)]
    if members is not None:
        trees = [{name: tree[name] for name in members if name in tree} for tree in trees]
    lines = [_dump(tree, place) for tree, place in zip(trees, offset.to_pylist(), strict=True)]
    return pa.array(lines, pa.binary())


def _dump(tree: dict[str, Any], offset: int) -> bytes:
    try:
        line = orjson.dumps(tree)
    except orjson.JSONEncodeError:  # it follows 254 levels
        raise BadRecord(offset, _DEEP) from None
    if _is_deep(line):
        raise BadRecord(offset, _DEEP)
    return line


def _read_slowly(lines: pa.Array, offset: pa.Array, problem: str, schema: pa.Schema | None = None) -> pa.Table:
    try:
        return _read_json(lines, schema)
    except pa.ArrowInvalid as error:
        raise BadRecord(offset[0].as_py(), _TYPES_DIFFER.format(error or problem)) from None


def _load(document: bytes, offset: int) -> dict[str, Any]:
    try:
        tree = orjson.loads(document)
    except orjson.JSONDecodeError as error:
        raise BadRecord(offset, f"it is not valid JSON ({error})") from None
    if not isinstance(tree, dict):
        raise BadRecord(offset, "it is not a JSON object")
    return tree


def _parse(documents: pa.Array, kind: ColumnType, offset: pa.Array) -> pa.StructArray:
    """Parse documents as structs of `kind`, then convert their columns; raises BadRecord."""
    schema = pa.schema(list(kind.parsed))
    try:
        table = _read_json(documents, schema)
    except pa.ArrowInvalid:
        table = _parse_slowly(documents, kind, offset)
    return _convert(table, kind, offset)


def _convert(table: pa.Table, kind: ColumnType, offset: pa.Array) -> pa.StructArray:
    """Bring parsed columns to their stored types; a column that is missing or has no type yet is null."""
    try:
        columns = [_column(table, name, each) for name, each in kind.fields.items()]
    except ConversionError:
        _find_bad(table, kind, offset)
        raise
    return pa.StructArray.from_arrays(columns, fields=list(kind.stored))


def _column(table: pa.Table, name: str, kind: ColumnType) -> pa.Array:
    if name not in table.column_names or pa.types.is_null(table.schema.field(name).type):
        return pa.nulls(table.num_rows, kind.stored)
    return convert(_flat(table.column(name)), kind)


def _flat(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def _parse_slowly(documents: pa.Array, kind: ColumnType, offset: pa.Array) -> pa.Table:
    trees = []
    for document, place in zip(documents.to_pylist(), offset.to_pylist(), strict=True):
        tree = _load(document, place)
        try:
            trees.append(coerce(tree, kind))
        except ConversionError as error:
            raise BadRecord(place, str(error)) from None
    try:
        return pa.Table.from_pylist(trees, schema=pa.schema(list(kind.parsed)))
    except (pa.ArrowInvalid, OverflowError) as error:
        raise BadRecord(offset[0].as_py(), str(error)) from None


def _find_bad(table: pa.Table, kind: ColumnType, offset: pa.Array) -> None:
    """Convert record by record; raises BadRecord for the one that fails."""
    for index in range(table.num_rows):
        for name, each in kind.fields.items():
            try:
                _column(table.slice(index, 1), name, each)
            except ConversionError as error:
                raise BadRecord(offset[index].as_py(), f"column {name}: {error}") from None
