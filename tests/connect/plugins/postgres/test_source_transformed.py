"""Captured changes through Debezium's transformations: the whole way from a real server to what is produced"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tidemill.connect.api import EncodedBatch, Record
from tidemill.connect.converters.json import JsonConverter
from tidemill.connect.tasks.chained import chain_of, records_of, unless_encoded
from tidemill.connect.transforms.chain import Encoded, Failure

pytestmark = [pytest.mark.integration, pytest.mark.postgres]

D = "io.debezium.transforms."
UNWRAP = {
    "transforms": "u",
    "transforms.u.type": D + "ExtractNewRecordState",
    "transforms.u.add.fields": "op,table,lsn",
    "transforms.u.delete.tombstone.handling.mode": "rewrite-with-tombstone",
}
EVERY = [
    "CREATE TABLE a (id int PRIMARY KEY, note text DEFAULT 'x', doc jsonb, price numeric(8,2), at timestamptz)",
    "INSERT INTO a VALUES (1, 'a', '{\"source\": {\"after\": null}}', 1.5, '2026-01-02 03:04:05+00'),"
    " (2, NULL, NULL, NULL, NULL)",
]
CHANGES = ["UPDATE a SET note = 'b' WHERE id = 1", "UPDATE a SET id = 3 WHERE id = 2", "DELETE FROM a WHERE id = 1"]


def produced(batch: Sequence[Any], config: dict[str, str], *, schemas: bool) -> tuple[list[Any], list[Record]]:
    """What is produced of captured records, and the records it is made of."""
    converter = JsonConverter(schemas_enable=schemas)
    chain = chain_of(config, converter, converter)
    assert chain is not None
    encode = unless_encoded(converter.encode)
    given = [
        record
        for each in batch
        for record in records_of(
            EncodedBatch(topic=each.topic, keys=[each.key], values=[each.value], headers=[each.headers])
        )
    ]
    out, made = [], []
    for outcome in chain.apply(given):
        assert not isinstance(outcome, Failure), outcome
        if outcome is not None:
            value = encode(outcome.value, outcome.value_schema)
            out.append((outcome.topic, outcome.headers, None if value is None else json.loads(value)))
            made.append(outcome)
    return out, made


@pytest.mark.parametrize("schemas", [False, True])
def test_rows_come_out_of_their_envelopes(database: Any, runtime: Callable[..., Any], schemas: bool) -> None:
    database.run(*EVERY)
    running = runtime(database.config(), schemas=schemas, raw=True)
    running.until_records(2)
    running.until_streaming()
    database.run(*CHANGES)
    running.until_records(8)
    out, made = produced(running.records, UNWRAP, schemas=schemas)
    rows = [value and (value["payload"] if schemas else value) for _, _, value in out]
    shown = [row and (row["id"], row["note"], row["__op"], row["__deleted"], row["__table"]) for row in rows]
    null = "x" if schemas else None  # with a schema a null is taken for the default of its column, as in Debezium
    assert shown == [
        (1, "a", "r", "false", "a"),
        (2, null, "r", "false", "a"),
        (1, "b", "u", "false", "a"),
        (2, null, "d", "true", "a"),
        None,
        (3, null, "c", "false", "a"),
        (1, null, "d", "true", "a"),
        None,
    ]
    assert [type(each.value) is Encoded for each in made][:3] == [True, not schemas, True]
    assert json.loads(rows[0]["doc"]) == {"source": {"after": None}}
    assert [name for name, _ in out[3][1]] == ["__debezium.newkey"]
    if schemas:
        fields = [each["field"] for each in out[0][2]["schema"]["fields"]]
        assert fields == ["id", "note", "doc", "price", "at", "__deleted", "__op", "__table", "__lsn"]


def test_rows_of_an_outbox_become_events(database: Any, runtime: Callable[..., Any]) -> None:
    database.run(
        "CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text,"
        " payload jsonb, at timestamptz DEFAULT now())"
    )
    running = runtime(database.config(), schemas=True, raw=True)
    running.until_streaming()
    database.run(
        "INSERT INTO outbox VALUES ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'order', '7', 'made', '{\"n\": 1}')",
        "DELETE FROM outbox",
    )
    running.until_records(3)
    config = {
        "transforms": "o",
        "transforms.o.type": D + "outbox.EventRouter",
        "transforms.o.table.expand.json.payload": "true",
        "transforms.o.table.fields.additional.placement": "type:header:kind",
    }
    [(topic, headers, value)], [made] = produced(running.records, config, schemas=True)
    assert (topic, made.key, value["payload"]) == ("outbox.event.order", "7", {"n": 1})
    assert headers == (("id", b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), ("kind", b"made"))


def test_shards_share_a_topic(database: Any, runtime: Callable[..., Any]) -> None:
    for shard in (1, 2):
        database.run(f"CREATE TABLE s{shard} (id int PRIMARY KEY)", f"INSERT INTO s{shard} VALUES (7)")
    running = runtime(database.config(), schemas=True, raw=True)
    running.until_records(2)
    config = {
        "transforms": "l",
        "transforms.l.type": D + "ByLogicalTableRouter",
        "transforms.l.topic.regex": "(.*)s[0-9]",
        "transforms.l.topic.replacement": "$1all",
        "transforms.l.key.field.regex": ".*(s[0-9])",
        "transforms.l.key.field.replacement": "$1",
    }
    out, made = produced(running.records, config, schemas=True)
    assert [topic for topic, _, _ in out] == ["t.public.all"] * 2
    assert [each.key for each in made] == [
        {"id": 7, "__dbz__physicalTableIdentifier": "s1"},
        {"id": 7, "__dbz__physicalTableIdentifier": "s2"},
    ]
    assert {value["schema"]["name"] for _, _, value in out} == {"t.public.all.Envelope"}
