"""Records that are deleted while others copy them: by age, by size, and because somebody asks for it (KIP-107)

In one cluster of four logs begin further and further on, on each broker by itself and on whoever follows it: under
followers that are behind, and past some of them, which begin anew. How far a log of a partition may have begun at all
is noted where a broker decides it, by itself or because it was asked, and not where one follows another: a log that
begins further than that has lost something, and so has whoever is told that it is gone. What somebody was told to be
deleted is shown by nobody any more who leads, or may be made to.

A chance of its own decides all that: a world without it is what it would be if there were none.
"""

import random
import uuid
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, ParamSpec

import pytest

from tests.sim.world.clients import PARTITIONS, TOPICS, Client
from tests.sim.world.events import RecordsDeleted
from tests.sim.world.insight import Partition
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.log.store import LogStore
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

if TYPE_CHECKING:
    from tests.sim.world.world import World

KEEPING: Final[dict[str, tuple[str, ...]]] = {
    "log.retention.ms": ("-1", "-1", "3000", "20000"),
    "log.retention.bytes": ("-1", "1000", "6000"),
    "log.retention.check.interval.ms": ("300", "2000"),
    "log.segment.bytes": ("300", "900", "3000"),
    "log.segment.delete.delay.ms": ("0", "500"),
}
"""What keeps little, in small pieces."""

ALL: Final = -1
"""Instead of an offset: all that is committed."""


BeginAnew = Callable[[LogStore, PartitionLog, int], Awaitable[PartitionLog]]


DECIDES: Final = ContextVar("whether a broker decides what is deleted", default=False)

P = ParamSpec("P")


def _deciding(real: Callable[P, Awaitable[int]]) -> Callable[P, Awaitable[int]]:
    async def decide(*args: P.args, **named: P.kwargs) -> int:
        token = DECIDES.set(True)
        try:
            return await real(*args, **named)
        finally:
            DECIDES.reset(token)

    return decide


def deletes(nodes: int, seed: int) -> bool:
    """Whether records are deleted in a world."""
    return nodes > 1 and random.Random(f"{seed} deletions").random() < 0.25


def keeping_settings(nodes: int, seed: int) -> dict[str, str]:
    """What is set where records are deleted; nothing elsewhere."""
    rng = random.Random(f"{seed} keeping")
    return {key: rng.choice(values) for key, values in KEEPING.items()} if deletes(nodes, seed) else {}


class Beginnings:
    """How far any log of a partition was ever meant to begin: what is below may be gone everywhere."""

    def __init__(self) -> None:
        self._furthest: dict[Partition, int] = {}
        self.passed = 0
        """How often a follower was so far behind that it had to begin anew."""

    def of(self, topic_id: uuid.UUID, partition: int) -> int:
        """Below that offset records may have been deleted."""
        return self._furthest.get((topic_id, partition), 0)

    def note(self, topic_id: uuid.UUID, partition: int, offset: int) -> None:
        """A broker has decided that a log begins there."""
        self._furthest[topic_id, partition] = max(self.of(topic_id, partition), offset)

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """Hear of all logs, as long as the patch goes on."""
        patch.setattr(PartitionLog, "advance_log_start", self._heard(PartitionLog.advance_log_start))
        patch.setattr(LogStore, "delete_records", _deciding(LogStore.delete_records))
        patch.setattr(LogStore, "enforce_retention", _deciding(LogStore.enforce_retention))
        patch.setattr(LogStore, "begin_anew", self._counted(LogStore.begin_anew))

    def _heard(self, real: Callable[[PartitionLog, int], bool]) -> Callable[[PartitionLog, int], bool]:
        def advance_log_start(log: PartitionLog, offset: int) -> bool:
            if log.topic_id is not None and DECIDES.get():
                self.note(log.topic_id, log.topic_partition.partition, min(offset, log.committed_offset))
            return real(log, offset)

        return advance_log_start

    def _counted(self, real: BeginAnew) -> BeginAnew:
        async def begin_anew(store: LogStore, log: PartitionLog, offset: int) -> PartitionLog:
            self.passed += offset > log.log_end_offset
            return await real(store, log, offset)

        return begin_anew


class Deleter(Client):
    """Asks for records to be deleted, now and then for all there are."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self._rest_s = self.rng.choice((1.0, 4.0))

    async def step(self) -> None:
        await self.pause(self._rest_s)
        await self.look_at_topics()
        names = [name for name in TOPICS if name in self.topics]
        if names:
            await self._delete(self.rng.choice(names), self.rng.randrange(PARTITIONS))

    async def _delete(self, name: str, partition: int) -> None:
        topic_id = self.topics[name]
        offset = self.rng.choice((ALL, self.rng.randrange(1, 60)))
        led = await self.leader_of(topic_id, partition)
        row = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=name, partitions=(row,)),), timeout_ms=3000)
        epoch = self.world.led_epoch(led.node_id, topic_id, partition)
        answer = await self.ask(ApiKey.DELETE_RECORDS, request, DeleteRecordsResponse, node_id=led.node_id)
        if answer is None:
            return
        found = answer.topics[0].partitions[0]
        if found.error_code:
            self.refused("delete_records", found.error_code)
            self.wrong(topic_id, partition, found.error_code)
            return
        if epoch >= 0 and epoch == self.world.led_epoch(
            led.node_id, topic_id, partition
        ):  # of that topic all the while
            told = (topic_id, partition, found.low_watermark, led.node_id, epoch)
            self.tell(RecordsDeleted(self.now, self.name, *told))
