"""Metadata records as bytes, in the format of Kafka's `__cluster_metadata`

The value of each record is three unsigned varints (frame version 1, record type, record version) and the fields in
flexible encoding (compact lengths, tagged fields last), so Kafka's own dump tool reads the log. The table `_LAYOUTS`
states for each type its number, version and fields in wire order; encoder and decoder walk the same rows. Records of
partitions have a second version, for eligible leader replicas.

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
    leader_recovery_state: int = 0
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


NO_LEADER = -1
NO_LEADER_CHANGE = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecord:
    """What became different of a partition; None is unchanged.

    With a leader a leadership begins: the leader epoch is one more than before, whoever led then.
    """

    partition_id: int
    topic_id: uuid.UUID
    isr: tuple[int, ...] | None = None
    leader: int = NO_LEADER_CHANGE
    replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    leader_recovery_state: int = -1
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChangeRecord:
    """A registered broker was fenced (1) or unfenced (-1), or goes down in order (1); 0 is unchanged."""

    broker_id: int
    broker_epoch: int
    fenced: int = 0
    in_controlled_shutdown: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevelRecord:
    """The cluster runs a feature at this level; 0 takes it away."""

    name: str
    feature_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControlEntryRecord:
    """A rule about who may do what; the numbers are those of the protocol."""

    id: uuid.UUID
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAccessControlEntryRecord:
    """A rule is gone."""

    id: uuid.UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class UserScramCredentialRecord:
    """What a user's password is checked against, for one mechanism."""

    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveUserScramCredentialRecord:
    """A user's password for one mechanism counts no more."""

    name: str
    mechanism: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEntity:
    """One part of whom a quota is for; no name is the default of that type."""

    entity_type: str
    entity_name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotaRecord:
    """A quota of some clients is set or, with `remove`, taken away."""

    entity: tuple[QuotaEntity, ...]
    key: str
    value: float
    remove: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenRecord:
    """A token was given out, or holds longer than before."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int
    token_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveDelegationTokenRecord:
    """A token counts no more."""

    token_id: str


MetadataRecord: TypeAlias = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | RemoveTopicRecord
    | DelegationTokenRecord
    | UserScramCredentialRecord
    | FeatureLevelRecord
    | ClientQuotaRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | RemoveUserScramCredentialRecord
    | RemoveDelegationTokenRecord
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
        start = self.skip(size)
        return self.buffer[start : start + size]

    def skip(self, size: int) -> int:
        """Go behind the next `size` bytes; returns where they begin."""
        start = self.position
        stop = start + size
        if size < 0 or stop > self.end:
            raise MetadataFormatError("record ends in the middle of a field")
        self.position = stop
        return start

    def varint(self) -> int:
        """An unsigned varint of at most 35 bits."""
        if self.position < self.end and (byte := self.buffer[self.position]) < 0x80:  # as nearly all are
            self.position += 1
            return byte
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
    size, unpack_from = packer.size, packer.unpack_from

    def read(cursor: Cursor) -> Any:
        return unpack_from(cursor.buffer, cursor.skip(size))[0]

    return _Type(lambda out, value: out.extend(packer.pack(value)), read)


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


def _write_bytes(out: bytearray, value: bytes) -> None:
    _put_varint(out, len(value) + 1)
    out += value


def _read_bytes(cursor: Cursor) -> bytes:
    length = cursor.varint()
    if length == 0:
        raise MetadataFormatError("null where bytes are required")
    return cursor.take(length - 1)


_DOUBLE = _fixed("d")


def _read_number(cursor: Cursor) -> float:
    value: float = _DOUBLE.read(cursor)
    if value != value:
        raise MetadataFormatError("not a number where one is required")
    return value


def _array(item: _Type) -> _Type:
    def write(out: bytearray, values: Sequence[Any]) -> None:
        _put_varint(out, len(values) + 1)
        for value in values:
            item.write(out, value)

    def read(cursor: Cursor) -> tuple[Any, ...]:
        count = cursor.varint() - 1
        if not 0 <= count <= cursor.end - cursor.position:
            raise MetadataFormatError(f"array of {count} elements does not fit in the record")
        if not count:
            return ()
        return tuple([item.read(cursor) for _ in range(count)])

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
_F64 = _Type(_DOUBLE.write, _read_number)
_BOOL = _fixed("?")
_BYTES = _Type(_write_bytes, _read_bytes)
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


_QUOTA_ENTITIES = _array(_struct(QuotaEntity, (("entity_type", _TEXT), ("entity_name", _NULLABLE_TEXT))))


class _Tagged(NamedTuple):
    """A field that is written only if it says something: `tag` counts, `absent` is not written."""

    tag: int
    name: str
    kind: _Type
    absent: object


def _tagged_struct(cls: type[Any], rows: Sequence[tuple[str, _Type]], tagged: Sequence[_Tagged]) -> _Type:
    """A struct of which a change is tagged: an unknown tag would be a change that is not understood, so it is refused.

    `tagged` is in the order of the tags. A row without a name is an array that means nothing here.
    """
    by_tag = {row.tag: row for row in tagged}

    def write(out: bytearray, value: Any) -> None:
        for name, kind in rows:
            kind.write(out, getattr(value, name) if name else ())
        present = [(row, given) for row in tagged if (given := getattr(value, row.name)) != row.absent]
        _put_varint(out, len(present))
        for row, given in present:
            field_bytes = bytearray()
            row.kind.write(field_bytes, given)
            _put_varint(out, row.tag)
            _put_varint(out, len(field_bytes))
            out += field_bytes

    def read(cursor: Cursor) -> Any:
        fields = {name: kind.read(cursor) for name, kind in rows}
        fields.pop("", None)
        last = -1
        for _ in range(cursor.varint()):
            tag, size = cursor.varint(), cursor.varint()
            row = by_tag.get(tag)
            if row is None or tag <= last:
                raise MetadataFormatError(f"a {cls.__name__} changes something unknown, tag {tag}")
            before, last = cursor.position, tag
            fields[row.name] = row.kind.read(cursor)
            if cursor.position - before != size:
                raise MetadataFormatError(f"tag {tag} is not as long as it says")
        return cls(**fields)

    return _Type(write, read)


_PARTITION_ROWS = (
    ("partition_id", _I32), ("topic_id", _UUID), ("replicas", _I32S), ("isr", _I32S), ("removing_replicas", _I32S),
    ("adding_replicas", _I32S), ("leader", _I32), ("leader_epoch", _I32), ("partition_epoch", _I32),
)  # fmt: skip
_PARTITION_TAGS = (_Tagged(0, "leader_recovery_state", _I8, 0),)
_CHANGE_ROWS = (("partition_id", _I32), ("topic_id", _UUID))
_CHANGE_TAGS = (
    _Tagged(0, "isr", _I32S, None),
    _Tagged(1, "leader", _I32, NO_LEADER_CHANGE),
    _Tagged(2, "replicas", _I32S, None),
    _Tagged(3, "removing_replicas", _I32S, None),
    _Tagged(4, "adding_replicas", _I32S, None),
    _Tagged(5, "leader_recovery_state", _I8, -1),
)
_NO_DIRECTORIES = ("", _array(_UUID))
_REGISTRATION_CHANGE = _tagged_struct(
    BrokerRegistrationChangeRecord,
    (("broker_id", _I32), ("broker_epoch", _I64)),
    (_Tagged(0, "fenced", _I8, 0), _Tagged(1, "in_controlled_shutdown", _I8, 0)),
)


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
    PartitionRecord: _Layout(3, 0, _tagged_struct(PartitionRecord, _PARTITION_ROWS, _PARTITION_TAGS)),
    ConfigRecord: _Layout(4, 0, _struct(ConfigRecord, (
        ("resource_type", _I8), ("resource_name", _TEXT), ("name", _TEXT), ("value", _NULLABLE_TEXT)))),
    PartitionChangeRecord: _Layout(5, 0, _tagged_struct(PartitionChangeRecord, _CHANGE_ROWS, _CHANGE_TAGS)),
    RemoveTopicRecord: _Layout(9, 0, _struct(RemoveTopicRecord, (("topic_id", _UUID),))),
    DelegationTokenRecord: _Layout(10, 0, _struct(DelegationTokenRecord, (
        ("owner", _TEXT), ("requester", _TEXT), ("renewers", _array(_TEXT)), ("issue_timestamp", _I64),
        ("max_timestamp", _I64), ("expiration_timestamp", _I64), ("token_id", _TEXT)))),
    UserScramCredentialRecord: _Layout(11, 0, _struct(UserScramCredentialRecord, (
        ("name", _TEXT), ("mechanism", _I8), ("salt", _BYTES), ("stored_key", _BYTES), ("server_key", _BYTES),
        ("iterations", _I32)))),
    FeatureLevelRecord: _Layout(12, 0, _struct(FeatureLevelRecord, (("name", _TEXT), ("feature_level", _I16)))),
    ClientQuotaRecord: _Layout(14, 0, _struct(ClientQuotaRecord, (
        ("entity", _QUOTA_ENTITIES), ("key", _TEXT), ("value", _F64), ("remove", _BOOL)))),
    ProducerIdsRecord: _Layout(15, 0, _struct(ProducerIdsRecord, (
        ("broker_id", _I32), ("broker_epoch", _I64), ("next_producer_id", _I64)))),
    BrokerRegistrationChangeRecord: _Layout(17, 1, _REGISTRATION_CHANGE),
    AccessControlEntryRecord: _Layout(18, 0, _struct(AccessControlEntryRecord, (
        ("id", _UUID), ("resource_type", _I8), ("resource_name", _TEXT), ("pattern_type", _I8), ("principal", _TEXT),
        ("host", _TEXT), ("operation", _I8), ("permission_type", _I8)))),
    RemoveAccessControlEntryRecord: _Layout(19, 0, _struct(RemoveAccessControlEntryRecord, (("id", _UUID),))),
    RemoveUserScramCredentialRecord: _Layout(22, 0, _struct(RemoveUserScramCredentialRecord, (
        ("name", _TEXT), ("mechanism", _I8)))),
    RemoveDelegationTokenRecord: _Layout(26, 0, _struct(RemoveDelegationTokenRecord, (("token_id", _TEXT),))),
}  # fmt: skip
_WITH_ELR: dict[type[MetadataRecord], _Layout] = {
    PartitionRecord: _Layout(3, 2, _tagged_struct(
        PartitionRecord,
        (*_PARTITION_ROWS, _NO_DIRECTORIES),
        (*_PARTITION_TAGS, _Tagged(1, "eligible_leader_replicas", _I32S, ()), _Tagged(2, "last_known_elr", _I32S, ())),
    )),
    PartitionChangeRecord: _Layout(5, 2, _tagged_struct(
        PartitionChangeRecord,
        _CHANGE_ROWS,
        (*_CHANGE_TAGS, _Tagged(6, "eligible_leader_replicas", _I32S, None), _Tagged(7, "last_known_elr", _I32S, None)),
    )),
}  # fmt: skip
"""What is written only where it has to be, so that a log without it is one that earlier versions read."""
_BY_KEY = {(layout.key, layout.version): layout for some in (_LAYOUTS, _WITH_ELR) for layout in some.values()}


def _layout_of(record: MetadataRecord) -> _Layout:
    match record:
        case PartitionRecord() if record.eligible_leader_replicas or record.last_known_elr:
            return _WITH_ELR[PartitionRecord]
        case PartitionChangeRecord() if (
            record.eligible_leader_replicas is not None or record.last_known_elr is not None
        ):
            return _WITH_ELR[PartitionChangeRecord]
    return _LAYOUTS[type(record)]


def encode_record(record: MetadataRecord) -> bytes:
    """The value of the log record that holds `record`."""
    layout = _layout_of(record)
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
