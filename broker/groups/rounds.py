"""Rounds: how a group goes from one generation to the next

In the join phase everybody who is in has to ask to join again; whoever does not in time is out. Then the generation
has its members and a leader, and in the sync phase the leader brings the assignment, which everybody gets once it is
written. A member that comes, goes or falls silent starts the next round. What is due by a deadline (`Timer`) is all
about rounds, so it is done here too.

Rounds are soft state: no assignment of an unfinished one has been handed out. Not here: who may come in
(`tidemill.broker.groups.joining`).
"""

from typing import Final

from tidemill.broker.coordination.contract import Instant
from tidemill.broker.groups.events import (
    ErrorResult,
    Heartbeat,
    JoinResult,
    LeaveGroup,
    Leaver,
    LeaveResult,
    SyncGroup,
    SyncResult,
)
from tidemill.broker.groups.identity import identity_error, speaker
from tidemill.broker.groups.membership import ClassicGroup, Member
from tidemill.broker.groups.states import GroupState, Move
from tidemill.broker.groups.table import Assigned, GroupTable, Timer, TimerKey
from tidemill.core.error_code import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""How long a member may wait for its first answer: it cannot send heartbeats yet. Kafka's figure."""


class Rounds:
    """The part of the machine that moves groups from generation to generation."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table

    # --- the join phase

    def rebalance(self, group: ClassicGroup, reason: str, now: Instant) -> None:
        """Start the join phase if it has not started, and end it if nobody is left to wait for."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            self._table.note(group, f"rebalance of generation {group.generation_id} starts: {reason}")
            if group.state is GroupState.COMPLETING_REBALANCE:
                self._end_sync_phase(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
            self._table.clear_timer(Timer.SYNC, group)
            group.pending_syncs.clear()
            delay_ms = self._table.limits.initial_rebalance_delay_ms if group.state is GroupState.EMPTY else 0
            group.move(Move.REBALANCE, now.wall_ms)
            group.in_initial_delay = delay_ms > 0
            if group.in_initial_delay:
                group.new_member_added = False
                group.delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
                self._table.set_timer(Timer.INITIAL_DELAY, group, now, delay_ms)
            else:
                self._table.set_timer(Timer.REBALANCE, group, now, group.rebalance_timeout_ms)
        if group.all_joined and not group.in_initial_delay:
            self._complete_join(group, now)

    def _complete_join(self, group: ClassicGroup, now: Instant) -> None:
        group.in_initial_delay = False
        self._table.clear_timer(Timer.REBALANCE, group)
        self._table.clear_timer(Timer.INITIAL_DELAY, group)
        for member in [entry for entry in group.members.values() if entry.join_request is None]:
            if member.group_instance_id is None:
                self._table.note(group, f"{member.member_id} did not join in time and is removed")
                self._remove(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        if group.members and not group.elect_joined_leader():
            # Only static members, none of them back yet: they have until their sessions end.
            self._table.set_timer(Timer.REBALANCE, group, now, group.rebalance_timeout_ms)
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
            self.answer_join(group, member, member.join_request)
            member.join_request = None
            member.is_new = False
            group.pending_syncs.add(member.member_id)
            self.alive(group, member, now)
        self._table.set_timer(Timer.SYNC, group, now, group.rebalance_timeout_ms)
        self._table.note(
            group, f"generation {group.generation_id} has {len(group.members)} members, {group.leader} leads"
        )

    def _become_empty(self, group: ClassicGroup, now: Instant) -> None:
        group.move(Move.LEFT, now.wall_ms)
        group.protocol_name = None
        group.leader = None
        self._table.note(group, f"generation {group.generation_id} is empty")
        self._table.keep(group, (group.record({}, now.wall_ms),))

    def answer_join(self, group: ClassicGroup, member: Member, request_id: int) -> None:
        """Tell a member its generation; the leader also who else is in."""
        leads = member.member_id == group.leader
        self._table.reply(
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

    # --- the sync phase

    def sync(self, event: SyncGroup, now: Instant) -> None:
        """Give a member its assignment, or let it wait for the leader to bring it."""
        group, member, error = speaker(self._table.groups, event)
        if error is not ErrorCode.NONE or group is None or member is None:
            self._table.reply(event.request_id, SyncResult(error=error))
            return
        if (event.protocol_type is not None and event.protocol_type != group.protocol_type) or (
            event.protocol_name is not None and event.protocol_name != group.protocol_name
        ):
            self._table.reply(event.request_id, SyncResult(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif group.state is GroupState.PREPARING_REBALANCE:
            self._table.reply(event.request_id, SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS))
        elif group.state is GroupState.STABLE:
            self._synced(group, member)
            self._answer_sync(group, member, event.request_id, group.last_append)
            self.alive(group, member, now)
        else:
            self._synced(group, member)
            self.release(member, ErrorCode.REBALANCE_IN_PROGRESS)
            member.sync_request = event.request_id
            self.alive(group, member, now)
            if member.member_id == group.leader:
                record = group.record(dict(event.assignments), now.wall_ms)
                self._table.append(group.group_id, (record,), Assigned(group_id=group.group_id))

    def _synced(self, group: ClassicGroup, member: Member) -> None:
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            self._table.clear_timer(Timer.SYNC, group)

    def assigned(self, group: ClassicGroup, token: int, now: Instant) -> None:
        """Hand out the assignment, now that it is written."""
        assert group.persisted is not None
        group.move(Move.ASSIGNED, now.wall_ms)
        for entry in group.persisted.members:
            member = group.members[entry.member_id]
            member.assignment = entry.assignment
            if member.sync_request is not None:
                self._answer_sync(group, member, member.sync_request, token)
                member.sync_request = None
                self.alive(group, member, now)

    def assignment_failed(self, group: ClassicGroup, error: ErrorCode, now: Instant) -> None:
        """The assignment could not be written, so nobody may have it: begin anew."""
        self._end_sync_phase(group, error, now)
        self.rebalance(group, "the assignment could not be written", now)

    def _answer_sync(self, group: ClassicGroup, member: Member, request_id: int, after: int | None) -> None:
        response = SyncResult(
            error=ErrorCode.NONE,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            assignment=member.assignment,
        )
        self._table.reply(request_id, response, after=after)

    def _end_sync_phase(self, group: ClassicGroup, error: ErrorCode, now: Instant) -> None:
        for member in group.members.values():
            member.assignment = b""
            if member.sync_request is not None:
                self.release(member, error)
                self.alive(group, member, now)

    # --- staying and leaving

    def heartbeat(self, event: Heartbeat, now: Instant) -> None:
        """Hear of a member."""
        group, member, error = speaker(self._table.groups, event)
        if error is ErrorCode.NONE and group is not None and member is not None:
            self.alive(group, member, now)
            if group.state is GroupState.PREPARING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        self._table.reply(event.request_id, ErrorResult(error=error))

    def leave(self, event: LeaveGroup, now: Instant) -> None:
        """Let members go that say so, or that an administrator names."""
        if not event.group_id:
            self._table.reply(event.request_id, LeaveResult(error=ErrorCode.INVALID_GROUP_ID))
            return
        group = self._table.classic(event.group_id)
        if group is None:
            results = tuple((leaver, ErrorCode.UNKNOWN_MEMBER_ID) for leaver in event.leavers)
        else:
            results = tuple((leaver, self._leave_one(group, leaver, now)) for leaver in event.leavers)
            self._table.drop_if_nothing_left(group, now)
        self._table.reply(event.request_id, LeaveResult(error=ErrorCode.NONE, leavers=results))

    def _leave_one(self, group: ClassicGroup, leaver: Leaver, now: Instant) -> ErrorCode:
        if leaver.member_id in group.pending_members:
            self._forget_pending(group, leaver.member_id, now)
            return ErrorCode.NONE
        member_id = leaver.member_id
        if member_id == "" and leaver.group_instance_id is not None:
            member_id = group.instances.get(leaver.group_instance_id, "")
        if error := identity_error(group, member_id, leaver.group_instance_id):
            return error
        self._lose(group, group.members[member_id], f"{member_id} left", now)
        return ErrorCode.NONE

    def _lose(self, group: ClassicGroup, member: Member, reason: str, now: Instant) -> None:
        """Take a member out and let the others go on without it."""
        self._remove(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.rebalance(group, reason, now)

    def _remove(self, group: ClassicGroup, member: Member, error: ErrorCode) -> None:
        self.release(member, error)
        self._table.clear_timer(Timer.SESSION, group, member.member_id)
        group.remove(member)

    def _forget_pending(self, group: ClassicGroup, member_id: str, now: Instant) -> None:
        group.pending_members.discard(member_id)
        self._table.clear_timer(Timer.PENDING, group, member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            self.rebalance(group, "", now)

    def time_is_up(self, key: TimerKey, now: Instant) -> None:
        """Do what a deadline was set for."""
        group = self._table.classic(key.group_id)
        if group is None:
            return
        match key.timer:
            case Timer.SESSION:
                member = group.members.get(key.member_id)
                if member is not None:
                    self._lose(group, member, f"{key.member_id} was silent for {member.session_timeout_ms} ms", now)
            case Timer.PENDING:
                self._forget_pending(group, key.member_id, now)
                self._table.drop_if_nothing_left(group, now)
            case Timer.REBALANCE:
                self._complete_join(group, now)
            case Timer.INITIAL_DELAY:
                self._end_initial_delay(group, now)
            case Timer.SYNC:
                late = [group.members[member_id] for member_id in sorted(group.pending_syncs)]
                for member in late:
                    self._remove(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
                if late:
                    self.rebalance(group, f"{len(late)} members did not ask for their assignment in time", now)

    def _end_initial_delay(self, group: ClassicGroup, now: Instant) -> None:
        if group.new_member_added and group.delay_left_ms > 0:
            delay_ms = min(self._table.limits.initial_rebalance_delay_ms, group.delay_left_ms)
            group.new_member_added = False
            group.delay_left_ms -= delay_ms
            self._table.set_timer(Timer.INITIAL_DELAY, group, now, delay_ms)
        else:
            self._complete_join(group, now)

    def taken_up(self, group: ClassicGroup, now: Instant) -> None:
        """Go on in the generation of the log: give every member of it a session and wait to hear from it."""
        if group.persisted is not None:
            group.restore(group.persisted)
            for member in group.members.values():
                self.alive(group, member, now)

    def alive(self, group: ClassicGroup, member: Member, now: Instant) -> None:
        """Start the member's session again; one that waits for us cannot be late."""
        if member.is_new:
            self._table.set_timer(Timer.SESSION, group, now, NEW_MEMBER_JOIN_TIMEOUT_MS, member.member_id)
        elif member.waits:
            self._table.clear_timer(Timer.SESSION, group, member.member_id)
        else:
            self._table.set_timer(Timer.SESSION, group, now, member.session_timeout_ms, member.member_id)

    def release(self, member: Member, error: ErrorCode) -> None:
        """Answer what the member waits for with `error`."""
        if member.join_request is not None:
            self._table.reply(member.join_request, JoinResult(error=error, member_id=member.member_id))
            member.join_request = None
        if member.sync_request is not None:
            self._table.reply(member.sync_request, SyncResult(error=error))
            member.sync_request = None
