"""A node whose records are acknowledged from the page cache, and readers that remember what they read

The order of a start, the controller, the logs and what follows the image are production's (`tidemill.broker.opening`,
`Broker`); there are no connections. `flush.policy=os` promises little: a power cut may take records that readers have
got. What the cluster owes them is that they can find out (KIP-320): an offset under a leader epoch is one record for
ever, and where an epoch is said to end beyond what a reader has, the log still has what the reader has.
"""

import asyncio
import contextlib
import random
import uuid
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from tests.broker.log.log_world import NOW_MS, payload, read_all
from tests.sim.disk import PowerCut, SimulatedDisk
from tests.sim.log_store import SteppedStore, SteppedThread
from tests.sim.metadata import ShuffledThreads
from tidemill.broker.config import BrokerConfig
from tidemill.broker.groups.coordinator import GroupCoordinator
from tidemill.broker.groups.table import GroupLimits
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.node import Broker
from tidemill.broker.opening import open_logs, open_metadata
from tidemill.broker.quorum.controller import Controller, SnapshotRules
from tidemill.broker.quorum.metadata import NewTopic, Rules, TopicRef
from tidemill.broker.quorum.records import BrokerEndpoint
from tidemill.broker.quorum.store import MetadataStore
from tidemill.broker.replication.replicas import Replicas
from tidemill.broker.surroundings import Surroundings
from tidemill.core.errors import KafkaError
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.runtime.clock import ManualClock

TOPICS = ("a", "b")
CONFIG = BrokerConfig.parse({"log.dirs": "simulated", "flush.policy": "os", "log.segment.bytes": "1500"})


