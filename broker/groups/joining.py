"""Joining: who may come into a group, and as whom

A new consumer is given an id and has to come back with it before it counts (KIP-394); a member joins again to learn of
the round that is going on, or to start one; a static member that restarted takes the place of its earlier life
(KIP-345), which in a stable group need not even be noticed (KIP-814 spares its leader the assignment).

A refused request changes nothing. Not here: what happens once somebody is in (`tidemill.broker.groups.rounds`).
"""

from tidemill.broker.coordination.contract import Instant
from tidemill.broker.groups.events import JoinGroup, JoinResult
from tidemill.broker.groups.identity import identity_error
from tidemill.broker.groups.membership import ClassicGroup, Member, Terms
from tidemill.broker.groups.records import storable
from tidemill.broker.groups.rounds import NEW_MEMBER_JOIN_TIMEOUT_MS, Rounds
from tidemill.broker.groups.states import GroupState
from tidemill.broker.groups.table import GroupTable, Returned, Timer
from tidemill.core.error_code import ErrorCode


class Joining:
    """The part of the machine that lets members in."""

    def __init__(self, table: GroupTable, rounds: Rounds) -> None:
        self._table = table
        self._rounds = rounds

    def join(self, event: JoinGroup, now: Instant) -> None:
        """Let somebody in, or let a member have another round."""
        error = self._join_problem(event)
        if error is not ErrorCode.NONE:
            self._table.reply(event.request_id, JoinResult(error=error, member_id=event.member_id))
            return
        group = self._table.group(event.group_id)
        assert isinstance(group, ClassicGroup)
        if event.member_id == "":
            self._join_unknown(group, event, now)
        elif event.member_id in group.pending_members:
            self._table.clear_timer(Timer.PENDING, group, event.member_id)
            self._add_member(group, event, event.member_id, now)
        else:
            self._join_known(group, group.members[event.member_id], event, now)

    def _join_problem(self, event: JoinGroup) -> ErrorCode:
        """The first rule that the request breaks; changes nothing, so a refused request leaves no group behind."""
        limits = self._table.limits
        if not storable(event.group_id) or event.group_id == "":
            return ErrorCode.INVALID_GROUP_ID
        if not storable(event.member_id, event.group_instance_id, event.protocol_type, event.client_id):
            return ErrorCode.INVALID_REQUEST
        if not limits.min_session_timeout_ms <= event.session_timeout_ms <= limits.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        group = self._table.groups.get(event.group_id) or ClassicGroup(event.group_id)
        if not isinstance(group, ClassicGroup):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        known = event.member_id in group.members or event.member_id in group.pending_members
        returning = event.member_id == "" and event.group_instance_id in group.instances
        if not known and not returning and len(group.members) + len(group.pending_members) >= limits.max_size:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if event.member_id != "" and (error := identity_error(group, event.member_id, event.group_instance_id)):
            return error
        if not group.can_speak(event.protocol_type, event.protocols):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def _join_unknown(self, group: ClassicGroup, event: JoinGroup, now: Instant) -> None:
        if event.group_instance_id is not None:
            returning = group.instances.get(event.group_instance_id)
            if returning is not None:
                self._join_returning(group, group.members[returning], event, now)
                return
        elif event.member_id_required:
            group.pending_members.add(event.new_member_id)
            self._table.set_timer(Timer.PENDING, group, now, event.session_timeout_ms, event.new_member_id)
            self._table.reply(
                event.request_id, JoinResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=event.new_member_id)
            )
            return
        self._add_member(group, event, event.new_member_id, now)

    def _join_known(self, group: ClassicGroup, member: Member, event: JoinGroup, now: Instant) -> None:
        same = member.protocols == event.protocols
        if group.state is GroupState.COMPLETING_REBALANCE and same:
            self._rounds.answer_join(group, member, event.request_id)  # it lost the answer; the round has not changed
            self._rounds.alive(group, member, now)
        elif group.state is GroupState.STABLE and same and member.member_id != group.leader:
            self._rounds.answer_join(group, member, event.request_id)
            self._rounds.alive(group, member, now)
        else:
            self._update_member(group, member, event, now)
            reason = "the leader joined again" if same else f"{member.member_id} changed its subscription"
            self._rounds.rebalance(group, reason, now)

    def _join_returning(self, group: ClassicGroup, member: Member, event: JoinGroup, now: Instant) -> None:
        """A static member that restarted: a new id fences its old life; a stable group need not even notice."""
        old_id, old_terms = member.member_id, member.terms
        old_leader = group.leader or ""
        unchanged = group.state is GroupState.STABLE and (
            member.metadata(group.protocol_name)
            == next((offer.metadata for offer in event.protocols if offer.name == group.protocol_name), None)
        )
        self._rounds.release(member, ErrorCode.FENCED_INSTANCE_ID)
        self._table.clear_timer(Timer.SESSION, group, old_id)
        group.rename(member, event.new_member_id)
        member.take_terms(_terms(event))
        if not unchanged or group.select_protocol() != group.protocol_name:
            member.join_request = event.request_id
            self._rounds.alive(group, member, now)
            self._rounds.rebalance(
                group, f"static member {event.group_instance_id} came back as {member.member_id}", now
            )
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
        self._rounds.alive(group, member, now)
        record = group.record({entry.member_id: entry.assignment for entry in group.members.values()}, now.wall_ms)
        then = Returned(
            group_id=group.group_id,
            request_id=event.request_id,
            old_id=old_id,
            old_terms=old_terms,
            response=response,
        )
        self._table.append(group.group_id, (record,), then)

    def _add_member(self, group: ClassicGroup, event: JoinGroup, member_id: str, now: Instant) -> None:
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
        self._table.set_timer(Timer.SESSION, group, now, NEW_MEMBER_JOIN_TIMEOUT_MS, member_id)
        self._rounds.rebalance(group, f"{member_id} joined", now)

    def _update_member(self, group: ClassicGroup, member: Member, event: JoinGroup, now: Instant) -> None:
        self._rounds.release(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.take_terms(_terms(event))
        member.join_request = event.request_id
        self._rounds.alive(group, member, now)

    def return_failed(self, group: ClassicGroup, then: Returned, error: ErrorCode, now: Instant) -> None:
        """The new id of a static member could not be written: it did not come back."""
        member = group.members[then.response.member_id]
        self._table.clear_timer(Timer.SESSION, group, member.member_id)
        group.rename(member, then.old_id)
        member.take_terms(then.old_terms)
        self._rounds.alive(group, member, now)
        self._table.reply(then.request_id, JoinResult(error=error, member_id=""))


def _terms(event: JoinGroup) -> Terms:
    return Terms(
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        protocols=event.protocols,
    )
