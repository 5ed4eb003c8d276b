"""The column readers, compiled and with NumPy, against the plain record reader, and what they refuse alike"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark_sink.record_batches import batches, each_reader, log_of, record, varint, with_records
from tidemill.core.records.batch import BatchView, iter_batches, stamp
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, decode_records
from tidemill.spark_sink.core_api import CorruptMessage
from tidemill.spark_sink.rows import (
    Aborted,
    ColumnReader,
    Rows,
    decode,
    decode_groups,
    is_abort_marker,
    visible_batches,
)


@each_reader
@given(parts=batches, first=st.integers(90, 220), length=st.integers(0, 60))
def test_columns_hold_what_the_record_reader_reads(
    reader: ColumnReader, parts: list[Any], first: int, length: int
) -> None:
    data = log_of(parts)
    views = list(iter_batches(memoryview(data)))
    expected = [
        (record, view.timestamp_type)
        for view in views
        for record in decode_records(view)
        if first <= record.offset < first + length
    ]
    rows = decode(views, first, first + length, headers=True, reader=reader)
    assert rows.offset.to_pylist() == [record.offset for record, _ in expected]
    assert rows.key.to_pylist() == [record.key for record, _ in expected]
    assert rows.value.to_pylist() == [record.value for record, _ in expected]
    assert rows.timestamp_ms.to_pylist() == [record.timestamp for record, _ in expected]
    assert rows.timestamp_type.to_pylist() == [kind for _, kind in expected]
    assert rows.headers is not None
    found = [[(each["key"], each["value"]) for each in item or ()] for item in rows.headers.to_pylist()]
    assert found == [list(record.headers) for record, _ in expected]


@each_reader
@pytest.mark.parametrize(
    "rest",
    [
        varint(1) + varint(100) + b"name",  # reaches into whatever follows
        varint(1) + varint(-1) + varint(-1),
        varint(1) + varint(1) + b"n" + varint(-2),
        varint(-1),
        varint(2) + varint(1) + b"n" + varint(-1),
        varint(0) + b"more",
    ],
)
def test_headers_must_fill_their_record(reader: ColumnReader, rest: bytes) -> None:
    view = BatchView(with_records(record(-1, -1, rest) + record(-1, -1, b"\0"), 2))
    assert len(decode([view], 0, 10, reader=reader)) == 2
    with pytest.raises(CorruptMessage, match="malformed"):
        decode([view], 0, 10, headers=True, reader=reader)


@each_reader
def test_the_batch_at_fault_is_named(reader: ColumnReader) -> None:
    log = bytearray(log_of([([NewRecord(0, b"key", b"value")] * 2, "none", 0, 0)] * 3))
    views = list(iter_batches(memoryview(log)))
    log[views[1].offset + 61 + 8] = 0x7E  # the value's length
    with pytest.raises(CorruptMessage, match="batch at offsets 102 to 103 is malformed"):
        decode(views, 0, 200, reader=reader)


def test_visible_batches_stop_at_the_end_and_say_where_to_read_on() -> None:
    data = log_of([([NewRecord(0, None, b"v")] * 10, "none", 0, 0)] * 3)
    found, behind = visible_batches(memoryview(data), 105, 115, Aborted(()))
    assert [batch.base_offset for batch in found] == [100, 110]
    assert behind == 115
    found, behind = visible_batches(memoryview(data), 105, 110, Aborted(()))
    assert ([batch.base_offset for batch in found], behind) == ([100], 110)
    assert visible_batches(memoryview(data)[:50], 100, 200, Aborted(())) == ([], 100)


def test_a_hole_up_to_the_end_is_crossed() -> None:
    data = log_of([([NewRecord(0, None, b"v")], "none", 0, 0), ([NewRecord(0, None, b"v")], "none", 50, 0)])
    found, behind = visible_batches(memoryview(data), 100, 130, Aborted(()))
    assert ([batch.base_offset for batch in found], behind) == ([100], 130)


def test_a_damaged_batch_is_refused_unless_checks_are_off() -> None:
    data = bytearray(log_of([([NewRecord(0, None, b"value")], "none", 0, 0)]))
    data[-3] ^= 1
    with pytest.raises(CorruptMessage, match="CRC"):
        visible_batches(memoryview(data), 0, 1000, Aborted(()))
    assert visible_batches(memoryview(data), 0, 1000, Aborted(()), check_crcs=False)[1] == 101


def transaction(producer: int, base_offset: int, value: bytes) -> bytes:
    batch = bytearray(
        build_batch(
            [NewRecord(0, None, value)] * 2, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
        )
    )
    stamp(batch, 0, base_offset, 0)
    return bytes(batch)


def marker(producer: int, base_offset: int, commit: bool) -> bytes:
    key = b"\x00\x00" + (b"\x00\x01" if commit else b"\x00\x00")
    batch = bytearray(
        build_batch(
            [NewRecord(0, key, b"\x00" * 6)], producer_id=producer, producer_epoch=0, transactional=True, control=True
        )
    )
    stamp(batch, 0, base_offset, 0)
    return bytes(batch)


def test_aborted_transactions_and_markers_stay_out() -> None:
    data = b"".join(
        [
            transaction(7, 0, b"aborted"),
            transaction(8, 2, b"committed"),
            marker(7, 4, commit=False),
            transaction(7, 5, b"again"),
            marker(8, 7, commit=True),
            marker(7, 8, commit=True),
        ]
    )
    found, behind = visible_batches(memoryview(data), 0, 9, Aborted([(7, 0)]))
    assert behind == 9
    rows = decode(found, 0, 9)
    assert rows.value.to_pylist() == [b"committed"] * 2 + [b"again"] * 2
    assert rows.offset.to_pylist() == [2, 3, 5, 6]
    everything, _ = visible_batches(memoryview(data), 0, 9, Aborted(()))
    assert decode(everything, 0, 9).offset.to_pylist() == [0, 1, 2, 3, 5, 6]


def test_markers_are_told_apart() -> None:
    assert is_abort_marker(BatchView(marker(1, 0, commit=False)))
    assert not is_abort_marker(BatchView(marker(1, 0, commit=True)))


def test_groups_are_bounded_and_complete() -> None:
    data = log_of([([NewRecord(0, None, b"x" * 200_000)] * 10, "none", 0, 0)] * 6)
    views = list(iter_batches(memoryview(data)))
    groups = list(decode_groups(views, 100, 155))
    assert max(rows.value.nbytes for rows in groups) < 7_000_000
    assert len(groups) > 1
    assert [offset for rows in groups for offset in rows.offset.to_pylist()] == list(range(100, 155))
    assert list(decode_groups(views, 0, 10)) == []


def test_groups_are_bounded_by_what_batches_hold_not_by_what_they_take() -> None:
    data = log_of([([NewRecord(0, None, b"x" * 500_000)] * 4, "zstd", 0, 0)] * 10)
    groups: list[Rows] = list(decode_groups(list(iter_batches(memoryview(data))), 100, 140))
    assert sum(len(rows) for rows in groups) == 40
    assert max(rows.value.nbytes for rows in groups) < 8_000_000
