"""What clients are told that may not do something, in every API and on every way to it

A scene is a request, what is forbidden, and the error codes of the answer. Each is played twice where a topic is
forbidden: once with one that exists and once with one that does not, and nobody can tell which is which.
"""

import asyncio
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker_world import WireClient, broker_and_client, wire_client
from tests.broker.deny_some import Denied, DenySome
from tests.broker.handlers.data_path import decoded, fetch, fetch_request, make_topic, produce, produce_request, records
from tidemill.broker.authorization import ALLOW_ALL, THE_CLUSTER, Resource, ResourceKind, group_named, topic_named
from tidemill.broker.node import Broker
from tidemill.broker.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS, Operation
from tidemill.broker.principals import Principal
from tidemill.broker.quorum.image import TopicImage
from tidemill.broker.response_errors import error_codes
from tidemill.broker.routes import ROUTES
from tidemill.core.error_code import ErrorCode
from tidemill.core.types import ZERO_UUID
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import encode_request
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages import (
    alter_configs,
    create_partitions,
    delete_records,
    describe_configs,
    describe_producers,
    describe_topic_partitions,
    elect_leaders,
    incremental_alter_configs,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
)
from tidemill.core.wire.messages import fetch as wire_fetch
from tidemill.core.wire.messages import produce as wire_produce
from tidemill.core.wire.messages.add_raft_voter import AddRaftVoterRequest
from tidemill.core.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from tidemill.core.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tidemill.core.wire.messages.api_versions import ApiVersionsRequest
from tidemill.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidemill.core.wire.messages.delete_groups import DeleteGroupsRequest
from tidemill.core.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidemill.core.wire.messages.describe_cluster import DescribeClusterRequest
from tidemill.core.wire.messages.describe_groups import DescribeGroupsRequest
from tidemill.core.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from tidemill.core.wire.messages.describe_quorum import DescribeQuorumRequest
from tidemill.core.wire.messages.find_coordinator import FindCoordinatorRequest
from tidemill.core.wire.messages.heartbeat import HeartbeatRequest
from tidemill.core.wire.messages.init_producer_id import InitProducerIdRequest
from tidemill.core.wire.messages.join_group import JoinGroupRequest
from tidemill.core.wire.messages.leave_group import LeaveGroupRequest
from tidemill.core.wire.messages.list_config_resources import ListConfigResourcesRequest
from tidemill.core.wire.messages.list_groups import ListGroupsRequest
from tidemill.core.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tidemill.core.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from tidemill.core.wire.messages.sync_group import SyncGroupRequest
from tidemill.core.wire.messages.unregister_broker import UnregisterBrokerRequest
from tidemill.core.wire.messages.update_features import UpdateFeaturesRequest

TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTIONAL_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
GROUP_RESOURCE, TOPIC_RESOURCE, BROKER_RESOURCE = 32, 2, 4
X = Resource(ResourceKind.TRANSACTIONAL_ID, "x")
G = group_named("g")
ANY_TOPIC = Resource(ResourceKind.TOPIC, "*")


@dataclass(frozen=True, slots=True)
class Scene:
    """A request of one version, what is denied, and the error codes of its answer."""

    key: ApiKey
    version: int
    request: Message
    denied: tuple[Denied, ...]
    codes: tuple[int, ...]


def produced(*names: str, **more: Any) -> Message:
    data = (wire_produce.PartitionProduceData(index=0, records=records(b"x")),)
    topics = tuple(wire_produce.TopicProduceData(name=name, partition_data=data) for name in names)
    return wire_produce.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics, **more)


def fetched(*names: str, **more: Any) -> Message:
    row = (wire_fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20),)
    topics = tuple(wire_fetch.FetchTopic(topic=name, partitions=row) for name in names)
    return wire_fetch.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics, **more)


def committed(*names: str) -> Message:
    rows = (offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1),)
    topics = tuple(offset_commit.OffsetCommitRequestTopic(name=name, partitions=rows) for name in names)
    return offset_commit.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics)


def committed_of(*names: str) -> Message:
    topics = tuple(offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=(0,)) for name in names)
    return offset_fetch.OffsetFetchRequest(groups=(offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=topics),))


def described(kind: int, *names: str) -> Message:
    return describe_configs.DescribeConfigsRequest(
        resources=tuple(
            describe_configs.DescribeConfigsResource(resource_type=kind, resource_name=name) for name in names
        )
    )


