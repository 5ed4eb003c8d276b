"""DescribeLogDirs (35), AlterReplicaLogDirs (34): what lies where on disk

versions: DescribeLogDirs 1-5 (2: flexible; 3: an error for the whole answer; 4: size and free room of the volume,
KIP-827; 5: whether the folder takes new partitions, KIP-1066). AlterReplicaLogDirs 1-2 (2: flexible).

A broker has one folder, so moving a replica into it is done already and any other folder does not exist. Every replica
is its partition's only one: it never lags, and none is on its way from another folder.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import structlog

from tidemill.broker.authorization import on_the_cluster
from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.log.turns import Turns
from tidemill.broker.operations import Operation
from tidemill.broker.partitions import find_replica, find_topic
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError
from tidemill.core.runtime.disk_space import DiskSpace, disk_space
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from tidemill.core.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

log = structlog.get_logger("tidemill.broker.log_dirs")

UNKNOWN_SPACE = DiskSpace(total_bytes=-1, usable_bytes=-1)


async def describe_log_dirs(
    broker: BrokerServices, request: DescribeLogDirsRequest, ctx: RequestContext
) -> DescribeLogDirsResponse:
    """The data folder with the partitions asked for, all of them when `topics` is null."""
    folder = _folder(broker)
    if broker.logs.failure is not None:
        failed = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=folder)
        return DescribeLogDirsResponse(results=(failed,))
    space = await asyncio.to_thread(_space, folder)
    topics = await _sizes(broker, broker.logs if request.topics is None else _named(broker, request))
    return DescribeLogDirsResponse(
        results=(
            DescribeLogDirsResult(
                log_dir=folder, topics=topics, total_bytes=space.total_bytes, usable_bytes=space.usable_bytes
            ),
        )
    )


def _folder(broker: BrokerServices) -> str:
    return str(Path(broker.config.data_dir).absolute())


def _space(folder: str) -> DiskSpace:
    try:
        return disk_space(folder)
    except OSError as error:
        log.warning("the room on the disk is not known", folder=folder, reason=str(error))
        return UNKNOWN_SPACE


def _named(broker: BrokerServices, request: DescribeLogDirsRequest) -> Iterable[PartitionLog]:
    """The logs that a request names; Kafka leaves out in silence what is not stored here."""
    names = {(entry.topic, partition) for entry in request.topics or () for partition in entry.partitions}
    found = (broker.logs.get(topic, partition) for topic, partition in sorted(names))
    return (partition_log for partition_log in found if partition_log is not None)


async def _sizes(broker: BrokerServices, logs: Iterable[PartitionLog]) -> tuple[DescribeLogDirsTopic, ...]:
    topics: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    turns = Turns(broker.clock.monotonic)
    for partition_log in logs:
        await turns.give_way()
        if partition_log.closed:
            continue
        place = partition_log.topic_partition
        topics[place.topic].append(
            DescribeLogDirsPartition(partition_index=place.partition, partition_size=partition_log.size_bytes)
        )
    return tuple(
        DescribeLogDirsTopic(name=name, partitions=tuple(sorted(found, key=lambda entry: entry.partition_index)))
        for name, found in sorted(topics.items())
    )


def alter_replica_log_dirs(
    broker: BrokerServices, request: AlterReplicaLogDirsRequest, ctx: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Move replicas to a folder: the one they are in, or one that is not there."""
    errors: dict[str, dict[int, int]] = defaultdict(dict)
    for entry in request.dirs:
        for topic in entry.topics:
            for partition in topic.partitions:
                errors[topic.name][partition] = _error_of_move(broker, entry.path, topic.name, partition)
    return _moved(errors)


def _error_of_move(broker: BrokerServices, path: str, topic: str, partition: int) -> int:
    if path != _folder(broker):
        return ErrorCode.LOG_DIR_NOT_FOUND
    try:
        find_replica(broker, find_topic(broker, topic), partition)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _moved(errors: dict[str, dict[int, int]]) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=tuple(
            AlterReplicaLogDirTopicResult(
                topic_name=topic,
                partitions=tuple(
                    AlterReplicaLogDirPartitionResult(partition_index=partition, error_code=code)
                    for partition, code in partitions.items()
                ),
            )
            for topic, partitions in errors.items()
        )
    )


def _describe_failed(request: DescribeLogDirsRequest, error: KafkaError, api_version: int) -> DescribeLogDirsResponse:
    if api_version >= 3:
        return DescribeLogDirsResponse(error_code=error.code)
    return DescribeLogDirsResponse(results=(DescribeLogDirsResult(error_code=error.code),))


def _move_failed(
    request: AlterReplicaLogDirsRequest, error: KafkaError, api_version: int
) -> AlterReplicaLogDirsResponse:
    errors: dict[str, dict[int, int]] = defaultdict(dict)
    for entry in request.dirs:
        for topic in entry.topics:
            errors[topic.name].update(dict.fromkeys(topic.partitions, error.code))
    return _moved(errors)


ROUTES = (
    Route(
        key=ApiKey.ALTER_REPLICA_LOG_DIRS,
        handle=alter_replica_log_dirs,
        min_version=1,
        max_version=2,
        needs=(on_the_cluster(Operation.ALTER),),
        error_response=_move_failed,
    ),
    Route(
        key=ApiKey.DESCRIBE_LOG_DIRS,
        handle=describe_log_dirs,
        min_version=1,
        max_version=5,
        needs=(on_the_cluster(Operation.DESCRIBE),),
        error_response=_describe_failed,
    ),
)
