"""What a node's settings say of its cluster, where it is one of several

`controller.quorum.voters` lists the controllers that agree on the metadata, as Kafka's files write them, for good.
Without it `controller.quorum.bootstrap.servers` has addresses where somebody knows who leads, and the voters are those
of the metadata log, where they may change. A node that finds nobody but itself there, or neither setting, is a cluster
of its own and needs nothing of what is here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidemill.broker.listeners import ListenAddress, Listeners
from tidemill.broker.quorum.lifecycle import LifeSettings
from tidemill.broker.quorum.raft.settings import QuorumSettings
from tidemill.broker.quorum.raft.voters import VoterSet, parse_bootstrap_servers, parse_voters
from tidemill.broker.replication.fetching import FetchSettings
from tidemill.core.config import ConfigError, Value

CONTROLLER = "controller"

THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})

SHUTDOWN_TIMEOUT_MS = 10_000
"""So long a broker that is told to stop waits for others to take over: they may be stopping too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """One node's place among several; times in milliseconds.

    `cluster_id` is None where only the folder knows it. `controller` is where this node's controller listens for the
    others, `told` what they are told of that; both are None on a node that has none. `voters` is empty where the
    metadata log has them, and `bootstrap` the addresses of nodes that may know who leads.
    """

    voters: VoterSet
    bootstrap: tuple[tuple[str, int], ...]
    told: ListenAddress | None
    cluster_id: str | None
    controller: ListenAddress | None
    quorum: QuorumSettings
    life: LifeSettings
    session_timeout_ms: int
    balance_interval_ms: int
    leader_imbalance_percentage: int
    fetch: FetchSettings


def is_one_of_several(values: Mapping[str, Value], listening: Listeners) -> bool:
    """Whether these settings name other controllers, or this one is but half a node; raises ConfigError."""
    named = _text(values, "controller.quorum.voters")
    voters = [each for each in named.split(",") if each.strip()]
    servers = parse_bootstrap_servers(_text(values, "controller.quorum.bootstrap.servers"))
    if (voters or servers) and len(_roles(values)) == 1:
        return True
    return len(voters) > 1 or (not voters and not all(_is_here(each, listening) for each in servers))


def _is_here(address: tuple[str, int], listening: Listeners) -> bool:
    """Whether an address is that of this node's own controller."""
    host, port = address
    for each in listening.controllers:
        told = listening.advertised_controllers.get(each.name, each)
        if port in (each.port, told.port) and host in (each.host, told.host, *THIS_MACHINE):
            return True
    return False


def read_cluster(values: Mapping[str, Value], listening: Listeners) -> ClusterSettings:
    """The cluster that parsed settings name; raises ConfigError with every mistake."""
    voters = parse_voters(_text(values, "controller.quorum.voters"))
    controller = next(iter(listening.controllers), None) if CONTROLLER in _roles(values) else None
    told = None if controller is None else listening.advertised_controllers.get(controller.name, controller)
    problems = [*_of_the_voters(values, voters, listening, told), *_problems(values, listening)]
    if problems:
        raise ConfigError(problems)
    return ClusterSettings(
        voters=voters,
        bootstrap=parse_bootstrap_servers(_text(values, "controller.quorum.bootstrap.servers")),
        told=told,
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


def _of_the_voters(
    values: Mapping[str, Value], voters: VoterSet, listening: Listeners, told: ListenAddress | None
) -> Iterator[str]:
    """What is wrong with who is a controller, and where."""
    node_id, roles = _number(values, "node.id"), _roles(values)
    if CONTROLLER in roles and voters and node_id not in voters:
        yield (
            f"Configuration 'controller.quorum.voters' does not name this node (node.id={node_id}), which is to be a "
            "controller: add it there on every node, or set process.roles=broker"
        )
    elif CONTROLLER not in roles and node_id in voters:
        yield (
            f"Configuration 'controller.quorum.voters' names this node (node.id={node_id}), which is to be a broker "
            "only: take it out there on every node, or set process.roles=broker,controller"
        )
    elif CONTROLLER in roles and not listening.controllers:
        yield (
            "Configuration 'controller.listener.names' names no listener of 'listeners': the other controllers cannot "
            "reach this one; for example listeners=PLAINTEXT://host:9092,CONTROLLER://host:9093 and "
            "controller.listener.names=CONTROLLER"
        )
    elif told is not None and not voters and told.is_anywhere:
        yield (
            f"Configuration 'advertised.listeners' names no host for {told}, and the other controllers have to find "
            f"it: add {told.name}://HOST:{told.port}"
        )


def _problems(values: Mapping[str, Value], listening: Listeners) -> list[str]:
    roles = _roles(values)
    found = [
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
        if listening.advertised.get(each.name, each).is_anywhere
    ]
    found += listening.control_problems
    if "broker" in roles and listening.inter_broker not in listening.specs:
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
