"""Our records beside Debezium's, for the same changes of the same tables

Both capture one database at the same time. Everything must be equal, positions and transaction numbers included, but
what cannot be: versions, times of processing, and the position of the snapshot, which each takes for itself.

Where we differ on purpose is listed in docs/postgres.md, and in `every_column.known`.
"""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.connect.plugins.postgres import every_column
from tests.connect.plugins.postgres.every_column import comparable

pytestmark = [
    pytest.mark.integration,
    pytest.mark.postgres,
    pytest.mark.java,
    pytest.mark.kafka_peer,
    pytest.mark.timeout(300),
]

DEADLINE_S = 120.0

CREATE = [
    "CREATE EXTENSION IF NOT EXISTS hstore",
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')",
    "CREATE DOMAIN price AS numeric(8,2)",
    """
    CREATE TABLE business (
        id bigserial PRIMARY KEY, active bool NOT NULL, small int2, whole int4, big int8, number oid,
        free numeric, exact numeric(12,4) NOT NULL, round numeric(5), cash money,
        note text, short varchar(10), fixed char(5), real4 float4, real8 float8, raw bytea,
        at timestamp, at0 timestamp(0), at3 timestamp(3), zoned timestamptz, zoned0 timestamptz(0),
        zoned3 timestamptz(3), day date, clock time, clock3 time(3), zclock timetz, span interval,
        doc json, docb jsonb, token uuid, feeling mood, cost price, host inet, net cidr, card macaddr,
        span4 int4range, flag bit(1), flags bit(8), pairs hstore, place point,
        wholes int[], notes text[], exacts numeric(6,2)[], times timestamp[], tokens uuid[], actives bool[],
        raws bytea[], docs jsonb[], days date[], reals float8[], frees numeric[]
    )
    """,
    "CREATE TABLE defaults (id int PRIMARY KEY, a int NOT NULL DEFAULT 42, b text NOT NULL DEFAULT 'it''s',"
    " c numeric(12,4) NOT NULL DEFAULT 1.5, d bool NOT NULL DEFAULT true, e timestamptz NOT NULL DEFAULT now(),"
    " f uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000001', g date NOT NULL DEFAULT '2026-01-01')",
    "CREATE TABLE composite (a int, b text, v text, PRIMARY KEY (b, a))",
    "CREATE TABLE keyless (a int, b text)",
    "CREATE TABLE keyless_full (a int, b text)",
    "ALTER TABLE keyless_full REPLICA IDENTITY FULL",
    "CREATE TABLE whole_image (id int PRIMARY KEY, a int, b text)",
    "ALTER TABLE whole_image REPLICA IDENTITY FULL",
    "CREATE TABLE large (id int PRIMARY KEY, n int, t text NOT NULL, j jsonb, r bytea, l text[])",
    "ALTER TABLE large ALTER t SET STORAGE EXTERNAL, ALTER j SET STORAGE EXTERNAL, ALTER r SET STORAGE EXTERNAL,"
    " ALTER l SET STORAGE EXTERNAL",
    'CREATE TABLE "Odd Name-1" (id int PRIMARY KEY, "Col One" text, "ümlaut" text)',
    "CREATE TABLE by_index (a int NOT NULL, b text)",
    "CREATE UNIQUE INDEX chosen ON by_index (a)",
    "ALTER TABLE by_index REPLICA IDENTITY USING INDEX chosen",
]

BUSINESS = """
INSERT INTO business VALUES (
    DEFAULT, true, -7, 123456, 9007199254740993, 4000000000, 123.4500, -1234.5678, 12345, '$-1234.56',
    E'héllo "q" \\\\ \\nnew', 'varchar', 'ab', 1.1, 1e300, '\\xdeadbeef00',
    '2026-02-03 04:05:06.789012', '2026-02-03 04:05:06.7', '2026-02-03 04:05:06.789', '2026-02-03 04:05:06.789012+02',
    '2026-02-03 04:05:06+02', '2026-02-03 04:05:06.7+02', '2026-02-03', '04:05:06.789012', '04:05:06.789',
    '04:05:06.789012+02', '1 year 2 mons 3 days 04:05:06.789', '{"a": [1, 2]}', '{"b": null, "a": 1.50}',
    'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'ok', 12.30, '10.0.0.1/8', '10.0.0.0/8', '08:00:2b:01:02:03', '[1,5]',
    '1', '10110011', '"a"=>"1","b"=>NULL', '(1.5,2)',
    '{1,NULL,3}', '{"a b","c\\"d",NULL,"NULL",e}', '{1.5,2.25}', '{"2026-02-03 04:05:06.789012"}',
    '{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}', '{t,f}', '{"\\\\xdead"}', '{"{\\"a\\": 1}"}', '{2026-02-03}',
    '{1.5,NaN}', '{1.5,2.25}'
)
"""

