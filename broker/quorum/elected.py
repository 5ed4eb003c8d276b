"""One member of a quorum of several, at work

`raft` decides; here its log, its clock and its peers are real. One event is taken in at a time, and all that is to be
done about it is done before the next one, in the machine's order: what has to be on the disk before something is said
is there. Only what a leader writes itself is synced beside that, so that its followers have it meanwhile; and other
voters take their turn among the decisions of the controller, which count on the offsets that they will have.

What is committed goes to the controller of this node: its own decisions as answers to `commit`, those of another one as
`Follower.follow`. This node is active, and decides, once it leads and knows all that was committed before it.

A disk that fails ends the node; one that is full lets a follower fall behind and a leader step down.
"""

import asyncio
import random
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

import structlog

from tidemill.broker.log.epochs import LeaderEpochs
from tidemill.broker.quorum.control import KRaftVersion, LeaderChange, Voters
from tidemill.broker.quorum.disk_thread import DiskThread
from tidemill.broker.quorum.election_state import ElectionStateFile
from tidemill.broker.quorum.incoming import IncomingSnapshot
from tidemill.broker.quorum.log_batches import FetchedDataRefused, decode_log
from tidemill.broker.quorum.member import QuorumReplica, QuorumState
from tidemill.broker.quorum.own_time import OwnTime
from tidemill.broker.quorum.raft.actions import (
    Action,
    Append,
    AppendLeaderChange,
    AppendVoters,
    BeginSnapshot,
    InstallSnapshot,
    Persist,
    Remember,
    Reply,
    ReplyWithRecords,
    ReplyWithSnapshot,
    Send,
    StoreSnapshot,
    Truncate,
)
from tidemill.broker.quorum.raft.events import (
    Answered,
    AppendRefused,
    Event,
    Failed,
    LogChanged,
    Received,
    Resign,
    SnapshotInstalled,
    SnapshotRefused,
    Tick,
    VotersChanged,
)
from tidemill.broker.quorum.raft.leadership import Progress, observers
from tidemill.broker.quorum.raft.log_view import NO_EPOCH
from tidemill.broker.quorum.raft.machine import CommittedDataLost, QuorumMachine
from tidemill.broker.quorum.raft.messages import Response
from tidemill.broker.quorum.raft.settings import QuorumSettings
from tidemill.broker.quorum.raft.voter_history import BOOTSTRAPPED
from tidemill.broker.quorum.raft.voters import Voter, VoterEndpoint, VoterSet
from tidemill.broker.quorum.raft.wire import answer_from_wire, answer_to_wire, request_from_wire, request_to_wire
from tidemill.broker.quorum.records import MetadataFormatError, MetadataRecord
from tidemill.broker.quorum.snapshot import SnapshotId
from tidemill.broker.quorum.store import MetadataStore, MetadataStoreError
from tidemill.broker.quorum.transport import Transport, Unreachable
from tidemill.core.client.connection import Address
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import CorruptMessage, KafkaError, NotController, OffsetOutOfRange, SnapshotNotFound
from tidemill.core.runtime.clock import Clock
from tidemill.core.runtime.disk import DISK_FULL
from tidemill.core.wire.message import Message

log = structlog.get_logger("tidemill.broker.quorum")

READ_BYTES: Final = 2**20
"""So much of the log is taken in at once when another has decided."""


FLOOR_INTERVAL_MS: Final = 1_000
"""How often it is made durable how much of the log is: a power cut may cost the memory of this long."""


class Follower(Protocol):
    """Who takes in what is committed; the controller."""

    def follow(self, batches: Iterable[Sequence[MetadataRecord]], offset_end: int) -> None:
        """Decisions of another node, and all there is up to that offset."""

    def begin_anew(self, batches: Iterable[Sequence[MetadataRecord]], offset_end: int) -> None:
        """A snapshot, which holds all there is up to that offset."""

    async def interpose(self, count: int, write: Callable[[], Awaitable[int]]) -> None:
        """Have `write` put so many records behind all decisions that count on an offset, and return when it has.

        Raises KafkaError where that is not done, NotController where this node does not decide.
        """


