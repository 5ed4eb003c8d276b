"""Batches of a damaged file: up to the first bad one, and whether anything sound comes later."""

import pytest

from tidemill.broker.quorum.batches import SECTOR_BYTES, has_hole, later_batch, sound_batches
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord


def batch(number: int, size: int = 0) -> bytes:
    return build_batch([NewRecord(0, None, b"%d" % number + b"y" * size)], base_offset=number)


def test_reading_stops_before_the_first_bad_batch_and_the_next_sound_one_is_found() -> None:
    parts = [batch(number) for number in range(4)]
    size = len(parts[0])
    data = bytearray(b"".join(parts))
    assert [(view.base_offset, end) for view, end in sound_batches(bytes(data))] == [
        (number, (number + 1) * size) for number in range(4)
    ]
    for position in range(2 * size + 16, 3 * size):
        damaged = bytes(data[:position]) + bytes([data[position] ^ 1]) + bytes(data[position + 1 :])
        assert [view.base_offset for view, _ in sound_batches(damaged)] == [0, 1]
        assert later_batch(damaged, 2 * size + 1) == 3 * size


def test_nothing_sound_follows_a_torn_tail() -> None:
    data = batch(0) + batch(1)
    for cut in range(len(batch(0)), len(data)):
        torn = data[:cut] + bytes(50)
        if torn.startswith(data):
            continue
        assert [view.base_offset for view, _ in sound_batches(torn)] == [0]
        assert later_batch(torn, len(batch(0)) + 1) is None


@pytest.mark.parametrize("start", range(200, 1100, 7))
def test_a_sector_that_was_never_written_is_a_hole(start: int) -> None:
    data = bytearray(b"x" * start + batch(2**40, 900) + batch(2**40 + 1, 900))
    assert not has_hole(bytes(data), start, len(data), 2**40)
    for sector in range(start // SECTOR_BYTES, len(data) // SECTOR_BYTES):
        first, last = max(start, sector * SECTOR_BYTES), (sector + 1) * SECTOR_BYTES
        torn = bytes(data[:first]) + bytes(last - first) + bytes(data[last:])
        assert has_hole(torn, start, len(data), 2**40) == (torn != bytes(data))


def test_zeros_that_belong_to_an_offset_are_no_hole() -> None:
    start = SECTOR_BYTES - 7
    data = b"x" * start + batch(5)
    assert not has_hole(data, start, len(data), 5)
    assert has_hole(data[: SECTOR_BYTES - 7] + bytes(8) + data[SECTOR_BYTES + 1 :], start, len(data), 2**8)
