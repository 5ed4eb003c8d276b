"""Who leads what, and when to ask again

`ClusterView` is one immutable picture of a cluster. Pictures are merged, because a client asks for all topics now and
then and for a few in between. `RefreshTimer` says when a new picture is due: on age, or sooner after an answer that
contradicts the present one, but never more often than the back-off allows.

Pure: asking is `tidemill.core.client.cluster`'s business.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ..types import ZERO_UUID, TopicPartition
from ..wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from .connection import Address

NO_LEADER = -1
METADATA_AGE_MAX_MS = 300_000  # metadata.max.age.ms of Kafka's clients
REFRESH_BACKOFF_MS = 100  # retry.backoff.ms of Kafka's clients


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """One partition."""

    leader: int = NO_LEADER
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    error_code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """One topic that exists; `partitions` is keyed by number."""

    name: str
    topic_id: uuid.UUID = ZERO_UUID
    is_internal: bool = False
    partitions: Mapping[int, PartitionView] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """A cluster as one broker saw it."""

    cluster_id: str | None = None
    controller_id: int = -1
    nodes: Mapping[int, Address] = field(default_factory=dict)
    topics: Mapping[str, TopicView] = field(default_factory=dict)
    topic_errors: Mapping[str, int] = field(default_factory=dict)  # error code per topic asked for and not had

    def leader_of(self, partition: TopicPartition) -> int:
        """Node id of the leader, NO_LEADER when there is none or the partition is unknown."""
        topic = self.topics.get(partition.topic)
        found = topic.partitions.get(partition.partition) if topic else None
        return found.leader if found is not None and found.leader in self.nodes else NO_LEADER

    def topic_id(self, topic: str) -> uuid.UUID:
        """Id of the topic, zero when unknown."""
        found = self.topics.get(topic)
        return found.topic_id if found else ZERO_UUID

    def merged(self, newer: "ClusterView", asked: Iterable[str] | None) -> "ClusterView":
        """Return `newer`, keeping the topics of this view that were not `asked` for (None: all were)."""
        if asked is None:
            return newer
        names = set(asked)
        topics = {name: topic for name, topic in self.topics.items() if name not in names} | dict(newer.topics)
        errors = {name: code for name, code in self.topic_errors.items() if name not in names}
        return replace(
            newer, topics=MappingProxyType(topics), topic_errors=MappingProxyType(errors | dict(newer.topic_errors))
        )


def parse_metadata(response: MetadataResponse) -> ClusterView:
    """Read a metadata response."""
    topics = {topic.name: _topic(topic) for topic in response.topics if topic.name and not topic.error_code}
    errors = {topic.name: topic.error_code for topic in response.topics if topic.name and topic.error_code}
    return ClusterView(
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        nodes=MappingProxyType({node.node_id: Address(node.host, node.port) for node in response.brokers}),
        topics=MappingProxyType(topics),
        topic_errors=MappingProxyType(errors),
    )


def _topic(topic: MetadataResponseTopic) -> TopicView:
    partitions = {
        partition.partition_index: PartitionView(
            leader=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            replicas=partition.replica_nodes,
            isr=partition.isr_nodes,
            error_code=partition.error_code,
        )
        for partition in topic.partitions
    }
    assert topic.name is not None
    return TopicView(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=MappingProxyType(dict(sorted(partitions.items()))),
    )


class RefreshTimer:
    """When the next metadata request may and should be made."""

    __slots__ = ("_age_max_ms", "_backoff_ms", "_refreshed_ms", "_stale")

    def __init__(self, age_max_ms: int = METADATA_AGE_MAX_MS, backoff_ms: int = REFRESH_BACKOFF_MS) -> None:
        self._age_max_ms = age_max_ms
        self._backoff_ms = backoff_ms
        self._refreshed_ms: int | None = None
        self._stale = True

    def mark_stale(self) -> None:
        """An answer contradicted the present picture."""
        self._stale = True

    def mark_refreshed(self, now_ms: int) -> None:
        """A new picture has arrived."""
        self._refreshed_ms = now_ms
        self._stale = False

    def is_due(self, now_ms: int) -> bool:
        """Whether to ask before the next routing decision."""
        return self._stale or self._refreshed_ms is None or now_ms - self._refreshed_ms >= self._age_max_ms

    def wait_ms(self, now_ms: int) -> int:
        """How long to hold the next request back."""
        return 0 if self._refreshed_ms is None else max(0, self._refreshed_ms + self._backoff_ms - now_ms)
