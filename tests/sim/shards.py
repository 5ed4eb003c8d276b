"""Three brokers' group coordinators on copies of a few partitions: elected, deposed, cut off from the news, refused

The coordinators are the real ones; what lies under them is a model of replication (`tests.broker.coordination.
shared_log`): a leader appends, followers copy, a majority commits, and whoever has all that is committed may lead next.
Each broker hears of images one by one and late, so one that was deposed may believe for a while that it leads. Clients
know nothing of that: they ask any broker, and are told.

What must hold:

* what a shard knows is what its copy of the log says, whatever failed;
* in one leader epoch of a partition one broker answers;
* a commit that was acknowledged is told by whoever leads, until a later one is or its topic is gone;
* one generation has one leader, of a group that is not removed and begun anew, for as long as its shard lives.
"""

import asyncio
import contextlib
import random
import uuid
from collections import deque
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from tests.broker.coordination.shared_log import NodeLogs, SharedPartition, full_disk
from tests.broker.groups.group_world import image_of
from tidemill.broker.coordination.runtime import partition_of
from tidemill.broker.groups.coordinator import OFFSETS_TOPIC, GroupCoordinator, GroupShard
from tidemill.broker.groups.events import CommitOffsets, JoinGroup, JoinResult, OffsetToCommit, Protocol, SyncGroup
from tidemill.broker.groups.kinds import Group
from tidemill.broker.groups.machine import GroupMachine
from tidemill.broker.groups.records import decode_record
from tidemill.broker.groups.table import GroupLimits
from tidemill.broker.quorum.image import ClusterImage, TopicImage
from tidemill.broker.quorum.shared_map import SharedMap
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import CorruptMessage, KafkaError
from tidemill.core.records.batch import iter_batches
from tidemill.core.records.record import decode_records
from tidemill.core.runtime.clock import ManualClock

NODES, PARTITIONS = (1, 2, 3), 2
GROUPS = ("g", "h", "i")
LIMITS = GroupLimits(initial_rebalance_delay_ms=0, min_session_timeout_ms=1)
SESSION_MS = 5_000
PAUSE_MS = 10


class Node:
    """One broker, as far as groups go."""

    def __init__(self, number: int, shared: list[SharedPartition], clock: ManualClock) -> None:
        self.number = number
        self.copies = [each.copies[number] for each in shared]
        self.logs = NodeLogs({(OFFSETS_TOPIC, index): copy for index, copy in enumerate(self.copies)})
        self.groups = GroupCoordinator(
            node_id=number, limits=LIMITS, logs=self.logs, clock=clock, new_id=lambda: str(next(_numbers))
        )
        self.news: deque[tuple[ClusterImage, frozenset[str]]] = deque()
        self.loading = False

    def hear(self, count: int = 1) -> None:
        """Follow images, as a broker does: coordinators first, then the replicas, then what those make possible."""
        if not self.news:
            return
        image, gone = self.news.popleft()
        while self.news and (count := count - 1):
            image, more = self.news.popleft()
            gone |= more
        self.groups.image_changed(image, gone)
        for partition, copy in zip(image.topics[OFFSETS_TOPIC].partitions, self.copies, strict=True):
            copy.hears(partition.leader_epoch if partition.leader == self.number else -1)
        self.groups.take_up()


_numbers = iter(range(10**9))


