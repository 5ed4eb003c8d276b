"""The initial load: pages, markers, exactness"""

import json
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest

from tidemill.connect.plugins.postgres import catalog
from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.connection import connect
from tidemill.connect.plugins.postgres.envelope import Format
from tidemill.connect.plugins.postgres.selection import Selection
from tidemill.connect.plugins.postgres.snapshot import ExportedSnapshot, Snapshot, SnapshotTable, create_slot
from tidemill.connect.plugins.postgres.table import Shaper
from tidemill.connect.plugins.postgres.types.conversion import Modes

pytestmark = [pytest.mark.integration, pytest.mark.postgres]

FORM = Format(key_schemas=False, value_schemas=False, version="1", name="t", database="db")


@pytest.fixture
def snapshot(database: Any) -> Any:
    """Take snapshots through temporary slots."""
    config = PostgresConfig.model_validate(database.config())
    opened: list[psycopg.Connection[Any]] = []

    def take(fetch_rows: int = 1000, meanwhile: Callable[[], None] = lambda: None) -> Snapshot:
        connection = connect(config)
        opened.append(connection)
        tables = catalog.read_tables(connection, Selection(), via_root=False)
        types = catalog.read_types(connection)
        with closing(connect(config, replication="database")) as exporter:
            exported = create_slot(exporter, f"{database.name}_snapshot", temporary=True)
            meanwhile()
            return Snapshot(
                connection,
                exported=exported,
                tables=[SnapshotTable(table=table) for table in tables],
                shaper=Shaper(prefix="t", selection=Selection(), modes=Modes(), types=types),
                form=FORM,
                partition={"server": "t"},
                fetch_rows=fetch_rows,
            )

    yield take
    for connection in opened:
        connection.close()


def read(snapshot: Snapshot) -> list[tuple[str, str, Any]]:
    out = []
    while not snapshot.exhausted:
        batch = snapshot.read(5)
        if batch is None:
            break
        for value in batch.values:
            record = json.loads(value or b"")
            assert record["op"] == "r"
            out.append((batch.topic, record["source"]["snapshot"], record["after"]))
    snapshot.finish()
    return out


@pytest.mark.parametrize("fetch_rows", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("rows", "markers"),
    [
        ((0, 0), []),
        ((1, 0), ["last"]),
        ((0, 1), ["last"]),
        ((1, 1), ["first", "last"]),
        ((2, 1), ["first", "last_in_data_collection", "last"]),
        ((1, 3), ["first", "first_in_data_collection", "true", "last"]),
        ((3, 0), ["first", "true", "last"]),
    ],
)
def test_markers(database: Any, snapshot: Any, rows: tuple[int, int], markers: list[str], fetch_rows: int) -> None:
    database.run(
        "CREATE TABLE a (id int PRIMARY KEY)",
        "CREATE TABLE b (id int PRIMARY KEY)",
        "CREATE TABLE c (id int PRIMARY KEY)",
        f"INSERT INTO a SELECT generate_series(1, {rows[0]})",
        f"INSERT INTO b SELECT generate_series(1, {rows[1]})",
    )
    assert [marker for _, marker, _ in read(snapshot(fetch_rows))] == markers


def test_it_shows_the_moment_of_the_slot(database: Any, snapshot: Any) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1), (2)")
    taken = snapshot(meanwhile=lambda: database.run("DELETE FROM a WHERE id = 1", "INSERT INTO a VALUES (3)"))
    database.run("INSERT INTO a VALUES (4)")
    assert [row["id"] for _, _, row in read(taken)] == [1, 2]
    assert taken.rows == 2
    assert (taken.tables_done, taken.tables_total) == (1, 1)


def test_pages_of_many_sizes_hold_every_row_once(database: Any, snapshot: Any) -> None:
    database.run(
        "CREATE TABLE a (id int PRIMARY KEY, x text)",
        "INSERT INTO a SELECT i, repeat('x', i % 500) FROM generate_series(1, 3000) i",
    )
    for fetch_rows in (7, 1000, 100_000):
        assert sorted(row["id"] for _, _, row in read(snapshot(fetch_rows))) == list(range(1, 3001))


def test_inherited_rows_belong_to_their_own_table(database: Any, snapshot: Any) -> None:
    database.run(
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE child (more int) INHERITS (parent)",
        "INSERT INTO parent VALUES (1)",
        "INSERT INTO child VALUES (2, 3)",
    )
    assert [(topic, row) for topic, _, row in read(snapshot())] == [
        ("t.public.child", {"id": 2, "more": 3}),
        ("t.public.parent", {"id": 1}),
    ]


def test_the_temporary_slot_is_gone_afterwards(database: Any, snapshot: Any) -> None:
    read(snapshot())
    deadline = time.monotonic() + 20
    while database.rows("SELECT FROM pg_replication_slots WHERE database = current_database()"):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_making_a_slot_can_be_given_up(database: Any) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)")
    config = PostgresConfig.model_validate(database.config())

    class GivenUp(Exception):
        pass

    def waiting() -> None:
        raise GivenUp

    with psycopg.connect(database.dsn) as writer:
        writer.execute("INSERT INTO a VALUES (1)")
        with closing(connect(config, replication="database")) as exporter, pytest.raises(GivenUp):
            create_slot(exporter, database.name, waiting=waiting)
    with closing(connect(config, replication="database")) as exporter:
        made = create_slot(exporter, database.name, export=False)
    assert made.name == ""
    assert isinstance(made, ExportedSnapshot) and made.lsn > 0


def test_a_slot_that_standbys_keep(database: Any) -> None:
    [(version,)] = database.rows("SELECT current_setting('server_version_num')::int")
    config = PostgresConfig.model_validate(database.config())
    with closing(connect(config, replication="database")) as exporter:
        create_slot(exporter, database.name, failover=True, export=False)
    [(failover,)] = database.rows(
        "SELECT to_jsonb(s) ->> 'failover' FROM pg_replication_slots s WHERE slot_name = %s", database.name
    )
    assert failover == ("true" if version >= 170000 else None), "older servers do not know it"
