"""Reassignments (45 alter, 46 list): replicas that move between brokers

versions: AlterPartitionReassignments 0-1 (1: the client may forbid another number of replicas, KIP-860).
ListPartitionReassignments 0. Both KIP-455.

What is answered follows from the image, whatever cluster it is of. Brokers that are not there are refused, so on one
node there is nowhere to move to; asking for the replicas that a partition has does nothing.
"""

from collections.abc import Iterable, Sequence

from tidemill.broker import administration_log
from tidemill.broker.authorization import on_the_cluster
from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.operations import Operation
from tidemill.broker.quorum.image import PartitionImage, TopicImage
from tidemill.broker.quorum.leadership import AlterReassignments, PartitionResult, Reassignment
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from tidemill.core.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


async def alter_partition_reassignments(
    broker: BrokerServices, request: AlterPartitionReassignmentsRequest, ctx: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Whether each partition moves to the replicas that are asked for."""
    wanted = tuple(
        Reassignment(topic=topic.name, partition=entry.partition_index, replicas=entry.replicas)
        for topic in request.topics
        for entry in topic.partitions
    )
    may_change = request.allow_replication_factor_change
    results = await broker.controller.alter_reassignments(
        AlterReassignments(partitions=wanted, may_change_factor=may_change)
    )
    moved = (f"{each.topic}-{each.partition}" for each in results if each.error is None)
    administration_log.tell("replicas assigned", moved, ctx)
    following = iter(results)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change,
        error_message=None,
        responses=tuple(
            ReassignableTopicResponse(
                name=topic.name, partitions=tuple(_reassigned(next(following)) for _ in topic.partitions)
            )
            for topic in request.topics
        ),
    )


def _reassigned(result: PartitionResult) -> ReassignablePartitionResponse:
    error = result.error
    return ReassignablePartitionResponse(
        partition_index=result.partition,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else str(error),
    )


def list_partition_reassignments(
    broker: BrokerServices, request: ListPartitionReassignmentsRequest, ctx: RequestContext
) -> ListPartitionReassignmentsResponse:
    """What is under way; partitions that are not there are passed over, as on Kafka."""
    topics = broker.controller.image.topics
    found: Iterable[tuple[TopicImage, Sequence[PartitionImage]]]
    if request.topics is None:
        found = ((topic, topic.partitions) for _, topic in sorted(topics.items()))
    else:
        found = (
            (topic, [topic.partitions[each] for each in wanted.partition_indexes if 0 <= each < len(topic.partitions)])
            for wanted in request.topics
            if (topic := topics.get(wanted.name)) is not None
        )
    return ListPartitionReassignmentsResponse(
        error_message=None,
        topics=tuple(
            OngoingTopicReassignment(name=topic.name, partitions=tuple(map(_ongoing, moving)))
            for topic, partitions in found
            if (moving := [each for each in partitions if each.adding_replicas or each.removing_replicas])
        ),
    )


def _ongoing(partition: PartitionImage) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=partition.partition,
        replicas=partition.replicas,
        adding_replicas=partition.adding_replicas,
        removing_replicas=partition.removing_replicas,
    )


ROUTES = (
    Route(
        key=ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        handle=alter_partition_reassignments,
        min_version=0,
        max_version=1,
        needs=(on_the_cluster(Operation.ALTER),),
    ),
    Route(
        key=ApiKey.LIST_PARTITION_REASSIGNMENTS,
        handle=list_partition_reassignments,
        min_version=0,
        max_version=0,
        needs=(on_the_cluster(Operation.DESCRIBE),),
    ),
)
