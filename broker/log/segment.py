"""One file of a partition's log: appended to, searched, read

A segment holds the batches from its base offset on. Only the last segment of a partition is appended to; the others are
sealed. Appending to the file comes first, the indexes follow (`segment_indexes`).

Nothing is served that was not checked. Bytes appended by this process came through a CRC check; bytes found on disk are
checked against their CRC the first time they are read, and the ranges that passed are remembered for as long as they
stay in memory: what has to come from the disk again may have decayed there. What fails is remembered as damaged
(`damage`), unless only an index file led to the wrong place.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import structlog

from tidemill.core.errors import CorruptMessage
from tidemill.core.records.batch import HEADER_BYTES, BatchHeader, plausible_size, read_header
from tidemill.core.runtime.disk import DISK_FULL, ByteBuffer, Directory, File

from .damage import Damage, DamagedParts, extent_of_damage
from .extents import Extents
from .index import OFFSET_ENTRY_BYTES, RELATIVE_OFFSET_MAX, IndexDamaged, OffsetIndex, TimeIndex
from .scan import BadBatch, walk, walk_bytes
from .segment_files import CLEANED_SUFFIX, INDEX_SUFFIXES, remove_retired_segment, retire_segment, segment_name
from .segment_indexes import Latest, SegmentIndexes

log = structlog.get_logger("tidemill.broker.log")

INDEX_INTERVAL_BYTES = 4096  # Kafka's default, for indexes rebuilt without their topic's settings at hand

WRITE_AGAIN_BYTES = 1024 * 1024

RECENT_MAX = 32
"""So many batches of those appended last, if not twice as many, are found without a walk: followers and consumers at
the end ask for them. They take a few KiB in each segment that is written to."""


class IndexClaim(NamedTuple):
    """What index files that nobody has read yet have to come to: how many entries they have, and the latest."""

    offset_entries: int
    time_entries: int
    latest: Latest


class Segment:
    """One `.log` file, its `.index` and its `.timeindex`."""

    def __init__(
        self, directory: Directory, base_offset: int, file: File, size_bytes: int, *, new: bool = False
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.file = file
        self.size_bytes = size_bytes
        self.next_offset = base_offset
        self.first_append_ms: int | None = None
        self.dense = True  # no gaps between offsets; the cleaner leaves some
        self.indexes = SegmentIndexes(directory, base_offset, new=new)
        self.age_proven = False  # the log itself says how old it is: see `segment_age`
        self.modified_ms = -1  # when the file was last written, once somebody has asked for it
        self.claim: IndexClaim | None = None  # until the index files are read
        self._damaged = DamagedParts()
        self._verified = Extents()
        self._recent: dict[int, int] = {}  # the positions of some batches by the offset that each was due to have ...
        self._recent_before: dict[int, int] = {}  # ... and of as many before them

    @classmethod
    def create(cls, directory: Directory, base_offset: int) -> "Segment":
        """A new, empty segment."""
        for suffix in INDEX_SUFFIXES:
            directory.create(segment_name(base_offset, suffix)).close()
        return cls(directory, base_offset, directory.create(segment_name(base_offset)), 0, new=True)

    @classmethod
    def create_cleaned(cls, directory: Directory, base_offset: int) -> "Segment":
        """A new, empty segment that is not part of the log yet: see `swap`. Callable in another thread."""
        file = directory.create(segment_name(base_offset) + CLEANED_SUFFIX)
        segment = cls(directory, base_offset, file, 0, new=True)
        segment.dense = False
        return segment

    @classmethod
    def open(cls, directory: Directory, base_offset: int) -> "Segment":
        """A segment found on disk; its indexes are read when needed."""
        file = directory.open(segment_name(base_offset))
        return cls(directory, base_offset, file, file.size())

    # -- appending

    def fits(self, size_bytes: int, last_offset: int, segment_bytes: int, index_bytes: int) -> bool:
        """Whether a batch still belongs in this segment."""
        return (
            self.size_bytes + size_bytes <= segment_bytes
            and last_offset - self.base_offset <= RELATIVE_OFFSET_MAX
            and (self.indexes.in_memory or self._load_indexes())[0].size_bytes + OFFSET_ENTRY_BYTES <= index_bytes
        )

    def append(self, data: ByteBuffer, max_timestamp: int, last_offset: int, index_interval_bytes: int) -> None:
        """Write one stamped batch behind the last one; after an OSError the segment is as it was before."""
        position = self.size_bytes
        try:
            self.file.write_at(position, data)
        except OSError:
            self.file.truncate(position)
            raise
        recent = self._recent
        if len(recent) == RECENT_MAX:
            self._recent_before, self._recent = recent, {}
            recent = self._recent
        recent[self.next_offset] = position
        self.size_bytes = end = position + len(data)
        self.next_offset = last_offset + 1
        self._verified.add(position, end)
        self.indexes.note(max_timestamp, last_offset, position, index_interval_bytes)

    def seal(self) -> None:
        """Nothing more will be appended: note the largest timestamp, as the time index of a sealed segment has it."""
        self._forget_recent()
        if self.size_bytes:
            self._pair()
            self.indexes.note_latest()

    def sync_cleaned(self) -> None:
        """Write the indexes of a cleaned segment beside its log and make all of it durable, names included."""
        self.seal()
        self.indexes.write_cleaned()
        self.file.truncate(self.size_bytes)  # gives back what was set aside for growth
        self.file.sync()
        self.directory.sync()

    # -- indexes

    @property
    def index(self) -> OffsetIndex:
        """The offset index, read or rebuilt at first use."""
        return (self.indexes.in_memory or self._load_indexes())[0]

    @property
    def times(self) -> TimeIndex:
        """The time index, read or rebuilt at first use."""
        return self._pair()[1]

    @property
    def latest(self) -> Latest:
        """Largest timestamp, and the last offset of the batch that has it; the timestamp is -1 if no batch has one."""
        indexes = self.indexes
        if indexes.in_memory is None and indexes.latest[0] < 0:
            found = indexes.last_time_in_file()
            if found is None:
                self._load_indexes()
            else:
                indexes.latest = found
        return indexes.latest

    def _pair(self) -> tuple[OffsetIndex, TimeIndex]:
        return self.indexes.in_memory or self._load_indexes()

    def _load_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        try:
            offsets, times = self.indexes.load(self.size_bytes)  # after an OSError what is claimed still has to hold
            claim, self.claim = self.claim, None
            if claim is not None:
                if claim != (len(offsets), len(times), self.indexes.latest):
                    raise IndexDamaged("its index files are not those of the last stop")
                self.indexes.write_anew()
        except IndexDamaged as error:
            self.claim = None
            return self.rebuild_past_damage(str(error))
        return offsets, times

    def claim_indexes(self, claim: IndexClaim) -> None:
        """Take the active segment to have these indexes until somebody needs them."""
        if self.size_bytes == 0:
            self.indexes.clear()
            return
        self.claim = claim
        self.indexes.latest = claim.latest

    def know_latest(self) -> None:
        """Have the indexes in memory from now on, which know the largest timestamp; a claim says it too."""
        if self.claim is None:
            self._pair()

    @property
    def index_entries(self) -> tuple[int, int]:
        """How many entries each index has."""
        if self.claim is not None:
            return self.claim.offset_entries, self.claim.time_entries
        offsets, times = self._pair()
        return len(offsets), len(times)

    def take_index_writes(self) -> Callable[[], None]:
        """What brings the index files up to date with the indexes as they are now; callable in another thread."""
        self._pair()
        return self.indexes.take_writes()

    def rebuild_past_damage(self, reason: str) -> tuple[OffsetIndex, TimeIndex]:
        """Make the indexes anew over the whole segment, past whatever is damaged in it."""
        log.warning("rebuilding index", segment=self.label, reason=reason)
        end = self.next_offset
        bad = self.rebuild_indexes(INDEX_INTERVAL_BYTES)
        while bad is not None:
            damage = self.add_damage(bad)
            self.next_offset = damage.next_offset
            bad = self.extend_indexes(damage.end, INDEX_INTERVAL_BYTES)
        self.next_offset = max(end, self.next_offset)
        return self._pair()

    def rebuild_indexes(self, index_interval_bytes: int) -> BadBatch | None:
        """Make the indexes anew from the batches, up to the first bad one, which is returned."""
        self.indexes.clear()
        self.next_offset = self.base_offset
        return self.extend_indexes(0, index_interval_bytes)

    def extend_indexes(self, position: int, index_interval_bytes: int) -> BadBatch | None:
        """Take the batches from `position` on into the indexes, up to the first bad one, which is returned."""
        self._pair()
        due, dense = self.next_offset, self.dense
        try:
            for at, batch in walk(self.file, position, self.size_bytes, verify=True, due=due, dense=dense):
                self.indexes.note(batch.max_timestamp, batch.last_offset, at, index_interval_bytes)
                self.next_offset = batch.last_offset + 1
                self._verified.add(at, at + batch.size_bytes)
        except BadBatch as bad:
            return bad
        return None

    # -- reading

    def _recent_position(self, offset: int) -> int | None:
        found = self._recent.get(offset)
        return found if found is not None else self._recent_before.get(offset)

    def _forget_recent(self) -> None:
        self._recent, self._recent_before = {}, {}

    def position_of(self, offset: int) -> int:
        """Position of the batch that has `offset`, or of the next one, or where the segment ends; raises as `locate`.

        Nothing is read for what was appended a moment ago.
        """
        recent = self._recent_position(offset)
        if recent is not None:
            return recent
        found = self.locate(offset)
        return self.size_bytes if found is None else found[0]

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Position and header of the batch that has `offset`, or of the next one; None beyond the last batch.

        Raises CorruptMessage when `offset` is known to lie in a damaged batch.
        """
        relative = offset - self.base_offset
        exact = self._recent_position(offset)
        if exact is None:
            exact = self.index.at_or_after(relative)
        if exact is not None and self._damaged.at(exact) is None:
            raw = self.file.read_at(exact, HEADER_BYTES)
            if len(raw) == HEADER_BYTES:
                header = read_header(raw)
                if header.base_offset <= offset <= header.last_offset and plausible_size(header):
                    return exact, header
        start = self.index.before(relative)
        for position, header in self.batches(start):
            if header.last_offset >= offset:
                if header.base_offset > offset:
                    self._damaged.refuse(offset, start, self.size_bytes, self.label)
                return position, header
        self._damaged.refuse(offset, start, self.size_bytes, self.label)
        return None

    def batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every batch from an index entry (or the start) on, damaged ones left out."""
        due = self.base_offset if position == 0 else -1
        while True:
            try:
                walked = walk(self.file, position, self.size_bytes, verify=False, due=due, dense=self.dense)
                for at, batch in walked:
                    damage = self._damaged.at(at)
                    if damage is not None:
                        break
                    if due < 0 and at == position:
                        self._check_against_index(at, batch)
                    yield at, batch
                else:
                    return
            except BadBatch as bad:
                damage = self.explain(bad)
                if damage is None:
                    position = self.index.boundary_at_or_below(bad.position)
                    due = self.base_offset if position == 0 else -1
                    continue
            position, due = damage.end, damage.next_offset

    def _check_against_index(self, position: int, batch: BatchHeader) -> None:
        if batch.last_offset - self.base_offset != self.index.last_offset_at(position):
            raise BadBatch(position, f"a batch with last offset {batch.last_offset}, not the one of the index")

    def read(self, offset: int, size_bytes_max: int, end: int, *, at_least_one: bool = True) -> bytes | memoryview:
        """Whole batches from the one that has `offset`, or the next one, none at or beyond position `end`.

        As many as fit in `size_bytes_max`; with `at_least_one` the first one even if it does not fit. Raises
        CorruptMessage when the batch that has `offset` is damaged.
        """
        while True:
            found = self.locate(offset)
            if found is None or found[0] >= end:
                return b""
            position, first = found
            if first.size_bytes > size_bytes_max and not at_least_one:
                return b""
            stop = self._cut(position, first.size_bytes, size_bytes_max, end)
            if self._verified.covers(position, stop):
                return self.file.view_at(position, stop - position)
            try:
                return self._read_unverified(position, stop)
            except BadBatch as bad:
                damage = self.explain(bad)
                if damage is not None and damage.hides(offset, self.size_bytes):
                    raise CorruptMessage(f"{self.label}: {bad}") from bad

    def cold_range(self, offset: int, size_bytes_max: int) -> tuple[int, int] | None:
        """Position and size of what a read of `offset` would have to wait for the disk for; None when it would not.

        The read that follows checks it again.
        """
        found = self.locate(offset)
        if found is None:
            return None
        position, first = found
        size_bytes = min(max(first.size_bytes, size_bytes_max), self.size_bytes - position)
        if self.file.is_cached(position, size_bytes):
            return None
        self._verified.remove(position, position + size_bytes)
        return position, size_bytes

    def _read_unverified(self, position: int, stop: int) -> bytes | memoryview:
        """What can be believed of `[position, stop)`; raises BadBatch when that is nothing."""
        start = self.index.boundary_at_or_below(position)  # from here on every offset follows from the one before
        due = self.base_offset if start == 0 else -1
        for damage in self._damaged:
            if start < damage.end <= position:
                start, due = damage.end, damage.next_offset
        data = self.file.read_at(start, stop - start)
        checked = start
        try:
            for at, batch in walk_bytes(data, start, due=due, dense=self.dense):
                if due < 0 and at == start:
                    self._check_against_index(at, batch)
                checked = at + batch.size_bytes
        except BadBatch as bad:
            self._verified.add(start, checked)
            if checked <= position:
                raise
            self.explain(bad)
            stop = checked
        self._verified.add(start, stop)
        return (
            data
            if start == position and stop == start + len(data)
            else memoryview(data)[position - start : stop - start]
        )

    def _cut(self, position: int, first_bytes: int, size_bytes_max: int, end: int) -> int:
        """Where a read from `position` stops: an index entry, the end, or the end of the first batch."""
        first = position + first_bytes
        wanted = position + size_bytes_max
        if wanted >= end:
            return end
        if wanted <= first:
            return first
        stop = self.index.boundary_at_or_below(wanted)
        if stop > first:
            return stop
        stop = first
        try:
            for at, batch in walk(self.file, first, end, verify=False, dense=self.dense):
                if at + batch.size_bytes > wanted:
                    break
                stop = at + batch.size_bytes
        except BadBatch as bad:
            self.explain(bad)
        return stop

    # -- damage

    @property
    def damaged(self) -> list[Damage]:
        """What is known not to be readable any more."""
        return list(self._damaged)

    def explain(self, bad: BadBatch) -> Damage | None:
        """Find out where the readable log goes on behind a bad batch; None if there is nothing wrong there.

        A bad batch may only look like one because an index file led to the wrong place, so indexes that were read from
        files are made anew from the log first.
        """
        if self.indexes.from_files:
            self.rebuild_past_damage(f"in doubt after {bad}")
            return self._damaged.at(bad.position)
        return self.add_damage(bad)

    def add_damage(self, bad: BadBatch) -> Damage:
        """The same where the indexes are known to be right."""
        known = self._damaged.at(bad.position)
        if known is not None:
            return known
        offset_min = max(self.base_offset, bad.due + 1)
        offset_end = self.base_offset + RELATIVE_OFFSET_MAX + 1
        damage = extent_of_damage(self.file, self.size_bytes, bad, self.index, offset_min, offset_end, self.next_offset)
        self._damaged.add(damage)
        log.error(
            "corrupt batch: it will not be served",
            segment=self.label,
            reason=bad.reason,
            readable_again_at=damage.next_offset,
            position=damage.position,
            end=damage.end,
        )
        return damage

    def take_over(self, reread: "Segment") -> None:
        """Believe what somebody found who has read the same file from end to end (`segment_age`)."""
        self.indexes = reread.indexes
        for damage in reread.damaged:
            if self._damaged.at(damage.position) is None:
                self._damaged.add(damage)

    # -- the end

    def end_before(self, offset: int) -> tuple[int, int, int]:
        """Position and offset where the segment ends if it is to have nothing from `offset` on, and only whole batches.

        The third is the first offset of which anything goes: it is smaller than `offset` if a batch, or a damaged part,
        has records on both sides of it, and larger than the end if the cleaner has left nothing right before it.
        """
        position, end = 0, self.base_offset
        following = self.next_offset
        for at, batch in self.batches(self.index.before(offset - self.base_offset)):
            if batch.last_offset >= offset:
                following = batch.base_offset
                break
            position, end = at + batch.size_bytes, batch.last_offset + 1
        while (damage := self._damaged.at(position)) is not None:
            if damage.next_offset > offset:
                return position, end, end
            position, end = damage.end, damage.next_offset
        return position, end, max(end, min(offset, following))

    def cut(self, position: int, next_offset: int) -> "Segment":
        """The same segment up to there, as another object on the same file; the bytes beyond are still in it.

        Another object, because of this one somebody may know, in another thread, that it never changes.
        """
        offsets, times = self._pair()
        kept = Segment(self.directory, self.base_offset, self.directory.open(segment_name(self.base_offset)), position)
        kept.next_offset = next_offset
        kept.first_append_ms, kept.dense = self.first_append_ms, self.dense
        for start, end in self._verified.ranges():
            kept._verified.add(start, min(end, position))
        for damage in self._damaged:
            if damage.end <= position:
                kept._damaged.add(damage)
        kept.indexes.take_below(next_offset, offsets, times)
        try:
            kept.complete_latest(position)
        except BadBatch as bad:
            kept.rebuild_past_damage(f"in doubt after {bad}")
        return kept

    def complete_latest(self, end: int) -> None:
        """Let the headers up to position `end` say what the time index may not know yet; raises BadBatch."""
        indexes = self.indexes
        start = self.index.before(indexes.latest[1] - self.base_offset)
        due = self.base_offset if start == 0 else -1
        for _, batch in walk(self.file, start, end, verify=False, due=due, dense=self.dense):
            if batch.max_timestamp > indexes.latest[0]:
                indexes.latest = (batch.max_timestamp, batch.last_offset)

    @property
    def label(self) -> str:
        """The path to show to people."""
        return f"{self.directory.path}/{segment_name(self.base_offset)}"

    def truncate(self, position: int) -> None:
        """Cut the log behind the last batch that the indexes know of."""
        self.file.truncate(position)
        self.size_bytes = position
        self._forget_recent()

    def write_again(self, from_offset: int) -> None:
        """Let the next sync write everything from `from_offset` on, also what a failed sync left in memory only.

        No room is needed to write over what is there, except on file systems that never do; those refuse, and are as
        sure of their pages as before.
        """
        position = self.index.before(max(0, from_offset - self.base_offset))
        while position < self.size_bytes:
            data = self.file.read_at(position, min(WRITE_AGAIN_BYTES, self.size_bytes - position))
            try:
                self.file.write_at(position, data)
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
                return
            position += len(data)

    def close(self) -> None:
        """Close the log file."""
        self.file.close()

    def mark_deleted(self) -> None:
        """Close and rename the files so that no start ever takes them up again."""
        self.close()
        retire_segment(self.directory, self.base_offset)

    def remove_deleted(self) -> None:
        """Remove the files that `mark_deleted` renamed."""
        remove_retired_segment(self.directory, self.base_offset)
