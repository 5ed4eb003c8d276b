"""Produced batches are accepted whole or refused with the error a producer expects"""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.records.record_strategies import record_lists
from tidemill.core.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from tidemill.core.records import batch as at
from tidemill.core.records.batch import BatchView
from tidemill.core.records.builder import build_batch
from tidemill.core.records.crc import crc32c
from tidemill.core.records.record import NewRecord, decode_records
from tidemill.core.records.validate import RECORD_ERRORS_MAX, validate_produced_batch, validate_records

RECORDS = [NewRecord(1000, b"k", b"v"), NewRecord(1001, None, b"w")]
GOOD = build_batch(RECORDS, producer_id=4, producer_epoch=0, base_sequence=0)


def edited(offset: int, code: str, value: int, *, batch: bytes = GOOD) -> bytes:
    """`batch` with one header field changed and a valid checksum."""
    changed = bytearray(batch)
    struct.pack_into(code, changed, offset, value)
    if offset != at.CRC_AT:
        struct.pack_into(">I", changed, at.CRC_AT, crc32c(changed[at.ATTRIBUTES_AT :]))
    return bytes(changed)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_of_a_good_batch_the_header_is_returned(kind: type) -> None:
    header = validate_produced_batch(kind(GOOD), max_bytes=len(GOOD), produce_version=3)
    assert header == BatchView(GOOD)


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        (None, InvalidRecord, "must carry one record batch"),
        (b"", InvalidRecord, "must carry one record batch"),
        (GOOD[:10], InvalidRecord, "too few"),
        (GOOD[:-1], InvalidRecord, "only"),
        (GOOD + GOOD, InvalidRecord, "exactly one"),
        (GOOD + b"x", InvalidRecord, "exactly one"),
        (edited(at.MAGIC_AT, ">b", 1), InvalidRecord, "magic 1"),
        (edited(at.MAGIC_AT, ">b", 0), InvalidRecord, "magic 0"),
        (edited(at.MAGIC_AT, ">b", 3), CorruptMessage, "unknown magic 3"),
        (edited(at.MAGIC_AT, ">b", -1), CorruptMessage, "unknown magic 255"),
        (edited(at.MAGIC_AT, ">b", 3)[:17], CorruptMessage, "unknown magic 3"),
        (edited(at.MAGIC_AT, ">b", 1)[:40], InvalidRecord, "magic 1"),
        (edited(at.BATCH_LENGTH_AT, ">i", 20)[:40], CorruptMessage, "the least is 61"),
        (GOOD[:40], InvalidRecord, "only 40 were sent"),
        (edited(at.BATCH_LENGTH_AT, ">i", 20), CorruptMessage, "the least is 61"),
        (edited(at.BATCH_LENGTH_AT, ">i", -5), CorruptMessage, "the least is 61"),
        (edited(at.CRC_AT, ">I", 1), CorruptMessage, "checksum"),
        (edited(at.BASE_OFFSET_AT, ">q", 7), InvalidRecord, "base offset 0, not 7"),
        (edited(at.ATTRIBUTES_AT, ">h", 5), UnsupportedCompressionType, "codec 5"),
        (edited(at.ATTRIBUTES_AT, ">h", 0x20), InvalidRecord, "control"),
        (edited(at.LAST_OFFSET_DELTA_AT, ">i", -1), InvalidRecord, "negative"),
        (edited(at.LAST_OFFSET_DELTA_AT, ">i", 2), InvalidRecord, "last offset delta 2"),
        (edited(at.COUNT_AT, ">i", 0), InvalidRecord, "0 records"),
        (edited(at.COUNT_AT, ">i", -1), InvalidRecord, "-1 records"),
        (edited(at.COUNT_AT, ">i", 3), InvalidRecord, "3 records"),
        (edited(at.BASE_SEQUENCE_AT, ">i", -1), InvalidRecord, "producer id 4"),
    ],
)
def test_each_fault_has_its_error(batch: bytes | None, error: type[KafkaError], message: str) -> None:
    with pytest.raises(error, match=message):
        validate_produced_batch(batch)


def test_size_is_limited() -> None:
    with pytest.raises(MessageTooLarge, match=f"{len(GOOD)} bytes; the topic allows {len(GOOD) - 1}"):
        validate_produced_batch(GOOD, max_bytes=len(GOOD) - 1)


def test_zstd_needs_version_7() -> None:
    batch = build_batch(RECORDS, codec="zstd")
    assert validate_produced_batch(batch, produce_version=7).codec == 4
    with pytest.raises(UnsupportedCompressionType, match="version 7, not 6"):
        validate_produced_batch(batch, produce_version=6)


