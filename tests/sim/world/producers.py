"""Producers: one sends each record once, one sends it until it is acknowledged, one does so with several at a time"""

import asyncio
import random
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.sim.world.clients import PARTITIONS, Client
from tests.sim.world.events import Acknowledged, OutOfOrder
from tests.sim.world.node import BEGAN_MS
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidemill.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

if TYPE_CHECKING:
    from tests.sim.world.world import World

BULK_BYTES: Final = (70_000, 140_000)
"""More than lies in an ordinary buffer."""

BULK_EVERY_S: Final = 4.0
BULK_LASTS_S: Final = 1.0
"""So often, and for so long, all who send much do it at once."""

TRIES: Final = 8
"""So often a batch is sent."""

IN_FLIGHT: Final = range(2, 6)
"""So many batches are under way at once; Kafka's clients have five at most."""

PASSING: Final = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""After these the same batch is sent again."""


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
        led = await self.leader_of(topic_id, partition)
        request = _request(topic_id, partition, batch)
        epoch = self.world.epoch_known_to(led.node_id, topic_id, partition)
        answer = await self.ask(ApiKey.PRODUCE, request, ProduceResponse, node_id=led.node_id)
        return None if answer is None else self.heard(answer, topic_id, partition, epoch, value, once=once)

    def heard(
        self, answer: ProduceResponse, topic_id: uuid.UUID, partition: int, asked_in: int, value: bytes, *, once: bool
    ) -> int:
        """Say what came of one batch, which was sent when the broker knew of that epoch; its error code."""
        found = answer.responses[0].partition_responses[0]
        if found.error_code:
            self.refused("produce", found.error_code)
            self.wrong(topic_id, partition, found.error_code)
        elif found.base_offset >= 0:
            stored, epoch = value.rstrip(b"."), self.world.newest_epoch(topic_id, partition)
            told = (topic_id, partition, found.base_offset, stored, once, epoch, asked_in)
            self.tell(Acknowledged(self.now, self.name, *told))
        return int(found.error_code)


def _request(topic_id: uuid.UUID, partition: int, batch: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(
        acks=-1, timeout_ms=3000, topic_data=(TopicProduceData(topic_id=topic_id, partition_data=(data,)),)
    )


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
        for _ in range(TRIES):
            code = await self.send(topic_id, partition, value, batch, once=True)
            if code == 0:
                self._sequences[topic_id, partition] = sequence + 1
                return
            if code is not None and code not in PASSING:
                break
            await self.pause(1)
        self._producer = None  # what became of the record is not known, and it is never sent again

    async def _begin(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        answer = await self.ask(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse)
        if answer is not None and not answer.error_code:
            self._producer = (answer.producer_id, answer.producer_epoch)
            self._sequences.clear()


class Batch(NamedTuple):
    """One record, as it is sent."""

    value: bytes
    data: bytes


class PipelinedProducer(IdempotentProducer):
    """Has several batches of a partition under way at once, and sends again what is not acknowledged, in order.

    Now and then one that was acknowledged long ago comes again, as by a client that never heard: it is stored once.
    """

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self._acknowledged: dict[tuple[uuid.UUID, int], list[Batch]] = {}

    @classmethod
    def is_in(cls, seed: int) -> bool:
        """Whether a world has one; three of four do without."""
        return random.Random(f"{seed} pipelined").random() < 0.25

    async def _begin(self) -> None:
        self._acknowledged.clear()
        await super()._begin()

    async def step(self) -> None:
        await self.pause_between()
        if self._producer is None:
            await self._begin()
            return
        topic_id = await self.some_topic()
        if topic_id is None:
            return
        partition = self.rng.randrange(PARTITIONS)
        left = [self._next(topic_id, partition) for _ in range(self.rng.choice(IN_FLIGHT))]
        for _ in range(TRIES):
            codes = await self._send_all(topic_id, partition, left)
            stored = self._acknowledged.setdefault((topic_id, partition), [])
            stored += [batch for batch, code in zip(left, codes, strict=True) if code == 0]
            left = [batch for batch, code in zip(left, codes, strict=True) if code != 0]
            if not left:
                if self.rng.random() < 0.3:
                    await self.send(topic_id, partition, *self.rng.choice(stored), once=True)
                return
            if not PASSING.issuperset(code for code in codes if code):
                break
            await self.pause(1)
        self._producer = None  # what became of those that are left is not known, and they are never sent again

    def _next(self, topic_id: uuid.UUID, partition: int) -> Batch:
        assert self._producer is not None
        producer_id, epoch = self._producer
        sequence = self._sequences.get((topic_id, partition), 0)
        self._sequences[topic_id, partition] = sequence + 1
        self.numbers += 1
        value = f"once-{self.name}.{producer_id}-{self.numbers}".encode()
        record = NewRecord(BEGAN_MS + int(self.now * 1000), None, value)
        return Batch(
            value, build_batch([record], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        )

    async def _send_all(self, topic_id: uuid.UUID, partition: int, batches: list[Batch]) -> list[int | None]:
        """Send them one behind the other without waiting; the error code of each, None where there is no answer."""
        led = await self.leader_of(topic_id, partition)
        heard: list[asyncio.Task[tuple[int, int] | None]] = []
        async with asyncio.TaskGroup() as listening:
            try:
                door = await self.listened_to(led.node_id)
                asked_at = self.now
                for batch in batches:
                    epoch = self.world.epoch_known_to(led.node_id, topic_id, partition)
                    due = door.connection.send(ApiKey.PRODUCE, _request(topic_id, partition, batch.data))
                    heard.append(
                        listening.create_task(self._hear(due, led.node_id, (topic_id, partition, epoch), batch.value))
                    )
                    if self.rng.random() < 0.3:  # what refuses the one may be over before the next
                        await self.pause(1)
            except (OSError, KafkaError) as error:
                self.lost(ApiKey.PRODUCE, led.node_id, error)
        answers = [each.result() for each in heard]
        waits_ms = [answer[1] for answer in answers if answer is not None]
        if waits_ms:  # those behind the one that says so are under way already, and are not held back
            self.look_whether_muted(door, ApiKey.PRODUCE, asked_at, max(waits_ms))
        codes = [None if answer is None else answer[0] for answer in answers]
        if ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER in codes and PASSING.issuperset(
            code for code in codes if code not in (None, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        ):
            self.tell(OutOfOrder(self.now, self.name, topic_id, partition))
        return codes + [None] * (len(batches) - len(codes))

    async def _hear(
        self, due: "asyncio.Future[Message]", node_id: int, about: tuple[uuid.UUID, int, int], value: bytes
    ) -> tuple[int, int] | None:
        """The code of an answer and how long to wait for it, told when it comes: a promise made before a power cut."""
        try:
            answer = await due
        except (OSError, KafkaError) as error:
            self.lost(ApiKey.PRODUCE, node_id, error)
            return None
        assert isinstance(answer, ProduceResponse)
        return self.heard(answer, *about, value, once=True), answer.throttle_time_ms
