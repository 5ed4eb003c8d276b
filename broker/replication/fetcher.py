"""Fetching from leaders: connections, and logs that take what comes

`ReplicaFetchers` is what a broker with others around it has beside its `Replicas`. It is their outlet: what partitions
want of others goes here and is done in tasks of its own. For each leader there is one connection and one task, which
asks what `fetching` says and lets the logs have what comes: whole batches, as bytes. They are checked and written on
the event loop, which others have between two partitions; then one round of fsync makes all of them held.

Between an answer and what is done with it the partition may have become something else. So everything looks first
whether this broker still follows that leader in that epoch, in the same turn of the event loop in which it acts.

A log is thrown away only by a replica that is neither in sync nor an eligible leader: when the leader has deleted what
would come next, when nothing is left in this copy but epochs that the leader never had, and, for a leader that has
records, when this copy is damaged. The last only as long as this process has not told anybody how far it holds the
partition: a leader that has been told may be about to ask it in.

Where a log begins is told when that is written down, like how far it is held: a leader may promise somebody that what
is below stays deleted. All that begin elsewhere by then are written down at once, and nothing waits for it.

Started only where there is somebody to follow. Not here: who decides about an ISR (`AlterPartition`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from tidemill.broker.log.store import LogStore
from tidemill.broker.log.turns import Turns
from tidemill.broker.quorum.image import TopicImage
from tidemill.broker.replication.actions import Follow, LogStartMoved, ProposeIsr, Truncate
from tidemill.broker.replication.fetching import (
    Action,
    BeginAnew,
    Copied,
    FetchSettings,
    Held,
    Key,
    LeaderFetches,
    Parted,
    Report,
)
from tidemill.broker.replication.partition import NOBODY, Role
from tidemill.broker.replication.replica import Replica, Wish
from tidemill.broker.replication.replicas import Replicas
from tidemill.broker.replication.throttle import UNTHROTTLED, Throttle
from tidemill.core.client.connection import Address, Connection, ConnectionFailed
from tidemill.core.errors import KafkaError, KafkaStorageError, OffsetOutOfRange
from tidemill.core.runtime.clock import Clock
from tidemill.core.runtime.net import Dialer
from tidemill.core.types import new_tuple
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.fetch import FetchResponse

log = structlog.get_logger("tidemill.broker.replication")

SOCKET_TIMEOUT_MS = 30_000
"""Kafka's replica.socket.timeout.ms: without an answer for so long a leader counts as gone."""

AGAIN_S = 1.0
"""Between two attempts at what the disk or the controller did not let through."""

THROTTLE_LOOK_MS = 1_000
"""So long a partition is held back at once, then the throttle is asked again: it may be another one."""

