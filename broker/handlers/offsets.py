"""OffsetCommit and OffsetFetch

versions: OffsetCommit 2-10 (2-4: a retention time of its own; 6: leader epoch; 7: static members; 10: topics by id).
OffsetFetch 1-10 (2: all topics of a group, and an error for the whole group; 5: leader epoch; 7: require_stable; 8:
several groups; 9: the member that asks; 10: topics by id).

Offsets of topics that do not exist are refused. A topic named by its name is the one that has it when the commit is
decided, and what was committed for a topic is never the answer about another one of the same name
(`tidemill.broker.groups.topics`). There are no transactions yet, so every offset is stable. Version 9's
member id and epoch belong to KIP-848 groups; a classic group answers anybody, as Kafka's does.

A group, topic or partition that one OffsetFetch names more than once is answered once: each name is a few bytes, and
what is kept for it may be four kilobytes a partition.
"""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tidemill.broker.authorization import (
    ALLOW_ALL,
    ResourceKind,
    group_named,
    on_each,
    on_the_group,
    permit,
    topic_named,
)
from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.groups.events import CommitOffsets, CommittedOffset, OffsetToCommit
from tidemill.broker.log.turns import Turns
from tidemill.broker.operations import Operation
from tidemill.broker.quorum.metadata import ClusterImage
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError
from tidemill.core.types import ZERO_UUID
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidemill.core.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

NO_OFFSET = -1


async def offset_commit(
    broker: BrokerServices, request: OffsetCommitRequest, ctx: RequestContext
) -> OffsetCommitResponse:
    """Keep positions of a group; answered when they are on the disk."""
    await broker.ensure_offsets_topic()
    refused = _refused(broker, ctx, ((topic.name, topic.topic_id) for topic in request.topics))
    wanted = [topic for topic in request.topics if (topic.name, topic.topic_id) not in refused]
    result = await broker.groups.commit(
        CommitOffsets(
            request_id=broker.groups.request_id(),
            group_id=request.group_id,
            generation_id=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            retention_ms=request.retention_time_ms if ctx.api_version <= 4 else -1,
            offsets=tuple(_offsets(wanted, by_id=ctx.api_version >= 10)),
        )
    )
    errors = iter(result.errors)
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
                        if (topic.name, topic.topic_id) in refused
                        else next(errors),
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _refused(
    broker: BrokerServices,
    ctx: RequestContext,
    topics: Iterable[tuple[str, uuid.UUID]],
    operation: Operation = Operation.READ,
) -> frozenset[tuple[str, uuid.UUID]]:
    """Those of `topics`, by name or id, whose offsets the client may not have or change; an unknown id is none."""
    if broker.authorizer is ALLOW_ALL:
        return frozenset()
    names = broker.controller.image.topic_names
    return frozenset(
        (name, topic_id)
        for name, topic_id in topics
        if (known := name or names.get(topic_id)) and not _may(broker, ctx, known, operation)
    )


def _may(broker: BrokerServices, ctx: RequestContext, topic: str, operation: Operation) -> bool:
    return broker.authorizer.allows(ctx, operation, topic_named(topic))


def _offsets(topics: Sequence[OffsetCommitRequestTopic], *, by_id: bool) -> Iterator[OffsetToCommit]:
    for topic in topics:
        for partition in topic.partitions:
            yield OffsetToCommit(
                topic=None if by_id else topic.name,
                partition=partition.partition_index,
                offset=partition.committed_offset,
                leader_epoch=partition.committed_leader_epoch,
                metadata=partition.committed_metadata or "",
                topic_id=topic.topic_id,
            )


async def offset_fetch(broker: BrokerServices, request: OffsetFetchRequest, ctx: RequestContext) -> OffsetFetchResponse:
    """Positions of groups."""
    if ctx.api_version >= 8:
        turns, groups = Turns(broker.clock.monotonic), []
        for group_id, topics in _groups_once(request.groups).items():
            await turns.give_way()
            groups.append(await _group(broker, ctx, group_id, topics))
        return OffsetFetchResponse(groups=tuple(groups))
    permit(broker.authorizer, ctx, Operation.DESCRIBE, group_named(request.group_id))
    asked = (
        None
        if request.topics is None
        else {name: partitions for (name, _), partitions in _topics_once(request.topics).items()}
    )
    refused = _refused(broker, ctx, ((name, ZERO_UUID) for name in asked or ()), Operation.DESCRIBE)
    offsets = await broker.groups.committed_offsets(request.group_id, None if asked is None else _places(asked.items()))
    wanted: Mapping[str, Iterable[int]] = _all_partitions(broker, ctx, offsets) if asked is None else asked
    return OffsetFetchResponse(
        topics=tuple(
            OffsetFetchResponseTopic(
                name=name,
                partitions=tuple(
                    OffsetFetchResponsePartition(
                        partition_index=partition,
                        committed_offset=found.offset,
                        committed_leader_epoch=found.leader_epoch,
                        metadata=found.metadata,
                        error_code=error,
                    )
                    for error in (_error(refused, name, ZERO_UUID),)
                    for partition, found in _found({} if error else offsets, name, partitions)
                ),
            )
            for name, partitions in wanted.items()
        )
    )


_Topics = dict[tuple[str, uuid.UUID], dict[int, None]]
"""The partitions that are asked for, by name and id of their topic; each of them once, in order."""


def _topics_once(topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics]) -> _Topics:
    once: _Topics = {}
    for topic in topics:
        topic_id = topic.topic_id if isinstance(topic, OffsetFetchRequestTopics) else ZERO_UUID
        once.setdefault((topic.name, topic_id), {}).update(dict.fromkeys(topic.partition_indexes))
    return once


