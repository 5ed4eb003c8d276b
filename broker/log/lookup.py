"""The record behind a timestamp

The only place of the log that looks inside a batch. Indexes and headers narrow the search down to one batch; that one
is decoded, because a client wants the offset of the first record with the time it asked for, not of the batch around
it.
"""

from collections.abc import Sequence

from tidemill.core.errors import CorruptMessage
from tidemill.core.records.batch import BatchHeader, BatchView
from tidemill.core.records.record import Record, decode_records

from .segment import Segment


def first_at_or_after(
    segments: Sequence[Segment], timestamp: int, log_start: int, high_watermark: int
) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record in `[log_start, high_watermark)` with `timestamp` or later."""
    for segment in segments:
        if segment.base_offset >= high_watermark:
            break
        if segment.latest[0] < timestamp:
            continue
        for at, batch in segment.batches(segment.index.before(segment.times.before(timestamp) + 1)):
            if batch.last_offset >= high_watermark:
                return None
            if batch.max_timestamp >= timestamp and batch.last_offset >= log_start:
                found = _in_batch(segment, at, batch, timestamp, log_start)
                if found is not None:
                    return found
    return None


def with_max_timestamp(segments: Sequence[Segment], log_start: int, high_watermark: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record in `[log_start, high_watermark)` that has the largest timestamp."""
    largest = -1
    for segment in segments:
        if segment.base_offset >= high_watermark:
            break
        timestamp, offset = segment.latest
        if timestamp <= largest or segment.next_offset <= log_start:
            continue
        if segment.base_offset >= log_start and offset < high_watermark:
            largest = timestamp
        else:  # part of it is not to be seen
            largest = max(largest, _largest_visible(segment, log_start, high_watermark))
    return None if largest < 0 else first_at_or_after(segments, largest, log_start, high_watermark)


def _largest_visible(segment: Segment, log_start: int, high_watermark: int) -> int:
    largest = -1
    for position, batch in segment.batches():
        if batch.last_offset >= high_watermark:
            break
        if batch.base_offset >= log_start:
            largest = max(largest, batch.max_timestamp)
        elif batch.last_offset >= log_start:
            visible = (record.timestamp for record in _records(segment, position, batch) if record.offset >= log_start)
            largest = max(largest, max(visible, default=-1))
    return largest


def _in_batch(
    segment: Segment, position: int, batch: BatchHeader, timestamp: int, log_start: int
) -> tuple[int, int] | None:
    for record in _records(segment, position, batch):
        if record.timestamp >= timestamp and record.offset >= log_start:
            return record.timestamp, record.offset
    return None


def _records(segment: Segment, position: int, batch: BatchHeader) -> list[Record]:
    try:
        data = segment.read(batch.base_offset, batch.size_bytes, position + batch.size_bytes)
        return decode_records(BatchView(data)) if data else []
    except CorruptMessage:
        return []  # reported when it was found; the next batch may do
