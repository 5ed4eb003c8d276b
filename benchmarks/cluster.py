"""Three nodes: how fast they copy, and how long clients wait when one dies

Tidemill and Apache Kafka, three nodes each on this machine, every node broker and controller, replication factor 3,
`min.insync.replicas=2`, acks=all, the same librdkafka client, neither with an fsync for each batch. Only one cluster
runs at a time. Settings are the defaults otherwise: the gap is what a user sees who has set nothing.

EndToEndLatency is Kafka's own tool, and so is there only where Kafka is.

The gap is the longest time between two acknowledgements around a kill -9 of the partition's leader, of an idempotent
producer that sends a record every two milliseconds.
"""

import contextlib
import itertools
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # re-exported without saying so

from benchmarks import peers
from benchmarks.broker import send
from benchmarks.measure import emit, ratio, rss_mb
from tidemill.free_ports import free_ports
from tidemill.services import Cluster

NODES = 3
PARTITIONS = 3
CASES = {"1000B_16K": (1000, 16_384, 100_000), "1000B_1M": (1000, 1_048_576, 200_000)}
"""name: (record bytes, batch.size, records)."""
WARM = (1000, 16_384, 200_000)
"""What is sent before anything is measured, again and again: Kafka's is a virtual machine that compiles while it works,
and three of them share the processors with what they compile. A single round of it left theirs at a fifth."""
WARM_ROUNDS = 12
"""At most; two that are no faster by a twentieth than the fastest before are enough."""
ROUND_TRIPS = 500
ROUND_TRIPS_BEFORE = 1000
"""Not counted: connections are made, and code gets warm."""
END_TO_END = re.compile(r"Avg latency: ([\d.]+) ms.*?99th = ([\d.]+)", re.DOTALL)
"""Of Kafka's EndToEndLatency, whose percentiles are whole milliseconds."""
END_TO_ENDS = 10_000
NO_FSYNC = {"flush.policy": "os"}
"""What makes our durability that of Apache Kafka's defaults."""
KILLS = 3
"""Leaders killed in each round."""
BEFORE_S = 1.0
"""So long all is well before a kill."""
GAP_MAX_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A running cluster; `pids` are asked for anew after a kill."""

    name: str
    bootstrap: str
    pids: Callable[[], list[int]]
    kill: Callable[[int], None]
    ask_to_end: Callable[[int], None]
    """SIGTERM, and go on at once."""
    stop: Callable[[int], None]
    restart: Callable[[int], None]
    """Start it again, once it has ended."""


@contextlib.contextmanager
def ours(folder: Path, settings: Mapping[str, str] = NO_FSYNC) -> Iterator[Target]:
    """Three Tidemill nodes."""
    folder.mkdir(parents=True)
    cluster = Cluster("bench", folder, free_ports(2 * NODES), settings=settings).start()

    def restart(node: int) -> None:
        cluster.nodes[node].stop(60)
        cluster.nodes[node].start()

    try:
        yield Target(
            name="tidemill",
            bootstrap=cluster.bootstrap,
            pids=lambda: [node.pid for node in cluster.nodes.values()],
            kill=lambda node: cluster.nodes[node].kill(),
            ask_to_end=lambda node: cluster.nodes[node].ask_to_end(),
            stop=lambda node: cluster.nodes[node].stop(),
            restart=restart,
        )
    finally:
        cluster.kill()


@contextlib.contextmanager
def kafka(folder: Path, *, heap: str = "1G", settings: Mapping[str, str] | None = None) -> Iterator[Target]:
    """Three nodes of Apache Kafka."""
    ports = free_ports(2 * NODES)
    clients, controllers = ports[:NODES], ports[NODES:]
    voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(controllers, 1))
    cluster_id = peers.cluster_id()
    files: dict[int, Path] = {}
    for node, (port, controller) in enumerate(zip(clients, controllers, strict=True), 1):
        home = folder / f"node-{node}"
        home.mkdir(parents=True)
        files[node] = home / "server.properties"
        values = {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(home / "data"),
            **(settings or {}),
        }
        files[node].write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        peers.run_tool("kafka.tools.StorageTool", ["format", "-t", cluster_id, "-c", str(files[node])])
    running: dict[int, peers.Peer] = {}

    def begin(node: int) -> None:
        running[node] = peers.java(
            f"node-{node}", "kafka.Kafka", [str(files[node])], files[node].parent, heap=heap, first_heap=heap
        )

    def restart(node: int) -> None:
        running[node].process.wait(60)
        begin(node)
        peers.wait_for_port(running[node], clients[node - 1])

    def kill(node: int) -> None:
        running[node].process.kill()
        running[node].process.wait()

    try:
        for node in files:
            begin(node)
        for node, peer in running.items():
            peers.wait_for_port(peer, clients[node - 1])
        yield Target(
            name="kafka",
            bootstrap=",".join(f"127.0.0.1:{port}" for port in clients),
            pids=lambda: [peer.pid for peer in running.values()],
            kill=kill,
            ask_to_end=lambda node: running[node].process.terminate(),
            stop=lambda node: running[node].stop(),
            restart=restart,
        )
    finally:
        for peer in running.values():
            peer.process.kill()
            peer.process.wait()


def new_topic(target: Target, name: str, partitions: int) -> AdminClient:
    """Make it, and wait until all replicas of all its partitions are in sync."""
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    config = {"min.insync.replicas": "2"}
    made = admin.create_topics([NewTopic(name, partitions, NODES, config=config)])
    made[name].result(30)
    peers.wait_until(lambda: all(is_well(admin, name, each) for each in range(partitions)), 60, f"{name} in sync")
    return admin


def is_well(admin: AdminClient, topic: str, partition: int) -> bool:
    """Whether somebody leads the partition, and all its replicas are in sync."""
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions.get(partition)
    return found is not None and found.leader > 0 and len(found.isrs) == NODES


def produce(target: Target, topic: str, size: int, batch: int, count: int) -> dict[str, float]:
    """MB/s, and the CPU seconds of all nodes for a gigabyte."""
    new_topic(target, topic, PARTITIONS)
    client = {"bootstrap.servers": target.bootstrap, "acks": "all"}
    usage = send(client, target.pids(), topic, size, batch, count, ahead=100_000)
    bytes_sent = size * count
    return {
        "mb_s": round(bytes_sent / usage.wall_s / 1e6, 1),
        "cpu_s_per_gb": round(usage.cpu_s / bytes_sent * 1e9, 2),
    }


def round_trips(target: Target) -> dict[str, float]:
    """Milliseconds from a record of 100 bytes to its acknowledgement by all replicas, one at a time."""
    new_topic(target, "round-trips", 1)
    producer = Producer({"bootstrap.servers": target.bootstrap, "acks": "all", "linger.ms": 0})
    took = []
    for number in range(ROUND_TRIPS_BEFORE + ROUND_TRIPS):
        begin = time.perf_counter()
        producer.produce("round-trips", bytes(100))
        if producer.flush(30):
            raise RuntimeError(f"{target.name} did not acknowledge a record")
        if number >= ROUND_TRIPS_BEFORE:
            took.append((time.perf_counter() - begin) * 1000)
    took.sort()
    return {"p50_ms": round(took[len(took) // 2], 3), "p99_ms": round(took[len(took) * 99 // 100], 3)}


def end_to_end(target: Target) -> dict[str, float]:
    """Milliseconds from a record of 100 bytes, acks=all, to its consumer; Kafka's own tool in Java."""
    new_topic(target, "end-to-end", 1)
    printed = peers.run_tool(
        "org.apache.kafka.tools.EndToEndLatency",
        [
            "--bootstrap-server", target.bootstrap, "--topic", "end-to-end", "--num-records", str(END_TO_ENDS),
            "--producer-acks", "all", "--record-size", "100",
        ],
    )  # fmt: skip
    found = END_TO_END.search(printed)
    if found is None:
        raise RuntimeError(f"EndToEndLatency printed {printed[-500:]!r}")
    average, p99 = map(float, found.groups())
    return {"mean_ms": round(average, 3), "p99_ms": p99}


