"""Every row of the edge table: what travels as bytes, what is rebuilt, what is dropped, what is refused."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.records.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_AT,
    BatchView,
    stamp,
)
from tidemill.core.records.builder import build_batch
from tidemill.core.records.compression import CODECS
from tidemill.core.records.crc import crc32c
from tidemill.core.records.record import Record, decode_records
from tidemill.mirror.lineage import Span
from tidemill.mirror.passthrough import (
    AbortedTransactions,
    Relayed,
    Unmirrorable,
    Verdict,
    judge,
    patch,
    relay,
    split_batches,
)

PID = (1 << 62) + 99


def records(base: int, count: int) -> list[Record]:
    return [Record(base + i, 5000 + i, b"k%d" % i, b"value %d" % i, (("h", b"x"),)) for i in range(count)]


def at(base: int, batch: bytes, epoch: int = 4) -> bytes:
    """As a source's log holds it."""
    buffer = bytearray(batch)
    stamp(buffer, 0, base, epoch)
    return bytes(buffer)


def source(base: int, count: int, **kind: object) -> bytes:
    return at(base, build_batch(records(base, count), **kind))  # type: ignore[arg-type]


def marker(base: int, producer: int) -> bytes:
    body = [Record(base, 0, b"\0\0\0\0", b"")]
    return at(base, build_batch(body, control=True, transactional=True, producer_id=producer, producer_epoch=0))


def edited(batch: bytes, at: int, layout: str, value: int) -> bytes:
    """`batch` with one header field changed and the checksum made right again."""
    buffer = bytearray(batch)
    struct.pack_into(layout, buffer, at, value)
    struct.pack_into(">I", buffer, CRC_AT, crc32c(buffer[ATTRIBUTES_AT:]))
    return bytes(buffer)


def run(data: bytes, next_source: int = 0, next_target: int = 0, aborted: tuple[tuple[int, int], ...] = ()) -> Relayed:
    return relay(bytearray(data), next_source=next_source, next_target=next_target, producer_id=PID, aborted=aborted)


def contents(relayed: Relayed) -> list[tuple[bytes | None, bytes | None, int, object]]:
    return [
        (record.key, record.value, record.timestamp, record.headers)
        for item in relayed.outgoing
        for record in decode_records(BatchView(item.batch))
    ]


@pytest.mark.parametrize("codec", list(CODECS))
def test_a_batch_travels_as_bytes(codec: str) -> None:
    original = source(70, 3, codec=codec, producer_id=12, producer_epoch=3, base_sequence=8)
    relayed = run(original, 70, 41)
    (item,) = relayed.outgoing
    view = BatchView(item.batch)
    assert bytes(view.records_bytes()) == original[HEADER_BYTES:]
    assert view.verify_crc()
    assert (view.base_offset, view.leader_epoch) == (0, -1)
    assert (view.producer_id, view.producer_epoch, view.base_sequence) == (PID, 0, 41)
    assert (view.record_count, view.last_offset_delta, view.codec) == (3, 2, CODECS[codec])
    assert (view.base_timestamp, view.max_timestamp) == (5000, 5002)
    assert (item.target_offset, item.records, item.pieces, item.source_end) == (41, 3, ((70, 3),), 73)
    assert relayed.next_source == 73
    assert relayed.verdicts == (Verdict.PASS,)


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(1, 5), st.booleans())
def test_the_moved_checksum_is_the_recomputed_one(base: int, target: int, count: int, txn: bool) -> None:
    batch = memoryview(bytearray(source(base, count, transactional=txn, producer_id=3, producer_epoch=1)))
    patch(batch, target, PID)
    view = BatchView(batch)
    assert view.verify_crc()
    assert view.base_sequence == target % 2**31
    assert not view.is_transactional


def test_sequences_start_over() -> None:
    view = BatchView(run(source(0, 3), 0, 2**31 - 1).outgoing[0].batch)
    assert (view.base_sequence, view.last_sequence) == (2**31 - 1, 1)


