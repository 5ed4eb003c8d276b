"""Making slots: patience, and what newer servers can do"""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg
import pytest

from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.connection import connect
from tidemill.connect.plugins.postgres.slot import ExportedSnapshot, create_slot, drop_slot

pytestmark = [pytest.mark.integration, pytest.mark.postgres]


def test_making_a_slot_can_be_given_up(database: Any) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)")
    config = PostgresConfig.model_validate(database.config())

    class GivenUp(Exception):
        pass

    def waiting() -> None:
        _stand_still(database, exporter.info.backend_pid)  # so it is slow to let go of what it was making
        raise GivenUp

    with psycopg.connect(database.dsn) as writer:
        writer.execute("INSERT INTO a VALUES (1)")
        with closing(connect(config, replication="database")) as exporter, pytest.raises(GivenUp):
            create_slot(exporter, database.name, waiting=waiting)
    with closing(connect(config, replication="database")) as exporter:
        made = create_slot(exporter, database.name, export=False)
    assert made.name == ""
    assert isinstance(made, ExportedSnapshot) and made.lsn > 0


def test_why_a_slot_was_given_up_is_told_though_the_server_is_out_of_reach(database: Any) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)")
    given = database.config()

    class GivenUp(Exception):
        pass

    def waiting() -> None:
        door.close()
        raise GivenUp

    with (
        _way_to(given["database.hostname"], int(given["database.port"])) as door,
        psycopg.connect(database.dsn) as writer,
    ):
        writer.execute("INSERT INTO a VALUES (1)")
        host, port = door.getsockname()
        config = PostgresConfig.model_validate({**given, "database.hostname": host, "database.port": str(port)})
        with closing(connect(config, replication="database")) as exporter, pytest.raises(GivenUp):
            create_slot(exporter, database.name, waiting=waiting)


@contextmanager
def _way_to(host: str, port: int) -> Iterator[socket.socket]:
    """Where a server can be reached, once, as long as the socket is open."""

    def copy(source: socket.socket, sink: socket.socket) -> None:
        with source, suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def let_in() -> None:
        client, _ = door.accept()
        server = socket.create_connection((host, port))
        threads.extend(threading.Thread(target=copy, args=each) for each in ((client, server), (server, client)))
        for each in threads[1:]:
            each.start()

    with socket.create_server(("127.0.0.1", 0)) as door:
        door.settimeout(20.0)
        threads = [threading.Thread(target=let_in)]
        threads[0].start()
        yield door
    for each in threads:
        each.join()


def _stand_still(database: Any, backend: int) -> None:
    """A second of standing still, ordered through the server: in a container its numbers are others."""
    still = f"kill -STOP {backend}; (sleep 1; kill -CONT {backend}) </dev/null >/dev/null 2>&1 &"
    database.run(f"COPY (SELECT 1 WHERE false) TO PROGRAM '{still}'")


def test_a_slot_that_standbys_keep(database: Any) -> None:
    [(version,)] = database.rows("SELECT current_setting('server_version_num')::int")
    config = PostgresConfig.model_validate(database.config())
    with closing(connect(config, replication="database")) as exporter:
        create_slot(exporter, database.name, failover=True, export=False)
    [(failover,)] = database.rows(
        "SELECT to_jsonb(s) ->> 'failover' FROM pg_replication_slots s WHERE slot_name = %s", database.name
    )
    assert failover == ("true" if version >= 170000 else None), "older servers do not know it"


def test_a_slot_is_dropped(database: Any) -> None:
    config = PostgresConfig.model_validate(database.config())
    with closing(connect(config, replication="database")) as exporter:
        create_slot(exporter, database.name, export=False)
    drop_slot(database.connection, database.name)
    assert database.rows("SELECT FROM pg_replication_slots WHERE slot_name = %s", database.name) == []
