"""Checkpoints of a folder, kept true"""

import errno
from collections.abc import Iterator

import pytest

from tests.broker.log.log_world import NOW_MS, LogWorld, batch
from tests.sim.disk import SimulatedDirectory, SimulatedDisk
from tidemill.broker.log.checkpoints import (
    CLEANED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_offsets,
    write_offsets,
)
from tidemill.broker.log.folder_checkpoints import FolderCheckpoints
from tidemill.broker.log.partition import PartitionLog
from tidemill.core.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def log_with(count: int) -> PartitionLog:
    log = LogWorld(SimulatedDisk().root).open()
    for _ in range(count):
        await log.durable(log.append(batch(1), now_ms=NOW_MS).last_offset)
    return log


async def test_what_logs_say_is_written_and_only_when_it_has_changed() -> None:
    disk = SimulatedDisk()
    checkpoints, log = FolderCheckpoints(disk.root), await log_with(3)
    log.advance_log_start(2)
    log.own(lambda: None)
    await log.durable(log.append(batch(1), now_ms=NOW_MS).last_offset)
    checkpoints.write([log])
    assert disk.root.read("replication-offset-checkpoint") == b"0\n1\nt 0 3\n", "as Kafka writes it"
    assert read_offsets(disk.root, HIGH_WATERMARKS) == {T0: 3} == checkpoints.high_watermarks
    assert read_offsets(disk.root, RECOVERY_POINTS) == {T0: 4} == checkpoints.points
    assert read_offsets(disk.root, LOG_STARTS) == {T0: 2} == checkpoints.starts
    syncs = disk.syncs
    checkpoints.write([log])
    assert disk.syncs == syncs
    again = FolderCheckpoints(disk.root)
    assert not again.read()
    assert (again.points, again.starts, again.cleaned) == (checkpoints.points, checkpoints.starts, {})
    assert again.high_watermarks == checkpoints.high_watermarks


async def test_a_checkpoint_beyond_the_end_of_its_log_is_corrected_at_start() -> None:
    disk = SimulatedDisk()
    write_offsets(disk.root, RECOVERY_POINTS, {T0: 9})
    checkpoints, log = FolderCheckpoints(disk.root), await log_with(3)
    cleaner_known = checkpoints.read()
    checkpoints.correct([log], cleaner_known=cleaner_known)
    assert read_offsets(disk.root, RECOVERY_POINTS) == {T0: 3}
    assert disk.root.exists(CLEANED)
    assert checkpoints.read()


async def test_a_start_that_corrects_a_checkpoint_takes_nothing_for_committed_that_was_not_known_to_be() -> None:
    disk = SimulatedDisk()
    write_offsets(disk.root, RECOVERY_POINTS, {T0: 3, T1: 9})
    write_offsets(disk.root, HIGH_WATERMARKS, {T0: 2, T1: 8})
    checkpoints, log = FolderCheckpoints(disk.root), await log_with(3)
    checkpoints.read()
    checkpoints.correct([log], cleaner_known=True)
    assert checkpoints.high_watermarks == {T0: 2, T1: 8}
    write_offsets(disk.root, HIGH_WATERMARKS, {T0: 8})
    checkpoints.read()
    checkpoints.correct([log], cleaner_known=True)
    assert read_offsets(disk.root, HIGH_WATERMARKS) == {T0: 3}, "or it would pass judgement on what comes there"


async def test_a_cut_that_ends_while_the_logs_are_asked_is_respected() -> None:
    disk = SimulatedDisk()
    checkpoints, log = FolderCheckpoints(disk.root), await log_with(4)
    checkpoints.write([log])
    checkpoints.caps[T0] = 2
    checkpoints.lower(T0, 2)

    def asked() -> Iterator[PartitionLog]:
        yield log
        del checkpoints.caps[T0]  # the event loop is done with it, and has the log end there

    checkpoints.write(asked())
    assert read_offsets(disk.root, RECOVERY_POINTS) == read_offsets(disk.root, HIGH_WATERMARKS) == {T0: 2}


def test_what_the_cleaner_says_of_an_end_that_is_being_cut_off_is_not_written() -> None:
    checkpoints = FolderCheckpoints(SimulatedDisk().root)
    checkpoints.caps[T0] = 5
    checkpoints.lower(T0, 5)
    checkpoints.note_cleaned(T0, 9, lambda _key: True)
    assert checkpoints.cleaned == {T0: 5}


def test_an_earlier_partition_of_the_same_name_is_forgotten_everywhere() -> None:
    disk = SimulatedDisk()
    for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANED):
        write_offsets(disk.root, name, {T0: 5, T1: 6})
    checkpoints = FolderCheckpoints(disk.root)
    assert checkpoints.read()
    checkpoints.forget([T1])
    for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANED):
        assert read_offsets(disk.root, name) == {T0: 5}
    checkpoints.note_cleaned(T1, 7, lambda key: key == T1)
    assert read_offsets(disk.root, CLEANED) == {T1: 7} == checkpoints.cleaned


class NoRoomFor(SimulatedDirectory):
    """A folder of a disk that is too full for one file."""

    name = ""

    def replace(self, name: str, data: bytes, *, sync_name: bool = True) -> None:
        if name == self.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().replace(name, data, sync_name=sync_name)


async def test_what_was_written_before_the_disk_was_full_is_forgotten_too() -> None:
    folder, log = NoRoomFor(SimulatedDisk(), "/disk"), await log_with(3)
    checkpoints = FolderCheckpoints(folder)
    log.advance_log_start(2)
    folder.name = LOG_STARTS
    with pytest.raises(OSError, match="No space"):
        checkpoints.write([log])
    folder.name = ""
    checkpoints.forget([T0])
    assert read_offsets(folder, RECOVERY_POINTS) == {}
