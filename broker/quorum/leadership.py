"""Who leads a partition and who is to hold it, decided

A partition's next state follows from the one it has, what somebody wants of it, and the brokers that are there:
`changed` says it as one record, for an election, a reassignment and its end alike. A leader is taken from the ISR, the
first that is active in the order of the replicas, and the one there is stays unless another is preferred. Only an
unclean election looks beyond the ISR; the new leader is the ISR then, and has yet to find out what was lost.

A reassignment adds the replicas that are wanted and are not there, and keeps those that are to go until all that stay
are in sync; where they are from the beginning, it is over at once. Taking it back gives up what was being added.

Pure. Not here: who watches that somebody still leads (a controller of many brokers), and moving the data.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidemill.broker.quorum.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from tidemill.broker.quorum.records import NO_LEADER, NO_LEADER_CHANGE, PartitionChangeRecord
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    KafkaError,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
    error_for_code,
)

RECOVERING: Final = 1
UNCLEAN_KEY: Final = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeaders:
    """Elect a leader of these partitions, by topic; None is every partition there is."""

    partitions: tuple[tuple[str, tuple[int, ...]], ...] | None
    unclean: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """Let these brokers hold a partition; None takes back what is under way."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReassignments:
    """Move partitions; `may_change_factor` allows another number of replicas."""

    partitions: tuple[Reassignment, ...]
    may_change_factor: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResult:
    """What became of one partition of a request."""

    topic: str
    partition: int
    error: KafkaError | None = None


Decided = tuple[list[PartitionChangeRecord], list[PartitionResult]]


def elect_leaders(image: ClusterImage, request: ElectLeaders) -> Decided:
    """A record for each new leader; where all are asked for, those that need none are passed over."""
    records: list[PartitionChangeRecord] = []
    results: list[PartitionResult] = []
    for name, number in _asked(image, request):
        error: KafkaError | None = None
        try:
            topic, partition = _find(image, name, number)
            records.append(_elected(image, topic, partition, unclean=request.unclean))
        except KafkaError as problem:
            error = problem
        results.append(PartitionResult(topic=name, partition=number, error=error))
    return _once(records), results


def _asked(image: ClusterImage, request: ElectLeaders) -> Iterator[tuple[str, int]]:
    if request.partitions is None:
        for name in sorted(image.topics):
            for partition in image.topics[name].partitions:
                if _needs_election(partition, unclean=request.unclean):  # few do, and a refusal costs far more
                    yield name, partition.partition
    else:
        for name, numbers in request.partitions:
            yield from ((name, number) for number in numbers)


def _once(records: Sequence[PartitionChangeRecord]) -> list[PartitionChangeRecord]:
    """One record for each partition, also where it is named again: all were made of the same state."""
    return list({(record.topic_id, record.partition_id): record for record in records}.values())


def _find(image: ClusterImage, name: str, number: int) -> tuple[TopicImage, PartitionImage]:
    topic = image.topics.get(name)
    if topic is None or not 0 <= number < len(topic.partitions):
        raise UnknownTopicOrPartition(f"there is no partition {number} of a topic {name!r}")
    return topic, topic.partitions[number]


def _needs_election(partition: PartitionImage, *, unclean: bool) -> bool:
    return partition.leader == NO_LEADER if unclean else partition.leader != partition.replicas[0]


