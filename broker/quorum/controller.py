"""The shell around the metadata machine: decide, append, sync, apply

One request at a time, in the order in which they came: the next decision is made on an image that holds the one
before. Listeners hear of every new image, and are waited for, before the caller is answered and before the next
decision: a topic that was reported created has its logs open, and one that was deleted has let go of its folder.

Readers take `.image` and keep it as long as they like; it never changes.

When the log has grown enough, or enough time has passed, a snapshot of the image is written by a worker thread while
decisions go on. It begins between two decisions, so that it holds exactly what is in the log below its end.

A disk that fails (not one that is full) ends the node: `on_failure` is told, nobody is answered as if it had worked,
and the next start reads what is really there.

Not here: judging requests (`tidemill.broker.quorum.metadata`) and bytes on disk (`tidemill.broker.quorum.store`).
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias, TypeVar, cast

import structlog

from tidemill.broker.quorum.image import ClusterImage, Draft, TopicImage
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
    new_leaderships,
    with_topic_ids,
)
from tidemill.broker.quorum.records import BrokerEndpoint, MetadataRecord
from tidemill.broker.quorum.snapshot import records_of
from tidemill.broker.quorum.store import ROOM_BYTES, MetadataStore, MetadataStoreError, SnapshotStopped
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError, error_for_code
from tidemill.core.runtime.clock import Clock
from tidemill.core.runtime.disk import DISK_FULL

log = structlog.get_logger("tidemill.broker.quorum")

Listener: TypeAlias = Callable[[ClusterImage, ClusterImage], Awaitable[None]]
"""Awaited with the image before and the image after."""

QUEUED_REQUESTS_MAX: Final = 1000
"""Requests that may wait for their turn; more make their connections wait, which is the back-pressure."""


LEADERSHIPS_PER_BATCH: Final = 10_000
"""New leaderships are written in batches of 0.4 MB: what is lost of them by another crash is written anew."""

LEADERSHIP_BYTES: Final = 45
"""Of log for each of them; room for one of each partition is set aside, so that a start on a full disk is possible."""

SNAPSHOT_RETRY_MS: Final = 60_000
"""How long a snapshot for which there was no room is not tried again."""

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRules:
    """When a snapshot is due: after so many bytes of log, or, with anything new, so long after the last; 0 is never."""

    max_bytes: int = 20 * 2**20
    max_interval_ms: int = 3_600_000


class Controller:
    """The quorum of one.

    `still_there` is asked, in a worker thread, which of the removed topics may still have files; `executor` does what
    waits for the disk.
    """

    def __init__(
        self,
        store: MetadataStore,
        *,
        clock: Clock,
        rules: Rules,
        node_id: int,
        new_uuid: Callable[[], uuid.UUID],
        snapshots: SnapshotRules = SnapshotRules(),
        on_failure: Callable[[OSError], None] = lambda _error: None,
        still_there: Callable[[Mapping[uuid.UUID, str]], Collection[uuid.UUID]] = lambda removed: removed,
        executor: Executor | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._rules = rules
        self._node_id = node_id
        self._new_uuid = new_uuid
        self._snapshots = snapshots
        self._on_failure = on_failure
        self._still_there = still_there
        self._executor = executor
        self._image = ClusterImage()
        self._listeners: list[Listener] = []
        self._queue: asyncio.Queue[tuple[Request, asyncio.Future[Response]]] = asyncio.Queue(QUEUED_REQUESTS_MAX)
        self._turn = asyncio.Lock()  # held for as long as the log may be ahead of the image
        self._snapshot_wanted = asyncio.Event()
        self._snapshot_from_ms = clock.now_ms()
        self._snapshot_not_before_ms = 0
        self._stopping = False
        self._removed: dict[uuid.UUID, str] = {}

    @property
    def removed_topic_ids(self) -> Collection[uuid.UUID]:
        """Topics that are gone and may have left files behind."""
        return self._removed.keys()

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
        draft = Draft(ClusterImage())
        loaded = self._store.load(draft.apply_all)
        if loaded.torn_bytes:
            log.warning("cut an unfinished write off the metadata log", torn_bytes=loaded.torn_bytes)
        for sentence in loaded.damaged:
            log.error("went back to an older snapshot and the log behind it", reason=sentence)
        self._image, self._removed = draft.freeze(self._store.offset_end), draft.removed
        self._keep_room()
        if loaded.damaged:
            self._snapshot_wanted.set()

    def begin_leaderships(self) -> int:
        """Give every partition that this node leads a new leader epoch; returns how many there are.

        For a start after a stop out of order, before anything is appended. Blocks; raises MetadataStoreError.
        """
        begun = 0
        leaderships = new_leaderships(self._image, self._node_id)
        while records := tuple(islice(leaderships, LEADERSHIPS_PER_BATCH)):
            self._store.append(records, self._clock.now_ms())
            self._store.sync()
            self._apply(records)
            begun += len(records)
        return begun

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
                async with self._turn:
                    response = await self._commit_next(request)
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)
                if self._image.offset != self._store.offset_end and not isinstance(error, KafkaError):
                    raise  # the log has what the image has not: only a start that replays it can go on
            else:
                if not answer.done():
                    answer.set_result(response)
                self.want_snapshot_when_due()

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
            await self._in_thread(self._store.sync)
        except MetadataStoreError as error:
            log.error("metadata change refused", reason=str(error))
            self._report_failure(error)
            raise error_for_code(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        before = self._image
        self._apply(result.records)
        for listener in self._listeners:
            await listener(before, self._image)
        return result.response

    def _apply(self, records: Sequence[MetadataRecord]) -> None:
        draft = Draft(self._image)
        draft.apply_all(records)
        self._image = draft.freeze()
        self._removed.update(draft.removed)
        self._keep_room()

    def _keep_room(self) -> None:
        self._store.keep_room(ROOM_BYTES + LEADERSHIP_BYTES * self._image.partition_count)

    def _report_failure(self, error: OSError) -> None:
        if self._store.failure is not None:
            self._on_failure(error)

    async def _in_thread(self, call: Callable[[], ResultT]) -> ResultT:
        """The result of `call`; who is cancelled waits for its end, for files must not be closed under it."""
        working = asyncio.get_running_loop().run_in_executor(self._executor, call)
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            self._stopping = True
            await asyncio.wait([working])
            if not working.cancelled():
                working.exception()  # whatever it was, nobody waits for it any more
            raise

    # --- snapshots

    def want_snapshot_when_due(self) -> None:
        """Let `keep_snapshots` write one if the log has grown enough or the last is old enough."""
        now_ms = self._clock.now_ms()
        if now_ms < self._snapshot_not_before_ms or self._snapshot_is_current():
            return
        rules = self._snapshots
        too_old = rules.max_interval_ms and now_ms - self._snapshot_from_ms >= rules.max_interval_ms
        if too_old or self._store.bytes_since_snapshot >= rules.max_bytes:
            self._snapshot_wanted.set()

    def _snapshot_is_current(self) -> bool:
        return self._store.snapshot is not None and self._store.snapshot.offset_end == self._image.offset

    async def keep_snapshots(self) -> None:
        """Write a snapshot whenever one is wanted, until cancelled; the owner runs this beside `run`."""
        while True:
            await self._snapshot_wanted.wait()
            self._snapshot_wanted.clear()
            try:
                await self._write_snapshot()
            except OSError as error:
                self._snapshot_not_before_ms = self._clock.now_ms() + SNAPSHOT_RETRY_MS
                log.warning("no snapshot of the metadata: the log keeps growing until there is one", reason=str(error))
                if error.errno not in DISK_FULL:
                    self._on_failure(error)

    async def _write_snapshot(self) -> None:
        async with self._turn:
            if self._snapshot_is_current():
                return  # wanted once more while the last was being written
            which = await self._in_thread(self._store.roll)
            image, removed = self._image, dict(self._removed)
        self._snapshot_from_ms = now_ms = self._clock.now_ms()

        def write() -> Collection[uuid.UUID]:
            left = self._still_there(removed)
            records = records_of(image, {topic_id: removed[topic_id] for topic_id in left})
            size_bytes = self._store.write_snapshot(which, records, now_ms, lambda: self._stopping)
            log.info("snapshot of the metadata written", file=which.name, bytes=size_bytes, topics=len(image.topics))
            return left

        try:
            left = await self._in_thread(write)
        except SnapshotStopped:
            return
        for topic_id in removed.keys() - set(left):
            del self._removed[topic_id]
