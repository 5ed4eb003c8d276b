"""What a group has committed: kept, deleted, expired."""

import uuid

import pytest

from tests.broker.groups.group_world import LIMITS, GroupWorld
from tidemill.broker.coordination.contract import Append, Instant
from tidemill.broker.groups.events import Action, Event, Leaver, Protocol
from tidemill.broker.groups.records import GroupTombstone, OffsetRecord, OffsetTombstone, encode_record
from tidemill.core.error_code import ErrorCode


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


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


def test_what_was_committed_for_a_topic_is_not_told_of_another_of_its_name(world: GroupWorld) -> None:
    world.commit(1000)
    world.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.delete_topics("t")
    assert world.machine.committed_offsets("g") == {}
    assert world.commit(1001) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.create_topic("t", 7)
    assert world.machine.committed_offsets("g") == {}
    world.restart()
    assert world.machine.committed_offsets("g") == {}
    world.append_error = None
    world.expire()
    assert world.records()[-1] == OffsetTombstone(group_id="g", topic="t", partition=0)
    assert world.machine.describe("g") is None
    world.commit(5)
    world.expire()
    assert world.machine.committed_offsets("g")["t", 0].offset == 5


def test_a_crash_before_the_tombstones_leaves_them_to_the_next_start(world: GroupWorld) -> None:
    world.stable_group("a")
    world.commit(1000, group="h")
    world.topics.pop("t")
    world.restart()
    assert world.records()[-1] == OffsetTombstone(group_id="h", topic="t", partition=0)
    assert [group.group_id for group in world.machine.list_groups()] == ["g"]


def write_without_id(world: GroupWorld, offset: int) -> None:
    """As Kafka before 4.3 wrote it."""
    key, _ = encode_record(OffsetTombstone(group_id="g", topic="t", partition=0))
    value = b"\0\3" + offset.to_bytes(8, "big") + b"\0\0\0\5" + b"\0\1m" + world.now.wall_ms.to_bytes(8, "big")
    world.log.append((key, value))


def test_an_offset_without_a_topic_id_counts_for_the_topic_of_the_first_start(world: GroupWorld) -> None:
    write_without_id(world, 9)
    world.restart()
    (kept,) = world.machine.committed_offsets("g").values()
    assert (kept.offset, kept.leader_epoch, kept.metadata, kept.topic_id) == (9, 5, "m", world.topics["t"])
    world.topics["t"] = uuid.UUID(int=7)
    world.restart()
    assert world.machine.committed_offsets("g") == {}


def test_an_offset_without_a_topic_id_is_served_and_written_later_when_the_log_refuses(world: GroupWorld) -> None:
    write_without_id(world, 9)
    world.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.restart()
    assert world.machine.committed_offsets("g")["t", 0].offset == 9
    world.append_error = None
    world.expire()
    record = world.records()[-1]
    assert isinstance(record, OffsetRecord)
    assert (record.offset, record.topic_id) == (9, world.topics["t"])
    world.delete_topics("t")
    assert world.machine.describe("g") is None


def test_an_offset_without_a_topic_id_goes_when_its_topic_does(world: GroupWorld) -> None:
    write_without_id(world, 9)
    world.topics.pop("t")
    world.restart()
    assert world.machine.describe("g") is None
    world.create_topic("t", 7)
    assert world.machine.committed_offsets("g") == {}


def test_very_many_offsets_are_dropped_in_several_batches(world: GroupWorld) -> None:
    for partition in range(10):
        world.commit(1, partition=partition, group="g" * 30_000)
    batches = 0
    step = world.machine.step

    def counted(event: Event, now: Instant) -> list[Action]:
        nonlocal batches
        actions = step(event, now)
        batches += sum(isinstance(action, Append) for action in actions)
        return actions

    world.machine.step = counted  # type: ignore[method-assign]
    world.delete_topics("t")
    assert batches == 2
    assert world.machine.list_groups() == []


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