AlterPartition: TypeAlias = Callable[[Replica, ProposeIsr], Awaitable[bool]]
"""Asks the controller for an ISR. False says that it was refused for good; KafkaError and ConnectionError that nobody
knows, and then it is asked again. What is granted is heard of by the image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrounded:
    """What fetchers need of the broker they are in.

    `address_of` a broker is that of its listener for brokers, None while there is none; `broker_epoch` is that of this
    broker's registration, -1 before; `topic` is what the image says now.
    """

    node_id: int
    replicas: Replicas
    logs: LogStore
    clock: Clock
    dialer: Dialer
    address_of: Callable[[int], Address | None]
    broker_epoch: Callable[[], int]
    topic: Callable[[str], TopicImage | None]
    alter_partition: AlterPartition


def key_of(replica: Replica) -> Key:
    """The partition as requests name it."""
    return Key.of(replica.log.topic_id, replica.log.topic_partition.partition)


class ReplicaFetchers:
    """All fetching of one broker; `outlet` is to be that of its replicas, and `run` has to be running."""

    def __init__(
        self, around: Surrounded, *, settings: FetchSettings | None = None, throttle: Throttle | None = None
    ) -> None:
        self.around = around
        self.settings = settings or FetchSettings()
        self.throttle = throttle or UNTHROTTLED
        self._leaders: dict[int, _Leader] = {}
        self._followed: dict[Replica, _Leader] = {}
        self._asking: dict[Replica, ProposeIsr] = {}
        self._begun: dict[Replica, None] = {}  # where their logs begin is to be written down, and told
        self._writing = False
        self._due: list[Coroutine[None, None, None]] = []  # before there is a group
        self._group: asyncio.TaskGroup | None = None
        self._over = False

    async def run(self) -> None:
        """Fetch, and look after those who follow, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for work in self._due:
                    group.create_task(work)
                self._due.clear()
                await self._tick_for_ever()
        finally:
            self._group, self._over = None, True

    @property
    def followed(self) -> dict[Replica, int]:
        """What is followed, and at which leader."""
        return {replica: leader.node_id for replica, leader in self._followed.items()}

    def failing_since_ms(self, replica: Replica) -> int | None:
        """Since when a replica could not be copied from its leader, None while it can be."""
        leader = self._followed.get(replica)
        return None if leader is None else leader.failing_since_ms(replica)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Have that done beside everything else."""
        if self._group is not None:
            self._group.create_task(work)
        elif self._over:
            work.close()
        else:
            self._due.append(work)

    def now_ms(self) -> int:
        """Of the clock that never goes back."""
        return int(self.around.clock.monotonic() * 1000)

    def outlet(self, replica: Replica, wish: Wish) -> None:
        """What a partition wants of others: nothing of the replica changes before this returns."""
        match wish:
            case Follow():
                self._follow(replica, wish)
            case Truncate():
                self.spawn(self._truncate(replica, wish))
            case ProposeIsr():
                asking = replica in self._asking
                self._asking[replica] = wish
                if not asking:
                    self.spawn(self._propose(replica))
            case LogStartMoved():
                self.log_start_moved(replica)

    # -- who is followed

    def _follow(self, replica: Replica, wish: Follow) -> None:
        before = self._followed.pop(replica, None)
        if before is not None and before.node_id != wish.leader:
            before.unfollow(replica)
        if wish.leader == NOBODY or replica.closed:
            if before is not None:
                before.unfollow(replica)
            return
        leader = self._leaders.get(wish.leader)
        if leader is None:
            leader = self._leaders[wish.leader] = _Leader(self, wish.leader)
            self.spawn(leader.run())
        self._followed[replica] = leader
        leader.follow(replica, wish.leader_epoch)

    def still(self, replica: Replica, leader: int, leader_epoch: int) -> bool:
        """Whether this broker follows that leader in that epoch."""
        machine = replica.machine
        return (
            machine.role is Role.FOLLOWER
            and machine.leader == leader
            and machine.leader_epoch == leader_epoch
            and not replica.log.closed
            and replica in self._followed
        )

    # -- logs

    async def settle(self, replica: Replica, leader_epoch: int) -> None:
        """Have everything held that is in the log, and go on from there."""
        partition_log = replica.log
        try:
            while not replica.closed and partition_log.held_offset < partition_log.log_end_offset:
                pending = partition_log.flusher.next_round()
                await (asyncio.sleep(AGAIN_S / 100) if pending.done() else asyncio.shield(pending))
        except KafkaStorageError as error:  # the folder has failed: the broker stops
            log.error("copies cannot be made durable", partition=str(partition_log.topic_partition), reason=str(error))
            return
        leader = self._followed.get(replica)
        if leader is not None and not replica.log.closed:
            leader.note_held(replica, leader_epoch)

    def log_start_moved(self, replica: Replica) -> None:
        """Tell the leader of a replica, if it has one, where its log begins, once that is durable."""
        if replica not in self._followed:
            return
        self._begun[replica] = None
        if not self._writing:
            self._writing = True
            self.spawn(self._tell_log_starts())

    async def _tell_log_starts(self) -> None:
        logs = self.around.logs
        while self._begun:
            begun, self._begun = {replica: replica.log_start_offset for replica in self._begun}, {}
            if any(logs.durable_start(replica.log) < start for replica, start in begun.items()):
                await logs.checkpoint()
            unwritten: dict[Replica, None] = {}
            for replica, start in begun.items():
                leader = self._followed.get(replica)
                if leader is None or replica.closed:
                    continue
                leader.note_log_start(replica)
                if logs.durable_start(replica.log) < min(start, replica.log_start_offset):  # it may have moved on
                    unwritten[replica] = None
            self._begun |= unwritten
            if unwritten:  # there is no room on the disk
                await asyncio.sleep(AGAIN_S)
        self._writing = False

    async def _truncate(self, replica: Replica, wish: Truncate) -> None:
        leader_epoch, leader = replica.machine.leader_epoch, replica.machine.leader
        name, partition_log = str(replica.log.topic_partition), replica.log
        if wish.lost:
            log.error("committed records are cut off: an unclean election", partition=name, records=wish.lost)
        while self.still(replica, leader, leader_epoch):
            try:
                await self.around.logs.truncate(partition_log, wish.offset, unclean=wish.lost > 0)
            except OffsetOutOfRange:
                if wish.offset >= partition_log.segments[0].base_offset:
                    log.exception("the log cannot be cut", partition=name, offset=wish.offset)
                    await asyncio.sleep(AGAIN_S)
                    continue
                await self.begin_anew(replica, leader, leader_epoch, wish.offset)
                return
            except KafkaError as error:
                log.warning("the log's end is not cut off yet", partition=name, offset=wish.offset, reason=str(error))
                await asyncio.sleep(AGAIN_S)
            else:
                await self.settle(replica, leader_epoch)
                return

    async def begin_anew(self, replica: Replica, leader: int, leader_epoch: int, offset: int) -> None:
        """Throw the log away and begin at `offset`, with a new replica that follows by itself."""
        name, partition_log = replica.log.topic_partition, replica.log
        while self.still(replica, leader, leader_epoch):
            try:
                await self.around.logs.begin_anew(partition_log, offset)
            except KafkaError as error:
                log.error("the log is not begun anew yet", partition=str(name), reason=str(error))
                if partition_log.closed:
                    break  # it has none now, and gets one as every partition that lacks one
                await asyncio.sleep(AGAIN_S)
        topic = self.around.topic(name.topic)
        if topic is not None:
            self.around.replicas.assign(topic)

    # -- the leader's duties

    async def _propose(self, replica: Replica) -> None:
        """Ask for the ISR that the machine wants, until it wants that no more."""
        while (wish := self._asking.get(replica)) is not None:
            granted = True
            name = str(replica.log.topic_partition)
            try:
                granted = await self.around.alter_partition(replica, wish)
            except Exception as error:
                if isinstance(error, KafkaError | ConnectionError | TimeoutError):
                    log.warning("ISR not changed yet", partition=name, reason=str(error))
                else:  # a bug: it keeps nothing else from being copied
                    log.exception("ISR not changed yet", partition=name)
                await asyncio.sleep(AGAIN_S)
                if replica.machine.proposal is wish:
                    continue
            if not granted:  # whatever it asks for instead comes next
                replica.take(replica.machine.refused(wish.partition_epoch, replica.log.log_end_offset))
            if self._asking[replica] is wish:
                del self._asking[replica]

    async def _tick_for_ever(self) -> None:
        replicas = self.around.replicas
        while True:
            try:
                async with asyncio.timeout(replicas.lag_max_ms / 2000):
                    await replicas.somebody_may_join.wait()
            except TimeoutError:
                pass
            replicas.somebody_may_join.clear()
            turns = Turns(self.around.clock.monotonic)
            for replica in replicas:
                if replica.machine.leads and len(replica.machine.replicas) > 1 and not replica.closed:
                    replica.take(replica.machine.tick(self.now_ms(), replica.log.log_end_offset, replicas.asking))
                await turns.give_way()


class _Leader:
    """One leader: its machine, its connection, its task."""

    def __init__(self, fetchers: ReplicaFetchers, node_id: int) -> None:
        self.node_id = node_id
        self._fetchers = fetchers
        self._machine = LeaderFetches(fetchers.around.node_id, fetchers.settings)
        self._replicas: dict[Key, Replica] = {}
        self._keys: dict[Replica, Key] = {}  # the same the other way round
        self._doubted: set[Replica] = set()  # they are damaged, and the leader is asked what it has
        self._connection: Connection | None = None
        self._woken = asyncio.Event()

    # -- who is followed

    def follow(self, replica: Replica, leader_epoch: int) -> None:
        """Fetch a partition from here."""
        key = key_of(replica)
        if not len(self._machine):
            self._note_heard()
        before = self._replicas.get(key)
        if before is not None:  # it may be of a log that was thrown away
            del self._keys[before]
        self._replicas[key], self._keys[replica] = replica, key
        self._machine.follow(key, replica.log.topic_partition, leader_epoch)
        if replica.log.cutting:  # for the leader before; whoever does it tells when it is done
            self._machine.away(key)
        if any(segment.damaged for segment in replica.log.segments):
            log.error("this copy is damaged", partition=str(replica.log.topic_partition), leader=self.node_id)
            if not replica.counted_on and not replica.told:
                self._doubted.add(replica)
        self._fetchers.spawn(self._settle_new(replica, leader_epoch))

    async def _settle_new(self, replica: Replica, leader_epoch: int) -> None:
        while replica.log.cutting:  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(AGAIN_S / 20)
        await self._fetchers.settle(replica, leader_epoch)

    def unfollow(self, replica: Replica) -> None:
        """Fetch a partition from here no more."""
        self._doubted.discard(replica)
        key = self._keys.pop(replica, None)
        if key is not None:
            del self._replicas[key]
            self._machine.unfollow(key)
            self._woken.set()

    def failing_since_ms(self, replica: Replica) -> int | None:
        """As its fetches are."""
        return self._machine.failing_since_ms(key_of(replica))

    def note_held(self, replica: Replica, leader_epoch: int) -> None:
        """Nothing of a partition waits for the disk: go on from where it is."""
        partition_log, key = replica.log, self._keys.get(replica)
        offset = partition_log.held.offset
        if key is None or offset != partition_log.log_end_offset:
            return
        if self._doubted and replica in self._doubted:
            held = Held(offset=0, last_epoch=-1, log_start=0, high_watermark=0)
        else:
            replica.told = True
            log_start = self._fetchers.around.logs.durable_start(partition_log)
            if log_start < partition_log.log_start_offset:
                self._fetchers.log_start_moved(replica)
            held = new_tuple(Held, (offset, partition_log.epochs.latest, log_start, replica.high_watermark))
        actions = self._machine.held(key, leader_epoch, held)
        if actions:
            self._report(actions)
        self._woken.set()

    def note_log_start(self, replica: Replica) -> None:
        """It is written down where the log of a replica begins."""
        key = self._keys.get(replica)
        if key is not None and replica not in self._doubted:
            self._machine.begins(key, self._fetchers.around.logs.durable_start(replica.log))

    # -- the connection

    async def run(self) -> None:
        """Ask and take what is answered, for ever."""
        fetchers, machine = self._fetchers, self._machine
        around = fetchers.around
        try:
            while True:
                self._woken.clear()
                if fetchers.throttle.owes:
                    self._hold_back()
                request = machine.next_request(fetchers.now_ms(), around.broker_epoch())
                if request is None:
                    await self._wait()
                    continue
                try:
                    address, connection = around.address_of(self.node_id), self._connection
                    if connection is None or connection.address != address or not connection.usable:
                        connection = await self._connect(address)
                    response = await connection.request(
                        ApiKey.FETCH, request, FetchResponse, timeout_ms=request.max_wait_ms + SOCKET_TIMEOUT_MS
                    )
                except (ConnectionFailed, KafkaError) as error:
                    self._close()
                    self._report(machine.failed(str(error), fetchers.now_ms()))
                else:
                    try:
                        await self._do(machine.answered(response, self._note_heard()))
                    except Exception:  # a bug about one partition, or one leader, keeps no other from being copied
                        self._begin_again()
        finally:
            self._close()

    def _note_heard(self) -> int:
        """The leader is there, now: returns when that is."""
        now_ms = self._fetchers.around.replicas.heard_ms[self.node_id] = self._fetchers.now_ms()
        return now_ms

    def _begin_again(self) -> None:
        log.exception("an answer was not taken to its end", leader=self.node_id)
        self._close()
        self._report(self._machine.failed("see the error before", self._fetchers.now_ms()))
        for replica in list(self._replicas.values()):
            self.follow(replica, replica.machine.leader_epoch)

    async def _connect(self, address: Address | None) -> Connection:
        if address is None:
            raise ConnectionFailed(Address(f"broker {self.node_id}", 0), "it is not registered")
        self._close()
        around = self._fetchers.around
        client_id = f"broker-{around.node_id}-fetcher-{self.node_id}"
        self._connection = await Connection.open(
            address, client_id=client_id, dialer=around.dialer, request_timeout_ms=SOCKET_TIMEOUT_MS
        )
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _wait(self) -> None:
        due_ms = self._machine.next_deadline_ms()
        if not len(self._machine):
            self._close()
        if due_ms is None:
            await self._woken.wait()
            return
        try:
            async with asyncio.timeout(max(due_ms - self._fetchers.now_ms(), 1) / 1000):
                await self._woken.wait()
        except TimeoutError:
            return

    def _hold_back(self) -> None:
        throttle, now_ms = self._fetchers.throttle, self._fetchers.now_ms()
        self._machine.rested(now_ms)
        for key in list(self._machine.ready):
            replica = self._replicas[key]
            pause_ms = throttle.pause_ms(*replica.log.topic_partition, now_ms)
            if pause_ms > 0 and self._fetchers.around.node_id not in replica.machine.isr:
                self._machine.hold_back(key, now_ms + min(pause_ms, THROTTLE_LOOK_MS))

    # -- answers

    async def _do(self, actions: list[Action]) -> None:
        turns = Turns(self._fetchers.around.clock.monotonic) if len(actions) > 1 else None  # else it has one
        stored: list[tuple[Replica, int]] = []
        for action in actions:
            if turns is not None:
                await turns.give_way()
            if isinstance(action, Report):
                self._report([action])
                continue
            replica = self._replicas.get(action.key)
            if replica is None or not self._fetchers.still(replica, self.node_id, action.leader_epoch):
                continue
            match action:
                case Copied() if replica in self._doubted:
                    await self._rebuild(replica, action)
                case Copied():
                    self._take(replica, action)
                    if action.records:
                        stored.append((replica, action.leader_epoch))
                case Parted():
                    self._part(replica, action)
                case BeginAnew():
                    self._begin_anew(replica, action)
        for replica, leader_epoch in stored:
            if replica.log.held.offset < replica.log.log_end_offset:
                await self._fetchers.settle(replica, leader_epoch)
            else:  # it need not wait for the disk
                self.note_held(replica, leader_epoch)

    def _take(self, replica: Replica, copied: Copied) -> None:
        """Store what has come and take note of what the leader says."""
        partition_log, records = replica.log, copied.records
        if records:
            try:
                partition_log.append_at(copied.offset, records, now_ms=self._fetchers.around.clock.now_ms())
            except KafkaError as error:
                self._refuse(replica, copied.leader_epoch, f"cannot store what the leader sends: {error}")
                return
            throttle = self._fetchers.throttle
            if throttle is not UNTHROTTLED and self._fetchers.around.node_id not in replica.machine.isr:
                throttle.note(*partition_log.topic_partition, len(records), self._fetchers.now_ms())
        replica.take(
            replica.machine.answered(
                copied.leader_epoch,
                high_watermark=copied.high_watermark,
                divergence=None,
                epochs=partition_log.epochs,
                log_end=partition_log.log_end_offset,
            )
        )
        if copied.log_start > partition_log.log_start_offset:
            partition_log.advance_log_start(min(copied.log_start, partition_log.committed_offset))

    async def _rebuild(self, replica: Replica, copied: Copied) -> None:
        """Have a damaged copy anew, if the leader has something to copy; else what is here is all there is."""
        self._doubted.discard(replica)
        if replica.counted_on or copied.high_watermark <= copied.log_start:
            await self._fetchers.settle(replica, copied.leader_epoch)
            return
        log.warning("a damaged copy is thrown away, to be fetched anew", partition=str(replica.log.topic_partition))
        self._away(replica, copied.leader_epoch, copied.log_start)

    def _part(self, replica: Replica, parted: Parted) -> None:
        actions = replica.machine.answered(
            parted.leader_epoch,
            high_watermark=0,
            divergence=parted.divergence,
            epochs=replica.log.epochs,
            log_end=replica.log.log_end_offset,
        )
        if actions:
            replica.take(actions)
        elif replica.log_start_offset == replica.log_end_offset and not replica.counted_on:
            self._away(replica, parted.leader_epoch, 0)  # it is empty, and only its epochs are others
        else:
            self._refuse(replica, parted.leader_epoch, f"the logs part, and nothing is to be cut: {parted.divergence}")

    def _begin_anew(self, replica: Replica, begin: BeginAnew) -> None:
        if replica.counted_on and replica.log.size_bytes:
            reason = f"the leader begins at {begin.offset}, beyond this copy, which may lead as far as is known"
            self._refuse(replica, begin.leader_epoch, reason)
            return
        self._away(replica, begin.leader_epoch, begin.offset)

    def _away(self, replica: Replica, leader_epoch: int, offset: int) -> None:
        self._machine.away(key_of(replica))
        self._fetchers.spawn(self._fetchers.begin_anew(replica, self.node_id, leader_epoch, offset))

    def _refuse(self, replica: Replica, leader_epoch: int, reason: str) -> None:
        self._report(self._machine.refused(key_of(replica), leader_epoch, reason, self._fetchers.now_ms()))

    def _report(self, actions: list[Action]) -> None:
        for action in actions:
            if not isinstance(action, Report):
                continue
            about = {} if action.partition is None else {"partition": str(action.partition)}
            if action.reason:
                log.warning("copying waits", leader=self.node_id, reason=action.reason, **about)
            else:
                log.info("copying goes on", leader=self.node_id, **about)
