"""Capture under fire: writers, changes of tables, and a worker that is killed again and again

One seed is one run: a database with three tables, two sessions that write to them (deletes, changed keys, savepoints,
rollbacks), one that changes the tables themselves (columns come and go, types change with a rewrite), and a worker
with one connector, both with nothing but default settings. The worker is killed with SIGKILL at moments of all kinds:
a moment after it started, with the first row of the snapshot, in the middle of it, while streaming. At last the writers
stop, one worker lives, and the last record of every key has to be the row as it is in the table.

What a reader of the topics cannot know is left out of the comparison: the type a value had when it was written (so
values are compared as text), and columns that are gone.
"""

import json
import random
import string
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
from confluent_kafka import Consumer, TopicPartition
from psycopg import errors

from tidemill import services

TABLES = ("plain", "whole", "pair")
CREATE = (
    "CREATE TABLE plain (id int PRIMARY KEY, n int NOT NULL, note text)",
    "CREATE TABLE whole (id int PRIMARY KEY, n int NOT NULL, note text)",
    "ALTER TABLE whole REPLICA IDENTITY FULL",
    "CREATE TABLE pair (id int, k text, n int NOT NULL, note text, PRIMARY KEY (k, id))",
    "INSERT INTO plain SELECT i, i, repeat('p', i % 200) FROM generate_series(1, 6000) i",
    "INSERT INTO whole SELECT i, i, (SELECT string_agg(md5((i * j)::text), '') FROM generate_series(1, 150) j)"
    " FROM generate_series(1, 800) i",
    "INSERT INTO pair SELECT i, 'k' || i % 3, i, 'note' FROM generate_series(1, 3000) i",
)
IDS = 1_500
"""Writers keep to the first keys, so that they meet each other and the rest stays as the snapshot has it."""

LAST_ID = 1_000_000
UNAVAILABLE = "__debezium_unavailable_value"
DEADLINE_S = 150.0

Rows = dict[tuple[str, ...], dict[str, Any]]


class Session(threading.Thread):
    """Somebody who changes the database until told to stop; what it trips over is kept."""

    def __init__(self, dsn: str, seed: str, act: Callable[[psycopg.Connection[Any], random.Random], None]) -> None:
        super().__init__(daemon=True)
        self.error: BaseException | None = None
        self.done = 0
        self._dsn = dsn
        self._chance = random.Random(seed)
        self._act = act
        self._stopping = threading.Event()

    def run(self) -> None:
        """Act again and again."""
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                connection.execute("SET lock_timeout = '500ms'")
                while not self._stopping.is_set():
                    try:
                        self._act(connection, self._chance)
                        self.done += 1
                    except (
                        errors.UniqueViolation,
                        errors.DeadlockDetected,
                        errors.LockNotAvailable,
                        errors.UndefinedColumn,
                        errors.NotNullViolation,
                    ):
                        if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                            connection.execute("ROLLBACK")
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        """Let what is at hand end."""
        self._stopping.set()
        self.join()


