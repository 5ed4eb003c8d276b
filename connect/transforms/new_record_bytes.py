"""ExtractNewRecordState on changes that their source has serialised

A change of the Postgres capture is compact JSON: perhaps a schema, then `before`, `after`, `source` and the rest, in
that order (`connect/plugins/postgres/envelope.py`). The row stands in it as it is wanted, so it is cut out, and what is
added is glued behind its last field; no object is made of a column. A quotation mark within a JSON string is escaped,
so a name with its marks is a name wherever it is found: the last `,"source":{` is that of the envelope, and an
`,"after":` that is the only one in front of it is, too.

Whatever is not exactly so is left to the general way (`UNREAD`): other members (where no schema tells them, those of
the first change of a topic count for all), an `after` among the columns of an old row beside a new one, a column null
that has a default, which reading would put in its place, an option that looks into rows.
"""

from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

import orjson

from tidemill.connect.api import EncodedBatch, Headers, Json, Record, Schema
from tidemill.connect.converters.json.schemas import schema_from_json, schema_to_json
from tidemill.connect.transforms.chain import UNREAD, Encoded, Unread, without
from tidemill.connect.transforms.change_event import ENVELOPE_SUFFIX, OPERATION, Reference, has_members
from tidemill.connect.transforms.debezium_options import ExtractNewRecordStateOptions
from tidemill.connect.transforms.role import SCHEMAS_MAX

_MEMBERS: Final = ("before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns")
_BARE: Final = b'{"before":'
_WRAPPED: Final = b',"payload":{"before":'
_CREATED: Final = b'null,"after":'
_AFTER: Final = b',"after":'
_DELETED: Final = b',"after":null'
_SOURCE: Final = b',"source":{'
_NULL: Final = b"null"
_GONE: Final = b',"__deleted":"true"'
_KEPT: Final = b',"__deleted":"false"'
_BRACE: Final = len(_SOURCE) - 1
_CLOSING: Final = ord("}")


class Unwrapping(Protocol):
    """What the general way knows."""

    options: ExtractNewRecordStateOptions
    rewrites: bool
    fields: tuple[Reference, ...]
    headers: tuple[Reference, ...]

    def row_schema(self, side: str, envelope: Schema) -> Schema:
        """The schema of rows."""

    def added(self, envelope: dict[str, Json], schema: Schema | None) -> dict[str, Json]:
        """The fields that rows get of their envelope."""

    def headers_of(self, envelope: dict[str, Json], schema: Schema | None) -> Headers:
        """The headers that are asked for."""


class _Topic(NamedTuple):
    """How the changes of a topic begin and end, and how their rows are to."""

    head: bytes  # up to the row before
    end: int  # where the envelope ends, from behind
    row_head: bytes
    row_tail: bytes
    schema: Schema | None
    defaulted: tuple[bytes, ...]  # how a null in a column that has a default looks
    deleted: bytes | None  # what a delete becomes that is left as a null with a schema


class _Cut(NamedTuple):
    """What comes of a change: the bytes of its row, or None for a tombstone."""

    value: bytes | None
    around: dict[str, Json]  # the envelope without its rows, where it was read
    schema: Schema | None


