"""How a group goes from one generation to the next."""

import pytest

from tests.broker.groups.group_world import GroupWorld
from tidemill.broker.groups.events import Leaver, Protocol
from tidemill.broker.groups.records import GroupRecord
from tidemill.broker.groups.rounds import NEW_MEMBER_JOIN_TIMEOUT_MS
from tidemill.broker.groups.table import GroupLimits
from tidemill.core.error_code import ErrorCode

RANGE = Protocol("range", b"r")
STICKY = Protocol("sticky", b"s")


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


# --- the join phase


def test_the_protocol_that_most_put_first_is_chosen_among_those_all_speak(world: GroupWorld) -> None:
    other = Protocol("other", b"o")
    world.stable_group("a", protocols=(RANGE, STICKY))
    b = world.join(protocols=(STICKY, RANGE, other))
    c = world.join(protocols=(STICKY, RANGE))
    leader = world.machine.describe("g").members[0].member_id  # type: ignore[union-attr]
    a = world.join(leader, protocols=(RANGE, STICKY))
    assert {world.joined(request).protocol_name for request in (a, b, c)} == {"sticky"}


def test_the_first_round_waits_for_more_members_and_longer_while_they_come() -> None:
    world = GroupWorld(GroupLimits(initial_rebalance_delay_ms=3_000))
    first = world.join(name="a", rebalance_ms=8_000)
    world.advance(2_000)
    second = world.join(name="b", rebalance_ms=8_000)
    world.advance(1_000)
    assert world.waits(first), "somebody came during the wait, so it goes on"
    world.advance(3_000)
    assert world.joined(first).generation_id == world.joined(second).generation_id == 1
    assert len(world.joined(first).members) == 2


def test_the_wait_for_more_members_ends_after_the_rebalance_timeout() -> None:
    world = GroupWorld(GroupLimits(initial_rebalance_delay_ms=3_000))
    waiting = [world.join(name="a", rebalance_ms=7_000)]
    for _ in range(3):
        world.advance(2_300)
        waiting.append(world.join(name="b", rebalance_ms=7_000))
    world.advance(100)
    assert not any(world.waits(request) for request in waiting)


def test_whoever_does_not_join_in_time_is_out(world: GroupWorld) -> None:
    a, b = world.stable_group("a", "b", session_ms=10_000, rebalance_ms=5_000)
    again = world.join(a, rebalance_ms=5_000)
    assert world.heartbeat(b, world.generation()) is ErrorCode.REBALANCE_IN_PROGRESS
    world.advance(4_999)
    assert world.waits(again)
    world.advance(1)
    assert [member.member_id for member in world.joined(again).members] == [a]
    assert world.joined(world.join(b)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_waits_for_its_first_answer_is_not_silent_but_not_forever(world: GroupWorld) -> None:
    (a,) = world.stable_group("a", rebalance_ms=NEW_MEMBER_JOIN_TIMEOUT_MS * 2)
    waiting = world.join(name="b", session_ms=6_000, rebalance_ms=NEW_MEMBER_JOIN_TIMEOUT_MS * 2)
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5_000 - 1):
        world.advance(5_000)
        world.heartbeat(a, world.generation())
        assert world.waits(waiting)
    world.advance(5_000)
    assert world.joined(waiting).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_deadlines_that_come_up_together_do_not_end_a_round_twice(world: GroupWorld) -> None:
    a, b = world.stable_group("a", "b", session_ms=10_000, rebalance_ms=12_000)
    again = world.join(a, session_ms=10_000, rebalance_ms=12_000)
    world.stall(15_000)  # b was silent too long, and the join phase is over
    joined = world.joined(again)
    assert (joined.error, [member.member_id for member in joined.members]) == (ErrorCode.NONE, [a])
    assert world.state() == "CompletingRebalance"
    assert world.joined(world.join(b)).error is ErrorCode.UNKNOWN_MEMBER_ID


# --- the sync phase


def test_members_wait_for_the_leader_and_get_their_own_part(world: GroupWorld) -> None:
    members = world.stable_group("a", "b")
    request_id = world.sync(members[1], world.generation())
    assert world.synced(request_id).assignment == members[1].encode()


