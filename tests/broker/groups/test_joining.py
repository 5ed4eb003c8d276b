"""Who may come into a group, and as whom."""

import pytest

from tests.broker.groups.group_world import GroupWorld
from tidemill.broker.groups.events import Protocol
from tidemill.broker.groups.table import GroupLimits
from tidemill.core.error_code import ErrorCode

RANGE = Protocol("range", b"r")
STICKY = Protocol("sticky", b"s")


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


# --- joining


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


def test_a_full_group_takes_nobody_but_those_who_are_in() -> None:
    world = GroupWorld(GroupLimits(initial_rebalance_delay_ms=0, max_size=2))
    members = world.stable_group("a", "b")
    assert world.joined(world.join()).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.joined(world.join(required=True)).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.joined(world.join(members[1])).error is ErrorCode.NONE


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
    before = world.machine.describe("g")
    world.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    refused = world.join(name="other", instance="one", session_ms=60_000)
    assert world.joined(refused).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.machine.describe("g") == before
    assert world.heartbeat(old_id, 1, instance="one") is ErrorCode.NONE
    world.append_error = None
    world.advance(10_000)
    assert world.state() == "Empty", "the refused one's session time was never agreed on"
