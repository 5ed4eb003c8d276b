"""The task against a real server: snapshot, stream, restart, trouble"""

import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidemill.connect.api import EndOfInput, Fatal, InvalidConfig, NotConnected, RetryAfter
from tidemill.connect.plugins.postgres.connection import SESSION
from tidemill.connect.plugins.postgres.lsn import parse_lsn
from tidemill.connect.plugins.postgres.source import postgres_source

pytestmark = [pytest.mark.integration, pytest.mark.postgres]

Start = Callable[..., Any]

TYPES = Path(__file__).parent / "every_type.sql"
EXPECTED = Path(__file__).parent / "every_type.json"


def rebuilt(records: list[Any], topic: str) -> dict[int, Any]:
    """The table as a consumer that applies the records in order would have it."""
    rows: dict[int, Any] = {}
    for record in records:
        if record.topic != topic or record.value is None:
            continue
        value = record.value
        if value["op"] == "d":
            rows.pop(value["before"]["id"], None)
        else:
            rows[value["after"]["id"]] = value["after"]
    return rows


def test_snapshot_then_stream(database: Any, runtime: Start) -> None:
    database.run(
        "CREATE TABLE a (id int PRIMARY KEY, note text)",
        "INSERT INTO a SELECT i, 'n' || i FROM generate_series(1, 3) i",
        "CREATE TABLE empty (id int PRIMARY KEY)",
        "CREATE TABLE z (id int PRIMARY KEY)",
        "INSERT INTO z VALUES (1)",
        "CREATE TABLE zz_empty (id int PRIMARY KEY)",
    )
    running = runtime(database.config())
    records = running.until_records(4)
    assert [(r.topic, r.key["id"], r.value["op"], r.value["source"]["snapshot"]) for r in records] == [
        ("t.public.a", 1, "r", "first"),
        ("t.public.a", 2, "r", "true"),
        ("t.public.a", 3, "r", "last_in_data_collection"),
        ("t.public.z", 1, "r", "last"),
    ]
    assert running.offset["snapshot_completed"] is True
    database.run("UPDATE a SET note = 'x' WHERE id = 2", "DELETE FROM a WHERE id = 1")
    streamed = running.until_records(7)[4:]
    assert [(r.key["id"], r.value and r.value["op"]) for r in streamed] == [(2, "u"), (1, "d"), (1, None)]
    assert streamed[0].value["source"]["snapshot"] == "false"
    assert running.offset["lsn"] == running.offset["lsn_commit"] > records[0].value["source"]["lsn"]


def test_the_status_names_published_tables_that_accept_no_update(database: Any, runtime: Start) -> None:
    database.run("CREATE TABLE log (line text)", "INSERT INTO log VALUES ('x')")
    running = runtime(database.config())
    running.until_records(1)
    assert running.facts["tables-without-update"] == "public.log"
    database.run("INSERT INTO log VALUES ('y')")
    assert running.until_records(2)[1].value["after"] == {"line": "y"}


MARKERS = [
    ([1], "last"),
    ([2], "first last"),
    ([3], "first true last"),
    ([0, 1], " | last"),
    ([1, 0], "last | "),
    ([2, 0], "first last | "),
    ([3, 0], "first true last | "),
    ([1, 1], "first | last"),
    ([0, 2, 0], " | first_in_data_collection last | "),
    ([2, 1, 0], "first last_in_data_collection | last | "),
    ([1, 2, 3], "first | first_in_data_collection last_in_data_collection | first_in_data_collection true last"),
    ([3, 0, 3, 0], "first true last_in_data_collection |  | first_in_data_collection true last | "),
    ([0, 3], " | first_in_data_collection true last"),
    ([0, 1, 1], " | last_in_data_collection | last"),
]
"""Rows of each table, and what Debezium 3.6.3 writes into source.snapshot of each."""