FILL = [
    BUSINESS,
    "INSERT INTO business (active, exact) VALUES (false, 0)",
    "INSERT INTO defaults (id) VALUES (1)",
    "INSERT INTO composite VALUES (1, 'x', 'v1')",
    "INSERT INTO keyless VALUES (1, 'x')",
    "INSERT INTO keyless_full VALUES (1, 'x')",
    "INSERT INTO whole_image VALUES (1, 2, 'x')",
    "INSERT INTO large SELECT 1, 1, repeat('n', 5000), to_jsonb(repeat('j', 5000)), convert_to(repeat('b', 5000),"
    " 'utf8'), array[repeat('a', 5000)]",
    "INSERT INTO \"Odd Name-1\" VALUES (1, 'a', 'b')",
    "INSERT INTO by_index VALUES (1, 'x')",
]

EXTREMES = """
INSERT INTO business (active, exact, real4, real8, at, at3, zoned, clock) VALUES
    (true, -0.0001, 'NaN', '-Infinity', 'infinity', '-infinity', 'infinity', '24:00'),
    (true, 99999999.9999, 16777216, 123456789012, '0044-03-15 01:02:03 BC', '12026-02-03 04:05:06',
     '0044-03-15 01:02:03+00 BC', '00:00')
"""

CHANGE = [
    "INSERT INTO composite VALUES (1, 'y', 'v1'); UPDATE composite SET v = 'v2'; UPDATE composite SET a = 2;"
    " DELETE FROM composite WHERE b = 'x'",
    "INSERT INTO keyless VALUES (2, 'y')",
    "UPDATE keyless_full SET a = 5",
    "DELETE FROM keyless_full",
    "UPDATE whole_image SET a = 3",
    "UPDATE whole_image SET id = 9",
    "DELETE FROM whole_image",
    "UPDATE large SET n = 2",
    "UPDATE large SET id = 5",
    "DELETE FROM large",
    'UPDATE "Odd Name-1" SET "Col One" = \'z\'',
    "UPDATE by_index SET b = 'y'",
    "UPDATE by_index SET a = 2",
    "DELETE FROM by_index",
    "TRUNCATE composite",
    "UPDATE defaults SET a = 1",
    "DELETE FROM defaults",
    BUSINESS,
    "UPDATE business SET whole = 1 WHERE id = 2",
    "ALTER TABLE whole_image ADD COLUMN extra text DEFAULT 'dd'",
    "INSERT INTO whole_image VALUES (20, 2, 'x')",
]

MODES: dict[str, dict[str, str]] = {
    "plain": {},
    "strings": {
        "decimal.handling.mode": "string",
        "time.precision.mode": "connect",
        "interval.handling.mode": "string",
        "hstore.handling.mode": "map",
        "binary.handling.mode": "hex",
        "tombstones.on.delete": "false",
        "skipped.operations": "none",
    },
    "doubles": {"decimal.handling.mode": "double", "time.precision.mode": "microseconds"},
    "iso": {"time.precision.mode": "isostring"},
    "nano": {"time.precision.mode": "nanoseconds", "message.key.columns": "public.composite:v,a"},
    "micro": {"time.precision.mode": "adaptive_time_microseconds", "column.exclude.list": "public.business.[f-hj-z].*"},
}


