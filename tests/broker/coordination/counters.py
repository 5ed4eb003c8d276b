"""A coordinator of counters: the smallest thing that decides, appends, applies and waits

A counter that nobody adds to for a while begins anew. The image counts too: a topic that goes takes the counter of its
name along.
"""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tests.broker.coordination.shared_log import NodeLogs, SharedPartition
from tidemill.broker.coordination.contract import (
    Append,
    Appended,
    AppendFailed,
    Duty,
    ImageChanged,
    Instant,
    Replayed,
    Reply,
    Tick,
)
from tidemill.broker.coordination.deadlines import Deadlines
from tidemill.broker.coordination.runtime import CoordinatorRuntime
from tidemill.broker.quorum.image import ClusterImage, PartitionImage, TopicImage
from tidemill.broker.quorum.shared_map import SharedMap
from tidemill.core.error_code import ErrorCode
from tidemill.core.runtime.clock import ManualClock

TOPIC = "__counters"
LEASE_MS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """Answered with the new total."""

    request_id: int
    name: str
    by: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The record; 0 takes the counter away."""

    name: str
    value: int


class Counters:
    """All counters of one partition."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.image: ClusterImage | None = None
        self._deadlines: Deadlines[str] = Deadlines()
        self._pending: dict[int, tuple[Total, int | None]] = {}
        self._token = 0

    def step(self, event: Any, now: Instant) -> list[Any]:
        match event:
            case Add():
                total = Total(name=event.name, value=self.totals.get(event.name, 0) + event.by)
                if not event.by:
                    return [Reply(request_id=event.request_id, response=total.value)]
                self._deadlines.set(event.name, now.monotonic_ms + LEASE_MS)
                return [self._append(total, event.request_id)]
            case Appended():
                total, request_id = self._pending.pop(event.token)
                self.apply(total)
                if request_id is None:
                    return []
                return [Reply(request_id=request_id, response=total.value, after=event.token)]
            case AppendFailed():
                _, request_id = self._pending.pop(event.token)
                return [] if request_id is None else [Reply(request_id=request_id, response=event.error)]
            case Tick():
                return [self._append(Total(name=name, value=0)) for name in self._deadlines.due(now.monotonic_ms)]
            case Replayed():
                self.image = event.image
                for name in self.totals:
                    self._deadlines.set(name, now.monotonic_ms + LEASE_MS)
            case ImageChanged():
                self.image = event.image
                return [self._append(Total(name=name, value=0)) for name in sorted(self.totals) if name in event.gone]
        return []

    def _append(self, total: Total, request_id: int | None = None) -> Append[Total]:
        self._token += 1
        self._pending[self._token] = (total, request_id)
        return Append(token=self._token, subject=total.name, records=(total,))

    def apply(self, record: Total) -> None:
        if record.value:
            self.totals[record.name] = record.value
        else:
            self.totals.pop(record.name, None)

    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next_ms()


def _encode(record: Total) -> tuple[bytes, bytes | None]:
    return record.name.encode(), b"%d" % record.value if record.value else None


def _decode(key: bytes | None, value: bytes | None) -> Total | None:
    if key is None or key == b"a later kind":
        return None
    return Total(name=key.decode(), value=int(value or b"0"))


DUTY: Duty[Counters, Total] = Duty(topic=TOPIC, noun="counter", new_machine=Counters, encode=_encode, decode=_decode)


def image(led: Iterable[tuple[int, int]], topics: Iterable[str] = (), version: int = 0) -> ClusterImage:
    """Who leads the counters' partitions, in which epochs; `topics` are there besides."""
    one = PartitionImage(partition=0, replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=version)
    partitions = tuple(
        replace(one, partition=number, leader=leader, leader_epoch=epoch) for number, (leader, epoch) in enumerate(led)
    )
    every = {name: TopicImage(name=name, topic_id=uuid.UUID(int=9), partitions=(one,)) for name in topics}
    if partitions:
        every[TOPIC] = TopicImage(name=TOPIC, topic_id=uuid.UUID(int=1), partitions=partitions)
    return ClusterImage(topics=SharedMap(every), topic_names=SharedMap({}))


class CounterWorld:
    """One node of one or more that share partitions."""

    def __init__(self, partitions: int = 1, nodes: int = 1) -> None:
        self.clock = ManualClock()
        self.shared = [SharedPartition(nodes) for _ in range(partitions)]
        self.logs = [each.copies[1] for each in self.shared]
        self.runtime = CoordinatorRuntime(
            DUTY,
            node_id=1,
            logs=NodeLogs({(TOPIC, number): each for number, each in enumerate(self.logs)}),
            clock=self.clock,
        )
        self.numbers = 0

    def lead(self, topics: Iterable[str] = ()) -> None:
        """Become the leader of all partitions, in a new epoch, as a broker does."""
        epochs = [each.elect(1) for each in self.shared]
        self.runtime.image_changed(image([(1, epoch) for epoch in epochs], topics), frozenset())
        for each, epoch in zip(self.logs, epochs, strict=True):
            each.hears(epoch)
        self.runtime.take_up()

    async def add(self, name: str = "a", by: int = 1) -> object:
        self.numbers += 1
        return await self.runtime.shard_of(name).ask(Add(request_id=self.numbers, name=name, by=by))

    def totals(self) -> dict[str, int]:
        return {name: value for shard in self.runtime.active() for name, value in shard.machine.totals.items()}


FAILED = ErrorCode.COORDINATOR_NOT_AVAILABLE
