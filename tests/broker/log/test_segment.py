"""A segment file with its indexes, on a real disk"""

import errno
from pathlib import Path

import pytest

from tests.broker.log.log_world import NOW_MS, batch
from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.index import OffsetIndex, TimeIndex
from tidemill.broker.log.segment import DELETED_SUFFIX, Segment, segment_name
from tidemill.core.errors import CorruptMessage
from tidemill.core.records.batch import BatchView, iter_batches, stamp
from tidemill.core.runtime.disk import OsDirectory, OsFile

BASE = 1000


def fill(segment: Segment, count: int, value_bytes: int = 300, index_interval_bytes: int = 1000) -> list[bytes]:
    """Append batches of two records each."""
    written = []
    for number in range(count):
        data = bytearray(batch(2, value_bytes=value_bytes, timestamp=NOW_MS + 10 * number))
        stamp(data, 0, BASE + 2 * number, 0)
        segment.append(data, NOW_MS + 10 * number + 1, BASE + 2 * number + 1, index_interval_bytes)
        written.append(bytes(data))
    return written


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    return Segment.create(OsDirectory(tmp_path), BASE)


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


def test_index_files_are_brought_up_to_date_and_read_again(segment: Segment) -> None:
    fill(segment, 30)
    segment.take_index_writes()()
    assert segment.index_is_written
    first = segment.directory.read(segment_name(BASE, ".index"))
    assert len(first) % 8 == 0
    assert len(first) > 40
    fill_more = Segment.open(segment.directory, BASE)
    assert fill_more.index.to_bytes() == first
    segment.seal()
    segment.take_index_writes()()
    times = TimeIndex.from_bytes(segment.directory.read(segment_name(BASE, ".timeindex")))
    assert times.last == (NOW_MS + 291, 59)
    reopened = Segment.open(segment.directory, BASE)
    assert reopened.latest == (NOW_MS + 291, BASE + 59)
    assert reopened._index is None, "the newest time does not need the whole index"


def test_index_entries_stand_on_batches(segment: Segment) -> None:
    fill(segment, 30)
    index = OffsetIndex.from_bytes(segment.index.to_bytes(), segment.size_bytes)
    position = -1
    while (found := index.boundary_above(position)) is not None:
        view = BatchView(segment.file.read_at(found, 2000))
        assert index.last_offset_at(found) == view.last_offset - BASE
        assert found - max(position, 0) > 1000
        position = found


def test_index_files_are_written_from_the_start_after_a_failure() -> None:
    disk = SimulatedDisk()
    segment = Segment.create(disk.root, BASE)
    fill(segment, 20)
    segment.take_index_writes()()
    fill_bytes = segment.directory.read(segment_name(BASE, ".index"))
    more = bytearray(batch(2, value_bytes=3000))
    stamp(more, 0, BASE + 40, 0)
    segment.append(more, NOW_MS + 500, BASE + 41, 1000)
    disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(OSError) as raised:
        segment.take_index_writes()()
    assert raised.value.errno == errno.ENOSPC
    assert not segment.index_is_written
    disk.capacity_bytes = None
    segment.take_index_writes()()
    assert segment.directory.read(segment_name(BASE, ".index")) == segment.index.to_bytes()
    assert segment.index.to_bytes().startswith(fill_bytes)


def test_a_failed_append_leaves_the_file_as_it_was() -> None:
    disk = SimulatedDisk()
    segment = Segment.create(disk.root, BASE)
    fill(segment, 2)
    size = segment.size_bytes
    disk.capacity_bytes = disk.used_bytes() + 100
    with pytest.raises(OSError):
        fill(segment, 1)
    assert (segment.size_bytes, segment.file.size(), segment.next_offset) == (size, size, BASE + 4)


def test_found_bytes_are_checked_once_and_a_read_ends_before_damage(segment: Segment) -> None:
    written = fill(segment, 12)
    segment.take_index_writes()()
    size = len(written[0])
    segment.file.write_at(5 * size + 100, b"\x00\xff\x00\xff")
    found = Segment.open(segment.directory, BASE)
    assert bytes(found.read(BASE, 10**6, found.size_bytes)) == b"".join(written[:5])
    with pytest.raises(CorruptMessage):
        found.read(BASE + 10, 10**6, found.size_bytes)
    assert bytes(found.read(BASE + 12, 10**6, found.size_bytes)) == b"".join(written[6:])
    assert [(damage.position, damage.end, damage.next_offset) for damage in found.damaged] == [
        (5 * size, 6 * size, BASE + 12)
    ]
    assert [header.base_offset for _, header in found.batches()] == [
        BASE + 2 * number for number in range(12) if number != 5
    ]


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


def test_what_fits(segment: Segment) -> None:
    fill(segment, 3)
    room = segment.size_bytes + 500
    assert segment.fits(500, BASE + 6, room, 10**6)
    assert not segment.fits(501, BASE + 6, room, 10**6)
    assert not segment.fits(1, BASE + 2**31, room, 10**6)
    assert not segment.fits(1, BASE + 6, room, 0)


def test_deleted_files_are_renamed_first_and_removed_later(segment: Segment) -> None:
    fill(segment, 3)
    segment.mark_deleted()
    assert all(name.endswith(DELETED_SUFFIX) for name in segment.directory.list())
    segment.remove_deleted()
    assert segment.directory.list() == []


def test_a_segment_without_timestamps_is_as_old_as_its_file(segment: Segment, tmp_path: Path) -> None:
    data = bytearray(batch(1, timestamp=-1))
    segment.append(data, -1, BASE, 1000)
    modified = (tmp_path / segment_name(BASE)).stat().st_mtime_ns // 1_000_000
    assert segment.newest_ms() == modified
    fill(segment, 1)
    assert segment.newest_ms() == NOW_MS + 1
