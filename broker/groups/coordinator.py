"""The shell around the group machine: log, clock and waiting members

Every request is one turn: step the machine, append what it says to the partition of `__consumer_offsets` that the
group hashes to, tell it the outcome, hand out the answers. An answer that depends on an append leaves when the append
is on the disk, or as an error when it is known that it never will be. Turns are plain function calls on the event loop,
so two requests of a group are never in work at once.

The topic is created when the first client asks for a coordinator. At start-up all its partitions are replayed; from
then on the machine is told of every new image of the cluster before anything else is done about it.

Not here: any rule about groups (`tidemill.broker.groups.machine`) and wire messages (`tidemill.broker.handlers`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeVar

import structlog

from tidemill.broker.groups.events import (
    Action,
    Append,
    Appended,
    AppendFailed,
    CommitOffsets,
    CommitResult,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    DeleteOffsetsResult,
    ErrorResult,
    Event,
    ExpireOffsets,
    GroupView,
    Heartbeat,
    ImageChanged,
    Instant,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeaveResult,
    Note,
    Replayed,
    Reply,
    Request,
    Response,
    Standing,
    SyncGroup,
    SyncResult,
    Tick,
)
from tidemill.broker.groups.machine import GroupMachine
from tidemill.broker.groups.records import GroupFormatError, decode_record, encode_record
from tidemill.broker.groups.table import GroupLimits
from tidemill.broker.log.turns import Turns
from tidemill.broker.quorum.image import ClusterImage, PartitionImage
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError, NotCoordinator, error_for_code
from tidemill.core.records.batch import iter_batches
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, Record, decode_records
from tidemill.core.runtime.clock import Clock

log = structlog.get_logger("tidemill.broker.groups")

_Result = TypeVar("_Result")

OFFSETS_TOPIC: Final = "__consumer_offsets"
REPLAY_READ_BYTES: Final = 4 * 2**20
"""One read of the replay: large enough that the disk sets the pace, small enough to stay out of the way of memory."""

REFUSED_PAUSE_MS: Final = 1000
"""How long a log that refused (a full disk) is left alone; clients come back at about this pace by themselves."""


class OffsetsLog(Protocol):
    """What the coordinator needs of a partition of `__consumer_offsets`."""

    @property
    def log_start_offset(self) -> int:
        """First offset that is."""

    @property
    def leader_epoch(self) -> int:
        """The epoch of the last append; -1 when there was none."""

    def append_own(self, data: Any, *, now_ms: int, leader_epoch: int = 0) -> Any:
        """Store one batch of the coordinator's."""

    def pending(self, last_offset: int) -> "asyncio.Future[None] | None":
        """What to wait for before the record at `last_offset` may be acknowledged."""

    def read(self, offset: int, max_bytes: int) -> Any:
        """Whole batches from `offset`."""


class OffsetsLogs(Protocol):
    """Where the partitions of `__consumer_offsets` come from.

    `tidemill.broker.replication.replicas.Replicas` is the real one.
    """

    def get(self, topic: str, partition: int) -> "OffsetsLog | None":
        """The log of a partition, None if it is not stored here."""


def partition_of(group_id: str, partition_count: int) -> int:
    """The partition that keeps a group: Java's string hash, so that Kafka's tools look in the same place.

    >>> partition_of("console-consumer-1", 50)
    24
    """
    raw = group_id.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(raw), 2):
        value = (value * 31 + (raw[index] << 8 | raw[index + 1])) & 0xFFFFFFFF
    signed = value - 2**32 if value >= 2**31 else value
    return (0 if signed == -(2**31) else abs(signed)) % partition_count


