"""Between the columns of the protocol and what the runtime has

A source's columns become an `EncodedBatch`, column by column: no object is made for a record. A sink is given records
by the runtime, which become columns for each run of records of one partition.
"""

import json
import math
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import orjson

from tidemill.connect.api import EncodedBatch, Headers, Json, Record
from tidemill.connect.plugins.process import record_protocol_pb2 as pb
from tidemill.connect.plugins.process.positions import read_offset, read_partition

PUT_BYTES_MAX = 8 << 20
"""Of keys, values and headers in one Put, if it has more than one record: what both processes hold at once besides."""

RECORDS_MAX = 100_000
"""Of a source's answer, fifty times what it is asked for: small records take far more memory than their bytes."""

NO_TIMESTAMP = -1


# --------------------------------------------------------------------- sources


def encoded_all(batches: Sequence[pb.RecordBatch]) -> list[EncodedBatch]:
    """The batches of an answer; raises ValueError if one is none, or if they are too many."""
    count = sum(len(each.values) for each in batches)
    if max(count, len(batches)) > RECORDS_MAX:
        raise ValueError(f"{count} records in {len(batches)} batches at once, of {RECORDS_MAX} at most")
    return [encoded(each) for each in batches]


def encoded(batch: pb.RecordBatch) -> EncodedBatch:
    """A batch that a source has returned; raises ValueError for one that is none."""
    if not batch.topic:
        raise ValueError("a batch without a topic")
    count = len(batch.values)
    of = f"a batch for topic {batch.topic!r} with {count} values"
    for name, column in (("keys", batch.keys), ("headers", batch.headers), ("timestamps_ms", batch.timestamps_ms)):
        if len(column) not in (0, count):
            raise ValueError(f"{of} and {len(column)} {name}")
    if batch.timestamps_ms and min(batch.timestamps_ms) < 0:
        raise ValueError(f"{of} has a timestamp before 1970: {min(batch.timestamps_ms)}")
    if batch.HasField("source_offset") and not batch.source_partition:
        raise ValueError(f"{of} has a source offset and no source partition")
    if batch.offsets or batch.partition:
        raise ValueError(f"{of} names a place in Kafka, which is for sinks")
    return EncodedBatch(
        topic=batch.topic,
        keys=_column(batch.keys or [b""] * count, batch.null_keys if batch.keys else range(count), of),
        values=_column(batch.values, batch.null_values, of),
        headers=[_headers(each) for each in batch.headers],
        timestamps_ms=list(batch.timestamps_ms),
        partition=read_partition(batch.source_partition) if batch.source_partition else None,
        offset=read_offset(batch.source_offset) if batch.HasField("source_offset") else None,
    )


def _column(column: Sequence[bytes], nulls: Sequence[int], of: str) -> list[bytes | None]:
    found: list[bytes | None] = list(column)
    for index in nulls:
        if index >= len(found):
            raise ValueError(f"{of} has a null at index {index}")
        found[index] = None
    return found


def _headers(headers: pb.Headers) -> Headers:
    return tuple((each.key, each.value if each.HasField("value") else None) for each in headers.headers)


# ----------------------------------------------------------------------- sinks


class _Row(NamedTuple):
    """A record, and what is sent of its key and value."""

    record: Record
    key: bytes | None
    value: bytes | None


def puts(
    records: Sequence[Record], begin: int = 0, unsayable: Callable[[int, ValueError], None] | None = None
) -> Iterator[tuple[int, pb.Put]]:
    """Requests that hand records over, those at `begin` and after it in order, each with the index of its first.

    Of a record that cannot be written `unsayable` is told, and it is in none of them.
    """
    rows: list[_Row] = []
    size = 0
    for index in range(begin, len(records)):
        record = records[index]
        try:
            row = _Row(record, octets(record.key), octets(record.value))
        except ValueError as error:
            if unsayable is None:
                raise
            unsayable(index, error)
            if rows:
                yield begin, pb.Put(batches=_columns(rows))
            begin, size, rows = index + 1, 0, []
            continue
        more = _size(row)
        if rows and size + more > PUT_BYTES_MAX:
            yield begin, pb.Put(batches=_columns(rows))
            begin, size, rows = index, 0, []
        size += more
        rows.append(row)
    if rows:
        yield begin, pb.Put(batches=_columns(rows))


def _columns(rows: Sequence[_Row]) -> Iterator[pb.RecordBatch]:
    for (topic, partition), run in groupby(rows, lambda row: (row.record.topic, row.record.kafka_partition)):
        yield _batch(topic or "", partition or 0, list(run))


def _batch(topic: str, partition: int, rows: Sequence[_Row]) -> pb.RecordBatch:
    records = [each.record for each in rows]
    return pb.RecordBatch(
        topic=topic,
        partition=partition,
        offsets=[each.kafka_offset or 0 for each in records],
        keys=[each.key or b"" for each in rows],
        values=[each.value or b"" for each in rows],
        null_keys=[index for index, each in enumerate(rows) if each.key is None],
        null_values=[index for index, each in enumerate(rows) if each.value is None],
        headers=_told_headers(records) if any(each.headers for each in records) else (),
        timestamps_ms=[NO_TIMESTAMP if each.timestamp_ms is None else each.timestamp_ms for each in records],
    )


def _told_headers(records: Sequence[Record]) -> Iterator[pb.Headers]:
    for record in records:
        yield pb.Headers(headers=[pb.Header(key=key, value=value) for key, value in record.headers])


def octets(value: Json) -> bytes | None:
    """A key or value as a plugin is given it: bytes and text as they are, everything else as JSON.

    Raises ValueError for what JSON cannot say, or not that deeply nested. What is no number, or infinite, is null.

    >>> octets("a"), octets({"n": 1}), octets(None)
    (b'a', b'{"n":1}', None)
    """
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    try:
        return orjson.dumps(value, default=_json, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # a number beyond 64 bits, or deeper than orjson goes
        pass
    try:
        text = json.dumps(_finite(value), default=_json, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        raise ValueError("it is nested too deeply to be written as JSON") from None
    except TypeError as error:
        raise ValueError(f"it cannot be written as JSON: {error}") from None
    return text.encode("utf-8", "replace")


def _finite(value: Json) -> Json:
    """The value with null for what JSON has no number for, as orjson writes it."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {name: _finite(each) for name, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
    return value


def _json(value: object) -> str:
    """What JSON has no form for: bytes in base 64, as Connect writes them, the rest as text."""
    return b64encode(value).decode() if isinstance(value, (bytes, bytearray)) else str(value)


def _size(row: _Row) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in row.record.headers)
    return len(row.key or b"") + len(row.value or b"") + headers
