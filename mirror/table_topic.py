"""Appending to MirrorMaker 2's internal topics

Heartbeats, checkpoints and offset syncs are tables of one partition, compacted, where a repeated row does no harm, so
plain appends with retries do. The topic is created at the first write; one that somebody made before is used as it is.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tidemill.core.client.admin import Admin, NewTopic
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.errors import TopicAlreadyExists
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.runtime.clock import Clock
from tidemill.core.types import TopicPartition
from tidemill.mirror.topics import replication_factor

COMPACTED: Mapping[str, str] = MappingProxyType({"cleanup.policy": "compact"})


class TableTopic:
    """One compacted topic; `settings` are those it is created with."""

    def __init__(
        self,
        client: ClusterClient,
        topic: str,
        *,
        factor: int,
        clock: Clock,
        settings: Mapping[str, str] = COMPACTED,
    ) -> None:
        self._client = client
        self._partition = TopicPartition(topic, 0)
        self._factor = factor
        self._clock = clock
        self._settings = settings
        self._exists = False

    async def append(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Write rows as one batch; raises KafkaError or ConnectionFailed."""
        if not rows:
            return
        if not self._exists:
            await self._create()
        now_ms = self._clock.now_ms()
        batch = build_batch([NewRecord(timestamp=now_ms, key=key, value=value) for key, value in rows])
        await self._client.append(self._partition, batch)

    async def _create(self) -> None:
        view = await self._client.refresh((self._partition.topic,))
        if self._partition.topic not in view.topics:
            topic = NewTopic(
                name=self._partition.topic,
                partitions=1,
                replication_factor=replication_factor(self._factor, len(view.nodes)),
                configs=self._settings,
            )
            error = (await Admin(self._client).create_topics([topic]))[topic.name]
            if error is not None and not isinstance(error, TopicAlreadyExists):
                raise error
        self._exists = True
