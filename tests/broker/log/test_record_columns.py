"""Records as columns, against the decoder that makes records"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.broker.log.record_columns import kept, read_columns, rebased
from tidemill.core.errors import CorruptMessage
from tidemill.core.records.batch import BatchView
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import Record, decode_records

TIMES = st.integers(0, 2**45)
RECORDS = st.lists(
    st.tuples(
        TIMES,
        st.one_of(st.none(), st.binary(max_size=200)),
        st.one_of(st.none(), st.binary(max_size=200)),
        st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=3))), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=8,
)
GAPS = st.lists(st.integers(1, 1000), min_size=8, max_size=8)


def batch_of(
    rows: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]], gaps: list[int]
) -> BatchView:
    offsets = [sum(gaps[: number + 1]) for number in range(len(rows))]
    records = [Record(offset, *row) for offset, row in zip(offsets, rows, strict=True)]
    return BatchView(build_batch(records, keep_offsets=True))


@given(RECORDS, GAPS)
def test_the_columns_are_what_the_decoder_says(rows, gaps) -> None:  # type: ignore[no-untyped-def]
    view = batch_of(rows, gaps)
    columns = read_columns(bytes(view.records_bytes()), view.record_count)
    records = decode_records(view)
    assert columns.keys == [record.key for record in records]
    assert columns.tombstones == [record.value is None for record in records]
    assert columns.offset_deltas == [record.offset for record in records]
    assert columns.timestamp_deltas == [record.timestamp - view.base_timestamp for record in records]
    assert columns.ends[-1] == len(view.records_bytes())


@given(RECORDS, GAPS, st.lists(st.booleans(), min_size=8, max_size=8), TIMES)
def test_what_is_kept_is_what_it_was(rows, gaps, choice, new_base) -> None:  # type: ignore[no-untyped-def]
    view = batch_of(rows, gaps)
    payload = bytes(view.records_bytes())
    columns = read_columns(payload, view.record_count)
    keep = choice[: view.record_count]
    staying = [record for record, stays in zip(decode_records(view), keep, strict=True) if stays]
    again = kept(payload, columns, keep)
    assert decoded(again, len(staying), view.base_timestamp) == staying
    deltas = [view.base_timestamp + delta - new_base for delta in columns.timestamp_deltas]
    anew = rebased(payload, columns, keep, deltas)
    assert decoded(anew, len(staying), new_base) == staying


def decoded(payload: bytes, count: int, base_timestamp: int) -> list[Record]:
    header = bytearray(build_batch([Record(0, base_timestamp, None, None)])[:61]) + payload
    header[8:12] = (49 + len(payload)).to_bytes(4, "big")
    header[57:61] = count.to_bytes(4, "big")
    return decode_records(BatchView(header))


@given(RECORDS, GAPS, st.data())
def test_records_that_do_not_fill_their_bytes_are_refused_or_read_within_them(rows, gaps, data) -> None:  # type: ignore[no-untyped-def]
    view = batch_of(rows, gaps)
    payload = bytearray(view.records_bytes())
    payload[data.draw(st.integers(0, len(payload) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        columns = read_columns(bytes(payload), view.record_count)
    except CorruptMessage:
        return
    assert columns.ends == sorted(columns.ends) and columns.ends[-1] == len(payload)


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_batch_cut_anywhere_is_refused(cut: int) -> None:
    view = BatchView(build_batch([Record(0, 0, b"key", b"value"), Record(1, 0, b"key", None)]))
    with pytest.raises(CorruptMessage):
        read_columns(bytes(view.records_bytes())[:-cut], 2)
    with pytest.raises(CorruptMessage, match="behind the 2 records"):
        read_columns(bytes(view.records_bytes()) + b"x" * cut, 2)