@pytest.fixture(scope="module")
def debezium(kafka_peer: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Apache Connect with Debezium: its REST address and the bootstrap address."""
    from benchmarks import peers

    bootstrap, _ = kafka_peer
    folder = tmp_path_factory.mktemp("connect")
    with peers.connect_worker(folder, bootstrap, plugins=peers.debezium_plugin()) as (url, _):
        yield url, bootstrap


def theirs(bootstrap: str, prefix: str) -> dict[str, list[Any]]:
    """Everything in the topics of a connector, by topic."""
    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics
    places = [TopicPartition(name, 0, 0) for name in topics if name.startswith(f"{prefix}.")]
    found: dict[str, list[Any]] = {}
    if not places:
        return found
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign(places)
    ends = {place.topic: consumer.get_watermark_offsets(place, timeout=30)[1] for place in places}
    deadline = time.monotonic() + DEADLINE_S
    while count(found) < sum(ends.values()):
        assert time.monotonic() < deadline
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            headers = {k: v for k, v in message.headers() or [] if not k.startswith("__debezium.context.")}
            found.setdefault(message.topic(), []).append((message.key(), message.value(), headers))
    consumer.close()
    # A tombstone without a key says nothing; Debezium sends one when a row of a table without key is deleted.
    return {topic: [each for each in records if each[:2] != (None, None)] for topic, records in found.items()}


@pytest.mark.parametrize(("mode", "schemas"), [("plain", False), *((mode, True) for mode in MODES)])
def test_the_same_changes_make_the_same_records(
    database: Any, runtime: Callable[..., Any], debezium: tuple[str, str], mode: str, schemas: bool
) -> None:
    database.run(*CREATE, "CREATE PUBLICATION dbz_publication FOR ALL TABLES", *FILL)
    if mode != "nano":  # where Debezium's numbers overflow
        database.run(EXTREMES)
    case = Case(prefix=f"{mode}{'' if schemas else '_bare'}", settings=MODES[mode], changes=CHANGE, schemas=schemas)
    captured, found = side_by_side(
        case, database, runtime, debezium, last=lambda record: b'"extra":"dd"' in (record.value or b"")
    )
    assert sorted(captured) == sorted(found)
    for topic, records in found.items():
        assert len(captured[topic]) == len(records), topic
        for (key, value, headers), (their_key, their_value, their_headers) in zip(
            captured[topic], records, strict=True
        ):
            assert comparable(key) == comparable(their_key), topic
            assert comparable(value) == comparable(their_value), topic
            assert headers == their_headers, topic


@pytest.mark.parametrize("mode", every_column.MODES)
def test_every_column_is_the_same_but_for_what_is_listed(
    database: Any, runtime: Callable[..., Any], debezium: tuple[str, str], mode: str
) -> None:
    """With `RECORD_DEBEZIUM=1` what Debezium wrote is kept for the test that has no Java."""
    database.run(*every_column.PREPARE, *every_column.tables(), *every_column.fill())
    settings = every_column.MODES[mode] | {"skipped.operations": "none"}
    case = Case(prefix=f"every_{mode}", settings=settings, changes=every_column.changes(), schemas=True)
    captured, found = side_by_side(
        case, database, runtime, debezium, last=lambda record: b'"id":3,"d_bool"' in (record.value or b"")
    )
    if os.environ.get("RECORD_DEBEZIUM"):
        every_column.record(mode, found)
    assert {topic: len(records) for topic, records in captured.items()} == {
        topic: len(records) for topic, records in found.items()
    }
    unexplained = {
        (topic, path, str(ours), str(their))
        for topic, records in found.items()
        for mine, other in zip(captured[topic], records, strict=True)
        for part in (0, 1)
        for path, ours, their in every_column.differences(comparable(mine[part]), comparable(other[part]))
        if not every_column.known(path, ours, their)
    }
    assert not unexplained
    assert [record[2] for records in captured.values() for record in records] == [
        record[2] for topic in captured for record in found[topic]
    ]


class Case(NamedTuple):
    """One configuration and what happens under it."""

    prefix: str
    settings: dict[str, str]
    changes: list[str]
    schemas: bool


def side_by_side(
    case: Case,
    database: Any,
    runtime: Callable[..., Any],
    debezium: tuple[str, str],
    last: Callable[[Any], bool],
) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Our records and Debezium's by topic, of the snapshot and of the changes up to the last one."""
    url, bootstrap = debezium
    settings = database.config(topic_prefix=case.prefix) | case.settings
    ours = runtime(settings, schemas=case.schemas, raw=True)
    ours.until_streaming()
    converters = {
        f"{side}.converter{option}": value
        for side in ("key", "value")
        for option, value in (
            ("", "org.apache.kafka.connect.json.JsonConverter"),
            (".schemas.enable", str(case.schemas).lower()),
        )
    }
    config = settings | converters | {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "slot.name": f"{database.name}_debezium",
    }  # fmt: skip
    httpx.put(f"{url}/connectors/{case.prefix}/config", json=config, timeout=90).raise_for_status()
    try:
        snapshot = len(ours.records)
        wait(lambda: count(theirs(bootstrap, case.prefix)) == snapshot, "Debezium's snapshot")
        for statements in case.changes:
            database.run(statements)
        ours.until(lambda: any(last(record) for record in ours.records[snapshot:]))
        wait(lambda: count(theirs(bootstrap, case.prefix)) >= len(ours.records), "Debezium's changes")
        found = theirs(bootstrap, case.prefix)
    finally:
        httpx.delete(f"{url}/connectors/{case.prefix}", timeout=90).raise_for_status()
    captured: dict[str, list[Any]] = {}
    for record in ours.records:
        captured.setdefault(record.topic, []).append((record.key, record.value, dict(record.headers)))
    return captured, found


def count(found: dict[str, list[Any]]) -> int:
    return sum(map(len, found.values()))


def wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.5)
