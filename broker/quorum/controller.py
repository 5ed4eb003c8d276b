"""The shell around the metadata machine: decide, append, sync, apply

One request at a time, in the order in which they came: the next decision is made on an image that holds the one
before. Listeners hear of every new image, and are waited for, before the caller is answered and before the next
decision: a topic that was reported created has its logs open, and one that was deleted has let go of its folder.

Readers take `.image` and keep it as long as they like; it never changes.

Not here: judging requests (`tidemill.broker.quorum.metadata`) and bytes on disk (`tidemill.broker.quorum.store`).
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias, cast

import structlog

from tidemill.broker.quorum.image import ClusterImage, TopicImage, apply_batch
from tidemill.broker.quorum.metadata import (
    AllocateProducerIds,
    AlterConfigs,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewTopic,
    PartitionIncrease,
    ProducerIdBlock,
    RegisterBroker,
    Registration,
    Request,
    ResourceChange,
    ResourceResult,
    Response,
    Rules,
    TopicRef,
    TopicResult,
    decide,
    with_topic_ids,
)
from tidemill.broker.quorum.records import BrokerEndpoint, RemoveTopicRecord
from tidemill.broker.quorum.store import MetadataStore, MetadataStoreError
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError, error_for_code
from tidemill.core.runtime.clock import Clock

log = structlog.get_logger("tidemill.broker.quorum")

Listener: TypeAlias = Callable[[ClusterImage, ClusterImage], Awaitable[None]]
"""Awaited with the image before and the image after."""

QUEUED_REQUESTS_MAX: Final = 1000
"""Requests that may wait for their turn; more make their connections wait, which is the back-pressure."""


class Controller:
    """The quorum of one."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        clock: Clock,
        rules: Rules,
        node_id: int,
        new_uuid: Callable[[], uuid.UUID],
    ) -> None:
        self._store = store
        self._clock = clock
        self._rules = rules
        self._node_id = node_id
        self._new_uuid = new_uuid
        self._image = ClusterImage()
        self._listeners: list[Listener] = []
        self._queue: asyncio.Queue[tuple[Request, asyncio.Future[Response]]] = asyncio.Queue(QUEUED_REQUESTS_MAX)
        self.removed_topic_ids: set[uuid.UUID] = set()

    @property
    def image(self) -> ClusterImage:
        """What is committed now."""
        return self._image

    @property
    def log_end_offset(self) -> int:
        """The offset after the last decision written; `image.offset` is the one after the last committed."""
        return self._store.offset_end

    def load(self) -> None:
        """Replay the metadata log; raises MetadataCorruptError."""
        loaded = self._store.load()
        if loaded.torn_bytes:
            log.warning("cut an unfinished write off the metadata log", torn_bytes=loaded.torn_bytes)
        records = [record for batch in loaded.batches for record in batch]
        self.removed_topic_ids = {record.topic_id for record in records if isinstance(record, RemoveTopicRecord)}
        for batch in loaded.batches:
            self._image = apply_batch(self._image, batch)

    def subscribe(self, listener: Listener) -> None:
        """Await `listener` after every commit, before the request is answered."""
        self._listeners.append(listener)

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> tuple[TopicResult, ...]:
        """Create topics; one result per name, in order."""
        request = CreateTopics(topics=tuple(topics), validate_only=validate_only)
        request = with_topic_ids(request, [self._new_topic_id() for _ in topics])
        return cast(tuple[TopicResult, ...], await self._commit(request))

    async def ensure_topic(self, topic: NewTopic) -> TopicImage:
        """The topic of that name, created if it is not there; raises KafkaError when it cannot be."""
        existing = self._image.topics.get(topic.name)
        if existing is not None:
            return existing
        (result,) = await self.create_topics((topic,))
        if result.error is not None and result.error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise result.error
        return self._image.topics[topic.name]

    async def delete_topics(self, topics: Sequence[TopicRef]) -> tuple[TopicResult, ...]:
        """Delete topics; one result per name or id, in order."""
        return cast(tuple[TopicResult, ...], await self._commit(DeleteTopics(topics=tuple(topics))))

    async def create_partitions(
        self, topics: Sequence[PartitionIncrease], *, validate_only: bool = False
    ) -> tuple[TopicResult, ...]:
        """Grow topics; one result per name, in order."""
        request = CreatePartitions(topics=tuple(topics), validate_only=validate_only)
        return cast(tuple[TopicResult, ...], await self._commit(request))

    async def alter_configs(
        self, resources: Sequence[ResourceChange], *, validate_only: bool = False
    ) -> tuple[ResourceResult, ...]:
        """Change settings; one result per resource, in order."""
        request = AlterConfigs(resources=tuple(resources), validate_only=validate_only)
        return cast(tuple[ResourceResult, ...], await self._commit(request))

    async def allocate_producer_ids(self) -> range:
        """A block of producer ids that nobody else will get."""
        block = cast(ProducerIdBlock, await self._commit(AllocateProducerIds(broker_id=self._node_id)))
        return range(block.first, block.first + block.count)

    async def register_broker(self, end_points: Sequence[BrokerEndpoint], rack: str | None) -> int:
        """Announce this process as the current incarnation of its node; returns the broker epoch."""
        request = RegisterBroker(
            broker_id=self._node_id,
            incarnation_id=self._new_uuid(),
            end_points=tuple(end_points),
            rack=rack,
        )
        return cast(Registration, await self._commit(request)).broker_epoch

    def close(self) -> None:
        """Give the metadata log back."""
        self._store.close()

    def _new_topic_id(self) -> uuid.UUID:
        """A random id; like Kafka's, its text never starts with a dash, which would look like an option."""
        while True:
            candidate = self._new_uuid()
            if candidate.bytes[0] >> 2 != 62 and candidate not in self._image.topic_names:
                return candidate

    async def run(self) -> None:
        """Work on requests until cancelled; the owner runs this as a task for as long as it serves."""
        while True:
            request, answer = await self._queue.get()
            try:
                response = await self._commit_next(request)
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)
                if self._image.offset != self._store.offset_end and not isinstance(error, KafkaError):
                    raise  # the log has what the image has not: only a start that replays it can go on
            else:
                if not answer.done():
                    answer.set_result(response)

    async def _commit(self, request: Request) -> Response:
        """Queue `request`; a client that goes away stops waiting, its request is carried out all the same."""
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        await self._queue.put((request, answer))
        return await answer

    async def _commit_next(self, request: Request) -> Response:
        result = decide(self._image, request, self._rules)
        if not result.records:
            return result.response
        try:
            self._store.append(result.records, self._clock.now_ms())
            await asyncio.to_thread(self._store.sync)
        except MetadataStoreError as error:
            log.error("metadata change refused", reason=str(error))
            raise error_for_code(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        before = self._image
        self._image = apply_batch(before, result.records)
        for listener in self._listeners:
            await listener(before, self._image)
        return result.response
