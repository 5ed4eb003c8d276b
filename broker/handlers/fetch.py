"""Fetch (1): record batches out of partitions, waiting for them if need be

versions: 4-18 5  log start offset per partition 7  incremental fetch sessions (`broker.fetch_sessions`) 9  current
leader epoch 11 rack of the client, preferred read replica
(not used) 12 flexible; last fetched epoch, diverging epoch 13 topic ids for names 15 replica state in place of the
replica id 16 endpoints of the current leaders as a tagged field 17 replica directory id 18 high watermark of the
replica

A response holds whole batches only, straight from the files, never decoded. It is due when `min_bytes` are there,
when a partition has an error to report or when `max_wait_ms` is over. Until then it is parked: it costs a future, a
timer and one entry per partition, and no other request waits for it except later ones of the same connection.

Bytes that are not in memory are read by threads first, so a consumer far behind holds up nobody else either.

`max_bytes` and `partition_max_bytes` are kept, except that the first batch of the response is always whole (KIP-74).
The partition that is read first rotates from request to request, or by the session's own order, so that one busy
partition cannot starve the others.
With `isolation_level` read_committed the same is returned: there are no transactions, so nothing is unstable.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import count, groupby

from broker.dispatch import BrokerServices, RequestContext, Route
from broker.fetch_sessions import FetchTurn, Wanted
from broker.log.epochs import UNKNOWN_EPOCH
from broker.log.partition import PartitionLog
from broker.partitions import find_log, find_topic
from broker.quorum.image import TopicImage
from core.errors import KafkaError, OffsetOutOfRange
from core.types import ZERO_UUID
from core.wire.api import ApiKey
from core.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

READ_COMMITTED = 1
TOP_LEVEL_ERROR_VERSION = 7

_NO_EPOCH = EpochEndOffset()
_turn = count()


@dataclass(slots=True, kw_only=True)
class _Read:
    """What was found of the wanted partitions, by their numbers."""

    partitions: dict[int, PartitionData] = field(default_factory=dict)
    logs: dict[int, PartitionLog] = field(default_factory=dict)
    cold: list[Callable[[], None]] = field(default_factory=list)  # what has to be read from the disk first
    size_bytes: int = 0
    answer_now: bool = False  # an error or a diverging epoch, which the client must hear of at once


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetch:
    """A request in work: its limits, and what its session makes of it."""

    broker: BrokerServices
    request: FetchRequest
    turn: FetchTurn

    def is_enough(self, read: _Read) -> bool:
        """Whether the answer is due without waiting."""
        request = self.request
        return (
            read.answer_now or read.size_bytes >= request.min_bytes or request.max_wait_ms <= 0 or not read.partitions
        )

    def response(self, read: _Read) -> FetchResponse:
        """The answer; asked for once, because the session takes note of what the client is told."""
        wanted = self.turn.wanted
        data = [read.partitions[number] for number in range(len(wanted))]
        session_id, numbers = self.broker.fetch_sessions.finish(self.turn, data, self.broker.clock.now_ms())
        topics: list[FetchableTopicResponse] = []
        for (name, topic_id), group in groupby(numbers, key=lambda number: wanted[number][:2]):
            partitions = tuple(data[number] for number in group)
            topics.append(FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=partitions))
        return FetchResponse(session_id=session_id, responses=tuple(topics))


def handle(
    broker: BrokerServices, request: FetchRequest, ctx: RequestContext
) -> "FetchResponse | asyncio.Future[FetchResponse]":
    """Read what is there; if that is not enough yet, park."""
    turn = broker.fetch_sessions.begin(request, ctx.api_version, broker.clock.now_ms())
    fetch = _Fetch(broker=broker, request=request, turn=turn)
    read = _read_all(fetch, may_block=False)
    if read.cold:
        return _answer_after_prefetch(fetch, read.cold)
    if fetch.is_enough(read):
        return fetch.response(read)
    answer: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
    _Parked(fetch, read, answer)
    return answer


def _answer_after_prefetch(fetch: _Fetch, cold: list[Callable[[], None]]) -> "asyncio.Future[FetchResponse]":
    """Let threads read what is not in memory; nobody else waits for the disk meanwhile."""
    answer: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
    fetch.broker.logs.prefetch(cold).add_done_callback(lambda _done: _go_on(fetch, answer))
    return answer


def _go_on(fetch: _Fetch, answer: "asyncio.Future[FetchResponse]") -> None:
    if answer.done():
        return
    try:
        read = _read_all(fetch)
        if fetch.is_enough(read):
            answer.set_result(fetch.response(read))
        else:
            _Parked(fetch, read, answer)
    except Exception as error:  # called by the loop: the client must hear of it all the same
        answer.set_exception(error)


def _read_all(fetch: _Fetch, *, may_block: bool = True) -> _Read:
    """One pass over all partitions, beginning with another one each time unless the session orders them."""
    count = len(fetch.turn.wanted)
    first = next(_turn) % count if count and not fetch.turn.in_order else 0
    read = _Read()
    _read_some(fetch, read, (*range(first, count), *range(first)), may_block)
    return read


def _read_some(fetch: _Fetch, read: _Read, numbers: Iterable[int], may_block: bool = True) -> None:
    """Read partitions, some of them perhaps not for the first time."""
    broker, request, wanted = fetch.broker, fetch.request, fetch.turn.wanted
    budget = min(request.max_bytes, broker.config.fetch_max_bytes)
    image: TopicImage | None = None
    topic, topic_id = "", ZERO_UUID
    for number in numbers:
        place = wanted[number]
        before = read.partitions.get(number)
        if before is not None:
            read.size_bytes -= len(before.records or b"")
        try:
            left = budget - read.size_bytes
            if image is None or place.topic_id is not topic_id or place.topic != topic:  # else that of the one before
                image = None
                image = find_topic(broker, place.topic, place.topic_id)
                topic, topic_id = place.topic, place.topic_id
            data = _read_one(broker, image, place.partition, number, request.isolation_level, left, read, may_block)
        except KafkaError as error:
            read.answer_now = True
            data = _failed(broker, place, error)
        read.partitions[number] = data


def _read_one(
    broker: BrokerServices,
    image: TopicImage,
    partition: FetchPartition,
    number: int,
    isolation_level: int,
    left: int,
    read: _Read,
    may_block: bool,
) -> PartitionData:
    partition_log, _ = find_log(broker, image, partition.partition, partition.current_leader_epoch)
    if partition.last_fetched_epoch >= 0:
        diverging = _diverging_epoch(partition_log, partition)
        if diverging is not None:
            read.answer_now = True
            return _data(partition_log, partition.partition, b"", isolation_level, diverging)
    size_bytes = min(partition.partition_max_bytes, left)
    if not may_block and (cold := partition_log.cold(partition.fetch_offset, size_bytes)) is not None:
        read.cold.append(cold)
        return _data(partition_log, partition.partition, b"", isolation_level)
    first = read.size_bytes == 0
    records = partition_log.read(partition.fetch_offset, size_bytes, at_least_one=first)
    read.size_bytes += len(records)
    read.logs[number] = partition_log
    return _data(partition_log, partition.partition, records, isolation_level)


def _data(
    partition_log: PartitionLog,
    partition: int,
    records: bytes | memoryview,
    isolation_level: int,
    diverging: EpochEndOffset | None = None,
) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        high_watermark=partition_log.high_watermark,
        last_stable_offset=partition_log.last_stable_offset,
        log_start_offset=partition_log.log_start_offset,
        aborted_transactions=() if isolation_level == READ_COMMITTED else None,
        records=records,
        diverging_epoch=diverging or _NO_EPOCH,
    )


def _diverging_epoch(partition_log: PartitionLog, partition: FetchPartition) -> EpochEndOffset | None:
    """Where the log of the one who asks ceases to be ours, if it does below the offset asked for (KIP-595)."""
    epoch, end_offset = partition_log.epochs.end_offset_for(partition.last_fetched_epoch, partition_log.log_end_offset)
    if epoch == UNKNOWN_EPOCH or (epoch == partition.last_fetched_epoch and end_offset >= partition.fetch_offset):
        return None
    return EpochEndOffset(epoch=epoch, end_offset=end_offset)


def _failed(broker: BrokerServices, wanted: Wanted, error: KafkaError) -> PartitionData:
    """An error; one about the offset also says which offsets there are."""
    partition_log = None
    number = wanted.partition.partition
    if isinstance(error, OffsetOutOfRange):
        image = find_topic(broker, wanted.topic, wanted.topic_id)
        partition_log = broker.logs.get(image.name, number)
    return PartitionData(
        partition_index=number,
        error_code=error.code,
        high_watermark=-1 if partition_log is None else partition_log.high_watermark,
        log_start_offset=-1 if partition_log is None else partition_log.log_start_offset,
        aborted_transactions=(),
        records=b"",
    )


class _Parked:
    """A fetch that waits for data or for its time to be over; nothing is left of it once `answer` is done.

    What was found before it was parked is kept, so that a record for one of a thousand partitions makes it look at
    that one.
    """

    __slots__ = ("_fetch", "_read", "_timer", "_waits", "_woken", "answer")

    def __init__(self, fetch: _Fetch, read: _Read, answer: "asyncio.Future[FetchResponse]") -> None:
        loop = asyncio.get_running_loop()
        self._fetch = fetch
        self._read = read
        self._woken: dict[int, None] = {}  # numbers of partitions, as they came
        self._timer = loop.call_later(fetch.request.max_wait_ms / 1000, self._finish)
        self._waits = [(partition_log, partial(self._wake, number)) for number, partition_log in read.logs.items()]
        self.answer = answer
        self.answer.add_done_callback(self._leave)
        for partition_log, wake in self._waits:
            partition_log.wait_for_data(wake)

    def _wake(self, number: int) -> None:
        """Something arrived: look once at the end of this turn of the loop, whatever else arrives in it."""
        if not self._woken:
            asyncio.get_running_loop().call_soon(self._look)
        self._woken[number] = None

    def _look(self) -> None:
        self._answer(self._fetch.request.min_bytes)

    def _finish(self) -> None:
        self._answer(0)

    def _answer(self, min_bytes: int) -> None:
        """Look at what has woken it and answer if `min_bytes` are there by now.

        Only a moved log start wakes nobody; the client hears of it with its next fetch.
        """
        if self.answer.done():
            return
        woken, self._woken = self._woken, {}
        try:
            _read_some(self._fetch, self._read, woken)
            if self._read.answer_now or self._read.size_bytes >= min_bytes:
                self.answer.set_result(self._fetch.response(self._read))
        except Exception as error:  # called by the loop: the client must hear of it all the same
            self.answer.set_exception(error)

    def _leave(self, _answer: "asyncio.Future[FetchResponse]") -> None:
        self._timer.cancel()
        for partition_log, wake in self._waits:
            partition_log.stop_waiting(wake)


def error_response(request: FetchRequest, error: KafkaError, api_version: int) -> FetchResponse:
    """The top-level error code, and before version 7 the same error for every partition."""
    if api_version >= TOP_LEVEL_ERROR_VERSION:
        return FetchResponse(error_code=error.code)
    return FetchResponse(
        responses=tuple(
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=tuple(
                    PartitionData(
                        partition_index=partition.partition, error_code=error.code, high_watermark=-1, records=b""
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


ROUTES = (Route(key=ApiKey.FETCH, handle=handle, min_version=4, max_version=18, error_response=error_response),)
