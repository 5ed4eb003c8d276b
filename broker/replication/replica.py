"""One partition as this broker serves it: a log, its rules, those who wait

Handlers read, append and wait here. `high_watermark` is where consumers' reads end, `pending` what a producer's answer
waits for; both follow from the machine, which hears of the log whenever that holds more. While the machine says that
nobody else counts, a producer waits for the round of fsync that all partitions share, and for nothing of this
partition's own.

Used on the event loop only. Not here: the rules (`partition`), and who asks the controller or fetches (`Outlet`).
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import structlog

from tidemill.broker.log.appended import AppendResult
from tidemill.broker.log.flush_plan import LogPosition
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.quorum.image import PartitionImage
from tidemill.broker.replication.actions import Action, Follow, LogStartMoved, ProposeIsr, RefuseWaiting, Truncate
from tidemill.broker.replication.moved import Moved, Stir
from tidemill.broker.replication.partition import NOBODY, PartitionMachine, Role
from tidemill.core.errors import CorruptMessage, KafkaError, KafkaStorageError, error_for_code
from tidemill.core.runtime.at_once import future_at_once
from tidemill.core.runtime.disk import ByteBuffer

log = structlog.get_logger("tidemill.broker.replication")

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1


Wish: TypeAlias = ProposeIsr | Follow | Truncate | LogStartMoved

Outlet: TypeAlias = "Callable[[Replica, Wish], None]"
"""Where goes what a partition wants of others; it is done later, nothing of the replica changes meanwhile."""


class _Waiter(NamedTuple):
    offset: int
    answer: "asyncio.Future[None]"
    at_once: bool


_offset_of = itemgetter(0)


REFUSED_IN_A_TURN = 50
"""Of the producers that wait; for each an answer is made, about a millisecond for all."""


def _fail(answers: "Iterable[asyncio.Future[None]]", error: KafkaError) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(error)
            answer.exception()  # nobody may be waiting; that is not worth a warning


def _fail_some(answers: "list[asyncio.Future[None]]", error: KafkaError) -> None:
    """Some now, the others after whatever else waits for its turn: bad news is in no hurry."""
    _fail(answers[:REFUSED_IN_A_TURN], error)
    if len(answers) > REFUSED_IN_A_TURN:
        asyncio.get_running_loop().call_soon(_fail_some, answers[REFUSED_IN_A_TURN:], error)


class Replica:
    """One partition; made by `tidemill.broker.replication.replicas`."""

    __slots__ = (
        "__weakref__",
        "_copied",
        "_cuts",
        "_next_round",
        "_outlet",
        "_quiet",
        "_waiters",
        "_wakes",
        "_watchers",
        "high_watermark",
        "image",
        "log",
        "machine",
        "told",
        "visible",
    )

    def __init__(self, partition_log: PartitionLog, machine: PartitionMachine, outlet: Outlet) -> None:
        self.log = partition_log
        self.machine = machine
        self.image: PartitionImage | None = None  # the last that the machine was told
        self._outlet = outlet
        self._next_round = partition_log.flusher.next_round
        self._wakes: dict[Callable[[], None], None] = {}  # whoever waits longer is woken first
        self._watchers: dict[Callable[[], None], None] = {}
        self._quiet: dict[Stir, None] = {}  # sessions of clients that know all there is, and ...
        self._copied: dict[Stir, None] = {}  # ... of followers, which wait for what is appended, too
        self._waiters: list[_Waiter] = []  # by offset, one for each, or one of either kind
        self._cuts = partition_log.cuts
        self.high_watermark = -1  # to be read only, as is ...
        self.visible = LogPosition(-1, 0, 0, None)  # ... where it lies in the log; the first image says both
        self.told = False  # whether some leader has been told how far it is held: said by whoever does that
        machine.begins(partition_log.log_start_offset)  # nobody waits yet
        partition_log.own(self._log_changed, self._log_start_moved)

    # -- what holds now

    @property
    def log_start_offset(self) -> int:
        """First offset that is there."""
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record."""
        return self.log.log_end_offset

    @property
    def led_epoch(self) -> int:
        """The epoch in which this broker leads; -1 when it does not."""
        return self.machine.leader_epoch if self.machine.leads else -1

    @property
    def counted_on(self) -> bool:
        """Whether this broker may be made the leader for what it holds, being in the ISR or an eligible leader."""
        machine = self.machine
        return machine.node_id in machine.isr or machine.node_id in machine.eligible

    @property
    def last_stable_offset(self) -> int:
        """First offset that read-committed consumers do not see: where a transaction began that is not decided yet."""
        high_watermark, producers = self.high_watermark, self.log.producers
        if not producers.transactional:
            return high_watermark
        undecided = producers.first_undecided(high_watermark)
        return high_watermark if undecided is None else min(undecided, high_watermark)

    @property
    def closed(self) -> bool:
        """Whether it is of no use any more."""
        return self.log.closed

    @property
    def leader_epoch(self) -> int:
        """Of what is appended here: never one that is older than the log's own."""
        return max(self.machine.leader_epoch, self.log.leader_epoch)

    # -- what happens

    def assign(self, image: PartitionImage, *, now_ms: int) -> None:
        """The image says this of the partition now."""
        if image is self.image:
            return
        self.image = image
        led = self.machine.leads
        self.take(self.machine.assigned(image, log_end=self.log.log_end_offset, now_ms=now_ms))
        if led and not self.machine.leads:
            self._wake()
            self._wake_watchers()
        self._stir_all()

    def retire(self) -> None:
        """The partition is gone: whoever remembers how it is led has to look it up again."""
        self.image = None
        self._stir_all()

    def configure(self, *, lag_max_ms: int) -> None:
        """The log's settings may be others."""
        min_in_sync = self.log.config.min_insync_replicas
        self.take(
            self.machine.configured(min_in_sync=min_in_sync, lag_max_ms=lag_max_ms, log_end=self.log.log_end_offset)
        )

    def take(self, actions: Iterable[Action]) -> None:
        """Do what the machine said, and show what has become of it."""
        for action in actions:
            if isinstance(action, RefuseWaiting):
                self._refuse(error_for_code(action.error))
                continue
            if isinstance(action, LogStartMoved):
                self._wake_watchers()
            self._outlet(self, action)
        self._show(self.machine.high_watermark)

    def _log_changed(self) -> None:
        partition_log, machine = self.log, self.machine
        if partition_log.closed or partition_log.cuts != self._cuts:
            self._lost()
            return
        held = partition_log.held
        offset = held.offset
        somebody_may_join = machine.stored(offset)
        high_watermark = machine.high_watermark
        if high_watermark != offset:
            if high_watermark != self.high_watermark:
                self._show(high_watermark)
        elif offset != self.high_watermark:
            self.visible, self.high_watermark = held, offset
            partition_log.committed = held  # `commit` in place: with each batch, a call counts
            if self._wakes or self._waiters or self._quiet:
                self._tell()
        if somebody_may_join:
            self.take(machine.ask_in(partition_log.log_end_offset))

    def _log_start_moved(self) -> None:
        self.take(self.machine.begins(self.log.log_start_offset))
        self._stir_all()

    def _lost(self) -> None:
        """The log is closed or shorter than it was."""
        if self.log.closed:
            self._refuse(KafkaStorageError(f"{self.log.topic_partition} is closed"))
            self._wake()
            self._wake_watchers()
            if self.machine.role is Role.FOLLOWER:
                self._outlet(self, Follow(leader=NOBODY, leader_epoch=self.machine.leader_epoch))
            return
        self._cuts = self.log.cuts  # nothing of what goes may be shown while the disk is at it
        self.machine.truncated(self.log.log_end_offset)
        self.machine.begins(self.log.log_start_offset)  # told when what is left is held
        self.machine.stored(self.log.held.offset)
        self._show(self.machine.high_watermark)
        self._stir_all()

    def _show(self, high_watermark: int) -> None:
        if high_watermark == self.high_watermark:
            return
        held = self.log.held
        try:
            visible = held if high_watermark == held.offset else self.log.position_of(high_watermark)
        except (CorruptMessage, KafkaStorageError) as error:
            log.error("high watermark stays", partition=str(self.log.topic_partition), reason=str(error))
            if self.high_watermark >= 0:
                return
            visible = self.log.segment_start(high_watermark)  # what is before the damage, until more is committed
            high_watermark = visible.offset
        self.visible, self.high_watermark = visible, high_watermark
        self.log.commit(visible)
        if self._wakes or self._waiters or self._quiet:
            self._tell()

    def _tell(self) -> None:
        """Those who wait for the high watermark to move, producers first: others look in a later turn anyway."""
        if self._waiters:
            self._acknowledge(self.high_watermark)
        self._wake()

    # -- appending

    def append_own(self, data: ByteBuffer, *, now_ms: int, leader_epoch: int = -1) -> AppendResult:
        """Store a batch of one of this broker's coordinators, decided in that leadership; raises KafkaError.

        The machine may be the one to hear later of a new one, never the coordinator.
        """
        self.machine.check_leads()
        if 0 <= leader_epoch < self.machine.leader_epoch:
            self.machine.check_epoch(leader_epoch)
        return self.log.append_own(data, now_ms=now_ms, leader_epoch=max(leader_epoch, self.leader_epoch))

    def pending(
        self, last_offset: int, acks: int = ACKS_ALL, *, at_once: bool = False
    ) -> "asyncio.Future[None] | None":
        """What to wait for before the record at `last_offset` is acknowledged; None when it may be at once.

        The future is shared: shield it where the waiter can be cancelled. With `at_once` it may be one that a task
        cannot wait for (`future_at_once`): it is settled in the midst of this replica's work, which whoever is called
        then must leave alone. Raises KafkaError where it never will be acknowledged.
        """
        if last_offset < self.high_watermark:
            return None
        if self.log.closed:
            raise KafkaStorageError(f"{self.log.topic_partition} is closed")
        if self.machine.alone:
            return self._next_round()
        if acks == ACKS_LEADER:
            return self.log.pending(last_offset)
        return self._acknowledgement(last_offset, at_once)

    def _acknowledgement(self, last_offset: int, at_once: bool) -> "asyncio.Future[None]":
        self.machine.check_leads()
        waiters = self._waiters
        place = bisect_left(waiters, last_offset, key=_offset_of)
        while place < len(waiters) and waiters[place].offset == last_offset:
            if waiters[place].at_once is at_once:
                return waiters[place].answer
            place += 1
        answer: asyncio.Future[None]
        answer = future_at_once() if at_once else asyncio.get_running_loop().create_future()
        waiters.insert(place, _Waiter(last_offset, answer, at_once))
        return answer

    def _acknowledge(self, high_watermark: int) -> None:
        count = bisect_left(self._waiters, high_watermark, key=_offset_of)
        done = self._waiters[:count]
        del self._waiters[:count]
        for waiter in reversed(done):  # a connection answers in order: with the first of them it sends all at once
            if not waiter.answer.done():
                waiter.answer.set_result(None)

    def _refuse(self, error: KafkaError) -> None:
        waiters, self._waiters = self._waiters, []
        _fail([waiter.answer for waiter in waiters if not waiter.at_once], error)
        at_once = [waiter.answer for waiter in waiters if waiter.at_once]
        if at_once:
            asyncio.get_running_loop().call_soon(_fail_some, at_once, error)

    # -- reading

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True) -> bytes | memoryview:
        """Whole batches from the one that has `offset`, up to the high watermark: see `PartitionLog.read`."""
        return self.log.read(offset, max_bytes, self.visible, at_least_one=at_least_one)

    def read_own(self, offset: int, max_bytes: int) -> bytes | memoryview:
        """Whole batches from `offset`, committed or not: for a coordinator that takes up what is led here."""
        return self.log.read(offset, max_bytes, self.log.end_position())

    def wait_for_data(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever the high watermark moves or the log is closed, until `stop_waiting`."""
        self._wakes[wake] = None

    def stop_waiting(self, wake: Callable[[], None]) -> None:
        """Undo `wait_for_data` and `watch`."""
        self._wakes.pop(wake, None)
        if self._watchers:
            self._watchers.pop(wake, None)
            self._watch_if_wanted()

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever anything is appended, committed or not, a log start moves, the log is closed or this
        broker no longer leads, until `stop_waiting`.

        For followers, and for whoever waits until they have deleted what is deleted here.
        """
        self._watchers[wake] = None
        self.log.on_append = self._wake_watchers

    def listen(self, stir: Stir, *, of_appends: bool) -> None:
        """Call `stir` once when the high watermark moves or, with `of_appends`, anything is appended, and then no more.

        Of all else that an answer to a fetch tells, and of how the partition is led, it hears as often as that moves.
        """
        self._quiet[stir] = None
        if of_appends:
            self._copied[stir] = None
            self.log.on_append = self._wake_watchers

    def ignore(self, stir: Stir) -> None:
        """Undo `listen`."""
        self._quiet.pop(stir, None)
        self._copied.pop(stir, None)
        self._watch_if_wanted()

    @property
    def listening(self) -> int:
        """How many are to be stirred."""
        return len(self._quiet | self._copied)

    def _watch_if_wanted(self) -> None:
        if not self._watchers and not self._copied:
            self.log.on_append = None

    def _stir_all(self) -> None:
        for stir in self._quiet | self._copied:
            stir(Moved.OTHER)

    def _wake_watchers(self) -> None:
        for wake in tuple(self._watchers):
            wake()
        if self._copied:
            copied, self._copied = self._copied, {}
            for stir in copied:
                self._quiet.pop(stir, None)
                stir(Moved.APPENDED)
            self._watch_if_wanted()

    @property
    def waiting(self) -> int:
        """How many wait for data."""
        return len(self._wakes)

    def _wake(self) -> None:
        for wake in tuple(self._wakes):
            wake()
        if self._quiet:
            quiet, self._quiet = self._quiet, {}
            for stir in quiet:  # a follower hears of the next append all the same
                stir(Moved.COMMITTED)
