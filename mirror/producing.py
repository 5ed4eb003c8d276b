"""Writing to the target's leaders in pipelined requests

A produce request may hold one batch per partition, so while the requests in flight are being answered, batches of many
partitions gather for the next. All requests to a leader go over one connection, in order.

A partition knows the target's log end only as long as the connection stands over which it looked: a broker that was
restarted in between may have lost its tail. Batches of a partition that looked over another connection are sent back.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Generic, Protocol, TypeVar

from tidemill.core.client.batches import Produced as ProduceAnswer
from tidemill.core.client.batches import produce_answers
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import Connection, ConnectionFailed
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError
from tidemill.core.types import TopicPartition
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.produce import ProduceResponse
from tidemill.mirror.faults import judge_produce, leaves_in_doubt
from tidemill.mirror.link_events import Event, Produce, Produced, ProduceFailed, Trouble

PRODUCE_LANE = "produce"
REQUESTS_IN_FLIGHT_MAX = 5
REQUEST_BYTES_MAX = 8 * 1024 * 1024  # well below socket.request.max.bytes (100 MiB) of any broker


class Writer(Protocol):
    """Whoever has batches to send.

    `target_id` is the topic that is meant, whatever else has its name by now; `connection` is the one over which the
    target's log end was looked at.
    """

    target: TopicPartition
    target_id: uuid.UUID
    connection: Connection | None


WriterT = TypeVar("WriterT", bound=Writer)


class Sender(Generic[WriterT]):
    """The writing half of a flow, for one leader. `spawn` runs what has to wait, beside everything else."""

    def __init__(
        self,
        client: ClusterClient,
        node_id: int,
        deliver: Callable[[WriterT, Event], None],
        spawn: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        self._client = client
        self._node_id = node_id
        self._deliver = deliver
        self._spawn = spawn
        self._queue: deque[tuple[WriterT, Produce]] = deque()
        self._in_flight = 0
        self._flush_due = False  # a flush is scheduled, or waits for the connection
        self._ended = False

    def send(self, writer: WriterT, produce: Produce) -> None:
        """Queue one batch behind those of the same partition; sent with what else comes in this turn of the loop."""
        if not self._ended:
            self._queue.append((writer, produce))
            self._schedule()

    def end(self) -> None:
        """Send nothing more and deliver nothing more: another mirror may be at work from now on."""
        self._ended = True
        self._queue.clear()

    def _schedule(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        while self._queue and self._in_flight < REQUESTS_IN_FLIGHT_MAX:
            connection = self._client.open_connection(self._node_id, PRODUCE_LANE)
            if connection is None or not connection.writable:
                self._flush_due = True
                self._spawn(self._wait())
                return
            work = take_request(self._queue, connection, self._send_back)
            if not work:
                return
            try:
                answer = self._client.send_produce(
                    connection,
                    {writer.target: produce.batch for writer, produce in work},
                    {writer.target: writer.target_id for writer, _ in work},
                )
            except (ConnectionFailed, KafkaError) as error:
                self._queue.extendleft(reversed(work))
                self._fail_queue(str(error))
                return
            self._in_flight += 1
            answer.add_done_callback(partial(self._finish, work))

    async def _wait(self) -> None:
        """Until the connection is open and takes more, then flush."""
        try:
            connection = await self._client.connection(self._node_id, PRODUCE_LANE)
            await connection.drain()
        except (ConnectionFailed, KafkaError) as error:
            self._client.mark_stale()
            self._flush_due = False
            self._fail_queue(str(error))
        else:
            self._flush()

    def _finish(self, work: list[tuple[WriterT, Produce]], answer: "asyncio.Future[Message]") -> None:
        self._in_flight -= 1
        if self._ended:
            return
        waiting = {writer.target: (writer, produce) for writer, produce in work}
        if answer.cancelled():
            return
        reason = "the target did not answer for this partition"
        error = answer.exception()
        if error is not None:
            self._client.mark_stale()
            reason = str(error)
        else:
            response = answer.result()
            assert isinstance(response, ProduceResponse)
            for row in produce_answers(response, {writer.target: writer.target_id for writer, _ in work}):
                item = waiting.pop(row.partition, None)
                if item is not None:
                    self._deliver(item[0], self._event(item[1], row))
        for writer, produce in waiting.values():
            self._deliver(writer, _failed(produce, reason, in_doubt=True))
        if self._queue:
            self._schedule()

    def _event(self, produce: Produce, row: ProduceAnswer) -> Event:
        if row.error_code == ErrorCode.NONE:
            return Produced(token=produce.token, target_offset=row.base_offset if row.base_offset >= 0 else None)
        trouble, reason = judge_produce(row.error_code, row.message, len(produce.batch))
        self._client.mark_stale()
        in_doubt = leaves_in_doubt(row.error_code)
        return ProduceFailed(token=produce.token, trouble=trouble, reason=reason, in_doubt=in_doubt)

    def _send_back(self, writer: WriterT, produce: Produce) -> None:
        reason = "the connection to the target was replaced"
        self._deliver(writer, _failed(produce, reason, in_doubt=False))

    def _fail_queue(self, reason: str) -> None:
        while self._queue:
            writer, produce = self._queue.popleft()
            self._deliver(writer, _failed(produce, reason, in_doubt=False))


def _failed(produce: Produce, reason: str, *, in_doubt: bool) -> ProduceFailed:
    return ProduceFailed(token=produce.token, trouble=Trouble.RETRY, reason=reason, in_doubt=in_doubt)


def take_request(
    queue: deque[tuple[WriterT, Produce]], connection: Connection, send_back: Callable[[WriterT, Produce], None]
) -> list[tuple[WriterT, Produce]]:
    """Take one request's worth from the front of `queue`: the first batch of each partition, in order."""
    work: list[tuple[WriterT, Produce]] = []
    rest: list[tuple[WriterT, Produce]] = []
    taken: set[TopicPartition] = set()
    size = 0
    while queue:
        writer, produce = queue.popleft()
        if writer.connection is not connection:
            send_back(writer, produce)
        elif writer.target in taken:
            rest.append((writer, produce))
        elif work and size + len(produce.batch) > REQUEST_BYTES_MAX:
            rest.append((writer, produce))
            taken.add(writer.target)  # nothing behind it may overtake
        else:
            work.append((writer, produce))
            taken.add(writer.target)
            size += len(produce.batch)
    queue.extend(rest)
    return work
