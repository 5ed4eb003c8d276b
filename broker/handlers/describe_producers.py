"""DescribeProducers (61): who has written to a partition and how far

versions: 0

Answers from the same state that recognises duplicates, so a producer that lost its own memory can find out where its
sequence numbers stopped. Transactions are not served, so their fields say "none".
"""

from tidemill.broker.authorization import ResourceKind, on_each
from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.operations import Operation
from tidemill.broker.partitions import find_replica, permitted_topic
from tidemill.broker.quorum.metadata import check_topic_name
from tidemill.core.errors import KafkaError
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)


def handle(broker: BrokerServices, request: DescribeProducersRequest, ctx: RequestContext) -> DescribeProducersResponse:
    """The producers of every partition asked for."""
    return DescribeProducersResponse(
        topics=tuple(
            TopicResponse(
                name=topic.name,
                partitions=tuple(_describe(broker, ctx, topic, partition) for partition in topic.partition_indexes),
            )
            for topic in request.topics
        )
    )


def _describe(broker: BrokerServices, ctx: RequestContext, topic: TopicRequest, partition: int) -> PartitionResponse:
    try:
        check_topic_name(topic.name)
        replica = find_replica(broker, permitted_topic(broker, ctx, Operation.READ, topic.name), partition)
    except KafkaError as error:
        return PartitionResponse(partition_index=partition, error_code=error.code, error_message=str(error))
    return PartitionResponse(
        partition_index=partition,
        active_producers=tuple(
            ProducerState(
                producer_id=state.producer_id,
                producer_epoch=state.epoch,
                last_sequence=state.last_sequence,
                last_timestamp=state.last_timestamp,
                coordinator_epoch=state.coordinator_epoch,
                current_txn_start_offset=state.transaction_start,
            )
            for state in replica.log.producers
        ),
    )


def error_response(
    request: DescribeProducersRequest, error: KafkaError, _api_version: int
) -> DescribeProducersResponse:
    """The same error for every partition."""
    return DescribeProducersResponse(
        topics=tuple(
            TopicResponse(
                name=topic.name,
                partitions=tuple(
                    PartitionResponse(partition_index=partition, error_code=error.code, error_message=str(error))
                    for partition in topic.partition_indexes
                ),
            )
            for topic in request.topics
        )
    )


ROUTES = (
    Route(
        key=ApiKey.DESCRIBE_PRODUCERS,
        handle=handle,
        min_version=0,
        max_version=0,
        needs=(on_each(Operation.READ, ResourceKind.TOPIC),),
        error_response=error_response,
    ),
)
