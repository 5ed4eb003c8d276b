"""The metadata log on disk: segments behind a snapshot, Kafka's layout

A decision is one batch in `__cluster_metadata-0/<base offset>.log`, so it is there whole or not at all, and it is
synced before anybody is answered. What a start finds, and what it makes of it, is told by `loading`.

Every batch is of the epoch of the leader that wrote it. A follower keeps the bytes of its leader (`append_fetched`),
and where they part it cuts its own log off (`truncate`), durably, before anything is appended: segments above the cut
go first, the newest first of all, so that there is never a gap. Nothing that is committed is cut off, and so no
snapshot loses the log behind it.

A snapshot (`tidemill.broker.quorum.snapshot`) holds what is below its end; `roll` makes way for it and begins a segment
where the log ends, `write_snapshot` puts the file beside it under a name that counts only when all of it is on the
disk, and then what is older goes. The snapshot before and the log behind that one stay: should the newest be damaged, a
start goes back to them, and has everything. A snapshot of the leader's (`install`) takes the place of the whole log:
first the empty segment behind it is there, then it itself, then everything older goes.

On a full disk decisions must still be taken, or nobody could delete what fills it: room for the next ones is set aside,
also in a new segment before the old one is left.

A log that others have too may end, at a start, below what this node has told them that it holds (`floor`). Then
`has_forgotten` says so, until whoever runs the quorum knows that nothing is missing any more.

After a failed sync nobody knows what the disk holds. What it was to make durable is cut off again, so that the next
start does not build on bytes that are in memory only, and the store takes no more writes until then.

One thread may be in `sync` while another appends and reads; `roll`, `truncate` and `install` are beside neither `sync`
nor an append. Not here: what the records mean, and who may append.
"""

import contextlib
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidemill.broker.log.epochs import LeaderEpochs
from tidemill.broker.quorum.loading import LogLoader, Take, begin_behind, snapshot_ids, standing_in
from tidemill.broker.quorum.loading import MetadataCorruptError as MetadataCorruptError
from tidemill.broker.quorum.records import MetadataRecord, encode_record
from tidemill.broker.quorum.segment import MetadataSegment, segment_bases, segment_file
from tidemill.broker.quorum.snapshot import SnapshotId, decode, encode
from tidemill.core.errors import OffsetOutOfRange, PositionOutOfRange, SnapshotNotFound
from tidemill.core.records.batch import BatchView
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.runtime.disk import DISK_FULL, Directory, File

if TYPE_CHECKING:  # control records and what comes from elsewhere: a quorum of one has neither
    from tidemill.broker.quorum.control import ControlRecord, StandingRecord
    from tidemill.broker.quorum.floor import DurableFloor
    from tidemill.broker.quorum.incoming import IncomingSnapshot
    from tidemill.broker.quorum.raft.voters import VoterSet

FOLDER: Final = "__cluster_metadata-0"
FILE: Final = "00000000000000000000.log"
PART_SUFFIX: Final = ".part"
"""Behind the name of a snapshot that is being written."""
LEADER_EPOCH: Final = 1
"""A quorum that was always one has had one leader."""
ELECTION_STATE: Final = "election-state"
"""A file that only a member of a quorum of several has beside its log."""
KAFKA_ASIDE: Final = "__cluster_metadata-0.kafka"
"""Where `tidemill log adopt` puts the metadata log that Apache Kafka wrote."""
KAFKA_STATE: Final = "quorum-state"
"""A file that Apache Kafka keeps beside its metadata log and we do not."""

ROOM_BYTES: Final = 256 * 1024
"""Set aside for decisions: enough to delete thousands of topics, also when half of it is used."""


class MetadataStoreError(OSError):
    """The disk did not take a decision."""


class MetadataUnwritable(Exception):
    """A decision for which there are no bytes, by a bug of ours; nothing of it was written."""


class SnapshotStopped(Exception):
    """The broker is going down, or there is a newer one; the snapshot is not needed."""


class TruncationRefused(ValueError):
    """What was to be cut off is committed: a quorum that wants that has lost its memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """What was found on the disk, besides decisions."""

    torn_bytes: int
    snapshot: SnapshotId | None
    damaged: tuple[str, ...]
    """Sentences about snapshots that cannot be read and were not needed."""
    once_held: int = 0
    """Up to here others may count on this node; the log of one that has forgotten nothing does not end below."""


def why_not_ours(data: Directory) -> str | None:
    """What to say when the topics of `data` are still in Apache Kafka's own metadata log; None when they are not."""
    if data.is_directory(FOLDER):
        if not data.subdirectory(FOLDER).exists(KAFKA_STATE):
            return None
        what = "was written by Apache Kafka"
    elif data.is_directory(KAFKA_ASIDE):
        what = "was written by Apache Kafka and is half taken over"
    else:
        return None
    return f"{data.path} {what}: `tidemill log adopt {data.path}` takes its topics over, once and for good"


