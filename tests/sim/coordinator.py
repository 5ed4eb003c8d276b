"""A broker's groups on a simulated disk: topics come and go, logs refuse, the power is cut, members join and leave

The parts are the real ones: the metadata log and its controller, the log store and its cleaner, the group coordinator,
what the node does at its start and with every new image, the handlers that clients talk to. What would run in a thread
waits until the world lets it go on, time stands still until the world moves it, and the disk loses what was not synced;
so a crash may fall between any two writes, and a topic may be deleted and created again under a request.

What must hold is said by four objects that hear what clients ask and what they are told.
"""

import asyncio
import contextlib
import random
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

from tests.broker.log.log_world import NOW_MS
from tests.sim.disk import PowerCut, SimulatedDisk
from tests.sim.log_store import SteppedStore, SteppedThread
from tidemill.broker.config import BrokerConfig
from tidemill.broker.dispatch import RequestContext
from tidemill.broker.groups.coordinator import GroupCoordinator
from tidemill.broker.groups.events import Heartbeat, JoinGroup, JoinResult, LeaveGroup, Leaver, Protocol, SyncGroup
from tidemill.broker.groups.table import GroupLimits
from tidemill.broker.handlers.offsets import offset_commit, offset_fetch
from tidemill.broker.node import Broker, recover
from tidemill.broker.opening import open_metadata
from tidemill.broker.quorum.controller import Controller, SnapshotRules
from tidemill.broker.quorum.metadata import NewTopic, Rules, TopicRef
from tidemill.broker.quorum.store import MetadataStore
from tidemill.broker.replication.replicas import Replicas
from tidemill.broker.routes import ROUTES
from tidemill.broker.surroundings import Surroundings
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError
from tidemill.core.runtime.clock import ManualClock
from tidemill.core.types import ZERO_UUID
from tidemill.core.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidemill.core.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

TOPICS = ("a", "b")
OFFSET_GROUPS = ("o1", "o2")
MEMBER_GROUPS = ("m1", "m2")
SESSION_MS = 10_000
REBALANCE_MS = 20_000
TURNS_MAX = 10_000

_Result = TypeVar("_Result")


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop whose threads are one queue that the world works off."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = SteppedThread()

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., _Result], *args: Any
    ) -> "asyncio.Future[_Result]":
        return super().run_in_executor(executor if isinstance(executor, SteppedThread) else self.steps, func, *args)


# --- what must hold


class OffsetsBelongToTheirTopic:
    """An offset that is returned for a topic was committed for that very topic id."""

    def __init__(self) -> None:
        self.meant: dict[int, set[uuid.UUID]] = {}
        self.checked = 0

    def committing(self, offset: int, topic_id: uuid.UUID | None) -> None:
        """A client commits `offset` while its topic is this one; a name may mean several until it is answered."""
        if topic_id is not None:
            self.meant.setdefault(offset, set()).add(topic_id)

    def returned(self, offset: int, topic_id: uuid.UUID) -> None:
        if offset >= 0:
            self.checked += 1
            meant = self.meant.get(offset, set())
            assert topic_id in meant, f"offset {offset} of topic {topic_id} was committed for {meant}"


