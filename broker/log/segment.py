"""One file of a partition's log with its two indexes

A segment holds the batches from its base offset on. Only the last segment of a partition is appended to; the others are
sealed and their indexes are read when first needed. Appending to the file comes first, the indexes follow in memory and
are written behind, because they can be rebuilt from the log at any time.

Nothing is served that was not checked. Bytes appended by this process came through a CRC check; bytes found on disk are
checked against their CRC the first time they are read, and the ranges that passed are remembered for as long as they
stay in memory: what has to come from the disk again may have decayed there. A range that fails is remembered as
damaged: reads end before it, and a read that begins in it gets CORRUPT_MESSAGE.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import structlog

from tidemill.core.errors import CorruptMessage
from tidemill.core.records.batch import HEADER_BYTES, BatchHeader, plausible_size, read_header
from tidemill.core.runtime.disk import DISK_FULL, ByteBuffer, Directory, File

from .extents import Extents
from .index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, IndexDamaged, OffsetIndex, TimeIndex
from .scan import BadBatch, resync, walk, walk_bytes

log = structlog.get_logger("tidemill.broker.log")

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, ".txnindex", SNAPSHOT_SUFFIX)

RELATIVE_OFFSET_MAX = 2**31 - 1
INDEX_INTERVAL_BYTES = 4096  # Kafka's default, for indexes rebuilt without their topic's settings at hand


def segment_name(base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    """The file name of the segment that begins at `base_offset`."""
    return f"{base_offset:020d}{suffix}"


def retire(directory: Directory, name: str) -> None:
    """Give a file, if it is there, a name that no start takes up; it goes at once where a full disk takes no name."""
    if not directory.exists(name):
        return
    try:
        directory.rename(name, name + DELETED_SUFFIX)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        directory.remove(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Bytes `[position, end)` of a segment that are not the batches they were; `next_offset` is readable again."""

    position: int
    end: int
    next_offset: int


