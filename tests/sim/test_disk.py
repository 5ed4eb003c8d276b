"""The simulated disk keeps what was synced and loses what was not"""

import errno
import random

import pytest

from tests.sim.disk import SimulatedDisk


def test_synced_bytes_survive_and_names_need_their_directory_synced() -> None:
    disk = SimulatedDisk()
    file = disk.root.create("kept")
    file.write_at(0, b"a" * 1000)
    file.sync()
    disk.root.sync()
    disk.root.create("lost").write_at(0, b"x")
    outcomes = set()
    for seed in range(40):
        twin = SimulatedDisk()
        twin.root._entries, twin.root._journal = dict(disk.root._entries), list(disk.root._journal)
        twin.crash(random.Random(seed))
        assert twin.root.read("kept") == b"a" * 1000
        outcomes.add(twin.root.exists("lost"))
    assert outcomes == {True, False}


def test_unsynced_bytes_may_be_torn_by_sector() -> None:
    seen = set()
    for seed in range(60):
        disk = SimulatedDisk()
        file = disk.root.create("f")
        disk.root.sync()
        file.write_at(0, b"b" * 1024)
        disk.crash(random.Random(seed))
        seen.add(disk.root.read("f"))
    assert {b"", b"b" * 1024, bytes(512) + b"b" * 512, b"b" * 512 + bytes(512)} <= seen


def test_replace_is_atomic_and_durable() -> None:
    disk = SimulatedDisk()
    disk.root.replace("f", b"old")
    disk.root.replace("f", b"new")
    disk.crash(random.Random(1))
    assert disk.root.read("f") == b"new"


def test_a_full_disk_writes_what_fits_and_says_so() -> None:
    disk = SimulatedDisk()
    file = disk.root.create("f")
    disk.capacity_bytes = 10
    with pytest.raises(OSError) as raised:
        file.write_at(0, b"x" * 12)
    assert raised.value.errno == errno.ENOSPC
    assert file.size() == 10


def test_a_full_disk_takes_a_new_name_only_where_another_was() -> None:
    disk = SimulatedDisk()
    disk.root.create("f")
    disk.root.create("g")
    disk.capacity_bytes = 10
    for call in (disk.root.create, disk.root.subdirectory, lambda name: disk.root.rename("f", name)):
        with pytest.raises(OSError) as raised:
            call("new")
        assert raised.value.errno == errno.ENOSPC
    disk.root.rename("f", "g")
    disk.root.create("h")
    assert disk.root.list() == ["g", "h"]


def test_what_a_failed_sync_forgot_is_not_written_by_the_next() -> None:
    disk = SimulatedDisk()
    disk.forgets_after_failed_sync = True
    file = disk.root.create("f")
    disk.root.sync()
    file.write_at(0, b"a" * 600)
    disk.fail_sync = OSError(errno.EIO, "Input/output error")
    with pytest.raises(OSError):
        file.sync()
    disk.fail_sync = None
    file.write_at(600, b"b" * 600)
    file.sync()
    assert disk.root.read("f") == b"a" * 600 + b"b" * 600
    disk.crash(random.Random(1))
    assert disk.root.read("f") == bytes(512) + b"a" * 88 + b"b" * 600, "whole sectors are written"


def test_nor_does_one_of_everything() -> None:
    disk = SimulatedDisk(syncs_everything=True)
    disk.forgets_after_failed_sync = True
    file = disk.root.create("f")
    file.write_at(0, b"a" * 600)
    sync = disk.root.file_system_sync()
    assert sync is not None
    disk.fail_sync = OSError(errno.EIO, "Input/output error")
    with pytest.raises(OSError):
        sync(lambda: None)
    disk.fail_sync = None
    sync(lambda: None)
    disk.crash(random.Random(1))
    assert disk.root.read("f") == bytes(600)


def test_a_flipped_bit_is_damage_that_no_power_cut_mends() -> None:
    disk = SimulatedDisk()
    disk.root.replace("f.log", b"good")
    assert disk.flip_bit(random.Random(1), (".index",)) is None
    disk.root.subdirectory("d").replace("f.index", b"good")
    disk.root.sync()
    assert disk.flip_bit(random.Random(1), (".index",)) == "/disk/d/f.index"
    damaged = disk.root.subdirectory("d").read("f.index")
    assert sum(bin(one ^ other).count("1") for one, other in zip(damaged, b"good", strict=True)) == 1
    disk.crash(random.Random(1))
    assert disk.root.subdirectory("d").read("f.index") == damaged
    assert disk.root.read("f.log") == b"good"


def test_a_closed_file_cannot_be_used() -> None:
    file = SimulatedDisk().root.create("f")
    file.close()
    with pytest.raises(OSError):
        file.read_at(0, 1)
