"""The group coordinator as a pure machine

Who is in a group, who assigns, who owns which partitions in which generation, how far they got. `step` takes a
request or a tick and says what to write, what to answer and after which write. What must survive a crash (committed
offsets, the generation with its assignment) changes in `apply` alone, which is also recovery: a restarted coordinator
replays the log, calls `recovered`, and members go on in the generation they were in.

Rounds are soft state. A crash in the middle of one loses nothing anybody owned: no assignment of it had been handed
out.

The rules are those of Kafka's classic protocol with KIP-345 (static members), KIP-394 (ids are handed out before they
count) and KIP-814 (a returning leader need not assign again). Not here: KIP-848 groups, transactions, the log itself.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from broker.groups import offsets as rules
from broker.groups.deadlines import Deadlines
from broker.groups.events import (
    Action,
    Append,
    Appended,
    AppendFailed,
    CommitOffsets,
    CommitResult,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    DeleteOffsetsResult,
    ErrorResult,
    Event,
    ExpireOffsets,
    GroupView,
    Heartbeat,
    Instant,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    Leaver,
    LeaveResult,
    Note,
    Reply,
    Response,
    SyncGroup,
    SyncResult,
    Tick,
    TopicsDeleted,
)
from broker.groups.membership import Group, Member
from broker.groups.records import CoordinatorRecord, GroupRecord, GroupTombstone, OffsetRecord, OffsetTombstone
from broker.groups.states import GroupState, Move
from core.error_code import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""How long a member may wait for its first answer: it cannot send heartbeats yet. Kafka's figure."""

TEXT_BYTES_MAX: Final = 2**15 - 1
"""The log stores texts with a 16-bit length; flexible requests could carry longer ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """What the configuration allows."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 10_000
    initial_rebalance_delay_ms: int = 3_000
    offset_metadata_bytes_max: int = 4096
    offsets_retention_ms: int = 7 * 86_400_000


class _Timer(IntEnum):
    SESSION = 0  # a member must be heard of
    PENDING = 1  # an id that was handed out must be used
    REBALANCE = 2  # the join phase ends
    INITIAL_DELAY = 3  # the first join phase of an empty group ends
    SYNC = 4  # members that joined must ask for their assignment


