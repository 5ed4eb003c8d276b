"""OffsetDelete (47): forget how far a group got in some partitions

versions: 0 (KIP-496); never flexible, so the request cannot grow

An administrator's call for topics that a group has stopped reading. While a member subscribes to a topic its offsets
stay. A partition without a committed offset counts as done.
"""

from tidemill.broker import administration_log
from tidemill.broker.authorization import ResourceKind, on_each, on_the_group
from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.groups.events import DeleteOffsets
from tidemill.broker.operations import Operation
from tidemill.broker.partitions import find_partition, permitted_topic
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import InvalidGroupId, KafkaError, error_for_code
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(broker: BrokerServices, request: OffsetDeleteRequest, ctx: RequestContext) -> OffsetDeleteResponse:
    """One error per partition; an error about the group is the whole answer."""
    if not request.group_id:
        raise InvalidGroupId("the group id is empty")
    named = [(topic.name, entry.partition_index) for topic in request.topics for entry in topic.partitions]
    errors = {place: _missing(broker, ctx, *place) for place in named}
    wanted = [place for place, error in errors.items() if error == ErrorCode.NONE]
    errors.update(zip(wanted, await _deleted(broker, request.group_id, tuple(wanted)), strict=True))
    done = (f"{topic}-{index}" for (topic, index), code in errors.items() if not code)
    administration_log.tell("offsets deleted", done, ctx, group=request.group_id)
    return OffsetDeleteResponse(
        topics=tuple(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetDeleteResponsePartition(
                        partition_index=entry.partition_index, error_code=errors[topic.name, entry.partition_index]
                    )
                    for entry in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


async def _deleted(
    broker: BrokerServices, group_id: str, partitions: tuple[tuple[str, int], ...]
) -> tuple[ErrorCode, ...]:
    result = await broker.groups.delete_offsets(
        DeleteOffsets(request_id=broker.groups.request_id(), group_id=group_id, partitions=partitions)
    )
    if result.error is not ErrorCode.NONE:
        raise error_for_code(result.error, f"offsets of group {group_id!r} cannot be deleted")
    return result.errors


def _missing(broker: BrokerServices, ctx: RequestContext, topic: str, partition: int) -> int:
    try:
        find_partition(permitted_topic(broker, ctx, Operation.READ, topic), partition)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


ROUTES = (
    Route(
        key=ApiKey.OFFSET_DELETE,
        handle=handle,
        min_version=0,
        max_version=0,
        needs=(on_the_group(Operation.DELETE), on_each(Operation.READ, ResourceKind.TOPIC)),
    ),
)
