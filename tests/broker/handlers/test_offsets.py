"""OffsetCommit and OffsetFetch on the wire, in every version."""

import asyncio
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from tests.broker.broker_world import WireClient, broker_and_client
from tidemill.broker.groups.coordinator import OFFSETS_TOPIC
from tidemill.broker.groups.events import CommittedOffset
from tidemill.broker.groups.topics import Topics
from tidemill.broker.handlers.offsets import ROUTES
from tidemill.broker.quorum.controller import Controller
from tidemill.broker.quorum.metadata import NewTopic, Rules, TopicRef
from tidemill.broker.quorum.shared_map import SharedMap
from tidemill.broker.quorum.store import MetadataStore
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import CoordinatorNotAvailable
from tidemill.core.runtime.clock import SystemClock
from tidemill.core.runtime.disk import OsDirectory
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
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
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


@pytest.mark.parametrize("version", range(FETCH.min_version, FETCH.max_version + 1))
async def test_what_is_named_often_is_answered_once(tmp_path: Path, version: int) -> None:
    """Four bytes would be another four kilobytes of metadata each, and the name of a group all that it has."""
    async with broker_and_client(tmp_path) as (broker, client):
        (created,) = await broker.controller.create_topics([NewTopic(name="t", partitions=3)])
        await client.ask(ApiKey.OFFSET_COMMIT, 9, commit_request(created.topic_id, (0, 10, "note"), (1, 20, "")))
        if version >= 8:
            first = OffsetFetchRequestTopics(name="t", topic_id=created.topic_id, partition_indexes=(1, 0, 1))
            then = OffsetFetchRequestTopics(name="t", topic_id=created.topic_id, partition_indexes=(0, 2))
            groups = tuple(
                OffsetFetchRequestGroup(group_id=group, topics=topics)
                for group, topics in (("g", (first,)), ("h", None), ("g", (first, then)), ("h", (first,)))
            )
            response = await client.ask(ApiKey.OFFSET_FETCH, version, OffsetFetchRequest(groups=groups))
            (answer, other) = response.groups
            assert (answer.group_id, other.group_id, other.topics) == ("g", "h", ())
        else:
            named = [OffsetFetchRequestTopic(name="t", partition_indexes=indexes) for indexes in ((1, 0, 1), (0, 2))]
            answer = await client.ask(
                ApiKey.OFFSET_FETCH, version, OffsetFetchRequest(group_id="g", topics=tuple(named))
            )
        (topic,) = answer.topics
        assert [(row.partition_index, row.committed_offset) for row in topic.partitions] == [(1, 20), (0, 10), (2, -1)]


