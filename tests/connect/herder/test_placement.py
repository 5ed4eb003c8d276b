"""Placement: even, with few moves, and nothing given that somebody else may still be doing"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.connect.herder.placement import (
    CONNECTOR,
    AloneIn,
    Decision,
    Holder,
    Instance,
    Placement,
    PlacementSettings,
    Plan,
    Round,
    WorkerSays,
)

SETTINGS = PlacementSettings()


def tasks(count: int, connector: str = "c") -> frozenset[Instance]:
    return frozenset(Instance(connector, number) for number in range(count))


class Group:
    """A leader and what everybody says, as if each did at once what it is told."""

    def __init__(self, *names: str) -> None:
        self.placement = Placement(SETTINGS)
        self.holds: dict[str, frozenset[Instance]] = dict.fromkeys(names, frozenset())
        self.urls = {name: name for name in names}
        self.leaving: set[str] = set()
        self.wanted: frozenset[Instance] = frozenset()
        self.behind: dict[str, int] = {}
        self.said_to_run: frozenset[Instance] = frozenset()
        self.gone: frozenset[str] = frozenset()
        self.stale: frozenset[Instance] = frozenset()
        self.generation_heard = 0
        self.generation = 0
        self.now_ms = 0

    def round(self, later_ms: int = 0, round_ms: int = 0, *, is_first: bool = False) -> Decision:
        self.generation += 1
        self.now_ms += later_ms
        workers = tuple(
            WorkerSays(
                holder=Holder(name, self.urls[name]),
                config_offset=self.behind.get(name, 10),
                holds=holds,
                leaving=name in self.leaving,
                gone=self.gone,
                stale=holds & self.stale,
            )
            for name, holds in self.holds.items()
        )
        decision = self.placement.decide(
            Round(
                generation=self.generation,
                workers=workers,
                wanted=self.wanted,
                config_offset=self.behind.get("leader", 10),
                round_ms=round_ms,
                now_ms=self.now_ms,
                said_to_run=self.said_to_run,
                generation_heard=self.generation_heard,
                is_first=is_first,
            )
        )
        self.holds = {name: decision.plan.of(name) for name in self.holds}
        return decision

    def settle(self) -> Plan:
        for _ in range(3):
            plan = self.round().plan
        return plan

    def counts(self) -> list[int]:
        return sorted(map(len, self.holds.values()))


def test_load_is_even_and_connectors_are_shared_for_themselves() -> None:
    group = Group("a", "b", "c")
    group.wanted = tasks(7) | {Instance(name, CONNECTOR) for name in "xyz"}
    group.settle()
    assert sorted(len({each for each in holds if each.task != CONNECTOR}) for holds in group.holds.values()) == [
        2,
        2,
        3,
    ]
    assert [len({each for each in holds if each.task == CONNECTOR}) for holds in group.holds.values()] == [1, 1, 1]


def test_who_comes_is_given_no_more_than_makes_it_even_and_only_what_others_have_let_go() -> None:
    group = Group("a", "b")
    group.wanted = tasks(9)
    group.settle()
    before = dict(group.holds)
    group.holds["c"], group.urls["c"] = frozenset(), "c"
    plan = group.round().plan
    assert plan.of("c") == frozenset()
    assert sum(map(len, plan.releasing.values())) == 3
    group.settle()
    assert group.counts() == [3, 3, 3]
    assert group.holds["a"] <= before["a"]
    assert group.holds["b"] <= before["b"]


def test_what_a_lost_worker_did_waits_for_the_grace_and_then_nothing_else_moves() -> None:
    group = Group("a", "b", "c")
    group.wanted = tasks(9)
    group.settle()
    before = dict(group.holds)
    lost = group.holds.pop("c")
    assert group.round().again_at_ms == SETTINGS.grace_ms
    assert not lost & (group.holds["a"] | group.holds["b"])
    assert group.round(SETTINGS.grace_ms - 1).again_at_ms == SETTINGS.grace_ms
    assert group.round(1).again_at_ms is None
    assert lost <= group.holds["a"] | group.holds["b"]
    assert all(before[name] <= group.holds[name] for name in "ab")


def test_who_may_have_been_removed_with_a_lease_is_waited_for_a_lease_longer() -> None:
    group = Group("a", "b")
    group.wanted = tasks(4)
    group.settle()
    del group.holds["b"]
    assert group.round(round_ms=SETTINGS.rebalance_timeout_ms).again_at_ms == SETTINGS.grace_ms + SETTINGS.lease_ms


def test_a_group_that_has_begun_anew_is_waited_for_a_lease_longer() -> None:
    group = Group("a", "b")
    group.wanted = tasks(4)
    group.settle()
    del group.holds["b"]
    group.generation = 0
    assert group.round().again_at_ms == SETTINGS.grace_ms + SETTINGS.lease_ms


def test_a_restart_in_order_moves_nothing() -> None:
    group = Group("a", "b")
    group.wanted = tasks(6)
    group.settle()
    mine, others = group.holds["b"], group.holds["a"]
    group.leaving.add("b")
    assert group.round().plan.of("b") == frozenset()
    assert "b" in group.round().plan.left
    del group.holds["b"]
    group.round()
    group.holds["b2"], group.urls["b2"] = frozenset(), "b"
    assert group.round(1_000).plan.of("b2") == mine
    assert group.holds["a"] == others


def test_who_does_not_come_back_is_replaced() -> None:
    group = Group("a", "b")
    group.wanted = tasks(6)
    group.settle()
    group.leaving.add("b")
    group.settle()
    del group.holds["b"]
    assert group.round().again_at_ms == SETTINGS.return_ms
    assert group.round(SETTINGS.return_ms).plan.of("a") == tasks(6)


def test_the_next_leader_goes_on_from_the_plan() -> None:
    group = Group("a", "b")
    group.wanted = tasks(4)
    plan = group.settle()
    group.placement = Placement(SETTINGS)
    group.placement.learn(plan)
    before = dict(group.holds)
    del group.holds["b"]
    assert group.round().again_at_ms == SETTINGS.grace_ms
    assert group.holds["a"] == before["a"]


def test_a_leader_that_knows_nothing_believes_the_statuses() -> None:
    group = Group("a")
    group.wanted = tasks(4)
    group.generation, group.said_to_run = 0, tasks(2)
    assert group.round().plan.of("a") == tasks(4) - tasks(2)
    assert group.round(SETTINGS.grace_ms + SETTINGS.lease_ms).plan.of("a") == tasks(4)


def fresh(*before: str, generation: int = 7, alone: tuple[AloneIn, ...] = ()) -> Group:
    """A worker that has been in no round, and who was in the group before it; the status topic says nothing."""
    group = Group("a")
    group.placement = Placement(SETTINGS, alone)
    group.wanted, group.generation = tasks(4), generation - 1
    group.placement.expect(before, group.now_ms)
    return group


def test_a_leader_that_has_been_in_no_round_waits_for_whom_it_misses() -> None:
    """It may have been given anything a moment before it was cut off."""
    group = fresh("a", "m")
    assert not group.round(is_first=True).plan.assigned
    assert group.round(SETTINGS.grace_ms).plan.of("a") == tasks(4)


@pytest.mark.parametrize("before", [(), ("a",), ("a", "over")])
def test_a_leader_that_misses_nobody_waits_for_whoever_was_removed_before_it_looked(before: tuple[str, ...]) -> None:
    group = fresh(*before)
    group.gone = frozenset({"over"})
    decision = group.round(1_000, is_first=True)
    assert (decision.plan.of("a"), decision.again_at_ms) == (frozenset(), SETTINGS.grace_ms)
    assert group.round(SETTINGS.grace_ms - 1_000).plan.of("a") == tasks(4)


def test_what_is_wanted_only_later_may_be_somebodys_as_well() -> None:
    """The leader had not read of it in its first round."""
    group = fresh()
    group.wanted = frozenset()
    group.round(1_000, is_first=True)
    group.wanted = tasks(4)
    decision = group.round(1_000)
    assert (decision.plan.of("a"), decision.again_at_ms) == (frozenset(), SETTINGS.grace_ms)
    assert group.round(SETTINGS.grace_ms - 2_000).plan.of("a") == tasks(4)
    group.wanted = tasks(6)
    assert group.round().plan.of("a") == tasks(6), "nobody is suspected for ever"


def test_the_next_leader_waits_for_what_is_wanted_only_later_too() -> None:
    group = fresh()
    group.wanted = frozenset()
    plan = group.round(1_000, is_first=True).plan
    group.placement = Placement(SETTINGS)
    group.placement.learn(plan, ["a"])
    group.wanted = tasks(4)
    assert group.round(1_000).again_at_ms == group.now_ms + SETTINGS.grace_ms
    assert not group.holds["a"]
    assert group.round(SETTINGS.grace_ms).plan.of("a") == tasks(4)


def test_a_longer_wait_is_not_cut_short_by_another_one() -> None:
    group = over_and_back(3)
    begun_ms = group.now_ms
    long_ms = SETTINGS.grace_ms + SETTINGS.lease_ms
    assert group.round(round_ms=SETTINGS.rebalance_timeout_ms).again_at_ms == begun_ms + long_ms
    group.generation += 2
    assert group.round(1_000).again_at_ms == begun_ms + long_ms
    group.generation += 1  # of nobody
    group.holds, group.urls, group.gone = {"a3": frozenset()}, {"a3": "a"}, frozenset({"a", "a2"})
    group.wanted = tasks(6)
    assert group.round(SETTINGS.grace_ms).again_at_ms == begun_ms + long_ms
    assert not group.holds["a3"]


def test_who_looked_long_enough_ago_begins_at_once() -> None:
    group = fresh()
    group.said_to_run = tasks(1)  # by somebody who was removed before
    assert group.round(SETTINGS.grace_ms, is_first=True).plan.of("a") == tasks(4)


def test_the_first_round_of_a_group_waits_for_nobody() -> None:
    assert fresh(generation=1).round(is_first=True).plan.of("a") == tasks(4)


def test_who_could_not_look_waits_in_a_group_that_has_had_rounds() -> None:
    """Whatever a life alone tells: who came after it cannot be seen."""
    group = Group("a")
    group.placement = Placement(SETTINGS, [AloneIn(generation=5, overall=9)])
    group.wanted, group.generation = tasks(4), 6
    assert not group.round(is_first=True).plan.assigned
    assert group.round(SETTINGS.grace_ms).plan.of("a") == tasks(4)


def test_who_follows_a_life_that_was_alone_begins_at_once() -> None:
    """One round ago the group had nobody: that counts as one."""
    alone = (AloneIn(generation=2, overall=2), AloneIn(generation=5, overall=9))
    assert fresh(alone=alone).round(is_first=True).plan.of("a") == tasks(4)


@pytest.mark.parametrize("generation", [6, 8, 9])
def test_another_round_may_have_been_somebodys(generation: int) -> None:
    group = fresh(generation=generation, alone=(AloneIn(generation=5, overall=9),))
    assert not group.round(is_first=True).plan.of("a")


def test_who_follows_a_life_that_was_alone_waits_for_whatever_was_begun_later() -> None:
    group = fresh(alone=(AloneIn(generation=5, overall=9),))
    group.generation_heard = 10
    assert not group.round(is_first=True).plan.of("a")
    group = fresh("m", alone=(AloneIn(generation=5, overall=9),))
    assert not group.round(is_first=True).plan.of("a")


def test_a_leader_that_was_in_rounds_it_knows_nothing_of_waits() -> None:
    group = fresh()
    assert not group.round().plan.assigned
    assert group.round(SETTINGS.grace_ms).plan.of("a") == tasks(4)


def test_a_leader_whose_first_round_took_a_lease_waits() -> None:
    """Somebody may have come after its look, have been given work, and be missing since."""
    group = fresh()
    assert not group.round(SETTINGS.lease_ms, is_first=True).plan.assigned


def over_and_back(unknown: int) -> Group:
    """A worker that was alone, and is back under another name after rounds that it knows nothing of."""
    group = Group("a")
    group.wanted = tasks(4)
    group.settle()
    group.holds, group.urls, group.gone = {"a2": frozenset()}, {"a2": "a"}, frozenset({"a"})
    group.generation += unknown
    return group


def test_after_a_round_of_nobody_what_is_over_may_be_had_again_at_once() -> None:
    assert over_and_back(1).round().plan.of("a2") == tasks(4)


def test_what_is_said_to_run_is_waited_for_even_after_a_round_of_nobody() -> None:
    group = over_and_back(1)
    group.said_to_run = tasks(1)
    assert group.round().plan.of("a2") == tasks(4) - tasks(1)
    assert group.round(SETTINGS.grace_ms).plan.of("a2") == tasks(4)


def test_after_more_rounds_than_one_somebody_may_have_been_given_what_is_over() -> None:
    """And have started it without a word in the status topic: nothing is said before a task has started."""
    group = over_and_back(3)
    assert not group.round().plan.of("a2")
    assert group.round(SETTINGS.grace_ms).plan.of("a2") == tasks(4)


def test_a_group_that_has_begun_anew_may_have_had_any_number_of_rounds() -> None:
    group = over_and_back(1)
    group.generation = 0
    assert group.round().again_at_ms == SETTINGS.grace_ms + SETTINGS.lease_ms
    assert not group.holds["a2"]


def test_a_round_that_the_status_topic_tells_of_was_not_of_nobody() -> None:
    group = over_and_back(1)
    group.generation_heard = group.generation + 1  # this leader's own plan goes on above it
    assert not group.round().plan.of("a2")
    assert group.round(SETTINGS.grace_ms).plan.of("a2") == tasks(4)


def test_a_round_in_which_somebody_was_who_is_there_was_not_of_nobody() -> None:
    group = Group("a", "b", "c")
    group.wanted = tasks(2)
    before = group.settle()
    idle = next(name for name in "abc" if not before.of(name))  # it was there, and was given nothing
    group.holds, group.gone = {idle: frozenset()}, frozenset("abc") - {idle}
    group.generation += 1
    assert not group.round().plan.of(idle)
    assert group.round(SETTINGS.grace_ms).plan.of(idle) == tasks(2)


def test_what_still_runs_from_before_a_lease_was_over_may_have_been_given_to_somebody_since() -> None:
    group = over_and_back(3)
    group.holds, group.stale, group.gone = {"a2": tasks(4)}, tasks(4), frozenset()
    assert not group.round().plan.of("a2")
    group.stale, group.gone = frozenset(), frozenset({"a"})  # and that it has ended now says nothing of anybody else's
    assert not group.round().plan.of("a2")
    assert group.round(SETTINGS.grace_ms).plan.of("a2") == tasks(4)


def test_what_is_wanted_only_now_may_have_been_given_to_somebody_in_a_round_unknown_here() -> None:
    group = over_and_back(3)
    group.wanted = tasks(6)
    assert not group.round().plan.of("a2")
    assert group.round(SETTINGS.grace_ms).plan.of("a2") == tasks(6)


def test_what_one_has_let_go_in_a_round_that_nobody_knows_of_may_be_somebodys() -> None:
    """It was in that round, without its tasks, and has not heard who was given them."""
    for said_to_run in (tasks(4), tasks(0)):
        group = Group("a")
        group.wanted = tasks(4)
        group.settle()
        group.holds["a"] = frozenset()
        group.generation += 1
        group.said_to_run = said_to_run
        assert not group.round().plan.of("a")
        assert group.round(SETTINGS.grace_ms).plan.of("a") == tasks(4)


def test_who_was_waited_for_before_may_have_been_waited_for_long_enough_by_another_leader() -> None:
    """Who has given what it did to somebody in a round unknown here."""
    group = Group("a", "b")
    group.wanted = tasks(4)
    lost = group.settle().of("b")
    del group.holds["b"]
    group.round()
    group.generation += 2
    assert not lost & group.round(SETTINGS.grace_ms).plan.of("a")
    assert lost <= group.round(SETTINGS.grace_ms).plan.of("a")


def test_what_is_suspected_later_is_waited_for_as_long() -> None:
    group = Group("a")
    group.wanted = tasks(4)
    group.generation = 1
    group.said_to_run = tasks(1)
    assert group.round().again_at_ms == SETTINGS.grace_ms
    group.generation += 1
    group.said_to_run = tasks(2)
    group.holds["a"] -= tasks(2)
    assert group.round(SETTINGS.grace_ms - 1).again_at_ms == 2 * SETTINGS.grace_ms - 1


def test_a_first_worker_begins_at_once() -> None:
    group = Group("a")
    group.wanted = tasks(4)
    decision = group.round()
    assert (decision.plan.of("a"), decision.again_at_ms) == (tasks(4), None)


def test_a_leader_that_has_read_less_than_others_changes_nothing() -> None:
    group = Group("a", "b")
    group.wanted = tasks(4)
    group.settle()
    before = dict(group.holds)
    group.wanted = tasks(1)
    group.behind["leader"] = 9
    assert group.round().again_at_ms == SETTINGS.behind_ms
    assert group.holds == before


def test_a_plan_is_told_by_names() -> None:
    holder = Holder("a", "a:1")
    assert Plan(assigned={Instance("c", 0): holder}).of("a") == tasks(1)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_order_of_comings_and_goings_ends_even_and_complete(data: st.DataObject) -> None:
    group = Group("a")
    for number in range(data.draw(st.integers(1, 6))):
        what = data.draw(st.sampled_from(["come", "go", "want"]))
        if what == "come":
            group.holds[f"w{number}"], group.urls[f"w{number}"] = frozenset(), f"w{number}"
        elif what == "go" and len(group.holds) > 1:
            del group.holds[data.draw(st.sampled_from(sorted(group.holds)))]
        else:
            group.wanted = tasks(data.draw(st.integers(0, 9)), data.draw(st.sampled_from("cd")))
        decision = group.round(data.draw(st.integers(0, 6_000)))
        given_out = [each for name in group.holds for each in decision.plan.of(name)]
        assert len(given_out) == len(set(given_out))
    group.now_ms += SETTINGS.grace_ms + SETTINGS.lease_ms
    group.settle()
    assert frozenset().union(*group.holds.values()) == group.wanted
    assert max(group.counts()) - min(group.counts()) <= 1
