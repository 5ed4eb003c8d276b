"""DeleteRecords (21): let a partition begin later

versions: 0-2
  2  flexible

Everything below the given offset is gone for readers at once; files go when all of a segment lies below it. -1 stands
for the high watermark. The new log start is durable before it is answered. A topic that is only compacted promises to
keep the last value of every key, so nothing is deleted from it this way (KIP-107).
"""

from tidemill.broker import administration_log
from tidemill.broker.authorization import ResourceKind, on_each
from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.operations import Operation
from tidemill.broker.partitions import find_replica, permitted_topic
from tidemill.core.errors import InvalidTopicException, KafkaError, OffsetOutOfRange, PolicyViolation
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1


async def handle(broker: BrokerServices, request: DeleteRecordsRequest, ctx: RequestContext) -> DeleteRecordsResponse:
    """Move the log start of every partition asked for."""
    topics = tuple(
        [
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple([await _delete(broker, ctx, topic, partition) for partition in topic.partitions]),
            )
            for topic in request.topics
        ]
    )
    done = (
        f"{topic.name}-{row.partition_index} (before {row.low_watermark})"
        for topic in topics
        for row in topic.partitions
        if not row.error_code
    )
    administration_log.tell("records deleted", done, ctx)
    return DeleteRecordsResponse(topics=topics)


async def _delete(
    broker: BrokerServices, ctx: RequestContext, topic: DeleteRecordsTopic, partition: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    index = partition.partition_index
    try:
        image = permitted_topic(broker, ctx, Operation.DELETE, topic.name)
        if image.internal:
            raise InvalidTopicException(f"topic {topic.name!r} is the cluster's own")
        replica = find_replica(broker, image, index)
        partition_log = replica.log
        if partition_log.config.compacted and not partition_log.config.deletes_by_age_or_size:
            raise PolicyViolation(f"topic {topic.name!r} is compacted: its records are not deleted by offset")
        if partition.offset < HIGH_WATERMARK:
            raise OffsetOutOfRange(f"there is no offset {partition.offset}")
        offset = replica.high_watermark if partition.offset == HIGH_WATERMARK else partition.offset
        log_start = await broker.logs.delete_records(partition_log, offset)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=error.code)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=log_start)


def error_response(request: DeleteRecordsRequest, error: KafkaError, _api_version: int) -> DeleteRecordsResponse:
    """The same error for every partition."""
    return DeleteRecordsResponse(
        topics=tuple(
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple(
                    DeleteRecordsPartitionResult(
                        partition_index=partition.partition_index, low_watermark=-1, error_code=error.code
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


ROUTES = (
    Route(
        key=ApiKey.DELETE_RECORDS,
        handle=handle,
        min_version=0,
        max_version=2,
        needs=(on_each(Operation.DELETE, ResourceKind.TOPIC),),
        error_response=error_response,
    ),
)
