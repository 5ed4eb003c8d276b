"""The heartbeat's statement: run, refused, locked out"""

from typing import Any

import psycopg
import pytest

from tidemill.connect.plugins.postgres.action import HeartbeatAction
from tidemill.connect.plugins.postgres.config import PostgresConfig

pytestmark = [pytest.mark.integration, pytest.mark.postgres]


def action(database: Any, query: str, **more: str) -> HeartbeatAction:
    return HeartbeatAction(PostgresConfig.model_validate(database.config(heartbeat_action_query=query, **more)))


def test_it_is_run_every_time(database: Any) -> None:
    database.run("CREATE TABLE beats (n int)")
    made = action(database, "INSERT INTO beats VALUES (1)")
    assert [made.run(), made.run()] == [None, None]
    assert database.rows("SELECT count(*) FROM beats") == [(2,)]
    made.close()


def test_a_failure_is_a_sentence_until_it_is_over(database: Any) -> None:
    made = action(database, "INSERT INTO beats VALUES (1)")
    problem = made.run()
    assert problem is not None and "heartbeat.action.query" in problem and "beats" in problem
    assert "\n" not in problem
    database.run("CREATE TABLE beats (n int)")
    assert made.run() is None
    made.close()


def test_a_database_that_is_away_is_a_sentence_too(database: Any) -> None:
    problem = action(database, "SELECT 1", database_port="1").run()
    assert problem is not None and "heartbeat.action.query" in problem


def test_a_lock_is_not_waited_for_long(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.connect.plugins.postgres.action.STATEMENT_TIMEOUT_MS", 50)
    database.run("CREATE TABLE beats (n int)")
    made = action(database, "INSERT INTO beats VALUES (1)")
    with psycopg.connect(database.dsn) as holder:
        holder.execute("LOCK TABLE beats")
        problem = made.run()
    assert problem is not None and "timeout" in problem
    assert made.run() is None
    made.close()
