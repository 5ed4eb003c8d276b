"""DescribeLogDirs and AlterReplicaLogDirs on the wire, in every version."""

import shutil
from pathlib import Path

import pytest

from tests.broker.broker_world import broker_and_client
from tests.broker.handlers.data_path import records
from tidemill.broker.handlers.log_dirs import ROUTES
from tidemill.broker.quorum.metadata import NewTopic
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import UnknownServerError
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tidemill.core.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

ROUTE = {route.key: route for route in ROUTES}
MOVE, DESCRIBE = ROUTE[ApiKey.ALTER_REPLICA_LOG_DIRS], ROUTE[ApiKey.DESCRIBE_LOG_DIRS]


def sizes(response: DescribeLogDirsResponse) -> dict[tuple[str, int], int]:
    (folder,) = response.results
    assert all(not entry.is_future_key and entry.offset_lag == 0 for t in folder.topics for entry in t.partitions)
    return {(t.name, entry.partition_index): entry.partition_size for t in folder.topics for entry in t.partitions}


@pytest.mark.parametrize("version", range(DESCRIBE.min_version, DESCRIBE.max_version + 1))
async def test_the_folder_with_the_bytes_of_every_partition_and_the_room_on_the_disk(
    tmp_path: Path, version: int
) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="b", partitions=2), NewTopic(name="a")])
        data = records(b"x" * 1000)
        partition_log = broker.logs.get("b", 1)
        assert partition_log is not None
        partition_log.append(data, now_ms=broker.clock.now_ms())
        response = await client.ask(ApiKey.DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(topics=None))
        (folder,) = response.results
        assert (response.error_code, folder.error_code, folder.log_dir) == (0, 0, str(tmp_path))
        assert sizes(response) == {("a", 0): 0, ("b", 0): 0, ("b", 1): len(data)}
        on_disk = (tmp_path / "b-1" / "00000000000000000000.log").stat().st_size
        assert sizes(response)["b", 1] == on_disk
        if version >= 4:
            assert folder.total_bytes == shutil.disk_usage(tmp_path).total
            assert 0 < folder.usable_bytes <= folder.total_bytes
        else:
            assert (folder.total_bytes, folder.usable_bytes) == (-1, -1)
        assert not folder.is_cordoned


async def test_only_the_partitions_that_are_asked_for_and_stored_here(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="a", partitions=3), NewTopic(name="b")])
        topics = (
            DescribableLogDirTopic(topic="a", partitions=(2, 0, 9)),
            DescribableLogDirTopic(topic="x", partitions=(0,)),
        )
        response = await client.ask(ApiKey.DESCRIBE_LOG_DIRS, 5, DescribeLogDirsRequest(topics=topics))
        assert list(sizes(response)) == [("a", 0), ("a", 2)]
        response = await client.ask(ApiKey.DESCRIBE_LOG_DIRS, 5, DescribeLogDirsRequest(topics=()))
        assert sizes(response) == {}
        assert response.results[0].total_bytes > 0


async def test_a_folder_that_failed_says_so(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        broker.logs.failure = OSError(5, "Input/output error")
        try:
            response = await client.ask(ApiKey.DESCRIBE_LOG_DIRS, 5, DescribeLogDirsRequest(topics=None))
        finally:
            broker.logs.failure = None
        (folder,) = response.results
        assert (folder.error_code, folder.log_dir, folder.topics) == (
            ErrorCode.KAFKA_STORAGE_ERROR,
            str(tmp_path),
            (),
        )


@pytest.mark.parametrize("version", range(MOVE.min_version, MOVE.max_version + 1))
async def test_a_replica_is_in_the_only_folder_there_is(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="a", partitions=2)])
        here = (
            AlterReplicaLogDirTopic(name="a", partitions=(0, 9)),
            AlterReplicaLogDirTopic(name="x", partitions=(0,)),
        )
        there = (AlterReplicaLogDirTopic(name="a", partitions=(1,)),)
        request = AlterReplicaLogDirsRequest(
            dirs=(AlterReplicaLogDir(path=str(tmp_path), topics=here), AlterReplicaLogDir(path="/other", topics=there))
        )
        response = await client.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, version, request)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [
            (t.topic_name, [(entry.partition_index, entry.error_code) for entry in t.partitions])
            for t in response.results
        ] == [("a", [(0, 0), (9, missing), (1, ErrorCode.LOG_DIR_NOT_FOUND)]), ("x", [(0, missing)])]


def test_a_failure_is_told_where_the_version_has_a_place_for_it() -> None:
    assert DESCRIBE.error_response is not None
    assert MOVE.error_response is not None
    error = UnknownServerError()
    assert DESCRIBE.error_response(DescribeLogDirsRequest(), error, 3).error_code == -1
    assert DESCRIBE.error_response(DescribeLogDirsRequest(), error, 2).results[0].error_code == -1
    topics = (AlterReplicaLogDirTopic(name="a", partitions=(0, 1)),)
    request = AlterReplicaLogDirsRequest(dirs=(AlterReplicaLogDir(path="/other", topics=topics),))
    (topic,) = MOVE.error_response(request, error, 2).results
    assert [(entry.partition_index, entry.error_code) for entry in topic.partitions] == [(0, -1), (1, -1)]