class AcknowledgedOffsetsStay:
    """What was acknowledged for a topic is returned, or something newer, for as long as the topic is there."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[str, uuid.UUID, int], int] = {}

    def committed(self, group: str, topic_id: uuid.UUID, partition: int, offset: int) -> None:
        place = group, topic_id, partition
        self.acknowledged[place] = max(offset, self.acknowledged.get(place, -1))

    def owed(self) -> dict[tuple[str, uuid.UUID, int], int]:
        """What somebody who asks now has to be told."""
        return dict(self.acknowledged)

    @staticmethod
    def returned(owed: int, offset: int) -> None:
        assert offset >= owed, f"{offset} is returned, {owed} was acknowledged"


class GenerationsRise:
    """As long as a group is there, no member is let into a generation older than one that was ever told of.

    One generation has one leader. A coordinator that crashes may forget a round that nobody was assigned anything in.
    """

    def __init__(self) -> None:
        self.told: dict[str, int] = {}
        self.assigned: dict[str, int] = {}
        self.leaders: dict[tuple[str, int], str] = {}
        self.deaths: Counter[str] = Counter()
        self.checked = 0

    def joined(self, group: str, generation: int, leader: str) -> None:
        self.checked += 1
        newest = self.told.get(group, 0)
        assert generation >= newest, f"{group}: generation {generation} after {newest}"
        self.told[group] = generation
        known = self.leaders.setdefault((group, generation), leader)
        assert known == leader, f"{group}: generation {generation} is led by {known} and by {leader}"

    def synced(self, group: str, generation: int, deaths: int) -> None:
        """The assignment is on the disk; when it was asked for, the group had been given up `deaths` times."""
        if deaths == self.deaths[group]:
            self.assigned[group] = max(generation, self.assigned.get(group, 0))

    def crashed(self) -> None:
        self.told = dict(self.assigned)
        self.leaders.clear()

    def gone(self, group: str) -> None:
        """The group has neither members nor offsets nor a record: whoever comes starts a new one."""
        self.deaths[group] += 1
        self.told.pop(group, None)
        self.assigned.pop(group, None)
        self.leaders = {key: leader for key, leader in self.leaders.items() if key[0] != group}


class EveryRequestIsAnswered:
    """Whoever asked is told something, at the latest when all deadlines are over."""

    def __init__(self) -> None:
        self.open: dict[int, str] = {}
        self.asked = self.refused = 0

    async def ask(self, what: str, call: Awaitable[_Result]) -> _Result | None:
        """The answer, None for one that is an error of its own."""
        self.asked += 1
        number = self.asked
        self.open[number] = what
        try:
            return await call
        except KafkaError:
            self.refused += 1
            return None
        finally:
            del self.open[number]

    def check(self) -> None:
        assert not self.open, f"never answered: {sorted(self.open.values())}"


# --- the world


class CoordinatorSimulation:
    """One machine through several lives."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimulatedDisk()
        self.clock = ManualClock(NOW_MS)
        self.own_topic, self.kept = OffsetsBelongToTheirTopic(), AcknowledgedOffsetsStay()
        self.generations, self.answered = GenerationsRise(), EveryRequestIsAnswered()
        self.known_ids: dict[str, uuid.UUID] = {}
        self.crashes = self.numbers = 0
        self.config = BrokerConfig.parse(
            {
                "log.dirs": "/disk",
                "offsets.topic.num.partitions": "1",
                "offsets.topic.segment.bytes": self.rng.choice(("600", "3000")),
                "log.segment.delete.delay.ms": "0",
                "log.cleaner.min.cleanable.ratio": "0.1",
            }
        )

    def live(self, steps: int, *, power_cut: bool) -> None:
        """Start, do random things, end by a crash or in order."""
        if power_cut:
            self.disk.cut_power_in = self.rng.randrange(1, 5 * steps)
        with contextlib.suppress(PowerCut), asyncio.Runner(loop_factory=SteppedLoop) as runner:
            runner.run(self._life(steps, orderly=not power_cut))
        self.disk.fail_sync = self.disk.capacity_bytes = None
        if self.rng.random() < 0.3:
            self.disk.kill()
        else:
            self.disk.crash(self.rng)
        self.answered.open.clear()
        self.generations.crashed()
        self.crashes += 1

    async def _life(self, steps: int, *, orderly: bool) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SteppedLoop)
        loop.set_exception_handler(lambda _loop, _context: None)
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: set[str] = set()
        self._stopping = False
        self._store = SteppedStore(self.disk, self.rng)
        self._threads = (*self._store.steps, loop.steps)
        try:
            await self._run(steps)
            if orderly:
                await self._end_in_order()
        finally:
            self.disk.cut_power_in = 0  # what is cancelled from here on changes nothing any more
            for thread in self._threads:
                thread.end()

    async def _run(self, steps: int) -> None:
        self._broker = self._made_broker()
        controller = self._broker.controller
        await self._driven(recover(self._broker, self.disk.root, self._new_id))
        working = [asyncio.ensure_future(call) for call in (controller.run(), controller.keep_snapshots())]
        await self._driven(self._broker.register())
        await self._driven(self._read_everything())
        for _ in range(steps):
            self._act()
            await self._go_on(self.rng.randrange(4))
            for task in working:
                if task.done():
                    task.result()

    def _made_broker(self) -> Broker:
        limits = GroupLimits(initial_rebalance_delay_ms=self.rng.choice((0, 0, 3_000)))
        rules = Rules(
            num_partitions=1, default_replication_factor=1, delete_topic_enable=True, max_topics=99, max_partitions=999
        )
        controller = Controller(
            MetadataStore(self.disk.root),
            clock=self.clock,
            rules=rules,
            node_id=1,
            new_uuid=self._new_id,
            snapshots=SnapshotRules(max_bytes=self.rng.choice((500, 5000))),
        )
        open_metadata(self.disk.root, controller)
        replicas = Replicas(1, self._store, self.clock.monotonic)
        groups = GroupCoordinator(
            node_id=1, limits=limits, logs=replicas, clock=self.clock, new_id=lambda: str(self._new_id().int)
        )
        return Broker(
            config=self.config,
            around=Surroundings(clock=self.clock),
            logs=self._store,
            replicas=replicas,
            controller=controller,
            groups=groups,
            routes=ROUTES,
        )

    def _new_id(self) -> uuid.UUID:
        self.numbers += 1
        return uuid.UUID(int=self.numbers)

    # --- time and threads

    async def _go_on(self, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
            self._look()
        for task in [task for task in self._tasks if task.done()]:
            self._tasks.discard(task)
            task.result()

    def _look(self) -> None:
        """What is true now, for those who have to be told what was true while they waited."""
        for name, topic in self._broker.controller.image.topics.items():
            self.known_ids[name] = topic.topic_id

    async def _driven(self, call: Coroutine[Any, Any, Any]) -> None:
        """Run `call` to its end while the threads work."""
        task = asyncio.ensure_future(call)
        for _ in range(TURNS_MAX):
            if task.done():
                break
            for thread in self._threads:
                thread.work()
                thread.notice()
            await self._go_on(1)
        if not task.done() and self.disk.cut_power_in == 0:
            raise PowerCut
        task.result()

    def _background(self, call: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.ensure_future(call))

    async def _end_in_order(self) -> None:
        """No more requests; with the store open or closed, those there are end by the time all deadlines are over."""
        self._stopping = True
        self.disk.capacity_bytes = None
        await self._driven(self._read_everything())
        with contextlib.suppress(KafkaError):  # so that nobody asks for it behind the close
            await self._driven(self._broker.ensure_offsets_topic())
        if self.rng.random() < 0.5:
            self._background(self._close())
        for _ in range(60):
            for _ in range(4):
                for thread in self._threads:
                    thread.work()
                    thread.notice()
                await self._go_on(2)
            self.clock.advance(REBALANCE_MS // 2)
            self._broker.groups.tick()
            if not self.answered.open and not self._tasks:
                break
        self.answered.check()

    async def _close(self) -> None:
        while self._busy & {"cleaner", "repair", *TOPICS}:  # noqa: ASYNC110 - a node ends these first, as does this world
            await asyncio.sleep(0)
        with contextlib.suppress(OSError):  # a disk that failed cannot be left in order
            await self._store.close()

    # --- what happens

    def _act(self) -> None:
        rng = self.rng
        if self.disk.capacity_bytes is not None and rng.random() < 0.2:
            self.disk.capacity_bytes = None
        choice = rng.random()
        if choice < 0.45:
            thread = rng.choice((self._threads[0], *self._threads))
            thread.work()
            if rng.random() < 0.7:
                thread.notice()
        elif choice < 0.58:
            self._one_at_a_time(rng.choice(OFFSET_GROUPS), self._commit)
        elif choice < 0.64:
            self._background(self._fetch(rng.choice(OFFSET_GROUPS), rng.choice(TOPICS)))
        elif choice < 0.78:
            self._one_at_a_time(f"{rng.choice(MEMBER_GROUPS)}/{rng.randrange(2)}", self._be_a_member)
        elif choice < 0.88:
            self._one_at_a_time(rng.choice(TOPICS), self._toggle_topic)
        elif choice < 0.92:
            self.clock.advance(rng.choice((10, 1_000, 3_000, SESSION_MS)))
            self._broker.groups.tick()
        elif choice < 0.94:
            self._background(self._broker.groups.expire_offsets())
        elif choice < 0.96:
            self._background(self._store.checkpoint())
        elif choice < 0.98:
            self._one_at_a_time("cleaner", self._clean)
        elif choice < 0.993:
            self.disk.capacity_bytes = self.disk.used_bytes() + rng.choice((0, rng.randrange(400)))
        elif choice < 0.995:
            self._one_at_a_time("repair", self._repair)
        elif choice < 0.997:
            self.disk.fail_sync = OSError(5, "Input/output error")

    def _one_at_a_time(self, who: str, does: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        async def busy() -> None:
            self._busy.add(who)
            try:
                await does(who)
            finally:
                self._busy.discard(who)

        if who not in self._busy:
            self._background(busy())

    async def _repair(self, _who: str) -> None:
        """What a job and the coordinator's own task do: make logs that could not be made, take up what has failed."""
        await self._broker.following.make_missing_logs()
        await self._broker.groups.load()

    async def _clean(self, _who: str) -> None:
        await self._broker.cleaner.clean_dirtiest()

    async def _toggle_topic(self, name: str) -> None:
        controller = self._broker.controller
        there = name in controller.image.topics
        call = (
            controller.delete_topics([TopicRef(name=name)])
            if there
            else controller.create_topics([NewTopic(name=name, partitions=1)])
        )
        await self.answered.ask(f"{'delete' if there else 'create'} {name}", call)
        if there and self.rng.random() < 0.6 and not self._stopping:
            await self.answered.ask(f"create {name}", controller.create_topics([NewTopic(name=name, partitions=1)]))

    # --- clients that commit and read

    async def _commit(self, group: str) -> None:
        name = self.rng.choice(TOPICS)
        by_id = self.rng.random() < 0.5
        topic_id = self.known_ids.get(name, ZERO_UUID)
        self.numbers += 1
        number = self.numbers
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=(
                OffsetCommitRequestTopic(
                    name=name,
                    topic_id=topic_id,
                    partitions=(OffsetCommitRequestPartition(partition_index=0, committed_offset=number),),
                ),
            ),
        )
        if by_id:
            self.own_topic.committing(number, topic_id)

        async def commit() -> OffsetCommitResponse | None:
            call = offset_commit(self._broker, request, _context(10 if by_id else 9))
            return await self.answered.ask(f"commit {number}", call)

        task = asyncio.ensure_future(commit())
        while not by_id and not task.done():  # the name may come to mean another topic before the append
            self.own_topic.committing(number, self._topic_id(name))
            await asyncio.sleep(0)
        response = await task
        if not by_id:
            self.own_topic.committing(number, self._topic_id(name))
        meant = self.own_topic.meant.get(number, set())
        if response is not None and response.topics[0].partitions[0].error_code == ErrorCode.NONE and len(meant) == 1:
            self.kept.committed(group, next(iter(meant)), 0, number)

    def _topic_id(self, name: str) -> uuid.UUID | None:
        topic = self._broker.controller.image.topics.get(name)
        return None if topic is None else topic.topic_id

    async def _read_everything(self) -> None:
        for group in OFFSET_GROUPS:
            for name in TOPICS:
                await self._fetch(group, name)

    async def _fetch(self, group: str, name: str) -> None:
        by_id = self.rng.random() < 0.5
        owed = self.kept.owed()
        asked_id = self.known_ids.get(name, ZERO_UUID)
        topic = OffsetFetchRequestTopics(name=name, topic_id=asked_id, partition_indexes=(0,))
        wanted = None if self.rng.random() < 0.3 else (topic,)
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=wanted),))

        async def fetch() -> None:
            response = await offset_fetch(self._broker, request, _context(10 if by_id else 9))
            if response.groups[0].error_code != ErrorCode.NONE:
                return
            for topic in response.groups[0].topics:  # nothing else ran since this was put together
                topic_id = topic.topic_id if by_id else self._topic_id(topic.name)
                for partition in topic.partitions:
                    if topic_id is None:
                        assert partition.committed_offset == -1
                    elif partition.error_code == ErrorCode.NONE:
                        self.own_topic.returned(partition.committed_offset, topic_id)
                        self.kept.returned(
                            owed.get((group, topic_id, partition.partition_index), -1), partition.committed_offset
                        )

        await self.answered.ask(f"fetch {group} {name}", fetch())

    # --- clients that are members

    async def _be_a_member(self, who: str) -> None:
        """Join, perhaps synchronise, stay for a while, leave or fall silent."""
        group, groups = who.partition("/")[0], self._broker.groups
        member_id, rng = "", self.rng
        for _ in range(rng.randrange(1, 4)):
            joined = await self.answered.ask(f"join {who}", self._come_in(group, member_id))
            if joined is None or joined.error is not ErrorCode.NONE:
                return
            member_id = joined.member_id
            self.generations.joined(group, joined.generation_id, joined.leader)
            if rng.random() < 0.4 and not await self._synced(group, joined):
                return
            if rng.random() < 0.4:
                await self._heartbeat(group, joined)
            if self._stopping or rng.random() < 0.3:
                break
        if rng.random() < 0.7:
            leave = LeaveGroup(request_id=groups.request_id(), group_id=group, leavers=(Leaver(member_id, None),))
            await self.answered.ask(f"leave {who}", groups.leave(leave))

    async def _come_in(self, group: str, member_id: str) -> JoinResult:
        await self._broker.ensure_offsets_topic()
        return await self._broker.groups.join(self._join(group, member_id))

    def _join(self, group: str, member_id: str) -> JoinGroup:
        groups = self._broker.groups
        with contextlib.suppress(KafkaError):  # of a group that is being taken up nobody knows yet
            if groups.describe(group) is None:
                self.generations.gone(group)
        return JoinGroup(
            request_id=groups.request_id(),
            group_id=group,
            member_id=member_id,
            new_member_id=groups.new_member_id("m"),
            group_instance_id=None,
            client_id="c",
            client_host="/h",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(Protocol("range", b""),),
            member_id_required=False,
            skip_assignment=False,
        )

    async def _synced(self, group: str, joined: JoinResult) -> bool:
        groups, deaths = self._broker.groups, self.generations.deaths[group]
        sync = SyncGroup(
            request_id=groups.request_id(),
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=None,
            protocol_type=None,
            protocol_name=None,
            assignments=tuple((member.member_id, b"x") for member in joined.members),
        )
        synced = await self.answered.ask(f"sync {group}", groups.sync(sync))
        if synced is None or synced.error is not ErrorCode.NONE:
            return False
        self.generations.synced(group, joined.generation_id, deaths)
        return True

    async def _heartbeat(self, group: str, joined: JoinResult) -> None:
        heartbeat = Heartbeat(
            request_id=self._broker.groups.request_id(),
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=None,
        )
        await self.answered.ask(f"heartbeat {group}", self._broker.groups.heartbeat(heartbeat))


def _context(version: int) -> RequestContext:
    return RequestContext(api_version=version, client_id="c", client_host="h", listener="L", connection_id="1")
