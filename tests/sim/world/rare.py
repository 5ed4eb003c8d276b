"""What a seed makes likely that hardly ever happens: tiny segments, a snapshot after every record, bytes one by one

Nothing in the broker knows of it: it is all said by settings, quotas and the network. A world has most settings as they
usually are here, and some of them as nobody would choose them, so that the branches behind them meet every fault. In
some worlds large requests have to share little memory, in some whoever asks is told to wait now and then, and in some
the processor has little time for the broker, and in some one sync of the whole file system is cheap. Each of these is
decided by a chance of its own: a world without them is what it would be if there were none.
"""

import random
from collections.abc import Callable, Iterable

from tidemill.broker.authorization import Requester
from tidemill.broker.quotas import Quota
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


BULKY: dict[str, tuple[str, ...]] = {
    "log.segment.bytes": ("300000", "1000000"),
    "queued.max.request.bytes": ("1", "1", "150000", "400000"),
}
"""What leaves large requests little memory, and keeps their records all the same."""


def bulky_settings(seed: int) -> dict[str, str]:
    """What is set where clients send large requests; nothing in three of four worlds."""
    rng = random.Random(f"{seed} bulky")
    return {key: rng.choice(values) for key, values in BULKY.items()} if rng.random() < 0.25 else {}


SNAPSHOTS: dict[str, tuple[str, ...]] = {
    "metadata.log.max.record.bytes.between.snapshots": ("1", "200"),
    "metadata.log.max.snapshot.interval.ms": ("500", "20000"),
}
"""What has whoever was away for a moment need a snapshot of the metadata."""


def snapshot_settings(seed: int) -> dict[str, str]:
    """What is set in clusters that take many snapshots; nothing in three of four."""
    rng = random.Random(f"{seed} snapshots")
    return {key: rng.choice(values) for key, values in SNAPSHOTS.items()} if rng.random() < 0.25 else {}


def syncs_everything(seed: int) -> bool:
    """Whether machines have one sync for a whole file system, and brokers take it for little: one world of four."""
    return random.Random(f"{seed} whole sync").random() < 0.25


def busy_share(seed: int) -> float:
    """How often the processor does something else when the broker looks at the clock."""
    return random.Random(f"{seed} busy").choice((0.01, 0.01, 0.01, 0.1))


class Rationing:
    """Quotas of which nobody knows the rule: now and then somebody waits, mostly not for long."""

    WAITS_MS = (1, 20, 20, 300, 300, 2000, 6000)

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._share = rng.choice((0.02, 0.1, 0.3))
        self.is_over = False

    @classmethod
    def of(cls, seed: int) -> "Rationing | None":
        """Those of a world; None in three of four, where nobody ever waits."""
        rng = random.Random(f"{seed} quotas")
        return cls(rng) if rng.random() < 0.25 else None

    def charge(self, _quota: Quota, _amount: float, _who: Requester, _client_id: str | None) -> int:
        """For how many milliseconds."""
        if self.is_over or self._rng.random() > self._share:
            return 0
        return self._rng.choice(self.WAITS_MS)


PACKET_BYTES = 4000


class CrumblingNetwork(VirtualNetwork):
    """A network that, in some worlds, lets the beginning of what is sent arrive byte by byte now and then.

    What is large arrives packet by packet in all of them.
    """

    def __init__(self, rng: random.Random, delay_s: Callable[[str, str], float]) -> None:
        super().__init__(rng, delay_s)
        self._chance = rng
        self._crumbles = rng.random() < 0.3

    def pieces(self, data: bytes) -> Iterable[bytes]:
        if len(data) > 10 * PACKET_BYTES:
            return [data[at : at + PACKET_BYTES] for at in range(0, len(data), PACKET_BYTES)]
        if not self._crumbles or len(data) < 2 or self._chance.random() > 0.05:
            return super().pieces(data)
        head = min(len(data) - 1, self._chance.randrange(1, 40))
        return (*(data[at : at + 1] for at in range(head)), data[head:])
