"""Reading records: every codec, damage, and other libraries' batches"""

from contextlib import suppress

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder as PythonBuilder

from tests.core.records.record_strategies import record_lists
from tidemill.core.errors import CorruptMessage, MessageTooLarge
from tidemill.core.records.batch import BatchView
from tidemill.core.records.builder import build_batch
from tidemill.core.records.compression import CODECS
from tidemill.core.records.crc import crc32c
from tidemill.core.records.record import NewRecord, Record, decode_records


def with_payload(batch: bytes, payload: bytes, count: int | None = None) -> BatchView:
    """A batch whose records are replaced by `payload`, checksum valid."""
    changed = bytearray(batch[:61] + payload)
    changed[8:12] = (len(changed) - 12).to_bytes(4, "big")
    if count is not None:
        changed[57:61] = count.to_bytes(4, "big", signed=True)
    changed[17:21] = crc32c(changed[21:]).to_bytes(4, "big")
    return BatchView(bytes(changed))


@pytest.mark.parametrize("codec", CODECS)
@given(records=record_lists, base_offset=st.integers(0, 2**40))
def test_records_survive_every_codec(codec: str, records: list[NewRecord], base_offset: int) -> None:
    view = BatchView(build_batch(records, base_offset=base_offset, codec=codec))
    expected = [Record(base_offset + i, *record) for i, record in enumerate(records)]
    decoded = decode_records(view)
    assert decoded == expected
    assert all(type(record) is Record for record in decoded)


def test_golden_bytes() -> None:
    payload = bytes.fromhex("1c" + "00" + "00" + "00" + "026b" + "047676" + "02" + "0268" + "040102") + bytes.fromhex(
        "0e" + "00" + "c801" + "02" + "01" + "01" + "00"
    )
    view = with_payload(build_batch([NewRecord(1000, None, None)], base_offset=5), payload, 2)
    assert decode_records(view) == [
        Record(5, 1000, b"k", b"vv", (("h", b"\x01\x02"),)),
        Record(6, 1100, None, None),
    ]


@pytest.mark.parametrize(
    ("builder_class", "codec"),
    [*((AioBuilder, codec) for codec in CODECS), (PythonBuilder, "none"), (PythonBuilder, "gzip")],
    ids=lambda value: getattr(value, "__module__", value),
)
def test_we_read_what_other_libraries_build(builder_class: type, codec: str) -> None:
    builder = builder_class(
        magic=2,
        compression_type=CODECS[codec],
        is_transactional=0,
        producer_id=7,
        producer_epoch=1,
        base_sequence=3,
        batch_size=1 << 20,
    )
    expected = []
    for i in range(50):
        key, value = (None if i % 5 == 0 else b"key"), (None if i % 7 == 0 else b"value" * i)
        headers = [("name", b"x" * i), ("nothing", None)] if i % 3 == 0 else []
        builder.append(i, 1_700_000_000_000 + i * 100, key, value, headers)
        expected.append(Record(i, 1_700_000_000_000 + i * 100, key, value, tuple(headers)))
    view = BatchView(bytes(builder.build()))
    assert view.verify_crc()
    assert (view.producer_id, view.base_sequence, view.last_sequence, view.record_count) == (7, 3, 52, 50)
    assert decode_records(view) == expected


def test_damage_anywhere_raises_only_corrupt_message() -> None:
    batch = build_batch([NewRecord(1000, b"key", b"value" * 30, (("h", b"x"), ("g", None)))] * 2)
    payload = batch[61:]
    assert decode_records(with_payload(batch, payload))
    for at in range(len(payload)):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            damaged = bytearray(payload)
            damaged[at] = value
            with suppress(CorruptMessage):
                decode_records(with_payload(batch, bytes(damaged)))
        with pytest.raises(CorruptMessage):
            decode_records(with_payload(batch, payload[:at]))
    with pytest.raises(CorruptMessage, match="1 bytes behind the 2 records"):
        decode_records(with_payload(batch, payload + b"\0"))


@given(st.binary(max_size=60), st.integers(-5, 60))
def test_random_records_raise_only_corrupt_message(payload: bytes, count: int) -> None:
    with suppress(CorruptMessage):
        decode_records(with_payload(build_batch([NewRecord(0, None, None)]), payload, count))


@pytest.mark.parametrize("count", [-1, 1, 3, 2**31 - 1])
def test_the_count_must_be_true(count: int) -> None:
    batch = build_batch([NewRecord(0, None, b"v")] * 2)
    with pytest.raises(CorruptMessage):
        decode_records(with_payload(batch, batch[61:], count))


def test_a_header_name_must_be_utf8() -> None:
    batch = build_batch([NewRecord(0, None, None, (("ab", None),))])
    with pytest.raises(CorruptMessage, match="not UTF-8"):
        decode_records(with_payload(batch, batch[61:].replace(b"ab", b"\xc3\x28")))


def test_output_is_bounded() -> None:
    view = BatchView(build_batch([NewRecord(0, None, bytes(100_000))], codec="zstd"))
    assert len(decode_records(view, 101_000)) == 1
    with pytest.raises(MessageTooLarge):
        decode_records(view, 99_000)


def test_other_magics_are_refused() -> None:
    batch = bytearray(build_batch([NewRecord(0, None, None)]))
    batch[16] = 1
    with pytest.raises(CorruptMessage, match="magic 1"):
        decode_records(BatchView(batch))
