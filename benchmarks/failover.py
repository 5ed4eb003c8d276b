"""How long a leader is missed: killed, and asked to end

Tidemill and Apache Kafka, three nodes each on this machine, with the defaults of each, replication factor 3, acks=all,
an idempotent producer of librdkafka that sends a record every two milliseconds. The gap is the longest time between two
acknowledgements around what happens to the leader: a kill -9, or a SIGTERM, which is how a node is restarted in order.

When a leader hands over, librdkafka's default waits 0.08 to 0.12 s before it sends again what the old one refused
(`retry.backoff.ms`), whoever leads by then. `restart_eager` is the same with a client that waits 10 ms: what is left is
the cluster's own part.
"""

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.cluster import WARM, Target, gap_s, is_well, kafka, new_topic, ours, produce
from benchmarks.measure import emit, ratio

TIMES = 10
"""Leaders killed, and leaders asked to end, of each cluster."""
TOPIC = "harmed"
EAGER = {"retry.backoff.ms": 10, "retry.backoff.max.ms": 100}


def one_cluster(target: Target) -> dict[str, Any]:
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
    return {name: summary(found) for name, found in gaps.items()}


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
        results["tidemill"] = one_cluster(target)
    ratios: dict[str, float | None] = {}
    if with_peers:
        with kafka(folder / "kafka") as target:
            results["kafka"] = one_cluster(target)
        for name in ("kill", "restart", "restart_eager"):
            for which in ("median_s", "max_s"):
                ratios[f"{name}_{which}"] = ratio(results["tidemill"][name][which], results["kafka"][name][which])
    emit("failover", {"times": TIMES, **results, "ratios": ratios})
