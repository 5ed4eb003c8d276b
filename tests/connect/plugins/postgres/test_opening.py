"""What a life asks of the server before rows flow"""

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.connect.plugins.postgres.conftest import Database
from tidemill.connect.api import Fatal, NotConnected
from tidemill.connect.plugins.postgres import opening as module
from tidemill.connect.plugins.postgres.assignment import WAITING
from tidemill.connect.plugins.postgres.life import Looked
from tidemill.connect.plugins.postgres.opening import Opening
from tidemill.connect.plugins.postgres.progress import Lineage, StoredPosition
from tidemill.testing.postgres_server import PostgresServer

pytestmark = [pytest.mark.integration, pytest.mark.postgres]

Open = Callable[..., Opening]


def settle(opened: Opening) -> None:
    """Take snapshots until the tables look in one as they do now."""
    opened.enter(make_slot=True)
    while opened.look() != Looked(changed=None):
        opened.enter(make_slot=False)


def test_it_finds_what_there_is(database: Any, opening: Open) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)")
    opened = opening(database.config())
    found = opened.find(None)
    assert (found.slot, found.stored, found.history) == (None, None, {})
    made = opened.make_slot()
    slot = opened.find(None).slot
    assert slot is not None and slot.confirmed_lsn == made.lsn
    opened.drop_slot()
    assert opened.find(None).slot is None


def test_an_offset_of_a_former_timeline_brings_the_history(database: Any, opening: Open) -> None:
    """The server has no former timeline, and says so; that it is asked is what is seen here."""
    opened = opening(database.config())
    same = StoredPosition(lsn=5, snapshot_completed=True, lineage=opened.server.lineage)
    assert opened.find(same).history == {}
    other = StoredPosition(lsn=5, snapshot_completed=True, lineage=Lineage(timeline=99))
    with pytest.raises(psycopg.Error):
        opened.find(other)


def test_a_table_made_by_a_transaction_that_was_running_is_read(database: Any, opening: Open) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)")
    running = psycopg.connect(database.dsn)
    running.execute("CREATE TABLE b (id int PRIMARY KEY)")
    running.execute("INSERT INTO b VALUES (7)")
    opened = opening(database.config())  # sees no table b
    running.commit()
    running.close()
    settle(opened)
    taken = opened.snapshot()
    assert taken.tables_total == 2
    batch = taken.read(5)
    assert batch is not None and batch.topic == "t.public.b"


@pytest.mark.parametrize(
    "statement", ["ALTER TABLE a ADD COLUMN more int", "ALTER TABLE a ALTER n TYPE text USING 'abc'"]
)
def test_columns_are_those_of_the_snapshot(database: Any, opening: Open, statement: str) -> None:
    """What the catalog said before the slot was made may be long out of date: making a slot waits for transactions."""
    database.run("CREATE TABLE a (id int PRIMARY KEY, n int)", "INSERT INTO a VALUES (1, 2)")
    opened = opening(database.config())
    database.run(statement)
    settle(opened)
    batch = opened.snapshot().read(5)
    assert batch is not None
    [value] = batch.values
    assert value is not None and (b'"n":"abc"' in value or b'"more":null' in value)


def test_a_writer_that_does_not_end_is_named(database: Any, opening: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.2)
    database.run("CREATE TABLE a (id int PRIMARY KEY)")
    problems: dict[str, str | None] = {}
    opened = opening(database.config(), problems)
    with psycopg.connect(database.dsn) as writer:
        writer.execute("INSERT INTO a VALUES (1)")
        pid = str(writer.info.backend_pid)
        with pytest.raises(NotConnected, match=pid):
            opened.make_slot()
        assert pid in (problems[WAITING] or "")
    opened.make_slot()
    assert problems[WAITING] is None


def test_money_has_the_digits_of_the_servers_currency(opening: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("localedef") is None:
        pytest.skip("no localedef, so no locale but C")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)  # the server may be another user
        if subprocess.run(["localedef", "-i", "ja_JP", "-f", "UTF-8", f"{folder}/ja_JP.UTF-8"], check=False).returncode:
            pytest.skip("localedef does not know ja_JP")
        monkeypatch.setenv("LOCPATH", folder)
        with PostgresServer(settings={"lc_monetary": "ja_JP.UTF-8"}) as server:
            database = Database(server, "postgres")
            database.run("CREATE TABLE a (id int PRIMARY KEY, m money)", "INSERT INTO a VALUES (1, 1234)")
            opened = opening(database.config(decimal_handling_mode="string"))
            settle(opened)
            batch = opened.snapshot().read(5)
            assert batch is not None and b'"m":"1234"' in (batch.values[0] or b"")
            opened.close()
            database.connection.close()


def test_a_server_that_cannot_be_captured_is_fatal(database: Any, opening: Open) -> None:
    role = f"{database.name}_weak"
    database.run(f"CREATE ROLE \"{role}\" LOGIN PASSWORD 'x'")
    try:
        with pytest.raises(Fatal, match="may not replicate"):
            opening(database.config(database_user=role, database_password="x"))
    finally:
        database.run(f'DROP ROLE "{role}"')
