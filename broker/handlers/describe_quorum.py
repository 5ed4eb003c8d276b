"""DescribeQuorum (55): who agrees on the metadata, and how far each is

versions: 0-2 (1: when a voter last fetched and was last caught up, KIP-836; 2: error texts, the voters' folders and
addresses, KIP-853)

The only partition of the quorum is `__cluster_metadata` 0. The quorum says who its voters are, how far, and where they
listen for one another. Whoever does not (an observer, a node by itself) is told under the listener that the client came
by, and one that does not have that without an address.
"""

from tidemill.broker.authorization import on_the_cluster
from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.endpoints import endpoint_of, own_endpoint
from tidemill.broker.operations import Operation
from tidemill.broker.quorum.member import QuorumReplica, QuorumState
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
    state = broker.controller.quorum()
    members = {each.node_id: each for each in (*state.observers, *state.voters)}
    return DescribeQuorumResponse(
        error_message=None,
        topics=tuple(
            TopicData(
                topic_name=topic.topic_name,
                partitions=tuple(
                    _quorum(state)
                    if (topic.topic_name, entry.partition_index) == (TOPIC, PARTITION)
                    else _none(topic.topic_name, entry.partition_index)
                    for entry in topic.partitions
                ),
            )
            for topic in request.topics
        ),
        nodes=tuple(_node(broker, ctx, each) for _, each in sorted(members.items()))
        if asked and ctx.api_version >= 2
        else (),
    )


def _quorum(state: QuorumState) -> PartitionData:
    return PartitionData(
        partition_index=PARTITION,
        error_message=None,
        leader_id=state.leader_id,
        leader_epoch=state.leader_epoch,
        high_watermark=state.high_watermark,
        current_voters=tuple(map(_replica, state.voters)),
        observers=tuple(map(_replica, state.observers)),
    )


def _replica(replica: QuorumReplica) -> ReplicaState:
    return ReplicaState(
        replica_id=replica.node_id,
        replica_directory_id=replica.directory_id,
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_fetch_ms,
        last_caught_up_timestamp=replica.last_caught_up_ms,
    )


def _none(topic: str, partition: int) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=f"{topic}-{partition} has no quorum: only {TOPIC}-{PARTITION} has",
    )


def _node(broker: BrokerServices, ctx: RequestContext, member: QuorumReplica) -> Node:
    node_id = member.node_id
    if member.end_points:
        listeners = tuple(Listener(name=name, host=host, port=port) for name, host, port in member.end_points)
        return Node(node_id=node_id, listeners=listeners)
    registered = broker.controller.image.brokers.get(node_id)
    found = own_endpoint(broker, ctx) if node_id == broker.node_id else None
    if found is None and registered is not None:
        found = endpoint_of(broker, ctx, registered)
    if found is None:
        return Node(node_id=node_id, listeners=())
    return Node(node_id=node_id, listeners=(Listener(name=ctx.listener, host=found.host, port=found.port),))


ROUTES = (
    Route(
        key=ApiKey.DESCRIBE_QUORUM,
        handle=handle,
        min_version=0,
        max_version=2,
        needs=(on_the_cluster(Operation.DESCRIBE),),
    ),
)
