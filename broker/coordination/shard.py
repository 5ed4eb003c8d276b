"""One partition of a coordinator's topic, in one leadership

Every event is one turn: step the machine, append what it says, tell it the outcome, hand out the answers. An answer
that depends on an append leaves when the append is durable, or as an error when it is known that it never will be; what
was found in the log is waited for in the same way, for it need not be committed yet. Turns are plain function calls on
the event loop, so two requests are never in work at once.

What the machine knows is what the log says. An append that was refused has left nothing there, and the machine takes
back what it meant to do; one that left something all the same ends the shard, as does one in a leadership that is over.
A shard is loaded once and never again: the partition is taken up anew by another (`runtime`).

Not here: any rule about what is coordinated, and which shards there are.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, Protocol

import structlog

from tidemill.broker.coordination.contract import (
    Action,
    Append,
    Appended,
    AppendFailed,
    Duty,
    Instant,
    MachineT,
    Note,
    RecordT,
    Replayed,
    Reply,
)
from tidemill.broker.coordination.leaderships import Leadership, ShardMove, ShardState, after
from tidemill.broker.quorum.image import ClusterImage
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    CorruptMessage,
    FencedLeaderEpoch,
    KafkaError,
    NotCoordinator,
    NotLeaderOrFollower,
    error_for_code,
)
from tidemill.core.records.batch import iter_batches
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, Record, decode_records
from tidemill.core.runtime.clock import Clock

log = structlog.get_logger("tidemill.broker.coordination")

LOAD_READ_BYTES: Final = 2**20
"""One read of a load: many batches, and still a short stop for everybody else."""

FOUND: Final = 0
"""The token of what was in the log when the shard was loaded; machines count theirs from 1."""


class CoordinatedLog(Protocol):
    """What a shard needs of its partition."""

    @property
    def log_start_offset(self) -> int:
        """First offset that is."""

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record."""

    @property
    def led_epoch(self) -> int:
        """The epoch in which this broker leads the partition; -1 when it does not."""

    def append_own(self, data: Any, *, now_ms: int, leader_epoch: int) -> Any:
        """Store one batch that was decided in that leadership; raises FencedLeaderEpoch when it is over."""

    def pending(self, last_offset: int) -> "asyncio.Future[None] | None":
        """What to wait for before the record at `last_offset` may be acknowledged."""

    def read_own(self, offset: int, max_bytes: int) -> Any:
        """Whole batches from `offset`, committed or not."""


class CoordinatedLogs(Protocol):
    """Where the partitions come from; `tidemill.broker.replication.replicas.Replicas` is the real one."""

    def get(self, topic: str, partition: int) -> "CoordinatedLog | None":
        """A partition, None if it is not stored here."""


class Request(Protocol):
    """What can be asked of a machine."""

    @property
    def request_id(self) -> int:
        """The number under which it is answered."""