@pytest.mark.parametrize(("sizes", "markers"), MARKERS, ids=[str(sizes) for sizes, _ in MARKERS])
def test_rows_of_the_snapshot_are_marked_as_debezium_marks_them(
    database: Any, runtime: Start, sizes: list[int], markers: str
) -> None:
    for number, size in enumerate(sizes):
        database.run(f"CREATE TABLE t{number} (id int PRIMARY KEY)")
        database.run(f"INSERT INTO t{number} SELECT generate_series(1, {size})")
    running = runtime(database.config(snapshot_mode="initial_only"))
    records = running.until_records(sum(sizes))
    found = [[r.value["source"]["snapshot"] for r in records if r.topic == f"t.public.t{n}"] for n in range(len(sizes))]
    assert " | ".join(map(" ".join, found)) == markers


def test_nothing_is_missing_or_doubled_between_snapshot_and_stream(database: Any, runtime: Start) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a SELECT generate_series(1, 2000)")
    running = runtime(database.config())
    running.poll()
    database.run("INSERT INTO a SELECT generate_series(2001, 4000)", "DELETE FROM a WHERE id % 2 = 0")
    running.until_records(2000 + 2000 + 4000)
    assert len([r for r in running.records if r.value and r.value["op"] == "r"]) == 2000
    assert sorted(rebuilt(running.records, "t.public.a")) == list(range(1, 4001, 2))


def test_wide_rows_come_in_small_pages(database: Any, runtime: Start) -> None:
    database.run(
        "CREATE TABLE a (id int PRIMARY KEY, big text)",
        "INSERT INTO a SELECT i, repeat('x', 100000) FROM generate_series(1, 300) i",
    )
    running = runtime(database.config(), raw=True)
    sizes = []
    while len(running.records) < 300:
        before = len(running.records)
        running.poll()
        sizes.append(len(running.records) - before)
    assert sizes[0] == 200, "nothing is known before the first page"
    assert max(sizes[1:]) <= 50, "then pages are near four megabytes"


@pytest.mark.parametrize("schemas", [False, True])
def test_every_type_in_snapshot_and_stream(database: Any, runtime: Start, schemas: bool) -> None:
    script = TYPES.read_text()
    create, _, fill = script.partition("-- rows\n")
    for statement in filter(str.strip, create.split(";\n")):
        database.run(statement)
    database.run(fill)
    expected = json.loads(EXPECTED.read_text())
    running = runtime(database.config(), schemas=schemas)
    running.until_records(1)
    running.until_streaming()
    database.run(fill)
    snapshot, streamed = running.until_records(2)
    for record in (snapshot, streamed):
        value = record.value["payload"] if schemas else record.value
        row = value["after"]
        row.pop("id")
        assert row == expected["row"]
        if schemas:
            fields = {field["field"]: field for field in record.value["schema"]["fields"][1]["fields"]}
            found = {name: {k: v for k, v in field.items() if k != "field"} for name, field in fields.items()}
            found.pop("id")
            assert found == expected["schema"]


def test_restart_goes_on_where_it_was(database: Any, runtime: Start) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    first = runtime(database.config())
    first.until_streaming()
    database.run("INSERT INTO a VALUES (2)")
    first.until_records(2)
    first.task.stop()
    database.run("INSERT INTO a VALUES (3)")
    second = runtime(database.config(), offset=first.offset)
    assert [r.key["id"] for r in second.until_records(1)] == [3]


@pytest.mark.parametrize("store", [True, False], ids=["offset stored", "no offset stored"])
def test_an_interrupted_snapshot_begins_again_and_what_was_deleted_meanwhile_is_said(
    database: Any, runtime: Start, store: bool
) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a SELECT generate_series(1, 1000)")
    first = runtime(database.config(), store=store)
    first.poll()
    assert 0 < len(first.records) < 1000
    assert first.offered["snapshot_completed"] is False
    first.task.stop()
    database.run("DELETE FROM a WHERE id <= 500", "INSERT INTO a VALUES (2000)")
    second = runtime(database.config(), offset=first.offset)
    second.until_records(501)
    assert {r.value["op"] for r in second.records} == {"r"}
    second.until_streaming()
    database.run("INSERT INTO a VALUES (3000)")
    second.until(lambda: second.records[-1].key == {"id": 3000})
    assert sorted(rebuilt(first.records + second.records, "t.public.a")) == [*range(501, 1001), 2000, 3000]
    slots = database.rows("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")
    assert slots == [(database.name,)], "temporary slots are gone"


