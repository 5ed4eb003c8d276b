"""What a seed makes likely that hardly ever happens: tiny segments, a snapshot after every record, bytes one by one

Nothing in the broker knows of it: it is all said by settings and by the network. A world has most settings as they
usually are here, and some of them as nobody would choose them, so that the branches behind them meet every fault.
"""

import random
from collections.abc import Callable, Iterable

from tidemill.core.runtime.virtual_network import VirtualNetwork

USUAL = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "log.retention.ms": "-1",
    "log.segment.bytes": "3000",
    "log.cleaner.backoff.ms": "2000",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "metadata.log.max.record.bytes.between.snapshots": "1500",
    "metadata.log.max.snapshot.interval.ms": "20000",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "4000",
}

RARE: dict[str, tuple[str, ...]] = {
    "compression.type": ("lz4", "zstd", "uncompressed"),
    "connections.max.idle.ms": ("300", "2000"),
    "group.initial.rebalance.delay.ms": ("500",),
    "log.cleaner.backoff.ms": ("10",),
    "log.cleaner.min.cleanable.ratio": ("0",),
    "log.index.interval.bytes": ("0", "100"),
    "log.index.size.max.bytes": ("24",),
    "log.message.timestamp.type": ("LogAppendTime",),
    "log.record.validation": ("records",),
    "log.segment.bytes": ("300", "900"),
    "log.segment.delete.delay.ms": ("0", "500"),
    "message.max.bytes": ("400",),
    "metadata.log.max.record.bytes.between.snapshots": ("1", "200"),
    "metadata.log.max.snapshot.interval.ms": ("500",),
    "offsets.topic.num.partitions": ("1", "5"),
    "offsets.topic.segment.bytes": ("200", "1000"),
    "socket.request.max.bytes": ("600",),
}
"""What nobody would choose, and may."""


def settings(rng: random.Random) -> dict[str, str]:
    """Of one node: in half of the worlds as usual, in the others some as they rarely are."""
    chosen = dict(USUAL)
    if rng.random() < 0.5:
        for key in rng.sample(sorted(RARE), rng.randrange(1, 6)):
            chosen[key] = rng.choice(RARE[key])
    return chosen


class CrumblingNetwork(VirtualNetwork):
    """A network that, in some worlds, lets the beginning of what is sent arrive byte by byte now and then."""

    def __init__(self, rng: random.Random, delay_s: Callable[[str, str], float]) -> None:
        super().__init__(rng, delay_s)
        self._chance = rng
        self._crumbles = rng.random() < 0.3

    def pieces(self, data: bytes) -> Iterable[bytes]:
        if not self._crumbles or len(data) < 2 or self._chance.random() > 0.05:
            return super().pieces(data)
        head = min(len(data) - 1, self._chance.randrange(1, 40))
        return (*(data[at : at + 1] for at in range(head)), data[head:])