def _groups_once(groups: Iterable[OffsetFetchRequestGroup]) -> dict[str, _Topics | None]:
    """What is asked of each group; None is everything it has."""
    named: dict[str, list[OffsetFetchRequestTopics] | None] = {}
    for group in groups:
        topics = named.setdefault(group.group_id, [])
        if topics is None or group.topics is None:
            named[group.group_id] = None
        else:
            topics += group.topics
    return {name: None if topics is None else _topics_once(topics) for name, topics in named.items()}


def _places(topics: Iterable[tuple[str, Iterable[int]]]) -> Iterator[tuple[str, int]]:
    return ((name, partition) for name, partitions in topics for partition in partitions)


_NOTHING = CommittedOffset(offset=NO_OFFSET, leader_epoch=-1, metadata="", commit_timestamp_ms=-1)


def _found(
    offsets: Mapping[tuple[str, int], CommittedOffset], name: str, partitions: Iterable[int]
) -> Iterator[tuple[int, CommittedOffset]]:
    for partition in partitions:
        yield partition, offsets.get((name, partition), _NOTHING)


def _all_partitions(
    broker: BrokerServices, ctx: RequestContext, offsets: Mapping[tuple[str, int], CommittedOffset]
) -> dict[str, list[int]]:
    """Where there are offsets, as far as the client may know of the topic."""
    partitions: dict[str, list[int]] = defaultdict(list)
    for name, partition in offsets:
        partitions[name].append(partition)
    if broker.authorizer is ALLOW_ALL:
        return partitions
    return {name: found for name, found in partitions.items() if _may(broker, ctx, name, Operation.DESCRIBE)}


def _error(refused: frozenset[tuple[str, uuid.UUID]], name: str, topic_id: uuid.UUID) -> ErrorCode:
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED if (name, topic_id) in refused else ErrorCode.NONE


async def _group(
    broker: BrokerServices, ctx: RequestContext, group_id: str, topics: _Topics | None
) -> OffsetFetchResponseGroup:
    by_id = ctx.api_version >= 10
    image = broker.controller.image
    asked = [(_kept_under(image, *topic, by_id), partitions) for topic, partitions in (topics or {}).items()]
    refused = _refused(broker, ctx, topics or (), Operation.DESCRIBE)
    try:
        permit(broker.authorizer, ctx, Operation.DESCRIBE, group_named(group_id))
        offsets = await broker.groups.committed_offsets(group_id, None if topics is None else _places(asked))
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group_id, error_code=error.code)
    image = broker.controller.image  # the one that the offsets were judged by
    wanted: Mapping[tuple[str, uuid.UUID], Iterable[int]] = (
        {(name, _id(image, name)): partitions for name, partitions in _all_partitions(broker, ctx, offsets).items()}
        if topics is None
        else topics
    )
    return OffsetFetchResponseGroup(
        group_id=group_id,
        topics=tuple(
            _topic(image, {} if error else offsets, name, topic_id, partitions, by_id, error)
            for (name, topic_id), partitions in wanted.items()
            for error in (_error(refused, name, topic_id),)
        ),
    )


def _id(image: ClusterImage, name: str) -> uuid.UUID:
    return image.topics[name].topic_id


def _kept_under(image: ClusterImage, name: str, topic_id: uuid.UUID, by_id: bool) -> str:
    """The name that a topic's offsets are kept under; empty when no topic has the id."""
    return image.topic_names.get(topic_id, "") if by_id else name


def _topic(
    image: ClusterImage,
    offsets: Mapping[tuple[str, int], CommittedOffset],
    asked_name: str,
    topic_id: uuid.UUID,
    partitions: Iterable[int],
    by_id: bool,
    error: ErrorCode,
) -> OffsetFetchResponseTopics:
    name = _kept_under(image, asked_name, topic_id, by_id)
    if by_id and not name:
        error = ErrorCode.UNKNOWN_TOPIC_ID
    return OffsetFetchResponseTopics(
        name=asked_name,
        topic_id=topic_id,
        partitions=tuple(
            OffsetFetchResponsePartitions(
                partition_index=partition,
                committed_offset=found.offset,
                committed_leader_epoch=found.leader_epoch,
                metadata=found.metadata,
                error_code=error,
            )
            for partition, found in _found(offsets, name, partitions)
        ),
    )


def _commit_failed(request: OffsetCommitRequest, error: KafkaError, api_version: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error.code)
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _fetch_failed(request: OffsetFetchRequest, error: KafkaError, api_version: int) -> OffsetFetchResponse:
    if api_version >= 8:
        return OffsetFetchResponse(
            groups=tuple(
                OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code) for group in request.groups
            )
        )
    topics = tuple(
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=tuple(
                OffsetFetchResponsePartition(
                    partition_index=partition, committed_offset=NO_OFFSET, error_code=error.code
                )
                for partition in topic.partition_indexes
            ),
        )
        for topic in request.topics or ()
    )
    return OffsetFetchResponse(error_code=error.code, topics=topics)


ROUTES = (
    Route(
        key=ApiKey.OFFSET_COMMIT,
        handle=offset_commit,
        min_version=2,
        max_version=10,
        needs=(on_the_group(Operation.READ), on_each(Operation.READ, ResourceKind.TOPIC)),
        error_response=_commit_failed,
    ),
    Route(
        key=ApiKey.OFFSET_FETCH,
        handle=offset_fetch,
        min_version=1,
        max_version=10,
        needs=(on_each(Operation.DESCRIBE, ResourceKind.GROUP), on_each(Operation.DESCRIBE, ResourceKind.TOPIC)),
        error_response=_fetch_failed,
    ),
)
