"""The batch header as the log reads it"""

import struct

from hypothesis import given
from hypothesis import strategies as st

from tests.broker.log.log_world import batch
from tidemill.broker.log.header import accept_produced, crc_matches, plausible_size, read_header, set_create_time
from tidemill.core.errors import KafkaError
from tidemill.core.records.batch import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES, BatchView, stamp_append_time
from tidemill.core.records.crc import crc32c
from tidemill.core.records.validate import validate_produced_batch


@given(st.integers(1, 5), st.integers(0, 20))
def test_fields_are_those_of_the_view(count: int, at: int) -> None:
    data = bytes(at) + batch(count, producer=(9, 2, 2**31 - 2))
    view, header = BatchView(data, at), read_header(data, at)
    for name in (
        "base_offset",
        "size_bytes",
        "leader_epoch",
        "magic",
        "crc",
        "attributes",
        "last_offset",
        "base_timestamp",
        "max_timestamp",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "last_sequence",
    ):
        assert getattr(header, name) == getattr(view, name)  # fmt: skip
    assert header.record_count == view.count
    assert plausible_size(header)
    assert crc_matches(data, at, header)


def test_a_damaged_batch_does_not_match_its_crc() -> None:
    data = bytearray(batch(2))
    data[70] ^= 1
    assert not crc_matches(data, 0, read_header(data))


def test_implausible_headers() -> None:
    data = bytearray(batch(2))
    for at, value in ((16, 1), (11, 10), (23, 255)):  # magic, length, last offset delta
        spoiled = bytearray(data)
        spoiled[at] = value
        spoiled[8:11] = bytes(3)
        assert not plausible_size(read_header(spoiled))


def test_create_time_is_restored_with_a_new_crc() -> None:
    data = bytearray(batch(2, timestamp=5))
    before = bytes(data)
    stamp_append_time(data, 0, 99)
    set_create_time(data)
    view = BatchView(data)
    assert (view.timestamp_type, view.verify_crc()) == (0, True)
    assert data[61:] == before[61:]


def recomputed(data: bytearray) -> bytes:
    """With a checksum that matches, so that other faults come to light."""
    struct.pack_into(">I", data, CRC_AT, crc32c(bytes(data[ATTRIBUTES_AT:])))
    return bytes(data)


@st.composite
def produced(draw: st.DrawFn) -> bytes:
    """Batches that are good, damaged, or well-formed with values that no producer should send."""
    data = bytearray(batch(draw(st.integers(1, 5)), producer=draw(st.sampled_from([(-1, -1, -1), (9, 2, 5)]))))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, HEADER_BYTES + 5))
        data[at] = draw(st.sampled_from([0, 1, 2, 4, 5, 8, 16, 32, 0x7F, 0x80, 0xFF]))
    sized = draw(st.sampled_from([data, data, data, data[:-1], data + b"\0", data[:60], bytearray()]))
    return recomputed(sized) if len(sized) >= HEADER_BYTES and draw(st.booleans()) else bytes(sized)


@given(produced(), st.sampled_from([61, 100, 150, 10**6]), st.integers(3, 13))
def test_the_cheap_check_takes_exactly_what_the_full_one_takes(data: bytes, max_bytes: int, version: int) -> None:
    header = accept_produced(memoryview(data), max_bytes=max_bytes, produce_version=version)
    try:
        view = validate_produced_batch(data, max_bytes=max_bytes, produce_version=version)
    except KafkaError:
        assert header is None
    else:
        assert header is not None
        for name in ("last_offset_delta", "timestamp_type", "base_timestamp", "max_timestamp", "size_bytes"):
            assert getattr(header, name) == getattr(view, name)
