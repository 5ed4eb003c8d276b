"""The image as a file of Kafka's: `<end offset>-<epoch>.checkpoint`

A snapshot says what all decisions below its end offset led to, so the log below it is not needed any more. It is a
sequence of record batches with offsets of their own from 0: a control batch as header, batches of the records that
lead from nothing to the image, a control batch as footer. A file without its footer, or with a batch that does not
match its CRC, is damaged as a whole: half an image is none.

Topics that are gone but may still have files are in it as what happened to them: made, then removed. So whoever
replays it needs no rule of its own for them.

Batches are small: the thread that writes them gives way to the event loop with each write.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from tidemill.broker.quorum.batches import sound_batches
from tidemill.broker.quorum.image import RESOURCE_BROKER, RESOURCE_TOPIC, ClusterImage, PartitionImage, TopicImage
from tidemill.broker.quorum.records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataFormatError,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_record,
    encode_record,
)
from tidemill.broker.quorum.security import records_of_security
from tidemill.core.errors import KafkaError
from tidemill.core.records.batch import BatchView
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, decode_records

if TYPE_CHECKING:  # a quorum of one does not need it
    from tidemill.broker.quorum.control import StandingRecord

SUFFIX: Final = ".checkpoint"
BATCH_RECORDS: Final = 200
"""About a millisecond of work, 16 KiB."""

_HEADER_TYPE, _FOOTER_TYPE = 3, 4
_CONTROL_KEY = struct.Struct(">hh")  # version, type
_HEADER_VALUE = struct.Struct(">hqB")  # version, time of the last record below the end, no tagged fields
_FOOTER_VALUE = struct.Struct(">hB")
_OFFSET_DIGITS, _EPOCH_DIGITS = 20, 10


class SnapshotDamaged(ValueError):
    """The file is not what was written; the message says where."""


class SnapshotId(NamedTuple):
    """What a snapshot is named by: the first offset that is not in it, and the epoch of the last one that is."""

    offset_end: int
    epoch: int

    @property
    def name(self) -> str:
        """The name of its file.

        >>> SnapshotId(42, 1).name
        '00000000000000000042-0000000001.checkpoint'
        """
        return f"{self.offset_end:0{_OFFSET_DIGITS}}-{self.epoch:0{_EPOCH_DIGITS}}{SUFFIX}"

    @classmethod
    def parse(cls, name: str) -> "SnapshotId | None":
        """The id in a file's name; None for files that are no snapshots."""
        stem = name.removesuffix(SUFFIX)
        offset, dash, epoch = stem.partition("-")
        digits = len(offset) == _OFFSET_DIGITS and len(epoch) == _EPOCH_DIGITS and (offset + epoch).isdecimal()
        return cls(int(offset), int(epoch)) if name != stem and dash and digits else None


# --- writing


def records_of(image: ClusterImage, removed: Mapping[UUID, str]) -> Iterator[MetadataRecord]:
    """Records that lead from nothing to `image`; topics in `removed` come and go first, so that names are free."""
    for topic_id, name in removed.items():
        yield TopicRecord(name=name, topic_id=topic_id)
        yield RemoveTopicRecord(topic_id=topic_id)
    for broker in image.brokers.values():
        yield RegisterBrokerRecord(
            broker_id=broker.node_id,
            incarnation_id=broker.incarnation_id,
            broker_epoch=broker.epoch,
            end_points=broker.end_points,
            rack=broker.rack,
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            features=broker.features,
        )
    for name, level in image.features.items():
        yield FeatureLevelRecord(name=name, feature_level=level)
    for topic in image.topics.values():
        yield from _records_of_topic(topic)
    for name, configs in image.broker_configs.items():
        for key, value in configs.items():
            yield ConfigRecord(resource_type=RESOURCE_BROKER, resource_name=name, name=key, value=value)
    if image.next_producer_id:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    yield from records_of_security(image.security)


