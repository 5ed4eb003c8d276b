"""Streaming: what is in the way is told within seconds, and that it is over too"""

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tidemill.connect.api import Fatal, NotConnected, RetryAfter
from tidemill.connect.plugins.postgres.assignment import WAITING
from tidemill.connect.plugins.postgres.streaming import Streaming
from tidemill.testing.postgres_server import PostgresServer

pytestmark = [pytest.mark.integration, pytest.mark.postgres]

Start = Callable[..., Any]

NAMED_WITHIN_S = 5.0


def config(server: PostgresServer, **settings: str) -> dict[str, str]:
    return {
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": server.password or "",
        "database.dbname": "postgres",
        "topic.prefix": "t",
    } | {name.replace("_", "."): value for name, value in settings.items()}


def test_a_database_that_goes_away_is_noticed_and_so_is_its_return(runtime: Start) -> None:
    with PostgresServer() as server:
        running = runtime(config(server))
        running.until_streaming()
        offset = running.offset
        server.kill()
        started = time.monotonic()
        with pytest.raises(NotConnected):
            running.until(lambda: False)
        assert time.monotonic() - started < NAMED_WITHIN_S
        with pytest.raises(NotConnected, match=str(server.port)):
            runtime(config(server), offset=offset)
        server.restart()
        again = runtime(config(server), offset=offset)
        again.until_streaming()


def test_a_silent_network_is_told_and_its_return_too(database: Any, runtime: Start, wire: Any) -> None:
    running = runtime(database.config(database_hostname="127.0.0.1", database_port=str(wire.port)))
    running.until_streaming()
    wire.interrupted.set()
    running.until(lambda: "no sign of life" in (running.problems.get(WAITING) or ""))
    wire.interrupted.clear()
    running.until(lambda: running.problems[WAITING] is None)
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    running.until_records(1)


def test_a_wrong_password_is_named(runtime: Start) -> None:
    with PostgresServer(password="right") as server:
        started = time.monotonic()
        with pytest.raises(Fatal, match=r"database\.password"):
            runtime(config(server, database_password="wrong"))
        assert time.monotonic() - started < NAMED_WITHIN_S
        runtime(config(server)).until_streaming()


def test_whoever_has_the_slot_is_named_until_it_is_free(database: Any, runtime: Start) -> None:
    first = runtime(database.config())
    first.until_streaming()
    second = runtime(database.config(), offset=first.offset)
    started = time.monotonic()
    with pytest.raises(RetryAfter) as caught:
        second.poll()
    assert time.monotonic() - started < NAMED_WITHIN_S
    [(pid,)] = database.rows("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", database.name)
    assert f"the replication slot {database.name} is in use by process {pid} of the server" in str(caught.value)
    first.task.stop()
    second.until_streaming()
    assert isinstance(second.task.phase, Streaming)


def test_a_log_that_the_server_cannot_decode_is_told_with_what_to_do(database: Any, runtime: Start) -> None:
    """A column that the catalog has lost while rows were written, which no client can help."""
    database.run("CREATE TABLE a (id int PRIMARY KEY, n int)")
    running = runtime(database.config())
    running.until_streaming()

    def write() -> None:
        """Write two rows, the second one when it may."""
        with psycopg.connect(database.dsn, autocommit=True) as connection:
            rows = "SELECT i, i FROM generate_series(1, 2) i, LATERAL (SELECT pg_advisory_xact_lock(i)) held"
            connection.execute(f"INSERT INTO a {rows}".encode())

    database.rows("SELECT pg_advisory_lock(2)")
    writer = threading.Thread(target=write)
    writer.start()
    while not database.rows("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
        assert writer.is_alive()
    database.run("DELETE FROM pg_attribute WHERE attrelid = 'a'::regclass AND attname = 'n'")
    database.rows("SELECT pg_advisory_unlock(2)")
    writer.join()
    with pytest.raises(Fatal) as caught:
        running.until(lambda: False)
    told = str(caught.value)
    assert "catalog is missing 1 attribute(s)" in told
    assert "SQLSTATE XX000" in told
    assert f"pg_drop_replication_slot('{database.name}')" in told
    assert "snapshot.mode=when_needed" in told
