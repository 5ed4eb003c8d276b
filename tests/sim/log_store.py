"""A log store on a simulated disk, driven step by step, and the model of what it has promised

The store is the real one; its two threads are queues that the world lets go on when it likes, so that a round of fsync
may begin, touch the disk and be noticed at different moments, with appends and crashes in between. The model keeps what
was appended, what was acknowledged and what a consumer could have seen, and says after each restart whether the log
still holds it.
"""

import asyncio
import contextlib
import random
import uuid
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from tests.broker.log.log_world import NOW_MS, payload, read_all
from tests.sim.disk import PowerCut, SimulatedDisk
from tidemill.broker.folders import set_aside
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.log.store import LogStore
from tidemill.broker.log.threads import LogThreads
from tidemill.broker.log.turns import TURN_S
from tidemill.broker.quorum.image import ClusterImage
from tidemill.core.errors import KafkaStorageError
from tidemill.core.records.batch import BatchView
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.runtime.clock import ManualClock
from tidemill.core.types import TopicPartition


class SteppedThread(Executor):
    """One worker thread whose work is done, and then noticed, when the world says so."""

    def __init__(self) -> None:
        self._queue: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._done: deque[Callable[[], None]] = deque()
        self._ended = self._shut = False

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        if self._shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if self._ended:
            future.cancel()
        else:
            self._queue.append((future, lambda: call(*args, **kwargs)))
        return future

    @property
    def idle(self) -> bool:
        return not self._queue and not self._done

    def work(self) -> None:
        """Do the next piece of work; nobody hears of it yet."""
        if not self._queue:
            return
        future, call = self._queue.popleft()
        try:
            result = call()
        except PowerCut:
            future.cancel()
            raise
        except BaseException as error:
            failure = error
            self._done.append(lambda: future.set_exception(failure))
        else:
            self._done.append(lambda: future.set_result(result))

    def notice(self) -> None:
        """Let the event loop hear of the oldest work that is done."""
        if self._done:
            self._done.popleft()()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take nothing more, and do what there is."""
        self._shut = True
        while self._queue:
            self.work()

    def end(self) -> None:
        """The machine is off: nothing more is done, and nobody waits for it."""
        self._ended = True
        while self._done:
            self.notice()
        while self._queue:
            self._queue.popleft()[0].cancel()


class FitfulClock(ManualClock):
    """Time stands still for what is written down; a turn of the event loop is over whenever chance says so."""

    __slots__ = ("_elapsed_s", "_rng")

    def __init__(self, rng: random.Random) -> None:
        super().__init__(NOW_MS)
        self._rng, self._elapsed_s = rng, 0.0

    def monotonic(self) -> float:
        if self._rng.random() < 0.2:
            self._elapsed_s += TURN_S
        return self._elapsed_s


class SteppedStore(LogStore):
    """A log store whose threads are stepped."""

    def __init__(self, disk: SimulatedDisk, rng: random.Random, *, flush_policy: str = "group") -> None:
        self.flush_steps, self.file_steps, self.read_steps = SteppedThread(), SteppedThread(), SteppedThread()
        super().__init__(
            disk.root,
            clock=FitfulClock(rng),
            node_id=1,
            flush_policy=flush_policy,
            new_id=lambda: uuid.UUID(int=99),
            threads=LogThreads(flush=self.flush_steps, files=self.file_steps, reads=self.read_steps),
        )
        self.steps = (self.flush_steps, self.file_steps, self.read_steps)


@dataclass(frozen=True, slots=True)
class Appended:
    """One batch as it was handed to the log."""

    base_offset: int
    next_offset: int
    payload: bytes
    producer: tuple[int, int]
    """Producer id and base sequence."""
    data: bytes


@dataclass(slots=True)
class Promises:
    """One partition: what was done to it and what it owes."""

    topic_id: uuid.UUID
    batches: list[Appended] = field(default_factory=list)
    acknowledged_end: int = 0
    seen_end: int = 0
    start_promised: int = 0
    start_highest: int = 0
    created: bool = False
    deleting: bool = False
    deleted: bool = False
    sequences: dict[int, int] = field(default_factory=dict)

    @property
    def end_owed(self) -> int:
        """First offset that nobody was told of."""
        return max(self.acknowledged_end, self.seen_end)


class LogSimulation:
    """One machine through several lives."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimulatedDisk()
        self.flush_policy = "os" if self.rng.random() < 0.15 else "group"
        self.promises: dict[TopicPartition, Promises] = {}
        self.config = LogConfig(
            segment_bytes=self.rng.choice((600, 1500, 5000)),
            index_interval_bytes=self.rng.choice((100, 400)),
            file_delete_delay_ms=0,
            retention_bytes=self.rng.choice((-1, 3000)),
        )
        self.numbers = 0
        self._removed: set[uuid.UUID] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.crashes = self.batches_acknowledged = self.refused = 0

    # -- one life

    def live(self, steps: int, *, power_cut: bool) -> None:
        """Start, do random things, end by a crash or in order; what is found at each start is checked."""
        if power_cut:
            self.disk.cut_power_in = self.rng.randrange(1, 6 * steps)
        with contextlib.suppress(PowerCut):
            asyncio.run(self._life(steps, orderly=self.rng.random() < 0.2))
        self.disk.fail_sync = self.disk.capacity_bytes = None
        if self.rng.random() < 0.3:
            self.disk.kill()
        else:
            self.disk.crash(self.rng)
        self.crashes += 1

    async def _life(self, steps: int, *, orderly: bool) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        self._set_aside()
        store = SteppedStore(self.disk, self.rng, flush_policy=self.flush_policy)
        store.open_all(lambda _topic: self.config)
        self.check(store)
        self._tasks = set()
        try:
            for _ in range(steps):
                self._act(store)
                for _ in range(self.rng.randrange(4)):
                    await asyncio.sleep(0)
                for task in [task for task in self._tasks if task.done()]:
                    self._tasks.discard(task)
                    task.result()
                self._look(store)
            if orderly:
                if self.rng.random() < 0.3:
                    await self._settle(store)
                await self._driven(store, store.close())
        finally:
            self._look(store)

    def _set_aside(self) -> None:
        """What a broker does first: folders of topics that its metadata does not have make room."""
        topics = {
            tp.topic: SimpleNamespace(topic_id=owed.topic_id, partitions=[0])
            for tp, owed in self.promises.items()
            if not owed.deleting
        }
        removed = {owed.topic_id for owed in self.promises.values() if owed.deleting}
        image = cast(ClusterImage, SimpleNamespace(topics=topics))
        set_aside(self.disk.root, image, removed | self._removed, self._new_id)

    def _new_id(self) -> uuid.UUID:
        self.numbers += 1
        return uuid.UUID(int=self.numbers)

    async def _driven(self, store: SteppedStore, call: Coroutine[Any, Any, None]) -> None:
        """Run `call` to its end while the threads work, each at a pace of its own."""
        task = asyncio.ensure_future(call)
        while not task.done():
            thread = self.rng.choice(store.steps)
            self.rng.choice((thread.work, thread.notice))()
            await asyncio.sleep(0)
            self._look(store)
        task.result()

    async def _settle(self, store: SteppedStore) -> None:
        while self._tasks or not all(thread.idle for thread in store.steps):
            self._turn_threads(store)
            self._tasks = {task for task in self._tasks if not task.done() or task.result() is not None}
            await asyncio.sleep(0)
            self._look(store)

    @staticmethod
    def _turn_threads(store: SteppedStore) -> None:
        for thread in store.steps:
            thread.work()
            thread.notice()

    def _act(self, store: SteppedStore) -> None:
        rng = self.rng
        if self.disk.capacity_bytes is not None and rng.random() < 0.2:
            self.disk.capacity_bytes = None
        choice = rng.random()
        if choice < 0.45:
            self._append(store)
        elif choice < 0.62:
            rng.choice((store.flush_steps, store.flush_steps, store.file_steps, store.read_steps)).work()
        elif choice < 0.79:
            rng.choice((store.flush_steps, store.flush_steps, store.file_steps, store.read_steps)).notice()
        elif choice < 0.83:
            self._background(store.checkpoint())
        elif choice < 0.86:
            self._create(store)
        elif choice < 0.88:
            self._delete_records(store)
        elif choice < 0.90:
            self._retain(store)
        elif choice < 0.91:
            self._delete_topic(store)
        elif choice < 0.92:
            self.disk.capacity_bytes = self.disk.used_bytes() + rng.choice((0, rng.randrange(400)))
        elif choice < 0.922:
            self.disk.fail_sync = OSError(5, "Input/output error")
            self.disk.forgets_after_failed_sync = True

    def _background(self, call: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.ensure_future(call))

    # -- what clients do

    def _usable(self) -> list[TopicPartition]:
        return [tp for tp, owed in sorted(self.promises.items()) if owed.created and not owed.deleting]

    def _log(self, store: SteppedStore) -> tuple[PartitionLog, Promises] | None:
        usable = self._usable()
        if not usable:
            return None
        tp = self.rng.choice(usable)
        log = store.get(*tp)
        assert log is not None
        return log, self.promises[tp]

    def _append(self, store: SteppedStore) -> None:
        found = self._log(store)
        if found is None:
            return
        log, owed = found
        rng = self.rng
        producer = rng.randrange(1, 4)
        sequence = owed.sequences.get(producer, 0)
        values = []
        for _ in range(rng.choice((1, 1, 2, 5))):
            self.numbers += 1
            values.append(b"%d " % self.numbers * rng.choice((1, 10, 60, 60, 200)))
        now_ms = NOW_MS + self.numbers
        data = build_batch(
            [NewRecord(now_ms, None, value) for value in values],
            codec=rng.choice(("none", "none", "lz4")),
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
        )
        try:
            result = log.append(data, now_ms=NOW_MS, leader_epoch=len(owed.batches) // 10)
        except KafkaStorageError:
            self.refused += 1
            return
        assert not result.duplicate
        owed.sequences[producer] = sequence + len(values)
        view = BatchView(data)
        batch = Appended(result.base_offset, result.last_offset + 1, payload(view), (producer, sequence), data)
        owed.batches.append(batch)
        try:
            pending = log.pending(result.last_offset)
        except KafkaStorageError:
            return
        if pending is None:
            self._acknowledge(owed, batch)
        else:
            pending.add_done_callback(lambda done: done.exception() is None and self._acknowledge(owed, batch))

    def _acknowledge(self, owed: Promises, batch: Appended) -> None:
        if owed.deleting:
            return  # the deletion came first: what is acknowledged now was deleted before it was written
        self.batches_acknowledged += 1
        owed.acknowledged_end = max(owed.acknowledged_end, batch.next_offset)

    def _look(self, store: SteppedStore) -> None:
        """What consumers see now they must see ever after."""
        for tp in self._usable():
            log, owed = store.get(*tp), self.promises[tp]
            if log is not None:
                owed.seen_end = max(owed.seen_end, log.committed_offset)
                owed.start_highest = max(owed.start_highest, log.log_start_offset)

    def _create(self, store: SteppedStore) -> None:
        tp = TopicPartition(self.rng.choice(("a", "b", "c")), 0)
        if store.get(*tp) is not None or (tp in self.promises and not self.promises[tp].deleted):
            return
        owed = self.promises[tp] = Promises(topic_id=self._new_id())

        async def create() -> None:
            try:
                await store.create_many(tp.topic, owed.topic_id, [0], self.config)
            except KafkaStorageError:
                owed.deleting = True
                self._removed.add(owed.topic_id)
            else:
                owed.created = True

        self._background(create())

    def _delete_topic(self, store: SteppedStore) -> None:
        usable = self._usable()
        if not usable:
            return
        tp = self.rng.choice(usable)
        owed = self.promises[tp]
        owed.deleting = True
        self._removed.add(owed.topic_id)

        async def delete() -> None:
            with contextlib.suppress(OSError):
                await store.delete(tp.topic)
            owed.deleted = True  # it is gone from the metadata, whatever becomes of its files

        self._background(delete())

    def _delete_records(self, store: SteppedStore) -> None:
        found = self._log(store)
        if found is None or found[0].committed_offset == 0:
            return
        log, owed = found
        offset = self.rng.randrange(log.committed_offset + 1)
        owed.start_highest = max(owed.start_highest, offset)

        async def delete() -> None:
            with contextlib.suppress(KafkaStorageError, OSError):
                await store.delete_records(log, offset)
                owed.start_promised = max(owed.start_promised, offset)

        self._background(delete())

    def _retain(self, store: SteppedStore) -> None:
        async def retain() -> None:
            with contextlib.suppress(OSError):
                await store.enforce_retention(NOW_MS)

        self._background(retain())

    # -- what must hold at a start

    def check(self, store: LogStore) -> None:
        """Every promise is kept; the model forgets what was lost lawfully."""
        for tp, owed in list(self.promises.items()):
            log = store.get(*tp)
            if log is None:
                assert not owed.created or owed.deleting, f"{tp} is gone"
                del self.promises[tp]
            else:
                assert not owed.deleting, f"{tp} is back"
                self._check_log(log, owed)
                owed.created = True
        assert set(store.partitions()) == set(self.promises)

    def _check_log(self, log: PartitionLog, owed: Promises) -> None:
        assert log.topic_id == owed.topic_id
        end = log.log_end_offset
        start_promised = owed.start_promised if self.flush_policy == "group" else min(owed.start_promised, end)
        start_max = max(owed.start_highest, owed.start_promised)
        assert start_promised <= log.log_start_offset <= start_max, f"{log.log_start_offset} is not where it began"
        if self.flush_policy == "group":  # else what is in the page cache may go, but only from the end
            assert end >= owed.end_owed, f"the log ends at {end}, {owed.end_owed} was acknowledged or seen"
        found = read_all(log)
        assert all(view.verify_crc() for view in found)
        kept = [batch for batch in owed.batches if batch.next_offset <= end]
        visible = [batch for batch in kept if batch.next_offset > log.log_start_offset]
        assert [(view.base_offset, payload(view)) for view in found] == [(b.base_offset, b.payload) for b in visible]
        assert (kept[-1].next_offset if kept else 0) == end or not visible
        self._check_producers(log, owed, kept)
        owed.batches = kept
        owed.acknowledged_end = owed.seen_end = end
        owed.start_promised = owed.start_highest = log.log_start_offset
        owed.sequences = {}
        for batch in kept:
            producer, sequence = batch.producer
            owed.sequences[producer] = sequence + BatchView(batch.data).record_count

    def _check_producers(self, log: PartitionLog, owed: Promises, kept: list[Appended]) -> None:
        """A retry of any of a producer's last five batches is known, whatever happened between."""
        first = log.segments[0].base_offset
        for producer in {batch.producer[0] for batch in kept}:
            of_producer = [batch for batch in kept if batch.producer[0] == producer]
            for batch in of_producer[-5:]:
                if batch.base_offset >= first:
                    again = log.append(batch.data, now_ms=NOW_MS)
                    assert (again.duplicate, again.base_offset) == (True, batch.base_offset)
