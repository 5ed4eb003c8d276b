"""The log of one member of the simulated quorum: entries of sixteen bytes, of which some are durable

It shows the view that the machine asks for. A snapshot is all entries before its end, as bytes, so that whoever gets
one has something to compare.
"""

import struct
from typing import NamedTuple

from tidemill.broker.log.epochs import LeaderEpochs
from tidemill.broker.quorum.raft.log_view import NO_EPOCH
from tidemill.broker.quorum.snapshot import SnapshotId

ENTRY = struct.Struct(">qq")
LEADER_CHANGE = 0


class Entry(NamedTuple):
    """One record: the epoch of the leader that appended it, and which one it is; below 0 is a set of voters."""

    epoch: int
    number: int


def decode(data: bytes) -> list[Entry]:
    """Entries from their bytes."""
    return [Entry(*each) for each in ENTRY.iter_unpack(data)]


def encode(entries: list[Entry]) -> bytes:
    """Bytes of entries."""
    return b"".join(ENTRY.pack(*each) for each in entries)


class SimulatedLog:
    """Mutable: `entries` has all from 0 on, also those that are in the snapshot only."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.durable_end = 0
        self.log_start_offset = 0
        self.log_start_epoch = NO_EPOCH
        self.epochs = LeaderEpochs()
        self.snapshot_id: SnapshotId | None = None
        self.part: tuple[SnapshotId, bytearray] | None = None
        self.cuts = 0  # how often what follows is another log

    @property
    def offset_end(self) -> int:
        return len(self.entries)

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        return snapshot_id.offset_end * ENTRY.size if snapshot_id == self.snapshot_id else None

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, size: int) -> bytes:
        return encode(self.entries[: snapshot_id.offset_end])[position : position + size]

    def append(self, entry: Entry) -> int:
        """Returns the offset it got."""
        self.entries.append(entry)
        self.epochs.assign(entry.epoch, len(self.entries) - 1)
        return len(self.entries) - 1

    def truncate(self, end: int) -> None:
        """What is cut is gone at once, and what is left is not more durable than before."""
        del self.entries[end:]
        self.durable_end = min(self.durable_end, end)
        self.epochs.truncate_from_end(end)
        self.cuts += 1

    def take_snapshot(self, end: int) -> None:
        """Of all before `end`, in place of the log before it."""
        epoch = self.entries[end - 1].epoch
        self.snapshot_id = SnapshotId(end, epoch)
        self.log_start_offset, self.log_start_epoch = end, epoch
        self.epochs.truncate_from_start(end)

    def install(self, snapshot_id: SnapshotId, data: bytes) -> None:
        """The snapshot in place of all there is."""
        self.entries = decode(data)
        self.durable_end = self.log_start_offset = snapshot_id.offset_end
        self.log_start_epoch = snapshot_id.epoch
        self.snapshot_id = snapshot_id
        self.epochs = LeaderEpochs()
        self.cuts += 1

    def lose(self, kept: int) -> None:
        """Power is cut: of what was not durable, this much is there."""
        self.truncate(max(kept, self.durable_end))
        self.durable_end = len(self.entries)
        self.part = None
