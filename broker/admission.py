"""The door through which every produced batch gets into its partition

There are three ways to read a Produce request and one to let its batches in. `find_place` says where a batch goes, and
`admit` judges and stores it; what comes back is where it is stored, or why it is not, or a future of these.

A future it is where records have to be looked at that may be many (`tidemill.broker.log.examination`): that is done in
threads. The order within a partition stays: what comes for it meanwhile waits, and is judged and stored, on the event
loop, when its turn comes. Other partitions go on. What was true when a batch came may have changed by its turn: the log
may be closed by then, and if its settings are others the batch is examined again.

How much is looked at on the event loop is bounded per turn of the loop, by the bytes that the records really are. A
batch that waits is a copy, so that its connection can go on receiving. It is held as long as somebody waits for the
answer, and the server counts that; when the client goes away the batch goes too. Only producers that want no answer may
leave at once, so of theirs `ORPHANS_BYTES_MAX` stay.

A producer is not told that something is missing before its batch by a broker that has not heard of an active controller
lately: another may lead and have what is missing, and an idempotent client that hears of a gap takes it for a loss.

Not here: what a request means, and waiting for the disk (`handlers/produce`).
"""

import asyncio
import sys
import threading
import uuid
from collections import deque
from collections.abc import Callable
from functools import partial

import structlog

from tidemill.broker.authorization import Requester
from tidemill.broker.dispatch import BrokerServices
from tidemill.broker.log.appended import AppendResult
from tidemill.broker.log.examination import Examination
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.log.producers import NOT_FOLLOWED
from tidemill.broker.operations import Operation
from tidemill.broker.partitions import find_hosted, permitted_topic
from tidemill.broker.replication.replica import ACKS_ALL, ACKS_NONE, Replica
from tidemill.broker.turned_away import TurnedAway
from tidemill.core.errors import (
    InvalidTopicException,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    TransactionalIdAuthorizationFailed,
    UnknownServerError,
)
from tidemill.core.records.batch import ATTRIBUTES_AT, HEADER_BYTES, TRANSACTIONAL_BIT
from tidemill.core.runtime.disk import ByteBuffer
from tidemill.core.runtime.threads import OS_THREADS, Threads

log = structlog.get_logger("tidemill.broker.admission")

LIGHT_BYTES = 16 * 1024  # records that are looked at on the event loop; the smallest have seven bytes: a millisecond
TURN_BYTES = 64 * 1024  # of them in one turn of the event loop, however many requests there are
RECODED_WEIGHT = 4  # compressing anew costs so many times as much, and more at high levels
QUEUED_BYTES_PER_TURN = 2**20  # of those that have waited; 0.1 ms of checksum and writing, as for one large batch
THREADS = 2  # so that one batch of a second does not hold up all the others
SWITCH_SECONDS = (
    0.0005  # in which the event loop gets the interpreter back from a thread; Python's own is ten times that
)
ORPHANS_BYTES_MAX = 64 * 2**20

Outcome = AppendResult | KafkaError


def find_place(
    broker: BrokerServices, who: Requester, name: str | None, topic_id: uuid.UUID, partition: int
) -> Replica:
    """Where batches of `who` for that partition go, led here or not; raises the error that says why nowhere."""
    topic = permitted_topic(broker, who, Operation.WRITE, name, topic_id)
    if topic.internal:
        raise InvalidTopicException(f"topic {topic.name!r} is written by the cluster only")
    return find_hosted(broker, topic, partition)


class _Waiting:
    """A batch whose turn has not come, with the outcome to be."""

    __slots__ = ("acks", "data", "now_ms", "orphan_bytes", "outcome", "produce_version", "replica", "work")

    def __init__(self, data: bytearray, acks: int, now_ms: int, replica: Replica, produce_version: int) -> None:
        self.data: bytearray | None = data
        self.acks = acks
        self.now_ms = now_ms
        self.replica = replica
        self.produce_version = produce_version
        self.orphan_bytes = 0
        self.work: asyncio.Future[ByteBuffer] | None = None
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()


