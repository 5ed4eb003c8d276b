"""What the parts of the group machine share: order, timers, writes with what depends on them."""

import pytest

from tidemill.broker.coordination.contract import Append, Instant, Note, Reply
from tidemill.broker.groups.events import ErrorResult
from tidemill.broker.groups.records import GroupTombstone
from tidemill.broker.groups.table import GroupLimits, GroupTable, Kept, Timer, TimerKey
from tidemill.core.error_code import ErrorCode

NOW = Instant(1_000, 50_000)
DONE = ErrorResult(error=ErrorCode.NONE)


@pytest.fixture
def table() -> GroupTable:
    return GroupTable(GroupLimits())


def test_what_is_said_comes_out_in_order_and_with_its_own_step(table: GroupTable) -> None:
    group, record = table.group("g"), GroupTombstone(group_id="g")
    said = table.begin()
    table.note(group, "begins")
    table.append("g", [record], Kept(group_id="g"))
    table.reply(7, DONE, after=1)
    assert said == [
        Note(subject="g", text="begins"),
        Append(token=1, subject="g", records=(record,)),
        Reply(request_id=7, response=DONE, after=1),
    ]
    again = table.begin()
    table.reply(8, DONE)
    assert (len(said), again) == (3, [Reply(request_id=8, response=DONE)])


def test_a_write_is_settled_once_whatever_the_order(table: GroupTable) -> None:
    table.append("a", [GroupTombstone(group_id="a")], Kept(group_id="a"))
    table.append("b", [], Kept(group_id="b"))
    assert table.settle(2) == ((), Kept(group_id="b"))
    assert table.settle(1) == ((GroupTombstone(group_id="a"),), Kept(group_id="a"))
    with pytest.raises(KeyError):
        table.settle(1)


def test_timers_of_a_group_and_of_its_members_are_apart(table: GroupTable) -> None:
    group = table.group("g")
    table.set_timer(Timer.SYNC, group, NOW, 10)
    table.set_timer(Timer.SESSION, group, NOW, 20, "a")
    table.set_timer(Timer.SESSION, group, NOW, 30, "b")
    table.clear_timer(Timer.SESSION, group, "a")
    table.clear_timer(Timer.SESSION, group)
    assert table.deadlines.next_ms() == 1_010
    assert list(table.deadlines.due(1_030)) == [TimerKey(Timer.SYNC, "g"), TimerKey(Timer.SESSION, "g", "b")]


def test_a_group_is_dropped_once_nothing_is_left_of_it(table: GroupTable) -> None:
    group = table.group("g")
    assert table.group("g") is group
    group.pending_members.add("m")
    table.drop_if_nothing_left(group, NOW)
    assert table.groups == {"g": group}
    group.pending_members.clear()
    table.drop_if_nothing_left(group, NOW)
    assert table.groups == {}
    new = table.group("g")
    assert new is not group
    table.drop_if_nothing_left(group, NOW)
    assert table.groups == {"g": new}, "the one that is gone takes nobody with it"