def topic_scenes(t: str) -> Iterator[Scene]:
    """`t` is the topic that somebody may not have, whether it exists or not."""
    it = topic_named(t)
    write, read, see = ((operation, it) for operation in (Operation.WRITE, Operation.READ, Operation.DESCRIBE))
    for version in (3, 9):
        yield Scene(ApiKey.PRODUCE, version, produced("seen", t), (write,), (TOPIC,))
        yield Scene(ApiKey.PRODUCE, version, produced(t), (write,), (TOPIC,))
    for version in (4, 7, 12):
        yield Scene(ApiKey.FETCH, version, fetched("seen", t), (read,), (TOPIC,))
    unlike = ((Operation.CLUSTER_ACTION, THE_CLUSTER),)
    yield Scene(ApiKey.FETCH, 12, fetched(t, replica_id=7), unlike, (TOPIC,))
    rows = (list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1),)
    asked = tuple(list_offsets.ListOffsetsTopic(name=name, partitions=rows) for name in ("seen", t))
    yield Scene(ApiKey.LIST_OFFSETS, 6, list_offsets.ListOffsetsRequest(topics=asked), (see,), (TOPIC,))
    named = tuple(metadata.MetadataRequestTopic(name=name) for name in ("seen", t))
    yield Scene(ApiKey.METADATA, 12, metadata.MetadataRequest(topics=named), (see,), (TOPIC,))
    yield Scene(ApiKey.METADATA, 1, metadata.MetadataRequest(topics=named), (see,), (TOPIC,))
    yield Scene(ApiKey.OFFSET_COMMIT, 8, committed("seen", t, "seen"), (read,), (TOPIC,))
    yield Scene(ApiKey.OFFSET_FETCH, 8, committed_of("seen", t), (see,), (TOPIC,))
    old = tuple(offset_fetch.OffsetFetchRequestTopic(name=name, partition_indexes=(0,)) for name in (t, "seen"))
    yield Scene(ApiKey.OFFSET_FETCH, 7, offset_fetch.OffsetFetchRequest(group_id="g", topics=old), (see,), (TOPIC,))
    deleted = DeleteTopicsRequest(topics=(DeleteTopicState(name=t, topic_id=ZERO_UUID),))
    yield Scene(ApiKey.DELETE_TOPICS, 6, deleted, ((Operation.DELETE, it),), (TOPIC,))
    yield Scene(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=(t,)), ((Operation.DELETE, it), see), (TOPIC,))
    cut = delete_records.DeleteRecordsTopic(
        name=t, partitions=(delete_records.DeleteRecordsPartition(partition_index=0, offset=0),)
    )
    request: Message = delete_records.DeleteRecordsRequest(topics=(cut,), timeout_ms=1000)
    yield Scene(ApiKey.DELETE_RECORDS, 2, request, ((Operation.DELETE, it),), (TOPIC,))
    grown = create_partitions.CreatePartitionsTopic(name=t, count=9, assignments=None)
    request = create_partitions.CreatePartitionsRequest(topics=(grown,), timeout_ms=1000)
    yield Scene(ApiKey.CREATE_PARTITIONS, 3, request, ((Operation.ALTER, it),), (TOPIC,))
    epoch = offset_for_leader_epoch.OffsetForLeaderTopic(
        topic=t, partitions=(offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0),)
    )
    request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=(epoch,))
    yield Scene(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, request, (see, *unlike), (TOPIC,))
    who = describe_producers.TopicRequest(name=t, partition_indexes=(0,))
    request = describe_producers.DescribeProducersRequest(topics=(who,))
    yield Scene(ApiKey.DESCRIBE_PRODUCERS, 0, request, (read,), (TOPIC,))
    gone = offset_delete.OffsetDeleteRequestTopic(
        name=t, partitions=(offset_delete.OffsetDeleteRequestPartition(partition_index=0),)
    )
    request = offset_delete.OffsetDeleteRequest(group_id="g", topics=(gone,))
    yield Scene(ApiKey.OFFSET_DELETE, 0, request, (read,), (TOPIC,))
    request = described(TOPIC_RESOURCE, "seen", t)
    yield Scene(ApiKey.DESCRIBE_CONFIGS, 4, request, ((Operation.DESCRIBE_CONFIGS, it),), (TOPIC,))
    denied = ((Operation.ALTER_CONFIGS, it),)
    yield Scene(ApiKey.ALTER_CONFIGS, 2, replaced(TOPIC_RESOURCE, t), denied, (TOPIC,))
    yield Scene(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, altered(TOPIC_RESOURCE, t), denied, (TOPIC,))
    request = describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=tuple(describe_topic_partitions.TopicRequest(name=name) for name in ("seen", t))
    )
    yield Scene(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request, (see,), (TOPIC,))
    created = CreateTopicsRequest(topics=(CreatableTopic(name=t, num_partitions=1, replication_factor=1),))
    denied = ((Operation.CREATE, THE_CLUSTER), (Operation.CREATE, it))
    yield Scene(ApiKey.CREATE_TOPICS, 7, created, denied, (TOPIC,))


