"""Metadata (3): brokers, topics, partitions and who leads them

versions: 0-13
  1  controller id; null topics means all, none means none (in version 0 none means all)
  2  cluster id
  3  throttle time
  4  allow_auto_topic_creation
  5  offline replicas
  7  leader epoch
  8  authorized operations (not computed: there are no ACLs, the field says so)
  9  flexible
  10 topic ids; a topic may be asked for by id
  12 null topic names
  13 top-level error code

A topic that does not exist is created when both the client and `auto.create.topics.enable` allow it, and the response
already has it: the client need not come back to find the leader.
"""

import structlog

from broker.dispatch import BrokerServices, RequestContext, Route
from broker.endpoints import own_endpoint
from broker.partitions import find_topic
from broker.quorum.image import INTERNAL_TOPICS, PartitionImage, TopicImage
from broker.quorum.metadata import NewTopic
from core.error_code import ErrorCode
from core.errors import KafkaError, UnknownTopicOrPartition
from core.types import ZERO_UUID
from core.wire.api import ApiKey
from core.wire.messages.metadata import (
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


async def handle(broker: BrokerServices, request: MetadataRequest, ctx: RequestContext) -> MetadataResponse:
    """The part of the cluster that was asked for."""
    topics: list[MetadataResponseTopic]
    if request.topics is None or (ctx.api_version == 0 and not request.topics):
        image = broker.controller.image
        topics = [_describe(topic) for _, topic in sorted(image.topics.items())]
    else:
        may_create = request.allow_auto_topic_creation and broker.config.auto_create_topics_enable
        topics = [await _find(broker, wanted, may_create, ctx.api_version) for wanted in request.topics]
    own = own_endpoint(broker, ctx)
    return MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=own.node_id, host=own.host, port=own.port, rack=own.rack),),
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=tuple(topics),
    )


async def _find(
    broker: BrokerServices, wanted: MetadataRequestTopic, may_create: bool, api_version: int
) -> MetadataResponseTopic:
    try:
        try:
            topic = find_topic(broker, wanted.name, wanted.topic_id)
        except UnknownTopicOrPartition:
            if not may_create or not wanted.name or wanted.name in INTERNAL_TOPICS:
                raise
            topic = await broker.controller.ensure_topic(NewTopic(name=wanted.name))
            log.info("topic created for a client that asked for it", topic=wanted.name)
    except KafkaError as error:
        name = wanted.name or (None if api_version >= NULL_NAME_VERSION else "")
        return MetadataResponseTopic(error_code=error.code, name=name, topic_id=wanted.topic_id)
    return _describe(topic)


def _describe(topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=tuple(_describe_partition(partition) for partition in topic.partitions),
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
