"""The metadata log on disk: segments behind a snapshot, Kafka's layout

A decision is one batch in `__cluster_metadata-0/<base offset>.log`, so it is there whole or not at all, and it is
synced before anybody is answered. Because the next batch is written only after the one before it is on the disk, a
crash can damage nothing but the last batch: such a torn tail is cut off at start-up. Damage anywhere before it is not
the trace of a crash; the store then refuses to open rather than forget topics.

A snapshot (`tidemill.broker.quorum.snapshot`) ends where a segment begins: `roll` begins the segment, `write_snapshot`
puts the file beside it under a name that counts only when all of it is on the disk, and then what is older goes. The
snapshot before and the log behind that one stay: should the newest be damaged, a start goes back to them, and has
everything.

On a full disk decisions must still be taken, or nobody could delete what fills it: room for the next ones is set aside,
also in a new segment before the old one is left.

After a failed sync nobody knows what the disk holds. What it was to make durable is cut off again, so that the next
start does not build on bytes that are in memory only, and the store takes no more writes until then.

Not here: what the records mean. A consensus log takes the place of this file's `append` when there are more nodes.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidemill.broker.quorum.batches import later_batch, sound_batches
from tidemill.broker.quorum.records import MetadataFormatError, MetadataRecord, encode_record
from tidemill.broker.quorum.snapshot import SnapshotDamaged, SnapshotId, check, decode, decode_batch, encode
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.runtime.disk import DISK_FULL, Directory, File

FOLDER: Final = "__cluster_metadata-0"
SEGMENT_SUFFIX: Final = ".log"
FILE: Final = "00000000000000000000.log"
PART_SUFFIX: Final = ".part"
"""Behind the name of a snapshot that is being written."""
LEADER_EPOCH: Final = 1
"""A quorum of one has had one leader."""
KAFKA_ASIDE: Final = "__cluster_metadata-0.kafka"
"""Where `tidemill log adopt` puts the metadata log that Apache Kafka wrote."""
KAFKA_STATE: Final = "quorum-state"
"""A file that Apache Kafka keeps beside its metadata log and we do not."""

ROOM_BYTES: Final = 256 * 1024
"""Set aside for decisions: enough to delete thousands of topics, also when half of it is used."""

_NAME_DIGITS = 20

Take: TypeAlias = Callable[[tuple[MetadataRecord, ...]], None]
"""Hears the records of every batch, in order."""


class MetadataCorruptError(RuntimeError):
    """The metadata log cannot be trusted; the message says where and what to do."""


class MetadataStoreError(OSError):
    """The disk did not take a decision."""


class MetadataUnwritable(Exception):
    """A decision for which there are no bytes, by a bug of ours; nothing of it was written."""


class SnapshotStopped(Exception):
    """The broker is going down; the snapshot is not needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """What was found on the disk, besides decisions."""

    torn_bytes: int
    snapshot: SnapshotId | None
    damaged: tuple[str, ...]
    """Sentences about snapshots that cannot be read and were not needed."""


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


def encode_batch(records: Sequence[MetadataRecord], base_offset: int, now_ms: int) -> bytes:
    """One decision as it is on the disk."""
    values = [NewRecord(timestamp=now_ms, key=None, value=encode_record(record)) for record in records]
    return build_batch(values, base_offset=base_offset, leader_epoch=LEADER_EPOCH)


def segment_file(base_offset: int) -> str:
    """The name of the segment that begins at an offset."""
    return f"{base_offset:0{_NAME_DIGITS}}{SEGMENT_SUFFIX}"


