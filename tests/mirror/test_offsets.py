"""The offset map against a plain list of surviving records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.mirror.map_join import join_segments
from tidemill.mirror.offsets import OffsetMap, Run

# For each source offset: does it carry a record that survives?
SURVIVORS = st.lists(st.booleans(), max_size=400)


def build(survivors: list[bool]) -> tuple[OffsetMap, list[int]]:
    """The map a mirror would build, and the source offset of every target record."""
    offsets, sources = OffsetMap(), [source for source, survives in enumerate(survivors) if survives]
    for target, source in enumerate(sources):
        if offsets.source_for(target) != source:
            offsets.append(Run(source, target))
    return offsets, sources


@given(SURVIVORS)
def test_both_directions_are_exact(survivors: list[bool]) -> None:
    offsets, sources = build(survivors)
    for target, source in enumerate(sources):
        assert offsets.source_for(target) == source
        assert offsets.target_for(source, len(sources)) == target


@given(SURVIVORS)
def test_translation_is_monotonic_and_skips_nothing(survivors: list[bool]) -> None:
    offsets, sources = build(survivors)
    if not sources:
        assert offsets.target_for(0, 0) is None
        return
    for source in range(len(survivors) + 5):
        # A group at `source` has seen all records below it: it must go on with the first one it has not seen.
        expected = sum(1 for record in sources if record < source)
        assert offsets.target_for(source, len(sources)) == expected


@given(SURVIVORS, st.data())
def test_a_prefix_of_the_target_translates_within_its_log_end(survivors: list[bool], data: st.DataObject) -> None:
    offsets, sources = build(survivors)
    if not sources:
        return
    end = data.draw(st.integers(0, len(sources)))
    source = data.draw(st.integers(0, len(survivors) + 5))
    assert offsets.target_for(source, end) == min(end, sum(1 for record in sources if record < source))


@given(SURVIVORS, st.data())
def test_segments_restore_the_map(survivors: list[bool], data: st.DataObject) -> None:
    offsets, sources = build(survivors)
    start = data.draw(st.integers(0, len(sources)))
    gone = offsets.collect(start)
    segments = {number: offsets.segment(number) for number in offsets.segment_numbers()}
    assert not set(gone) & set(segments)
    restored = join_segments(segments)
    assert restored.runs() == offsets.runs()
    assert restored.segment_numbers() == offsets.segment_numbers()
    for target in range(start, len(sources)):
        assert restored.source_for(target) == sources[target]


def test_runs_written_ahead_are_replaced() -> None:
    offsets = OffsetMap([Run(0, 0), Run(11, 10), Run(31, 29)])
    assert offsets.source_for(20) == 21
    assert offsets.target_for(31, 20) == 20, "a run beyond the log end does not count"
    offsets.append(Run(25, 20))
    assert offsets.runs() == (Run(0, 0), Run(11, 10), Run(25, 20))
    offsets.append(Run(26, 20))
    assert offsets.runs()[-1] == Run(26, 20)


def test_an_overlapping_run_is_refused() -> None:
    with pytest.raises(ValueError, match="overlaps"):
        OffsetMap([Run(0, 0), Run(5, 10)])


def test_before_the_map() -> None:
    offsets = OffsetMap([Run(100, 0)])
    assert offsets.source_for(-1) is None
    assert offsets.target_for(5, 50) == 0
    assert OffsetMap().source_for(0) is None


def test_runs_that_begin_behind_a_target_offset_can_be_dropped() -> None:
    offsets = OffsetMap([Run(0, 0), Run(5, 2), Run(9, 4), Run(20, 7)], segment_runs=2)
    assert offsets.drop_behind(4) == 1
    assert offsets.runs() == (Run(0, 0), Run(5, 2), Run(9, 4))
    assert offsets.drop_behind(3) == 0
    assert offsets.source_for(4) == 7
