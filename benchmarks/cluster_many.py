"""A thousand topics of three partitions on three nodes: made, kept, and taken over when a node dies

Tidemill and Apache Kafka, as in `benchmarks.cluster`, one cluster at a time: 3,000 partitions with three replicas each,
`min.insync.replicas=2`. `create` ends when every replica of every partition is in sync; `failover` begins with kill -9
of a node and ends when others lead all that it led, and for `write` when a client that has written to every partition
before has written to every one again; `start` is that node's, until it may lead, and until it is in sync everywhere.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # re-exported without saying so

from benchmarks.cluster import NODES, Target, kafka, ours
from benchmarks.measure import emit, ratio, rss_mb

TOPICS = 1_000
PARTITIONS = 3
AT_ONCE = 50
"""Topics in one request."""
VICTIM = 2
PATIENCE_S = 300.0

MEASURES = ("create_s", "write_s", "led_s", "failover_write_s", "start_s", "in_sync_s", "rss_mb_a_node")


def names(topics: int) -> list[str]:
    """Of all topics."""
    return [f"many-{number:04}" for number in range(topics)]


def leaders_and_isrs(admin: AdminClient, topics: int) -> Iterator[tuple[int, int]]:
    """The leader of each partition, and how many are in sync."""
    found = admin.list_topics(timeout=60).topics
    for name in names(topics):
        for number in range(PARTITIONS):
            partition = found[name].partitions.get(number) if name in found else None
            yield (-1, 0) if partition is None else (partition.leader, len(partition.isrs))


def seconds_until(true: Callable[[], bool], begin: float) -> float:
    """From `begin` until that is so; raises RuntimeError."""
    while not true():
        if time.monotonic() - begin > PATIENCE_S:
            raise RuntimeError(f"not so after {PATIENCE_S:.0f} s")
        time.sleep(0.05)
    return round(time.monotonic() - begin, 2)


def create(target: Target, admin: AdminClient, topics: int) -> float:
    """Make them all, and wait for all their replicas."""
    begin = time.monotonic()
    for some in slices(names(topics)):
        wanted = [NewTopic(name, PARTITIONS, NODES, config={"min.insync.replicas": "2"}) for name in some]
        for made in admin.create_topics(wanted, operation_timeout=60, request_timeout=120).values():
            made.result(PATIENCE_S)
    return seconds_until(lambda: all(isr == NODES for _, isr in leaders_and_isrs(admin, topics)), begin)


def slices(all_of: Sequence[str]) -> list[Sequence[str]]:
    """AT_ONCE each."""
    return [all_of[first : first + AT_ONCE] for first in range(0, len(all_of), AT_ONCE)]


def write_to_all(producer: Producer, topics: int, begin: float) -> float:
    """A record into every partition, acknowledged; seconds since `begin`."""
    refused: list[Any] = []

    def told(error: Any, _message: Any) -> None:
        if error is not None:
            refused.append(error)

    for name in names(topics):
        for number in range(PARTITIONS):
            producer.produce(name, b"x", partition=number, on_delivery=told)
    if producer.flush(PATIENCE_S) or refused:
        raise RuntimeError(f"not all records were acknowledged: {refused[:1]}")
    return round(time.monotonic() - begin, 2)


def one_round(target: Target, topics: int = TOPICS) -> dict[str, float]:
    """Everything, on a fresh cluster."""
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    settings: Mapping[str, Any] = {"bootstrap.servers": target.bootstrap, "acks": "all", "linger.ms": 5}
    producer = Producer(dict(settings))
    found = {"create_s": create(target, admin, topics)}
    found["write_s"] = write_to_all(producer, topics, time.monotonic())
    found["rss_mb_a_node"] = round(max(rss_mb(pid) for pid in target.pids()))
    begin = time.monotonic()
    target.kill(VICTIM)
    found["led_s"] = seconds_until(
        lambda: all(leader not in (VICTIM, -1) for leader, _ in leaders_and_isrs(admin, topics)), begin
    )
    found["failover_write_s"] = write_to_all(producer, topics, begin)
    begin = time.monotonic()
    target.restart(VICTIM)
    found["start_s"] = round(time.monotonic() - begin, 2)
    found["in_sync_s"] = seconds_until(lambda: all(isr == NODES for _, isr in leaders_and_isrs(admin, topics)), begin)
    return found


def run(folder: Path, *, with_peers: bool, rounds: int) -> None:
    """Measure, alternating the clusters, each alone on the machine."""
    starters = {"tidemill": ours} | ({"kafka": kafka} if with_peers else {})
    found: dict[str, list[dict[str, float]]] = {name: [] for name in starters}
    for number in range(rounds):
        for name, starter in starters.items():
            with starter(folder / f"{name}-{number}") as target:
                found[name].append(one_round(target))
    results = {
        name: {key: statistics.median(each[key] for each in some) for key in MEASURES} for name, some in found.items()
    }
    we, they = results["tidemill"], results.get("kafka")
    ratios = {} if they is None else {key: ratio(we[key], they[key]) for key in MEASURES}
    emit("cluster_many", {"rounds": rounds, "topics": TOPICS, "partitions": PARTITIONS, **results, "ratios": ratios})
