"""Records as columns, against a reader that follows the format one field after the other"""

import linecache
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.core.records.record_strategies import record_lists
from tidemill.core.errors import CorruptMessage
from tidemill.core.records.batch import BatchView, stamp_append_time
from tidemill.core.records.builder import build_batch, encode_record
from tidemill.core.records.columns import ColumnReader, RecordColumns
from tidemill.core.records.record import NewRecord, Record
from tidemill.core.records.varint import decode_varint

COLUMNS = ("ends", "timestamps", "offsets", "keys", "keyless", "values", "tombstones", "headers")
EVERYTHING = ColumnReader(*COLUMNS)  # type: ignore[arg-type]
READERS = {wanted: ColumnReader(wanted) for wanted in COLUMNS}  # type: ignore[arg-type]

GAPS = st.lists(st.integers(1, 1000), min_size=5, max_size=5)


class Reader:
    """Takes a record apart, within its bytes."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def number(self) -> int:
        value, self.at = decode_varint(self.data[: self.end], self.at)
        return value

    def take(self, length: int) -> bytes:
        if not 0 <= length <= self.end - self.at:
            raise ValueError
        self.at += length
        return self.data[self.at - length : self.at]

    def blob(self) -> bytes | None:
        length = self.number()
        return None if length < 0 else self.take(length)


def slowly(view: BatchView, data: bytes, *, into_headers: bool) -> dict[str, list[Any]]:
    """What the columns should be; raises ValueError, IndexError or CorruptMessage where there are none."""
    rows: dict[str, list[Any]] = {column: [] for column in COLUMNS}
    whole = Reader(data, 0, len(data))
    for _ in range(view.record_count):
        record = Reader(data, whole.at, len(data))
        length = record.number()
        whole.at = record.at
        whole.take(length)
        record.end = whole.at
        record.take(1)
        rows["timestamps"].append((view.base_timestamp + record.number() + 2**63) % 2**64 - 2**63)
        rows["offsets"].append(view.base_offset + record.number())
        if not -(2**63) <= rows["offsets"][-1] < 2**63:
            raise ValueError
        rows["keys"].append(record.blob())
        rows["values"].append(record.blob())
        rows["keyless"].append(rows["keys"][-1] is None)
        rows["tombstones"].append(rows["values"][-1] is None)
        rows["ends"].append(whole.at)
        if into_headers:
            count = record.number()
            if count < 0:
                raise ValueError
            found = [(str(record.take(record.number()), "utf-8"), record.blob()) for _ in range(count)]
            rows["headers"].append(tuple(found))
            if record.at != record.end:
                raise ValueError
        elif record.at >= record.end:
            raise ValueError
    if whole.at != len(data):
        raise ValueError
    return rows


def batch_of(records: list[NewRecord], gaps: list[int]) -> BatchView:
    offsets = [sum(gaps[: number + 1]) for number in range(len(records))]
    kept = [Record(offset, *record) for offset, record in zip(offsets, records, strict=True)]
    return BatchView(build_batch(kept, base_offset=0, keep_offsets=True))


@given(record_lists, GAPS)
def test_every_column_alone_and_all_together(records: list[NewRecord], gaps: list[int]) -> None:
    view = batch_of(records, gaps)
    data = bytes(view.records_bytes())
    expected = slowly(view, data, into_headers=True)
    assert expected["values"] == [record.value for record in records]
    together = EVERYTHING.read(view, data)
    for column in COLUMNS:
        assert getattr(together, column) == expected[column]
        assert getattr(READERS[column].read(view, data), column) == expected[column]


@given(record_lists, st.integers(1, 4), st.integers(0, 8))
def test_parts_are_the_whole_in_pieces(records: list[NewRecord], part_records: int, cut: int) -> None:
    view = batch_of(records, [1] * len(records))
    data = bytes(view.records_bytes())
    whole, parts = EVERYTHING.read(view, data), list(EVERYTHING.parts(view, data, part_records))
    assert [len(part.ends) for part in parts[:-1]] == [part_records] * (len(parts) - 1)
    for column in COLUMNS:
        assert [entry for part in parts for entry in getattr(part, column)] == getattr(whole, column)
    for other in (data[: len(data) - min(cut + 1, len(data))], data + bytes(cut + 1)):
        with pytest.raises(CorruptMessage):
            list(EVERYTHING.parts(view, other, part_records))


@given(record_lists, GAPS, st.data())
def test_damage_is_corrupt_message_or_other_columns_and_nothing_else(
    records: list[NewRecord], gaps: list[int], data: st.DataObject
) -> None:
    view = batch_of(records, gaps)
    damaged = bytearray(view.records_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    compare_with_slow_reader(view, bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))


@given(st.binary(max_size=60), st.integers(-3, 20))
@example(b"", -1)
@example(b"\x0e\x00\x00\x00\x01\x01\x01\x00", 1)  # a negative count of headers
@example(b"\x0e\x00\x00\x00\x01\x01\x7f\x00", 1)  # more headers than there are bytes
@example(b"\x01", 1)  # a negative length
def test_random_bytes_are_corrupt_message_or_columns(payload: bytes, count: int) -> None:
    view = BatchView(build_batch([NewRecord(0, None, None)]))
    compare_with_slow_reader(
        BatchView(bytes(view.batch_bytes()[:57]) + count.to_bytes(4, "big", signed=True) + view.records_bytes()),
        payload,
    )


def compare_with_slow_reader(view: BatchView, data: bytes) -> None:
    for into_headers, wanted in ((True, COLUMNS), (False, COLUMNS[:-1])):
        reader = EVERYTHING if into_headers else ColumnReader(*wanted)  # type: ignore[arg-type]
        try:
            if view.record_count < 0:
                raise ValueError
            expected = slowly(view, data, into_headers=into_headers)
        except (ValueError, IndexError, CorruptMessage):
            with pytest.raises(CorruptMessage):
                reader.read(view, data)
        else:
            found = reader.read(view, data)
            assert {column: getattr(found, column) for column in wanted} == {c: expected[c] for c in wanted}


def test_the_time_of_append_is_that_of_all_records() -> None:
    batch = bytearray(build_batch([NewRecord(1000 + i, None, b"v") for i in range(5)]))
    stamp_append_time(batch, 0, 7777)
    view = BatchView(batch)
    data = bytes(view.records_bytes())
    assert READERS["timestamps"].read(view, data).timestamps == [7777] * 5
    assert [part.timestamps for part in READERS["timestamps"].parts(view, data, 3)] == [[7777] * 3, [7777] * 2]


@pytest.mark.parametrize(("delta", "sum_"), [(2**63 - 1, 2**63 - 1), (2**63, -(2**63)), (-(2**63) - 1, 2**63 - 1)])
def test_times_and_offsets_fit_64_bits_whatever_a_producer_sends(delta: int, sum_: int) -> None:
    """A time beyond is what Java makes of it; an offset beyond is one that Java does not read either."""
    view, record = (
        BatchView(build_batch([NewRecord(0, None, None)])),
        encode_record(NewRecord(0, None, None), delta, delta),
    )
    assert READERS["timestamps"].read(view, record).timestamps == [sum_]
    if delta == sum_:
        assert READERS["offsets"].read(view, record).offsets == [delta]
    else:
        with pytest.raises(CorruptMessage, match="beyond 64 bits"):
            READERS["offsets"].read(view, record)


def test_a_column_that_was_not_asked_for_is_not_there() -> None:
    view = BatchView(build_batch([NewRecord(1, b"k", b"v")]))
    columns = READERS["keys"].read(view, bytes(view.records_bytes()))
    assert isinstance(columns, RecordColumns)
    with pytest.raises(AttributeError):
        _ = columns.values


def test_the_source_of_a_walk_is_there_for_tracebacks() -> None:
    view = BatchView(build_batch([NewRecord(1, b"k", b"v")]))
    with pytest.raises(CorruptMessage) as caught:
        ColumnReader("offsets", "keyless").read(view, b"\x7f")
    entry = caught.traceback[-1].frame.code.raw
    assert "does not fit" in linecache.getline(entry.co_filename, caught.traceback[-1].lineno + 1)
