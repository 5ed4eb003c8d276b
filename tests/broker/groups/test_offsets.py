"""What is kept of offsets, and until when."""

import uuid
from dataclasses import replace

import pytest

from tests.broker.groups.group_world import image_of
from tidemill.broker.coordination.contract import Instant
from tidemill.broker.groups.events import CommitOffsets, CommittedOffset, OffsetToCommit
from tidemill.broker.groups.membership import ClassicGroup
from tidemill.broker.groups.offsets import (
    committed,
    decide_commit,
    decide_deletion,
    deletion_problem,
    expired,
    foreign,
    forgotten,
    present,
    without_id,
)
from tidemill.broker.groups.records import GroupTombstone, OffsetRecord, OffsetTombstone
from tidemill.broker.groups.states import GroupState
from tidemill.broker.groups.topics import Topics
from tidemill.core.error_code import ErrorCode
from tidemill.core.types import ZERO_UUID

RETENTION_MS = 1000
T, OTHER_T = uuid.UUID(int=1), uuid.UUID(int=99)
TOPICS = Topics(image=image_of({"t": T}))


def commit(*metadata: str, retention_ms: int = -1) -> CommitOffsets:
    return CommitOffsets(
        request_id=1,
        group_id="g",
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        retention_ms=retention_ms,
        offsets=tuple(OffsetToCommit("t", index, index * 10, 3, text) for index, text in enumerate(metadata)),
    )


def group_with(*committed_at: int, expires_at: int = -1) -> ClassicGroup:
    group = ClassicGroup("g")
    for partition, at in enumerate(committed_at):
        group.offsets["t", partition] = CommittedOffset(
            offset=1, leader_epoch=-1, metadata="", commit_timestamp_ms=at, expire_timestamp_ms=expires_at, topic_id=T
        )
    return group


def test_each_offset_is_judged_on_its_own() -> None:
    errors, records = decide_commit(commit("ok", "x" * 11, "fine"), ErrorCode.NONE, TOPICS, 10, Instant(5, 700))
    assert errors == (ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE)
    assert [record.partition for record in records] == [0, 2]
    kept = committed(records[1])
    assert (kept.offset, kept.leader_epoch, kept.metadata, kept.commit_timestamp_ms) == (20, 3, "fine", 700)
    assert (kept.expire_timestamp_ms, kept.topic_id) == (-1, T)


def test_a_retention_time_of_its_own_counts_from_the_commit() -> None:
    _, (record,) = decide_commit(commit("", retention_ms=50), ErrorCode.NONE, TOPICS, 10, Instant(5, 700))
    assert record.expire_timestamp_ms == 750


@pytest.mark.parametrize(
    ("group", "wall_ms", "gone"),
    [
        (group_with(0, 500), 999, []),
        (group_with(0, 500), 1000, [0]),
        (group_with(0, 500), 1500, [0, 1]),
        (group_with(0, expires_at=100), 99, []),
        (group_with(0, expires_at=100), 100, [0]),
    ],
)
def test_offsets_without_members_expire_one_by_one(group: ClassicGroup, wall_ms: int, gone: list[int]) -> None:
    assert expired(group, TOPICS, RETENTION_MS, wall_ms) == tuple(
        OffsetTombstone(group_id="g", topic="t", partition=partition) for partition in gone
    )


def test_the_time_of_a_group_that_had_members_counts_from_when_it_became_empty() -> None:
    group = group_with(0)
    group.protocol_type = "consumer"
    group.state_timestamp_ms = 400
    group.persisted = group.record({}, 400)
    assert expired(group, TOPICS, RETENTION_MS, 1399) == ()
    assert expired(group, TOPICS, RETENTION_MS, 1400)[-1] == GroupTombstone(group_id="g")


def test_nothing_of_a_living_group_expires() -> None:
    group = group_with(0)
    group.state = GroupState.STABLE
    assert expired(group, TOPICS, RETENTION_MS, 10**9) == ()
    group.state = GroupState.EMPTY
    group.pending_members.add("somebody on the way")
    assert expired(group, TOPICS, RETENTION_MS, 10**9) == ()


def test_tombstones_of_a_deleted_group() -> None:
    group = group_with(0, 0)
    group.offsets["u", 0] = group.offsets["t", 0]
    assert len(forgotten(group)) == 3
    group.persisted = group.record({}, 0)
    assert forgotten(group)[-1] == GroupTombstone(group_id="g")


def test_a_problem_with_all_of_them_is_told_of_those_whose_topic_is_there() -> None:
    event = replace(commit("", ""), offsets=(*commit("").offsets, OffsetToCommit("x", 0, 1, 1, "")))
    errors, records = decide_commit(event, ErrorCode.ILLEGAL_GENERATION, TOPICS, 10, Instant(5, 700))
    assert errors == (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert records == ()


def test_offsets_of_a_topic_that_is_gone_are_nobodys_and_go_even_from_a_living_group() -> None:
    group = group_with(0, 0)
    group.state = GroupState.STABLE
    again = TOPICS.after(image_of({"t": OTHER_T}))
    tombstones = tuple(OffsetTombstone(group_id="g", topic="t", partition=partition) for partition in (0, 1))
    assert present(group.offsets, TOPICS) == group.offsets
    assert present(group.offsets, again) == present(group.offsets, TOPICS.after(image_of({}))) == {}
    assert foreign(group, TOPICS, {"t"}) == foreign(group, again, {"u"}) == ()
    assert foreign(group, again, {"t"}) == tombstones
    assert expired(group, again, RETENTION_MS, 0) == tombstones


def test_an_offset_without_an_id_is_written_again_with_the_id_of_the_topic_found_at_the_start() -> None:
    group = group_with(7)
    group.offsets["t", 0] = replace(group.offsets["t", 0], topic_id=ZERO_UUID)
    topics = Topics(image=TOPICS.image, at_start={"t": T})
    (record,) = without_id(group, topics)
    assert isinstance(record, OffsetRecord)
    assert committed(record) == replace(group.offsets["t", 0], topic_id=T)
    again = topics.after(image_of({"t": OTHER_T}))
    assert without_id(group, again) == ()
    assert len(foreign(group, again, {"t"})) == 1


def test_only_offsets_that_are_there_get_a_tombstone_and_each_only_one() -> None:
    group = group_with(0, 0)
    errors, records = decide_deletion(group, [("t", 1), ("t", 1), ("t", 5), ("x", 0)])
    assert errors == (ErrorCode.NONE,) * 4
    assert records == (OffsetTombstone(group_id="g", topic="t", partition=1),)


def test_offsets_of_a_group_that_is_not_there_cannot_be_deleted() -> None:
    assert deletion_problem(None) is ErrorCode.GROUP_ID_NOT_FOUND
    assert deletion_problem(group_with(0)) is ErrorCode.NONE
