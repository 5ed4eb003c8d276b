"""Segments with batches in them, for the tests of a segment's rooms"""

from tests.broker.log.log_world import NOW_MS, batch
from tidemill.broker.log.segment import Segment
from tidemill.core.records.batch import stamp

BASE = 1000


def fill(segment: Segment, count: int, value_bytes: int = 300, index_interval_bytes: int = 1000) -> list[bytes]:
    """Append batches of two records each, ten milliseconds apart; returns them as they were written."""
    written = []
    for number in range(count):
        data = bytearray(batch(2, value_bytes=value_bytes, timestamp=NOW_MS + 10 * number))
        offset = segment.next_offset
        stamp(data, 0, offset, 0)
        segment.append(data, NOW_MS + 10 * number + 1, offset + 1, index_interval_bytes)
        written.append(bytes(data))
    return written
