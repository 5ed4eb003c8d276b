"""The cooperative assignor: nothing twice, no more moves than needed, waits as long as it has to"""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.connect.group.incremental import GRACE_MS, NEVER, Assignor, Changes, Round
from tidemill.connect.herder.placement import CONNECTOR, Instance

DELAY_MS = 300_000
LEASE_MS = 10_000
REBALANCE_TIMEOUT_MS = 60_000


def tasks(count: int, connector: str = "c") -> frozenset[Instance]:
    return frozenset(Instance(connector, task) for task in range(count))


class Group:
    """Members that do as they are told, under a leader that stays."""

    def __init__(self, *members: str, delay_max_ms: int = DELAY_MS) -> None:
        self.assignor = Assignor(delay_max_ms, lease_ms=LEASE_MS, rebalance_timeout_ms=REBALANCE_TIMEOUT_MS)
        self.holds: dict[str, frozenset[Instance]] = dict.fromkeys(members, frozenset())
        self.wanted = frozenset[Instance]()
        self.generation = 10
        self.completed = NEVER
        self.now_ms = 1_000
        self.said_to_run = frozenset[Instance]()
        self.unread = frozenset[str]()
        self.moved = 0  # instances that were revoked though they are wanted

    def round(self, later_ms: int = 0, *, is_heard: bool = True, round_ms: int = 0) -> Changes:
        self.now_ms += later_ms
        self.generation += 1
        changes = self.assignor.decide(
            Round(
                generation=self.generation,
                completed=self.completed,
                holds=dict(self.holds),
                wanted=self.wanted,
                now_ms=self.now_ms,
                round_ms=round_ms,
                unread=self.unread,
                said_to_run=self.said_to_run,
            )
        )
        self.check(changes)
        if is_heard:
            self.completed = self.generation
            self.moved += sum(len(revoked & self.wanted) for revoked in changes.revoked.values())
            self.holds = {
                each: (self.holds[each] - changes.revoked[each]) | changes.assigned[each] for each in self.holds
            }
        return changes

    def check(self, changes: Changes) -> None:
        """What somebody has is given to nobody, and nothing is given twice."""
        held = frozenset().union(*self.holds.values())
        given = [each for assigned in changes.assigned.values() for each in assigned]
        assert len(given) == len(set(given)) and not held & set(given)
        assert set(given) <= self.wanted and not set(given) & changes.may_run
        for member_id, revoked in changes.revoked.items():
            assert revoked <= self.holds[member_id]
            assert changes.owned[member_id] == (self.holds[member_id] - revoked) | changes.assigned[member_id]

    def settle(self) -> None:
        """Rounds as the protocol asks for them, until none is asked for."""
        for _ in range(20):
            changes = self.round()
            if changes.delay_ms:
                self.now_ms += changes.delay_ms
            elif not any(changes.revoked.values()):
                return
        raise AssertionError("does not come to rest")

    def counts(self) -> list[int]:
        return sorted(len(held) for held in self.holds.values())

    def leave(self, *members: str) -> None:
        for member_id in members:
            del self.holds[member_id]


def test_what_is_new_is_given_at_once_and_evenly() -> None:
    group = Group("a", "b")
    group.wanted = frozenset({Instance("c", CONNECTOR), Instance("d", CONNECTOR)}) | tasks(3) | tasks(1, "d")
    changes = group.round()
    assert not any(changes.revoked.values()) and changes.delay_ms == 0
    for held in group.holds.values():
        assert sum(each.task == CONNECTOR for each in held) == 1
        assert sum(each.task != CONNECTOR for each in held) == 2
    assert frozenset().union(*group.holds.values()) == group.wanted


def test_tasks_of_a_connector_go_to_different_workers() -> None:
    group = Group("a", "b")
    group.wanted = tasks(2, "c") | tasks(2, "d")
    group.round()
    assert all({each.connector for each in held} == {"c", "d"} for held in group.holds.values())


def test_one_that_joins_gets_its_share_in_two_rounds_and_nothing_else_moves() -> None:
    group = Group("a", "b")
    group.wanted = tasks(6)
    group.settle()
    before = dict(group.holds)
    group.holds["n"] = frozenset()
    first = group.round()
    assert not any(first.assigned.values())
    assert sorted(map(len, first.revoked.values())) == [0, 1, 1]
    second = group.round()
    assert second.assigned["n"] == first.revoked["a"] | first.revoked["b"]
    assert not any(second.revoked.values())
    assert group.moved == 2 and group.counts() == [2, 2, 2]
    assert all(group.holds[each] <= before[each] for each in before)


