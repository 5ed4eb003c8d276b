"""Model clients: they speak the wire protocol, try again, and tell the world what they were told

Each has its own place on the network, its own chance, and one connection at a time through the product's own client
connection. What a request came to nobody may know: then it is asked again or given up, and both is said.

Whoever is told to wait (`throttle_time_ms`) does so, as today's clients do, or takes no notice, as old ones do. Whoever
is told that a coordinator is being loaded comes again a little later, as whatever it was before.
"""

import asyncio
import random
import uuid
from typing import TYPE_CHECKING, Final, TypeVar

from tests.sim.world.events import (
    Acknowledged,
    Assigned,
    CommitAsked,
    Committed,
    Event,
    Fetched,
    HeardAgain,
    Joined,
    OffsetTold,
    Refused,
    Throttled,
    TopicAsked,
    TopicsSeen,
    TopicTold,
)
from tests.sim.world.node import BEGAN_MS, PORT
from tidemill.core.client.connection import Address, Connection
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError
from tidemill.core.records.batch import iter_batches
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, decode_records
from tidemill.core.runtime.net import TcpDialer
from tidemill.core.runtime.virtual_time import VirtualLoop
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidemill.core.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidemill.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidemill.core.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidemill.core.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidemill.core.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidemill.core.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidemill.core.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidemill.core.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidemill.core.wire.messages.metadata import MetadataRequest, MetadataResponse
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
    OffsetFetchResponse,
)
from tidemill.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidemill.core.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from tests.sim.world.world import World

TOPICS: Final = ("a", "b")
PARTITIONS: Final = 2
REQUEST_TIMEOUT_MS: Final = 4000
BULK_BYTES: Final = (70_000, 140_000)
"""More than lies in an ordinary buffer."""

BULK_EVERY_S: Final = 4.0
BULK_LASTS_S: Final = 1.0
"""So often, and for so long, all who send much do it at once."""

FETCH_TRIES: Final = 10
"""More than it ever takes, where connections end while a large answer is on its way."""

BY_NAME: Final = 9
"""The last version of OffsetCommit and OffsetFetch that names topics by their names."""

ResponseT = TypeVar("ResponseT", bound=Message)


