"""Records of change topics for the recorder of Debezium's transformations, as our capture emits them

The pieces are those of the capture itself, so that what is recorded is about records people really have. Beside them
stand records that pass through the same topics or chains and are no changes: heartbeats, messages, schema changes.
"""

import json
from dataclasses import replace
from typing import Any

import orjson

from tidemill.connect.plugins.postgres.envelope import Envelope, Format, Moment, heartbeat
from tidemill.connect.plugins.postgres.selection import Selection
from tidemill.connect.plugins.postgres.table import CatalogColumn, CatalogTable, Shaper, relation_of
from tidemill.connect.plugins.postgres.types.conversion import Modes
from tidemill.connect.plugins.postgres.types.resolve import TypeCatalog

TIMESTAMP_MS = 1_700_000_000_123
FORM = Format(key_schemas=True, value_schemas=True, version="3.6.3", name="shop", database="db")
MOMENT = Moment(xid=571, commit_time_us=1_700_000_000_123_456, last_commit_lsn=50)
SNAPSHOT = Moment(xid=570, commit_time_us=1_700_000_000_000_000, last_commit_lsn=None, snapshot="first")
UNAVAILABLE = "__debezium_unavailable_value"


def envelope_of(table: str, *columns: CatalogColumn, key: tuple[str, ...] = ("id",)) -> Envelope:
    """The pieces of a table's records."""
    known = CatalogTable(oid=7, schema="public", table=table, replica_identity="d", columns=columns, primary_key=key)
    shaper = Shaper(prefix="shop", selection=Selection(), modes=Modes(), types=TypeCatalog())
    return Envelope(shaper.shape(relation_of(known), known), FORM)


ORDERS = envelope_of(
    "orders",
    CatalogColumn(name="id", type_oid=20, not_null=True),
    CatalogColumn(name="name", type_oid=25, not_null=True),
    CatalogColumn(name="note", type_oid=25, default="'x'::text"),
    CatalogColumn(name="amount", type_oid=1700, modifier=(10 << 16 | 2) + 4),
    CatalogColumn(name="paid", type_oid=16, not_null=True),
    CatalogColumn(name="at", type_oid=1184),
    CatalogColumn(name="doc", type_oid=3802),
    CatalogColumn(name="tags", type_oid=1009, dimensions=1),
    CatalogColumn(name="after", type_oid=23),
)
ROW = {
    "id": 7,
    "name": "Ann",
    "note": 'a "b" \\ ,"source":{ ünï',
    "amount": "BNI=",
    "paid": True,
    "at": "2024-02-29T13:14:15.678Z",
    "doc": '{"a":1,"after":null}',
    "tags": ["a", None],
    "after": 5,
}
OLD = {**ROW, "name": "Bob", "note": "old", "after": None}
KEY_ONLY = {"id": 7, "name": "", "note": None, "amount": None, "paid": False, "at": None, "doc": None, "tags": None}
KEY_ONLY["after"] = None

OUTBOX = envelope_of(
    "outbox",
    CatalogColumn(name="id", type_oid=2950, not_null=True),
    CatalogColumn(name="aggregatetype", type_oid=1043, not_null=True),
    CatalogColumn(name="aggregateid", type_oid=1043, not_null=True),
    CatalogColumn(name="type", type_oid=1043),
    CatalogColumn(name="payload", type_oid=3802),
    CatalogColumn(name="at", type_oid=1114, modifier=3),
    CatalogColumn(name="at_us", type_oid=1114),
    CatalogColumn(name="plain", type_oid=20),
    CatalogColumn(name="version", type_oid=23),
    CatalogColumn(name="shard", type_oid=23),
    CatalogColumn(name="tenant", type_oid=25),
    CatalogColumn(name="price", type_oid=1700, modifier=(10 << 16 | 2) + 4),
)
EVENT = {
    "id": "cc5a8ae5-4ea0-4f0e-9d2b-0f0a6a2a7d5e",
    "aggregatetype": "Order",
    "aggregateid": "10711",
    "type": "OrderCreated",
    "payload": '{"id":1,"name":"Ann","big":3000000000,"ratio":1.5,"flag":true,"none":null,"in":{"a":"b"}}',
    "at": 1_709_212_455_678,
    "at_us": 1_709_212_455_678_123,
    "plain": 12,
    "version": 2,
    "shard": 1,
    "tenant": "acme",
    "price": "BNI=",
}


