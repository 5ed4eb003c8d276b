"""Metadata (3): brokers, topics, partitions and who leads them

versions: 0-13
  1  controller id; null topics means all, none means none (in version 0 none means all)
  2  cluster id
  3  throttle time
  4  allow_auto_topic_creation
  5  offline replicas
  7  leader epoch
  8  authorized operations: all, since there are no ACLs
  9  flexible
  10 topic ids; a topic may be asked for by id
  12 null topic names
  13 top-level error code

A topic that does not exist is created when both the client and `auto.create.topics.enable` allow it, and the response
already has it: the client need not come back to find the leader. A topic that is asked for twice is described once; an
id wins over a name.
"""

import structlog

from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.endpoints import own_endpoint
from tidemill.broker.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from tidemill.broker.partitions import find_topic
from tidemill.broker.quorum.image import INTERNAL_TOPICS, PartitionImage, TopicImage
from tidemill.broker.quorum.metadata import NewTopic, check_topic_name
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError, UnknownTopicOrPartition
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
NEVER_CREATED = INTERNAL_TOPICS | {"__cluster_metadata"}


async def handle(broker: BrokerServices, request: MetadataRequest, ctx: RequestContext) -> MetadataResponse:
    """The part of the cluster that was asked for."""
    topics: list[MetadataResponseTopic]
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    if request.topics is None or (ctx.api_version == 0 and not request.topics):
        image = broker.controller.image
        topics = [_describe(topic, operations) for _, topic in sorted(image.topics.items())]
    else:
        may_create = request.allow_auto_topic_creation and broker.config.auto_create_topics_enable
        named = {(wanted.topic_id, wanted.name): wanted for wanted in request.topics}
        topics = [await _find(broker, wanted, may_create, operations, ctx.api_version) for wanted in named.values()]
    own = own_endpoint(broker, ctx)
    return MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=own.node_id, host=own.host, port=own.port, rack=own.rack),),
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=tuple(topics),
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


async def _find(
    broker: BrokerServices, wanted: MetadataRequestTopic, may_create: bool, operations: int, api_version: int
) -> MetadataResponseTopic:
    name = wanted.name if wanted.topic_id == ZERO_UUID else None
    try:
        try:
            topic = find_topic(broker, name, wanted.topic_id)
        except UnknownTopicOrPartition:
            if name is None or name in NEVER_CREATED:
                raise
            check_topic_name(name)
            if not may_create:
                raise
            topic = await broker.controller.ensure_topic(NewTopic(name=name))
            log.info("topic created for a client that asked for it", topic=name)
    except KafkaError as error:
        return MetadataResponseTopic(
            error_code=error.code,
            name="" if name is None and api_version < NULL_NAME_VERSION else name,
            topic_id=wanted.topic_id,
            topic_authorized_operations=NOT_ASKED if name is None else operations,
        )
    return _describe(topic, operations)


def _describe(topic: TopicImage, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=tuple(_describe_partition(partition) for partition in topic.partitions),
        topic_authorized_operations=operations,
    )


def _describe_partition(partition: PartitionImage) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if partition.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.partition,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
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


ROUTES = (Route(key=ApiKey.METADATA, handle=handle, min_version=0, max_version=13, error_response=error_response),)
