"""What the column readers, compiled and with NumPy, refuse alike, and their short ways"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark_sink.record_batches import READERS, batches, each_reader, log_of, record, varint, with_records
from tidemill.core.records.batch import BatchView, iter_batches
from tidemill.core.records.record import NewRecord
from tidemill.spark_sink.core_api import CorruptMessage
from tidemill.spark_sink.rows import ColumnReader, decode


def outcome(batches: list[BatchView], reader: ColumnReader, headers: bool) -> tuple[str, list[Any]]:
    """What a reader makes of batches: its error, or every column."""
    try:
        rows = decode(batches, 0, 2**62, headers, reader)
    except CorruptMessage as error:
        return str(error), []
    for column in rows:
        if column is not None:
            column.validate(full=True)
    return "", [None if column is None else column.to_pylist() for column in rows]


@given(st.binary(max_size=80), st.integers(-2, 6), st.booleans())
def test_nonsense_is_refused_alike_and_never_read_outside(garbage: bytes, count: int, headers: bool) -> None:
    view = BatchView(with_records(garbage, count))
    results = [outcome([view], reader, headers) for reader in READERS.values()]
    assert all(result == results[0] for result in results)
    assert len(results[0][1][2] if results[0][1] else []) <= max(count, 0)


@given(batches, st.data())
def test_damaged_batches_are_refused_alike(parts: list[Any], data: st.DataObject) -> None:
    log = bytearray(log_of([(items, "none", gap, kind) for items, _, gap, kind in parts]))
    whole = list(iter_batches(memoryview(bytes(log))))
    for _ in range(data.draw(st.integers(1, 4))):
        batch = data.draw(st.sampled_from(whole))
        at = data.draw(st.integers(batch.offset + 57, batch.offset + batch.size_bytes - 1))
        log[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    views = list(iter_batches(memoryview(log)))
    headers = data.draw(st.booleans())
    results = [outcome(views, reader, headers) for reader in READERS.values()]
    assert all(result == results[0] for result in results)


@each_reader
@pytest.mark.parametrize(
    "records",
    [
        record(-1, 2**63 - 1, b"\0"),  # its end overflows
        record(2**63 - 1, 2, b"\0"),
        record(-1, -2, b"\0"),
        record(-2, -1, b"\0"),
        record(-1, 1, b"v"),  # no room for the number of headers
        varint(6) + b"\0\x80\0\0\1\1",  # nor behind a null
        record(-1, -1, b"\0") + b"\x80" * 8,
        b"\x80\x80\x80\x80\x80\x00" + record(-1, -1, b"\0"),  # a length of six bytes
        varint(-8) + record(-1, -1, b"\0")[1:],
        varint(0) * 8,
        record(-1, -1)[:-1] + b"\xff" * 12,
    ],
)
def test_lengths_that_lie_are_refused(reader: ColumnReader, records: bytes) -> None:
    with pytest.raises(CorruptMessage, match="at offsets 0 to 0 is malformed"):
        decode([BatchView(with_records(records, 1))], 0, 10, reader=reader)


@each_reader
def test_a_negative_number_of_records_is_refused(reader: ColumnReader) -> None:
    with pytest.raises(CorruptMessage, match="malformed"):
        decode([BatchView(with_records(b"", -1))], 0, 10, reader=reader)


@each_reader
def test_columns_of_nulls_and_of_everything(reader: ColumnReader) -> None:
    """Both have short ways."""
    data = log_of([([NewRecord(5, None, None)] * 9, "none", 0, 0), ([NewRecord(5, b"", b"v")] * 9, "none", 0, 1)])
    first, second = iter_batches(memoryview(data))
    rows = decode([first], 0, 200, reader=reader)
    assert (rows.key.to_pylist(), rows.value.to_pylist()) == ([None] * 9, [None] * 9)
    rows = decode([second], 0, 200, reader=reader)
    assert (rows.key.to_pylist(), rows.value.to_pylist()) == ([b""] * 9, [b"v"] * 9)
    assert len(decode([first], 0, 10, reader=reader)) == len(decode([], 0, 10, reader=reader)) == 0
