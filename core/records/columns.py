"""The records of a batch as columns, by the one walk over them

Whoever looks into a batch wants something else of it: compaction where each record ends, its key and whether it has a
value; a look-up by time nothing but times and offsets; a client all of it. So a reader names its columns, and the walk
is compiled for just these when it is first used: a column nobody asked for costs nothing, no object is made per record,
and what a record is made of is written down once, in `_WALK`.

A record holds its time and its offset relative to the header of the batch, lengths are zigzag varints. Every record
must fill the length it announces and the records must fill the batch; anything else is CorruptMessage. Record headers
are looked into only where they are asked for, else the length of the record leads past them.
"""

import linecache
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeAlias

from ..errors import CorruptMessage
from .batch import TIMESTAMP_TYPE_BIT, BatchHeader
from .varint import decode_varint, varint_tail

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
Column = Literal["ends", "timestamps", "offsets", "keys", "keyless", "values", "tombstones", "headers"]

PART_RECORDS = 1000
"""Records whose columns are in memory at once, where a batch is read in parts."""


_INT64_END = 2**63


class RecordColumns:
    """One entry per record in every column that was asked for; the others are not there."""

    __slots__ = ("ends", "headers", "keyless", "keys", "offsets", "timestamps", "tombstones", "values")

    ends: list[int]  # record i is the bytes from `ends[i - 1]` (or 0) to `ends[i]`
    timestamps: list[int]
    offsets: list[int]
    keys: list[bytes | None]
    keyless: list[bool]
    values: list[bytes | None]
    tombstones: list[bool]  # without a value
    headers: list[Headers]


class ColumnReader:
    """Reads certain columns of a batch's records."""

    __slots__ = ("_columns", "_walk")

    def __init__(self, *columns: Column) -> None:
        self._columns = columns
        self._walk: _Walk = self._walk_first

    def read(self, header: BatchHeader, data: bytes | memoryview) -> RecordColumns:
        """The columns of the records that fill the uncompressed `data`; raises CorruptMessage if they do not.

        A view will do where no keys, values or headers are wanted.
        """
        count = header.record_count
        columns, at = self._walk(header, data, 0, 0, count)
        if at != len(data) or count < 0:
            raise _bytes_behind(header, data, at)
        return columns

    def parts(
        self, header: BatchHeader, data: bytes | memoryview, part_records: int = PART_RECORDS
    ) -> Iterable[RecordColumns]:
        """The same in parts of so many records at most, so that one who has seen enough need not read on."""
        if header.record_count <= part_records:
            return (self.read(header, data),)
        return self._parts(header, data, part_records)

    def _parts(self, header: BatchHeader, data: bytes | memoryview, part_records: int) -> Iterator[RecordColumns]:
        at = 0
        for first in range(0, header.record_count, part_records):
            columns, at = self._walk(header, data, at, first, min(first + part_records, header.record_count))
            yield columns
        if at != len(data):
            raise _bytes_behind(header, data, at)

    def _walk_first(
        self, header: BatchHeader, data: bytes | memoryview, at: int, first: int, end: int
    ) -> tuple[RecordColumns, int]:
        self._walk = _compile(self._columns)
        return self._walk(header, data, at, first, end)


def _bytes_behind(header: BatchHeader, data: bytes | memoryview, at: int) -> CorruptMessage:
    return CorruptMessage(f"{len(data) - at} bytes behind the {header.record_count} records of the batch")


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


def beyond_int64(numbers: list[int]) -> bool:
    """Whether some are more than a log or an answer can hold: a producer may send a delta that leads there."""
    return bool(numbers) and (min(numbers) < -_INT64_END or max(numbers) >= _INT64_END)


def as_int64(timestamp: int) -> int:
    """A time as Java adds it up."""
    return (timestamp + _INT64_END) % (2 * _INT64_END) - _INT64_END


_Walk = Callable[[BatchHeader, bytes | memoryview, int, int, int], tuple[RecordColumns, int]]
"""`(header, data, at, first, end) -> columns, at`: record number `first`, which begins at `at`, to number `end`."""

