"""Who is in the cluster of a world, and how patient its nodes are with one another

One node is a cluster of its own, with no setting that says so. Several are of one of three shapes: all are brokers and
controllers; or, where there are five, two are brokers only; or two are controllers only and two brokers only. In half
of these worlds the voters are configured, in the other half they are those of the metadata log, and may change.

Sessions and elections are shorter than anybody would choose, so that a world sees many of them.
"""

import random
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from tidemill.broker.config import RACK_AWARE, BrokerConfig
from tidemill.core.ids import encode_id

PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
CLUSTER_ID: Final = "dGlkZW1pbGwtY2x1c3Rlcg"

REPLICAS_MAX: Final = 3

FETCH_BYTES, SNAPSHOT_BYTES = 2000, (400, 400, 100)
"""Of the metadata that one answer has; of a snapshot by chance."""

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

UNHURRIED = {
    "initial.broker.registration.timeout.ms": "120000",
    "default.replication.factor": str(REPLICAS_MAX),
    "offsets.topic.replication.factor": str(REPLICAS_MAX),
}


NEAR, FAR = "near", "far"
"""The racks of a world in which consumers read near by."""


def reads_nearby(nodes: int, seed: int) -> bool:
    """Whether followers are read (KIP-392): in one cluster of four."""
    return nodes > 1 and random.Random(f"{seed} nearby").random() < 0.25


class Shape(NamedTuple):
    """Which nodes are what; `first_voters` is empty where every node's settings name the voters."""

    brokers: tuple[int, ...]
    controllers: tuple[int, ...]
    first_voters: str


def name_of(node_id: int) -> str:
    """The place of a node."""
    return f"node-{node_id}"


def directory_of(node_id: int) -> uuid.UUID:
    """The id of the folder of one of the first voters."""
    return uuid.UUID(int=0x7D << 96 | node_id)


def shape_of(nodes: int, seed: int) -> Shape:
    """Of a world."""
    every = tuple(range(1, nodes + 1))
    rng = random.Random(f"{seed} shape")
    brokers, controllers = every, every
    if nodes > 3:
        brokers, controllers = rng.choice(((every, every), (every, every[:3]), (every[:3], every[2:])))
    first_voters = ""
    if nodes > 1 and rng.random() < 0.5:
        first_voters = ",".join(
            f"{node}@{name_of(node)}:{CONTROLLER_PORT}:{encode_id(directory_of(node))}" for node in controllers
        )
    return Shape(brokers, controllers, first_voters)


def node_settings(nodes: int, seed: int) -> dict[int, dict[str, str]]:
    """What the file of each node says of its cluster, by node id."""
    if nodes == 1:
        return {1: {"listeners": f"PLAINTEXT://{name_of(1)}:{PORT}"}}
    rng = random.Random(f"{seed} topology")
    shape = shape_of(nodes, seed)
    shared = {
        **{key: rng.choice(values) for key, values in PATIENCE.items()},
        **UNHURRIED,
        "cluster.id": CLUSTER_ID,
        "controller.listener.names": "CONTROLLER",
    }
    addresses = {node: f"{name_of(node)}:{CONTROLLER_PORT}" for node in shape.controllers}
    if shape.first_voters:
        shared["controller.quorum.bootstrap.servers"] = ",".join(addresses.values())
    else:
        shared["controller.quorum.voters"] = ",".join(f"{node}@{address}" for node, address in addresses.items())
    if reads_nearby(nodes, seed):
        shared["replica.selector.class"] = RACK_AWARE
        racks = {node: {"broker.rack": NEAR if node % 2 else FAR} for node in range(1, nodes + 1)}
    else:
        racks = {}
    return {node: {**shared, **_own(node, shape), **racks.get(node, {})} for node in range(1, nodes + 1)}


def _own(node: int, shape: Shape) -> dict[str, str]:
    roles, listeners = [], []
    if node in shape.brokers:
        roles.append("broker")
        listeners.append(f"PLAINTEXT://{name_of(node)}:{PORT}")
    if node in shape.controllers:
        roles.append("controller")
        listeners.append(f"CONTROLLER://{name_of(node)}:{CONTROLLER_PORT}")
    return {"node.id": str(node), "process.roles": ",".join(roles), "listeners": ",".join(listeners)}


def in_small_pieces(config: BrokerConfig, seed: int) -> BrokerConfig:
    """The same, where metadata come in pieces that are not the whole; what Kafka has no setting for."""
    if config.cluster is None:
        return config
    snapshot_bytes = random.Random(f"{seed} pieces").choice(SNAPSHOT_BYTES)
    quorum = replace(config.cluster.quorum, fetch_bytes_max=FETCH_BYTES, snapshot_bytes_max=snapshot_bytes)
    return replace(config, cluster=replace(config.cluster, quorum=quorum))