class GroupCoordinator:
    """All groups of this node."""

    def __init__(
        self,
        *,
        limits: GroupLimits,
        logs: OffsetsLogs,
        clock: Clock,
        new_id: Callable[[], str],
    ) -> None:
        self._machine = GroupMachine(limits)
        self._logs = logs
        self._partitions: tuple[PartitionImage, ...] = ()  # of `__consumer_offsets`
        self._clock = clock
        self._new_id = new_id
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._request_id = 0
        self._undurable: dict[int, tuple[OffsetsLog, int]] = {}
        self._last_append: dict[int, int] = {}  # partition -> offset of its latest record
        self._deadline_moved = asyncio.Event()
        self._refused: tuple[int, str] | None = None  # when the log last refused, on the monotonic clock, and why

    # --- life

    def replay(self, image: ClusterImage) -> int:
        """Take up what the log holds; returns the number of records. Call once, before serving."""
        self._partitions = _partitions(image)
        count = 0
        for partition in range(len(self._partitions)):
            partition_log = self._logs.get(OFFSETS_TOPIC, partition)
            if partition_log is not None:
                count += self._replay_partition(partition_log)
        self._turn(Replayed(image=image))
        return count

    def _replay_partition(self, partition_log: OffsetsLog) -> int:
        count = 0
        offset = partition_log.log_start_offset
        while data := partition_log.read(offset, REPLAY_READ_BYTES):
            for view in iter_batches(data):
                offset = view.last_offset + 1
                if view.is_control:
                    continue
                for record in decode_records(view):
                    count += 1
                    self._replay_record(record)
        return count

    def _replay_record(self, record: Record) -> None:
        try:
            decoded = decode_record(record.key, record.value)
        except GroupFormatError as error:
            log.error("group record skipped", offset=record.offset, reason=str(error))
            return
        if decoded is not None:
            self._machine.apply(decoded)

    async def run(self) -> None:
        """Tick the machine whenever a deadline comes; runs until cancelled."""
        while True:
            self._deadline_moved.clear()
            deadline_ms = self._machine.next_deadline_ms()
            delay_s = None if deadline_ms is None else max(deadline_ms - self._now().monotonic_ms, 0) / 1000
            try:
                async with asyncio.timeout(delay_s):
                    await self._deadline_moved.wait()
            except TimeoutError:
                self._tick()

    def _tick(self) -> None:
        try:
            self.tick()
        except Exception:  # a bug about one group must not stop the clock of all others
            log.exception("group tick failed")

    def tick(self) -> None:
        """Do what is due by the clock."""
        self._turn(Tick())

    # --- requests

    def new_member_id(self, prefix: str) -> str:
        """An id that no other member has."""
        return f"{prefix}-{self._new_id()}"

    def request_id(self) -> int:
        """The number under which the next request is answered."""
        self._request_id += 1
        return self._request_id

    async def join(self, request: JoinGroup) -> JoinResult:
        """Answered when the join phase ends."""
        return await self._ask(request, JoinResult)

    async def sync(self, request: SyncGroup) -> SyncResult:
        """Answered when the leader's assignment is on the disk."""
        return await self._ask(request, SyncResult)

    async def heartbeat(self, request: Heartbeat) -> ErrorCode:
        """Answered at once."""
        return (await self._ask(request, ErrorResult)).error

    async def leave(self, request: LeaveGroup) -> LeaveResult:
        """Answered at once."""
        return await self._ask(request, LeaveResult)

    async def commit(self, request: CommitOffsets) -> CommitResult:
        """Answered when the offsets are on the disk."""
        return await self._ask(request, CommitResult)

    async def delete(self, request: DeleteGroup) -> ErrorCode:
        """Answered when the tombstones are on the disk."""
        return (await self._ask(request, ErrorResult)).error

    async def delete_offsets(self, request: DeleteOffsets) -> DeleteOffsetsResult:
        """Answered when the tombstones are on the disk."""
        return await self._ask(request, DeleteOffsetsResult)

    async def committed_offsets(
        self, group_id: str, wanted: Iterable[tuple[str, int]] | None = None
    ) -> Mapping[tuple[str, int], CommittedOffset]:
        """A group's offsets in topics that are there, or those of the `wanted` partitions; all are on the disk."""
        offsets = self._machine.committed_offsets(group_id, wanted)
        if self._partitions:
            partition = partition_of(group_id, len(self._partitions))
            partition_log = self._logs.get(OFFSETS_TOPIC, partition)
            last = self._last_append.get(partition)
            if partition_log is not None and last is not None:
                await self._durable(partition_log, last)
        return self._machine.still_committed(offsets)

    @staticmethod
    async def _durable(partition_log: OffsetsLog, offset: int) -> None:
        try:
            while (pending := partition_log.pending(offset)) is not None:
                await asyncio.shield(pending)
        except KafkaError as error:
            # As Kafka does: a consumer looks for its coordinator again then, and gives up at most other errors.
            raise NotCoordinator(str(error)) from error

    def trouble(self, group_id: str) -> str | None:
        """Why nothing about this group can be kept at the moment; None when all is well.

        Clients that ask for the coordinator are told, so that they wait between attempts: a group whose assignment
        cannot be written would otherwise go round as fast as its members can ask.
        """
        try:
            self._log_of(group_id)
        except KafkaError as error:
            return str(error)
        if self._refused is not None and self._now().monotonic_ms - self._refused[0] < REFUSED_PAUSE_MS:
            return self._refused[1]
        return None

    def describe(self, group_id: str) -> GroupView | None:
        """One group with its members."""
        return self._machine.describe(group_id)

    def list_groups(self) -> list[GroupView]:
        """Every group, without members."""
        return self._machine.list_groups()

    def group_ids(self) -> list[str]:
        """Every group by its name."""
        return self._machine.group_ids()

    def standing(self, group_id: str) -> Standing | None:
        """How large a group is and what it is about; None if it is not there any more."""
        return self._machine.standing(group_id)

    def positions(self, group_id: str) -> Mapping[tuple[str, int], CommittedOffset]:
        """A group's offsets in topics that are there, as they are now: not all of them need be on the disk."""
        return self._machine.committed_offsets(group_id)

    async def expire_offsets(self) -> None:
        """Drop what nobody has needed for the retention time; a job calls it now and then."""
        turns = Turns(self._clock.monotonic)
        for group_id in self._machine.group_ids():
            self._turn(ExpireOffsets(group_ids=(group_id,)))
            await turns.give_way()

    def image_changed(self, image: ClusterImage, gone: frozenset[str]) -> None:
        """The cluster is another one; topics that had the names in `gone` are not there any more."""
        self._partitions = _partitions(image)
        self._turn(ImageChanged(image=image, gone=gone))

    # --- one turn

    async def _ask(self, request: Request, expected: type[_Result]) -> _Result:
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[request.request_id] = future
        try:
            self._turn(request)
            result = await future
        finally:
            self._waiting.pop(request.request_id, None)  # answered, or the client went away
        assert isinstance(result, expected)
        return result

    def _turn(self, event: Event) -> None:
        now = self._now()
        before_ms = self._machine.next_deadline_ms()
        todo = deque(self._machine.step(event, now))
        while todo:
            action = todo.popleft()
            match action:
                case Append():
                    todo.extendleft(reversed(self._append(action, now)))
                case Reply():
                    self._reply(action)
                case Note():
                    log.info(action.text, group=action.group_id)
        after_ms = self._machine.next_deadline_ms()
        if after_ms is not None and (before_ms is None or after_ms < before_ms):
            self._deadline_moved.set()

    def _append(self, action: Append, now: Instant) -> list[Action]:
        """Write, then step the machine with the outcome; returns what it says to that."""
        try:
            partition, partition_log = self._log_of(action.group_id)
            last_offset = partition_log.append_own(
                self._batch(action, now),
                now_ms=now.wall_ms,
                leader_epoch=max(partition_log.leader_epoch, self._partitions[partition].leader_epoch),
            ).last_offset
        except Exception as error:  # whatever it was, the machine has to hear of it, and so has who waits
            return self._machine.step(
                AppendFailed(token=action.token, error=self._why_refused(action, error, now)), now
            )
        self._undurable[action.token] = (partition_log, last_offset)
        self._last_append[partition] = last_offset
        actions = self._machine.step(Appended(token=action.token), now)

        def settled(durable: bool) -> None:
            # When it never will be, the token stays: nothing that depends on it may ever be answered with success.
            if durable:
                del self._undurable[action.token]

        _when_settled(partition_log, last_offset, settled)
        return actions

    def _why_refused(self, action: Append, error: Exception, now: Instant) -> ErrorCode:
        if not isinstance(error, KafkaError):
            log.exception("group change not written", group=action.group_id)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        log.warning("group change not written", group=action.group_id, reason=str(error))
        code = _answer_for(error)
        if code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            self._refused = (now.monotonic_ms, str(error))
        return code

    @staticmethod
    def _batch(action: Append, now: Instant) -> bytes:
        pairs = (encode_record(record) for record in action.records)
        return build_batch([NewRecord(timestamp=now.wall_ms, key=key, value=value) for key, value in pairs])

    def _log_of(self, group_id: str) -> tuple[int, OffsetsLog]:
        if self._partitions:
            partition = partition_of(group_id, len(self._partitions))
            partition_log = self._logs.get(OFFSETS_TOPIC, partition)
            if partition_log is not None:
                return partition, partition_log
        raise error_for_code(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} is not there yet")

    def _reply(self, reply: Reply) -> None:
        place = None if reply.after is None else self._undurable.get(reply.after)
        if place is None:
            self._answer(reply, None)
            return
        _when_settled(
            *place, lambda durable: self._answer(reply, None if durable else ErrorCode.COORDINATOR_NOT_AVAILABLE)
        )

    def _answer(self, reply: Reply, error: ErrorCode | None) -> None:
        future = self._waiting.get(reply.request_id)
        if future is None or future.done():
            return  # the client went away
        if error is None:
            future.set_result(reply.response)
        else:
            future.set_exception(error_for_code(error, "the answer could not be made durable"))

    def _now(self) -> Instant:
        return Instant(int(self._clock.monotonic() * 1000), self._clock.now_ms())


def _partitions(image: ClusterImage) -> tuple[PartitionImage, ...]:
    topic = image.topics.get(OFFSETS_TOPIC)
    return topic.partitions if topic is not None else ()


def _when_settled(partition_log: OffsetsLog, offset: int, then: Callable[[bool], None]) -> None:
    """Call `then`, now or later, with whether the record at `offset` is on the disk: False when it never will be."""
    try:
        pending = partition_log.pending(offset)
    except KafkaError:
        then(False)
        return
    if pending is None:
        then(True)
        return

    def round_ended(done: "asyncio.Future[None]") -> None:
        if done.cancelled() or done.exception() is not None:
            then(False)
        else:
            _when_settled(partition_log, offset, then)

    pending.add_done_callback(round_ended)


def _answer_for(error: KafkaError) -> ErrorCode:
    """What a client is told when the log refuses: try again, except where trying again cannot help."""
    if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return ErrorCode.COORDINATOR_NOT_AVAILABLE
