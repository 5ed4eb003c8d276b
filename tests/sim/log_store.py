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
from concurrent.futures import Executor, Future, InvalidStateError
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from tests.broker.log.log_world import NOW_MS, payload, read_all
from tests.sim.disk import PowerCut, SimulatedDisk
from tidemill.broker.folders import set_aside
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.markers import Marker, encode
from tidemill.broker.log.new_logs import NewLogs
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.log.partition_folders import KnownFolder
from tidemill.broker.log.store import LogStore
from tidemill.broker.log.threads import LogThreads
from tidemill.broker.log.turns import TURN_S
from tidemill.broker.quorum.image import ClusterImage
from tidemill.core.errors import KafkaStorageError, NotLeaderOrFollower, OffsetOutOfRange
from tidemill.core.records.batch import BatchView, stamp
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
        """Let the event loop hear of the oldest work that is done; somebody may have given it up meanwhile."""
        if self._done:
            with contextlib.suppress(InvalidStateError):
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
    """Producer id and base sequence, which is -1 of a marker."""
    data: bytes
    epoch: int

    @property
    def is_marker(self) -> bool:
        return self.producer[1] < 0


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
    cuts: int = 0
    """How often its end has begun to be cut off; what was promised before means nothing any more."""
    cutting_at: int | None = None

    def cut(self, end: int) -> None:
        """Nothing is left from there on."""
        self.batches = [batch for batch in self.batches if batch.next_offset <= end]
        self.sequences = {}
        for batch in self.batches:
            producer, sequence = batch.producer
            if not batch.is_marker:
                self.sequences[producer] = sequence + BatchView(batch.data).record_count

    def forget(self, end: int) -> None:
        """What is owed from there on is not owed any more."""
        self.acknowledged_end, self.seen_end = min(self.acknowledged_end, end), min(self.seen_end, end)
        self.start_promised = min(self.start_promised, end)

    def open_transactions(self) -> dict[int, int]:
        """Producer id -> first offset."""
        began: dict[int, int] = {}
        for batch in self.batches:
            if batch.is_marker:
                began.pop(batch.producer[0], None)
            elif BatchView(batch.data).is_transactional:
                began.setdefault(batch.producer[0], batch.base_offset)
        return began

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
        self.crashes = self.batches_acknowledged = self.refused = self.replicated = self.cuts = self.unclean = 0
        self.reopened = 0  # logs that a start took up as the stop before had left them

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
        known = self._set_aside()
        store = SteppedStore(self.disk, self.rng, flush_policy=self.flush_policy)
        store.open_all(lambda _topic: self.config, known)
        self.reopened += sum(log.active.claim is not None for log in store)
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
            for thread in store.steps:
                thread.end()

    def _set_aside(self) -> dict[TopicPartition, KnownFolder]:
        """What a broker does first: folders of topics that its metadata does not have make room."""
        topics = {
            tp.topic: SimpleNamespace(topic_id=owed.topic_id, partitions=[0])
            for tp, owed in self.promises.items()
            if not owed.deleting
        }
        removed = {owed.topic_id for owed in self.promises.values() if owed.deleting}
        image = cast(ClusterImage, SimpleNamespace(topics=topics))
        return set_aside(self.disk.root, image, removed | self._removed, self._new_id).known

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
        if rng.random() < 0.4 and any(owed.cutting_at is not None for owed in self.promises.values()):
            self._turn_threads(store)
        choice = rng.random()
        if choice < 0.31:
            self._append(store)
        elif choice < 0.40:
            self._append_replicated(store)
        elif choice < 0.45:
            self._truncate(store)
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
        data, producer = self._batch(owed, {})
        epoch = self._epoch(owed)
        try:
            if self.rng.random() < 0.1:
                assert log.judge(data, now_ms=NOW_MS) is None
            result = log.append(data, now_ms=NOW_MS, leader_epoch=epoch)
        except (KafkaStorageError, NotLeaderOrFollower):
            self.refused += 1
            return
        assert owed.cutting_at is None
        assert not result.duplicate
        self._appended(log, owed, data, producer, result.base_offset, epoch)

    def _epoch(self, owed: Promises) -> int:
        """Never one that is older than what is there, also of what has been deleted since."""
        return max([0, *(batch.epoch for batch in owed.batches[-1:])]) + (self.rng.random() < 0.1)

    def _batch(self, owed: Promises, sequences: dict[int, int]) -> tuple[bytes, tuple[int, int]]:
        """One of a producer's, some of them with transactions; `sequences` go before those of `owed`."""
        rng = self.rng
        producer = rng.randrange(1, 6)
        sequence = sequences.get(producer, owed.sequences.get(producer, 0))
        values = []
        for _ in range(rng.choice((1, 1, 2, 5))):
            self.numbers += 1
            values.append(b"%d " % self.numbers * rng.choice((1, 10, 60, 60, 200)))
        now_ms = NOW_MS + self.numbers
        sequences[producer] = sequence + len(values)
        data = build_batch(
            [NewRecord(now_ms, None, value) for value in values],
            codec=rng.choice(("none", "none", "lz4")),
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=producer > 3,
        )
        return data, (producer, sequence)

    def _appended(
        self, log: PartitionLog, owed: Promises, data: bytes, producer: tuple[int, int], offset: int, epoch: int
    ) -> None:
        """It is in the log; once that is what it was waited for, it is acknowledged."""
        view = BatchView(data)
        if producer[1] >= 0:
            owed.sequences[producer[0]] = producer[1] + view.record_count
        batch = Appended(offset, offset + view.last_offset_delta + 1, payload(view), producer, data, epoch)
        owed.batches.append(batch)
        cuts = owed.cuts
        try:
            pending = log.pending(batch.next_offset - 1)
        except KafkaStorageError:
            return
        if pending is None:
            self._acknowledge(owed, batch, cuts)
        else:
            pending.add_done_callback(lambda done: done.exception() is None and self._acknowledge(owed, batch, cuts))

    def _append_replicated(self, store: SteppedStore) -> None:
        """A few batches as a leader has them, or a coordinator's marker."""
        found = self._log(store)
        if found is None:
            return
        log, owed = found
        if self.rng.random() < 0.3:
            self._end_transaction(log, owed)
            return
        offset, epoch = log.log_end_offset, self._epoch(owed)
        data, parts, sequences = bytearray(), [], dict[int, int]()
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            epoch += self.rng.random() < 0.1
            offset += self.rng.choice((0,) * 15 + (1, 7))
            raw, producer = self._batch(owed, sequences)
            stamped = bytearray(raw)
            stamp(stamped, 0, offset, epoch)
            parts.append((raw, producer, offset, epoch))
            data += stamped
            offset += BatchView(raw).record_count
        try:
            log.append_at(log.log_end_offset, bytes(data), now_ms=NOW_MS)
        except (KafkaStorageError, NotLeaderOrFollower):
            self.refused += 1
        finally:
            for part in parts:
                if log.log_end_offset > part[2]:  # of several those before a full disk, or a power cut, are there
                    self._appended(log, owed, *part)
                    self.replicated += 1

    def _end_transaction(self, log: PartitionLog, owed: Promises) -> None:
        marker, producer = Marker(commit=self.rng.random() < 0.5, coordinator_epoch=3), self.rng.randrange(4, 6)
        offset, epoch = log.log_end_offset, self._epoch(owed)
        self.numbers += 1
        now_ms = NOW_MS + self.numbers
        data = encode(marker, producer_id=producer, producer_epoch=0, now_ms=now_ms)
        try:
            if self.rng.random() < 0.5:
                log.append_marker(marker, producer_id=producer, producer_epoch=0, now_ms=now_ms, leader_epoch=epoch)
            else:
                stamped = bytearray(data)
                stamp(stamped, 0, offset, epoch)
                log.append_at(offset, stamped, now_ms=NOW_MS)
        except (KafkaStorageError, NotLeaderOrFollower):
            self.refused += 1
        else:
            self._appended(log, owed, data, (producer, -1), offset, epoch)

    def _truncate(self, store: SteppedStore) -> None:
        found = self._log(store)
        if found is not None:
            self._background(self._cut(store, *found, unclean=self.rng.random() < 0.5))

    async def _cut(self, store: SteppedStore, log: PartitionLog, owed: Promises, *, unclean: bool) -> None:
        low = log.segments[0].base_offset if unclean else log.committed_offset
        offset = self.rng.randint(min(low, log.log_end_offset), log.log_end_offset)
        if owed.cutting_at is not None or log.closed or offset == log.log_end_offset:
            return
        owed.cutting_at = offset
        owed.cuts += 1
        if unclean:
            owed.forget(max([each.next_offset for each in owed.batches if each.next_offset <= offset], default=0))
        try:
            end = await store.truncate(log, offset, unclean=unclean)
        except KafkaStorageError:
            pass
        except OffsetOutOfRange:
            if unclean and offset >= log.segments[0].base_offset:
                raise
        else:
            assert log.log_end_offset == end <= offset
            assert all(batch.next_offset <= end or batch.next_offset > offset for batch in owed.batches)
            owed.cut(end)
            owed.cuts += 1
            self.cuts += 1
            self.unclean += unclean
            if not log.closed and store.flusher.failure is None:
                self._check_states(log, owed, owed.batches)
        finally:
            owed.cutting_at = None

    def _acknowledge(self, owed: Promises, batch: Appended, cuts: int) -> None:
        if owed.deleting or owed.cuts != cuts:
            return  # that came first: what is acknowledged now was deleted before it was written
        self.batches_acknowledged += 1
        owed.acknowledged_end = max(owed.acknowledged_end, batch.next_offset)

    def _look(self, store: SteppedStore) -> None:
        """What consumers see now they must see ever after."""
        for tp in self._usable():
            log, owed = store.get(*tp), self.promises[tp]
            if log is not None:
                if owed.cutting_at is None and owed.batches:  # an end between two batches may go back to the first
                    seen = min(log.committed_offset, owed.batches[-1].next_offset)
                    owed.seen_end = max(owed.seen_end, seen)
                owed.start_highest = max(owed.start_highest, log.log_start_offset)

    def _create(self, store: SteppedStore) -> None:
        tp = TopicPartition(self.rng.choice(("a", "b", "c")), 0)
        if store.get(*tp) is not None or (tp in self.promises and not self.promises[tp].deleted):
            return
        owed = self.promises[tp] = Promises(topic_id=self._new_id())

        async def create() -> None:
            try:
                await store.create_many(
                    [NewLogs(topic=tp.topic, topic_id=owed.topic_id, partitions=[0], config=self.config)]
                )
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
        cuts = owed.cuts

        async def delete() -> None:
            with contextlib.suppress(KafkaStorageError, OSError, OffsetOutOfRange):
                await store.delete_records(log, offset)
                if owed.cuts == cuts and (owed.cutting_at is None or owed.cutting_at >= offset):
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
        self._check_states(log, owed, kept)
        owed.cut(end)
        owed.cutting_at = None
        owed.acknowledged_end = owed.seen_end = end
        owed.start_promised = owed.start_highest = log.log_start_offset

    def _check_states(self, log: PartitionLog, owed: Promises, kept: list[Appended]) -> None:
        """A retry of any of a producer's last five batches is known, whatever happened between; so are the epochs."""
        first = log.segments[0].base_offset
        for producer in {batch.producer[0] for batch in kept}:
            of_producer = [batch for batch in kept if batch.producer[0] == producer and not batch.is_marker]
            for batch in of_producer[-5:]:
                if batch.base_offset >= first:
                    again = log.judge(batch.data, now_ms=NOW_MS)
                    assert again is not None, f"{batch.base_offset} of producer {producer} is not known any more"
                    assert again.base_offset == batch.base_offset
        for batch in kept:
            if batch.base_offset >= log.log_start_offset:
                assert log.epochs.epoch_at(batch.base_offset) == batch.epoch, f"of another epoch: {batch.base_offset}"
        assert log.leader_epoch == kept[-1].epoch if kept and kept[-1].base_offset >= log.log_start_offset else True
        if first == 0:
            began = Promises(owed.topic_id, kept).open_transactions()
            assert log.producers.first_undecided(2**62) == min(began.values(), default=None)
