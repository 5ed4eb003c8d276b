"""How many records a batch may have, so that its bytes stay within bounds

Spark is told how many offsets to read, and only reading tells how large records are. So a batch that would become too
large is cut short by its tasks (`changes`), and the next ones take fewer offsets; when batches have become small, they
may take more again. Each such step costs a restart of the query, so they are large ones.

Pure.
"""

from dataclasses import dataclass, replace

_AIM = 0.75  # of the bytes, after a cut: sizes vary
_SMALL = 8  # a full batch of less than an eighth of the bytes may grow
_GROWTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSize:
    """The offsets a batch may have now, between 1 and `offsets_max`."""

    offsets: int
    offsets_max: int
    bytes_max: int

    def after(self, offsets: int, size_bytes: int, cut: bool) -> "BatchSize":
        """The size that follows from a batch of so many offsets and bytes; the same object where it may stay."""
        if cut:
            fitting = int(offsets * self.bytes_max * _AIM / max(size_bytes, 1))
            return replace(self, offsets=max(1, min(fitting, self.offsets // 2)))
        full = offsets * 10 >= self.offsets * 9
        if full and self.offsets < self.offsets_max and size_bytes * _SMALL < self.bytes_max:
            return replace(self, offsets=min(self.offsets * _GROWTH, self.offsets_max))
        return self
