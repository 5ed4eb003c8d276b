"""A snapshot in chunks: whole and readable, or not at all."""

import errno

import pytest

from tests.broker.quorum.replicated_log import decision
from tests.sim.disk import SimulatedDisk
from tidemill.broker.quorum.control import KRaftVersion
from tidemill.broker.quorum.incoming import IncomingSnapshot
from tidemill.broker.quorum.snapshot import SnapshotDamaged, SnapshotId, encode

ID = SnapshotId(42, 3)
DATA = b"".join(encode(decision(1, 500), epoch=3, now_ms=0, standing=(KRaftVersion(version=1),)))


@pytest.mark.parametrize("chunk_bytes", [1, 7, 1000, len(DATA)])
def test_chunks_in_order_make_a_whole(chunk_bytes: int) -> None:
    root = SimulatedDisk().root
    incoming = IncomingSnapshot(root, ID)
    for position in range(0, len(DATA), chunk_bytes):
        assert incoming.position == position
        incoming.add(position, DATA[position : position + chunk_bytes])
    assert incoming.verify() == (KRaftVersion(version=1),)
    assert root.read(incoming.part) == DATA
    assert root.list() == [incoming.part]
    assert SnapshotId.parse(incoming.part) is None


def test_a_chunk_that_came_twice_is_passed_over_and_a_gap_is_refused() -> None:
    incoming = IncomingSnapshot(SimulatedDisk().root, ID)
    incoming.add(0, DATA[:100])
    assert incoming.add(0, DATA[:100]) == 100
    assert incoming.add(50, DATA[50:80]) == 100
    for position in (50, 101):
        with pytest.raises(ValueError, match=f"at {position} came where 100 was due"):
            incoming.add(position, DATA[position : position + 100])
    incoming.add(100, DATA[100:])
    incoming.verify()


@pytest.mark.parametrize("length", [0, 1, 100, len(DATA) - 1])
def test_what_ends_too_soon_is_damaged_and_can_be_discarded(length: int) -> None:
    root = SimulatedDisk().root
    incoming = IncomingSnapshot(root, ID)
    incoming.add(0, DATA[:length])
    with pytest.raises(SnapshotDamaged):
        incoming.verify()
    incoming.discard()
    assert root.list() == []


def test_a_sync_that_fails_is_told() -> None:
    disk = SimulatedDisk()
    incoming = IncomingSnapshot(disk.root, ID)
    incoming.add(0, DATA)
    disk.fail_sync = OSError(errno.EIO, "Input/output error")
    with pytest.raises(OSError, match="Input/output"):
        incoming.verify()
