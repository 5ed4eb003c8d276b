"""Metadata (3): brokers, topics, partitions and who leads them

versions: 0-13
  1  controller id; null topics means all, none means none (in version 0 none means all)
  2  cluster id
  3  throttle time
  4  allow_auto_topic_creation
  5  offline replicas
  6  a leader without the listener that the client uses is LISTENER_NOT_FOUND, before it is not available
  7  leader epoch
  8  authorized operations
  9  flexible
  10 topic ids; a topic may be asked for by id
  12 null topic names
  13 top-level error code

A topic that does not exist is created when both the client and `auto.create.topics.enable` allow it, and the response
already has it: the client need not come back to find the leader. A topic that is asked for twice is described once; an
id wins over a name. A topic that the client may not DESCRIBE is refused if it is named, whether or not it exists, and
left out if it is not.
"""

from collections.abc import Mapping

import structlog

from tidemill.broker.authorization import (
    THE_CLUSTER,
    ResourceKind,
    authorized_operations,
    cluster_operations,
    on_each,
    permit,
    topic_named,
)
from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.endpoints import Endpoint, controller_id, leader_of, offline, reachable
from tidemill.broker.operations import NOT_ASKED, Operation
from tidemill.broker.partitions import permitted_topic
from tidemill.broker.quorum.image import INTERNAL_TOPICS, PartitionImage, TopicImage
from tidemill.broker.quorum.metadata import NewTopic, check_topic_name
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError, TopicAuthorizationFailed, UnknownTopicOrPartition
from tidemill.core.types import ZERO_UUID
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

log = structlog.get_logger("tidemill.broker.metadata")

TOP_LEVEL_ERROR_VERSION = 13
NULL_NAME_VERSION = 12
LISTENER_NOT_FOUND_VERSION = 6
NEVER_CREATED = INTERNAL_TOPICS | {"__cluster_metadata"}


async def handle(broker: BrokerServices, request: MetadataRequest, ctx: RequestContext) -> MetadataResponse:
    """The part of the cluster that was asked for."""
    topics: list[MetadataResponseTopic | TopicImage]
    with_operations = request.include_topic_authorized_operations
    authorizer = broker.authorizer
    if request.topics is None or (ctx.api_version == 0 and not request.topics):
        topics = [
            topic
            for name, topic in sorted(broker.controller.image.topics.items())
            if authorizer.allows(ctx, Operation.DESCRIBE, topic_named(name))
        ]
    else:
        may_create = request.allow_auto_topic_creation and broker.config.auto_create_topics_enable
        named = {(wanted.topic_id, wanted.name): wanted for wanted in request.topics}
        topics = [await _find(broker, ctx, wanted, may_create, with_operations) for wanted in named.values()]
    endpoints = reachable(broker, ctx)
    return MetadataResponse(
        brokers=tuple(
            MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in endpoints.values()
        ),
        cluster_id=broker.cluster_id,
        controller_id=controller_id(broker, endpoints),
        topics=tuple(
            topic
            if isinstance(topic, MetadataResponseTopic)
            else _describe(broker, ctx, topic, endpoints, with_operations)
            for topic in topics
        ),
        cluster_authorized_operations=cluster_operations(authorizer, ctx)
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


async def _find(
    broker: BrokerServices, ctx: RequestContext, wanted: MetadataRequestTopic, may_create: bool, with_operations: bool
) -> MetadataResponseTopic | TopicImage:
    name = wanted.name if wanted.topic_id == ZERO_UUID else None
    try:
        try:
            return permitted_topic(broker, ctx, Operation.DESCRIBE, name, wanted.topic_id)
        except UnknownTopicOrPartition:
            if name is None or name in NEVER_CREATED:
                raise
            check_topic_name(name)
            if not may_create:
                raise
            _permit_creation(broker, ctx, name)
            topic = await broker.controller.ensure_topic(NewTopic(name=name))
            log.info("topic created for a client that asked for it", topic=name)
            return topic
    except KafkaError as error:
        return MetadataResponseTopic(
            error_code=error.code,
            name="" if name is None and ctx.api_version < NULL_NAME_VERSION else name,
            topic_id=wanted.topic_id,
            topic_authorized_operations=NOT_ASKED
            if name is None or isinstance(error, TopicAuthorizationFailed)
            else _operations(broker, ctx, name, with_operations),
        )


def _permit_creation(broker: BrokerServices, ctx: RequestContext, name: str) -> None:
    """Raises TopicAuthorizationFailed unless the client may create any topic, or this one."""
    if not broker.authorizer.allows(ctx, Operation.CREATE, THE_CLUSTER):
        permit(broker.authorizer, ctx, Operation.CREATE, topic_named(name))


def _operations(broker: BrokerServices, ctx: RequestContext, topic: str, with_operations: bool) -> int:
    return authorized_operations(broker.authorizer, ctx, topic_named(topic)) if with_operations else NOT_ASKED


def _describe(
    broker: BrokerServices,
    ctx: RequestContext,
    topic: TopicImage,
    endpoints: Mapping[int, Endpoint],
    with_operations: bool,
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=tuple(
            _describe_partition(broker, partition, endpoints, ctx.api_version) for partition in topic.partitions
        ),
        topic_authorized_operations=_operations(broker, ctx, topic.name, with_operations),
    )


def _describe_partition(
    broker: BrokerServices, partition: PartitionImage, endpoints: Mapping[int, Endpoint], api_version: int
) -> MetadataResponsePartition:
    leader, error = leader_of(broker, endpoints, partition)
    replicas, isr, gone = partition.replicas, partition.isr, offline(endpoints, partition)
    if api_version == 0 and gone:  # it has no room for those that are away, and names none that it does not list
        replicas = tuple(each for each in replicas if each in endpoints)
        isr = tuple(each for each in isr if each in endpoints)
        error = ErrorCode.REPLICA_NOT_AVAILABLE if error is ErrorCode.NONE else error
    if error is ErrorCode.LISTENER_NOT_FOUND and api_version < LISTENER_NOT_FOUND_VERSION:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=error,
        partition_index=partition.partition,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=gone,
    )


def error_response(request: MetadataRequest, error: KafkaError, api_version: int) -> MetadataResponse:
    """The top-level error code, and before version 13 the error for every topic asked for."""
    if api_version >= TOP_LEVEL_ERROR_VERSION:
        return MetadataResponse(error_code=error.code)
    return MetadataResponse(
        topics=tuple(
            MetadataResponseTopic(error_code=error.code, name=wanted.name, topic_id=wanted.topic_id or ZERO_UUID)
            for wanted in request.topics or ()
        )
    )


ROUTES = (
    Route(
        key=ApiKey.METADATA,
        handle=handle,
        min_version=0,
        max_version=13,
        needs=(
            on_each(Operation.DESCRIBE, ResourceKind.TOPIC),
            on_each(Operation.CREATE, ResourceKind.TOPIC),
            on_each(Operation.CREATE, ResourceKind.CLUSTER),
            on_each(Operation.DESCRIBE, ResourceKind.CLUSTER),
        ),
        error_response=error_response,
    ),
)
