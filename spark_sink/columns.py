"""The columns of records that lie in one buffer, found with NumPy

A record is a chain of varints, so nothing can be found without walking; but only the walk from record to record has to
be a loop. It reads one length per record and notes where the record starts. Everything else (timestamps, offsets, where
keys and values lie) is then computed for all records at once, and Arrow copies keys and values out of the buffer in one
pass: no Python object is made per record.

The trick of that last pass: one Arrow array is laid over the whole buffer, cut at every key and value boundary, so that
keys and values are every fourth element of it; `take` copies those and leaves the rest.

The compiled kernel (`kernel`) does the same several times faster where it could be built. Both refuse the same bytes.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]

LENGTH_BYTES_MAX = 5  # of a record's own length
VARINT_BYTES_MAX = 10  # of any other: 64 bits, seven a byte
RECORD_BYTES_MIN = 7  # length, attributes, timestamp, offset, key and value length, number of headers


class Malformed(ValueError):
    """A record does not end where it says, or the records do not end where their batch does."""


class Span(NamedTuple):
    """Where the records of a batch lie in the buffer, and what its header says of them all."""

    start: int
    end: int
    records: int
    base_offset: int
    base_timestamp: int
    append_time: int  # where `kind` is 1
    kind: int  # 0 create time, 1 log append time


class Columns(NamedTuple):
    """One entry per record that was asked for."""

    key: pa.Array  # binary
    value: pa.Array  # binary
    offset: pa.Array  # int64
    timestamp_ms: pa.Array  # int64
    timestamp_type: pa.Array  # int32
    rest: tuple[Int64s, Int64s] | None  # where the headers of each record start and end


def table_of(spans: list[Span]) -> Int64s:
    """Spans as rows; raises Malformed for one that cannot hold the records it counts."""
    table = np.array(spans, dtype=np.int64).reshape(len(spans), len(Span._fields))
    count, room = table[:, 2], table[:, 1] - table[:, 0]
    if ((count < 0) | (count > room // RECORD_BYTES_MIN)).any():
        raise Malformed
    return table


def columns_of(data: memoryview, spans: list[Span], first: int, last: int, rest: bool = False) -> Columns:
    """The records with `first <= offset < last`; raises Malformed."""
    table = table_of(spans)
    try:
        return _columns(data, table, *_walk(data, spans), first, last, rest)
    except IndexError:
        raise Malformed from None


def _walk(data: memoryview, spans: list[Span]) -> tuple[Int64s, Int64s]:
    """Where each record starts (behind its length) and how long it is: the only loop over records."""
    starts: list[int] = []
    lengths: list[int] = []
    add_start, add_length = starts.append, lengths.append
    for position, end, count, *_ in spans:
        for _ in range(count):
            byte = data[position]
            position += 1
            length = byte & 0x7F
            shift = 7
            while byte >= 0x80:
                if shift == 7 * LENGTH_BYTES_MAX:
                    raise Malformed
                byte = data[position]
                position += 1
                length |= (byte & 0x7F) << shift
                shift += 7
            if length & 1:  # negative
                raise Malformed
            add_start(position)
            length >>= 1
            add_length(length)
            position += length
        if position != end:
            raise Malformed
    return np.array(starts, dtype=np.int64), np.array(lengths, dtype=np.int64)


def _varints(data: npt.NDArray[np.uint8], positions: Int64s) -> tuple[Int64s, Int64s]:
    """Decode the zigzag varint at each position; return the values and the positions behind them."""
    byte = data[positions]
    value = (byte & 0x7F).astype(np.uint64)
    behind = positions + 1
    longer = np.flatnonzero(byte & 0x80)
    shift = 7
    while longer.size:
        if shift == 7 * VARINT_BYTES_MAX:
            raise Malformed
        byte = data[behind[longer]]
        value[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        behind[longer] += 1
        longer = longer[(byte & 0x80) != 0]
        shift += 7
    signed = (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)
    return signed, behind


def _columns(
    data: memoryview, table: Int64s, starts: Int64s, lengths: Int64s, first: int, last: int, rest: bool
) -> Columns:
    raw = np.frombuffer(data, dtype=np.uint8)
    record_end = starts + lengths
    timestamp_delta, at = _varints(raw, starts + 1)
    offset_delta, at = _varints(raw, at)
    key_length, key_start = _varints(raw, at)
    if not ((key_length >= -1) & (key_length <= record_end - key_start)).all():
        raise Malformed
    key_end = key_start + np.maximum(key_length, 0)
    value_length, value_start = _varints(raw, key_end)
    if not ((value_length >= -1) & (value_length < record_end - value_start)).all():  # the number of headers follows
        raise Malformed
    value_end = value_start + np.maximum(value_length, 0)
    if not (value_end < record_end).all():
        raise Malformed
    count = table[:, 2]
    offset = offset_delta + np.repeat(table[:, 3], count)
    timestamp = timestamp_delta + np.repeat(table[:, 4], count)
    kind = np.repeat(table[:, 6], count)
    if kind.any():  # log append time is the batch's, not the record's
        timestamp = np.where(kind == 1, np.repeat(table[:, 5], count), timestamp)
    wanted = (offset >= first) & (offset < last)
    rows = slice(None) if wanted.all() else np.flatnonzero(wanted)
    edges = np.empty(4 * starts.size + 1, dtype=np.int64)
    edges[0:-1:4], edges[1::4], edges[2::4], edges[3::4] = key_start, key_end, value_start, value_end
    edges[-1] = value_end[-1] if starts.size else 0
    layer = pa.Array.from_buffers(
        pa.large_binary() if len(data) > 2**31 - 1 else pa.binary(),
        4 * starts.size,
        [None, pa.py_buffer(edges if len(data) > 2**31 - 1 else edges.astype(np.int32)), pa.py_buffer(data)],
    )
    elements = np.arange(starts.size)[rows] * 4
    return Columns(
        key=_pick(layer, elements, key_length[rows] < 0),
        value=_pick(layer, elements + 2, value_length[rows] < 0),
        offset=pa.array(offset[rows]),
        timestamp_ms=pa.array(timestamp[rows]),
        timestamp_type=pa.array(kind[rows].astype(np.int32)),
        rest=(value_end[rows], record_end[rows]) if rest else None,
    )


def _pick(layer: pa.Array, indices: Int64s, is_null: npt.NDArray[np.bool_]) -> pa.Array:
    if is_null.all():
        return pa.nulls(len(indices), pa.binary())
    return layer.take(pa.array(indices, mask=is_null)).cast(pa.binary())