def test_a_round_without_a_reason_changes_nothing() -> None:
    group = Group("a", "b", "d")
    group.wanted = tasks(7)
    group.settle()
    changes = group.round()
    assert not any(changes.assigned.values()) and not any(changes.revoked.values()) and changes.delay_ms == 0


def test_what_is_wanted_no_longer_is_revoked_at_once() -> None:
    group = Group("a", "b")
    group.wanted = tasks(4) | tasks(2, "d")
    group.settle()
    group.wanted = tasks(4)
    changes = group.round()
    assert frozenset().union(*changes.revoked.values()) >= tasks(2, "d")
    group.settle()
    assert group.counts() == [2, 2]


def test_what_a_worker_had_that_is_gone_waits_for_it_and_nothing_moves_meanwhile() -> None:
    group = Group("a", "b", "d")
    group.wanted = tasks(6)
    group.settle()
    gone = group.holds["d"]
    group.leave("d")
    assert group.round().delay_ms == DELAY_MS
    assert group.round(100_000).delay_ms == DELAY_MS - 100_000
    group.holds["back"] = frozenset()  # the same worker under another name
    changes = group.round(100_000)
    assert changes.delay_ms == DELAY_MS - 200_000 and not any(changes.revoked.values())
    assert not any(changes.assigned.values())
    changes = group.round(DELAY_MS - 200_000)
    assert changes.assigned["back"] == gone and changes.delay_ms == 0
    assert group.moved == 0


def test_what_is_new_is_given_while_a_worker_is_waited_for() -> None:
    group = Group("a", "b")
    group.wanted = tasks(2)
    group.settle()
    group.leave("b")
    group.round()
    group.wanted = tasks(2) | tasks(1, "new")
    changes = group.round(1_000)
    assert changes.assigned["a"] == tasks(1, "new") and changes.delay_ms == DELAY_MS - 1_000


def test_one_that_does_not_come_back_is_replaced_when_the_time_is_over() -> None:
    group = Group("a", "b")
    group.wanted = tasks(4)
    group.settle()
    group.leave("b")
    group.round()
    assert group.counts() == [2]
    group.round(DELAY_MS)
    assert group.holds["a"] == group.wanted and group.moved == 0


def test_one_that_goes_while_another_is_waited_for_has_time_to_end() -> None:
    group = Group("a", "b", "d")
    group.wanted = tasks(6)
    group.settle()
    first, second = group.holds["b"], group.holds["d"]
    group.leave("b")
    group.round()
    group.leave("d")
    assert group.round(DELAY_MS - 1_000).delay_ms == GRACE_MS
    assert group.round(GRACE_MS).assigned["a"] == first | second
    group = Group("a", "b", "d")
    group.wanted = tasks(6)
    group.settle()
    first, second = group.holds["b"], group.holds["d"]
    group.leave("b")
    group.round()
    group.leave("d")
    changes = group.round(DELAY_MS)
    assert changes.assigned["a"] == first and changes.delay_ms == DELAY_MS


def test_without_a_delay_the_end_of_what_a_worker_did_is_waited_for() -> None:
    group = Group("a", "b", delay_max_ms=0)
    group.wanted = tasks(4)
    group.settle()
    group.leave("b")
    assert group.round().delay_ms == GRACE_MS
    assert group.round(GRACE_MS).delay_ms == 0
    assert group.holds["a"] == group.wanted


def test_an_assignment_that_did_not_arrive_is_made_again() -> None:
    group = Group("a", "b")
    group.settle()
    group.wanted = tasks(4)
    lost = group.round()
    group.holds = dict.fromkeys(group.holds, frozenset())
    assert any(lost.assigned.values())
    changes = group.round()
    assert changes.delay_ms == 0 and frozenset().union(*changes.assigned.values()) == group.wanted


def test_one_that_did_not_arrive_does_not_wait_for_a_pause_between_moves() -> None:
    group = Group("a")
    group.wanted = tasks(60)
    group.settle()
    for number in range(4):
        group.holds[f"n{number}"] = frozenset()
        pause_ms = group.round().delay_ms
        if 0 < number < 3:
            group.round(pause_ms)
    assert pause_ms == 64_000
    lost, group.holds["a"] = group.holds["a"], frozenset()
    changes = group.round()
    assert frozenset().union(*changes.assigned.values()) == lost and changes.delay_ms == pause_ms


