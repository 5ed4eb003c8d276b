"""One partition on several nodes, in memory: leaders append, followers copy, what a majority has is committed

Each node has its own copy and its own belief about who leads, which may be old: a leader that has not heard of its end
appends on, to its own copy only.
"""

import asyncio
import random
from typing import Any, Final, NamedTuple

from tidemill.core.errors import FencedLeaderEpoch, KafkaError, KafkaStorageError, NotLeaderOrFollower
from tidemill.core.records.batch import iter_batches, stamp

CRC_COVERS: Final = 21
"""From this byte on a batch is what its checksum says."""


class Stored(NamedTuple):
    """A batch where it lies."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    data: bytes


class AppendResult(NamedTuple):
    last_offset: int


class NodeLog:
    """The copy of one node, as its coordinator sees it."""

    def __init__(self, partition: "SharedPartition") -> None:
        self.batches: list[Stored] = []
        self.led_epoch = -1
        self.refuses: Exception | None = None  # the next append, before anything is written
        self.breaks: Exception | None = None  # the next append, after it was written
        self.read_fails: KafkaError | None = None
        self.flipped: tuple[Stored, bytes] | None = None  # a batch, and what the disk says it is
        self.reads = 0
        self._partition = partition
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    log_start_offset = 0

    @property
    def log_end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def append_own(self, data: Any, *, now_ms: int, leader_epoch: int) -> AppendResult:
        if self.led_epoch < 0:
            raise NotLeaderOrFollower("does not lead")
        if leader_epoch < self.led_epoch:
            raise FencedLeaderEpoch("is over")
        if self.refuses is not None:
            raise self.refuses
        batch, base_offset = bytearray(data), self.log_end_offset
        stamp(batch, 0, base_offset, leader_epoch)
        (view,) = iter_batches(bytes(batch))
        self.batches.append(Stored(base_offset, view.last_offset, leader_epoch, bytes(batch)))
        if self.breaks is not None:
            raise self.breaks
        self._partition.look()
        return AppendResult(view.last_offset)

    @property
    def committed(self) -> int:
        """As far as this copy is known to be everybody's for ever."""
        return self._partition.committed if self.led_epoch == self._partition.leader_epoch else self._known

    _known = 0

    def pending(self, last_offset: int) -> "asyncio.Future[None] | None":
        if last_offset < self.committed:
            return None
        if self.led_epoch < 0:
            raise NotLeaderOrFollower("does not lead")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((last_offset, future))
        return future

    def read_own(self, offset: int, max_bytes: int) -> bytes:
        self.reads += 1
        if self.read_fails is not None:
            raise self.read_fails
        wanted = (batch for batch in self.batches if batch.last_offset >= offset)
        lie = self.flipped
        return b"".join(lie[1] if lie is not None and batch is lie[0] else batch.data for batch in wanted)

    def flip(self, rng: random.Random) -> bool:
        """Let one bit of what is read be another one, from now on; in what a checksum covers."""
        if not self.batches:
            return False
        batch = rng.choice(self.batches)
        data = bytearray(batch.data)
        data[rng.randrange(CRC_COVERS, len(data))] ^= 1 << rng.randrange(8)
        self.flipped = batch, bytes(data)
        return True

    # --- what happens to it

    def hears(self, leader_epoch: int) -> None:
        """This node leads in that epoch; -1: it does not."""
        self._known = self.committed
        if self.led_epoch >= 0 and leader_epoch < 0:
            self.refuse_all(NotLeaderOrFollower("leads no more"))
        self.led_epoch = leader_epoch

    def refuse_all(self, error: KafkaError) -> None:
        waiters, self._waiters = self._waiters, []
        for _, future in waiters:
            if not future.done():
                future.set_exception(error)
                future.exception()

    def look(self) -> None:
        """Acknowledge what is committed."""
        done = [each for each in self._waiters if each[0] < self.committed]
        self._waiters = [each for each in self._waiters if each[0] >= self.committed]
        for _, future in done:
            if not future.done():
                future.set_result(None)


class SharedPartition:
    """All copies, and what is true whoever has heard of it."""

    def __init__(self, nodes: int) -> None:
        self.copies = {node: NodeLog(self) for node in range(1, nodes + 1)}
        self.leader, self.leader_epoch = -1, -1
        self.committed = 0

    def eligible(self) -> list[int]:
        """Who has everything that is committed."""
        return [node for node, copy in self.copies.items() if self._same(copy) >= self.committed]

    def _same(self, copy: NodeLog) -> int:
        """How far a copy is the leader's."""
        if self.leader < 0:
            return copy.log_end_offset
        same = 0
        for mine, theirs in zip(copy.batches, self.copies[self.leader].batches, strict=False):
            if mine != theirs:
                break
            same = mine.last_offset + 1
        return same

    def elect(self, node: int) -> int:
        """The new epoch; nobody has heard of it."""
        assert node in self.eligible()
        self.leader, self.leader_epoch = node, self.leader_epoch + 1
        return self.leader_epoch

    def replicate(self, node: int, batches: int = 1) -> None:
        """A follower fetches from the leader, and cuts what is not the leader's."""
        if self.leader < 0 or node == self.leader:
            return
        copy = self.copies[node]
        if copy.led_epoch >= 0:
            return  # it believes that it leads
        same = self._same(copy)
        copy.batches = [each for each in copy.batches if each.last_offset < same]
        theirs = self.copies[self.leader].batches
        copy.batches += theirs[len(copy.batches) : len(copy.batches) + batches]
        self.look()

    def look(self) -> None:
        """See what is committed now: what a majority has, in the leader's own epoch or below something of it."""
        if self.copies[self.leader].led_epoch != self.leader_epoch:
            return
        ends = sorted((self._same(copy) for copy in self.copies.values()), reverse=True)
        self.committed = max(self.committed, ends[len(ends) // 2])
        self.copies[self.leader].look()


class NodeLogs:
    """A node's partitions, as `Replicas`."""

    def __init__(self, logs: dict[tuple[str, int], NodeLog]) -> None:
        self.logs = logs

    def get(self, topic: str, partition: int) -> NodeLog | None:
        return self.logs.get((topic, partition))


def full_disk() -> KafkaError:
    return KafkaStorageError("no room")