def test_a_snapshot_whose_end_was_not_stored_loses_no_delete(database: Any, runtime: Start) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a SELECT generate_series(1, 10)")
    first = runtime(database.config(), store=False)
    first.until_records(10)
    first.until_streaming()
    database.run("DELETE FROM a WHERE id <= 5")
    first.task.stop()
    second = runtime(database.config())
    second.until_streaming()
    database.run("INSERT INTO a VALUES (11)")
    second.until(lambda: second.records[-1].key == {"id": 11})
    assert sorted(rebuilt(first.records + second.records, "t.public.a")) == list(range(6, 12))


def test_begin_and_end_of_a_snapshot_are_not_left_for_the_next_flush(database: Any, runtime: Start) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    running = runtime(database.config())
    running.until_streaming()
    assert [offset["snapshot_completed"] for offset in running.urgent] == [False, True]


def test_a_snapshot_instead_of_a_stored_offset_is_announced_first(database: Any, runtime: Start) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    first = runtime(database.config())
    first.until_streaming()
    first.task.stop()
    database.run(f"SELECT pg_drop_replication_slot('{database.name}')")
    config = database.config(snapshot_mode="when_needed")
    second = runtime(config, offset=first.offset, store=False)
    for _ in range(5):
        second.poll()
    assert second.records == []
    assert second.offered["snapshot_completed"] is False
    slots = database.rows("SELECT FROM pg_replication_slots WHERE database = current_database()")
    assert slots == [], "nothing is made before the announcement is stored"
    second.task.stop()
    third = runtime(config, offset=second.offered)
    assert [r.value["op"] for r in third.until_records(1)] == ["r"]
    third.until_streaming()


def test_what_was_not_stored_comes_again(database: Any, runtime: Start) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    first = runtime(database.config())
    first.until_streaming()
    stored = first.offset
    first.store = False
    database.run("INSERT INTO a VALUES (2)", "INSERT INTO a VALUES (3)")
    first.until_records(3)
    first.task.stop()
    [(confirmed,)] = database.rows(
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", database.name
    )
    assert parse_lsn(confirmed) <= stored["lsn"]
    second = runtime(database.config(), offset=stored)
    assert [r.key["id"] for r in second.until_records(2)] == [2, 3]


def test_an_idle_table_in_a_busy_database_lets_the_slot_advance(database: Any, runtime: Start) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE busy (id serial, x text)")
    running = runtime(database.config(table_include_list="public.a", publication_autocreate_mode="filtered"))
    running.until_streaming()
    before = running.offset["lsn"]
    database.run("INSERT INTO busy (x) SELECT repeat('x', 1000) FROM generate_series(1, 2000)")
    [(wal,)] = database.rows("SELECT pg_current_wal_insert_lsn()::text")

    def advanced() -> bool:
        [(confirmed,)] = database.rows(
            "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", database.name
        )
        return parse_lsn(confirmed) >= parse_lsn(wal)

    running.until(advanced)
    assert running.offset["lsn"] > before
    assert running.records == []


def test_a_transaction_larger_than_a_batch(database: Any, runtime: Start) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)")
    running = runtime(database.config(max_batch_size="100"))
    running.until_streaming()
    database.run("INSERT INTO a SELECT generate_series(1, 5000)")
    running.until_records(1)
    before = running.offset["lsn"]
    while len(running.records) < 4000:
        running.poll()
        assert running.offset["lsn"] == before, "no offset inside a transaction"
    running.until_records(5000)
    running.until(lambda: running.offset["lsn"] > before)


