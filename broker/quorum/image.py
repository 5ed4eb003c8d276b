"""The cluster as one immutable value

A `ClusterImage` is what every reader sees: topics, partitions, brokers, settings. `apply` is the only way to a new
one, and it is the same for a decision made a moment ago and for one read from the log at start-up, so recovery is
tested by every ordinary request.

Records are taken in by a `Draft`, one for each batch, or one for a whole log that is replayed; readers see what it
led to when it is frozen, never a topic without its partitions. What a batch does not change is shared between the old
image and the new one, so a decision costs the same however many topics there are.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from tidemill.broker.quorum.records import (
    NO_LEADER_CHANGE,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from tidemill.broker.quorum.security import SecurityDraft, SecurityImage
from tidemill.broker.quorum.shared_map import SharedMap

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""Topics that clients may read but not create, delete or write."""

RESOURCE_TOPIC: Final = 2
RESOURCE_BROKER: Final = 4


class ImageError(ValueError):
    """A record that contradicts the image: the log is not one that `decide` wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """One partition: who holds it, who leads it, and where it is on its way to.

    While it is reassigned, `replicas` are the old and the new ones together.
    """

    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    """1 for as long as a leader that was elected uncleanly has not made up its mind."""
    eligible_leader_replicas: tuple[int, ...] = ()
    """Out of the ISR, and yet they hold all that was committed: HW has not moved since it fell below its minimum."""
    last_known_elr: tuple[int, ...] = ()
    """Of a partition without an ISR: who led last."""

    @property
    def reassigned(self) -> bool:
        """Whether replicas come or go."""
        return bool(self.removing_replicas or self.adding_replicas)


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
    in_controlled_shutdown: bool = False
    features: tuple[BrokerFeature, ...] = ()

    @property
    def active(self) -> bool:
        """Whether partitions may be led there."""
        return not (self.fenced or self.in_controlled_shutdown)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """Everything the quorum agreed on, as of metadata offset `offset` (exclusive)."""

    offset: int = 0
    topics: SharedMap[str, TopicImage] = field(default_factory=SharedMap)
    topic_names: SharedMap[uuid.UUID, str] = field(default_factory=SharedMap)
    underscored: SharedMap[str, str] = field(default_factory=SharedMap)
    """Topics with an underscore in their names, by what `dotted_name` makes of these."""
    brokers: MappingProxyType[int, BrokerImage] = field(default_factory=lambda: MappingProxyType({}))
    broker_configs: MappingProxyType[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    features: MappingProxyType[str, int] = field(default_factory=lambda: MappingProxyType({}))
    security: SecurityImage = field(default_factory=SecurityImage)
    partition_count: int = 0
    next_producer_id: int = 0

    def topic_by_id(self, topic_id: uuid.UUID) -> TopicImage | None:
        """The topic with this id, if it exists."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]


def dotted_name(name: str) -> str:
    """What topics are told apart by in the names of metrics, where a dot and an underscore are the same."""
    return name.replace("_", ".")


def apply(image: ClusterImage, record: MetadataRecord) -> ClusterImage:
    """The image after one record."""
    return apply_batch(image, (record,))


def apply_batch(image: ClusterImage, records: Iterable[MetadataRecord]) -> ClusterImage:
    """The image after all `records`, as one step."""
    draft = Draft(image)
    draft.apply_all(records)
    return draft.freeze()


