"""The replication connection: flow, silence, shutdown"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tidemill.connect.api import Fatal, NotConnected
from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.lsn import parse_lsn
from tidemill.connect.plugins.postgres.transport import ReplicationStream
from tidemill.core.runtime.clock import SystemClock
from tidemill.testing.postgres_server import PostgresServer, PostgresServerError

pytestmark = [pytest.mark.integration, pytest.mark.postgres]

DEADLINE_S = 30.0


def slot_position(database: Any) -> int:
    [(confirmed,)] = database.rows(
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", database.name
    )
    return parse_lsn(confirmed)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def prepared(database: Any) -> Any:
    """A database with a table, a publication and a slot."""
    database.run(
        "CREATE TABLE a (id int PRIMARY KEY, big text)",
        "ALTER TABLE a ALTER big SET STORAGE EXTERNAL",
        "CREATE PUBLICATION dbz_publication FOR ALL TABLES",
        f"SELECT pg_create_logical_replication_slot('{database.name}', 'pgoutput')",
    )
    return database


@pytest.fixture
def streaming(prepared: Any) -> Iterator[Callable[..., ReplicationStream]]:
    """Open streams; all are closed at the end."""
    opened: list[ReplicationStream] = []

    def start(lsn: int | None = None, **settings: str) -> ReplicationStream:
        config = PostgresConfig.model_validate(prepared.config(**settings))
        stream = ReplicationStream(config, SystemClock(), lsn=slot_position(prepared) if lsn is None else lsn)
        opened.append(stream)
        stream.start()
        return stream

    yield start
    for stream in opened:
        stream.close()


def kinds(stream: ReplicationStream, count: int) -> list[str]:
    """Collect the plugin's messages until there are enough."""
    found: list[str] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count:
        assert time.monotonic() < deadline, found
        found += [chr(frame[25]) for frame in stream.frames(0.1) if frame[0] == 119]
    return found


def test_frames_come_in_order(prepared: Any, streaming: Any) -> None:
    stream = streaming()
    prepared.run("INSERT INTO a VALUES (1, 'x')", "DELETE FROM a")
    assert kinds(stream, 7) == list("BRICBDC")
    assert stream.received > 0


def test_waiting_ends_when_nothing_comes(streaming: Any) -> None:
    stream = streaming(status_update_interval_ms="60000")
    begin = time.monotonic()
    while stream.frames(0.2):
        begin = time.monotonic()
    assert 0.15 < time.monotonic() - begin < 2


def test_a_network_that_swallows_everything_is_given_up(prepared: Any, streaming: Any, wire: Any) -> None:
    prepared.run(f"ALTER DATABASE {prepared.name} SET wal_sender_timeout = '1500ms'")
    stream = streaming(database_hostname="127.0.0.1", database_port=str(wire.port))
    stream.frames(0.1)
    wire.interrupted.set()
    until(lambda: stream.silent_s > 1)
    with pytest.raises(NotConnected, match="no sign"):
        until(lambda: bool(stream.frames(0.1)) and False)


def test_a_silent_server_is_asked_for_a_sign(prepared: Any, streaming: Any) -> None:
    prepared.run(f"ALTER DATABASE {prepared.name} SET wal_sender_timeout = '2500ms'")
    stream = streaming(status_update_interval_ms="500")
    deadline = time.monotonic() + 6
    while time.monotonic() < deadline:
        stream.frames(0.1)  # raises if it was given up


def test_only_what_is_confirmed_moves_the_slot(prepared: Any, streaming: Any) -> None:
    stream = streaming(status_update_interval_ms="20")
    before = slot_position(prepared)
    prepared.run("INSERT INTO a VALUES (1, 'x')")
    kinds(stream, 4)
    time.sleep(0.2)  # ten status updates
    assert slot_position(prepared) == before
    stream.confirm(stream.received)
    until(lambda: slot_position(prepared) > before)


def test_a_close_frees_the_slot_and_confirms_the_last_word(prepared: Any, streaming: Any) -> None:
    stream = streaming(status_update_interval_ms="60000")
    prepared.run("INSERT INTO a VALUES (1, 'x')")
    kinds(stream, 4)
    position = stream.received
    stream.confirm(position)
    stream.close()
    assert prepared.rows("SELECT FROM pg_replication_slots WHERE slot_name = %s AND active", prepared.name) == []
    assert slot_position(prepared) >= position


def test_a_full_queue_stops_reading_but_not_talking(prepared: Any, streaming: Any) -> None:
    prepared.run(f"ALTER ROLE CURRENT_USER IN DATABASE \"{prepared.name}\" SET wal_sender_timeout = '1s'")
    stream = streaming(status_update_interval_ms="100", max_queue_size_in_bytes="200000")
    prepared.run("INSERT INTO a SELECT i, repeat('x', 10000) FROM generate_series(1, 1000) i")
    until(lambda: stream.queued_bytes >= 200_000)
    time.sleep(2.5)  # the server would have thrown us out by now
    assert stream.queued_bytes < 2_000_000
    assert kinds(stream, 1003).count("I") == 1000