def test_memory_is_bounded_while_nobody_polls(database: Any, runtime: Start) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY, big text)")
    running = runtime(database.config(max_queue_size_in_bytes="1000000"))
    running.until_streaming()
    database.run(
        "ALTER TABLE a ALTER big SET STORAGE EXTERNAL",
        "INSERT INTO a SELECT i, repeat('x', 10000) FROM generate_series(1, 2000) i",
    )
    transport = running.task.phase.transport
    deadline = time.monotonic() + 20
    while transport.queued_bytes < 1_000_000:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.3)  # more would come now if it could
    assert transport.queued_bytes < 3_000_000
    running.until_records(2000)


def test_columns_come_and_go(database: Any, runtime: Start) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY, gone text)")
    running = runtime(database.config())
    running.until_streaming()
    database.run(
        "INSERT INTO a VALUES (1, 'x')",
        "ALTER TABLE a ADD COLUMN more int NOT NULL DEFAULT 7",
        "INSERT INTO a VALUES (2, 'y', 8)",
        "ALTER TABLE a DROP COLUMN gone",
        "INSERT INTO a VALUES (3, 9)",
        "ALTER TABLE a ALTER COLUMN more TYPE text",
        "INSERT INTO a VALUES (4, 'z')",
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "ALTER TABLE a ADD COLUMN m mood",
        "INSERT INTO a VALUES (5, 'z', 'ok')",
    )
    assert [r.value["after"] for r in running.until_records(5)] == [
        {"id": 1, "gone": "x"},
        {"id": 2, "gone": "y", "more": 8},
        {"id": 3, "more": 9},
        {"id": 4, "more": "z"},
        {"id": 5, "more": "z", "m": "ok"},
    ]


def test_a_table_made_later_is_captured(database: Any, runtime: Start) -> None:
    running = runtime(database.config())
    running.until_streaming()
    database.run("CREATE TABLE late (a int, b int, PRIMARY KEY (b, a))", "INSERT INTO late VALUES (1, 2)")
    [record] = running.until_records(1)
    assert (record.topic, record.key) == ("t.public.late", {"b": 2, "a": 1})


def test_partitions_under_their_own_name_or_their_roots(database: Any, runtime: Start) -> None:
    database.run(
        "CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)",
        "INSERT INTO p VALUES (1), (11)",
    )
    leaves = runtime(database.config())
    leaves.until_records(2)
    leaves.until_streaming()
    database.run("INSERT INTO p VALUES (2)")
    assert [r.topic for r in leaves.until_records(3)] == ["t.public.p1", "t.public.p2", "t.public.p1"]
    leaves.task.stop()
    root = runtime(
        database.config(publish_via_partition_root="true", publication_name="root", slot_name=f"{database.name}_root")
    )
    root.until_records(3)
    root.until_streaming()
    database.run("INSERT INTO p VALUES (12)")
    assert {r.topic for r in root.until_records(4)} == {"t.public.p"}


def test_filters_of_the_publication_hold_for_the_snapshot_too(database: Any, runtime: Start) -> None:
    [(version,)] = database.rows("SELECT current_setting('server_version_num')::int")
    if version < 150000:
        pytest.skip("row filters and column lists came with PostgreSQL 15")
    database.run(
        "CREATE TABLE a (id int PRIMARY KEY, secret text, n int)",
        "INSERT INTO a VALUES (1, 's', 5), (2, 's', 50)",
        "CREATE PUBLICATION narrow FOR TABLE a (id, n) WHERE (id > 1)",
    )
    running = runtime(database.config(publication_name="narrow"))
    running.until_records(1)
    running.until_streaming()
    database.run("INSERT INTO a VALUES (3, 's', 6), (0, 's', 6)")
    assert [r.value["after"] for r in running.until_records(2)] == [{"id": 2, "n": 50}, {"id": 3, "n": 6}]


