"""Record batches in a file that may be damaged

A file is read from its beginning for as long as each batch matches its CRC. Where that ends, the file ends, is torn or
is damaged, and which of them it is depends on whether something sound comes later. Where several batches are written
before the first of them is synced, it also depends on whether what lies before the sound one was ever written: of what
the power took on its way to the disk, whole sectors are zeros.
"""

from collections.abc import Iterator
from typing import Final

from tidemill.core.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC_AT, BatchView

SECTOR_BYTES: Final = 512
"""What a disk writes whole or not at all; larger ones are multiples of it."""


def sound_batches(data: bytes) -> Iterator[tuple[BatchView, int]]:
    """Batches with a matching CRC from the start, each with the position after it; stops before the first bad one."""
    position = 0
    while (view := _sound_batch(data, position)) is not None:
        position += view.size_bytes
        yield view, position


def _sound_batch(data: bytes, position: int) -> BatchView | None:
    if position + HEADER_BYTES > len(data) or data[position + MAGIC_AT] != 2:
        return None
    length = int.from_bytes(data[position + 8 : position + LOG_OVERHEAD_BYTES], "big", signed=True)
    if length < HEADER_BYTES - LOG_OVERHEAD_BYTES or position + LOG_OVERHEAD_BYTES + length > len(data):
        return None
    view = BatchView(data, position)
    return view if view.verify_crc() else None


def later_batch(data: bytes, start: int) -> int | None:
    """Position of a sound batch at or after `start`, wherever it begins."""
    for position in range(start, len(data) - HEADER_BYTES + 1):
        if data[position + MAGIC_AT] == 2 and _sound_batch(data, position) is not None:
            return position
    return None


def has_hole(data: bytes, start: int, end: int, offset_due: int) -> bool:
    """Whether a sector in `[start, end)`, where the batch with `offset_due` was due, was never written.

    `data` is the file from its beginning. What was never written of a sector is zeros up to its end; what lies before
    `start` in it was there already.
    """
    due = offset_due.to_bytes(8, "big")
    piece_start = start
    while piece_start < end:
        piece_end = piece_start + SECTOR_BYTES - piece_start % SECTOR_BYTES
        written = piece_end - start
        if not any(data[piece_start:piece_end]) and (written > MAGIC_AT or any(due[:written])):
            return True  # of a header that is due only the leading bytes of its offset may rightly be zeros
        piece_start = piece_end
    return False
