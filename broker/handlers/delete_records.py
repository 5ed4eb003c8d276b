"""DeleteRecords (21): let a partition begin later

versions: 0-2
  2  flexible

Everything below the given offset is gone for readers at once; files go when all of a segment lies below it. -1 stands
for the high watermark. The new log start is durable before it is answered. A topic that is only compacted promises to
keep the last value of every key, so nothing is deleted from it this way (KIP-107).

It is answered when the records are gone wherever they might be read again: when the log begins there, durably, on every
live replica and on all that may be elected (the low watermark, which is answered). Where that takes longer than the
request's timeout the answer is REQUEST_TIMED_OUT, and the records are gone here all the same. Apache Kafka does not
wait for eligible leader replicas that are away.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Final, NamedTuple

from tidemill.broker import administration_log
from tidemill.broker.authorization import ResourceKind, on_each
from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.operations import Operation
from tidemill.broker.partitions import find_replica, permitted_topic
from tidemill.broker.replication.replica import Replica
from tidemill.core.errors import (
    InvalidTopicException,
    KafkaError,
    KafkaStorageError,
    OffsetOutOfRange,
    PolicyViolation,
    RequestTimedOut,
)
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK: Final = -1

TIMEOUT_MAX_MS: Final = 300_000
"""Nobody waits longer: a client may be gone for long by then. Kafka's clients ask for half a minute or a whole one."""

LOOK_AGAIN_S: Final = 1.0
"""Who waits for a replica looks so often whether it still has to: nobody says that a broker was fenced."""


class Deleted(NamedTuple):
    """What was done here: the log of a partition begins at `offset` or behind it, durably."""

    replica: Replica
    offset: int


async def handle(broker: BrokerServices, request: DeleteRecordsRequest, ctx: RequestContext) -> DeleteRecordsResponse:
    """Move the log start of every partition asked for, and wait until it has moved everywhere."""
    deadline = broker.clock.monotonic() + min(max(request.timeout_ms, 0), TIMEOUT_MAX_MS) / 1000
    asked = [(topic, partition) for topic in request.topics for partition in topic.partitions]
    waiting: Counter[Replica] = Counter()
    try:
        async with asyncio.TaskGroup() as group:  # together they are written down once
            deleting = [group.create_task(_delete(broker, ctx, *each, waiting)) for each in asked]
        here = [each.result() for each in deleting]
        done = [
            f"{topic.name}-{partition.partition_index} (before {each.replica.log_start_offset})"
            for (topic, partition), each in zip(asked, here, strict=True)
            if isinstance(each, Deleted)
        ]
        administration_log.tell("records deleted", done, ctx)
        rows = [
            await _row(broker, partition.partition_index, each, deadline)
            for (_, partition), each in zip(asked, here, strict=True)
        ]
    finally:
        broker.replicas.deleting -= waiting  # in place, and none is left at zero
    left = iter(rows)
    return DeleteRecordsResponse(
        topics=tuple(
            DeleteRecordsTopicResult(name=topic.name, partitions=tuple([next(left) for _ in topic.partitions]))
            for topic in request.topics
        )
    )


async def _delete(
    broker: BrokerServices,
    ctx: RequestContext,
    topic: DeleteRecordsTopic,
    partition: DeleteRecordsPartition,
    waiting: Counter[Replica],
) -> Deleted | KafkaError:
    """On this broker; from before the first follower can hear of it that is `waiting`, and deleting."""
    try:
        image = permitted_topic(broker, ctx, Operation.DELETE, topic.name)
        if image.internal:
            raise InvalidTopicException(f"topic {topic.name!r} is the cluster's own")
        replica = find_replica(broker, image, partition.partition_index)
        partition_log = replica.log
        if partition_log.config.compacted and not partition_log.config.deletes_by_age_or_size:
            raise PolicyViolation(f"topic {topic.name!r} is compacted: its records are not deleted by offset")
        if partition.offset < HIGH_WATERMARK:
            raise OffsetOutOfRange(f"there is no offset {partition.offset}")
        offset = replica.high_watermark if partition.offset == HIGH_WATERMARK else partition.offset
        waiting[replica] += 1
        broker.replicas.deleting[replica] += 1
        await broker.logs.delete_records(partition_log, offset)
    except KafkaError as error:
        return error
    return Deleted(replica, offset)


async def _row(
    broker: BrokerServices, index: int, here: Deleted | KafkaError, deadline: float
) -> DeleteRecordsPartitionResult:
    try:
        if isinstance(here, KafkaError):
            raise here
        low_watermark = await _deleted_everywhere(broker, here, deadline)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=error.code)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)


async def _deleted_everywhere(broker: BrokerServices, here: Deleted, deadline: float) -> int:
    """The low watermark, once it is where it is to be; raises KafkaError."""
    replica, moved = here.replica, asyncio.Event()
    replica.wait_for_data(moved.set)  # also where it leads no more, or is closed
    replica.watch(moved.set)
    try:
        while True:
            moved.clear()
            replica.machine.check_leads()
            if replica.closed:
                raise KafkaStorageError(f"{replica.log.topic_partition} is closed")
            brokers = broker.controller.image.brokers
            low_watermark = replica.machine.low_watermark({each for each, known in brokers.items() if not known.fenced})
            if low_watermark >= here.offset:
                return low_watermark
            left_s = deadline - broker.clock.monotonic()
            if left_s <= 0:
                raise RequestTimedOut(f"{replica.log.topic_partition} begins at {low_watermark} on some replica")
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, LOOK_AGAIN_S)):
                    await moved.wait()
    finally:
        replica.stop_waiting(moved.set)


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
