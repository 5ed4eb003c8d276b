"""What Apache Kafka's own metadata log says of a cluster

Kafka keeps its metadata as we do (`tidemill.broker.quorum.records` tells the frame), but writes more kinds of records
and later versions of some. Here they are read and replayed as Kafka replays them: the newest snapshot, then every batch
behind it; control batches are passed over, and what is between the beginning and the end of a metadata transaction
counts only if the end is there.

A kind that says something of which we keep nothing (ACLs, SCRAM, quotas, delegation tokens) is counted by its name. A
kind or a version that is not in the tables is refused: what it would have changed is unknown.

Pure: names and bytes of files in, one `KafkaCluster` out.
"""

import struct
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias, TypeVar

from tidemill.broker.quorum.batches import later_batch, sound_batches
from tidemill.broker.quorum.image import RESOURCE_BROKER, RESOURCE_TOPIC
from tidemill.broker.quorum.records import (
    ConfigRecord,
    Cursor,
    MetadataFormatError,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_record,
)
from tidemill.core.errors import KafkaError
from tidemill.core.records.record import decode_records

_Item = TypeVar("_Item")

LOG_SUFFIX: Final = ".log"
SNAPSHOT_SUFFIX: Final = ".checkpoint"
NO_LEADER_CHANGE: Final = -2

_FRAME_VERSION: Final = 1
_WITH_MIGRATION: Final = 2  # from this version on a registration says whether it comes from ZooKeeper
BEGIN, END, ABORT = 23, 24, 25  # of a metadata transaction
_SNAPSHOT_FOOTER: Final = 4  # type of the control record that closes a snapshot

_SAME_AS_OURS: Final = frozenset({2, 4, 9, 15})
"""Topic, configuration, removed topic, producer ids: version 0, as `tidemill.broker.quorum.records` has them."""

_BOOKKEEPING: Final = frozenset({7, 8, 12, 17, 20, 21, 28})
"""Fences, feature levels, registration changes, no-ops, the state of a ZooKeeper migration, cleared ELRs: all of it is
about running the old cluster."""

NOT_TAKEN: Final[Mapping[int, str]] = {
    10: "delegation tokens",
    11: "SCRAM credentials",
    14: "client quotas",
    18: "access control entries",
    19: "removed access control entries",
    22: "removed SCRAM credentials",
    26: "removed delegation tokens",
}
_RESOURCES_NOT_TAKEN: Final[Mapping[int, str]] = {
    8: "broker loggers",
    16: "client metrics subscriptions",
    32: "group configurations",
}
_VERSION_MAX: Final[Mapping[int, int]] = {0: 4, 1: 0, 3: 2, 5: 2, 27: 0}


class KafkaMetadataError(ValueError):
    """Metadata that cannot be taken over; the message says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPartition:
    """One partition; `directories[i]` is the log folder that `replicas[i]` keeps it in, where Kafka says."""

    partition_id: int
    topic_id: uuid.UUID
    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    recovery_state: int = 0
    directories: tuple[uuid.UUID, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPartitionChange:
    """What became different of a partition; None is unchanged."""

    partition_id: int
    topic_id: uuid.UUID
    replicas: tuple[int, ...] | None = None
    isr: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    leader: int = NO_LEADER_CHANGE
    recovery_state: int = -1
    directories: tuple[uuid.UUID, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen:
    """A broker or a controller registered, or, with `gone`, left for good."""

    node_id: int
    role: str
    gone: bool = False
    epoch: int = -1
    """Of a broker's registration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTransaction:
    """A bracket around records that count together: one of `BEGIN`, `END`, `ABORT`."""

    kind: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTaken:
    """A record that is about something we do not keep."""

    what: str


