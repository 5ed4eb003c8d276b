"""The viewpoint of a snapshot: what changed before it was taken is seen, what changes later has to wait"""

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.connect.plugins.postgres.conftest import Database
from tidemill.connect.api import Fatal
from tidemill.connect.plugins.postgres.catalog import Publication, PublishedTable
from tidemill.connect.plugins.postgres.opening import Opening
from tidemill.connect.plugins.postgres.table import CatalogTable
from tidemill.connect.plugins.postgres.viewpoint import View, difference
from tidemill.testing.postgres_server import PostgresServer

pytestmark = [pytest.mark.integration, pytest.mark.postgres]

Open = Callable[..., Opening]

TABLES = 1500
"""More than a server with as little room for locks as can be set holds at once."""


def until(condition: Callable[[], Any]) -> None:
    """Wait until something holds."""
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE a ADD COLUMN more int",
        "ALTER TABLE a DROP COLUMN n",
        "ALTER TABLE a ALTER n TYPE bigint",
        "ALTER TABLE a ALTER n TYPE text USING 'abc'",
        "ALTER TABLE a ALTER n SET NOT NULL",
        "ALTER TABLE a ALTER n SET DEFAULT 7",
        "ALTER TABLE a DROP CONSTRAINT a_pkey",
        "ALTER TABLE a RENAME TO b",
        "DROP TABLE a",
        "VACUUM FULL a",
        "ALTER TABLE p DETACH PARTITION p1",
    ],
)
def test_what_changed_since_the_snapshot_is_seen(database: Any, opening: Open, change: str) -> None:
    database.run(
        "CREATE TABLE a (id int PRIMARY KEY, n int)",
        "INSERT INTO a VALUES (1, 2)",
        "CREATE TABLE p (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
    )
    opened = opening(database.config(publish_via_partition_root="true"))
    opened.enter(make_slot=False)
    database.run(change)
    assert opened.look().changed is not None
    opened.enter(make_slot=False)
    assert opened.look().changed is None


def test_a_table_made_since_then_comes_in_the_stream(database: Any, opening: Open) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)")
    opened = opening(database.config())
    opened.enter(make_slot=False)
    database.run("CREATE TABLE b (id int PRIMARY KEY)")
    assert opened.look().changed is None


def test_a_table_made_since_then_that_is_not_published_is_read(database: Any, opening: Open) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)")
    opened = opening(database.config(publication_autocreate_mode="filtered"))
    opened.enter(make_slot=False)
    database.run("CREATE TABLE b (id int PRIMARY KEY)")
    assert opened.look().changed == "table public.b"
    opened.enter(make_slot=False)
    assert opened.look().changed is None
    assert opened.snapshot().tables_total == 2


def test_a_table_cannot_change_until_it_is_read(database: Any, opening: Open) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY, n int)", "INSERT INTO a VALUES (1, 2)")
    opened = opening(database.config())
    opened.enter(make_slot=False)
    assert opened.look().changed is None
    database.run("INSERT INTO a VALUES (2, 3)", "SET lock_timeout = '50ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        database.run("ALTER TABLE a ALTER n TYPE text")
    taken = opened.snapshot()
    assert taken.read(5) is not None
    taken.finish()
    database.run("ALTER TABLE a ALTER n TYPE text")


def test_who_changes_a_table_is_waited_for_and_named(database: Any, opening: Open) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE z (id int PRIMARY KEY)")
    said: list[str | None] = []
    waiting = threading.Event()

    class Problems(dict[str, str | None]):
        def __setitem__(self, about: str, message: str | None) -> None:
            said.append(message)
            if message:
                waiting.set()

    opened = opening(database.config(), Problems())
    opened.enter(make_slot=False)
    said.clear()
    with psycopg.connect(database.dsn) as changing:
        changing.execute("ALTER TABLE z ADD COLUMN n int")
        looked: list[Any] = []
        thread = threading.Thread(target=lambda: looked.append(opened.look()))
        thread.start()
        assert waiting.wait(20), "nothing is said while it waits"
        pid = str(changing.info.backend_pid)
        changing.rollback()
        thread.join()
    assert pid in (said[0] or "") and "public.z" in (said[0] or "")
    assert said[-1] is None
    assert looked[0].changed is None


def test_tables_that_are_not_read_are_not_locked(database: Any, opening: Open) -> None:
    """Nor is it of interest whether they change meanwhile: the stream has all there is of them."""
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY, n int DEFAULT 7)")
    opened = opening(database.config(snapshot_include_collection_list="public.a"))
    opened.enter(make_slot=False)
    database.run("ALTER TABLE b ADD COLUMN m int", "VACUUM FULL b")
    assert opened.look().changed is None
    locked = database.rows(
        "SELECT relation::regclass::text FROM pg_locks WHERE relation IN ('a'::regclass, 'b'::regclass)"
    )
    assert locked == [("a",)]
    assert opened.snapshot().tables_total == 1
    database.run("SET lock_timeout = '50ms'", "ALTER TABLE b DROP COLUMN m")