def replaced(kind: int, name: str) -> Message:
    resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name)
    return alter_configs.AlterConfigsRequest(resources=(resource,))


def altered(kind: int, name: str) -> Message:
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name)
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=(resource,))


def group_scenes() -> Iterator[Scene]:
    read, see, delete = ((operation, G) for operation in (Operation.READ, Operation.DESCRIBE, Operation.DELETE))
    yield Scene(ApiKey.JOIN_GROUP, 5, JoinGroupRequest(group_id="g", session_timeout_ms=6000), (read,), (GROUP,))
    yield Scene(ApiKey.SYNC_GROUP, 5, SyncGroupRequest(group_id="g"), (read,), (GROUP,))
    yield Scene(ApiKey.HEARTBEAT, 4, HeartbeatRequest(group_id="g"), (read,), (GROUP,))
    yield Scene(ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(group_id="g"), (read,), (GROUP,))
    yield Scene(ApiKey.OFFSET_COMMIT, 8, committed("seen", "hidden"), (read,), (GROUP, GROUP))
    yield Scene(ApiKey.OFFSET_FETCH, 8, committed_of("seen"), (see,), (GROUP,))
    yield Scene(ApiKey.OFFSET_FETCH, 7, offset_fetch.OffsetFetchRequest(group_id="g", topics=()), (see,), (GROUP,))
    yield Scene(ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=("g", "h")), (see,), (GROUP,))
    yield Scene(ApiKey.FIND_COORDINATOR, 1, FindCoordinatorRequest(key="g"), (see,), (GROUP,))
    yield Scene(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=("g", "h")), (see,), (GROUP,))
    yield Scene(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=("g",)), (delete,), (GROUP,))
    yield Scene(ApiKey.OFFSET_DELETE, 0, offset_delete.OffsetDeleteRequest(group_id="g"), (delete,), (GROUP,))
    denied = ((Operation.DESCRIBE_CONFIGS, G),)
    yield Scene(ApiKey.DESCRIBE_CONFIGS, 4, described(GROUP_RESOURCE, "g"), denied, (GROUP,))
    denied = ((Operation.ALTER_CONFIGS, G),)
    yield Scene(ApiKey.ALTER_CONFIGS, 2, replaced(GROUP_RESOURCE, "g"), denied, (GROUP,))
    yield Scene(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, altered(GROUP_RESOURCE, "g"), denied, (GROUP,))
    yield Scene(ApiKey.LIST_GROUPS, 5, ListGroupsRequest(), ((Operation.DESCRIBE, THE_CLUSTER), see), ())


