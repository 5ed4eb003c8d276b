"""The two indexes of a segment, in memory and in their files

The log is the truth and the indexes follow it: an append notes its batch in memory, the files are brought up to date
later, by whichever thread has the time. The indexes of a sealed segment are read from their files when they are first
needed, and their memory may be freed again.

Index files carry no checksum. What was read from them is therefore a claim (`from_files`), in contrast to what this
process has noted itself; whoever finds a contradiction between a claim and the log makes the indexes anew (`reindex`).
"""

import contextlib
from collections.abc import Callable
from functools import partial

from tidemill.core.runtime.disk import Directory

from . import index_files
from .index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, IndexDamaged, OffsetIndex, TimeIndex
from .segment_files import CLEANED_SUFFIX, INDEX_SUFFIX, INDEX_SUFFIXES, TIME_INDEX_SUFFIX, segment_name

Latest = tuple[int, int]
"""Largest timestamp of a segment, and the last offset of the batch that has it; the timestamp is -1 if none has one."""


class SegmentIndexes:
    """The offset index and the time index of one segment; raises IndexDamaged where a file cannot be one."""

    __slots__ = ("_base_offset", "_directory", "_files_usable", "_written", "from_files", "in_memory", "latest")

    def __init__(self, directory: Directory, base_offset: int, *, new: bool) -> None:
        self._directory = directory
        self._base_offset = base_offset
        self.in_memory: tuple[OffsetIndex, TimeIndex] | None = (OffsetIndex(), TimeIndex()) if new else None
        self._written = (0, 0)  # entries of each that are in the files
        self._files_usable = False  # else they are written from the start
        self.from_files = False
        self.latest: Latest = (-1, base_offset)

    @property
    def noted_here(self) -> bool:
        """Whether all they say was taken from the log by this process."""
        return self.in_memory is not None and not self.from_files

    # -- filling

    def note(self, max_timestamp: int, last_offset: int, position: int, interval_bytes: int) -> None:
        """Take note of the next batch; it gets an entry once `interval_bytes` have passed since the last one."""
        if max_timestamp > self.latest[0]:
            self.latest = (max_timestamp, last_offset)
        assert self.in_memory is not None
        offsets = self.in_memory[0]
        if position - offsets.last_position > interval_bytes:
            offsets.append(last_offset - self._base_offset, position)
            self.note_latest()

    def note_latest(self) -> None:
        """Give the time index an entry for the largest timestamp: as it has with each new entry, and at its end."""
        assert self.in_memory is not None
        timestamp, offset = self.latest
        self.in_memory[1].append_if_later(timestamp, offset - self._base_offset)

    def clear(self) -> tuple[OffsetIndex, TimeIndex]:
        """Begin anew, from nothing."""
        return self._take(OffsetIndex(), TimeIndex())

    def keep_below(self, offset: int) -> None:
        """Forget what is said of batches that end at or beyond `offset`; the files are written anew."""
        assert self.in_memory is not None
        offsets, times = self.in_memory
        offsets.keep_below(offset - self._base_offset)
        times.keep_below(offset - self._base_offset)
        self._take(offsets, times)

    def take_below(self, offset: int, offsets: OffsetIndex, times: TimeIndex) -> None:
        """Begin with what these two, of the same log, say of batches that end before `offset`."""
        self._take(offsets.below(offset - self._base_offset), times.below(offset - self._base_offset))

    def write_anew(self) -> None:
        """Have the files written from the start the next time, whatever they hold."""
        self._files_usable = False

    def _take(self, offsets: OffsetIndex, times: TimeIndex) -> tuple[OffsetIndex, TimeIndex]:
        self.in_memory = pair = (offsets, times)
        self._files_usable = False
        self.from_files = len(offsets) + len(times) > 0
        last = times.last
        self.latest = (-1, self._base_offset) if last is None else (last[0], self._base_offset + last[1])
        return pair

    # -- files

    def load(self, log_bytes: int) -> tuple[OffsetIndex, TimeIndex]:
        """Read both files, of a log of `log_bytes`."""
        offsets = OffsetIndex.from_bytes(self._read(INDEX_SUFFIX), log_bytes)
        times = TimeIndex.from_bytes(self._read(TIME_INDEX_SUFFIX))
        if times.last is None and log_bytes:
            raise IndexDamaged("the time index of a segment with data is empty")
        pair = self._take(offsets, times)
        self._written = (len(offsets), len(times))
        self._files_usable = True
        return pair

    def _read(self, suffix: str) -> bytes:
        name = segment_name(self._base_offset, suffix)
        try:
            return self._directory.read(name)
        except FileNotFoundError:
            raise IndexDamaged(f"{name} is missing") from None

    def last_time_in_file(self) -> Latest | None:
        """The last entry of the time index file, without reading the rest of it; None if there is no such entry."""
        name = segment_name(self._base_offset, TIME_INDEX_SUFFIX)
        if not self._directory.exists(name):
            return None
        file = self._directory.open(name)
        try:
            entry = file.read_at(max(0, file.size() - TIME_ENTRY_BYTES), TIME_ENTRY_BYTES)
        finally:
            file.close()
        with contextlib.suppress(IndexDamaged):
            last = TimeIndex.from_bytes(entry).last
            if last is not None:
                return last[0], self._base_offset + last[1]
        return None

    # -- asked from another thread, which changes nothing

    def batch_before_time(self, timestamp: int) -> tuple[int, int]:
        """(position, relative last offset) of an indexed batch, all up to it being earlier; (0, 0) if there is none."""
        pair = self.in_memory
        if pair is not None:
            return self.batch_before(pair[1].before(timestamp) + 1)
        name = segment_name(self._base_offset, TIME_INDEX_SUFFIX)
        return self.batch_before(index_files.time_before(self._directory, name, timestamp) + 1)

    def batch_before(self, relative_offset: int) -> tuple[int, int]:
        """(position, relative last offset) of the last indexed batch that ends before an offset; (0, 0) without one."""
        pair = self.in_memory
        if pair is not None:
            offsets, _ = pair
            position = offsets.before(relative_offset)
            return position, offsets.last_offset_at(position) or 0
        name = segment_name(self._base_offset, INDEX_SUFFIX)
        return index_files.batch_before(self._directory, name, relative_offset) or (0, 0)

    def peek_latest(self) -> int | None:
        """The largest timestamp, -1 if no batch has one; None if that cannot be known without a walk."""
        if self.in_memory is not None or self.latest[0] >= 0:
            return self.latest[0]
        found = self.last_time_in_file()
        return None if found is None else found[0]

    @property
    def are_written(self) -> bool:
        """Whether the files say all that the indexes say."""
        if self.in_memory is None:
            return True
        offsets, times = self.in_memory
        return self._files_usable and self._written == (len(offsets), len(times))

    def take_writes(self) -> Callable[[], None]:
        """What brings the files up to date with the indexes as they are now; callable in another thread."""
        assert self.in_memory is not None
        first = self._written if self._files_usable else (0, 0)
        offsets, times = self.in_memory
        data = (offsets.to_bytes(first[0]), times.to_bytes(first[1]))
        self._written = (len(offsets), len(times))
        self._files_usable = True
        return partial(self._write, first, data)

    def _write(self, first: tuple[int, int], data: tuple[bytes, bytes]) -> None:
        sizes = (OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES)
        try:
            for suffix, number, size_bytes, entries in zip(INDEX_SUFFIXES, first, sizes, data, strict=True):
                name = segment_name(self._base_offset, suffix)
                file = self._directory.open(name) if number else self._directory.create(name)
                try:
                    file.write_at(number * size_bytes, entries)
                finally:
                    file.close()
        except OSError:
            self._files_usable = False
            raise

    def sync_files(self) -> None:
        """Make the files durable; only then may recovery be told to trust them."""
        for suffix in INDEX_SUFFIXES:
            file = self._directory.open(segment_name(self._base_offset, suffix))
            try:
                file.sync()
            finally:
                file.close()

    def remove_files(self) -> None:
        """Remove the files: better none than some that say less than the log has."""
        self._files_usable = False
        for suffix in INDEX_SUFFIXES:
            self._directory.remove(segment_name(self._base_offset, suffix))

    def forget(self) -> None:
        """Free the memory if the files have all of it."""
        if self.are_written:
            self.in_memory = None

    def write_cleaned(self) -> None:
        """Write the files of a segment that is not part of the log yet, durably but for their names."""
        assert self.in_memory is not None
        for suffix, entries in zip(INDEX_SUFFIXES, (index.to_bytes() for index in self.in_memory), strict=True):
            file = self._directory.create(segment_name(self._base_offset, suffix) + CLEANED_SUFFIX)
            try:
                file.write_at(0, entries)
                file.sync()
            finally:
                file.close()

    def take_names(self) -> None:
        """The files that `write_cleaned` wrote have their final names now."""
        assert self.in_memory is not None
        self._written = (len(self.in_memory[0]), len(self.in_memory[1]))
        self._files_usable = True
