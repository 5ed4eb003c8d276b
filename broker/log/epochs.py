"""Leader epoch -> the offset where it began

Two replicas that disagree find the point up to which they agree by comparing epochs, never high watermarks. The map
has one entry per epoch in which something was appended, both columns increasing, and lives in Kafka's own text file
`leader-epoch-checkpoint`: the version 0, the number of entries, then `epoch start_offset` lines. Pure: the caller
writes the file when `assign` or a truncation says that something changed.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

UNKNOWN_EPOCH = -1
UNKNOWN_OFFSET = -1


class LeaderEpochs:
    """The epochs of one partition."""

    __slots__ = ("_epochs", "_starts", "latest")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = UNKNOWN_EPOCH
        """The newest epoch, UNKNOWN_EPOCH if nothing was ever appended; asked for each batch."""

        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    def entries(self) -> list[tuple[int, int]]:
        """All (epoch, start offset) pairs, oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` appends at `start_offset`; True if that was new."""
        if epoch <= self.latest:
            return False
        while self._starts and self._starts[-1] >= start_offset:  # epochs that never wrote anything that stayed
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch
        return True

    def end_offset_for(self, epoch: int, leader_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` and the offset where it ended, or the two UNKNOWN values.

        `leader_epoch` is the current one: it counts from its first moment on, also while nothing is written in it.
        """
        current = max(leader_epoch, self.latest)
        if not 0 <= epoch <= current:
            return UNKNOWN_EPOCH, UNKNOWN_OFFSET
        if epoch == current:
            return epoch, log_end_offset
        found = bisect_right(self._epochs, epoch)
        end_offset = self._starts[found] if found < len(self._starts) else log_end_offset
        if found and self._starts[found - 1] < end_offset:
            return self._epochs[found - 1], end_offset
        return epoch, end_offset  # older than all of which anything is left

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote `offset`."""
        found = bisect_right(self._starts, offset)
        return self._epochs[found - 1] if found else UNKNOWN_EPOCH

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget epochs that begin at or beyond `end_offset`; True if there were any."""
        keep = bisect_left(self._starts, end_offset)
        changed = keep < len(self._starts)
        del self._epochs[keep:], self._starts[keep:]
        self.latest = self._epochs[-1] if self._epochs else UNKNOWN_EPOCH
        return changed

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forget epochs that ended at or before `start_offset`; True if something changed."""
        found = bisect_right(self._starts, start_offset)
        if found == 0 or (found == 1 and self._starts[0] == start_offset):
            return False
        del self._epochs[: found - 1], self._starts[: found - 1]
        self._starts[0] = start_offset
        return True
