"""Who leads a partition and who is to hold it, decided

A partition's next state follows from the one it has, what somebody wants of it, and the brokers that are there:
`changed` says it as one record, for an election, a reassignment and its end, an ISR that shrinks or grows alike.

A leader is taken from the ISR, the first that is active in the order of the replicas, and the one there is stays
unless another is preferred. Where nobody of the ISR is active, one of the eligible leader replicas (ELR, KIP-966) will
do: who leaves an ISR that has fewer members than min.insync.replicas, or leaves it so, goes on to hold all that was
committed, for the leader moves HW no further meanwhile. So ISR and ELR together are at least that many, and are fewer
only if replicas came back without what they had acknowledged (`lost`), which are in neither then.

Where both are empty, who led last is the best that is left. It is taken without being asked for only if one replica is
all that acks=all ever waited for: nobody else was promised to have more. Anything else may lose records that were
acknowledged; it is an unclean election, which topic, cluster or operator has to allow, and it is told (`is_unclean`).
Its leader is the ISR, and has yet to find out what was lost.

A reassignment adds the replicas that are wanted and are not there, and keeps those that are to go until all that stay
are in sync; where they are from the beginning, it is over at once. Taking it back gives up what was being added.

Pure. Not here: which brokers are there (`tidemill.broker.quorum.brokers`), and moving the data.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidemill.broker.quorum.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from tidemill.broker.quorum.records import NO_LEADER, NO_LEADER_CHANGE, PartitionChangeRecord
from tidemill.broker.quorum.rules import Rules
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
RECOVERED: Final = 0


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


def elect_leaders(image: ClusterImage, request: ElectLeaders, rules: Rules) -> Decided:
    """A record for each new leader; where all are asked for, those that need none are passed over."""
    records: list[PartitionChangeRecord] = []
    results: list[PartitionResult] = []
    for name, number in _asked(image, request):
        error: KafkaError | None = None
        try:
            topic, partition = _find(image, name, number)
            records.append(_elected(image, topic, partition, rules, unclean=request.unclean))
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
    image: ClusterImage, topic: TopicImage, partition: PartitionImage, rules: Rules, *, unclean: bool
) -> PartitionChangeRecord:
    preferred = partition.replicas[0]
    if not _needs_election(partition, unclean=unclean):
        raise error_for_code(ErrorCode.ELECTION_NOT_NEEDED, f"broker {partition.leader} leads the partition already")
    record = changed(
        topic,
        partition,
        image.brokers,
        min_in_sync=min_in_sync(image, topic, rules),
        unclean=unclean,
        preferred=not unclean,
    )
    if record is None or record.leader in (NO_LEADER, NO_LEADER_CHANGE):
        raise (
            error_for_code(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica of the partition is available")
            if unclean
            else error_for_code(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {preferred}, the preferred leader, is not available"
            )
        )
    return record


# --- reassignments


def alter_reassignments(image: ClusterImage, request: AlterReassignments, rules: Rules) -> Decided:
    """A record for each partition that begins to move or to stay."""
    records: list[PartitionChangeRecord] = []
    results: list[PartitionResult] = []
    for wanted in request.partitions:
        error: KafkaError | None = None
        try:
            topic, partition = _find(image, wanted.topic, wanted.partition)
            if wanted.replicas is None:
                record = _taken_back(image, topic, partition, rules)
            else:
                _check_replicas(image, partition, wanted.replicas, request.may_change_factor)
                record = _moved(image, topic, partition, wanted.replicas, rules)
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
    image: ClusterImage, topic: TopicImage, partition: PartitionImage, replicas: tuple[int, ...], rules: Rules
) -> PartitionChangeRecord | None:
    original = _without(partition.replicas, partition.adding_replicas)
    removing = tuple(sorted(_without(partition.replicas, replicas)))
    return changed(
        topic,
        partition,
        image.brokers,
        min_in_sync=min_in_sync(image, topic, rules),
        replicas=replicas + removing,
        adding=tuple(sorted(_without(replicas, original))),
        removing=removing,
    )


def _taken_back(
    image: ClusterImage, topic: TopicImage, partition: PartitionImage, rules: Rules
) -> PartitionChangeRecord | None:
    if not partition.reassigned:
        raise NoReassignmentInProgress()
    replicas = _without(partition.replicas, partition.adding_replicas)
    isr = _without(partition.isr, partition.adding_replicas)
    loses = not isr and not _without(partition.eligible_leader_replicas, partition.adding_replicas)
    if loses and not rules.may_lose(topic.configs, image.broker_configs.get("", {})):
        raise InvalidReplicaAssignment(
            "none of the replicas that would be left is in sync, and unclean.leader.election.enable is false"
        )
    return changed(
        topic,
        partition,
        image.brokers,
        min_in_sync=min_in_sync(image, topic, rules),
        replicas=replicas,
        isr=isr,
        adding=(),
        removing=(),
        unclean=loses,
    )


def min_in_sync(image: ClusterImage, topic: TopicImage, rules: Rules) -> int:
    """min.insync.replicas of a topic; what counts is this or the number of replicas, whichever is less."""
    return rules.min_in_sync(topic.configs, image.broker_configs.get("", {}))


# --- the next state of a partition


def changed(
    topic: TopicImage,
    before: PartitionImage,
    brokers: Mapping[int, BrokerImage],
    *,
    min_in_sync: int,
    replicas: tuple[int, ...] | None = None,
    isr: tuple[int, ...] | None = None,
    adding: tuple[int, ...] | None = None,
    removing: tuple[int, ...] | None = None,
    lost: Collection[int] = (),
    unclean: bool = False,
    preferred: bool = False,
) -> PartitionChangeRecord | None:
    """What becomes different of a partition when some of it is as given; None if nothing does.

    A reassignment whose replicas are all in sync ends with it. Whoever loses a replica, or its leader, begins a new
    leadership. Replicas in `lost` may lack what they have acknowledged.
    """
    replicas = before.replicas if replicas is None else replicas
    isr = _without(before.isr if isr is None else isr, lost)
    adding = before.adding_replicas if adding is None else adding
    removing = before.removing_replicas if removing is None else removing
    if (adding or removing) and (left := _without(replicas, removing)) and set(left) <= set(isr):
        replicas, isr, adding, removing = left, _without(isr, removing), (), ()
    enough = min(min_in_sync, len(replicas))
    elr = _eligible(before, replicas, isr, lost, enough)
    last_known = _last_known(before, replicas)
    choice = elect(
        before.leader,
        replicas,
        isr,
        brokers,
        eligible=elr,
        last_known=last_known if enough == 1 or unclean else (),
        unclean=unclean,
        preferred=preferred,
    )
    leader = choice.leader
    if choice.loses:
        isr, elr = (leader,), ()
    elif leader in elr:
        isr = (leader,)
        elr = _eligible(before, replicas, isr, lost, enough)
    begins = choice.loses or leader != before.leader or not set(before.replicas) <= set(replicas)
    return _difference(
        topic,
        before,
        PartitionImage(
            partition=before.partition,
            replicas=replicas,
            isr=isr,
            leader=leader,
            leader_epoch=before.leader_epoch + begins,
            partition_epoch=before.partition_epoch + 1,
            removing_replicas=removing,
            adding_replicas=adding,
            leader_recovery_state=RECOVERING if choice.loses else before.leader_recovery_state,
            eligible_leader_replicas=elr,
            last_known_elr=() if isr else last_known,
        ),
    )


def _eligible(
    before: PartitionImage, replicas: Sequence[int], isr: Sequence[int], lost: Collection[int], enough: int
) -> tuple[int, ...]:
    """The ELR beside this ISR."""
    if len(isr) >= enough:
        return ()
    held = {*before.isr, *before.eligible_leader_replicas}.difference(isr, lost)
    return tuple(node for node in replicas if node in held)


def _last_known(before: PartitionImage, replicas: Sequence[int]) -> tuple[int, ...]:
    known = before.last_known_elr or ((before.leader,) if before.leader != NO_LEADER else before.isr[:1])
    return tuple(node for node in known if node in replicas)


def _difference(topic: TopicImage, before: PartitionImage, after: PartitionImage) -> PartitionChangeRecord | None:
    begins = after.leader_epoch != before.leader_epoch
    recovery = after.leader_recovery_state
    record = PartitionChangeRecord(
        partition_id=before.partition,
        topic_id=topic.topic_id,
        isr=_if_other(after.isr, before.isr),
        leader=after.leader if begins else NO_LEADER_CHANGE,
        replicas=_if_other(after.replicas, before.replicas),
        removing_replicas=_if_other(after.removing_replicas, before.removing_replicas),
        adding_replicas=_if_other(after.adding_replicas, before.adding_replicas),
        leader_recovery_state=-1 if recovery == before.leader_recovery_state else recovery,
        eligible_leader_replicas=_if_other(after.eligible_leader_replicas, before.eligible_leader_replicas),
        last_known_elr=_if_other(after.last_known_elr, before.last_known_elr),
    )
    nothing = PartitionChangeRecord(partition_id=before.partition, topic_id=topic.topic_id)
    return None if record == nothing else record


def is_unclean(before: PartitionImage, record: PartitionChangeRecord) -> bool:
    """Whether the leader that a record elects may lack records that were acknowledged."""
    return record.leader >= 0 and record.leader not in (*before.isr, *before.eligible_leader_replicas)


class Choice(NamedTuple):
    """Who is to lead, -1 is nobody, and whether records may be lost by it."""

    leader: int
    loses: bool


def elect(
    leader: int,
    replicas: Sequence[int],
    isr: Sequence[int],
    brokers: Mapping[int, BrokerImage],
    *,
    eligible: Sequence[int] = (),
    last_known: Sequence[int] = (),
    unclean: bool = False,
    preferred: bool = False,
) -> Choice:
    """Choose a leader; whoever is in `last_known` is taken before others that lack records, also if not `unclean`."""
    candidates = [leader, *replicas]
    if preferred:
        candidates = [replicas[0], *candidates]
    for node in candidates:
        if node in isr and node in brokers and brokers[node].active:
            return Choice(node, False)
    for node in replicas:
        if node in eligible and node in brokers and brokers[node].active:
            return Choice(node, False)
    if not isr and not eligible:
        for node in last_known:
            if node in brokers and brokers[node].active:
                return Choice(node, True)
    if unclean:
        for node in (*last_known, *replicas):
            if node in brokers and brokers[node].active:
                return Choice(node, True)
    return Choice(NO_LEADER, False)


def _without(nodes: Sequence[int], others: Collection[int]) -> tuple[int, ...]:
    return tuple(node for node in nodes if node not in others)


def _if_other(after: tuple[int, ...], before: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if after == before else after