class Client:
    """One program on one machine."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.rng = random.Random(world.rng.getrandbits(64))
        self.topics: dict[str, uuid.UUID] = {}
        self._connection: Connection | None = None
        self._muted_until: float | None = None  # on this connection
        self._waits_when_told = random.Random(f"{world.plan.seed} {name}").random() < 0.5

    @property
    def loop(self) -> VirtualLoop:
        """The world's."""
        return self.world.loop

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.world.loop.time()

    def tell(self, event: Event) -> None:
        """Let the world know."""
        self.world.happened(event)

    def refused(self, request: str, why: object) -> None:
        """Say that a request came to nothing."""
        text = ErrorCode(why).name if isinstance(why, int) else type(why).__name__
        self.tell(Refused(self.now, self.name, request, text))

    async def pause(self, seconds: float) -> None:
        """Wait about so long."""
        await asyncio.sleep(seconds * self.rng.random())

    async def ask(
        self, key: ApiKey, request: Message, expect: type[ResponseT], version: int | None = None
    ) -> ResponseT | None:
        """The answer, None if there is none; it may have been done all the same."""
        try:
            if self._connection is None or not self._connection.usable:
                self._connection = await Connection.open(
                    Address(self.world.node.name, PORT),
                    client_id=self.name,
                    dialer=TcpDialer(),
                    connect_timeout_ms=REQUEST_TIMEOUT_MS,
                    request_timeout_ms=REQUEST_TIMEOUT_MS,
                )
                self._muted_until = None
            if self._waits_when_told and self._muted_until is not None:
                await asyncio.sleep(max(self._muted_until - self.now, 0))
            asked_at = self.now
            answer = await self._connection.request(key, request, expect, version=version)
        except (OSError, KafkaError) as error:
            self.refused(key.name, error)
            await self.pause(0.5)
            return None
        self._look_whether_muted(key, asked_at, getattr(answer, "throttle_time_ms", 0))
        return answer

    def _look_whether_muted(self, key: ApiKey, asked_at: float, wait_ms: int) -> None:
        """Tell when an answer comes after one that said to wait, and when it says so itself."""
        if self._muted_until is not None:
            self.tell(HeardAgain(self.now, self.name, key.name, self._muted_until))
            self._muted_until = None
        if wait_ms:
            self._muted_until = asked_at + wait_ms / 1000  # it was said later than it was asked
            self.tell(Throttled(self.now, self.name, key.name, wait_ms))

    async def run(self) -> None:
        """Go on until the world says that it is enough."""
        await self.pause(1)
        while not self.world.enough:
            await self.step()

    async def step(self) -> None:
        """Do one thing."""

    async def look_at_topics(self) -> None:
        """Ask which topics there are."""
        asked_at = self.now
        answer = await self.ask(ApiKey.METADATA, MetadataRequest(topics=None), MetadataResponse)
        if answer is not None:
            found = sorted((each.name or "", each.topic_id) for each in answer.topics if not each.error_code)
            self.topics = dict(found)
            torn = [
                each.name or "" for each in answer.topics if each.name in TOPICS and len(each.partitions) != PARTITIONS
            ]
            self.tell(TopicsSeen(self.now, self.name, asked_at, tuple(found), tuple(torn)))

    async def some_topic(self) -> uuid.UUID | None:
        """The id of one of the topics, as far as this client knows."""
        if not self.topics or self.rng.random() < 0.05:
            await self.look_at_topics()
        names = [name for name in TOPICS if name in self.topics]
        if not names:
            await self.pause(0.5)
            return None
        return self.topics[self.rng.choice(names)]


class Admin(Client):
    """Makes topics, deletes them and makes them again, and lists groups."""

    async def step(self) -> None:
        for _ in range(4):
            await self.pause(1)
            await self._list_groups()
        name = self.rng.choice(TOPICS)
        await self.look_at_topics()
        if name not in self.topics:
            await self._create(name)
        elif self.rng.random() < 0.3:
            await self._delete(name)
            if self.rng.random() < 0.8:
                await self._create(name)

    async def _list_groups(self) -> None:
        """Ask every broker, without asking for a coordinator first."""
        for _ in range(3):
            answer = await self.ask(ApiKey.LIST_GROUPS, ListGroupsRequest(), ListGroupsResponse)
            if answer is None or not answer.error_code:
                return
            self.refused("list", answer.error_code)
            await self.pause(0.2)

    async def _create(self, name: str) -> None:
        self.world.strike_soon(self.rng.randrange(8))
        self.tell(TopicAsked(self.now, self.name, name, wanted=True))
        topic = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)
        answer = await self.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse)
        if answer is None:
            return
        if answer.topics[0].error_code:
            self.refused("create", answer.topics[0].error_code)
        else:
            self.topics[name] = answer.topics[0].topic_id
            self.tell(TopicTold(self.now, self.name, name, answer.topics[0].topic_id))

    async def _delete(self, name: str) -> None:
        self.tell(TopicAsked(self.now, self.name, name, wanted=False))
        topics = (DeleteTopicState(name=name),)
        answer = await self.ask(
            ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topics=topics, timeout_ms=3000), DeleteTopicsResponse
        )
        if answer is None:
            return
        if answer.responses[0].error_code:
            self.refused("delete", answer.responses[0].error_code)
        else:
            self.topics.pop(name, None)
            self.tell(TopicTold(self.now, self.name, name, None))


