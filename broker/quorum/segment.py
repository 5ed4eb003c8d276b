"""One segment of the metadata log: a file, and where in it offsets are

Whoever reads from an offset on gets whole batches as they are on the disk. A place is remembered every few kilobytes,
so that nobody reads a segment to find one batch; between two of them headers are walked.
"""

from bisect import bisect_right
from typing import Final

from tidemill.core.errors import CorruptMessage
from tidemill.core.records.batch import BASE_OFFSET_AT, BATCH_LENGTH_AT, HEADER_BYTES, LOG_OVERHEAD_BYTES
from tidemill.core.runtime.disk import Directory, File

SEGMENT_SUFFIX: Final = ".log"

SPACING_BYTES: Final = 4096
"""Between remembered places: 16 bytes of memory each, and as many bytes are walked at most beyond one batch."""


_NAME_DIGITS = 20


def segment_file(base_offset: int) -> str:
    """The name of the segment that begins at an offset."""
    return f"{base_offset:0{_NAME_DIGITS}}{SEGMENT_SUFFIX}"


def segment_bases(directory: Directory) -> list[int]:
    """Where each segment in a folder begins, in order."""
    names = (name.removesuffix(SEGMENT_SUFFIX) for name in directory.list() if name.endswith(SEGMENT_SUFFIX))
    return sorted(int(stem) for stem in names if len(stem) == _NAME_DIGITS and stem.isdecimal())


class MetadataSegment:
    """A segment whose batches lie in the first `size` bytes of `file`."""

    __slots__ = ("_offsets", "_positions", "base_offset", "file", "size")

    def __init__(self, base_offset: int, file: File) -> None:
        self.base_offset = base_offset
        self.file = file
        self.size = 0
        self._offsets = [base_offset]
        self._positions = [0]

    def grow(self, offset: int, size_bytes: int) -> None:
        """A batch that begins with `offset` lies behind the others now."""
        position = self.size
        if position - self._positions[-1] >= SPACING_BYTES:
            self._offsets.append(offset)
            self._positions.append(position)
        self.size = position + size_bytes

    def cut(self, position: int) -> None:
        """What lies from a batch's `position` on is not there any more."""
        keep = max(1, bisect_right(self._positions, position - 1))
        del self._offsets[keep:], self._positions[keep:]
        self.size = position

    def batch_at(self, offset: int) -> tuple[int, int]:
        """Position and base offset of the batch that has `offset`, one of this segment's; raises CorruptMessage."""
        found = bisect_right(self._offsets, offset)
        start = self._positions[found - 1]
        end = self._positions[found] if found < len(self._positions) else self.size
        data = self.file.read_at(start, end - start)
        at = 0
        while (after := at + self._size_at(data, at, start)) < len(data) and _offset_at(data, after) <= offset:
            at = after
        return start + at, _offset_at(data, at)

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one with `offset` on: one at least, and no more than fit into `max_bytes`.

        Raises CorruptMessage where they do not lie one behind the other.
        """
        position, _ = self.batch_at(offset)
        data = self.file.read_at(position, min(max(max_bytes, HEADER_BYTES), self.size - position))
        end = self._size_at(data, 0, position)
        if end >= len(data):
            return self.file.read_at(position, end)
        while end + HEADER_BYTES <= len(data) and end + (size := self._size_at(data, end, position)) <= len(data):
            end += size
        return data[:end]

    def _size_at(self, data: bytes, at: int, start: int) -> int:
        length = int.from_bytes(data[at + BATCH_LENGTH_AT : at + LOG_OVERHEAD_BYTES], "big", signed=True)
        size_bytes = length + LOG_OVERHEAD_BYTES
        if size_bytes < HEADER_BYTES:
            raise CorruptMessage(f"the metadata log's segment {self.base_offset} is damaged at byte {start + at}")
        return size_bytes


def _offset_at(data: bytes, position: int) -> int:
    return int.from_bytes(data[position + BASE_OFFSET_AT : position + 8], "big", signed=True)