class Shard(Generic[MachineT, RecordT]):
    """Made by `tidemill.broker.coordination.runtime`."""

    def __init__(
        self,
        duty: Duty[MachineT, RecordT],
        partition: int,
        leadership: Leadership,
        *,
        logs: CoordinatedLogs,
        clock: Clock,
        deadline_moved: Callable[[], None],
        went_astray: Callable[[], None],
    ) -> None:
        self.partition = partition
        self.leadership = leadership
        self.state = ShardState.LOADING
        self.machine = duty.new_machine()
        self.trouble = ""  # why it failed, or the one before it, for as long as it is not active
        self.refused: tuple[int, str] | None = None  # when the log last refused, on the monotonic clock, and why
        self._duty = duty
        self._logs = logs
        self._clock = clock
        self._deadline_moved = deadline_moved
        self._went_astray = went_astray
        self._waiting: dict[int, asyncio.Future[object]] = {}
        self._undurable: dict[int, tuple[CoordinatedLog, int]] = {}  # by token: the offset of the last record
        self._last: tuple[CoordinatedLog, int] | None = None
        self._astray = ""  # why the log may say what the machine does not know

    # --- life

    @property
    def is_active(self) -> bool:
        """Whether it answers."""
        return self.state is ShardState.ACTIVE

    @property
    def is_ready(self) -> bool:
        """Whether the log is here, and led in the epoch that this shard is about."""
        partition_log = self._logs.get(self._duty.topic, self.partition)
        return partition_log is not None and partition_log.led_epoch == self.leadership.leader_epoch

    @property
    def is_new(self) -> bool:
        """Whether there is nothing to load."""
        partition_log = self._logs.get(self._duty.topic, self.partition)
        return partition_log is not None and partition_log.log_start_offset == partition_log.log_end_offset

    def load(self) -> Iterator[int]:
        """Replay the log as it is now, batch by batch: the number of records in each. Raises KafkaError.

        Nobody else appends before this shard is active, so the end does not move meanwhile.
        """
        partition_log = self.log()
        offset, end = partition_log.log_start_offset, partition_log.log_end_offset
        while offset < end and (data := partition_log.read_own(offset, LOAD_READ_BYTES)):
            left_bytes = len(data)
            for view in iter_batches(data):
                if view.last_offset < offset or not view.verify_crc():
                    raise CorruptMessage(f"the batch at offset {offset} does not match its checksum or its place")
                left_bytes -= view.size_bytes
                offset = view.last_offset + 1
                records = [] if view.is_control else decode_records(view)
                for record in records:
                    self._replay(record)
                yield len(records)
            if left_bytes:
                raise CorruptMessage(f"what was read ends inside a batch, behind offset {offset}")
        if end > 0:
            self._wait_for(FOUND, partition_log, end - 1)

    def _replay(self, record: Record) -> None:
        try:
            decoded = self._duty.decode(record.key, record.value)
        except ValueError as error:
            log.error(
                f"{self._duty.noun} record skipped", partition=self.partition, offset=record.offset, reason=str(error)
            )
            return
        if decoded is not None:
            self.machine.apply(decoded)

    def activate(self, image: ClusterImage) -> None:
        """Everything is loaded: answer from here on."""
        self.state, self.trouble = after(self.state, ShardMove.LOADED), ""
        self.tell(Replayed(image=image))

    def fail(self, reason: str) -> None:
        """The machine does not know what the log says, or may not."""
        self.trouble = reason
        self._end(ShardMove.FAILED, CoordinatorNotAvailable(reason))

    def give_up(self) -> None:
        """Somebody else leads."""
        self._end(ShardMove.GIVEN_UP, NotCoordinator("this broker coordinates it no more"))

    def _end(self, move: ShardMove, error: KafkaError) -> None:
        self.state = after(self.state, move)
        self._undurable.clear()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)

    def check_active(self) -> None:
        """Raise what a client is told of a shard that cannot answer."""
        match self.state:
            case ShardState.LOADING:
                raise CoordinatorLoadInProgress(f"{self._duty.topic}-{self.partition} is being loaded")
            case ShardState.FAILED:
                raise CoordinatorNotAvailable(self.trouble)
            case ShardState.OVER:
                raise NotCoordinator("this broker coordinates it no more")

    # --- questions

    async def ask(self, request: Request) -> object:
        """The machine's answer; raises KafkaError when there is none."""
        self.check_active()
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting[request.request_id] = future
        try:
            stumbled = self.tell(request)
            if stumbled is not None:
                future.cancel()
                if not future.cancelled():
                    future.exception()  # looked at: asyncio would tell of it as lost, long after
                raise stumbled  # and not what others are told: it would only be asked again
            return await future
        finally:
            self._waiting.pop(request.request_id, None)  # answered, or the client went away

    async def durable(self) -> None:
        """Return once all that the machine knows is durable; raises KafkaError if it never will be."""
        if self._last is not None:
            partition_log, offset = self._last
            while (pending := partition_log.pending(offset)) is not None:
                await asyncio.shield(pending)
        self.check_active()

    # --- one turn

    def tell(self, event: object) -> Exception | None:
        """Let the machine take in `event`; if it stumbles, its partition is to be taken up anew.

        Half of what it had to do may be done, and nobody would ask for the other half; answers to others may be lost
        with it, so whoever waits is told to come again. Returns what it stumbled over.
        """
        try:
            self.turn(event)
        except Exception as error:
            log.exception("not taken in", topic=self._duty.topic, partition=self.partition, what=type(event).__name__)
            if self.is_active:
                self.fail(f"{self._duty.topic}-{self.partition} stumbled over {type(event).__name__}: {error}")
            self._went_astray()
            return error
        return None

    def turn(self, event: object) -> None:
        """Let the machine take in `event`, and do what it says."""
        now = self.now()
        before_ms = self.machine.next_deadline_ms()
        todo = deque(self.machine.step(event, now))
        while todo and self.is_active:
            action = todo.popleft()
            match action:
                case Append():
                    todo.extendleft(reversed(self._append(action, now)))
                case Reply():
                    self._reply(action)
                case Note():
                    log.info(action.text, **{self._duty.noun: action.subject})
        if self._astray and self.is_active:
            self.fail(self._astray)
            self._went_astray()
        after_ms = self.machine.next_deadline_ms()
        if after_ms is not None and (before_ms is None or after_ms < before_ms):
            self._deadline_moved()

    def _append(self, action: Append[RecordT], now: Instant) -> list[Action[RecordT]]:
        """Write, then step the machine with the outcome; returns what it says to that."""
        end = -1
        try:
            if self._astray:
                raise CoordinatorNotAvailable(self._astray)
            partition_log = self.log()
            end = partition_log.log_end_offset
            last_offset = partition_log.append_own(
                self._batch(action, now), now_ms=now.wall_ms, leader_epoch=self.leadership.leader_epoch
            ).last_offset
        except (NotLeaderOrFollower, FencedLeaderEpoch) as error:
            log.warning("given up: the leadership is over", shard=self.partition, reason=str(error))
            self.give_up()
            self._went_astray()
            return []
        except Exception as error:  # whatever it was, the machine has to hear of it, and so has who waits
            if end >= 0 and partition_log.log_end_offset != end:
                self._astray = f"an append failed, and not without a trace: {error}"
            return self.machine.step(AppendFailed(token=action.token, error=self._why_refused(action, error, now)), now)
        self._wait_for(action.token, partition_log, last_offset)
        return self.machine.step(Appended(token=action.token), now)

    def _wait_for(self, token: int, partition_log: CoordinatedLog, last_offset: int) -> None:
        self._undurable[token] = self._last = (partition_log, last_offset)

        def settled(durable: bool) -> None:
            # When it never will be, the token stays: nothing that depends on it may ever be answered with success.
            if durable:
                self._undurable.pop(token, None)

        _when_settled(partition_log, last_offset, settled)

    def _why_refused(self, action: Append[RecordT], error: Exception, now: Instant) -> ErrorCode:
        if not isinstance(error, KafkaError):
            log.exception(f"{self._duty.noun} change not written", **{self._duty.noun: action.subject})
            return ErrorCode.UNKNOWN_SERVER_ERROR
        log.warning(f"{self._duty.noun} change not written", **{self._duty.noun: action.subject}, reason=str(error))
        code = _answer_for(error)
        if code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            self.refused = (now.monotonic_ms, str(error))
        return code

    def _batch(self, action: Append[RecordT], now: Instant) -> bytes:
        pairs = (self._duty.encode(record) for record in action.records)
        return build_batch([NewRecord(timestamp=now.wall_ms, key=key, value=value) for key, value in pairs])

    def log(self) -> CoordinatedLog:
        """The partition; raises CoordinatorNotAvailable if it is not here."""
        partition_log = self._logs.get(self._duty.topic, self.partition)
        if partition_log is None:
            raise CoordinatorNotAvailable(f"{self._duty.topic} is not there yet")
        return partition_log

    def _reply(self, reply: Reply) -> None:
        place = self._undurable.get(FOUND if reply.after is None else reply.after)
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

    def now(self) -> Instant:
        """Both clocks."""
        return Instant(int(self._clock.monotonic() * 1000), self._clock.now_ms())


def _when_settled(partition_log: CoordinatedLog, offset: int, then: Callable[[bool], None]) -> None:
    """Call `then`, now or later, with whether the record at `offset` is durable: False when it never will be."""
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
