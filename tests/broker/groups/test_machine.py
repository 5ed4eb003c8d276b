"""The group coordinator, rule by rule."""

import pytest

from broker.groups.events import Leaver, Protocol
from broker.groups.machine import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupLimits
from broker.groups.records import GroupRecord, GroupTombstone, OffsetRecord, OffsetTombstone
from core.error_code import ErrorCode
from tests.broker.groups.group_world import LIMITS, GroupWorld

RANGE, STICKY = Protocol("range", b"r"), Protocol("sticky", b"s")


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


# --- joining


def test_a_lone_member_leads_and_gets_what_it_assigns(world: GroupWorld) -> None:
    joined = world.joined(world.join(protocols=(RANGE, STICKY)))
    assert (joined.error, joined.generation_id, joined.protocol_name) == (ErrorCode.NONE, 1, "range")
    assert joined.leader == joined.member_id
    assert [(member.member_id, member.metadata) for member in joined.members] == [(joined.member_id, b"r")]
    request_id = world.sync(joined.member_id, 1, {joined.member_id: b"all"})
    synced = world.synced(request_id)
    assert (synced.error, synced.assignment, synced.protocol_type) == (ErrorCode.NONE, b"all", "consumer")
    assert world.after[request_id] is not None, "an assignment is told when it is on the disk"
    assert world.state() == "Stable"


def test_members_join_together_and_only_the_leader_sees_everybody(world: GroupWorld) -> None:
    members = world.stable_group("a", "b", "c")
    assert len(set(members)) == 3
    again = world.joined(world.join(members[1]))
    assert again.members == ()
    assert again.leader == members[0]


def test_an_id_is_handed_out_before_it_counts(world: GroupWorld) -> None:
    first = world.joined(world.join(required=True))
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    assert world.machine.describe("g") is not None
    assert world.joined(world.join(first.member_id, required=True)).error is ErrorCode.NONE


