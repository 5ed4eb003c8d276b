"""The broker beside Apache Kafka over a grid of client settings: alternating rounds, each alone on the machine

`make bench-broker`. Both brokers meet the same official clients under the same durability policy, page cache or fsync
before every acknowledgement (Kafka: `flush.messages=1`). Every round starts each broker afresh, in turn, lets it get
warm on the base row, which a JVM needs, and walks all rows. A row moves one or two settings away from a base;
`TIDEMILL_BENCH_GRID=full` walks the whole cross product. Ratios are ours over theirs within a round; the spread over
the rounds is printed with them.
"""

import itertools
import os
import re
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import peers
from benchmarks.broker import Target, kafka, ours
from benchmarks.measure import emit, measured, rss_mb

PAYLOAD_MB = {16_384: 200, 1_048_576: 500}
"""MB of records a throughput row sends, by batch.size."""
LATENCY_RECORDS_S = 5_000  # the pace at which latency is taken, far below what either broker can do
LATENCY_RECORDS = 25_000
ROUND_TRIPS = 3_000
TOOL = "org.apache.kafka.tools."
LATENCIES = re.compile(r"(\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99\.9th")
THROUGHPUT = re.compile(r"\(([\d.]+) MB/sec\)")
WHOLE_MS = 0.5  # the tools print whole milliseconds: a latency of 0 is taken for a half
ROUND_TRIP = re.compile(r"50th = ([\d.]+), 99th = ([\d.]+), 99\.9th = ([\d.]+)")

Figures = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One setting of the clients."""

    record: int = 1024
    acks: str = "1"
    linger_ms: int = 5
    batch: int = 16_384
    codec: str = "none"
    partitions: int = 1

    def __str__(self) -> str:
        batch = "1M" if self.batch > 16_384 else "16K"
        return f"{self.record}B acks={self.acks} linger={self.linger_ms} batch={batch} {self.codec} p={self.partitions}"


BASE = Row()
AXES: dict[str, Sequence[object]] = {
    "record": (100, 1024),
    "acks": ("1", "all"),
    "linger_ms": (0, 5),
    "batch": (16_384, 1_048_576),
    "codec": ("none", "lz4"),
    "partitions": (1, 16),
}
"""The grid."""


def rows() -> list[Row]:
    """The base, every row one setting away from it, and both sizes at large batches; or everything there is."""
    if os.environ.get("TIDEMILL_BENCH_GRID") == "full":
        return [Row(**dict(zip(AXES, values, strict=True))) for values in itertools.product(*AXES.values())]  # type: ignore[arg-type]
    found = {BASE: None, replace(BASE, record=100, batch=1_048_576): None}
    for axis, values in AXES.items():
        for value in values:
            found[replace(BASE, **{axis: value})] = None  # type: ignore[arg-type]
    return list(found)


def run(folder: Path, *, with_peers: bool, rounds: int) -> None:
    """Measure; prints one JSON object per durability policy."""
    for policy, settings, peer_settings in (
        ("page cache", {"flush.policy": "os"}, {}),
        ("fsync", {"flush.policy": "group"}, {"log.flush.interval.messages": "1"}),
    ):
        starters: dict[str, Callable[[Path], AbstractContextManager[Target]]] = {
            "tidemill": lambda home, settings=settings: ours(home, settings)  # type: ignore[misc]
        }
        if with_peers:
            starters["kafka"] = lambda home, settings=peer_settings: kafka(home, settings)  # type: ignore[misc]
        found: dict[str, list[dict[str, Figures]]] = {name: [] for name in starters}
        for number in range(rounds):
            order = list(starters) if number % 2 == 0 else list(reversed(starters))
            for name in order:
                print(f"{policy}, round {number + 1} of {rounds}: {name}", file=sys.stderr)
                home = folder / f"{policy.replace(' ', '-')}-{name}-{number}"
                found[name].append(one_round(home, starters[name], java=with_peers))
        emit("broker_grid", {"policy": policy, "rounds": rounds, "rows": table(found)})


def one_round(home: Path, start: Callable[[Path], AbstractContextManager[Target]], *, java: bool) -> dict[str, Figures]:
    """Start a broker, walk all rows and stop it: the figures of each row."""
    figures: dict[str, Figures] = {}
    begin = time.monotonic()
    with start(home) as target:
        process: Figures = {"start_s": time.monotonic() - begin}
        time.sleep(1)
        process["rss_idle_mb"] = rss_mb(target.pid)
        in_topic(target, BASE, produce)
        for row in rows():
            figures[f"librdkafka {row}"] = in_topic(target, row, produce)
            if java:
                figures[f"ProducerPerformance {row}"] = in_topic(target, row, produce_java)
        process["rss_loaded_mb"] = rss_mb(target.pid)
        if java:
            figures["ProducerPerformance paced, 1024B acks=all"] = in_topic(target, replace(BASE, acks="all"), paced)
            figures["EndToEndLatency 100B acks=all"] = in_topic(target, Row(record=100), round_trips)
            for record in (100, 1024):
                row = replace(BASE, record=record, batch=1_048_576)
                figures[f"ConsumerPerformance {record}B"] = in_topic(target, row, consume_java)
        figures["process"] = process
    return figures


def in_topic(target: Target, row: Row, work: Callable[[Target, Row, str], Figures]) -> Figures:
    """Do `work` with a topic of its own, which is gone afterwards."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": target.address})
    admin.create_topics([NewTopic(topic, num_partitions=row.partitions, replication_factor=1)])[topic].result(30)
    try:
        return work(target, row, topic)
    finally:
        admin.delete_topics([topic])[topic].result(30)