def test_a_leader_that_has_missed_a_round_goes_by_what_the_workers_say() -> None:
    """Somebody else may have led it, so that who is gone is not known to have had anything."""
    group = Group("a", "b")
    group.wanted = tasks(4)
    group.settle()
    group.leave("b")
    group.generation += 1
    changes = group.round()
    assert changes.delay_ms == 0 and group.holds["a"] == group.wanted


def test_a_leader_that_remembers_nothing_waits_for_the_end_of_what_is_said_to_run() -> None:
    group = Group("a")
    group.wanted = tasks(4)
    group.said_to_run = tasks(2)
    changes = group.round()
    assert changes.assigned["a"] == tasks(4) - tasks(2) and changes.delay_ms == GRACE_MS
    group.generation += 1  # a round that came to nothing
    assert group.round(1_000).delay_ms == GRACE_MS - 1_000
    changes = group.round(GRACE_MS - 1_000)
    assert changes.assigned["a"] == tasks(2) and changes.delay_ms == 0


def test_what_is_not_given_up_yet_stays() -> None:
    group = Group("a", "b")
    group.wanted = tasks(4)
    group.settle()
    group.holds["n"] = frozenset()
    before = dict(group.holds)
    revoked = group.round().revoked
    assert any(revoked.values())
    group.holds = before  # it has not ended
    changes = group.round()
    assert not any(changes.assigned.values())
    group.settle()
    assert group.counts() == [1, 1, 2]


def test_what_was_revoked_from_one_that_is_gone_may_not_have_ended() -> None:
    group = Group("a", "b")
    group.wanted = tasks(4)
    group.settle()
    group.holds["n"] = frozenset()
    revoked = group.round().revoked
    (loser,) = (each for each, held in revoked.items() if held)
    group.leave(loser)
    changes = group.round()
    assert changes.delay_ms == DELAY_MS and not any(changes.assigned.values())


def test_what_two_have_is_revoked_from_both() -> None:
    group = Group("a", "b")
    group.wanted = tasks(2)
    group.holds = {"a": tasks(2), "b": tasks(1)}
    changes = group.round()
    assert changes.revoked == {"a": tasks(1), "b": tasks(1)} and not any(changes.assigned.values())
    group.settle()
    assert group.counts() == [1, 1]


def test_moves_in_a_row_come_ever_later() -> None:
    group = Group("a")
    pauses = []
    for number in range(5):
        group.wanted = tasks(60)
        group.settle() if number == 0 else None
        group.holds[f"n{number}"] = frozenset()
        changes = group.round()
        pauses.append(changes.delay_ms)
        group.now_ms += changes.delay_ms
        if changes.delay_ms:
            assert not any(changes.revoked.values())
            assert any(group.round().revoked.values())
    assert pauses == [0, 40, 1_600, 64_000, DELAY_MS]
    group.settle()
    group.holds["last"] = frozenset()
    assert group.round().delay_ms == 0, "even in between: the next move is the first again"


def test_nobody_pauses_without_a_delay() -> None:
    group = Group("a", delay_max_ms=0)
    group.wanted = tasks(12)
    group.settle()
    for number in range(3):
        group.holds[f"n{number}"] = frozenset()
        assert any(group.round().revoked.values())


def test_one_that_may_have_been_too_late_for_the_round_has_its_lease_to_end() -> None:
    """It was removed for that, perhaps a moment after it had been told that it is a member."""
    group = Group("a", "b", delay_max_ms=0)
    group.wanted = tasks(4)
    group.settle()
    group.leave("b")
    assert group.round(round_ms=REBALANCE_TIMEOUT_MS).delay_ms == GRACE_MS + LEASE_MS
    assert group.round(GRACE_MS).delay_ms == LEASE_MS
    assert group.round(LEASE_MS).delay_ms == 0 and group.holds["a"] == group.wanted


def test_where_a_group_begins_anew_somebody_may_not_have_heard_of_it() -> None:
    group = Group("a", "b", delay_max_ms=0)
    group.generation = 0
    group.wanted = tasks(4)
    group.said_to_run = tasks(1)
    assert group.round().delay_ms == GRACE_MS + LEASE_MS
    group = Group("a", "b", delay_max_ms=0)
    group.wanted = tasks(4)
    group.settle()
    group.leave("b")
    group.generation, group.said_to_run = 1, tasks(4)
    assert group.round().delay_ms == GRACE_MS + LEASE_MS


def test_who_cannot_be_read_keeps_what_it_had_and_gets_nothing() -> None:
    group = Group("a", "b", "d")
    group.wanted = tasks(3)
    group.settle()
    group.unread = frozenset({"b"})
    kept = group.holds["b"]
    group.wanted = tasks(9)
    group.settle()
    assert group.holds["b"] == kept and group.counts() == [1, 4, 4]
    group.wanted = tasks(9) - kept
    group.settle()
    assert not group.holds["b"] and group.counts() == [0, 4, 4]


