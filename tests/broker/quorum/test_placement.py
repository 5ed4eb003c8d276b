"""New partitions: leaders take turns, replicas are in as many racks as they can be, whoever is away comes last."""

import uuid
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.broker.quorum.image import BrokerImage
from tidemill.broker.quorum.placement import place, striped
from tidemill.core.errors import InvalidReplicationFactor


def brokers(racks: dict[int, str | None], *, fenced: set[int] | frozenset[int] = frozenset()) -> dict[int, BrokerImage]:
    return {
        node: BrokerImage(
            node_id=node,
            epoch=1,
            incarnation_id=uuid.UUID(int=node),
            end_points=(),
            rack=rack,
            fenced=node in fenced,
        )
        for node, rack in racks.items()
    }


def test_racks_take_turns() -> None:
    assert striped({1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: None}) == [6, 1, 3, 5, 2, 4]


def test_replicas_are_in_racks_of_their_own() -> None:
    nodes = brokers({1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"})
    placed = place(nodes, uuid.UUID(int=4), first=0, count=30, factor=3)
    assert all({nodes[node].rack for node in replicas} == {"a", "b", "c"} for replicas in placed)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {5}
    assert max(Counter(node for each in placed for node in each).values()) <= 18


def test_what_one_broker_leads_is_followed_by_all_others() -> None:
    placed = place(brokers(dict.fromkeys((1, 2, 3, 4))), uuid.UUID(int=4), first=0, count=12, factor=2)
    assert len(set(placed)) == 12


def test_whoever_is_away_comes_last_and_never_leads() -> None:
    nodes = brokers({1: "a", 2: "b", 3: "c"}, fenced={2})
    placed = place(nodes, uuid.UUID(int=4), first=0, count=6, factor=3)
    assert {replicas[2] for replicas in placed} == {2}
    assert {replicas[:2] for replicas in placed} == {(1, 3), (3, 1)}
    assert 2 not in {node for each in place(nodes, uuid.UUID(int=4), first=0, count=6, factor=2) for node in each}


@pytest.mark.parametrize(("factor", "fenced"), [(0, set[int]()), (4, set[int]()), (1, {1, 2, 3})])
def test_more_than_there_are(factor: int, fenced: set[int]) -> None:
    with pytest.raises(InvalidReplicationFactor):
        place(brokers(dict.fromkeys((1, 2, 3)), fenced=fenced), uuid.UUID(int=4), first=0, count=1, factor=factor)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.integers(0, 20), st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=9),
    st.uuids(),
    st.data(),
)
def test_any_cluster(racks: dict[int, str | None], topic_id: uuid.UUID, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    count = data.draw(st.integers(1, 40))
    placed = place(brokers(racks), topic_id, first=0, count=count, factor=factor)
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({racks[node] for node in replicas}) == min(factor, len(set(racks.values())))
    led = Counter(dict.fromkeys(racks, 0)) + Counter()
    led.update(replicas[0] for replicas in placed)
    every = [led[node] for node in racks]
    assert max(every) - min(every) <= 1
    first = data.draw(st.integers(0, count - 1))
    assert place(brokers(racks), topic_id, first=first, count=count - first, factor=factor) == placed[first:]


def test_the_next_topics_begin_elsewhere() -> None:
    first = [
        place(brokers(dict.fromkeys((1, 2, 3))), uuid.UUID(int=n), first=0, count=1, factor=1)[0] for n in range(6)
    ]
    assert all(one != other for one, other in pairwise(first))