def gap_s(
    target: Target,
    admin: AdminClient,
    topic: str,
    harm: Callable[[int], None],
    client: Mapping[str, Any] = MappingProxyType({}),
) -> float:
    """Seconds between two acknowledgements around what is done to the leader; the node is back afterwards.

    `harm` gets the leader, and returns at once; `client` is what the producer has beside its defaults.
    """
    acknowledged: list[float] = []
    lost: list[Any] = []

    def told(error: Any, _message: Any) -> None:
        if error is None:
            acknowledged.append(time.monotonic())
        else:
            lost.append(error)

    settings: Mapping[str, Any] = {
        "bootstrap.servers": target.bootstrap,
        "enable.idempotence": True,
        "linger.ms": 0,
        **client,
    }
    producer = Producer(dict(settings))
    begin = time.monotonic()
    killed, victim = 0.0, 0
    while True:
        producer.produce(topic, b"x", on_delivery=told)
        producer.poll(0.002)
        now = time.monotonic()
        if not killed and acknowledged and now - acknowledged[0] > BEFORE_S:
            victim = admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader
            killed = time.monotonic()
            harm(victim)
        if killed and acknowledged[-1] > killed + BEFORE_S and now - acknowledged[-1] < BEFORE_S / 2:
            break
        if now - (acknowledged[-1] if acknowledged else begin) > GAP_MAX_S:
            raise RuntimeError(f"{target.name} acknowledges nothing; harmed was node {victim or 'none'}")
    if producer.flush(GAP_MAX_S) or lost:
        raise RuntimeError(f"{target.name} refused records: {lost[:1]}")
    target.restart(victim)
    return longest([each for each in acknowledged if each > killed - BEFORE_S / 2])


