"""CreateTopics, DeleteTopics, CreatePartitions

versions: CreateTopics 2-7 (4: -1 takes the cluster's defaults; 5: answers with partitions, replicas and settings; 7:
answers with the topic id). DeleteTopics 1-6 (5: error text; 6: topics by id). CreatePartitions 0-3.

The answer comes when the change is on the disk and the logs are there, so `timeout_ms` has nothing to limit. What a
client may not do is refused topic by topic, after the results of what it may. Partitions made and deleted are charged;
a client that is over its quota waits for its next request, and is not refused this one (KIP-599 would in new versions).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeVar

from tidemill.broker import administration_log
from tidemill.broker.authorization import THE_CLUSTER, ResourceKind, on_each, permit, topic_named
from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.operations import Operation
from tidemill.broker.quorum.metadata import NewTopic, PartitionIncrease, TopicRef, TopicResult
from tidemill.broker.quotas import Quota
from tidemill.broker.topic_config import Layers, text_of, what_holds
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError
from tidemill.core.types import ZERO_UUID
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from tidemill.core.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidemill.core.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


def _problem(error: KafkaError | None) -> tuple[int, str | None]:
    return (0, None) if error is None else (error.code, str(error))


def _done(results: Iterable[TopicResult]) -> Iterator[str]:
    return (result.name or str(result.topic_id) for result in results if result.error is None)


async def create_topics(
    broker: BrokerServices, request: CreateTopicsRequest, ctx: RequestContext
) -> CreateTopicsResponse:
    """Create topics."""
    allowed, refused = _divided(request.topics, partial(_may_create, broker, ctx))
    results = await broker.controller.create_topics(
        [_new_topic(topic) for topic in allowed], validate_only=request.validate_only
    )
    throttle_ms = 0
    if not request.validate_only:
        administration_log.tell("topics created", _done(results), ctx)
        throttle_ms = _charge(broker, ctx, sum(result.partitions for result in results if result.error is None))
    layers = broker.config_layers()
    return CreateTopicsResponse(
        throttle_time_ms=throttle_ms,
        topics=tuple(_created(broker, ctx, result, layers) for result in (*results, *refused)),
    )


_Named = TypeVar("_Named", CreatableTopic, CreatePartitionsTopic)


def _divided(
    topics: Iterable[_Named], refusal: Callable[[str], KafkaError | None]
) -> tuple[list[_Named], list[TopicResult]]:
    """The topics to which that may be done, and what is said of the others."""
    allowed, refused = [], []
    for topic in topics:
        error = refusal(topic.name)
        if error is None:
            allowed.append(topic)
        else:
            refused.append(TopicResult(name=topic.name, error=error))
    return allowed, refused


def _may(broker: BrokerServices, ctx: RequestContext, operation: Operation, name: str) -> KafkaError | None:
    """Why the client may not do that to a topic, which need not exist; None if it may."""
    try:
        permit(broker.authorizer, ctx, operation, topic_named(name))
    except KafkaError as error:
        return error
    return None


def _may_create(broker: BrokerServices, ctx: RequestContext, name: str) -> KafkaError | None:
    if broker.authorizer.allows(ctx, Operation.CREATE, THE_CLUSTER):
        return None
    return _may(broker, ctx, Operation.CREATE, name)


def _charge(broker: BrokerServices, ctx: RequestContext, partitions: int) -> int:
    """Charge partitions that were made or deleted; how many milliseconds the client is to wait."""
    return broker.quotas.charge(Quota.MUTATIONS, partitions, ctx, ctx.client_id) if partitions else 0


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments={entry.partition_index: entry.broker_ids for entry in topic.assignments},
        configs={entry.name: entry.value for entry in topic.configs},
    )


def _created(broker: BrokerServices, ctx: RequestContext, result: TopicResult, layers: Layers) -> CreatableTopicResult:
    code, text = _problem(result.error)
    created = CreatableTopicResult(
        name=result.name or "", topic_id=result.topic_id, error_code=code, error_message=text
    )
    if result.error is not None:
        return created
    if not broker.authorizer.allows(ctx, Operation.DESCRIBE_CONFIGS, topic_named(created.name)):
        return replace(created, topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return replace(
        created,
        num_partitions=result.partitions,
        replication_factor=result.replication_factor,
        configs=tuple(
            CreatableTopicConfigs(name=name, value=text_of(value.value), config_source=int(value.source))
            for name, value in what_holds(result.configs, layers)
        ),
    )


async def delete_topics(
    broker: BrokerServices, request: DeleteTopicsRequest, ctx: RequestContext
) -> DeleteTopicsResponse:
    """Delete topics by name or id."""
    if ctx.api_version >= 6:
        refs = [TopicRef(name=topic.name, topic_id=topic.topic_id) for topic in request.topics]
    else:
        refs = [TopicRef(name=name) for name in request.topic_names]
    allowed, refused = _deletable(broker, ctx, refs)
    image = broker.controller.image
    results = await broker.controller.delete_topics(allowed)
    administration_log.tell("topics deleted", _done(results), ctx)
    gone = (image.topics.get(name) for name in _done(results))
    throttle_ms = _charge(broker, ctx, sum(len(topic.partitions) for topic in gone if topic is not None))
    return DeleteTopicsResponse(
        throttle_time_ms=throttle_ms, responses=tuple(_deleted(result) for result in (*results, *refused))
    )


def _deletable(
    broker: BrokerServices, ctx: RequestContext, refs: Iterable[TopicRef]
) -> tuple[list[TopicRef], list[TopicResult]]:
    """What may be deleted, and what is said of the rest: the name of a topic only to those who may know it."""
    allowed, refused = [], []
    names = broker.controller.image.topic_names
    for ref in refs:
        name = ref.name or names.get(ref.topic_id)
        error = None if name is None else _may(broker, ctx, Operation.DELETE, name)
        if error is None or name is None:
            allowed.append(ref)
            continue
        is_told = ref.name or broker.authorizer.allows(ctx, Operation.DESCRIBE, topic_named(name))
        refused.append(TopicResult(name=name if is_told else None, topic_id=ref.topic_id, error=error))
    return allowed, refused


def _deleted(result: TopicResult) -> DeletableTopicResult:
    code, text = _problem(result.error)
    return DeletableTopicResult(name=result.name, topic_id=result.topic_id, error_code=code, error_message=text)


async def create_partitions(
    broker: BrokerServices, request: CreatePartitionsRequest, ctx: RequestContext
) -> CreatePartitionsResponse:
    """Give topics more partitions."""
    allowed, refused = _divided(request.topics, partial(_may, broker, ctx, Operation.ALTER))
    image = broker.controller.image
    results = await broker.controller.create_partitions(
        [_increase(topic) for topic in allowed], validate_only=request.validate_only
    )
    throttle_ms = 0
    if not request.validate_only:
        counts = {topic.name: topic.count for topic in allowed}
        done = list(_done(results))
        administration_log.tell("partitions added", (f"{name} (now {counts[name]})" for name in done), ctx)
        added = sum(counts[name] - len(image.topics[name].partitions) for name in done if name in image.topics)
        throttle_ms = _charge(broker, ctx, max(added, 0))
    return CreatePartitionsResponse(
        throttle_time_ms=throttle_ms, results=tuple(_grown(result) for result in (*results, *refused))
    )


def _increase(topic: CreatePartitionsTopic) -> PartitionIncrease:
    assignments = None if topic.assignments is None else tuple(entry.broker_ids for entry in topic.assignments)
    return PartitionIncrease(name=topic.name, count=topic.count, assignments=assignments)


def _grown(result: TopicResult) -> CreatePartitionsTopicResult:
    code, text = _problem(result.error)
    return CreatePartitionsTopicResult(name=result.name or "", error_code=code, error_message=text)


def _create_failed(request: CreateTopicsRequest, error: KafkaError, api_version: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=tuple(
            CreatableTopicResult(name=topic.name, error_code=error.code, error_message=str(error))
            for topic in request.topics
        )
    )


def _delete_failed(request: DeleteTopicsRequest, error: KafkaError, api_version: int) -> DeleteTopicsResponse:
    named = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names]
    return DeleteTopicsResponse(
        responses=tuple(
            DeletableTopicResult(
                name=topic.name, topic_id=topic.topic_id, error_code=error.code, error_message=str(error)
            )
            for topic in (*request.topics, *named)
        )
    )


def _grow_failed(request: CreatePartitionsRequest, error: KafkaError, api_version: int) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=tuple(
            CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=str(error))
            for topic in request.topics
        )
    )


ROUTES = (
    Route(
        key=ApiKey.CREATE_TOPICS,
        handle=create_topics,
        min_version=2,
        max_version=7,
        needs=(
            on_each(Operation.CREATE, ResourceKind.CLUSTER),
            on_each(Operation.CREATE, ResourceKind.TOPIC),
            on_each(Operation.DESCRIBE_CONFIGS, ResourceKind.TOPIC),
        ),
        error_response=_create_failed,
    ),
    Route(
        key=ApiKey.DELETE_TOPICS,
        handle=delete_topics,
        min_version=1,
        max_version=6,
        needs=(on_each(Operation.DELETE, ResourceKind.TOPIC), on_each(Operation.DESCRIBE, ResourceKind.TOPIC)),
        error_response=_delete_failed,
    ),
    Route(
        key=ApiKey.CREATE_PARTITIONS,
        handle=create_partitions,
        min_version=0,
        max_version=3,
        needs=(on_each(Operation.ALTER, ResourceKind.TOPIC),),
        error_response=_grow_failed,
    ),
)
