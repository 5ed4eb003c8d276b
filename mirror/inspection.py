"""Flows seen from outside: does a mirror run, how far is it, is it equal

Reads what both clusters hold, the stored offset map and what a mirror tells about itself; needs no running mirror and
disturbs none. A cluster that is away keeps nobody waiting: what the other one knows is told without it.
"""

import asyncio
import enum
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial

from tidemill.core.client.batches import EARLIEST, LATEST, FoundOffset
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.client.security import dialer_of
from tidemill.core.errors import KafkaError, error_for_code
from tidemill.core.records.batch import iter_batches
from tidemill.core.records.record import decode_records
from tidemill.core.runtime.clock import Clock, SystemClock
from tidemill.core.types import TopicPartition
from tidemill.mirror.audit import Comparison
from tidemill.mirror.config import ClusterConfig, FlowConfig, MirrorConfig
from tidemill.mirror.map_join import MapJoin
from tidemill.mirror.map_records import StoredMap, adopt
from tidemill.mirror.map_store import read_maps
from tidemill.mirror.naming import offset_map_topic
from tidemill.mirror.offsets import OffsetMap
from tidemill.mirror.passthrough import AbortedTransactions, Verdict, judge, split_batches
from tidemill.mirror.status_records import FRESH_MS, OVER, StatusRow, believe, decode, status_topic

CALL_TIMEOUT_MS = 10_000  # somebody is waiting at a terminal
PATIENCE_SECONDS = 3.0  # for a cluster to answer at all
SIGN_SECONDS = FRESH_MS / 1000  # for a sign of life, when the last one is not fresh
PAUSE_SECONDS = 0.25
NEWEST_ROWS = 50  # of the status topic, in which every mirror that runs has one a second for every flow


class Life(enum.StrEnum):
    """Whether a mirror runs the flow."""

    STARTING = "starting"
    RUNNING = "running"
    STANDBY = "standing by"
    ENDED = "ended"
    STOPPED = "stopped"
    NOT_STARTED = "not started"  # no mirror has ever told of the flow
    SILENT = "no sign of life"  # one ran and neither said that it stops nor anything else since
    UNKNOWN = "unknown"  # the clusters that would know do not answer


NO_MIRROR = frozenset({Life.STOPPED, Life.NOT_STARTED, Life.SILENT})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """How far one partition is."""

    flow: str
    source: TopicPartition
    target: TopicPartition
    source_end: int
    position: int | None  # next source offset to mirror; None when nothing is known of it
    target_end: int
    problem: str = ""

    @property
    def lag(self) -> int | None:
        """Offsets still to mirror."""
        return None if self.position is None else max(0, self.source_end - self.position)

    @property
    def verdict(self) -> str:
        """In a few words."""
        if self.problem:
            return self.problem
        if self.lag is None:
            return "not mirrored yet"
        return "in step" if self.lag == 0 else f"{self.lag} behind"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowReport:
    """Everything that can be told of one flow at once."""

    flow: str
    life: Life
    row: StatusRow | None  # what the mirror told last
    unreachable: Mapping[str, str]  # clusters that did not answer here, and why
    partitions: tuple[PartitionStatus, ...]  # empty where a cluster did not answer
    blind: str = ""  # why there are no partitions although both clusters answered


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProof:
    """Whether one partition's copy is equal, and as far as what."""

    flow: str
    source: TopicPartition
    target: TopicPartition
    records: int
    batches_by_checksum: int
    behind: int  # source offsets that are not on the target yet
    problem: str = ""

    @property
    def equal(self) -> bool:
        """Whether every record on the target is the source's, in order and without a gap."""
        return not self.problem


