"""Records, and reading them out of a batch

A record holds deltas to its batch: timestamp and offset relative to the header, lengths as zigzag varints. The reader
works on one bytes object with local variables and the one-byte varint inlined, since it runs once per record. Every
record must fill exactly the length it announces and the records must fill exactly the batch; anything else is
CorruptMessage.
"""

from typing import NamedTuple, TypeAlias

from ..errors import CorruptMessage
from .batch import BatchView
from .compression import decompress
from .varint import decode_varint, varint_tail

DECOMPRESSED_BYTES_MAX = 100 * 1024 * 1024  # a hundred times the default batch limit, as large as a request may be

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record as it stands in a log."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class NewRecord(NamedTuple):
    """A record that has no offset yet."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


RecordLike: TypeAlias = Record | NewRecord


def decode_records(view: BatchView, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """Return the records of a batch, decompressed to at most `max_bytes`."""
    if view.magic != 2:
        raise CorruptMessage(f"record batch with magic {view.magic}; only 2 can be read")
    data = decompress(view.codec, view.records_bytes(), max_bytes)
    if not 0 <= view.record_count <= len(data):
        raise CorruptMessage(f"a count of {view.record_count} records in {len(data)} bytes")
    append_time = view.max_timestamp if view.timestamp_type else None
    try:
        return _read_records(data, view.record_count, view.base_offset, view.base_timestamp, append_time)
    except IndexError as error:
        raise CorruptMessage("the record batch ends inside a record") from error
    except UnicodeDecodeError as error:
        raise CorruptMessage(f"a record header's name is not UTF-8: {error.reason}") from error


def _read_records(
    data: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> list[Record]:
    """Read `count` records that fill `data`; varints of one and two bytes are inlined, longer ones are rare."""
    records: list[Record] = []
    append = records.append
    new = tuple.__new__
    at = 0
    for _ in range(count):
        n = data[at]
        at += 1
        if n > 0x7F:
            if data[at] > 0x7F:
                n, at = varint_tail(data, at, n)
            else:
                n = n & 0x7F | data[at] << 7
                at += 1
        end = at + ((n >> 1) ^ -(n & 1))
        n = data[at + 1]  # behind the record attributes, which Kafka does not use
        at += 2
        if n > 0x7F:
            n, at = varint_tail(data, at, n)
        timestamp = base_timestamp + ((n >> 1) ^ -(n & 1)) if append_time is None else append_time
        n = data[at]
        at += 1
        if n > 0x7F:
            if data[at] > 0x7F:
                n, at = varint_tail(data, at, n)
            else:
                n = n & 0x7F | data[at] << 7
                at += 1
        offset = base_offset + ((n >> 1) ^ -(n & 1))
        n = data[at]
        at += 1
        if n > 0x7F:
            n, at = varint_tail(data, at, n)
        key = value = None
        if not n & 1:  # an odd zigzag is a negative length: null
            key = data[at : at + (n >> 1)]
            at += n >> 1
        n = data[at]
        at += 1
        if n > 0x7F:
            if data[at] > 0x7F:
                n, at = varint_tail(data, at, n)
            else:
                n = n & 0x7F | data[at] << 7
                at += 1
        if not n & 1:
            value = data[at : at + (n >> 1)]
            at += n >> 1
        headers: Headers = ()
        if data[at]:
            headers, at = read_headers(data, at)
        else:
            at += 1
        if at != end:
            raise CorruptMessage(f"record {len(records)} ends at byte {at} of the batch, its length says {end}")
        append(new(Record, (offset, timestamp, key, value, headers)))
    if at != len(data):
        raise CorruptMessage(f"{len(data) - at} bytes behind the {count} records of the batch")
    return records


def read_headers(data: bytes, at: int) -> tuple[Headers, int]:
    """The headers of a record, whose count is at `at`, and where they end; raises CorruptMessage and IndexError."""
    count, at = decode_varint(data, at)
    if not 0 <= count <= len(data) - at:
        raise CorruptMessage(f"a count of {count} record headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, at = decode_varint(data, at)
        if not 0 <= length <= len(data) - at:
            raise CorruptMessage(f"a record header's name of {length} bytes")
        name = str(data[at : at + length], "utf-8")
        at += length
        length, at = decode_varint(data, at)
        value: bytes | None = None
        if length >= 0:
            value = data[at : at + length]
            at += length
        headers.append((name, value))
    return tuple(headers), at
