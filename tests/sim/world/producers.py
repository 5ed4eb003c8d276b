"""Producers: one sends each record once, the others until it is acknowledged

Of these one has a batch under way, one several of a partition, and one asks for all partitions in one request.
"""

import asyncio
import contextlib
import random
import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.sim.world.clients import PARTITIONS, Client
from tests.sim.world.events import Acknowledged, OutOfOrder, StoredNowhere
from tests.sim.world.node import BEGAN_MS
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError
from tidemill.core.records.batch import iter_batches
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, decode_records
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

GONE_ON: Final = 6
"""So many more are sent, now and then, before one comes again whose answer was lost, as by Java's client if another
broker leads by then."""

STORED: Final = frozenset({0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
"""What says that a batch is there."""

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


Sent = Mapping[int, tuple[int, bytes]]
"""By partition, the epoch that the broker knew of then, and the value."""


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
        request = _request(topic_id, {partition: batch})
        epoch = self.world.epoch_known_to(led.node_id, topic_id, partition)
        answer = await self.ask(ApiKey.PRODUCE, request, ProduceResponse, node_id=led.node_id)
        return (
            None if answer is None else self.heard(answer, topic_id, led.node_id, {partition: (epoch, value)}, once)[0]
        )

    def heard(self, answer: ProduceResponse, topic_id: uuid.UUID, node_id: int, sent: Sent, once: bool) -> list[int]:
        """Say what came of the batches of a request that `node_id` has answered; their error codes."""
        codes: list[int] = []
        for row in answer.responses[0].partition_responses:
            asked_in, value = sent[row.index]
            stored, offset = value.rstrip(b"."), row.base_offset
            codes.append(row.error_code)
            if row.error_code:
                self.refused("produce", row.error_code)
                self.wrong(topic_id, row.index, row.error_code)
            if row.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                with contextlib.suppress(KafkaError):  # the disk cannot be read for now
                    offset = self._found(topic_id, node_id, row.index, asked_in, stored)
            if row.error_code in STORED and offset >= 0:
                epoch = self.world.newest_epoch(topic_id, row.index)
                told = (topic_id, row.index, offset, stored, once, epoch, asked_in)
                self.tell(Acknowledged(self.now, self.name, *told))
        return codes

    def _found(self, topic_id: uuid.UUID, node_id: int, partition: int, asked_in: int, value: bytes) -> int:
        """Where a record is of which the broker said only that it is there; -1 if the log is not that of then."""
        log = self.world.log_led_in(asked_in, node_id, topic_id, partition)
        if log is None:
            return -1
        offset = log.log_start_offset
        while data := log.read(offset, sys.maxsize):  # of one segment
            for view in iter_batches(data):
                for record in decode_records(view):
                    if (record.value or b"").rstrip(b".") == value:
                        return record.offset
                offset = view.last_offset + 1
        if log.log_start_offset == 0:
            self.tell(StoredNowhere(self.now, self.name, topic_id, partition, value))
        return -1


def _request(topic_id: uuid.UUID, batches: Mapping[int, bytes]) -> ProduceRequest:
    """For these partitions, in this order."""
    data = tuple(PartitionProduceData(index=partition, records=batch) for partition, batch in batches.items())
    return ProduceRequest(
        acks=-1, timeout_ms=3000, topic_data=(TopicProduceData(topic_id=topic_id, partition_data=data),)
    )


class IdempotentProducer(Producer):
    """Sends a record until it is acknowledged."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[tuple[uuid.UUID, int], int] = {}

    async def step(self) -> None:
        topic_id = await self._next_topic()
        if topic_id is None:
            return
        assert self._producer is not None
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
            if code in STORED:
                self._sequences[topic_id, partition] = sequence + 1
                return
            if code is not None and code not in PASSING:
                break
            await self.pause(1)
        self._producer = None  # what became of the record is not known, and it is never sent again

    async def _next_topic(self) -> uuid.UUID | None:
        """Where to send to, after a pause; None if there is none yet, or first of all has to be a producer id."""
        await self.pause_between()
        if self._producer is None:
            await self._begin()
            return None
        return await self.some_topic()

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
        self._last: dict[tuple[uuid.UUID, int], int] = {}
        """The offset of the last record that is known to be stored."""

    @classmethod
    def is_in(cls, seed: int) -> bool:
        """Whether a world has one; three of four do without."""
        return random.Random(f"{seed} pipelined").random() < 0.25

    async def _begin(self) -> None:
        self._acknowledged.clear()
        self._last.clear()
        await super()._begin()

    async def step(self) -> None:
        topic_id = await self._next_topic()
        if topic_id is None:
            return
        partition = self.rng.randrange(PARTITIONS)
        stored = self._acknowledged.setdefault((topic_id, partition), [])
        left = [self._next(topic_id, partition) for _ in range(self.rng.choice(IN_FLIGHT))]
        behind: int | None = None  # what was the last that is stored, when it went on with some missing
        for _ in range(TRIES):
            codes = await self._send_all(topic_id, partition, left)
            # A copy without one record of this producer lets in what comes behind a gap, and so before these.
            if behind is None or self.world.beginnings.of(topic_id, partition) <= behind:
                self._tell_of_a_gap(topic_id, partition, codes)
            stored += [batch for batch, code in zip(left, codes, strict=True) if code in STORED]
            left = [batch for batch, code in zip(left, codes, strict=True) if code not in STORED]
            if not left:
                if self.rng.random() < 0.3:
                    await self.send(topic_id, partition, *self.rng.choice(stored), once=True)
                return
            if not PASSING.issuperset(code for code in codes if code not in (None, *STORED)):
                break
            await self.pause(1)
            if None in codes and stored and self.rng.random() < 0.3:  # else it would begin with these: anywhere
                behind = self._last.get((topic_id, partition), -1) if behind is None else behind
                left += await self._go_on(topic_id, partition)
        self._producer = None  # what became of those that are left is not known, and they are never sent again

    async def _go_on(self, topic_id: uuid.UUID, partition: int) -> list[Batch]:
        """Send more before those that were not answered come again; which of it is not stored."""
        more = [self._next(topic_id, partition) for _ in range(GONE_ON)]
        codes = await self._send_all(topic_id, partition, more)
        await self.pause(1)
        return [batch for batch, code in zip(more, codes, strict=True) if code != 0]

    def heard(self, answer: ProduceResponse, topic_id: uuid.UUID, node_id: int, sent: Sent, once: bool) -> list[int]:
        for row in answer.responses[0].partition_responses:
            if not row.error_code:
                last = self._last.get((topic_id, row.index), -1)
                self._last[topic_id, row.index] = max(last, row.base_offset)
        return super().heard(answer, topic_id, node_id, sent, once)

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

    def _tell_of_a_gap(self, topic_id: uuid.UUID, partition: int, codes: Sequence[int | None]) -> None:
        """Tell if one of what was sent with nothing missing before it was out of order, and none failed for good."""
        out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if out_of_order in codes and PASSING.issuperset(set(codes) - {None, out_of_order, *STORED}):
            self.tell(OutOfOrder(self.now, self.name, topic_id, partition))

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
                    due = door.connection.send(ApiKey.PRODUCE, _request(topic_id, {partition: batch.data}))
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
        topic_id, partition, epoch = about
        (code,) = self.heard(answer, topic_id, node_id, {partition: (epoch, value)}, once=True)
        return code, answer.throttle_time_ms


class SpreadProducer(PipelinedProducer):
    """Asks for all partitions of a topic that one broker leads in one request, so that they wait for one another."""

    @classmethod
    def is_in(cls, seed: int) -> bool:
        """Whether a world has one; half of all do."""
        return random.Random(f"{seed} spread").random() < 0.5

    async def step(self) -> None:
        topic_id = await self._next_topic()
        if topic_id is None:
            return
        partitions = self.rng.sample(range(PARTITIONS), PARTITIONS)
        left = {partition: self._next(topic_id, partition) for partition in partitions}
        for _ in range(TRIES):
            codes = await self._send_to_leaders(topic_id, left)
            left = {partition: batch for partition, batch in left.items() if codes.get(partition) not in STORED}
            if not left:
                return
            if not PASSING.issuperset(code for code in codes.values() if code not in STORED):
                break
            await self.pause(1)
        self._producer = None

    async def _send_to_leaders(self, topic_id: uuid.UUID, batches: Mapping[int, Batch]) -> dict[int, int]:
        """One request to each leader; by partition the error code where there is an answer."""
        led: dict[int, list[int]] = {}
        for partition in batches:
            led.setdefault((await self.leader_of(topic_id, partition)).node_id, []).append(partition)
        codes: dict[int, int] = {}
        for node_id, partitions in led.items():
            request = _request(topic_id, {partition: batches[partition].data for partition in partitions})
            sent = {
                partition: (self.world.epoch_known_to(node_id, topic_id, partition), batches[partition].value)
                for partition in partitions
            }
            answer = await self.ask(ApiKey.PRODUCE, request, ProduceResponse, node_id=node_id)
            if answer is not None:
                codes |= zip(partitions, self.heard(answer, topic_id, node_id, sent, once=True), strict=True)
        return codes
