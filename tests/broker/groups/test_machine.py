"""The group coordinator as a whole: one member from joining to its assignment, what people see, recovery."""

import pytest

from tests.broker.groups.group_world import GroupWorld
from tidemill.broker.groups.events import Protocol
from tidemill.broker.groups.records import OffsetRecord
from tidemill.core.error_code import ErrorCode

RANGE = Protocol("range", b"r")
STICKY = Protocol("sticky", b"s")


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


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