def _records_of_topic(topic: TopicImage) -> Iterator[MetadataRecord]:
    yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
    for partition in topic.partitions:
        yield _record_of_partition(topic.topic_id, partition)
    for key, value in topic.configs.items():
        yield ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name=topic.name, name=key, value=value)


def _record_of_partition(topic_id: UUID, partition: PartitionImage) -> PartitionRecord:
    return PartitionRecord(
        partition_id=partition.partition,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader_recovery_state=partition.leader_recovery_state,
        eligible_leader_replicas=partition.eligible_leader_replicas,
        last_known_elr=partition.last_known_elr,
    )


def encode(
    records: Iterable[MetadataRecord], *, epoch: int, now_ms: int, standing: "Sequence[StandingRecord]" = ()
) -> Iterator[bytes]:
    """The file, batch by batch; `standing` is what the log said below its end about voters and versions."""
    if standing:
        from tidemill.broker.quorum.control import SnapshotHeader, control_batch

        header = SnapshotHeader(last_contained_log_ms=now_ms)
        yield control_batch((header, *standing), base_offset=0, epoch=epoch, now_ms=now_ms)
    else:
        yield _control_batch(0, epoch, now_ms, _HEADER_TYPE, _HEADER_VALUE.pack(0, now_ms, 0))
    offset, rest = 1 + len(standing), iter(records)
    while some := [NewRecord(now_ms, None, encode_record(record)) for record in islice(rest, BATCH_RECORDS)]:
        yield build_batch(some, base_offset=offset, leader_epoch=epoch)
        offset += len(some)
    yield _control_batch(offset, epoch, now_ms, _FOOTER_TYPE, _FOOTER_VALUE.pack(0, 0))


def _control_batch(offset: int, epoch: int, now_ms: int, kind: int, value: bytes) -> bytes:
    record = NewRecord(now_ms, _CONTROL_KEY.pack(0, kind), value)
    return build_batch([record], base_offset=offset, leader_epoch=epoch, control=True)


# --- reading


def check(data: bytes) -> None:
    """Raise SnapshotDamaged unless `data` is a whole snapshot; what its records mean is not looked at."""
    position = due = 0
    kind: int | None = None
    for view, end in sound_batches(data):
        kind = _control_type(view) if view.is_control else None
        if view.base_offset != due or (kind == _HEADER_TYPE) != (position == 0):
            raise SnapshotDamaged(f"the batch at byte {position} does not belong there")
        position, due = end, view.last_offset + 1
        if kind == _FOOTER_TYPE:
            break
    if position != len(data) or kind != _FOOTER_TYPE:
        raise SnapshotDamaged(f"what is at byte {position} is damaged or does not belong there")


def _control_type(view: BatchView) -> int | None:
    try:
        key = bytes(decode_records(view)[0].key or b"")
    except KafkaError:
        return None
    return int(_CONTROL_KEY.unpack(key)[1]) if len(key) == _CONTROL_KEY.size else None


def decode(data: bytes) -> Iterator[tuple[MetadataRecord, ...]]:
    """The records of a whole snapshot, batch by batch; raises MetadataFormatError for what this version cannot read."""
    for view, _ in sound_batches(data):
        if not view.is_control:
            yield decode_batch(view)


def standing_of(data: bytes) -> "tuple[StandingRecord, ...]":
    """What a whole snapshot says about voters and versions, behind its header; raises MetadataFormatError."""
    header = next((view for view, _ in sound_batches(data)), None)
    if header is None or header.record_count == 1:
        return ()
    from tidemill.broker.quorum.control import KRaftVersion, Voters, control_records

    return tuple(each for each in control_records(header) if isinstance(each, KRaftVersion | Voters))


def decode_batch(view: BatchView) -> tuple[MetadataRecord, ...]:
    """The records of one batch, of a snapshot or of the log; raises MetadataFormatError."""
    try:
        return tuple(decode_record(record.value or b"") for record in decode_records(view))
    except KafkaError as error:
        raise MetadataFormatError(str(error)) from None
