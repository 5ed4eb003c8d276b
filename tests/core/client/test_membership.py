"""A group member: joining, leading, beating, losing its lease, and any order of answers"""

from collections.abc import Sequence
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.core.client.membership import (
    Action,
    Answered,
    Ask,
    Assign,
    Assigned,
    Decide,
    Describe,
    Event,
    Failed,
    Found,
    HangUp,
    JoinedMember,
    Leased,
    Leave,
    Left,
    Lost,
    MemberMachine,
    MemberSettings,
    Phase,
    Refused,
    Rejoin,
    Seek,
    Tick,
    Unsettled,
    WakeAt,
)
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.heartbeat import HeartbeatResponse
from tidemill.core.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from tidemill.core.wire.messages.leave_group import LeaveGroupResponse
from tidemill.core.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

SETTINGS = MemberSettings(group="g", protocol_type="connect", protocol="tidemill")
SESSION_MS, BEAT_MS = SETTINGS.session_timeout_ms, SETTINGS.heartbeat_interval_ms

ActionT = TypeVar("ActionT", bound=Action)


class Driven:
    """A member, the time, and the last requests that it made."""

    def __init__(self) -> None:
        self.machine = MemberMachine(SETTINGS)
        self.now_ms = 1_000
        self.said: list[Action] = []
        self.asked: dict[ApiKey, Ask] = {}
        self.sought: Seek | None = None

    def tell(self, event: Event, later_ms: int = 0) -> list[Action]:
        self.now_ms += later_ms
        actions = self.machine.step(event, self.now_ms)
        self.said += actions
        for action in actions:
            if isinstance(action, Ask):
                self.asked[action.key] = action
            elif isinstance(action, Seek):
                self.sought = action
        return actions

    def found(self, node_id: int = 1) -> list[Action]:
        assert self.sought is not None
        return self.tell(Found(token=self.sought.token, node_id=node_id))

    def answer(self, key: ApiKey, answer: Message, later_ms: int = 0) -> list[Action]:
        return self.tell(Answered(token=self.asked.pop(key).token, answer=answer), later_ms)

    def joined(self, generation: int = 1, *, leader: str = "other", later_ms: int = 0) -> list[Action]:
        members = (JoinGroupResponseMember(member_id="me", metadata=b"m"),) if leader == "me" else ()
        answer = JoinGroupResponse(generation_id=generation, member_id="me", leader=leader, members=members)
        return self.answer(ApiKey.JOIN_GROUP, answer, later_ms)

    def refused(self, key: ApiKey, code: ErrorCode, later_ms: int = 0) -> list[Action]:
        made: dict[ApiKey, Message] = {
            ApiKey.JOIN_GROUP: JoinGroupResponse(error_code=code),
            ApiKey.SYNC_GROUP: SyncGroupResponse(error_code=code),
            ApiKey.HEARTBEAT: HeartbeatResponse(error_code=code),
        }
        return self.answer(key, made[key], later_ms)

    def stable(self, generation: int = 1) -> None:
        """Join as a member that does not lead."""
        self.tell(Describe(metadata=b"m"))
        self.found()
        if not self.machine.member_id:
            answer = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me")
            self.answer(ApiKey.JOIN_GROUP, answer)
        self.joined(generation)
        self.synced()

    def synced(self) -> list[Action]:
        return self.answer(ApiKey.SYNC_GROUP, SyncGroupResponse(assignment=b"work"))

    def beat(self, code: ErrorCode = ErrorCode.NONE) -> list[Action]:
        """Wait for the next heartbeat and answer it."""
        if ApiKey.HEARTBEAT not in self.asked:
            self.tell(Tick(), BEAT_MS)
        return self.refused(ApiKey.HEARTBEAT, code)


def only(actions: Sequence[Action], kind: type[ActionT]) -> ActionT:
    (found,) = [action for action in actions if isinstance(action, kind)]
    return found


def none(actions: Sequence[Action], *kinds: type[Action]) -> bool:
    return not any(isinstance(action, kinds) for action in actions)


@pytest.fixture
def member() -> Driven:
    return Driven()


def test_it_joins_under_the_id_that_it_is_given(member: Driven) -> None:
    only(member.tell(Describe(metadata=b"m")), Seek)
    first = only(member.found(), Ask)
    assert (first.key, first.node_id) == (ApiKey.JOIN_GROUP, 1)
    answer = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me")
    request = only(member.answer(ApiKey.JOIN_GROUP, answer), Ask).request
    assert isinstance(request, JoinGroupRequest)
    assert (request.member_id, request.protocols[0].metadata) == ("me", b"m")
    sync = only(member.joined(3), Ask).request
    assert isinstance(sync, SyncGroupRequest)
    assert (sync.generation_id, sync.assignments) == (3, ())
    assert only(member.synced(), Assigned) == Assigned(
        generation=3, member_id="me", leader="other", assignment=b"work", said=b"m"
    )


