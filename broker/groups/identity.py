"""The member that a request speaks for, and whether it still may

A request names its member by an id that the coordinator gave out, by the instance of a static member (KIP-345), or by
both. Two lives of one instance can be on the network at once: the older one is fenced, whatever it asks for.
"""

from collections.abc import Mapping

from tidemill.broker.groups.events import CommitOffsets, Heartbeat, SyncGroup
from tidemill.broker.groups.kinds import Group
from tidemill.broker.groups.membership import ClassicGroup, Member
from tidemill.core.error_code import ErrorCode


def speaker(
    groups: Mapping[str, Group], request: SyncGroup | Heartbeat | CommitOffsets
) -> tuple[ClassicGroup | None, Member | None, ErrorCode]:
    """The member that `request` speaks for, or why it may not."""
    if not request.group_id:
        return None, None, ErrorCode.INVALID_GROUP_ID
    group = groups.get(request.group_id)
    if not isinstance(group, ClassicGroup):
        return None, None, ErrorCode.UNKNOWN_MEMBER_ID
    if error := identity_error(group, request.member_id, request.group_instance_id):
        return group, None, error
    member = group.members.get(request.member_id)
    if member is None:
        return group, None, ErrorCode.UNKNOWN_MEMBER_ID
    if request.generation_id != group.generation_id:
        return group, None, ErrorCode.ILLEGAL_GENERATION
    return group, member, ErrorCode.NONE


def identity_error(group: ClassicGroup, member_id: str, group_instance_id: str | None) -> ErrorCode | None:
    """Whether the member exists and, if it names an instance, whether it is that instance's current life."""
    if group_instance_id is not None:
        current = group.instances.get(group_instance_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if current != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    elif member_id not in group.members and member_id not in group.pending_members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return None
