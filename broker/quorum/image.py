"""The cluster as one immutable value

A `ClusterImage` is what every reader sees: topics, partitions, brokers, settings. `apply` is the only way to a new
one, and it is the same for a decision made a moment ago and for one read from the log at start-up, so recovery is
tested by every ordinary request.

A batch of records is applied as a whole: readers never see a topic without its partitions. Unchanged parts are shared
between the old image and the new one.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from tidemill.broker.quorum.records import (
    BrokerEndpoint,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""Topics that clients may read but not create, delete or write."""

RESOURCE_TOPIC: Final = 2
RESOURCE_BROKER: Final = 4


class ImageError(ValueError):
    """A record that contradicts the image: the log is not one that `decide` wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """One partition: who holds it, who leads it."""

    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """One topic; `partitions[i]` is partition i."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[PartitionImage, ...] = ()
    configs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def internal(self) -> bool:
        """Whether the cluster itself owns the topic."""
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """One registered broker."""

    node_id: int
    epoch: int
    incarnation_id: uuid.UUID
    end_points: tuple[BrokerEndpoint, ...]
    rack: str | None
    fenced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """Everything the quorum agreed on, as of metadata offset `offset` (exclusive)."""

    offset: int = 0
    topics: MappingProxyType[str, TopicImage] = field(default_factory=lambda: MappingProxyType({}))
    topic_names: MappingProxyType[uuid.UUID, str] = field(default_factory=lambda: MappingProxyType({}))
    brokers: MappingProxyType[int, BrokerImage] = field(default_factory=lambda: MappingProxyType({}))
    broker_configs: MappingProxyType[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    partition_count: int = 0
    next_producer_id: int = 0

    def topic_by_id(self, topic_id: uuid.UUID) -> TopicImage | None:
        """The topic with this id, if it exists."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]


def apply(image: ClusterImage, record: MetadataRecord) -> ClusterImage:
    """The image after one record."""
    return apply_batch(image, (record,))


def apply_batch(image: ClusterImage, records: Iterable[MetadataRecord]) -> ClusterImage:
    """The image after all `records`, as one step."""
    draft = Draft(image)
    for record in records:
        draft.apply(record)
    return draft.freeze()


class Draft:
    """A mutable copy that lives for one batch; reads like an image, but new partitions show in `freeze` only."""

    def __init__(self, image: ClusterImage) -> None:
        self.topics = image.topics.copy()  # not dict(proxy), which is twenty times slower
        self.topic_names = image.topic_names.copy()
        self.brokers = image.brokers.copy()
        self.partition_count = image.partition_count
        self._offset = image.offset
        self._broker_configs = image.broker_configs.copy()
        self._next_producer_id = image.next_producer_id
        self._new_partitions: dict[uuid.UUID, list[PartitionImage]] = {}

    def topic_by_id(self, topic_id: uuid.UUID) -> TopicImage | None:
        """The topic with this id, if it exists."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def apply(self, record: MetadataRecord) -> None:
        """Take in one record."""
        self._offset += 1
        match record:
            case TopicRecord():
                self._add_topic(record)
            case PartitionRecord():
                self._add_partition(record)
            case RemoveTopicRecord():
                self._remove_topic(record)
            case ConfigRecord():
                self._set_config(record)
            case ProducerIdsRecord():
                if record.next_producer_id < self._next_producer_id:
                    raise ImageError(f"producer ids go back to {record.next_producer_id}")
                self._next_producer_id = record.next_producer_id
            case RegisterBrokerRecord():
                self.brokers[record.broker_id] = BrokerImage(
                    node_id=record.broker_id,
                    epoch=record.broker_epoch,
                    incarnation_id=record.incarnation_id,
                    end_points=record.end_points,
                    rack=record.rack,
                    fenced=record.fenced,
                )
            case UnregisterBrokerRecord():
                self.brokers.pop(record.broker_id, None)

    def freeze(self) -> ClusterImage:
        """The image that all records so far lead to."""
        for topic_id in list(self._new_partitions):
            self._settle(topic_id)
        return ClusterImage(
            offset=self._offset,
            topics=MappingProxyType(self.topics),
            topic_names=MappingProxyType(self.topic_names),
            brokers=MappingProxyType(self.brokers),
            broker_configs=MappingProxyType(self._broker_configs),
            partition_count=self.partition_count,
            next_producer_id=self._next_producer_id,
        )

    def _add_topic(self, record: TopicRecord) -> None:
        if record.name in self.topics or record.topic_id in self.topic_names:
            raise ImageError(f"topic {record.name!r} exists already")
        self.topics[record.name] = TopicImage(name=record.name, topic_id=record.topic_id)
        self.topic_names[record.topic_id] = record.name

    def _topic(self, topic_id: uuid.UUID) -> TopicImage:
        name = self.topic_names.get(topic_id)
        if name is None:
            raise ImageError(f"no topic has the id {topic_id}")
        return self.topics[name]

    def _add_partition(self, record: PartitionRecord) -> None:
        added = self._new_partitions.setdefault(record.topic_id, [])
        expected = len(self._topic(record.topic_id).partitions) + len(added)
        if record.partition_id != expected:
            raise ImageError(f"partition {record.partition_id} of {record.topic_id} comes where {expected} belongs")
        added.append(
            PartitionImage(
                partition=record.partition_id,
                replicas=record.replicas,
                isr=record.isr,
                leader=record.leader,
                leader_epoch=record.leader_epoch,
                partition_epoch=record.partition_epoch,
            )
        )
        self.partition_count += 1

    def _settle(self, topic_id: uuid.UUID) -> None:
        """Join partitions collected one by one to their topic: one tuple per topic and batch, not one per record."""
        added = self._new_partitions.pop(topic_id, [])
        topic = self._topic(topic_id)
        self.topics[topic.name] = replace(topic, partitions=(*topic.partitions, *added))

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        self._settle(record.topic_id)
        topic = self._topic(record.topic_id)
        del self.topics[topic.name]
        del self.topic_names[topic.topic_id]
        self.partition_count -= len(topic.partitions)

    def _set_config(self, record: ConfigRecord) -> None:
        if record.resource_type == RESOURCE_TOPIC:
            topic = self.topics.get(record.resource_name)
            if topic is None:
                raise ImageError(f"configuration of a topic that does not exist: {record.resource_name!r}")
            self.topics[topic.name] = replace(topic, configs=_with(topic.configs, record))
        elif record.resource_type == RESOURCE_BROKER:
            before = self._broker_configs.get(record.resource_name, {})
            self._broker_configs[record.resource_name] = _with(before, record)
        else:
            raise ImageError(f"configuration of resource type {record.resource_type} is not known")


def _with(configs: Mapping[str, str], record: ConfigRecord) -> Mapping[str, str]:
    changed = {name: value for name, value in configs.items() if name != record.name}
    if record.value is not None:
        changed[record.name] = record.value
    return MappingProxyType(changed)
