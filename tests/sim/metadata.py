"""A controller on a simulated disk, and the ledger of all that it has decided

The controller, its store and the order of a start are production's; the thread that waits for the disk does its work
when the world says so, in any order. The ledger hears of every decision that is handed to the store; the fold of its
records, one by one from nothing, is what a log without any snapshot leads to. After each start the image has to be the
fold of a beginning of the ledger that has everything that was acknowledged.
"""

import asyncio
import contextlib
import copy
import random
import uuid
from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import Any

from tests.sim.disk import PowerCut, SimulatedDisk
from tests.sim.log_store import SteppedThread
from tidemill.broker.log.checkpoints import take_clean_shutdown, write_clean_shutdown
from tidemill.broker.opening import open_metadata
from tidemill.broker.quorum.controller import Controller, SnapshotRules
from tidemill.broker.quorum.image import RESOURCE_BROKER, RESOURCE_TOPIC, ClusterImage, Draft
from tidemill.broker.quorum.metadata import ConfigChange, NewTopic, PartitionIncrease, ResourceChange, Rules, TopicRef
from tidemill.broker.quorum.records import BrokerEndpoint, MetadataRecord
from tidemill.broker.quorum.store import MetadataStore
from tidemill.core.errors import KafkaStorageError
from tidemill.core.runtime.clock import ManualClock

NAMES = ("a", "b", "c", "d", "e")