@pytest.mark.parametrize("mode", ["no_data", "never", "schema_only"])
def test_streaming_without_a_snapshot(database: Any, runtime: Start, mode: str) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    running = runtime(database.config(snapshot_mode=mode))
    running.until_streaming()
    database.run("INSERT INTO a VALUES (2)")
    assert [r.value["op"] for r in running.until_records(1)] == ["c"]


def test_initial_only_ends(database: Any, runtime: Start) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    running = runtime(database.config(snapshot_mode="initial_only"))
    running.until_records(1)
    with pytest.raises(EndOfInput):
        running.poll()
    deadline = time.monotonic() + 20
    while database.rows("SELECT FROM pg_replication_slots WHERE database = current_database()"):
        assert time.monotonic() < deadline, "the temporary slot stays"
        time.sleep(0.01)
    again = runtime(database.config(snapshot_mode="initial_only"), offset=running.offset)
    with pytest.raises(EndOfInput):
        again.poll()


def test_a_slot_that_is_gone_stops_the_connector_unless_it_may_start_over(database: Any, runtime: Start) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    first = runtime(database.config())
    first.until_records(1)
    first.until_streaming()
    first.task.stop()
    database.run(f"SELECT pg_drop_replication_slot('{database.name}')")
    with pytest.raises(Fatal, match="is gone"):
        runtime(database.config(), offset=first.offset)
    second = runtime(database.config(snapshot_mode="when_needed"), offset=first.offset)
    assert [r.value["op"] for r in second.until_records(1)] == ["r"]


def test_a_slot_that_somebody_advanced_is_a_gap(database: Any, runtime: Start) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)")
    first = runtime(database.config())
    first.until_streaming()
    first.task.stop()
    database.run(
        "INSERT INTO a VALUES (1)",
        f"SELECT pg_replication_slot_advance('{database.name}', pg_current_wal_lsn())",
        "INSERT INTO a VALUES (2)",
    )
    with pytest.raises(Fatal, match="ahead of the stored offset"):
        runtime(database.config(), offset=first.offset)
    trusting = runtime(database.config(offset_mismatch_strategy="trust_slot"), offset=first.offset)
    assert [r.key["id"] for r in trusting.until_records(1)] == [2]


def test_debeziums_offset_is_taken_over(database: Any, runtime: Start) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)")
    first = runtime(database.config())
    first.until_streaming()
    database.run("INSERT INTO a VALUES (1)")
    [record] = first.until_records(1)
    first.task.stop()
    lsn = record.value["source"]["lsn"]
    debezium = {"lsn_proc": lsn, "messageType": "INSERT", "lsn_commit": 0, "lsn": lsn, "txId": 1, "ts_usec": 1}
    database.run("INSERT INTO a VALUES (2)")
    second = runtime(database.config(offset_mismatch_strategy="no_validation"), offset=debezium)
    assert second.until_records(1)[-1].key["id"] == 2


def test_a_slot_in_use_is_waited_for(database: Any, runtime: Start) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)")
    config = database.config(slot_max_retries="2", slot_retry_delay_ms="100")
    first = runtime(config)
    first.until_streaming()
    second = runtime(config, offset=first.offset)
    with pytest.raises(RetryAfter, match="is active for PID") as caught:
        second.poll()
    assert caught.value.seconds == 0.1
    [(pid,)] = database.rows("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", database.name)
    assert f"in use by process {pid}" in str(caught.value)
    time.sleep(0.3)
    with pytest.raises(Fatal, match="stop the other connector"):
        second.poll()
    first.task.stop()
    third = runtime(config, offset=first.offset)
    third.until_streaming()


