"""How long a leader is missed: killed, and asked to end

Tidemill and Apache Kafka, three nodes each on this machine, with the defaults of each, replication factor 3, acks=all,
an idempotent producer of librdkafka that sends a record every two milliseconds. The gap is the longest time between two
acknowledgements around what happens to the leader: a kill -9, or a SIGTERM, which is how a node is restarted in order.

When a leader hands over, librdkafka's default waits 0.08 to 0.12 s before it sends again what the old one refused
(`retry.backoff.ms`), whoever leads by then. `restart_eager` is the same with a client that waits 10 ms: what is left is
the cluster's own part. `restart_java` is Kafka's VerifiableProducer, the Java client with its defaults, which does not
wait when the refusal names the new leader (KIP-951); its clock has whole milliseconds.
"""

import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from benchmarks import peers
from benchmarks.cluster import (
    BEFORE_S,
    GAP_MAX_S,
    WARM,
    Target,
    gap_s,
    is_well,
    kafka,
    longest,
    new_topic,
    ours,
    produce,
)
from benchmarks.measure import emit, ratio

TIMES = 10
"""Leaders killed, and leaders asked to end, of each cluster."""
TOPIC = "harmed"
EAGER = {"retry.backoff.ms": 10, "retry.backoff.max.ms": 100}
JAVA_RECORDS_S = 500
JAVA_DEFAULTS = "enable.idempotence=true\nretries=2147483647\n"
"""What the tool would set otherwise."""
JAVA_WARM_S = 5.0
"""Its virtual machine compiles what it uses."""


def one_cluster(target: Target, folder: Path) -> dict[str, Any]:
    """Its gaps."""
    produce(target, "warm", *WARM)
    admin = new_topic(target, TOPIC, 1)
    harms: dict[str, tuple[Callable[[int], None], dict[str, int]]] = {
        "kill": (target.kill, {}),
        "restart": (target.ask_to_end, {}),
        "restart_eager": (target.ask_to_end, EAGER),
    }
    gaps: dict[str, list[float]] = {name: [] for name in harms}
    for _ in range(TIMES):
        for name, (harm, client) in harms.items():
            peers.wait_until(lambda: is_well(admin, TOPIC, 0), 120, "all replicas in sync")
            gaps[name].append(gap_s(target, admin, TOPIC, harm, client))
    gaps["restart_java"] = java_gaps_s(target, admin, folder)
    return {name: summary(found) for name, found in gaps.items()}


def java_gaps_s(target: Target, admin: AdminClient, folder: Path) -> list[float]:
    """Those that one producer of Kafka's has while leader after leader is asked to end and started again."""
    folder.mkdir(parents=True)
    settings = folder / "producer.properties"
    settings.write_text(JAVA_DEFAULTS)
    tool = peers.java(
        "verifiable-producer",
        "org.apache.kafka.tools.VerifiableProducer",
        [
            "--bootstrap-server", target.bootstrap, "--topic", TOPIC, "--acks", "-1",
            "--throughput", str(JAVA_RECORDS_S), "--command-config", str(settings),
        ],
        folder,
    )  # fmt: skip
    harms: list[float] = []
    try:
        peers.wait_until(lambda: "producer_send_success" in tool.log.read_text(), GAP_MAX_S, "a record of Java's")
        time.sleep(JAVA_WARM_S)
        for _ in range(TIMES):
            peers.wait_until(lambda: is_well(admin, TOPIC, 0), 120, "all replicas in sync")
            time.sleep(BEFORE_S)
            leader = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions[0].leader
            harms.append(time.time())
            target.ask_to_end(leader)
            target.restart(leader)
            time.sleep(BEFORE_S)
    finally:
        tool.stop()
    moments, begins = java_acknowledgements(tool.log), [harm - BEFORE_S / 2 for harm in harms]
    windows = zip(begins, [*begins[1:], time.time()], strict=True)
    return [longest([each for each in moments if begin <= each < end]) for begin, end in windows]


def java_acknowledgements(log: Path) -> list[float]:
    """When the tool heard of each record, in seconds; raises RuntimeError if one failed."""
    told = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    if failed := [each for each in told if each["name"] == "producer_send_error"]:
        raise RuntimeError(f"a record of Java's failed: {failed[0]}")
    return sorted(each["timestamp"] / 1000 for each in told if each["name"] == "producer_send_success")


def summary(gaps: Sequence[float]) -> dict[str, Any]:
    """Median and maximum, and all of them in the order in which they were measured."""
    return {
        "median_s": round(statistics.median(gaps), 3),
        "max_s": round(max(gaps), 3),
        "all_s": [round(gap, 3) for gap in gaps],
    }


def run(folder: Path, *, with_peers: bool, rounds: int) -> None:
    """Measure; each cluster is alone on the machine, once, however many rounds are wanted."""
    results = {}
    with ours(folder / "tidemill", {}) as target:
        results["tidemill"] = one_cluster(target, folder / "java")
    ratios: dict[str, float | None] = {}
    if with_peers:
        with kafka(folder / "kafka") as target:
            results["kafka"] = one_cluster(target, folder / "java-kafka")
        for name in ("kill", "restart", "restart_eager", "restart_java"):
            for which in ("median_s", "max_s"):
                ratios[f"{name}_{which}"] = ratio(results["tidemill"][name][which], results["kafka"][name][which])
    emit("failover", {"times": TIMES, **results, "ratios": ratios})
