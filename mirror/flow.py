"""One flow at work: the machines of its partitions between two clusters

The shell around `tidemill.mirror.link`: it feeds each partition's machine with what happened and carries out what the
machine says. Reading is `fetching`, writing `producing`, log ends `locating`, topics `topic_sync`, the map `map_store`;
what is left here is one step of one machine, the queue of map writes, pauses, and taking new partitions on.

Everything runs on one event loop, so one turn of the loop is one step of one machine, and nothing needs a lock.

Of several mirrors with one configuration one is at work and the others stand by: a flow begins when nobody else holds
its map, and goes back to waiting when another one has taken the map over. It forgets everything then, since all that
counts is on the target. It begins anew in the same way, by itself, when the target was put back to an older state.
"""

import asyncio
import contextlib
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

import structlog

from tidemill.core.client.batches import EARLIEST
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import Connection, ConnectionFailed
from tidemill.core.client.metadata import NO_LEADER, ClusterView
from tidemill.core.client.retries import backoff_ms
from tidemill.core.errors import KafkaError, UnknownTopicOrPartition
from tidemill.core.runtime.clock import Clock
from tidemill.core.types import ZERO_UUID, TopicPartition
from tidemill.mirror.config import ClusterConfig, FlowConfig
from tidemill.mirror.fetching import Fetcher
from tidemill.mirror.identity import producer_id
from tidemill.mirror.link import PartitionLink, State
from tidemill.mirror.link_events import (
    Action,
    Event,
    Fetch,
    Fetched,
    Halted,
    LocateEpochEnd,
    LocateSource,
    LocateTarget,
    LogStartFound,
    Produce,
    Release,
    Report,
    RunsStored,
    Started,
    StoreFailed,
    StoreRuns,
    TargetUnbound,
    Wake,
    Woken,
)
from tidemill.mirror.locating import Locator
from tidemill.mirror.map_join import MapJoin
from tidemill.mirror.map_records import SegmentKey, SegmentValue, StoredMap, adopt
from tidemill.mirror.map_store import RENEW_MS, Fenced, MapStore, Row, SetBack, read_maps
from tidemill.mirror.memory import Memory
from tidemill.mirror.naming import offset_map_topic
from tidemill.mirror.offsets import Run
from tidemill.mirror.producing import Sender
from tidemill.mirror.topic_sync import TopicSync

T = TypeVar("T")

WAIT_S_MAX = 2  # until what is waited for is tried again: that it is over is told within seconds too
LET_GO_S = 2  # a target that is away does not hold up the end of the process


class Preflight(RuntimeError):
    """The flow must not be started; the message says why."""


class PartitionEntry:
    """One partition's machine and what the shell knows about it."""

    __slots__ = ("connection", "link", "source", "source_id", "target", "target_id", "target_node", "trouble")

    def __init__(
        self, source: TopicPartition, target: TopicPartition, ids: tuple[uuid.UUID, uuid.UUID], link: PartitionLink
    ) -> None:
        self.source = source
        self.target = target
        self.source_id, self.target_id = ids
        self.link = link
        self.target_node = NO_LEADER
        self.connection: Connection | None = None
        self.trouble = ""  # why the machine stumbled last; whoever looks at the health of the flow takes it away