def test_any_flipped_byte_is_noticed_or_harmless() -> None:
    for position in range(len(GOOD)):
        damaged = bytearray(GOOD)
        damaged[position] ^= 0x10
        if at.LEADER_EPOCH_AT <= position < at.MAGIC_AT:
            validate_produced_batch(damaged)  # the broker overwrites the leader epoch
            continue
        with pytest.raises(KafkaError):
            validate_produced_batch(damaged)


def test_records_are_checked_when_asked() -> None:
    header, data = batch_of(GOOD)
    validate_records(header, data)
    with pytest.raises(InvalidRecord, match="the first is record 1: no key"):
        validate_records(header, data, compacted=True)


def batch_of(batch: bytes | bytearray) -> tuple[at.BatchHeader, bytes]:
    """Header and uncompressed records."""
    view = BatchView(batch)
    return view, bytes(view.records_bytes())


def faulty(records: list[NewRecord], **demands: Any) -> KafkaError:
    """What a batch of these records is refused with."""
    with pytest.raises(KafkaError) as caught:
        validate_records(*batch_of(build_batch(records)), **demands)
    return caught.value


def test_every_record_without_a_key_is_named() -> None:
    records = [NewRecord(5, None if number in (1, 3, 1500) else b"k", b"v") for number in range(2000)]
    error = faulty(records, compacted=True)
    assert isinstance(error, InvalidRecord)
    assert error.record_errors == tuple((number, "no key, which a compacted topic needs") for number in (1, 3, 1500))
    assert str(error).startswith("3 of 2000 records cannot be stored")


def test_every_record_out_of_time_is_named_and_makes_the_batch_late() -> None:
    times = {0: 9, 2: 10, 3: 20, 4: 21, 6: -1}
    records = [NewRecord(times.get(number, 15), b"k", b"v") for number in range(7)]
    error = faulty(records, times=(10, 20))
    assert isinstance(error, InvalidTimestamp)
    assert error.record_errors == (
        (0, "timestamp 9 is not within [10, 20]"),
        (4, "timestamp 21 is not within [10, 20]"),
    )


def test_a_record_without_a_key_is_not_asked_for_its_time() -> None:
    """The batch is late if any record is, wherever it stands: so Kafka answers."""
    both = [NewRecord(15, None, b"v"), NewRecord(1, None, b"v"), NewRecord(1, b"k", b"v"), NewRecord(15, b"k", b"v")]
    error = faulty(both, times=(10, 20), compacted=True)
    assert isinstance(error, InvalidTimestamp)
    assert [number for number, _ in error.record_errors] == [0, 1, 2]
    assert isinstance(faulty(both[:2], times=(10, 20), compacted=True), InvalidRecord)


def test_no_more_records_are_named_than_a_batch_of_librdkafka_has() -> None:
    error = faulty([NewRecord(5, None, b"")] * (RECORD_ERRORS_MAX + 1), compacted=True)
    assert len(error.record_errors) == RECORD_ERRORS_MAX
    assert str(error).startswith(f"{RECORD_ERRORS_MAX + 1} of {RECORD_ERRORS_MAX + 1} records")


def test_a_header_that_says_a_time_which_no_record_has() -> None:
    lying = bytearray(build_batch([NewRecord(15, b"k", b"v")]))
    struct.pack_into(">q", lying, at.MAX_TIMESTAMP_AT, 99)
    with pytest.raises(InvalidTimestamp) as caught:
        validate_records(*batch_of(lying), times=(10, 20))
    assert caught.value.record_errors == ()


def test_offset_deltas_that_lie_are_found() -> None:
    one = build_batch([NewRecord(0, None, b"v")])
    lying = bytearray(one)
    lying[61 + 3] = 0x0A  # the offset delta becomes 5, the header still says one record at 0
    struct.pack_into(">I", lying, at.CRC_AT, crc32c(lying[at.ATTRIBUTES_AT :]))
    validate_produced_batch(lying)
    with pytest.raises(InvalidRecord, match="record 0 has offset delta 5"):
        validate_records(*batch_of(lying))


@given(record_lists, st.data())
def test_records_are_refused_exactly_when_they_cannot_be_read(records: list[NewRecord], data: st.DataObject) -> None:
    batch = bytearray(build_batch(records))
    for _ in range(data.draw(st.integers(0, 2))):
        batch[data.draw(st.integers(at.HEADER_BYTES, len(batch) - 1))] = data.draw(st.integers(0, 255))
    view = BatchView(batch)
    try:
        readable = [record.offset for record in decode_records(view)] == list(range(view.record_count))
    except CorruptMessage:
        readable = False
    for form in (bytes, memoryview):
        header, data = batch_of(batch)
        if readable:
            validate_records(header, form(data))
        else:
            with pytest.raises(InvalidRecord):
                validate_records(header, form(data))
