"""How a cluster is, in one picture, and what is wrong with it

`ClusterStatus` holds what the brokers say; `problems` makes the sentences of it, the worst first, each with what to do.
Nothing is asked here (`tidemill.cluster.asking` does that).
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

NAMED_MAX: Final = 5
"""So many partitions or nodes are named in a sentence; the others are counted."""

AWAY_AFTER_MS: Final = 10_000
"""A voter that was not caught up for so long is told as away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    """One broker, as it has registered."""

    node_id: int
    address: str
    rack: str | None
    fenced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStatus:
    """One node's copy of the metadata log: records behind the active controller's, and how long ago it was equal.

    None where the cluster does not say. Its `address` is the one that the others ask it at, empty where that is not
    told. Whoever is no voter observes.
    """

    node_id: int
    address: str = ""
    voter: bool
    leads: bool
    behind: int | None
    caught_up_ms_ago: int | None

    @property
    def away(self) -> bool:
        """Whether nothing was heard of it for a while."""
        return self.caught_up_ms_ago is None or self.caught_up_ms_ago > AWAY_AFTER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One partition that is not as it should be: without a leader, or with replicas that are not in sync.

    `adding` are those that a reassignment gives it: nothing is wrong with them, they have not got everything yet.
    """

    name: str
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_insync_replicas: int | None
    adding: tuple[int, ...] = ()

    @property
    def missing(self) -> tuple[int, ...]:
        """The replicas that should be in sync."""
        return tuple(node for node in self.replicas if node not in self.isr and node not in self.adding)

    @property
    def refuses(self) -> bool:
        """Whether it takes no acks=all, although somebody leads it."""
        wanted = self.min_insync_replicas
        return self.leader >= 0 and wanted is not None and len(self.isr) < wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """All of it. `trouble` says why nobody could tell of the quorum; `leader_id` is -1 where none leads.

    `asked_ms` is the time of day here when the quorum was asked, `told_ms` that of the active controller when it
    answered, None where it does not tell.
    """

    cluster_id: str
    leader_id: int
    leader_epoch: int
    brokers: tuple[BrokerStatus, ...]
    controllers: tuple[ControllerStatus, ...]
    topics: int
    partitions: int
    unwell: tuple[PartitionStatus, ...]
    trouble: str = ""
    asked_ms: int = 0
    told_ms: int | None = None


def problems(status: ClusterStatus) -> list[str]:
    """What is wrong, a sentence each; none where all is well."""
    return [*_of_partitions(status.unwell), *_of_brokers(status), *_of_quorum(status)]


def _of_partitions(unwell: Sequence[PartitionStatus]) -> Iterator[str]:
    leaderless = [each for each in unwell if each.leader < 0]
    refusing = [each for each in unwell if each.refuses]
    led = [each for each in unwell if each.leader >= 0 and not each.refuses]
    lacking, growing = [each for each in led if each.missing], [each for each in led if not each.missing]
    if leaderless:
        yield (
            f"{_count(leaderless, 'has', 'have')} no leader: {_named(leaderless)}; nothing is read or written there "
            f"until {_nodes(leaderless, in_sync=True)} can lead"
        )
    if refusing:
        yield (
            f"{_count(refusing, 'refuses', 'refuse')} acks=all, with fewer replicas in sync than min.insync.replicas: "
            f"{_named(refusing)}; missing: {_nodes(refusing)}"
        )
    if lacking:
        yield (
            f"{_count(lacking, 'has', 'have')} replicas that are not in sync: {_named(lacking)}; "
            f"missing: {_brokers({node for each in lacking for node in each.missing})}"
        )
    if growing:
        yield (
            f"{_count(growing, 'has', 'have')} replicas that are being added: {_named(growing)}; "
            f"to: {_nodes(growing)}; 'tidemill cluster balance' tells how far that is"
        )


def _of_brokers(status: ClusterStatus) -> Iterator[str]:
    fenced = [str(each.node_id) for each in status.brokers if each.fenced]
    if fenced:
        yield f"fenced, so stopped or not heard of: broker {', '.join(fenced)}; start it, or see its log for the reason"


def _of_quorum(status: ClusterStatus) -> Iterator[str]:
    if status.trouble:
        yield (
            f"the quorum does not answer ({status.trouble}): nothing is decided unless a majority of the controllers "
            "that vote runs"
        )
        return
    if status.leader_id < 0:
        yield "no controller leads: start a majority of those that vote"
        return
    voters = [each for each in status.controllers if each.voter]
    away = [each for each in voters if not each.leads and each.away]
    if away:
        more = (len(voters) - 1) // 2 - len(away)
        yield (
            f"controller {', '.join(str(each.node_id) for each in away)} does not take part in the quorum; "
            f"{max(0, more)} more of the {len(voters)} may go before nothing can be decided"
        )
    observers = {each.node_id for each in status.controllers if not each.voter}
    for node_id in (each.node_id for each in away if each.node_id in observers):
        yield (
            f"node {node_id} follows with another folder than the one that it votes with: 'tidemill cluster "
            f"remove-voter {node_id}', then 'tidemill cluster add-voter {node_id}@HOST:PORT'"
        )


def _count(partitions: Sequence[PartitionStatus], one: str, many: str) -> str:
    return f"1 partition {one}" if len(partitions) == 1 else f"{len(partitions)} partitions {many}"


def _named(partitions: Sequence[PartitionStatus]) -> str:
    more = len(partitions) - NAMED_MAX
    return ", ".join(each.name for each in partitions[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _nodes(partitions: Sequence[PartitionStatus], *, in_sync: bool = False) -> str:
    """The brokers that could lead them, or those that are to catch up.

    Those that could lead are the last that were in sync. An ISR is told empty where the last of it is away (KIP-966):
    it is one of the replicas then.
    """
    lists = [(each.isr or each.replicas) if in_sync else set(each.replicas) - set(each.isr) for each in partitions]
    found = {node for each in lists for node in each}
    return _brokers(found, " or " if in_sync else ", ")


def _brokers(nodes: Collection[int], separator: str = ", ") -> str:
    return f"broker{'s' if len(nodes) > 1 else ''} {separator.join(map(str, sorted(nodes)))}"
