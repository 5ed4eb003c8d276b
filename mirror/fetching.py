"""Reading many partitions per request from the source's leaders

Partitions that want data are grouped by leader. A leader has a few lanes (connections), because a broker answers a
connection in order: the partitions that have caught up wait in one long poll, while those with data behind them go
round on another lane. When a long poll ends, whatever wants data by then joins the next requests, so idle partitions
gather in as few as can be. A request names a bounded number of partitions, since all it names are answered whenever one
has data; a leader of many gets more lanes, and a smaller answer on each. Who is named first is decided by the line in
which they wait (`tidemill.mirror.waiting_line`): an answer has room for the first ones only.

Reading pauses while the flow's memory is full (`tidemill.mirror.memory`), in which a request counts with the most it
may bring; with many leaders each request asks for less, so that all of them can be under way at once.
"""

import asyncio
import uuid
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from tidemill.core.client.batches import FetchWant
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.client.metadata import NO_LEADER
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError
from tidemill.core.types import TopicPartition
from tidemill.mirror.config import ClusterConfig
from tidemill.mirror.faults import judge_fetch
from tidemill.mirror.link_events import Event, Fetch, Fetched, LookupFailed, OutOfRange, Trouble
from tidemill.mirror.memory import IN_FLIGHT_BYTES_MAX, Memory
from tidemill.mirror.waiting_line import WaitingLine

LANES = 4
LANES_MAX = 20
PARTITIONS_PER_REQUEST = 64
ANSWER_BYTES_MIN = 1024 * 1024


class Reader(Protocol):
    """Whoever wants the data. `source_id` is the topic that is meant, whatever else has its name by now."""

    source: TopicPartition
    source_id: uuid.UUID


ReaderT = TypeVar("ReaderT", bound=Reader)


