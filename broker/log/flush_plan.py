"""What the next round of fsync owes one log

Between two rounds a log may have sealed segments, got new names of files, changed its leader epochs. All of that, and
how far the log will be durable once it is done, is one object: the log fills it, `PartitionLog.begin_flush` takes it
away and puts an empty one in its place, and `end_flush` applies it. So a round covers what was there when it began, and
what comes meanwhile is the next one's.

In the flusher's thread a full disk is no failure where the round only writes what a start could find out again.
"""

from functools import partial
from typing import NamedTuple

from tidemill.core.runtime.disk import DISK_FULL, Directory
from tidemill.core.runtime.file_system_sync import Sync

from . import snapshots
from .checkpoints import write_epochs
from .epochs import LeaderEpochs
from .flusher import FlushWork
from .producers import ProducerState, ProducerStates
from .segment import Segment
from .segment_files import SNAPSHOT_SUFFIX, segment_name


class LogPosition(NamedTuple):
    """An offset, where its batch begins, or will, and the largest timestamp before it in that segment.

    That is -1 where there is none, and None where nobody has looked.
    """

    offset: int
    segment_base: int
    position: int
    latest: int | None

    def cut(self, end: "LogPosition") -> "LogPosition":
        """The same in a log that ends at `end` now."""
        return self if self.offset < end.offset else end


class FlushPlan:
    """What has piled up since the last round began, and `end`, up to where the log is durable once all is done.

    `names` and `epochs` say that files were created and that the leader epochs changed.
    """

    __slots__ = ("end", "epochs", "names", "rolled", "snapshots")

    def __init__(self, end: LogPosition) -> None:
        self.end = end
        self.epochs = self.names = False
        self.rolled: list[Segment] = []
        self.snapshots: list[tuple[int, tuple[ProducerState, ...]]] = []

    def seal(self, segment: Segment, log_end_offset: int, producers: ProducerStates) -> None:
        """The active segment has ended at `log_end_offset` and another one has begun."""
        self.rolled.append(segment)
        self.snapshots.append((log_end_offset, producers.states()))
        self.names = True

    def cut(self, end: LogPosition) -> None:
        """The log ends at `end` now, in a segment that is appended to again."""
        self.end = self.end.cut(end)
        self.rolled = [segment for segment in self.rolled if segment.base_offset < end.segment_base]
        self.snapshots = [(offset, states) for offset, states in self.snapshots if offset <= end.offset]

    def work(self, directory: Directory, epochs: LeaderEpochs, active: Segment) -> FlushWork:
        """The plan as calls for the flusher's thread; everything they write is frozen now."""
        calls: list[Sync] = [
            partial(_write_sealed_indexes, segment, segment.take_index_writes()) for segment in self.rolled
        ]
        if self.epochs:
            calls.append(partial(self._write_epochs, directory, epochs.entries()))
        calls += [partial(self._write_snapshot, directory, offset, states) for offset, states in self.snapshots]
        if self.names:
            calls.append(directory.sync)
        return FlushWork([*(segment.file for segment in self.rolled), active.file], calls)

    def _write_epochs(self, directory: Directory, entries: list[tuple[int, int]]) -> None:
        try:
            write_epochs(directory, entries)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
        else:
            self.epochs = False

    def _write_snapshot(self, directory: Directory, offset: int, states: tuple[ProducerState, ...]) -> None:
        """Behind the epochs: a start that finds a snapshot does not ask the batches before it for theirs.

        Without the snapshot a start replays more batches, so a full disk does not matter.
        """
        if self.epochs:
            return
        try:
            directory.replace(segment_name(offset, SNAPSHOT_SUFFIX), snapshots.encode(states))
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise

    def leave_to(self, later: "FlushPlan") -> None:
        """What a full disk kept from being done; the batches say the same, so the epochs' file can follow."""
        later.epochs = later.epochs or self.epochs

    def finish(self, directory: Directory, epochs: LeaderEpochs, active: Segment, producers: ProducerStates) -> None:
        """Write all of it here and now: the log is durable, and this is its end."""
        for segment in (*self.rolled, active):
            segment.take_index_writes()()
        if self.epochs:
            write_epochs(directory, epochs.entries())
        for offset, states in (*self.snapshots, (self.end.offset, producers.states())):
            directory.replace(segment_name(offset, SNAPSHOT_SUFFIX), snapshots.encode(states))


def _write_sealed_indexes(segment: Segment, write: Sync) -> None:
    """In the flusher's thread, before recovery is told to trust the segment."""
    try:
        write()
        segment.indexes.sync_files()
        segment.file.truncate(segment.size_bytes)  # it does not grow any more: gives back what was set aside for that
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        segment.indexes.remove_files()  # they are rebuilt from the log when next needed
