"""Names of a segment's files, and how they go"""

from pathlib import Path

from tests.broker.log.segment_world import BASE, fill
from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.segment import Segment
from tidemill.broker.log.segment_files import DELETED_SUFFIX, retire, segment_name
from tidemill.core.runtime.disk import OsDirectory


def test_names_are_those_of_kafka() -> None:
    assert segment_name(0) == "00000000000000000000.log"
    assert segment_name(1234, ".timeindex") == "00000000000000001234.timeindex"


def test_deleted_files_are_renamed_first_and_removed_later(tmp_path: Path) -> None:
    segment = Segment.create(OsDirectory(tmp_path), BASE)
    fill(segment, 3)
    segment.mark_deleted()
    assert all(name.endswith(DELETED_SUFFIX) for name in segment.directory.list())
    segment.remove_deleted()
    assert segment.directory.list() == []


def test_a_full_disk_that_takes_no_new_name_loses_the_file_at_once() -> None:
    disk = SimulatedDisk()
    file = disk.root.create("a")
    file.write_at(0, b"abc")
    disk.capacity_bytes = disk.used_bytes()
    retire(disk.root, "a")
    retire(disk.root, "was never there")
    assert disk.root.list() == []