class Fetcher(Generic[ReaderT]):
    """The reading half of a flow. `deliver` takes each reader's answer, `memory` is shared with who keeps the bytes."""

    def __init__(
        self,
        client: ClusterClient,
        config: ClusterConfig,
        deliver: Callable[[ReaderT, Event], None],
        memory: Memory,
    ) -> None:
        self._client = client
        self._config = config
        self._deliver = deliver
        self._memory = memory
        self._line: WaitingLine[tuple[ReaderT, Fetch]] = WaitingLine()
        self._busy_lanes: dict[int, set[int]] = {}
        self._known: dict[int, set[TopicPartition]] = {}  # every partition a leader was asked for
        self._wake = asyncio.Event()

    def want(self, reader: ReaderT, fetch: Fetch) -> None:
        """Fetch for `reader` with the next free lane to its leader; a newer wish replaces an older one."""
        self._line.join(reader.source, (reader, fetch))
        self._wake.set()

    def wake(self) -> None:
        """Memory has become free."""
        if self._line:
            self._wake.set()

    async def run(self) -> None:
        """Send requests for as long as the flow runs."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if not self._line or self._memory.is_full:
                    continue
                if await self._refreshed():
                    for node_id, wanted in self._by_leader().items():
                        self._start(group, node_id, wanted)

    async def _refreshed(self) -> bool:
        try:
            await self._client.ensure_fresh({partition.topic for partition in self._line.in_order()})
        except (ConnectionFailed, KafkaError) as error:
            for partition in self._line.in_order():
                self._fail(self._line.leave(partition)[1], str(error))
            return False
        return True

    def _by_leader(self) -> dict[int, list[TopicPartition]]:
        found: dict[int, list[TopicPartition]] = {}
        for partition in self._line.in_order():
            node_id = self._client.view.leader_of(partition)
            if node_id == NO_LEADER:
                self._client.mark_stale()
                self._fail(self._line.leave(partition)[1], f"the source partition {partition} has no leader")
            else:
                found.setdefault(node_id, []).append(partition)
        return found

    def _start(self, group: asyncio.TaskGroup, node_id: int, partitions: list[TopicPartition]) -> None:
        known = self._known.setdefault(node_id, set())
        known.update(partitions)
        lanes = lanes_for(len(known))
        max_bytes = answer_bytes(self._config.fetch_bytes_max, lanes, len(self._known))
        busy = self._busy_lanes.setdefault(node_id, set())
        free = (lane for lane in range(lanes) if lane not in busy)
        for first, lane in zip(range(0, len(partitions), PARTITIONS_PER_REQUEST), list(free), strict=False):
            if self._memory.is_full:
                return
            chosen = partitions[first : first + PARTITIONS_PER_REQUEST]
            busy.add(lane)
            wanted = {partition: self._line.leave(partition) for partition in chosen}
            self._memory.in_flight_bytes += max_bytes
            group.create_task(self._fetch(node_id, lane, wanted, max_bytes))

    async def _fetch(
        self, node_id: int, lane: int, called: dict[TopicPartition, tuple[int, tuple[ReaderT, Fetch]]], max_bytes: int
    ) -> None:
        wanted = {partition: wish for partition, (_, wish) in called.items()}
        wants = [
            FetchWant(partition, fetch.offset, fetch.max_bytes, reader.source_id)
            for partition, (reader, fetch) in wanted.items()
        ]
        committed = self._config.isolation_level
        try:
            answers = await self._client.fetch(
                node_id,
                wants,
                lane=f"fetch-{lane}",
                max_wait_ms=self._config.fetch_wait_ms,
                max_bytes=max_bytes,
                isolation_level=committed,
            )
        except (ConnectionFailed, KafkaError) as error:
            self._client.mark_stale()
            for entry in wanted.values():
                self._fail(entry, str(error))
            return
        finally:
            self._memory.in_flight_bytes -= max_bytes
            self._busy_lanes[node_id].discard(lane)
            self._wake.set()
        told = [row for row in answers if row.partition in wanted and not row.error_code]
        size = max((memoryview(row.data.obj).nbytes for row in told), default=0)  # all are views of one answer
        has_data = any(len(row.data) for row in told)
        frame = self._memory.open(size, len(told))
        for answer in answers:
            if answer.partition not in wanted:
                continue
            entry = reader, fetch = wanted.pop(answer.partition)
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._deliver(reader, OutOfRange(turn=fetch.turn))
            elif answer.error_code:
                self._client.mark_stale()
                self._fail(entry, judge_fetch(answer.error_code))
            else:
                end = answer.last_stable_offset if committed else answer.high_watermark
                if has_data and not len(answer.data) and end > fetch.offset:
                    self._line.keep_place(answer.partition, called[answer.partition][0])
                event = Fetched(turn=fetch.turn, data=answer.data, end=end, aborted=answer.aborted, frame=frame)
                self._deliver(reader, event)
        for entry in wanted.values():
            self._fail(entry, "the source did not answer for this partition")

    def _fail(self, entry: tuple[ReaderT, Fetch], reason: str) -> None:
        reader, fetch = entry
        self._deliver(reader, LookupFailed(turn=fetch.turn, trouble=Trouble.RETRY, reason=reason))


def lanes_for(partitions: int) -> int:
    """How many lanes a leader of that many partitions gets: some for long polls, some for the busy ones.

    >>> lanes_for(3), lanes_for(300), lanes_for(100_000)
    (4, 8, 20)
    """
    return min(LANES_MAX, LANES + partitions // PARTITIONS_PER_REQUEST)


def answer_bytes(fetch_bytes_max: int, lanes: int, leaders: int) -> int:
    """The most that one of a leader's `lanes` may ask for, so that the lanes of all `leaders` fit into memory.

    >>> mib = 1024 * 1024
    >>> answer_bytes(16 * mib, 4, 1) // mib, answer_bytes(16 * mib, 8, 3) // mib, answer_bytes(16 * mib, 20, 50) // mib
    (16, 5, 1)
    """
    share = IN_FLIGHT_BYTES_MAX // (lanes * max(1, leaders))
    return max(ANSWER_BYTES_MIN, min(fetch_bytes_max * LANES // lanes, share))