# Left the column that a line is for, after a ~ the one without which it is needed; `n = varint` is inlined.
_WALK = """
           |def walk(header, data, at, first, end_number):
           |    columns = RecordColumns()
           |    size_bytes = len(data)
ends       |    columns.ends = column = []; add_end = column.append
timestamps |    columns.timestamps = column = []; add_timestamp = column.append
timestamps |    base_timestamp = header.base_timestamp
offsets    |    columns.offsets = column = []; add_offset = column.append
offsets    |    base_offset = header.base_offset
keys       |    columns.keys = column = []; add_key = column.append
keyless    |    columns.keyless = column = []; add_keyless = column.append
values     |    columns.values = column = []; add_value = column.append
tombstones |    columns.tombstones = column = []; add_tombstone = column.append
headers    |    columns.headers = column = []; add_headers = column.append
           |    try:
           |        for number in range(first, end_number):
           |            n = varint
           |            end = at + (n >> 1)
           |            if n & 1 or end > size_bytes:
           |                raise CorruptMessage(f"record {number} has a length that does not fit")
ends       |            add_end(end)
           |            at += 1  # the attributes of a record, which Kafka does not use
           |            n = varint
timestamps |            add_timestamp(base_timestamp + ((n >> 1) ^ -(n & 1)))
           |            n = varint
offsets    |            add_offset(base_offset + ((n >> 1) ^ -(n & 1)))
           |            n = varint
           |            if n & 1:  # an odd zigzag is a negative length: null
           |                pass
keys       |                add_key(None)
keyless    |                add_keyless(True)
           |            else:
keys       |                add_key(data[at : at + (n >> 1)])
keyless    |                add_keyless(False)
           |                at += n >> 1
           |            n = varint
           |            if n & 1:
           |                pass
values     |                add_value(None)
tombstones |                add_tombstone(True)
           |            else:
values     |                add_value(data[at : at + (n >> 1)])
tombstones |                add_tombstone(False)
           |                at += n >> 1
~headers   |            if at >= end:  # the count of headers at least comes behind the value
~headers   |                raise CorruptMessage(f"key and value of record {number} reach beyond its end at byte {end}")
~headers   |            at = end
headers    |            if data[at]:
headers    |                found, at = read_headers(data, at)
headers    |                add_headers(found)
headers    |            else:
headers    |                at += 1
headers    |                add_headers(())
headers    |            if at != end:
headers    |                raise CorruptMessage(f"record {number} ends at byte {at}, its length says {end}")
           |    except IndexError as error:
           |        raise CorruptMessage("the record batch ends inside a record") from error
headers    |    except UnicodeDecodeError as error:
headers    |        raise CorruptMessage(f"a record header's name is not UTF-8: {error.reason}") from error
timestamps |    if beyond_int64(columns.timestamps):
timestamps |        columns.timestamps = list(map(as_int64, columns.timestamps))
offsets    |    if beyond_int64(columns.offsets):
offsets    |        raise CorruptMessage("the offset of a record is beyond 64 bits")
timestamps |    if header.attributes & TIMESTAMP_TYPE_BIT:  # the time of append is the batch's, not the record's
timestamps |        columns.timestamps = [header.max_timestamp] * (end_number - first)
           |    return columns, at
"""

_VARINT = """n = data[at]
at += 1
if n > 0x7F:
    if data[at] > 0x7F:
        n, at = varint_tail(data, at, n)
    else:
        n = n & 0x7F | data[at] << 7
        at += 1
"""


def _compile(columns: tuple[Column, ...]) -> _Walk:
    """The walk for these columns, its source where tracebacks and debuggers look for it."""
    source = "".join(_lines(columns))
    file = f"<tidemill: columns {', '.join(columns)}>"
    names: dict[str, Any] = {
        "__name__": __name__,
        "CorruptMessage": CorruptMessage,
        "RecordColumns": RecordColumns,
        "TIMESTAMP_TYPE_BIT": TIMESTAMP_TYPE_BIT,
        "as_int64": as_int64,
        "beyond_int64": beyond_int64,
        "read_headers": read_headers,
        "varint_tail": varint_tail,
    }
    exec(compile(source, file, "exec"), names)
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    walk: _Walk = names["walk"]
    return walk


def _lines(columns: tuple[Column, ...]) -> Iterator[str]:
    for row in _WALK.strip("\n").splitlines():
        column, _, line = row.partition("|")
        column = column.strip()
        if column in columns or not column or (column.startswith("~") and column[1:] not in columns):
            code = line.lstrip()
            if code == "n = varint":
                yield from (line[: -len(code)] + part for part in _VARINT.splitlines(keepends=True))
            else:
                yield line + "\n"
