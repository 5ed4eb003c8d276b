"""What a plan costs, what is held back, how far moves have come"""

from dataclasses import replace

import pytest

from tidemill.cluster.moving import (
    LEADER_LIST,
    Situation,
    Throttles,
    broker_rows,
    changed_since,
    incoming_bytes,
    left_out,
    named,
    objections,
    progress,
    still_held,
    throttled_replicas,
)
from tidemill.core.client.balance import Holdings, Move, Place, plan

A, B = Place("t", 0), Place("t", 1)


def situation(
    *replicas: tuple[int, ...], nodes: tuple[int, ...] = (1, 2, 3), free: dict[int, int] | None = None
) -> Situation:
    held = {Place("t", number): each for number, each in enumerate(replicas)}
    return Situation(
        holdings=Holdings(racks=dict.fromkeys(nodes), replicas=held),
        sizes={place: 100 * (place.partition + 1) for place in held},
        free=free or {},
    )


def move(place: Place, before: tuple[int, ...], after: tuple[int, ...]) -> Move:
    return Move(topic=place.topic, partition=place.partition, before=before, after=after)


def test_a_plan_is_told_for_each_broker() -> None:
    found = situation((1, 2), (2, 1), nodes=(1, 2, 3))
    made = plan(found.holdings, leaving=(1,))
    rows = {row.node_id: row for row in broker_rows(found, made)}
    assert (rows[1].replicas, rows[1].leaders, rows[1].size_bytes) == ((2, 0), (1, 0), (300, 0))
    assert (rows[2].replicas, rows[2].incoming_bytes) == ((2, 2), 0)
    assert (rows[3].replicas, rows[3].size_bytes, rows[3].incoming_bytes) == ((0, 2), (0, 300), 300)
    assert rows[2].leaders[1] == rows[3].leaders[1] == 1


def test_brokers_that_get_nothing_because_they_are_fenced_are_told() -> None:
    found = situation((1, 2), (2, 1))
    assert not left_out(found, ())
    found = replace(found, holdings=replace(found.holdings, away=frozenset({3})))
    assert "broker 3" in left_out(found, ()) and "broker 3" in left_out(found, (1,))
    assert not left_out(found, (3,)), "it is to get nothing"
    rows = broker_rows(found, plan(found.holdings))
    assert [row.fenced for row in rows] == [False, False, True]


@pytest.mark.parametrize(
    ("leaving", "free", "sentences"),
    [
        ((), {}, []),
        ((9,), {}, ["there is no broker 9; the brokers are 1, 2, 3"]),
        ((2, 3), {}, ["broker 2 cannot be emptied: t-0, t-1 would have fewer replicas than now"]),
        ((1,), {3: 10}, ["broker 3 would get 300 B and has room for 10 B"]),
        ((1,), {3: 300}, []),
    ],
)
def test_what_cannot_be_carried_out_is_told(
    leaving: tuple[int, ...], free: dict[int, int], sentences: list[str]
) -> None:
    found = situation((1, 2), (2, 1), free=free)
    told = list(objections(found, plan(found.holdings, leaving=leaving), leaving))
    assert len(told) == len(sentences)
    assert all(given.startswith(sentence) for sentence, given in zip(sentences, told, strict=True))


def test_senders_and_fetchers_of_what_is_copied_are_held_back() -> None:
    moves = (move(A, (1, 2), (3, 2)), move(B, (1, 2), (2, 1)))
    assert throttled_replicas(moves) == {
        "t": {
            "leader.replication.throttled.replicas": "0:1,0:2",
            "follower.replication.throttled.replicas": "0:3",
        }
    }
    assert incoming_bytes(moves, {A: 7, B: 9}) == {3: 7}


def test_progress_counts_what_has_come_and_who_is_missing() -> None:
    moves = (move(A, (1, 2), (3, 2)), move(B, (1, 2), (1, 3)))
    sizes = {A: 100, B: 200}
    found = progress(moves, sizes, {B}, {(B, 3): 50}, (1, 2, 3))
    assert (found.moved, found.partitions, found.copied_bytes, found.total_bytes) == (1, 2, 150, 300)
    assert not found.over
    assert progress(moves, sizes, {A, B}, {(B, 3): 999}, (1, 2)).missing == (3,)
    assert progress(moves, sizes, {A, B}, {(B, 3): 999}, (1, 2)).copied_bytes == 200
    assert progress(moves, sizes, set(), {}, (1, 2)).over


def test_many_are_counted() -> None:
    assert named([Place("t", number) for number in range(8)]) == "t-0, t-1, t-2, t-3, t-4 and 3 more"


def test_what_no_running_broker_has_cannot_be_drained() -> None:
    found = situation((1,), (1, 2))
    away = replace(found, holdings=replace(found.holdings, away=frozenset({1})))
    made = plan(away.holdings, leaving=(1,))
    assert [each.partition for each in made.moves] == [1]
    (told,) = objections(away, made, (1,))
    assert told.startswith("broker 1 cannot be emptied: no broker that runs has t-0")


def test_a_plan_is_of_the_cluster_that_it_was_made_for() -> None:
    before = situation((1, 2), (2, 1))
    moves = (move(A, (1, 2), (3, 2)), move(B, (2, 1), (2, 3)))
    assert changed_since(moves, before) == []
    assert changed_since(moves, situation((1, 2), (2, 1, 3))) == [B]
    moving = replace(
        before, holdings=replace(before.holdings, replicas={A: (1, 2)}), ongoing=(move(B, (2, 1), (2, 3)),)
    )
    assert changed_since(moves, moving) == [B]
    assert (still_held(moving, 3), still_held(moving, 1), still_held(moving, 4)) == ([B], [A, B], [])


def test_lists_of_throttled_replicas_are_added_to_and_taken_from() -> None:
    found = Throttles(lists={"t": {LEADER_LIST: "0:1"}, "u": {LEADER_LIST: "*"}})
    assert found.lists_with({"t": {LEADER_LIST: "0:1,1:2"}, "u": {LEADER_LIST: "0:1"}}) == {
        "t": {LEADER_LIST: "0:1,1:2"}
    }
    assert found.lists_without() == {"t": {LEADER_LIST: None}}
    assert (found.of_moves, found.standing) == (True, ["u"])
    assert not Throttles(lists={"u": {LEADER_LIST: "*"}}).of_moves
