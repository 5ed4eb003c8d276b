"""Extents against a set of integers"""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.broker.log.extents import Extents

changes = st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(0, 10)), max_size=15)


@given(changes, st.integers(0, 40), st.integers(0, 40))
def test_extents_are_a_set_of_positions(changes: list[tuple[bool, int, int]], start: int, end: int) -> None:
    extents, positions = Extents(), set[int]()
    for added, first, length in changes:
        if added:
            extents.add(first, first + length)
            positions.update(range(first, first + length))
        else:
            extents.remove(first, first + length)
            positions.difference_update(range(first, first + length))
    assert extents.covers(start, end) == (set(range(start, end)) <= positions)
    assert {position for low, high in extents.ranges() for position in range(low, high)} == positions
    assert all(before[1] < after[0] for before, after in zip(extents.ranges(), extents.ranges()[1:], strict=False))
