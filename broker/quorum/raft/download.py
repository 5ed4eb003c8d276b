"""A snapshot on its way, chunk by chunk

Whole is what has as many bytes as the leader said with every chunk, one behind the other. A chunk that is repeated, is
missing or is of another snapshot ends it, and the follower asks again what to do.
"""

import uuid
from dataclasses import dataclass, replace

from tidemill.broker.quorum.raft.messages import FetchSnapshotRequest, FetchSnapshotResponse
from tidemill.broker.quorum.snapshot import SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """All before `position` is here; `size` is the whole in bytes, -1 until the first chunk has said it."""

    snapshot_id: SnapshotId
    position: int = 0
    size: int = -1

    def request(
        self, cluster_id: str | None, epoch: int, replica_id: int, directory_id: uuid.UUID, bytes_max: int
    ) -> FetchSnapshotRequest:
        """For the next chunk."""
        return FetchSnapshotRequest(
            cluster_id=cluster_id,
            epoch=epoch,
            replica_id=replica_id,
            replica_directory_id=directory_id,
            snapshot_id=self.snapshot_id,
            position=self.position,
            bytes_max=bytes_max,
        )

    def fits(self, chunk: FetchSnapshotResponse) -> bool:
        """Whether this is the next chunk: of the same snapshot, of the same size, and with something in it."""
        end = chunk.position + len(chunk.data)
        same = chunk.snapshot_id == self.snapshot_id and self.size in (-1, chunk.size)
        return same and chunk.position == self.position < end <= chunk.size

    def after(self, chunk: FetchSnapshotResponse) -> "Download":
        """With one more chunk."""
        return replace(self, position=self.position + len(chunk.data), size=chunk.size)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing."""
        return self.position == self.size