def test_a_missing_publication_ends_the_stream_with_a_reason(prepared: Any, streaming: Any) -> None:
    prepared.run("DROP PUBLICATION dbz_publication")
    stream = streaming()
    prepared.run("INSERT INTO a VALUES (1, 'x')")
    with pytest.raises(Fatal, match="dbz_publication"):
        kinds(stream, 100)


def test_a_missing_slot_is_refused_at_once(prepared: Any, streaming: Any) -> None:
    with pytest.raises(Fatal, match="nobody_made_this"):
        streaming(slot_name="nobody_made_this")


def test_a_slot_in_use_is_told_apart(prepared: Any, streaming: Any) -> None:
    streaming()
    with pytest.raises(psycopg.errors.ObjectInUse):
        streaming()


def test_what_came_before_an_error_is_still_handed_over(prepared: Any, streaming: Any) -> None:
    stream = streaming()
    prepared.run("INSERT INTO a VALUES (1, 'x')")
    until(lambda: stream.queued_bytes > 100)
    prepared.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
    until(lambda: stream._error is not None)
    assert kinds(stream, 4) == list("BRIC")
    with pytest.raises(NotConnected):
        kinds(stream, 100)


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that may be stopped."""
    with PostgresServer() as server:
        yield server


def own_stream(server: PostgresServer) -> ReplicationStream:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS a (id int PRIMARY KEY)")
        connection.execute("CREATE PUBLICATION dbz_publication FOR ALL TABLES")
        connection.execute("SELECT pg_create_logical_replication_slot('debezium', 'pgoutput')")
        connection.execute("INSERT INTO a VALUES (1)")
    config = PostgresConfig.model_validate(
        {
            "database.hostname": server.host,
            "database.port": str(server.port),
            "database.user": server.user,
            "database.dbname": server.dbname,
            "topic.prefix": "t",
        }
    )
    stream = ReplicationStream(config, SystemClock(), lsn=0)
    stream.start()
    return stream


def test_a_server_shuts_down_quickly_although_nothing_is_confirmed(own_server: PostgresServer) -> None:
    stream = own_stream(own_server)
    try:
        kinds(stream, 4)
        begin = time.monotonic()
        own_server.stop()
        assert time.monotonic() - begin < 10
        with pytest.raises(NotConnected):
            kinds(stream, 100)
    finally:
        stream.close()


def test_a_server_that_crashes_is_not_connected(own_server: PostgresServer) -> None:
    stream = own_stream(own_server)
    try:
        kinds(stream, 4)
        own_server.kill()
        with pytest.raises(NotConnected):
            kinds(stream, 100)
    finally:
        stream.close()


@pytest.fixture
def encrypted_server(tmp_path: Path) -> Iterator[PostgresServer]:
    """A server that insists on TLS; skips where the binaries or the certificate cannot be had."""
    server = PostgresServer(settings={"ssl": "on"}, password="secret")
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed")
    files = [str(tmp_path / name) for name in ("server.key", "server.crt")]
    subprocess.run(
        [program, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-keyout", files[0], "-out", files[1]], check=True, capture_output=True,
    )  # fmt: skip
    for name, file in zip(("server.key", "server.crt"), files, strict=True):
        target = server.directory / name
        shutil.copy(file, target)
        target.chmod(0o600)
        if server.account is not None:
            os.chown(target, server.account.pw_uid, server.account.pw_gid)
        server.settings[f"ssl_{'key' if name.endswith('key') else 'cert'}_file"] = str(target)
    try:
        server.start()
    except PostgresServerError as error:
        server.remove()
        pytest.skip(f"these server binaries speak no TLS: {error}")
    yield server
    server.remove()


def test_an_encrypted_stream_hands_over_everything(encrypted_server: PostgresServer) -> None:
    with psycopg.connect(encrypted_server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE a (id int PRIMARY KEY)")
        connection.execute("CREATE PUBLICATION dbz_publication FOR ALL TABLES")
        connection.execute("SELECT pg_create_logical_replication_slot('debezium', 'pgoutput')")
        connection.execute("INSERT INTO a SELECT generate_series(1, 20000)")
    settings = {
        "database.hostname": encrypted_server.host,
        "database.port": str(encrypted_server.port),
        "database.user": encrypted_server.user,
        "database.password": "secret",
        "database.dbname": encrypted_server.dbname,
        "database.sslmode": "require",
        "topic.prefix": "t",
    }
    stream = ReplicationStream(PostgresConfig.model_validate(settings), SystemClock(), lsn=0)
    try:
        stream.start()
        found = kinds(stream, 20003)
        assert found.count("I") == 20000
        assert found[-1] == "C", "nothing is left in the library's buffer"
    finally:
        stream.close()
    settings["database.sslmode"] = "verify-full"
    with pytest.raises(Fatal, match=r"certificate.*correct database\.sslmode"):
        ReplicationStream(PostgresConfig.model_validate(settings), SystemClock(), lsn=0).start()
