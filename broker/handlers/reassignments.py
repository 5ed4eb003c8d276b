"""Reassignments (45 alter, 46 list): replicas that move between brokers

versions: AlterPartitionReassignments 0-1 (1: the client may forbid another number of replicas, KIP-860).
ListPartitionReassignments 0. Both KIP-455.

On one node there is nowhere to move to. Asking for the replicas that a partition has is fine and does nothing; brokers
that are not there are refused; nothing is ever under way, so there is nothing to list or to cancel.
"""

from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.partitions import find_partition, find_topic
from tidemill.broker.quorum.image import ClusterImage, PartitionImage
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import InvalidReplicaAssignment, KafkaError, NoReassignmentInProgress
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from tidemill.core.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def alter_partition_reassignments(
    broker: BrokerServices, request: AlterPartitionReassignmentsRequest, ctx: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Whether each partition may have the replicas that are asked for."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=tuple(
            ReassignableTopicResponse(
                name=topic.name,
                partitions=tuple(_reassigned(broker, topic.name, entry) for entry in topic.partitions),
            )
            for topic in request.topics
        ),
    )


def _reassigned(broker: BrokerServices, topic: str, entry: ReassignablePartition) -> ReassignablePartitionResponse:
    try:
        partition = find_partition(find_topic(broker, topic), entry.partition_index)
        reassign(broker.controller.image, partition, entry.replicas)
    except KafkaError as error:
        return ReassignablePartitionResponse(
            partition_index=entry.partition_index, error_code=error.code, error_message=str(error)
        )
    return ReassignablePartitionResponse(
        partition_index=entry.partition_index, error_code=ErrorCode.NONE, error_message=None
    )


def reassign(image: ClusterImage, partition: PartitionImage, replicas: tuple[int, ...] | None) -> None:
    """Return if `replicas` is what the partition has; None cancels what is under way.

    Raises NoReassignmentInProgress, InvalidReplicaAssignment.
    """
    if replicas is None:
        raise NoReassignmentInProgress()
    if not replicas:
        raise InvalidReplicaAssignment("the list of replicas is empty")
    if len(set(replicas)) != len(replicas):
        raise InvalidReplicaAssignment(f"replicas {list(replicas)} name a broker twice")
    missing = [node for node in replicas if node not in image.brokers]
    if missing:
        raise InvalidReplicaAssignment(f"no broker has the id {missing[0]}")
    if replicas != partition.replicas:
        raise InvalidReplicaAssignment(f"the replicas stay on {list(partition.replicas)}: nothing can be moved here")


def list_partition_reassignments(
    broker: BrokerServices, request: ListPartitionReassignmentsRequest, ctx: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Nothing is under way."""
    return ListPartitionReassignmentsResponse(error_message=None)


ROUTES = (
    Route(key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, handle=alter_partition_reassignments, min_version=0, max_version=1),
    Route(key=ApiKey.LIST_PARTITION_REASSIGNMENTS, handle=list_partition_reassignments, min_version=0, max_version=0),
)
