"""CreateTopics, DeleteTopics, CreatePartitions

versions: CreateTopics 2-7 (4: -1 takes the cluster's defaults; 5: answers with partitions, replicas and settings; 7:
answers with the topic id). DeleteTopics 1-6 (5: error text; 6: topics by id). CreatePartitions 0-3.

The answer comes when the change is on the disk and the logs are there, so `timeout_ms` has nothing to limit.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tidemill.broker import administration_log
from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.quorum.metadata import NewTopic, PartitionIncrease, TopicRef, TopicResult
from tidemill.broker.topic_config import TOPIC_CONFIG, Layers, text_of, walk_topic
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
    results = await broker.controller.create_topics(
        [_new_topic(topic) for topic in request.topics], validate_only=request.validate_only
    )
    if not request.validate_only:
        administration_log.tell("topics created", _done(results), ctx)
    layers = broker.config_layers()
    return CreateTopicsResponse(topics=tuple(_created(result, layers) for result in results))


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments={entry.partition_index: entry.broker_ids for entry in topic.assignments},
        configs={entry.name: entry.value for entry in topic.configs},
    )


def _created(result: TopicResult, layers: Layers) -> CreatableTopicResult:
    code, text = _problem(result.error)
    created = CreatableTopicResult(
        name=result.name or "", topic_id=result.topic_id, error_code=code, error_message=text
    )
    if result.error is not None:
        return created
    held = [(key.name, walk_topic(key, result.configs, layers)[0]) for key in TOPIC_CONFIG]
    return replace(
        created,
        num_partitions=result.partitions,
        replication_factor=result.replication_factor,
        configs=tuple(
            CreatableTopicConfigs(name=name, value=text_of(value.value), config_source=int(value.source))
            for name, value in held
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
    results = await broker.controller.delete_topics(refs)
    administration_log.tell("topics deleted", _done(results), ctx)
    return DeleteTopicsResponse(responses=tuple(_deleted(result) for result in results))


def _deleted(result: TopicResult) -> DeletableTopicResult:
    code, text = _problem(result.error)
    return DeletableTopicResult(name=result.name, topic_id=result.topic_id, error_code=code, error_message=text)


async def create_partitions(
    broker: BrokerServices, request: CreatePartitionsRequest, ctx: RequestContext
) -> CreatePartitionsResponse:
    """Give topics more partitions."""
    results = await broker.controller.create_partitions(
        [_increase(topic) for topic in request.topics], validate_only=request.validate_only
    )
    if not request.validate_only:
        counts = {topic.name: topic.count for topic in request.topics}
        grown = (f"{name} (now {counts[name]})" for name in _done(results))
        administration_log.tell("partitions added", grown, ctx)
    return CreatePartitionsResponse(results=tuple(_grown(result) for result in results))


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
    Route(key=ApiKey.CREATE_TOPICS, handle=create_topics, min_version=2, max_version=7, error_response=_create_failed),
    Route(key=ApiKey.DELETE_TOPICS, handle=delete_topics, min_version=1, max_version=6, error_response=_delete_failed),
    Route(
        key=ApiKey.CREATE_PARTITIONS,
        handle=create_partitions,
        min_version=0,
        max_version=3,
        error_response=_grow_failed,
    ),
)
