"""ListOffsets (2): offsets by time

versions: 1-11
  2  isolation level, throttle time
  4  current leader epoch in the request, leader epoch in the response
  6  flexible
  7  -3: the record with the largest timestamp (KIP-734)
  8  -4: earliest local offset
  9  -5: latest tiered offset
  10 timeout
  11 -6: earliest offset not tiered yet

-1 is the high watermark, -2 the log start. Nothing is tiered: -4 is the log start, -5 and -6 have no offset. A
timestamp of 0 or later asks for the first record with that time or a later one; when there is none the offset is -1.

What has to be searched for is searched for in another thread, one partition of a request after the other, and nobody
else waits for it. A partition that a request names more than once is refused, in one row of the answer, as Kafka does:
each name would be another search for a few bytes.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from tidemill.broker.authorization import ResourceKind, on_each
from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.log.epochs import UNKNOWN_EPOCH
from tidemill.broker.log.lookup import Found, first_at_or_after, with_max_timestamp
from tidemill.broker.log.lookup_queue import Question
from tidemill.broker.operations import Operation
from tidemill.broker.partitions import find_replica, permitted_topic
from tidemill.broker.replication.replica import Replica
from tidemill.core.errors import InvalidRequest, KafkaError, LeaderNotAvailable, OffsetNotAvailable, UnsupportedVersion
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6

_FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_NOTHING = (-1, -1)
_OF_THE_START = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)  # which every leader knows

NOT_AVAILABLE_FROM = 5  # as in Kafka: before, clients did not know the error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A partition that a search has to be made for."""

    partition: int
    replica: Replica
    question: Question

    def answer(self, found: Found) -> ListOffsetsPartitionResponse:
        """The row of the response."""
        timestamp, offset = found or _NOTHING
        return _found(self.partition, self.replica, timestamp, offset)


def handle(
    broker: BrokerServices, request: ListOffsetsRequest, ctx: RequestContext
) -> "ListOffsetsResponse | asyncio.Future[ListOffsetsResponse]":
    """One offset per partition."""
    named: defaultdict[str, defaultdict[int, list[ListOffsetsPartition]]] = defaultdict(lambda: defaultdict(list))
    for topic in request.topics:
        for row in topic.partitions:
            named[topic.name][row.partition_index].append(row)
    rows = [_row(broker, name, asked, ctx) for name, partitions in named.items() for asked in partitions.values()]
    response = _Response(broker, {name: len(partitions) for name, partitions in named.items()}, rows)
    response.go_on()
    return response.answer.result() if response.answer.done() else response.answer


class _Response:
    """A response in the making, one search after the other."""

    __slots__ = ("_broker", "_current", "_done", "_rows", "_topics", "answer")

    def __init__(
        self, broker: BrokerServices, topics: Mapping[str, int], rows: "list[ListOffsetsPartitionResponse | _Asked]"
    ) -> None:
        self._broker = broker
        self._topics = topics  # with the number of their rows
        self._rows = rows
        self._done: list[ListOffsetsPartitionResponse] = []
        self._current: asyncio.Future[Found] | None = None
        self.answer: asyncio.Future[ListOffsetsResponse] = asyncio.get_running_loop().create_future()
        self.answer.add_done_callback(self._leave)

    def go_on(self) -> None:
        """As far as it goes without waiting."""
        while len(self._done) < len(self._rows):
            row = self._rows[len(self._done)]
            if isinstance(row, ListOffsetsPartitionResponse):
                self._done.append(row)
                continue
            try:
                self._current = self._broker.logs.look_up(row.replica.log, row.question)
            except KafkaError as error:
                self._done.append(_failed(row.partition, error))
                continue
            self._current.add_done_callback(partial(self._take, row))
            return
        self.answer.set_result(self._response())

    def _take(self, row: "_Asked", found: "asyncio.Future[Found]") -> None:
        if self.answer.done():
            return
        try:
            try:
                self._done.append(row.answer(found.result()))
            except KafkaError as error:
                self._done.append(_failed(row.partition, error))
            self.go_on()
        except Exception as error:  # called by the loop: the client must hear of it all the same
            self.answer.set_exception(error)

    def _leave(self, _answer: object) -> None:
        """The client is gone, or has its answer."""
        if self._current is not None:
            self._current.cancel()

    def _response(self) -> ListOffsetsResponse:
        left = iter(self._done)
        return ListOffsetsResponse(
            topics=tuple(
                ListOffsetsTopicResponse(name=name, partitions=tuple(islice(left, count)))
                for name, count in self._topics.items()
            )
        )


def _failed(partition: int, error: KafkaError) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition, error_code=error.code)


def _row(
    broker: BrokerServices, topic: str, named: Sequence[ListOffsetsPartition], ctx: RequestContext
) -> ListOffsetsPartitionResponse | _Asked:
    """What is to be said of a partition, or what has to be searched for first."""
    asked = named[0]
    partition = asked.partition_index
    try:
        if len(named) > 1:
            raise InvalidRequest(f"{topic}-{partition} is named {len(named)} times")
        image = permitted_topic(broker, ctx, Operation.DESCRIBE, topic)
        replica = find_replica(broker, image, partition, asked.current_leader_epoch)
        place = _place(replica, asked.timestamp, ctx.api_version)
    except KafkaError as error:
        return _failed(partition, error)
    if callable(place):
        return _Asked(partition=partition, replica=replica, question=place)
    return _found(partition, replica, -1, place)


def _found(partition: int, replica: Replica, timestamp: int, offset: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=partition,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=_epoch_at(replica, offset) if offset >= 0 else -1,
    )


def _epoch_at(replica: Replica, offset: int) -> int:
    """The epoch that wrote `offset`; a log in which nothing was ever written is the current leader's."""
    epoch = replica.log.epochs.epoch_at(offset)
    return replica.machine.leader_epoch if epoch == UNKNOWN_EPOCH else epoch


def _place(replica: Replica, timestamp: int, api_version: int) -> int | Question:
    """The offset that was asked for where it is a place, -1 where there is none; for a record what will find it."""
    if api_version < _FIRST_VERSION.get(timestamp, 0):
        raise UnsupportedVersion(f"timestamp {timestamp} has no meaning in version {api_version}")
    if timestamp not in _OF_THE_START and not replica.machine.is_settled:
        raise _not_settled(replica, api_version)
    if timestamp >= 0:
        return partial(first_at_or_after, timestamp=timestamp)
    if timestamp == LATEST:
        return replica.high_watermark
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return replica.log_start_offset
    if timestamp == MAX_TIMESTAMP:
        return with_max_timestamp
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1
    raise UnsupportedVersion(f"timestamp {timestamp} has no meaning")


def _not_settled(replica: Replica, api_version: int) -> KafkaError:
    """What the leader before has shown may not be known to be committed here yet (KIP-207)."""
    reason = f"the high watermark of {replica.log.topic_partition} is not known yet: its leader is new"
    return OffsetNotAvailable(reason) if api_version >= NOT_AVAILABLE_FROM else LeaderNotAvailable(reason)


def error_response(request: ListOffsetsRequest, error: KafkaError, _api_version: int) -> ListOffsetsResponse:
    """The same error for every partition."""
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=error.code)
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


ROUTES = (
    Route(
        key=ApiKey.LIST_OFFSETS,
        handle=handle,
        min_version=1,
        max_version=11,
        needs=(on_each(Operation.DESCRIBE, ResourceKind.TOPIC),),
        error_response=error_response,
    ),
)
