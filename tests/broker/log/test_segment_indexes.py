"""The indexes of a segment: noted, written behind, read again, believed only as far as they go"""

import errno

import pytest

from tests.broker.log.log_world import NOW_MS, batch
from tests.broker.log.segment_world import BASE, fill
from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.index import IndexDamaged, TimeIndex
from tidemill.broker.log.segment import Segment
from tidemill.broker.log.segment_files import segment_name
from tidemill.broker.log.segment_indexes import SegmentIndexes
from tidemill.core.records.batch import stamp


@pytest.fixture
def segment() -> Segment:
    return Segment.create(SimulatedDisk().root, BASE)


def test_index_files_are_brought_up_to_date_and_read_again(segment: Segment) -> None:
    fill(segment, 30)
    segment.take_index_writes()()
    assert segment.indexes.are_written
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
    assert reopened.indexes.in_memory is None, "the newest time does not need the whole index"


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
    assert not segment.indexes.are_written
    disk.capacity_bytes = None
    segment.take_index_writes()()
    assert segment.directory.read(segment_name(BASE, ".index")) == segment.index.to_bytes()
    assert segment.index.to_bytes().startswith(fill_bytes)


def test_what_was_noted_here_is_no_claim_and_what_a_file_says_is(segment: Segment) -> None:
    fill(segment, 1)
    segment.seal()
    assert segment.indexes.noted_here
    segment.take_index_writes()()
    segment.indexes.forget()
    assert segment.indexes.in_memory is None
    assert (len(segment.index), len(segment.times)) == (0, 1)
    assert segment.indexes.from_files, "the time alone is a claim as well"
    assert not segment.indexes.noted_here


def test_what_is_not_written_yet_is_not_forgotten(segment: Segment) -> None:
    fill(segment, 30)
    segment.indexes.forget()
    assert segment.indexes.in_memory is not None


def test_entries_of_doubtful_batches_go_and_the_files_are_written_anew(segment: Segment) -> None:
    fill(segment, 30)
    segment.take_index_writes()()
    whole = segment.index.to_bytes()
    segment.indexes.keep_below(BASE + 30)
    assert whole.startswith(segment.index.to_bytes())
    assert len(segment.index.to_bytes()) < len(whole)
    segment.take_index_writes()()
    assert segment.directory.read(segment_name(BASE, ".index")) == segment.index.to_bytes()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_file_that_is_missing_or_cannot_be_one_is_refused(segment: Segment, suffix: str) -> None:
    fill(segment, 30)
    segment.take_index_writes()()
    name = segment_name(BASE, suffix)
    segment.directory.open(name).write_at(0, b"\xff" * 24)
    with pytest.raises(IndexDamaged):
        SegmentIndexes(segment.directory, BASE, new=False).load(segment.size_bytes)
    segment.directory.remove(name)
    with pytest.raises(IndexDamaged, match="missing"):
        SegmentIndexes(segment.directory, BASE, new=False).load(segment.size_bytes)


def test_files_of_a_cleaned_segment_have_names_of_their_own_until_it_is_in_place() -> None:
    disk = SimulatedDisk()
    segment = Segment.create_cleaned(disk.root, BASE)
    fill(segment, 30)
    segment.sync_cleaned()
    assert not segment.indexes.are_written
    names = [segment_name(BASE, suffix) for suffix in (".index", ".log", ".timeindex")]
    assert disk.root.list() == [f"{name}.cleaned" for name in names]
    for name in names:
        disk.root.rename(f"{name}.cleaned", name)
    segment.indexes.take_names()
    written = segment.index.to_bytes()
    segment.indexes.forget()
    assert segment.indexes.in_memory is None
    assert segment.index.to_bytes() == written
