"""Produce and fetch messages for whole record batches

Builds requests from, and reads responses into, flat tuples per partition, so that callers group work by leader and
never touch the nested structs. Record bytes are passed through as views of the response frame, which the caller owns.
"""

import uuid
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ..error_code import ErrorCode
from ..types import ZERO_UUID, TopicPartition
from ..wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ..wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ..wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ..wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST, EARLIEST = -1, -2  # the special timestamps of ListOffsets
FETCH_NAMES_MAX = 12  # last Fetch version that names topics; later ones use ids
PRODUCE_NAMES_MAX = 12  # the same for Produce
ACKS_ALL = -1
_CONSUMER = -1  # the replica id of whoever is none

RecordBytes = bytes | bytearray | memoryview


class FetchWant(NamedTuple):
    """Where to read on in one partition."""

    partition: TopicPartition
    offset: int
    max_bytes: int
    topic_id: uuid.UUID = ZERO_UUID


class Fetched(NamedTuple):
    """What one partition answered."""

    partition: TopicPartition
    error_code: int
    data: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]  # (producer id, first offset)
    preferred_read_replica: int


class Produced(NamedTuple):
    """Where one batch went."""

    partition: TopicPartition
    error_code: int
    base_offset: int
    log_start_offset: int
    message: str | None


class FoundOffset(NamedTuple):
    """One answer of ListOffsets."""

    error_code: int
    offset: int
    timestamp: int


class EpochEnd(NamedTuple):
    """The largest leader epoch up to the one that was asked for, and where it ended; -1 where it cannot be told."""

    error_code: int
    epoch: int
    end_offset: int


def fetch_request(
    wants: Iterable[FetchWant],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    isolation_level: int,
    rack_id: str = "",
) -> FetchRequest:
    """One request for many partitions of one leader, without a fetch session."""
    topics: dict[tuple[str, uuid.UUID], list[FetchPartition]] = {}
    for want in wants:
        topics.setdefault((want.partition.topic, want.topic_id), []).append(
            FetchPartition(
                partition=want.partition.partition, fetch_offset=want.offset, partition_max_bytes=want.max_bytes
            )
        )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=tuple(
            FetchTopic(topic=name, topic_id=topic_id, partitions=tuple(partitions))
            for (name, topic_id), partitions in topics.items()
        ),
        rack_id=rack_id,
    )


def fetch_answers(response: FetchResponse, wants: Iterable[FetchWant]) -> list[Fetched]:
    """One answer per partition that the response has; ids are turned back into names."""
    names = {want.topic_id: want.partition.topic for want in wants}
    return [
        _fetched(TopicPartition(topic.topic or names.get(topic.topic_id, ""), data.partition_index), data)
        for topic in response.responses
        for data in topic.partitions
    ]


def _fetched(partition: TopicPartition, data: PartitionData) -> Fetched:
    return Fetched(
        partition=partition,
        error_code=data.error_code,
        data=memoryview(data.records or b""),
        high_watermark=data.high_watermark,
        last_stable_offset=data.last_stable_offset if data.last_stable_offset >= 0 else data.high_watermark,
        log_start_offset=data.log_start_offset,
        aborted=tuple((item.producer_id, item.first_offset) for item in data.aborted_transactions or ()),
        preferred_read_replica=data.preferred_read_replica,
    )


def produce_request(
    batches: Mapping[TopicPartition, RecordBytes],
    *,
    timeout_ms: int,
    topic_ids: Mapping[TopicPartition, uuid.UUID] = MappingProxyType({}),
) -> ProduceRequest:
    """One request with one batch per partition, to be acknowledged by all in-sync replicas."""
    topics: dict[tuple[str, uuid.UUID], list[PartitionProduceData]] = {}
    for partition, batch in batches.items():
        records = memoryview(batch) if isinstance(batch, bytearray) else batch
        topic = partition.topic, topic_ids.get(partition, ZERO_UUID)
        topics.setdefault(topic, []).append(PartitionProduceData(index=partition.partition, records=records))
    return ProduceRequest(
        acks=ACKS_ALL,
        timeout_ms=timeout_ms,
        topic_data=tuple(
            TopicProduceData(name=name, topic_id=topic_id, partition_data=tuple(partitions))
            for (name, topic_id), partitions in topics.items()
        ),
    )


def produce_answers(
    response: ProduceResponse, topic_ids: Mapping[TopicPartition, uuid.UUID] = MappingProxyType({})
) -> list[Produced]:
    """One answer per partition; ids are turned back into names."""
    names = {topic_id: partition.topic for partition, topic_id in topic_ids.items()}
    return [
        _produced(TopicPartition(topic.name or names.get(topic.topic_id, ""), answer.index), answer)
        for topic in response.responses
        for answer in topic.partition_responses
    ]


def _produced(partition: TopicPartition, answer: PartitionProduceResponse) -> Produced:
    reasons = [item.batch_index_error_message for item in answer.record_errors if item.batch_index_error_message]
    return Produced(
        partition=partition,
        error_code=answer.error_code,
        base_offset=answer.base_offset,
        log_start_offset=answer.log_start_offset,
        message=answer.error_message or (reasons[0] if reasons else None),
    )


def list_offsets_request(
    timestamps: Mapping[TopicPartition, int], isolation_level: int = READ_UNCOMMITTED, timeout_ms: int = 30_000
) -> ListOffsetsRequest:
    """One request for offsets by timestamp, or by LATEST and EARLIEST."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for partition, timestamp in timestamps.items():
        topics.setdefault(partition.topic, []).append(
            ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp)
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=tuple(ListOffsetsTopic(name=name, partitions=tuple(rows)) for name, rows in topics.items()),
        timeout_ms=timeout_ms,
    )


def list_offsets_answers(
    response: ListOffsetsResponse, wanted: Iterable[TopicPartition]
) -> dict[TopicPartition, FoundOffset]:
    """One answer per wanted partition; one that is missing counts as an unknown partition."""
    missing = FoundOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    found = {
        TopicPartition(topic.name, row.partition_index): FoundOffset(row.error_code, row.offset, row.timestamp)
        for topic in response.topics
        for row in topic.partitions
    }
    return {partition: found.get(partition, missing) for partition in wanted}


def epoch_ends_request(epochs: Mapping[TopicPartition, int]) -> OffsetForLeaderEpochRequest:
    """One request for where leader epochs ended; the leader's own epoch is not checked."""
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for partition, epoch in epochs.items():
        row = OffsetForLeaderPartition(partition=partition.partition, leader_epoch=epoch)
        topics.setdefault(partition.topic, []).append(row)
    return OffsetForLeaderEpochRequest(
        replica_id=_CONSUMER,
        topics=tuple(OffsetForLeaderTopic(topic=name, partitions=tuple(rows)) for name, rows in topics.items()),
    )


def epoch_ends_answers(
    response: OffsetForLeaderEpochResponse, wanted: Iterable[TopicPartition]
) -> dict[TopicPartition, EpochEnd]:
    """One answer per wanted partition; one that is missing counts as an unknown partition."""
    missing = EpochEnd(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    found = {
        TopicPartition(topic.topic, row.partition): EpochEnd(row.error_code, row.leader_epoch, row.end_offset)
        for topic in response.topics
        for row in topic.partitions
    }
    return {partition: found.get(partition, missing) for partition in wanted}