def record(topic: str, key: Any, value: Any, *headers: list[str | None]) -> dict[str, Any]:
    """A record as the recorder reads it."""
    return {"topic": topic, "key": key, "value": value, "timestamp": TIMESTAMP_MS, "headers": list(headers)}


def key_of(envelope: Envelope, number: Any) -> Any:
    """The key of a row."""
    return orjson.loads(envelope.key_head + orjson.dumps({"id": number}) + envelope.key_tail)


def change(
    envelope: Envelope, operation: str, before: Any, after: Any, *headers: list[str | None], moment: Moment = MOMENT
) -> dict[str, Any]:
    """A change of a row."""
    first, second, third = envelope.source(moment)
    old, new = (b"null" if row is None else orjson.dumps(row) for row in (before, after))
    around = (first, b"77", second, b"77", third, envelope.tail(operation, TIMESTAMP_MS + 9))
    value = b"".join((envelope.before_head, old, envelope.between, new, *around))
    number = (after or before or {"id": None})["id"]
    key = None if number is None else key_of(envelope, number)
    return record(envelope.shape.topic, key, orjson.loads(value), *headers)


def renamed(given: dict[str, Any], name: str | None) -> dict[str, Any]:
    """The record with another name of its value's schema."""
    value = given["value"]
    schema = {**value["schema"], "name": name}
    if name is None:
        del schema["name"]
    return {**given, "value": {**value, "schema": schema}}


def with_payload(given: dict[str, Any], **members: Any) -> dict[str, Any]:
    """The record with other members of the envelope."""
    value = given["value"]
    return {**given, "value": {**value, "payload": {**value["payload"], **members}}}


def typed(name: str | None, payload: dict[str, Any], **kinds: str) -> dict[str, Any]:
    """A struct of scalars with its schema."""
    fields = [{"type": kind, "optional": True, "field": member} for member, kind in kinds.items()]
    schema: dict[str, Any] = {"type": "struct", "fields": fields, "optional": False}
    return {"schema": schema if name is None else {**schema, "name": name, "version": 1}, "payload": payload}


def _heartbeat() -> dict[str, Any]:
    key, value = heartbeat(FORM, TIMESTAMP_MS)
    return record("__debezium-heartbeat.shop", json.loads(key), json.loads(value))


CREATE = change(ORDERS, "c", None, ROW)
UPDATE = change(ORDERS, "u", None, {**ROW, "name": "Cat"})
DELETE = change(ORDERS, "d", KEY_ONLY, None)
NO_COLUMNS = envelope_of("bare", key=())
DROPPING = ["gone", '["note","id","paid","nowhere"]']
MESSAGE_KINDS = {"op": "string", "ts_ms": "int64", "prefix": "string"}

