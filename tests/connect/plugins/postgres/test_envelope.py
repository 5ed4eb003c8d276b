"""The envelope, field by field as Debezium has it"""

import json
from typing import Any

from tidemill.connect.api import Schema, SchemaField, SchemaType
from tidemill.connect.plugins.postgres.envelope import Envelope, Format, Moment, envelope_schema, heartbeat, schema_json
from tidemill.connect.plugins.postgres.selection import Selection
from tidemill.connect.plugins.postgres.table import CatalogColumn, CatalogTable, Shaper, TableShape, relation_of
from tidemill.connect.plugins.postgres.types.conversion import Modes
from tidemill.connect.plugins.postgres.types.resolve import TypeCatalog


def shape() -> TableShape:
    table = CatalogTable(
        oid=7,
        schema="public",
        table='odd "name"',
        replica_identity="d",
        columns=(
            CatalogColumn(name="id", type_oid=20, not_null=True),
            CatalogColumn(name="note", type_oid=25, default="'x'::text"),
        ),
        primary_key=("id",),
    )
    made = Shaper(prefix="t", selection=Selection(), modes=Modes(), types=TypeCatalog())
    return made.shape(relation_of(table), table)


def form(*, schemas: bool) -> Format:
    return Format(key_schemas=schemas, value_schemas=schemas, version="1.2", name="t", database='d"b')


MOMENT = Moment(xid=9, commit_time_us=1_700_000_000_123_456, last_commit_lsn=50)


def created(envelope: Envelope, moment: Moment, row: bytes = b'{"id":1,"note":"x"}') -> Any:
    first, second, third = envelope.source(moment)
    tail = envelope.tail("c", 5)
    return json.loads(b"".join((envelope.create_head, row, first, b"77", second, b"77", third, tail)))


def test_a_record_without_schema() -> None:
    record = created(Envelope(shape(), form(schemas=False)), MOMENT)
    assert list(record) == ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
    assert record["source"] == {
        "version": "1.2",
        "connector": "postgresql",
        "name": "t",
        "ts_ms": 1_700_000_000_123,
        "snapshot": "false",
        "db": 'd"b',
        "sequence": '["50","77"]',
        "ts_us": 1_700_000_000_123_456,
        "ts_ns": 1_700_000_000_123_456_000,
        "schema": "public",
        "table": 'odd "name"',
        "txId": 9,
        "lsn": 77,
        "xmin": None,
        "origin": None,
        "origin_lsn": None,
    }
    assert (record["op"], record["ts_ms"], record["ts_us"], record["ts_ns"]) == ("c", 5, 5_000, 5_000_000)
    assert list(record["source"]) == [each.name for each in envelope_schema(shape()).fields[2].schema.fields]


def test_the_first_transaction_has_no_commit_before_it() -> None:
    moment = Moment(xid=9, commit_time_us=0, last_commit_lsn=None, snapshot="first", origin="o", origin_lsn=3)
    source = created(Envelope(shape(), form(schemas=False)), moment)["source"]
    assert source["sequence"] == '[null,"77"]'
    assert (source["snapshot"], source["origin"], source["origin_lsn"]) == ("first", "o", 3)


def test_a_record_with_schema() -> None:
    record = created(Envelope(shape(), form(schemas=True)), MOMENT)
    assert list(record) == ["schema", "payload"]
    schema = record["schema"]
    assert (schema["name"], schema["version"], schema["optional"]) == ("t.public.odd__name_.Envelope", 2, False)
    assert [each["field"] for each in schema["fields"]] == list(record["payload"])
    before = schema["fields"][0]
    assert before["fields"] == [
        {"type": "int64", "optional": False, "field": "id"},
        {"type": "string", "optional": True, "default": "x", "field": "note"},
    ]


def test_key_and_its_plain_form() -> None:
    envelope = Envelope(shape(), form(schemas=True))
    key = envelope.key_head + b'{"id":1}' + envelope.key_tail
    assert json.loads(key) == {
        "schema": {
            "type": "struct",
            "fields": [{"type": "int64", "optional": False, "field": "id"}],
            "optional": False,
            "name": "t.public.odd__name_.Key",
        },
        "payload": {"id": 1},
    }
    assert envelope.plain_key(key) == b'{"id":1}'
    assert Envelope(shape(), form(schemas=False)).plain_key(b'{"id":1}') == b'{"id":1}'


def test_a_truncate_has_no_row() -> None:
    record = json.loads(Envelope(shape(), form(schemas=False)).truncated(MOMENT, 77, 5))
    assert (record["op"], record["before"], record["after"]) == ("t", None, None)
    assert record["source"]["lsn"] == 77


def test_schemas_are_written_as_kafkas_converter_writes_them() -> None:
    schema = Schema(
        type=SchemaType.STRUCT,
        name="n",
        version=1,
        doc="d",
        parameters={"p": "q"},
        fields=(
            SchemaField(
                name="list",
                schema=Schema(type=SchemaType.ARRAY, optional=True, items=Schema(type=SchemaType.INT32, optional=True)),
            ),
            SchemaField(
                name="map",
                schema=Schema(
                    type=SchemaType.MAP, keys=Schema(type=SchemaType.STRING), items=Schema(type=SchemaType.STRING)
                ),
            ),
        ),
    )
    written = schema_json(schema, "f")
    assert list(written) == ["type", "fields", "optional", "name", "version", "doc", "parameters", "field"]
    assert written["fields"] == [
        {"type": "array", "items": {"type": "int32", "optional": True}, "optional": True, "field": "list"},
        {
            "type": "map",
            "keys": {"type": "string", "optional": False},
            "values": {"type": "string", "optional": False},
            "optional": False,
            "field": "map",
        },
    ]


def test_heartbeats() -> None:
    key, value = heartbeat(form(schemas=False), 5)
    assert (json.loads(key), json.loads(value)) == ({"serverName": "t"}, {"ts_ms": 5})
    key, value = heartbeat(form(schemas=True), 5)
    assert json.loads(key)["payload"] == {"serverName": "t"}
    assert json.loads(value)["schema"]["name"] == "io.debezium.connector.common.Heartbeat"
