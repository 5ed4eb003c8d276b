"""Every part of the platform, started as an operator would start it

One PostgreSQL, the clusters "east" and "west" with one broker each, a Connect worker at east, a mirror east → west,
and two connectors registered by HTTP: change capture into east, a Spark job that reads west and keeps the warehouse
table. Each part is a process; `kill` ends one the hard way and `restart` brings it back on the same folder and port.
"""

import contextlib
import json
import os
import shlex
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tidemill import services
from tidemill.demo.compare import Comparison, compare, read_source, read_warehouse
from tidemill.demo.load import TABLE, Load
from tidemill.free_ports import free_port, free_ports
from tidemill.testing.postgres_server import PostgresServer

SOURCE, SINK = "shop", "warehouse"
TOPIC = f"{SOURCE}.{TABLE}"
MIRRORED_TOPIC = f"east.{TOPIC}"
SNAPSHOT_TIMEOUT_S = 120

PARTS = ("east", "west", "connect", "mirror", "postgres-task", "spark-job")
"""What `kill` knows."""

MM2_PROPERTIES = """\
clusters = east, west
east.bootstrap.servers = {east}
west.bootstrap.servers = {west}
east->west.enabled = true
east->west.topics = {topic}
replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
sync.group.offsets.enabled = true
refresh.topics.interval.seconds = 1
emit.checkpoints.interval.seconds = 1
sync.group.offsets.interval.seconds = 1
"""


class PipelineError(RuntimeError):
    """The pipeline cannot go on; the message says which part and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How far each stage has come, in records and rows."""

    captured: int
    mirrored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Where the pipeline stands: what its two ends hold, and what has come to the second cluster."""

    comparison: Comparison
    counts: Counts

    @property
    def ok(self) -> bool:
        """Both tables are equal, and every record that was captured has been mirrored; a silent cluster says 0."""
        return self.comparison.equal and 0 < self.counts.captured == self.counts.mirrored


class Pipeline:
    """The running demo in one folder; use `start`, then `close`."""

    def __init__(
        self, folder: Path, *, say: Callable[[str], None] = lambda line: None, seed: int = 1, nodes: int = 1
    ) -> None:
        """`nodes` are the brokers of each cluster."""
        self.folder = folder
        self.seconds: dict[str, float] = {}
        self._say = say
        self._seed = seed
        self.postgres = PostgresServer(folder / "postgres")
        logs = folder / "logs"
        self._rest_port = free_port()
        self.east, self.east_address = _cluster("east", folder, nodes)
        self.west, self.west_address = _cluster("west", folder, nodes)
        self.url = f"http://127.0.0.1:{self._rest_port}"
        self.connect = services.connect_worker(
            "connect",
            self.east_address,
            rest=f"127.0.0.1:{self._rest_port}",
            settings={"offset.flush.interval.ms": "1000"},
            log=logs / "connect.log",
        )
        self._mm2 = folder / "mm2.properties"
        self.mirror = services.mirror("mirror", self._mm2, log=logs / "mirror.log")
        self.warehouse = folder / "warehouse" / "orders"
        self.load: Load | None = None

    def start(self, rows: int) -> None:
        """Start every part with `rows` rows in the source table and register both connectors."""
        self._timed("postgres", self.postgres.start, "PostgreSQL with wal_level=logical")
        self.load = Load(self.postgres.dsn, seed=self._seed)
        self.load.create_table(rows)
        self._timed("clusters", lambda: (self.east.start(), self.west.start()), "clusters east and west")
        self._timed("connect", self.connect.start, f"Connect worker, REST at {self.url}")
        self._mm2.write_text(MM2_PROPERTIES.format(east=self.east_address, west=self.west_address, topic=TOPIC))
        self._timed("mirror", self.mirror.start, "mirror east → west")
        self._register()
        self._timed("snapshot", lambda: self._wait_captured(rows), f"initial snapshot of {rows} rows")

    def _wait_captured(self, rows: int) -> None:
        deadline = time.monotonic() + SNAPSHOT_TIMEOUT_S
        while topic_records(self.east_address, TOPIC) < rows:
            self.check_alive()
            if time.monotonic() > deadline:
                raise PipelineError(f"the snapshot did not finish in {SNAPSHOT_TIMEOUT_S} s: {self.status(SOURCE)}")
            time.sleep(0.1)

    def _timed(self, stage: str, action: Callable[[], object], what: str) -> None:
        begin = time.monotonic()
        action()
        self.seconds[stage] = round(time.monotonic() - begin, 2)
        self._say(f"{what} is up after {self.seconds[stage]:.1f} s")

    def _register(self) -> None:
        self.create_connector(SOURCE, self.source_config())
        self.create_connector(SINK, self.sink_config())

    def source_config(self) -> dict[str, str]:
        """The change capture connector, as one would write it for Debezium."""
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            "plugin.name": "pgoutput",
            "database.hostname": self.postgres.host,
            "database.port": str(self.postgres.port),
            "database.user": self.postgres.user,
            "database.password": self.postgres.password or "",
            "database.dbname": self.postgres.dbname,
            "topic.prefix": SOURCE,
            "table.include.list": TABLE,
            "slot.name": "tidemill_demo",
            "publication.name": "tidemill_demo",
            "publication.autocreate.mode": "filtered",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        }

    def sink_config(self) -> dict[str, str]:
        """The warehouse connector: a supervised PySpark job that reads the second region."""
        return {
            "connector.class": "SparkSink",
            "topics": MIRRORED_TOPIC,
            "kafka.bootstrap.servers": self.west_address,
            "table.path": str(self.warehouse),
            "spark.master": "local[2]",
            "trigger.interval.ms": "1000",
        }

    def create_connector(self, name: str, config: Mapping[str, str]) -> None:
        """Register a connector by the REST API and show the same call as a curl line."""
        body = {"name": name, "config": dict(config)}
        shown = json.dumps(body, indent=2, ensure_ascii=False).replace(self.postgres.password or "\0", "********")
        self._say(f"curl -X POST {self.url}/connectors -H 'Content-Type: application/json' -d {shlex.quote(shown)}")
        response = httpx.post(f"{self.url}/connectors", json=body, timeout=90)
        if response.status_code != httpx.codes.CREATED:
            raise PipelineError(f"connector {name} was refused ({response.status_code}): {response.text}")

    def status(self, connector: str) -> dict[str, Any]:
        """The connector's status as the REST API gives it."""
        response = httpx.get(f"{self.url}/connectors/{connector}/status", timeout=30)
        return dict(response.json())

    def counts(self) -> Counts:
        """Records in the topic at east and in its mirror at west."""
        return Counts(
            captured=topic_records(self.east_address, TOPIC), mirrored=topic_records(self.west_address, MIRRORED_TOPIC)
        )

    def compare(self) -> Comparison:
        """Compare the warehouse table with the source table as both are now."""
        return compare(read_source(self.postgres.dsn, TABLE), read_warehouse(self.warehouse))

    def wait_equal(self, idle_s: float, on_wait: Callable[[Counts], None] = lambda counts: None) -> Outcome:
        """Wait until all has arrived, or nothing has moved on the way for `idle_s`; returns what was seen last.

        A slow machine is given its time, and what is stuck is not waited for.
        """
        before: Outcome | None = None
        deadline = 0.0
        while not (now := Outcome(comparison=self.compare(), counts=self.counts())).ok:
            if now != before:
                before, deadline = now, time.monotonic() + idle_s
            elif time.monotonic() > deadline:
                break
            self.check_alive()
            on_wait(now.counts)
            time.sleep(0.5)
        return now

    def check_alive(self) -> None:
        """Raise PipelineError if a part has ended by itself or a connector has failed."""
        for service in (self.east, self.west, self.connect, self.mirror):
            if not service.running:
                raise PipelineError(f"{service.name} ended by itself:\n{service.tail()}")
        for connector in (SOURCE, SINK):
            status = self.status(connector)
            for part in (status.get("connector", {}), *status.get("tasks", [])):
                if part.get("state") == "FAILED":
                    raise PipelineError(f"connector {connector} failed:\n{part.get('trace', '')}")

    def kill(self, part: str) -> None:
        """SIGKILL one of `PARTS`; a task or the Spark job comes back by itself, the others need `restart`."""
        if part == "postgres-task":
            os.kill(descendant(self.connect.pid, f"tidemill: task {SOURCE}-0"), signal.SIGKILL)
        elif part == "spark-job":
            os.kill(descendant(self.connect.pid, "tidemill.cli", "spark", "run"), signal.SIGKILL)
        else:
            self._service(part).kill()

    def restart(self, part: str) -> None:
        """Start a killed part again; nothing to do for what the worker supervises."""
        if part not in ("postgres-task", "spark-job"):
            self._service(part).restart()

    def _service(self, part: str) -> services.Service | services.Cluster:
        return {"east": self.east, "west": self.west, "connect": self.connect, "mirror": self.mirror}[part]

    def close(self) -> None:
        """Stop everything, in the order in which data flows."""
        if self.load is not None and self.load.running:
            self.load.stop()
        for service in (self.mirror, self.connect, self.east, self.west):
            service.stop()
        self.postgres.stop()