class Read(NamedTuple):
    """One batch as a reader got it."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    payload: bytes


class EpochSimulation:
    """One machine through several lives."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimulatedDisk()
        self.clock = ManualClock(NOW_MS)
        self.seen: dict[tuple[uuid.UUID, int, int], Read] = {}
        self.readers: dict[uuid.UUID, list[Read]] = {}
        self.numbers = 0
        self.reads = self.truncations = 0

    # -- one life

    def live(self, steps: int, *, power_cut: bool) -> None:
        """Start, append and read, end by a crash or in order; what is found at each start is checked."""
        if power_cut:
            self.disk.cut_power_in = self.rng.randrange(1, 3 * steps)
        with contextlib.suppress(PowerCut):
            asyncio.run(self._life(steps))
        self.disk.kill() if self.rng.random() < 0.2 else self.disk.crash(self.rng)

    async def _life(self, steps: int) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        self.threads = ShuffledThreads(self.rng)
        self.logs = SteppedStore(self.disk, self.rng, flush_policy=CONFIG.flush_policy)
        controller = self._controller()
        open_metadata(self.disk.root, controller)
        broker = self._broker(controller)
        open_logs(self.disk.root, controller, self.logs, broker.log_config, self._new_id)
        self._check(controller)
        owned = [asyncio.ensure_future(call) for call in (controller.run(), controller.keep_snapshots())]
        self._background: set[asyncio.Future[Any]] = set(owned)
        self._stopping = False
        try:
            await self._driven(broker.following.make_missing_logs())
            controller.watch(broker.following.hear)
            controller.subscribe(broker.following.follow)
            await self._driven(controller.register_broker([BrokerEndpoint(name="P", host="h", port=1)], None))
            await self._driven(controller.create_topics([NewTopic(name=name) for name in TOPICS]))
            for _ in range(steps):
                await self._act(controller)
            if self.rng.random() < 0.3:
                await self._stop_in_order(controller, owned)
        finally:
            for thread in self._threads():
                thread.end()

    def _threads(self) -> tuple[SteppedThread, ...]:
        return self.threads, self.logs.flush_steps, self.logs.file_steps, self.logs.read_steps

    def _controller(self) -> Controller:
        return Controller(
            MetadataStore(self.disk.root),
            clock=self.clock,
            rules=Rules(),
            node_id=1,
            new_uuid=self._new_id,
            snapshots=SnapshotRules(max_bytes=1000),
            executor=self.threads,
        )

    def _broker(self, controller: Controller) -> Broker:
        replicas = Replicas(1, self.logs, self.clock.monotonic)
        groups = GroupCoordinator(node_id=1, limits=GroupLimits(), logs=replicas, clock=self.clock, new_id=str)
        around = Surroundings(clock=self.clock)
        return Broker(
            config=CONFIG,
            around=around,
            logs=self.logs,
            replicas=replicas,
            controller=controller,
            groups=groups,
            routes=(),
        )

    def _new_id(self) -> uuid.UUID:
        self.numbers += 1
        return uuid.UUID(int=self.numbers)

    async def _stop_in_order(self, controller: Controller, owned: Sequence["asyncio.Future[None]"]) -> None:
        self._stopping = True
        for task in owned:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._driven(asyncio.wait(owned))
        controller.close()
        await self._driven(self.logs.close())

    async def _driven(self, call: Coroutine[Any, Any, object]) -> None:
        task = asyncio.ensure_future(call)
        while not task.done():
            self._turn_threads()
            await asyncio.sleep(0)
            if not self._stopping:
                self._settle()
        task.result()

    def _settle(self) -> None:
        """What was done in the background must have gone well, or the power is off."""
        for task in [task for task in self._background if task.done()]:
            self._background.discard(task)
            task.result()

    def _turn_threads(self) -> None:
        for thread in self._threads():
            thread.work()
            thread.notice()

    # -- what clients do

    async def _act(self, controller: Controller) -> None:
        choice = self.rng.random()
        if choice < 0.5:
            self._append(controller)
        elif choice < 0.7:
            self._read(controller)
        elif choice < 0.72:
            self._background.add(asyncio.ensure_future(self.logs.checkpoint()))
        elif choice < 0.74:
            name = self.rng.choice(TOPICS)
            await self._driven(controller.delete_topics([TopicRef(name=name)]))
            await self._driven(controller.create_topics([NewTopic(name=name)]))
        else:
            self._turn_threads()
        await asyncio.sleep(0)
        self._settle()

    def _append(self, controller: Controller) -> None:
        """Under the epoch that the image has, as a produce request does it."""
        name = self.rng.choice(TOPICS)
        log = self.logs.get(name, 0)
        if log is None:
            return
        self.numbers += 1
        value = b"%d " % self.numbers * self.rng.choice((1, 5, 40))
        epoch = controller.image.topics[name].partitions[0].leader_epoch
        with contextlib.suppress(KafkaError):
            log.append(build_batch([NewRecord(NOW_MS, None, value)]), now_ms=NOW_MS, leader_epoch=epoch)

    def _read(self, controller: Controller) -> None:
        topic = controller.image.topics[self.rng.choice(TOPICS)]
        log = self.logs.get(topic.name, 0)
        if log is not None:
            self.readers[topic.topic_id] = self._batches(log)
            self.reads += 1

    def _batches(self, log: PartitionLog) -> list[Read]:
        """All that is visible; none of it may differ from what was seen before in its place."""
        found = [
            Read(view.base_offset, view.last_offset + 1, view.leader_epoch, payload(view)) for view in read_all(log)
        ]
        for batch in found:
            first = self.seen.setdefault((log.topic_id, batch.base_offset, batch.leader_epoch), batch)
            assert batch == first, f"offset {batch.base_offset} of epoch {batch.leader_epoch} is another record now"
        return found

    # -- what must hold at a start

    def _check(self, controller: Controller) -> None:
        for name in TOPICS:
            log, topic = self.logs.get(name, 0), controller.image.topics.get(name)
            if log is None or topic is None:
                continue
            read = self.readers.get(topic.topic_id, [])
            kept = self._validated(read, log, topic.partitions[0].leader_epoch)
            self.truncations += len(kept) < len(read)
            assert self._batches(log)[: len(kept)] == kept, "a reader believes in records that are not there"
            self.readers[topic.topic_id] = kept

    @staticmethod
    def _validated(read: list[Read], log: PartitionLog, leader_epoch: int) -> list[Read]:
        """What a consumer keeps of what it has read when it asks where its last epoch ended, until nothing goes."""
        while read:
            _, end_offset = log.epochs.end_offset_for(read[-1].leader_epoch, leader_epoch, log.log_end_offset)
            if end_offset >= read[-1].next_offset:
                break
            read = [batch for batch in read if batch.next_offset <= end_offset]
        return read
