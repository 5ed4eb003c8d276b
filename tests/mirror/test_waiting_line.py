"""The line of partitions: places kept and lost, and that nobody waits for ever."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.core.types import TopicPartition
from tidemill.mirror.waiting_line import WaitingLine

A, B, C = (TopicPartition("t", number) for number in range(3))


def test_who_was_passed_over_comes_back_to_where_it_stood() -> None:
    line = WaitingLine[str]()
    assert not line
    for partition in (A, B, C):
        line.join(partition, "first")
    tickets = {partition: line.leave(partition)[0] for partition in (A, B)}
    line.keep_place(B, tickets[B])
    line.join(A, "again")
    line.join(B, "again")
    assert line.in_order() == [B, C, A]
    line.leave(B)
    line.join(B, "a third time")
    assert line.in_order() == [C, A, B], "a place is kept once"


def test_a_newer_wish_takes_the_older_ones_place() -> None:
    line = WaitingLine[str]()
    line.join(A, "old")
    line.join(B, "b")
    line.join(A, "new")
    assert line.in_order() == [A, B]
    assert line.leave(A)[1] == "new"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 40), st.integers(1, 12), st.integers(1, 4))
def test_nobody_waits_for_ever(seed: int, busy: int, named: int, lanes: int) -> None:
    """Whatever a broker sends, in whatever order of names, as long as the first one named gets its batch."""
    rng = random.Random(seed)
    line = WaitingLine[None]()
    waits = {TopicPartition(f"t{number % 3}", number): 0 for number in range(busy)}
    for partition in waits:
        line.join(partition, None)
    under_way: list[dict[TopicPartition, int]] = []
    for _ in range(200):
        while line and len(under_way) < lanes:
            under_way.append({partition: line.leave(partition)[0] for partition in line.in_order()[:named]})
        request = under_way.pop(0 if rng.random() < 0.7 else rng.randrange(len(under_way)))
        order = list(request)
        if rng.random() < 0.5:  # by topic, the first one's first
            topic = order[0].topic
            order.sort(key=lambda partition: (partition.topic != topic, partition.topic))
        served = set(order[: rng.randint(1, 5)])
        for partition in waits:
            waits[partition] = 0 if partition in served else waits[partition] + 1
        for partition, ticket in request.items():
            if partition not in served:
                line.keep_place(partition, ticket)
            line.join(partition, None)
        under_way_too = {partition for each in under_way for partition in each}
        longest = max((waits[partition] for partition in waits if partition not in under_way_too), default=0)
        assert longest <= lanes * (busy + 1) + 20
