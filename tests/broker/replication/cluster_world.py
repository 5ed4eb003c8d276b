"""Several whole brokers in one event loop, who copy from one another what an image made by hand says

Each is a node of its own, with its own metadata, in which the topic has the same id because chance is the same
everywhere. What the controller of a real cluster would decide is decided here, and told to the replicas. Until it is,
who starts again is a node by itself to whom all it has is committed, so it may cut off more than that afterwards.
"""

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from tests.broker.broker_world import WireClient, wire_client
from tests.broker.handlers.data_path import make_topic, produce, records
from tidemill.broker.config import BrokerConfig
from tidemill.broker.node import Broker, open_broker
from tidemill.broker.quorum.image import PartitionImage, TopicImage
from tidemill.broker.replication.actions import ProposeIsr
from tidemill.broker.replication.fetcher import ReplicaFetchers, Surrounded
from tidemill.broker.replication.fetching import FetchSettings
from tidemill.broker.replication.replica import Replica
from tidemill.broker.replication.replicas import among_others
from tidemill.broker.replication.throttle import UNTHROTTLED, Throttle
from tidemill.broker.surroundings import Surroundings
from tidemill.core.client.connection import Address
from tidemill.core.records.batch import iter_batches
from tidemill.core.records.record import decode_records
from tidemill.core.runtime.net import TcpDialer

PATIENCE_S = 60  # on a machine that is busy with other things


class Member:
    """One broker, and what it fetches with."""

    def __init__(self, cluster: "Cluster", node_id: int, throttle: Throttle, sessions: int, wait_ms: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.throttle = throttle
        self.sessions = sessions
        self.wait_ms = wait_ms
        self.stack = AsyncExitStack()
        self.broker: Broker
        self.client: WireClient
        self.fetchers: ReplicaFetchers
        self.up = False

    async def start(self) -> None:
        settings = {
            "node.id": str(self.node_id),
            "log.dirs": str(self.cluster.folder / str(self.node_id)),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "replica.lag.time.max.ms": "500",
            "max.incremental.fetch.session.cache.slots": str(self.sessions),
        }
        ids = itertools.count(1)
        around = Surroundings(new_uuid=lambda: uuid.UUID(int=next(ids)))
        self.stack = AsyncExitStack()
        self.broker = await self.stack.enter_async_context(open_broker(BrokerConfig.parse(settings), around=around))
        self.cluster.registrations += 1
        epoch = self.cluster.registrations
        self.cluster.epochs[self.node_id] = epoch
        self.fetchers = among_others(
            Surrounded(
                node_id=self.node_id,
                replicas=self.broker.replicas,
                logs=self.broker.logs,
                clock=self.broker.clock,
                dialer=TcpDialer(),
                address_of=self.cluster.address_of,
                broker_epoch=lambda: epoch,
                topic=lambda _name: self.cluster.topic,
                alter_partition=self.cluster.alter_partition,
            ),
            FetchSettings(replica_fetch_wait_max_ms=self.wait_ms, replica_fetch_backoff_ms=100),
            self.throttle,
        )
        self.client = await self.stack.enter_async_context(wire_client(self.broker))
        group = await self.stack.enter_async_context(asyncio.TaskGroup())
        task = group.create_task(self.fetchers.run())
        self.stack.callback(task.cancel)
        self.up = True

    async def stop(self) -> None:
        if self.up:
            self.up = False
            await self.stack.aclose()

    @property
    def replica(self) -> Replica:
        replica = self.broker.replicas.get("t", 0)
        assert replica is not None
        return replica

    @property
    def log_start(self) -> int:
        """Where the log begins, also after a crash."""
        return self.broker.logs.durable_start(self.replica.log)

    @property
    def values(self) -> list[bytes | None]:
        """Everything in the log, committed or not."""
        log = self.replica.log
        offset, found = log.log_start_offset, list[bytes | None]()
        while offset < log.log_end_offset:
            for view in iter_batches(bytes(log.read(offset, 10**6, log.end_position()))):
                found += [record.value for record in decode_records(view)]
                offset = view.next_offset
        return found

    async def produce(self, *values: bytes, acks: int = -1) -> None:
        answer = await produce(self.client, self.cluster.topic, records(*values), acks=acks)
        assert answer.error_code == 0, answer.error_code


class Cluster:
    """Its brokers by their ids, and what their controller has decided."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.members: dict[int, Member] = {}
        self.epochs: dict[int, int] = {}
        self.registrations = 0
        self.refusing = False  # whoever asks for another ISR
        self.topic: TopicImage

    def address_of(self, node_id: int) -> Address | None:
        member = self.members.get(node_id)
        return Address("127.0.0.1", member.broker.servers[0].port) if member is not None and member.up else None

    @property
    def partition(self) -> PartitionImage:
        return self.topic.partitions[0]

    def decide(self, **changes: object) -> None:
        """Another image of the partition, told to all; a leader that is named begins an epoch."""
        before = self.partition
        epoch = before.leader_epoch + ("leader" in changes)
        after = replace(before, partition_epoch=before.partition_epoch + 1, leader_epoch=epoch, **changes)  # type: ignore[arg-type]
        self.topic = replace(self.topic, partitions=(after,))
        for member in self.members.values():
            if member.up:
                self.tell(member)

    def tell(self, member: Member) -> None:
        member.broker.replicas.assign(self.topic)

    async def alter_partition(self, replica: Replica, wish: ProposeIsr) -> bool:
        await asyncio.sleep(0)
        now = self.partition
        if (wish.leader_epoch, wish.partition_epoch) != (now.leader_epoch, now.partition_epoch):
            return True
        if self.refusing and set(wish.isr) != set(now.isr):
            return False
        for node_id, epoch in zip(wish.isr, wish.broker_epochs, strict=True):
            if epoch >= 0 and epoch != self.epochs[node_id]:
                return False
        self.decide(isr=wish.isr)
        return True


async def until(condition: Callable[[], bool], what: str = "") -> None:
    """Return once that holds."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None


@asynccontextmanager
async def cluster_of(
    folder: Path,
    count: int = 3,
    *,
    isr: tuple[int, ...] = (),
    throttle: Throttle = UNTHROTTLED,
    sessions: int = 100,
    wait_ms: int = 100,
    **configs: str,
) -> AsyncIterator[Cluster]:
    """So many brokers with a replica each of topic `t`, which the first one leads."""
    cluster = Cluster(folder)
    nodes = tuple(range(1, count + 1))
    try:
        for node_id in nodes:
            member = cluster.members[node_id] = Member(cluster, node_id, throttle, sessions, wait_ms)
            await member.start()
            made = await make_topic(member.broker, **configs)
            cluster.topic = made
        first = replace(made.partitions[0], replicas=nodes, isr=isr or nodes)
        cluster.topic = replace(made, partitions=(first,))
        cluster.decide(leader=1)
        yield cluster
    finally:
        for member in reversed(cluster.members.values()):
            await member.stop()
