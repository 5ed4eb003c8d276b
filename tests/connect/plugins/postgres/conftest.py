"""A database of one's own, and a loop that plays the runtime for a source task."""

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import psycopg
import pytest

from tidemill.connect.api import ConverterSpec, EncodedBatch, SourceOffset, SourceTask, TaskContext
from tidemill.connect.plugins.postgres.source import postgres_source

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
        self.offset = offset
        self.offered = offset
        self.store = store
        self.facts: dict[str, Any] = {}
        self._raw = raw
        converter = ConverterSpec(kind="json", options={"schemas.enable": str(schemas).lower()})
        task = postgres_source.task(postgres_source.config.model_validate(config))
        assert isinstance(task, SourceTask)
        self.task = task
        self.context = TaskContext(
            connector="c",
            task=0,
            config=config,
            bootstrap_servers="",
            client_config={},
            key_converter=converter,
            value_converter=converter,
            offsets=lambda partition: self.offset,
            stopping=lambda: False,
            report=self.facts.update,
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

    def start(config: Mapping[str, str], **options: Any) -> Runtime:
        made = Runtime(config, **options)
        started.append(made)
        return made.start()

    yield start
    for each in started:
        each.task.stop()