class Segment:
    """One `.log` file, its `.index` and its `.timeindex`."""

    def __init__(self, directory: Directory, base_offset: int, file: File, size_bytes: int) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.file = file
        self.size_bytes = size_bytes
        self.next_offset = base_offset
        self.first_append_ms: int | None = None
        self.dense = True  # no gaps between offsets; the cleaner leaves some
        self.damaged: list[Damage] = []
        self._verified = Extents()
        self._latest = (-1, base_offset)  # largest timestamp, last offset of the batch that has it
        self._index: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._index_written = 0
        self._times_written = 0
        self._index_files_usable = False
        self.index_is_hearsay = False  # read from a file, at least in part, not made from the log by this process

    @classmethod
    def create(cls, directory: Directory, base_offset: int) -> "Segment":
        """A new, empty segment."""
        for suffix in INDEX_SUFFIXES:
            directory.create(segment_name(base_offset, suffix)).close()
        segment = cls(directory, base_offset, directory.create(segment_name(base_offset)), 0)
        segment._index, segment._times = OffsetIndex(), TimeIndex()
        return segment

    @classmethod
    def create_cleaned(cls, directory: Directory, base_offset: int) -> "Segment":
        """A new, empty segment that is not part of the log yet: see `swap`. Callable in another thread."""
        segment = cls(directory, base_offset, directory.create(segment_name(base_offset) + CLEANED_SUFFIX), 0)
        segment._index, segment._times = OffsetIndex(), TimeIndex()
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
            and self.index.size_bytes + OFFSET_ENTRY_BYTES <= index_bytes
        )

    def append(self, data: ByteBuffer, max_timestamp: int, last_offset: int, index_interval_bytes: int) -> None:
        """Write one stamped batch behind the last one; after an OSError the segment is as it was before."""
        position = self.size_bytes
        try:
            self.file.write_at(position, data)
        except OSError:
            self.file.truncate(position)
            raise
        self.size_bytes = end = position + len(data)
        self.next_offset = last_offset + 1
        self._verified.add(position, end)
        self._note(max_timestamp, last_offset, position, index_interval_bytes)

    def _note(self, max_timestamp: int, last_offset: int, position: int, index_interval_bytes: int) -> None:
        if max_timestamp > self._latest[0]:
            self._latest = (max_timestamp, last_offset)
        index = self._index
        if index is None:
            index = self.index
        if position - index.last_position > index_interval_bytes:
            index.append(last_offset - self.base_offset, position)
            self._note_time()

    def _note_time(self) -> None:
        timestamp, offset = self._latest
        self.times.append_if_later(timestamp, offset - self.base_offset)

    def seal(self) -> None:
        """Nothing more will be appended: note the largest timestamp, as the time index of a sealed segment has it."""
        if self.size_bytes:
            self._note_time()

    @property
    def latest(self) -> tuple[int, int]:
        """(largest timestamp, last offset of the batch that has it); the timestamp is -1 if no batch has one."""
        if self._times is None and self._latest[0] < 0:
            self._latest = self._peek_latest()
        return self._latest

    def _peek_latest(self) -> tuple[int, int]:
        """The last entry of the time index file, without reading the rest of it."""
        name = segment_name(self.base_offset, TIME_INDEX_SUFFIX)
        if self.directory.exists(name):
            file = self.directory.open(name)
            try:
                entry = file.read_at(max(0, file.size() - TIME_ENTRY_BYTES), TIME_ENTRY_BYTES)
            finally:
                file.close()
            with contextlib.suppress(IndexDamaged):
                last = TimeIndex.from_bytes(entry).last
                if last is not None:
                    return last[0], self.base_offset + last[1]
        self._load_indexes()
        return self._latest

    def confirm_latest(self) -> bool:
        """Whether the batch that `latest` names says the same; if not, it is found anew from the log.

        An index file is no reason to delete records: one flipped bit in it makes the segment decades older, or younger.
        """
        timestamp, offset = self.latest
        if timestamp < 0 or (self._times is not None and not self.index_is_hearsay):
            return True
        for _, batch in self.batches(self.index.before(max(0, offset - self.base_offset))):
            if batch.last_offset >= offset:
                if batch.base_offset <= offset and batch.max_timestamp == timestamp:
                    return True
                break
        self._rebuild_all("its largest timestamp is not the one of the batch that it names")
        return False

    # -- indexes

    @property
    def index(self) -> OffsetIndex:
        """The offset index, read or rebuilt at first use."""
        if self._index is None:
            self._load_indexes()
        assert self._index is not None
        return self._index

    @property
    def times(self) -> TimeIndex:
        """The time index, read or rebuilt at first use."""
        if self._times is None:
            self._load_indexes()
        assert self._times is not None
        return self._times

    def _load_indexes(self) -> None:
        try:
            self._read_index_files()
        except IndexDamaged as error:
            self._rebuild_all(str(error))

    def _rebuild_all(self, reason: str) -> None:
        """Make the indexes anew over the whole segment, past whatever is damaged in it."""
        log.warning("rebuilding index", segment=self.label, reason=reason)
        end = self.next_offset
        bad = self.rebuild_indexes(INDEX_INTERVAL_BYTES)
        while bad is not None:
            damage = self.remember_damage(bad)
            self.next_offset = damage.next_offset
            bad = self.extend_indexes(damage.end, INDEX_INTERVAL_BYTES)
        self.next_offset = max(end, self.next_offset)

    def _read_index_files(self) -> None:
        index = OffsetIndex.from_bytes(self._read_index_file(INDEX_SUFFIX), self.size_bytes)
        times = TimeIndex.from_bytes(self._read_index_file(TIME_INDEX_SUFFIX))
        if times.last is None and self.size_bytes:
            raise IndexDamaged("the time index of a segment with data is empty")
        self._take_indexes(index, times)
        self._index_written, self._times_written = len(index), len(times)
        self._index_files_usable = True
        self.index_is_hearsay = len(index) > 0

    def _read_index_file(self, suffix: str) -> bytes:
        name = segment_name(self.base_offset, suffix)
        if not self.directory.exists(name):
            raise IndexDamaged(f"{name} is missing")
        return self.directory.read(name)

    def _take_indexes(self, index: OffsetIndex, times: TimeIndex) -> None:
        self._index, self._times = index, times
        self._index_files_usable = False
        self.index_is_hearsay = len(index) > 0
        last = times.last
        self._latest = (-1, self.base_offset) if last is None else (last[0], self.base_offset + last[1])

    def rebuild_indexes(self, index_interval_bytes: int) -> BadBatch | None:
        """Make the indexes anew from the batches, up to the first bad one, which is returned."""
        self._take_indexes(OffsetIndex(), TimeIndex())
        self.next_offset = self.base_offset
        return self.extend_indexes(0, index_interval_bytes)

    def reopen_indexes(self, trusted_below: int, index_interval_bytes: int) -> BadBatch | None:
        """Keep of the index files what is about offsets below `trusted_below` and make the rest anew.

        Every batch behind what was kept is checked; the first bad one is returned.
        """
        try:
            self._read_index_files()
        except IndexDamaged:
            return self.rebuild_indexes(index_interval_bytes)
        index, times = self.index, self.times
        all_trusted = trusted_below >= self.base_offset + RELATIVE_OFFSET_MAX
        if not all_trusted:
            index.keep_below(trusted_below - self.base_offset)
            times.keep_below(trusted_below - self.base_offset)
        self._take_indexes(index, times)
        position = index.last_position
        try:
            if not all_trusted:
                self._complete_latest(position)
        except BadBatch:
            return self.rebuild_indexes(index_interval_bytes)
        self.next_offset = self.base_offset
        if position:
            batch = read_header(self.file.read_at(position, HEADER_BYTES).ljust(HEADER_BYTES, b"\0"))
            if batch.last_offset - self.base_offset != index.last_offset_at(position):
                return self.rebuild_indexes(index_interval_bytes)
            self.next_offset = batch.base_offset
        return self.extend_indexes(position, index_interval_bytes)

    def _complete_latest(self, end: int) -> None:
        """Let the headers up to position `end` say what the time index may have lost in a crash."""
        _, offset = self._latest
        start = self.index.before(offset - self.base_offset)
        due = self.base_offset if start == 0 else -1
        for _, batch in walk(self.file, start, end, verify=False, due=due, dense=self.dense):
            if batch.max_timestamp > self._latest[0]:
                self._latest = (batch.max_timestamp, batch.last_offset)

    def extend_indexes(self, position: int, index_interval_bytes: int) -> BadBatch | None:
        """Take the batches from `position` on into the indexes, up to the first bad one, which is returned."""
        try:
            due, dense = self.next_offset, self.dense
            for at, batch in walk(self.file, position, self.size_bytes, verify=True, due=due, dense=dense):
                self._note(batch.max_timestamp, batch.last_offset, at, index_interval_bytes)
                self.next_offset = batch.last_offset + 1
                self._verified.add(at, at + batch.size_bytes)
        except BadBatch as bad:
            return bad
        return None

    def take_index_writes(self) -> Callable[[], None]:
        """What brings the index files up to date with the indexes as they are now; callable in another thread."""
        first = (self._index_written, self._times_written) if self._index_files_usable else (0, 0)
        index, times = self.index, self.times
        data = (index.to_bytes(first[0]), times.to_bytes(first[1]))
        self._index_written, self._times_written = len(index), len(times)
        self._index_files_usable = True
        return partial(self._write_index_files, first, data)

    @property
    def index_is_written(self) -> bool:
        """Whether the index files say all that the indexes say."""
        return self._index is None or (self._index_files_usable and self._index_written == len(self._index))

    def _write_index_files(self, first: tuple[int, int], data: tuple[bytes, bytes]) -> None:
        sizes = (OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES)
        try:
            for suffix, number, size_bytes, entries in zip(INDEX_SUFFIXES, first, sizes, data, strict=True):
                name = segment_name(self.base_offset, suffix)
                file = self.directory.open(name) if number else self.directory.create(name)
                try:
                    file.write_at(number * size_bytes, entries)
                finally:
                    file.close()
        except OSError:
            self._index_files_usable = False  # to be written from the start the next time
            raise

    def sync_cleaned(self) -> None:
        """Write the indexes of a cleaned segment beside its log and make all of it durable, names included."""
        self.seal()
        for suffix, entries in zip(INDEX_SUFFIXES, (self.index.to_bytes(), self.times.to_bytes()), strict=True):
            file = self.directory.create(segment_name(self.base_offset, suffix) + CLEANED_SUFFIX)
            try:
                file.write_at(0, entries)
                file.sync()
            finally:
                file.close()
        self.file.truncate(self.size_bytes)  # gives back what was set aside for growth
        self.file.sync()
        self.directory.sync()

    def take_names(self) -> None:
        """The files of a cleaned segment have their final names: its indexes may be forgotten and read again."""
        self._index_written, self._times_written = len(self.index), len(self.times)
        self._index_files_usable = True

    def forget_indexes(self) -> None:
        """Free the memory of the indexes if the files have all of them; they are read again when needed."""
        if self.index_is_written:
            self._index = self._times = None

    def forget_index_files(self) -> None:
        """Remove the index files: better none than some that say less than the log has."""
        self._index_files_usable = False
        for suffix in INDEX_SUFFIXES:
            self.directory.remove(segment_name(self.base_offset, suffix))

    def sync_indexes(self) -> None:
        """Make the index files durable; only then may recovery be told to trust this segment."""
        for suffix in INDEX_SUFFIXES:
            file = self.directory.open(segment_name(self.base_offset, suffix))
            try:
                file.sync()
            finally:
                file.close()

    # -- reading

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Position and header of the batch that has `offset`, or of the next one; None beyond the last batch.

        Raises CorruptMessage when `offset` is known to lie in a damaged batch.
        """
        relative = offset - self.base_offset
        exact = self.index.at_or_after(relative)
        if exact is not None and self.damage_at(exact) is None:
            raw = self.file.read_at(exact, HEADER_BYTES)
            if len(raw) == HEADER_BYTES:
                header = read_header(raw)
                if header.base_offset <= offset <= header.last_offset and plausible_size(header):
                    return exact, header
        start = self.index.before(relative)
        for position, header in self.batches(start):
            if header.last_offset >= offset:
                if header.base_offset > offset:
                    self._refuse_lost(offset, start)
                return position, header
        self._refuse_lost(offset, start)
        return None

    def _refuse_lost(self, offset: int, start: int) -> None:
        for damage in self.damaged:
            if damage.position >= start and (offset < damage.next_offset or damage.end >= self.size_bytes):
                raise CorruptMessage(f"{self.label}: a corrupt batch at position {damage.position}")

    def batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every batch from an index entry (or the start) on, damaged ones left out."""
        due = self.base_offset if position == 0 else -1
        while True:
            try:
                walked = walk(self.file, position, self.size_bytes, verify=False, due=due, dense=self.dense)
                for at, batch in walked:
                    damage = self.damage_at(at)
                    if damage is not None:
                        break
                    if due < 0 and at == position:
                        self._check_against_index(at, batch)
                    yield at, batch
                else:
                    return
            except BadBatch as bad:
                damage = self.note_damage(bad)
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
                damage = self.note_damage(bad)
                if damage is not None and (offset < damage.next_offset or damage.end >= self.size_bytes):
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
        for damage in self.damaged:
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
            self.note_damage(bad)
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
            self.note_damage(bad)
        return stop

    def damage_at(self, position: int) -> Damage | None:
        """The damaged range that `position` lies in."""
        for damage in self.damaged:
            if damage.position <= position < damage.end:
                return damage
        return None

    def note_damage(self, bad: BadBatch) -> Damage | None:
        """Remember a bad batch and find out where the readable log goes on; None if there is nothing wrong there.

        A bad batch may only look like one because an index file led to the wrong place, so an index that was read from
        a file is made anew from the log first.
        """
        if self.index_is_hearsay:
            self._rebuild_all(f"in doubt after {bad}")
            return self.damage_at(bad.position)
        return self.remember_damage(bad)

    def remember_damage(self, bad: BadBatch) -> Damage:
        """The same where the index is known to be right."""
        known = self.damage_at(bad.position)
        if known is not None:
            return known
        limit = self.index.boundary_above(bad.position)
        offset_min = max(self.base_offset, bad.due + 1)
        offset_end = self.base_offset + RELATIVE_OFFSET_MAX + 1
        search_end = self.size_bytes if limit is None else limit
        found = resync(self.file, bad.position + 1, search_end, offset_min, offset_end)
        if found is not None:
            damage = Damage(position=bad.position, end=found[0], next_offset=found[1].base_offset)
        elif limit is not None:
            after = read_header(self.file.read_at(limit, HEADER_BYTES))
            damage = Damage(position=bad.position, end=limit, next_offset=after.base_offset)
        else:
            damage = Damage(position=bad.position, end=self.size_bytes, next_offset=self.next_offset)
        self.damaged.append(damage)
        log.error(
            "corrupt batch: it will not be served",
            segment=self.label,
            reason=bad.reason,
            readable_again_at=damage.next_offset,
            position=damage.position,
            end=damage.end,
        )
        return damage

    # -- the end

    @property
    def label(self) -> str:
        """The path to show to people."""
        return f"{self.directory.path}/{segment_name(self.base_offset)}"

    def truncate(self, position: int) -> None:
        """Cut the log behind the last batch that the indexes know of."""
        self.file.truncate(position)
        self.size_bytes = position

    def close(self) -> None:
        """Close the log file."""
        self.file.close()

    def mark_deleted(self) -> None:
        """Close and rename the files so that no start ever takes them up again."""
        self.close()
        for suffix in SEGMENT_SUFFIXES:
            retire(self.directory, segment_name(self.base_offset, suffix))

    def remove_deleted(self) -> None:
        """Remove the files that `mark_deleted` renamed."""
        for suffix in SEGMENT_SUFFIXES:
            self.directory.remove(segment_name(self.base_offset, suffix) + DELETED_SUFFIX)

    def newest_ms(self) -> int:
        """When the newest record was written, as far as its timestamps or else the file can tell; 0 without records.

        The cleaner leaves segments without records; the time of their file would say when it was at work.
        """
        if self.size_bytes == 0:
            return 0
        newest = self.latest[0]
        return newest if newest >= 0 else self.directory.modified_ms(segment_name(self.base_offset))