def encode_batch(records: Sequence[MetadataRecord], base_offset: int, now_ms: int, epoch: int = LEADER_EPOCH) -> bytes:
    """One decision as it is on the disk."""
    values = [NewRecord(timestamp=now_ms, key=None, value=encode_record(record)) for record in records]
    return build_batch(values, base_offset=base_offset, leader_epoch=epoch)


class MetadataStore:
    """Appends batches; one writer at a time."""

    def __init__(self, data: Directory, *, replicated: bool = False) -> None:
        """`replicated`: other nodes have this log too, so that `loading` believes in more kinds of crashes."""
        self._directory = data.subdirectory(FOLDER)
        self._replicated = replicated
        if not segment_bases(self._directory) and not snapshot_ids(self._directory):
            self._directory.create(FILE).close()
        self._directory.sync()  # always: a process that was killed may have made the names and not have come to this
        data.sync()
        self._segments: list[MetadataSegment] = []  # those that can be read from; the last is the one in use
        self._guard = threading.Lock()  # of the list and of what is in it: a worker thread removes old ones
        self._synced_size = 0  # of the segment in use
        self._syncing = False
        self._room_bytes, self._room_end = ROOM_BYTES, 0
        self._written_bytes = self._rolled_at = self._snapshot_at = 0  # bytes of log, at the time
        self._standing: list[tuple[int, StandingRecord]] = []
        self.snapshot: SnapshotId | None = None  # the newest that can be read
        self.epochs: Final = LeaderEpochs()
        """Where each leader's batches begin; of what lies below `log_start_offset` it knows the last epoch only."""
        self.log_start_offset = 0
        """What is below can be had from a snapshot only."""
        self.high_watermark = 0
        """As far as the store was told; below nothing is cut off. Whoever runs the quorum sets it."""
        self.offset_end = 0
        self.durable_end = 0
        """What is below survives a power cut."""
        self.failure: str | None = None
        self.has_forgotten = False
        """Whether something was gone of what others count on when the log was loaded, and is not known to be back."""
        self._floor: DurableFloor | None = None

    # -- loading

    def load(self, take: Take, *, committed_end: int | None = None) -> LoadedLog:
        """Hand every decision to `take`, cut off a torn tail; raises MetadataCorruptError.

        Where there is a snapshot, `take` gets what it holds instead of the decisions below its end. Batches that do not
        end at or below `committed_end` are not handed out; None is everything, since a quorum of one has no others.
        """
        found = LogLoader(
            directory=self._directory,
            replicated=self._replicated,
            take=take,
            committed_end=committed_end,
            epochs=self.epochs,
        )
        found.load()
        self._segments, self._standing, self.snapshot = found.segments, found.standing, found.snapshot
        self.offset_end, self._written_bytes = found.offset_end, found.written_bytes
        self.log_start_offset = self.high_watermark = found.start
        for name in self._directory.list():
            if name.endswith(PART_SUFFIX):
                self._directory.remove(name)
        self._keep_room()
        self._usable().file.sync()  # what was read may be in the page cache only; from here on it is built upon
        self._synced_size, self.durable_end = self._usable().size, self.offset_end
        return LoadedLog(
            torn_bytes=found.torn_bytes,
            snapshot=found.snapshot,
            damaged=tuple(found.damaged),
            once_held=self._load_floor() if self._replicated else 0,
        )

    def _load_floor(self) -> int:
        from tidemill.broker.quorum.floor import DurableFloor

        floor = DurableFloor(self._directory)
        once_held = floor.load()
        self.has_forgotten = once_held > self.offset_end
        self._floor = floor
        self._raise_floor(self.durable_end)  # a process that was killed between the two has told nobody, this one will
        floor.sync()
        return once_held

    def sync_floor(self) -> None:
        """Let what is written down of `durable_end` survive a power cut too; blocks. Raises OSError."""
        if self._floor is not None:
            self._floor.sync()

    def remember(self) -> None:
        """What is durable now is all that others count on. Blocks; raises MetadataStoreError."""
        self.has_forgotten = False
        self._lower_floor(self.durable_end)

    def _lower_floor(self, offset: int) -> None:
        """Before the log ends there: what is cut is promised no more."""
        if self._floor is None or self.has_forgotten:
            return
        try:
            self._floor.lower(offset)
        except OSError as error:
            raise self._fail("cut off", error, cut=False) from error

    # -- what is in it

    @property
    def voter_sets(self) -> "tuple[tuple[int, VoterSet], ...]":
        """The sets of voters that the log has, each with its offset, the latest last; empty where they are configured.

        One that stands in the snapshot has the offset before its end.
        """
        if not self._standing:
            return ()
        from tidemill.broker.quorum.control import Voters

        return tuple((offset, each.voters) for offset, each in self._standing if isinstance(each, Voters))

    @property
    def kraft_version(self) -> int:
        """The version of the quorum's records that is in force at the end of the log."""
        if not self._standing:
            return 0
        from tidemill.broker.quorum.control import KRaftVersion

        return next((each.version for _, each in reversed(self._standing) if isinstance(each, KRaftVersion)), 0)

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches as they are on the disk, from the one that has `offset` on; nothing at the end of the log.

        One batch at least, however large it is, and no more than fit into `max_bytes`, those of one segment only.
        Raises OffsetOutOfRange, MetadataStoreError, and CorruptMessage for a file that was damaged meanwhile.
        """
        self._usable()
        with self._guard:
            if not self.log_start_offset <= offset <= self.offset_end:
                raise OffsetOutOfRange(
                    f"the metadata log has {self.log_start_offset} to {self.offset_end}, not {offset}"
                )
            if offset == self.offset_end:
                return b""
            return self._segments[self._number_of_segment(offset)].read(offset, max_bytes)

    def _number_of_segment(self, offset: int) -> int:
        return bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1

    # -- writing

    def append(self, records: Sequence[MetadataRecord], now_ms: int, *, epoch: int = LEADER_EPOCH) -> int:
        """Write one decision and return the offset after it; call `sync` before telling anybody.

        When the disk refuses (it is full, say) the file is as it was before and a later append may succeed. Raises
        MetadataStoreError then, and MetadataUnwritable for records that have no bytes.
        """
        self._usable()
        assert epoch >= self.epochs.latest or not self._replicated, "a leader of the past"
        try:
            batch = encode_batch(records, self.offset_end, now_ms, epoch)
        except Exception as error:
            raise MetadataUnwritable(f"{type(error).__name__}: {error}") from error
        return self._write(batch, ((epoch, len(batch), len(records)),))

    def append_control(self, records: "Sequence[ControlRecord]", now_ms: int, *, epoch: int) -> int:
        """Write one batch of control records, as `append` does with decisions."""
        self._usable()
        assert epoch >= self.epochs.latest or not self._replicated, "a leader of the past"
        from tidemill.broker.quorum.control import control_batch

        try:
            batch = control_batch(records, base_offset=self.offset_end, epoch=epoch, now_ms=now_ms)
        except Exception as error:
            raise MetadataUnwritable(f"{type(error).__name__}: {error}") from error
        offset_end = self._write(batch, ((epoch, len(batch), len(records)),))
        self._standing += standing_in(BatchView(batch))
        return offset_end

    def append_fetched(self, data: bytes) -> int:
        """Write whole batches as a leader sent them and return the offset after the last; `sync` makes them durable.

        Raises FetchedDataRefused (of `tidemill.broker.quorum.log_batches`) for what cannot follow, and
        MetadataStoreError; nothing is stored then.
        """
        self._usable()
        from tidemill.broker.quorum.log_batches import check_fetched

        found = check_fetched(data, offset_due=self.offset_end, epoch_min=self.epochs.latest)
        offset_end = self._write(data, [(view.leader_epoch, view.size_bytes, view.record_count) for view in found])
        for view in found:
            if view.is_control:
                self._standing += standing_in(view)
        return offset_end

    def _write(self, data: bytes, batches: Iterable[tuple[int, int, int]]) -> int:
        """Put `data` behind the log; of each batch in it epoch, size and number of records are given."""
        segment = self._usable()
        try:
            segment.file.write_at(segment.size, data)
        except OSError as error:
            self._undo(segment, error)
            raise MetadataStoreError(error.errno, f"the metadata log could not be written: {error}") from error
        with self._guard:
            for epoch, size_bytes, count in batches:
                self.epochs.assign(epoch, self.offset_end)
                segment.grow(self.offset_end, size_bytes)
                self.offset_end += count
        self._written_bytes += len(data)
        self._keep_room()
        return self.offset_end

    def _usable(self) -> MetadataSegment:
        """The segment in use; raises MetadataStoreError."""
        if self.failure is not None:
            raise MetadataStoreError(self.failure)
        assert self._segments, "load comes first"
        return self._segments[-1]

    def keep_room(self, size_bytes: int) -> None:
        """Set so many bytes aside from now on, as far as there is room."""
        self._room_bytes = size_bytes
        self._keep_room()

    def _keep_room(self) -> None:
        segment = self._usable()
        if self._room_end - segment.size < self._room_bytes - ROOM_BYTES // 2 and segment.file.set_aside(
            segment.size, self._room_bytes
        ):
            self._room_end = segment.size + self._room_bytes

    def sync(self) -> None:
        """Return once everything appended is on the disk; blocks, so call it from a worker thread.

        What is appended meanwhile is not meant: `durable_end` says how far it got.
        """
        segment = self._usable()
        end = self.offset_end
        size = segment.size  # read behind the offset: it may cover more than that, never less
        self._syncing = True
        try:
            segment.file.sync()
        except OSError as error:
            raise self._fail("synced", error) from error
        finally:
            self._syncing = False
        self._synced_size = size
        self._raise_floor(end)
        self.durable_end = end

    def _raise_floor(self, end: int) -> None:
        """Before anybody is told that all below is durable."""
        if self._floor is None or self.has_forgotten:
            return
        try:
            self._floor.note(end)
        except OSError as error:
            raise self._fail("synced", error) from error

    def _undo(self, segment: MetadataSegment, error: OSError) -> None:
        self._room_end = 0
        if error.errno not in DISK_FULL:
            raise self._fail("written", error) from error
        try:
            segment.file.truncate(segment.size)
        except OSError:
            raise self._fail("written", error) from error

    def _fail(self, what: str, error: OSError, *, cut: bool = True) -> MetadataStoreError:
        """Take no more writes, and with `cut` leave to the next start only what is sure to be on the disk."""
        self.failure = f"the metadata log could not be {what} ({error}): repair the disk and start again"
        if cut and self._segments:
            with contextlib.suppress(OSError):
                self._segments[-1].file.truncate(self._synced_size)
        return MetadataStoreError(error.errno, self.failure)

    def close(self) -> None:
        """Give the files back."""
        for segment in self._segments:
            segment.file.close()
        if self._floor is not None:
            self._floor.close()

    # -- the end of the log

    def truncate(self, offset: int) -> int:
        """Have nothing from `offset` on; returns the end of the log, which is less if a batch begins before `offset`.

        Durable when it returns; a crash before that leaves a beginning of the log that is no shorter. Blocks. Raises
        TruncationRefused for what is committed or in a snapshot, and MetadataStoreError, which ends the store.
        """
        self._usable()
        assert not self._syncing, "what it would make durable would be cut off under it"
        if offset >= self.offset_end:
            return self.offset_end
        floor = max(self.high_watermark, self.log_start_offset, self.snapshot.offset_end if self.snapshot else 0)
        if offset >= floor:
            number = self._number_of_segment(offset)
            position, end = self._segments[number].batch_at(offset)
        if offset < floor or end < floor:
            raise TruncationRefused(
                f"the metadata log was to end at offset {offset}, but all below {floor} is committed"
            )
        self._lower_floor(end)
        above = self._end_at(number, position, end)
        self._cut_files(self._segments[number], above, position)
        self._synced_size = position
        self.durable_end = end
        self._keep_room()
        return end

    def _end_at(self, number: int, position: int, offset_end: int) -> list[MetadataSegment]:
        """Let the log end there for all who read; returns the segments above, newest first."""
        with self._guard:
            above = self._segments[:number:-1]
            del self._segments[number + 1 :]
            segment = self._segments[-1]
            self._written_bytes -= segment.size - position + sum(each.size for each in above)
            segment.cut(position)
            self.offset_end = offset_end
            self.epochs.truncate_from_end(offset_end)
            self._standing = [each for each in self._standing if each[0] < offset_end]
            self._room_end = 0
        return above

    def _cut_files(self, segment: MetadataSegment, above: Sequence[MetadataSegment], position: int) -> None:
        try:
            for each in above:
                each.file.close()
            for base in reversed(segment_bases(self._directory)):
                if base > segment.base_offset:
                    self._directory.remove(segment_file(base))
            self._directory.sync()  # a segment that comes back behind a shorter one would be a gap
        except OSError as error:
            raise self._fail("cut off", error, cut=False) from error
        try:
            segment.file.truncate(position)
            segment.file.sync()  # sectors of old batches must not come back among those of new ones
        except OSError as error:
            raise self._fail("cut off", error, cut=False) from error

    # -- snapshots

    @property
    def bytes_since_snapshot(self) -> int:
        """Bytes of the log that no snapshot holds."""
        return self._written_bytes - self._snapshot_at

    def roll(self, offset_end: int | None = None) -> SnapshotId:
        """Begin a segment where the log ends, for a snapshot of all below `offset_end`, which is there if it is None.

        Blocks, and nothing is appended meanwhile. Raises MetadataStoreError; when it was only that there is no room,
        the old segment stays in use.
        """
        segment = self._usable()
        end = self.offset_end if offset_end is None else offset_end
        assert self.log_start_offset <= end <= self.offset_end, "a snapshot of what the log does not have"
        assert end <= self.high_watermark or not self._replicated, "a snapshot of what may have to be cut off"
        if segment.size:
            if self.durable_end != self.offset_end:
                self.sync()
            begun, room_end = self._begin_segment(self.offset_end)
            with self._guard:
                self._segments.append(begun)
                self._room_end, self._synced_size = room_end, 0
        self._rolled_at = self._written_bytes
        return SnapshotId(end, self.epochs.epoch_at(end - 1) if end else LEADER_EPOCH)

    def _begin_segment(self, base_offset: int) -> tuple[MetadataSegment, int]:
        """An empty segment and how far room is set aside in it."""
        name = segment_file(base_offset)
        try:
            file, room = self._with_room(name + PART_SUFFIX)
            self._directory.rename(name + PART_SUFFIX, name)
            self._directory.sync()
        except OSError as error:
            if error.errno in DISK_FULL:
                raise MetadataStoreError(error.errno, f"the metadata log stays in its segment: {error}") from error
            raise self._fail("synced", error) from error
        return MetadataSegment(base_offset, file), room

    def _with_room(self, name: str) -> tuple[File, int]:
        """A new file with room set aside; raises OSError where there is none: the segment in use may have some.

        A file system that cannot set room aside says no as a full one does, so it is also tried by writing.
        """
        file = self._directory.create(name)
        try:
            if file.set_aside(0, self._room_bytes):
                return file, self._room_bytes
            file.write_at(0, bytes(self._room_bytes))
            file.truncate(0)
        except OSError:
            file.close()
            self._directory.remove(name)
            raise
        return file, 0

    def write_snapshot(
        self, which: SnapshotId, records: Iterable[MetadataRecord], now_ms: int, stopped: Callable[[], bool]
    ) -> int:
        """Write the snapshot that `roll` made way for, remove what it replaces and return its size.

        For a worker thread. Raises OSError or SnapshotStopped, and then all is as before.
        """
        assert which != self.snapshot, "what it replaces would be itself, and what it falls back to would go"
        part = which.name + PART_SUFFIX
        batches = encode(records, epoch=which.epoch, now_ms=now_ms, standing=self._standing_below(which.offset_end))
        try:
            size_bytes = self._write_part(part, batches, stopped)
            self._directory.rename(part, which.name)
            self._directory.sync()
        except (OSError, SnapshotStopped):
            with contextlib.suppress(OSError):
                self._directory.remove(part)
            raise
        with self._guard:
            before = self.snapshot
            if before is None or before < which:
                self.snapshot = which
        if self.snapshot != which:  # one of the leader's has come meanwhile
            self._directory.remove(which.name)
            raise SnapshotStopped
        self._snapshot_at = self._rolled_at
        self._remove_older(which, before)
        return size_bytes

    def _standing_below(self, offset_end: int) -> "tuple[StandingRecord, ...]":
        """The latest of each kind, in the order of their types."""
        latest = {type(each).__name__: each for offset, each in self._standing if offset < offset_end}
        return tuple(latest[kind] for kind in sorted(latest))

    def _write_part(self, name: str, batches: Iterator[bytes], stopped: Callable[[], bool]) -> int:
        file = self._directory.create(name)
        position = 0
        try:
            for batch in batches:
                if stopped():
                    raise SnapshotStopped
                file.write_at(position, batch)
                position += len(batch)
            file.truncate(position)  # gives back what was set aside for its growth
            file.sync()
        finally:
            file.close()
        return position

    def _remove_older(self, newest: SnapshotId, before: SnapshotId | None) -> None:
        """Keep the snapshot before and the log from its end on: what a start needs if the newest is damaged."""
        for each in snapshot_ids(self._directory):
            if each < newest and each != before:
                self._directory.remove(each.name)
        self._remove_log_below(before.offset_end if before else 0)

    def _remove_log_below(self, offset: int) -> None:
        """Remove segments that end at or below an offset of the log, the oldest first."""
        with self._guard:
            self.log_start_offset = max(self.log_start_offset, offset)
            keep = self._segments[max(0, self._number_of_segment(offset))].base_offset
            gone = [segment for segment in self._segments if segment.base_offset < keep]
            del self._segments[: len(gone)]
            for segment in gone:
                segment.file.close()
        for base in segment_bases(self._directory):
            if base < keep:
                self._directory.remove(segment_file(base))

    def snapshot_records(self) -> Iterator[tuple[MetadataRecord, ...]]:
        """What the newest snapshot holds, batch by batch; blocks. Raises OSError."""
        return decode(self._directory.read(self.snapshot.name)) if self.snapshot else iter(())

    def read_snapshot(self, which: SnapshotId, position: int, max_bytes: int) -> tuple[bytes, int]:
        """The bytes of a snapshot from `position` on, and how large all of it is.

        Raises SnapshotNotFound, PositionOutOfRange, OSError.
        """
        try:
            file = self._directory.open(which.name)
        except FileNotFoundError:
            raise SnapshotNotFound(f"there is no snapshot {which.name}") from None
        try:
            size_bytes = file.size()
            if not 0 <= position < size_bytes:
                raise PositionOutOfRange(f"snapshot {which.name} has {size_bytes} bytes, not {position}")
            return file.read_at(position, max_bytes), size_bytes
        finally:
            file.close()

    def receive(self, which: SnapshotId) -> "IncomingSnapshot":
        """Begin to receive a snapshot of the leader's; then `add` to it, and `install` or `discard` it.

        Raises ValueError for one that says nothing new, OSError.
        """
        from tidemill.broker.quorum.incoming import IncomingSnapshot

        self._usable()
        self._check_is_news(which)
        return IncomingSnapshot(self._directory, which)

    def _check_is_news(self, which: SnapshotId) -> None:
        known = max(self.high_watermark, self.snapshot.offset_end if self.snapshot else 0)
        if which.offset_end <= known:
            raise ValueError(f"snapshot {which.name} says nothing new: all below offset {known} is committed here")

    def install(self, incoming: "IncomingSnapshot") -> None:
        """Let a snapshot that is here as a whole take the place of the log, which is empty behind it then. Blocks.

        Raises ValueError, SnapshotDamaged and MetadataFormatError for what cannot be taken, and MetadataStoreError; the
        log is as it was then, or without what could not stay: records of other leaders at the same offsets.
        """
        self._usable()
        which = incoming.id
        try:
            self._check_is_news(which)
            standing = incoming.verify()
            if self.offset_end >= which.offset_end:
                self.truncate(which.offset_end - 1)  # or a start that finds it damaged would take one log for the other
            elif self.durable_end != self.offset_end:
                self.sync()  # an end that is torn below another segment would pass for damage
            segment, room_end = self._begin_segment(which.offset_end)
        except OSError as error:
            incoming.discard()
            if isinstance(error, MetadataStoreError):
                raise
            raise MetadataStoreError(error.errno, f"the metadata snapshot could not be taken: {error}") from error
        except ValueError:
            incoming.discard()
            raise
        self._lower_floor(which.offset_end)
        try:
            self._directory.rename(incoming.part, which.name)
            self._directory.sync()
        except OSError as error:
            raise self._fail("replaced", error, cut=False) from error
        self._replace_by(which, segment, room_end, standing)

    def _replace_by(
        self, which: SnapshotId, segment: MetadataSegment, room_end: int, standing: "Sequence[StandingRecord]"
    ) -> None:
        with self._guard:
            for each in self._segments:
                each.file.close()
            self._segments = [segment]
            self.offset_end = self.durable_end = self.log_start_offset = self.high_watermark = which.offset_end
            self.snapshot = which
            self._standing = begin_behind(which, standing, self.epochs)
            self._room_end, self._synced_size = room_end, 0
            self._snapshot_at = self._rolled_at = self._written_bytes
        try:
            for old in snapshot_ids(self._directory):
                if old < which:
                    self._directory.remove(old.name)
            self._remove_log_below(which.offset_end)
            self._directory.sync()
        except OSError as error:
            raise self._fail("replaced", error, cut=False) from error
