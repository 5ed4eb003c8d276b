"""Fetch (1): record batches out of partitions, waiting for them if need be

versions: 4-18
  5  log start offset per partition
  7  incremental fetch sessions (`tidemill.broker.fetch_sessions`)
  9  current leader epoch
  11 rack of the client, preferred read replica
  12 flexible; last fetched epoch, diverging epoch
  13 topic ids for names
  15 replica state in place of the replica id
  16 current leaders and their endpoints as tagged fields (`leader_hints`)
  17 replica directory id
  18 high watermark of the replica

A response holds whole batches only, straight from the files, never decoded. It is due when `min_bytes` are there,
when a partition has an error to report or when `max_wait_ms` is over. Until then it is parked: it costs a future, a
timer and one entry per partition, and no other request waits for it except later ones of the same connection.

Requests take a short way through the dispatcher (`FetchShortcut`); both ways meet in `serve`, and nobody can tell from
the answer which one was taken.

Bytes that are not in memory are read by threads first, so a consumer far behind holds up nobody else either.

`max_bytes` and `partition_max_bytes` are kept, except that the first batch of the response is always whole (KIP-74).
The partition that is read first rotates from request to request, or by the session's own order, so that one busy
partition cannot starve the others.
With `isolation_level` read_committed the same is returned: there are no transactions, so nothing is unstable.

Not here: what is different where a broker fetches what it copies (`fetch_follower`), and where consumers may read at
followers (`fetch_nearby`).
"""

