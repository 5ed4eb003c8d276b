"""Segments written anew with only the last record of every key

Two passes over files that nobody changes any more, as Apache Kafka makes them. `fill` notes the newest offset of every
key in the part of the log that was never compacted. `compact` copies a group of segments into a new one and leaves
out, record by record:

* what has a newer record with the same key;
* a tombstone (no value) whose delete horizon has passed. The first copy of a tombstone sets the horizon of its batch
  to `delete.retention.ms` from now (attribute bit 6; the base timestamp *is* the horizon, KIP-534), so that a consumer
  that began before has that long to see it;
* what has no key.

What stays keeps its offset, its time and its batch: base offset, last offset delta, leader epoch, producer id, epoch
and base sequence never change, a compressed batch is compressed again with its codec, a batch that lost nothing is
copied byte by byte. A batch that lost everything goes, except the last one, in what is compacted, of a producer that is
still known: its header stays, as it says which sequence number is due after a restart. A later batch of that producer
does not do instead while a power cut may still take it away.

Every byte read is checked against its CRC; a batch that fails ends the work with CleaningFailed and nothing is
replaced. Batches of transactions do so too: which of them were aborted is not known on this broker. Blocking; runs in
the cleaner's thread and shares no state with the event loop.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidemill.core.errors import KafkaError
from tidemill.core.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    pack_header,
)
from tidemill.core.records.columns import ColumnReader, RecordColumns
from tidemill.core.records.compression import compress, decompress
from tidemill.core.records.crc import crc32c
from tidemill.core.records.record import DECOMPRESSED_BYTES_MAX
from tidemill.core.runtime.disk import Directory, File

from . import swap
from .kept_records import kept, rebased
from .offset_map import OffsetMap
from .scan import BadBatch, walk
from .segment import Segment
from .segment_files import segment_name

_KEYS = ColumnReader("offsets", "keys")
_JUDGED = ColumnReader("ends", "offsets", "timestamps", "keys", "tombstones")

Pace = Callable[[int], None]
"""Called with the number of bytes just read or written; waits as the throttle wants, raises to stop the work."""


SEGMENT_BYTES_MAX = 2**31 - 1
"""Positions in an index file are 32 bits with a sign. A group of segments can grow beyond: a delete horizon is far from
the time of the records, so it makes their timestamps longer."""


class CleaningFailed(Exception):
    """The log cannot be compacted as it is; the text says what is wrong and where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSegment:
    """A segment to be cleaned, as it was when the cleaning began."""

    base_offset: int
    size_bytes: int
    dense: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What decides, besides the map, whether a record stays."""

    now_ms: int
    delete_retention_ms: int
    covered_offset: int  # the map knows every key below; what lies beyond stays
    producers: Mapping[int, int]  # producer id -> offset of its last record in what is compacted


def fill(
    directory: Directory,
    sources: Sequence[SourceSegment],
    dirty: tuple[int, int],
    offset_map: OffsetMap,
    pace: Pace,
) -> int:
    """Note the keys of all records in `dirty` offsets (first, end); returns the offset up to which they fitted in.

    The end must be where the last of `sources` ends.
    """
    first_dirty, end = dirty
    covered = first_dirty
    for source in sources:
        for header, batch in _batches(directory, source, pace):
            if header.last_offset < first_dirty or header.record_count == 0:
                covered = max(covered, header.last_offset + 1)
                continue
            columns = _columns(_KEYS, header, _payload(header, batch))
            keys, offsets = columns.keys, columns.offsets
            if header.base_offset < first_dirty:
                keys = [key if offset >= first_dirty else None for key, offset in zip(keys, offsets, strict=True)]
            if not offset_map.offer(keys, offsets):
                if covered > first_dirty:
                    return covered
                raise CleaningFailed(
                    f"the {header.record_count} records of the batch at offset {header.base_offset} need more than "
                    f"log.cleaner.dedupe.buffer.size: it holds {offset_map.capacity} keys"
                )
            covered = header.last_offset + 1
    return end


def last_of_producers(directory: Directory, sources: Sequence[SourceSegment]) -> dict[int, int]:
    """The offset of the last record of every producer in `sources`, going by the headers alone."""
    found: dict[int, int] = {}
    for source in sources:
        name = segment_name(source.base_offset)
        file: File = directory.open(name)
        try:
            walked = walk(file, 0, source.size_bytes, verify=False, due=source.base_offset, dense=source.dense)
            for _, header in walked:
                if header.producer_id >= 0:
                    found[header.producer_id] = header.last_offset
        except BadBatch as bad:
            raise CleaningFailed(f"corrupt: {name}, {bad}") from bad
        finally:
            file.close()
    return found


def compact(
    directory: Directory,
    sources: Sequence[SourceSegment],
    offset_map: OffsetMap,
    rules: Rules,
    index_interval_bytes: int,
    pace: Pace,
) -> Segment:
    """Write the segment that replaces `sources`, durable and under names that `swap` expects."""
    cleaned = Segment.create_cleaned(directory, sources[0].base_offset)
    try:
        for source in sources:
            for header, batch in _batches(directory, source, pace):
                remains = compact_batch(header, batch, offset_map, rules)
                if remains is not None:
                    after, data = remains
                    if cleaned.size_bytes + len(data) > SEGMENT_BYTES_MAX:
                        raise CleaningFailed(
                            f"segments from {sources[0].base_offset} on are too large: lower segment.bytes"
                        )
                    cleaned.append(data, after.max_timestamp, after.last_offset, index_interval_bytes)
                    pace(len(data))
        cleaned.sync_cleaned()
    except BaseException:
        cleaned.close()
        with contextlib.suppress(OSError):
            swap.discard(directory, cleaned.base_offset)
        raise
    return cleaned


def _batches(directory: Directory, source: SourceSegment, pace: Pace) -> Iterator[tuple[BatchHeader, bytes]]:
    name = segment_name(source.base_offset)
    file: File = directory.open(name)
    try:
        walked = walk(file, 0, source.size_bytes, verify=True, due=source.base_offset, dense=source.dense)
        for position, header in walked:
            if header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT):
                raise CleaningFailed(f"{name} has a batch of a transaction at offset {header.base_offset}")
            batch = file.read_at(position, header.size_bytes)
            pace(len(batch))
            yield header, batch
    except BadBatch as bad:
        raise CleaningFailed(f"corrupt: {name}, {bad}") from bad
    finally:
        file.close()


def _payload(header: BatchHeader, batch: bytes) -> bytes:
    """The records of a batch, uncompressed."""
    try:
        return decompress(header.attributes & CODEC_MASK, memoryview(batch)[HEADER_BYTES:], DECOMPRESSED_BYTES_MAX)
    except KafkaError as error:
        raise CleaningFailed(f"the batch at offset {header.base_offset} cannot be read: {error}") from error


def _columns(reader: ColumnReader, header: BatchHeader, payload: bytes) -> RecordColumns:
    try:
        return reader.read(header, payload)
    except KafkaError as error:
        raise CleaningFailed(f"the batch at offset {header.base_offset} cannot be read: {error}") from error


def compact_batch(
    header: BatchHeader, batch: bytes, offset_map: OffsetMap, rules: Rules
) -> tuple[BatchHeader, bytes] | None:
    """What is left of a batch; None if nothing is."""
    if header.base_offset >= rules.covered_offset:
        return header, batch
    if header.record_count:
        payload = _payload(header, batch)
        columns = _columns(_JUDGED, header, payload)
        keep = _judge(header, columns, offset_map, rules)
        if any(keep):
            return _remainder(header, batch, payload, columns, keep, rules)
    if header.producer_id >= 0 and rules.producers.get(header.producer_id) == header.last_offset:
        return _seal(
            header._replace(
                attributes=header.attributes & TIMESTAMP_TYPE_BIT, base_timestamp=-1, record_count=0
            ),
            b"",
        )  # fmt: skip
    return None


def _judge(header: BatchHeader, columns: RecordColumns, offset_map: OffsetMap, rules: Rules) -> list[bool]:
    """Which records stay."""
    tombstones_stay = not header.attributes & DELETE_HORIZON_BIT or rules.now_ms < header.base_timestamp
    newest = offset_map.newest(columns.keys)
    return [
        key is not None and offset >= found and (tombstones_stay or not tombstone)
        for offset, key, found, tombstone in zip(columns.offsets, columns.keys, newest, columns.tombstones, strict=True)
    ]


def _remainder(
    header: BatchHeader, batch: bytes, payload: bytes, columns: RecordColumns, keep: list[bool], rules: Rules
) -> tuple[BatchHeader, bytes]:
    """The batch with the records that stay, and with a delete horizon if it needs one and has none."""
    has_horizon = header.attributes & DELETE_HORIZON_BIT
    needs_horizon = not has_horizon and any(map(bool.__and__, keep, columns.tombstones))
    if all(keep) and not needs_horizon:
        return header, batch
    base_timestamp, attributes = header.base_timestamp, header.attributes
    if needs_horizon:
        base_timestamp = rules.now_ms + rules.delete_retention_ms
        attributes |= DELETE_HORIZON_BIT
        deltas = [timestamp - base_timestamp for timestamp in columns.timestamps]
        data = rebased(payload, columns.ends, keep, deltas)
    else:
        data = kept(payload, columns.ends, keep)
    max_timestamp = max(itertools.compress(columns.timestamps, keep))
    after = header._replace(
        attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp, record_count=sum(keep)
    )
    return _seal(after, compress(attributes & CODEC_MASK, data))


def _seal(header: BatchHeader, payload: bytes) -> tuple[BatchHeader, bytes]:
    """The batch of `header` and `payload`, its length and CRC made right."""
    header = header._replace(length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload), crc=0)
    raw = pack_header(header)
    crc = crc32c(payload, crc32c(raw[CRC_AT + 4 :]))
    return header._replace(crc=crc), raw[:CRC_AT] + crc.to_bytes(4, "big") + raw[CRC_AT + 4 :] + payload