class ShardSimulation:
    """Some brokers through many elections."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.shared = [SharedPartition(len(NODES)) for _ in range(PARTITIONS)]
        self.nodes = [Node(number, self.shared, self.clock) for number in NODES]
        self.topic_ids = {"t": uuid.UUID(int=1), "u": uuid.UUID(int=2)}
        self.numbers = 100
        self.tasks: set[asyncio.Task[None]] = set()
        self.image = ClusterImage()
        self.answered_by: dict[tuple[int, int], int] = {}
        self.leaders: dict[tuple[Group, int], str] = {}
        self.acknowledged: dict[tuple[str, uuid.UUID], int] = {}  # offsets rise in the order they are asked for
        self.commits = self.reads = self.moves = self.refused = self.joins = self.flips = 0
        self._publish(frozenset())
        for node in self.nodes:
            node.hear()

    # --- the cluster

    def _publish(self, gone: frozenset[str]) -> None:
        """A new image, which everybody will hear of some time."""
        image = image_of(self.topic_ids)
        (one, *_) = image_of({"x": uuid.UUID(int=3)}).topics["x"].partitions
        partitions = tuple(
            replace(one, partition=number, leader=each.leader, leader_epoch=each.leader_epoch, replicas=NODES)
            for number, each in enumerate(self.shared)
        )
        offsets = TopicImage(name=OFFSETS_TOPIC, topic_id=uuid.UUID(int=99), partitions=partitions)
        self.image = replace(image, topics=SharedMap({**image.topics, OFFSETS_TOPIC: offsets}))
        for node in self.nodes:
            node.news.append((self.image, gone))

    def _elect(self) -> None:
        partition = self.rng.choice(self.shared)
        partition.elect(self.rng.choice(partition.eligible()))
        self.moves += 1
        self._publish(frozenset())

    def _toggle_topic(self) -> None:
        name = self.rng.choice(("t", "u"))
        gone = self.topic_ids.pop(name, None)
        if gone is None or self.rng.random() < 0.5:
            self.numbers += 1
            self.topic_ids[name] = uuid.UUID(int=self.numbers)
        self._publish(frozenset() if gone is None else frozenset((name,)))

    # --- the course

    async def live(self, steps: int) -> None:
        """Random things, then peace, in which everybody has to agree."""
        for _ in range(steps):
            self._act()
            await self._turns(self.rng.randrange(4))
            if self.rng.random() < 0.2:
                self._check_memory()
        await self._settle()
        for group in GROUPS:
            for name in sorted(self.topic_ids):
                await self._read(self._leading(group), group, name)
        for task in self.tasks:
            task.cancel()

    async def _turns(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)
        for task in [task for task in self.tasks if task.done()]:
            self.tasks.discard(task)
            task.result()

    async def _settle(self) -> None:
        for node in self.nodes:
            for copy in node.copies:
                copy.refuses = copy.breaks = copy.read_fails = copy.flipped = None
        for partition in self.shared:
            if partition.leader < 0:
                partition.elect(1)
        self._publish(frozenset())
        for _ in range(60):
            for node in self.nodes:
                node.hear()
                self._load(node)
            for partition in self.shared:
                for node in self.nodes:
                    partition.replicate(node.number, 100)
                partition.look()
            self.clock.advance(SESSION_MS)
            for node in self.nodes:
                node.groups.tick()
            await self._turns(6)
        self._check_memory()
        assert not self.tasks, "somebody was never answered"

    def _leading(self, group: str) -> Node:
        return self.nodes[self.shared[partition_of(group, PARTITIONS)].leader - 1]

    def _background(self, call: Coroutine[Any, Any, None]) -> None:
        self.tasks.add(asyncio.ensure_future(call))

    def _load(self, node: Node) -> None:
        async def load() -> None:
            node.loading = True
            try:
                await node.groups.load()
            finally:
                node.loading = False

        if not node.loading:
            self._background(load())

    def _act(self) -> None:
        rng = self.rng
        node = rng.choice(self.nodes)
        partition = rng.randrange(PARTITIONS)
        choice = rng.random()
        if choice < 0.25:
            self.shared[partition].replicate(node.number, rng.choice((1, 1, 100)))
        elif choice < 0.45:
            node.hear(rng.choice((1, 1, 9)))
        elif choice < 0.55:
            self._load(node)
        elif choice < 0.75:
            self._background(self._commit(self._somebody(), rng.choice(GROUPS)))
        elif choice < 0.85:
            self._background(self._read_anywhere())
        elif choice < 0.90:
            self._background(self._be_a_member(self._somebody(), rng.choice(GROUPS)))
        elif choice < 0.93:
            self._elect()
        elif choice < 0.94:
            self._toggle_topic()
        elif choice < 0.96:
            self.clock.advance(rng.choice((PAUSE_MS, SESSION_MS)))
            node.groups.tick()
        elif choice < 0.97:
            self._background(node.groups.expire_offsets())
        else:
            self._disturb(node, partition)

    def _somebody(self) -> Node:
        return self.rng.choice(self.nodes)

    def _disturb(self, node: Node, partition: int) -> None:
        copy, what = node.copies[partition], self.rng.randrange(7)
        if what == 0:
            copy.refuses = full_disk()
        elif what == 1:
            copy.breaks = self.rng.choice((full_disk(), ZeroDivisionError()))
        elif what == 2:
            copy.read_fails = CorruptMessage("a corrupt batch")
        elif what == 3:
            self.flips += copy.flip(self.rng)
        else:
            copy.refuses = copy.breaks = copy.read_fails = copy.flipped = None

    # --- what must hold

    def _check_memory(self) -> None:
        """Every machine that answers knows what its copy of the log says, and nothing else."""
        for node in self.nodes:
            for shard in node.groups.shards():
                found = GroupMachine(LIMITS)
                for batch in node.copies[shard.partition].batches:
                    (view,) = iter_batches(batch.data)
                    for record in decode_records(view):
                        decoded = decode_record(record.key, record.value)
                        assert decoded is not None
                        found.apply(decoded)
                known = shard.machine.durable_state()
                assert known == found.durable_state(), (
                    f"node {node.number} knows {known} of partition {shard.partition}"
                )

    def _answered(self, node: Node, group: str) -> GroupShard:
        """`node` has answered for the group: by this shard."""
        partition = partition_of(group, PARTITIONS)
        (shard,) = (each for each in node.groups.shards() if each.partition == partition)
        epoch = shard.leadership.leader_epoch
        by = self.answered_by.setdefault((partition, epoch), node.number)
        assert by == node.number, f"{by} and {node.number} answer for partition {partition} in epoch {epoch}"
        return shard

    # --- clients

    async def _commit(self, node: Node, group: str) -> None:
        if not self.topic_ids:
            return
        name = self.rng.choice(sorted(self.topic_ids))
        topic_id = self.topic_ids[name]
        self.numbers += 1
        number = self.numbers
        request = CommitOffsets(
            request_id=node.groups.request_id(),
            group_id=group,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            retention_ms=-1,
            offsets=(OffsetToCommit(None, 0, number, -1, "", topic_id),),
        )
        try:
            result = await node.groups.commit(request)
        except KafkaError:
            self.refused += 1
            return
        if result.errors == (ErrorCode.NONE,):
            self.commits += 1
            place = group, topic_id
            self.acknowledged[place] = max(number, self.acknowledged.get(place, -1))
        else:
            self.refused += 1

    async def _read_anywhere(self) -> None:
        group = self.rng.choice(GROUPS)
        if self.topic_ids:
            await self._read(self._somebody(), group, self.rng.choice(sorted(self.topic_ids)))

    async def _read(self, node: Node, group: str, name: str) -> None:
        topic_id = self.topic_ids[name]
        owed = self.acknowledged.get((group, topic_id), -1)
        try:
            offsets = await node.groups.committed_offsets(group, ((name, 0),))
        except KafkaError:
            self.refused += 1
            return
        shard = self._answered(node, group)
        if shard.leadership.leader_epoch != self.shared[shard.partition].leader_epoch:
            return  # one that was deposed and has not heard of it tells what was true then, as Kafka's does
        self.reads += 1
        found = offsets.get((name, 0))
        if self.topic_ids.get(name) != topic_id or (found is not None and found.topic_id != topic_id):
            return  # another one by now, or not yet for who has not heard of it
        told = -1 if found is None else found.offset
        assert told >= owed, f"{group}: {told} is told by {node.number}, {owed} was acknowledged"

    async def _be_a_member(self, node: Node, group: str) -> None:
        member_id = ""
        for _ in range(self.rng.randrange(1, 3)):
            joined = await self._told(node.groups.join(self._join(node, group, member_id)))
            if joined is None or joined.error is not ErrorCode.NONE:
                return
            member_id = joined.member_id
            self.joins += 1
            with contextlib.suppress(ValueError, KeyError):  # it ended since
                key = self._answered(node, group).machine.table.groups[group], joined.generation_id
                leader = self.leaders.setdefault(key, joined.leader)
                assert leader == joined.leader, f"{group} is led by {leader} and by {joined.leader}"
            if self.rng.random() < 0.6:
                sync = SyncGroup(
                    request_id=node.groups.request_id(),
                    group_id=group,
                    generation_id=joined.generation_id,
                    member_id=member_id,
                    group_instance_id=None,
                    protocol_type=None,
                    protocol_name=None,
                    assignments=((member_id, b"x"),),
                )
                await self._told(node.groups.sync(sync))

    async def _told(self, call: Coroutine[Any, Any, Any]) -> JoinResult | None:
        try:
            result: JoinResult = await call
        except KafkaError:
            self.refused += 1
            return None
        return result

    @staticmethod
    def _join(node: Node, group: str, member_id: str) -> JoinGroup:
        return JoinGroup(
            request_id=node.groups.request_id(),
            group_id=group,
            member_id=member_id,
            new_member_id=node.groups.new_member_id("m"),
            group_instance_id=None,
            client_id="c",
            client_host="/h",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            protocol_type="consumer",
            protocols=(Protocol("range", b""),),
            member_id_required=False,
            skip_assignment=False,
        )
