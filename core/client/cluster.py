"""A cluster as one client sees it: connections, routing, retry

Holds a picture of the cluster (`tidemill.core.client.metadata`) and at most one connection per node and lane. A lane
keeps requests that must not wait for one another apart, because a broker answers each connection in order: a long-poll
fetch would hold up everything behind it.

Calls for a partition go to its leader, calls for a group to its coordinator. What can be retried is, with back-off and
a fresh picture, until the call's deadline; then the last error comes through with its address. `fetch` and `produce`
are single attempts, because replication decides itself what to do next.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from ..errors import KafkaError, LeaderNotAvailable, UnknownTopicOrPartition
from ..records.batch import iter_batches
from ..runtime.clock import Clock, SystemClock
from ..runtime.net import Dialer, TcpDialer
from ..types import ZERO_UUID, TopicPartition
from ..wire.api import ApiKey
from ..wire.message import Message
from ..wire.messages.fetch import FetchResponse
from ..wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ..wire.messages.list_offsets import ListOffsetsResponse
from ..wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ..wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from ..wire.messages.produce import ProduceResponse
from .batches import (
    EARLIEST,
    FETCH_NAMES_MAX,
    LATEST,
    PRODUCE_NAMES_MAX,
    READ_UNCOMMITTED,
    EpochEnd,
    Fetched,
    FetchWant,
    FoundOffset,
    Produced,
    RecordBytes,
    epoch_ends_answers,
    epoch_ends_request,
    fetch_answers,
    fetch_request,
    list_offsets_answers,
    list_offsets_request,
    produce_answers,
    produce_request,
)
from .connection import REQUEST_TIMEOUT_MS, Address, Connection, ConnectionFailed, parse_addresses
from .metadata import NO_LEADER, ClusterView, RefreshTimer, parse_metadata
from .retries import Retry, backoff_ms, fault, retry_of

CALL_TIMEOUT_MS = 60_000  # default.api.timeout.ms of Kafka's clients
CONTROL_LANE = "control"
BOOTSTRAP = -1  # node id under which bootstrap connections are kept
FETCH_BYTES_MAX = 16 * 1024 * 1024
_GROUP_KEY = 0

ResponseT = TypeVar("ResponseT", bound=Message)
T = TypeVar("T")


@dataclass(slots=True)
class _Slot:
    """One connection and the trouble it had."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: Connection | None = None
    failures: int = 0
    not_before: float = 0.0  # monotonic seconds

    def serves(self, addresses: Sequence[Address]) -> bool:
        """Whether the connection is open and leads to one of `addresses`."""
        return self.connection is not None and self.connection.usable and self.connection.address in addresses


