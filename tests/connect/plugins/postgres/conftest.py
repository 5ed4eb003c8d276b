"""A database of one's own, and a loop that plays the runtime for a source task."""

import contextlib
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import psycopg
import pytest

from tidemill.connect.api import ConverterSpec, EncodedBatch, Json, SourceOffset, SourcePartition, TaskContext
from tidemill.connect.plugins.postgres.assignment import Assignment, assign
from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.opening import Opening
from tidemill.connect.plugins.postgres.source import PostgresSourceTask, postgres_source
from tidemill.core.runtime.clock import Clock, SystemClock

DEADLINE_S = 30.0
_names = itertools.count(1)


class Captured(NamedTuple):
    """A record as the broker would get it."""

    topic: str
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]


class Database:
    """A database, and what a connector needs to be told to capture it."""

    def __init__(self, server: Any, name: str) -> None:
        self.server = server
        self.name = name
        self.dsn = psycopg.conninfo.make_conninfo(server.dsn, dbname=name)
        self.connection = psycopg.connect(self.dsn, autocommit=True)

    def run(self, *statements: str) -> None:
        """Run statements, each a transaction of its own."""
        for statement in statements:
            self.connection.execute(statement.encode())

    def change(self, table: str, statement: str) -> None:
        """Change rows of a table, and wait until the server's statistics have it."""
        with psycopg.connect(self.dsn, autocommit=True) as session:  # its end is when it tells what it did
            session.execute(statement.encode())
        query = "SELECT FROM pg_stat_user_tables WHERE relname = %s AND n_tup_upd + n_tup_del > 0"
        deadline_s = time.monotonic() + DEADLINE_S
        while not self.rows(query, table):
            assert time.monotonic() < deadline_s, f"nobody has counted {statement}"
            time.sleep(0.01)

    def rows(self, query: str, *values: Any) -> list[Any]:
        """Ask."""
        return self.connection.execute(query.encode(), values).fetchall()

    def config(self, **settings: str) -> dict[str, str]:
        """A connector configuration; keyword names have underscores for dots."""
        return {
            "database.hostname": self.server.host,
            "database.port": str(self.server.port),
            "database.user": self.server.user,
            "database.password": self.server.password or "",
            "database.dbname": self.name,
            "topic.prefix": "t",
            "slot.name": self.name,
            "status.update.interval.ms": "100",
        } | {name.replace("_", "."): value for name, value in settings.items()}


def task_context(
    config: Mapping[str, str],
    *,
    schemas: bool = False,
    offsets: Callable[[SourcePartition], SourceOffset | None] = lambda partition: None,
    report: Callable[[Mapping[str, Json]], None] = lambda facts: None,
    problem: Callable[[str, str | None], None] = lambda about, message: None,
) -> TaskContext:
    """What the runtime would tell a task of the connector."""
    converter = ConverterSpec(kind="json", options={"schemas.enable": str(schemas).lower()})

    def say(about: str, message: str | None, *, retry_s: float | None = None) -> None:
        problem(about, message)

    return TaskContext(
        connector="c",
        task=0,
        config=config,
        bootstrap_servers="",
        client_config={},
        key_converter=converter,
        value_converter=converter,
        offsets=offsets,
        stopping=lambda: False,
        report=report,
        problem=say,
    )


