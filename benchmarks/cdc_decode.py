"""Change capture without a broker: rows per CPU-second up to serialised records

The PostgreSQL source task alone, driven by a loop that drops what it returns: snapshot, then inserts, updates and
deletes of the same ten-column table, 100 rows in a transaction, from a real server over a socket. CPU is that of this
process, so neither the server nor a producer is in the figures; `cdc` measures the whole way beside Debezium.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import psycopg

from benchmarks.cdc import CREATE, FILL
from benchmarks.measure import emit
from tidemill.connect.api import ConverterSpec, EncodedBatch, SourceTask, TaskContext
from tidemill.connect.plugins.postgres.source import postgres_source
from tidemill.testing.postgres_server import PostgresServer

ROWS = 300_000
ROWS_PER_TRANSACTION = 100
CHANGES = {
    "update": "UPDATE public.bench SET account = account + 1 WHERE id BETWEEN %s AND %s",
    "delete": "DELETE FROM public.bench WHERE id BETWEEN %s AND %s",
}


def started(server: PostgresServer, name: str, *, schemas: bool) -> SourceTask:
    """A task at its beginning."""
    config = {
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": server.user,
        "database.dbname": server.dbname,
        "topic.prefix": name,
        "slot.name": name,
        "table.include.list": "public.bench",
    }
    converter = ConverterSpec(kind="json", options={"schemas.enable": str(schemas).lower()})
    task = postgres_source.task(postgres_source.config.model_validate(config))
    assert isinstance(task, SourceTask)
    task.start(
        TaskContext(
            connector=name,
            task=0,
            config=config,
            bootstrap_servers="",
            client_config={},
            key_converter=converter,
            value_converter=converter,
            offsets=lambda partition: None,
            stopping=lambda: False,
            report=lambda facts: None,
        )
    )
    return task


def drain(task: SourceTask, rows: int) -> tuple[float, float]:
    """Poll until so many records with a value came; return CPU and wall seconds."""
    cpu, wall = time.process_time(), time.monotonic()
    seen = 0
    while seen < rows:
        for batch in task.poll():
            assert isinstance(batch, EncodedBatch)
            seen += len(batch.values) - batch.values.count(None)
            if batch.offset is not None and batch.partition is not None:
                task.committed(batch.partition, batch.offset)
    return time.process_time() - cpu, time.monotonic() - wall


def one(server: PostgresServer, name: str, *, schemas: bool) -> dict[str, float]:
    """Rows per CPU-second of each kind of work."""
    rates: dict[str, float] = {}
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS public.bench")
        connection.execute(CREATE)
        connection.execute(FILL, (1, ROWS))
        task = started(server, name, schemas=schemas)
        try:
            cpu, wall = drain(task, ROWS)
            rates["snapshot"], rates["snapshot_wall"] = ROWS / cpu, ROWS / wall
            task.poll()
            for first in range(0, ROWS, ROWS_PER_TRANSACTION):
                connection.execute(FILL, (ROWS + first + 1, ROWS + first + ROWS_PER_TRANSACTION))
            cpu, wall = drain(task, ROWS)
            rates["insert"], rates["insert_wall"] = ROWS / cpu, ROWS / wall
            for kind, statement in CHANGES.items():
                for first in range(0, ROWS, ROWS_PER_TRANSACTION):
                    connection.execute(statement, (first + 1, first + ROWS_PER_TRANSACTION))
                cpu, _ = drain(task, ROWS)
                rates[kind] = ROWS / cpu
        finally:
            task.stop()
            connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))
    return rates


def run(folder: Path, *, with_peers: bool = False, rounds: int = 3) -> None:
    """Measure; there is no peer that can be driven without a broker."""
    results: dict[str, dict[str, int]] = {}
    with PostgresServer(folder / "postgres", settings={"max_wal_size": "4GB", "fsync": "off"}) as server:
        for label, schemas in (("rows_per_cpu_s", False), ("rows_per_cpu_s_with_schemas", True)):
            measured = [one(server, "bench", schemas=schemas) for _ in range(rounds)]
            results[label] = {kind: round(statistics.median(each[kind] for each in measured)) for kind in measured[0]}
    emit("cdc_decode", {"rows": ROWS, "rounds": rounds, **results})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-cdc-") as home:
        run(Path(home), rounds=int(sys.argv[1]) if len(sys.argv) > 1 else 3)
