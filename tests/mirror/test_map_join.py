"""Joining stored segments: in turns, with holes, with what cannot be true."""

from itertools import pairwise

import pytest

from tidemill.mirror.map_join import SEGMENTS_PER_TURN, Damage, MapJoin, join_segments
from tidemill.mirror.offsets import RUNS_PER_SEGMENT, Run


def full(number: int) -> tuple[Run, ...]:
    """A whole segment of a map with a hole behind each record."""
    first = number * RUNS_PER_SEGMENT
    return tuple(Run(2 * index, index) for index in range(first, first + RUNS_PER_SEGMENT))


def test_a_turn_joins_a_bounded_number_of_segments() -> None:
    segments = {number: full(number) for number in range(2 * SEGMENTS_PER_TURN + 1)}
    join = MapJoin(segments)
    sizes = [0]
    while not join.take():
        sizes.append(len(join.offsets))
    sizes.append(len(join.offsets))
    assert [later - sooner for sooner, later in pairwise(sizes)] == [
        SEGMENTS_PER_TURN * RUNS_PER_SEGMENT,
        SEGMENTS_PER_TURN * RUNS_PER_SEGMENT,
        RUNS_PER_SEGMENT,
    ]
    assert join.offsets.runs() == tuple(run for runs in segments.values() for run in runs)
    assert MapJoin({}).take()


def test_neighbours_that_contradict_each_other_are_both_left_out() -> None:
    segments = {0: full(0), 1: full(1), 2: tuple(Run(run.source - 100, run.target) for run in full(2)), 3: full(3)}
    join = MapJoin(segments)
    assert join.take()
    assert join.damage is not None
    assert "segment 2: Run(source=412, target=256) overlaps the run before it, 510 -> 255" in join.damage.what
    assert join.offsets.runs() == full(3)
    assert join.offsets.segment_numbers() == range(3, 4)


def test_targets_that_do_not_grow_are_a_contradiction() -> None:
    join = MapJoin({0: full(0), 1: full(0)})
    assert join.take()
    assert join.damage is not None
    assert "overlaps" in join.damage.what
    assert len(join.offsets) == 0


def test_a_segment_that_cannot_be_read_is_left_out() -> None:
    join = MapJoin({0: full(0), 1: (), 2: (Run(9000, 4000),)})
    assert join.take()
    assert join.damage == Damage(what="segment 1 cannot be read", first_segment=0)
    assert join.offsets.runs() == (Run(9000, 4000),)


def test_joined_at_once_a_contradiction_is_an_error() -> None:
    with pytest.raises(ValueError, match="overlaps"):
        join_segments({0: (Run(0, 0), Run(5, 10))})


def test_behind_a_missing_segment_the_map_begins_anew() -> None:
    full = tuple(Run(2 * index, index) for index in range(RUNS_PER_SEGMENT))
    newest = join_segments({3: full, 5: (Run(9000, 4000),)})
    assert newest.runs() == (Run(9000, 4000),)
    assert newest.segment_numbers() == range(5, 6)
    assert join_segments({}).runs() == ()


def test_what_follows_a_short_segment_is_left_over() -> None:
    assert join_segments({0: (Run(0, 0),), 1: (Run(9, 5),)}).runs() == (Run(0, 0),)


def test_the_segment_that_ends_the_map() -> None:
    def last_of(segments: dict[int, tuple[Run, ...]]) -> int:
        join = MapJoin(segments)
        join.take()
        return join.last_segment

    assert last_of({}) == -1
    assert last_of({3: full(3), 4: full(4)[:5]}) == 4
    assert last_of({3: full(3), 4: full(4)[:5], 5: full(5)}) == 4, "what follows a short one is left over"
    assert last_of({3: full(3), 4: ()}) == -1