def cluster_scenes() -> Iterator[Scene]:
    alter, see = ((operation, THE_CLUSTER) for operation in (Operation.ALTER, Operation.DESCRIBE))
    yield Scene(ApiKey.API_VERSIONS, 4, ApiVersionsRequest(client_software_name="c"), (alter, see), ())
    denied: tuple[Denied, ...] = ((Operation.IDEMPOTENT_WRITE, THE_CLUSTER), (Operation.WRITE, ANY_TOPIC))
    fresh = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    yield Scene(ApiKey.INIT_PRODUCER_ID, 4, fresh, denied, (CLUSTER,))
    yield Scene(ApiKey.INIT_PRODUCER_ID, 4, fresh, denied[:1], ())
    yield Scene(ApiKey.INIT_PRODUCER_ID, 4, fresh, denied[1:], ())
    mine = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1)
    yield Scene(ApiKey.INIT_PRODUCER_ID, 4, mine, ((Operation.WRITE, X),), (TRANSACTIONAL_ID,))
    theirs = produced("seen", transactional_id="x")
    yield Scene(ApiKey.PRODUCE, 9, theirs, ((Operation.WRITE, X),), (TRANSACTIONAL_ID,))
    denied = ((Operation.DESCRIBE_CONFIGS, THE_CLUSTER),)
    yield Scene(ApiKey.DESCRIBE_CONFIGS, 4, described(BROKER_RESOURCE, "1"), denied, (CLUSTER,))
    yield Scene(ApiKey.LIST_CONFIG_RESOURCES, 1, ListConfigResourcesRequest(), denied, (CLUSTER,))
    denied = ((Operation.ALTER_CONFIGS, THE_CLUSTER),)
    yield Scene(ApiKey.ALTER_CONFIGS, 2, replaced(BROKER_RESOURCE, "1"), denied, (CLUSTER,))
    yield Scene(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, altered(BROKER_RESOURCE, "1"), denied, (CLUSTER,))
    yield Scene(ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=None), (see,), (CLUSTER,))
    dirs = AlterReplicaLogDir(path="/x", topics=(AlterReplicaLogDirTopic(name="seen", partitions=(0,)),))
    yield Scene(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, AlterReplicaLogDirsRequest(dirs=(dirs,)), (alter,), (CLUSTER,))
    whom = (elect_leaders.TopicPartitions(topic="seen", partitions=(0,)),)
    elected = elect_leaders.ElectLeadersRequest(topic_partitions=whom, timeout_ms=1000)
    yield Scene(ApiKey.ELECT_LEADERS, 2, elected, (alter,), (CLUSTER, CLUSTER))
    moved = AlterPartitionReassignmentsRequest(topics=(), timeout_ms=1000)
    yield Scene(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, moved, (alter,), (CLUSTER,))
    listed = ListPartitionReassignmentsRequest(topics=None, timeout_ms=1000)
    yield Scene(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, listed, (see,), (CLUSTER,))
    yield Scene(ApiKey.DESCRIBE_QUORUM, 2, DescribeQuorumRequest(topics=()), (see,), (CLUSTER,))
    yield Scene(ApiKey.UPDATE_FEATURES, 2, UpdateFeaturesRequest(timeout_ms=1000), (alter,), (CLUSTER,))
    yield Scene(ApiKey.UNREGISTER_BROKER, 0, UnregisterBrokerRequest(broker_id=1), (alter,), (CLUSTER,))
    voter: dict[str, Any] = {"cluster_id": None, "voter_id": 2, "voter_directory_id": uuid.UUID(int=2)}
    more = AddRaftVoterRequest(**voter, timeout_ms=1000, listeners=())
    yield Scene(ApiKey.ADD_RAFT_VOTER, 1, more, (alter,), (CLUSTER,))
    yield Scene(ApiKey.REMOVE_RAFT_VOTER, 0, RemoveRaftVoterRequest(**voter), (alter,), (CLUSTER,))
    with_operations = DescribeClusterRequest(include_cluster_authorized_operations=True)
    yield Scene(ApiKey.DESCRIBE_CLUSTER, 2, with_operations, (see,), ())
    with_operations_too = metadata.MetadataRequest(topics=(), include_cluster_authorized_operations=True)
    yield Scene(ApiKey.METADATA, 8, with_operations_too, (see,), ())
    wanted = (metadata.MetadataRequestTopic(name="new"),)
    create = ((Operation.CREATE, THE_CLUSTER), (Operation.CREATE, topic_named("new")))
    made = metadata.MetadataRequest(topics=wanted, allow_auto_topic_creation=True)
    yield Scene(ApiKey.METADATA, 12, made, create, (TOPIC,))
    created = CreateTopicsRequest(topics=(CreatableTopic(name="mine", num_partitions=1, replication_factor=1),))
    yield Scene(ApiKey.CREATE_TOPICS, 7, created, ((Operation.DESCRIBE_CONFIGS, topic_named("mine")),), ())