class Producer(Client):
    """Sends records, each once, and does not know what became of some."""

    numbers = 0

    async def step(self) -> None:
        await self.pause_between()
        topic_id = await self.some_topic()
        if topic_id is not None:
            self.numbers += 1
            value = f"{self.name}-{self.numbers}".encode()
            padding = b"." * self.rng.choice(BULK_BYTES if self.sends_bulk else (0, 0, 50, 700))
            batch = build_batch([NewRecord(BEGAN_MS + int(self.now * 1000), None, value + padding)])
            await self.send(topic_id, self.rng.randrange(PARTITIONS), value + padding, batch, once=False)

    @property
    def sends_bulk(self) -> bool:
        """Whether it is time for large requests, in a world that has them."""
        return self.world.is_bulky and not self.world.enough and self.now % BULK_EVERY_S < BULK_LASTS_S

    async def pause_between(self) -> None:
        """Wait before the next record."""
        await self.pause(0.05 if self.sends_bulk else 0.3)

    async def get_bulk_through(self) -> bool:
        """Whether a large request is answered, whatever it is: the memory for it is there again."""
        value = b"bulk" + bytes(BULK_BYTES[-1])
        topics = (TopicProduceData(topic_id=uuid.UUID(int=1), partition_data=(PartitionProduceData(records=value),)),)
        request = ProduceRequest(acks=-1, timeout_ms=3000, topic_data=topics)
        return await self.ask(ApiKey.PRODUCE, request, ProduceResponse) is not None

    async def send(self, topic_id: uuid.UUID, partition: int, value: bytes, batch: bytes, *, once: bool) -> int | None:
        """The error code of one batch; None if there is no answer."""
        data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            acks=-1, timeout_ms=3000, topic_data=(TopicProduceData(topic_id=topic_id, partition_data=(data,)),)
        )
        answer = await self.ask(ApiKey.PRODUCE, request, ProduceResponse)
        if answer is None:
            return None
        found = answer.responses[0].partition_responses[0]
        if found.error_code:
            self.refused("produce", found.error_code)
            if found.error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                self.topics.clear()
        elif found.base_offset >= 0:
            self.tell(
                Acknowledged(self.now, self.name, topic_id, partition, found.base_offset, value.rstrip(b"."), once)
            )
        return found.error_code


