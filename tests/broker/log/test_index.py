"""Sparse indexes against a scan of the full list"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.broker.log.index import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    IndexDamaged,
    OffsetIndex,
    TimeIndex,
    without_reserve,
)

pairs = st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), max_size=40)


def summed(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    first, second, out = 0, 0, []
    for a, b in steps:
        first, second = first + a, second + b
        out.append((first, second))
    return out


@given(pairs, st.integers(0, 45_000))
def test_offset_index_searches_like_a_scan(steps: list[tuple[int, int]], wanted: int) -> None:
    entries = summed(steps)
    index = OffsetIndex()
    for offset, position in entries:
        index.append(offset, position)
    assert index.at_or_after(wanted) == next((p for o, p in entries if o >= wanted), None)
    assert index.before(wanted) == max((p for o, p in entries if o < wanted), default=0)
    assert index.boundary_at_or_below(wanted) == max((p for _, p in entries if p <= wanted), default=0)
    assert index.boundary_above(wanted) == min((p for _, p in entries if p > wanted), default=None)
    assert index.last_position == (entries[-1][1] if entries else 0)


@given(pairs, st.integers(0, 45_000))
def test_what_the_offset_index_says_of_itself_goes_by_its_entries(steps: list[tuple[int, int]], cut: int) -> None:
    entries = summed(steps)
    index = OffsetIndex()

    def check(index: OffsetIndex) -> None:
        kept = list(index.entries())
        assert len(index) == len(kept)
        assert index.size_bytes == len(index.to_bytes()) == OFFSET_ENTRY_BYTES * len(kept)
        assert index.last_position == (kept[-1][1] if kept else 0)

    for offset, position in entries:
        index.append(offset, position)
    check(index)
    check(OffsetIndex.from_bytes(index.to_bytes(), 10**6))
    below = index.below(cut)
    assert list(below.entries()) == [(o, p) for o, p in entries if o < cut]
    check(below)
    index.keep_below(cut)
    assert list(index.entries()) == list(below.entries())
    check(index)
    index.append(10**6, 10**6)
    check(index)


@given(pairs, st.integers(0, 45_000))
def test_time_index_searches_like_a_scan(steps: list[tuple[int, int]], wanted: int) -> None:
    entries = summed(steps)
    index = TimeIndex()
    for timestamp, offset in entries:
        index.append_if_later(timestamp, offset)
    assert index.before(wanted) == max((o for t, o in entries if t < wanted), default=0)
    assert index.last == (entries[-1] if entries else None)


def test_time_index_takes_only_later_times() -> None:
    index = TimeIndex()
    for timestamp, offset in ((5, 1), (5, 2), (4, 3), (-1, 4), (6, 5)):
        index.append_if_later(timestamp, offset)
    assert (len(index), index.last) == (2, (6, 5))


@given(pairs)
def test_files_have_kafkas_layout_and_read_back(steps: list[tuple[int, int]]) -> None:
    entries = summed(steps)
    offsets, times = OffsetIndex(), TimeIndex()
    for first, second in entries:
        offsets.append(first, second)
        times.append_if_later(first, second)
    data = offsets.to_bytes()
    assert data == b"".join(o.to_bytes(4, "big") + p.to_bytes(4, "big") for o, p in entries)
    assert times.to_bytes() == b"".join(t.to_bytes(8, "big") + o.to_bytes(4, "big") for t, o in entries)
    assert OffsetIndex.from_bytes(data, 10**6).to_bytes() == data
    assert TimeIndex.from_bytes(times.to_bytes()).to_bytes() == times.to_bytes()
    first_unwritten = len(entries) // 2
    assert offsets.to_bytes(first_unwritten) == data[8 * first_unwritten :]
    assert times.to_bytes(first_unwritten) == times.to_bytes()[12 * first_unwritten :]


@pytest.mark.parametrize(
    "data",
    [
        bytes(7),
        bytes(16),
        (5).to_bytes(4, "big") + (9).to_bytes(4, "big") + (5).to_bytes(4, "big") + (10).to_bytes(4, "big"),
        (5).to_bytes(4, "big") + (9).to_bytes(4, "big") + (6).to_bytes(4, "big") + (8).to_bytes(4, "big"),
        (5).to_bytes(4, "big") + (100).to_bytes(4, "big"),
    ],
)
def test_offset_files_that_cannot_be_are_refused(data: bytes) -> None:
    with pytest.raises(IndexDamaged):
        OffsetIndex.from_bytes(data, log_bytes=100)


@pytest.mark.parametrize("data", [bytes(11), bytes(24), bytes(8) + b"\xff" * 4])
def test_time_files_that_cannot_be_are_refused(data: bytes) -> None:
    with pytest.raises(IndexDamaged):
        TimeIndex.from_bytes(data)


def test_entries_are_those_of_the_file_and_reserved_zeros_are_none() -> None:
    index, times = OffsetIndex(), TimeIndex()
    for number in range(1, 4):
        index.append(10 * number, 100 * number)
        times.append_if_later(1000 * number, 256 * number)  # the last entry ends in a zero of its own
    assert list(index.entries()) == [(10, 100), (20, 200), (30, 300)]
    assert list(times.entries()) == [(1000, 256), (2000, 512), (3000, 768)]
    for data, entry_bytes in ((index.to_bytes(), OFFSET_ENTRY_BYTES), (times.to_bytes(), TIME_ENTRY_BYTES)):
        for reserved in (0, 1, 5, 1000):
            assert without_reserve(data + bytes(entry_bytes * reserved), entry_bytes) == data
    assert without_reserve(bytes(80), OFFSET_ENTRY_BYTES) == b""
    assert without_reserve(b"", OFFSET_ENTRY_BYTES) == b""