RECORDS: dict[str, dict[str, Any]] = {
    "CREATE": CREATE,
    "READ": change(ORDERS, "r", None, {**ROW, "note": None, "doc": UNAVAILABLE}, moment=SNAPSHOT),
    "UPDATE": UPDATE,
    "UPDATE_OLD": change(ORDERS, "u", OLD, ROW, ["h", "text"], ["n", "12"], ["h", "again"]),
    "NULLS": change(ORDERS, "c", None, {**KEY_ONLY, "name": "n"}),
    "DELETE": DELETE,
    "DELETE_OLD": change(ORDERS, "d", OLD, None, ["h", "text"]),
    "DELETE_NAMELESS": change(ORDERS, "d", {**OLD, "name": " ", "note": None}, None),
    "TOMBSTONE": record("shop.public.orders", key_of(ORDERS, 7), None),
    "TOMBSTONE_KEYLESS": record("shop.public.orders", None, None, ["h", None]),
    "TRUNCATE": change(ORDERS, "t", None, None),
    "OLD_KEY": change(ORDERS, "d", KEY_ONLY, None, ["__debezium.newkey", '{"id":8}']),
    "NEW_KEY": change(ORDERS, "c", None, {**ROW, "id": 8}, ["__debezium.oldkey", '{"id":7}']),
    "KEYLESS": {**CREATE, "key": None},
    "DROPPING": change(ORDERS, "u", OLD, ROW, DROPPING),
    "DROPPING_DELETE": change(ORDERS, "d", OLD, None, DROPPING),
    "DROPPING_NOTHING": change(ORDERS, "c", None, ROW, ["gone", "[]"]),
    "DROPPING_NULL": change(ORDERS, "c", None, ROW, ["gone", None]),
    "DROPPING_TEXT": change(ORDERS, "c", None, ROW, ["gone", "note"]),
    "IN_TRANSACTION": with_payload(CREATE, transaction={"id": "571:77", "total_order": 1, "data_collection_order": 2}),
    "ORIGIN": change(ORDERS, "c", None, ROW, moment=replace(MOMENT, origin="o", origin_lsn=4)),
    "NO_COLUMNS": change(NO_COLUMNS, "c", None, {}),
    "HEARTBEAT": _heartbeat(),
    "MESSAGE": record(
        "shop.message",
        typed("io.debezium.connector.postgresql.MessageKey", {"prefix": "p"}, prefix="string"),
        typed(
            "io.debezium.connector.postgresql.MessageValue",
            {"op": "m", "ts_ms": 1, "prefix": "p"},
            **MESSAGE_KINDS,
        ),
    ),
    "MESSAGE_ENVELOPE": renamed(with_payload(CREATE, op="m", after=None), "shop.message.Envelope"),
    "SCHEMA_CHANGE": record(
        "shop",
        typed("io.debezium.connector.postgresql.SchemaChangeKey", {"databaseName": "db"}, databaseName="string"),
        typed(
            "io.debezium.connector.postgresql.SchemaChangeValue",
            {"databaseName": "db", "ddl": "CREATE TABLE t"},
            databaseName="string",
            ddl="string",
        ),
    ),
    "TRANSACTION": record(
        "shop.transaction",
        typed("io.debezium.connector.common.TransactionMetadataKey", {"id": "571"}, id="string"),
        typed(
            "io.debezium.connector.common.TransactionMetadataValue",
            {"status": "BEGIN", "id": "571", "ts_ms": 1},
            status="string",
            id="string",
            ts_ms="int64",
        ),
    ),
    "ENVELOPE_ALONE": renamed(CREATE, "Envelope"),
    "ENVELOPE_ENDING": renamed(CREATE, "xEnvelope"),
    "NAMELESS": renamed(CREATE, None),
    "TEXT": record("t", {"schema": None, "payload": "k"}, {"schema": None, "payload": "text"}),
    "TEXT_KEY": {**CREATE, "key": {"schema": {"type": "string", "optional": False}, "payload": "k"}},
    "PLAIN_MAP": record("t", None, {"schema": None, "payload": {"op": "c", "after": {"id": 1}}}),
    "SHARD": {
        **change(envelope_of("orders_2", CatalogColumn(name="id", type_oid=20, not_null=True)), "c", None, {"id": 2})
    },
}


def event(operation: str = "c", *headers: list[str | None], **members: Any) -> dict[str, Any]:
    """A row of the outbox."""
    row = {**EVENT, **members}
    before, after = (row, None) if operation == "d" else (None, row)
    return change(OUTBOX, operation, before, after, *headers)


RECORDS |= {
    "EVENT": event(),
    "EVENT_READ": event("r", ["h", "text"]),
    "EVENT_UPDATE": event("u"),
    "EVENT_DELETE": event("d"),
    "EVENT_TEXT": event(payload="just text"),
    "EVENT_EMPTY": event(payload=""),
    "EVENT_BLANK": event(payload="  "),
    "EVENT_NULL": event(payload=None),
    "EVENT_OTHER": event(aggregatetype="Customer Ärger", aggregateid="5", version=3),
    "EVENT_NO_ROUTE": event(aggregatetype=""),
    "EVENT_NULLS": event(type=None, at=None, at_us=None, version=None, shard=None, tenant=None, price=None),
    "EVENT_ARRAY": event(payload='[{"a":1},{"b":"x","a":null},{"a":2}]'),
    "EVENT_NUMBERS": event(payload="[1,2]"),
    "EVENT_MIXED": event(payload='{"list":[1,"a"]}'),
    "EVENT_MIXED_NUMBERS": event(payload='{"list":[1,3000000000]}'),
    "EVENT_LISTS": event(
        payload='{"s":["a",null],"n":[null],"e":[],"o":[{"x":1.0},{"y":[true]}],"d":{"e":{}},"l":[[1]]}'
    ),
    "EVENT_BIG": event(payload='{"n":123456789012345678901234567890,"f":1e300,"z":-0.0,"i":-2147483649}'),
    "EVENT_BROKEN": event(payload='{"a":'),
    "EVENT_TRAILING": event(payload='{"a":1} x'),
    "EVENT_NAMES": event(payload='{"a.b":1,"1x":2,"a":1,"a":"twice"}'),
    "EVENT_HEADERS": event("c", ["id", "before"], ["x", "1"]),
    "EVENT_SPACED": event(payload=' {"a":1}'),
}