class Schema:
    """Which columns the tables have beside those they were made with."""

    def __init__(self) -> None:
        self.more: dict[str, list[str]] = {table: [] for table in TABLES}
        self._number = 0

    def change(self, connection: psycopg.Connection[Any], chance: random.Random) -> None:
        """Change a table."""
        time.sleep(chance.uniform(0.0, 0.25))
        table = chance.choice(TABLES)
        more = self.more[table]
        kind = chance.random()
        if kind < 0.3 and len(more) < 4:
            self._number += 1
            name = f"x{self._number}"
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {name} {chance.choice(['int', 'text'])}".encode())
            more.append(name)
        elif kind < 0.45 and more:
            name = chance.choice(more)
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {name}".encode())
            more.remove(name)
        elif kind < 0.6 and more:
            connection.execute(f"ALTER TABLE {table} ALTER {chance.choice(more)} TYPE text".encode())
        else:
            change = chance.choice(
                [
                    "ALTER n TYPE bigint",
                    "ALTER n TYPE int",
                    "ALTER id TYPE bigint",
                    "ALTER note TYPE varchar(9000)",
                    "ALTER note TYPE text",
                    "ALTER n DROP NOT NULL",
                    "ALTER n SET NOT NULL",
                    "ALTER n SET DEFAULT 7",
                    "ALTER n DROP DEFAULT",
                ]
            )
            connection.execute(f"ALTER TABLE {table} {change}".encode())

    def write(self, connection: psycopg.Connection[Any], chance: random.Random) -> None:
        """Commit a transaction, or roll it back."""
        connection.execute("BEGIN")
        for _ in range(chance.randint(1, 8)):
            self._statement(connection, chance, chance.choice(TABLES))
        connection.execute("ROLLBACK" if chance.random() < 0.15 else "COMMIT")
        time.sleep(chance.choice([0, 0, 0, 0.01]))

    def _statement(self, connection: psycopg.Connection[Any], chance: random.Random, table: str) -> None:
        number, other = chance.randint(1, IDS), chance.randint(1, IDS)
        note = chance.choice(["", 'é"\\;{', None, "".join(chance.choices(string.hexdigits, k=4000))])
        kind = chance.random()

        def run(query: str, *values: Any) -> None:
            connection.execute(query.encode(), values)

        if kind < 0.35:
            key, mark = ("(id, k)", "%s, 'k1'") if table == "pair" else ("(id)", "%s")
            names = "id, k, n, note" if table == "pair" else "id, n, note"
            run(
                f"INSERT INTO {table} ({names}) VALUES ({mark}, %s, %s) ON CONFLICT {key} "
                f"DO UPDATE SET n = {table}.n + 1, note = excluded.note",
                number, number, note,
            )  # fmt: skip
        elif kind < 0.55:
            run(f"UPDATE {table} SET n = n + 1 WHERE id BETWEEN %s AND %s", number, number + chance.randint(0, 30))
        elif kind < 0.7 and table == "whole":  # with replica identity DEFAULT a long value is lost with its old key
            run(f"UPDATE {table} SET id = %s WHERE id = %s", other, number)
        elif kind < 0.75:
            run(f"UPDATE {table} SET id = %s, note = 'moved' WHERE id = %s", other, number)
        elif kind < 0.9:
            run(f"DELETE FROM {table} WHERE id BETWEEN %s AND %s", number, number + 5)
        elif self.more[table]:
            run(f"UPDATE {table} SET {chance.choice(self.more[table])} = %s WHERE id = %s", number, other)
        else:
            run("SAVEPOINT s")
            run(f"UPDATE {table} SET n = -1 WHERE id BETWEEN %s AND %s", number, number + 50)
            run("ROLLBACK TO s" if chance.random() < 0.7 else "RELEASE s")


class ServerCannotDecode(Exception):
    """PostgreSQL fails to decode a slot's log, also when it is asked without us."""


