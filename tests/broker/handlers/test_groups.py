"""The group APIs on the wire, in every version."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker_world import WireClient, broker_and_client
from tidemill.broker.groups.coordinator import OFFSETS_TOPIC
from tidemill.broker.handlers.groups import ROUTES
from tidemill.broker.node import Broker
from tidemill.broker.operations import GROUP_OPERATIONS, NOT_ASKED
from tidemill.broker.quorum.shared_map import SharedMap
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import CoordinatorNotAvailable
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.delete_groups import DeleteGroupsRequest
from tidemill.core.wire.messages.describe_groups import DescribeGroupsRequest
from tidemill.core.wire.messages.find_coordinator import FindCoordinatorRequest
from tidemill.core.wire.messages.heartbeat import HeartbeatRequest
from tidemill.core.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidemill.core.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidemill.core.wire.messages.list_groups import ListGroupsRequest
from tidemill.core.wire.messages.offset_delete import OffsetDeleteRequest
from tidemill.core.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

ROUTE = {route.key: route for route in ROUTES}


def versions(key: ApiKey, least: int = 0) -> range:
    return range(max(ROUTE[key].min_version, least), ROUTE[key].max_version + 1)


async def join(client: WireClient, version: int = 9, member_id: str = "", **terms: Any) -> JoinGroupResponse:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b"sub"),),
        **terms,
    )
    response: JoinGroupResponse = await client.ask(ApiKey.JOIN_GROUP, version, request)
    return response


async def member_of(client: WireClient, version: int = 9) -> str:
    """A member that has joined, by the handshake where the version has one."""
    response = await join(client, version)
    if version >= 4:
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
        response = await join(client, version, response.member_id)
    assert response.error_code == 0
    return response.member_id


async def stable_group(broker: Broker, client: WireClient) -> str:
    await broker.ensure_offsets_topic()
    member = await member_of(client)
    assignments = (SyncGroupRequestAssignment(member_id=member, assignment=b"mine"),)
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=member, assignments=assignments)
    response = await client.ask(ApiKey.SYNC_GROUP, 5, request)
    assert (response.error_code, response.assignment) == (0, b"mine")
    return member


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
async def test_the_coordinator_is_here_and_its_topic_is_made(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path, offsets_topic_num_partitions="2") as (broker, client):
        request = FindCoordinatorRequest(key="g", coordinator_keys=("g", "h"))
        response = await client.ask(ApiKey.FIND_COORDINATOR, version, request)
        found = response.coordinators if version >= 4 else (response,)
        for answer in found:
            assert (answer.error_code, answer.node_id, answer.host) == (0, 1, "127.0.0.1")
            assert answer.port == broker.servers[0].port
        if version >= 4:
            assert [answer.key for answer in found] == ["g", "h"]
        topic = broker.controller.image.topics["__consumer_offsets"]
        assert (len(topic.partitions), topic.configs["cleanup.policy"]) == (2, "compact")


@pytest.mark.parametrize(("version", "key_type"), [(1, 1), (4, 1), (6, 2)])
async def test_other_coordinators_are_refused(tmp_path: Path, version: int, key_type: int) -> None:
    async with broker_and_client(tmp_path) as (_, client):
        request = FindCoordinatorRequest(key="x", key_type=key_type, coordinator_keys=("x",))
        response = await client.ask(ApiKey.FIND_COORDINATOR, version, request)
        answer = response.coordinators[0] if version >= 4 else response
        assert (answer.error_code, answer.node_id) == (ErrorCode.INVALID_REQUEST, -1)
        assert "consumer groups" in answer.error_message


@pytest.mark.parametrize("version", [0, 6])
async def test_there_is_no_coordinator_while_nothing_can_be_kept(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path, offsets_topic_replication_factor="3") as (_, client):
        request = FindCoordinatorRequest(key="g", coordinator_keys=("g",))
        response = await client.ask(ApiKey.FIND_COORDINATOR, version, request)
        answer = response.coordinators[0] if version >= 4 else response
        assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.ensure_offsets_topic()
        for partition in range(4):
            broker.logs.get("__consumer_offsets", partition).closed = True  # type: ignore[union-attr]
        member = await member_of(client)
        refused = await client.ask(
            ApiKey.SYNC_GROUP, 5, SyncGroupRequest(group_id="g", generation_id=1, member_id=member)
        )
        assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        response = await client.ask(ApiKey.FIND_COORDINATOR, version, request)
        answer = response.coordinators[0] if version >= 4 else response
        assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        for partition in range(4):
            broker.logs.get("__consumer_offsets", partition).closed = False  # type: ignore[union-attr]


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
async def test_join(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.ensure_offsets_topic()
        member = await member_of(client, version)
        assert member.startswith("test-client-")
        response = await join(client, version, member)
        assert (response.generation_id, response.protocol_name, response.leader) == (1, "range", member)
        assert [(entry.member_id, entry.metadata) for entry in response.members] == [(member, b"sub")]
        if version >= 7:
            assert response.protocol_type == "consumer"
        refused = await join(client, version, "stranger")
        assert (refused.error_code, refused.generation_id) == (ErrorCode.UNKNOWN_MEMBER_ID, -1)


async def test_a_static_member_gets_an_id_made_of_its_instance(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.ensure_offsets_topic()
        response = await join(client, 9, group_instance_id="one")
        assert response.error_code == 0
        assert response.member_id.startswith("one-")
        assert response.members[0].group_instance_id == "one"


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
async def test_sync(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await broker.ensure_offsets_topic()
        member = await member_of(client)
        request = SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=member,
            protocol_type="consumer",
            protocol_name="range",
            assignments=(SyncGroupRequestAssignment(member_id=member, assignment=b"mine"),),
        )
        response = await client.ask(ApiKey.SYNC_GROUP, version, request)
        assert (response.error_code, response.assignment) == (0, b"mine")
        if version >= 5:
            assert (response.protocol_type, response.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
async def test_heartbeat(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        member = await stable_group(broker, client)
        for generation, code in ((1, ErrorCode.NONE), (2, ErrorCode.ILLEGAL_GENERATION)):
            request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member)
            assert (await client.ask(ApiKey.HEARTBEAT, version, request)).error_code == code


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
async def test_leave(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        member = await stable_group(broker, client)
        if version < 3:
            response = await client.ask(
                ApiKey.LEAVE_GROUP, version, LeaveGroupRequest(group_id="g", member_id="stranger")
            )
            assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            response = await client.ask(ApiKey.LEAVE_GROUP, version, LeaveGroupRequest(group_id="g", member_id=member))
        else:
            members = (MemberIdentity(member_id="stranger"), MemberIdentity(member_id=member))
            response = await client.ask(ApiKey.LEAVE_GROUP, version, LeaveGroupRequest(group_id="g", members=members))
            assert [entry.error_code for entry in response.members] == [ErrorCode.UNKNOWN_MEMBER_ID, 0]
        assert response.error_code == 0
        assert broker.groups.describe("g").state == "Empty"  # type: ignore[union-attr]


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
async def test_list(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        await stable_group(broker, client)
        (group,) = (await client.ask(ApiKey.LIST_GROUPS, version, ListGroupsRequest())).groups
        assert (group.group_id, group.protocol_type) == ("g", "consumer")
        if version >= 4:
            assert group.group_state == "Stable"
            for states, count in ((("stable", "Empty"), 1), (("Empty",), 0)):
                request = ListGroupsRequest(states_filter=states)
                assert len((await client.ask(ApiKey.LIST_GROUPS, version, request)).groups) == count
        if version >= 5:
            assert group.group_type == "classic"
            for types, count in ((("Classic",), 1), (("consumer",), 0)):
                request = ListGroupsRequest(types_filter=types)
                assert len((await client.ask(ApiKey.LIST_GROUPS, version, request)).groups) == count


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
async def test_describe(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        member_id = await stable_group(broker, client)
        request = DescribeGroupsRequest(groups=("g", "missing"), include_authorized_operations=version >= 3)
        group, missing = (await client.ask(ApiKey.DESCRIBE_GROUPS, version, request)).groups
        assert (group.error_code, group.group_state, group.protocol_type, group.protocol_data) == (
            0,
            "Stable",
            "consumer",
            "range",
        )
        (member,) = group.members
        assert (member.member_id, member.client_id, member.client_host) == (member_id, "test-client", "/127.0.0.1")
        assert (member.member_metadata, member.member_assignment) == (b"sub", b"mine")
        assert group.authorized_operations == (GROUP_OPERATIONS if version >= 3 else NOT_ASKED)
        assert missing.group_state == "Dead"
        assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
async def test_delete(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        member = await stable_group(broker, client)
        request = DeleteGroupsRequest(groups_names=("g", "missing"))
        results = (await client.ask(ApiKey.DELETE_GROUPS, version, request)).results
        assert [(result.group_id, result.error_code) for result in results] == [
            ("g", ErrorCode.NON_EMPTY_GROUP),
            ("missing", ErrorCode.GROUP_ID_NOT_FOUND),
        ]
        leave = LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id=member),))
        await client.ask(ApiKey.LEAVE_GROUP, 5, leave)
        results = (await client.ask(ApiKey.DELETE_GROUPS, version, request)).results
        assert results[0].error_code == 0
        assert broker.groups.list_groups() == []


@pytest.mark.parametrize(
    ("key", "request_message", "entries"),
    [
        (ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=("a", "b")), "coordinators"),
        (ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=("a", "b")), "groups"),
        (ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=("a", "b")), "results"),
    ],
)
def test_an_error_of_the_whole_request_is_told_for_every_entry(key: ApiKey, request_message: Any, entries: str) -> None:
    error = CoordinatorNotAvailable("starting")
    assert ROUTE[key].error_response is not None
    response = ROUTE[key].error_response(request_message, error, ROUTE[key].max_version)  # type: ignore[misc]
    assert [entry.error_code for entry in getattr(response, entries)] == [error.code] * 2


def test_other_errors_of_the_whole_request() -> None:
    error = CoordinatorNotAvailable("starting")
    failed = ROUTE[ApiKey.FIND_COORDINATOR].error_response(FindCoordinatorRequest(), error, 0)  # type: ignore[misc]
    assert (failed.error_code, failed.node_id) == (error.code, -1)
    failed = ROUTE[ApiKey.JOIN_GROUP].error_response(JoinGroupRequest(member_id="m"), error, 9)  # type: ignore[misc]
    assert (failed.error_code, failed.member_id, failed.generation_id) == (error.code, "m", -1)


async def test_a_group_that_is_named_often_is_described_once(tmp_path: Path) -> None:
    """Three bytes would be another description of all its members each."""
    async with broker_and_client(tmp_path, offsets_topic_num_partitions="1") as (broker, client):
        await stable_group(broker, client)
        request = DescribeGroupsRequest(groups=("g", "h", "g", "g", "h"))
        response = await client.ask(ApiKey.DESCRIBE_GROUPS, 5, request)
        assert [(group.group_id, len(group.members)) for group in response.groups] == [("g", 1), ("h", 0)]


REQUESTS: dict[ApiKey, Any] = {
    ApiKey.JOIN_GROUP: JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range"),),
    ),
    ApiKey.SYNC_GROUP: SyncGroupRequest(group_id="g", generation_id=1, member_id="m"),
    ApiKey.HEARTBEAT: HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
    ApiKey.LEAVE_GROUP: LeaveGroupRequest(group_id="g", member_id="m", members=(MemberIdentity(member_id="m"),)),
    ApiKey.LIST_GROUPS: ListGroupsRequest(),
    ApiKey.DESCRIBE_GROUPS: DescribeGroupsRequest(groups=("g",)),
    ApiKey.DELETE_GROUPS: DeleteGroupsRequest(groups_names=("g",)),
    ApiKey.OFFSET_DELETE: OffsetDeleteRequest(group_id="g"),
}


def served(broker: Broker, key: ApiKey) -> range:
    first, last = broker.served_apis[key]
    return range(first, last + 1)


NOT_HERE, LOADING = ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize(
    ("key", "elsewhere", "loading"),
    [
        (ApiKey.JOIN_GROUP, NOT_HERE, LOADING),
        (ApiKey.SYNC_GROUP, NOT_HERE, ErrorCode.REBALANCE_IN_PROGRESS),  # clients expect nothing else
        (ApiKey.HEARTBEAT, NOT_HERE, ErrorCode.NONE),  # as Kafka: nobody knows better
        (ApiKey.LEAVE_GROUP, NOT_HERE, LOADING),
        (ApiKey.LIST_GROUPS, ErrorCode.NONE, LOADING),  # others list theirs
        (ApiKey.DESCRIBE_GROUPS, NOT_HERE, LOADING),
        (ApiKey.DELETE_GROUPS, NOT_HERE, LOADING),
        (ApiKey.OFFSET_DELETE, NOT_HERE, LOADING),
    ],
)
async def test_groups_of_other_brokers_and_groups_that_are_being_taken_up(
    tmp_path: Path, key: ApiKey, elsewhere: ErrorCode, loading: ErrorCode
) -> None:
    async with broker_and_client(tmp_path, offsets_topic_num_partitions="1") as (broker, client):
        await broker.ensure_offsets_topic()
        image = broker.controller.image
        topic = image.topics[OFFSETS_TOPIC]
        for leader, expected in ((2, elsewhere), (1, loading)):
            (before,) = topic.partitions
            epoch = before.leader_epoch + 5  # of which the replica has not heard
            topic = replace(topic, partitions=(replace(before, leader=leader, leader_epoch=epoch),))
            changed = replace(image, topics=SharedMap({**image.topics, OFFSETS_TOPIC: topic}))
            broker.groups.image_changed(changed, frozenset())
            for version in served(broker, key):
                response = await client.ask(key, version, REQUESTS[key])
                entries = getattr(response, "groups", ()) if key is ApiKey.DESCRIBE_GROUPS else ()
                (row,) = entries or getattr(response, "results", None) or (response,)
                assert row.error_code == expected, version


async def test_a_join_makes_the_topic_that_keeps_the_group(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path, offsets_topic_num_partitions="2") as (broker, client):
        await member_of(client)
        assert len(broker.controller.image.topics[OFFSETS_TOPIC].partitions) == 2