class IdempotentProducer(Producer):
    """Sends a record until it is acknowledged."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[tuple[uuid.UUID, int], int] = {}

    async def step(self) -> None:
        await self.pause_between()
        if self._producer is None:
            await self._begin()
            return
        topic_id = await self.some_topic()
        if topic_id is None:
            return
        partition = self.rng.randrange(PARTITIONS)
        sequence = self._sequences.get((topic_id, partition), 0)
        self.numbers += 1
        value = f"once-{self.name}-{self.numbers}".encode()
        if self.sends_bulk:
            value += b"." * self.rng.choice(BULK_BYTES)
        producer_id, epoch = self._producer
        batch = build_batch(
            [NewRecord(BEGAN_MS + int(self.now * 1000), None, value)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        for _ in range(8):
            code = await self.send(topic_id, partition, value, batch, once=True)
            if code == 0:
                self._sequences[topic_id, partition] = sequence + 1
                return
            if code is not None and code != ErrorCode.KAFKA_STORAGE_ERROR:
                break
            await self.pause(1)
        self._producer = None  # what became of the record is not known, and it is never sent again

    async def _begin(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        answer = await self.ask(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse)
        if answer is not None and not answer.error_code:
            self._producer = (answer.producer_id, answer.producer_epoch)
            self._sequences.clear()


class Reader(Client):
    """Reads partitions from anywhere, mostly where they end, and all of everything when it is asked to."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self._ends: dict[tuple[uuid.UUID, int], int] = {}

    async def step(self) -> None:
        await self.pause(0.3)
        topic_id = await self.some_topic()
        if topic_id is not None:
            partition = self.rng.randrange(PARTITIONS)
            end = self._ends.get((topic_id, partition), 0)
            offset = self.rng.choice((end, end, end, 0, self.rng.randrange(end + 1)))
            await self.fetch(topic_id, partition, offset, self.rng.choice((0, 500)))

    async def fetch(self, topic_id: uuid.UUID, partition: int, offset: int, wait_ms: int = 0) -> Fetched | None:
        """What is there from `offset` on."""
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=wait_ms, min_bytes=1, topics=(FetchTopic(topic_id=topic_id, partitions=(wanted,)),)
        )
        asked_at = self.now
        answer = await self.ask(ApiKey.FETCH, request, FetchResponse)
        if answer is None:
            return None
        found = answer.responses[0].partitions[0] if answer.responses else None
        self._ends.pop((topic_id, partition), None)
        if answer.error_code or found is None or found.error_code:
            code = answer.error_code or (found.error_code if found else 0)
            self.refused("fetch", code)
            if code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                self.topics.clear()
            return None
        records = []
        for view in iter_batches(found.records or b""):
            assert view.verify_crc(), "a batch was served whose checksum is wrong"
            for record in decode_records(view):
                found_here = (record.offset, view.leader_epoch, (record.value or b"").rstrip(b"."))
                records += [found_here] if record.offset >= offset else []
        event = Fetched(
            self.now, self.name, topic_id, partition, asked_at, offset, found.high_watermark, tuple(records)
        )
        self.tell(event)
        self._ends[topic_id, partition] = found.high_watermark
        return event

    async def fetch_on(self, topic_id: uuid.UUID, partition: int, offset: int) -> Fetched | None:
        """The same at last: who is cut off goes on from where it was, and does not begin anew."""
        for _ in range(FETCH_TRIES):
            found = await self.fetch(topic_id, partition, offset)
            if found is not None:
                return found
        return None

    async def read_everything(self) -> bool:
        """All of every partition; False if somebody did not answer."""
        await self.look_at_topics()
        for topic_id in [self.topics[name] for name in TOPICS if name in self.topics]:
            for partition in range(PARTITIONS):
                offset = 0
                while True:
                    found = await self.fetch_on(topic_id, partition, offset)
                    if found is None:
                        return False
                    if not found.records:
                        break
                    offset = found.records[-1][0] + 1
                if offset < found.high_watermark:
                    raise AssertionError(f"nothing to read at {offset} below {found.high_watermark}")
        return True


