"""The log as the quorum's machine sees it: offsets and epochs, no bytes

Two logs that have the same epoch at one offset are the same up to there: in an epoch there is one leader, and it
writes an offset once. So a follower says the epoch of its last entry, and where the leader has another one there, the
leader names the last epoch that both may have, and where it ends. What cannot be compared since it went into a snapshot
is got as the snapshot.
"""

from typing import NamedTuple, Protocol

from tidemill.broker.log.epochs import LeaderEpochs
from tidemill.broker.quorum.snapshot import SnapshotId

NO_EPOCH = 0
"""The epoch of the last entry of a log that never had one: the first leader's is 1."""


class Divergence(NamedTuple):
    """The last epoch that both logs may have, and the offset where it ends in the leader's."""

    epoch: int
    end_offset: int


class LogView(Protocol):
    """What somebody else keeps on disk; read at any time, and true whenever the machine is stepped.

    `epochs` has the first offset of every epoch from `log_start_offset` on; `log_start_epoch` is that of the last entry
    before it, NO_EPOCH for a log that begins at 0.
    """

    @property
    def offset_end(self) -> int:
        """Where the next entry goes."""

    @property
    def durable_end(self) -> int:
        """All below survives a power cut."""

    @property
    def log_start_offset(self) -> int:
        """The first entry that is there; what is before it is in a snapshot."""

    @property
    def log_start_epoch(self) -> int:
        """The epoch of the entry before the first."""

    @property
    def epochs(self) -> LeaderEpochs:
        """Epoch -> first offset."""

    @property
    def snapshot_id(self) -> SnapshotId | None:
        """The newest snapshot that is whole."""

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        """How many bytes it has; None if it is not there."""


def epoch_before(log: LogView, offset: int) -> int:
    """The epoch of the entry before `offset`, which lies in the log or at either end."""
    if offset <= log.log_start_offset:
        return log.log_start_epoch
    return log.epochs.epoch_at(offset - 1)


def last_epoch(log: LogView) -> int:
    """The epoch of the last entry."""
    return epoch_before(log, log.offset_end)


def is_up_to_date(log: LogView, their_epoch: int, their_end: int) -> bool:
    """Whether a candidate's log has all that this one has, so that it may lead."""
    return (their_epoch, their_end) >= (last_epoch(log), log.offset_end)


def end_of_epoch(log: LogView, epoch: int) -> Divergence:
    """The largest epoch up to this one that the log has an entry of, and where it ends; its start if there is none."""
    found = Divergence(log.log_start_epoch, log.log_start_offset)
    entries = [each for each in log.epochs.entries() if each[1] < log.offset_end]
    for index, (mine, _) in enumerate(entries):
        if mine > epoch:
            break
        end = entries[index + 1][1] if index + 1 < len(entries) else log.offset_end
        found = Divergence(mine, max(end, log.log_start_offset))
    return found


def judge_fetch(log: LogView, offset: int, epoch: int) -> Divergence | SnapshotId | None:
    """What a leader answers somebody whose log ends at `offset` with this epoch: None is, what comes then."""
    if offset == 0 and log.log_start_offset == 0:
        return None
    in_log = log.log_start_offset <= offset <= log.offset_end
    if in_log and epoch_before(log, offset) == epoch:
        return None
    comparable = offset >= log.log_start_offset and epoch >= log.log_start_epoch
    if not comparable and log.snapshot_id is not None:
        return log.snapshot_id
    diverging = end_of_epoch(log, epoch)
    if diverging.end_offset >= offset and diverging.epoch == epoch:  # no log that was written by the rules says so
        return end_of_epoch(log, epoch - 1)
    return diverging


def truncation_point(log: LogView, divergence: Divergence) -> int:
    """Where a follower cuts its log: where the leader's epoch ends, or its own one if that is earlier."""
    own = end_of_epoch(log, divergence.epoch)
    end = min(own.end_offset, divergence.end_offset) if own.epoch == divergence.epoch else own.end_offset
    return min(end, log.offset_end)