def test_a_damaged_payload_keeps_a_wrong_checksum() -> None:
    damaged = bytearray(source(0, 3, codec="zstd"))
    damaged[-2] ^= 4
    assert not BatchView(run(bytes(damaged)).outgoing[0].batch).verify_crc()


def test_the_transactional_bit_is_cleared() -> None:
    data = source(0, 2, transactional=True, producer_id=7, producer_epoch=0, base_sequence=0) + marker(2, 7)
    relayed = run(data + source(3, 1))
    assert [BatchView(item.batch).is_transactional for item in relayed.outgoing] == [False, False]
    assert [item.pieces for item in relayed.outgoing] == [((0, 2),), ((3, 1),)]
    assert [item.target_offset for item in relayed.outgoing] == [0, 2]
    assert relayed.verdicts == (Verdict.PASS, Verdict.DROP_CONTROL, Verdict.PASS)


def test_the_delete_horizon_is_cleared_and_times_stay() -> None:
    marked = edited(source(0, 2), ATTRIBUTES_AT, ">h", DELETE_HORIZON_BIT)
    relayed = run(marked)
    assert not BatchView(relayed.outgoing[0].batch).has_delete_horizon
    assert [row[2] for row in contents(relayed)] == [5000, 5001]


def test_aborted_data_is_dropped_by_its_headers() -> None:
    data = (
        source(0, 2, transactional=True, producer_id=7, producer_epoch=0)
        + source(2, 2, transactional=True, producer_id=8, producer_epoch=0)
        + source(4, 1)
        + marker(5, 7)
        + source(6, 1, transactional=True, producer_id=7, producer_epoch=0)
        + marker(7, 7)
        + marker(8, 8)
    )
    relayed = run(data, aborted=((7, 0),))
    assert relayed.verdicts == (
        Verdict.DROP_ABORTED,
        Verdict.PASS,
        Verdict.PASS,
        Verdict.DROP_CONTROL,
        Verdict.PASS,
        Verdict.DROP_CONTROL,
        Verdict.DROP_CONTROL,
    )
    assert [item.pieces[0][0] for item in relayed.outgoing] == [2, 4, 6]
    assert relayed.next_source == 9


def test_a_second_abort_of_the_same_producer_is_seen() -> None:
    data = b"".join(
        source(base, 1, transactional=True, producer_id=7, producer_epoch=0) + marker(base + 1, 7) for base in (0, 2, 4)
    )
    relayed = run(data, aborted=((7, 0), (7, 4)))
    assert [item.pieces for item in relayed.outgoing] == [((2, 1),)]


def test_an_abort_that_began_before_the_fetch_is_seen() -> None:
    filters = AbortedTransactions([(7, 3)])
    view = BatchView(source(10, 2, transactional=True, producer_id=7, producer_epoch=0))
    assert judge(view, 10, filters) is Verdict.DROP_ABORTED


def test_an_empty_batch_is_dropped() -> None:
    empty = edited(source(0, 3)[:HEADER_BYTES], 57, ">i", 0)
    empty = edited(edited(empty, 8, ">i", HEADER_BYTES - 12), 57, ">i", 0)
    relayed = run(empty + source(3, 1))
    assert relayed.verdicts == (Verdict.DROP_EMPTY, Verdict.PASS)
    assert relayed.outgoing[0].pieces == ((3, 1),)


def test_a_batch_with_holes_is_rebuilt_and_never_relabelled() -> None:
    kept = [record for record in records(100, 6) if record.offset in (101, 102, 105)]
    data = at(100, build_batch(kept, base_offset=100, keep_offsets=True, codec="lz4"))
    relayed = run(data, 100, 50)
    (item,) = relayed.outgoing
    view = BatchView(item.batch)
    assert (view.record_count, view.last_offset_delta, view.base_sequence) == (3, 2, 50)
    assert [record.offset for record in decode_records(view)] == [0, 1, 2]
    assert [row[1] for row in contents(relayed)] == [record.value for record in kept]
    assert item.pieces == ((101, 2), (105, 1))
    assert (view.codec, view.verify_crc(), relayed.next_source) == (CODECS["lz4"], True, 106)