class Topics:
    """What the topics say: the last record of every key."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.rows: dict[str, Rows] = {table: {} for table in TABLES}
        self.records = 0
        self.last: dict[str, tuple[int, str]] = dict.fromkeys(TABLES, (0, ""))  # the newest mark, and how it came
        self._names = {f"{prefix}.public.{table}": table for table in TABLES}
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": prefix, "enable.auto.commit": False, "fetch.wait.max.ms": 20}
        )
        self._assigned: set[str] = set()

    def read(self) -> int:
        """Take in what is there; returns how many records that were."""
        self._assign()
        if not self._assigned:
            time.sleep(0.02)
            return 0
        messages = self._consumer.consume(2_000, 0.05)
        for message in messages:
            assert message.error() is None, message.error()
            self._take(self._names[message.topic()], message.key(), message.value())
        self.records += len(messages)
        return len(messages)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _assign(self) -> None:
        if len(self._assigned) == len(self._names):
            return
        there = self._consumer.list_topics(timeout=10).topics
        for name in self._names:
            if name in there and name not in self._assigned:
                self._assigned.add(name)
                self._consumer.incremental_assign([TopicPartition(name, each, 0) for each in there[name].partitions])

    def _take(self, table: str, key: bytes | None, value: bytes | None) -> None:
        assert key is not None, "every table has a key"
        rows = self.rows[table]
        identity = tuple(str(part) for _, part in sorted(payload(key).items()))
        if value is None:
            rows.pop(identity, None)
            return
        event = payload(value)
        if event["op"] == "d":
            rows.pop(identity, None)
            return
        row, before = event["after"], rows.get(identity, {})
        rows[identity] = {name: before.get(name) if each == UNAVAILABLE else each for name, each in row.items()}
        if row["id"] >= LAST_ID:
            self.last[table] = (row["id"], event["op"])


def payload(data: bytes) -> Any:
    """The content of a JSON record, with or without its schema."""
    value = json.loads(data)
    return value["payload"] if "payload" in value and "schema" in value else value


class Fire:
    """One run."""

    def __init__(self, seed: int, *, dsn: str, database: dict[str, str], bootstrap: str, folder: Path) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.kills = 0
        self._dsn = dsn
        self._prefix = f"fire{seed}x{time.time_ns() // 1_000_000:x}"
        self._connector = {"connector.class": "PostgresSource", "topic.prefix": self._prefix, **database}
        settings = {f"{role}.storage.topic": f"{self._prefix}-{role}" for role in ("config", "offset", "status")}
        self._worker = services.connect_worker(
            "worker", bootstrap, settings={"group.id": self._prefix, **settings}, log=folder / f"{self._prefix}.log"
        )
        self._topics = Topics(bootstrap, self._prefix)
        self._schema = Schema()

    def run(self, kills: int) -> None:
        """Burn, then compare; raises AssertionError with what differs."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            for statement in CREATE:
                connection.execute(statement.encode())
        try:
            with self._others():
                for number in range(kills):
                    self._live(first=number == 0)
            self._worker.start()
            self._catch_up()
            self._compare()
        finally:
            self._worker.kill()
            self._topics.close()

    @contextmanager
    def _others(self) -> Iterator[None]:
        schema = self._schema
        sessions = [
            Session(self._dsn, f"{self.seed} first", schema.write),
            Session(self._dsn, f"{self.seed} second", schema.write),
            Session(self._dsn, f"{self.seed} changes", schema.change),
        ]
        for each in sessions:
            each.start()
        try:
            yield
        finally:
            for each in sessions:
                each.stop()
        for each in sessions:
            if each.error is not None:
                raise each.error
            assert each.done > 0, "nothing was written"

    def _live(self, *, first: bool) -> None:
        """One life of the worker, to a moment of any kind."""
        self._worker.start()
        if first:
            answer = httpx.put(
                f"{self._worker.facts['url']}/connectors/fire/config", json=self._connector, timeout=DEADLINE_S
            )
            assert answer.status_code == httpx.codes.CREATED, answer.text
        more = self.chance.choice([0, 1, 1, 300, 3_000, 9_000])
        latest_s = time.monotonic() + self.chance.uniform(0.1, 4.0)
        target = self._topics.records + more
        if more == 0:
            time.sleep(self.chance.uniform(0.0, 2.0))
        while self._topics.records < target and time.monotonic() < latest_s:
            self._topics.read()
        self._worker.kill()
        self.kills += 1

    def _catch_up(self) -> None:
        """Read until everything there was has come by the stream; a row of a snapshot proves nothing of the kind."""
        deadline_s = time.monotonic() + DEADLINE_S
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            mark = LAST_ID
            while True:
                mark += 1
                for table in TABLES:
                    names, values = ("id, k, n", "%s, 'k', 0") if table == "pair" else ("id, n", "%s, 0")
                    connection.execute(f"INSERT INTO {table} ({names}) VALUES ({values})".encode(), (mark,))
                while any(number < mark for number, _ in self._topics.last.values()):
                    if time.monotonic() > deadline_s:
                        status = self._status()
                        if "cannot decode its log" in status:
                            self._ask_the_server(connection)
                        raise AssertionError(f"the capture does not get there: {status}\n{self._worker.tail()}")
                    self._topics.read()
                if all(op == "c" for _, op in self._topics.last.values()):
                    return

    @staticmethod
    def _ask_the_server(connection: psycopg.Connection[Any]) -> None:
        """Let the server decode what the slot holds; raises ServerCannotDecode."""
        try:
            connection.execute(
                b"SELECT count(*) FROM pg_logical_slot_peek_binary_changes('debezium', NULL, NULL, "
                b"'proto_version', '1', 'publication_names', 'dbz_publication')"
            )
        except errors.InternalError_ as error:
            raise ServerCannotDecode(str(error)) from error

    def _status(self) -> str:
        return httpx.get(f"{self._worker.facts['url']}/connectors/fire/status", timeout=DEADLINE_S).text

    def _compare(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            for table in TABLES:
                cursor = connection.execute(f"SELECT * FROM {table}".encode())
                names = [column.name for column in cursor.description or ()]
                keys = sorted(["id", "k"] if table == "pair" else ["id"])
                wanted = {}
                for values in cursor.fetchall():
                    row = dict(zip(names, values, strict=True))
                    wanted[tuple(str(row[name]) for name in keys)] = {name: text(row[name]) for name in names}
                found = {
                    key: {name: text(row.get(name)) for name in names} for key, row in self._topics.rows[table].items()
                }
                ghosts, missing = sorted(found.keys() - wanted.keys()), sorted(wanted.keys() - found.keys())
                other = [(wanted[key], found[key]) for key in wanted.keys() & found.keys() if wanted[key] != found[key]]
                assert not (ghosts or missing or other), (
                    f"seed {self.seed}, table {table} with {len(wanted)} rows after {self.kills} kills: "
                    f"{len(ghosts)} ghosts {ghosts[:3]}, {len(missing)} missing {missing[:3]}, "
                    f"{len(other)} different {brief(other)}"
                )


def text(value: Any) -> str | None:
    """A value as text; NULL and a column that was not there yet are the same."""
    return None if value is None else str(value)


def brief(rows: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[dict[str, Any]]:
    """The first rows that differ, by column: what is in the table, and what in the topic."""
    return [
        {
            name: tuple(each and each[:40] for each in (wanted[name], found[name]))
            for name in wanted
            if wanted[name] != found[name]
        }
        | {"id": wanted["id"]}
        for wanted, found in rows[:3]
    ]
