"""DescribeCluster, DescribeTopicPartitions and UnregisterBroker

versions: DescribeCluster 0-2 (1: endpoint type; 2: fenced brokers). DescribeTopicPartitions 0. UnregisterBroker 0.

Only brokers can be described (endpoint type 1): the quorum of one has no listener of its own. DescribeTopicPartitions
answers in pages by a cursor, as admin clients use it for large clusters. A broker that runs is not unregistered: it is
stopped first. What it was to hold it still is, until somebody moves that.

Whoever gets in may see the brokers, as in Kafka; without DESCRIBE on the cluster no authorized operations are told.
"""

from collections.abc import Iterator, Mapping

from tidemill.broker import administration_log
from tidemill.broker.authorization import (
    ResourceKind,
    authorized_operations,
    cluster_operations,
    on_each,
    on_the_cluster,
    topic_named,
)
from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.endpoints import Endpoint, controller_id, endpoint_of, leader_of, offline, reachable
from tidemill.broker.operations import NOT_ASKED, Operation
from tidemill.broker.quorum.brokers import UnregisterBroker, Unregistration
from tidemill.broker.quorum.metadata import PartitionImage, TopicImage
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError, error_for_code
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tidemill.core.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from tidemill.core.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

BROKER_ENDPOINTS, CONTROLLER_ENDPOINTS = 1, 2
PARTITIONS_PER_PAGE_MAX = 2000
"""Kafka's limit (max.request.partition.size.limit): a page stays well below a megabyte."""


async def describe_cluster(
    broker: BrokerServices, request: DescribeClusterRequest, ctx: RequestContext
) -> DescribeClusterResponse:
    """The brokers and the cluster id."""
    if ctx.api_version >= 1 and request.endpoint_type != BROKER_ENDPOINTS:
        known = request.endpoint_type == CONTROLLER_ENDPOINTS
        raise error_for_code(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            f"endpoint type {request.endpoint_type} is not served here: use 1",
        )
    endpoints = reachable(broker, ctx)
    return DescribeClusterResponse(
        endpoint_type=BROKER_ENDPOINTS,
        cluster_id=broker.cluster_id,
        controller_id=controller_id(broker, endpoints),
        brokers=tuple(_brokers(broker, request, ctx)),
        cluster_authorized_operations=cluster_operations(broker.authorizer, ctx)
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def _brokers(
    broker: BrokerServices, request: DescribeClusterRequest, ctx: RequestContext
) -> Iterator[DescribeClusterBroker]:
    for _, registered in sorted(broker.controller.image.brokers.items()):
        endpoint = endpoint_of(broker, ctx, registered)
        if endpoint is not None and (request.include_fenced_brokers or not registered.fenced):
            yield DescribeClusterBroker(
                broker_id=endpoint.node_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=endpoint.rack,
                is_fenced=registered.fenced,
            )


async def describe_topic_partitions(
    broker: BrokerServices, request: DescribeTopicPartitionsRequest, ctx: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Topics in order of name, as many partitions as fit a page, and where the next page begins."""
    topics, authorizer = broker.controller.image.topics, broker.authorizer
    names = sorted(
        {topic.name for topic in request.topics}
        or (name for name in topics if authorizer.allows(ctx, Operation.DESCRIBE, topic_named(name)))
    )
    first = request.cursor
    if first is not None and first.partition_index < 0:
        raise error_for_code(ErrorCode.INVALID_REQUEST, f"a cursor cannot point at partition {first.partition_index}")
    if first is not None and request.topics and first.topic_name not in names:
        raise error_for_code(ErrorCode.INVALID_REQUEST, f"the cursor points at {first.topic_name!r}, not asked for")
    room = min(max(request.response_partition_limit, 1), PARTITIONS_PER_PAGE_MAX)
    described: list[DescribeTopicPartitionsResponseTopic] = []
    endpoints = reachable(broker, ctx)
    for name in names:
        if first is not None and name < first.topic_name:
            continue
        if not authorizer.allows(ctx, Operation.DESCRIBE, topic_named(name)):
            described.append(_missing(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, NOT_ASKED))
            continue
        topic = topics.get(name)
        operations = authorized_operations(authorizer, ctx, topic_named(name))
        if topic is None:
            described.append(_missing(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, operations))
            continue
        start = first.partition_index if first is not None and name == first.topic_name else 0
        if room == 0:
            return _page(described, Cursor(topic_name=name, partition_index=start))
        described.append(_described(broker, topic, endpoints, range(start, start + room), operations))
        shown = len(described[-1].partitions)
        room -= shown
        if start + shown < len(topic.partitions):
            return _page(described, Cursor(topic_name=name, partition_index=start + shown))
    return _page(described, None)


def _page(topics: list[DescribeTopicPartitionsResponseTopic], cursor: Cursor | None) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=cursor)


def _missing(name: str, error: ErrorCode, operations: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=error, name=name, topic_authorized_operations=operations)


def _described(
    broker: BrokerServices, topic: TopicImage, endpoints: Mapping[int, Endpoint], page: range, operations: int
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=tuple(
            _partition(broker, partition, endpoints) for partition in topic.partitions[page.start : page.stop]
        ),
        topic_authorized_operations=operations,
    )


def _partition(
    broker: BrokerServices, partition: PartitionImage, endpoints: Mapping[int, Endpoint]
) -> DescribeTopicPartitionsResponsePartition:
    leader, error = leader_of(broker, endpoints, partition)
    return DescribeTopicPartitionsResponsePartition(
        error_code=error,
        partition_index=partition.partition,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        eligible_leader_replicas=partition.eligible_leader_replicas,  # Java's admin client falls over a null
        last_known_elr=partition.last_known_elr,
        offline_replicas=offline(endpoints, partition),
    )


async def unregister_broker(
    broker: BrokerServices, request: UnregisterBrokerRequest, ctx: RequestContext
) -> UnregisterBrokerResponse:
    """Forget a broker that is gone."""
    done = await broker.controller.decide(UnregisterBroker(broker_id=request.broker_id))
    assert isinstance(done, Unregistration)
    if done.error is not None:
        raise done.error
    administration_log.tell("broker unregistered", (str(request.broker_id),), ctx)
    return UnregisterBrokerResponse(error_message=None)


def _pages_failed(
    request: DescribeTopicPartitionsRequest, error: KafkaError, api_version: int
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=tuple(
            DescribeTopicPartitionsResponseTopic(error_code=error.code, name=topic.name) for topic in request.topics
        )
    )


ROUTES = (
    Route(
        key=ApiKey.DESCRIBE_CLUSTER,
        handle=describe_cluster,
        min_version=0,
        max_version=2,
        needs=(on_each(Operation.DESCRIBE, ResourceKind.CLUSTER),),
    ),
    Route(
        key=ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        handle=describe_topic_partitions,
        min_version=0,
        max_version=0,
        needs=(on_each(Operation.DESCRIBE, ResourceKind.TOPIC),),
        error_response=_pages_failed,
    ),
    Route(
        key=ApiKey.UNREGISTER_BROKER,
        handle=unregister_broker,
        min_version=0,
        max_version=0,
        needs=(on_the_cluster(Operation.ALTER),),
    ),
)