class Admission:
    """The doors of all partitions of one broker; `in_touch` is whether it would know if another led in its place."""

    def __init__(self, threads: Threads = OS_THREADS, in_touch: Callable[[], bool] = lambda: True) -> None:
        self.turned_away = TurnedAway()
        self._in_touch = in_touch
        self._queues: dict[PartitionLog, deque[_Waiting]] = {}
        self._threads = threads.pool("examine", THREADS)
        self._switching = _Switching()
        self._turn_bytes = 0  # looked at in this turn of the event loop
        self._orphans_bytes = 0
        self._closed = False

    @property
    def waiting_bytes(self) -> int:
        """Of the batches whose turn has not come."""
        return sum(len(waiting.data or b"") for queue in self._queues.values() for waiting in queue)

    def close(self) -> None:
        """Examine nothing more; the logs are about to be closed, so what waits is refused."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    def admit(
        self, replica: Replica, batch: ByteBuffer, acks: int, now_ms: int, produce_version: int
    ) -> "Outcome | asyncio.Future[Outcome]":
        """Judge and store a client's batch, in place if it can be written to; or say when that will have happened."""
        partition_log, machine = replica.log, replica.machine
        if self.turned_away.by_partition:
            self.turned_away.hand_over(replica, now_ms)
        try:
            # Alone it leads and is enough in sync by the settings that it has heard of. Others may have come to the log
            # a moment ago: until who altered them is answered, either is right.
            if not machine.alone and (
                not machine.leads
                or (
                    acks == ACKS_ALL
                    and (len(machine.isr) < partition_log.config.min_insync_replicas or machine.eligible)
                )
            ):
                machine.check_leads()
                try:
                    machine.check_in_sync(partition_log.config.min_insync_replicas)
                except NotEnoughReplicas as error:
                    partition_log.refuse(batch, error, followed_epoch=NOT_FOLLOWED, now_ms=now_ms)
                    raise
            if len(batch) >= HEADER_BYTES and batch[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT:
                raise TransactionalIdAuthorizationFailed("a transactional batch without a transactional id")
            if not self._queues or partition_log not in self._queues:
                found = partition_log.try_append(batch, now_ms, machine.leader_epoch, produce_version)
                if isinstance(found, AppendResult):
                    return found
                if (result := self._examine_here(partition_log, found)) is not None:
                    return result
        except KafkaError as error:
            return self._refused(replica, batch, error, now_ms)
        waiting = _Waiting(bytearray(batch), acks, now_ms, replica, produce_version)
        waiting.outcome.add_done_callback(partial(self._left, waiting))
        queue = self._queues.setdefault(partition_log, deque())
        queue.append(waiting)
        if len(queue) == 1:
            self._go_on(partition_log)
        return waiting.outcome

    def _examine_here(self, partition_log: PartitionLog, examination: Examination) -> AppendResult | None:
        """The result if the records turn out to be few; None if a thread has to look at them. Raises KafkaError."""
        weight = 1 if examination.codec is None else RECODED_WEIGHT
        if len(examination.data) * weight > LIGHT_BYTES or self._turn_bytes >= TURN_BYTES:
            return None
        if not self._turn_bytes:
            asyncio.get_running_loop().call_soon(self._next_turn)
        packed_bytes = len(examination.data) * weight
        self._turn_bytes += packed_bytes  # whatever comes of them: all of it may be read for no record at all
        try:
            records = examination.records(LIGHT_BYTES // weight)
        except MessageTooLarge:
            self._turn_bytes += LIGHT_BYTES
            return None
        self._turn_bytes += max(len(records) * weight - packed_bytes, 0)
        return partition_log.append_examined(examination, examination.outcome(records))

    def _next_turn(self) -> None:
        self._turn_bytes = 0

    def _go_on(self, partition_log: PartitionLog) -> None:
        """Let in whatever has its turn, until one has to be examined in a thread."""
        queue = self._queues[partition_log]
        room = QUEUED_BYTES_PER_TURN
        while queue:
            if room <= 0:
                asyncio.get_running_loop().call_soon(self._go_on, partition_log)
                return
            waiting = queue[0]
            if waiting.data is not None:
                room -= len(waiting.data)
                outcome = self._try(partition_log, waiting)
                if outcome is None:
                    return
                self._settle(waiting, outcome)
            queue.popleft()
        del self._queues[partition_log]

    def _try(self, partition_log: PartitionLog, waiting: _Waiting) -> Outcome | None:
        """What becomes of a batch that has its turn; None if a thread is at work on it."""
        assert waiting.data is not None
        machine = waiting.replica.machine
        try:
            machine.check_leads()
            found = partition_log.try_append(
                waiting.data, waiting.now_ms, machine.leader_epoch, waiting.produce_version
            )
            if isinstance(found, AppendResult):
                return found
            if (result := self._examine_here(partition_log, found)) is not None:
                return result
        except KafkaError as error:
            return self._refused(waiting.replica, waiting.data, error, waiting.now_ms)
        except Exception as error:
            return _unexpected(error)
        if self._closed:
            return KafkaStorageError("the broker is about to stop")
        work = asyncio.get_running_loop().run_in_executor(self._threads, self._switching.run, found)
        waiting.work = work
        work.add_done_callback(partial(self._examined, partition_log, waiting, found))
        return None

    def _examined(
        self,
        partition_log: PartitionLog,
        waiting: _Waiting,
        examination: Examination,
        work: "asyncio.Future[ByteBuffer]",
    ) -> None:
        """A thread has looked at a batch, which has its turn still."""
        waiting.work = None
        if waiting.data is not None:
            outcome = self._stored(waiting.replica, examination, work)
            if outcome is not None:
                self._settle(waiting, outcome)
        self._go_on(partition_log)

    def _stored(self, replica: Replica, examination: Examination, work: "asyncio.Future[ByteBuffer]") -> Outcome | None:
        """What becomes of a batch that was examined; None if that was for settings or an epoch that hold no more."""
        partition_log, machine = replica.log, replica.machine
        try:
            data = work.result()
            machine.check_leads()
            if examination.config is not partition_log.config or examination.leader_epoch != machine.leader_epoch:
                return None
            return partition_log.append_examined(examination, data)
        except KafkaError as error:
            return self._refused(replica, examination.data, error, examination.now_ms)
        except asyncio.CancelledError:
            return KafkaStorageError("the broker is about to stop")
        except Exception as error:
            return _unexpected(error)

    def _refused(self, replica: Replica, batch: ByteBuffer, error: KafkaError, now_ms: int) -> KafkaError:
        """What the client is told; who does not lead, or is still cutting its log, may lead before the next comes."""
        if isinstance(error, NotLeaderOrFollower):
            replica.log.refuse(batch, error, followed_epoch=replica.machine.leader_epoch, now_ms=now_ms)
        elif isinstance(error, OutOfOrderSequenceNumber) and not self._in_touch():
            return NotLeaderOrFollower(  # nothing to take note of: what comes behind is told so for its own sake
                f"no active controller has been heard of for a while: another broker may lead, and have what seems to "
                f"be missing here ({error})"
            )
        return error

    def _settle(self, waiting: _Waiting, outcome: Outcome) -> None:
        waiting.data = None
        self._orphans_bytes -= waiting.orphan_bytes
        if not waiting.outcome.done():
            waiting.outcome.set_result(outcome)

    def _left(self, waiting: _Waiting, outcome: "asyncio.Future[Outcome]") -> None:
        """Nobody waits for the outcome any more, or it is there."""
        if not outcome.cancelled() or waiting.data is None:
            return
        size = len(waiting.data)
        if waiting.acks == ACKS_NONE and self._orphans_bytes + size <= ORPHANS_BYTES_MAX:
            waiting.orphan_bytes = size
            self._orphans_bytes += size
            return
        waiting.data = None
        if waiting.work is not None:
            waiting.work.cancel()


def _unexpected(error: Exception) -> KafkaError:
    """Whoever waits has to hear of it, and what waits behind it has to go on."""
    log.error("batch not stored", exc_info=error)
    return UnknownServerError("the broker failed unexpectedly while storing this batch; see its log")


class _Switching:
    """Threads that use the interpreter for long, and the event loop that needs it between."""

    __slots__ = ("_lock", "_running", "_seconds")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._seconds = 0.0

    def run(self, examination: Examination) -> ByteBuffer:
        """In a thread: the outcome of `examination`."""
        self._enter()
        try:
            return examination.run()
        finally:
            self._leave()

    def _enter(self) -> None:
        with self._lock:
            self._running += 1
            if self._running == 1:
                self._seconds = sys.getswitchinterval()
                sys.setswitchinterval(SWITCH_SECONDS)

    def _leave(self) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                sys.setswitchinterval(self._seconds)
