"""Record batches turned into Arrow columns, many batches at a time

A record is a chain of varints, so nothing can be found without walking; but only the walk from record to record has to
be a loop. It reads one length per record and notes where the record starts. Everything else (timestamps, offsets, where
keys and values lie) is then computed for all records at once with NumPy, and Arrow copies keys and values out of the
fetched bytes in one pass: no Python object is made per record.

The trick of that last pass: one Arrow array is laid over the whole buffer, cut at every key and value boundary, so that
keys and values are every fourth element of it; `take` copies those and leaves the rest.

Headers are the exception: they are read record by record, and only when asked for.

Not here: fetching, and which batches may be shown (`visible_batches` is given the aborted transactions).
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.spark_sink.core_api import HEADER_BYTES, BatchView, CorruptMessage, decompress, iter_batches

GROUP_BYTES_MAX = 4 * 1024 * 1024  # bytes decoded into one Arrow batch; fits a cache, and 8 k rows already amortise all
BATCH_BYTES_MAX = 512 * 1024 * 1024  # a decompressed batch beyond this is an attack or a mistake
_VARINT_BYTES_MAX = 10  # a 64-bit value, seven bits a byte
_ABORT = struct.Struct(">hh")  # version and type of a control record's key
_ABORT_TYPE = 0

Int64s = npt.NDArray[np.int64]

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Rows(NamedTuple):
    """Columns of equal length, one entry per record."""

    key: pa.Array  # binary
    value: pa.Array  # binary
    offset: pa.Array  # int64
    timestamp_ms: pa.Array  # int64
    timestamp_type: pa.Array  # int32
    headers: pa.Array | None  # list<struct<key, value>>, null where a record has none

    def __len__(self) -> int:
        return len(self.offset)


class Aborted:
    """Which transactional batches a read_committed reader must not see, tracked while reading forward.

    `transactions` are the (producer id, first offset) pairs of a fetch response; a producer's batches from its first
    offset up to its abort marker are skipped.
    """

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        self._waiting = sorted(transactions, key=lambda item: item[1], reverse=True)
        self._open: set[int] = set()

    def hides(self, batch: BatchView) -> bool:
        """Whether to skip `batch`; must be asked about every batch, in order."""
        while self._waiting and self._waiting[-1][1] <= batch.last_offset:
            self._open.add(self._waiting.pop()[0])
        if batch.is_control:
            if batch.producer_id in self._open and is_abort_marker(batch):
                self._open.discard(batch.producer_id)
            return True
        return batch.is_transactional and batch.producer_id in self._open


def is_abort_marker(batch: BatchView) -> bool:
    """Whether a control batch ends a transaction by aborting it."""
    columns = decode([batch], batch.base_offset, batch.last_offset + 1)
    key = columns.key[0].as_py() if len(columns) else None
    return key is not None and len(key) >= _ABORT.size and _ABORT.unpack_from(key)[1] == _ABORT_TYPE


def visible_batches(
    data: memoryview, first: int, end: int, aborted: Aborted, check_crcs: bool = True
) -> tuple[list[BatchView], int]:
    """The batches of a fetch that have records to show in `first <= offset < end`, and where to read on.

    Reading on at `first` again means that the bytes held no complete batch.
    """
    batches: list[BatchView] = []
    next_offset = first
    for batch in iter_batches(data):
        if batch.base_offset >= end:
            return batches, end
        if batch.magic != 2:
            raise CorruptMessage(
                f"batch at offset {batch.base_offset} has the old format {batch.magic}; only 2 is read"
            )
        if check_crcs and not batch.verify_crc():
            raise CorruptMessage(f"batch at offset {batch.base_offset} fails its CRC check")
        next_offset = max(next_offset, batch.next_offset)
        if not aborted.hides(batch) and batch.last_offset >= first:
            batches.append(batch)
    return batches, next_offset


def decode_groups(batches: Sequence[BatchView], first: int, end: int, headers: bool = False) -> Iterable[Rows]:
    """Decode `batches` in groups of about `GROUP_BYTES_MAX`; yields no empty group."""
    group: list[BatchView] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += batch.size_bytes * (4 if batch.codec else 1)  # a guess at what decompression adds
        if size >= GROUP_BYTES_MAX:
            rows = decode(group, first, end, headers)
            group, size = [], 0
            if len(rows):
                yield rows
    rows = decode(group, first, end, headers)
    if len(rows):
        yield rows


def decode(batches: Sequence[BatchView], first: int, end: int, headers: bool = False) -> Rows:
    """Decode the records of `batches` with `first <= offset < end`; raises CorruptMessage for a malformed record."""
    data, spans = _one_buffer(batches)
    try:
        starts, lengths = _walk(data, spans)
        return _columns(data, spans, starts, lengths, first, end, headers)
    except IndexError:
        raise _malformed(batches) from None


def _malformed(batches: Sequence[BatchView]) -> CorruptMessage:
    return CorruptMessage(
        f"a record in the batches at offsets {batches[0].base_offset} to {batches[-1].last_offset} is malformed"
    )


class _Span(NamedTuple):
    """Where the records of a batch lie in the common buffer."""

    start: int
    end: int
    batch: BatchView


def _one_buffer(batches: Sequence[BatchView]) -> tuple[memoryview, list[_Span]]:
    """The records of all batches in one buffer: the fetched bytes themselves unless something is compressed."""
    if not batches:
        return memoryview(b""), []
    if all(batch.codec == 0 and batch.buffer is batches[0].buffer for batch in batches):
        origin = batches[0].offset
        last = batches[-1]
        data = memoryview(last.buffer)[origin : last.offset + last.size_bytes]
        edges = [(batch.offset + HEADER_BYTES - origin, batch.offset + batch.size_bytes - origin) for batch in batches]
        return data, [_Span(start, stop, batch) for (start, stop), batch in zip(edges, batches, strict=True)]
    pieces = []
    spans = []
    position = 0
    for batch in batches:
        piece = batch.records_bytes()
        plain = decompress(batch.codec, piece, BATCH_BYTES_MAX) if batch.codec else piece
        pieces.append(plain)
        spans.append(_Span(position, position + len(plain), batch))
        position += len(plain)
    return memoryview(b"".join(pieces)), spans


def _walk(data: memoryview, spans: Sequence[_Span]) -> tuple[Int64s, Int64s]:
    """Where each record starts (behind its length) and how long it is: the only loop over records."""
    starts: list[int] = []
    lengths: list[int] = []
    add_start, add_length = starts.append, lengths.append
    for position, end, batch in spans:
        for _ in range(batch.record_count):
            byte = data[position]
            position += 1
            length = byte & 0x7F
            shift = 7
            while byte >= 0x80:
                byte = data[position]
                position += 1
                length |= (byte & 0x7F) << shift
                shift += 7
            add_start(position)
            length >>= 1
            add_length(length)
            position += length
        if position != end:
            raise _malformed([batch])
    return np.array(starts, dtype=np.int64), np.array(lengths, dtype=np.int64)


def _varints(data: npt.NDArray[np.uint8], positions: Int64s) -> tuple[Int64s, Int64s]:
    """Decode the zigzag varint at each position; return the values and the positions behind them."""
    byte = data[positions]
    value = (byte & 0x7F).astype(np.uint64)
    behind = positions + 1
    longer = np.flatnonzero(byte & 0x80)
    shift = 7
    while longer.size:
        if shift >= 7 * _VARINT_BYTES_MAX:
            raise IndexError("a varint does not end")
        byte = data[behind[longer]]
        value[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        behind[longer] += 1
        longer = longer[(byte & 0x80) != 0]
        shift += 7
    signed = (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)
    return signed, behind


def _columns(
    data: memoryview, spans: Sequence[_Span], starts: Int64s, lengths: Int64s, first: int, end: int, headers: bool
) -> Rows:
    raw = np.frombuffer(data, dtype=np.uint8)
    record_end = starts + lengths
    timestamp_delta, at = _varints(raw, starts + 1)
    offset_delta, at = _varints(raw, at)
    key_length, key_start = _varints(raw, at)
    key_end = key_start + np.maximum(key_length, 0)
    value_length, value_start = _varints(raw, key_end)
    value_end = value_start + np.maximum(value_length, 0)
    if starts.size and not ((key_length >= -1).all() and (value_length >= -1).all() and (value_end < record_end).all()):
        raise IndexError("a record is longer than its length says")
    counts = [span.batch.record_count for span in spans]
    offset = offset_delta + _repeat([span.batch.base_offset for span in spans], counts)
    timestamp = timestamp_delta + _repeat([span.batch.base_timestamp for span in spans], counts)
    kind = _repeat([span.batch.timestamp_type for span in spans], counts)
    if kind.any():  # log append time is the batch's, not the record's
        timestamp = np.where(kind == 1, _repeat([span.batch.max_timestamp for span in spans], counts), timestamp)
    wanted = np.flatnonzero((offset >= first) & (offset < end))
    edges = np.empty(4 * starts.size + 1, dtype=np.int64)
    edges[0:-1:4], edges[1::4], edges[2::4], edges[3::4] = key_start, key_end, value_start, value_end
    edges[-1] = value_end[-1] if starts.size else 0
    layer = pa.Array.from_buffers(
        pa.large_binary() if len(data) > 2**31 - 1 else pa.binary(),
        4 * starts.size,
        [None, pa.py_buffer(edges if len(data) > 2**31 - 1 else edges.astype(np.int32)), pa.py_buffer(data)],
    )
    return Rows(
        key=_pick(layer, wanted * 4, key_length[wanted] < 0),
        value=_pick(layer, wanted * 4 + 2, value_length[wanted] < 0),
        offset=pa.array(offset[wanted]),
        timestamp_ms=pa.array(timestamp[wanted]),
        timestamp_type=pa.array(kind[wanted].astype(np.int32)),
        headers=_headers(data, value_end[wanted].tolist()) if headers else None,
    )


def _repeat(values: Sequence[int], counts: Sequence[int]) -> Int64s:
    return np.repeat(np.array(values, dtype=np.int64), np.array(counts, dtype=np.int64))


def _pick(layer: pa.Array, indices: Int64s, is_null: npt.NDArray[np.bool_]) -> pa.Array:
    return layer.take(pa.array(indices, mask=is_null)).cast(pa.binary())


def _headers(data: memoryview, positions: Sequence[int]) -> pa.Array:
    """Read the headers that start at each position."""
    found: list[list[dict[str, Any]] | None] = []
    for position in positions:
        count, position = _varint(data, position)
        headers = []
        for _ in range(count):
            length, position = _varint(data, position)
            name = str(data[position : position + length], "utf-8", "replace")
            length, position = _varint(data, position + length)
            headers.append({"key": name, "value": bytes(data[position : position + length]) if length >= 0 else None})
            position += max(length, 0)
        found.append(headers or None)
    return pa.array(found, type=HEADERS_TYPE)


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
