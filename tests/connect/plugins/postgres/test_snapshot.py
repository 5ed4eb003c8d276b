"""The initial load: pages, markers, exactness"""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tidemill.connect.plugins.postgres.opening import Opening
from tidemill.connect.plugins.postgres.snapshot import Snapshot

pytestmark = [pytest.mark.integration, pytest.mark.postgres]


@pytest.fixture
def snapshot(database: Any, opening: Callable[..., Opening]) -> Any:
    """Take snapshots as a life takes them, through temporary slots."""

    def take(fetch_rows: int = 1000, meanwhile: Callable[[], None] = lambda: None) -> Snapshot:
        opened = opening(database.config(snapshot_fetch_size=str(fetch_rows)))
        opened.enter(make_slot=False)
        meanwhile()
        assert opened.look().changed is None
        return opened.snapshot()

    return take


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
        "CREATE TABLE child (more int, PRIMARY KEY (id)) INHERITS (parent)",
        "INSERT INTO parent VALUES (1)",
        "INSERT INTO child VALUES (2, 3)",
    )
    assert [(topic, row) for topic, _, row in read(snapshot())] == [
        ("t.public.child", {"id": 2, "more": 3}),
        ("t.public.parent", {"id": 1}),
    ]


def test_domains_are_read_as_their_base_type(database: Any, snapshot: Any) -> None:
    database.run(
        "CREATE DOMAIN low AS int", "CREATE DOMAIN lower AS low", "CREATE TABLE a (id lower PRIMARY KEY, l low[])",
        "INSERT INTO a VALUES (1, '{2,3}')",
    )  # fmt: skip
    assert [row for _, _, row in read(snapshot())] == [{"id": 1, "l": [2, 3]}]


def test_no_time_limit_of_the_server_ends_it_while_nobody_reads(database: Any, snapshot: Any) -> None:
    limits = ["idle_in_transaction_session_timeout", "statement_timeout", "lock_timeout"]
    [(version,)] = database.rows("SELECT current_setting('server_version_num')::int")
    if version >= 170000:
        limits.append("transaction_timeout")
    database.run(*(f"ALTER DATABASE {database.name} SET {each} = '100ms'" for each in limits))
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a SELECT generate_series(1, 1000)")
    taken = snapshot(100)
    assert taken.read(5) is not None
    time.sleep(0.4)
    read(taken)
    assert taken.rows == 1000


def test_the_temporary_slot_is_gone_afterwards(database: Any, snapshot: Any) -> None:
    read(snapshot())
    deadline = time.monotonic() + 20
    while database.rows("SELECT FROM pg_replication_slots WHERE database = current_database()"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
