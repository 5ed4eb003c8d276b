"""Requests of the group machine, and their answers

Requests carry the id under which the answer is expected back; texts and numbers are as the client sent them.

Not here: what every coordinator's machine hears and says (`tidemill.broker.coordination.contract`).
"""

import enum
import uuid
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tidemill.broker.coordination import contract
from tidemill.broker.coordination.contract import Happening
from tidemill.broker.groups.records import CoordinatorRecord
from tidemill.broker.groups.states import GroupState
from tidemill.core.error_code import ErrorCode
from tidemill.core.types import ZERO_UUID


class Protocol(NamedTuple):
    """An assignment strategy that a member offers, with its subscription."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """A member wants in, or wants another round."""

    request_id: int
    group_id: str
    member_id: str
    new_member_id: str  # the id to give, should the member need one
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    member_id_required: bool  # KIP-394: the client can come back with the id it is given
    skip_assignment: bool  # KIP-814: the client understands that it need not assign


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """A member asks for its assignment; the leader brings everybody's."""

    request_id: int
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A member is alive."""

    request_id: int
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


class Leaver(NamedTuple):
    """A member named by its id, by its instance, or by both."""

    member_id: str
    group_instance_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """Members go."""

    request_id: int
    group_id: str
    leavers: tuple[Leaver, ...]


class OffsetToCommit(NamedTuple):
    """A position to keep, in a topic that the client named by its name or (`topic` is None) by its id."""

    topic: str | None
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: uuid.UUID = ZERO_UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """Keep these positions."""

    request_id: int
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    retention_ms: int  # -1: until the group expires
    offsets: tuple[OffsetToCommit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup:
    """Forget a group and its offsets."""

    request_id: int
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets:
    """Forget positions that nobody reads from."""

    request_id: int
    group_id: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireOffsets:
    """Look in these groups for what nobody has needed for the retention time."""

    group_ids: tuple[str, ...]


Request: TypeAlias = JoinGroup | SyncGroup | Heartbeat | LeaveGroup | CommitOffsets | DeleteGroup | DeleteOffsets
Event: TypeAlias = Request | ExpireOffsets | Happening


class JoinedMember(NamedTuple):
    """A member as its leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """Answer to JoinGroup; `members` only for the leader."""

    error: ErrorCode
    member_id: str
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """Answer to SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorResult:
    """Answer to Heartbeat and DeleteGroup."""

    error: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveResult:
    """Answer to LeaveGroup: one error per leaver, in order."""

    error: ErrorCode
    leavers: tuple[tuple[Leaver, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """Answer to CommitOffsets: one error per offset, in order."""

    errors: tuple[ErrorCode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsetsResult:
    """Answer to DeleteOffsets: an error about the group, or one per partition, in order."""

    error: ErrorCode
    errors: tuple[ErrorCode, ...] = ()


Response: TypeAlias = JoinResult | SyncResult | ErrorResult | LeaveResult | CommitResult | DeleteOffsetsResult


Action: TypeAlias = contract.Action[CoordinatorRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """One member, for DescribeGroups."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupKind(enum.StrEnum):
    """What sort of group it is (`tidemill.broker.groups.kinds`); the texts are those of ListGroups."""

    CLASSIC = "classic"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """One group, for DescribeGroups and ListGroups."""

    group_id: str
    kind: GroupKind
    state: GroupState
    protocol_type: str
    protocol_name: str
    members: tuple[MemberView, ...] = ()


class Standing(NamedTuple):
    """A group in numbers."""

    state: GroupState
    members: int
    offsets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """A position that was kept."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: uuid.UUID = ZERO_UUID  # of the topic it was committed for; zero in records that do not say
