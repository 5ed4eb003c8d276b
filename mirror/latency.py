"""How long records take to reach the target, by their timestamp

Measured once a batch, for its newest record: one look into the header and a few integers. The latest is kept for good;
least, greatest and average are those of the last 30 to 60 seconds, in two samples of half a minute as Kafka's clients
and MirrorMaker 2 keep theirs, and unknown when nothing was mirrored meanwhile.

Read by another thread than the mirror's: what it reads is one tuple that is replaced, never changed.
"""

import struct
from dataclasses import dataclass
from typing import Final

SAMPLE_MS: Final = 30_000
"""Kafka's metrics.sample.window.ms; as there, two samples are kept."""

_MAX_TIMESTAMP, _AT = struct.Struct(">q"), 35  # in the header of a v2 batch

_Sample = tuple[int, int, int, int, int]  # begin in milliseconds, count, sum, least, greatest


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Latencies of a stretch of time, in milliseconds."""

    least: int
    greatest: int
    average: float


class Latency:
    """Mutable: latencies of one partition."""

    __slots__ = ("_samples", "last_ms")

    def __init__(self) -> None:
        self.last_ms: int | None = None
        self._samples: tuple[_Sample, ...] = ()  # the newest first

    def arrived(self, batch: bytes | memoryview, now_ms: int) -> None:
        """The target has acknowledged a v2 batch; one without timestamps tells nothing."""
        (timestamp,) = _MAX_TIMESTAMP.unpack_from(batch, _AT)
        if timestamp < 0:
            return
        self.last_ms = latency = max(0, now_ms - timestamp)  # a producer's clock may be ahead
        kept = self._samples
        if kept and 0 <= now_ms - kept[0][0] < SAMPLE_MS:
            begin, count, total, least, greatest = kept[0]
            newest = (begin, count + 1, total + latency, min(least, latency), max(greatest, latency))
            self._samples = (newest, *kept[1:])
        else:
            self._samples = ((now_ms, 1, latency, latency, latency), *kept[:1])

    def spread(self, now_ms: int) -> Spread | None:
        """Of the last 30 to 60 seconds."""
        fresh = [each for each in self._samples if 0 <= now_ms - each[0] < 2 * SAMPLE_MS]
        if not fresh:
            return None
        return Spread(
            least=min(each[3] for each in fresh),
            greatest=max(each[4] for each in fresh),
            average=round(sum(each[2] for each in fresh) / sum(each[1] for each in fresh), 3),
        )