def records_of(row: Row) -> int:
    """How many records a throughput row sends."""
    return PAYLOAD_MB[row.batch] * 1_000_000 // row.record // 1000 * 1000


def produce(target: Target, row: Row, topic: str) -> Figures:
    """librdkafka, as fast as it can."""
    producer = Producer(
        {
            "bootstrap.servers": target.address,
            "acks": row.acks,
            "linger.ms": row.linger_ms,
            "batch.size": row.batch,
            "compression.type": row.codec,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 1_048_576,
        }
    )
    count = records_of(row)
    # Bytes that compress to about half: all alike would measure only the codec.
    noise = os.urandom(row.record * 500)
    block = [
        {"value": noise[at : at + row.record // 2] + bytes(row.record - row.record // 2)}
        for at in range(0, len(noise) // 2, row.record // 2)
    ]
    producer.list_topics(topic, timeout=10)
    with measured(target.pid) as usage:
        for _ in range(count // len(block)):
            while len(producer) > 400_000:
                producer.poll(0.005)
            producer.produce_batch(topic, block)
        if producer.flush(120):
            raise RuntimeError(f"{target.name} did not acknowledge everything")
    megabytes = row.record * (count // len(block)) * len(block) / 1e6
    return {
        "mb_s": megabytes / usage.wall_s,
        "cpu_us_per_batch": usage.cpu_s * 1e6 / (megabytes * 1e6 / row.batch),
    }


def produce_java(target: Target, row: Row, topic: str) -> Figures:
    """Kafka's ProducerPerformance, as fast as it can: its own throughput and latencies."""
    return perf(target, row, topic, records_of(row), -1)


def paced(target: Target, row: Row, topic: str) -> Figures:
    """The same tool at a fixed pace: what a producer that is not saturated waits."""
    return perf(target, row, topic, LATENCY_RECORDS, LATENCY_RECORDS_S)


def perf(target: Target, row: Row, topic: str, count: int, throughput: int) -> Figures:
    """Run ProducerPerformance and read its summary line."""
    with measured(target.pid) as usage:
        text = peers.run_tool(
            TOOL + "ProducerPerformance",
            [
                "--topic", topic, "--num-records", str(count), "--record-size", str(row.record),
                "--throughput", str(throughput), "--producer-props", f"bootstrap.servers={target.address}",
                f"acks={row.acks}", f"linger.ms={row.linger_ms}", f"batch.size={row.batch}",
                f"compression.type={row.codec}", "enable.idempotence=false",
            ],
        )  # fmt: skip
    summary = text.strip().splitlines()[-1]
    speed, latencies = THROUGHPUT.search(summary), LATENCIES.search(summary)
    if speed is None or latencies is None:
        raise RuntimeError(f"ProducerPerformance printed {summary!r}")
    p50, _, p99, p999 = (float(value) for value in latencies.groups())
    figures = {"p50_ms": p50, "p99_ms": p99, "p999_ms": p999, "cpu_s": usage.cpu_s}
    if throughput < 0:
        figures["mb_s"] = float(speed.group(1)) * 1.048576
    return figures


def round_trips(target: Target, row: Row, topic: str) -> Figures:
    """Kafka's EndToEndLatency: produce one record, consume it, repeat."""
    with measured(target.pid) as usage:
        text = peers.run_tool(
            TOOL + "EndToEndLatency",
            [
                "--bootstrap-server", target.address, "--topic", topic, "--num-records", str(ROUND_TRIPS),
                "--producer-acks", "all", "--record-size", str(row.record),
            ],
        )  # fmt: skip
    found = ROUND_TRIP.search(text)
    if found is None:
        raise RuntimeError(f"EndToEndLatency printed {text[-500:]!r}")
    p50, p99, p999 = (float(value) for value in found.groups())
    return {"p50_ms": p50, "p99_ms": p99, "p999_ms": p999, "cpu_s": usage.cpu_s}


def consume_java(target: Target, row: Row, topic: str) -> Figures:
    """Kafka's ConsumerPerformance over a topic that librdkafka has filled."""
    produce(target, row, topic)
    count = records_of(row) // 1000 * 1000
    with measured(target.pid) as usage:
        text = peers.run_tool(
            TOOL + "ConsumerPerformance",
            ["--bootstrap-server", target.address, "--topic", topic, "--num-records", str(count)],
        )
    values = [each.strip() for each in text.strip().splitlines()[-1].split(",")]
    fetch_mb_s = float(values[8])  # MB/s without the time the group needed to form
    return {"mb_s": fetch_mb_s * 1.048576, "cpu_s": usage.cpu_s}


def table(found: dict[str, list[dict[str, Figures]]]) -> dict[str, dict[str, object]]:
    """row: figure: the medians and, where a peer ran, ours over theirs as [min, median, max] over the rounds."""
    result: dict[str, dict[str, object]] = {}
    mine = found["tidemill"]
    for row, figures in mine[0].items():
        cells: dict[str, object] = {}
        for figure in figures:
            ours_by_round = [each[row][figure] for each in mine]
            least = WHOLE_MS if figure.endswith("_ms") else 1e-9
            cell: dict[str, object] = {"tidemill": round(statistics.median(ours_by_round), 2)}
            if "kafka" in found:
                theirs = [each[row][figure] for each in found["kafka"]]
                cell["kafka"] = round(statistics.median(theirs), 2)
                pairs = zip(ours_by_round, theirs, strict=True)
                cell["ratio"] = spread([max(own, least) / max(other, least) for own, other in pairs])
            cells[figure] = cell
        result[row] = cells
    return result


def spread(values: list[float]) -> list[float]:
    """[min, median, max]."""
    return [round(each, 2) for each in (min(values), statistics.median(values), max(values))]