def id_scenes(topic: TopicImage) -> Iterator[Scene]:
    """Topics named by their ids; an id that no topic has is told as that, whoever asks."""
    it, unknown = topic_named(topic.name), uuid.UUID(int=77)
    write, read, see = ((operation, it) for operation in (Operation.WRITE, Operation.READ, Operation.DESCRIBE))
    both = (topic.topic_id, unknown)
    data = (wire_produce.PartitionProduceData(index=0, records=records(b"x")),)
    batches = tuple(wire_produce.TopicProduceData(topic_id=each, partition_data=data) for each in both)
    codes = (TOPIC, ErrorCode.UNKNOWN_TOPIC_ID)
    request: Message = wire_produce.ProduceRequest(acks=1, topic_data=batches)
    yield Scene(ApiKey.PRODUCE, 13, request, (write,), codes)
    yield Scene(ApiKey.PRODUCE, 13, wire_produce.ProduceRequest(acks=1, topic_data=batches[:1]), (write,), codes[:1])
    row = (wire_fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20),)
    wanted = tuple(wire_fetch.FetchTopic(topic_id=each, partitions=row) for each in both[:1])
    request = wire_fetch.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=wanted)
    yield Scene(ApiKey.FETCH, 13, request, (read,), codes[:1])
    named = tuple(metadata.MetadataRequestTopic(topic_id=each, name=None) for each in both)
    yield Scene(ApiKey.METADATA, 12, metadata.MetadataRequest(topics=named), (see,), codes)
    deleted = DeleteTopicsRequest(topics=tuple(DeleteTopicState(topic_id=each, name=None) for each in both))
    yield Scene(ApiKey.DELETE_TOPICS, 6, deleted, ((Operation.DELETE, it), see), codes[::-1])
    rows = (offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1),)
    kept = tuple(offset_commit.OffsetCommitRequestTopic(topic_id=each, partitions=rows) for each in both)
    request = offset_commit.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=kept)
    yield Scene(ApiKey.OFFSET_COMMIT, 10, request, (read,), codes)
    sought = tuple(offset_fetch.OffsetFetchRequestTopics(topic_id=each, partition_indexes=(0,)) for each in both)
    of_group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=sought)
    yield Scene(ApiKey.OFFSET_FETCH, 10, offset_fetch.OffsetFetchRequest(groups=(of_group,)), (see,), codes)


SHOWN = {
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {
        (operation, ResourceKind.TOPIC) for operation in Operation if operation is not Operation.DESCRIBE
    }
}
"""What is asked in order to tell which operations are authorized, where a client cannot say that it does not care."""

SCENES = [*topic_scenes("hidden"), *group_scenes(), *cluster_scenes()]
PLAYED = {scene.key: [each for each in SCENES if each.key is scene.key] for scene in SCENES}
MISSING = {scene.key: [each for each in topic_scenes("missing") if each.key is scene.key] for scene in SCENES}


async def play(broker: Broker, client: WireClient, scene: Scene) -> tuple[Any, DenySome]:
    broker.authorizer = rules = DenySome(*scene.denied)
    return await client.ask(scene.key, scene.version, scene.request), rules


def test_there_is_a_scene_for_every_api() -> None:
    assert set(PLAYED) == {route.key for route in ROUTES}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.key.name)
async def test_what_is_denied_is_refused_with_the_right_error_and_nothing_else_is_asked(
    tmp_path: Path, route: Any
) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        for name in ("seen", "hidden"):
            topic = await make_topic(broker, name)
        await client.ask(ApiKey.OFFSET_COMMIT, 8, committed("seen"))  # now there is a group
        asked = set()
        by_id = [scene for scene in id_scenes(topic) if scene.key is route.key]
        for scene in (*PLAYED[route.key], *by_id):
            response, rules = await play(broker, client, scene)
            assert scene not in by_id or "hidden" not in repr(response)
            assert tuple(error_codes(response)) == scene.codes, scene
            asked |= rules.asked
            assert (rules.hosts, rules.listeners) in (({"127.0.0.1"}, {"PLAINTEXT"}), (set(), set()))
        assert asked - SHOWN.get(route.key, set()) == {(need.operation, need.kind) for need in route.needs}
        assert broker.controller.image.topics.keys() - {"__consumer_offsets", "mine"} == {"seen", "hidden"}
        log = broker.logs.get("hidden", 0)
        assert log is not None and log.log_end_offset == 0


@pytest.mark.parametrize("key", [key for key, scenes in MISSING.items() if scenes], ids=lambda key: key.name)
async def test_nobody_can_tell_whether_a_topic_exists_that_they_may_not_have(tmp_path: Path, key: ApiKey) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        for name in ("seen", "hidden"):
            await make_topic(broker, name)
        hidden = [scene for scene in topic_scenes("hidden") if scene.key is key]
        for there, not_there in zip(hidden, MISSING[key], strict=True):
            first, _ = await play(broker, client, there)
            second, _ = await play(broker, client, not_there)
            assert only(first, "hidden") == only(second, "missing").replace("missing", "hidden")


