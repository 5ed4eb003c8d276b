"""Metadata records as bytes, in the format of Kafka's `__cluster_metadata`

The value of each record is three unsigned varints (frame version 1, record type, record version) and the fields in
flexible encoding (compact lengths, tagged fields last), so Kafka's own dump tool reads the log. The table `_LAYOUTS`
states for each type its number, version and fields in wire order; encoder and decoder walk the same rows.

Not here: record batches (`tidemill.core.records`) and what a record means (`tidemill.broker.quorum.metadata`).
"""

import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

_FRAME_VERSION = 1


class MetadataFormatError(ValueError):
    """Bytes that are not a metadata record this version understands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint:
    """One address of a broker."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFeature:
    """A feature range that a broker can run."""

    name: str
    min_supported_version: int
    max_supported_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecord:
    """A broker joined, or came back with another address or incarnation."""

    broker_id: int
    incarnation_id: uuid.UUID
    broker_epoch: int
    end_points: tuple[BrokerEndpoint, ...]
    features: tuple[BrokerFeature, ...] = ()
    rack: str | None = None
    fenced: bool = False
    in_controlled_shutdown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRecord:
    """A broker left for good."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A topic exists; its partitions follow in the same batch."""

    name: str
    topic_id: uuid.UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """A partition exists with these replicas."""

    partition_id: int
    topic_id: uuid.UUID
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader: int = -1
    leader_epoch: int = 0
    partition_epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecord:
    """A leadership of a partition begins: its leader epoch is one more than before, whoever led then."""

    partition_id: int
    topic_id: uuid.UUID
    leader: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicRecord:
    """A topic and all its partitions are gone."""

    topic_id: uuid.UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord:
    """A setting of a topic (type 2) or broker (type 4); None takes it away."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsRecord:
    """Producer ids below `next_producer_id` have been handed out."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


MetadataRecord: TypeAlias = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | RemoveTopicRecord
    | ConfigRecord
    | ProducerIdsRecord
)


