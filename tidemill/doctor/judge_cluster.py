"""Facts about several brokers, judged

As in `judge`: pure, and every finding that is not `ok` says what to do. The question behind all of them is what the
next broker to go takes with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemill.cluster.status import ClusterStatus, PartitionStatus
from tidemill.doctor import judge
from tidemill.doctor.judge import SKEW_FAIL_MS, SKEW_WARN_MS, Finding, Level

NAMED_MAX = 3
VOTERS_LEAST = 3  # of fewer, none may go
BEHIND_WARN = 1_000  # records of metadata
FOR_ALL_BUT_ONE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """How one topic is kept: the replicas of each of its partitions, and `min.insync.replicas` if it is known."""

    name: str
    replicas: tuple[tuple[int, ...], ...]
    min_in_sync: int | None = None

    @property
    def factor(self) -> int:
        """Of the partition that has the fewest."""
        return min((len(each) for each in self.replicas), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDisk:
    """The file system of one broker's folder; sizes in bytes, -1 is not known."""

    node_id: int
    folder: str
    free_bytes: int
    total_bytes: int


def _finding(check: str, level: Level, text: str, advice: str = "") -> Finding:
    return Finding(check=check, level=level, text=text, advice=advice)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED_MAX]) + (f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else "")


def brokers(status: ClusterStatus) -> Finding:
    """Whether all that have registered are there."""
    fenced = [str(each.node_id) for each in status.brokers if each.fenced]
    if not fenced:
        return _finding("brokers", Level.OK, f"{len(status.brokers)} brokers, all of them running")
    return _finding(
        "brokers",
        Level.FAIL,
        f"{len(fenced)} of {len(status.brokers)} brokers are fenced, stopped or not heard of: {', '.join(fenced)}",
        "start them, or see their logs for the reason; one that will not come back: move its replicas to others, then "
        "unregister it",
    )


def quorum(status: ClusterStatus) -> list[Finding]:
    """Whether the controllers can agree, and how many of them may go."""
    voters = [each for each in status.controllers if each.voter]
    if status.trouble or status.leader_id < 0:
        text = f"no controller leads ({status.trouble})" if status.trouble else "no controller leads"
        advice = "start a majority of the nodes in controller.quorum.voters; nothing is decided until then"
        return [_finding("quorum", Level.FAIL, text, advice)]
    away = [str(each.node_id) for each in voters if not each.leads and each.away]
    spare = (len(voters) - 1) // 2 - len(away)
    text = f"{len(voters)} controllers, node {status.leader_id} leads in epoch {status.leader_epoch}"
    if away:
        text += f"; away: {', '.join(away)}"
        advice = (
            f"start them: {spare} more may go" if spare > 0 else "start them: no other may go, or nothing is decided"
        )
        found = [_finding("quorum", Level.WARN if spare > 0 else Level.FAIL, text, advice)]
    elif len(voters) < VOTERS_LEAST:
        advice = f"let {VOTERS_LEAST} nodes be controllers (process.roles=broker,controller): one may be away then"
        found = [_finding("quorum", Level.WARN, f"{text}; none may go", advice)]
    elif len(voters) % 2 == 0:
        advice = "one less is as safe, and one more lets another go: an odd number of controllers is best"
        found = [_finding("quorum", Level.WARN, f"{text}; {spare} may go", advice)]
    else:
        found = [_finding("quorum", Level.OK, f"{text}; {spare} may go")]
    return [*found, _lag(status)]


def _lag(status: ClusterStatus) -> Finding:
    behind = {each.node_id: each.behind for each in status.controllers if each.behind and not each.away}
    late = [f"node {node} by {records} records" for node, records in behind.items() if records >= BEHIND_WARN]
    if not late:
        return _finding("metadata", Level.OK, "every node that is there has all that was decided, or nearly")
    advice = "look at the disk of that node and at the network to the active controller; it goes by old metadata"
    return _finding("metadata", Level.WARN, f"behind what was decided: {_few(late)}", advice)


def in_sync(unwell: Sequence[PartitionStatus]) -> Finding:
    """Whether partitions that are led have all their replicas but those that are being added.

    Those without a leader have a finding of their own.
    """
    lacking = [each for each in unwell if each.leader >= 0 and (each.missing or each.refuses)]
    refusing = [each for each in lacking if each.refuses]
    if not lacking:
        return _finding("replicas in sync", Level.OK, "every partition that is led has all of its replicas in sync")
    missing = sorted({node for each in lacking for node in set(each.replicas) - set(each.isr)})
    nodes = ", ".join(map(str, missing))
    advice = (
        f"see broker {nodes}: stopped, cut off, or its disk too slow; 'tidemill cluster status' names the partitions"
    )
    if refusing:
        text = f"{len(refusing)} partitions refuse acks=all, fewer in sync than min.insync.replicas: "
        text += _few([each.name for each in refusing])
        return _finding("replicas in sync", Level.FAIL, text, advice)
    text = f"{len(lacking)} partitions lack a replica in sync: {_few([each.name for each in lacking])}"
    return _finding("replicas in sync", Level.WARN, text, advice)


