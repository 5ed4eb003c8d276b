"""The age of a segment: read in another thread, proven before anything is done about it"""

from pathlib import Path

import pytest

from tests.broker.log.log_world import NOW_MS, batch
from tests.broker.log.segment_world import BASE, fill
from tidemill.broker.log.segment import Segment
from tidemill.broker.log.segment_age import age_in_memory, age_on_disk, newest_of, prove_latest, take_over_age
from tidemill.broker.log.segment_files import segment_name
from tidemill.core.records.batch import stamp
from tidemill.core.runtime.disk import OsDirectory


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    return Segment.create(OsDirectory(tmp_path), BASE)


def sealed(segment: Segment, count: int) -> Segment:
    """The segment as a later start finds it, nothing of it read."""
    fill(segment, count)
    segment.seal()
    segment.take_index_writes()()
    found = Segment.open(segment.directory, BASE)
    found.next_offset = segment.next_offset
    return found


def test_a_segment_without_timestamps_is_as_old_as_its_file(segment: Segment, tmp_path: Path) -> None:
    data = bytearray(batch(1, timestamp=-1))
    stamp(data, 0, BASE, 0)
    segment.append(data, -1, BASE, 1000)
    modified = (tmp_path / segment_name(BASE)).stat().st_mtime_ns // 1_000_000
    assert newest_of(segment) == modified
    assert age_in_memory(segment) is None
    take_over_age(segment, age_on_disk(segment, lambda _: True)())
    age = age_in_memory(segment)
    assert age is not None
    assert (age.newest_ms, age.proven) == (modified, True)
    fill(segment, 1)
    assert newest_of(segment) == NOW_MS + 1


def test_an_empty_segment_has_no_age(segment: Segment) -> None:
    assert newest_of(segment) == 0
    age = age_in_memory(segment)
    assert age is not None
    assert (age.newest_ms, age.proven) == (0, True)


def test_what_this_process_has_appended_needs_no_reading(segment: Segment) -> None:
    fill(segment, 3)
    age = age_in_memory(segment)
    assert age is not None
    assert (age.newest_ms, age.proven) == (NOW_MS + 21, True)


@pytest.mark.parametrize("count", [1, 30])
def test_a_sound_file_is_proven_by_one_batch_and_only_where_it_matters(segment: Segment, count: int) -> None:
    found = sealed(segment, count)
    assert age_in_memory(found) is None
    take_over_age(found, age_on_disk(found, lambda _: False)())
    age = age_in_memory(found)
    assert age is not None
    assert (age.newest_ms, age.proven) == (NOW_MS + 10 * count - 9, False)
    take_over_age(found, age_on_disk(found, lambda newest_ms: newest_ms == age.newest_ms)())
    proven = age_in_memory(found)
    assert proven is not None
    assert (proven.newest_ms, proven.proven) == (age.newest_ms, True)
    assert found.indexes.in_memory is None, "the event loop holds no index for it"


@pytest.mark.parametrize("count", [1, 30])
@pytest.mark.parametrize("byte", range(12))
@pytest.mark.parametrize("read_before", [False, True])
def test_a_flipped_bit_makes_no_segment_older_or_younger(
    segment: Segment, count: int, byte: int, read_before: bool
) -> None:
    found = sealed(segment, count)
    name = segment_name(BASE, ".timeindex")
    data = bytearray(segment.directory.read(name))
    data[byte - 12] ^= 1 << 7 - byte % 4
    segment.directory.open(name).write_at(0, data)
    if read_before:
        assert found.times is not None
    take_over_age(found, age_on_disk(found, lambda _: True)())
    age = age_in_memory(found)
    assert age is not None
    assert (age.newest_ms, age.proven) == (NOW_MS + 10 * count - 9, True)
    assert found.latest == (NOW_MS + 10 * count - 9, BASE + 2 * count - 1)


def test_proof_in_place_is_for_recovery(segment: Segment) -> None:
    found = sealed(segment, 30)
    assert prove_latest(found)
    segment.directory.open(segment_name(BASE, ".timeindex")).write_at(0, b"\1")
    found = sealed(segment, 0)
    assert prove_latest(found)
    assert newest_of(found) == NOW_MS + 291


def test_a_segment_that_has_gone_cannot_be_asked(segment: Segment) -> None:
    found = sealed(segment, 3)
    found.mark_deleted()
    with pytest.raises(FileNotFoundError):
        age_on_disk(found, lambda _: True)()
