"""Change capture: rows per CPU-second of snapshot and streaming, beside Debezium

The same table, the same connector configuration, the same JSON without schemas. Ours runs in a Tidemill worker on a
Tidemill broker, Debezium in Apache Connect on an Apache Kafka node. CPU is that of the process that captures: our
task process, the Connect JVM.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg

from benchmarks import peers
from benchmarks.measure import emit, measured, ratio
from tidemill import services
from tidemill.demo.pipeline import topic_records
from tidemill.testing.postgres_server import PostgresServer

ROWS = 400_000
CHANGES = 300_000
ROWS_PER_TRANSACTION = 100
TIMEOUT_S = 300

CREATE = """
CREATE TABLE public.bench (
    id bigserial PRIMARY KEY, account integer NOT NULL, note text NOT NULL, amount numeric(12, 4) NOT NULL, at
    timestamptz NOT NULL, details jsonb NOT NULL, active boolean NOT NULL, token uuid NOT NULL, score float8, raw
    bytea
)
"""
FILL = """
INSERT INTO public.bench (account, note, amount, at, details, active, token, score, raw) SELECT i, repeat('n', 44), i
/ 7.0, timestamptz '2026-01-01' + i * interval '1 second', '{"k": "vvvvvvvvvvvvvvvv"}', i %% 2 = 0,
       '00000000-0000-0000-0000-000000000001', i / 3.0, '\\x000102030405060708090a0b0c0d0e0f'
FROM generate_series(%s::int, %s::int) AS i
"""


def config(server: PostgresServer, slot: str) -> dict[str, str]:
    """One connector configuration for both runtimes."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": server.password or "postgres",
        "database.dbname": server.dbname,
        "topic.prefix": slot,
        "table.include.list": "public.bench",
        "slot.name": slot,
        "publication.name": slot,
        "publication.autocreate.mode": "filtered",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }


def one(
    folder: Path, name: str, url: str, bootstrap: str, worker_pid: int, more: Mapping[str, str] | None = None
) -> dict[str, float]:
    """Register, with `more` settings, wait for the snapshot, make changes, wait for them."""
    with PostgresServer(folder / "postgres", settings={"max_wal_size": "4GB"}) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(CREATE)
            connection.execute(FILL, (1, ROWS))
            topic = f"{name}.public.bench"
            with measured(worker_pid) as snapshot:
                body = {"name": name, "config": config(server, name) | dict(more or {})}
                httpx.post(f"{url}/connectors", json=body, timeout=90).raise_for_status()
                wait_for_records(bootstrap, topic, ROWS)
            with measured(worker_pid) as streaming:
                for first in range(0, CHANGES, ROWS_PER_TRANSACTION):
                    connection.execute(FILL, (ROWS + first + 1, ROWS + first + ROWS_PER_TRANSACTION))
                wait_for_records(bootstrap, topic, ROWS + CHANGES)
        httpx.delete(f"{url}/connectors/{name}", timeout=90).raise_for_status()
        time.sleep(2)  # the connector lets go of its slot before the server stops
    return {
        "snapshot_rows_s": round(ROWS / snapshot.wall_s),
        "snapshot_rows_per_cpu_s": round(ROWS / snapshot.cpu_s),
        "streaming_rows_s": round(CHANGES / streaming.wall_s),
        "streaming_rows_per_cpu_s": round(CHANGES / streaming.cpu_s),
        "rss_mb": round(streaming.rss_mb),
    }


def wait_for_records(bootstrap: str, topic: str, count: int) -> None:
    """Return once the topic holds `count` records."""
    deadline = time.monotonic() + TIMEOUT_S
    while (seen := topic_records(bootstrap, topic)) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{topic} has {seen} of {count} records after {TIMEOUT_S} s")
        time.sleep(0.2)


@contextmanager
def ours(folder: Path, environ: Mapping[str, str] | None = None) -> Iterator[tuple[str, str, int]]:
    """A Tidemill broker and worker: REST address, bootstrap address, process."""
    with ExitStack() as stack:
        broker = services.broker("broker", folder / "data", log=folder / "broker.log").start()
        stack.callback(broker.stop)
        settings = {"offset.flush.interval.ms": "1000"}
        address = broker.facts["address"]
        worker = services.connect_worker(
            "connect", address, settings=settings, log=folder / "connect.log", environ=environ
        ).start()
        stack.callback(worker.stop)
        yield worker.facts["url"], address, worker.pid


@contextmanager
def theirs(folder: Path) -> Iterator[tuple[str, str, int]]:
    """Apache Kafka and Connect with Debezium: the same three."""
    with ExitStack() as stack:
        address, _ = stack.enter_context(peers.kafka_node(folder / "kafka"))
        url, worker = stack.enter_context(
            peers.connect_worker(folder / "connect", address, plugins=peers.debezium_plugin())
        )
        yield url, address, worker.pid


def run(folder: Path, *, with_peers: bool, rounds: int) -> None:
    """Measure one after the other, each alone on the machine."""
    results: dict[str, Any] = {}
    with ours(folder / "tidemill") as (url, bootstrap, pid):
        results["tidemill"] = one(folder / "tidemill", "tidemill", url, bootstrap, pid)
    if with_peers:
        with theirs(folder / "debezium") as (url, bootstrap, pid):
            results["debezium"] = one(folder / "debezium", "debezium", url, bootstrap, pid)
    peer = results.get("debezium", {})
    emit("cdc", {**results, "ratios": {key: ratio(value, peer.get(key)) for key, value in results["tidemill"].items()}})
