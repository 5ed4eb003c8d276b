"""A segment file with its indexes, on a real disk"""

from pathlib import Path

import pytest

from tests.broker.log.segment_world import BASE, fill
from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.index import OffsetIndex
from tidemill.broker.log.segment import RECENT_MAX, Segment
from tidemill.core.errors import CorruptMessage
from tidemill.core.records.batch import HEADER_BYTES, BatchView, iter_batches
from tidemill.core.runtime.disk import OsDirectory, OsFile


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    return Segment.create(OsDirectory(tmp_path), BASE)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each read of a file asks for."""
    asked: list[int] = []
    read_at = OsFile.read_at

    def counting(file: OsFile, position: int, size_bytes: int) -> bytes:
        asked.append(size_bytes)
        return read_at(file, position, size_bytes)

    monkeypatch.setattr(OsFile, "read_at", counting)
    return asked


def test_every_offset_is_found_and_reads_are_cut_between_batches(segment: Segment) -> None:
    written = fill(segment, 40)
    size = len(written[0])
    for offset in range(BASE, BASE + 80):
        number = (offset - BASE) // 2
        assert bytes(segment.read(offset, 1, segment.size_bytes)) == written[number]
        for max_bytes in (size, 3 * size - 1, 9 * size + 7, 10**6):
            data = bytes(segment.read(offset, max_bytes, segment.size_bytes))
            whole = list(iter_batches(data))
            assert sum(view.size_bytes for view in whole) == len(data) <= max(max_bytes, size)
            assert whole[0].base_offset == BASE + 2 * number
    assert segment.read(BASE + 80, 10**6, segment.size_bytes) == b""
    assert segment.read(BASE, size - 1, segment.size_bytes, at_least_one=False) == b""


def test_a_read_does_not_pass_the_position_it_is_given(segment: Segment) -> None:
    written = fill(segment, 10)
    size = len(written[0])
    assert bytes(segment.read(BASE, 10**6, 4 * size)) == b"".join(written[:4])
    assert segment.read(BASE + 8, 10**6, 4 * size) == b""


def test_large_reads_come_from_a_map_and_stay_valid_when_the_file_is_closed(segment: Segment) -> None:
    written = fill(segment, 10, value_bytes=50_000)
    data = segment.read(BASE, 10**9, segment.size_bytes)
    assert isinstance(data, memoryview)
    segment.close()
    assert bytes(data) == b"".join(written)


def test_index_entries_stand_on_batches(segment: Segment) -> None:
    fill(segment, 30)
    index = OffsetIndex.from_bytes(segment.index.to_bytes(), segment.size_bytes)
    position = -1
    while (found := index.boundary_above(position)) is not None:
        view = BatchView(segment.file.read_at(found, 2000))
        assert index.last_offset_at(found) == view.last_offset - BASE
        assert found - max(position, 0) > 1000
        position = found


def test_only_the_batches_appended_last_are_found_without_reading(segment: Segment, read: list[int]) -> None:
    batches = 10 * RECENT_MAX
    written = fill(segment, batches)
    unread = []
    for number in range(batches):
        read.clear()
        assert segment.position_of(BASE + 2 * number) == sum(map(len, written[:number]))
        if not read:
            unread.append(number)
    assert RECENT_MAX <= len(unread) <= 2 * RECENT_MAX
    assert unread == list(range(batches - len(unread), batches))


def test_a_failed_append_leaves_the_file_as_it_was() -> None:
    disk = SimulatedDisk()
    segment = Segment.create(disk.root, BASE)
    fill(segment, 2)
    size = segment.size_bytes
    disk.capacity_bytes = disk.used_bytes() + 100
    with pytest.raises(OSError):
        fill(segment, 1)
    assert (segment.size_bytes, segment.file.size(), segment.next_offset) == (size, size, BASE + 4)


def test_bytes_that_come_from_the_disk_again_are_checked_again(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = fill(segment, 12)
    size = len(written[0])
    assert bytes(segment.read(BASE, 10**6, segment.size_bytes)) == b"".join(written)
    flipped = written[5][100] ^ 1
    segment.file.write_at(5 * size + 100, bytes([flipped]))
    monkeypatch.setattr(OsFile, "is_cached", lambda *_: False)
    assert segment.cold_range(BASE + 10, size) == (5 * size, size)
    with pytest.raises(CorruptMessage):
        segment.read(BASE + 10, size, segment.size_bytes)
    assert bytes(segment.read(BASE, 10**6, segment.size_bytes)) == b"".join(written[:5])
    assert bytes(segment.read(BASE + 12, 10**6, segment.size_bytes)) == b"".join(written[6:])


def test_what_was_appended_last_is_found_without_a_walk_over_what_is_before_it(
    segment: Segment, read: list[int]
) -> None:
    written = fill(segment, 200)  # an index entry for every few of them
    for number in range(200 - RECENT_MAX, 200):
        read.clear()
        assert bytes(segment.read(BASE + 2 * number, 10**6, segment.size_bytes)) == b"".join(written[number:])
        assert read[0] == HEADER_BYTES
        read.clear()
        assert segment.position_of(BASE + 2 * number) == sum(map(len, written[:number]))
        assert read == []
    assert segment.position_of(BASE + 399) == segment.size_bytes - len(written[-1]), "in the middle of a batch"
    assert segment.position_of(BASE + 400) == segment.size_bytes
    segment.seal()
    assert segment.position_of(BASE + 398) == segment.size_bytes - len(written[-1])


def test_what_was_cut_off_is_not_found_any_more(segment: Segment) -> None:
    written = fill(segment, 10)
    end = sum(map(len, written[:4]))
    assert segment.cut(end, BASE + 8).position_of(BASE + 12) == end
    segment.truncate(end)
    assert segment.position_of(BASE + 12) == end


def test_what_fits(segment: Segment) -> None:
    fill(segment, 3)
    room = segment.size_bytes + 500
    assert segment.fits(500, BASE + 6, room, 10**6)
    assert not segment.fits(501, BASE + 6, room, 10**6)
    assert not segment.fits(1, BASE + 2**31, room, 10**6)
    assert not segment.fits(1, BASE + 6, room, 0)
