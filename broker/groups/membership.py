"""One classic group: its members and its round

Bookkeeping without policy: who is in, who waits for an answer, which protocol all can speak. Whether something may
happen is decided by `joining`, `rounds` and `commits`; this object only keeps itself consistent (an instance id belongs
to one member, the leader is a member, the state moves along the table).
"""

from collections import Counter
from typing import NamedTuple

from tidemill.broker.groups.events import GroupKind, GroupView, JoinedMember, MemberView, Protocol, Standing
from tidemill.broker.groups.kinds import Group
from tidemill.broker.groups.records import GroupRecord, GroupTombstone, MemberRecord
from tidemill.broker.groups.states import GroupState, Move, after
from tidemill.broker.groups.subscription import CONSUMER, subscribed_topics
from tidemill.core.error_code import ErrorCode


class Terms(NamedTuple):
    """What a member says of itself whenever it joins."""

    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]


class Member:
    """One consumer of a group."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_request",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_request",
    )

    def __init__(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: tuple[Protocol, ...],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.join_request: int | None = None  # a JoinGroup that is not answered yet
        self.sync_request: int | None = None  # a SyncGroup that is not answered yet
        self.is_new = False  # has joined but never been answered

    @property
    def terms(self) -> Terms:
        """What it said when it last joined."""
        return Terms(
            self.client_id, self.client_host, self.session_timeout_ms, self.rebalance_timeout_ms, self.protocols
        )

    def take_terms(self, terms: Terms) -> None:
        """It joined again and says this now."""
        self.client_id, self.client_host, self.session_timeout_ms, self.rebalance_timeout_ms, self.protocols = terms

    def metadata(self, protocol_name: str | None) -> bytes:
        """The subscription this member sent for a protocol."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")

    @property
    def waits(self) -> bool:
        """Whether the next word is ours; such a member is alive however long it is silent."""
        return self.join_request is not None or self.sync_request is not None


