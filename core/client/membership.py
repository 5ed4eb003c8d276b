"""A member of a classic group, as a machine

It looks for the group's coordinator, joins (with the member id that the coordinator gives first), leads a round if it
is told to, fetches its assignment and beats. Whatever goes wrong on the way has one of four answers: again after a
while, look for the coordinator anew, join anew under another id, or give up because it will never work.

What a member was given it may keep while it joins again: work goes on through a round. But only for as long as its
lease runs, which it counts by its own clock: a session long, from the moment when the last request was *sent* that the
coordinator answered well. The coordinator counts from when it received that request, so whoever is thrown out for
being silent has heard `Lost` before. There is one other way out: who does not join again in time is removed although
it beats. How long a round took is in `Decide`, so that a leader can tell whether that may have happened; and who has
joined but not yet its assignment stops counting on its lease a rebalance timeout after the round's end.

It beats while it joins, too, on a lane of its own: a join is answered when everybody has joined, and another member
that died a moment before would end the leases of all who wait for it.

Pure: `step(event, now_ms)` returns what has to be done, in order; `now_ms` counts from anywhere and never goes back.
The owner says with `Describe` what the next join tells of it and hears `Decide`, `Assigned`, `Leased`, `Lost`; it has
to have stopped its work before it says `Leave`. Static members (`group.instance.id`) are not made.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ..error_code import ErrorCode
from ..errors import error_for_code
from ..wire.api import ApiKey
from ..wire.message import Message
from ..wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ..wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ..wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ..wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

ROUND_MARGIN_MS = 5_000
"""A join is answered at the latest when the rebalance timeout is over; so much longer it is waited for, as in Java."""

NOBODY = -1
"""The generation of who is in none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """The group, and what Kafka's settings of these names say."""

    group: str
    protocol_type: str
    protocol: str
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 1_000
    rebalance_timeout_ms: int = 60_000
    request_timeout_ms: int = 5_000
    """Of everything but a join; half a session, so that one lost answer does not cost the lease."""
    retry_first_ms: int = 50
    retry_max_ms: int = 1_000


class Phase(enum.Enum):
    """Where a member is."""

    OUT = "out"
    JOINING = "joining"  # a join is under way or due
    DECIDING = "deciding"  # it leads, and the owner has to say who gets what
    SYNCING = "syncing"
    STABLE = "stable"
    LEAVING = "leaving"
    REFUSED = "refused"  # for good


_MEMBER = (Phase.JOINING, Phase.DECIDING, Phase.SYNCING, Phase.STABLE)


class Lane(enum.Enum):
    """Requests that must not wait for each other go over connections of their own."""

    ROUND = "round"
    BEAT = "beat"


# ---------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Nothing but the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe:
    """What the next join is to tell of this member; the first one makes it join.

    Whoever tells what it holds says it anew when it hears `Assigned`, from within that call.
    """

    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejoin:
    """The owner wants another round. One that is under way with older words is followed by another.

    That one begins with the `Tick` after its `Assigned`, so that what was assigned is among the words of its join: what
    the owner says before it hears of that, as of `Leased`, may come in between.

    Kafka starts a round for a leader always, for others only if they have something new to say.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """The owner's answer to `Decide`; of who is not named the assignment is empty."""

    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """The owner has stopped its work and goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Who coordinates the group."""

    token: int
    node_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer to an `Ask`."""

    token: int
    answer: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A `Seek` or `Ask` that came to nothing: no connection, no answer in time, nobody who coordinates now."""

    token: int
    reason: str
    error_code: int = 0  # of an error that will not pass: what is missing is a right, or an API


Event: TypeAlias = Tick | Describe | Rejoin | Assign | Leave | Found | Answered | Failed


