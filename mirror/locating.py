"""Looking up log ends for the machines

Look-ups that are asked for in the same moment go out together, one request per leader. For the target the batch that
ends the log is read as well, and the partition is bound to the connection over which its batches will go: what is found
holds for as long as that connection does.

Where a leader epoch ended is asked only of a source that serves OffsetForLeaderEpoch since version 2 (Kafka 2.1); of
another one nothing is known, as of one that refuses the question.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from tidemill.core.client.batches import EARLIEST, LATEST, EpochEnd, Fetched, FetchWant, FoundOffset
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import ApiNotSupported, Connection, ConnectionFailed
from tidemill.core.client.metadata import NO_LEADER
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError, error_for_code
from tidemill.core.records.batch import iter_batches
from tidemill.core.types import TopicPartition
from tidemill.mirror.link_events import (
    EpochEndFound,
    Event,
    LocateEpochEnd,
    LocateSource,
    LocateTarget,
    LookupFailed,
    SourceLocated,
    TargetLocated,
    Trouble,
)
from tidemill.mirror.producing import PRODUCE_LANE

LOCATE_LANE = "locate"
_LEADER_MOVED = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)
TAIL_BYTES = 1024 * 1024  # per partition; the first one answered gets its batch whole whatever the size


class Located(Protocol):
    """Whoever asks: a partition of a flow."""

    source: TopicPartition
    target: TopicPartition
    target_id: uuid.UUID
    target_node: int
    connection: Connection | None


LocatedT = TypeVar("LocatedT", bound=Located)


class Locator(Generic[LocatedT]):
    """Look-ups of one flow. `deliver` takes each answer."""

    def __init__(
        self, source: ClusterClient, target: ClusterClient, deliver: Callable[[LocatedT, Event], None]
    ) -> None:
        self._source = source
        self._target = target
        self._deliver = deliver
        self._targets: dict[TopicPartition, tuple[LocatedT, LocateTarget]] = {}
        self._sources: dict[TopicPartition, tuple[LocatedT, LocateSource]] = {}
        self._epochs: dict[TopicPartition, tuple[LocatedT, LocateEpochEnd]] = {}
        self._wake = asyncio.Event()

    def ask(self, entry: LocatedT, action: LocateTarget | LocateSource | LocateEpochEnd) -> None:
        """Look up as soon as possible; a newer question replaces an older one."""
        if isinstance(action, LocateTarget):
            self._targets[entry.target] = (entry, action)
        elif isinstance(action, LocateEpochEnd):
            self._epochs[entry.source] = (entry, action)
        else:
            self._sources[entry.source] = (entry, action)
        self._wake.set()

    async def run(self) -> None:
        """Answer for as long as the flow runs."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._wake.wait()
                self._wake.clear()
                targets, self._targets = self._targets, {}
                sources, self._sources = self._sources, {}
                epochs, self._epochs = self._epochs, {}
                if targets:
                    group.create_task(self._locate_targets(targets))
                if sources:
                    group.create_task(self._locate_sources(sources))
                if epochs:
                    group.create_task(self._locate_epoch_ends(epochs))

    async def _locate_targets(self, asked: dict[TopicPartition, tuple[LocatedT, LocateTarget]]) -> None:
        try:
            await self._target.ensure_fresh({partition.topic for partition in asked})
        except (ConnectionFailed, KafkaError) as error:
            self._fail(asked.values(), str(error))
            return
        by_leader: dict[int, dict[TopicPartition, tuple[LocatedT, LocateTarget]]] = {}
        for partition, item in asked.items():
            by_leader.setdefault(self._target.view.leader_of(partition), {})[partition] = item
        async with asyncio.TaskGroup() as group:
            for node_id, items in by_leader.items():
                if node_id == NO_LEADER:
                    self._target.mark_stale()
                    self._fail(items.values(), "the target partition has no leader or does not exist")
                else:
                    group.create_task(self._locate_on(node_id, items))

    async def _locate_on(self, node_id: int, items: dict[TopicPartition, tuple[LocatedT, LocateTarget]]) -> None:
        try:
            connection = await self._target.connection(node_id, PRODUCE_LANE)
            starts = await self._ends(node_id, items, EARLIEST)
            ends = await self._ends(node_id, items, LATEST)
            known = {
                partition: (starts[partition].offset, ends[partition].offset)
                for partition in items
                if not starts[partition].error_code and not ends[partition].error_code
            }
            ids = {partition: entry.target_id for partition, (entry, _) in items.items()}
            tails = await self._tails(node_id, known, ids)
        except (ConnectionFailed, KafkaError) as error:
            self._target.mark_stale()
            self._fail(items.values(), str(error))
            return
        for partition, item in items.items():
            entry, action = item
            code = starts[partition].error_code or ends[partition].error_code
            if code or partition not in tails:
                self._target.mark_stale()
                self._fail([item], str(error_for_code(code)) if code else "the target's last batch cannot be read")
                continue
            entry.target_node, entry.connection = node_id, connection
            self._deliver(
                entry,
                TargetLocated(
                    turn=action.turn,
                    log_start=starts[partition].offset,
                    log_end=ends[partition].offset,
                    tail=tails[partition],
                ),
            )

    async def _ends(
        self, node_id: int, partitions: Iterable[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, FoundOffset]:
        wanted = dict.fromkeys(partitions, timestamp)
        return await self._target.list_offsets_on(node_id, wanted, lane=LOCATE_LANE)

    async def _tails(
        self, node_id: int, bounds: dict[TopicPartition, tuple[int, int]], ids: dict[TopicPartition, uuid.UUID]
    ) -> dict[TopicPartition, bytes]:
        """The batch that holds the last offset of each partition, empty for an empty log.

        It is asked for by topic id, also where there is none to read: so a topic that only has the name of the one
        that is meant gives no answer. Partitions that cannot be read are left out.
        """
        found: dict[TopicPartition, bytes] = {}
        missing = dict(bounds)
        while missing:
            wants = [
                FetchWant(partition, end - 1 if start < end else end, TAIL_BYTES, ids[partition])
                for partition, (start, end) in missing.items()
            ]
            before = len(missing)
            for answer in await self._target.fetch(node_id, wants, lane=LOCATE_LANE, max_wait_ms=0, min_bytes=0):
                if answer.partition not in missing:
                    continue
                start, end = missing[answer.partition]
                if answer.error_code:
                    del missing[answer.partition]
                elif start == end:
                    found[answer.partition] = b""
                    del missing[answer.partition]
                else:
                    self._take_tail(answer, found, missing)
            if len(missing) == before:
                break
        return found

    def _take_tail(
        self, answer: Fetched, found: dict[TopicPartition, bytes], missing: dict[TopicPartition, tuple[int, int]]
    ) -> None:
        for view in iter_batches(answer.data):
            if view.last_offset >= missing[answer.partition][1] - 1:
                found[answer.partition] = bytes(view.batch_bytes())
                del missing[answer.partition]
                return

    async def _locate_sources(self, asked: dict[TopicPartition, tuple[LocatedT, LocateSource]]) -> None:
        try:
            starts = await self._source.list_offsets(dict.fromkeys(asked, EARLIEST))
            ends = await self._source.list_offsets(dict.fromkeys(asked, LATEST))
        except (ConnectionFailed, KafkaError) as error:
            self._source.mark_stale()
            self._fail(asked.values(), str(error))
            return
        for partition, item in asked.items():
            entry, action = item
            code = starts[partition].error_code or ends[partition].error_code
            if code:
                self._fail([item], f"the source: {error_for_code(code)}")
            else:
                start, end = starts[partition].offset, ends[partition].offset
                self._deliver(entry, SourceLocated(turn=action.turn, log_start=start, log_end=end))

    async def _locate_epoch_ends(self, asked: dict[TopicPartition, tuple[LocatedT, LocateEpochEnd]]) -> None:
        try:
            await self._source.ensure_fresh({partition.topic for partition in asked})
        except (ConnectionFailed, KafkaError) as error:
            self._fail(asked.values(), str(error))
            return
        by_leader: dict[int, dict[TopicPartition, tuple[LocatedT, LocateEpochEnd]]] = {}
        for partition, item in asked.items():
            by_leader.setdefault(self._source.view.leader_of(partition), {})[partition] = item
        async with asyncio.TaskGroup() as group:
            for node_id, items in by_leader.items():
                if node_id == NO_LEADER:
                    self._source.mark_stale()
                    self._fail(items.values(), "the source partition has no leader")
                else:
                    group.create_task(self._locate_epoch_ends_on(node_id, items))

    async def _locate_epoch_ends_on(
        self, node_id: int, items: dict[TopicPartition, tuple[LocatedT, LocateEpochEnd]]
    ) -> None:
        wanted = {partition: action.epoch for partition, (_, action) in items.items()}
        try:
            found = await self._source.epoch_ends_on(node_id, wanted, lane=LOCATE_LANE)
        except ApiNotSupported:
            found = dict.fromkeys(items, EpochEnd(0, -1, -1))
        except (ConnectionFailed, KafkaError) as error:
            self._source.mark_stale()
            self._fail(items.values(), str(error))
            return
        for partition, item in items.items():
            entry, action = item
            code, epoch, end_offset = found[partition]
            if code in _LEADER_MOVED:
                self._source.mark_stale()
                self._fail([item], f"the source: {error_for_code(code)}")
            else:  # who refuses to tell serves its records all the same
                known = (epoch, end_offset) if not code else (-1, -1)
                self._deliver(entry, EpochEndFound(turn=action.turn, epoch=known[0], end_offset=known[1]))

    def _fail(
        self, items: Iterable[tuple[LocatedT, LocateTarget | LocateSource | LocateEpochEnd]], reason: str
    ) -> None:
        for entry, action in items:
            self._deliver(entry, LookupFailed(turn=action.turn, trouble=Trouble.RETRY, reason=reason))
