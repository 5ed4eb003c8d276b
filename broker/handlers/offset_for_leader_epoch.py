"""OffsetForLeaderEpoch (23): where an epoch ended

versions: 2-4
  3  replica id (makes no difference)
  4  flexible

A consumer that has fetched under some leader epoch asks where that epoch ended, and learns whether the log it has read
from is still the log there is (KIP-320). The current epoch ends where the log does, also if nothing was written in it:
an unknown end would make a consumer start over, or fail.

The end of the log is its real one, for followers and consumers alike, as with Kafka. The high watermark of a new leader
may be behind that of the one before; told of it, a consumer would take records for lost that are there.
"""

from tidemill.broker.authorization import THE_CLUSTER, ResourceKind, on_each
from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.operations import Operation
from tidemill.broker.partitions import find_replica, find_topic, permitted_topic
from tidemill.core.errors import KafkaError
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)


def handle(
    broker: BrokerServices, request: OffsetForLeaderEpochRequest, ctx: RequestContext
) -> OffsetForLeaderEpochResponse:
    """The end offset of one epoch per partition."""
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=tuple(_answer(broker, ctx, topic, partition) for partition in topic.partitions),
            )
            for topic in request.topics
        )
    )


def _answer(
    broker: BrokerServices, ctx: RequestContext, topic: OffsetForLeaderTopic, partition: OffsetForLeaderPartition
) -> EpochEndOffset:
    try:
        if broker.authorizer.allows(ctx, Operation.CLUSTER_ACTION, THE_CLUSTER):
            image = find_topic(broker, topic.topic)
        else:
            image = permitted_topic(broker, ctx, Operation.DESCRIBE, topic.topic)
        replica = find_replica(broker, image, partition.partition, partition.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=partition.partition, error_code=error.code)
    epoch, end_offset = replica.log.epochs.end_offset_for(
        partition.leader_epoch, replica.machine.leader_epoch, replica.log.log_end_offset
    )
    return EpochEndOffset(partition=partition.partition, leader_epoch=epoch, end_offset=end_offset)


def error_response(
    request: OffsetForLeaderEpochRequest, error: KafkaError, _api_version: int
) -> OffsetForLeaderEpochResponse:
    """The same error for every partition."""
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=tuple(
                    EpochEndOffset(partition=partition.partition, error_code=error.code)
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


ROUTES = (
    Route(
        key=ApiKey.OFFSET_FOR_LEADER_EPOCH,
        handle=handle,
        min_version=2,
        max_version=4,
        needs=(
            on_each(Operation.DESCRIBE, ResourceKind.TOPIC),
            on_each(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER),
        ),
        error_response=error_response,
    ),
)
