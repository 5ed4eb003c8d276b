"""The shell around the metadata machine: decide, sync, commit, tell

There are two images. A request is decided at once, on the speculative one, which holds everything decided so far; the
next request finds it there. The committed one, which readers get as `.image`, holds what is on the disk. What was
decided while the disk was busy is written as one batch, of which a crash leaves all or nothing, and shares one fsync;
an answer waits until all that it was decided on is durable, a refusal too.

When the log refuses a batch, the speculative image is the committed one again, and what was decided on the other is
nothing. What was refused together is then tried one by one, so that on a full disk the deletion that frees it is not
refused because of its neighbours; who is refused alone is told so. So it is with a decision that cannot be written.

Those who keep something that they found in an image are told what changed. Watchers hear of it when it is committed,
in the same turn of the event loop, and must not wait. Listeners may: they are told one delta after another, off the
way of decisions, and one delta covers all that was committed meanwhile. An answer waits for them too: a topic that was
reported created has its logs open, and one that was deleted has let go of its folder. A listener that fails is told no
delta twice, for it may have done half of it, and nobody's answer is an error because of it: what is committed is true.

When the log has grown enough, or enough time has passed, a snapshot of the image is written by a worker thread while
decisions go on. It begins between two batches, so that it holds exactly what is in the log below its end.

A disk that fails (not one that is full) ends the node: `on_failure` is told, nobody is answered as if it had worked,
and the next start reads what is really there.

Not here: judging requests (`tidemill.broker.quorum.metadata`) and bytes on disk (`tidemill.broker.quorum.store`).
"""

import asyncio
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Final, Protocol, TypeAlias, cast

import structlog

from tidemill.broker.quorum.delta import ImageDelta
from tidemill.broker.quorum.disk_thread import DiskThread
from tidemill.broker.quorum.image import ClusterImage, Draft, TopicImage
from tidemill.broker.quorum.leadership import AlterReassignments, ElectLeaders, PartitionResult
from tidemill.broker.quorum.member import Alone, Member, QuorumState
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
    UncleanElection,
    decide,
    new_leaderships,
    with_topic_ids,
)
from tidemill.broker.quorum.records import BrokerEndpoint, MetadataRecord
from tidemill.broker.quorum.snapshot import records_of
from tidemill.broker.quorum.store import (
    ROOM_BYTES,
    MetadataStore,
    MetadataStoreError,
    MetadataUnwritable,
    SnapshotStopped,
)
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError, NotController, UnknownTopicOrPartition, error_for_code
from tidemill.core.runtime.clock import Clock
from tidemill.core.runtime.disk import DISK_FULL
from tidemill.core.types import ZERO_UUID
from tidemill.core.wire.message import Message

log = structlog.get_logger("tidemill.broker.quorum")

Watcher: TypeAlias = Callable[[ImageDelta], None]
"""Called when something is committed, before anybody else can see it."""

Listener: TypeAlias = Callable[[ImageDelta], Awaitable[None]]
"""Awaited with what changed since it was last."""

PENDING_REQUESTS_MAX: Final = 1000
"""Requests without an answer; more make their connections wait, which is the back-pressure."""

RECORDS_PER_BATCH: Final = 10_000
"""From so many on nothing more is written with them: some 0.6 MB that are lost or kept together."""

LEADERSHIPS_PER_BATCH: Final = 10_000
"""New leaderships are written in batches of 0.4 MB: what is lost of them by another crash is written anew."""

LEADERSHIP_BYTES: Final = 45
"""Of log for each of them; room for one of each partition is set aside, so that a start on a full disk is possible."""

SNAPSHOT_RETRY_MS: Final = 60_000
"""How long a snapshot for which there was no room is not tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRules:
    """When a snapshot is due: after so many bytes of log, or, with anything new, so long after the last; 0 is never."""

    max_bytes: int = 20 * 2**20
    max_interval_ms: int = 3_600_000


class Elsewhere(Protocol):
    """The way to the active controller where that is another node's."""

    async def ensure_topic(self, topic: NewTopic) -> TopicImage:
        """As `Controller.ensure_topic`; this node knows the topic when it returns."""

    async def allocate_producer_ids(self) -> range:
        """As `Controller.allocate_producer_ids`."""