def test_what_is_wanted_no_longer_may_still_be_done_by_one_that_is_gone() -> None:
    """Whoever changes its offsets, or wants it again, has to wait for that."""
    group = Group("a", "b", delay_max_ms=0)
    group.wanted = tasks(4)
    group.settle()
    lost = group.holds["b"]
    group.leave("b")
    group.wanted = frozenset()
    changes = group.round()
    assert changes.may_run == lost and changes.delay_ms == GRACE_MS
    group.wanted = tasks(4)
    changes = group.round(1_000)
    assert group.holds["a"] == tasks(4) - lost and changes.delay_ms == GRACE_MS - 1_000
    group.wanted = tasks(4) - lost
    assert group.round(1_000).may_run == lost
    changes = group.round(GRACE_MS - 2_000)
    assert not changes.may_run and changes.delay_ms == 0


def test_a_leader_that_remembers_nothing_says_of_what_is_stopped_that_it_may_run() -> None:
    group = Group("a")
    group.said_to_run = tasks(2)
    changes = group.round()
    assert changes.may_run == tasks(2) and changes.delay_ms == GRACE_MS
    assert group.round(GRACE_MS).may_run == frozenset()


names = st.sampled_from(["a", "b", "c", "d", "e"])
events = st.one_of(
    st.tuples(st.just("join"), names),
    st.tuples(st.just("leave"), names),
    st.tuples(st.just("want"), st.integers(0, 9)),
    st.tuples(st.just("pass"), st.integers(0, 2 * DELAY_MS)),
    st.tuples(st.just("unheard"), st.just(0)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(events, max_size=15), st.sampled_from([0, 5_000, DELAY_MS]))
def test_whatever_happens_all_is_done_once_and_evenly_in_the_end(
    happened: Iterable[tuple[str, str | int]], delay_max_ms: int
) -> None:
    group = Group("leader", delay_max_ms=delay_max_ms)
    names = iter(range(1_000))
    lives: dict[str, str] = {}
    for what, value in happened:
        match what, value:
            case "join", str(name) if name not in lives:
                lives[name] = f"{name}{next(names)}"
                group.holds[lives[name]] = frozenset()
            case "leave", str(name) if name in lives:
                group.leave(lives.pop(name))
            case "want", int(count):
                group.wanted = tasks(count) | frozenset(Instance(f"c{each}", CONNECTOR) for each in range(count // 2))
            case "pass", int(later_ms):
                group.now_ms += later_ms
            case _:
                pass
        group.round(is_heard=what != "unheard")
    group.settle()
    held = [each for member in group.holds.values() for each in member]
    assert sorted(held) == sorted(group.wanted)
    for is_connector in (True, False):
        counts = [sum((each.task == CONNECTOR) is is_connector for each in held) for held in group.holds.values()]
        assert max(counts) - min(counts) <= 1


@given(st.lists(st.integers(0, 12), min_size=1, max_size=5), st.integers(0, 2))
def test_no_more_moves_than_the_share_of_each_asks_for(loads: list[int], joined: int) -> None:
    group = Group()
    for number, load in enumerate(loads + [0] * joined):
        group.holds[f"m{number}"] = tasks(load, f"c{number}")
    group.wanted = frozenset().union(*group.holds.values())
    before = sorted((len(held) for held in group.holds.values()), reverse=True)
    least, more = divmod(sum(before), len(before))
    needed = sum(max(0, load - least - (rank < more)) for rank, load in enumerate(before))
    group.settle()
    assert group.moved == needed


@pytest.mark.parametrize("members", [1, 2, 5])
def test_nothing_is_wanted(members: int) -> None:
    group = Group(*(f"m{each}" for each in range(members)))
    group.settle()
    assert group.counts() == [0] * members


def test_what_has_not_ended_yet_of_what_was_revoked_is_not_given_back() -> None:
    """It would end, begin again where it was, and be revoked a second time."""
    group = Group("a", "b")
    group.wanted = tasks(6)
    group.settle()
    group.holds["n"] = frozenset()
    first = group.round()
    slow = first.revoked["b"]
    group.holds["b"] |= slow
    second = group.round()
    assert second.revoked["b"] == slow and second.assigned["n"] == first.revoked["a"]
    third = group.round()
    assert third.assigned["n"] == slow and third.delay_ms == 0 and not any(third.revoked.values())
