"""Consumer groups: the coordinator, a member's round, descriptions

versions: FindCoordinator 0-6 (1: key type; 4: several keys; 6: share groups). JoinGroup 0-9 (1: rebalance timeout; 4:
ids are handed out before they count; 5: static members; 8: a reason; 9: a returning leader may skip assigning).
SyncGroup 0-5. Heartbeat 0-4. LeaveGroup 0-5 (3: several members). ListGroups 0-5 (4: states; 5: types).
DescribeGroups 0-6 (6: an unknown group is an error). DeleteGroups 0-2.

Only classic groups exist. FindCoordinator refuses transaction and share keys: their coordinators are not built yet.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tidemill.broker import administration_log
from tidemill.broker.authorization import (
    THE_CLUSTER,
    ResourceKind,
    authorized_operations,
    group_named,
    on_each,
    on_the_group,
    permit,
)
from tidemill.broker.coordination.runtime import partition_of
from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.endpoints import Endpoint, reachable
from tidemill.broker.groups.coordinator import OFFSETS_TOPIC
from tidemill.broker.groups.events import (
    DeleteGroup,
    GroupView,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Protocol,
    SyncGroup,
)
from tidemill.broker.groups.states import GroupState
from tidemill.broker.operations import NOT_ASKED, Operation
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import CoordinatorNotAvailable, KafkaError
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from tidemill.core.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tidemill.core.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from tidemill.core.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidemill.core.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from tidemill.core.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from tidemill.core.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tidemill.core.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

GROUP_KEY = 0
NOT_PERMITTED = "the client may not do that to this group"


async def find_coordinator(
    broker: BrokerServices, request: FindCoordinatorRequest, ctx: RequestContext
) -> FindCoordinatorResponse:
    """Where a group is coordinated: where its partition is led, unless what it says could not be kept there."""
    keys = request.coordinator_keys if ctx.api_version >= 4 else (request.key,)
    if request.key_type != GROUP_KEY:
        text = f"key type {request.key_type}: this broker coordinates consumer groups (key type 0) only"
        found = [_refused(key, ErrorCode.INVALID_REQUEST, text) for key in keys]
    else:
        if any(_may(broker, ctx, Operation.DESCRIBE, key) for key in keys):
            await _ensure_offsets_topic(broker)
        endpoints = reachable(broker, ctx)
        found = [
            _coordinator(broker, endpoints, key)
            if _may(broker, ctx, Operation.DESCRIBE, key)
            else _refused(key, ErrorCode.GROUP_AUTHORIZATION_FAILED, NOT_PERMITTED)
            for key in keys
        ]
    if ctx.api_version >= 4:
        return FindCoordinatorResponse(coordinators=tuple(found))
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _may(broker: BrokerServices, ctx: RequestContext, operation: Operation, group_id: str) -> bool:
    return broker.authorizer.allows(ctx, operation, group_named(group_id))


async def _ensure_offsets_topic(broker: BrokerServices) -> None:
    try:
        await broker.ensure_offsets_topic()
    except KafkaError as error:
        raise CoordinatorNotAvailable(str(error)) from error


def _coordinator(broker: BrokerServices, endpoints: Mapping[int, Endpoint], key: str) -> Coordinator:
    """Whoever leads the partition that keeps the group."""
    topic = broker.controller.image.topics.get(OFFSETS_TOPIC)
    leader = -1 if topic is None else topic.partitions[partition_of(key, len(topic.partitions))].leader
    if topic is None or leader == broker.node_id:
        trouble = broker.groups.trouble(key)
        if trouble is not None:
            return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, trouble)
    found = endpoints.get(leader)
    if found is None or broker.misses(leader):
        text = f"broker {leader}, which keeps the group, cannot be reached" if leader >= 0 else "nobody keeps the group"
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
    return Coordinator(key=key, node_id=found.node_id, host=found.host, port=found.port, error_message=None)


def _refused(key: str, error: ErrorCode, text: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=text)


async def join_group(broker: BrokerServices, request: JoinGroupRequest, ctx: RequestContext) -> JoinGroupResponse:
    """Enter a group, or another round of it; answered when the join phase ends."""
    version = ctx.api_version
    client_id = ctx.client_id or ""
    await _ensure_offsets_topic(broker)
    result = await broker.groups.join(
        JoinGroup(
            request_id=broker.groups.request_id(),
            group_id=request.group_id,
            member_id=request.member_id,
            new_member_id=broker.groups.new_member_id(request.group_instance_id or client_id or "consumer"),
            group_instance_id=request.group_instance_id,
            client_id=client_id,
            client_host=f"/{ctx.client_host}",
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple(Protocol(offer.name, bytes(offer.metadata)) for offer in request.protocols),
            member_id_required=version >= 4,
            skip_assignment=version >= 9,
        )
    )
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name if version >= 7 else result.protocol_name or "",
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=tuple(
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
            for member in result.members
        ),
    )


async def sync_group(broker: BrokerServices, request: SyncGroupRequest, ctx: RequestContext) -> SyncGroupResponse:
    """Bring or fetch the assignment of a generation."""
    result = await broker.groups.sync(
        SyncGroup(
            request_id=broker.groups.request_id(),
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments=tuple((entry.member_id, bytes(entry.assignment)) for entry in request.assignments),
        )
    )
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


async def heartbeat(broker: BrokerServices, request: HeartbeatRequest, ctx: RequestContext) -> HeartbeatResponse:
    """Stay a member, and hear whether a rebalance is on."""
    error = await broker.groups.heartbeat(
        Heartbeat(
            request_id=broker.groups.request_id(),
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
        )
    )
    return HeartbeatResponse(error_code=error)


async def leave_group(broker: BrokerServices, request: LeaveGroupRequest, ctx: RequestContext) -> LeaveGroupResponse:
    """Give up membership, for oneself or (as an administrator) for others."""
    batched = ctx.api_version >= 3
    leavers = (
        tuple(Leaver(member.member_id, member.group_instance_id) for member in request.members)
        if batched
        else (Leaver(request.member_id, None),)
    )
    result = await broker.groups.leave(
        LeaveGroup(request_id=broker.groups.request_id(), group_id=request.group_id, leavers=leavers)
    )
    if not batched:
        error = result.leavers[0][1] if result.error is ErrorCode.NONE else result.error
        return LeaveGroupResponse(error_code=error)
    return LeaveGroupResponse(
        error_code=result.error,
        members=tuple(
            MemberResponse(member_id=leaver.member_id, group_instance_id=leaver.group_instance_id, error_code=error)
            for leaver, error in result.leavers
        ),
    )


async def list_groups(broker: BrokerServices, request: ListGroupsRequest, ctx: RequestContext) -> ListGroupsResponse:
    """Every group, filtered by state and type."""
    states = {name.lower() for name in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    may_see_all = broker.authorizer.allows(ctx, Operation.DESCRIBE, THE_CLUSTER)
    return ListGroupsResponse(
        groups=tuple(
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.kind,
            )
            for group in broker.groups.list_groups()
            if (not states or group.state.lower() in states)
            and (not types or group.kind in types)
            and (may_see_all or _may(broker, ctx, Operation.DESCRIBE, group.group_id))
        )
    )


async def describe_groups(
    broker: BrokerServices, request: DescribeGroupsRequest, ctx: RequestContext
) -> DescribeGroupsResponse:
    """Groups with their members and assignments; one that is named often is described once."""
    return DescribeGroupsResponse(
        groups=tuple(
            _permitted(broker, ctx, group_id, request.include_authorized_operations)
            for group_id in dict.fromkeys(request.groups)
        )
    )


def _permitted(broker: BrokerServices, ctx: RequestContext, group_id: str, with_operations: bool) -> DescribedGroup:
    """The description of a group, or why the client cannot have it."""
    if not _may(broker, ctx, Operation.DESCRIBE, group_id):
        return DescribedGroup(
            group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, error_message=NOT_PERMITTED
        )
    operations = NOT_ASKED
    if with_operations:
        operations = authorized_operations(broker.authorizer, ctx, group_named(group_id))
    try:
        group = broker.groups.describe(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    return _described(group_id, group, operations, ctx.api_version)


def _described(group_id: str, group: GroupView | None, operations: int, api_version: int) -> DescribedGroup:
    if group is None:
        missing = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD)
        if api_version < 6:
            return replace(missing, authorized_operations=operations)
        return replace(
            missing, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=f"there is no group {group_id!r}"
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=tuple(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ),
        authorized_operations=operations,
    )


async def delete_groups(
    broker: BrokerServices, request: DeleteGroupsRequest, ctx: RequestContext
) -> DeleteGroupsResponse:
    """Forget groups that have no members."""
    results = []
    for group_id in request.groups_names:
        try:
            permit(broker.authorizer, ctx, Operation.DELETE, group_named(group_id))
            error = await broker.groups.delete(DeleteGroup(request_id=broker.groups.request_id(), group_id=group_id))
        except KafkaError as problem:
            error = ErrorCode(problem.code)
        results.append(DeletableGroupResult(group_id=group_id, error_code=error))
    administration_log.tell("groups deleted", (row.group_id for row in results if not row.error_code), ctx)
    return DeleteGroupsResponse(results=tuple(results))


def _find_failed(request: FindCoordinatorRequest, error: KafkaError, api_version: int) -> FindCoordinatorResponse:
    if api_version < 4:
        return FindCoordinatorResponse(error_code=error.code, error_message=str(error), node_id=-1, port=-1)
    return FindCoordinatorResponse(
        coordinators=tuple(_refused(key, ErrorCode(error.code), str(error)) for key in request.coordinator_keys)
    )


def _join_failed(request: JoinGroupRequest, error: KafkaError, api_version: int) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error.code, member_id=request.member_id)


def _describe_failed(request: DescribeGroupsRequest, error: KafkaError, api_version: int) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=tuple(DescribedGroup(group_id=group_id, error_code=error.code) for group_id in request.groups)
    )


def _delete_failed(request: DeleteGroupsRequest, error: KafkaError, api_version: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=tuple(DeletableGroupResult(group_id=name, error_code=error.code) for name in request.groups_names)
    )


_MEMBER: Final = (on_the_group(Operation.READ),)
"""What every member of a group has to be allowed."""

ROUTES = (
    Route(
        key=ApiKey.FIND_COORDINATOR,
        handle=find_coordinator,
        min_version=0,
        max_version=6,
        needs=(on_each(Operation.DESCRIBE, ResourceKind.GROUP),),
        error_response=_find_failed,
    ),
    Route(
        key=ApiKey.JOIN_GROUP,
        handle=join_group,
        min_version=0,
        max_version=9,
        needs=_MEMBER,
        error_response=_join_failed,
    ),
    Route(key=ApiKey.SYNC_GROUP, handle=sync_group, min_version=0, max_version=5, needs=_MEMBER),
    Route(key=ApiKey.HEARTBEAT, handle=heartbeat, min_version=0, max_version=4, needs=_MEMBER),
    Route(key=ApiKey.LEAVE_GROUP, handle=leave_group, min_version=0, max_version=5, needs=_MEMBER),
    Route(
        key=ApiKey.LIST_GROUPS,
        handle=list_groups,
        min_version=0,
        max_version=5,
        needs=(on_each(Operation.DESCRIBE, ResourceKind.CLUSTER), on_each(Operation.DESCRIBE, ResourceKind.GROUP)),
    ),
    Route(
        key=ApiKey.DESCRIBE_GROUPS,
        handle=describe_groups,
        min_version=0,
        max_version=6,
        needs=(on_each(Operation.DESCRIBE, ResourceKind.GROUP),),
        error_response=_describe_failed,
    ),
    Route(
        key=ApiKey.DELETE_GROUPS,
        handle=delete_groups,
        min_version=0,
        max_version=2,
        needs=(on_each(Operation.DELETE, ResourceKind.GROUP),),
        error_response=_delete_failed,
    ),
)
