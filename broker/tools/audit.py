"""Everything that can be wrong with a partition on the disk

The audit reads all of it and changes nothing: every batch against its CRC and the offset that is due, every index
entry against the batch that it points at, leader epochs, producer snapshots and checkpoints against the log. It walks
with the same code as recovery and judges as recovery would, so what the audit calls a torn tail is what the next start
cuts off, and what it calls corrupt is what the broker will not serve.

An audit of a folder in use sees the last write half done; there a torn tail is a note, not a fault.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest

from tidemill.broker.log import snapshots
from tidemill.broker.log.checkpoints import LEADER_EPOCHS, read_epochs
from tidemill.broker.log.epochs import UNKNOWN_EPOCH, LeaderEpochs
from tidemill.broker.log.identity import FolderRefused, read_topic_id
from tidemill.broker.log.index import (
    OFFSET_ENTRY_BYTES,
    RELATIVE_OFFSET_MAX,
    TIME_ENTRY_BYTES,
    IndexDamaged,
    OffsetIndex,
    TimeIndex,
    without_reserve,
)
from tidemill.broker.log.scan import BadBatch, resync, walk
from tidemill.broker.log.segment_files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SPARSE,
    TIME_INDEX_SUFFIX,
    segment_name,
)
from tidemill.broker.log.swap import SWAP_SUFFIX
from tidemill.core.errors import KafkaError
from tidemill.core.records.batch import BatchHeader, BatchView
from tidemill.core.records.record import decode_records
from tidemill.core.runtime.disk import Directory, File

_NAME_DIGITS = 20
_PROGRESS_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong; `is_note` if it is harmless or heals by itself at the next start."""

    file: str
    text: str
    is_note: bool = False


@dataclass(slots=True, kw_only=True)
class SegmentFacts:
    """What one segment holds."""

    base_offset: int
    size_bytes: int
    next_offset: int
    batches: int = 0
    records: int = 0
    index_sound: bool = True
    bad_ranges: int = 0