class ShuffledThreads(SteppedThread):
    """Several threads: whichever has work may be the next to do it."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng

    def work(self) -> None:
        self._queue.rotate(self._rng.randrange(len(self._queue) or 1))
        super().work()


class Ledger:
    """Decisions by the offset they begin at, as they were handed to the store."""

    def __init__(self) -> None:
        self.decisions: list[tuple[int, tuple[MetadataRecord, ...]]] = []
        self.acknowledged_end = 0

    @property
    def offset_end(self) -> int:
        if not self.decisions:
            return 0
        offset, records = self.decisions[-1]
        return offset + len(records)

    def fold(self, offset_end: int) -> tuple[ClusterImage, set[uuid.UUID]]:
        """What the decisions below an offset lead to, and the topics that went."""
        draft = Draft(ClusterImage())
        for offset, records in self.decisions:
            if offset < offset_end:
                draft.apply_all(records)
        return draft.freeze(), set(draft.removed)

    def cut(self, offset_end: int) -> None:
        """What is not in the log never was."""
        self.decisions = [each for each in self.decisions if each[0] < offset_end]


class LedgerStore(MetadataStore):
    """The store, with a witness."""

    def __init__(self, disk: SimulatedDisk, ledger: Ledger) -> None:
        super().__init__(disk.root)
        self._ledger = ledger

    def append(self, records: Sequence[MetadataRecord], now_ms: int) -> int:
        offset = self.offset_end
        self._ledger.cut(offset)  # of a decision that the disk refused nothing is left
        self._ledger.decisions.append((offset, tuple(records)))
        return super().append(records, now_ms)


class MetadataSimulation:
    """One machine through several lives."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimulatedDisk()
        self.disk.forgets_after_failed_sync = True
        self.clock = ManualClock()
        self.ledger = Ledger()
        self.rules = SnapshotRules(
            max_bytes=self.rng.choice((1, 500, 2000, 10**9)), max_interval_ms=self.rng.choice((0, 60_000))
        )
        self.with_files: set[uuid.UUID] = set()
        self.ids = 0
        self.failed = False
        self.crashes = self.decided = self.refused = self.failures = self.snapshots = self.older_snapshots = 0

    # -- one life

    def live(self, steps: int, *, power_cut: bool) -> None:
        """Start, decide random things, end by a crash or in order; what is found at each start is checked."""
        if power_cut:
            self.disk.cut_power_in = self.rng.randrange(1, 2 * steps + 10)
        with contextlib.suppress(PowerCut):
            asyncio.run(self._life(steps))
        self.disk.fail_sync = self.disk.capacity_bytes = None
        self.disk.kill() if self.rng.random() < 0.4 else self.disk.crash(self.rng)
        self.crashes += 1
        if self.rng.random() < 0.1:
            self._damage_the_newest_snapshot()

    async def _life(self, steps: int) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        threads = ShuffledThreads(self.rng)
        self.failed = False
        controller = self._start(threads)
        owned = [asyncio.ensure_future(call) for call in (controller.run(), controller.keep_snapshots())]
        asked: set[asyncio.Future[Any]] = set()
        try:
            for _ in range(steps):
                self._act(controller, threads, asked)
                for _ in range(self.rng.randrange(6)):
                    await asyncio.sleep(0)
                self._look(controller, owned, asked)
                if self.failed:
                    return
            if self.rng.random() < 0.3:
                await self._stop_in_order(controller, threads, owned)
        finally:
            threads.end()
            self.snapshots += controller_snapshots(self.disk)

    def _start(self, threads: ShuffledThreads) -> Controller:
        """As the broker does it; what the log alone says is asked of a copy of the disk first."""
        before = copy.deepcopy(self.disk)
        before.cut_power_in = None
        self._check(self._controller(MetadataStore(before.root), threads))
        controller = self._controller(LedgerStore(self.disk, self.ledger), threads)
        clean = self.disk.root.exists(".kafka_cleanshutdown")
        epochs = self._epochs(self.ledger.fold(self.ledger.offset_end)[0])
        open_metadata(self.disk.root, controller)
        after = self._epochs(controller.image)
        assert after == (epochs if clean else {each: epoch + 1 for each, epoch in epochs.items()})
        self.ledger.acknowledged_end = controller.image.offset
        take_clean_shutdown(self.disk.root)
        return controller

    def _controller(self, store: MetadataStore, threads: ShuffledThreads) -> Controller:
        return Controller(
            store,
            clock=self.clock,
            rules=Rules(max_topics=4),
            node_id=1,
            new_uuid=self._new_id,
            snapshots=self.rules,
            on_failure=self._on_failure,
            still_there=self._still_there,
            executor=threads,
        )

    def _on_failure(self, _error: OSError) -> None:
        self.failed = True
        self.failures += 1

    def _still_there(self, removed: Mapping[uuid.UUID, str]) -> Collection[uuid.UUID]:
        return self.with_files & removed.keys()

    def _new_id(self) -> uuid.UUID:
        self.ids += 1
        return uuid.UUID(int=self.ids)

    @staticmethod
    def _epochs(image: ClusterImage) -> dict[tuple[uuid.UUID, int], int]:
        return {
            (topic.topic_id, partition.partition): partition.leader_epoch
            for topic in image.topics.values()
            for partition in topic.partitions
        }

    async def _stop_in_order(
        self, controller: Controller, threads: ShuffledThreads, owned: Sequence["asyncio.Future[None]"]
    ) -> None:
        for task in owned:
            task.cancel()
        while not all(task.done() for task in owned):
            threads.work()
            threads.notice()
            await asyncio.sleep(0)
        controller.close()
        with contextlib.suppress(OSError):
            write_clean_shutdown(self.disk.root)

    # -- what happens in it

    def _act(self, controller: Controller, threads: ShuffledThreads, asked: set["asyncio.Future[Any]"]) -> None:
        rng = self.rng
        if self.disk.capacity_bytes is not None and rng.random() < 0.1:
            self.disk.capacity_bytes = None
        choice = rng.random()
        if choice < 0.3:
            asked.add(asyncio.ensure_future(self._request(controller)))
        elif choice < 0.6:
            threads.work()
        elif choice < 0.9:
            threads.notice()
        elif choice < 0.93:
            self.clock.advance(rng.choice((1000, 70_000)))
            controller.want_snapshot_when_due()
        elif choice < 0.95 and self.with_files:
            self.with_files.discard(rng.choice(sorted(self.with_files)))
        elif choice < 0.965:
            self.disk.capacity_bytes = self.disk.used_bytes() + rng.choice((0, rng.randrange(600)))
        elif choice < 0.97:
            self.disk.fail_sync = OSError(5, "Input/output error")

    def _request(self, controller: Controller) -> Coroutine[Any, Any, object]:
        rng = self.rng
        name, choice = rng.choice(NAMES), rng.random()
        if choice < 0.1 or not controller.image.brokers:
            return controller.register_broker([BrokerEndpoint(name="P", host="h", port=rng.randrange(9999))], None)
        if choice < 0.35:
            return controller.create_topics([NewTopic(name=name, partitions=rng.choice((1, 2, 9)))])
        if choice < 0.55:
            return self._delete(controller, name)
        if choice < 0.65:
            return controller.create_partitions([PartitionIncrease(name=name, count=rng.randrange(12))])
        if choice < 0.9:
            kind, who, key = rng.choice(
                ((RESOURCE_TOPIC, name, "segment.bytes"), (RESOURCE_BROKER, rng.choice(("", "1")), "log.roll.ms"))
            )
            op = rng.choice((0, 0, 1))
            change = ConfigChange(name=key, op=op, value=str(rng.randrange(100, 999)) if op == 0 else None)
            return controller.alter_configs([ResourceChange(resource_type=kind, resource_name=who, changes=(change,))])
        return controller.allocate_producer_ids()

    async def _delete(self, controller: Controller, name: str) -> None:
        topic = controller.image.topics.get(name)
        if topic is not None and self.rng.random() < 0.5:
            self.with_files.add(topic.topic_id)  # they may outlive it
        await controller.delete_topics([TopicRef(name=name)])

    def _look(
        self, controller: Controller, owned: Sequence["asyncio.Future[None]"], asked: set["asyncio.Future[Any]"]
    ) -> None:
        """The image is what the ledger says, and whoever was answered got what is in it."""
        for task in owned:
            if task.done():
                task.result()
        for task in [task for task in asked if task.done()]:
            asked.discard(task)
            try:
                task.result()
            except KafkaStorageError:
                self.refused += 1
            else:
                self.decided += 1
        self.ledger.acknowledged_end = max(self.ledger.acknowledged_end, controller.image.offset)

    # -- what must hold at a start

    def _check(self, controller: Controller) -> None:
        """A beginning of the ledger with all that was acknowledged; the model forgets what was lost lawfully."""
        controller.load()
        found = controller.image
        assert self.ledger.acknowledged_end <= found.offset <= self.ledger.offset_end
        expected, removed = self.ledger.fold(found.offset)
        assert found == expected
        assert self.with_files & removed <= set(controller.removed_topic_ids) <= removed
        self.ledger.cut(found.offset)
        controller.close()

    def _damage_the_newest_snapshot(self) -> None:
        """One flipped bit; there is one before it, or the whole log."""
        if "__cluster_metadata-0" not in self.disk.root.list():
            return
        folder = self.disk.root.subdirectory("__cluster_metadata-0")
        names = [name for name in folder.list() if name.endswith(".checkpoint")]
        if names and self._whole(names):
            data = bytearray(folder.read(names[-1]))
            data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
            folder.replace(names[-1], bytes(data))
            self.older_snapshots += 1
            self._damaged = names[-1]

    _damaged = ""

    def _whole(self, names: list[str]) -> bool:
        """Whether the one before the newest has not been damaged too."""
        return self._damaged not in names


def controller_snapshots(disk: SimulatedDisk) -> int:
    """How many snapshots there are."""
    names = disk.root.subdirectory("__cluster_metadata-0").list()
    return sum(name.endswith(".checkpoint") for name in names)
