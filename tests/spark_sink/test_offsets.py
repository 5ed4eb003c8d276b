"""Offset arithmetic: limits, splits, data loss, topics made anew"""

import itertools
import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.spark_sink.core_api import TopicPartition
from tidemill.spark_sink.offsets import (
    DataLoss,
    OffsetRange,
    StreamOffset,
    TopicRecreated,
    backlog_rows,
    checked,
    limited,
    ranges,
    recreated,
    split,
)

A, B = uuid.UUID(int=1), uuid.UUID(int=2)


def at(offsets: dict[str, list[int]], **ids: uuid.UUID) -> StreamOffset:
    """A position, offsets in order of partition."""
    return StreamOffset(
        offsets={TopicPartition(topic, i): each for topic, many in offsets.items() for i, each in enumerate(many)},
        topic_ids=ids,
    )


positions = st.dictionaries(st.sampled_from("tuv"), st.lists(st.integers(0, 10**9), min_size=1, max_size=4), min_size=1)


@given(positions)
def test_json_round_trip(offsets: dict[str, list[int]]) -> None:
    position = at(offsets, t=A)
    tree = json.loads(json.dumps(position.to_json()))
    assert StreamOffset.from_json(tree) == position


def test_json_is_that_of_the_kafka_source_with_ids_beside_it() -> None:
    assert at({"t": [23, 5]}, t=A).to_json() == {"t": {"0": 23, "1": 5}, "#ids": {"t": str(A)}}
    assert StreamOffset.from_json({"t": {"0": 23}}) == at({"t": [23]})


@given(positions, st.integers(1, 1000), st.lists(st.integers(0, 5000), min_size=12, max_size=12))
def test_a_limit_is_kept_starves_nobody_and_moves_on(offsets: dict[str, list[int]], most: int, more: list[int]) -> None:
    start = at(offsets)
    grown = iter(more)
    end = StreamOffset(offsets={place: offset + next(grown) for place, offset in start.offsets.items()})
    step = limited(start, end, most)
    moved = {place: step.offsets[place] - start.offsets[place] for place in start.offsets}
    assert sum(moved.values()) <= most + len(moved)  # a small backlog gets one even where its share is less
    for place, backlog in ((p, end.offsets[p] - start.offsets[p]) for p in start.offsets):
        assert 0 <= moved[place] <= backlog
        assert moved[place] > 0 or backlog == 0
    if backlog_rows(start, end) <= most:
        assert step == end


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**6)), min_size=1, max_size=5), st.integers(1, 40))
def test_split_ranges_cover_the_same_offsets(sizes: list[tuple[int, int]], least: int) -> None:
    whole = [
        OffsetRange(partition=TopicPartition("t", i), start=start, end=start + size, topic_id=A)
        for i, (start, size) in enumerate(sizes)
    ]
    pieces = split(whole, least, max_records=400_000)
    assert all(0 < piece.size <= 400_000 and piece.topic_id == A for piece in pieces)
    for one in whole:
        mine = [piece for piece in pieces if piece.partition == one.partition]
        assert mine[0].start == one.start
        assert mine[-1].end == one.end
        assert all(left.end == right.start for left, right in itertools.pairwise(mine))
    if all(one.size >= least for one in whole):
        assert len(pieces) >= min(least, len(whole)) and len(pieces) >= least - len(whole)


def test_ranges_leave_out_what_is_empty_and_start_new_partitions_at_zero() -> None:
    start, end = at({"t": [5, 7]}, t=A), at({"t": [5, 9, 3]}, t=A)
    assert [(one.partition.partition, one.start, one.end) for one in ranges(start, end)] == [(1, 7, 9), (2, 0, 3)]
    assert {one.topic_id for one in ranges(start, end)} == {A}


def test_a_topic_made_anew_stops_the_stream_or_begins_at_zero() -> None:
    start, end = at({"t": [500]}, t=A), at({"t": [20]}, t=B)
    assert recreated(start, end) == ("t",)
    with pytest.raises(TopicRecreated, match="topic t was deleted and created again"):
        checked(start, end, fail_on_data_loss=True)
    allowed = checked(start, end, fail_on_data_loss=False)
    assert [(one.start, one.end) for one in ranges(start, allowed)] == [(0, 20)]


def test_an_unknown_id_is_no_reason_to_stop() -> None:
    assert recreated(at({"t": [5]}), at({"t": [9]}, t=B)) == ()
    assert recreated(at({"t": [5]}, t=A), at({"t": [9]}, t=uuid.UUID(int=0))) == ()


def test_a_partition_that_went_backwards_or_away_is_data_loss() -> None:
    with pytest.raises(DataLoss, match="t-0 ends at offset 3, before this query's position 5"):
        checked(at({"t": [5]}), at({"t": [3]}), fail_on_data_loss=True)
    with pytest.raises(DataLoss, match="t-1 no longer exists"):
        checked(at({"t": [5, 6]}), at({"t": [5]}), fail_on_data_loss=True)
    assert checked(at({"t": [5, 6]}), at({"t": [3]}), fail_on_data_loss=False) == at({"t": [5]})