class Draft:
    """An image while records are taken in; reads like one, but what is new of partitions shows in `freeze` only."""

    def __init__(self, image: ClusterImage) -> None:
        self.topics = image.topics.draft()
        self.topic_names = image.topic_names.draft()
        self.underscored = image.underscored.draft()
        self.brokers = image.brokers.copy()
        self.partition_count = image.partition_count
        self.removed: dict[uuid.UUID, str] = {}  # topics that went, by id
        self._offset = image.offset
        self.broker_configs = image.broker_configs.copy()
        self._features = image.features.copy()
        self._security = image.security
        self._security_draft: SecurityDraft | None = None
        self._next_producer_id = image.next_producer_id
        self._open: dict[uuid.UUID, list[PartitionImage]] = {}  # partitions of topics that get or change some

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
            case PartitionChangeRecord():
                self._change_partition(record)
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
                    in_controlled_shutdown=record.in_controlled_shutdown,
                    features=record.features,
                )
            case UnregisterBrokerRecord():
                self.brokers.pop(record.broker_id, None)
            case BrokerRegistrationChangeRecord():
                self._change_broker(record)
            case FeatureLevelRecord():
                self._features.pop(record.name, None)
                if record.feature_level:
                    self._features[record.name] = record.feature_level
            case _:
                if self._security_draft is None:
                    self._security_draft = SecurityDraft(self._security)
                self._security_draft.apply(record)

    def apply_all(self, records: Iterable[MetadataRecord]) -> None:
        """Take in the records of one batch."""
        for record in records:
            self.apply(record)

    def freeze(self, offset: int | None = None) -> ClusterImage:
        """The image that all records so far lead to; `offset` is given where it is not their number."""
        for topic_id in list(self._open):
            self._settle(topic_id)
        if self._security_draft is not None:
            self._security = self._security_draft.freeze()
        return ClusterImage(
            offset=self._offset if offset is None else offset,
            topics=self.topics.freeze(),
            topic_names=self.topic_names.freeze(),
            underscored=self.underscored.freeze(),
            brokers=MappingProxyType(self.brokers),
            broker_configs=MappingProxyType(self.broker_configs),
            features=MappingProxyType(self._features),
            security=self._security,
            partition_count=self.partition_count,
            next_producer_id=self._next_producer_id,
        )

    def _add_topic(self, record: TopicRecord) -> None:
        if record.name in self.topics or record.topic_id in self.topic_names:
            raise ImageError(f"topic {record.name!r} exists already")
        self.topics[record.name] = TopicImage(name=record.name, topic_id=record.topic_id)
        self.topic_names[record.topic_id] = record.name
        if "_" in record.name:
            self.underscored[dotted_name(record.name)] = record.name

    def _topic(self, topic_id: uuid.UUID) -> TopicImage:
        name = self.topic_names.get(topic_id)
        if name is None:
            raise ImageError(f"no topic has the id {topic_id}")
        return self.topics[name]

    def _partitions(self, topic_id: uuid.UUID) -> list[PartitionImage]:
        """The partitions of a topic as a list: one copy for all that a batch, or a log, does to them."""
        opened = self._open.get(topic_id)
        if opened is None:
            opened = self._open[topic_id] = list(self._topic(topic_id).partitions)
        return opened

    def _add_partition(self, record: PartitionRecord) -> None:
        added = self._partitions(record.topic_id)
        if record.partition_id != len(added):
            raise ImageError(f"partition {record.partition_id} of {record.topic_id} comes where {len(added)} belongs")
        added.append(
            PartitionImage(
                partition=record.partition_id,
                replicas=record.replicas,
                isr=record.isr,
                leader=record.leader,
                leader_epoch=record.leader_epoch,
                partition_epoch=record.partition_epoch,
                removing_replicas=record.removing_replicas,
                adding_replicas=record.adding_replicas,
                leader_recovery_state=record.leader_recovery_state,
                eligible_leader_replicas=record.eligible_leader_replicas,
                last_known_elr=record.last_known_elr,
            )
        )
        self.partition_count += 1

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        partitions = self._partitions(record.topic_id)
        if not 0 <= record.partition_id < len(partitions):
            raise ImageError(f"no partition {record.partition_id} of {record.topic_id} is there to be changed")
        partitions[record.partition_id] = partition_after(partitions[record.partition_id], record)

    def _change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        before = self.brokers.get(record.broker_id)
        if before is None or before.epoch != record.broker_epoch:
            raise ImageError(f"broker {record.broker_id} is not registered with epoch {record.broker_epoch}")
        self.brokers[record.broker_id] = replace(
            before,
            fenced=record.fenced > 0 if record.fenced else before.fenced,
            in_controlled_shutdown=before.in_controlled_shutdown or record.in_controlled_shutdown > 0,
        )

    def _settle(self, topic_id: uuid.UUID) -> None:
        """Give a topic the partitions that were collected for it."""
        partitions = self._open.pop(topic_id, None)
        if partitions is not None:
            topic = self._topic(topic_id)
            self.topics[topic.name] = replace(topic, partitions=tuple(partitions))

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        self._settle(record.topic_id)
        topic = self._topic(record.topic_id)
        del self.topics[topic.name]
        del self.topic_names[topic.topic_id]
        dotted = dotted_name(topic.name)
        if self.underscored.get(dotted) == topic.name:  # a log that Kafka wrote may hold two that look the same
            del self.underscored[dotted]
        self.partition_count -= len(topic.partitions)
        self.removed[topic.topic_id] = topic.name

    def _set_config(self, record: ConfigRecord) -> None:
        if record.resource_type == RESOURCE_TOPIC:
            topic = self.topics.get(record.resource_name)
            if topic is None:
                raise ImageError(f"configuration of a topic that does not exist: {record.resource_name!r}")
            self.topics[topic.name] = replace(topic, configs=_with(topic.configs, record))
        elif record.resource_type == RESOURCE_BROKER:
            configs = _with(self.broker_configs.pop(record.resource_name, {}), record)
            if configs:
                self.broker_configs[record.resource_name] = configs
        else:
            raise ImageError(f"configuration of resource type {record.resource_type} is not known")


def partition_after(before: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """What the record does not name stays; with a leader a leadership begins, also if it is the one before."""
    begins = record.leader != NO_LEADER_CHANGE
    recovery = record.leader_recovery_state
    return PartitionImage(
        partition=before.partition,
        replicas=_or(record.replicas, before.replicas),
        isr=_or(record.isr, before.isr),
        leader=record.leader if begins else before.leader,
        leader_epoch=before.leader_epoch + begins,
        partition_epoch=before.partition_epoch + 1,
        removing_replicas=_or(record.removing_replicas, before.removing_replicas),
        adding_replicas=_or(record.adding_replicas, before.adding_replicas),
        leader_recovery_state=before.leader_recovery_state if recovery < 0 else recovery,
        eligible_leader_replicas=_or(record.eligible_leader_replicas, before.eligible_leader_replicas),
        last_known_elr=_or(record.last_known_elr, before.last_known_elr),
    )


def _or(changed: tuple[int, ...] | None, before: tuple[int, ...]) -> tuple[int, ...]:
    return before if changed is None else changed


def _with(configs: Mapping[str, str], record: ConfigRecord) -> Mapping[str, str]:
    changed = {name: value for name, value in configs.items() if name != record.name}
    if record.value is not None:
        changed[record.name] = record.value
    return MappingProxyType(changed)