class Flow:
    """All partitions that travel from one cluster to another."""

    def __init__(
        self,
        config: FlowConfig,
        source: ClusterClient,
        target: ClusterClient,
        source_config: ClusterConfig,
        clock: Clock,
        aliases: dict[str, str] | None = None,
    ) -> None:
        self.config = config
        self.source = source
        self.target = target
        self.entries: dict[TopicPartition, PartitionEntry] = {}  # by source partition
        self.ready = asyncio.Event()  # the map is read and the topics have been looked at, or another mirror does it
        self.standby = ""  # what is waited for, while another mirror is at work or before this one is again
        self.waiting = ""  # what the start waits for and why, empty when it does not
        self.on_set_back: list[Callable[[], None]] = []  # of those who remember what they wrote to the target
        self.topics = TopicSync(config, source, target)
        self._source_config = source_config
        self._aliases = {} if aliases is None else aliases  # of clusters by id, shared by the flows of a process
        self._clock = clock
        self._log = structlog.get_logger("tidemill.mirror").bind(flow=config.name)
        self._maps: dict[tuple[str, int], StoredMap] = {}
        self._store_wake = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._refresh_lock = asyncio.Lock()
        self._store_lock = asyncio.Lock()
        self._shift = 0  # grows with every time of being at work
        self._begin()

    # -- life

    def _begin(self) -> None:
        """Forget what belongs to an earlier time of being at work."""
        self._shift += 1
        self._bug: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # an end cancels it
        self._dropped = False  # partitions were given up whose map has to be read again
        self.gone: dict[str, str] = {}  # topics that are mirrored and are not there any more, with what is missing
        self.entries.clear()
        self._store_queue: list[tuple[PartitionEntry, StoreRuns]] = []
        self._memory = Memory()
        self._fetcher: Fetcher[PartitionEntry] = Fetcher(self.source, self._source_config, self.step, self._memory)
        self._locator: Locator[PartitionEntry] = Locator(self.source, self.target, self.step)
        self._senders: dict[int, Sender[PartitionEntry]] = {}

    async def run(self) -> None:
        """Mirror until cancelled, standing by while another mirror does."""
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    self._group = group
                    group.create_task(self._watch())
                    await self._work(group)
            except* Fenced as fenced:
                self._stand_by(str(fenced.exceptions[0]))
            except* SetBack as found:
                self._start_over(str(found.exceptions[0]))
            self._begin()

    async def _work(self, group: asyncio.TaskGroup) -> None:
        view = await self._until(self.target.refresh, f"cluster {self.config.target}")
        origin = await self._until(self.source.refresh, f"cluster {self.config.source}")
        self._check_clusters(origin, view)
        wanted = self.config.replication_factors["offset-map"]
        store = MapStore(
            self.target,
            source_alias=self.config.source,
            target_alias=self.config.target,
            clock=self._clock,
            replication_factor=self.topics.factor("the offset map", wanted, len(view.nodes)),
        )
        map_name = f"the offset map on {self.config.target}"
        await self._until(lambda: store.wait_for_turn(asyncio.sleep, self._stand_by), map_name)
        self._maps = await self._until(lambda: self._open(store), map_name)
        self.standby = ""
        group.create_task(self._run_store(store))
        group.create_task(self._locator.run())
        group.create_task(self._fetcher.run())
        await self._until(self.refresh_topics, f"the topics of {self.config.source}")
        self.ready.set()

    async def _open(self, store: MapStore) -> dict[tuple[str, int], StoredMap]:
        if store.has_let_go:  # it could not read what it held: another mirror may be at work since
            await store.wait_for_turn(asyncio.sleep, self._stand_by)
        return await store.open()

    def _stand_by(self, reason: str) -> None:
        """Another mirror is at work; this process is as ready as it can be."""
        self.waiting = ""
        self._log.warning("standing by", reason=reason)
        self.standby = reason
        self.entries.clear()
        self.ready.set()

    def _start_over(self, reason: str) -> None:
        """The target was put back to an older state: what is there counts, and nothing that is remembered."""
        what = f"cluster {self.config.target} was put back to an older state, beginning anew with what it holds"
        self._log.warning(what, reason=reason)
        self.standby = what  # until the map is read again, nothing is taken on
        for forget in self.on_set_back:
            forget()

    async def _watch(self) -> None:
        await self._bug

    def _check_clusters(self, source: ClusterView, target: ClusterView) -> None:
        """Refuse one cluster under two names: its topics would travel in circles that no topic's name shows."""
        ours: dict[str, str] = {}
        for alias, view in ((self.config.source, source), (self.config.target, target)):
            if view.cluster_id is None:
                continue
            known = self._aliases.get(view.cluster_id, ours.setdefault(view.cluster_id, alias))
            if known != alias:
                raise Preflight(
                    f"{self.config.name}: {known} and {alias} are the same cluster, {view.cluster_id}; "
                    "if they are two, one is a copy of the other's files: give it a new id"
                )
        self._aliases.update(ours)

    async def _until(self, attempt: Callable[[], Awaitable[T]], what: str) -> T:
        """Try until it works, saying once what is being waited for: a mirror may start before its clusters."""
        failures = 0
        while True:
            try:
                found = await attempt()
            except (ConnectionFailed, KafkaError) as error:
                failures += 1
                self.waiting = f"waiting for {what}: {error}"
                if failures == 1 or failures % 20 == 0:
                    self._log.warning(f"waiting for {what}", error=str(error))
            else:
                self.waiting = ""
                return found
            await asyncio.sleep(min(WAIT_S_MAX, backoff_ms(failures) / 1000))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        assert self._group is not None
        self._group.create_task(work)

    # -- one turn

    def step(self, entry: PartitionEntry, event: Event) -> None:
        """Feed one machine and carry out what it says; a bug in either ends the flow."""
        if self.entries.get(entry.source) is not entry:
            if isinstance(event, Fetched) and event.frame:
                self._memory.release(event.frame)
            return  # an answer for a partition that was given up, or from an earlier time of being at work
        before = entry.link.own_bytes
        try:
            for action in entry.link.step(event, self._clock.now_ms()):
                self._perform(entry, action)
        except Exception as bug:  # called from callbacks, whose exceptions nobody would see
            if not self._bug.done():
                self._bug.set_exception(bug)
            return
        if entry.link.reason:
            entry.trouble = entry.link.reason
        freed = before - entry.link.own_bytes
        self._memory.own_bytes -= freed
        if freed > 0:
            self._fetcher.wake()

    def _perform(self, entry: PartitionEntry, action: Action) -> None:
        match action:
            case Fetch():
                self._fetcher.want(entry, action)
            case Produce():
                self._sender(entry.target_node).send(entry, action)
            case StoreRuns():
                self._store_queue.append((entry, action))
                self._store_wake.set()
            case LocateTarget() | LocateSource() | LocateEpochEnd():
                self._locator.ask(entry, action)
            case Release(frame=frame):
                if self._memory.release(frame):
                    self._fetcher.wake()
            case Wake(turn=turn, after_ms=after_ms):
                loop = asyncio.get_running_loop()
                loop.call_later(after_ms / 1000, self.step, entry, Woken(turn=turn))
            case Report(message=message, severe=severe):
                log = self._log.error if severe else self._log.warning
                log(message, partition=str(entry.source), target=str(entry.target))

    def _sender(self, node_id: int) -> Sender[PartitionEntry]:
        sender = self._senders.get(node_id)
        if sender is None:
            sender = self._senders[node_id] = Sender(self.target, node_id, self.step, self._spawn)
        return sender

    # -- the map

    async def _run_store(self, store: MapStore) -> None:
        try:
            await self._store_all(store)
        except asyncio.CancelledError:
            with contextlib.suppress(ConnectionFailed, KafkaError, Fenced, TimeoutError):
                async with asyncio.timeout(LET_GO_S):
                    await store.let_go()  # spares the next mirror the wait
            raise

    async def _store_all(self, store: MapStore) -> None:
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RENEW_MS / 1000):
                        await self._store_wake.wait()
                self._store_wake.clear()
                queue, self._store_queue = self._store_queue, []
                await self._store(store, queue)
        finally:
            for sender in self._senders.values():  # who does not own the map must not write to the topics
                sender.end()

    async def _store(self, store: MapStore, queue: list[tuple[PartitionEntry, StoreRuns]]) -> None:
        try:
            if queue:
                async with self._store_lock:
                    await store.write([_rows(entry, action) for entry, action in queue])
            else:
                await store.renew()
        except (ConnectionFailed, KafkaError) as error:
            if isinstance(error, UnknownTopicOrPartition) and not self.entries:  # and neither is anything it tells of
                raise SetBack(f"{store.topic} is not there any more") from error
            for entry, action in queue:
                self.step(entry, StoreFailed(token=action.token, reason=f"cannot store the offset map: {error}"))
        else:
            for entry, action in queue:
                self.step(entry, RunsStored(token=action.token))

    # -- topics

    async def refresh_topics(self) -> None:
        """Look at both clusters, create and grow topics on the target, take new partitions on."""
        async with self._refresh_lock:
            shift = self._shift
            if self.standby:
                return
            pairs = await self.topics.refresh()
            if self._shift != shift or self.standby:
                return
            self._check_identity()
            if self._dropped:
                await self._read_maps()
            for name, remote in sorted(pairs.items()):
                await self._take_on(name, remote)
                await asyncio.sleep(0)  # many topics take long, and the claim has to be renewed meanwhile
                if self._shift != shift or self.standby:
                    return
            await self._refresh_log_starts()

    async def _read_maps(self) -> None:
        """Read the map topic again: what it holds of partitions that were given up must not outlive them."""
        self._store_queue = [row for row in self._store_queue if row[0] is self.entries.get(row[0].source)]
        async with self._store_lock:
            self._maps, _ = await read_maps(self.target, TopicPartition(offset_map_topic(self.config.source), 0))
        self._dropped = False

    async def look_after(self) -> None:
        """See whether the topics are still those that are mirrored, and try again what failed on them.

        Raises ConnectionFailed and KafkaError.
        """
        async with self._refresh_lock:
            shift = self._shift
            await self.source.refresh()
            await self.target.refresh()
            if self._shift != shift or self.standby:
                return
            self._check_identity()
            self._unbind()
        if self._dropped or self.topics.problems:
            await self.refresh_topics()

    def _unbind(self) -> None:
        """Have the target looked at again, which was away meanwhile, also by machines that have nothing to send."""
        for entry in tuple(self.entries.values()):
            if entry.connection is not None and not entry.connection.usable:
                self.step(entry, TargetUnbound())

    async def _refresh_log_starts(self) -> None:
        """Take note of what retention has deleted on the target, and forget the map of it."""
        entries = {entry.target: entry for entry in self.entries.values()}
        for partition, found in (await self.target.list_offsets(dict.fromkeys(entries, EARLIEST))).items():
            if not found.error_code:
                self.step(entries[partition], LogStartFound(log_start=found.offset))

    def _check_identity(self) -> None:
        """Stop partitions whose topic was deleted or created again while they were mirrored.

        A copy that was deleted is begun anew as soon as its partition has come to rest, with whatever the source's
        topic is by then.
        """
        missing: dict[str, str] = {}
        for entry in tuple(self.entries.values()):
            source, target = entry.source.topic, entry.target.topic
            source_there = self._there(self.config.source, self.source, source, missing)
            if not self._there(self.config.target, self.target, target, missing) or _is_other(
                self.target.view.topic_id(target), entry.target_id
            ):
                self.step(entry, Halted(reason=f"topic {target} of {self.config.target} was deleted"))
                if entry.link.state is State.FAILED:
                    del self.entries[entry.source]
                    self._memory.own_bytes -= entry.link.own_bytes
                    self._dropped = True
            elif source_there and _is_other(self.source.view.topic_id(source), entry.source_id):
                self._halt_recreated(entry)
        self.gone = missing

    def _there(self, alias: str, client: ClusterClient, topic: str, missing: dict[str, str]) -> bool:
        """Whether a topic is there; not to be seen once may be a broker that has not heard of it yet."""
        if topic in client.view.topics:
            return True
        key = f"{topic} of {alias}"
        missing[key] = "it is not there any more: deleted, or hidden from the mirror"
        return key not in self.gone

    def _halt_recreated(self, entry: PartitionEntry) -> None:
        if entry.link.state is not State.FAILED:
            self.step(
                entry,
                Halted(
                    reason=f"topic {entry.source.topic} of {self.config.source} was deleted and created again since it "
                    f"was mirrored: delete {entry.target.topic} of {self.config.target}, and the new one is mirrored "
                    "from its start"
                ),
            )

    async def _take_on(self, name: str, remote: str) -> None:
        """Start the partitions of one topic that are not mirrored yet and exist on both sides.

        The topics are those of this moment; that one of them is another by the time its map is joined is found later.
        """
        shift = self._shift
        source, target = self.source.view.topics.get(name), self.target.view.topics.get(remote)
        if source is None or target is None:
            return
        for number in source.partitions:
            partition = TopicPartition(name, number)
            if partition in self.entries or number not in target.partitions:
                continue
            adoption = adopt(self._maps.pop((name, number), None), source.topic_id, target.topic_id)
            join = MapJoin(adoption.segments)
            for _ in join.turns():
                await asyncio.sleep(0)
            if self._shift != shift or self.standby:
                return
            link = PartitionLink(
                producer_id=producer_id(self.config.source, self.config.target, remote, number),
                offsets=join.offsets,
                damage=join.damage,
                reset=self._source_config.reset,
                segments_stored=adoption.segments_stored,
                spans=adoption.spans.get(join.last_segment, ()),
            )
            ids = (source.topic_id, target.topic_id)
            entry = self.entries[partition] = PartitionEntry(partition, TopicPartition(remote, number), ids, link)
            if adoption.source_recreated:
                self._halt_recreated(entry)
            else:
                self.step(entry, Started())

    # -- reading

    def states(self) -> Counter[State]:
        """How many partitions are in which state."""
        return Counter(entry.link.state for entry in self.entries.values())

    def lag(self) -> int | None:
        """Offsets still to mirror over all partitions; None while some are not known."""
        lags = [entry.link.progress.lag for entry in self.entries.values()]
        return None if None in lags else sum(lag for lag in lags if lag is not None)


def _is_other(present: uuid.UUID, known: uuid.UUID) -> bool:
    """Whether two ids name different topics; a zero id tells nothing."""
    return ZERO_UUID not in (present, known) and present != known


def _rows(entry: PartitionEntry, action: StoreRuns) -> list[Row]:
    def key(number: int) -> bytes:
        return SegmentKey(topic=entry.source.topic, partition=entry.source.partition, segment=number).encode()

    def value(number: int, runs: tuple[Run, ...]) -> bytes:
        return SegmentValue(
            source_topic_id=entry.source_id,
            target_topic_id=entry.target_id,
            target_topic=entry.target.topic,
            runs=runs,
            spans=action.spans if number == last else (),
        ).encode()

    last = max(action.segments, default=-1)
    rows: list[Row] = [(key(number), value(number, runs)) for number, runs in action.segments.items()]
    rows.extend((key(number), None) for number in action.deleted)
    return rows
