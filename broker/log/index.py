"""Sparse maps from offset and from time to a place in a segment

Both indexes have at most one entry per `index.interval.bytes` of log, and both can be made anew from the headers of the
batches: losing them costs time only, and where they contradict the log, the log is right. In memory they are two
columns of machine integers, searched by bisection; on disk they are Kafka's own files: 8 bytes per entry of the offset
index (last offset of a batch relative to the segment's base, position of that batch), 12 per entry of the time index
(largest timestamp so far, relative last offset of the batch that has it). All positions are batch boundaries, which is
what lets a fetch response be cut without looking at the log.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
RELATIVE_OFFSET_MAX = 2**31 - 1  # Kafka reads the four bytes of an offset as a signed number
_TIME_ENTRY = struct.Struct(">qi")


class IndexDamaged(ValueError):
    """An index file that cannot be one; the index has to be rebuilt from the log."""


def without_reserve(data: bytes, entry_bytes: int) -> bytes:
    """The entries in an index file without the zeros behind them.

    Apache Kafka reserves the indexes of its active segment ahead, in zeros, and cuts them at a clean stop.
    """
    used = len(data.rstrip(b"\0"))
    return data if len(data) - used < entry_bytes else data[: used + -used % entry_bytes]


class OffsetIndex:
    """Last offset of a batch -> position of that batch, both increasing."""

    __slots__ = ("_offsets", "_positions", "last_position", "size_bytes")

    def __init__(self) -> None:
        self._have(array("I"), array("I"))

    def _have(self, offsets: "array[int]", positions: "array[int]") -> None:
        self._offsets, self._positions = offsets, positions
        self.size_bytes = len(offsets) * OFFSET_ENTRY_BYTES
        """Of the file that has all entries; kept, as the next, because every batch asks for it."""
        self.last_position = positions[-1] if positions else 0
        """Of the last indexed batch; 0 when there is none."""

    def __len__(self) -> int:
        return len(self._offsets)

    def append(self, last_offset: int, position: int) -> None:
        """Add an entry; `last_offset` is relative to the base offset of the segment."""
        self._positions.append(position)  # first: another thread may be looking for an offset
        self._offsets.append(last_offset)
        self.size_bytes += OFFSET_ENTRY_BYTES
        self.last_position = position

    def at_or_after(self, offset: int) -> int | None:
        """Position of the first indexed batch whose last offset is `offset` or later."""
        found = bisect_left(self._offsets, offset)
        return self._positions[found] if found < len(self._positions) else None

    def before(self, offset: int) -> int:
        """Position of the last indexed batch that ends before `offset`; 0 when there is none."""
        found = bisect_left(self._offsets, offset)
        return self._positions[found - 1] if found else 0

    def boundary_at_or_below(self, position: int) -> int:
        """The largest indexed batch boundary up to `position`; 0 when there is none."""
        found = bisect_right(self._positions, position)
        return self._positions[found - 1] if found else 0

    def boundary_above(self, position: int) -> int | None:
        """The smallest indexed batch boundary beyond `position`."""
        found = bisect_right(self._positions, position)
        return self._positions[found] if found < len(self._positions) else None

    def last_offset_at(self, position: int) -> int | None:
        """Relative last offset of the batch at `position`, if there is an entry for it."""
        found = bisect_left(self._positions, position)
        if found < len(self._positions) and self._positions[found] == position:
            return self._offsets[found]
        return None

    def keep_below(self, offset: int) -> None:
        """Forget entries of batches that end at or beyond `offset`."""
        keep = bisect_left(self._offsets, offset)
        del self._offsets[keep:], self._positions[keep:]
        self._have(self._offsets, self._positions)

    def below(self, offset: int) -> "OffsetIndex":
        """An index with only the entries of batches that end before `offset`."""
        keep = bisect_left(self._offsets, offset)
        index = OffsetIndex()
        index._have(self._offsets[:keep], self._positions[:keep])
        return index

    def entries(self) -> Iterator[tuple[int, int]]:
        """All entries: (relative last offset, position)."""
        return zip(self._offsets, self._positions, strict=True)

    def to_bytes(self, first: int = 0) -> bytes:
        """Entries from number `first` on, as the file has them."""
        columns = array("I", bytes(4 * 2 * (len(self._offsets) - first)))
        columns[0::2] = self._offsets[first:]
        columns[1::2] = self._positions[first:]
        if sys.byteorder == "little":
            columns.byteswap()
        return columns.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, log_bytes: int) -> "OffsetIndex":
        """The index in file bytes `data`, of a log of `log_bytes`; raises IndexDamaged."""
        if len(data) % OFFSET_ENTRY_BYTES:
            raise IndexDamaged(f"{len(data)} bytes are not a whole number of entries")
        columns = array("I")
        columns.frombytes(data)
        if sys.byteorder == "little":
            columns.byteswap()
        index = cls()
        index._have(columns[0::2], columns[1::2])
        if any(map(int.__ge__, index._offsets, index._offsets[1:])):
            raise IndexDamaged("offsets do not increase")
        if any(map(int.__ge__, index._positions, index._positions[1:])):
            raise IndexDamaged("positions do not increase")
        if index._positions and index._positions[-1] >= log_bytes:
            raise IndexDamaged(f"position {index._positions[-1]} is beyond the log's {log_bytes} bytes")
        return index


class TimeIndex:
    """Largest timestamp so far -> last offset of the batch that has it, both increasing."""

    __slots__ = ("_offsets", "_timestamps")

    def __init__(self) -> None:
        self._timestamps = array("q")
        self._offsets = array("I")

    def __len__(self) -> int:
        return len(self._timestamps)

    def append_if_later(self, timestamp: int, last_offset: int) -> None:
        """Add an entry unless the last one already says as much."""
        if timestamp < 0 or (self._timestamps and timestamp <= self._timestamps[-1]):
            return
        self._offsets.append(last_offset)  # first: another thread may be looking for a timestamp
        self._timestamps.append(timestamp)

    def before(self, timestamp: int) -> int:
        """Relative offset such that every batch with a time of `timestamp` or later ends after it, or 0."""
        found = bisect_left(self._timestamps, timestamp)
        return self._offsets[found - 1] if found else 0

    def keep_below(self, offset: int) -> None:
        """Forget entries of batches that end at or beyond `offset`."""
        keep = bisect_left(self._offsets, offset)
        del self._offsets[keep:], self._timestamps[keep:]

    def below(self, offset: int) -> "TimeIndex":
        """An index with only the entries of batches that end before `offset`."""
        keep = bisect_left(self._offsets, offset)
        index = TimeIndex()
        index._timestamps, index._offsets = self._timestamps[:keep], self._offsets[:keep]
        return index

    @property
    def last(self) -> tuple[int, int] | None:
        """The last entry: (timestamp, relative offset)."""
        return (self._timestamps[-1], self._offsets[-1]) if self._timestamps else None

    def entries(self) -> Iterator[tuple[int, int]]:
        """All entries: (timestamp, relative last offset)."""
        return zip(self._timestamps, self._offsets, strict=True)

    def to_bytes(self, first: int = 0) -> bytes:
        """Entries from number `first` on, as the file has them."""
        return b"".join(map(_TIME_ENTRY.pack, self._timestamps[first:], self._offsets[first:]))

    @classmethod
    def from_bytes(cls, data: bytes) -> "TimeIndex":
        """The index in file bytes `data`; raises IndexDamaged."""
        if len(data) % TIME_ENTRY_BYTES:
            raise IndexDamaged(f"{len(data)} bytes are not a whole number of entries")
        index = cls()
        for timestamp, offset in _TIME_ENTRY.iter_unpack(data):
            last = index.last
            if min(timestamp, offset) < 0 or (last is not None and (timestamp <= last[0] or offset <= last[1])):
                raise IndexDamaged("entries do not increase")
            index._timestamps.append(timestamp)
            index._offsets.append(offset)
        return index
