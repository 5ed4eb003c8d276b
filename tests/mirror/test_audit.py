"""The comparison finds every kind of difference and nothing else."""

import random
import struct

import pytest

from tidemill.core.records.batch import ATTRIBUTES_AT, CRC_AT, BatchView, stamp
from tidemill.core.records.builder import build_batch
from tidemill.core.records.crc import crc32c
from tidemill.core.records.record import Record
from tidemill.mirror.audit import Comparison
from tidemill.mirror.passthrough import relay

PID = 1 << 62


def source_log(seed: int = 1) -> list[bytes]:
    """Batches with holes, append times and every codec."""
    rng, log, offset = random.Random(seed), [], 100
    for index in range(30):
        offsets = list(range(offset, offset + 4))
        if index % 5 == 3:
            offsets = offsets[::2]
        rows = [Record(at, 1000 + at, b"k%d" % at, rng.randbytes(rng.randrange(1, 30))) for at in offsets]
        codec = ("none", "lz4", "zstd", "gzip", "snappy")[index % 5]
        batch = bytearray(
            build_batch(rows, base_offset=offset, keep_offsets=True, codec=codec, timestamp_type=index % 7 == 6)
        )
        stamp(batch, 0, offset, 3)
        log.append(bytes(batch))
        offset = offsets[-1] + 1
    return log


def copy_of(log: list[bytes]) -> list[bytes]:
    """What a mirror would have written."""
    relayed = relay(b"".join(log), next_source=100, next_target=0, producer_id=PID)
    copy = []
    for item in relayed.outgoing:
        batch = bytearray(item.batch)
        stamp(batch, 0, item.target_offset, 0)
        copy.append(bytes(batch))
    return copy


def compare(source: list[bytes], target: list[bytes], chunk: int = 3) -> Comparison:
    comparison = Comparison(100, 0)
    for index in range(0, max(len(source), len(target)), chunk):
        comparison.feed_target(memoryview(b"".join(target[index : index + chunk])))
        comparison.feed_source(memoryview(b"".join(source[index : index + chunk])), ())
    return comparison


def recomputed(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, CRC_AT, crc32c(batch[ATTRIBUTES_AT:]))
    return bytes(batch)


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_a_true_copy_is_equal(chunk: int) -> None:
    log = source_log()
    comparison = compare(log, copy_of(log), chunk)
    assert comparison.divergence is None
    assert comparison.records == sum(BatchView(batch).record_count for batch in log)
    assert comparison.batches_by_checksum >= 15
    assert comparison.needs_source
    assert comparison.needs_target


def test_a_copy_with_another_codec_is_equal() -> None:
    log = source_log()
    recoded = []
    for batch in copy_of(log):
        from tidemill.core.records.record import decode_records

        view = BatchView(batch)
        other = bytearray(build_batch(decode_records(view), codec="gzip"))
        stamp(other, 0, view.base_offset, 0)
        recoded.append(bytes(other))
    comparison = compare(log, recoded)
    assert comparison.divergence is None


def test_a_flipped_bit_is_found_even_if_the_checksum_was_made_to_fit() -> None:
    log = source_log()
    for fits in (False, True):
        copy = copy_of(log)
        damaged = bytearray(copy[10])
        damaged[-3] ^= 1
        copy[10] = recomputed(damaged) if fits else bytes(damaged)
        found = compare(log, copy).divergence
        assert found is not None
        assert found.problem


def test_a_missing_a_doubled_and_a_swapped_batch_are_found() -> None:
    log, copy = source_log(), copy_of(source_log())
    for broken in (copy[:7] + copy[8:], copy[:7] + copy[6:], [*copy[:7], copy[8], copy[7], *copy[9:]]):
        restamped, offset = [], 0
        for batch in broken:
            again = bytearray(batch)
            stamp(again, 0, offset, 0)
            offset += BatchView(batch).record_count
            restamped.append(bytes(again))
        found = compare(log, restamped).divergence
        assert found is not None
        assert found.problem in ("the key differs", "the value differs")


def test_times_and_headers_count() -> None:
    row = Record(100, 5, b"k", b"v", (("h", b"1"),))
    for other, name in ((row._replace(timestamp=6), "timestamp"), (row._replace(headers=()), "headers")):
        source = bytearray(build_batch([row]))
        stamp(source, 0, 100, 0)
        found = compare([bytes(source)], [build_batch([other])]).divergence
        assert found is not None
        assert found.problem == f"the {name} differs"
        assert (found.source_offset, found.target_offset) == (100, 0)


def test_aborted_data_is_not_expected_on_the_target() -> None:
    aborted = bytearray(build_batch([Record(100, 1, b"x", b"x")], transactional=True, producer_id=5, producer_epoch=0))
    stamp(aborted, 0, 100, 0)
    kept = bytearray(build_batch([Record(101, 1, b"k", b"v")]))
    stamp(kept, 0, 101, 0)
    comparison = Comparison(100, 0)
    comparison.feed_source(memoryview(bytes(aborted + kept)), [(5, 100)])
    comparison.feed_target(memoryview(build_batch([Record(0, 1, b"k", b"v")])))
    assert (comparison.divergence, comparison.records) == (None, 1)