def test_who_waits_to_change_a_table_that_is_locked_already_is_let_through(database: Any, opening: Open) -> None:
    """To look at the catalog waits for them, who wait for our locks: the server cannot see that nobody goes on."""
    database.run("CREATE TABLE a (id int PRIMARY KEY, n int DEFAULT 5)", "CREATE TABLE z (id int PRIMARY KEY)")
    opened = opening(database.config())
    opened.enter(make_slot=False)
    looked: list[Any] = []
    looking = threading.Thread(target=lambda: looked.append(opened.look()), daemon=True)
    changing = threading.Thread(
        target=lambda: (
            psycopg.connect(database.dsn, autocommit=True).execute("ALTER TABLE a ADD m int").connection.close()
        ),
        daemon=True,
    )
    waiting = "SELECT FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
    with psycopg.connect(database.dsn) as first:
        first.execute("ALTER TABLE z ADD COLUMN n int")
        looking.start()
        until(lambda: database.rows(waiting, "z"))
        changing.start()  # behind the lock on a, which the snapshot has
        until(lambda: database.rows(waiting, "a"))
    looking.join(20)
    assert looked and looked[0].changed is not None
    opened.enter(make_slot=False)
    changing.join(20)
    assert opened.look().changed is None
    assert database.rows("SELECT m FROM a") == []


def test_no_room_for_locks_says_what_to_do(opening: Open) -> None:
    settings = {"max_locks_per_transaction": "10", "max_connections": "10", "max_wal_senders": "3"}
    with PostgresServer(settings=settings) as server:
        database = Database(server, "postgres")
        with database.connection as connection:
            connection.execute("CREATE TABLE few (id int PRIMARY KEY)")
            for number in range(TABLES):
                connection.execute(f"CREATE TABLE t{number} (id int)".encode())
            opened = opening(database.config(snapshot_include_collection_list="public.few"))
            opened.enter(make_slot=False)
            assert opened.look().changed is None
            opened.close()
            opened = opening(database.config())
            opened.enter(make_slot=False)
            with pytest.raises(
                Fatal, match=rf"{TABLES + 1} tables .*max_locks_per_transaction \(10\).*snapshot.include"
            ):
                opened.look()
            opened.close()


def test_rows_hidden_by_row_level_security_are_an_error(database: Any, opening: Open) -> None:
    role = f"{database.name}_weak"
    database.run(
        f"CREATE ROLE \"{role}\" LOGIN REPLICATION PASSWORD 'x'",
        "CREATE TABLE a (id int PRIMARY KEY)",
        "INSERT INTO a VALUES (1)",
        "ALTER TABLE a ENABLE ROW LEVEL SECURITY",
        f'GRANT SELECT ON a TO "{role}"',
        "CREATE PUBLICATION dbz_publication FOR ALL TABLES",
    )
    try:
        opened = opening(database.config(database_user=role, database_password="x"))
        opened.enter(make_slot=False)
        assert opened.look().changed is None
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            opened.snapshot().read(5)
        opened.close()
    finally:
        database.run(f'REVOKE ALL ON a FROM "{role}"', f'DROP ROLE "{role}"')


def table(oid: int = 1, name: str = "a") -> CatalogTable:
    return CatalogTable(oid=oid, schema="public", table=name, replica_identity="d", columns=())


def publication(*names: str, columns: tuple[str, ...] | None = None) -> Publication:
    tables = tuple(PublishedTable(schema="public", table=name, columns=columns) for name in names)
    return Publication(name="p", all_tables=False, via_root=False, tables=tables)


@pytest.mark.parametrize(
    ("now", "published", "changed"),
    [
        (View(tables=(table(),), storage=((1, 1, 10),)), publication("a"), None),
        (View(tables=(table(),), storage=((1, 1, 11),)), publication("a"), "the rows of table 1"),
        (View(tables=(table(),), storage=((1, 1, 10), (1, 3, 30))), publication("a"), "the rows of table 1"),
        (View(tables=(), storage=()), publication("a"), "table public.a"),
        (View(tables=(table(name="b"),), storage=((1, 1, 10),)), publication("a"), "table public.a"),
        (View(tables=(table(),), storage=((1, 1, 10),)), publication("a", columns=("x",)), "table public.a"),
        (View(tables=(table(),), storage=((1, 1, 10),)), None, "table public.a"),
        (View(tables=(table(), table(2, "b")), storage=((1, 1, 10), (2, 2, 20))), publication("a"), "table public.b"),
        (View(tables=(table(), table(2, "b")), storage=((1, 1, 10), (2, 2, 20))), publication("a", "b"), None),
    ],
)
def test_differences(now: View, published: Publication | None, changed: str | None) -> None:
    then = View(tables=(table(),), storage=((1, 1, 10),))
    assert difference(then, now, publication("a"), published) == changed