class Member(Client):
    """A member of a consumer group that commits offsets which nobody else does."""

    def __init__(self, world: "World", name: str, group: str = "g", *, commits: bool = True) -> None:
        super().__init__(world, name)
        self.group = group
        self.commits = commits
        self._member = ""
        self._generation = -1
        self._owned: list[tuple[str, int]] = []

    async def step(self) -> None:
        await self.pause(0.4)
        if not self.topics:
            await self.look_at_topics()
        if self._generation < 0:
            await self._join()
            return
        chance = self.rng.random()
        if chance < 0.5 and self.commits:
            await self._commit()
        elif chance < 0.75:
            await self.look_up_offsets()
        elif chance < 0.95:
            await self._heartbeat()
        else:
            await self._leave()

    def _lost(self, request: str, code: int) -> None:
        self.refused(request, code)
        if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return
        self._generation = -1
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member = ""

    async def _join(self) -> None:
        request = FindCoordinatorRequest(coordinator_keys=(self.group,))
        found = await self.ask(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse)
        if found is None or found.coordinators[0].error_code:
            await self.pause(1)
            return
        join = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=3000,
            rebalance_timeout_ms=2500,
            member_id=self._member,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=self.name.encode()),),
        )
        asked_at = self.now
        answer = await self.ask(ApiKey.JOIN_GROUP, join, JoinGroupResponse)
        if answer is None:
            return
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member = answer.member_id
            return
        if answer.error_code:
            self._lost("join", answer.error_code)
            return
        self._member = answer.member_id
        self.tell(Joined(self.now, self.name, self.group, answer.member_id, answer.generation_id, asked_at))
        if self.rng.random() < (0.1 if self.commits else 0.5):
            await self._leave()
            return
        await self._sync(answer)

    async def _sync(self, joined: JoinGroupResponse) -> None:
        shares: tuple[SyncGroupRequestAssignment, ...] = ()
        if joined.leader == joined.member_id:
            everything = [f"{name}-{partition}" for name in TOPICS for partition in range(PARTITIONS)]
            members = [each.member_id for each in joined.members]
            shares = tuple(
                SyncGroupRequestAssignment(
                    member_id=member, assignment=",".join(everything[index :: len(members)]).encode()
                )
                for index, member in enumerate(members)
            )
        sync = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=shares,
        )
        answer = await self.ask(ApiKey.SYNC_GROUP, sync, SyncGroupResponse)
        if answer is None:
            return
        if answer.error_code:
            self._lost("sync", answer.error_code)
            return
        self._generation = joined.generation_id
        owned = answer.assignment.decode()
        self._owned = [(name, int(number)) for name, number in (each.split("-") for each in owned.split(",") if each)]
        self.tell(Assigned(self.now, self.name, self.group, joined.member_id, joined.generation_id, owned))

    async def _heartbeat(self) -> None:
        beat = HeartbeatRequest(group_id=self.group, generation_id=self._generation, member_id=self._member)
        answer = await self.ask(ApiKey.HEARTBEAT, beat, HeartbeatResponse)
        if answer is not None and answer.error_code:
            self._lost("heartbeat", answer.error_code)

    async def _leave(self) -> None:
        members = (MemberIdentity(member_id=self._member),)
        await self.ask(ApiKey.LEAVE_GROUP, LeaveGroupRequest(group_id=self.group, members=members), LeaveGroupResponse)
        self._member, self._generation = "", -1
        await self.pause(2)

    async def _commit(self) -> None:
        owned = [(name, partition) for name, partition in self._owned if name in self.topics]
        if not owned:
            await self.look_at_topics()
            return
        name, partition = self.rng.choice(owned)
        topic_id = self.topics[name]
        offset = self.world.next_number()
        part = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        self.tell(CommitAsked(self.now, self.name, self.group, topic_id, partition, offset))
        commit = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member,
            topics=(OffsetCommitRequestTopic(topic_id=topic_id, partitions=(part,)),),
        )
        answer = await self.ask(ApiKey.OFFSET_COMMIT, commit, OffsetCommitResponse)
        if answer is None:
            return
        code = answer.topics[0].partitions[0].error_code
        if not code:
            self.tell(Committed(self.now, self.name, self.group, topic_id, partition, offset))
        elif code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            self.topics.clear()
        else:
            self._lost("commit", code)

    async def look_up_offsets(self) -> bool:
        """Ask by name for what is committed, if the topics surely keep their ids meanwhile; whether it was answered."""
        await self.look_at_topics()
        before = dict(self.topics)
        asked_at = self.now
        topics = tuple(
            OffsetFetchRequestTopics(name=name, partition_indexes=tuple(range(PARTITIONS)))
            for name in TOPICS
            if name in before
        )
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=self.group, topics=topics),))
        answer = await self.ask(ApiKey.OFFSET_FETCH, request, OffsetFetchResponse, BY_NAME)
        if answer is None:
            return False
        if answer.groups[0].error_code:
            self.refused("offsets", answer.groups[0].error_code)
            return False
        self.topics.clear()  # unless it can be asked again, nothing is sure
        await self.look_at_topics()
        for topic in answer.groups[0].topics:
            topic_id = before[topic.name]
            if self.topics.get(topic.name) != topic_id:
                continue
            for part in topic.partitions:
                if not part.error_code:
                    told = OffsetTold(
                        self.now, self.name, self.group, topic_id, part.partition_index, asked_at, part.committed_offset
                    )
                    self.tell(told)
        return True