def longest(moments: Sequence[float]) -> float:
    """The longest time between two of them."""
    return max(after - before for before, after in itertools.pairwise(moments))


def warm_up(target: Target) -> None:
    """Send until it gets no faster."""
    fastest, since = 0.0, 0
    for number in range(WARM_ROUNDS):
        speed = produce(target, f"warm-{number}", *WARM)["mb_s"]
        since = 0 if speed > fastest * 1.05 else since + 1
        fastest = max(fastest, speed)
        if since == 2:
            return


def one_round(target: Target, with_tool: bool) -> dict[str, Any]:
    """Everything, on a fresh cluster; what Kafka's tool says too where there is one."""
    warm_up(target)
    cases: dict[str, Any] = {case: produce(target, case, *sizes) for case, sizes in CASES.items()}
    cases["round_trip"] = round_trips(target)
    if with_tool:
        cases["end_to_end"] = end_to_end(target)
    memory = max(rss_mb(pid) for pid in target.pids())
    admin = new_topic(target, "killed", 1)
    gaps = []
    for _ in range(KILLS):
        peers.wait_until(lambda: is_well(admin, "killed", 0), 120, "all replicas in sync")
        gaps.append(gap_s(target, admin, "killed", target.kill))
    return {"cases": cases, "rss_mb_a_node": memory, "gaps_s": gaps}


def run(folder: Path, *, with_peers: bool, rounds: int) -> None:
    """Measure, alternating the clusters, each alone on the machine."""
    starters = {"tidemill": ours} | ({"kafka": kafka} if with_peers else {})
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in starters}
    for number in range(rounds):
        for name, starter in starters.items():
            with starter(folder / f"{name}-{number}") as target:
                found[name].append(one_round(target, with_peers))
    results = {name: summary(each) for name, each in found.items()}
    emit("cluster", {"rounds": rounds, "nodes": NODES, **results, "ratios": ratios(results)})


def summary(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Medians of the rounds; gaps of all of them together."""
    first = rounds[0]["cases"]
    gaps = sorted(gap for each in rounds for gap in each["gaps_s"])
    return {
        **{
            case: {key: statistics.median(each["cases"][case][key] for each in rounds) for key in first[case]}
            for case in first
        },
        "rss_mb_a_node": round(max(each["rss_mb_a_node"] for each in rounds)),
        "gap": {"kills": len(gaps), "median_s": round(statistics.median(gaps), 3), "max_s": round(gaps[-1], 3)},
    }


def ratios(results: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    """Ours over Kafka's; empty where it was not measured."""
    kafka_s, we = results.get("kafka"), results["tidemill"]
    if kafka_s is None:
        return {}
    return {
        **{f"{case}_mb_s": ratio(we[case]["mb_s"], kafka_s[case]["mb_s"]) for case in CASES},
        **{f"{case}_cpu": ratio(we[case]["cpu_s_per_gb"], kafka_s[case]["cpu_s_per_gb"]) for case in CASES},
        **{
            f"round_trip_{each}": ratio(we["round_trip"][f"{each}_ms"], kafka_s["round_trip"][f"{each}_ms"])
            for each in ("p50", "p99")
        },
        **{
            f"end_to_end_{each}": ratio(we["end_to_end"][f"{each}_ms"], kafka_s["end_to_end"][f"{each}_ms"])
            for each in ("mean", "p99")
        },
        "rss": ratio(we["rss_mb_a_node"], kafka_s["rss_mb_a_node"]),
        "gap_median": ratio(we["gap"]["median_s"], kafka_s["gap"]["median_s"]),
        "gap_max": ratio(we["gap"]["max_s"], kafka_s["gap"]["max_s"]),
    }
