"""OffsetCommit and OffsetFetch on the wire, in every version."""

import uuid
from pathlib import Path

import pytest

from tests.broker.broker_world import WireClient, broker_and_client
from tidemill.broker.handlers.offsets import ROUTES
from tidemill.broker.quorum.metadata import NewTopic
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import CoordinatorNotAvailable
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidemill.core.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

COMMIT, FETCH = ROUTES
UNKNOWN_ID = uuid.UUID(int=99)


def commit_request(topic_id: uuid.UUID, *offsets: tuple[int, int, str | None]) -> OffsetCommitRequest:
    """Both the name and the id of topic `t`: a version sends one of them."""
    topic = OffsetCommitRequestTopic(
        name="t",
        topic_id=topic_id,
        partitions=tuple(
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_leader_epoch=3, committed_metadata=text
            )
            for partition, offset, text in offsets
        ),
    )
    unknown = OffsetCommitRequestTopic(
        name="unknown", topic_id=UNKNOWN_ID, partitions=(OffsetCommitRequestPartition(partition_index=0),)
    )
    return OffsetCommitRequest(group_id="g", topics=(topic, unknown))


async def fetch(client: WireClient, version: int, topic_id: uuid.UUID, *partitions: int) -> dict[int, tuple[int, str]]:
    """Offset and metadata of partitions of `t`; all that are kept when none is named."""
    if version >= 8:
        topics = (OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=partitions),)
        group = OffsetFetchRequestGroup(group_id="g", topics=topics if partitions else None)
        response = await client.ask(ApiKey.OFFSET_FETCH, version, OffsetFetchRequest(groups=(group,)))
        (answer,) = response.groups
        assert answer.group_id == "g"
    else:
        named = (OffsetFetchRequestTopic(name="t", partition_indexes=partitions),)
        request = OffsetFetchRequest(group_id="g", topics=named if partitions else None)
        answer = await client.ask(ApiKey.OFFSET_FETCH, version, request)
    assert answer.error_code == 0
    found = {}
    for topic in answer.topics:
        assert topic.topic_id == topic_id if version >= 10 else topic.name == "t"
        for partition in topic.partitions:
            assert partition.error_code == 0
            if version >= 5 and partition.committed_offset >= 0:
                assert partition.committed_leader_epoch == 3
            found[partition.partition_index] = (partition.committed_offset, partition.metadata)
    return found


@pytest.mark.parametrize("version", range(COMMIT.min_version, COMMIT.max_version + 1))
async def test_commit(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        (created,) = await broker.controller.create_topics([NewTopic(name="t", partitions=2)])
        request = commit_request(created.topic_id, (0, 10, "note"), (1, 20, None), (2, 30, ""), (-1, 5, ""))
        response = await client.ask(ApiKey.OFFSET_COMMIT, version, request)
        topic, unknown = response.topics
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [(entry.partition_index, entry.error_code) for entry in topic.partitions] == [
            (0, 0),
            (1, 0),
            (2, missing),
            (-1, missing),
        ]
        expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else missing
        assert [entry.error_code for entry in unknown.partitions] == [expected]
        if version >= 10:
            assert (topic.topic_id, unknown.topic_id) == (created.topic_id, UNKNOWN_ID)
        kept = await broker.groups.committed_offsets("g")
        assert {key: (entry.offset, entry.metadata) for key, entry in kept.items()} == {
            ("t", 0): (10, "note"),
            ("t", 1): (20, ""),
        }


@pytest.mark.parametrize("version", range(FETCH.min_version, FETCH.max_version + 1))
async def test_fetch(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        (created,) = await broker.controller.create_topics([NewTopic(name="t", partitions=3)])
        await client.ask(ApiKey.OFFSET_COMMIT, 9, commit_request(created.topic_id, (0, 10, "note"), (1, 20, "")))
        assert await fetch(client, version, created.topic_id, 0, 2) == {0: (10, "note"), 2: (-1, "")}
        if version >= 2:
            assert await fetch(client, version, created.topic_id) == {0: (10, "note"), 1: (20, "")}


async def test_offsets_of_a_topic_named_by_an_unknown_id(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (_, client):
        topic = OffsetFetchRequestTopics(topic_id=UNKNOWN_ID, partition_indexes=(0,))
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=(topic,)),))
        (group,) = (await client.ask(ApiKey.OFFSET_FETCH, 10, request)).groups
        assert group.topics[0].topic_id == UNKNOWN_ID
        assert group.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_several_groups_at_once(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        (created,) = await broker.controller.create_topics([NewTopic(name="t")])
        await client.ask(ApiKey.OFFSET_COMMIT, 9, commit_request(created.topic_id, (0, 10, "")))
        groups = (
            OffsetFetchRequestGroup(group_id="g", topics=None),
            OffsetFetchRequestGroup(group_id="h", topics=None),
        )
        response = await client.ask(ApiKey.OFFSET_FETCH, 9, OffsetFetchRequest(groups=groups))
        assert [(group.group_id, len(group.topics)) for group in response.groups] == [("g", 1), ("h", 0)]


async def test_offsets_go_with_their_topic(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        (created,) = await broker.controller.create_topics([NewTopic(name="t")])
        await client.ask(ApiKey.OFFSET_COMMIT, 9, commit_request(created.topic_id, (0, 10, "")))
        from tidemill.broker.quorum.metadata import TopicRef

        await broker.controller.delete_topics([TopicRef(name="t")])
        assert await broker.groups.committed_offsets("g") == {}


def test_errors_of_the_whole_request() -> None:
    error = CoordinatorNotAvailable("starting")
    assert COMMIT.error_response is not None
    assert FETCH.error_response is not None
    failed = COMMIT.error_response(commit_request(UNKNOWN_ID, (0, 1, "")), error, 9)
    assert {entry.error_code for topic in failed.topics for entry in topic.partitions} == {error.code}
    failed = FETCH.error_response(OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g"),)), error, 8)
    assert [(group.group_id, group.error_code) for group in failed.groups] == [("g", error.code)]
    old = OffsetFetchRequest(group_id="g", topics=(OffsetFetchRequestTopic(name="t", partition_indexes=(4,)),))
    failed = FETCH.error_response(old, error, 1)
    assert failed.error_code == failed.topics[0].partitions[0].error_code == error.code