class ClassicGroup(Group):
    """A group whose members assign among themselves."""

    kind = GroupKind.CLASSIC

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = -1
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        self.pending_members: set[str] = set()  # ids given out, not yet used (KIP-394)
        self.pending_syncs: set[str] = set()  # joined this generation, not yet synced
        self.new_member_added = False  # since the initial delay was last extended
        self.delay_left_ms = 0
        self.in_initial_delay = False
        self.persisted: GroupRecord | None = None  # durable: changed by apply only

    # --- what is asked of every kind

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return self.state is GroupState.EMPTY

    @property
    def is_idle(self) -> bool:
        """Whether it has no members and has given out no ids."""
        return self.state is GroupState.EMPTY and not self.pending_members

    @property
    def idle_since_ms(self) -> int:
        """When the last member left."""
        return -1 if self.protocol_type is None else self.state_timestamp_ms

    @property
    def recorded(self) -> GroupRecord | None:
        """Its last generation."""
        return self.persisted

    def tombstones(self) -> tuple[GroupTombstone, ...]:
        """One, if the log has a generation."""
        return () if self.persisted is None else (GroupTombstone(group_id=self.group_id),)

    def subscribed_topics(self) -> frozenset[str] | None:
        """By any protocol of any member; None if one of them cannot be read."""
        return subscribed_topics(protocol.metadata for member in self.members.values() for protocol in member.protocols)

    def deletion_problem(self) -> ErrorCode:
        """What members of another type than consumers read is not ours to understand."""
        return ErrorCode.NONE if self.is_empty or self.protocol_type == CONSUMER else ErrorCode.NON_EMPTY_GROUP

    def view(self) -> GroupView:
        """The group without its members."""
        return GroupView(
            group_id=self.group_id,
            kind=self.kind,
            state=self.state,
            protocol_type=self.protocol_type or "",
            protocol_name=(self.protocol_name or "") if self.state is GroupState.STABLE else "",
        )

    def standing(self) -> Standing:
        """The group in numbers."""
        return Standing(self.state, len(self.members), len(self.offsets))

    def end(self, wall_ms: int) -> None:
        """Nothing is left of it."""
        self.move(Move.REMOVE, wall_ms)

    # --- its own

    def move(self, move: Move, wall_ms: int) -> None:
        """Go to the state that the table gives."""
        self.state = after(self.state, move)
        self.state_timestamp_ms = wall_ms

    def add(self, member: Member) -> None:
        """Let a member in; the first one leads."""
        assert member.member_id not in self.members
        self.members[member.member_id] = member
        self.pending_members.discard(member.member_id)
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.instances
            self.instances[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: Member) -> None:
        """Let a member go; another one leads if it did."""
        del self.members[member.member_id]
        self.pending_syncs.discard(member.member_id)
        if member.group_instance_id is not None and self.instances.get(member.group_instance_id) == member.member_id:
            del self.instances[member.group_instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member that came back the id of its new life; its place in the group stays."""
        old_id = member.member_id
        self.members = {(member_id if known == old_id else known): entry for known, entry in self.members.items()}
        member.member_id = member_id
        assert member.group_instance_id is not None
        self.instances[member.group_instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id
        if old_id in self.pending_syncs:
            self.pending_syncs.remove(old_id)
            self.pending_syncs.add(member_id)

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is a member that has joined this round; False when nobody has."""
        if self.leader is not None and self.members[self.leader].join_request is not None:
            return True
        joined = next((member.member_id for member in self.members.values() if member.join_request is not None), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    @property
    def all_joined(self) -> bool:
        """Whether nobody is left to wait for."""
        return not self.pending_members and all(member.join_request is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the slowest member may take to join or to sync."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def can_speak(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """Whether a joining member shares a protocol with everybody who is in."""
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        names = {protocol.name for protocol in protocols}
        return self.protocol_type == protocol_type and bool(names & self.shared_protocols())

    def shared_protocols(self) -> set[str]:
        """Names of the protocols that every member offers."""
        offers = [{protocol.name for protocol in member.protocols} for member in self.members.values()]
        return set.intersection(*offers) if offers else set()

    def select_protocol(self) -> str:
        """The shared protocol that most members put first; a tie goes to the earlier one in the leader's list."""
        shared = self.shared_protocols()
        votes = Counter(
            next(protocol.name for protocol in member.protocols if protocol.name in shared)
            for member in self.members.values()
        )
        best = max(votes.values())
        order = [protocol.name for protocol in self.members[self.leader or next(iter(self.members))].protocols]
        return min((name for name, count in votes.items() if count == best), key=order.index)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """Everybody with the subscription for the chosen protocol, as the leader needs it."""
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    def views(self) -> tuple[MemberView, ...]:
        """Everybody, for people to look at; subscription and assignment only once they are settled."""
        settled = self.state is GroupState.STABLE
        return tuple(
            MemberView(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata(self.protocol_name) if settled else b"",
                assignment=member.assignment if settled else b"",
            )
            for member in self.members.values()
        )

    def record(self, assignments: dict[str, bytes], wall_ms: int) -> GroupRecord:
        """This generation as the log keeps it."""
        return GroupRecord(
            group_id=self.group_id,
            protocol_type=self.protocol_type or "",
            generation_id=self.generation_id,
            protocol_name=self.protocol_name,
            leader=self.leader,
            state_timestamp_ms=wall_ms,
            members=tuple(
                MemberRecord(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol_name),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ),
        )

    def restore(self, record: GroupRecord) -> None:
        """Be what the log says, with nobody waiting: the start of a coordinator's life."""
        self.protocol_type = record.protocol_type or None
        self.protocol_name = record.protocol_name
        self.generation_id = record.generation_id
        self.state_timestamp_ms = record.state_timestamp_ms
        self.state = GroupState.STABLE if record.members else GroupState.EMPTY
        self.members, self.instances = {}, {}
        self.leader = None
        for entry in record.members:
            offered = (Protocol(record.protocol_name or "", entry.subscription),)
            self.add(
                Member(
                    member_id=entry.member_id,
                    group_instance_id=entry.group_instance_id,
                    client_id=entry.client_id,
                    client_host=entry.client_host,
                    session_timeout_ms=entry.session_timeout_ms,
                    rebalance_timeout_ms=entry.rebalance_timeout_ms,
                    protocols=offered,
                    assignment=entry.assignment,
                )
            )
        if record.leader in self.members:
            self.leader = record.leader
