"""Header views, iteration and edits in place"""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.errors import CorruptMessage
from tidemill.core.records import batch as batch_module
from tidemill.core.records.batch import (
    HEADER_BYTES,
    BatchView,
    crc_matches,
    iter_batches,
    pack_header,
    plausible_size,
    read_header,
    set_create_time,
    stamp,
    stamp_append_time,
    with_records,
)
from tidemill.core.records.builder import build_batch
from tidemill.core.records.crc import payload_crc
from tidemill.core.records.record import NewRecord, decode_records

RECORDS = [NewRecord(1000 + i, b"k", b"v" * i) for i in range(3)]
BATCH = build_batch(
    RECORDS,
    base_offset=40,
    producer_id=9,
    producer_epoch=2,
    base_sequence=2**31 - 2,
    leader_epoch=6,
    codec="gzip",
    transactional=True,
)


def test_every_field_of_the_header() -> None:
    view = BatchView(b"junk" + BATCH + b"more", 4)
    assert (view.base_offset, view.last_offset, view.next_offset, view.last_offset_delta) == (40, 42, 43, 2)
    assert (view.size_bytes, view.leader_epoch, view.magic) == (len(BATCH), 6, 2)
    assert (view.codec, view.timestamp_type, view.attributes) == (1, 0, 0x11)
    assert (view.is_transactional, view.is_control, view.has_delete_horizon) == (True, False, False)
    assert (view.base_timestamp, view.max_timestamp, view.record_count) == (1000, 1002, 3)
    assert (view.producer_id, view.producer_epoch, view.has_producer_id) == (9, 2, True)
    assert (view.base_sequence, view.last_sequence) == (2**31 - 2, 0)
    assert view.verify_crc()
    assert bytes(view.batch_bytes()) == BATCH
    assert bytes(view.records_bytes()) == BATCH[HEADER_BYTES:]
    assert "base_offset=40" in repr(view)


def test_a_view_is_the_header_of_a_batch_that_is_there() -> None:
    view, header = BatchView(b"junk" + BATCH, 4), read_header(b"junk" + BATCH[:HEADER_BYTES], 4)
    assert view == header
    assert (view.size_bytes, view.last_sequence) == (header.size_bytes, header.last_sequence)
    assert pack_header(header) == BATCH[:HEADER_BYTES]


def test_a_header_is_a_claim_until_its_crc_matches() -> None:
    header = read_header(BATCH)
    assert plausible_size(header) and crc_matches(b"junk" + BATCH + b"more", 4, header)
    damaged = bytearray(BATCH)
    damaged[70] ^= 1
    assert not crc_matches(damaged, 0, read_header(damaged))


@pytest.mark.parametrize("spoiled", [{"magic": 1}, {"length": 48}, {"last_offset_delta": -1}])
def test_implausible_headers(spoiled: dict[str, int]) -> None:
    assert not plausible_size(read_header(BATCH)._replace(**spoiled))


def test_offsets_of_the_fields() -> None:
    assert HEADER_BYTES == 61
    at = {
        "BASE_OFFSET_AT": (">q", 40),
        "BATCH_LENGTH_AT": (">i", len(BATCH) - 12),
        "LEADER_EPOCH_AT": (">i", 6),
        "MAGIC_AT": (">b", 2),
        "CRC_AT": (">I", BatchView(BATCH).crc),
        "ATTRIBUTES_AT": (">h", 0x11),
        "LAST_OFFSET_DELTA_AT": (">i", 2),
        "BASE_TIMESTAMP_AT": (">q", 1000),
        "MAX_TIMESTAMP_AT": (">q", 1002),
        "PRODUCER_ID_AT": (">q", 9),
        "PRODUCER_EPOCH_AT": (">h", 2),
        "BASE_SEQUENCE_AT": (">i", 2**31 - 2),
        "COUNT_AT": (">i", 3),
    }
    for name, (code, value) in at.items():
        assert struct.unpack_from(code, BATCH, getattr(batch_module, name))[0] == value, name


