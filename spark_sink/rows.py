"""Record batches turned into Arrow columns, many batches at a time

Batches are gathered, decompressed where they have to be, until they are worth a piece; then all their records are
decoded at once, by the compiled kernel where there is one (`kernel`), else with NumPy (`columns`). No Python object is
made per record.

Headers are the exception: they are read record by record, and only when asked for.

Not here: fetching, and which batches may be shown (`visible_batches` is given the aborted transactions).
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from tidemill.spark_sink.columns import Columns, Int64s, Malformed, Span, columns_of
from tidemill.spark_sink.core_api import HEADER_BYTES, BatchView, CorruptMessage, decompress, iter_batches
from tidemill.spark_sink.kernel import kernel

GROUP_BYTES_MAX = 4 * 1024 * 1024  # bytes decoded into one Arrow batch; fits a cache, and 8 k rows already amortise all
BATCH_BYTES_MAX = 512 * 1024 * 1024  # a decompressed batch beyond this is an attack or a mistake
_ABORT = struct.Struct(">hh")  # version and type of a control record's key
_ABORT_TYPE = 0

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


ColumnReader = Callable[[memoryview, list[Span], int, int, bool], Columns]
"""The shape of `columns.columns_of`."""


def fastest() -> ColumnReader:
    """The compiled reader where there is one."""
    found, _ = kernel()
    return columns_of if found is None else found.columns_of


class _Piece(NamedTuple):
    """The records of a batch, decompressed; None while they lie where they were fetched."""

    batch: BatchView
    plain: bytes | None


def _piece(batch: BatchView) -> _Piece:
    return _Piece(batch, decompress(batch.codec, batch.records_bytes(), BATCH_BYTES_MAX) if batch.codec else None)


def decode_groups(
    batches: Sequence[BatchView], first: int, end: int, headers: bool = False, reader: ColumnReader | None = None
) -> Iterable[Rows]:
    """Decode `batches` in groups of about `GROUP_BYTES_MAX`; yields no empty group."""
    group: list[_Piece] = []
    size = 0
    for batch in batches:
        piece = _piece(batch)
        group.append(piece)
        size += batch.size_bytes if piece.plain is None else len(piece.plain)
        if size >= GROUP_BYTES_MAX:
            rows = _decode(group, first, end, headers, reader or fastest())
            group, size = [], 0
            if len(rows):
                yield rows
    rows = _decode(group, first, end, headers, reader or fastest())
    if len(rows):
        yield rows


def decode(
    batches: Sequence[BatchView], first: int, end: int, headers: bool = False, reader: ColumnReader | None = None
) -> Rows:
    """Decode the records of `batches` with `first <= offset < end`; raises CorruptMessage for a malformed record."""
    return _decode([_piece(batch) for batch in batches], first, end, headers, reader or fastest())


def _decode(pieces: Sequence[_Piece], first: int, end: int, headers: bool, reader: ColumnReader) -> Rows:
    data, spans = _one_buffer(pieces)
    try:
        found = reader(data, spans, first, end, headers)
        read = _headers(data, *found.rest) if found.rest is not None else None
    except Malformed:
        for piece in pieces if len(pieces) > 1 else ():
            _decode([piece], first, end, headers, reader)  # names the one that is
        raise CorruptMessage(
            f"a record in the batch at offsets {pieces[0].batch.base_offset} to {pieces[-1].batch.last_offset} is "
            "malformed"
        ) from None
    return Rows(found.key, found.value, found.offset, found.timestamp_ms, found.timestamp_type, read)


def _one_buffer(pieces: Sequence[_Piece]) -> tuple[memoryview, list[Span]]:
    """The records of all batches in one buffer: the fetched bytes themselves unless something is compressed."""
    if not pieces:
        return memoryview(b""), []
    first, last = pieces[0].batch, pieces[-1].batch
    if all(plain is None and batch.buffer is first.buffer for batch, plain in pieces):
        data = memoryview(first.buffer)[first.offset : last.offset + last.size_bytes]
        return data, [
            _span(batch, batch.offset - first.offset + HEADER_BYTES, batch.offset - first.offset + batch.size_bytes)
            for batch, _ in pieces
        ]
    found: list[bytes | memoryview] = []
    spans = []
    position = 0
    for batch, plain in pieces:
        records = batch.records_bytes() if plain is None else plain
        found.append(records)
        spans.append(_span(batch, position, position + len(records)))
        position += len(records)
    return memoryview(b"".join(found)), spans


def _span(batch: BatchView, start: int, end: int) -> Span:
    return Span(
        start,
        end,
        batch.record_count,
        batch.base_offset,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.timestamp_type,
    )


def _headers(data: memoryview, starts: Int64s, ends: Int64s) -> pa.Array:
    """Read the headers between each two positions, which they must fill; raises Malformed."""
    found: list[list[dict[str, Any]] | None] = []
    try:
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            found.append(_headers_of(data[start:end]) or None)
    except IndexError:
        raise Malformed from None
    return pa.array(found, type=HEADERS_TYPE)


def _headers_of(data: memoryview) -> list[dict[str, Any]]:
    count, position = _varint(data, 0)
    headers = []
    for _ in range(count):
        length, position = _varint(data, position)
        name, position = _slice(data, position, length)
        length, position = _varint(data, position)
        value = None
        if length != -1:
            value, position = _slice(data, position, length)
        headers.append({"key": str(name, "utf-8", "replace"), "value": value})
    if count < 0 or position != len(data):
        raise Malformed
    return headers


def _slice(data: memoryview, position: int, length: int) -> tuple[bytes, int]:
    if not 0 <= length <= len(data) - position:
        raise Malformed
    return bytes(data[position : position + length]), position + length


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