def _elected(
    image: ClusterImage, topic: TopicImage, partition: PartitionImage, *, unclean: bool
) -> PartitionChangeRecord:
    preferred = partition.replicas[0]
    if not _needs_election(partition, unclean=unclean):
        raise error_for_code(ErrorCode.ELECTION_NOT_NEEDED, f"broker {partition.leader} leads the partition already")
    record = changed(topic, partition, image.brokers, unclean=unclean, preferred=not unclean)
    if record is None:
        raise (
            error_for_code(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica of the partition is available")
            if unclean
            else error_for_code(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {preferred}, the preferred leader, is not available"
            )
        )
    return record


# --- reassignments


def alter_reassignments(image: ClusterImage, request: AlterReassignments, *, unclean: bool) -> Decided:
    """A record for each partition that begins to move or to stay; `unclean` is what topics take if they do not say."""
    records: list[PartitionChangeRecord] = []
    results: list[PartitionResult] = []
    for wanted in request.partitions:
        error: KafkaError | None = None
        try:
            topic, partition = _find(image, wanted.topic, wanted.partition)
            if wanted.replicas is None:
                record = _taken_back(image, topic, partition, unclean=unclean)
            else:
                _check_replicas(image, partition, wanted.replicas, request.may_change_factor)
                record = _moved(image, topic, partition, wanted.replicas)
            records += [] if record is None else [record]
        except KafkaError as problem:
            error = problem
        results.append(PartitionResult(topic=wanted.topic, partition=wanted.partition, error=error))
    return _once(records), results


def _check_replicas(
    image: ClusterImage, partition: PartitionImage, replicas: tuple[int, ...], may_change_factor: bool
) -> None:
    if not replicas:
        raise InvalidReplicaAssignment("the list of replicas is empty")
    if len(set(replicas)) != len(replicas):
        raise InvalidReplicaAssignment(f"replicas {list(replicas)} name a broker twice")
    for node in replicas:
        if node not in image.brokers:
            raise InvalidReplicaAssignment(f"no broker has the id {node}")
    factor = len(_without(partition.replicas, partition.removing_replicas))
    if not may_change_factor and len(replicas) != factor:
        raise InvalidReplicationFactor(f"the partition has {factor} replicas, {list(replicas)} are {len(replicas)}")


def _moved(
    image: ClusterImage, topic: TopicImage, partition: PartitionImage, replicas: tuple[int, ...]
) -> PartitionChangeRecord | None:
    original = _without(partition.replicas, partition.adding_replicas)
    removing = tuple(sorted(_without(partition.replicas, replicas)))
    return changed(
        topic,
        partition,
        image.brokers,
        replicas=replicas + removing,
        adding=tuple(sorted(_without(replicas, original))),
        removing=removing,
    )


def _taken_back(
    image: ClusterImage, topic: TopicImage, partition: PartitionImage, *, unclean: bool
) -> PartitionChangeRecord | None:
    if not partition.reassigned:
        raise NoReassignmentInProgress()
    replicas = _without(partition.replicas, partition.adding_replicas)
    isr = _without(partition.isr, partition.adding_replicas)
    loses = not isr
    if loses and not _may_lose(topic, image, unclean):
        raise InvalidReplicaAssignment(
            "none of the replicas that would be left is in sync, and unclean.leader.election.enable is false"
        )
    return changed(
        topic,
        partition,
        image.brokers,
        replicas=replicas,
        isr=isr or replicas[:1],
        adding=(),
        removing=(),
        unclean=loses,
    )


def _may_lose(topic: TopicImage, image: ClusterImage, otherwise: bool) -> bool:
    text = topic.configs.get(UNCLEAN_KEY, image.broker_configs.get("", {}).get(UNCLEAN_KEY))
    return otherwise if text is None else text.lower() == "true"


# --- the next state of a partition


def changed(
    topic: TopicImage,
    before: PartitionImage,
    brokers: Mapping[int, BrokerImage],
    *,
    replicas: tuple[int, ...] | None = None,
    isr: tuple[int, ...] | None = None,
    adding: tuple[int, ...] | None = None,
    removing: tuple[int, ...] | None = None,
    unclean: bool = False,
    preferred: bool = False,
) -> PartitionChangeRecord | None:
    """What becomes different of a partition when some of it is as given; None if nothing does.

    A reassignment whose replicas are all in sync ends with it. Whoever loses a replica, or its leader, begins a new
    leadership.
    """
    replicas = before.replicas if replicas is None else replicas
    isr = before.isr if isr is None else isr
    adding = before.adding_replicas if adding is None else adding
    removing = before.removing_replicas if removing is None else removing
    if (adding or removing) and (left := _without(replicas, removing)) and set(left) <= set(isr):
        replicas, isr, adding, removing = left, _without(isr, removing), (), ()
    leader, lost = elect(before.leader, replicas, isr, brokers, unclean=unclean, preferred=preferred)
    begins = leader != before.leader or not set(before.replicas) <= set(replicas)
    if lost:
        isr = (leader,)
    record = PartitionChangeRecord(
        partition_id=before.partition,
        topic_id=topic.topic_id,
        isr=_if_other(isr, before.isr),
        leader=leader if begins else NO_LEADER_CHANGE,
        replicas=_if_other(replicas, before.replicas),
        removing_replicas=_if_other(removing, before.removing_replicas),
        adding_replicas=_if_other(adding, before.adding_replicas),
        leader_recovery_state=RECOVERING if lost and before.leader_recovery_state != RECOVERING else -1,
    )
    nothing = PartitionChangeRecord(partition_id=before.partition, topic_id=topic.topic_id)
    return None if record == nothing else record


def elect(
    leader: int,
    replicas: Sequence[int],
    isr: Sequence[int],
    brokers: Mapping[int, BrokerImage],
    *,
    unclean: bool = False,
    preferred: bool = False,
) -> tuple[int, bool]:
    """Who is to lead, and whether records may be lost by it; -1 is nobody."""

    def active(node: int) -> bool:
        return node in brokers and brokers[node].active

    candidates = [leader, *replicas]
    if preferred:
        candidates = [replicas[0], *candidates]
    for node in candidates:
        if node in isr and active(node):
            return node, False
    if unclean:
        for node in replicas:
            if active(node):
                return node, True
    return NO_LEADER, False


def _without(nodes: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
    return tuple(node for node in nodes if node not in others)


def _if_other(after: tuple[int, ...], before: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if after == before else after