def test_without_a_producer_there_is_no_sequence() -> None:
    view = BatchView(build_batch(RECORDS))
    assert (view.has_producer_id, view.base_sequence, view.last_sequence) == (False, -1, -1)


@pytest.mark.parametrize("at", [17, 21, 30, 60, 61, len(BATCH) - 1])
def test_a_flipped_bit_fails_the_checksum(at: int) -> None:
    damaged = bytearray(BATCH)
    damaged[at] ^= 4
    assert not BatchView(damaged).verify_crc()


def test_the_covered_header_is_what_the_algebra_needs() -> None:
    view = BatchView(BATCH)
    payload = BATCH[HEADER_BYTES:]
    assert view.covered_header() == BATCH[21:61]
    assert payload_crc(view.crc, view.covered_header(), len(payload)) == payload_crc(
        BatchView(BATCH).crc, BATCH[21:61], len(payload)
    )


def test_stamping_keeps_the_checksum() -> None:
    buffer = bytearray(b"junk" + BATCH)
    stamp(buffer, 4, 2**40, 77)
    view = BatchView(buffer, 4)
    assert (view.base_offset, view.leader_epoch, view.size_bytes, view.magic) == (2**40, 77, len(BATCH), 2)
    assert view.verify_crc()
    stamp(memoryview(buffer), 4, 5, 6)
    assert BatchView(buffer, 4).base_offset == 5
    assert buffer[:4] == b"junk"


def test_append_time_replaces_the_timestamps_and_the_checksum() -> None:
    buffer = bytearray(BATCH)
    stamp_append_time(buffer, 0, 5000)
    view = BatchView(buffer)
    assert (view.timestamp_type, view.max_timestamp, view.base_timestamp) == (1, 5000, 1000)
    assert view.verify_crc()
    assert [record.timestamp for record in decode_records(view)] == [5000] * 3


def test_create_time_is_restored_with_a_new_checksum() -> None:
    buffer = bytearray(b"junk" + BATCH + b"more")
    stamp_append_time(buffer, 4, 5000)
    assert buffer[4:-4] != BATCH
    set_create_time(buffer, 4)
    view = BatchView(buffer, 4)
    assert (view.timestamp_type, view.verify_crc()) == (0, True)
    assert bytes(view.records_bytes()) == BATCH[HEADER_BYTES:]
    assert (buffer[:4], buffer[-4:]) == (b"junk", b"more")


def test_records_are_exchanged_under_the_same_header() -> None:
    again = with_records(BATCH[:HEADER_BYTES], b"others", 0)
    view, before = BatchView(again), BatchView(BATCH)
    assert (view.codec, bytes(view.records_bytes()), view.verify_crc()) == (0, b"others", True)
    assert view[5:] == (before.attributes & ~1, *before[6:])


@given(st.lists(st.integers(1, 4), max_size=4), st.integers(0, 100))
def test_batches_are_iterated_up_to_a_truncated_one(counts: list[int], cut: int) -> None:
    whole = [build_batch(RECORDS[:1] * count, base_offset=i) for i, count in enumerate(counts)]
    data = b"".join(whole)
    assert [bytes(view.batch_bytes()) for view in iter_batches(data)] == whole
    cut = min(cut, len(whole[-1]) if whole else 0)
    kept = whole[:-1] if cut else whole
    assert [bytes(view.batch_bytes()) for view in iter_batches(memoryview(data)[: len(data) - cut])] == kept


@pytest.mark.parametrize("length", [-2147483648, -12, 0, 48])
def test_impossible_lengths_are_damage(length: int) -> None:
    damaged = bytearray(BATCH)
    struct.pack_into(">i", damaged, 8, length)
    with pytest.raises(CorruptMessage, match="the least is 61"):
        list(iter_batches(bytes(damaged)))
    with pytest.raises(CorruptMessage):
        BatchView(damaged)


def test_a_view_needs_the_whole_batch() -> None:
    for end in range(len(BATCH)):
        with pytest.raises(CorruptMessage):
            BatchView(BATCH[:end])
    with pytest.raises(CorruptMessage):
        BatchView(BATCH, 1)
