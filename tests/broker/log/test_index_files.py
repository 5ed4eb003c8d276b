"""Index files searched where they lie, against the indexes loaded from them"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim.disk import SimulatedDisk, SimulatedFile
from tidemill.broker.log import index_files
from tidemill.broker.log.index import OffsetIndex, TimeIndex
from tidemill.core.runtime.disk import Directory

STEPS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(61, 300)), max_size=40)


def folder(**files: bytes) -> Directory:
    root = SimulatedDisk().root
    for name, data in files.items():
        root.create(name).write_at(0, data)
    return root


@given(STEPS, st.lists(st.integers(-1, 200), max_size=20))
def test_they_say_what_the_loaded_ones_say(steps: list[tuple[int, int, int]], wanted: list[int]) -> None:
    offsets, times = OffsetIndex(), TimeIndex()
    offset = timestamp = position = 0
    for records, later, size_bytes in steps:
        offset, timestamp, position = offset + records, timestamp + later, position + size_bytes
        offsets.append(offset, position)
        times.append_if_later(timestamp, offset)
    directory = folder(offsets=offsets.to_bytes(), times=times.to_bytes())
    for number in wanted:
        assert index_files.time_before(directory, "times", number) == times.before(number)
        position = offsets.before(max(number, 0))
        expected = (position, offsets.last_offset_at(position)) if position else None
        assert index_files.batch_before(directory, "offsets", max(number, 0)) == expected


def test_a_file_that_is_written_anew_meanwhile_says_less(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets, times = OffsetIndex(), TimeIndex()
    for number in range(1, 9):
        offsets.append(number, 100 * number)
        times.append_if_later(number, number)
    directory = folder(offsets=offsets.to_bytes(3)[:30], times=times.to_bytes()[:30])
    monkeypatch.setattr(SimulatedFile, "size", lambda _file: 8 * 12)  # asked before it was emptied
    assert index_files.time_before(directory, "times", 9) == 2
    assert index_files.batch_before(directory, "offsets", 9) == (600, 6)


def test_files_that_say_nothing_mean_from_the_start() -> None:
    directory = folder(empty=b"", torn=b"\0\0\0")
    for name in ("empty", "torn", "missing"):
        assert index_files.time_before(directory, name, 5) == 0
        assert index_files.batch_before(directory, name, 5) is None