KafkaRecord: TypeAlias = (
    TopicRecord
    | KafkaPartition
    | KafkaPartitionChange
    | RemoveTopicRecord
    | ConfigRecord
    | ProducerIdsRecord
    | NodeSeen
    | MetadataTransaction
    | NotTaken
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTopic:
    """One topic with its partitions in order and the settings made on it."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[KafkaPartition, ...]
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaCluster:
    """What the metadata log leads to."""

    topics: tuple[KafkaTopic, ...]
    broker_configs: Mapping[str, Mapping[str, str]]
    next_producer_id: int
    nodes: frozenset[int]
    broker_epochs: Mapping[int, int]
    """Of the brokers among them, those of their registrations."""
    not_taken: Mapping[str, int]
    torn_bytes: int = 0


# --- one record


def decode(value: bytes) -> KafkaRecord | None:
    """The record that `value` holds, None for bookkeeping of Kafka's own; raises MetadataFormatError."""
    cursor = Cursor(value)
    frame = cursor.varint()
    if frame != _FRAME_VERSION:
        raise MetadataFormatError(f"frame version {frame} is not supported")
    key, version = cursor.varint(), cursor.varint()
    if key in _SAME_AS_OURS:
        record = decode_record(value)
        assert isinstance(record, TopicRecord | ConfigRecord | RemoveTopicRecord | ProducerIdsRecord)
        return record
    if key in _BOOKKEEPING:
        return None
    if key in NOT_TAKEN:
        return NotTaken(what=NOT_TAKEN[key])
    if key in (BEGIN, END, ABORT):
        return MetadataTransaction(kind=key)
    if version > _VERSION_MAX.get(key, -1):
        raise MetadataFormatError(f"record type {key} version {version} is not known to this version of the broker")
    match key:
        case 3:
            return _whole(cursor, _read_partition(cursor, version))
        case 5:
            return _whole(cursor, _read_change(cursor))
        case _:
            return _read_node(cursor, key, version)


def _read_node(cursor: Cursor, key: int, version: int) -> NodeSeen:
    """A node: its id comes first, and of a broker's registration its epoch soon; nothing behind that matters."""
    node_id, epoch = _int32(cursor), -1
    if key == 0:
        cursor.take((1 if version >= _WITH_MIGRATION else 0) + 16)  # whether it comes from ZooKeeper; the incarnation
        epoch = int(struct.unpack(">q", cursor.take(8))[0])
    return NodeSeen(node_id=node_id, role="controller" if key == 27 else "broker", gone=key == 1, epoch=epoch)


def _read_partition(cursor: Cursor, version: int) -> KafkaPartition:
    partition_id, topic_id = _int32(cursor), uuid.UUID(bytes=cursor.take(16))
    replicas = _int32s(cursor)
    isr, removing, adding = (_nullable(cursor, _int32) or () for _ in range(3))
    leader, leader_epoch, partition_epoch = _int32(cursor), _int32(cursor), _int32(cursor)
    directories = _nullable(cursor, _uuid) or () if version >= 1 else ()
    tagged = _tagged(cursor)
    return KafkaPartition(
        partition_id=partition_id,
        topic_id=topic_id,
        replicas=replicas,
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        isr=isr,
        removing=removing,
        adding=adding,
        recovery_state=_int8(tagged[0]) if 0 in tagged else 0,
        directories=directories,
    )


def _read_change(cursor: Cursor) -> KafkaPartitionChange:
    partition_id, topic_id = _int32(cursor), uuid.UUID(bytes=cursor.take(16))
    tagged = _tagged(cursor)

    def nodes(tag: int) -> tuple[int, ...] | None:
        return _whole(tagged[tag], _nullable(tagged[tag], _int32)) if tag in tagged else None

    return KafkaPartitionChange(
        partition_id=partition_id,
        topic_id=topic_id,
        isr=nodes(0),
        leader=_whole(tagged[1], _int32(tagged[1])) if 1 in tagged else NO_LEADER_CHANGE,
        replicas=nodes(2),
        removing=nodes(3),
        adding=nodes(4),
        recovery_state=_int8(tagged[5]) if 5 in tagged else -1,
        directories=_whole(tagged[8], _nullable(tagged[8], _uuid)) if 8 in tagged else None,
    )


def _whole(cursor: Cursor, read: _Item) -> _Item:
    """`read`, if nothing is left behind it."""
    if cursor.position != cursor.end:
        raise MetadataFormatError(f"{cursor.end - cursor.position} bytes too many")
    return read


def _int8(cursor: Cursor) -> int:
    return int(struct.unpack(">b", cursor.take(1))[0])


def _int32(cursor: Cursor) -> int:
    return int(struct.unpack(">i", cursor.take(4))[0])


def _uuid(cursor: Cursor) -> uuid.UUID:
    return uuid.UUID(bytes=cursor.take(16))


def _int32s(cursor: Cursor) -> tuple[int, ...]:
    found = _nullable(cursor, _int32)
    if found is None:
        raise MetadataFormatError("null where an array is required")
    return found


def _nullable(cursor: Cursor, item: Callable[[Cursor], _Item]) -> tuple[_Item, ...] | None:
    count = cursor.varint() - 1
    if count > cursor.end - cursor.position:
        raise MetadataFormatError(f"array of {count} elements does not fit in the record")
    return None if count < 0 else tuple(item(cursor) for _ in range(count))


def _tagged(cursor: Cursor) -> dict[int, Cursor]:
    """The tagged fields by number."""
    found = {}
    for _ in range(cursor.varint()):
        tag = cursor.varint()
        found[tag] = Cursor(cursor.take(cursor.varint()))
    return found


# --- many records


@dataclass(slots=True)
class _Topic:
    """Mutable: a topic while records are taken in."""

    record: TopicRecord
    partitions: dict[int, KafkaPartition] = field(default_factory=dict)
    configs: dict[str, str] = field(default_factory=dict)


class _Replay:
    """The cluster while records are taken in."""

    def __init__(self) -> None:
        self._topics: dict[uuid.UUID, _Topic] = {}
        self._topic_ids: dict[str, uuid.UUID] = {}
        self._broker_configs: dict[str, dict[str, str]] = {}
        self._next_producer_id = 0
        self._nodes: dict[tuple[str, int], int] = {}  # epochs
        self._not_taken: Counter[str] = Counter()
        self._held: list[KafkaRecord] | None = None  # records of a metadata transaction that is not over

    def take(self, record: KafkaRecord) -> None:
        """Take in one record, or hold it until its transaction ends."""
        if isinstance(record, MetadataTransaction):
            held, self._held = self._held, [] if record.kind == BEGIN else None
            for each in held or () if record.kind == END else ():
                self._apply(each)
        elif self._held is not None:
            self._held.append(record)
        else:
            self._apply(record)

    def _apply(self, record: KafkaRecord) -> None:
        match record:
            case TopicRecord():
                self._topics[record.topic_id] = _Topic(record)
                self._topic_ids[record.name] = record.topic_id
            case KafkaPartition():
                self._topic(record.topic_id).partitions[record.partition_id] = record
            case KafkaPartitionChange():
                self._change(record)
            case RemoveTopicRecord():
                del self._topic_ids[self._topic(record.topic_id).record.name]
                del self._topics[record.topic_id]
            case ConfigRecord():
                self._set_config(record)
            case ProducerIdsRecord():
                self._next_producer_id = max(self._next_producer_id, record.next_producer_id)
            case NodeSeen():
                self._nodes.pop((record.role, record.node_id), None)
                if not record.gone:
                    self._nodes[record.role, record.node_id] = record.epoch
            case NotTaken():
                self._not_taken[record.what] += 1

    def _topic(self, topic_id: uuid.UUID) -> _Topic:
        topic = self._topics.get(topic_id)
        if topic is None:
            raise MetadataFormatError(f"a record is about topic {topic_id}, which does not exist")
        return topic

    def _change(self, record: KafkaPartitionChange) -> None:
        partitions = self._topic(record.topic_id).partitions
        before = partitions.get(record.partition_id)
        if before is None:
            raise MetadataFormatError(f"a record changes partition {record.partition_id}, which does not exist")
        led = record.leader != NO_LEADER_CHANGE
        partitions[record.partition_id] = replace(
            before,
            replicas=before.replicas if record.replicas is None else record.replicas,
            isr=before.isr if record.isr is None else record.isr,
            removing=before.removing if record.removing is None else record.removing,
            adding=before.adding if record.adding is None else record.adding,
            recovery_state=before.recovery_state if record.recovery_state < 0 else record.recovery_state,
            directories=before.directories if record.directories is None else record.directories,
            leader=record.leader if led else before.leader,
            leader_epoch=before.leader_epoch + led,
            partition_epoch=before.partition_epoch + 1,
        )

    def _set_config(self, record: ConfigRecord) -> None:
        if record.resource_type == RESOURCE_TOPIC:
            topic_id = self._topic_ids.get(record.resource_name)
            if topic_id is None:
                raise MetadataFormatError(f"a record configures topic {record.resource_name}, which does not exist")
            configs = self._topics[topic_id].configs
        elif record.resource_type == RESOURCE_BROKER:
            configs = self._broker_configs.setdefault(record.resource_name, {})
        else:
            kind = f"settings of resource type {record.resource_type}"
            self._not_taken[_RESOURCES_NOT_TAKEN.get(record.resource_type, kind)] += 1
            return
        configs.pop(record.name, None)
        if record.value is not None:
            configs[record.name] = record.value

    def cluster(self, torn_bytes: int) -> KafkaCluster:
        """What all records led to; raises MetadataFormatError for a topic with a hole in it."""
        topics = []
        for topic in self._topics.values():
            partitions = tuple(topic.partitions[number] for number in sorted(topic.partitions))
            if not partitions or [each.partition_id for each in partitions] != list(range(len(partitions))):
                raise MetadataFormatError(f"topic {topic.record.name} lacks partitions")
            topics.append(
                KafkaTopic(
                    name=topic.record.name,
                    topic_id=topic.record.topic_id,
                    partitions=partitions,
                    configs=topic.configs,
                )
            )
        return KafkaCluster(
            topics=tuple(topics),
            broker_configs={name: configs for name, configs in self._broker_configs.items() if configs},
            next_producer_id=self._next_producer_id,
            nodes=frozenset(node_id for _, node_id in self._nodes),
            broker_epochs={node_id: epoch for (role, node_id), epoch in self._nodes.items() if role == "broker"},
            not_taken=dict(self._not_taken),
            torn_bytes=torn_bytes,
        )


# --- files


def files_needed(names: Collection[str]) -> tuple[str, ...]:
    """Of the files in Kafka's folder, the newest snapshot, if there is one, and the segments behind its end, in order.

    >>> files_needed(["00.log", "07.log", "09.log", "08-01.checkpoint", "05-01.checkpoint", "00.index"])
    ('08-01.checkpoint', '07.log', '09.log')
    """
    snapshots = [(_place(name), name) for name in names if name.endswith(SNAPSHOT_SUFFIX) and _place(name)]
    newest = max(snapshots, default=None)
    end = newest[0][0] if newest else 0
    segments = sorted((_place(name), name) for name in names if name.endswith(LOG_SUFFIX) and _place(name))
    first = max((number for number, (place, _) in enumerate(segments) if place[0] <= end), default=0)
    return (*([newest[1]] if newest else ()), *(name for _, name in segments[first:]))


def cluster_of(files: Mapping[str, bytes]) -> KafkaCluster:
    """The cluster that the files of `files_needed`, in that order, tell of; raises KafkaMetadataError."""
    replay = _Replay()
    offset = 0
    torn = 0
    names = list(files)
    for name, data in files.items():
        if name.endswith(SNAPSHOT_SUFFIX):
            _take_snapshot(replay, name, data)
            offset = _place(name)[0]
            continue
        base = _place(name)[0]
        if base > offset:
            raise KafkaMetadataError(f"{name} begins at offset {base}, but records from {offset} on are missing")
        end = 0
        for batch in _batches(name, data):
            if batch.offset != base:
                raise KafkaMetadataError(f"{name}: offset {batch.offset} follows {base}")
            _take(replay, name, batch.values[max(0, offset - base) :])  # without what the snapshot has already
            base, end = batch.offset_end, batch.position_end
            offset = max(offset, base)
        if end < len(data):
            torn = len(data) - end
            if name != names[-1] or later_batch(data, end + 1) is not None:
                raise KafkaMetadataError(f"{name} is corrupt at byte {end}: restore it from a backup")
    try:
        return replay.cluster(torn)
    except MetadataFormatError as error:
        raise KafkaMetadataError(f"the metadata log contradicts itself: {error}") from None


def _place(name: str) -> tuple[int, ...]:
    """The numbers that a file is named by; empty for files that are not."""
    parts = name.partition(".")[0].split("-")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) and name.count(".") == 1 else ()