@dataclass(slots=True, kw_only=True)
class PartitionFacts:
    """What one partition holds, and its faults in the order in which they were found."""

    segments: list[SegmentFacts] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)  # (epoch, first offset), as the batches have it
    epoch_last: int = UNKNOWN_EPOCH
    faults: list[Fault] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong that does not heal by itself."""
        return all(fault.is_note for fault in self.faults)

    @property
    def offset_start(self) -> int:
        """First offset of the first segment."""
        return self.segments[0].base_offset if self.segments else 0

    @property
    def offset_end(self) -> int:
        """Offset after the last record."""
        return self.segments[-1].next_offset if self.segments else 0

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """What the auditor may assume of the folder; offsets are -1 where no checkpoint says."""

    indexed: bool = True
    clean: bool = False  # the last stop was clean
    in_use: bool = False
    decode: bool = False  # read every record as well
    recovery_point: int = -1
    log_start_offset: int = -1
    cleaned_offset: int | None = None  # how far the log is compacted; None if it never was


def audit(
    directory: Directory, options: AuditOptions, progress: Callable[[int], None] = lambda _bytes: None
) -> PartitionFacts:
    """Read the partition in `directory`; `progress` hears of bytes read since it was last called."""
    facts = PartitionFacts()
    names = directory.list()
    bases = segment_bases(names)
    for base, following in zip_longest(bases, bases[1:]):
        _Segment(directory, base, following, options, facts, progress).audit()
    if options.indexed:
        _check_epochs(directory, options, facts)
    _check_checkpoints(options, facts)
    _check_snapshots(directory, names, facts)
    _check_names(directory, names, bases, facts)
    return facts


def segment_bases(names: "list[str]") -> list[int]:
    """Base offsets of the segments among the files of a folder, in order."""
    stems = (name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX))
    return sorted(int(stem) for stem in stems if stem.isdigit() and len(stem) == _NAME_DIGITS)


class _Segment:
    """The audit of one segment."""

    def __init__(
        self,
        directory: Directory,
        base_offset: int,
        following: int | None,
        options: AuditOptions,
        partition: PartitionFacts,
        progress: Callable[[int], None],
    ) -> None:
        self._directory = directory
        self._following = following
        self._options = options
        self._partition = partition
        self._progress = progress
        self._name = segment_name(base_offset)
        self._dense = not directory.exists(SPARSE) and (
            following is None
            or options.cleaned_offset is None
            or following > max(options.recovery_point, options.cleaned_offset)
        )  # no gaps between offsets, by recovery's own rule
        self._facts = SegmentFacts(base_offset=base_offset, size_bytes=0, next_offset=base_offset)
        self._largest_time = -1
        self._index: deque[tuple[int, int]] = deque()
        self._times: deque[tuple[int, int]] = deque()

    def audit(self) -> None:
        """Walk over all of it."""
        facts = self._facts
        self._partition.segments.append(facts)
        file = self._directory.open(self._name)
        try:
            facts.size_bytes = file.size()
            if self._options.indexed:
                self._read_indexes()
            self._walk(file)
        finally:
            file.close()
        if self._following is not None:
            self._check_following(self._following)
        if facts.bad_ranges == 0:
            self._check_leftover_entries()

    def _read_indexes(self) -> None:
        index_name, times_name = (
            segment_name(self._facts.base_offset, suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        )
        try:
            self._index = deque(OffsetIndex.from_bytes(self._read(index_name), self._facts.size_bytes).entries())
        except IndexDamaged as error:
            self._index_fault(index_name, str(error))
        try:
            self._times = deque(TimeIndex.from_bytes(self._read(times_name)).entries())
        except IndexDamaged as error:
            self._index_fault(times_name, str(error))
        else:
            if not self._times and self._facts.size_bytes and not self._is_open_ended():
                self._index_fault(times_name, "it is empty and the segment is not")

    def _read(self, name: str) -> bytes:
        if not self._directory.exists(name):
            raise IndexDamaged("it is missing")
        data = self._directory.read(name)
        if self._following is not None:
            return data
        return without_reserve(data, TIME_ENTRY_BYTES if name.endswith(TIME_INDEX_SUFFIX) else OFFSET_ENTRY_BYTES)

    def _is_open_ended(self) -> bool:
        """Whether the indexes are those of an active segment that was not closed in order: they may lag behind."""
        return self._following is None and (self._options.in_use or not self._options.clean)

    def _index_fault(self, name: str, text: str) -> None:
        self._facts.index_sound = False
        note = self._is_open_ended()
        self._fault(f"{text}; {'the next start makes it anew' if note else 'repair makes it anew'}", name, is_note=note)

    def _fault(self, text: str, name: str | None = None, *, is_note: bool = False) -> None:
        self._partition.faults.append(Fault(file=name or self._name, text=text, is_note=is_note))

    def _walk(self, file: File) -> None:
        facts = self._facts
        position, reported = 0, 0
        due = facts.base_offset
        while position < facts.size_bytes:
            try:
                for at, batch in walk(file, position, facts.size_bytes, verify=True, due=due, dense=self._dense):
                    self._take(file, at, batch)
                    if at - reported >= _PROGRESS_BYTES:
                        self._progress(at - reported)
                        reported = at
                break
            except BadBatch as bad:
                facts.bad_ranges += 1
                position, due = self._after(file, bad)
        self._progress(facts.size_bytes - reported)

    def _take(self, file: File, position: int, batch: BatchHeader) -> None:
        facts = self._facts
        facts.batches += 1
        facts.records += batch.record_count
        facts.next_offset = batch.last_offset + 1
        self._largest_time = max(self._largest_time, batch.max_timestamp)
        self._check_entries(position, batch)
        self._take_epoch(batch)
        if self._options.decode:
            try:
                decode_records(BatchView(file.read_at(position, batch.size_bytes)))
            except KafkaError as error:
                self._fault(f"the records of the batch at position {position} cannot be read: {error}")

    def _take_epoch(self, batch: BatchHeader) -> None:
        partition = self._partition
        before, partition.epoch_last = partition.epoch_last, batch.leader_epoch
        if batch.leader_epoch < before:
            self._fault(f"leader epoch {batch.leader_epoch} at offset {batch.base_offset} follows epoch {before}")
        elif batch.leader_epoch > before and (not partition.epochs or batch.leader_epoch > partition.epochs[-1][0]):
            partition.epochs.append((batch.leader_epoch, batch.base_offset))

    def _check_entries(self, position: int, batch: BatchHeader) -> None:
        """Compare the index entries up to this batch with it and be done with them."""
        facts = self._facts
        relative = batch.last_offset - facts.base_offset
        while self._index and self._index[0][1] <= position:
            entry = self._index.popleft()
            if entry != (relative, position) and facts.index_sound and facts.bad_ranges == 0:
                self._index_fault(
                    segment_name(facts.base_offset, INDEX_SUFFIX),
                    f"the entry of offset {facts.base_offset + entry[0]} leads to position {entry[1]}, "
                    f"which is not the batch that ends with it",
                )
        while self._times and self._times[0][1] <= relative:
            timestamp, _ = self._times.popleft()
            if timestamp != self._largest_time and facts.index_sound and facts.bad_ranges == 0:
                self._index_fault(
                    segment_name(facts.base_offset, TIME_INDEX_SUFFIX),
                    f"it has time {timestamp} at offset {batch.last_offset}, the log has {self._largest_time}",
                )

    def _check_leftover_entries(self) -> None:
        if self._facts.index_sound and (self._index or self._times):
            suffix = INDEX_SUFFIX if self._index else TIME_INDEX_SUFFIX
            self._index_fault(segment_name(self._facts.base_offset, suffix), "it goes on beyond the end of the log")

    def _after(self, file: File, bad: BadBatch) -> tuple[int, int]:
        """Report a bad batch; where the walk goes on and the offset that is there."""
        facts = self._facts
        due = max(bad.due, facts.next_offset)
        offset_end = self._following or facts.base_offset + RELATIVE_OFFSET_MAX + 1
        found = resync(file, bad.position + 1, facts.size_bytes, due + 1, offset_end)
        if found is not None:
            self._fault(
                f"corrupt from position {bad.position} to {found[0]} ({bad.reason}): "
                f"{_offsets(due, found[1].base_offset)} cannot be read"
            )
            facts.next_offset = found[1].base_offset
            return found[0], found[1].base_offset
        bytes_left = facts.size_bytes - bad.position
        if self._following is not None:
            self._fault(
                f"corrupt from position {bad.position} to its end ({bad.reason}): {_offsets(due, self._following)} "
                "cannot be read"
            )
            facts.next_offset = self._following
        elif due < self._options.recovery_point:
            self._fault(
                f"corrupt from position {bad.position} to its end ({bad.reason}): "
                f"{_offsets(due, self._options.recovery_point)} were durable and cannot be read"
            )
            facts.next_offset = self._options.recovery_point
        else:
            self._fault(
                f"torn tail: {bytes_left} bytes from position {bad.position} are no batch ({bad.reason}); "
                + ("it is being written" if self._options.in_use else "the next start or repair cuts them off"),
                is_note=self._options.in_use,
            )
        return facts.size_bytes, due

    def _check_following(self, following: int) -> None:
        facts = self._facts
        if facts.next_offset > following:
            self._fault(f"it goes on to offset {facts.next_offset}, the next segment begins at {following}")
        elif facts.next_offset < following and self._dense and facts.bad_ranges == 0:
            self._fault(f"{_offsets(facts.next_offset, following)} are missing before the next segment")


def _offsets(first: int, end: int) -> str:
    return f"offset {first}" if end - first <= 1 else f"offsets {first} to {end - 1}"


def _check_epochs(directory: Directory, options: AuditOptions, facts: PartitionFacts) -> None:
    def fault(text: str, *, is_note: bool = False) -> None:
        facts.faults.append(Fault(file=LEADER_EPOCHS, text=text, is_note=is_note))

    written = read_epochs(directory)
    for before, after in pairwise(written):
        if after[0] <= before[0] or after[1] < before[1]:
            fault(f"epoch {after[0]} at offset {after[1]} follows epoch {before[0]} at offset {before[1]}")
            return
    known = LeaderEpochs(written)
    for (epoch, begun), (_, end) in pairwise([*facts.epochs, (-1, facts.offset_end)]):
        first = max(begun, options.log_start_offset)  # nothing is remembered of what was deleted
        lags_behind = known.latest < epoch and not options.clean and first >= options.recovery_point
        if first < end and known.epoch_at(first) != epoch and not lags_behind:
            has = f"it gives offset {first} to epoch {known.epoch_at(first)}" if written else "it has no epochs"
            fault(f"{has}, the log gives it to epoch {epoch}")
            return
    if written and written[-1][1] > facts.offset_end:
        fault(f"epoch {written[-1][0]} begins at offset {written[-1][1]}, beyond the log's end {facts.offset_end}")


def _check_checkpoints(options: AuditOptions, facts: PartitionFacts) -> None:
    if options.recovery_point > facts.offset_end:
        facts.faults.append(
            Fault(
                file="recovery-point-offset-checkpoint",
                text=f"everything below offset {options.recovery_point} was durable, the log ends at "
                f"{facts.offset_end}: acknowledged records are missing",
            )
        )
    if options.log_start_offset > facts.offset_end:
        facts.faults.append(
            Fault(
                file="log-start-offset-checkpoint",
                text=f"the log is said to begin at offset {options.log_start_offset}, it ends at {facts.offset_end}",
            )
        )
    if facts.segments and -1 < options.log_start_offset < facts.offset_start:
        facts.faults.append(
            Fault(
                file="log-start-offset-checkpoint",
                text=f"the log is said to begin at offset {options.log_start_offset}, "
                f"its first segment begins at {facts.offset_start}",
            )
        )


def _check_snapshots(directory: Directory, names: "list[str]", facts: PartitionFacts) -> None:
    for name in names:
        stem = name.removesuffix(SNAPSHOT_SUFFIX)
        if not name.endswith(SNAPSHOT_SUFFIX) or not stem.isdigit():
            continue
        try:
            snapshots.decode(directory.read(name))
        except snapshots.SnapshotDamaged as damaged:
            text = f"it cannot be read ({damaged}); the next start does without it"
            facts.faults.append(Fault(file=name, text=text, is_note=True))
        if int(stem) > facts.offset_end:
            text = f"it is of offset {int(stem)}, beyond the log's end {facts.offset_end}; the next start removes it"
            facts.faults.append(Fault(file=name, text=text, is_note=True))


def _check_names(directory: Directory, names: "list[str]", bases: "list[int]", facts: PartitionFacts) -> None:
    for name in names:
        stem, suffix = name[:_NAME_DIGITS], name[_NAME_DIGITS:]
        left_over = name.endswith((DELETED_SUFFIX, ".tmp"))
        orphan = suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX) and stem.isdigit() and int(stem) not in bases
        if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)):
            text = "a replacement of segments was under way; the next start finishes it or removes this"
            facts.faults.append(Fault(file=name, text=text, is_note=True))
        elif left_over or orphan:
            facts.faults.append(Fault(file=name, text="left over; the next start removes it", is_note=True))
    if not bases:
        facts.faults.append(
            Fault(file=".", text="there is no segment; the next start makes an empty one", is_note=True)
        )
    try:
        read_topic_id(directory)
    except FolderRefused as refused:
        facts.faults.append(Fault(file="partition.metadata", text=str(refused)))
