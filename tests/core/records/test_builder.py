"""Building batches: golden bytes, attributes, and what other libraries read from them"""

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from hypothesis import given
from kafka.record.default_records import DefaultRecordBatch as PythonBatch

from tests.core.records.record_strategies import record_lists
from tidemill.core.errors import UnsupportedCompressionType
from tidemill.core.records.batch import BatchView
from tidemill.core.records.builder import build_batch, build_empty_batch, encode_record
from tidemill.core.records.compression import CODECS
from tidemill.core.records.crc import crc32c
from tidemill.core.records.record import NewRecord, Record, decode_records


def test_golden_bytes_of_a_batch() -> None:
    built = build_batch(
        [NewRecord(1000, b"k", b"v"), NewRecord(990, None, b"", (("h", None),))],
        base_offset=3,
        producer_id=5,
        producer_epoch=1,
        base_sequence=8,
        leader_epoch=2,
    )
    covered = bytes.fromhex(
        "0000"  # attributes
        "00000001"  # last offset delta
        "00000000000003e8"  # base timestamp
        "00000000000003e8"  # largest timestamp
        "0000000000000005"
        "0001"
        "00000008"
        "00000002"  # records
        "1000000002"
        "6b0276"
        "00"
        "120013020100"
        "02"
        "0268"
        "01"
    )
    head = bytes.fromhex("0000000000000003" + f"{len(covered) + 9:08x}" + "00000002" + "02")
    assert built == head + crc32c(covered).to_bytes(4, "big") + covered


def test_attributes() -> None:
    record = [NewRecord(0, None, None)]
    assert BatchView(build_batch(record)).attributes == 0
    assert BatchView(build_batch(record, codec="lz4")).attributes == 3
    assert BatchView(build_batch(record, codec=4, timestamp_type=1)).attributes == 0x0C
    view = BatchView(build_batch(record, transactional=True, control=True))
    assert (view.is_transactional, view.is_control, view.attributes) == (True, True, 0x30)


def test_records_get_new_offsets_unless_told_otherwise() -> None:
    gapped = [Record(10, 5, None, b"a"), Record(13, 6, None, b"b")]
    dense = BatchView(build_batch(gapped, base_offset=100))
    assert [r.offset for r in decode_records(dense)] == [100, 101]
    kept = BatchView(build_batch(gapped, base_offset=9, keep_offsets=True))
    assert [r.offset for r in decode_records(kept)] == [10, 13]
    assert (kept.base_offset, kept.last_offset, kept.record_count) == (9, 13, 2)


def test_empty_batches_and_unknown_codecs_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])
    with pytest.raises(UnsupportedCompressionType):
        build_batch([NewRecord(0, None, None)], codec="brotli")


def test_one_record() -> None:
    assert encode_record(NewRecord(0, None, None), 0, 0).hex() == "0c" + "00" + "00" + "00" + "01" + "01" + "00"


@pytest.mark.parametrize(
    ("batch_class", "codec"),
    [*((AioBatch, codec) for codec in CODECS), (PythonBatch, "none"), (PythonBatch, "gzip")],
    ids=lambda value: getattr(value, "__module__", value),
)
@given(records=record_lists)
def test_other_libraries_read_what_we_build(batch_class: type, codec: str, records: list[NewRecord]) -> None:
    batch = batch_class(bytearray(build_batch(records, base_offset=7, codec=codec)))
    assert batch.validate_crc()
    assert batch.base_offset == 7
    for i, (theirs, ours) in enumerate(zip(batch, records, strict=True)):
        assert (theirs.offset, theirs.timestamp, theirs.key, theirs.value) == (7 + i, *ours[:3])
        assert [(name, value) for name, value in theirs.headers] == list(ours.headers)


def test_an_empty_batch_takes_offsets_and_is_read_by_other_libraries_as_nothing() -> None:
    built = build_empty_batch(10, 12, leader_epoch=4)
    view = BatchView(built)
    assert (view.base_offset, view.next_offset, view.record_count, view.leader_epoch, view.verify_crc()) == (
        10,
        13,
        0,
        4,
        True,
    )
    assert decode_records(view) == []
    assert AioBatch(built).next_offset == 13
    assert list(AioBatch(built)) == []
    assert list(PythonBatch(built)) == []
    for first, last in ((5, 4), (0, 2**31)):
        with pytest.raises(ValueError, match="cannot hold"):
            build_empty_batch(first, last)
