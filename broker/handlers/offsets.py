"""OffsetCommit and OffsetFetch

versions: OffsetCommit 2-10 (2-4: a retention time of its own; 6: leader epoch; 7: static members; 10: topics by id).
OffsetFetch 1-10 (2: all topics of a group, and an error for the whole group; 5: leader epoch; 7: require_stable; 8:
several groups; 9: the member that asks; 10: topics by id).

Offsets of topics that do not exist are refused. A topic named by its name is the one that has it when the commit is
decided, and what was committed for a topic is never the answer about another one of the same name
(`tidemill.broker.groups.topics`). There are no transactions yet, so every offset is stable. Version 9's
member id and epoch belong to KIP-848 groups; a classic group answers anybody, as Kafka's does.
"""

import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.groups.events import CommitOffsets, CommittedOffset, OffsetToCommit
from tidemill.broker.quorum.metadata import ClusterImage
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError
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
    result = await broker.groups.commit(
        CommitOffsets(
            request_id=broker.groups.request_id(),
            group_id=request.group_id,
            generation_id=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            retention_ms=request.retention_time_ms if ctx.api_version <= 4 else -1,
            offsets=tuple(_offsets(request.topics, by_id=ctx.api_version >= 10)),
        )
    )
    errors = iter(result.errors)
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=next(errors))
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


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
        return OffsetFetchResponse(
            groups=tuple([await _group(broker, group, ctx.api_version) for group in request.groups])
        )
    offsets = await broker.groups.committed_offsets(request.group_id)
    wanted = (
        _all_partitions(offsets)
        if request.topics is None
        else {topic.name: topic.partition_indexes for topic in request.topics}
    )
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
                    )
                    for partition, found in _found(offsets, name, partitions)
                ),
            )
            for name, partitions in wanted.items()
        )
    )


_NOTHING = CommittedOffset(offset=NO_OFFSET, leader_epoch=-1, metadata="", commit_timestamp_ms=-1)


def _found(
    offsets: Mapping[tuple[str, int], CommittedOffset], name: str, partitions: Sequence[int]
) -> Iterator[tuple[int, CommittedOffset]]:
    for partition in partitions:
        yield partition, offsets.get((name, partition), _NOTHING)


def _all_partitions(offsets: Mapping[tuple[str, int], CommittedOffset]) -> dict[str, list[int]]:
    partitions: dict[str, list[int]] = defaultdict(list)
    for name, partition in offsets:
        partitions[name].append(partition)
    return partitions


async def _group(broker: BrokerServices, group: OffsetFetchRequestGroup, api_version: int) -> OffsetFetchResponseGroup:
    try:
        offsets = await broker.groups.committed_offsets(group.group_id)
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
    image = broker.controller.image  # the one that the offsets were judged by
    by_id = api_version >= 10
    wanted = group.topics
    if wanted is None:
        wanted = tuple(
            OffsetFetchRequestTopics(name=name, topic_id=_id(image, name), partition_indexes=tuple(partitions))
            for name, partitions in _all_partitions(offsets).items()
        )
    return OffsetFetchResponseGroup(
        group_id=group.group_id, topics=tuple(_topic(image, offsets, topic, by_id) for topic in wanted)
    )


def _id(image: ClusterImage, name: str) -> uuid.UUID:
    return image.topics[name].topic_id


def _topic(
    image: ClusterImage,
    offsets: Mapping[tuple[str, int], CommittedOffset],
    topic: OffsetFetchRequestTopics,
    by_id: bool,
) -> OffsetFetchResponseTopics:
    name = image.topic_names.get(topic.topic_id, "") if by_id else topic.name
    error = ErrorCode.UNKNOWN_TOPIC_ID if by_id and not name else ErrorCode.NONE
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            OffsetFetchResponsePartitions(
                partition_index=partition,
                committed_offset=found.offset,
                committed_leader_epoch=found.leader_epoch,
                metadata=found.metadata,
                error_code=error,
            )
            for partition, found in _found(offsets, name, topic.partition_indexes)
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
    Route(key=ApiKey.OFFSET_COMMIT, handle=offset_commit, min_version=2, max_version=10, error_response=_commit_failed),
    Route(key=ApiKey.OFFSET_FETCH, handle=offset_fetch, min_version=1, max_version=10, error_response=_fetch_failed),
)
