"""DescribeQuorum (55): who agrees on the metadata, and how far each is

versions: 0-2 (1: when a voter last fetched and was last caught up, KIP-836; 2: error texts, the voters' folders and
addresses, KIP-853)

The only partition of the quorum is `__cluster_metadata` 0. A quorum of one leads itself and is always caught up; it
has no listener of its own, so its address is the one that the client reached it under.
"""

from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.endpoints import own_endpoint
from tidemill.broker.quorum.store import LEADER_EPOCH
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

TOPIC = "__cluster_metadata"
PARTITION = 0


def handle(broker: BrokerServices, request: DescribeQuorumRequest, ctx: RequestContext) -> DescribeQuorumResponse:
    """The state of the metadata partition, and that other partitions have no quorum."""
    asked = any(
        topic.topic_name == TOPIC and any(entry.partition_index == PARTITION for entry in topic.partitions)
        for topic in request.topics
    )
    return DescribeQuorumResponse(
        error_message=None,
        topics=tuple(
            TopicData(
                topic_name=topic.topic_name,
                partitions=tuple(
                    _quorum(broker)
                    if (topic.topic_name, entry.partition_index) == (TOPIC, PARTITION)
                    else _none(topic.topic_name, entry.partition_index)
                    for entry in topic.partitions
                ),
            )
            for topic in request.topics
        ),
        nodes=(_node(broker, ctx),) if asked and ctx.api_version >= 2 else (),
    )


def _quorum(broker: BrokerServices) -> PartitionData:
    now_ms = broker.clock.now_ms()
    return PartitionData(
        partition_index=PARTITION,
        error_message=None,
        leader_id=broker.node_id,
        leader_epoch=LEADER_EPOCH,
        high_watermark=broker.controller.image.offset,
        current_voters=(
            ReplicaState(
                replica_id=broker.node_id,
                replica_directory_id=broker.logs.identity.directory_id,
                log_end_offset=broker.controller.log_end_offset,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            ),
        ),
    )


def _none(topic: str, partition: int) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=f"{topic}-{partition} has no quorum: only {TOPIC}-{PARTITION} has",
    )


def _node(broker: BrokerServices, ctx: RequestContext) -> Node:
    own = own_endpoint(broker, ctx)
    return Node(node_id=own.node_id, listeners=(Listener(name=ctx.listener, host=own.host, port=own.port),))


ROUTES = (Route(key=ApiKey.DESCRIBE_QUORUM, handle=handle, min_version=0, max_version=2),)