def test_assignments_for_strangers_are_dropped_and_missing_ones_are_empty(world: GroupWorld) -> None:
    joined = world.joined(world.join())
    request_id = world.sync(joined.member_id, 1, {"stranger": b"x"})
    assert world.synced(request_id).assignment == b""
    (record,) = [record for record in world.records() if isinstance(record, GroupRecord)]
    assert [member.member_id for member in record.members] == [joined.member_id]


@pytest.mark.parametrize(
    ("generation", "terms", "error"),
    [
        (2, {}, ErrorCode.ILLEGAL_GENERATION),
        (0, {}, ErrorCode.ILLEGAL_GENERATION),
        (1, {"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (1, {"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (1, {"instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        (1, {"protocol_type": "consumer", "protocol_name": "range"}, ErrorCode.NONE),
    ],
)
def test_a_sync_has_to_be_about_this_round(
    world: GroupWorld, generation: int, terms: dict[str, str], error: ErrorCode
) -> None:
    member = world.joined(world.join()).member_id
    assert world.synced(world.sync(member, generation, {}, **terms)).error is error  # type: ignore[arg-type]


def test_a_sync_during_the_join_phase_is_told_to_join(world: GroupWorld) -> None:
    a, b = world.stable_group("a", "b")
    generation = world.generation()
    world.join(a)
    assert world.synced(world.sync(b, generation)).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.synced(world.sync("stranger", generation)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.synced(world.sync(b, generation, group="other")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_waiting_syncs_end_when_a_new_round_starts(world: GroupWorld) -> None:
    a, b = world.stable_group("a", "b")
    first = world.join(a)
    second = world.join(b)
    generation = world.joined(second).generation_id
    waiting = world.sync(b, generation)
    newcomer = world.join(name="c")
    assert world.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    world.join(a)
    assert world.waits(newcomer)
    world.join(b)
    assert world.joined(newcomer).generation_id == generation + 1
    assert world.joined(first).generation_id == generation


def test_members_that_join_but_never_sync_are_out_after_the_rebalance_timeout(world: GroupWorld) -> None:
    a, b = world.stable_group("a", "b", session_ms=600_000, rebalance_ms=5_000)
    world.join(a, session_ms=600_000, rebalance_ms=5_000)
    world.join(b, session_ms=600_000, rebalance_ms=5_000)
    generation = world.generation()
    world.sync(a, generation, {a: b"1", b: b"2"})
    assert world.state() == "Stable"
    world.advance(5_000)
    assert world.heartbeat(b, generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat(a, generation) is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_assignment_that_cannot_be_written_is_given_to_nobody(world: GroupWorld) -> None:
    member = world.joined(world.join()).member_id
    world.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    result = world.synced(world.sync(member, 1, {member: b"x"}))
    assert (result.error, result.assignment) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, b"")
    assert world.state() == "PreparingRebalance"
    world.append_error = None
    joined = world.joined(world.join(member))
    assert world.synced(world.sync(member, joined.generation_id, {member: b"x"})).assignment == b"x"


# --- staying and leaving


def test_a_silent_member_is_out_and_a_heartbeat_keeps_it_in(world: GroupWorld) -> None:
    a, b = world.stable_group("a", "b", session_ms=10_000)
    generation = world.generation()
    for _ in range(3):
        world.advance(9_000)
        assert world.heartbeat(a, generation) is (ErrorCode.NONE if _ == 0 else ErrorCode.REBALANCE_IN_PROGRESS)
    assert world.heartbeat(b, generation) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member", "generation", "group", "error"),
    [
        ("a", 0, "g", ErrorCode.ILLEGAL_GENERATION),
        ("stranger", 1, "g", ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 1, "other", ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 1, "", ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_a_heartbeat_has_to_come_from_this_generation(
    world: GroupWorld, member: str, generation: int, group: str, error: ErrorCode
) -> None:
    (a,) = world.stable_group("a")
    assert world.heartbeat(a if member == "a" else member, generation, group=group) is error


def test_a_heartbeat_while_the_leader_assigns_is_fine(world: GroupWorld) -> None:
    member = world.joined(world.join()).member_id
    assert world.heartbeat(member, 1) is ErrorCode.NONE


def test_the_last_one_to_leave_leaves_an_empty_generation(world: GroupWorld) -> None:
    a, b = world.stable_group("a", "b")
    generation = world.generation()
    assert world.leave(Leaver(a, None), Leaver(b, None)).error is ErrorCode.NONE
    assert world.state() == "Empty"
    last = [record for record in world.records() if isinstance(record, GroupRecord)][-1]
    assert (last.generation_id, last.members) == (generation + 1, ())


def test_a_group_whose_first_members_leave_unsynced_keeps_its_generation(world: GroupWorld) -> None:
    joined = world.joined(world.join())
    assert joined.generation_id == 1
    world.leave(Leaver(joined.member_id, None))
    assert world.state() == "Empty"
    (record,) = world.records()
    assert isinstance(record, GroupRecord)
    assert (record.generation_id, world.generation()) == (2, 2)
    assert world.joined(world.join()).generation_id == 3
    world.restart()
    assert world.joined(world.join()).generation_id == 3, "of the unfinished round nothing is known"


def test_an_empty_generation_that_cannot_be_written_is_forgotten_with_its_group(world: GroupWorld) -> None:
    member = world.joined(world.join()).member_id
    world.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.leave(Leaver(member, None))
    assert world.state() == "Empty"
    assert world.generation() == 2
    world.expire()
    assert world.state() == "none"


def test_leaving_ends_the_wait_of_the_others(world: GroupWorld) -> None:
    a, b = world.stable_group("a", "b")
    waiting = world.join(a)
    world.leave(Leaver(b, None))
    assert [member.member_id for member in world.joined(waiting).members] == [a]


def test_each_leaver_gets_its_own_answer(world: GroupWorld) -> None:
    a, b = world.stable_group("a", "b")
    result = world.leave(Leaver("stranger", None), Leaver(a, None), Leaver("", "nobody"))
    assert [error for _, error in result.leavers] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert world.leave(Leaver(b, None), group="other").leavers[0][1] is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.leave(Leaver(b, None), group="").error is ErrorCode.INVALID_GROUP_ID


def test_an_id_that_was_only_handed_out_can_be_given_back(world: GroupWorld) -> None:
    member_id = world.joined(world.join(required=True)).member_id
    assert world.leave(Leaver(member_id, None)).leavers[0][1] is ErrorCode.NONE
    assert world.state() == "none"


# --- static members (KIP-345)


def test_a_static_member_may_be_away_until_its_session_ends(world: GroupWorld) -> None:
    one = world.joined(world.join(instance="one", session_ms=30_000, rebalance_ms=5_000)).member_id
    world.sync(one, 1, {one: b"all"})
    other = world.join(name="b", rebalance_ms=5_000)
    world.advance(5_000)
    joined = world.joined(other)
    assert {member.member_id for member in joined.members} == {one, joined.member_id}
    assert joined.leader == joined.member_id, "somebody who is there has to lead"
    world.sync(joined.member_id, joined.generation_id, {})
    for _ in range(3):
        world.advance(9_000)
        world.heartbeat(joined.member_id, joined.generation_id)
    assert world.heartbeat(one, joined.generation_id) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_round_of_absent_static_members_waits_for_one_to_come_back(world: GroupWorld) -> None:
    one = world.joined(world.join(instance="one", session_ms=60_000, rebalance_ms=5_000)).member_id
    world.sync(one, 1, {one: b"all"})
    dynamic = world.join(name="b", rebalance_ms=5_000)
    world.leave(Leaver(world.machine.describe("g").members[1].member_id, None))  # type: ignore[union-attr]
    assert world.joined(dynamic).error is ErrorCode.UNKNOWN_MEMBER_ID
    world.advance(20_000)
    assert world.state() == "PreparingRebalance"
    assert world.joined(world.join(one, instance="one")).error is ErrorCode.NONE


def test_an_administrator_removes_a_static_member_by_its_instance(world: GroupWorld) -> None:
    one = world.joined(world.join(instance="one")).member_id
    world.sync(one, 1, {})
    assert world.leave(Leaver("other", "one")).leavers[0][1] is ErrorCode.FENCED_INSTANCE_ID
    assert world.leave(Leaver("", "one")).leavers[0][1] is ErrorCode.NONE
    assert world.state() == "Empty"
