"""The record behind a timestamp

The only place of the log that looks inside a batch. Indexes and headers narrow the search down to one batch; of that
one times and offsets are read, because a client wants the offset of the first record with the time it asked for, not of
the batch around it.

A search may have to walk over a whole segment and to decompress a batch, so it is made for another thread: it sees a
`LogView`, what was visible of the log when it was asked, changes nothing and opens its own files. It is a generator of
short steps; what it yields says whether it holds the records of a batch. Whoever runs it (`lookup_queue`) throws the
answer away if segments were replaced or removed meanwhile, and asks again.

A batch that is damaged is passed over: it was reported when it was found, or will be when it is read.
"""

import contextlib
import mmap
from bisect import bisect_right
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tidemill.core.errors import CorruptMessage
from tidemill.core.records.batch import HEADER_BYTES, BatchHeader, crc_matches, plausible_size, read_header
from tidemill.core.records.columns import ColumnReader, RecordColumns
from tidemill.core.records.compression import CODECS, decompress_into
from tidemill.core.records.record import DECOMPRESSED_BYTES_MAX
from tidemill.core.runtime.disk import File

from .index import RELATIVE_OFFSET_MAX
from .scan import BadBatch, resync, walk
from .segment import Segment
from .segment_files import segment_name

Found: TypeAlias = tuple[int, int] | None
"""(timestamp, offset) of a record."""

Search: TypeAlias = Generator[bool, None, Found]
"""The steps to what is found, each of about a millisecond; True while a batch is held in memory."""

_HEADERS_PER_STEP = 300
_RECORDS_PER_STEP = 1000
_COPIED_BYTES_MAX = 2**20  # a bytes object is walked faster than a mapping, and so much is copied in no time
_SEGMENTS_PER_STEP = 50  # of each a file may have to be opened

_TIMES = ColumnReader("timestamps", "offsets")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """What of a log is visible: the records in `[log_start, high_watermark)`.

    The high watermark lies in the segment with the base offset `last_base`, or at its end. Of that segment only the
    bytes below `last_end` are visible, and `last_latest` is the largest timestamp in them, whatever the segment has
    grown to, or None if that is not known.
    """

    segments: tuple[Segment, ...]
    log_start: int
    high_watermark: int
    last_base: int
    last_end: int
    last_latest: int | None
    changes: int  # what the log's own `changes` was when the view was taken

    def visible_segments(self) -> tuple[Segment, ...]:
        """Those that may have a visible record."""
        bases = [segment.base_offset for segment in self.segments]
        first = max(0, bisect_right(bases, self.log_start) - 1)
        return self.segments[first : bisect_right(bases, self.last_base)]

    def latest(self, segment: Segment) -> int | None:
        """The largest visible timestamp, -1 if there is none; None if it cannot be known without a walk."""
        return self.last_latest if segment.base_offset == self.last_base else segment.indexes.peek_latest()

    def end(self, segment: Segment) -> int:
        """The position in the segment where what is visible ends."""
        return self.last_end if segment.base_offset == self.last_base else segment.size_bytes


def first_at_or_after(view: LogView, timestamp: int) -> Search:
    """The first visible record with `timestamp` or later."""
    for number, segment in enumerate(view.visible_segments()):
        if number % _SEGMENTS_PER_STEP == 0:
            yield False
        latest = view.latest(segment)
        if latest is None or latest >= timestamp:
            found = yield from _first_in_segment(view, segment, timestamp)
            if found is not None:
                return found
    return None


def with_max_timestamp(view: LogView) -> Search:
    """The first visible record that has the largest timestamp."""
    largest = -1
    for number, segment in enumerate(view.visible_segments()):
        if number % _SEGMENTS_PER_STEP == 0:
            yield False
        latest = view.latest(segment)
        if latest is None or (latest > largest and segment.base_offset < view.log_start):
            latest = yield from _largest_in_segment(view, segment)  # the record that has it may be a hidden one
        largest = max(largest, latest)
    if largest < 0:
        return None
    return (yield from first_at_or_after(view, largest))


