"""A change event as bytes

Debezium's envelope, in its order of fields, put together from pieces: what is the same for all rows of a table, what
is the same for all rows of a transaction, and the row itself. `bytes.join` over ready pieces costs a third of building
and serialising a nested dictionary, and makes the schema envelope of the JSON converter nearly free, because a schema
is a constant prefix.

A record is `head + row + source`, where the source carries the row's own position twice. An update with an old image
is `before + old + after + new + source`.
"""

from dataclasses import dataclass

import orjson

from tidemill.connect.api import Json, Schema, SchemaField, SchemaType
from tidemill.connect.plugins.postgres.table import TableShape

SNAPSHOT_MARKERS = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"


def _field(name: str, kind: SchemaType, *, optional: bool = True) -> SchemaField:
    return SchemaField(name=name, schema=Schema(type=kind, optional=optional))


SOURCE_SCHEMA = Schema(
    type=SchemaType.STRUCT,
    name="io.debezium.connector.postgresql.Source",
    version=1,
    fields=(
        _field("version", SchemaType.STRING, optional=False),
        _field("connector", SchemaType.STRING, optional=False),
        _field("name", SchemaType.STRING, optional=False),
        _field("ts_ms", SchemaType.INT64, optional=False),
        SchemaField(
            name="snapshot",
            schema=Schema(
                type=SchemaType.STRING,
                optional=True,
                name="io.debezium.data.Enum",
                version=1,
                parameters={"allowed": SNAPSHOT_MARKERS},
                default="false",
            ),
        ),
        _field("db", SchemaType.STRING, optional=False),
        _field("sequence", SchemaType.STRING),
        _field("ts_us", SchemaType.INT64),
        _field("ts_ns", SchemaType.INT64),
        _field("schema", SchemaType.STRING, optional=False),
        _field("table", SchemaType.STRING, optional=False),
        _field("txId", SchemaType.INT64),
        _field("lsn", SchemaType.INT64),
        _field("xmin", SchemaType.INT64),
        _field("origin", SchemaType.STRING),
        _field("origin_lsn", SchemaType.INT64),
    ),
)

TRANSACTION_SCHEMA = Schema(
    type=SchemaType.STRUCT,
    optional=True,
    name="event.block",
    version=1,
    fields=(
        _field("id", SchemaType.STRING, optional=False),
        _field("total_order", SchemaType.INT64, optional=False),
        _field("data_collection_order", SchemaType.INT64, optional=False),
    ),
)


def envelope_schema(shape: TableShape) -> Schema:
    """Schema of the values of a table's topic."""
    return Schema(
        type=SchemaType.STRUCT,
        name=f"{shape.topic}.Envelope",
        version=2,
        fields=(
            SchemaField(name="before", schema=shape.row_schema),
            SchemaField(name="after", schema=shape.row_schema),
            SchemaField(name="source", schema=SOURCE_SCHEMA),
            SchemaField(name="transaction", schema=TRANSACTION_SCHEMA),
            _field("op", SchemaType.STRING, optional=False),
            _field("ts_ms", SchemaType.INT64),
            _field("ts_us", SchemaType.INT64),
            _field("ts_ns", SchemaType.INT64),
        ),
    )


def schema_json(schema: Schema, name: str | None = None) -> dict[str, Json]:
    """Return a schema the way Kafka's JSON converter writes it; `name` is that of the field it belongs to."""
    out: dict[str, Json] = {"type": schema.type.value}
    if schema.type is SchemaType.STRUCT:
        out["fields"] = [schema_json(member.schema, member.name) for member in schema.fields]
    if schema.keys is not None:
        out["keys"] = schema_json(schema.keys)
    if schema.items is not None:
        out["values" if schema.type is SchemaType.MAP else "items"] = schema_json(schema.items)
    out["optional"] = schema.optional
    for word in ("name", "version", "doc"):
        if (value := getattr(schema, word)) is not None:
            out[word] = value
    if schema.parameters:
        out["parameters"] = dict(schema.parameters)
    if schema.default is not None:
        out["default"] = schema.default
    if name is not None:
        out["field"] = name
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How records are written: with or without the schema envelope, and who writes them."""

    key_schemas: bool
    value_schemas: bool
    version: str
    name: str  # topic.prefix
    database: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What rows share: their transaction, or the snapshot."""

    xid: int
    commit_time_us: int
    last_commit_lsn: int | None
    snapshot: str = "false"
    origin: str | None = None
    origin_lsn: int | None = None


