"""The source put through what every plugin must do, against a real server"""

from typing import Any

import orjson
import pytest

from tidemill.connect.api import Record
from tidemill.connect.plugins.postgres.source import postgres_source
from tidemill.testing import conformance, run_source

pytestmark = [pytest.mark.integration, pytest.mark.postgres]


def row(record: Record) -> Any:
    """What must come again: which row of which table, not when it was read."""
    value = orjson.loads(record.value or b"null")
    return record.topic, record.key, value and value.get("after")


def test_it_conforms(database: Any) -> None:
    """From the end of its snapshot on: changes can be read again from wherever the slot has not been told to forget."""
    database.run("CREATE TABLE a (id int PRIMARY KEY, note text)", "INSERT INTO a VALUES (0, 'old')")
    config = database.config()
    snapshot = run_source(postgres_source, config, count=1, timeout_s=30)
    for number in range(1, 7):
        database.run(f"INSERT INTO a VALUES ({number}, 'n{number}')")
    conformance.check_source(
        postgres_source,
        config,
        count=6,
        offsets=snapshot.offsets,
        same=row,
        wrong={
            "plugin.name": "wal2json",
            "max.batch.size": "-1",
            "snapshot.mode": "sometimes",
            "database.dbname": "no_such",
        },
    )


def test_a_snapshot_conforms(database: Any) -> None:
    """One that is interrupted is taken again."""
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a SELECT generate_series(1, 500)")
    conformance.check_source(postgres_source, database.config(), count=500, same=row)
