"""A snapshot on its way here, chunk by chunk

Who is so far behind that the leader's log begins later, or whose log is not the leader's, gets a snapshot. Until all of
it is here, synced and found to be whole and readable, it is a file that no start looks at; what becomes of it then is
the store's business. After a restart it is fetched anew.
"""

import contextlib
from typing import TYPE_CHECKING, Final

from tidemill.broker.quorum.snapshot import SnapshotId, check, decode, standing_of
from tidemill.core.runtime.disk import Directory

if TYPE_CHECKING:
    from tidemill.broker.quorum.control import StandingRecord

PART_SUFFIX: Final = ".received.part"
"""Behind the name of a snapshot that is being received: one of our own with the same name may be in the making."""


class IncomingSnapshot:
    """Takes chunks, in order; not for two threads at a time."""

    def __init__(self, directory: Directory, snapshot_id: SnapshotId) -> None:
        """Raises OSError."""
        self.id = snapshot_id
        self.part = snapshot_id.name + PART_SUFFIX
        self.position = 0
        """Where the next chunk has to begin."""
        self._directory = directory
        self._file = directory.create(self.part)

    def add(self, position: int, data: bytes) -> int:
        """Keep the chunk at `position`; returns where the next one begins. Raises ValueError for a gap, OSError.

        A chunk that is here already, because its answer came twice, is passed over.
        """
        if position + len(data) <= self.position:
            return self.position
        if position != self.position:
            raise ValueError(f"{self.id.name}: the chunk at {position} came where {self.position} was due")
        self._file.write_at(position, data)
        self.position += len(data)
        return self.position

    def verify(self) -> "tuple[StandingRecord, ...]":
        """Return once it is on the disk and found good, with what it says about voters and versions. Blocks.

        Raises OSError, SnapshotDamaged and, for what this version cannot read, MetadataFormatError.
        """
        self._file.truncate(self.position)  # gives back what was set aside for its growth
        self._file.sync()
        self._file.close()
        data = self._directory.read(self.part)
        check(data)
        for _ in decode(data):
            pass
        return standing_of(data)

    def discard(self) -> None:
        """Remove what is here; nobody waits for the rest. No error if the disk refuses: the next start does it."""
        with contextlib.suppress(OSError):
            self._file.close()
            self._directory.remove(self.part)