def factors(topics: Sequence[TopicFacts]) -> Finding:
    """Whether a broker can go without taking partitions with it."""
    single = [each.name for each in topics if each.factor == 1]
    if not single:
        return _finding("replication factor", Level.OK, f"{len(topics)} topics, each with two replicas or more")
    return _finding(
        "replication factor",
        Level.WARN,
        f"{len(single)} of {len(topics)} topics have partitions with one replica, which go with it: {_few(single)}",
        "give them more (kafka-reassign-partitions, or AlterPartitionReassignments of an admin client); new topics get "
        "default.replication.factor, group offsets offsets.topic.replication.factor",
    )


def min_in_sync(topics: Sequence[TopicFacts]) -> list[Finding]:
    """Whether acks=all waits for enough, and not for everybody."""
    known = [each for each in topics if each.min_in_sync is not None and each.factor > 1]
    rigid = [each.name for each in known if (each.min_in_sync or 0) >= each.factor]
    loose = [each.name for each in known if each.min_in_sync == 1 and each.factor > FOR_ALL_BUT_ONE]
    found = []
    if rigid:
        text = f"min.insync.replicas is the number of replicas or more, so no broker may be away: {_few(rigid)}"
        advice = "make it one less than the replication factor, or acks=all is refused as soon as one broker restarts"
        found.append(_finding("min.insync.replicas", Level.WARN, text, advice))
    if loose:
        text = f"min.insync.replicas is 1 with three replicas or more: {_few(loose)}"
        advice = "set it to 2: with 1, acks=all is acknowledged by the leader alone once the others are away"
        found.append(_finding("min.insync.replicas", Level.WARN, text, advice))
    return found or [_finding("min.insync.replicas", Level.OK, "acks=all waits for some, and not for all")]


def racks(status: ClusterStatus, topics: Sequence[TopicFacts]) -> Finding:
    """Whether a rack can go without taking partitions with it, where brokers say in which they are."""
    rack_of = {each.node_id: each.rack for each in status.brokers}
    named = {rack for rack in rack_of.values() if rack}
    if not named:
        return _finding("racks", Level.OK, "no broker names its rack (broker.rack)")
    if without := [str(node) for node, rack in rack_of.items() if not rack]:
        advice = "set broker.rack on every broker: replicas are spread over racks only if all name theirs"
        return _finding("racks", Level.WARN, f"some brokers name a rack, and broker {', '.join(without)} none", advice)
    if len(named) == 1:
        return _finding("racks", Level.OK, f"all brokers are in rack {min(named)}")
    together = [
        each.name
        for each in topics
        if any(len(nodes) > 1 and len({rack_of.get(node) for node in nodes}) == 1 for nodes in each.replicas)
    ]
    if not together:
        return _finding("racks", Level.OK, f"replicas lie in more than one of {len(named)} racks")
    text = f"all replicas of a partition lie in one rack, in {len(together)} topics: {_few(together)}"
    advice = (
        "move some of them (kafka-reassign-partitions, or AlterPartitionReassignments): the rack takes them all along"
    )
    return _finding("racks", Level.WARN, text, advice)


def versions(apis: Mapping[int, Mapping[int, tuple[int, int]]]) -> Finding:
    """Whether brokers offer the same; `apis` are the first and last version of each API, by broker."""
    offered: dict[tuple[tuple[int, tuple[int, int]], ...], list[str]] = {}
    for node, served in apis.items():
        offered.setdefault(tuple(sorted(served.items())), []).append(str(node))
    if len(offered) <= 1:
        return _finding("versions", Level.OK, f"{len(apis)} brokers offer the same requests")
    groups = " / ".join(", ".join(nodes) for nodes in offered.values())
    advice = "bring all to the same version; while a rolling upgrade is under way this is as it should be"
    return _finding("versions", Level.WARN, f"brokers differ in the requests they offer: {groups}", advice)


def disks(found: Sequence[BrokerDisk]) -> list[Finding]:
    """Room on each broker's disk, where it says."""
    return [
        Finding(
            check=f"disk space of broker {each.node_id}", level=judged.level, text=judged.text, advice=judged.advice
        )
        for each in found
        if each.total_bytes > 0
        for judged in [judge.disk_space(each.folder, each.free_bytes, each.total_bytes)]
    ]


def clock_of_controller(ahead_ms: int | None, uncertain_ms: int) -> Finding:
    """How far the active controller's clock is ahead of the one here, give or take the time that asking took."""
    check = "clock of the controller"
    if ahead_ms is None:
        return _finding(check, Level.OK, "the active controller does not tell the time")
    apart_ms = max(0, abs(ahead_ms) - uncertain_ms)
    if apart_ms <= SKEW_WARN_MS:
        return _finding(check, Level.OK, "the same as here; run this on each node to compare them all")
    text = (
        f"the active controller's clock is {apart_ms / 1000:.1f} s {'ahead of' if ahead_ms > 0 else 'behind'} this one"
    )
    advice = "let all nodes follow NTP (chronyc tracking, timedatectl): timestamps and retention depend on it"
    return _finding(check, Level.FAIL if apart_ms >= SKEW_FAIL_MS else Level.WARN, text, advice)
