"""The parts of a segment that are not the batches they were

A damaged part begins where a batch is due and there is none that can be believed. It ends where the log is readable
again: at the next whole batch with a matching CRC, or at the next batch that an index entry leads to, or not before the
end of the file. Reads end before it, and a read that begins in it gets CORRUPT_MESSAGE.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tidemill.core.errors import CorruptMessage
from tidemill.core.records.batch import HEADER_BYTES, read_header
from tidemill.core.runtime.disk import File

from .index import OffsetIndex
from .scan import BadBatch, resync


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Bytes `[position, end)` of a segment; `next_offset` is the first that is readable again."""

    position: int
    end: int
    next_offset: int

    def hides(self, offset: int, size_bytes: int) -> bool:
        """Whether `offset` may have been in here, if no batch before this damage has it; of a log of `size_bytes`."""
        return offset < self.next_offset or self.end >= size_bytes


class DamagedParts:
    """All that is known to be damaged in one segment."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[Damage] = []

    def __iter__(self) -> Iterator[Damage]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def add(self, damage: Damage) -> None:
        """Remember a damaged part."""
        self._parts.append(damage)

    def at(self, position: int) -> Damage | None:
        """The damaged part that `position` lies in."""
        for damage in self._parts:
            if damage.position <= position < damage.end:
                return damage
        return None

    def refuse(self, offset: int, start: int, size_bytes: int, label: str) -> None:
        """Raise CorruptMessage if `offset`, which no batch from position `start` on has, was in a damaged part."""
        for damage in self._parts:
            if damage.position >= start and damage.hides(offset, size_bytes):
                raise CorruptMessage(f"{label}: a corrupt batch at position {damage.position}")


def extent_of_damage(
    file: File, size_bytes: int, bad: BadBatch, index: OffsetIndex, offset_min: int, offset_end: int, end_offset: int
) -> Damage:
    """How far the damage reaches that begins with `bad`, in a log file of `size_bytes` that ends at `end_offset`.

    `index` is known to be right; the next readable batch has an offset in `[offset_min, offset_end)`.
    """
    limit = index.boundary_above(bad.position)
    found = resync(file, bad.position + 1, size_bytes if limit is None else limit, offset_min, offset_end)
    if found is not None:
        return Damage(position=bad.position, end=found[0], next_offset=found[1].base_offset)
    if limit is not None:
        after = read_header(file.read_at(limit, HEADER_BYTES))
        return Damage(position=bad.position, end=limit, next_offset=after.base_offset)
    return Damage(position=bad.position, end=size_bytes, next_offset=end_offset)
