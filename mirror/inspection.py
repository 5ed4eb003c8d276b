"""Flows seen from outside: how far they are, whether copies are equal

Reads what both clusters hold and the stored offset map; needs no running mirror and disturbs none.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tidemill.core.client.batches import LATEST
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.errors import UnknownTopicOrPartition
from tidemill.core.types import TopicPartition
from tidemill.mirror.audit import Comparison
from tidemill.mirror.config import FlowConfig, MirrorConfig
from tidemill.mirror.map_records import StoredMap, adopt
from tidemill.mirror.map_store import read_maps
from tidemill.mirror.naming import offset_map_topic
from tidemill.mirror.offsets import OffsetMap
from tidemill.mirror.passthrough import AbortedTransactions, Verdict, judge, split_batches

CALL_TIMEOUT_MS = 10_000  # somebody is waiting at a terminal


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

    def __init__(self, config: MirrorConfig, flow: FlowConfig) -> None:
        self._flow = flow
        self._isolation = config.clusters[flow.source].isolation_level
        clusters = config.clusters
        self._source = _client(clusters[flow.source].bootstrap_servers)
        self._target = _client(clusters[flow.target].bootstrap_servers)

    def close(self) -> None:
        """Drop the connections."""
        self._source.close()
        self._target.close()

    async def status(self) -> AsyncIterator[PartitionStatus]:
        """Every partition the flow carries; raises ConnectionFailed or KafkaError."""
        maps = await self._open()
        pairs = self._pairs()
        source_ends = await self._ends(self._source, [source for source, _ in pairs])
        present = [target for _, target in pairs if self._exists(target)]
        target_ends = await self._ends(self._target, present)
        for source, target in pairs:
            offsets, problem = self._map(maps, source, target)
            end, source_end = target_ends.get(target, 0), source_ends[source]
            yield PartitionStatus(
                flow=self._flow.name,
                source=source,
                target=target,
                source_end=source_end,
                position=None if problem else await self._position(source, offsets.source_for(end), source_end),
                target_end=end,
                problem=problem,
            )

    async def verify(self) -> AsyncIterator[PartitionProof]:
        """Compare every partition that is on both sides."""
        maps = await self._open()
        for source, target in self._pairs():
            offsets, problem = self._map(maps, source, target)
            if not problem and len(offsets):
                yield await self._verify(source, target, offsets)
            elif problem or self._exists(target):
                end = (await self._ends(self._source, [source]))[source]
                yield PartitionProof(
                    flow=self._flow.name,
                    source=source,
                    target=target,
                    records=0,
                    batches_by_checksum=0,
                    behind=end,
                    problem=problem or ("" if end == 0 else "not mirrored yet"),
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
        problem = "the source topic was deleted and created again" if adoption.source_recreated else ""
        return OffsetMap.from_segments(adoption.segments), problem

    async def _ends(self, client: ClusterClient, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        async def attempt() -> dict[TopicPartition, int]:
            found = await client.list_offsets(dict.fromkeys(partitions, LATEST), isolation_level=self._isolation)
            for partition, answer in found.items():
                if answer.error_code:
                    raise UnknownTopicOrPartition(f"{client.bootstrap}: log end of {partition} is not known")
            return {partition: answer.offset for partition, answer in found.items()}

        return await client.retrying(attempt) if partitions else {}


def _client(bootstrap: str) -> ClusterClient:
    return ClusterClient(bootstrap, client_id="tidemill-mirror-inspect", call_timeout_ms=CALL_TIMEOUT_MS)