class RowCutter:
    """Cuts rows out of changes."""

    def __init__(self, unwrapping: Unwrapping) -> None:
        self._unwrapping = unwrapping
        options = unwrapping.options
        self._mode = options.handling
        self._drop_header = options.drop_header
        wanted = (*unwrapping.fields, *unwrapping.headers)
        rows = ("before", "after")
        self._possible = not options.route_field and not any(
            each.field in rows or each.struct in rows for each in wanted
        )
        self._looks_around = bool(wanted)
        names = [each.name for each in unwrapping.fields] + ["__deleted"]
        self._twice = len(names) > len(set(names))
        self._marks = tuple(orjson.dumps(name) + b":" for name in names)  # of a column that is called as what is added
        self._topics: dict[str, _Topic] = {}

    def cut(self, record: Record) -> Record | Unread | None:
        """What becomes of a record whose value is bytes."""
        if not self._possible or any(name == self._drop_header for name, _ in record.headers):
            return UNREAD
        found = self._cut(record.topic or "", record.value)
        if found is None or found is UNREAD:
            return found
        value, around, schema = found
        if value is None and schema is not None and self._mode == "tombstone":
            return UNREAD  # for those behind it, it is no tombstone but has a schema
        headers = record.headers
        if self._unwrapping.headers:
            headers += self._unwrapping.headers_of(around, schema)
        return Record(
            topic=record.topic,
            key=record.key,
            value=None if value is None else Encoded(value),
            headers=headers,
            timestamp_ms=record.timestamp_ms,
            key_schema=record.key_schema,
            partition=record.partition,
            offset=record.offset,
            kafka_partition=record.kafka_partition,
            kafka_offset=record.kafka_offset,
        )

    def cut_all(self, batch: EncodedBatch) -> EncodedBatch | None:
        """What becomes of a batch, if it can be told of all its records without reading one, and without a header."""
        if not self._possible or self._unwrapping.headers or (batch.headers and self._drop_header):
            return None
        values = self._written(batch)
        gone: list[int] = []
        keeps_tombstones = self._mode == "rewrite-with-tombstone"
        for index in [index for index, value in enumerate(values) if value is None]:
            data = batch.values[index]
            found = None if data is None else self._cut(batch.topic, data)
            if found is UNREAD:
                return None
            if found is None and (data is not None or not keeps_tombstones):
                gone.append(index)
            value = None if found is None else found[0]
            if found is not None and value is None and self._mode == "tombstone":
                value = self._topics[batch.topic].deleted
            values[index] = value
        if not gone:
            return replace(batch, values=values)
        return without(replace(batch, values=values), frozenset(gone))

    def _written(self, batch: EncodedBatch) -> list[bytes | None]:
        """The rows that had none before them, where nothing has to be read for them; None for all the rest."""
        form = self._topics.get(batch.topic)
        if form is None or self._looks_around:
            return [None] * len(batch.values)
        created, begin = form.head + _CREATED + b"{", len(form.head) + len(_CREATED)
        head, tail = form.row_head, (_KEPT if self._unwrapping.rewrites else b"") + form.row_tail
        as_it_stands, unless = tail == b"}", self._marks if form.schema is None else form.defaulted
        rows: list[bytes | None] = []
        for data in batch.values:
            row = None
            if data is not None and data.startswith(created):
                end = data.rfind(b"{") - _BRACE  # where `_source` looks first, in place
                if end - begin > 2 and data[end - 1] == _CLOSING and data.startswith(_SOURCE, end):
                    row = data[begin:end]
                    if not as_it_stands:
                        row = None if any(each in row for each in unless) else head + row[:-1] + tail
            rows.append(row)
        return rows

    def _cut(self, topic: str, data: bytes) -> _Cut | Unread | None:
        """The row in the place of its change, and what else there was to read for it."""
        form = self._topics.get(topic)
        if form is None or not data.startswith(form.head):
            form = self._learn(topic, data)
        at = _source(data)
        if form is None or at < 0:
            return UNREAD
        before, after = _rows(data[len(form.head) : at])
        deleted = after == _NULL
        row = before if deleted else after
        if row == _NULL:
            return None  # a truncate
        if row[:1] != b"{" or row[-1:] != b"}":
            return UNREAD
        if deleted and self._mode == "drop":
            return None
        around: dict[str, Json] = {}
        if self._looks_around:
            around = orjson.loads(b"{" + data[at + 1 : len(data) - form.end])
        if deleted and not self._unwrapping.rewrites:
            return _Cut(None, around, form.schema)
        if len(row) == 2 or any(null in row for null in form.defaulted):
            return UNREAD
        pieces = [form.row_head, row[:-1]]
        if self._unwrapping.rewrites:
            pieces.append(_GONE if deleted else _KEPT)
        if self._looks_around:
            added = self._unwrapping.added(around, form.schema)
            if added:
                pieces += [b",", orjson.dumps(added)[1:-1]]
        if form.schema is None and len(pieces) > 2 and (self._twice or any(mark in row for mark in self._marks)):
            return UNREAD
        pieces.append(form.row_tail)
        return _Cut(b"".join(pieces), around, form.schema)

    # --------------------------------------------------------------- learning

    def _learn(self, topic: str, data: bytes) -> _Topic | None:
        self._topics.pop(topic, None)
        form = _bare(data) if data.startswith(_BARE) else self._described(data)
        if form is None:
            return None
        if len(self._topics) >= SCHEMAS_MAX:
            self._topics.clear()
        self._topics[topic] = form
        return form

    def _described(self, data: bytes) -> _Topic | None:
        at = data.find(_WRAPPED)
        if at < 0 or not data.startswith(b'{"schema":{') or not data.endswith(b"}}"):
            return None
        try:
            schema = schema_from_json(orjson.loads(data[len(b'{"schema":') : at]), _as_it_is)
        except ValueError:
            return None
        if schema is None or schema.name is None or not schema.name.endswith(ENVELOPE_SUFFIX):
            return None
        if tuple(each.name for each in schema.fields) != _MEMBERS or schema.fields[0].schema != schema.fields[1].schema:
            return None
        row = self._unwrapping.row_schema("after", schema)
        row_head = b'{"schema":' + orjson.dumps(schema_to_json(row, _as_it_is)) + b',"payload":'
        defaulted = tuple(
            orjson.dumps(each.name) + b":null"
            for each in row.fields
            if each.schema.optional and each.schema.default is not None
        )
        after = schema_to_json(schema.fields[1].schema, _as_it_is)
        deleted = b'{"schema":' + orjson.dumps(after) + b',"payload":null}'
        return _Topic(bytes(data[: at + len(_WRAPPED)]), 1, row_head, b"}}", schema, defaulted, deleted)


def _bare(data: bytes) -> _Topic | None:
    """Where there is no schema, the first change stands for those behind it: its members and their order."""
    try:
        change = orjson.loads(bytes(data))
    except orjson.JSONDecodeError:
        return None
    if tuple(change)[:3] != _MEMBERS[:3] or not has_members(change["source"]) or type(change.get(OPERATION)) is not str:
        return None
    return _Topic(_BARE, 0, b"", b"}", None, (), None)


def _source(data: bytes) -> int:
    """Where the last of `_SOURCE` is: mostly the last brace of all is its own, and one byte is found faster."""
    at = data.rfind(b"{") - _BRACE
    return at if at >= 0 and data.startswith(_SOURCE, at) else data.rfind(_SOURCE)


def _rows(images: bytes) -> tuple[bytes, bytes]:
    """The old and the new row; what cannot be told apart has no form of a row."""
    if images.startswith(_CREATED):
        return _NULL, images[len(_CREATED) :]
    if images.endswith(_DELETED):
        return images[: -len(_DELETED)], _NULL
    at = images.find(_AFTER)
    if at < 0 or images.find(_AFTER, at + 1) >= 0:
        return b"", b""
    return images[:at], images[at + len(_AFTER) :]


def _as_it_is(schema: Schema, default: Any) -> Any:
    """Defaults go from one schema into the other unread."""
    return default