def test_a_terminated_backend_means_not_connected(database: Any, runtime: Start) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)")
    first = runtime(database.config())
    first.until_streaming()
    database.run("INSERT INTO a VALUES (1)")
    first.until_records(1)
    database.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
    with pytest.raises(NotConnected):
        first.until(lambda: False)
    database.run("INSERT INTO a VALUES (2)")
    second = runtime(database.config(), offset=first.offset)
    assert [r.key["id"] for r in second.until_records(1)] == [2]


def test_a_terminated_snapshot_means_not_connected(database: Any, runtime: Start) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a SELECT generate_series(1, 1000)")
    running = runtime(database.config())
    running.poll()
    database.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with pytest.raises(NotConnected):
        running.until(lambda: False)


def test_heartbeats_carry_the_offset(database: Any, runtime: Start) -> None:
    running = runtime(
        database.config(heartbeat_interval_ms="1", heartbeat_action_query="CREATE TABLE IF NOT EXISTS h ()")
    )
    records = running.until_records(2)
    assert records[0].topic == "__debezium-heartbeat.t"
    assert records[0].key == {"serverName": "t"}
    assert database.rows("SELECT FROM pg_class WHERE relname = 'h'") == [()]


def test_a_statement_of_the_heartbeat_that_fails_is_shown_and_stops_nothing(database: Any, runtime: Start) -> None:
    running = runtime(database.config(heartbeat_interval_ms="1", heartbeat_action_query="INSERT INTO beats VALUES (1)"))
    running.until(lambda: "beats" in str(running.facts.get("heartbeat-action")))
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    running.until(lambda: any(record.topic == "t.public.a" for record in running.records))
    database.run("CREATE TABLE beats (n int)", "ALTER TABLE beats REPLICA IDENTITY FULL")
    running.until(lambda: running.facts["heartbeat-action"] is None)
    running.until(lambda: any(record.topic == "t.public.beats" for record in running.records))


def test_a_key_that_changed_while_nobody_read(database: Any, runtime: Start) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY, uid int)", "INSERT INTO a VALUES (1, 10), (2, NULL)")
    first = runtime(database.config())
    first.until_streaming()
    first.task.stop()
    database.run(
        "DELETE FROM a WHERE id = 2",
        "ALTER TABLE a DROP CONSTRAINT a_pkey, ADD PRIMARY KEY (uid)",
        "DELETE FROM a",
    )
    second = runtime(database.config(), offset=first.offset)
    records = second.until_records(4)
    assert [record.key for record in records] == [{"id": 2}, {"id": 2}, {"uid": 10}, {"uid": 10}]


def test_not_null_and_defaults_that_change_while_streaming(database: Any, runtime: Start) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY, n int NOT NULL DEFAULT 1)")
    running = runtime(database.config(), schemas=True)
    running.until_streaming()
    database.run(
        "INSERT INTO a VALUES (1)",
        "ALTER TABLE a ALTER n DROP NOT NULL",
        "INSERT INTO a VALUES (2, NULL)",
        "ALTER TABLE a ALTER n SET DEFAULT 7",
        "INSERT INTO a VALUES (3)",
    )
    fields = []
    for record in running.until_records(3):
        [row] = [field for field in record.value["schema"]["fields"] if field["field"] == "after"]
        fields.append((record.value["payload"]["after"]["n"], row["fields"][1]["optional"]))
    assert fields[1:] == [(None, True), (7, True)]


def test_values_there_is_no_json_for_make_their_column_optional(database: Any, runtime: Start) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY, n numeric NOT NULL, m numeric(5,2) NOT NULL)")
    database.run("INSERT INTO a VALUES (1, 1, 1), (2, 'NaN', 2), (3, 3, 'NaN'), (4, 4, 4)")
    running = runtime(database.config(), schemas=True)
    running.until_streaming()
    database.run("INSERT INTO a VALUES (5, 5, 5), (6, 'NaN', 'NaN')", "UPDATE a SET n = 7 WHERE id = 6")
    for record in running.until_records(7):
        [row] = [field for field in record.value["schema"]["fields"] if field["field"] == "after"]
        after = record.value["payload"]["after"]
        assert all(field["optional"] or after[field["field"]] is not None for field in row["fields"])
        if record.key["payload"]["id"] < 6:
            assert (after["n"] is None, after["m"] is None) == (after["id"] == 2, after["id"] == 3)


