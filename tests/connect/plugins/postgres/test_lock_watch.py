"""The watch over locks: what waits is told within seconds and taken back"""

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tidemill.connect.plugins.postgres.lock_watch import NAMED_MAX, Held, sentence
from tidemill.connect.plugins.postgres.opening import LOCKS

pytestmark = [pytest.mark.integration, pytest.mark.postgres]

TOLD_S = 5.0


def told_in_time(problems: dict[str, str | None], *words: str) -> None:
    """Wait until the status says something."""
    deadline_s = time.monotonic() + TOLD_S
    while not all(word in (problems.get(LOCKS) or "") for word in words):
        assert time.monotonic() < deadline_s, problems
        time.sleep(0.02)


def over_in_time(problems: dict[str, str | None]) -> None:
    """Wait until the status says nothing any more."""
    deadline_s = time.monotonic() + TOLD_S
    while problems.get(LOCKS) is not None:
        assert time.monotonic() < deadline_s, problems
        time.sleep(0.02)


def test_a_change_that_the_snapshot_holds_up_is_told(database: Any, runtime: Callable[..., Any]) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a SELECT generate_series(1, 3000)")
    running = runtime(database.config(snapshot_fetch_size="10"))
    running.poll()  # and now the producer takes nothing more
    connection = psycopg.connect(database.dsn, autocommit=True)
    change = threading.Thread(target=lambda: connection.execute("ALTER TABLE a ADD COLUMN n int"))
    change.start()
    told_in_time(running.problems, f"{connection.info.backend_pid} (public.a)", "pg_cancel_backend")
    running.until_streaming()
    change.join(20)
    over_in_time(running.problems)
    connection.close()


def test_a_change_that_is_given_up_is_taken_back(database: Any, runtime: Callable[..., Any]) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a SELECT generate_series(1, 3000)")
    running = runtime(database.config(snapshot_fetch_size="10"))
    running.poll()
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '5s'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            connection.execute("VACUUM FULL a")
    assert running.problems[LOCKS]
    over_in_time(running.problems)


def test_an_index_that_waits_for_the_transaction_is_told(database: Any, runtime: Callable[..., Any]) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a SELECT generate_series(1, 3000)")
    running = runtime(database.config(snapshot_fetch_size="10"))
    running.poll()
    connection = psycopg.connect(database.dsn, autocommit=True)
    change = threading.Thread(target=lambda: connection.execute("CREATE INDEX CONCURRENTLY ON a (id)"))
    change.start()
    told_in_time(running.problems, f"{connection.info.backend_pid} (the end of its transaction)")
    running.task.stop()
    assert running.problems[LOCKS] is None
    change.join(20)
    connection.close()


def test_a_table_that_is_locked_when_the_task_starts_is_told(database: Any, runtime: Callable[..., Any]) -> None:
    """The catalog itself waits for whoever changes a table with a default."""
    database.run("CREATE TABLE a (id int PRIMARY KEY, n int DEFAULT 7)")
    runs = runtime(database.config(), start=False)
    with psycopg.connect(database.dsn) as changing:
        changing.execute("LOCK TABLE a")
        starting = threading.Thread(target=runs.start, daemon=True)
        starting.start()
        told_in_time(runs.problems, "public.a", f"{changing.info.backend_pid}")
    starting.join(20)
    assert not starting.is_alive()
    over_in_time(runs.problems)


def test_a_life_that_goes_on_with_its_stream_leaves_no_watch(database: Any, runtime: Callable[..., Any]) -> None:
    database.run("CREATE TABLE a (id int PRIMARY KEY)")
    first = runtime(database.config())
    first.until_streaming()
    first.task.stop()
    threads = threading.active_count()
    runtime(database.config(), offset=first.offset)
    assert threading.active_count() == threads


def test_many_are_counted() -> None:
    held = frozenset(Held(pid=pid, table="s.a") for pid in range(1, NAMED_MAX + 3))
    assert "5 (s.a) and 2 more waiting" in (sentence(held, 99) or "")
    assert sentence(frozenset(), 99) is None


@pytest.mark.parametrize(
    ("blockers", "text"),
    [
        ((7, 8), "s.a can be read once the transactions that change it have ended: those of processes 7, 8"),
        ((0,), "s.a can be read once the transactions that change it have ended: a prepared transaction (see "),
        ((), "s.a can be read once the transactions that change it have ended: those of others"),
    ],
)
def test_whom_we_wait_for_is_named(blockers: tuple[int, ...], text: str) -> None:
    assert (sentence(frozenset({Held(pid=9, table="s.a", blockers=blockers)}), 9) or "").startswith(text)