def only(response: Any, name: str) -> str:
    """What is said about one topic: offsets of the others move meanwhile."""
    text = repr(response)
    assert "hidden" not in text.replace(name, "") and "missing" not in text.replace(name, "")
    rows = [row for row in walk(response) if name in repr(row) and not any(name in repr(each) for each in walk(row))]
    return re.sub("<memory at [^>]*>", "", repr(rows))


def walk(value: Any) -> Iterator[Any]:
    """The rows inside a message."""
    fields = value._fields if hasattr(value, "_fields") else value.__slots__
    for held in (getattr(value, field) for field in fields):
        for each in held if isinstance(held, tuple) and not hasattr(held, "_fields") else (held,):
            if isinstance(each, Message) or hasattr(each, "_fields"):
                yield each
                yield from walk(each)


async def test_unnamed_topics_and_groups_are_left_out(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        for name in ("seen", "hidden"):
            await make_topic(broker, name)
        await client.ask(ApiKey.OFFSET_COMMIT, 8, committed("seen", "hidden"))
        see = Operation.DESCRIBE
        broker.authorizer = DenySome((see, topic_named("hidden")))
        every: Message = metadata.MetadataRequest(topics=None)
        told = await client.ask(ApiKey.METADATA, 12, every)
        assert [topic.name for topic in told.topics] == ["__consumer_offsets", "seen"]
        told = await client.ask(ApiKey.METADATA, 0, metadata.MetadataRequest(topics=()))
        assert "hidden" not in repr(told)
        every = describe_topic_partitions.DescribeTopicPartitionsRequest()
        told = await client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, every)
        assert [topic.name for topic in told.topics] == ["__consumer_offsets", "seen"]
        whole = offset_fetch.OffsetFetchRequest(
            groups=(offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None),)
        )
        (group,) = (await client.ask(ApiKey.OFFSET_FETCH, 8, whole)).groups
        assert [topic.name for topic in group.topics] == ["seen"]
        old = await client.ask(ApiKey.OFFSET_FETCH, 7, offset_fetch.OffsetFetchRequest(group_id="g", topics=None))
        assert [topic.name for topic in old.topics] == ["seen"]
        broker.authorizer = DenySome((see, THE_CLUSTER), (see, G))
        assert (await client.ask(ApiKey.LIST_GROUPS, 4, ListGroupsRequest())).groups == ()
        broker.authorizer = DenySome((see, THE_CLUSTER))
        assert [group.group_id for group in (await client.ask(ApiKey.LIST_GROUPS, 4, ListGroupsRequest())).groups] == [
            "g"
        ]


async def test_who_may_see_a_topic_may_not_yet_read_or_write_it(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, "t")
        it = topic_named("t")
        broker.authorizer = DenySome((Operation.READ, it), (Operation.WRITE, it))
        rows = (list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1),)
        asked = list_offsets.ListOffsetsRequest(topics=(list_offsets.ListOffsetsTopic(name="t", partitions=rows),))
        assert error_codes(await client.ask(ApiKey.LIST_OFFSETS, 6, asked)) == []
        assert (
            (await fetch(client, topic)).error_code == (await produce(client, topic, records(b"x"))).error_code == TOPIC
        )


