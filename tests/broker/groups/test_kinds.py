"""Whatever keeps, expires, deletes and lists goes by what every kind of group answers."""

from typing import Any

import pytest

from tests.broker.groups.group_world import START_WALL_MS, GroupWorld, image_of
from tidemill.broker.coordination.contract import Instant
from tidemill.broker.groups import offsets as rules
from tidemill.broker.groups.events import CommittedOffset, GroupKind, GroupView, Leaver, MemberView, Standing
from tidemill.broker.groups.kinds import Group
from tidemill.broker.groups.membership import ClassicGroup
from tidemill.broker.groups.records import GroupTombstone, OffsetTombstone
from tidemill.broker.groups.states import GroupState
from tidemill.broker.groups.table import GroupLimits, GroupTable
from tidemill.broker.groups.topics import Topics
from tidemill.core.error_code import ErrorCode

RETENTION_MS = 1000


class Watchers(Group):
    """Another kind: whoever looks is in, nobody joins."""

    kind = GroupKind.CLASSIC  # there is no other name yet

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.watching = 0
        self.left_ms = -1
        self.ended = False

    @property
    def is_empty(self) -> bool:
        return not self.watching

    is_idle = is_empty

    @property
    def idle_since_ms(self) -> int:
        return self.left_ms

    @property
    def recorded(self) -> object | None:
        return None

    def tombstones(self) -> tuple[GroupTombstone, ...]:
        return (GroupTombstone(group_id=f"own of {self.group_id}"),)

    def subscribed_topics(self) -> frozenset[str] | None:
        return frozenset({"u"})

    def deletion_problem(self) -> ErrorCode:
        return ErrorCode.NONE

    def view(self) -> GroupView:
        return GroupView(
            group_id=self.group_id, kind=self.kind, state=GroupState.EMPTY, protocol_type="w", protocol_name=""
        )

    def views(self) -> tuple[MemberView, ...]:
        return ()

    def standing(self) -> Standing:
        return Standing(GroupState.EMPTY, self.watching, len(self.offsets))

    def end(self, wall_ms: int) -> None:
        self.ended = True


def watchers(**offsets: int) -> Watchers:
    group = Watchers("w")
    topics = image_of(GroupWorld().topics).topics
    for topic, offset in offsets.items():
        group.offsets[topic, 0] = CommittedOffset(
            offset=offset,
            leader_epoch=-1,
            metadata="",
            commit_timestamp_ms=START_WALL_MS,
            topic_id=topics[topic].topic_id,
        )
    return group


def world_with(group: Group) -> GroupWorld:
    """A world that has met a group of another kind, as replaying its records would have it."""
    world = GroupWorld()
    world.machine.table.groups[group.group_id] = group
    return world


def test_a_kind_says_all_that_is_asked_of_it() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Group("g")  # type: ignore[abstract]


def test_offsets_of_any_kind_get_old_and_are_deleted() -> None:
    topics, group = Topics(image=image_of(GroupWorld().topics)), watchers(t=5)
    group.watching = 1
    assert rules.expired(group, topics, RETENTION_MS, START_WALL_MS + RETENTION_MS) == ()
    group.watching, group.left_ms = 0, START_WALL_MS + 500
    assert rules.expired(group, topics, RETENTION_MS, START_WALL_MS + RETENTION_MS) == ()
    gone = OffsetTombstone(group_id="w", topic="t", partition=0)
    own = GroupTombstone(group_id="own of w")
    assert rules.expired(group, topics, RETENTION_MS, START_WALL_MS + RETENTION_MS + 500) == (gone, own)
    assert rules.forgotten(group) == (gone, own)
    assert rules.decide_deletion(group, [("t", 0), ("u", 0)]) == (
        (ErrorCode.NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
        (gone,),
    )


def test_a_group_of_any_kind_is_forgotten_in_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    table, group = GroupTable(GroupLimits()), watchers()
    table.groups["w"] = group
    table.drop_if_nothing_left(group, Instant(0, 0))
    assert not group.ended, "the log has something of it"
    monkeypatch.setattr(Watchers, "tombstones", lambda _self: ())
    table.drop_if_nothing_left(group, Instant(0, 0))
    assert group.ended and not table.groups


def test_classic_members_cannot_come_into_another_kind() -> None:
    world = world_with(watchers(t=5))
    assert world.joined(world.join(group="w")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.heartbeat("m", 1, group="w") is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.synced(world.sync("m", 1, group="w")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.leave(Leaver("m", None), group="w").leavers[0][1] is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit(7, member_id="m", generation=1, group="w") is ErrorCode.UNKNOWN_MEMBER_ID


def test_whoever_is_alone_commits_and_everybody_is_listed() -> None:
    world = world_with(watchers(t=5))
    assert world.commit(7, group="w") is ErrorCode.NONE
    assert world.machine.committed_offsets("w")["t", 0].offset == 7
    assert [(view.group_id, view.protocol_type) for view in world.machine.list_groups()] == [("w", "w")]
    described: Any = world.machine.describe("w")
    assert (described.members, world.machine.standing("w")) == ((), Standing(GroupState.EMPTY, 0, 1))
    assert world.delete("w") is ErrorCode.NONE
    assert isinstance(GroupTable(GroupLimits()).group("g"), ClassicGroup), "offsets without a group are a classic one"
