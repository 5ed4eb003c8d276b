"""What a round of fsync owes a log: as much as was there when it began, and what a full disk kept from being done"""

from tests.broker.log.log_world import NOW_MS, LogWorld, batch
from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.checkpoints import read_epochs
from tidemill.broker.log.flusher import FlushWork
from tidemill.core.runtime.disk import Directory


def do(work: FlushWork) -> None:
    """As the flusher's thread does it."""
    for call in work.calls:
        call()
    for file in work.files:
        file.sync()


def written_epochs(directory: Directory) -> list[tuple[int, int]]:
    found = read_epochs(directory)
    return list(found) if found else []


async def test_a_round_covers_what_was_there_when_it_began() -> None:
    log = LogWorld(SimulatedDisk().root).open()
    log.append(batch(3), now_ms=NOW_MS)
    work = log.begin_flush()
    log.append(batch(2), now_ms=NOW_MS)
    do(work)
    log.end_flush()
    assert (log.committed_offset, log.recovery_point, log.log_end_offset) == (3, 3, 5)
    do(log.begin_flush())
    log.end_flush()
    assert log.committed_offset == 5


async def test_segments_sealed_during_a_round_are_of_the_next_one() -> None:
    disk = SimulatedDisk()
    log = LogWorld(disk.root).open()
    log.append(batch(3), now_ms=NOW_MS)
    work = log.begin_flush()
    log.roll()
    log.append(batch(2), now_ms=NOW_MS)
    assert len(work.files) == 1
    do(work)
    log.end_flush()
    later = log.begin_flush()
    assert len(later.files) == 2, "the sealed segment and the active one"
    do(later)
    log.end_flush()
    assert log.recovery_point == 5
    assert len(log.begin_flush().files) == 1


async def test_leader_epochs_that_a_full_disk_refused_are_written_by_a_later_round() -> None:
    disk = SimulatedDisk()
    log = LogWorld(disk.root).open()
    log.append(batch(3), now_ms=NOW_MS, leader_epoch=4)
    disk.capacity_bytes = disk.used_bytes()
    do(log.begin_flush())
    log.end_flush()
    assert log.recovery_point == 3, "the batches say the same, so the round has done its work"
    assert written_epochs(disk.root) == []
    disk.capacity_bytes = None
    do(log.begin_flush())
    log.end_flush()
    assert written_epochs(disk.root) == [(4, 0)]
    assert log.begin_flush().calls == []
