"""How the broker's cost grows: with the size of the log, with the number of partitions, and at a restart

Latency of one record at a time (acks=all, page cache) and of reading a megabyte from the middle, on a log that is
filled step by step; the same at growing numbers of partitions; and the time from start to ready on what was built,
after a clean stop and after kill -9, at last with 10 GB in 1,000 partitions. `TIDEMILL_BENCH_GB` (default 1,10) and
`TIDEMILL_BENCH_PARTITIONS` (default 10,1000,5000) set the steps; 50 GB need the disk for it. Ours alone: the peer's
figures are broker_grid's.
"""

import os
import statistics
import sys
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.measure import emit, rss_mb
from tidemill import services

RECORD = 1024
PROBES = 500
SETTINGS = {"flush.policy": "os", "log.retention.hours": "-1"}


def run(folder: Path, *, with_peers: bool, rounds: int) -> None:
    """Measure; prints one JSON object."""
    del with_peers, rounds  # one broker, one pass: the log only grows
    found = {
        "log": by_size(folder / "size"),
        "partitions": by_partitions(folder / "partitions"),
        "1000 partitions, 10 GB": together(folder / "together"),
    }
    emit("broker_growth", found)


def by_size(home: Path) -> dict[str, dict[str, float]]:
    """Latencies and restart times as one partition's log grows."""
    result = {}
    broker = services.broker("growth", home / "data", settings=SETTINGS, log=home / "broker.log").start()
    try:
        create(broker, "log", 1)
        written = 0
        for gigabytes in steps("TIDEMILL_BENCH_GB", "1,10"):
            fill(broker, "log", gigabytes * 1_000_000_000 - written)
            written = gigabytes * 1_000_000_000
            print(f"{gigabytes} GB written", file=sys.stderr)
            result[f"{gigabytes} GB"] = {**probe(broker, "log", written // RECORD // 2), **restarts(broker)}
    finally:
        broker.stop()
    return result


def by_partitions(home: Path) -> dict[str, dict[str, float]]:
    """Latencies, memory and restart times as partitions are added."""
    result = {}
    broker = services.broker("growth", home / "data", settings=SETTINGS, log=home / "broker.log").start()
    try:
        create(broker, "probe", 1)
        fill(broker, "probe", 10_000_000)
        made = 1
        for count in steps("TIDEMILL_BENCH_PARTITIONS", "10,1000,5000"):
            begin = time.monotonic()
            create(broker, f"many-{count}", count - made)
            created_s = time.monotonic() - begin
            fill(broker, f"many-{count}", count * RECORD * 10)
            made = count
            print(f"{count} partitions", file=sys.stderr)
            result[str(count)] = {
                "created_s": round(created_s, 2),
                "rss_mb": round(rss_mb(broker.pid), 1),
                **probe(broker, "probe", 1000),
                **restarts(broker),
            }
    finally:
        broker.stop()
    return result


def together(home: Path) -> dict[str, float]:
    """Restart times with many partitions that all hold something."""
    broker = services.broker("growth", home / "data", settings=SETTINGS, log=home / "broker.log").start()
    try:
        create(broker, "together", 1000)
        fill(broker, "together", 10_000_000_000)
        return restarts(broker)
    finally:
        broker.stop()


def steps(variable: str, default: str) -> list[int]:
    """Sizes to stop at, in order."""
    return sorted(int(each) for each in os.environ.get(variable, default).split(","))


def create(broker: services.Service, topic: str, partitions: int) -> None:
    """Create a topic."""
    admin = AdminClient({"bootstrap.servers": broker.facts["address"]})
    wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1)
    admin.create_topics([wanted], request_timeout=120)[topic].result(150)


def fill(broker: services.Service, topic: str, size: int) -> None:
    """Write `size` bytes of records over all partitions of a topic."""
    producer = Producer(
        {
            "bootstrap.servers": broker.facts["address"],
            "acks": 1,
            "batch.size": 1_048_576,
            "linger.ms": 20,
            "queue.buffering.max.messages": 300_000,
            "queue.buffering.max.kbytes": 524_288,
        }
    )
    block = [{"value": os.urandom(RECORD)} for _ in range(1000)]
    for _ in range(size // RECORD // len(block)):
        while len(producer) > 200_000:
            producer.poll(0.01)
        producer.produce_batch(topic, block)
    if producer.flush(300):
        raise RuntimeError("not everything was acknowledged")


def probe(broker: services.Service, topic: str, middle: int) -> dict[str, float]:
    """Milliseconds of one produced record, and of a first read in the middle of the log."""
    address = broker.facts["address"]
    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": address, "group.id": "probe", "fetch.wait.max.ms": 10})
    produced, fetched = [], []
    for number in range(PROBES):
        begin = time.perf_counter()
        producer.produce(topic, b"x", partition=0)
        producer.flush(30)
        if number:  # the first one looks the topic up
            produced.append(time.perf_counter() - begin)
    for number in range(20):
        consumer.assign([TopicPartition(topic, 0, middle + number)])
        begin = time.perf_counter()
        if not consumer.consume(1, timeout=30):
            raise RuntimeError(f"nothing at offset {middle + number}")
        if number:  # the first one connects
            fetched.append(time.perf_counter() - begin)
        consumer.unassign()
    consumer.close()
    return {**percentiles("produce", produced), **percentiles("fetch", fetched)}


def percentiles(name: str, seconds: list[float]) -> dict[str, float]:
    """p50 and p99 in milliseconds."""
    ordered = sorted(seconds)
    return {
        f"{name}_p50_ms": round(statistics.median(ordered) * 1000, 2),
        f"{name}_p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1000, 2),
    }


def restarts(broker: services.Service) -> dict[str, float]:
    """Seconds from start to ready after a clean stop and after kill -9; leaves the broker running."""
    found = {}
    for name, end in (("clean", broker.stop), ("killed", broker.kill)):
        begin = time.monotonic()
        end()
        ended = time.monotonic()
        broker.start(600)
        found[f"ready_after_{name}_s"] = round(time.monotonic() - ended, 2)
        found[f"{name}_end_s"] = round(ended - begin, 2)
    return found