def test_an_assignment_comes_with_what_was_said_in_the_join_that_it_is_for(member: Driven) -> None:
    member.tell(Describe(metadata=b"before"))
    member.found()
    member.joined(3)
    member.tell(Describe(metadata=b"after"))
    assert only(member.synced(), Assigned).said == b"before"


def test_the_lease_is_told_before_what_it_is_for_and_whenever_it_moves(member: Driven) -> None:
    member.tell(Describe(metadata=b"m"))
    member.found()
    member.answer(ApiKey.JOIN_GROUP, JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me"))
    member.joined()
    sent_ms = member.now_ms
    kinds = [type(action) for action in member.synced()]
    assert kinds.index(Leased) < kinds.index(Assigned)
    assert only(member.said, Leased).until_ms == sent_ms + SESSION_MS
    actions = member.beat()
    assert only(actions, Leased).until_ms == member.now_ms + SESSION_MS
    assert none(member.tell(Tick()), Leased), "nothing has moved"


def test_after_a_loss_the_lease_is_told_anew(member: Driven) -> None:
    member.stable()
    only(
        member.refused(ApiKey.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID)
        if ApiKey.HEARTBEAT in member.asked
        else (member.beat(ErrorCode.UNKNOWN_MEMBER_ID)),
        Lost,
    )
    member.said.clear()
    member.tell(Tick(), SETTINGS.retry_max_ms)
    member.answer(ApiKey.JOIN_GROUP, JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me"))
    member.joined(2)
    member.synced()
    assert only(member.said, Leased).until_ms > member.now_ms


def test_a_round_that_begins_is_told(member: Driven) -> None:
    member.stable()
    only(member.beat(ErrorCode.REBALANCE_IN_PROGRESS), Unsettled)


def test_what_keeps_it_from_its_coordinator_is_remembered_until_it_is_over(member: Driven) -> None:
    member.tell(Describe(metadata=b"m"))
    assert member.sought is not None
    member.tell(Failed(token=member.sought.token, reason="nobody answers"))
    assert (member.machine.trouble, member.machine.trouble_since_ms) == ("nobody answers", 1_000)
    member.tell(Tick(), 60)
    member.stable()
    assert not member.machine.trouble


def test_who_leads_decides_for_all(member: Driven) -> None:
    member.tell(Describe(metadata=b"m"))
    member.found()
    decide = only(member.joined(1, leader="me", later_ms=70), Decide)
    assert decide == Decide(
        generation=1, member_id="me", members=(JoinedMember(member_id="me", metadata=b"m"),), round_ms=70, is_first=True
    )
    assert none(member.tell(Assign(generation=0, assignments={})), Ask)  # of a round before
    request = only(member.tell(Assign(generation=1, assignments={"me": b"all"})), Ask).request
    assert isinstance(request, SyncGroupRequest)
    assert [(row.member_id, row.assignment) for row in request.assignments] == [("me", b"all")]
    assert none(member.tell(Assign(generation=1, assignments={})), Ask)


def test_who_leads_after_others_knows_that_it_is_not_the_first_round(member: Driven) -> None:
    member.tell(Describe(metadata=b"m"))
    member.found()
    member.joined(1, leader="other")
    member.refused(ApiKey.SYNC_GROUP, ErrorCode.REBALANCE_IN_PROGRESS)
    assert not only(member.joined(2, leader="me"), Decide).is_first


def test_who_leads_beats_while_it_decides(member: Driven) -> None:
    member.tell(Describe(metadata=b"m"))
    member.found()
    member.joined(1, leader="me")
    assert only(member.tell(Tick(), BEAT_MS), Ask).key is ApiKey.HEARTBEAT
    member.refused(ApiKey.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS)
    assert member.asked[ApiKey.JOIN_GROUP].request
    assert none(member.tell(Assign(generation=1, assignments={})), Ask)


def test_it_beats_and_keeps_its_work_through_a_round(member: Driven) -> None:
    member.stable()
    member.said.clear()
    for _ in range(30):
        member.beat()
    assert only(member.beat(ErrorCode.REBALANCE_IN_PROGRESS), Ask).key is ApiKey.JOIN_GROUP
    for _ in range(30):  # another member takes its time
        member.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    member.joined(2)
    member.synced()
    assert none(member.said, Lost)


def test_its_lease_ends_a_session_after_the_last_request_that_was_answered_was_sent(member: Driven) -> None:
    member.stable()
    start_ms = member.now_ms
    member.tell(Tick(), BEAT_MS)
    member.refused(ApiKey.HEARTBEAT, ErrorCode.NONE, later_ms=500)
    end_ms = start_ms + BEAT_MS + SESSION_MS
    assert none(member.tell(Tick(), end_ms - 1 - member.now_ms), Lost)
    assert only(member.said[-1:], WakeAt).at_ms == end_ms
    assert only(member.tell(Tick(), 1), Lost).generation == 1
    assert none(member.tell(Tick(), 1), Lost)
    assert member.machine.phase is Phase.JOINING


def test_a_round_that_is_not_answered_does_not_keep_the_lease(member: Driven) -> None:
    member.stable()
    member.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    member.tell(Tick(), BEAT_MS)
    only(member.tell(Tick(), SESSION_MS), Lost)


def test_an_assignment_that_comes_late_is_none(member: Driven) -> None:
    member.tell(Describe(metadata=b"m"))
    member.found()
    member.joined()
    member.now_ms += SESSION_MS
    assert none(member.synced(), Assigned)
    assert member.asked[ApiKey.JOIN_GROUP]


def test_between_join_and_assignment_the_lease_is_no_longer_than_a_round(member: Driven) -> None:
    member.stable()
    member.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    member.joined(2)
    member.said.clear()
    for _ in range(SETTINGS.rebalance_timeout_ms // BEAT_MS + 1):
        member.beat()
    only(member.said, Lost)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_who_was_removed_stops_and_joins_anew(member: Driven, code: ErrorCode) -> None:
    member.stable(4)
    assert only(member.beat(code), Lost).generation == 4
    request = only(member.tell(Tick(), SETTINGS.retry_first_ms), Ask).request
    assert isinstance(request, JoinGroupRequest)
    assert request.member_id == ("" if code is ErrorCode.UNKNOWN_MEMBER_ID else "me")


def test_a_heartbeat_of_the_generation_before_says_nothing_while_it_joins(member: Driven) -> None:
    member.stable()
    member.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert none(member.beat(ErrorCode.ILLEGAL_GENERATION), Lost, Refused)
    assert only(member.beat(ErrorCode.UNKNOWN_MEMBER_ID), Lost).generation == 1
    assert member.machine.phase is Phase.JOINING


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_the_coordinator_moves(member: Driven, code: ErrorCode) -> None:
    member.stable()
    assert only(member.beat(code), HangUp).node_id == 1
    only(member.tell(Tick(), SETTINGS.retry_first_ms), Seek)
    beat = only(member.found(2), Ask)
    assert (beat.key, beat.node_id) == (ApiKey.HEARTBEAT, 2)
    member.beat()
    assert none(member.said, Lost)


def test_a_coordinator_that_cannot_be_reached_is_looked_for_again(member: Driven) -> None:
    member.stable()
    member.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    lost = member.asked.pop(ApiKey.JOIN_GROUP)
    member.tell(Failed(token=lost.token, reason="gone"))
    only(member.tell(Tick(), SETTINGS.retry_first_ms), Seek)
    member.tell(Failed(token=member.sought.token, reason="nobody"))  # type: ignore[union-attr]
    assert none(member.tell(Tick(), SETTINGS.retry_first_ms), Seek)  # longer than the first time
    only(member.tell(Tick(), SETTINGS.retry_first_ms), Seek)
    member.found(2)
    assert member.asked[ApiKey.JOIN_GROUP].node_id == 2
    assert none(member.tell(Answered(token=lost.token, answer=JoinGroupResponse(generation_id=9))), Ask)


def test_a_coordinator_that_loads_is_asked_again(member: Driven) -> None:
    member.tell(Describe(metadata=b"m"))
    member.found()
    assert none(member.refused(ApiKey.JOIN_GROUP, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), Seek, Ask)
    assert only(member.tell(Tick(), SETTINGS.retry_first_ms), Ask).key is ApiKey.JOIN_GROUP


def test_another_round_begins_before_this_one_is_through(member: Driven) -> None:
    member.tell(Describe(metadata=b"m"))
    member.found()
    member.joined()
    assert only(member.refused(ApiKey.SYNC_GROUP, ErrorCode.REBALANCE_IN_PROGRESS), Ask).key is ApiKey.JOIN_GROUP


def test_who_is_not_taken_says_so_and_is_silent(member: Driven) -> None:
    member.stable()
    member.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    actions = member.refused(ApiKey.JOIN_GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    only(actions, Lost)
    assert only(actions, Refused).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert member.tell(Tick(), 100_000) == []
    assert member.tell(Leave()) == []


def test_who_may_not_ask_for_the_coordinator_is_refused(member: Driven) -> None:
    seek = only(member.tell(Describe(metadata=b"m")), Seek)
    only(member.tell(Failed(token=seek.token, reason="no right", error_code=30)), Refused)


def test_the_owner_asks_for_another_round(member: Driven) -> None:
    member.stable()
    member.tell(Describe(metadata=b"new"))
    request = only(member.tell(Rejoin()), Ask).request
    assert isinstance(request, JoinGroupRequest)
    assert request.protocols[0].metadata == b"new"
    member.tell(Rejoin())  # the words of the one under way are old already
    member.joined(2)
    actions = member.synced()
    only(actions, Assigned)
    assert none(actions, Ask)  # which would go without what was just assigned
    assert only(actions, WakeAt).at_ms == member.now_ms
    assert none(member.tell(Describe(metadata=b"of before")), Ask)  # the owner has heard of its lease only
    assert none(member.tell(Describe(metadata=b"newest")), Ask)
    request = only(member.tell(Tick()), Ask).request
    assert isinstance(request, JoinGroupRequest)
    assert request.protocols[0].metadata == b"newest"


def test_it_leaves(member: Driven) -> None:
    member.stable()
    assert only(member.tell(Leave()), Ask).key is ApiKey.LEAVE_GROUP
    only(member.answer(ApiKey.LEAVE_GROUP, LeaveGroupResponse()), Left)
    assert member.tell(Tick(), 100_000) == []
    assert only(member.tell(Describe(metadata=b"m")), Ask).key is ApiKey.JOIN_GROUP  # and may come back


def test_it_leaves_without_being_heard(member: Driven) -> None:
    member.stable()
    leave = only(member.tell(Leave()), Ask)
    only(member.tell(Failed(token=leave.token, reason="gone")), Left)
    only(Driven().tell(Leave()), Left)


CODES = st.sampled_from(
    [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.MEMBER_ID_REQUIRED,
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_the_answers_are(data: st.DataObject) -> None:
    """One request per lane at most, no work without a lease, and always something that goes on."""
    member = Driven()
    waiting: dict[int, tuple[Ask | Seek, int]] = {}
    assigned, lease_ms, wake_ms = False, 0, None
    event: Event = Describe(metadata=b"m")
    for generation in range(1, 40):
        actions = member.tell(event, data.draw(st.sampled_from([0, 0, 10, BEAT_MS, 3_000])))
        for action in actions:
            if isinstance(action, Ask | Seek):
                waiting[action.token] = (action, member.now_ms)
            elif isinstance(action, HangUp):
                waiting = {token: row for token, row in waiting.items() if isinstance(row[0], Seek)}
            elif isinstance(action, Assigned):
                assigned = True
            elif isinstance(action, Lost):
                assert assigned
                assigned = False
            elif isinstance(action, WakeAt):
                wake_ms = action.at_ms
            elif isinstance(action, Refused):
                assert not assigned
                return
        assert not assigned or member.now_ms < lease_ms
        lanes = [row.key is ApiKey.HEARTBEAT if isinstance(row, Ask) else False for row, _ in waiting.values()]
        assert lanes.count(False) <= 1
        assert waiting or wake_ms is not None
        if not waiting or data.draw(st.booleans()):
            event = Tick()
            continue
        token = data.draw(st.sampled_from(sorted(waiting)))
        asked, sent_ms = waiting.pop(token)
        if isinstance(asked, Seek):
            found = data.draw(st.booleans())
            event = Found(token=token, node_id=1) if found else Failed(token=token, reason="no")
            continue
        code = data.draw(CODES)
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            lease_ms = max(lease_ms, sent_ms + SESSION_MS)  # not less than the machine may count on
        made: dict[ApiKey, Message] = {
            ApiKey.JOIN_GROUP: JoinGroupResponse(
                error_code=code, generation_id=generation, member_id="me", leader="other"
            ),
            ApiKey.SYNC_GROUP: SyncGroupResponse(error_code=code),
            ApiKey.HEARTBEAT: HeartbeatResponse(error_code=code),
        }
        event = Answered(token=token, answer=made[asked.key])
