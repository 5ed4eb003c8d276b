"""kill -9 at any moment: what was written down rebuilds the table exactly

A child process plays runtime and broker: it appends every record to a journal and, as a runtime does, an offset only
now and then, unless the task asks for it at once; then it tells the task. It is killed at random moments, during
snapshot and streaming, while writers change the table with updates of keys, deletes, savepoints and rollbacks. The
confirmed position must never lie ahead of the journal, and the journal of all lives together must give the table as it
is.
"""

import json
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tidemill.connect.plugins.postgres.lsn import parse_lsn

pytestmark = [pytest.mark.integration, pytest.mark.postgres, pytest.mark.crash]

ROOT = Path(__file__).resolve().parents[4]
DEADLINE_S = 60.0
KILLS = 10

CAPTURE = r"""
import json, random, sys
from pathlib import Path
from tidemill.connect.api import ConverterSpec, NotConnected, TaskContext
from tidemill.connect.plugins.postgres.source import postgres_source

config, journal = json.loads(sys.argv[1]), Path(sys.argv[2])
journal.touch()
whole = journal.read_bytes()
whole = whole[: whole.rfind(b"\n") + 1]
journal.write_bytes(whole)  # a line that was cut is no line
offsets = [json.loads(line)["offset"] for line in whole.splitlines() if line.startswith(b'{"offset"')]
converter = ConverterSpec(kind="json", options={"schemas.enable": "false"})
task = postgres_source.task(postgres_source.config.model_validate(config))
task.start(TaskContext(
    connector="c", task=0, config=config, bootstrap_servers="", client_config={}, key_converter=converter,
    value_converter=converter, offsets=lambda partition: offsets[-1] if offsets else None, stopping=lambda: False,
    report=lambda facts: None,
))
chance, waiting = random.Random(int(sys.argv[3])), None
with journal.open("ab", buffering=0) as out:
    while True:
        for batch in task.poll():
            for value in batch.values:
                if value is not None:
                    out.write(b'{"value":' + value + b"}\n")
            waiting = batch if batch.offset is not None else waiting
            if waiting is not None and (batch.offset_now or chance.random() < 0.02):
                out.write(json.dumps({"offset": dict(waiting.offset)}).encode() + b"\n")
                task.committed(waiting.partition, waiting.offset)
                waiting = None
"""


class Writers:
    """Two sessions that change the table until they are told to stop."""

    def __init__(self, dsn: str, seed: int) -> None:
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(dsn, seed + each)) for each in range(2)]
        self.errors: list[BaseException] = []
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert not self.errors, self.errors

    def _write(self, dsn: str, seed: int) -> None:
        try:
            with psycopg.connect(dsn, autocommit=True) as connection:
                chance = random.Random(seed)
                while not self._stop.is_set():
                    self._transaction(connection, chance)
        except BaseException as error:
            self.errors.append(error)

    def _transaction(self, connection: psycopg.Connection[Any], chance: random.Random) -> None:
        connection.execute("BEGIN")
        try:
            for _ in range(chance.randint(1, 8)):
                self._statement(connection, chance)
            connection.execute("ROLLBACK" if chance.random() < 0.15 else "COMMIT")
        except (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected):
            connection.execute("ROLLBACK")

    def _statement(self, connection: psycopg.Connection[Any], chance: random.Random) -> None:
        number, text = chance.randint(1, 500), chance.choice(["a", 'é"\\', "", "x" * 3000])
        kind = chance.random()
        if kind < 0.4:
            query = "INSERT INTO a VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET note = excluded.note, n = a.n + 1"
            connection.execute(query.encode(), (number, text, number))
        elif kind < 0.6:
            connection.execute(b"UPDATE a SET n = n + 1 WHERE id = %s", (number,))
        elif kind < 0.75:
            connection.execute(b"UPDATE a SET id = %s WHERE id = %s", (chance.randint(1, 500), number))
        elif kind < 0.9:
            connection.execute(b"DELETE FROM a WHERE id BETWEEN %s AND %s", (number, number + 5))
        else:
            connection.execute("SAVEPOINT s")
            connection.execute(b"UPDATE a SET n = -1 WHERE id < %s", (number,))
            connection.execute("ROLLBACK TO s" if chance.random() < 0.7 else "RELEASE s")


