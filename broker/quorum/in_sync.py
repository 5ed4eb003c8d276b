"""Whether a leader gets the ISR that it asks for (AlterPartition)

A leader asks in the epochs that it knows, for followers in the incarnations that it has heard of. It gets what it asks
for only if that is still how things are: who asks from the past might take in a broker that has lost its logs since
(KIP-903), or one that is fenced. Each partition is judged by itself; what one costs does not depend on how many others
there are.

What is granted is always written, also if it changes nothing: by the partition epoch that moves on the leader learns
that what it asked for before is nowhere under way any more.

Pure. Not here: who is in sync, which the leader knows (`tidemill.broker.replication.partition`).
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidemill.broker.quorum.image import ClusterImage, PartitionImage, TopicImage, partition_after
from tidemill.broker.quorum.leadership import RECOVERED, RECOVERING, changed, min_in_sync
from tidemill.broker.quorum.metadata import Result
from tidemill.broker.quorum.records import NO_LEADER_CHANGE, PartitionChangeRecord
from tidemill.broker.quorum.rules import Rules
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    KafkaError,
    StaleBrokerEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
    error_for_code,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposal:
    """What a leader asks for; `broker_epochs`, in the order of `isr`, are -1 where they are not known."""

    partition: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int = RECOVERED


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartition:
    """What a broker asks for, by topic."""

    broker_id: int
    broker_epoch: int
    topics: tuple[tuple[uuid.UUID, tuple[IsrProposal, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrResult:
    """What became of one partition: how it stands from now on, or why it stays as it is."""

    topic_id: uuid.UUID
    partition: int
    error: KafkaError | None = None
    after: PartitionImage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrResults:
    """One result for each that was asked for, in order; with an error for the whole there are none."""

    partitions: tuple[IsrResult, ...] = ()
    error: KafkaError | None = None


def alter_partition(image: ClusterImage, request: AlterPartition, rules: Rules) -> Result:
    """Grant what a leader asks for, or say why not."""
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        stale = StaleBrokerEpoch(f"epoch {request.broker_epoch} of broker {request.broker_id} is over")
        return Result(records=(), response=IsrResults(error=stale))
    records: list[PartitionChangeRecord] = []
    results: list[IsrResult] = []
    seen: set[tuple[uuid.UUID, int]] = set()
    for topic_id, proposal in _asked(request):
        key = topic_id, proposal.partition
        error: KafkaError | None = None
        after: PartitionImage | None = None
        try:
            topic, before = _find(image, topic_id, proposal.partition)
            if key in seen:
                raise InvalidRequest(f"partition {proposal.partition} is asked for more than once")
            check(image, before, proposal, request.broker_id)
            record = granted(image, topic, before, proposal, rules)
            records.append(record)
            seen.add(key)
            after = partition_after(before, record)
            if record.leader not in (NO_LEADER_CHANGE, request.broker_id):
                error = error_for_code(ErrorCode.NEW_LEADER_ELECTED, f"broker {record.leader} leads from now on")
        except KafkaError as problem:
            error = problem
        results.append(IsrResult(topic_id=topic_id, partition=proposal.partition, error=error, after=after))
    return Result(records=tuple(records), response=IsrResults(partitions=tuple(results)))


def _asked(request: AlterPartition) -> Iterator[tuple[uuid.UUID, IsrProposal]]:
    for topic_id, proposals in request.topics:
        for proposal in proposals:
            yield topic_id, proposal


def _find(image: ClusterImage, topic_id: uuid.UUID, number: int) -> tuple[TopicImage, PartitionImage]:
    topic = image.topic_by_id(topic_id)
    if topic is None:
        raise UnknownTopicId(f"no topic has the id {topic_id}")
    if not 0 <= number < len(topic.partitions):
        raise UnknownTopicOrPartition(f"there is no partition {number} of topic {topic.name!r}")
    return topic, topic.partitions[number]


def check(image: ClusterImage, before: PartitionImage, proposal: IsrProposal, broker_id: int) -> None:
    """Raise what Kafka says to a leader that may not have this ISR."""
    if proposal.leader_epoch > before.leader_epoch or proposal.partition_epoch > before.partition_epoch:
        raise error_for_code(ErrorCode.NOT_CONTROLLER, "there is a newer decision than this controller knows of")
    if proposal.leader_epoch < before.leader_epoch:
        raise FencedLeaderEpoch(f"leader epoch {proposal.leader_epoch} is over, {before.leader_epoch} is current")
    if broker_id != before.leader:
        raise InvalidRequest(f"broker {broker_id} does not lead; {before.leader} does")
    if proposal.partition_epoch < before.partition_epoch:
        raise error_for_code(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"partition epoch {proposal.partition_epoch} is over, {before.partition_epoch} is current",
        )
    isr = proposal.isr
    if len(set(isr)) != len(isr) or not set(isr) <= set(before.replicas) or broker_id not in isr:
        raise InvalidRequest(f"{list(isr)} is no ISR of replicas {list(before.replicas)} that {broker_id} leads")
    if len(proposal.broker_epochs) != len(isr):
        raise InvalidRequest(f"{len(isr)} members have {len(proposal.broker_epochs)} broker epochs")
    recovery = proposal.leader_recovery_state
    if recovery not in (RECOVERED, RECOVERING) or (recovery == RECOVERING and len(isr) > 1):
        raise InvalidRequest("a leader that has not recovered is alone in its ISR")
    if recovery == RECOVERING and before.leader_recovery_state == RECOVERED:
        raise InvalidRequest("a leader that has recovered does not begin that again")
    _check_members(image, before, proposal)


def _check_members(image: ClusterImage, before: PartitionImage, proposal: IsrProposal) -> None:
    for node, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True):
        broker = image.brokers.get(node)
        if broker is None or not broker.active:
            raise error_for_code(ErrorCode.INELIGIBLE_REPLICA, f"broker {node} is fenced or about to stop")
        known = epoch >= 0 or node in before.isr  # a member that restarts is one no more
        if not known or (epoch >= 0 and epoch != broker.epoch):
            raise error_for_code(
                ErrorCode.INELIGIBLE_REPLICA,
                f"broker {node} was in sync in epoch {epoch}, and has epoch {broker.epoch} now",
            )


def granted(
    image: ClusterImage, topic: TopicImage, before: PartitionImage, proposal: IsrProposal, rules: Rules
) -> PartitionChangeRecord:
    """The record of it, which says the ISR also where it is the same."""
    nothing = PartitionChangeRecord(partition_id=before.partition, topic_id=topic.topic_id)
    record = changed(
        topic, before, image.brokers, min_in_sync=min_in_sync(image, topic, rules), isr=proposal.isr
    )  # fmt: skip
    record = record or nothing
    recovers = before.leader_recovery_state == RECOVERING and proposal.leader_recovery_state == RECOVERED
    return replace(
        record,
        isr=before.isr if record.isr is None else record.isr,
        leader_recovery_state=RECOVERED if recovers else record.leader_recovery_state,
    )