class _TimerKey(NamedTuple):
    timer: _Timer
    group_id: str
    member_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assigned:
    """The leader's assignment was appended."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """A request whose answer depends on the append."""

    group_id: str
    request_id: int
    response: Response
    failed: Response


@dataclass(frozen=True, slots=True, kw_only=True)
class _Returned:
    """A static member came back under a new id and keeps its place."""

    group_id: str
    request_id: int
    old_id: str
    response: JoinResult


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """Nobody waits: an empty generation, expired offsets."""

    group_id: str


_Then: TypeAlias = _Assigned | _Answer | _Returned | _Kept


class GroupMachine:
    """All groups of one coordinator."""

    def __init__(self, limits: GroupLimits) -> None:
        self._limits = limits
        self._groups: dict[str, Group] = {}
        self._deadlines: Deadlines[_TimerKey] = Deadlines()
        self._pending: dict[int, tuple[tuple[CoordinatorRecord, ...], _Then]] = {}
        self._token = 0
        self._out: list[Action] = []

    # --- the contract

    def step(self, event: Event, now: Instant) -> list[Action]:
        """Take in `event` and return what has to happen, in order."""
        self._out = []
        match event:
            case Heartbeat():
                self._heartbeat(event, now)
            case CommitOffsets():
                self._commit(event, now)
            case JoinGroup():
                self._join(event, now)
            case SyncGroup():
                self._sync(event, now)
            case LeaveGroup():
                self._leave(event, now)
            case DeleteGroup():
                self._delete(event)
            case DeleteOffsets():
                self._delete_offsets(event)
            case TopicsDeleted():
                self._drop_topics(event)
            case ExpireOffsets():
                self._expire_offsets(now)
            case Tick():
                for key in self._deadlines.due(now.monotonic_ms):
                    self._time_is_up(key, now)
            case Appended():
                self._appended(event, now)
            case AppendFailed():
                self._append_failed(event, now)
        return self._out

    def next_deadline_ms(self) -> int | None:
        """When a Tick is needed next, on the monotonic clock."""
        return self._deadlines.next_ms()

    def apply(self, record: CoordinatorRecord) -> None:
        """Change what must survive a crash; the only place that does."""
        match record:
            case OffsetRecord():
                self._group(record.group_id).offsets[record.topic, record.partition] = rules.committed(record)
            case OffsetTombstone():
                group = self._groups.get(record.group_id)
                if group is not None:
                    group.offsets.pop((record.topic, record.partition), None)
            case GroupRecord():
                self._group(record.group_id).persisted = record
            case GroupTombstone():
                group = self._groups.get(record.group_id)
                if group is not None:
                    group.persisted = None

    def recovered(self, now: Instant) -> None:
        """All records are applied: give every member a session and wait to hear from it."""
        for group in list(self._groups.values()):
            if group.persisted is not None:
                group.restore(group.persisted)
                for member in group.members.values():
                    self._alive(group, member, now)
            self._drop_if_nothing_left(group, now)

    # --- reading

    def durable_state(self) -> Mapping[str, tuple[GroupRecord | None, Mapping[tuple[str, int], CommittedOffset]]]:
        """What a replay of the log has to give."""
        return {
            group.group_id: (group.persisted, dict(group.offsets))
            for group in self._groups.values()
            if group.persisted is not None or group.offsets
        }

    def committed_offsets(self, group_id: str) -> Mapping[tuple[str, int], CommittedOffset]:
        """Every offset that a group has committed."""
        group = self._groups.get(group_id)
        return group.offsets if group is not None else {}

    def describe(self, group_id: str) -> GroupView | None:
        """One group with its members."""
        group = self._groups.get(group_id)
        return None if group is None else replace(_view(group), members=group.views())

    def list_groups(self) -> list[GroupView]:
        """Every group, without members."""
        return [_view(group) for group in self._groups.values()]

    # --- joining

    def _join(self, event: JoinGroup, now: Instant) -> None:
        error = self._join_problem(event)
        if error is not ErrorCode.NONE:
            self._reply(event.request_id, JoinResult(error=error, member_id=event.member_id))
            return
        group = self._group(event.group_id)
        if event.member_id == "":
            self._join_unknown(group, event, now)
        elif event.member_id in group.pending_members:
            self._deadlines.clear(_TimerKey(_Timer.PENDING, group.group_id, event.member_id))
            self._add_member(group, event, event.member_id, now)
        else:
            self._join_known(group, group.members[event.member_id], event, now)

    def _join_problem(self, event: JoinGroup) -> ErrorCode:
        """The first rule that the request breaks; changes nothing, so a refused request leaves no group behind."""
        limits = self._limits
        if not _storable(event.group_id) or event.group_id == "":
            return ErrorCode.INVALID_GROUP_ID
        if not _storable(event.member_id, event.group_instance_id, event.protocol_type, event.client_id):
            return ErrorCode.INVALID_REQUEST
        if not limits.min_session_timeout_ms <= event.session_timeout_ms <= limits.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        group = self._groups.get(event.group_id) or Group(event.group_id)
        known = event.member_id in group.members or event.member_id in group.pending_members
        returning = event.member_id == "" and event.group_instance_id in group.instances
        if not known and not returning and len(group.members) + len(group.pending_members) >= limits.max_size:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if event.member_id != "" and (error := _identity_error(group, event.member_id, event.group_instance_id)):
            return error
        if not group.can_speak(event.protocol_type, event.protocols):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def _join_unknown(self, group: Group, event: JoinGroup, now: Instant) -> None:
        if event.group_instance_id is not None:
            returning = group.instances.get(event.group_instance_id)
            if returning is not None:
                self._join_returning(group, group.members[returning], event, now)
                return
        elif event.member_id_required:
            group.pending_members.add(event.new_member_id)
            self._set(_Timer.PENDING, group, now, event.session_timeout_ms, event.new_member_id)
            self._reply(event.request_id, JoinResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=event.new_member_id))
            return
        self._add_member(group, event, event.new_member_id, now)

    def _join_known(self, group: Group, member: Member, event: JoinGroup, now: Instant) -> None:
        same = member.protocols == event.protocols
        if group.state is GroupState.COMPLETING_REBALANCE and same:
            self._answer_join(group, member, event.request_id)  # it lost the answer; the round has not changed
            self._alive(group, member, now)
        elif group.state is GroupState.STABLE and same and member.member_id != group.leader:
            self._answer_join(group, member, event.request_id)
            self._alive(group, member, now)
        else:
            self._update_member(group, member, event, now)
            reason = "the leader joined again" if same else f"{member.member_id} changed its subscription"
            self._rebalance(group, reason, now)

    def _join_returning(self, group: Group, member: Member, event: JoinGroup, now: Instant) -> None:
        """A static member that restarted: a new id fences its old life; a stable group need not even notice."""
        old_id = member.member_id
        old_leader = group.leader or ""
        unchanged = group.state is GroupState.STABLE and (
            member.metadata(group.protocol_name)
            == next((offer.metadata for offer in event.protocols if offer.name == group.protocol_name), None)
        )
        self._release(member, ErrorCode.FENCED_INSTANCE_ID)
        self._deadlines.clear(_TimerKey(_Timer.SESSION, group.group_id, old_id))
        group.rename(member, event.new_member_id)
        self._update_terms(member, event)
        if not unchanged or group.select_protocol() != group.protocol_name:
            member.join_request = event.request_id
            self._alive(group, member, now)
            self._rebalance(group, f"static member {event.group_instance_id} came back as {member.member_id}", now)
            return
        leads = group.leader == member.member_id
        response = JoinResult(
            error=ErrorCode.NONE,
            member_id=member.member_id,
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=member.member_id if leads and event.skip_assignment else old_leader,
            skip_assignment=leads and event.skip_assignment,
            members=group.joined_members() if leads and event.skip_assignment else (),
        )
        self._alive(group, member, now)
        record = group.record({entry.member_id: entry.assignment for entry in group.members.values()}, now.wall_ms)
        then = _Returned(group_id=group.group_id, request_id=event.request_id, old_id=old_id, response=response)
        self._append(group.group_id, (record,), then)

    def _add_member(self, group: Group, event: JoinGroup, member_id: str, now: Instant) -> None:
        if not group.members:
            group.protocol_type = event.protocol_type
        member = Member(
            member_id=member_id,
            group_instance_id=event.group_instance_id,
            client_id=event.client_id,
            client_host=event.client_host,
            session_timeout_ms=event.session_timeout_ms,
            rebalance_timeout_ms=event.rebalance_timeout_ms,
            protocols=event.protocols,
        )
        member.is_new = True
        member.join_request = event.request_id
        group.add(member)
        group.new_member_added = True
        self._set(_Timer.SESSION, group, now, NEW_MEMBER_JOIN_TIMEOUT_MS, member_id)
        self._rebalance(group, f"{member_id} joined", now)

    def _update_member(self, group: Group, member: Member, event: JoinGroup, now: Instant) -> None:
        self._release(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self._update_terms(member, event)
        member.join_request = event.request_id
        self._alive(group, member, now)

    @staticmethod
    def _update_terms(member: Member, event: JoinGroup) -> None:
        member.protocols = event.protocols
        member.session_timeout_ms = event.session_timeout_ms
        member.rebalance_timeout_ms = event.rebalance_timeout_ms
        member.client_id = event.client_id
        member.client_host = event.client_host

    def _rebalance(self, group: Group, reason: str, now: Instant) -> None:
        """Start the join phase if it has not started, and end it if nobody is left to wait for."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            self._note(group, f"rebalance of generation {group.generation_id} starts: {reason}")
            if group.state is GroupState.COMPLETING_REBALANCE:
                self._end_sync_phase(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
            self._deadlines.clear(_TimerKey(_Timer.SYNC, group.group_id))
            group.pending_syncs.clear()
            delay_ms = self._limits.initial_rebalance_delay_ms if group.state is GroupState.EMPTY else 0
            group.move(Move.REBALANCE, now.wall_ms)
            group.in_initial_delay = delay_ms > 0
            if group.in_initial_delay:
                group.new_member_added = False
                group.delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
                self._set(_Timer.INITIAL_DELAY, group, now, delay_ms)
            else:
                self._set(_Timer.REBALANCE, group, now, group.rebalance_timeout_ms)
        if group.all_joined and not group.in_initial_delay:
            self._complete_join(group, now)

    def _complete_join(self, group: Group, now: Instant) -> None:
        group.in_initial_delay = False
        self._deadlines.clear(_TimerKey(_Timer.REBALANCE, group.group_id))
        self._deadlines.clear(_TimerKey(_Timer.INITIAL_DELAY, group.group_id))
        for member in [entry for entry in group.members.values() if entry.join_request is None]:
            if member.group_instance_id is None:
                self._note(group, f"{member.member_id} did not join in time and is removed")
                self._remove(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        if group.members and not group.elect_joined_leader():
            # Only static members, none of them back yet: they have until their sessions end.
            self._set(_Timer.REBALANCE, group, now, group.rebalance_timeout_ms)
            return
        group.generation_id += 1
        group.pending_syncs.clear()
        if not group.members:
            self._become_empty(group, now)
            return
        group.protocol_name = group.select_protocol()
        group.move(Move.JOINED, now.wall_ms)
        for member in group.members.values():
            if member.join_request is None:
                continue
            self._answer_join(group, member, member.join_request)
            member.join_request = None
            member.is_new = False
            group.pending_syncs.add(member.member_id)
            self._alive(group, member, now)
        self._set(_Timer.SYNC, group, now, group.rebalance_timeout_ms)
        self._note(group, f"generation {group.generation_id} has {len(group.members)} members, {group.leader} leads")

    def _become_empty(self, group: Group, now: Instant) -> None:
        group.move(Move.LEFT, now.wall_ms)
        group.protocol_name = None
        group.leader = None
        self._note(group, f"generation {group.generation_id} is empty")
        self._append(group.group_id, (group.record({}, now.wall_ms),), _Kept(group_id=group.group_id))

    def _answer_join(self, group: Group, member: Member, request_id: int) -> None:
        leads = member.member_id == group.leader
        self._reply(
            request_id,
            JoinResult(
                error=ErrorCode.NONE,
                member_id=member.member_id,
                generation_id=group.generation_id,
                protocol_type=group.protocol_type,
                protocol_name=group.protocol_name,
                leader=group.leader or "",
                members=group.joined_members() if leads else (),
            ),
        )

    # --- syncing

    def _sync(self, event: SyncGroup, now: Instant) -> None:
        group, member, error = self._member(
            event.group_id, event.member_id, event.group_instance_id, event.generation_id
        )
        if error is not ErrorCode.NONE or group is None or member is None:
            self._reply(event.request_id, SyncResult(error=error))
            return
        if (event.protocol_type is not None and event.protocol_type != group.protocol_type) or (
            event.protocol_name is not None and event.protocol_name != group.protocol_name
        ):
            self._reply(event.request_id, SyncResult(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif group.state is GroupState.PREPARING_REBALANCE:
            self._reply(event.request_id, SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS))
        elif group.state is GroupState.STABLE:
            self._synced(group, member)
            self._answer_sync(group, member, event.request_id, group.last_append)
            self._alive(group, member, now)
        else:
            self._synced(group, member)
            self._release(member, ErrorCode.REBALANCE_IN_PROGRESS)
            member.sync_request = event.request_id
            self._alive(group, member, now)
            if member.member_id == group.leader:
                record = group.record(dict(event.assignments), now.wall_ms)
                self._append(group.group_id, (record,), _Assigned(group_id=group.group_id))

    def _synced(self, group: Group, member: Member) -> None:
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            self._deadlines.clear(_TimerKey(_Timer.SYNC, group.group_id))

    def _assigned(self, group: Group, token: int, now: Instant) -> None:
        assert group.persisted is not None
        group.move(Move.ASSIGNED, now.wall_ms)
        for entry in group.persisted.members:
            member = group.members[entry.member_id]
            member.assignment = entry.assignment
            if member.sync_request is not None:
                self._answer_sync(group, member, member.sync_request, token)
                member.sync_request = None
                self._alive(group, member, now)

    def _answer_sync(self, group: Group, member: Member, request_id: int, after: int | None) -> None:
        response = SyncResult(
            error=ErrorCode.NONE,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            assignment=member.assignment,
        )
        self._reply(request_id, response, after=after)

    def _end_sync_phase(self, group: Group, error: ErrorCode, now: Instant) -> None:
        for member in group.members.values():
            member.assignment = b""
            if member.sync_request is not None:
                self._release(member, error)
                self._alive(group, member, now)

    # --- staying and leaving

    def _heartbeat(self, event: Heartbeat, now: Instant) -> None:
        group, member, error = self._member(
            event.group_id, event.member_id, event.group_instance_id, event.generation_id
        )
        if error is ErrorCode.NONE and group is not None and member is not None:
            self._alive(group, member, now)
            if group.state is GroupState.PREPARING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        self._reply(event.request_id, ErrorResult(error=error))

    def _leave(self, event: LeaveGroup, now: Instant) -> None:
        if not event.group_id:
            self._reply(event.request_id, LeaveResult(error=ErrorCode.INVALID_GROUP_ID))
            return
        group = self._groups.get(event.group_id)
        if group is None:
            results = tuple((leaver, ErrorCode.UNKNOWN_MEMBER_ID) for leaver in event.leavers)
        else:
            results = tuple((leaver, self._leave_one(group, leaver, now)) for leaver in event.leavers)
            self._drop_if_nothing_left(group, now)
        self._reply(event.request_id, LeaveResult(error=ErrorCode.NONE, leavers=results))

    def _leave_one(self, group: Group, leaver: Leaver, now: Instant) -> ErrorCode:
        if leaver.member_id in group.pending_members:
            self._forget_pending(group, leaver.member_id, now)
            return ErrorCode.NONE
        member_id = leaver.member_id
        if member_id == "" and leaver.group_instance_id is not None:
            member_id = group.instances.get(leaver.group_instance_id, "")
        if error := _identity_error(group, member_id, leaver.group_instance_id):
            return error
        self._lose(group, group.members[member_id], f"{member_id} left", now)
        return ErrorCode.NONE

    def _lose(self, group: Group, member: Member, reason: str, now: Instant) -> None:
        """Take a member out and let the others go on without it."""
        self._remove(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        self._rebalance(group, reason, now)

    def _remove(self, group: Group, member: Member, error: ErrorCode) -> None:
        self._release(member, error)
        self._deadlines.clear(_TimerKey(_Timer.SESSION, group.group_id, member.member_id))
        group.remove(member)

    def _forget_pending(self, group: Group, member_id: str, now: Instant) -> None:
        group.pending_members.discard(member_id)
        self._deadlines.clear(_TimerKey(_Timer.PENDING, group.group_id, member_id))
        if group.state is GroupState.PREPARING_REBALANCE:
            self._rebalance(group, "", now)

    def _time_is_up(self, key: _TimerKey, now: Instant) -> None:
        group = self._groups.get(key.group_id)
        if group is None:
            return
        match key.timer:
            case _Timer.SESSION:
                member = group.members.get(key.member_id)
                if member is not None:
                    self._lose(group, member, f"{key.member_id} was silent for {member.session_timeout_ms} ms", now)
            case _Timer.PENDING:
                self._forget_pending(group, key.member_id, now)
                self._drop_if_nothing_left(group, now)
            case _Timer.REBALANCE:
                self._complete_join(group, now)
            case _Timer.INITIAL_DELAY:
                self._end_initial_delay(group, now)
            case _Timer.SYNC:
                late = [group.members[member_id] for member_id in sorted(group.pending_syncs)]
                for member in late:
                    self._remove(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
                if late:
                    self._rebalance(group, f"{len(late)} members did not ask for their assignment in time", now)

    def _end_initial_delay(self, group: Group, now: Instant) -> None:
        if group.new_member_added and group.delay_left_ms > 0:
            delay_ms = min(self._limits.initial_rebalance_delay_ms, group.delay_left_ms)
            group.new_member_added = False
            group.delay_left_ms -= delay_ms
            self._set(_Timer.INITIAL_DELAY, group, now, delay_ms)
        else:
            self._complete_join(group, now)

    # --- offsets

    def _commit(self, event: CommitOffsets, now: Instant) -> None:
        error = self._commit_problem(event, now)
        errors, records = (
            ((error,) * len(event.offsets), ())
            if error is not ErrorCode.NONE
            else rules.decide_commit(event, self._limits.offset_metadata_bytes_max, now)
        )
        if not records:
            self._reply(event.request_id, CommitResult(errors=errors))
            return
        then = _Answer(
            group_id=event.group_id,
            request_id=event.request_id,
            response=CommitResult(errors=errors),
            failed=CommitResult(errors=errors),
        )
        self._append(event.group_id, records, then)

    def _commit_problem(self, event: CommitOffsets, now: Instant) -> ErrorCode:
        if not _storable(event.group_id) or event.group_id == "":
            return ErrorCode.INVALID_GROUP_ID
        alone = event.generation_id < 0 and event.member_id == "" and event.group_instance_id is None
        group = self._groups.get(event.group_id)
        if group is None:
            return ErrorCode.NONE if alone else ErrorCode.ILLEGAL_GENERATION
        if alone and group.state is GroupState.EMPTY:
            return ErrorCode.NONE
        _, member, error = self._member(event.group_id, event.member_id, event.group_instance_id, event.generation_id)
        if error is not ErrorCode.NONE or member is None:
            return error
        if group.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._alive(group, member, now)
        return ErrorCode.NONE

    def _delete(self, event: DeleteGroup) -> None:
        group = self._groups.get(event.group_id)
        if group is None:
            self._reply(event.request_id, ErrorResult(error=ErrorCode.GROUP_ID_NOT_FOUND))
            return
        if group.state is not GroupState.EMPTY:
            self._reply(event.request_id, ErrorResult(error=ErrorCode.NON_EMPTY_GROUP))
            return
        done = ErrorResult(error=ErrorCode.NONE)
        then = _Answer(group_id=group.group_id, request_id=event.request_id, response=done, failed=done)
        records = rules.forgotten(group)
        if records:
            self._append(group.group_id, records, then)
        else:  # ids were handed out, nothing else
            self._reply(event.request_id, done)

    def _delete_offsets(self, event: DeleteOffsets) -> None:
        group = self._groups.get(event.group_id)
        error = rules.deletion_problem(group)
        if group is None or error is not ErrorCode.NONE:
            self._reply(event.request_id, DeleteOffsetsResult(error=error))
            return
        errors, records = rules.decide_deletion(group, event.partitions)
        done = DeleteOffsetsResult(error=ErrorCode.NONE, errors=errors)
        if not records:
            self._reply(event.request_id, done)
            return
        then = _Answer(group_id=group.group_id, request_id=event.request_id, response=done, failed=done)
        self._append(group.group_id, records, then)

    def _drop_topics(self, event: TopicsDeleted) -> None:
        for group in list(self._groups.values()):
            records = rules.of_deleted_topics(group, event.names)
            if records:
                self._append(group.group_id, records, _Kept(group_id=group.group_id))

    def _expire_offsets(self, now: Instant) -> None:
        for group in list(self._groups.values()):
            records = rules.expired(group, self._limits.offsets_retention_ms, now.wall_ms)
            if records:
                self._append(group.group_id, records, _Kept(group_id=group.group_id))

    # --- after an append

    def _appended(self, event: Appended, now: Instant) -> None:
        records, then = self._pending.pop(event.token)
        for record in records:
            self.apply(record)
        group = self._groups[then.group_id]
        group.last_append = event.token
        match then:
            case _Assigned():
                self._assigned(group, event.token, now)
            case _Answer() | _Returned():
                self._reply(then.request_id, then.response, after=event.token)
            case _Kept():
                pass
        self._drop_if_nothing_left(group, now)

    def _append_failed(self, event: AppendFailed, now: Instant) -> None:
        _, then = self._pending.pop(event.token)
        group = self._groups.get(then.group_id)
        match then:
            case _Assigned():
                assert group is not None
                self._end_sync_phase(group, event.error, now)
                self._rebalance(group, "the assignment could not be written", now)
            case _Answer():
                self._reply(then.request_id, _refused(then.failed, event.error))
            case _Returned():
                assert group is not None
                self._undo_return(group, then, now)
                self._reply(then.request_id, JoinResult(error=event.error, member_id=""))
            case _Kept():
                if group is not None:
                    self._note(group, f"a change could not be written: {event.error.name}")

    def _undo_return(self, group: Group, then: _Returned, now: Instant) -> None:
        member = group.members[then.response.member_id]
        self._deadlines.clear(_TimerKey(_Timer.SESSION, group.group_id, member.member_id))
        group.rename(member, then.old_id)
        self._alive(group, member, now)

    # --- small parts

    def _group(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group(group_id)
        return group

    def _member(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> tuple[Group | None, Member | None, ErrorCode]:
        """The member a request speaks for, or why it may not."""
        if not group_id:
            return None, None, ErrorCode.INVALID_GROUP_ID
        group = self._groups.get(group_id)
        if group is None:
            return None, None, ErrorCode.UNKNOWN_MEMBER_ID
        if error := _identity_error(group, member_id, group_instance_id):
            return group, None, error
        member = group.members.get(member_id)
        if member is None:
            return group, None, ErrorCode.UNKNOWN_MEMBER_ID
        if generation_id != group.generation_id:
            return group, None, ErrorCode.ILLEGAL_GENERATION
        return group, member, ErrorCode.NONE

    def _alive(self, group: Group, member: Member, now: Instant) -> None:
        """Start the member's session again; one that waits for us cannot be late."""
        if member.is_new:
            self._set(_Timer.SESSION, group, now, NEW_MEMBER_JOIN_TIMEOUT_MS, member.member_id)
        elif member.waits:
            self._deadlines.clear(_TimerKey(_Timer.SESSION, group.group_id, member.member_id))
        else:
            self._set(_Timer.SESSION, group, now, member.session_timeout_ms, member.member_id)

    def _release(self, member: Member, error: ErrorCode) -> None:
        """Answer what the member waits for with `error`."""
        if member.join_request is not None:
            self._reply(member.join_request, JoinResult(error=error, member_id=member.member_id))
            member.join_request = None
        if member.sync_request is not None:
            self._reply(member.sync_request, SyncResult(error=error))
            member.sync_request = None

    def _drop_if_nothing_left(self, group: Group, now: Instant) -> None:
        if (
            group.state is GroupState.EMPTY
            and not group.pending_members
            and not group.offsets
            and group.persisted is None
            and self._groups.get(group.group_id) is group
        ):
            group.move(Move.REMOVE, now.wall_ms)
            del self._groups[group.group_id]

    def _set(self, timer: _Timer, group: Group, now: Instant, delay_ms: int, member_id: str = "") -> None:
        self._deadlines.set(_TimerKey(timer, group.group_id, member_id), now.monotonic_ms + delay_ms)

    def _append(self, group_id: str, records: Iterable[CoordinatorRecord], then: _Then) -> None:
        self._token += 1
        written = tuple(records)
        self._pending[self._token] = (written, then)
        self._out.append(Append(token=self._token, group_id=group_id, records=written))

    def _reply(self, request_id: int, response: Response, after: int | None = None) -> None:
        self._out.append(Reply(request_id=request_id, response=response, after=after))

    def _note(self, group: Group, text: str) -> None:
        self._out.append(Note(group_id=group.group_id, text=text))


def _view(group: Group) -> GroupView:
    return GroupView(
        group_id=group.group_id,
        state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_name=(group.protocol_name or "") if group.state is GroupState.STABLE else "",
    )


def _identity_error(group: Group, member_id: str, group_instance_id: str | None) -> ErrorCode | None:
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


def _storable(*texts: str | None) -> bool:
    return all(text is None or len(text.encode()) <= TEXT_BYTES_MAX for text in texts)


def _refused(response: Response, error: ErrorCode) -> Response:
    if isinstance(response, CommitResult):
        return CommitResult(errors=tuple(error if item is ErrorCode.NONE else item for item in response.errors))
    return DeleteOffsetsResult(error=error) if isinstance(response, DeleteOffsetsResult) else ErrorResult(error=error)
