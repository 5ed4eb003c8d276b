"""What a node's settings say of its cluster, where it is one of several

`controller.quorum.voters` lists the controllers that agree on the metadata, as Kafka's files write them. A node that
finds nobody but itself there, or no such setting, is a cluster of its own and needs nothing of what is here.

Some of Kafka's terms are not honoured yet, and are refused with a sentence rather than taken for something else: a node
that is a controller only, and voters found by `controller.quorum.bootstrap.servers`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.broker.listeners import ListenAddress, Listeners
from tidemill.broker.quorum.lifecycle import LifeSettings
from tidemill.broker.quorum.raft.settings import QuorumSettings
from tidemill.broker.quorum.raft.voters import VoterSet, parse_voters
from tidemill.broker.replication.fetching import FetchSettings
from tidemill.core.config import ConfigError, Value

CONTROLLER = "controller"

EVERY_INTERFACE = frozenset({"", "0.0.0.0", "::"})

SHUTDOWN_TIMEOUT_MS = 10_000
"""So long a broker that is told to stop waits for others to take over: they may be stopping too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """One node's place among several; times in milliseconds.

    `cluster_id` is None where only the folder knows it. `controller` is where this node's controller listens for the
    others, None on a node that has none.
    """

    voters: VoterSet
    cluster_id: str | None
    controller: ListenAddress | None
    quorum: QuorumSettings
    life: LifeSettings
    session_timeout_ms: int
    balance_interval_ms: int
    leader_imbalance_percentage: int
    fetch: FetchSettings


def is_one_of_several(values: Mapping[str, Value]) -> bool:
    """Whether these settings name controllers on other nodes."""
    named = _text(values, "controller.quorum.voters")
    others = [each for each in named.split(",") if each.strip()]
    return len(others) > 1 or (len(others) == 1 and CONTROLLER not in _roles(values))


def read_cluster(values: Mapping[str, Value], listening: Listeners) -> ClusterSettings:
    """The cluster that parsed settings name; raises ConfigError with every mistake."""
    voters = parse_voters(_text(values, "controller.quorum.voters"))
    problems = list(_problems(values, voters, listening))
    controller = next(iter(listening.controllers), None) if CONTROLLER in _roles(values) else None
    if problems:
        raise ConfigError(problems)
    return ClusterSettings(
        voters=voters,
        cluster_id=_text(values, "cluster.id") or None,
        controller=controller,
        quorum=QuorumSettings(
            election_timeout_ms=_number(values, "controller.quorum.election.timeout.ms"),
            fetch_timeout_ms=_number(values, "controller.quorum.fetch.timeout.ms"),
            election_backoff_max_ms=_number(values, "controller.quorum.election.backoff.max.ms"),
            request_timeout_ms=_number(values, "controller.quorum.request.timeout.ms"),
        ),
        life=LifeSettings(
            heartbeat_interval_ms=_number(values, "broker.heartbeat.interval.ms"),
            registration_timeout_ms=_number(values, "initial.broker.registration.timeout.ms"),
            shutdown_timeout_ms=SHUTDOWN_TIMEOUT_MS,
        ),
        session_timeout_ms=_number(values, "broker.session.timeout.ms"),
        balance_interval_ms=_number(values, "leader.imbalance.check.interval.seconds") * 1000,
        leader_imbalance_percentage=_number(values, "leader.imbalance.per.broker.percentage"),
        fetch=FetchSettings(
            replica_fetch_wait_max_ms=_number(values, "replica.fetch.wait.max.ms"),
            replica_fetch_min_bytes=_number(values, "replica.fetch.min.bytes"),
            replica_fetch_max_bytes=_number(values, "replica.fetch.max.bytes"),
            replica_fetch_response_max_bytes=_number(values, "replica.fetch.response.max.bytes"),
            replica_fetch_backoff_ms=_number(values, "replica.fetch.backoff.ms"),
        ),
    )


def _problems(values: Mapping[str, Value], voters: VoterSet, listening: Listeners) -> list[str]:
    node_id, roles = _number(values, "node.id"), _roles(values)
    found = []
    if roles == {CONTROLLER}:
        found.append(
            "Configuration 'process.roles' is controller only: a node without a broker cannot be started yet; write "
            "broker,controller"
        )
    elif CONTROLLER in roles and node_id not in voters:
        found.append(
            f"Configuration 'controller.quorum.voters' does not name this node (node.id={node_id}), which is to be a "
            "controller: add it there on every node, or set process.roles=broker"
        )
    elif CONTROLLER not in roles and node_id in voters:
        found.append(
            f"Configuration 'controller.quorum.voters' names this node (node.id={node_id}), which is to be a broker "
            "only: take it out there on every node, or set process.roles=broker,controller"
        )
    elif CONTROLLER in roles and not listening.controllers:
        found.append(
            "Configuration 'controller.listener.names' names no listener of 'listeners': the other controllers cannot "
            "reach this one; for example listeners=PLAINTEXT://host:9092,CONTROLLER://host:9093 and "
            "controller.listener.names=CONTROLLER"
        )
    found += [
        f"Configuration 'listeners': {each} needs a port, for the other nodes have to know it"
        for each in listening.controllers
        if CONTROLLER in roles and not each.port
    ]
    found += [
        f"Configuration 'listeners': {each} needs a port: the other nodes are told it before it is open"
        for each in listening.listen
        if not each.port
    ]
    found += [
        f"Configuration 'advertised.listeners' names no host for {each}, and the other nodes have to find it: add "
        f"{each.name}://HOST:{each.port}"
        for each in listening.listen
        if listening.advertised.get(each.name, each).host in EVERY_INTERFACE
    ]
    found += listening.control_problems
    if listening.inter_broker not in listening.specs:
        found.append(f"Configuration 'inter.broker.listener.name': {listening.inter_broker} is not in listeners")
    if _number(values, "broker.session.timeout.ms") <= _number(values, "broker.heartbeat.interval.ms"):
        found.append("Configuration 'broker.session.timeout.ms' is not longer than broker.heartbeat.interval.ms")
    return found


def _roles(values: Mapping[str, Value]) -> set[str]:
    roles = values["process.roles"]
    assert isinstance(roles, tuple)
    return {str(each) for each in roles}


def _text(values: Mapping[str, Value], name: str) -> str:
    value = values[name]
    return "" if value is None else str(value)


def _number(values: Mapping[str, Value], name: str) -> int:
    value = values[name]
    assert isinstance(value, int)
    return value
