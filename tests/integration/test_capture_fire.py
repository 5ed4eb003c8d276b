"""The topics end as the tables, whatever happens to the worker and to the tables meanwhile

`TIDEMILL_FIRE_RUNS` sets how many seeds are tried (three unless it is set), `TIDEMILL_FIRE_SEED` where they begin:

    TIDEMILL_FIRE_RUNS=100 .venv/bin/python -m pytest tests/integration/test_capture_fire.py
"""

import os
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.integration.capture_fire import Fire, ServerCannotDecode

pytestmark = [
    pytest.mark.integration,
    pytest.mark.postgres,
    pytest.mark.crash,
    pytest.mark.timeout(400),
]

RUNS = int(os.environ.get("TIDEMILL_FIRE_RUNS", "3"))
FIRST_SEED = int(os.environ.get("TIDEMILL_FIRE_SEED", "0"))
KILLS = 4


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + RUNS))
def test_the_topics_end_as_the_tables(seed: int, tidemill_postgres: Any, tidemill_broker: Any, tmp_path: Path) -> None:
    server, name = tidemill_postgres, f"fire_{seed}"
    with psycopg.connect(server.dsn, autocommit=True) as administrator:
        administrator.execute(f"CREATE DATABASE {name}".encode())
        fire = Fire(
            seed,
            dsn=psycopg.conninfo.make_conninfo(server.dsn, dbname=name),
            database={
                "database.hostname": server.host,
                "database.port": str(server.port),
                "database.user": server.user,
                "database.password": server.password or "",
                "database.dbname": name,
            },
            bootstrap=tidemill_broker.facts["address"],
            folder=tmp_path,
        )
        try:
            fire.run(KILLS)
        except ServerCannotDecode as error:
            pytest.xfail(f"PostgreSQL itself cannot decode the slot, with no connector there: {error}")
        except BaseException as error:
            error.add_note(f"TIDEMILL_FIRE_SEED={seed} TIDEMILL_FIRE_RUNS=1 tries this seed again")
            raise
        finally:
            administrator.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
            administrator.execute(b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            drop_slots(administrator, name)
            administrator.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
    assert fire.kills == KILLS


def drop_slots(administrator: psycopg.Connection[Any], database: str) -> None:
    """Drop the slots of a database, each as soon as its last user has noticed its end."""
    while slots := administrator.execute(
        b"SELECT slot_name, active FROM pg_replication_slots WHERE database = %s", (database,)
    ).fetchall():
        for slot, active in slots:
            if not active:
                administrator.execute(b"SELECT pg_drop_replication_slot(%s)", (slot,))