def _take_snapshot(replay: _Replay, name: str, data: bytes) -> None:
    end = 0
    for batch in _batches(name, data):
        _take(replay, name, batch.values)
        end = batch.position_end
    if end != len(data) or not _closed(data):
        raise KafkaMetadataError(f"the snapshot {name} is damaged: restore it from a backup")


def _closed(data: bytes) -> bool:
    """Whether the last batch of a snapshot is its footer."""
    last = None
    for view, _ in sound_batches(data):
        last = view
    if last is None or not last.is_control:
        return False
    return any(bytes(record.key or b"")[2:4] == struct.pack(">h", _SNAPSHOT_FOOTER) for record in decode_records(last))


class _Batch(NamedTuple):
    """One batch of a file; control batches have no values."""

    offset: int
    offset_end: int
    position_end: int
    values: list[bytes]


def _batches(name: str, data: bytes) -> Iterator[_Batch]:
    for view, end in sound_batches(data):
        try:
            values = [] if view.is_control else [bytes(record.value or b"") for record in decode_records(view)]
        except KafkaError as error:
            raise KafkaMetadataError(
                f"{name}: the batch at offset {view.base_offset} cannot be read: {error}"
            ) from None
        yield _Batch(view.base_offset, view.last_offset + 1, end, values)


def _take(replay: _Replay, name: str, values: Iterable[bytes]) -> None:
    try:
        for value in values:
            record = decode(value)
            if record is not None:
                replay.take(record)
    except MetadataFormatError as error:
        raise KafkaMetadataError(f"{name}: {error}; the folder stays Kafka's") from None