import asyncio
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from tidemill.broker.authorization import ALLOW_ALL, ResourceKind, on_each
from tidemill.broker.dispatch import BrokerServices, Exchange, Peer, RequestContext, Route
from tidemill.broker.fetch_sessions import FetchTurn, Wanted
from tidemill.broker.handlers.leader_hints import LeaderHints
from tidemill.broker.log.epochs import UNKNOWN_EPOCH
from tidemill.broker.operations import Operation
from tidemill.broker.partitions import find_replica, find_topic, permitted_topic
from tidemill.broker.quorum.image import TopicImage
from tidemill.broker.quotas import UNLIMITED
from tidemill.broker.replication.moved import Moved
from tidemill.broker.replication.replica import Replica
from tidemill.broker.response_errors import error_codes
from tidemill.core.errors import KafkaError, OffsetOutOfRange
from tidemill.core.runtime.at_once import future_at_once
from tidemill.core.types import ZERO_UUID, new_tuple
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.codec import DecodeError, decode
from tidemill.core.wire.framing import decode_request_header, encode_response
from tidemill.core.wire.messages.fetch import (
    SINCE,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

READ_COMMITTED = 1
LEADERS_VERSION = 16
TOP_LEVEL_ERROR_VERSION = SINCE["FetchResponse.error_code"]

COPIED_BYTES_MAX = 2**20
"""Of small pieces in one answer, which wait in memory until the client takes them; large ones stay in the page cache.
A client can ask for the same piece a thousand times over in one request."""

_FETCH = int(ApiKey.FETCH)
_UNTOLD = PartitionData()  # of what there is never anything to tell
_NO_EPOCH, _NO_LEADER, _NO_SNAPSHOT = _UNTOLD.diverging_epoch, _UNTOLD.current_leader, _UNTOLD.snapshot_id
_NO_REPLICA = _UNTOLD.preferred_read_replica

Aborted = tuple[AbortedTransaction, ...] | None
"""The aborted transactions, of which there are none: an empty list of them, or no list for who reads uncommitted."""


@dataclass(slots=True, kw_only=True)
class Read:
    """What was found of the wanted partitions, by their numbers."""

    partitions: dict[int, PartitionData] = field(default_factory=dict)
    found: dict[int, Replica] = field(default_factory=dict)  # where it was read without an error
    cold: list[Callable[[], None]] = field(default_factory=list)  # what has to be read from the disk first
    size_bytes: int = 0
    copied_bytes: int = 0  # of them those that are a copy
    answer_now: bool = False  # an error or a diverging epoch, which the client must hear of at once

    def has(self, min_bytes: int) -> bool:
        """Whether there is something to tell, or no room for more."""
        return self.answer_now or self.size_bytes >= min_bytes or self.copied_bytes >= COPIED_BYTES_MAX

    def count(self, records: bytes | memoryview, sign: int = 1) -> None:
        """`records` belong to the answer, or with a sign of -1 do so no more."""
        self.size_bytes += sign * len(records)
        if type(records) is bytes:
            self.copied_bytes += sign * len(records)


class Fetch:
    """A request in work: its limits, and what its session makes of it."""

    __slots__ = ("aborted", "broker", "budget", "hints", "request", "turn", "version", "who")

    parked: "ClassVar[type[Parked]]"
    to_clients = True

    def __init__(
        self, broker: BrokerServices, request: FetchRequest, turn: FetchTurn, version: int, who: RequestContext | Peer
    ) -> None:
        self.broker = broker
        self.request = request
        self.turn = turn
        self.version = version
        self.who = who
        self.budget = min(request.max_bytes, broker.config.fetch_max_bytes)
        self.aborted: Aborted = () if request.isolation_level == READ_COMMITTED else None
        self.hints: LeaderHints | None = None  # once there is an error

    def permitted(self, name: str, topic_id: uuid.UUID) -> TopicImage:
        """A topic that is read by a consumer who may; raises TopicAuthorizationFailed."""
        if self.broker.authorizer is ALLOW_ALL:
            return find_topic(self.broker, name, topic_id)
        return permitted_topic(self.broker, self.who, Operation.READ, name, topic_id)

    def read(self, read: Read, numbers: Iterable[int], may_block: bool = True) -> None:
        """Read partitions, some of them perhaps not for the first time."""
        wanted, partitions, read_one = self.turn.wanted, read.partitions, self.read_one
        image: TopicImage | None = None
        topic, topic_id = "", ZERO_UUID
        for number in numbers:
            name, its_id, partition = wanted[number]
            before = partitions.get(number)
            if before is not None and before.records:
                read.count(before.records, -1)
            try:
                if image is None or its_id is not topic_id or name != topic:  # else that of the one before
                    image = None
                    image = self.permitted(name, its_id)
                    topic, topic_id = name, its_id
                partitions[number] = read_one(read, number, partition, image, may_block)
            except KafkaError as error:
                read.answer_now = True
                partitions[number] = self._failed(wanted[number], error)

    def read_one(
        self, read: Read, number: int, partition: FetchPartition, image: TopicImage, may_block: bool
    ) -> PartitionData:
        """What there is of a partition that is led here; raises KafkaError."""
        found = find_replica(self.broker, image, partition.partition, partition.current_leader_epoch)
        if partition.fetch_offset == found.high_watermark and partition.last_fetched_epoch < 0 and not found.log.closed:
            read.found[number] = found
            return row_of(found, partition.partition, b"", self.aborted)
        return self.records_of(found, read, number, partition, may_block)

    def records_of(
        self, found: Replica, read: Read, number: int, partition: FetchPartition, may_block: bool
    ) -> PartitionData:
        """The same of a replica that may be read."""
        if partition.last_fetched_epoch >= 0:
            diverging = diverging_epoch(found, partition)
            if diverging is not None:
                read.answer_now = True
                return row_of(found, partition.partition, b"", self.aborted, diverging)
        offset = partition.fetch_offset
        records: bytes | memoryview = b""
        if not found.high_watermark < offset <= found.log.log_end_offset:  # else there, not visible yet
            left = self.budget - read.size_bytes if read.copied_bytes < COPIED_BYTES_MAX else 0
            size_bytes = min(partition.partition_max_bytes, left)
            if not may_block and (cold := found.log.cold(offset, size_bytes)) is not None:
                read.cold.append(cold)
                return row_of(found, partition.partition, b"", self.aborted)
            records = found.read(offset, size_bytes, at_least_one=read.size_bytes == 0)
            read.count(records)
        read.found[number] = found
        return row_of(found, partition.partition, records, self.aborted)

    def _failed(self, wanted: Wanted, error: KafkaError) -> PartitionData:
        """An error; one about the offset also says which offsets there are, one about the leader who that is."""
        found = None
        number = wanted.partition.partition
        if isinstance(error, OffsetOutOfRange):
            image = find_topic(self.broker, wanted.topic, wanted.topic_id)
            found = self.broker.replicas.get(image.name, number)
        leader = _NO_LEADER
        if self.to_clients and self.version >= LEADERS_VERSION:
            if self.hints is None:
                self.hints = LeaderHints(self.broker, self.who)
            told = self.hints.beside(error.code, wanted.topic, wanted.topic_id, number)
            leader = LeaderIdAndEpoch(leader_id=told.leader_id, leader_epoch=told.leader_epoch)
        return PartitionData(
            partition_index=number,
            error_code=error.code,
            high_watermark=-1 if found is None else found.high_watermark,
            last_stable_offset=-1,
            log_start_offset=-1 if found is None else found.log_start_offset,
            current_leader=leader,
            aborted_transactions=(),
            records=b"",
        )

    def moved(self, read: Read) -> Sequence[int]:
        """Partitions whose logs have more, or are of no use any more."""
        partitions = read.partitions
        return [
            number
            for number, found in read.found.items()
            if found.high_watermark != partitions[number].high_watermark or found.log.closed or not found.machine.leads
        ]

    def is_enough(self, read: Read) -> bool:
        """Whether the answer is due without waiting."""
        request = self.request
        return read.has(request.min_bytes) or request.max_wait_ms <= 0 or self.turn.is_empty

    def wait_ms(self) -> int:
        """How long it may wait for more."""
        return self.request.max_wait_ms

    def note_sent(self, found: Replica, records: bytes | memoryview) -> None:
        """These are in the answer."""
        found.log.note_read(records)

    def answer(self, read: Read) -> FetchResponse:
        """The answer; asked for once, because the session takes note of what the client is told."""
        wanted, partitions = self.turn.wanted, read.partitions
        data = [partitions[number] for number in range(len(wanted))]
        sessions = self.broker.fetch_sessions
        session_id, numbers = sessions.finish(self.turn, data, self.broker.clock.now_ms(), read.found)
        topics: list[FetchableTopicResponse] = []
        rows: list[PartitionData] = []
        topic, topic_id = "", ZERO_UUID
        for number in numbers:
            place = wanted[number]
            if place.topic_id is not topic_id or place.topic != topic:
                if rows:
                    topics.append(new_tuple(FetchableTopicResponse, (topic, topic_id, tuple(rows))))
                topic, topic_id = place.topic, place.topic_id
                rows = []
            row = data[number]
            rows.append(row)
            if row.records:
                self.note_sent(read.found[number], row.records)
        if rows:
            topics.append(new_tuple(FetchableTopicResponse, (topic, topic_id, tuple(rows))))
        endpoints = () if self.hints is None else self.hints.endpoints
        return FetchResponse(
            session_id=session_id,
            responses=tuple(topics),
            node_endpoints=tuple(NodeEndpoint(**each._asdict()) for each in endpoints),
        )


def handle(
    broker: BrokerServices, request: FetchRequest, ctx: RequestContext
) -> "FetchResponse | asyncio.Future[FetchResponse]":
    """What the general codec has decoded."""
    return serve(broker, request, ctx.api_version, ctx)


def serve(
    broker: BrokerServices, request: FetchRequest, api_version: int, who: RequestContext | Peer
) -> "FetchResponse | asyncio.Future[FetchResponse]":
    """Read what is there; if that is not enough yet, park."""
    turn = broker.fetch_sessions.begin(request, api_version, broker.clock.now_ms(), broker.authorizer, who.principal)
    if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
        from tidemill.broker.handlers.fetch_follower import FollowerFetch  # a broker by itself never needs it

        fetch: Fetch = FollowerFetch(broker, request, turn, api_version, who)
    elif request.rack_id and broker.config.reads_nearby:  # from version 11 on
        from tidemill.broker.handlers.fetch_nearby import NearbyFetch

        fetch = NearbyFetch(broker, request, turn, api_version, who)
    else:
        fetch = Fetch(broker, request, turn, api_version, who)
    read = _read_all(fetch, may_block=False)
    if read.cold:
        return _answer_after_prefetch(fetch, read.cold)
    if fetch.is_enough(read):
        return fetch.answer(read)
    answer: asyncio.Future[FetchResponse] = future_at_once()
    fetch.parked(fetch, read, answer)
    return answer


class FetchShortcut:
    """The fetches of one connection in one version, as consumers send them: a `tidemill.broker.dispatch.Shortcut`."""

    __slots__ = ("_broker", "_notes_errors", "_peer", "_version")

    def __init__(self, broker: BrokerServices, version: int, peer: Peer) -> None:
        self._broker = broker
        self._peer = peer
        self._version = version
        self._notes_errors = broker.config.metrics_address is not None

    def __call__(self, frame: memoryview) -> Exchange | None:
        """Serve a request without the detours that others need; None if it cannot be read or has to be charged."""
        if self._broker.quotas is not UNLIMITED:
            return None
        try:
            header, body = decode_request_header(frame)
            request, _end = decode(FetchRequest, self._version, frame, body)
        except DecodeError:
            return None  # the dispatcher meets the same and says it
        exchange = Exchange(header, request, error_response)
        result = serve(self._broker, request, self._version, self._peer)
        if isinstance(result, FetchResponse):
            exchange.chunks = encode_response(_FETCH, self._version, header.correlation_id, result)
            if self._notes_errors and _has_error(result):
                exchange.errors = error_codes(result)
        else:
            exchange.pending = result
        return exchange


def _has_error(response: FetchResponse) -> bool:
    for topic in response.responses:
        for row in topic.partitions:
            if row.error_code:
                return True
    return response.error_code != 0


def _answer_after_prefetch(fetch: Fetch, cold: list[Callable[[], None]]) -> "asyncio.Future[FetchResponse]":
    """Let threads read what is not in memory; nobody else waits for the disk meanwhile."""
    answer: asyncio.Future[FetchResponse] = future_at_once()
    fetch.broker.logs.prefetch(cold).add_done_callback(lambda _done: _go_on(fetch, answer))
    return answer


def _go_on(fetch: Fetch, answer: "asyncio.Future[FetchResponse]") -> None:
    if answer.done():
        return
    try:
        fetch.turn.want_moved()
        read = _read_all(fetch)
        if fetch.is_enough(read):
            answer.set_result(fetch.answer(read))
        else:
            fetch.parked(fetch, read, answer)
    except Exception as error:  # called by the loop: the client must hear of it all the same
        answer.set_exception(error)


def _read_all(fetch: Fetch, *, may_block: bool = True) -> Read:
    """One pass over all partitions, beginning where the turn says."""
    count = len(fetch.turn.wanted)
    first = fetch.turn.first
    read = Read()
    fetch.read(read, (*range(first, count), *range(first)) if first else range(count), may_block)
    return read


def row_of(
    found: Replica,
    partition: int,
    records: bytes | memoryview,
    aborted: Aborted,
    diverging: EpochEndOffset = _NO_EPOCH,
    nearer: int = _NO_REPLICA,
) -> PartitionData:
    """What is told of a partition in which nothing is wrong; `nearer` is a replica to read at instead."""
    return new_tuple(
        PartitionData,
        (
            partition,
            0,
            found.high_watermark,
            found.last_stable_offset,
            found.log.log_start_offset,
            diverging,
            _NO_LEADER,
            _NO_SNAPSHOT,
            aborted,
            nearer,
            records,
        ),
    )


def diverging_epoch(found: Replica, partition: FetchPartition) -> EpochEndOffset | None:
    """Where the log of the one who asks ceases to be ours, if it does below the offset asked for (KIP-595).

    Raises OffsetOutOfRange if it was written under an epoch that there has not been here: nobody can say where they
    part. Below the log start there is nothing to compare either; whoever reads there is told so.
    """
    partition_log = found.log
    last_epoch, offset = partition.last_fetched_epoch, partition.fetch_offset
    epoch, end_offset = partition_log.epochs.end_offset_for(
        last_epoch, found.machine.leader_epoch, partition_log.log_end_offset
    )
    if epoch == UNKNOWN_EPOCH:
        raise OffsetOutOfRange(f"leader epoch {last_epoch} of {partition_log.topic_partition} is not known here")
    if offset < partition_log.log_start_offset or (epoch == last_epoch and end_offset >= offset):
        return None
    return EpochEndOffset(epoch=epoch, end_offset=end_offset)


class Parked:
    """A fetch that waits for data or for its time to be over; nothing is left of it once `answer` is done.

    What was found before it was parked is kept. All partitions have one way to wake it. Those that were read say by a
    glance at their logs whether they have moved, the quiet ones of the session stir; so a record for one of a thousand
    partitions makes it read that one.
    """

    __slots__ = ("_fetch", "_is_woken", "_read", "_timer", "answer", "replicas")

    def __init__(self, fetch: Fetch, read: Read, answer: "asyncio.Future[FetchResponse]") -> None:
        self._fetch = fetch
        self._read = read
        self._is_woken = False
        self._timer = asyncio.get_running_loop().call_later(fetch.wait_ms() / 1000, self._finish)
        self.replicas = list(read.found.values())
        self.answer = answer
        answer.add_done_callback(self._leave)
        for replica in self.replicas:
            self._wait_for(replica)
        fetch.turn.wait(self)

    def _wait_for(self, replica: Replica) -> None:
        replica.wait_for_data(self.wake)

    def hear(self, moved: Moved) -> None:
        """A partition that was quiet has moved."""
        if moved is not Moved.OTHER:
            self.wake()

    def wake(self) -> None:
        """Something arrived: look once at the end of this turn of the loop, whatever else arrives in it."""
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._look)

    def _end_within(self, wait_ms: int) -> None:
        ends = asyncio.get_running_loop().time() + wait_ms / 1000
        if ends < self._timer.when():
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_at(ends, self._finish)

    def _look(self) -> None:
        self._answer(self._fetch.request.min_bytes)

    def _finish(self) -> None:
        self._answer(0)

    def _answer(self, min_bytes: int) -> None:
        """Look at what has moved and answer if `min_bytes` are there by now.

        Only a moved log start wakes nobody; the client hears of it with its next fetch.
        """
        if self.answer.done():
            return
        self._is_woken = False
        fetch, read = self._fetch, self._read
        try:
            moved, stirred = fetch.moved(read), fetch.turn.want_moved()
            fetch.read(read, (*moved, *stirred))
            if read.has(min_bytes):
                self.answer.set_result(fetch.answer(read))
                return
            for number in stirred:  # whoever is read is quiet no more, and stirs nobody
                self.replicas.append(read.found[number])
                self._wait_for(read.found[number])
        except Exception as error:  # called by the loop: the client must hear of it all the same
            self.answer.set_exception(error)

    def _leave(self, _answer: "asyncio.Future[FetchResponse]") -> None:
        self._timer.cancel()
        self._fetch.turn.leave(self)
        wake = self.wake
        for replica in self.replicas:
            replica.stop_waiting(wake)


Fetch.parked = Parked


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


ROUTES = (
    Route(
        key=ApiKey.FETCH,
        handle=handle,
        min_version=4,
        max_version=18,
        needs=(
            on_each(Operation.READ, ResourceKind.TOPIC),
            on_each(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER),
        ),
        error_response=error_response,
        shortcut=FetchShortcut,
    ),
)
