"""Records that stay, against the decoder that makes records"""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.broker.log.kept_records import kept, rebased
from tidemill.core.records.batch import BatchView
from tidemill.core.records.builder import build_batch
from tidemill.core.records.columns import ColumnReader
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


@given(RECORDS, GAPS, st.lists(st.booleans(), min_size=8, max_size=8), TIMES)
def test_what_is_kept_is_what_it_was(rows, gaps, choice, new_base) -> None:  # type: ignore[no-untyped-def]
    view = batch_of(rows, gaps)
    payload = bytes(view.records_bytes())
    columns = ColumnReader("ends", "timestamps").read(view, payload)
    keep = choice[: view.record_count]
    staying = [record for record, stays in zip(decode_records(view), keep, strict=True) if stays]
    again = kept(payload, columns.ends, keep)
    assert decoded(again, len(staying), view.base_timestamp) == staying
    deltas = [timestamp - new_base for timestamp in columns.timestamps]
    anew = rebased(payload, columns.ends, keep, deltas)
    assert decoded(anew, len(staying), new_base) == staying


def decoded(payload: bytes, count: int, base_timestamp: int) -> list[Record]:
    header = bytearray(build_batch([Record(0, base_timestamp, None, None)])[:61]) + payload
    header[8:12] = (49 + len(payload)).to_bytes(4, "big")
    header[57:61] = count.to_bytes(4, "big")
    return decode_records(BatchView(header))
