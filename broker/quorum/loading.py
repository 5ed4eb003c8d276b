"""What a start finds of the metadata log, and where that ends

The newest snapshot that is whole counts, and every batch behind its end. It may end in the middle of a segment. Where
the batches end, the file ends, is torn or is damaged. A quorum of one writes a batch only after the one before it is on
the disk, so a crash can damage nothing but the last one: such a torn tail is cut off. Damage anywhere before it is not
the trace of a crash; then nothing is opened rather than topics forgotten.

A log that other nodes have too may have had several batches on their way to the disk, so there a sector that was never
written, below sound batches, is the trace of a crash as well: the log ends before it, and what is missing is fetched
again. The last segment may be one that was made for a snapshot of the leader's which did not come.

What stays of the last segment is written once more: a sync that failed leaves batches in memory, taken for written.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tidemill.broker.log.epochs import LeaderEpochs
from tidemill.broker.quorum.batches import has_hole, later_batch, sound_batches
from tidemill.broker.quorum.records import MetadataFormatError, MetadataRecord
from tidemill.broker.quorum.segment import MetadataSegment, segment_bases, segment_file
from tidemill.broker.quorum.snapshot import SnapshotDamaged, SnapshotId, check, decode, decode_batch, standing_of
from tidemill.core.records.batch import BASE_OFFSET_AT, BATCH_LENGTH_AT, BatchView
from tidemill.core.runtime.disk import DISK_FULL, Directory, File

if TYPE_CHECKING:  # a quorum of one has no control records
    from tidemill.broker.quorum.control import StandingRecord

Take: TypeAlias = Callable[[tuple[MetadataRecord, ...]], None]
"""Hears the records of every batch, in order."""

_OFFSET_BYTES = BATCH_LENGTH_AT - BASE_OFFSET_AT


class MetadataCorruptError(RuntimeError):
    """The metadata log cannot be trusted; the message says where and what to do."""


def snapshot_ids(directory: Directory) -> list[SnapshotId]:
    """All snapshots that are there under their names, the oldest first."""
    found = (SnapshotId.parse(name) for name in directory.list())
    return sorted(each for each in found if each is not None)


def standing_in(view: BatchView) -> "list[tuple[int, StandingRecord]]":
    """What a control batch says about voters and versions, with offsets; raises MetadataFormatError."""
    from tidemill.broker.quorum.control import KRaftVersion, Voters, control_records

    records = enumerate(control_records(view), view.base_offset)
    return [(offset, record) for offset, record in records if isinstance(record, KRaftVersion | Voters)]


@dataclass(slots=True, kw_only=True, eq=False)
class LogLoader:
    """Mutable: reads the log in `directory` into what follows the first four fields.

    `take` gets what the snapshot holds, and then the decisions of batches that end at or below `committed_end`; None is
    all of them.
    """

    directory: Directory
    replicated: bool
    take: Take
    committed_end: int | None
    epochs: LeaderEpochs
    """Is filled."""
    segments: list[MetadataSegment] = field(default_factory=list)
    standing: "list[tuple[int, StandingRecord]]" = field(default_factory=list)
    snapshot: SnapshotId | None = None
    start: int = 0
    """Where the log behind the snapshot begins."""
    offset_end: int = 0
    written_bytes: int = 0
    torn_bytes: int = 0
    damaged: list[str] = field(default_factory=list)
    """Sentences about snapshots that cannot be read and were not needed."""

    def load(self) -> None:
        """Read everything and cut off a torn tail, which is not synced yet; raises MetadataCorruptError, OSError."""
        try:
            self._load()
        except BaseException:
            for segment in self.segments:
                segment.file.close()
            raise

    def _load(self) -> None:
        data = self._newest_snapshot()
        if self.snapshot is not None:
            self.start = self.snapshot.offset_end
            self._take_snapshot(self.snapshot, data)
        bases = segment_bases(self.directory)
        del bases[: max(0, bisect_right(bases, self.start) - 1)]
        if not bases or bases[0] > self.start:
            raise self._nothing_follows()
        self.offset_end = bases[0]
        self._read_segments(bases)
        cut_there = self.replicated and self.offset_end == self.start  # else what followed it is missing
        if self.offset_end <= self.start and bases[0] < self.start and not cut_there:
            raise self._nothing_follows()

    def _newest_snapshot(self) -> bytes:
        """The newest snapshot that is whole, noted as known, and sentences about newer ones that are not."""
        for each in reversed(snapshot_ids(self.directory)):
            data = self.directory.read(each.name)
            try:
                check(data)
            except SnapshotDamaged as error:
                self.damaged.append(f"the metadata snapshot {self.directory.path}/{each.name} is damaged: {error}")
            else:
                self.snapshot = each
                return data
        return b""

    def _take_snapshot(self, which: SnapshotId, data: bytes) -> None:
        try:
            for records in decode(data):
                self.take(records)
            self.standing = begin_behind(which, standing_of(data), self.epochs)
        except MetadataFormatError as error:
            raise MetadataCorruptError(
                f"The metadata snapshot {self.directory.path}/{which.name} cannot be read: {error}. "
                "Start the version that wrote it, or restore the folder from a backup."
            ) from None

    def _nothing_follows(self) -> MetadataCorruptError:
        reasons = [*self.damaged, f"{self.directory.path}/{segment_file(self.start)} is missing"]
        return MetadataCorruptError(
            f"The metadata log is incomplete: {'; '.join(reasons)}. "
            "Restore the folder from a backup; starting without it would forget topics."
        )

    def _read_segments(self, bases: Sequence[int]) -> None:
        for number, base in enumerate(bases):
            later = bases[number + 1 :]
            awaits_a_snapshot = self.replicated and base > self.offset_end and not later
            if (base < self.offset_end or awaits_a_snapshot) and self._is_empty(base):
                self.directory.remove(segment_file(base))  # it was begun, when the disk was full say, and not used
                self.directory.sync()
            elif base != self.offset_end:
                raise self._corrupt(base, 0, f"it begins at offset {base}, the one before ends at {self.offset_end}")
            else:
                self._read_segment(base, later)

    def _is_empty(self, base: int) -> bool:
        file = self.directory.open(segment_file(base))
        try:
            return file.size() == 0
        finally:
            file.close()

    def _read_segment(self, base: int, later: Sequence[int]) -> None:
        """One segment, which becomes the last."""
        segment = MetadataSegment(base, self.directory.open(segment_file(base)))
        self.segments.append(segment)
        data = segment.file.read_at(0, segment.file.size())
        last = end = 0
        plain = self.committed_end is None and base >= self.start
        epoch = self.epochs.latest
        for view, after in sound_batches(data):
            if view.base_offset != self.offset_end:
                if later or (
                    later_batch(data, after) is not None and not self._has_hole(data, end, end + _OFFSET_BYTES)
                ):
                    raise self._corrupt(base, end, f"offset {view.base_offset} follows {self.offset_end}")
                break  # torn in the middle of its offset, which no CRC covers
            try:
                if plain and view.leader_epoch == epoch and not view.is_control:  # as nearly all are
                    self.take(decode_batch(view))
                else:
                    self._hear(view)
                    epoch = self.epochs.latest
            except MetadataFormatError as error:
                raise self._unreadable(base, end, error) from None
            self.offset_end = view.last_offset + 1
            segment.grow(view.base_offset, after - end)
            last, end = end, after
        if end < len(data):
            self._cut_tail(segment, data, later)
        self.torn_bytes = len(data) - end
        self.written_bytes += end
        self._write_again(segment.file, data, 0 if self.replicated else last, end)

    def _hear(self, view: BatchView) -> None:
        """Take in what a batch says; raises MetadataFormatError."""
        if view.base_offset < self.start:
            if view.next_offset > self.start:
                raise MetadataFormatError(
                    f"it begins below offset {self.start}, where a snapshot ends, and ends behind it"
                )
            return
        if not self.epochs.assign(view.leader_epoch, view.base_offset) and self.replicated:
            latest = self.epochs.latest
            if view.leader_epoch < latest:
                raise MetadataFormatError(f"a batch of epoch {view.leader_epoch} behind one of {latest}")
        if view.is_control:
            self.standing += standing_in(view)
        elif self.committed_end is None or view.next_offset <= self.committed_end:
            self.take(decode_batch(view))

    def _has_hole(self, data: bytes, start: int, end: int) -> bool:
        return self.replicated and has_hole(data, start, end, self.offset_end)

    def _cut_tail(self, segment: MetadataSegment, data: bytes, later: Sequence[int]) -> None:
        base, end = segment.base_offset, segment.size
        sound = later_batch(data, end + 1)
        if sound is not None and not self._has_hole(data, end, sound):
            raise self._corrupt(base, end, f"the batch there is damaged but a sound one follows at byte {sound}")
        if any(other > self.offset_end or not self._is_empty(other) for other in later):
            raise self._corrupt(base, end, "the batch there is damaged but the log goes on in another segment")
        if self.offset_end < self.start:
            raise self._corrupt(base, end, f"the batch there is damaged but below the snapshot of offset {self.start}")
        segment.file.truncate(end)

    def _write_again(self, file: File, data: bytes, start: int, end: int) -> None:
        try:
            file.write_at(start, data[start:end])
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise

    def _unreadable(self, base: int, position: int, error: MetadataFormatError) -> MetadataCorruptError:
        """Of a batch that matches its CRC; among several a newer version of another node may have written it."""
        if not self.replicated:
            return self._corrupt(base, position, str(error))
        return MetadataCorruptError(
            f"The metadata log {self.directory.path}/{segment_file(base)} has at byte {position} what this version "
            f"cannot read: {error}. Start the version that the other nodes run, or restore the file from a backup."
        )

    def _corrupt(self, base: int, position: int, why: str) -> MetadataCorruptError:
        return MetadataCorruptError(
            f"The metadata log {self.directory.path}/{segment_file(base)} is corrupt at byte {position}: {why}. "
            "Restore the file from a backup; starting without it would forget topics."
        )


def begin_behind(
    which: SnapshotId, standing: "Sequence[StandingRecord]", epochs: LeaderEpochs
) -> "list[tuple[int, StandingRecord]]":
    """What is known where a log begins behind a snapshot: in `epochs` its last epoch; returned: voters and versions."""
    epochs.truncate_from_end(0)
    epochs.assign(which.epoch, max(0, which.offset_end - 1))
    return [(which.offset_end - 1, each) for each in standing]
