"""Who is in the cluster of a world, and how patient its nodes are with one another

One node is a cluster of its own, with no setting that says so. Of several all are controllers, or, in half of the
worlds of five, three are and two are brokers only. Sessions and elections are shorter than anybody would choose, so
that a world sees many of them, and in some worlds shorter still than the network's worst moments.
"""

import random
from collections.abc import Mapping
from dataclasses import replace

from tidemill.broker.config import BrokerConfig

PORT = 9092
CONTROLLER_PORT = 9093
CLUSTER_ID = "dGlkZW1pbGwtY2x1c3Rlcg"

REPLICAS_MAX = 3

FETCH_BYTES, SNAPSHOT_BYTES = 2000, 400
"""Of the metadata that one answer has."""

PATIENCE: Mapping[str, tuple[str, ...]] = {
    "broker.heartbeat.interval.ms": ("200", "500"),
    "broker.session.timeout.ms": ("1000", "2000", "6000"),
    "controller.quorum.election.timeout.ms": ("300", "1000"),
    "controller.quorum.fetch.timeout.ms": ("1500", "2000"),
    "controller.quorum.election.backoff.max.ms": ("200", "1000"),
    "controller.quorum.request.timeout.ms": ("500", "2000"),
    "leader.imbalance.check.interval.seconds": ("5", "300"),
    "leader.imbalance.per.broker.percentage": ("0", "10"),
    "replica.fetch.wait.max.ms": ("300", "500"),
    "replica.lag.time.max.ms": ("800", "2000", "10000"),
}

UNHURRIED = {"initial.broker.registration.timeout.ms": "120000"}


def name_of(node_id: int) -> str:
    """The place of a node."""
    return f"node-{node_id}"


def node_settings(nodes: int, seed: int) -> dict[int, dict[str, str]]:
    """What the file of each node says of its cluster, by node id."""
    if nodes == 1:
        return {1: {"listeners": f"PLAINTEXT://{name_of(1)}:{PORT}"}}
    rng = random.Random(f"{seed} topology")
    shared = {key: rng.choice(values) for key, values in PATIENCE.items()}
    controllers = 3 if nodes > 3 and rng.random() < 0.5 else nodes
    voters = ",".join(f"{node}@{name_of(node)}:{CONTROLLER_PORT}" for node in range(1, controllers + 1))
    found = {}
    for node in range(1, nodes + 1):
        settings = {
            **shared,
            **UNHURRIED,
            "node.id": str(node),
            "cluster.id": CLUSTER_ID,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{name_of(node)}:{PORT}",
        }
        if node <= controllers:
            settings["listeners"] += f",CONTROLLER://{name_of(node)}:{CONTROLLER_PORT}"
        else:
            settings["process.roles"] = "broker"
        found[node] = settings
    return found


def in_small_pieces(config: BrokerConfig) -> BrokerConfig:
    """The same, where metadata come in pieces that are not the whole; what Kafka has no setting for."""
    if config.cluster is None:
        return config
    quorum = replace(config.cluster.quorum, fetch_bytes_max=FETCH_BYTES, snapshot_bytes_max=SNAPSHOT_BYTES)
    return replace(config, cluster=replace(config.cluster, quorum=quorum))