class StoredLog:
    """The store as the machine looks at it."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    @property
    def offset_end(self) -> int:
        """Where the next entry goes."""
        return self._store.offset_end

    @property
    def durable_end(self) -> int:
        """All below survives a power cut."""
        return self._store.durable_end

    @property
    def log_start_offset(self) -> int:
        """The first entry that is there."""
        return self._store.log_start_offset

    @property
    def log_start_epoch(self) -> int:
        """The epoch of the entry before the first."""
        start = self._store.log_start_offset
        return self._store.epochs.epoch_at(start - 1) if start else NO_EPOCH

    @property
    def epochs(self) -> LeaderEpochs:
        """Epoch -> first offset."""
        return self._store.epochs

    @property
    def snapshot_id(self) -> SnapshotId | None:
        """The newest snapshot that is whole."""
        return self._store.snapshot

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        """How many bytes it has; None if it is not there."""
        try:
            return self._store.read_snapshot(snapshot_id, 0, 0)[1]
        except (KafkaError, OSError):
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a member is: its node, its cluster, the folder that holds its log, and where it listens for the others."""

    node_id: int
    cluster_id: str
    directory_id: uuid.UUID
    endpoints: tuple[VoterEndpoint, ...] = ()


class Elected:
    """Satisfies `tidemill.broker.quorum.member.Member`; `run` and `serve` are the owner's to call."""

    def __init__(
        self,
        store: MetadataStore,
        election: ElectionStateFile,
        transport: Transport,
        follower: Follower,
        *,
        identity: Identity,
        clock: Clock,
        thread: DiskThread,
        voters: VoterSet,
        bootstrap: Sequence[tuple[str, int]] = (),
        settings: QuorumSettings,
        chance: random.Random,
        on_failure: Callable[[OSError], None] = lambda _error: None,
    ) -> None:
        """`store` is loaded; `voters` are those that are configured. Raises MetadataCorruptError, OSError."""
        self._store = store
        self._election = election
        self._transport = transport
        self._identity = identity
        self._clock = clock
        self._time = OwnTime(clock, again_ms=2 * settings.fetch_wait_max_ms)  # by then a leader has answered
        self._thread = thread
        self._settings = settings
        self._on_failure = on_failure
        self._follower = follower
        self.machine = QuorumMachine(
            node_id=identity.node_id,
            cluster_id=identity.cluster_id,
            election=election.load(store.epochs.latest),
            log=StoredLog(store),
            voters=voters,
            settings=settings,
            rng=chance,
            now_ms=self._time.now_ms(),
            directory_id=identity.directory_id,
            endpoints=identity.endpoints,
            bootstrap=bootstrap,
            has_forgotten=store.has_forgotten,
        )
        self._events: deque[Event] = deque(
            VotersChanged(offset=offset, voters=each) for offset, each in store.voter_sets
        )
        self._arrived = asyncio.Event()
        self._turn = asyncio.Lock()  # of whoever changes the files of the log
        self._incoming: IncomingSnapshot | None = None
        self._asked: dict[int, asyncio.Future[Response]] = {}
        self._tokens = 0
        self._tasks: asyncio.TaskGroup
        self._floor_end, self._floor_due_ms = store.durable_end, 0
        self._applied = store.log_start_offset
        self._active_in = -1  # the epoch in which this node decides
        self._committing: tuple[int, asyncio.Future[None]] | None = None
        self._heard = asyncio.Event()  # whoever waited for that knows of it
        self._changed = asyncio.Event()  # role, leader or high watermark
        self.is_taken_for_leader = False
        """Whether others say that this node leads, which it does not: for long only where another has its id."""
        self.unreached: dict[int, str] = {}
        """Why a node has not answered the last request, or not as one of this cluster; by its id as in `Send`."""

    # -- what holds now

    @property
    def leads(self) -> bool:
        """Whether this node is the active controller."""
        return self._active_in >= 0

    @property
    def leader_id(self) -> int:
        """The node that leads as far as is known here, -1 if none does."""
        return self.machine.leader_id

    @property
    def leader_address(self) -> Address | None:
        """Where the active controller answers."""
        end_points = self.machine.leader_endpoints
        return Address(end_points[0].host, end_points[0].port) if end_points else None

    @property
    def applied(self) -> int:
        """Up to here the controller of this node knows what is committed."""
        return self._applied

    def state(self) -> QuorumState:
        """Who agrees, and how far each is; a node that does not lead knows of itself only."""
        machine, me = self.machine, self._identity.node_id
        known = dict(machine.replicas)
        now_ms = self._clock.now_ms()
        ahead_ms = now_ms - self._time.now_ms()  # from the machine's time to that of day

        def replica(node_id: int, directory_id: uuid.UUID) -> QuorumReplica:
            place = Voter(node_id=node_id, directory_id=directory_id)
            if node_id == me and place.is_at(machine.directory_id):
                return QuorumReplica(
                    node_id=me,
                    log_end_offset=self._store.offset_end,
                    directory_id=directory_id,
                    last_fetch_ms=now_ms if machine.leads else -1,
                    last_caught_up_ms=now_ms if machine.leads else -1,
                )
            found: Progress | None = known.get(node_id)
            if found is None or not place.is_at(found.directory_id):  # with another folder it is another member
                return QuorumReplica(node_id=node_id, log_end_offset=-1, directory_id=directory_id)
            return QuorumReplica(
                node_id=node_id,
                log_end_offset=found.end,
                directory_id=directory_id,
                last_fetch_ms=found.fetched_ms + ahead_ms if found.fetched_ms >= 0 else -1,
                last_caught_up_ms=found.caught_up_ms + ahead_ms if found.caught_up_ms >= 0 else -1,
            )

        voters = tuple(
            replace(replica(each.node_id, each.directory_id), end_points=each.endpoints) for each in machine.voters
        )
        others = observers(known.values(), machine.voters, self._time.now_ms() - self._settings.observer_session_ms)
        return QuorumState(
            leader_id=machine.leader_id,
            leader_epoch=machine.epoch,
            high_watermark=machine.high_watermark,
            voters=voters,
            observers=tuple(replica(each.node_id, each.directory_id) for each in others),
        )

    async def changed(self) -> None:
        """Return when the role, the leader or what is committed may be other than before."""
        await self._changed.wait()

    # -- deciding

    async def commit(self, records: Sequence[MetadataRecord]) -> int:
        """Return when `records` are committed, and the offset behind them.

        Raises MetadataStoreError and MetadataUnwritable when the log did not take them, NotController.
        """
        return await self._commit(
            lambda: self._store.append(records, self._clock.now_ms(), epoch=self._active_in), self._active_in
        )

    async def _commit(self, append: Callable[[], int], epoch: int) -> int:
        async with self._turn:
            if not self._still_decides() or epoch != self._active_in:
                raise self._another_decides()
            end = append()
            outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._committing, self._heard = (end, outcome), asyncio.Event()
            self._put(LogChanged())
            try:
                await self._thread.run(self._store.sync)
                self._put(LogChanged())
            except BaseException:
                self._heard.set()
                raise
        try:
            await outcome
        finally:
            self._heard.set()  # the caller goes on in this turn of the event loop, before what comes behind is told
        return end

    def _another_decides(self) -> NotController:
        who = f"node {self.leader_id} is" if self.leader_id >= 0 else "no node is, for now,"
        return NotController(f"{who} the active controller")

    async def change_voters(self, message: Message) -> Message:
        """The answer to a client that wants other voters; raises NotController, InvalidRequest."""
        answer: Any = await self.serve(message)
        if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise self._another_decides()
        changed: Message = answer
        return changed

    def still(self) -> asyncio.Lock:
        """Held, it keeps the files of the log as they are."""
        return self._turn

    def resign(self, successor: int | None = None) -> None:
        """Lead no more, if this node does."""
        self._put(Resign(successor=successor))

    # -- being asked

    async def serve(self, message: Message) -> Message:
        """The answer to one of `raft.wire.REQUESTS`; raises InvalidRequest."""
        request = request_from_wire(message)
        self._tokens += 1
        token = self._tokens
        answer = self._asked[token] = asyncio.get_running_loop().create_future()
        self._put(Received(token=token, request=request))
        try:
            return answer_to_wire(request, await answer)
        finally:
            self._asked.pop(token, None)

    # -- one event after the other

    async def run(self) -> None:
        """Take part in the quorum until cancelled.

        Raises CommittedDataLost, and MetadataFormatError where others have written what this version cannot read.
        """
        self._put(Tick())
        try:
            async with asyncio.TaskGroup() as self._tasks:
                while True:
                    await self._take(await self._next_event())
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            self._stop_deciding()

    def _put(self, event: Event) -> None:
        self._events.append(event)
        self._arrived.set()

    async def _next_event(self) -> Event:
        stood_still = False
        while not self._events:
            self._arrived.clear()
            try:
                async with asyncio.timeout(self._time.listen(self.machine.next_deadline_ms())):
                    await self._arrived.wait()
            except TimeoutError:
                if self._time.is_over(late_too=stood_still):
                    return Tick()
                stood_still = True
        self._time.work()
        return self._events.popleft()

    async def _take(self, event: Event) -> None:
        try:
            for action in self.machine.step(event, self._time.now_ms()):
                await self._do(action)
            if self._floor_end != self._store.durable_end and self._time.now_ms() >= self._floor_due_ms:
                self._floor_end, self._floor_due_ms = self._store.durable_end, self._time.now_ms() + FLOOR_INTERVAL_MS
                await self._thread.run(self._store.sync_floor)
            await self._settle()
        except CommittedDataLost as error:
            log.error("this node's metadata log and the leader's contradict each other", reason=str(error))
            raise
        except (OSError, CorruptMessage) as error:
            log.error("the metadata log cannot be used", reason=str(error))
            self._on_failure(error if isinstance(error, OSError) else OSError(str(error)))
            raise

    async def _do(self, action: Action) -> None:
        match action:
            case Persist():
                await self._thread.run(lambda: self._election.store(action.state))
                log.info("epoch of the metadata quorum", epoch=action.state.epoch, leader=action.state.leader_id)
            case Remember():
                await self._thread.run(self._store.remember)
                log.info(
                    "the metadata log has again what is committed: this node votes", offset=self._store.durable_end
                )
            case Send():
                self._tasks.create_task(self._ask(action))
            case Reply():
                self._answer(action.token, action.response)
            case ReplyWithRecords() | ReplyWithSnapshot():
                await self._answer_from_disk(action)
            case Append():
                await self._append_fetched(action.records)
            case Truncate():
                async with self._turn:
                    log.warning("metadata log cut, its end was never committed", at=action.offset)
                    await self._thread.run(lambda: self._store.truncate(action.offset))
                self._put_first(LogChanged())
            case AppendLeaderChange():
                await self._append_leader_change(action)
            case AppendVoters():
                await self._append_voters(action)
            case BeginSnapshot() | StoreSnapshot() | InstallSnapshot():
                await self._receive_snapshot(action)

    def _put_first(self, *events: Event) -> None:
        """What the log has become is heard before anything else that has come meanwhile."""
        self._events.extendleft(reversed(events))
        self._arrived.set()

    def _answer(self, token: object, response: Response) -> None:
        waiting = self._asked.get(token) if isinstance(token, int) else None
        if waiting is not None and not waiting.done():
            waiting.set_result(response)

    async def _answer_from_disk(self, action: ReplyWithRecords | ReplyWithSnapshot) -> None:
        """What was promised may be gone: snapshots are written meanwhile. Who asks again is told what there is now."""
        answer: Response
        try:
            match action:
                case ReplyWithRecords(offset=offset, bytes_max=size):
                    data = await self._thread.run(lambda: self._store.read(offset, size))
                    answer = replace(action.response, records=data)
                case ReplyWithSnapshot(snapshot_id=which, position=position, bytes_max=size):
                    data, _total = await self._thread.run(lambda: self._store.read_snapshot(which, position, size))
                    answer = replace(action.response, data=data)
        except (OffsetOutOfRange, SnapshotNotFound) as error:
            answer = replace(action.response, error=ErrorCode(error.code))
        self._answer(action.token, answer)

    # -- asking

    async def _ask(self, action: Send) -> None:
        timeout_s = (self._settings.request_timeout_ms + self._settings.fetch_wait_max_ms) / 1000
        try:
            if not action.endpoints:
                raise Unreachable(Address("?", 0), f"no address of node {action.node_id} is known")
            where = Address(action.endpoints[0].host, action.endpoints[0].port)
            message = await self._transport.call(where, request_to_wire(action.request), timeout_s=timeout_s)
            response = answer_from_wire(action.request, message)
            self._note_stranger(action.node_id, where, response)
            self.is_taken_for_leader = response.leader_id == self._identity.node_id and not self.machine.leads
            self._put(Answered(request_id=action.request_id, response=response))
        except (Unreachable, KafkaError) as error:
            log.debug("no answer of a member of the quorum", node_id=action.node_id, reason=str(error))
            self.unreached[action.node_id] = str(error)
            refused = isinstance(error, Unreachable) and error.refused
            self._put(Failed(request_id=action.request_id, refused=refused))
        except Exception:  # a bug: whatever it is, the machine has to hear that there is no answer
            log.exception("a request to a member of the quorum failed", node_id=action.node_id)
            self._put(Failed(request_id=action.request_id))

    def _note_stranger(self, node_id: int, where: Address, response: Response) -> None:
        if response.error != ErrorCode.INCONSISTENT_CLUSTER_ID:
            self.unreached.pop(node_id, None)
            return
        reason = (
            f"{where}: a node of another cluster than {self._identity.cluster_id} answers there: is that the address "
            "of a controller of this one, and cluster.id the same on all nodes?"
        )
        if self.unreached.get(node_id) != reason:
            log.warning("no member of this quorum", node_id=node_id, reason=reason)
        self.unreached[node_id] = reason

    # -- the log

    async def _append_fetched(self, data: bytes) -> None:
        known = len(self._store.voter_sets)

        def append() -> None:
            self._store.append_fetched(data)
            self._store.sync()

        async with self._turn:
            try:
                await self._thread.run(append)
            except FetchedDataRefused as error:
                log.error("metadata that the leader sent cannot be stored", reason=str(error))
                self._put_first(AppendRefused())
                return
            except MetadataStoreError as error:
                self._tolerate(error)
                self._put_first(AppendRefused())
                return
        self._put_first(*self._new_voters(known), LogChanged())

    def _new_voters(self, known: int) -> list[VotersChanged]:
        return [VotersChanged(offset=offset, voters=each) for offset, each in self._store.voter_sets[known:]]

    def _tolerate(self, error: MetadataStoreError) -> None:
        """A disk that is full is waited for; raises what ends the node."""
        if self._store.failure is not None or error.errno not in DISK_FULL:
            raise error
        log.error("no room for the metadata log: this node falls behind until there is", reason=str(error))

    async def _append_leader_change(self, action: AppendLeaderChange) -> None:
        change = LeaderChange(
            leader_id=action.leader_id, voters=action.voters, granting_voters=action.granting_voters
        )  # fmt: skip
        await self._append_control((change,), action.epoch)

    async def _append_voters(self, action: AppendVoters) -> None:
        """Write them: now, or where this node decides when what is decided so far has the offsets it counts on."""
        voters = Voters(voters=action.voters)
        known = len(self._store.voter_sets)
        told = self._store.kraft_version and self.machine.voters_offset != BOOTSTRAPPED  # else by no log, if at all
        records = (voters,) if told else (KRaftVersion(version=1), voters)
        if self.leads:
            self._tasks.create_task(self._interpose(records, action.epoch))
        elif await self._append_control(records, action.epoch):
            self._put_first(*self._new_voters(known), LogChanged())

    async def _interpose(self, records: Sequence[KRaftVersion | Voters], epoch: int) -> None:
        def append() -> int:
            known = len(self._store.voter_sets)
            end = self._store.append_control(records, self._clock.now_ms(), epoch=epoch)
            self._put_first(*self._new_voters(known), LogChanged())  # ahead of whatever else sees them in the log
            return end

        try:
            await self._follower.interpose(len(records), lambda: self._commit(append, epoch))
        except NotController:
            return  # and who leads by now knows whether they are in its log
        except KafkaError as error:
            log.error("other voters cannot be written: this node leads no more", reason=str(error))
            self._put(Resign())

    async def _append_control(self, records: Sequence[LeaderChange | KRaftVersion | Voters], epoch: int) -> bool:
        def append() -> None:
            self._store.append_control(records, self._clock.now_ms(), epoch=epoch)
            self._store.sync()

        async with self._turn:
            try:
                await self._thread.run(append)
            except MetadataStoreError as error:
                self._tolerate(error)
                self._put_first(Resign())
                return False
        self._put_first(LogChanged())
        return True

    # -- snapshots

    async def _receive_snapshot(self, action: BeginSnapshot | StoreSnapshot | InstallSnapshot) -> None:
        try:
            match action:
                case BeginSnapshot():
                    await self._discard_incoming()
                    log.info("fetching a snapshot of the metadata", offset_end=action.snapshot_id.offset_end)
                    self._incoming = await self._thread.run(lambda: self._store.receive(action.snapshot_id))
                case StoreSnapshot():
                    if self._incoming is not None:
                        incoming = self._incoming
                        await self._thread.run(lambda: incoming.add(action.position, action.data))
                case InstallSnapshot():
                    await self._install(action.snapshot_id)
        except (ValueError, OSError) as error:
            await self._discard_incoming()  # what fills the disk would stay on it
            if isinstance(error, MetadataFormatError):
                raise
            if isinstance(error, MetadataStoreError):
                self._tolerate(error)
            elif isinstance(error, OSError) and error.errno not in DISK_FULL:
                raise
            log.error("a snapshot of the metadata cannot be taken", reason=str(error))
            self._put_first(SnapshotRefused(snapshot_id=action.snapshot_id))

    async def _discard_incoming(self) -> None:
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            await self._thread.run(incoming.discard)

    async def _install(self, which: SnapshotId) -> None:
        incoming, self._incoming = self._incoming, None
        if incoming is None or incoming.id != which:
            self._put_first(SnapshotRefused(snapshot_id=which))
            return
        async with self._turn:
            await self._thread.run(lambda: self._store.install(incoming))
            batches = await self._thread.run(lambda: list(self._store.snapshot_records()))
        self._follower.begin_anew(batches, which.offset_end)
        self._applied = which.offset_end
        self._put_first(*self._new_voters(0), SnapshotInstalled(snapshot_id=which))

    # -- what is committed

    async def _settle(self) -> None:
        """Tell whoever has to hear it what the machine has come to."""
        machine = self.machine
        self._store.high_watermark = max(self._store.high_watermark, machine.high_watermark)
        if self._committing is not None and machine.high_watermark >= self._committing[0] and self._still_decides():
            end, outcome = self._committing
            self._committing, self._applied = None, end
            if not outcome.done():
                outcome.set_result(None)
            await self._heard.wait()
        if self.leads and not self._still_decides():
            self._stop_deciding()
        if not self.leads:
            await self._catch_up(machine.high_watermark)
            if machine.is_settled and self._applied == self._store.offset_end:
                self._active_in = machine.epoch
                log.info("this node is the active controller", epoch=machine.epoch, offset=self._applied)
        self._changed.set()
        self._changed.clear()

    def _still_decides(self) -> bool:
        return self.machine.leads and self.machine.epoch == self._active_in

    def _stop_deciding(self) -> None:
        self._active_in = -1
        if self._committing is not None:
            (_, outcome), self._committing = self._committing, None
            if not outcome.done():
                outcome.set_exception(self._another_decides())

    async def _catch_up(self, high_watermark: int) -> None:
        """Take in what others have decided."""
        while self._applied < high_watermark:
            data = await self._thread.run(partial(self._store.read, self._applied, READ_BYTES))
            committed = [each for each in decode_log(data) if each.offset_end <= high_watermark]
            if not committed:
                return
            self._follower.follow([each.records for each in committed if each.records], committed[-1].offset_end)
            self._applied = committed[-1].offset_end