class FlowInspector:
    """One flow and both its clusters."""

    def __init__(self, config: MirrorConfig, flow: FlowConfig, *, clock: Clock | None = None) -> None:
        self._flow = flow
        self._clock = clock or SystemClock()
        self._isolation = config.clusters[flow.source].isolation_level
        clusters = config.clusters
        self._source = _client(clusters[flow.source])
        self._target = _client(clusters[flow.target])
        self._history: dict[str, list[StatusRow]] = {}  # by cluster: what is older than the newest rows

    def close(self) -> None:
        """Drop the connections."""
        self._source.close()
        self._target.close()

    async def report(self) -> FlowReport:
        """Whether a mirror runs, what it tells, and every partition; raises nothing of a cluster's making."""
        unreachable = await self._unreachable()
        life, row = await self._life(unreachable)
        partitions: tuple[PartitionStatus, ...] = ()
        blind = ""
        if not unreachable:
            try:
                partitions = tuple([row async for row in self.status()])
            except (ConnectionFailed, KafkaError) as error:
                blind = str(error)
        return FlowReport(
            flow=self._flow.name, life=life, row=row, unreachable=unreachable, partitions=partitions, blind=blind
        )

    async def _unreachable(self) -> dict[str, str]:
        async def ask(client: ClusterClient) -> str:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await client.refresh()
            except TimeoutError:
                return f"{client.bootstrap}: no answer within {PATIENCE_SECONDS:.0f} s"
            except (ConnectionFailed, KafkaError) as error:
                return str(error)
            return ""

        source, target = await asyncio.gather(ask(self._source), ask(self._target))
        found = {self._flow.source: source, self._flow.target: target}
        return {alias: reason for alias, reason in found.items() if reason}

    async def _life(self, unreachable: Mapping[str, str]) -> tuple[Life, StatusRow | None]:
        """Ask what mirrors told of the flow; where the last sign of life is not fresh, wait for the next one."""
        deadline = self._clock.monotonic() + SIGN_SECONDS
        first: list[StatusRow] = []
        while True:
            rows, unread = await self._rows(unreachable)
            found = believe(rows, first, self._clock.now_ms())
            over = self._clock.monotonic() >= deadline
            if found is None:
                if not unread:
                    return (Life.UNKNOWN if self._flow.target in unreachable else Life.NOT_STARTED), None
                if over:
                    return Life.UNKNOWN, None
            elif found.settled or over:
                told = found.living or found.row.state in OVER
                return (Life(found.row.state.value) if told else Life.SILENT), found.row
            first = first or rows
            await asyncio.sleep(PAUSE_SECONDS)

    async def _rows(self, unreachable: Mapping[str, str]) -> tuple[list[StatusRow], bool]:
        """What mirrors told of the flow, and whether a topic that is there could not be read."""
        found: list[StatusRow] = []
        unread = False
        for alias, client, other in (
            (self._flow.target, self._target, self._flow.source),
            (self._flow.source, self._source, self._flow.target),
        ):
            topic = status_topic(other)
            if alias in unreachable or topic not in client.view.topics:
                continue
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    found += await self._told(alias, client, topic)
            except (ConnectionFailed, KafkaError, TimeoutError):
                unread = True
        return found, unread

    async def _told(self, alias: str, client: ClusterClient, topic: str) -> list[StatusRow]:
        """What mirrors told of the flow on one cluster, as far back as it takes to find something.

        Who runs the flow of the other direction writes into the same topic, perhaps for long after this one's end.
        """
        rows = [row for row in await read_rows(client, topic, NEWEST_ROWS) if row.flow == self._flow.name]
        if not rows and alias not in self._history:
            self._history[alias] = [row for row in await read_rows(client, topic) if row.flow == self._flow.name]
        return self._history.get(alias, []) + rows

    async def status(self) -> AsyncIterator[PartitionStatus]:
        """Every partition the flow carries; raises ConnectionFailed or KafkaError."""
        maps = await self._open()
        pairs = self._pairs()
        sources = [source for source, _ in pairs]
        source_starts = await self._found(self._source, sources, EARLIEST)
        source_ends = await self._found(self._source, sources, LATEST)
        target_ends = await self._found(self._target, [target for _, target in pairs if self._exists(target)], LATEST)
        for source, target in pairs:
            offsets, problem = self._map(maps, source, target)
            end, source_end = target_ends.get(target), source_ends[source]
            for side, answer in (("source", source_end), ("target", end)):
                if not problem and answer is not None and answer.error_code:
                    problem = f"the {side}'s log end is not known: {error_for_code(answer.error_code)}"
            position: int | None = None
            if not problem and end is not None:
                position = await self._position(source, offsets.source_for(end.offset), source_end.offset)
                if position is None and source_starts[source].offset == source_end.offset:
                    position = source_end.offset  # nothing to mirror
            yield PartitionStatus(
                flow=self._flow.name,
                source=source,
                target=target,
                source_end=source_end.offset,
                position=position,
                target_end=0 if end is None else end.offset,
                problem=problem,
            )

    async def verify(self) -> AsyncIterator[PartitionProof]:
        """Compare every partition with its copy; one that has records and no copy yet is not equal to it."""
        maps = await self._open()
        for source, target in self._pairs():
            offsets, problem = self._map(maps, source, target)
            if not problem and len(offsets):
                yield await self._verify(source, target, offsets)
            else:
                start, end = await self._source.retrying(partial(self._source.bounds, source))
                yield PartitionProof(
                    flow=self._flow.name,
                    source=source,
                    target=target,
                    records=0,
                    batches_by_checksum=0,
                    behind=end - start,
                    problem=problem or ("" if end == start else "not mirrored yet"),
                )

    async def _position(self, source: TopicPartition, position: int | None, end: int) -> int | None:
        """The first offset from `position` on that holds a record to mirror: markers at the end are no lag."""
        if position is None or position >= end:
            return position
        async for answer in self._source.read(source, start=position, isolation_level=self._isolation):
            filters = AbortedTransactions(answer.aborted)
            for view in split_batches(answer.data):
                if judge(view, position, filters) in (Verdict.PASS, Verdict.REBUILD):
                    return position
                position = max(position, view.last_offset + 1)
        return position

    async def _verify(self, source: TopicPartition, target: TopicPartition, offsets: OffsetMap) -> PartitionProof:
        source_start, source_end = await self._source.retrying(lambda: self._source.bounds(source))
        target_start, target_end = await self._target.retrying(lambda: self._target.bounds(target))
        start = max(target_start, offsets.target_for(source_start, target_end) or 0)
        first, last = offsets.source_for(start) or 0, offsets.source_for(target_end) or 0
        comparison = Comparison(first, start)
        ours = self._source.read(source, start=first, end=last, isolation_level=self._isolation)
        theirs = self._target.read(target, start=start, end=target_end)
        while comparison.divergence is None:
            if comparison.needs_target and (answer := await anext(theirs, None)) is not None:
                comparison.feed_target(answer.data)
            elif comparison.needs_source and (answer := await anext(ours, None)) is not None:
                comparison.feed_source(answer.data, answer.aborted)
            else:
                break
        problem = ""
        if comparison.divergence is not None:
            found = comparison.divergence
            problem = f"{found.problem} at source offset {found.source_offset}, target offset {found.target_offset}"
        elif comparison.records != target_end - start:
            problem = f"{target_end - start} records on the target, {comparison.records} found on the source"
        return PartitionProof(
            flow=self._flow.name,
            source=source,
            target=target,
            records=comparison.records,
            batches_by_checksum=comparison.batches_by_checksum,
            behind=max(0, source_end - last),
            problem=problem,
        )

    async def _open(self) -> dict[tuple[str, int], StoredMap]:
        await self._source.refresh()  # one attempt: somebody is waiting at a terminal
        view = await self._target.refresh()
        topic = offset_map_topic(self._flow.source)
        if topic not in view.topics:
            return {}
        partition = TopicPartition(topic, 0)
        maps, _ = await read_maps(self._target, partition)
        return maps

    def _pairs(self) -> list[tuple[TopicPartition, TopicPartition]]:
        return [
            (TopicPartition(name, number), TopicPartition(remote, number))
            for name, topic in sorted(self._source.view.topics.items())
            if self._flow.selection.takes(name)
            for remote in [self._flow.policy.format_remote_topic(self._flow.source, name)]
            for number in topic.partitions
        ]

    def _exists(self, target: TopicPartition) -> bool:
        topic = self._target.view.topics.get(target.topic)
        return topic is not None and target.partition in topic.partitions

    def _map(
        self, maps: dict[tuple[str, int], StoredMap], source: TopicPartition, target: TopicPartition
    ) -> tuple[OffsetMap, str]:
        ids = self._source.view.topic_id(source.topic), self._target.view.topic_id(target.topic)
        adoption = adopt(maps.get((source.topic, source.partition)), *ids)
        join = MapJoin(adoption.segments)
        join.take(len(adoption.segments))
        problem = ""
        if join.damage is not None:
            problem = (
                f"the stored offset map is damaged ({join.damage.what}): start the mirror, it mends that or says how"
            )
        if adoption.source_recreated:
            problem = "the source topic was deleted and created again"
        return join.offsets, problem

    async def _found(
        self, client: ClusterClient, partitions: list[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, FoundOffset]:
        """Log starts or ends, tried again for a while where a leader is looked for; errors are in the answers."""
        deadline = self._clock.monotonic() + PATIENCE_SECONDS
        while True:
            wanted = dict.fromkeys(partitions, timestamp)
            found = await client.list_offsets(wanted, isolation_level=self._isolation) if wanted else {}
            if self._clock.monotonic() >= deadline or not any(answer.error_code for answer in found.values()):
                return found
            await asyncio.sleep(PAUSE_SECONDS)


async def read_rows(client: ClusterClient, topic: str, newest: int | None = None) -> list[StatusRow]:
    """The records of a status topic, or those at its `newest` offsets; raises ConnectionFailed or KafkaError."""
    partition = TopicPartition(topic, 0)
    start, end = await client.retrying(lambda: client.bounds(partition))
    return [
        row
        async for answer in client.read(partition, start=max(start, end - (newest or end)), end=end)
        for view in iter_batches(answer.data)
        if not view.is_control
        for record in decode_records(view)
        if (row := decode(record.key, record.value)) is not None
    ]


def _client(cluster: ClusterConfig) -> ClusterClient:
    return ClusterClient(
        cluster.bootstrap_servers,
        client_id="tidemill-mirror-inspect",
        dialer=dialer_of(cluster.security),
        call_timeout_ms=CALL_TIMEOUT_MS,
    )
