"""Produce and fetch through librdkafka: Tidemill and Apache Kafka in alternating rounds

Both acknowledge from the page cache here (Tidemill with `flush.policy=os`, Kafka's default), so that the two do the
same work; Tidemill's default, fsync before acknowledge, is a row of its own. The client is the same C library in the
same process; the figure to trust is the server's CPU per request.
"""

import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import peers
from benchmarks.measure import Usage, emit, measured, ratio, rss_mb
from tidemill import services

PARTITIONS = 4
CASES = {
    "1000B_16K": (1000, 16_384, 1_000_000),
    "1000B_1M": (1000, 1_048_576, 2_000_000),
    "100B_64K": (100, 65_536, 4_000_000),
}
"""name: (record bytes, batch.size, records). So many that each takes seconds: CPU is counted in hundredths of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A running broker; `security` is what librdkafka needs to get in, besides the address."""

    name: str
    address: str
    pid: int
    security: Mapping[str, str] = field(default_factory=dict)

    @property
    def client(self) -> dict[str, str]:
        """The settings that every client of it begins with."""
        return {"bootstrap.servers": self.address, **self.security}


def produce(target: Target, topic: str, size: int, batch: int, count: int) -> Usage:
    """Send `count` records of `size` bytes as fast as the client can, acks=1."""
    return send({**target.client, "acks": 1}, [target.pid], topic, size, batch, count, ahead=400_000)


def send(
    client: Mapping[str, Any],
    pids: Sequence[int],
    topic: str,
    size: int,
    batch: int,
    count: int,
    *,
    ahead: int,
) -> Usage:
    """Send with these settings, at most `ahead` records unacknowledged; what the brokers `pids` spent on it."""
    producer = Producer(
        {
            **client,
            "linger.ms": 5,
            "batch.size": batch,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 1_048_576,
        }
    )
    block = [{"value": bytes(size)} for _ in range(10_000)]
    producer.list_topics(topic, timeout=10)
    with measured(*pids) as usage:
        for _ in range(count // len(block)):
            while len(producer) > ahead:
                producer.poll(0.01)
            producer.produce_batch(topic, block)
        if producer.flush(120):
            raise RuntimeError(f"not everything was acknowledged by {client['bootstrap.servers']}")
    return usage


def fetch(target: Target, topic: str, count: int) -> Usage:
    """Read `count` records from the beginning."""
    consumer = Consumer(
        {
            **target.client,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 524_288,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    seen = 0
    with measured(target.pid) as usage:
        deadline = time.monotonic() + 120
        while seen < count and time.monotonic() < deadline:
            seen += len(consumer.consume(10_000, timeout=1))
    consumer.close()
    if seen < count:
        raise RuntimeError(f"{target.name} served {seen} of {count} records")
    return usage


def one_case(target: Target, size: int, batch: int, count: int) -> dict[str, float]:
    """Produce then fetch one topic; MB/s and broker CPU microseconds per full batch."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(target.client)
    admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])[topic].result(30)
    megabytes = size * count / 1e6
    written = produce(target, topic, size, batch, count)
    read = fetch(target, topic, count)
    admin.delete_topics([topic])[topic].result(30)
    return {
        "produce_mb_s": megabytes / written.wall_s,
        "produce_cpu_us_per_batch": written.cpu_s * 1e6 / (size * count / batch),
        "produce_mb_per_cpu_s": megabytes / max(written.cpu_s, 0.01),
        "fetch_mb_s": megabytes / read.wall_s,
        "fetch_mb_per_cpu_s": megabytes / max(read.cpu_s, 0.01),
        "rss_loaded_mb": written.rss_mb,
    }


def median(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The median of every figure."""
    return {key: round(statistics.median(row[key] for row in rounds), 1) for key in rounds[0]}


def run(folder: Path, *, with_peers: bool, rounds: int) -> None:
    """Measure, alternating the brokers, each alone on the machine."""
    results: dict[str, dict[str, list[dict[str, float]]]] = {}
    facts: dict[str, dict[str, float]] = {}
    starters: dict[str, Callable[[Path], Any]] = {
        "tidemill": lambda home: ours(home, {"flush.policy": "os"}),
        "tidemill_fsync": lambda home: ours(home, {"flush.policy": "group"}),
    }
    if with_peers:
        starters["kafka"] = kafka
    for number in range(rounds):
        for name, starter in starters.items():
            begin = time.monotonic()
            with starter(folder / f"{name}-{number}") as target:
                started = time.monotonic() - begin
                facts[name] = {"start_s": round(started, 2), "rss_idle_mb": round(rss_mb(target.pid), 1)}
                for case, (size, batch, count) in CASES.items():
                    results.setdefault(case, {}).setdefault(name, []).append(one_case(target, size, batch, count))
    cases = {case: {name: median(rows) for name, rows in by.items()} for case, by in results.items()}
    emit("broker", {"rounds": rounds, "brokers": facts, "cases": cases, "ratios": ratios(cases)})


def ratios(cases: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float | None]]:
    """Tidemill over Kafka, per case and figure."""
    return {
        case: {key: ratio(value, by["kafka"][key]) for key, value in by["tidemill"].items()}
        for case, by in cases.items()
        if "kafka" in by
    }


@contextmanager
def ours(home: Path, settings: Mapping[str, str]) -> Iterator[Target]:
    """A Tidemill broker."""
    service = services.broker("tidemill", home / "data", settings=settings, log=home / "broker.log").start()
    try:
        yield Target(name="tidemill", address=service.facts["address"], pid=service.pid)
    finally:
        service.stop()


@contextmanager
def kafka(home: Path, settings: Mapping[str, str] | None = None) -> Iterator[Target]:
    """An Apache Kafka node."""
    with peers.kafka_node(home, settings=settings) as (address, peer):
        yield Target(name="kafka", address=address, pid=peer.pid)
