"""AlterPartitionReassignments and ListPartitionReassignments on the wire, in every version."""

from pathlib import Path

import pytest

from tests.broker.broker_world import broker_and_client
from tidemill.broker.quorum.metadata import NewTopic
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidemill.core.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(
    ("topic", "partition", "replicas", "code"),
    [
        ("t", 0, (1,), ErrorCode.NONE),
        ("t", 0, (2,), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, (1, 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, (-1,), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, (1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, (), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ("t", 9, (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 9, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("x", 0, (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_a_partition_stays_where_it_is(
    tmp_path: Path, version: int, topic: str, partition: int, replicas: tuple[int, ...] | None, code: ErrorCode
) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="t")])
        before = broker.controller.image
        asked = ReassignablePartition(partition_index=partition, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=(ReassignableTopic(name=topic, partitions=(asked,)),), allow_replication_factor_change=version == 0
        )
        response = await client.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, request)
        assert (response.error_code, response.allow_replication_factor_change) == (0, version == 0)
        ((answer,),) = (entry.partitions for entry in response.responses)
        assert (answer.partition_index, answer.error_code) == (partition, code)
        assert (answer.error_message is None) == (code is ErrorCode.NONE)
        assert broker.controller.image is before


async def test_nothing_is_under_way(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.controller.create_topics([NewTopic(name="t")])
        named = (ListPartitionReassignmentsTopics(name="t", partition_indexes=(0,)),)
        for topics in (None, named, ()):
            request = ListPartitionReassignmentsRequest(topics=topics)
            response = await client.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, request)
            assert (response.error_code, response.error_message, response.topics) == (0, None, ())