async def test_offsets_go_with_their_topic(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        (created,) = await broker.controller.create_topics([NewTopic(name="t")])
        await client.ask(ApiKey.OFFSET_COMMIT, 9, commit_request(created.topic_id, (0, 10, "")))
        await broker.controller.delete_topics([TopicRef(name="t")])
        assert await broker.groups.committed_offsets("g") == {}


async def decide_offline(folder: Path, *, create: bool) -> None:
    """Decide that `t` is deleted (and created again), and die before anything follows from it."""
    rules = Rules(
        num_partitions=1, default_replication_factor=1, delete_topic_enable=True, max_topics=100, max_partitions=100
    )
    store = MetadataStore(OsDirectory(str(folder)))
    controller = Controller(store, clock=SystemClock(), rules=rules, node_id=1, new_uuid=uuid.uuid4)
    controller.load()
    deciding = asyncio.create_task(controller.run())
    await controller.delete_topics([TopicRef(name="t")])
    if create:
        await controller.create_topics([NewTopic(name="t", partitions=2)])
    deciding.cancel()
    controller.close()


@pytest.mark.parametrize("create", [True, False], ids=["before it was created again", "before its tombstones"])
async def test_no_offset_outlives_its_topic_through_a_crash(tmp_path: Path, create: bool) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        (created,) = await broker.controller.create_topics([NewTopic(name="t", partitions=2)])
        await client.ask(ApiKey.OFFSET_COMMIT, 9, commit_request(created.topic_id, (0, 1000, "")))
    await decide_offline(tmp_path, create=create)
    async with broker_and_client(tmp_path) as (broker, client):
        if not create:
            await broker.controller.create_topics([NewTopic(name="t", partitions=2)])
        topic_id = broker.controller.image.topics["t"].topic_id
        for version in range(FETCH.min_version, FETCH.max_version + 1):
            assert await fetch(client, version, topic_id, 0) == {0: (-1, "")}


async def test_no_offset_outlives_its_topic_when_its_tombstone_cannot_be_written(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        (created,) = await broker.controller.create_topics([NewTopic(name="t", partitions=2)])
        await client.ask(ApiKey.OFFSET_COMMIT, 9, commit_request(created.topic_id, (0, 1000, "")))
        offsets_logs = [log for log in broker.logs if log.topic_partition.topic == "__consumer_offsets"]
        for log in offsets_logs:
            log.closed = True
        await broker.controller.delete_topics([TopicRef(name="t")])
        (again,) = await broker.controller.create_topics([NewTopic(name="t", partitions=2)])
        for log in offsets_logs:
            log.closed = False
        assert await fetch(client, 9, again.topic_id, 0) == {0: (-1, "")}
        if created.topic_id != again.topic_id:
            stale = commit_request(created.topic_id, (0, 1001, ""))
            answer = await client.ask(ApiKey.OFFSET_COMMIT, 10, stale)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    async with broker_and_client(tmp_path) as (_, client):
        assert await fetch(client, 10, again.topic_id, 0) == {0: (-1, "")}


async def test_a_commit_that_waited_is_for_the_topic_of_its_own_id_only(tmp_path: Path) -> None:
    """The topic is deleted and created again while the request waits for the offsets topic."""
    async with broker_and_client(tmp_path) as (broker, client):
        (created,) = await broker.controller.create_topics([NewTopic(name="t", partitions=2)])
        again: list[uuid.UUID] = []
        ensure = broker.ensure_offsets_topic

        async def slowly() -> None:
            await ensure()
            await broker.controller.delete_topics([TopicRef(name="t")])
            (topic,) = await broker.controller.create_topics([NewTopic(name="t", partitions=2)])
            again.append(topic.topic_id)

        broker.ensure_offsets_topic = slowly  # type: ignore[method-assign]
        answer = await client.ask(ApiKey.OFFSET_COMMIT, 10, commit_request(created.topic_id, (0, 1000, "")))
        assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert await fetch(client, 10, again[0], 0) == {0: (-1, "")}


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


@pytest.mark.parametrize("version", [1, 7, 8, 10])
async def test_what_is_not_asked_for_costs_nothing(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group may have committed in a hundred thousand partitions, and who asks for one may ask often."""
    async with broker_and_client(tmp_path) as (broker, client):
        (created,) = await broker.controller.create_topics([NewTopic(name="t", partitions=300)])
        everything = commit_request(created.topic_id, *((partition, partition, "") for partition in range(300)))
        await client.ask(ApiKey.OFFSET_COMMIT, 9, everything)
        looked_at: list[int] = []
        has = Topics.has

        def seen(topics: Topics, name: str, offset: CommittedOffset) -> bool:
            looked_at.append(offset.offset)
            return has(topics, name, offset)

        monkeypatch.setattr(Topics, "has", seen)
        assert await fetch(client, version, created.topic_id, 7, 299) == {7: (7, ""), 299: (299, "")}
        assert set(looked_at) == {7, 299}


@pytest.mark.parametrize(("leader", "expected"), [(2, ErrorCode.NOT_COORDINATOR), (1, LOADING)])
async def test_offsets_that_are_kept_elsewhere_or_not_taken_up_yet(
    tmp_path: Path, leader: int, expected: ErrorCode
) -> None:
    async with broker_and_client(tmp_path, offsets_topic_num_partitions="1") as (broker, client):
        (created,) = await broker.controller.create_topics([NewTopic(name="t", partitions=2)])
        await client.ask(ApiKey.OFFSET_COMMIT, 9, commit_request(created.topic_id, (0, 10, "note")))
        image = broker.controller.image
        topic = image.topics[OFFSETS_TOPIC]
        moved = (replace(topic.partitions[0], leader=leader, leader_epoch=9),)  # of which the replica has not heard
        topics = SharedMap({**image.topics, OFFSETS_TOPIC: replace(topic, partitions=moved)})
        broker.groups.image_changed(replace(image, topics=topics), frozenset())
        for version in range(COMMIT.min_version, COMMIT.max_version + 1):
            response = await client.ask(ApiKey.OFFSET_COMMIT, version, commit_request(created.topic_id, (0, 1, "")))
            assert response.topics[0].partitions[0].error_code == expected
        for version in range(FETCH.min_version, FETCH.max_version + 1):
            old = OffsetFetchRequest(group_id="g", topics=(OffsetFetchRequestTopic(name="t", partition_indexes=(0,)),))
            new = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g"),))
            answer = await client.ask(ApiKey.OFFSET_FETCH, version, new if version >= 8 else old)
            if version >= 8:
                assert answer.groups[0].error_code == expected
            elif version >= 2:
                assert answer.error_code == expected
            else:
                assert answer.topics[0].partitions[0].error_code == expected
        broker.groups.image_changed(image, frozenset())
        broker.groups.take_up()
        await broker.groups.load()
        assert await fetch(client, 10, created.topic_id, 0) == {0: (10, "note")}