@dataclass(slots=True)
class Cursor:
    """Mutable: a place in the bytes of a record; whoever reads past the end gets MetadataFormatError."""

    buffer: bytes
    position: int = 0
    end: int = field(init=False)

    def __post_init__(self) -> None:
        self.end = len(self.buffer)

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        start, stop = self.position, self.position + size
        if size < 0 or stop > self.end:
            raise MetadataFormatError("record ends in the middle of a field")
        self.position = stop
        return self.buffer[start:stop]

    def varint(self) -> int:
        """An unsigned varint of at most 35 bits."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise MetadataFormatError("varint is too long")


class _Type(NamedTuple):
    write: Callable[[bytearray, Any], None]
    read: Callable[[Cursor], Any]


def _put_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _fixed(form: str) -> _Type:
    packer = struct.Struct(">" + form)
    return _Type(
        lambda out, value: out.extend(packer.pack(value)),
        lambda cursor: packer.unpack(cursor.take(packer.size))[0],
    )


def _write_text(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
        return
    raw = value.encode()
    _put_varint(out, len(raw) + 1)
    out += raw


def _read_nullable_text(cursor: Cursor) -> str | None:
    length = cursor.varint()
    try:
        return None if length == 0 else cursor.take(length - 1).decode()
    except UnicodeDecodeError:
        raise MetadataFormatError("text is not UTF-8") from None


def _read_text(cursor: Cursor) -> str:
    text = _read_nullable_text(cursor)
    if text is None:
        raise MetadataFormatError("null where text is required")
    return text


def _array(item: _Type) -> _Type:
    def write(out: bytearray, values: Sequence[Any]) -> None:
        _put_varint(out, len(values) + 1)
        for value in values:
            item.write(out, value)

    def read(cursor: Cursor) -> tuple[Any, ...]:
        count = cursor.varint() - 1
        if not 0 <= count <= cursor.end - cursor.position:
            raise MetadataFormatError(f"array of {count} elements does not fit in the record")
        return tuple(item.read(cursor) for _ in range(count))

    return _Type(write, read)


def _struct(cls: type[Any], rows: Sequence[tuple[str, _Type]]) -> _Type:
    def write(out: bytearray, value: Any) -> None:
        for name, kind in rows:
            kind.write(out, getattr(value, name))
        out.append(0)  # no tagged fields

    def read(cursor: Cursor) -> Any:
        value = cls(**{name: kind.read(cursor) for name, kind in rows})
        for _ in range(cursor.varint()):  # tagged fields of newer writers
            cursor.varint()
            cursor.take(cursor.varint())
        return value

    return _Type(write, read)


_I8, _I16, _I32, _I64, _U16 = _fixed("b"), _fixed("h"), _fixed("i"), _fixed("q"), _fixed("H")
_BOOL = _fixed("?")
_TEXT = _Type(_write_text, _read_text)
_NULLABLE_TEXT = _Type(_write_text, _read_nullable_text)
_UUID = _Type(lambda out, value: out.extend(value.bytes), lambda cursor: uuid.UUID(bytes=cursor.take(16)))
_I32S = _array(_I32)
_ENDPOINTS = _array(
    _struct(BrokerEndpoint, (("name", _TEXT), ("host", _TEXT), ("port", _U16), ("security_protocol", _I16)))
)
_FEATURES = _array(
    _struct(
        BrokerFeature, (("name", _TEXT), ("min_supported_version", _I16), ("max_supported_version", _I16))
    )
)  # fmt: skip


_CHANGE_HEAD = struct.Struct(">i16s")
_CHANGE_TAIL = struct.Struct(">BBBi")  # one tagged field: the leader, four bytes long
_LEADER_TAG = 1


def _write_change(out: bytearray, record: PartitionChangeRecord) -> None:
    out += _CHANGE_HEAD.pack(record.partition_id, record.topic_id.bytes)
    out += _CHANGE_TAIL.pack(1, _LEADER_TAG, 4, record.leader)


def _read_change(cursor: Cursor) -> PartitionChangeRecord:
    partition_id, topic_id = _CHANGE_HEAD.unpack(cursor.take(_CHANGE_HEAD.size))
    count, tag, size, leader = _CHANGE_TAIL.unpack(cursor.take(_CHANGE_TAIL.size))
    if (count, tag, size) != (1, _LEADER_TAG, 4):  # what is tagged here is what becomes different
        raise MetadataFormatError("a partition changes in more than its leader")
    return PartitionChangeRecord(partition_id=partition_id, topic_id=uuid.UUID(bytes=topic_id), leader=leader)


class _Layout(NamedTuple):
    key: int
    version: int
    body: _Type


_LAYOUTS: dict[type[MetadataRecord], _Layout] = {
    RegisterBrokerRecord: _Layout(0, 1, _struct(RegisterBrokerRecord, (
        ("broker_id", _I32), ("incarnation_id", _UUID), ("broker_epoch", _I64), ("end_points", _ENDPOINTS),
        ("features", _FEATURES), ("rack", _NULLABLE_TEXT), ("fenced", _BOOL), ("in_controlled_shutdown", _BOOL)))),
    UnregisterBrokerRecord: _Layout(1, 0, _struct(UnregisterBrokerRecord, (
        ("broker_id", _I32), ("broker_epoch", _I64)))),
    TopicRecord: _Layout(2, 0, _struct(TopicRecord, (("name", _TEXT), ("topic_id", _UUID)))),
    PartitionRecord: _Layout(3, 0, _struct(PartitionRecord, (
        ("partition_id", _I32), ("topic_id", _UUID), ("replicas", _I32S), ("isr", _I32S),
        ("removing_replicas", _I32S), ("adding_replicas", _I32S), ("leader", _I32), ("leader_epoch", _I32),
        ("partition_epoch", _I32)))),
    ConfigRecord: _Layout(4, 0, _struct(ConfigRecord, (
        ("resource_type", _I8), ("resource_name", _TEXT), ("name", _TEXT), ("value", _NULLABLE_TEXT)))),
    PartitionChangeRecord: _Layout(5, 0, _Type(_write_change, _read_change)),
    RemoveTopicRecord: _Layout(9, 0, _struct(RemoveTopicRecord, (("topic_id", _UUID),))),
    ProducerIdsRecord: _Layout(15, 0, _struct(ProducerIdsRecord, (
        ("broker_id", _I32), ("broker_epoch", _I64), ("next_producer_id", _I64)))),
}  # fmt: skip
_BY_KEY = {(layout.key, layout.version): layout for layout in _LAYOUTS.values()}


def encode_record(record: MetadataRecord) -> bytes:
    """The value of the log record that holds `record`."""
    layout = _LAYOUTS[type(record)]
    out = bytearray()
    for number in (_FRAME_VERSION, layout.key, layout.version):
        _put_varint(out, number)
    layout.body.write(out, record)
    return bytes(out)


def decode_record(value: bytes) -> MetadataRecord:
    """The record that `value` holds; raises MetadataFormatError."""
    cursor = Cursor(value)
    frame = cursor.varint()
    if frame != _FRAME_VERSION:
        raise MetadataFormatError(f"frame version {frame} is not supported")
    key, version = cursor.varint(), cursor.varint()
    layout = _BY_KEY.get((key, version))
    if layout is None:
        raise MetadataFormatError(f"record type {key} version {version} is not known to this version of the broker")
    record: MetadataRecord = layout.body.read(cursor)
    if cursor.position != cursor.end:
        raise MetadataFormatError(f"record type {key} has {cursor.end - cursor.position} bytes too many")
    return record