def _wrapped(schema: Schema | None, enabled: bool) -> tuple[bytes, bytes]:
    if not enabled or schema is None:
        return b"", b""
    return b'{"schema":' + orjson.dumps(schema_json(schema)) + b',"payload":', b"}"


class Envelope:
    """The constant pieces of one table's records."""

    __slots__ = (
        "_tail",
        "before_head",
        "between",
        "create_head",
        "deleted",
        "format",
        "key_head",
        "key_tail",
        "shape",
    )

    def __init__(self, shape: TableShape, format: Format) -> None:
        self.shape = shape
        self.format = format
        self.key_head, self.key_tail = _wrapped(shape.key_schema, format.key_schemas)
        head, self._tail = _wrapped(envelope_schema(shape), format.value_schemas)
        self.create_head = head + b'{"before":null,"after":'  # up to the row of a create or read
        self.before_head = head + b'{"before":'  # up to the old row of an update or delete
        self.between = b',"after":'  # from the old row to the new one
        self.deleted = b',"after":null'  # from the old row on, where there is no new one

    def source(self, moment: Moment) -> tuple[bytes, bytes, bytes]:
        """Return what goes around a row's two positions, `a + lsn + b + lsn + c`, up to the value of `op`."""
        us = moment.commit_time_us
        before = "null" if moment.last_commit_lsn is None else f'\\"{moment.last_commit_lsn}\\"'
        names = self.format
        first = (
            f',"source":{{"version":{_json(names.version)},"connector":"postgresql","name":{_json(names.name)},'
            f'"ts_ms":{us // 1000},"snapshot":"{moment.snapshot}","db":{_json(names.database)},'
            f'"sequence":"[{before},\\"'
        )
        second = (
            f'\\"]","ts_us":{us},"ts_ns":{us * 1000},"schema":{_json(self.shape.schema)},'
            f'"table":{_json(self.shape.table)},"txId":{moment.xid},"lsn":'
        )
        origin = "null" if moment.origin is None else _json(moment.origin)
        origin_lsn = "null" if moment.origin_lsn is None else moment.origin_lsn
        third = f',"xmin":null,"origin":{origin},"origin_lsn":{origin_lsn}}},"transaction":null,"op":"'
        return first.encode(), second.encode(), third.encode()

    def tail(self, operation: str, now_ms: int) -> bytes:
        """Return the end of a record, from `op`'s value on."""
        return (
            f'{operation}","ts_ms":{now_ms},"ts_us":{now_ms * 1000},"ts_ns":{now_ms * 1_000_000}}}'.encode()
            + self._tail
        )

    def truncated(self, moment: Moment, lsn: int, now_ms: int) -> bytes:
        """Return the record of a truncate, which has no row."""
        first, second, third = self.source(moment)
        number = b"%d" % lsn
        pieces = (self.create_head, b"null", first, number, second, number, third, self.tail("t", now_ms))
        return b"".join(pieces)

    def plain_key(self, key: bytes) -> bytes:
        """Return a record key without its schema."""
        return key[len(self.key_head) : len(key) - len(self.key_tail)]


def heartbeat(form: Format, now_ms: int) -> tuple[bytes, bytes]:
    """Return key and value of a heartbeat record."""
    key_schema = Schema(
        type=SchemaType.STRUCT,
        name="io.debezium.connector.common.ServerNameKey",
        version=1,
        fields=(_field("serverName", SchemaType.STRING, optional=False),),
    )
    value_schema = Schema(
        type=SchemaType.STRUCT,
        name="io.debezium.connector.common.Heartbeat",
        version=1,
        fields=(_field("ts_ms", SchemaType.INT64, optional=False),),
    )
    key_head, key_tail = _wrapped(key_schema, form.key_schemas)
    head, tail = _wrapped(value_schema, form.value_schemas)
    return key_head + orjson.dumps({"serverName": form.name}) + key_tail, head + b'{"ts_ms":%d}' % now_ms + tail


def _json(text: str) -> str:
    return orjson.dumps(text).decode()
