"""Evening out: few moves, racks kept, whoever leaves holds nothing"""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.core.client.balance import Holdings, Place, plan


def cluster(racks: dict[int, str | None], *replicas: tuple[int, ...], fenced: frozenset[int] = frozenset()) -> Holdings:
    return Holdings(
        racks=racks, away=fenced, replicas={Place("t", number): nodes for number, nodes in enumerate(replicas)}
    )


def no_racks(*nodes: int) -> dict[int, str | None]:
    return dict.fromkeys(nodes)


def test_what_is_even_stays() -> None:
    assert plan(cluster(no_racks(1, 2, 3), (1, 2), (2, 3), (3, 1))).moves == ()


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    pairs = [(1, 2), (2, 3), (3, 1)] * 4
    made = plan(cluster(no_racks(1, 2, 3, 4), *pairs))
    assert made.replicas_after == {1: 6, 2: 6, 3: 6, 4: 6}
    assert made.leaders_after == {1: 3, 2: 3, 3: 3, 4: 3}
    assert made.copies == 6
    assert all(set(move.after) - set(move.before) <= {4} for move in made.moves)


def test_a_broker_that_leaves_gives_all_and_the_others_give_nothing() -> None:
    triples = [(1, 2, 3), (2, 3, 4), (3, 4, 1), (4, 1, 2)]
    made = plan(cluster(no_racks(1, 2, 3, 4), *triples), leaving=(4,))
    assert (made.replicas_before[4], made.replicas_after) == (3, {1: 4, 2: 4, 3: 4})
    assert made.copies == 3
    assert 4 not in {node for move in made.moves for node in move.after}


def test_a_broker_that_was_forgotten_is_replaced_and_one_that_is_away_is_not() -> None:
    made = plan(cluster(no_racks(1, 2, 3), (1, 9), (2, 3)))
    assert [(move.before, set(move.after)) for move in made.moves if move.copies] == [((1, 9), {1, 2})]
    assert plan(cluster(no_racks(1, 2, 3), (1, 3), (2, 1), fenced=frozenset({3}))).copies == 0


def test_racks_are_respected() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "b", 3: "a", 4: "b"}
    made = plan(cluster(racks, *[(1, 2)] * 8))
    assert made.replicas_after == {1: 4, 2: 4, 3: 4, 4: 4}
    assert all({racks[node] for node in move.after} == {"a", "b"} for move in made.moves)


def test_leaders_are_evened_by_order_alone() -> None:
    made = plan(cluster(no_racks(1, 2, 3), (1, 2), (1, 2), (2, 3), (2, 3), (3, 1), (1, 3)))
    assert made.copies == 0
    assert made.leaders_after == {1: 2, 2: 2, 3: 2}


def test_nobody_there_and_partitions_on_their_way() -> None:
    assert plan(cluster(no_racks(1, 2), (1, 2), (1, 2), fenced=frozenset({1, 2}))).moves == ()
    assert plan(cluster(no_racks(1, 2, 3))).moves == ()
    assert plan(cluster(no_racks(1, 2), (1, 2)), leaving=(2,)).moves == (), "nobody else could take it"


def test_what_nobody_who_runs_has_stays() -> None:
    """There is nothing to copy from, so a move would never end."""
    held = cluster(no_racks(1, 2, 3), (1,), (9,), (1, 2), fenced=frozenset({1}))
    made = plan(held, leaving=(1,))
    assert [(each.partition, each.after) for each in made.moves] == [(2, (3, 2))]


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 6), st.integers(1, 3), st.integers(1, 24), st.data())
def test_any_cluster_becomes_even(brokers: int, factor: int, count: int, data: st.DataObject) -> None:
    nodes = list(range(1, brokers + 1))
    replicas = [tuple(data.draw(st.permutations(nodes))[:factor]) for _ in range(count)]
    made = plan(cluster(dict.fromkeys(nodes), *replicas))
    after = dict(enumerate(replicas))
    for move in made.moves:
        assert after[move.partition] == move.before
        after[move.partition] = move.after
    assert all(len(set(nodes)) == factor for nodes in after.values())
    assert max(made.replicas_after.values()) - min(made.replicas_after.values()) <= 1
    before = Counter(dict.fromkeys(nodes, 0))
    before.update(node for each in replicas for node in each)
    gained = sum(max(0, made.replicas_after[node] - before[node]) for node in nodes)
    assert made.copies == gained if factor == 1 else made.copies >= gained
    assert plan(cluster(dict.fromkeys(nodes), *(after[number] for number in range(count)))).moves == ()