class MetadataStore:
    """Appends decisions; one writer at a time."""

    def __init__(self, data: Directory) -> None:
        self._directory = data.subdirectory(FOLDER)
        if not self._bases() and not self._snapshot_ids():
            self._directory.create(FILE).close()
        self._directory.sync()  # always: a process that was killed may have made the names and not have come to this
        data.sync()
        self._file: File | None = None
        self._size = self._synced_size = 0
        self._room_bytes, self._room_end = ROOM_BYTES, 0
        self._written_bytes = self._rolled_at = self._snapshot_at = 0  # bytes of log, at the time
        self.snapshot: SnapshotId | None = None  # the newest that can be read
        self.offset_end = 0
        self.failure: str | None = None

    # -- reading

    def load(self, take: Take) -> LoadedLog:
        """Hand every decision to `take`, cut off a torn tail; raises MetadataCorruptError.

        Where there is a snapshot, `take` gets what it holds instead of the decisions below its end.
        """
        data, damaged = self._newest_snapshot()
        if self.snapshot is not None:
            self._take_snapshot(self.snapshot, data, take)
            self.offset_end = self.snapshot.offset_end
        bases = [base for base in self._bases() if base >= self.offset_end]
        if not bases or bases[0] != self.offset_end:
            raise MetadataCorruptError(self._why_nothing_follows(damaged))
        torn = self._read_segments(bases, take)
        for name in self._directory.list():
            if name.endswith(PART_SUFFIX):
                self._directory.remove(name)
        self._keep_room()
        self._usable().sync()  # what was read may be in the page cache only; from here on it is built upon
        self._synced_size = self._size
        return LoadedLog(torn_bytes=torn, snapshot=self.snapshot, damaged=tuple(damaged))

    def _bases(self) -> list[int]:
        names = (name.removesuffix(SEGMENT_SUFFIX) for name in self._directory.list() if name.endswith(SEGMENT_SUFFIX))
        return sorted(int(stem) for stem in names if len(stem) == _NAME_DIGITS and stem.isdecimal())

    def _snapshot_ids(self) -> list[SnapshotId]:
        found = (SnapshotId.parse(name) for name in self._directory.list())
        return sorted(each for each in found if each is not None)

    def _newest_snapshot(self) -> tuple[bytes, list[str]]:
        """The newest snapshot that is whole, noted as known, and sentences about newer ones that are not."""
        damaged: list[str] = []
        for each in reversed(self._snapshot_ids()):
            data = self._directory.read(each.name)
            try:
                check(data)
            except SnapshotDamaged as error:
                damaged.append(f"the metadata snapshot {self._directory.path}/{each.name} is damaged: {error}")
            else:
                self.snapshot = each
                return data, damaged
        return b"", damaged

    def _take_snapshot(self, which: SnapshotId, data: bytes, take: Take) -> None:
        try:
            for records in decode(data):
                take(records)
        except MetadataFormatError as error:
            raise MetadataCorruptError(
                f"The metadata snapshot {self._directory.path}/{which.name} cannot be read: {error}. "
                "Start the version that wrote it, or restore the folder from a backup."
            ) from None

    def _why_nothing_follows(self, damaged: Sequence[str]) -> str:
        reasons = [*damaged, f"{self._directory.path}/{segment_file(self.offset_end)} is missing"]
        return (
            f"The metadata log is incomplete: {'; '.join(reasons)}. "
            "Restore the folder from a backup; starting without it would forget topics."
        )

    def _read_segments(self, bases: Sequence[int], take: Take) -> int:
        """Everything from the first of `bases` on; returns how many bytes were cut off the end."""
        torn = 0
        for number, base in enumerate(bases):
            if base < self.offset_end and self._is_empty(base):
                self._directory.remove(segment_file(base))  # it was begun when the disk was full, and not used
                self._directory.sync()
            elif base != self.offset_end:
                raise self._corrupt(base, 0, f"it begins at offset {base}, the one before ends at {self.offset_end}")
            else:
                torn = self._read_segment(base, take, bases[number + 1 :])
        return torn

    def _is_empty(self, base: int) -> bool:
        file = self._directory.open(segment_file(base))
        try:
            return file.size() == 0
        finally:
            file.close()

    def _read_segment(self, base: int, take: Take, later: Sequence[int]) -> int:
        """One segment, which becomes the one in use; returns how many bytes were cut off its end."""
        self.close()
        self._file = self._directory.open(segment_file(base))
        data = self._file.read_at(0, self._file.size())
        start = end = 0
        for view, after in sound_batches(data):
            if view.base_offset != self.offset_end:
                if later or later_batch(data, after) is not None:
                    raise self._corrupt(base, end, f"offset {view.base_offset} follows {self.offset_end}")
                break  # torn in the middle of its offset, which no CRC covers
            try:
                take(decode_batch(view))
            except MetadataFormatError as error:
                raise self._corrupt(base, end, str(error)) from None
            self.offset_end = view.last_offset + 1
            start, end = end, after
        if end < len(data):
            self._cut_tail(base, data, end, later)
        self._size = end
        self._written_bytes += end
        self._write_again(data, start, end)
        return len(data) - end

    def _cut_tail(self, base: int, data: bytes, end: int, later: Sequence[int]) -> None:
        sound = later_batch(data, end + 1)
        if sound is not None:
            raise self._corrupt(base, end, f"the batch there is damaged but a sound one follows at byte {sound}")
        if any(other > self.offset_end or not self._is_empty(other) for other in later):
            raise self._corrupt(base, end, "the batch there is damaged but the log goes on in another segment")
        assert self._file is not None
        self._file.truncate(end)

    def _write_again(self, data: bytes, start: int, end: int) -> None:
        """Let the next sync really write the last batch: one that failed leaves it in memory, taken for written."""
        assert self._file is not None
        try:
            self._file.write_at(start, data[start:end])
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise

    def _corrupt(self, base: int, position: int, why: str) -> MetadataCorruptError:
        return MetadataCorruptError(
            f"The metadata log {self._directory.path}/{segment_file(base)} is corrupt at byte {position}: {why}. "
            "Restore the file from a backup; starting without it would forget topics."
        )

    # -- writing

    def append(self, records: Sequence[MetadataRecord], now_ms: int) -> int:
        """Write one decision and return the offset after it; call `sync` before telling anybody.

        When the disk refuses (it is full, say) the file is as it was before and a later append may succeed. Raises
        MetadataStoreError then, and MetadataUnwritable for records that have no bytes.
        """
        file = self._usable()
        try:
            batch = encode_batch(records, self.offset_end, now_ms)
        except Exception as error:
            raise MetadataUnwritable(f"{type(error).__name__}: {error}") from error
        try:
            file.write_at(self._size, batch)
        except OSError as error:
            self._undo(error)
            raise MetadataStoreError(error.errno, f"the metadata log could not be written: {error}") from error
        self._size += len(batch)
        self._written_bytes += len(batch)
        self.offset_end += len(records)
        self._keep_room()
        return self.offset_end

    def _usable(self) -> File:
        if self.failure is not None:
            raise MetadataStoreError(self.failure)
        assert self._file is not None, "load comes first"
        return self._file

    def keep_room(self, size_bytes: int) -> None:
        """Set so many bytes aside from now on, as far as there is room."""
        self._room_bytes = size_bytes
        self._keep_room()

    def _keep_room(self) -> None:
        file = self._usable()
        if self._room_end - self._size < self._room_bytes - ROOM_BYTES // 2 and file.set_aside(
            self._size, self._room_bytes
        ):
            self._room_end = self._size + self._room_bytes

    def sync(self) -> None:
        """Return once everything appended is on the disk; blocks, so call it from a worker thread."""
        file = self._usable()
        try:
            file.sync()
        except OSError as error:
            raise self._fail("synced", error) from error
        self._synced_size = self._size

    def _undo(self, error: OSError) -> None:
        self._room_end = 0
        if error.errno not in DISK_FULL:
            raise self._fail("written", error) from error
        try:
            assert self._file is not None
            self._file.truncate(self._size)
        except OSError:
            raise self._fail("written", error) from error

    def _fail(self, what: str, error: OSError) -> MetadataStoreError:
        """Take no more writes, and leave to the next start only what is sure to be on the disk."""
        self.failure = f"the metadata log could not be {what} ({error}): repair the disk and start again"
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.truncate(self._synced_size)
        return MetadataStoreError(error.errno, self.failure)

    def close(self) -> None:
        """Give the file back."""
        if self._file is not None:
            self._file.close()

    # -- snapshots

    @property
    def bytes_since_snapshot(self) -> int:
        """Bytes of the log that no snapshot holds."""
        return self._written_bytes - self._snapshot_at

    def roll(self) -> SnapshotId:
        """Begin a segment at the end, for a snapshot of all before it; blocks, and nothing is appended meanwhile.

        Raises MetadataStoreError; when it was only that there is no room, the old segment stays in use.
        """
        file = self._usable()
        if self._size:
            self._file, self._room_end = self._begin_segment()
            file.close()
            self._size = self._synced_size = 0
        self._rolled_at = self._written_bytes
        return SnapshotId(self.offset_end, LEADER_EPOCH)

    def _begin_segment(self) -> tuple[File, int]:
        """An empty segment and how far room is set aside in it."""
        name = segment_file(self.offset_end)
        try:
            file, room = self._with_room(name + PART_SUFFIX)
            self._directory.rename(name + PART_SUFFIX, name)
            self._directory.sync()
        except OSError as error:
            if error.errno in DISK_FULL:
                raise MetadataStoreError(error.errno, f"the metadata log stays in its segment: {error}") from error
            raise self._fail("synced", error) from error
        return file, room

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
        try:
            size_bytes = self._write_part(part, encode(records, epoch=which.epoch, now_ms=now_ms), stopped)
            self._directory.rename(part, which.name)
            self._directory.sync()
        except (OSError, SnapshotStopped):
            with contextlib.suppress(OSError):
                self._directory.remove(part)
            raise
        before, self.snapshot = self.snapshot, which
        self._snapshot_at = self._rolled_at
        self._remove_older(which, before)
        return size_bytes

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
        for each in self._snapshot_ids():
            if each not in (newest, before):
                self._directory.remove(each.name)
        for base in self._bases():
            if base < (before.offset_end if before else 0):
                self._directory.remove(segment_file(base))
