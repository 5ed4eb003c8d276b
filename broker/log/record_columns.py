"""The records of a batch as columns

Where each record ends, its offset, its time, its key, whether it has a value. Compaction looks at every record of a
log, but only to decide whether it stays. So nothing is decoded that the decision does not need, no object is made per
record, and what stays is copied as the bytes it was: records hold offset and time relative to the header of the batch,
which compaction leaves alone. Only a new base timestamp (`rebased`) makes records be written anew, and of each only its
length and its timestamp.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tidemill.core.errors import CorruptMessage
from tidemill.core.records.varint import decode_varint, encode_varint, varint_tail


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """One entry per record in every column; record i is the bytes from `ends[i - 1]` (or 0) to `ends[i]`."""

    ends: list[int]
    timestamp_deltas: list[int]
    offset_deltas: list[int]
    keys: list[bytes | None]
    tombstones: list[bool]


def read_columns(data: bytes, count: int) -> RecordColumns:
    """The `count` records that fill the uncompressed `data`; raises CorruptMessage if they do not."""
    columns = RecordColumns(ends=[], timestamp_deltas=[], offset_deltas=[], keys=[], tombstones=[])
    try:
        end = _read(data, count, columns)
    except IndexError as error:
        raise CorruptMessage("the record batch ends inside a record") from error
    if end != len(data):
        raise CorruptMessage(f"{len(data) - end} bytes behind the {count} records of the batch")
    return columns


def _read(data: bytes, count: int, columns: RecordColumns) -> int:
    """Varints of one byte are read in place, since this runs once per record."""
    end_at, key_is, tombstone_is = columns.ends.append, columns.keys.append, columns.tombstones.append
    time_is, offset_is = columns.timestamp_deltas.append, columns.offset_deltas.append
    size_bytes = len(data)
    at = 0
    for _ in range(count):
        n = data[at]
        at += 1
        if n > 0x7F:
            n, at = varint_tail(data, at, n)
        end = at + (n >> 1)
        if n & 1 or end > size_bytes:
            raise CorruptMessage(f"a record before byte {at} with a length that does not fit")
        n = data[at + 1]  # behind the attributes of a record, which Kafka does not use
        at += 2
        if n > 0x7F:
            n, at = varint_tail(data, at, n)
        time_is((n >> 1) ^ -(n & 1))
        n = data[at]
        at += 1
        if n > 0x7F:
            n, at = varint_tail(data, at, n)
        offset_is((n >> 1) ^ -(n & 1))
        n = data[at]
        at += 1
        if n > 0x7F:
            n, at = varint_tail(data, at, n)
        if n & 1:  # an odd zigzag is a negative length: null
            key_is(None)
        else:
            key_is(data[at : at + (n >> 1)])
            at += n >> 1
        n = data[at]
        at += 1
        if n > 0x7F:
            n, at = varint_tail(data, at, n)
        if n & 1:
            tombstone_is(True)
        else:
            tombstone_is(False)
            at += n >> 1
        if at >= end:  # the count of headers at least comes behind the value
            raise CorruptMessage(f"key and value of a record reach beyond its end at byte {end}")
        end_at(end)
        at = end
    return at


def kept(data: bytes, columns: RecordColumns, keep: Sequence[bool]) -> bytes:
    """The bytes of the records that `keep` says stay; neighbours are copied together."""
    pieces = []
    start = at = 0
    for end, stays in zip(columns.ends, keep, strict=True):
        if not stays:
            if start < at:
                pieces.append(data[start:at])
            start = end
        at = end
    pieces.append(data[start:at])
    return b"".join(pieces)


def rebased(data: bytes, columns: RecordColumns, keep: Sequence[bool], deltas: Sequence[int]) -> bytes:
    """The same with other timestamp deltas, one for every record, kept or not."""
    pieces: list[bytes] = []
    start = 0
    for end, stays, delta in zip(columns.ends, keep, deltas, strict=True):
        if stays:
            _, at = decode_varint(data, start)
            _, rest = decode_varint(data, at + 1)
            body = data[at : at + 1] + encode_varint(delta) + data[rest:end]
            pieces += (encode_varint(len(body)), body)
        start = end
    return b"".join(pieces)