def _first_in_segment(view: LogView, segment: Segment, timestamp: int) -> Search:
    with _opened(segment) as file:
        start = segment.indexes.batch_before_time(timestamp)
        for number, (position, header) in enumerate(_batches(file, segment, start, view.end(segment)), 1):
            if number % _HEADERS_PER_STEP == 0:
                yield False
            if header.max_timestamp < timestamp or header.last_offset < view.log_start:
                continue
            for part in _times(file, position, header):
                if max(part.timestamps, default=-1) >= timestamp:
                    for found in zip(part.timestamps, part.offsets, strict=True):
                        if found[0] >= timestamp and found[1] >= view.log_start:
                            return found
                yield True
            yield False
    return None


def _largest_in_segment(view: LogView, segment: Segment) -> Generator[bool, None, int]:
    """The largest timestamp at or above the log start."""
    largest = -1
    with _opened(segment) as file:
        start = segment.indexes.batch_before(view.log_start - segment.base_offset)
        for number, (position, header) in enumerate(_batches(file, segment, start, view.end(segment)), 1):
            if number % _HEADERS_PER_STEP == 0:
                yield False
            if header.last_offset < view.log_start or header.max_timestamp <= largest:
                continue
            if header.base_offset >= view.log_start:
                largest = header.max_timestamp
                continue
            for part in _times(file, position, header):
                seen = (time for time, at in zip(part.timestamps, part.offsets, strict=True) if at >= view.log_start)
                largest = max(largest, max(seen, default=-1))
                yield True
            yield False
    return largest


@contextlib.contextmanager
def _opened(segment: Segment) -> Iterator[File]:
    """A file of our own: that of the segment may be closed under our hands, and its descriptor be another's."""
    file = segment.directory.open(segment_name(segment.base_offset))
    try:
        yield file
    finally:
        file.close()


def _batches(file: File, segment: Segment, start: tuple[int, int], end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of the batches from an index entry (position, last offset) on, damaged ones left out."""
    position, last_offset = start
    due = segment.base_offset if position == 0 else -1
    if position:
        header = read_header(file.read_at(position, HEADER_BYTES).ljust(HEADER_BYTES, b"\0"))
        if not plausible_size(header) or header.last_offset - segment.base_offset != last_offset:
            position, due = 0, segment.base_offset  # the index leads to a wrong place
    while position < end:
        try:
            for at, header in walk(file, position, end, verify=False, due=due, dense=segment.dense):
                yield at, header
            return
        except BadBatch as bad:
            least = max(segment.base_offset, bad.due + 1)
            found = resync(file, bad.position + 1, end, least, segment.base_offset + RELATIVE_OFFSET_MAX + 1)
            if found is None:
                return
            position, due = found[0], found[1].base_offset


def _times(file: File, position: int, header: BatchHeader) -> Iterator[RecordColumns]:
    """Times and offsets of a batch, part by part; of a damaged one those before the damage."""
    with contextlib.suppress(CorruptMessage):
        batch = file.read_at(position, header.size_bytes)
        if len(batch) == header.size_bytes and crc_matches(batch, 0, header):
            yield from _TIMES.parts(header, _expanded(header, batch), _RECORDS_PER_STEP)


def _expanded(header: BatchHeader, batch: bytes) -> bytes | memoryview:
    """The records uncompressed; in a mapping, whose pages are handed out while other threads have the interpreter."""
    packed = memoryview(batch)[HEADER_BYTES:]
    if header.codec == CODECS["none"]:
        return batch[HEADER_BYTES:] if len(batch) <= _COPIED_BYTES_MAX else packed
    room = memoryview(mmap.mmap(-1, DECOMPRESSED_BYTES_MAX, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    records = room[: decompress_into(header.codec, packed, room)]
    return bytes(records) if len(records) <= _COPIED_BYTES_MAX else records
