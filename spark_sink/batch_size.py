"""How many records a batch may have, so that its bytes stay within bounds

Spark is told how many offsets to read, and only reading tells how large records are. So a batch that would become too
large is cut short by its tasks (`changes`), and the next ones take fewer offsets; when batches have become small, they
may take more again. Each such step costs a restart of the query, so they are large ones, and they become rarer where
they keep being taken back: one partition of large records cuts batches that are small as a whole.

Pure.
"""

from dataclasses import dataclass, replace

_AIM = 0.75  # of the bytes, after a cut: sizes vary
_SMALL = 8  # a full batch of less than an eighth of the bytes may grow
_GROWTH = 4
_PATIENCE_MAX = 256  # small batches before the next may grow; each cut doubles them, each growth halves them


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSize:
    """The offsets a batch may have now, between 1 and `offsets_max`."""

    offsets: int
    offsets_max: int
    bytes_max: int
    patience: int = 1
    small: int = 0  # full batches that were small, since the last step

    def after(self, offsets: int, size_bytes: int, cut: bool) -> "BatchSize":
        """What follows from a batch of so many offsets and bytes."""
        if cut:
            fitting = max(1, min(int(offsets * self.bytes_max * _AIM / max(size_bytes, 1)), self.offsets // 2))
            return replace(self, offsets=fitting, patience=min(self.patience * 2, _PATIENCE_MAX), small=0)
        full = offsets * 10 >= self.offsets * 9
        if not full or self.offsets == self.offsets_max or size_bytes * _SMALL >= self.bytes_max:
            return self
        if self.small + 1 < self.patience:
            return replace(self, small=self.small + 1)
        more = min(self.offsets * _GROWTH, self.offsets_max)
        return replace(self, offsets=more, patience=max(self.patience // 2, 1), small=0)
