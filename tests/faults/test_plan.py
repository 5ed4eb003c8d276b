"""Plans of faults"""

from itertools import combinations, pairwise

import pytest

from tests.faults.nemesis import cuts_of
from tests.faults.plan import KINDS, NETWORK, SHORT_S, Fault, at_random, each_once

NODES = (1, 2, 3)
SEEDS = range(30)


def test_a_seed_is_a_plan() -> None:
    assert at_random(7, 600, NODES) == at_random(7, 600, NODES)
    assert at_random(7, 600, NODES) != at_random(8, 600, NODES)


def test_no_node_is_harmed_twice_at_once() -> None:
    for seed in SEEDS:
        for one, other in combinations(at_random(seed, 1800, NODES), 2):
            together = one.at < other.at + other.seconds and other.at < one.at + one.seconds
            assert not together or not set(one.nodes) & set(other.nodes), (seed, one, other)


def test_faults_are_over_in_time_and_some_happen_together() -> None:
    together = 0
    for seed in SEEDS:
        plan = at_random(seed, 1800, NODES)
        assert all(each.at > 0 and each.at + each.seconds <= 1800 for each in plan)
        together += sum(later.at < each.at + each.seconds for each, later in pairwise(plan))
    assert together > len(SEEDS)


def test_half_an_hour_has_every_kind() -> None:
    assert {each.kind for seed in range(3) for each in at_random(seed, 1800, NODES)} == set(KINDS)


def test_only_the_kinds_that_are_wanted() -> None:
    assert {each.kind for each in at_random(1, 600, NODES, ["kill", "split"])} == {"kill", "split"}


def test_each_kind_once_and_briefly() -> None:
    plan = each_once(3, NODES)
    assert sorted(each.kind for each in plan) == sorted(KINDS)
    assert all(each.seconds <= SHORT_S for each in plan)
    assert all(each.at + each.seconds < later.at for each, later in pairwise(plan))


@pytest.mark.parametrize(
    ("kind", "nodes", "cuts"),
    [
        ("split", (1, 2), {(1, 2), (2, 1)}),
        ("one-way", (1, 2), {(1, 2)}),
        ("deaf", (1,), {(2, 1), (3, 1), ("clients", 1)}),
        ("mute", (1,), {(1, 2), (1, 3), (1, "clients")}),
        ("unseen", (1,), {("clients", 1), (1, "clients")}),
    ],
)
def test_who_is_not_heard_by_whom(kind: str, nodes: tuple[int, ...], cuts: set[tuple[int | str, int | str]]) -> None:
    assert set(cuts_of(Fault(at=0, kind=kind, nodes=nodes, seconds=1, amount=0), NODES)) == cuts


def test_who_is_cut_off_hears_nobody_and_is_not_heard() -> None:
    cuts = cuts_of(Fault(at=0, kind="cut-off", nodes=(2,), seconds=1, amount=0), NODES)
    assert set(cuts) == {(1, 2), (3, 2), ("clients", 2), (2, 1), (2, 3), (2, "clients")}
    with pytest.raises(ValueError, match="no such fault"):
        cuts_of(Fault(at=0, kind="kill", nodes=(2,), seconds=1, amount=0), NODES)
    assert set(NETWORK) - {"slow", "lossy"} == {"cut-off", "deaf", "mute", "split", "one-way", "unseen"}