async def test_authorized_operations_are_those_that_are(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await make_topic(broker, "t")
        broker.authorizer = DenySome((Operation.WRITE, topic_named("t")), (Operation.ALTER, THE_CLUSTER))
        asked = metadata.MetadataRequest(
            topics=(metadata.MetadataRequestTopic(name="t"),),
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )
        told = await client.ask(ApiKey.METADATA, 8, asked)
        assert told.topics[0].topic_authorized_operations == TOPIC_OPERATIONS - (1 << Operation.WRITE)
        assert told.cluster_authorized_operations == CLUSTER_OPERATIONS - (1 << Operation.ALTER)
        broker.authorizer = DenySome((Operation.DESCRIBE, THE_CLUSTER))
        assert (await client.ask(ApiKey.METADATA, 8, asked)).cluster_authorized_operations == 0


@pytest.mark.parametrize("partitions", [(0,), (0, 1)], ids=["memo", "several"])
@pytest.mark.parametrize("version", [9, 13])
async def test_what_is_remembered_of_a_producer_ends_when_it_may_write_no_more(
    tmp_path: Path, partitions: tuple[int, ...], version: int
) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, "t", partitions=2)
        denying = DenySome((Operation.WRITE, topic_named("t")))

        async def codes() -> list[int]:
            request = produce_request(topic, dict.fromkeys(partitions, records(b"x")), version)
            rows = (await client.ask(ApiKey.PRODUCE, version, request)).responses[0].partition_responses
            return [row.error_code for row in rows]

        for authorizer, code in ((ALLOW_ALL, 0), (DenySome(), 0), (denying, TOPIC), (ALLOW_ALL, 0), (denying, TOPIC)):
            broker.authorizer = authorizer
            for _ in range(3):
                assert await codes() == [code] * len(partitions)
        log = broker.logs.get("t", 0)
        assert log is not None and log.log_end_offset == 9


async def test_a_refused_produce_without_an_answer_ends_the_connection(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, "t")
        broker.authorizer = DenySome((Operation.WRITE, topic_named("t")))
        client.send(encode_request(ApiKey.PRODUCE, 9, 1, "c", produce_request(topic, {0: records(b"x")}, 9, acks=0)))
        with pytest.raises(asyncio.IncompleteReadError):
            await client.receive()


@pytest.mark.parametrize("version", [12, 13])
async def test_a_fetch_session_is_no_way_past_new_rules(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, "t")
        await produce(client, topic, records(b"old"))
        first = await client.ask(ApiKey.FETCH, version, fetch_request(topic, {0: 1}, version, session_epoch=0))
        assert first.session_id > 0

        def next_in_session(epoch: int, **more: Any) -> Message:
            settings = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20} | more
            return wire_fetch.FetchRequest(session_id=first.session_id, session_epoch=epoch, **settings)

        assert (await client.ask(ApiKey.FETCH, version, next_in_session(1))).responses == ()
        denying = DenySome((Operation.READ, topic_named("t")))
        broker.authorizer = denying
        refused = await client.ask(ApiKey.FETCH, version, next_in_session(2))
        assert error_codes(refused) == [TOPIC], "though the partition was quiet"
        broker.authorizer = ALLOW_ALL
        await client.ask(ApiKey.FETCH, version, next_in_session(3))
        waiting = asyncio.ensure_future(client.ask(ApiKey.FETCH, version, next_in_session(4, max_wait_ms=20_000)))
        await asyncio.sleep(0.05)
        broker.authorizer = denying
        async with wire_client(broker) as other:
            await produce(other, topic, records(b"secret"))
        assert error_codes(await waiting) == [TOPIC], "what comes while it waits is not its own any more"


async def test_a_fetch_session_is_nobody_elses(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client), wire_client(broker) as other:
        topic = await make_topic(broker, "t")
        await produce(client, topic, records(b"x"))
        await other.ask(ApiKey.API_VERSIONS, 4, ApiVersionsRequest(client_software_name="c"))
        list(broker.servers[0].connections)[-1].logged_in(Principal("User", "eve"))
        broker.authorizer = DenySome()
        first = await client.ask(ApiKey.FETCH, 12, fetch_request(topic, {0: 0}, 12, session_epoch=0))
        assert first.session_id > 0

        async def codes(who: WireClient, epoch: int) -> list[int]:
            more = wire_fetch.FetchRequest(session_id=first.session_id, session_epoch=epoch, max_wait_ms=0, min_bytes=1)
            return error_codes(await who.ask(ApiKey.FETCH, 12, more))

        assert await codes(other, 1) == [ErrorCode.FETCH_SESSION_ID_NOT_FOUND]
        await codes(other, -1)  # nor can anybody else end it
        assert await codes(client, 1) == []
        await codes(client, -1)
        assert await codes(client, 2) == [ErrorCode.FETCH_SESSION_ID_NOT_FOUND]


async def test_the_name_of_a_group_or_topic_decides_and_not_its_neighbour(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topics = [await make_topic(broker, name) for name in ("a", "b")]
        broker.authorizer = DenySome((Operation.WRITE, topic_named("b")))
        assert [(await produce(client, topic, records(b"x"))).error_code for topic in topics] == [0, TOPIC]
        assert [record.value for record in decoded(await fetch(client, topics[0]))] == [b"x"]