# --------------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True, kw_only=True)
class Seek:
    """Find the coordinator; then tell `Found` or `Failed`."""

    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Send a request; then tell `Answered` or `Failed`."""

    token: int
    node_id: int
    lane: Lane
    key: ApiKey
    request: Message
    timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HangUp:
    """Close the connections to this node: what is under way there is not waited for any more."""

    node_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """A member as the leader sees it."""

    member_id: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Decide:
    """This member leads: say who gets what, by `Assign`.

    `round_ms` is how long ago the group was surely at rest. Below the rebalance timeout nobody was removed for not
    joining in time, so whoever is missing has left or its lease is over. In the first round of a member (`is_first`)
    nobody has led another since it came.
    """

    generation: int
    member_id: str
    members: tuple[JoinedMember, ...]
    round_ms: int
    is_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """What this member is to do, until the next `Assigned` or `Lost`; `said` is what its join told for that."""

    generation: int
    member_id: str
    leader: str
    assignment: bytes
    said: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    """How long the lease of what is assigned runs, by this machine's clock; said before `Assigned`, when it moves."""

    until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsettled:
    """A round has begun; the next `Assigned` or `Lost` ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Nothing is this member's any more: all that was assigned has to end now. It joins again by itself."""

    generation: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """It is out, and if it could still be told, the group knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The group does not take this member and never will; nothing more is done."""

    error_code: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAt:
    """Tell `Tick` at this time; the last one said is what holds."""

    at_ms: int


Action: TypeAlias = Seek | Ask | HangUp | Decide | Assigned | Leased | Unsettled | Lost | Left | Refused | WakeAt

