"""The viewpoint of a snapshot: what changed before it was taken is seen, what changes later has to wait"""

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tidemill.connect.plugins.postgres.catalog import Publication, PublishedTable
from tidemill.connect.plugins.postgres.opening import Opening
from tidemill.connect.plugins.postgres.table import CatalogTable
from tidemill.connect.plugins.postgres.viewpoint import View, difference

pytestmark = [pytest.mark.integration, pytest.mark.postgres]

Open = Callable[..., Opening]


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
    assert pid in (said[0] or "")
    assert said[-1] is None
    assert looked[0].changed is None


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
