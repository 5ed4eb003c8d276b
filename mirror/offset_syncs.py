"""MirrorMaker 2's offset syncs, derived from the exact map

A sync says that a source record and a target record are the same one. MirrorMaker 2's own tools translate from these;
Tidemill does not read them. The newest pair of each partition is written when it has changed, at most once a second.
"""

from collections.abc import Mapping

from tidemill.core.client.cluster import ClusterClient
from tidemill.core.runtime.clock import Clock
from tidemill.core.types import TopicPartition
from tidemill.mirror.config import FlowConfig
from tidemill.mirror.flow import PartitionEntry
from tidemill.mirror.formats import OffsetSync
from tidemill.mirror.table_topic import TableTopic

SYNC_INTERVAL_SECONDS = 1


class OffsetSyncs:
    """The syncs of one flow."""

    def __init__(self, config: FlowConfig, source: ClusterClient, target: ClusterClient, clock: Clock) -> None:
        alias = config.target if config.syncs_on_source else config.source
        self._topic = TableTopic(
            source if config.syncs_on_source else target,
            config.policy.offset_syncs_topic(alias),
            factor=config.replication_factors["offset-syncs"],
            clock=clock,
        )
        self._written: dict[TopicPartition, OffsetSync] = {}

    def forget_written(self) -> None:
        """What was written may be gone."""
        self._written.clear()

    async def emit(self, entries: Mapping[TopicPartition, PartitionEntry]) -> None:
        """Write the pairs that changed."""
        syncs = {
            partition: sync
            for partition, entry in entries.items()
            if (sync := newest_sync(entry)) is not None and self._written.get(partition) != sync
        }
        await self._topic.append([(sync.key(), sync.value()) for sync in syncs.values()])
        self._written.update(syncs)


def newest_sync(entry: PartitionEntry) -> OffsetSync | None:
    """The last mirrored record of a partition on both sides; None when there is none."""
    last = entry.link.progress.target_end - 1
    upstream = entry.link.offsets.source_for(last) if last >= 0 else None
    if upstream is None:
        return None
    return OffsetSync(topic=entry.source.topic, partition=entry.source.partition, upstream_offset=upstream, offset=last)