def test_a_large_value_that_was_not_sent_and_has_no_stand_in_is_null(database: Any, runtime: Start) -> None:
    database.run(
        "CREATE TABLE a (id int PRIMARY KEY, n int, l inet[] NOT NULL)",
        "ALTER TABLE a ALTER l SET STORAGE EXTERNAL",
        "INSERT INTO a SELECT 1, 1, array_agg('10.0.0.1'::inet) FROM generate_series(1, 2000)",
    )
    running = runtime(database.config(), schemas=True)
    running.until_streaming()
    database.run("UPDATE a SET n = 2")
    _, update = running.until_records(2)
    [row] = [field for field in update.value["schema"]["fields"] if field["field"] == "after"]
    assert update.value["payload"]["after"] == {"id": 1, "n": 2, "l": None}
    assert row["fields"][2]["optional"]


def test_a_row_of_the_snapshot_that_does_not_convert_is_not_quoted(
    database: Any, runtime: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY, n interval)", "INSERT INTO a VALUES (1, '77 days')")
    monkeypatch.setitem(SESSION, "IntervalStyle", "postgres")
    running = runtime(database.config())
    with pytest.raises(Fatal, match=r"public\.a\.n holds a value of 7 bytes") as caught:
        running.until_records(1)
    assert "77 days" not in "".join(traceback.format_exception(caught.value))


def test_labels_that_are_added_show_in_the_schema(database: Any, runtime: Start) -> None:
    database.run("CREATE TYPE mood AS ENUM ('sad')", "CREATE TABLE a (id int PRIMARY KEY, m mood, l mood[])")
    running = runtime(database.config(), schemas=True)
    running.until_streaming()
    database.run(
        "ALTER TYPE mood ADD VALUE 'ok'", "CREATE DOMAIN feeling AS mood", "ALTER TABLE a ADD f feeling",
        "INSERT INTO a VALUES (1, 'ok', '{ok}', 'ok')",
    )  # fmt: skip
    [record] = running.until_records(1)
    [row] = [field for field in record.value["schema"]["fields"] if field["field"] == "after"]
    _, mood, moods, feeling = row["fields"]
    allowed = [each["parameters"]["allowed"] for each in (mood, moods["items"], feeling)]
    assert allowed == ["sad,ok"] * 3


def test_context_headers_are_added_on_request(database: Any, runtime: Start) -> None:
    running = runtime(database.config(extended_headers_enabled="true"))
    running.until_streaming()
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    [record] = running.until_records(1)
    assert record.headers == (
        ("__debezium.context.connectorLogicalName", b"t"),
        ("__debezium.context.taskId", b"0"),
        ("__debezium.context.connectorName", b"postgresql"),
    )


def test_the_slot_can_be_dropped_on_stop(database: Any, runtime: Start) -> None:
    running = runtime(database.config(slot_drop_on_stop="true"))
    running.until_streaming()
    running.task.stop()
    assert database.rows("SELECT FROM pg_replication_slots WHERE database = current_database()") == []


def test_masks_are_not_ignored(database: Any, runtime: Start) -> None:
    with pytest.raises(InvalidConfig, match="unmasked"):
        runtime(database.config() | {"column.mask.with.3.chars": "public.a.b"})


def test_an_unreadable_offset_is_refused(database: Any, runtime: Start) -> None:
    with pytest.raises(Fatal, match="delete the connector's offsets"):
        runtime(database.config(), offset={"pos": 3})


def test_the_plugin_answers_to_debeziums_name() -> None:
    assert "io.debezium.connector.postgresql.PostgresConnector" in postgres_source.aliases
    assert postgres_source.check is not None