def read(journal: Path) -> tuple[list[Any], dict[str, Any] | None]:
    """Values and the last offset of the whole lines."""
    data = journal.read_bytes() if journal.exists() else b""
    lines = [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
    offsets = [line["offset"] for line in lines if "offset" in line]
    return [line["value"] for line in lines if "value" in line], offsets[-1] if offsets else None


def rebuilt(values: list[Any]) -> dict[int, tuple[str, int]]:
    """Apply the records, whichever life they are of."""
    rows: dict[int, tuple[str, int]] = {}
    for value in values:
        if value["op"] == "d":
            rows.pop(value["before"]["id"], None)
            continue
        after = value["after"]
        note = after["note"]
        if note == "__debezium_unavailable_value":
            note = rows[(value["before"] or after)["id"]][0]
        rows[after["id"]] = (note, after["n"])
    return rows


@pytest.mark.parametrize(("seed", "identity"), [(1, "FULL"), (2, "DEFAULT")])
def test_the_journal_of_many_lives_is_the_table(database: Any, tmp_path: Path, seed: int, identity: str) -> None:
    database.run(
        "CREATE TABLE a (id int PRIMARY KEY, note text NOT NULL, n int NOT NULL)",
        f"ALTER TABLE a REPLICA IDENTITY {identity}",
        "INSERT INTO a SELECT i, 'first', i FROM generate_series(1, 400) i",
    )
    journal = tmp_path / "journal"
    config = json.dumps(database.config(snapshot_fetch_size="20"))
    command = [sys.executable, "-c", CAPTURE, config, str(journal), str(seed)]
    chance = random.Random(seed)
    writers = Writers(database.dsn, seed)
    child: subprocess.Popen[bytes] | None = None
    try:
        for _ in range(KILLS):
            child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
            size = journal.stat().st_size if journal.exists() else 0
            deadline = time.monotonic() + DEADLINE_S
            wanted = chance.choice([1, 1_000, 20_000, 200_000])
            while (journal.stat().st_size if journal.exists() else 0) < size + wanted:
                assert child.poll() is None, "the capture ended by itself"
                assert time.monotonic() < deadline, "nothing comes"
                time.sleep(0.005)
            child.send_signal(signal.SIGKILL)
            child.wait()
            check_confirmed(database, read(journal)[1])
        writers.stop()
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        for number, mark in ((1000, "first mark"), (1001, "second mark")):
            database.run(f"INSERT INTO a VALUES ({number}, '{mark}', 0)")
            wait_for(mark.encode(), journal, child)
    finally:
        writers.stop()
        if child is not None:
            child.kill()
            child.wait()
    values, _ = read(journal)
    expected = {row[0]: (row[1], row[2]) for row in database.rows("SELECT id, note, n FROM a")}
    assert rebuilt(values) == expected
    assert len(expected) > 1


def wait_for(mark: bytes, journal: Path, child: subprocess.Popen[bytes]) -> None:
    """Wait until a row is written down.

    The first such row may be one of a snapshot, which has rows behind it. One that was inserted after that was seen
    comes by the stream, behind everything.
    """
    deadline = time.monotonic() + DEADLINE_S
    while mark not in journal.read_bytes():
        assert child.poll() is None, "the capture ended by itself"
        assert time.monotonic() < deadline, f"{mark!r} does not come"
        time.sleep(0.05)


def check_confirmed(database: Any, offset: dict[str, Any] | None) -> None:
    """Nothing may be confirmed that is not written down."""
    rows = database.rows(
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", database.name
    )
    if offset is not None and offset.get("snapshot_completed", True) and rows:
        assert parse_lsn(rows[0][0]) <= offset["lsn"]