class Runtime:
    """Drives one task; `store` decides whether offsets become durable."""

    def __init__(
        self,
        config: Mapping[str, str],
        *,
        offset: SourceOffset | None = None,
        schemas: bool = False,
        store: bool = True,
        raw: bool = False,
    ) -> None:
        self.records: list[Captured] = []
        self.urgent: list[SourceOffset] = []  # offsets that are to be stored at once
        self.offset = offset
        self.offered = offset
        self.store = store
        self.facts: dict[str, Any] = {}
        self.problems: dict[str, str | None] = {}
        self._raw = raw
        task = postgres_source.task(postgres_source.config.model_validate(config))
        assert isinstance(task, PostgresSourceTask)
        self.task = task
        self.context = task_context(
            config,
            schemas=schemas,
            offsets=lambda partition: self.offset,
            report=self.facts.update,
            problem=self.problems.__setitem__,
        )

    def start(self) -> "Runtime":
        """Start the task."""
        self.task.start(self.context)
        return self

    def poll(self) -> int:
        """Poll once; return how many records came."""
        before = len(self.records)
        for batch in self.task.poll():
            assert isinstance(batch, EncodedBatch)
            headers = batch.headers or [()] * len(batch.values)
            for key, value, header in zip(batch.keys, batch.values, headers, strict=True):
                self.records.append(Captured(batch.topic, self._read(key), self._read(value), header))
            if batch.offset is not None and batch.partition is not None:
                json.dumps(dict(batch.offset))  # flat and plain, as the offsets topic needs it
                self.offered = dict(batch.offset)
                if batch.offset_now:
                    self.urgent.append(self.offered)
                if self.store:
                    self.offset = self.offered
                    self.task.committed(batch.partition, batch.offset)
        return len(self.records) - before

    def until(self, condition: Callable[[], bool]) -> None:
        """Poll until something holds."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"not reached with {len(self.records)} records: {self.records[-3:]}"
            self.poll()

    def until_records(self, count: int) -> list[Captured]:
        """Poll until so many records came."""
        self.until(lambda: len(self.records) >= count)
        return self.records

    def until_streaming(self) -> None:
        """Poll until the snapshot is over and the stream is open."""
        self.until(lambda: "lsn" in self.facts)

    def _read(self, data: bytes | None) -> Any:
        if data is None or self._raw:
            return data
        return json.loads(data)


class Wire:
    """A relay to the server that can fall silent without a word, as a broken network does."""

    def __init__(self, server: Any) -> None:
        self.interrupted = threading.Event()
        self._target = (server.host, server.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept nobody any more; what is open ends with its peers."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._relay, args=(source, target), daemon=True).start()

    def _relay(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                while self.interrupted.is_set():
                    time.sleep(0.01)
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@pytest.fixture
def wire(server: Any) -> Iterator[Wire]:
    """A relay to the server."""
    made = Wire(server)
    yield made
    made.interrupted.clear()
    made.close()


@pytest.fixture(scope="session")
def server(tidemill_postgres: Any) -> Any:
    """The server under test."""
    return tidemill_postgres


@pytest.fixture
def database(server: Any) -> Iterator[Database]:
    """A fresh database; its slots are dropped with it."""
    name = f"capture_{next(_names)}"
    with psycopg.connect(server.dsn, autocommit=True) as administrator:
        administrator.execute(f'CREATE DATABASE "{name}"'.encode())
        database = Database(server, name)
        yield database
        database.connection.close()
        administrator.execute(
            b"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = %s AND active", (name,)
        )
        deadline = time.monotonic() + DEADLINE_S
        while administrator.execute(
            b"SELECT count(*) FROM pg_replication_slots WHERE database = %s AND active", (name,)
        ).fetchone() != (0,):
            assert time.monotonic() < deadline, "a slot stays in use"
            time.sleep(0.01)
        administrator.execute(
            b"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s", (name,)
        )
        administrator.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


@pytest.fixture
def runtime() -> Iterator[Callable[..., Runtime]]:
    """Start tasks; all are stopped at the end."""
    started: list[Runtime] = []

    def begin(config: Mapping[str, str], *, start: bool = True, **options: Any) -> Runtime:
        made = Runtime(config, **options)
        started.append(made)
        return made.start() if start else made

    yield begin
    for each in started:
        each.task.stop()


@pytest.fixture
def assigned() -> Callable[..., Assignment]:
    """Make assignments: `assigned(config, problems)`; what they wait for goes into the dictionary."""

    def make(
        config: Mapping[str, str], problems: dict[str, str | None] | None = None, clock: Clock | None = None
    ) -> Assignment:
        said: dict[str, str | None] = {} if problems is None else problems
        model = PostgresConfig.model_validate(config)
        return assign(model, task_context(config, problem=said.__setitem__), clock or SystemClock())

    return make


@pytest.fixture
def opening(assigned: Callable[..., Assignment]) -> Iterator[Callable[..., Opening]]:
    """Begin lives: `opening(config)`; all are closed at the end."""
    opened: list[Opening] = []

    def make(config: Mapping[str, str], problems: dict[str, str | None] | None = None) -> Opening:
        made = Opening(assigned(config, problems))
        opened.append(made)
        return made

    yield make
    for each in opened:
        each.close()