def test_an_id_that_is_not_used_is_forgotten_with_its_group(world: GroupWorld) -> None:
    member_id = world.joined(world.join(required=True, session_ms=10_000)).member_id
    world.advance(10_000)
    assert world.state() == "none"
    assert world.joined(world.join(member_id)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_is_not_used_holds_up_the_others_only_until_it_is_forgotten(world: GroupWorld) -> None:
    (member,) = world.stable_group("a")
    world.join(required=True, session_ms=10_000)
    waiting = world.join(member)  # the leader asks for another round
    assert world.waits(waiting)
    world.advance(10_000)
    assert world.joined(waiting).generation_id == 2


@pytest.mark.parametrize(
    ("terms", "error"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group": "g" * 40_000}, ErrorCode.INVALID_GROUP_ID),
        ({"instance": "i" * 40_000}, ErrorCode.INVALID_REQUEST),
        ({"session_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "stranger", "instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_refused_join_leaves_nothing_behind(world: GroupWorld, terms: dict[str, str], error: ErrorCode) -> None:
    assert world.joined(world.join(**terms)).error is error  # type: ignore[arg-type]
    assert world.machine.list_groups() == []


def test_a_member_that_shares_no_protocol_is_refused(world: GroupWorld) -> None:
    world.stable_group("a", protocols=(RANGE,))
    assert world.joined(world.join(protocols=(STICKY,))).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.joined(world.join(protocol_type="connect")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_that_most_put_first_is_chosen_among_those_all_speak(world: GroupWorld) -> None:
    other = Protocol("other", b"o")
    world.stable_group("a", protocols=(RANGE, STICKY))
    b = world.join(protocols=(STICKY, RANGE, other))
    c = world.join(protocols=(STICKY, RANGE))
    leader = world.machine.describe("g").members[0].member_id  # type: ignore[union-attr]
    a = world.join(leader, protocols=(RANGE, STICKY))
    assert {world.joined(request).protocol_name for request in (a, b, c)} == {"sticky"}


def test_a_full_group_takes_nobody_but_those_who_are_in() -> None:
    world = GroupWorld(GroupLimits(initial_rebalance_delay_ms=0, max_size=2))
    members = world.stable_group("a", "b")
    assert world.joined(world.join()).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.joined(world.join(required=True)).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.joined(world.join(members[1])).error is ErrorCode.NONE


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


def test_a_join_repeated_on_another_connection_replaces_the_first(world: GroupWorld) -> None:
    a, b = world.stable_group("a", "b")
    first = world.join(b, protocols=(Protocol("range", b"new"),))
    second = world.join(b, protocols=(Protocol("range", b"new"),))
    assert world.joined(first).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.waits(second)
    world.join(a)
    assert world.joined(second).error is ErrorCode.NONE


def test_a_member_that_lost_its_answer_gets_it_again(world: GroupWorld) -> None:
    member = world.joined(world.join()).member_id
    again = world.joined(world.join(member))
    assert (again.error, again.generation_id, len(again.members)) == (ErrorCode.NONE, 1, 1)


def test_a_changed_subscription_starts_a_round(world: GroupWorld) -> None:
    a, b = world.stable_group("a", "b")
    assert world.waits(world.join(b, protocols=(Protocol("range", b"more topics"),)))
    assert world.state() == "PreparingRebalance"


def test_a_member_that_waits_for_its_first_answer_is_not_silent_but_not_forever(world: GroupWorld) -> None:
    (a,) = world.stable_group("a", rebalance_ms=NEW_MEMBER_JOIN_TIMEOUT_MS * 2)
    waiting = world.join(name="b", session_ms=6_000, rebalance_ms=NEW_MEMBER_JOIN_TIMEOUT_MS * 2)
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5_000 - 1):
        world.advance(5_000)
        world.heartbeat(a, world.generation())
        assert world.waits(waiting)
    world.advance(5_000)
    assert world.joined(waiting).error is ErrorCode.UNKNOWN_MEMBER_ID


# --- syncing


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


def test_a_static_member_that_restarts_keeps_its_place_and_fences_its_old_life(world: GroupWorld) -> None:
    a, b = world.stable_group("a", "b")
    static = world.join(name="s", instance="one")
    world.join(a)
    world.join(b)
    old_id = world.joined(static).member_id
    generation = world.generation()
    assignments = {member: member.encode() for member in (a, b, old_id)}
    world.sync(a, generation, assignments)
    returned = world.joined(world.join(name="s", instance="one"))
    assert returned.error is ErrorCode.NONE
    assert returned.member_id != old_id
    assert (returned.generation_id, returned.leader, world.state()) == (generation, a, "Stable")
    synced = world.synced(world.sync(returned.member_id, generation, instance="one"))
    assert synced.assignment == old_id.encode()
    assert world.heartbeat(old_id, generation, instance="one") is ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat(returned.member_id, generation, instance="one") is ErrorCode.NONE
    assert world.commit(1, member_id=old_id, generation=generation, instance="one") is ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("skip", [True, False])
def test_a_static_leader_that_restarts_need_not_assign_again(world: GroupWorld, skip: bool) -> None:
    old_id = world.joined(world.join(instance="one")).member_id
    world.sync(old_id, 1, {old_id: b"all"})
    returned = world.joined(world.join(instance="one", skip=skip))
    assert returned.skip_assignment is skip
    assert (returned.leader == returned.member_id) is skip
    assert len(returned.members) == (1 if skip else 0)
    assert world.synced(world.sync(returned.member_id, 1, instance="one")).assignment == b"all"


def test_a_static_member_that_returns_with_another_subscription_starts_a_round(world: GroupWorld) -> None:
    old_id = world.joined(world.join(instance="one")).member_id
    world.sync(old_id, 1, {old_id: b"all"})
    returned = world.joined(world.join(instance="one", protocols=(Protocol("range", b"more"),)))
    assert (returned.generation_id, world.state()) == (2, "CompletingRebalance")


def test_a_returned_member_survives_a_restart_of_the_coordinator(world: GroupWorld) -> None:
    old_id = world.joined(world.join(instance="one")).member_id
    world.sync(old_id, 1, {old_id: b"all"})
    new_id = world.joined(world.join(instance="one")).member_id
    world.restart()
    assert world.heartbeat(new_id, 1, instance="one") is ErrorCode.NONE
    assert world.heartbeat(old_id, 1, instance="one") is ErrorCode.FENCED_INSTANCE_ID


def test_a_return_that_cannot_be_written_did_not_happen(world: GroupWorld) -> None:
    old_id = world.joined(world.join(instance="one")).member_id
    world.sync(old_id, 1, {old_id: b"all"})
    world.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.joined(world.join(instance="one")).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.heartbeat(old_id, 1, instance="one") is ErrorCode.NONE


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


# --- offsets


def test_offsets_are_kept_with_all_that_was_said(world: GroupWorld) -> None:
    assert world.commit(7, metadata="note") is ErrorCode.NONE
    (kept,) = world.machine.committed_offsets("g").values()
    assert (kept.offset, kept.leader_epoch, kept.metadata, kept.commit_timestamp_ms) == (
        7,
        5,
        "note",
        world.now.wall_ms,
    )


def test_only_members_of_the_generation_commit(world: GroupWorld) -> None:
    a, b = world.stable_group("a", "b")
    generation = world.generation()
    assert world.commit(1, member_id=a, generation=generation) is ErrorCode.NONE
    assert world.commit(1, member_id=a, generation=generation - 1) is ErrorCode.ILLEGAL_GENERATION
    assert world.commit(1, member_id="x", generation=generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit(1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit(1, group="new", member_id=a, generation=1) is ErrorCode.ILLEGAL_GENERATION
    assert world.commit(1, group="") is ErrorCode.INVALID_GROUP_ID
    world.join(a)
    assert world.commit(2, member_id=b, generation=generation) is ErrorCode.NONE, "before it joins again"
    world.join(b)
    assert world.commit(3, member_id=b, generation=generation + 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_is_a_sign_of_life(world: GroupWorld) -> None:
    (a,) = world.stable_group("a", session_ms=10_000)
    for offset in range(5):
        world.advance(9_000)
        assert world.commit(offset, member_id=a, generation=1) is ErrorCode.NONE


def test_long_metadata_is_refused_by_its_bytes(world: GroupWorld) -> None:
    assert world.commit(1, metadata="x" * LIMITS.offset_metadata_bytes_max) is ErrorCode.NONE
    assert world.commit(1, metadata="é" * 2049) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert world.commit(1, group="new", metadata="x" * 4097) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert world.machine.describe("new") is None


def test_a_commit_that_cannot_be_written_changes_nothing(world: GroupWorld) -> None:
    world.commit(1)
    world.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.commit(2) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.commit(2, group="new") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.machine.committed_offsets("g")["t", 0].offset == 1
    assert world.machine.describe("new") is None


def test_offsets_outlive_the_members_by_the_retention_time(world: GroupWorld) -> None:
    (a,) = world.stable_group("a", session_ms=10_000)
    world.commit(1, member_id=a, generation=1)
    world.advance(LIMITS.offsets_retention_ms)  # silent, so the member is out after ten seconds
    world.expire()
    assert world.machine.committed_offsets("g") != {}
    world.advance(10_000)
    world.expire()
    assert world.machine.describe("g") is None
    assert world.records()[-2:] == [
        OffsetTombstone(group_id="g", topic="t", partition=0),
        GroupTombstone(group_id="g"),
    ]


def test_offsets_of_a_living_group_do_not_expire(world: GroupWorld) -> None:
    (a,) = world.stable_group("a", session_ms=1_800_000)
    world.commit(1, member_id=a, generation=1)
    for _ in range(2 * LIMITS.offsets_retention_ms // 1_700_000):
        world.advance(1_700_000)
        assert world.heartbeat(a, 1) is ErrorCode.NONE
    world.expire()
    assert world.machine.committed_offsets("g") != {}


def test_offsets_without_a_group_expire_by_their_own_age(world: GroupWorld) -> None:
    world.commit(1, partition=0)
    world.advance(LIMITS.offsets_retention_ms // 2)
    world.commit(1, partition=1)
    world.advance(LIMITS.offsets_retention_ms // 2)
    world.expire()
    assert list(world.machine.committed_offsets("g")) == [("t", 1)]


def test_an_old_client_may_name_its_own_retention_time(world: GroupWorld) -> None:
    world.commit(1, retention_ms=1000)
    world.advance(999)
    world.expire()
    assert world.machine.describe("g") is not None
    world.advance(1)
    world.expire()
    assert world.machine.describe("g") is None


def test_offsets_in_deleted_topics_are_dropped(world: GroupWorld) -> None:
    world.commit(1, topic="t")
    world.commit(1, topic="u")
    world.delete_topics("t", "x")
    assert list(world.machine.committed_offsets("g")) == [("u", 0)]
    world.delete_topics("u")
    assert world.machine.describe("g") is None


# --- looking and deleting


def test_a_group_is_deleted_once_it_is_empty(world: GroupWorld) -> None:
    (a,) = world.stable_group("a")
    world.commit(1, member_id=a, generation=1)
    assert world.delete() is ErrorCode.NON_EMPTY_GROUP
    world.leave(Leaver(a, None))
    assert world.delete() is ErrorCode.NONE
    assert world.delete() is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.machine.list_groups() == []
    world.restart()
    assert world.machine.list_groups() == []


def test_a_deletion_that_cannot_be_written_did_not_happen(world: GroupWorld) -> None:
    world.commit(1)
    world.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.delete() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.machine.committed_offsets("g") != {}


def test_offsets_of_topics_that_nobody_reads_are_deleted_for_good(world: GroupWorld) -> None:
    reads_t = Protocol("range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff")
    (a,) = world.stable_group("a", protocols=(reads_t,))
    world.commit(1, member_id=a, generation=1, topic="t")
    world.commit(1, member_id=a, generation=1, topic="u")
    result = world.delete_offsets(("t", 0), ("u", 0), ("u", 7))
    assert result.error is ErrorCode.NONE
    assert result.errors == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE, ErrorCode.NONE)
    assert list(world.machine.committed_offsets("g")) == [("t", 0)]
    world.leave(Leaver(a, None))
    assert world.delete_offsets(("t", 0)).errors == (ErrorCode.NONE,)
    world.restart()
    assert world.machine.committed_offsets("g") == {}


def test_a_group_without_members_is_gone_with_its_last_offset(world: GroupWorld) -> None:
    world.commit(1)
    assert world.delete_offsets(("t", 0)).errors == (ErrorCode.NONE,)
    assert world.machine.list_groups() == []
    assert world.delete_offsets(("t", 0)).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_a_living_group_that_does_not_consume_stay(world: GroupWorld) -> None:
    world.stable_group("a", protocol_type="connect")
    assert world.delete_offsets(("t", 0)).error is ErrorCode.NON_EMPTY_GROUP


def test_offsets_stay_when_their_deletion_cannot_be_written(world: GroupWorld) -> None:
    world.commit(1)
    world.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.delete_offsets(("t", 0)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert list(world.machine.committed_offsets("g")) == [("t", 0)]


def test_descriptions_show_subscriptions_only_once_they_are_settled(world: GroupWorld) -> None:
    member = world.joined(world.join()).member_id
    before = world.machine.describe("g")
    assert before is not None
    assert (before.state, before.protocol_name, before.members[0].metadata) == ("CompletingRebalance", "", b"")
    world.sync(member, 1, {member: b"x"})
    after = world.machine.describe("g")
    assert after is not None
    assert (after.protocol_name, after.members[0].metadata, after.members[0].assignment) == ("range", b"t", b"x")
    assert [group.group_id for group in world.machine.list_groups()] == ["g"]


# --- recovery


def test_members_go_on_in_their_generation_after_a_restart(world: GroupWorld) -> None:
    a, b = world.stable_group("a", "b", session_ms=10_000)
    generation = world.generation()
    world.commit(4, member_id=a, generation=generation)
    world.restart()
    assert world.state() == "Stable"
    assert world.heartbeat(a, generation) is ErrorCode.NONE
    assert world.synced(world.sync(b, generation)).assignment == b.encode()
    assert world.machine.committed_offsets("g")["t", 0].offset == 4
    world.advance(10_000)
    assert world.state() == "Empty", "a member that did not come back is given one session"


def test_a_round_that_was_going_on_is_forgotten(world: GroupWorld) -> None:
    a, b = world.stable_group("a", "b")
    generation = world.generation()
    world.join(a)
    world.restart()
    assert world.heartbeat(b, generation) is ErrorCode.NONE
    assert world.joined(world.join(b)).error is ErrorCode.NONE


def test_the_log_says_what_the_machine_knows(world: GroupWorld) -> None:
    world.stable_group("a", "b")
    world.commit(3, group="simple")
    before = world.machine.durable_state()
    world.restart()
    assert world.machine.durable_state() == before
    offsets = [record for record in world.records() if isinstance(record, OffsetRecord)]
    assert [record.group_id for record in offsets] == ["simple"]
