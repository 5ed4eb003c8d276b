"""ListOffsets (2): offsets by time

versions: 1-11
  2  isolation level, throttle time
  4  current leader epoch in the request, leader epoch in the response
  6  flexible
  7  -3: the record with the largest timestamp (KIP-734)
  8  -4: earliest local offset
  9  -5: latest tiered offset
  10 timeout
  11 -6: earliest offset not tiered yet

-1 is the high watermark, -2 the log start. Nothing is tiered: -4 is the log start, -5 and -6 have no offset. A
timestamp of 0 or later asks for the first record with that time or a later one; when there is none the offset is -1.
"""

from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.log.epochs import UNKNOWN_EPOCH
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.partitions import find_log, find_topic
from tidemill.core.errors import KafkaError, UnsupportedVersion
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6

_FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_NOTHING = (-1, -1)


def handle(broker: BrokerServices, request: ListOffsetsRequest, ctx: RequestContext) -> ListOffsetsResponse:
    """One offset per partition."""
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(_answer(broker, topic, partition, ctx) for partition in topic.partitions),
            )
            for topic in request.topics
        )
    )


def _answer(
    broker: BrokerServices, topic: ListOffsetsTopic, partition: ListOffsetsPartition, ctx: RequestContext
) -> ListOffsetsPartitionResponse:
    try:
        image = find_topic(broker, topic.name)
        partition_log, led = find_log(broker, image, partition.partition_index, partition.current_leader_epoch)
        timestamp, offset = _find(partition_log, partition.timestamp, ctx.api_version)
    except KafkaError as error:
        return ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=error.code)
    return ListOffsetsPartitionResponse(
        partition_index=partition.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=_epoch_at(partition_log, offset, led.leader_epoch) if offset >= 0 else -1,
    )


def _epoch_at(partition_log: PartitionLog, offset: int, leader_epoch: int) -> int:
    """The epoch that wrote `offset`; a log in which nothing was ever written is the current leader's."""
    epoch = partition_log.epochs.epoch_at(offset)
    return leader_epoch if epoch == UNKNOWN_EPOCH else epoch


def _find(partition_log: PartitionLog, timestamp: int, api_version: int) -> tuple[int, int]:
    """(timestamp, offset) for what was asked; the timestamp is -1 where the answer is a place, not a record."""
    if api_version < _FIRST_VERSION.get(timestamp, 0):
        raise UnsupportedVersion(f"timestamp {timestamp} has no meaning in version {api_version}")
    if timestamp >= 0:
        return partition_log.offset_for_timestamp(timestamp) or _NOTHING
    if timestamp == LATEST:
        return -1, partition_log.high_watermark
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, partition_log.log_start_offset
    if timestamp == MAX_TIMESTAMP:
        return partition_log.offset_of_max_timestamp() or _NOTHING
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NOTHING
    raise UnsupportedVersion(f"timestamp {timestamp} has no meaning")


def error_response(request: ListOffsetsRequest, error: KafkaError, _api_version: int) -> ListOffsetsResponse:
    """The same error for every partition."""
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=error.code)
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


ROUTES = (Route(key=ApiKey.LIST_OFFSETS, handle=handle, min_version=1, max_version=11, error_response=error_response),)
