"""Making slots: patience, and what newer servers can do"""

from contextlib import closing
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