_ANEW = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""Answers of a broker that is not, or no longer, the coordinator."""


class MemberMachine:
    """One member's state and rules."""

    def __init__(self, settings: MemberSettings) -> None:
        self.phase = Phase.OUT
        self.member_id = ""
        self.generation = NOBODY
        self.trouble = ""  # why the coordinator was last not found, not reached or not content
        self.trouble_since_ms = 0
        self._settings = settings
        self._metadata = b""
        self._said = b""  # with the last join
        self._again = False  # another round is wanted behind the one that is under way
        self._assigned = False  # since the last `Lost`
        self._leader = ""
        self._assignments: Mapping[str, bytes] = {}
        self._coordinator: int | None = None
        self._token = 0
        self._under_way: tuple[int, int] | None = None  # seek, join, sync or leave: its token and when it was sent
        self._beat: tuple[int, int] | None = None
        self._beat_at_ms = 0
        self._retry_at_ms = 0
        self._failures = 0
        self._lease_end_ms = 0
        self._lease_told_ms = 0
        self._quiet_ms = 0  # no round had begun yet
        self._joining_ms = 0  # the round under way had not ended yet
        self._was_in_round = False
        self._actions: list[Action] = []

    def step(self, event: Event, now_ms: int) -> list[Action]:
        """Take in `event` and return what has to happen now, in order."""
        self._actions = []
        settled = self.phase is Phase.STABLE
        again = self._again and settled and isinstance(event, Tick)
        match event:
            case Describe(metadata=metadata):
                self._metadata = metadata
                if self.phase is Phase.OUT:
                    self.phase, self._quiet_ms = Phase.JOINING, now_ms
            case Rejoin():
                self._on_rejoin()
            case Assign(generation=generation, assignments=assignments):
                if self.phase is Phase.DECIDING and generation == self.generation:
                    self.phase, self._assignments = Phase.SYNCING, assignments
            case Leave():
                self._on_leave()
            case Found(token=token, node_id=node_id):
                if self._settle(token) is not None:
                    self._coordinator, self._beat_at_ms = node_id, now_ms
            case Answered(token=token, answer=answer):
                self._on_answer(token, answer, now_ms)
            case Failed():
                self._on_failure(event, now_ms)
            case Tick():
                pass
        if again and self.phase is Phase.STABLE:
            self.phase, self._again = Phase.JOINING, False
        if self._assigned and now_ms >= self._lease_ends():
            self._lose("nothing was heard of the coordinator for a session")
            if self.phase is Phase.STABLE:
                self.phase = Phase.JOINING  # to be told anew, should it still be a member
        self._tell_lease()
        if settled and self.phase is Phase.JOINING and self._assigned:
            self._actions.append(Unsettled())
        self._go_on(now_ms)
        return self._actions

    def _lease_ends(self) -> int:
        if self.phase not in (Phase.DECIDING, Phase.SYNCING):
            return self._lease_end_ms
        return min(self._lease_end_ms, self._joining_ms + self._settings.rebalance_timeout_ms)

    def _tell_lease(self) -> None:
        if self._assigned and self._lease_ends() != self._lease_told_ms:
            self._lease_told_ms = self._lease_ends()
            self._actions.append(Leased(until_ms=self._lease_told_ms))

    # ---------------------------------------------------------------- the owner

    def _on_rejoin(self) -> None:
        if self.phase is Phase.STABLE:
            self.phase = Phase.JOINING
        elif self.phase in _MEMBER:
            # A join that is still due tells the newest words; one that was sent, the ones of then.
            self._again = self.phase is not Phase.JOINING or self._under_way is not None

    def _on_leave(self) -> None:
        if self.phase in (Phase.LEAVING, Phase.REFUSED):
            return
        self._assigned = False
        self._under_way = self._beat = None
        self._retry_at_ms = 0
        if self.member_id and self._coordinator is not None:
            self.phase = Phase.LEAVING
        else:
            self._be_out()

    def _be_out(self) -> None:
        self.phase, self.member_id, self.generation = Phase.OUT, "", NOBODY
        self._again = False
        self._actions.append(Left())

    def _lose(self, reason: str) -> None:
        if self._assigned:
            self._assigned, self._lease_told_ms = False, 0
            self._actions.append(Lost(generation=self.generation, reason=reason))

    # -------------------------------------------------------------- what is due

    def _go_on(self, now_ms: int) -> None:
        if self.phase in (Phase.OUT, Phase.REFUSED):
            return
        due_ms = self._retry_at_ms
        if self._under_way is None and now_ms >= due_ms:
            self._ask_next(now_ms)
        beating = self.phase in _MEMBER and self.generation != NOBODY and self._coordinator is not None
        if beating and self._beat is None and now_ms >= self._beat_at_ms:
            self._beat_at_ms = now_ms + self._settings.heartbeat_interval_ms
            request = HeartbeatRequest(
                group_id=self._settings.group, generation_id=self.generation, member_id=self.member_id
            )
            self._beat = self._ask(Lane.BEAT, ApiKey.HEARTBEAT, request, self._settings.request_timeout_ms, now_ms)
        times = [due_ms] if self._under_way is None and due_ms > now_ms else []
        times += [self._beat_at_ms] if beating and self._beat is None else []
        times += [self._lease_ends()] if self._assigned else []
        times += [now_ms] if self._again and self.phase is Phase.STABLE else []
        if times:
            self._actions.append(WakeAt(at_ms=min(times)))

    def _ask_next(self, now_ms: int) -> None:
        settings = self._settings
        if self._coordinator is None:
            self._token += 1
            self._under_way = (self._token, now_ms)
            self._actions.append(Seek(token=self._token))
        elif self.phase is Phase.JOINING:
            self._joining_ms, self._said = now_ms, self._metadata
            limit_ms = settings.rebalance_timeout_ms + ROUND_MARGIN_MS
            self._under_way = self._ask(Lane.ROUND, ApiKey.JOIN_GROUP, self._join_request(), limit_ms, now_ms)
        elif self.phase is Phase.SYNCING:
            request = self._sync_request()
            # Others may be slow to join the round's second half; whoever leads is not waited for longer than this.
            limit_ms = settings.rebalance_timeout_ms + ROUND_MARGIN_MS
            self._under_way = self._ask(Lane.ROUND, ApiKey.SYNC_GROUP, request, limit_ms, now_ms)
        elif self.phase is Phase.LEAVING:
            member = MemberIdentity(member_id=self.member_id, reason="the member was stopped")
            leaving = LeaveGroupRequest(group_id=settings.group, member_id=self.member_id, members=(member,))
            limit_ms = settings.request_timeout_ms
            self._under_way = self._ask(Lane.BEAT, ApiKey.LEAVE_GROUP, leaving, limit_ms, now_ms)

    def _ask(self, lane: Lane, key: ApiKey, request: Message, timeout_ms: int, now_ms: int) -> tuple[int, int]:
        assert self._coordinator is not None
        self._token += 1
        self._actions.append(
            Ask(
                token=self._token,
                node_id=self._coordinator,
                lane=lane,
                key=key,
                request=request,
                timeout_ms=timeout_ms,
            )
        )
        return self._token, now_ms

    def _join_request(self) -> JoinGroupRequest:
        settings = self._settings
        return JoinGroupRequest(
            group_id=settings.group,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            member_id=self.member_id,
            protocol_type=settings.protocol_type,
            protocols=(JoinGroupRequestProtocol(name=settings.protocol, metadata=self._metadata),),
        )

    def _sync_request(self) -> SyncGroupRequest:
        assignments = self._assignments.items() if self._leader == self.member_id else ()
        return SyncGroupRequest(
            group_id=self._settings.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=self._settings.protocol_type,
            protocol_name=self._settings.protocol,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in sorted(assignments)
            ),
        )

    # ------------------------------------------------------- what comes of it

    def _settle(self, token: int) -> int | None:
        """When the request was sent that is under way, if this is the one; it no longer is."""
        if self._under_way is None or self._under_way[0] != token:
            return None
        sent_ms = self._under_way[1]
        self._under_way = None
        return sent_ms

    def _on_answer(self, token: int, answer: Message, now_ms: int) -> None:
        if self._beat is not None and self._beat[0] == token:
            assert isinstance(answer, HeartbeatResponse)
            sent_ms, self._beat = self._beat[1], None
            self._on_beat(answer.error_code, sent_ms, now_ms)
            return
        sent = self._settle(token)
        if sent is None:
            return
        match answer:
            case JoinGroupResponse():
                self._on_joined(answer, sent, now_ms)
            case SyncGroupResponse():
                self._on_synced(answer, sent, now_ms)
            case LeaveGroupResponse():
                self._be_out()

    def _on_failure(self, failed: Failed, now_ms: int) -> None:
        if self._beat is not None and self._beat[0] == failed.token:
            self._beat = None
        elif self._settle(failed.token) is None:
            return
        self._note_trouble(failed.reason, now_ms)
        if failed.error_code:
            self._refuse(failed.error_code, failed.reason)
        elif self.phase is Phase.LEAVING:
            self._be_out()  # its session will end by itself
        else:
            self._look_anew(now_ms)

    def _note_trouble(self, reason: str, now_ms: int) -> None:
        if not self.trouble:
            self.trouble_since_ms = now_ms
        self.trouble = reason

    def _look_anew(self, now_ms: int) -> None:
        """Whoever was the coordinator is not, or cannot be reached; what it was asked is asked again."""
        if self._coordinator is not None:
            self._actions.append(HangUp(node_id=self._coordinator))
        self._coordinator = None
        self._under_way = self._beat = None
        self._back_off(now_ms)

    def _back_off(self, now_ms: int) -> None:
        settings = self._settings
        wait_ms = min(settings.retry_max_ms, settings.retry_first_ms << min(self._failures, 20))
        self._failures += 1
        self._retry_at_ms = now_ms + wait_ms

    def _renew(self, sent_ms: int) -> None:
        self._lease_end_ms = max(self._lease_end_ms, sent_ms + self._settings.session_timeout_ms)

    def _on_beat(self, code: int, sent_ms: int, now_ms: int) -> None:
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._renew(sent_ms)
            self.trouble = ""
        if code == ErrorCode.NONE:
            if self.phase is Phase.STABLE:
                self._quiet_ms, self._failures = max(self._quiet_ms, sent_ms), 0
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            if self.phase is Phase.JOINING:
                if self._under_way is not None:
                    self._joining_ms = max(self._joining_ms, sent_ms)
            elif self.phase is not Phase.SYNCING:  # else the answer to the sync says so as well
                self.phase = Phase.JOINING
        elif self.phase is Phase.STABLE or code not in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
            self._on_error(code, now_ms)
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._lose("the group has removed this member")  # a round is under way, and will say the same
        # A generation that is over while a round is under way: the answer that says so is on its way.

    def _on_joined(self, answer: JoinGroupResponse, sent_ms: int, now_ms: int) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED and not self.member_id:
            self.member_id = answer.member_id
            return
        if answer.error_code:
            self._on_error(answer.error_code, now_ms)
            return
        if answer.generation_id < self.generation:
            self._lose(f"the group has begun anew with generation {answer.generation_id}")
        self._renew(sent_ms)
        self._failures = 0
        self.member_id, self.generation, self._leader = answer.member_id, answer.generation_id, answer.leader
        self._beat_at_ms = now_ms + self._settings.heartbeat_interval_ms
        self._beat = None  # it was of the generation before
        self._assignments = {}
        is_first, self._was_in_round = not self._was_in_round, True
        if answer.leader != answer.member_id or answer.skip_assignment:
            self.phase = Phase.SYNCING
            return
        self.phase = Phase.DECIDING
        members = tuple(JoinedMember(member_id=row.member_id, metadata=row.metadata) for row in answer.members)
        self._actions.append(
            Decide(
                generation=self.generation,
                member_id=self.member_id,
                members=members,
                round_ms=max(0, now_ms - self._quiet_ms),
                is_first=is_first,
            )
        )

    def _on_synced(self, answer: SyncGroupResponse, sent_ms: int, now_ms: int) -> None:
        if answer.error_code:
            self._on_error(answer.error_code, now_ms)
            return
        self._renew(sent_ms)
        self._quiet_ms, self._failures = max(self._quiet_ms, sent_ms), 0
        self.phase, self.trouble = Phase.STABLE, ""
        if now_ms >= self._lease_end_ms:  # an answer so old assigns nothing
            self._lose("the assignment came too late")
            self.phase = Phase.JOINING
            return
        self._assigned = True
        self._tell_lease()
        self._actions.append(
            Assigned(
                generation=self.generation,
                member_id=self.member_id,
                leader=self._leader,
                assignment=answer.assignment,
                said=self._said,
            )
        )

    def _on_error(self, code: int, now_ms: int) -> None:
        """What an answer with an error means, whatever was asked."""
        if code != ErrorCode.REBALANCE_IN_PROGRESS:
            self._note_trouble(str(error_for_code(code)), now_ms)
        if code in _ANEW:
            self._look_anew(now_ms)
        elif code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._back_off(now_ms)
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.phase = Phase.JOINING
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._lose("the group has removed this member")
            self.phase, self.member_id, self.generation = Phase.JOINING, "", NOBODY
            self._back_off(now_ms)
        elif code == ErrorCode.ILLEGAL_GENERATION:
            self._lose("the group has gone on without this member")
            self.phase, self.generation = Phase.JOINING, NOBODY
            self._back_off(now_ms)
        elif error_for_code(code).retriable:
            self._back_off(now_ms)
        else:
            self._refuse(code, str(error_for_code(code)))

    def _refuse(self, code: int, reason: str) -> None:
        self._lose(reason)
        self.phase = Phase.REFUSED
        self._under_way = self._beat = None
        self._actions.append(Refused(error_code=code, reason=reason))