class ClusterClient:
    """The client; use it as an async context manager or call `close`."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "tidemill",
        dialer: Dialer | None = None,
        clock: Clock | None = None,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        call_timeout_ms: int = CALL_TIMEOUT_MS,
    ) -> None:
        self._bootstrap: tuple[Address, ...] = parse_addresses(bootstrap)
        self._client_id = client_id
        self._dialer = dialer or TcpDialer()
        self._clock = clock or SystemClock()
        self._request_timeout_ms = request_timeout_ms
        self._call_timeout_ms = call_timeout_ms
        self._slots: dict[tuple[int, str], _Slot] = {}
        self._view = ClusterView()
        self._timer = RefreshTimer()
        self._refresh_lock = asyncio.Lock()

    async def __aenter__(self) -> "ClusterClient":
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop every connection."""
        for slot in self._slots.values():
            if slot.connection is not None:
                slot.connection.close()
                slot.connection = None

    @property
    def view(self) -> ClusterView:
        """The picture at hand, possibly old; empty before the first `refresh`."""
        return self._view

    @property
    def bootstrap(self) -> str:
        """The addresses it was given, for messages."""
        return ",".join(map(str, self._bootstrap))

    # -- connections

    async def connection(self, node_id: int, lane: str = CONTROL_LANE) -> Connection:
        """The connection to a node in a lane, opened if necessary; raises ConnectionFailed."""
        address = self._view.nodes.get(node_id)
        if address is None:
            raise ConnectionFailed(self._bootstrap[0], f"node {node_id} is not part of the cluster")
        return await self._connect((node_id, lane), (address,))

    def open_connection(self, node_id: int, lane: str = CONTROL_LANE) -> Connection | None:
        """The connection to a node in a lane if there is one to send on right now."""
        slot, address = self._slots.get((node_id, lane)), self._view.nodes.get(node_id)
        return slot.connection if slot is not None and address is not None and slot.serves((address,)) else None

    async def any_connection(self) -> Connection:
        """A connection to some node: one that is open, else any known node or bootstrap address that answers."""
        for (_, lane), slot in self._slots.items():
            if lane == CONTROL_LANE and slot.connection is not None and slot.connection.usable:
                return slot.connection
        addresses = dict.fromkeys((*self._view.nodes.values(), *self._bootstrap))
        return await self._connect((BOOTSTRAP, CONTROL_LANE), tuple(addresses))

    async def _connect(self, key: tuple[int, str], addresses: Sequence[Address]) -> Connection:
        slot = self._slots.setdefault(key, _Slot())
        async with slot.lock:
            if slot.serves(addresses):
                assert slot.connection is not None
                return slot.connection
            wait = slot.not_before - self._clock.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            problems = []
            for address in addresses:
                try:
                    slot.connection = await Connection.open(
                        address,
                        client_id=self._client_id,
                        dialer=self._dialer,
                        request_timeout_ms=self._request_timeout_ms,
                    )
                except ConnectionFailed as error:
                    problems.append(error)
                else:
                    slot.failures = 0
                    return slot.connection
            slot.failures += 1
            slot.not_before = self._clock.monotonic() + backoff_ms(slot.failures) / 1000
            if len(problems) == 1:
                raise problems[0]
            raise ConnectionFailed(addresses[0], "; ".join(f"{error.address} {error.reason}" for error in problems))

    # -- the picture

    async def refresh(self, topics: Iterable[str] | None = None) -> ClusterView:
        """Ask who leads what: for some topics, or for all with None. One attempt on each known address."""
        asked = None if topics is None else tuple(topics)
        async with self._refresh_lock:
            wait = self._timer.wait_ms(self._clock.now_ms())
            if wait:
                await asyncio.sleep(wait / 1000)
            connection = await self.any_connection()
            request = MetadataRequest(
                topics=None if asked is None else tuple(MetadataRequestTopic(name=name) for name in asked),
                allow_auto_topic_creation=False,
            )
            response = await connection.request(ApiKey.METADATA, request, MetadataResponse)
            if response.error_code:
                raise fault(response.error_code, f"metadata from {connection.address}")
            self._view = self._view.merged(parse_metadata(response), asked)
            self._timer.mark_refreshed(self._clock.now_ms())
            return self._view

    async def metadata(self, topics: Iterable[str] | None = None) -> ClusterView:
        """A fresh picture, retried until it can be had."""
        asked = None if topics is None else tuple(topics)
        return await self.retrying(lambda: self.refresh(asked), refresh=False)

    def mark_stale(self) -> None:
        """An answer contradicted the picture: the next routed call asks again."""
        self._timer.mark_stale()

    async def ensure_fresh(self, topics: Iterable[str]) -> None:
        """Refresh if the picture is old, contradicted, or lacks one of `topics`."""
        names = tuple(topics)
        if self._timer.is_due(self._clock.now_ms()) or any(name not in self._view.topics for name in names):
            await self.refresh({*self._view.topics, *names})

    # -- calls

    async def retrying(
        self, attempt: Callable[[], Awaitable[T]], *, timeout_ms: int | None = None, refresh: bool = True
    ) -> T:
        """Run `attempt` until it succeeds, fails for good, or the deadline has passed."""
        limit = self._call_timeout_ms if timeout_ms is None else timeout_ms
        deadline = self._clock.monotonic() + limit / 1000
        failures = 0
        while True:
            try:
                return await attempt()
            except (ConnectionFailed, KafkaError) as error:
                retry = retry_of(error)
                failures += 1
                pause = backoff_ms(failures) / 1000
                if retry is Retry.NO or self._clock.monotonic() + pause > deadline:
                    raise
                if retry is Retry.AFTER_REFRESH and refresh:
                    self.mark_stale()
            await asyncio.sleep(pause)

    async def call(
        self, key: ApiKey, message: Message, expect: type[ResponseT], *, cap: int | None = None
    ) -> ResponseT:
        """One request to any node."""
        connection = await self.any_connection()
        return await connection.request(key, message, expect, version=connection.version_of(key, cap))

    async def call_node(
        self,
        node_id: int,
        key: ApiKey,
        message: Message,
        expect: type[ResponseT],
        *,
        cap: int | None = None,
        lane: str = CONTROL_LANE,
    ) -> ResponseT:
        """One request to a certain node."""
        connection = await self.connection(node_id, lane)
        return await connection.request(key, message, expect, version=connection.version_of(key, cap))

    async def coordinator(self, group: str) -> int:
        """Node id of a group's coordinator; one attempt."""
        connection = await self.any_connection()
        version = connection.version_of(ApiKey.FIND_COORDINATOR)
        request = FindCoordinatorRequest(key=group, key_type=_GROUP_KEY, coordinator_keys=(group,))
        answer = await connection.request(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse, version=version)
        found = answer.coordinators[0] if version >= 4 and answer.coordinators else answer
        if found.error_code:
            raise fault(found.error_code, f"{self.bootstrap}: coordinator of group {group!r}")
        if found.node_id not in self._view.nodes:
            await self.refresh(tuple(self._view.topics))
        return found.node_id

    async def leader(self, partition: TopicPartition) -> int:
        """Node id of a partition's leader from a picture that is fresh enough; one attempt."""
        await self.ensure_fresh((partition.topic,))
        if partition.topic not in self._view.topics:
            raise UnknownTopicOrPartition(f"{self.bootstrap}: topic {partition.topic!r} does not exist")
        node_id = self._view.leader_of(partition)
        if node_id == NO_LEADER:
            self.mark_stale()
            raise LeaderNotAvailable(f"{self.bootstrap}: partition {partition} has no leader")
        return node_id

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, isolation_level: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, FoundOffset]:
        """Offsets by timestamp, LATEST or EARLIEST from each leader; one attempt, errors are in the answers."""
        await self.ensure_fresh({partition.topic for partition in timestamps})
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        missing = []
        for partition, timestamp in timestamps.items():
            node_id = self._view.leader_of(partition)
            if node_id == NO_LEADER:
                missing.append(partition)
            else:
                by_leader.setdefault(node_id, {})[partition] = timestamp
        found = {partition: FoundOffset(LeaderNotAvailable.code, -1, -1) for partition in missing}
        for node_id, wanted in by_leader.items():
            found |= await self.list_offsets_on(node_id, wanted, isolation_level=isolation_level)
        if any(answer.error_code for answer in found.values()):
            self.mark_stale()
        return found

    async def list_offsets_on(
        self,
        node_id: int,
        timestamps: Mapping[TopicPartition, int],
        *,
        isolation_level: int = READ_UNCOMMITTED,
        lane: str = CONTROL_LANE,
    ) -> dict[TopicPartition, FoundOffset]:
        """The same from one leader over a chosen lane."""
        request = list_offsets_request(timestamps, isolation_level, self._request_timeout_ms)
        response = await self.call_node(node_id, ApiKey.LIST_OFFSETS, request, ListOffsetsResponse, lane=lane)
        return list_offsets_answers(response, timestamps)

    async def epoch_ends_on(
        self, node_id: int, epochs: Mapping[TopicPartition, int], *, lane: str = CONTROL_LANE
    ) -> dict[TopicPartition, EpochEnd]:
        """Where leader epochs ended, from the leader; one attempt, errors are in the answers, or ApiNotSupported."""
        request, key = epoch_ends_request(epochs), ApiKey.OFFSET_FOR_LEADER_EPOCH
        response = await self.call_node(node_id, key, request, OffsetForLeaderEpochResponse, lane=lane)
        return epoch_ends_answers(response, epochs)

    async def fetch(
        self,
        node_id: int,
        wants: Sequence[FetchWant],
        *,
        lane: str = CONTROL_LANE,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = FETCH_BYTES_MAX,
        isolation_level: int = READ_UNCOMMITTED,
    ) -> list[Fetched]:
        """Raw batches of many partitions from one leader; one attempt, a long poll of up to `max_wait_ms`."""
        connection = await self.connection(node_id, lane)
        by_id = all(want.topic_id != ZERO_UUID for want in wants)
        version = connection.version_of(ApiKey.FETCH, None if by_id else FETCH_NAMES_MAX)
        request = fetch_request(
            wants, max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, isolation_level=isolation_level
        )
        response = await connection.request(
            ApiKey.FETCH, request, FetchResponse, version=version, timeout_ms=self._request_timeout_ms + max_wait_ms
        )
        if response.error_code:
            raise fault(response.error_code, f"fetch from {connection.address}")
        return fetch_answers(response, wants)

    async def produce(
        self, node_id: int, batches: Mapping[TopicPartition, RecordBytes], *, lane: str = CONTROL_LANE
    ) -> list[Produced]:
        """One batch per partition to one leader, acknowledged by all in-sync replicas; one attempt."""
        connection = await self.connection(node_id, lane)
        await connection.drain()
        response = await self.send_produce(connection, batches)
        assert isinstance(response, ProduceResponse)
        return produce_answers(response)

    def send_produce(
        self,
        connection: Connection,
        batches: Mapping[TopicPartition, RecordBytes],
        topic_ids: Mapping[TopicPartition, uuid.UUID] = MappingProxyType({}),
    ) -> "asyncio.Future[Message]":
        """Write a produce request at once, behind what was sent before on the same connection.

        With the id of every partition's topic, a broker that takes ids refuses a topic that was created anew.
        """
        by_id = all(topic_ids.get(partition, ZERO_UUID) != ZERO_UUID for partition in batches)
        version = connection.version_of(ApiKey.PRODUCE, None if by_id else PRODUCE_NAMES_MAX)
        request = produce_request(batches, timeout_ms=self._request_timeout_ms, topic_ids=topic_ids)
        return connection.send(ApiKey.PRODUCE, request, version=version, timeout_ms=2 * self._request_timeout_ms)

    async def append(self, partition: TopicPartition, batch: RecordBytes) -> int:
        """Produce one batch with retries and return its base offset; at least once unless it has a producer id."""

        async def attempt() -> int:
            node_id = await self.leader(partition)
            for answer in await self.produce(node_id, {partition: batch}):
                if answer.error_code:
                    raise fault(answer.error_code, f"{self.bootstrap}: produce to {partition}", answer.message)
                return answer.base_offset
            raise UnknownTopicOrPartition(f"{partition}: the broker did not answer for it")

        return await self.retrying(attempt)

    async def read(
        self,
        partition: TopicPartition,
        *,
        start: int | None = None,
        end: int | None = None,
        isolation_level: int = READ_UNCOMMITTED,
    ) -> AsyncIterator[Fetched]:
        """Raw batches of a partition in order, by default from its start to what is now its end.

        The first and the last answer may hold batches that reach beyond `start` and `end`.
        """
        first, last = await self.retrying(lambda: self.bounds(partition))
        offset, end = first if start is None else start, last if end is None else end
        while offset < end:
            wanted = offset

            async def attempt(wanted: int = wanted) -> Fetched:
                node_id = await self.leader(partition)
                want = FetchWant(partition, wanted, FETCH_BYTES_MAX, self._view.topic_id(partition.topic))
                for answer in await self.fetch(node_id, [want], isolation_level=isolation_level):
                    if answer.error_code:
                        raise fault(answer.error_code, f"{self.bootstrap}: fetch of {partition} at offset {wanted}")
                    return answer
                raise UnknownTopicOrPartition(f"{partition}: the broker did not answer for it")

            answer = await self.retrying(attempt)
            reached = _end_of(answer.data, offset)
            if reached > offset:
                yield answer
            elif min(answer.high_watermark, answer.last_stable_offset) <= offset:
                return  # the log got shorter, its last offsets were compacted away, or a transaction is open
            offset = reached

    async def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Log start and end (high watermark) of a partition; one attempt."""
        start = (await self.list_offsets({partition: EARLIEST}))[partition]
        end = (await self.list_offsets({partition: LATEST}))[partition]
        for answer in (start, end):
            if answer.error_code:
                raise fault(answer.error_code, f"{self.bootstrap}: offsets of {partition}")
        return start.offset, end.offset


def _end_of(data: memoryview, offset: int) -> int:
    for view in iter_batches(data):
        offset = max(offset, view.last_offset + 1)
    return offset