def test_a_hole_at_the_end_of_a_batch_is_skipped() -> None:
    data = edited(source(0, 2), LAST_OFFSET_DELTA_AT, ">i", 4)  # records 2 to 4 were compacted away
    relayed = run(data)
    assert (relayed.verdicts, relayed.next_source) == ((Verdict.REBUILD,), 5)
    assert relayed.outgoing[0].source_end == 2


def test_the_tail_of_a_half_mirrored_batch_is_rebuilt() -> None:
    relayed = run(source(10, 5), 13, 3)
    (item,) = relayed.outgoing
    assert item.pieces == ((13, 2),)
    assert [row[1] for row in contents(relayed)] == [b"value 3", b"value 4"]
    assert BatchView(item.batch).base_sequence == 3


def test_what_was_mirrored_is_passed_over() -> None:
    relayed = run(source(10, 5) + source(15, 1), 15, 5)
    assert relayed.verdicts == (Verdict.DROP_REPLICATED, Verdict.PASS)
    assert relayed.outgoing[0].pieces == ((15, 1),)


def test_append_time_becomes_create_time() -> None:
    relayed = run(source(0, 3, timestamp_type=1))
    assert relayed.verdicts == (Verdict.REBUILD,)
    assert BatchView(relayed.outgoing[0].batch).timestamp_type == 0
    assert [row[2] for row in contents(relayed)] == [5002, 5002, 5002]


def test_a_truncated_last_batch_is_left_for_the_next_fetch() -> None:
    whole, cut = source(0, 2), source(2, 2)
    for size in range(len(cut)):
        relayed = run(whole + cut[:size])
        assert (len(relayed.outgoing), relayed.next_source) == (1, 2)


def test_a_batch_that_must_be_rebuilt_is_checked_first() -> None:
    damaged = bytearray(source(0, 3, timestamp_type=1))
    damaged[-2] ^= 4
    with pytest.raises(Unmirrorable, match="offset 0 cannot be read: its checksum is wrong"):
        run(bytes(damaged))


def test_nonsense_is_refused() -> None:
    with pytest.raises(Unmirrorable, match="not a record batch"):
        list(split_batches(memoryview(edited(source(0, 1), 8, ">i", 5))))


def old_message(offset: int, magic: int, key: bytes, value: bytes) -> bytes:
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", 77) if magic else b"")
    body += struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def test_old_formats_are_rebuilt_and_mix_with_new_ones() -> None:
    data = old_message(3, 0, b"a", b"1") + old_message(4, 1, b"b", b"2") + source(5, 2)
    relayed = run(data, 4, 1)
    assert relayed.verdicts == (Verdict.DROP_REPLICATED, Verdict.REBUILD, Verdict.PASS)
    assert contents(relayed)[0] == (b"b", b"2", 77, ())
    assert [item.pieces for item in relayed.outgoing] == [((4, 1),), ((5, 2),)]
    assert relayed.next_source == 7


def test_bytes_that_may_not_be_edited_are_copied() -> None:
    data = source(0, 2)
    relayed = relay(data, next_source=0, next_target=9, producer_id=PID)
    assert BatchView(relayed.outgoing[0].batch).base_sequence == 9
    assert data == source(0, 2)


def test_leader_epochs_of_everything_that_was_read_are_told() -> None:
    marker = at(4, build_batch([Record(0, 0, b"\0\0\0\0", b"")], control=True, transactional=True), epoch=6)
    old = at(5, build_batch(records(5, 2)), epoch=6)
    data = source(0, 2) + source(2, 2) + marker + old + at(9, build_batch(records(9, 1)), epoch=-1)
    relayed = relay(bytearray(data), next_source=1, next_target=0, producer_id=PID)
    assert relayed.spans == (Span(4, 0, 4), Span(6, 4, 7), Span(-1, 9, 10))
