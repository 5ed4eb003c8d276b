"""What all model clients are: they speak the wire protocol, try again, and tell the world what they were told

Each has its own place on the network, its own chance, and one connection at a time to each broker through the product's
own client connection. Where several brokers are it asks any of them which one leads what, and takes no notice of what
it was told once that turns out to be over. What a request came to nobody may know: then it is asked again or given up,
and both is said.

Whoever is told to wait (`throttle_time_ms`) does so, as today's clients do, or takes no notice, as old ones do.
"""

import asyncio
import random
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tests.sim.world.events import Event, HeardAgain, Refused, Throttled, TopicsSeen
from tests.sim.world.topology import PORT, name_of
from tidemill.core.client.connection import Address, Connection
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError
from tidemill.core.runtime.net import TcpDialer
from tidemill.core.runtime.virtual_time import VirtualLoop
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponsePartition

if TYPE_CHECKING:
    from tests.sim.world.world import World

TOPICS: Final = ("a", "b")
PARTITIONS: Final = 2
REQUEST_TIMEOUT_MS: Final = 4000

ELSEWHERE: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH}
)
"""Whoever is told that has asked a broker that does not lead, or believes in another epoch than it does."""

UNKNOWN_TOPIC: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})

ResponseT = TypeVar("ResponseT", bound=Message)


class Led(NamedTuple):
    """Who leads a partition, in which epoch, as far as a client knows."""

    node_id: int
    epoch: int


class Door:
    """The connection to one broker."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.muted_until: float | None = None


class Client:
    """One program on one machine."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.rng = random.Random(world.rng.getrandbits(64))
        self.topics: dict[str, uuid.UUID] = {}
        self.leaders: dict[tuple[uuid.UUID, int], Led] = {}
        self._epochs: dict[tuple[uuid.UUID, int], int] = {}
        self._doors: dict[int, Door] = {}
        self._asked_first = world.any_broker().node_id
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

    # -- asking

    async def ask(
        self,
        key: ApiKey,
        request: Message,
        expect: type[ResponseT],
        version: int | None = None,
        *,
        node_id: int | None = None,
    ) -> ResponseT | None:
        """The answer of that broker, or of one that has answered before; None if there is none.

        It may have been done all the same.
        """
        to = self._asked_first if node_id is None else node_id
        try:
            door = await self.listened_to(to)
            asked_at = self.now
            answer = await door.connection.request(key, request, expect, version=version)
        except (OSError, KafkaError) as error:
            self.lost(key, to, error)
            await self.pause(0.5)
            return None
        self.look_whether_muted(door, key, asked_at, getattr(answer, "throttle_time_ms", 0))
        return answer

    async def listened_to(self, node_id: int) -> Door:
        """The connection to a broker, at a time when it listens, for a client that waits when it is told to."""
        door = await self._door(node_id)
        if self._waits_when_told and door.muted_until is not None:
            await asyncio.sleep(max(door.muted_until - self.now, 0))
        return door

    def lost(self, key: ApiKey, node_id: int, error: Exception) -> None:
        """There is no answer, and none will come."""
        self.refused(key.name, error)
        self._leave_alone(node_id)

    async def _door(self, node_id: int) -> Door:
        door = self._doors.get(node_id)
        if door is None or not door.connection.usable:
            connection = await Connection.open(
                Address(name_of(node_id), PORT),
                client_id=self.name,
                dialer=TcpDialer(),
                connect_timeout_ms=REQUEST_TIMEOUT_MS,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
            )
            door = self._doors[node_id] = Door(connection)
        return door

    def _leave_alone(self, node_id: int) -> None:
        """Somebody does not answer: go by what others say."""
        self.leaders = {key: led for key, led in self.leaders.items() if led.node_id != node_id}
        if node_id == self._asked_first:
            self._asked_first = self.world.any_broker().node_id

    def look_whether_muted(self, door: Door, key: ApiKey, asked_at: float, wait_ms: int) -> None:
        """Tell when an answer comes after one that said to wait, and when it says so itself."""
        if door.muted_until is not None:
            self.tell(HeardAgain(self.now, self.name, key.name, door.muted_until))
            door.muted_until = None
        if wait_ms:
            door.muted_until = asked_at + wait_ms / 1000  # it was said later than it was asked
            self.tell(Throttled(self.now, self.name, key.name, wait_ms))

    # -- the course of it

    async def run(self) -> None:
        """Go on until the world says that it is enough."""
        await self.pause(1)
        while not self.world.enough:
            await self.step()

    async def step(self) -> None:
        """Do one thing."""

    # -- topics, and who leads them

    async def look_at_topics(self) -> None:
        """Ask which topics there are."""
        asked_at, asked = self.now, self._asked_first
        known = self.world.image_offset_of(asked)
        answer = await self.ask(ApiKey.METADATA, MetadataRequest(topics=None), MetadataResponse, node_id=asked)
        if answer is None:
            return
        topics = [each for each in answer.topics if not each.error_code]
        found = sorted((each.name or "", each.topic_id) for each in topics)
        self.topics = dict(found)
        self.leaders = {
            (topic.topic_id, each.partition_index): Led(each.leader_id, each.leader_epoch)
            for topic in topics
            for each in topic.partitions
            if each.leader_id >= 0 and not each.error_code and self._is_news(topic.topic_id, each)
        }
        torn = [each.name or "" for each in answer.topics if each.name in TOPICS and len(each.partitions) != PARTITIONS]
        self.tell(TopicsSeen(self.now, self.name, asked_at, known, tuple(found), tuple(torn)))

    def _is_news(self, topic_id: uuid.UUID, partition: MetadataResponsePartition) -> bool:
        """Whether no newer leader epoch was heard of, from another broker."""
        key = (topic_id, partition.partition_index)
        self._epochs[key] = max(self._epochs.get(key, -1), partition.leader_epoch)
        return partition.leader_epoch == self._epochs[key]

    async def some_topic(self) -> uuid.UUID | None:
        """The id of one of the topics, as far as this client knows."""
        if not self.topics or self.rng.random() < 0.05:
            await self.look_at_topics()
        names = [name for name in TOPICS if name in self.topics]
        if not names:
            await self.pause(0.5)
            return None
        return self.topics[self.rng.choice(names)]

    async def leader_of(self, topic_id: uuid.UUID, partition: int) -> Led:
        """Who is to be asked about a partition; anybody, in no epoch, where that is not known."""
        if (topic_id, partition) not in self.leaders:
            await self.look_at_topics()
        return self.leaders.get((topic_id, partition)) or Led(self._asked_first, -1)

    def wrong(self, topic_id: uuid.UUID, partition: int, code: int) -> None:
        """A broker refused something about a partition: believe less from now on."""
        if code in ELSEWHERE:
            self.leaders.pop((topic_id, partition), None)
        elif code in UNKNOWN_TOPIC:
            self.topics.clear()
