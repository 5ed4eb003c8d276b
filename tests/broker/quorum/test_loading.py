"""Where the log of a member of a quorum ends, after a crash and after damage."""

import contextlib
import random

import pytest

from tests.broker.quorum.replicated_log import batch, batches, everything, opened, with_snapshot
from tests.sim.disk import PowerCut, SimulatedDisk
from tidemill.broker.quorum.batches import SECTOR_BYTES
from tidemill.broker.quorum.floor import DURABLE_END
from tidemill.broker.quorum.loading import MetadataCorruptError, snapshot_ids
from tidemill.broker.quorum.snapshot import SnapshotId
from tidemill.broker.quorum.store import FILE, FOLDER, MetadataStore


@pytest.mark.parametrize("seed", range(150))
def test_several_batches_on_their_way_to_the_disk_may_be_torn_anywhere(seed: int) -> None:
    rng = random.Random(seed)
    disk = SimulatedDisk()
    store = opened(disk)
    store.append_fetched(batches(0, 3, epoch=2))
    store.sync()
    whole = batches(0, 3, epoch=2)
    for _ in range(rng.randrange(1, 4)):
        more = b"".join(batch(offset, 2, rng.choice((1, 1, 40))) for offset in (store.offset_end,))
        for _ in range(rng.randrange(8)):
            store.append_fetched(more)
            whole += more
            more = batch(store.offset_end, 2, rng.choice((1, 1, 40)))
    disk.crash(rng)
    found = everything(opened(disk))
    assert whole.startswith(found) and len(found) >= len(batches(0, 3, epoch=2))
    disk.crash(rng)
    assert everything(opened(disk)) == found


def test_damage_that_is_no_trace_of_a_crash_refuses_to_start() -> None:
    disk = SimulatedDisk()
    folder = disk.root.subdirectory(FOLDER)
    opened(disk)
    size = len(batch(0, 2))
    data = batches(0, 21, epoch=2)
    for position in range(size, 2 * size):
        if 12 <= position - size < 16:
            continue  # the epoch, outside the CRC
        folder.replace(FILE, data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :])
        with pytest.raises(MetadataCorruptError, match=r"corrupt at byte|Restore the file"):
            opened(disk)
        assert len(folder.read(FILE)) == len(data), "nothing may be cut off a corrupt log"


def test_a_sector_that_was_never_written_ends_the_log_of_a_member_and_stops_a_node_alone() -> None:
    disk = SimulatedDisk()
    opened(disk)
    folder = disk.root.subdirectory(FOLDER)
    data = batches(0, 30, epoch=2)
    torn = data[:SECTOR_BYTES] + bytes(SECTOR_BYTES) + data[2 * SECTOR_BYTES :]
    folder.replace(FILE, torn)
    with pytest.raises(MetadataCorruptError, match="a sound one follows"):
        MetadataStore(disk.root).load(lambda _: None)
    assert folder.read(FILE) == torn
    store = opened(disk)
    assert 0 < store.offset_end <= SECTOR_BYTES // len(batch(0, 2))
    assert data.startswith(everything(store))


def test_what_a_failed_sync_left_in_memory_is_written_again() -> None:
    for steps in range(4):
        disk = SimulatedDisk()
        disk.forgets_after_failed_sync = True
        store = opened(disk)
        store.append_fetched(batches(0, 2, epoch=2))
        store.append_fetched(batches(2, 20, epoch=2))
        disk.fail_sync = OSError(5, "Input/output error")
        disk.cut_power_in = steps  # also between the failed sync and what cuts off after it
        with contextlib.suppress(OSError, PowerCut):
            store.sync()
        disk.fail_sync = None
        disk.kill()
        found = everything(opened(disk))
        disk.crash(random.Random(steps))
        assert everything(opened(disk)) == found


def test_a_segment_that_awaits_a_snapshot_which_did_not_come_goes() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    store.append_fetched(batches(0, 3, epoch=2))
    store.sync()
    folder = disk.root.subdirectory(FOLDER)
    folder.create("00000000000000000012.log")
    with pytest.raises(MetadataCorruptError, match="begins at offset 12, the one before ends at 3"):
        MetadataStore(disk.root).load(lambda _: None)
    assert opened(disk).offset_end == 3
    assert folder.list() == [FILE, DURABLE_END]


def test_a_log_that_ends_below_its_snapshot_refuses_to_start() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    store.append_fetched(batches(0, 8, epoch=2))
    with_snapshot(store, 6, 100)
    folder = disk.root.subdirectory(FOLDER)
    assert snapshot_ids(folder) == [SnapshotId(6, 2)]
    size = len(batch(0, 2))
    for length in (3 * size, 3 * size + 5):
        folder.replace(FILE, batches(0, 8, epoch=2)[:length])
        folder.remove("00000000000000000008.log")
        with pytest.raises(MetadataCorruptError, match="Restore the f"):
            opened(disk)
        assert len(folder.read(FILE)) == length