def _cluster(name: str, folder: Path, nodes: int) -> tuple[services.Service | services.Cluster, str]:
    """A cluster of so many brokers, and where it is found."""
    logs = folder / "logs"
    if nodes == 1:
        address = f"127.0.0.1:{free_port()}"
        return services.broker(name, folder / name, listen=address, log=logs / f"{name}.log"), address
    cluster = services.Cluster(name, folder / name, free_ports(2 * nodes))
    return cluster, cluster.bootstrap


def topic_records(bootstrap: str, topic: str) -> int:
    """End minus start offset, summed over the partitions; 0 while the topic or the broker is not there."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tidemill-demo-counts", "log_level": 0})
    try:
        found = consumer.list_topics(topic, timeout=5).topics[topic]
        if found.error is not None:
            return 0
        ends = (consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=5) for p in found.partitions)
        return sum(high - low for low, high in ends)
    except KafkaException:
        return 0
    finally:
        consumer.close()


def descendant(pid: int, *words: str) -> int:
    """The deepest process below `pid` whose command line has all `words`; raises PipelineError when there is none."""
    found = None
    level = _children(pid)
    while level:
        for child in level:
            with contextlib.suppress(OSError):  # it may have ended meanwhile
                command = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                found = child if all(word in command for word in words) else found
        level = [grandchild for child in level for grandchild in _children(child)]
    if found is None:
        raise PipelineError(f"no process below {pid} runs {' '.join(words)}")
    return found


def _children(pid: int) -> list[int]:
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return []


def table_rows(dsn: str) -> int:
    """Rows in the source table."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute(f"SELECT count(*) FROM {TABLE}").fetchone()
        return int(row[0]) if row else 0