@dataclass(slots=True, eq=False)
class _Asked:
    """Mutable: a request on its way, what was decided, and the image that this led to."""

    request: "Request | None"  # None is what the quorum writes about itself
    answer: "asyncio.Future[Response]"
    from_here: bool = True  # by this node's own broker, which is to go by the outcome when it is answered
    records: Sequence[MetadataRecord] = ()
    response: Response = ()
    image: ClusterImage = field(default_factory=ClusterImage)
    removed: Mapping[uuid.UUID, str] = field(default_factory=dict)
    unclean: Sequence[UncleanElection] = ()
    count: int = 0
    write: Callable[[], Awaitable[int]] | None = None  # puts `count` records that are no decisions behind the log


class Controller:
    """Of one node, by itself unless it is to `join` a quorum of several.

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
        directory_id: uuid.UUID = ZERO_UUID,
        join: Callable[["Controller"], Member] | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._rules = rules
        self._node_id = node_id
        self._new_uuid = new_uuid
        self._snapshots = snapshots
        self._on_failure = on_failure
        self._still_there = still_there
        self._thread = DiskThread(executor)
        self._join = join
        self._member: Member = Alone(
            store, clock=clock, node_id=node_id, thread=self._thread, directory_id=directory_id
        )
        self._image = self._speculative = self._told = ClusterImage()
        self._watchers: list[Watcher] = []
        self._listeners: list[Listener] = []
        self._room = asyncio.Semaphore(PENDING_REQUESTS_MAX)
        self._decided: deque[_Asked] = deque()  # on the speculative image, and not written yet
        self._alone: deque[_Asked] = deque()  # refused together: each is decided anew, and written, by itself
        self._untold: deque[_Asked] = deque()  # committed, and not heard by every listener
        self._work, self._news = asyncio.Event(), asyncio.Event()
        self._turn = asyncio.Lock()  # held for as long as the log may be ahead of the image
        self._snapshot_wanted = asyncio.Event()
        self._snapshot_from_ms = clock.now_ms()
        self._snapshot_not_before_ms = 0
        self._removed: dict[uuid.UUID, str] = {}
        self.elsewhere: Elsewhere | None = None  # of one of several, set by its place in the cluster

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
        """The offset after the last batch written; `image.offset` is the one after the last committed."""
        return self._store.offset_end

    @property
    def member(self) -> Member:
        """This node's place in the quorum; among several once the log is loaded."""
        return self._member

    @property
    def leads(self) -> bool:
        """Whether this node decides."""
        return self._member.leads

    def quorum(self) -> QuorumState:
        """Who agrees on the metadata, as of what this node has made visible."""
        return replace(self._member.state(), high_watermark=self._image.offset)

    def load(self) -> None:
        """Replay the metadata log; raises MetadataCorruptError.

        Among several only what is in the snapshot is known to be committed; the rest is followed.
        """
        draft = Draft(ClusterImage())
        several = self._join is not None
        loaded = self._store.load(draft.apply_all, committed_end=0 if several else None)
        if loaded.torn_bytes:
            log.warning("cut an unfinished write off the metadata log", torn_bytes=loaded.torn_bytes)
        for sentence in loaded.damaged:
            log.error("went back to an older snapshot and the log behind it", reason=sentence)
        if self._store.has_forgotten:
            log.error(
                "something is gone of the metadata log that this node had said to hold: is the disk sound? It fetches "
                "that again, and votes for nobody before; where no controller leads without it, restore a backup",
                offset_end=self._store.offset_end,
                once_held=loaded.once_held,
            )
        end = self._store.log_start_offset if several else self._store.offset_end
        self._image, self._removed = draft.freeze(end), draft.removed
        self._speculative = self._told = self._image
        self._keep_room()
        if loaded.damaged:
            self._snapshot_wanted.set()
        if self._join is not None:
            self._member = self._join(self)

    def begin_leaderships(self) -> int:
        """Give every partition that this node leads a new leader epoch; returns how many there are.

        For a start after a stop out of order, before anything is appended. Blocks; raises MetadataStoreError.
        """
        begun = 0
        leaderships = new_leaderships(self._image, self._node_id)
        while records := tuple(islice(leaderships, LEADERSHIPS_PER_BATCH)):
            self._store.append(records, self._clock.now_ms())
            self._store.sync()
            draft = Draft(self._image)
            draft.apply_all(records)
            self._image = self._speculative = self._told = draft.freeze()
            begun += len(records)
        self._keep_room()
        return begun

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` with every commit."""
        self._watchers.append(watcher)

    def subscribe(self, listener: Listener) -> None:
        """Await `listener` after commits, before their requests are answered."""
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
        if self.elsewhere is not None and not self.leads:
            return await self.elsewhere.ensure_topic(topic)
        (result,) = await self.create_topics((topic,))
        if result.error is not None and result.error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise result.error
        existing = self._image.topics.get(topic.name)
        if existing is None:  # what was decided on it meanwhile is committed too
            raise UnknownTopicOrPartition(f"topic {topic.name!r} was deleted right after")
        return existing

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

    async def elect_leaders(self, request: ElectLeaders) -> tuple[PartitionResult, ...]:
        """Elect leaders; one result per partition, in order."""
        return cast(tuple[PartitionResult, ...], await self._commit(request))

    async def alter_reassignments(self, request: AlterReassignments) -> tuple[PartitionResult, ...]:
        """Move partitions, or take that back; one result per partition, in order."""
        return cast(tuple[PartitionResult, ...], await self._commit(request))

    async def allocate_producer_ids(self) -> range:
        """A block of producer ids that nobody else will get."""
        if self.elsewhere is not None and not self.leads:
            return await self.elsewhere.allocate_producer_ids()
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

    async def decide(self, request: Request) -> Response:
        """The response to what another node asks for, once it is committed; raises KafkaError.

        What is done here about the image is nothing that others wait for: they would miss their heartbeats.
        """
        return await self._commit(request, from_here=False)

    async def change_voters(self, request: Message) -> Message:
        """The answer to AddRaftVoter or RemoveRaftVoter; raises KafkaError."""
        return await self._member.change_voters(request)

    def close(self) -> None:
        """Give the metadata log back."""
        self._store.close()

    def _new_topic_id(self) -> uuid.UUID:
        """A random id; like Kafka's, its text never starts with a dash, which would look like an option."""
        while True:
            candidate = self._new_uuid()
            if candidate.bytes[0] >> 2 != 62 and candidate not in self._speculative.topic_names:
                return candidate

    # --- following

    def follow(self, batches: Iterable[Sequence[MetadataRecord]], offset_end: int) -> None:
        """Take in what another has decided, committed up to `offset_end`; one image for all of it."""
        self._drop_undone()
        draft = Draft(self._image)
        for records in batches:
            draft.apply_all(records)
        before, self._image = self._image, draft.freeze(offset_end)
        self._removed.update(draft.removed)
        self._speculative = self._image
        self._keep_room()
        self._show(ImageDelta.between(before, self._image))

    def begin_anew(self, batches: Iterable[Sequence[MetadataRecord]], offset_end: int) -> None:
        """Take in a snapshot of another's, which is all that there is up to `offset_end`."""
        self._drop_undone()
        draft = Draft(ClusterImage())
        for records in batches:
            draft.apply_all(records)
        before, self._image = self._image, draft.freeze(offset_end)
        delta = ImageDelta.between(before, self._image)
        self._removed = {
            **self._removed,
            **draft.removed,
            **{before.topics[name].topic_id: name for name in delta.gone},
        }
        self._speculative = self._image
        self._keep_room()
        self._show(delta)

    def _drop_undone(self) -> None:
        """What this node has decided and not written yet goes by an image that is none any more."""
        if self._decided or self._alone:
            self._resign((), NotController("another controller has decided meanwhile"))

    async def interpose(self, count: int, write: Callable[[], Awaitable[int]]) -> None:
        """Let the quorum `write` so many records of its own between two decisions; raises KafkaError.

        Decisions go by the offset at which they will be, also those that are not written yet: these come first, and
        later ones count on what is interposed.
        """
        await self._ask(None, from_here=False, count=count, write=write)

    def _resign(self, batch: Sequence[_Asked], error: KafkaError) -> None:
        """Another decides by now: what is true of `batch` and of what was decided on it, its log says."""
        undone = [*batch, *self._decided, *self._alone]
        self._decided.clear()
        self._alone.clear()
        self._speculative = self._image
        for asked in undone:
            self._settle(asked, error)

    # --- from a request to its answer

    async def run(self) -> None:
        """Write what is decided and tell of it, until cancelled; the owner runs this for as long as it serves."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._tell())
                tasks.create_task(self._write())
        except BaseExceptionGroup as failures:
            if len(failures.exceptions) > 1:
                raise
            raise failures.exceptions[0] from None

    async def _commit(self, request: Request, *, from_here: bool = True) -> Response:
        """Decide `request` now; a client that goes away stops waiting, its request is carried out all the same."""
        return await self._ask(request, from_here=from_here)

    async def _ask(
        self,
        request: "Request | None",
        *,
        from_here: bool,
        count: int = 0,
        write: Callable[[], Awaitable[int]] | None = None,
    ) -> Response:
        await self._room.acquire()
        if not self._member.leads:
            self._room.release()
            raise NotController(f"node {self._member.leader_id} is the active controller")
        asked = _Asked(request, asyncio.get_running_loop().create_future(), from_here, count=count, write=write)
        try:
            self._take(asked)
        except BaseException:
            self._room.release()
            raise
        return await asked.answer

    def _take(self, asked: _Asked) -> None:
        if self._alone:  # its turn is behind theirs
            self._alone.append(asked)
            return
        self._decide(asked)
        if asked.image is self._image:  # all that it was decided on is durable
            self._answer_when_told(asked)
        else:
            self._decided.append(asked)
            self._work.set()

    def _decide(self, asked: _Asked) -> None:
        """Let the speculative image be what the request makes of it; if that fails it stays as it is."""
        if asked.request is None:
            offset = self._speculative.offset + asked.count
            asked.image = self._speculative = replace(self._speculative, offset=offset)
            return
        result = decide(self._speculative, asked.request, self._rules)
        asked.records, asked.response, asked.removed = result.records, result.response, {}
        asked.unclean = result.unclean
        if result.records:
            draft = Draft(self._speculative)
            draft.apply_all(result.records)
            self._speculative, asked.removed = draft.freeze(), draft.removed
        asked.image = self._speculative

    async def _write(self) -> None:
        while True:
            await self._work.wait()
            async with self._turn:
                batch = self._next_batch()
                if batch:
                    await self._write_batch(batch)
            self.want_snapshot_when_due()

    def _next_batch(self) -> list[_Asked]:
        """What is to be durable next; nothing if there is nothing to do."""
        if not self._decided and self._alone:
            asked = self._alone.popleft()
            try:
                self._decide(asked)
            except Exception as error:
                self._settle(asked, error)
            else:
                self._decided.append(asked)
        batch: list[_Asked] = []
        records = 0
        while self._decided and records < RECORDS_PER_BATCH:
            if batch and (batch[-1].write or self._decided[0].write):
                break  # what the quorum writes about itself is a batch of its own
            batch.append(self._decided.popleft())
            records += len(batch[-1].records)
        if not self._decided and not self._alone:
            self._work.clear()
        return batch

    async def _write_batch(self, batch: Sequence[_Asked]) -> None:
        records = [record for asked in batch for record in asked.records]
        write = batch[0].write or (partial(self._member.commit, records) if records else None)
        end = self._image.offset
        if write is not None:
            try:
                end = await write()
            except (MetadataStoreError, MetadataUnwritable) as error:
                self._take_back(batch, error)
                return
            except NotController as error:
                self._resign(batch, error)
                return
        self._publish(batch, end)

    def _take_back(self, batch: Sequence[_Asked], error: MetadataStoreError | MetadataUnwritable) -> None:
        """Nothing of `batch` is in the log, so nothing of it, or of what was decided on it, holds."""
        self._speculative = self._image
        undone = [*batch, *self._decided]
        self._decided.clear()
        code = ErrorCode.KAFKA_STORAGE_ERROR
        if isinstance(error, MetadataUnwritable):
            log.error("records of a decision have no bytes", exc_info=error)
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        if self._store.failure is None:
            self._work.set()
            refused, again = (undone[:1], undone[1:]) if len(batch) == 1 else ([], undone)
            self._alone.extendleft(reversed(again))
        else:
            refused = [*undone, *self._alone]
            self._alone.clear()
            assert isinstance(error, MetadataStoreError)
            self._on_failure(error)
        for asked in refused:
            log.error("metadata change refused", reason=str(error))
            self._settle(asked, error_for_code(code, str(error)))

    def _publish(self, batch: Sequence[_Asked], offset_end: int) -> None:
        before, self._image = self._image, batch[-1].image
        assert self._image.offset == offset_end, f"decided for offset {self._image.offset}, written up to {offset_end}"
        for asked in batch:
            self._removed.update(asked.removed)
            asked.image = self._image
            for each in asked.unclean:
                log.error(
                    "unclean leader election: records that were acknowledged may be lost",
                    topic=each.topic,
                    partition=each.partition,
                    leader=each.leader,
                    leader_epoch=each.leader_epoch,
                    isr_before=each.isr_before,
                    eligible_before=each.eligible_before,
                )
        self._keep_room()
        if self._image is not before:
            self._show(ImageDelta.between(before, self._image))
        for asked in batch:
            self._answer_when_told(asked)

    def _show(self, delta: ImageDelta) -> None:
        for watcher in self._watchers:
            try:
                watcher(delta)
            except Exception:
                log.exception("what changed in the metadata was not taken in", by=repr(watcher))
        self._news.set()

    async def _tell(self) -> None:
        """Let the listeners follow the committed image, however far it is ahead."""
        while True:
            await self._news.wait()
            self._news.clear()
            delta = ImageDelta.between(self._told, self._image)
            for listener in self._listeners:
                try:
                    await listener(delta)
                except Exception:
                    log.exception("what changed in the metadata was not followed", by=repr(listener))
            self._told = delta.after
            while self._untold and self._untold[0].image.offset <= self._told.offset:
                self._settle(self._untold.popleft(), None)

    def _answer_when_told(self, asked: _Asked) -> None:
        if self._listeners and asked.from_here and asked.image.offset > self._told.offset:
            self._untold.append(asked)
        else:
            self._settle(asked, None)

    def _settle(self, asked: _Asked, error: Exception | None) -> None:
        self._room.release()
        if asked.answer.done():
            return  # nobody waits for it any more
        if error is None:
            asked.answer.set_result(asked.response)
        else:
            asked.answer.set_exception(error)

    def _keep_room(self) -> None:
        self._store.keep_room(ROOM_BYTES + LEADERSHIP_BYTES * self._image.partition_count)

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
        async with self._turn, self._member.still():
            if self._snapshot_is_current():
                return  # wanted once more while the last was being written
            image, removed = self._image, dict(self._removed)  # of now: what others decide is taken in meanwhile
            which = await self._thread.run(lambda: self._store.roll(image.offset))  # the log may go on, and be cut
        self._snapshot_from_ms = now_ms = self._clock.now_ms()

        def write() -> Collection[uuid.UUID]:
            left = self._still_there(removed)
            records = records_of(image, {topic_id: removed[topic_id] for topic_id in left})
            size_bytes = self._store.write_snapshot(which, records, now_ms, lambda: self._thread.stopping)
            log.info("snapshot of the metadata written", file=which.name, bytes=size_bytes, topics=len(image.topics))
            return left

        try:
            left = await self._thread.run(write)
        except SnapshotStopped:
            return
        for topic_id in removed.keys() - set(left):
            del self._removed[topic_id]
