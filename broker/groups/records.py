"""Group records as bytes, in the format of Kafka's `__consumer_offsets`

A key says what the record is about (1: a committed offset, 2: a group's metadata), a null value takes it away. Keys
are written in version 1 and 2, groups in version 3, offsets in version 4 (compact lengths, tagged fields), which Kafka
4.3 writes and every Kafka since 3.5 reads; older versions of values are read too, so a log copied from Kafka loads.

An offset's tagged field 0 is the id of its topic. Kafka has a fixed time of expiry in version 1 only, where there is
no room for that id; here it is a tagged field of our own, which Kafka's readers pass over.

Not here: what the records mean (`tidemill.broker.groups.machine`).
"""

import struct
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from tidemill.core.types import ZERO_UUID

_OFFSET_KEY_VERSIONS: Final = (0, 1)
_GROUP_KEY_VERSION: Final = 2
_GROUP_VALUE_VERSION: Final = 3
_OFFSET_VALUE_VERSION: Final = 4
_TOPIC_ID_TAG: Final = 0
_EXPIRY_TAG: Final = 0x7469
"""Ours ("ti"); far from Kafka's tags, which count up from 0."""

_TOPIC_ID_ONLY: Final = bytes((1, _TOPIC_ID_TAG, 16))
"""What stands before the id where it is the only tagged field, which it nearly always is."""

_OFFSET_HEAD = struct.Struct(">hqi")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")

TEXT_BYTES_MAX: Final = 2**15 - 1
"""A text has a 16-bit length here; flexible requests can carry longer ones."""


RECORD_OVERHEAD_BYTES: Final = 24
"""Lengths, timestamp and offset around a key and a value, at most."""


class GroupFormatError(ValueError):
    """Bytes that are not a group record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRecord:
    """A group committed an offset."""

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: uuid.UUID = ZERO_UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetTombstone:
    """A committed offset is gone."""

    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """One member as the log keeps it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A generation of a group: its members and who owns what."""

    group_id: str
    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTombstone:
    """A group is gone."""

    group_id: str


CoordinatorRecord: TypeAlias = OffsetRecord | OffsetTombstone | GroupRecord | GroupTombstone


class _Reader:
    def __init__(self, data: bytes | memoryview) -> None:
        self._data = bytes(data)
        self._at = 0

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise GroupFormatError("record ends in the middle of a field")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def i16(self) -> int:
        return int(_I16.unpack(self._take(2))[0])

    def i32(self) -> int:
        return int(_I32.unpack(self._take(4))[0])

    def i64(self) -> int:
        return int(_I64.unpack(self._take(8))[0])

    def nullable_text(self) -> str | None:
        size = self.i16()
        if size < 0:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise GroupFormatError("text is not UTF-8") from None

    def text(self) -> str:
        text = self.nullable_text()
        if text is None:
            raise GroupFormatError("null where text is required")
        return text

    def data(self) -> bytes:
        return self._take(self.i32())

    def varint(self) -> int:
        value = self._take(1)[0]
        if value < 0x80:
            return value
        value &= 0x7F
        for shift in range(7, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise GroupFormatError("varint is too long")

    def compact_text(self) -> str:
        size = self.varint() - 1
        if size < 0:
            raise GroupFormatError("null where text is required")
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise GroupFormatError("text is not UTF-8") from None

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def starts_with(self, start: bytes) -> bool:
        return self._data.startswith(start, self._at)

    def rest(self) -> bytes:
        return self._take(self.left)

    def tagged_fields(self) -> dict[int, bytes]:
        fields: dict[int, bytes] = {}
        for _ in range(self.varint()):
            tag = self.varint()
            fields[tag] = self._take(self.varint())
        return fields


def _text(value: str | None) -> bytes:
    if value is None:
        return _I16.pack(-1)
    raw = value.encode()
    return _I16.pack(len(raw)) + raw


def _data(value: bytes) -> bytes:
    return _I32.pack(len(value)) + value


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _tagged_fields(fields: dict[int, bytes]) -> bytes:
    parts = [_varint(len(fields))]
    for tag, content in sorted(fields.items()):
        parts += (_varint(tag), _varint(len(content)), content)
    return b"".join(parts)


def storable(*texts: str | None) -> bool:
    """Whether a record can hold these texts."""
    return all(text is None or len(text.encode()) <= TEXT_BYTES_MAX for text in texts)


def encode_record(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Key and value of the log record."""
    match record:
        case OffsetRecord():
            return _offset_key(record), _offset_value(record)
        case OffsetTombstone():
            return _offset_key(record), None
        case GroupRecord():
            return _group_key(record.group_id), _group_value(record)
        case GroupTombstone():
            return _group_key(record.group_id), None


def pieces(records: Iterable[CoordinatorRecord], bytes_max: int) -> Iterator[tuple[CoordinatorRecord, ...]]:
    """The same records in batches of at most about `bytes_max`, at least one in each."""
    piece: list[CoordinatorRecord] = []
    size = 0
    for record in records:
        key, value = encode_record(record)
        added = len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES
        if piece and size + added > bytes_max:
            yield tuple(piece)
            piece, size = [], 0
        piece.append(record)
        size += added
    if piece:
        yield tuple(piece)


def decode_record(key: bytes | memoryview | None, value: bytes | memoryview | None) -> CoordinatorRecord | None:
    """The record behind a key and a value; None for a kind that this version does not keep. Raises GroupFormatError."""
    if key is None:
        raise GroupFormatError("a record without a key")
    reader = _Reader(key)
    version = reader.i16()
    if version in _OFFSET_KEY_VERSIONS:
        group_id, topic, partition = reader.text(), reader.text(), reader.i32()
        if value is None:
            return OffsetTombstone(group_id=group_id, topic=topic, partition=partition)
        return _read_offset(group_id, topic, partition, _Reader(value))
    if version == _GROUP_KEY_VERSION:
        group_id = reader.text()
        return GroupTombstone(group_id=group_id) if value is None else _read_group(group_id, _Reader(value))
    return None


def _offset_key(record: OffsetRecord | OffsetTombstone) -> bytes:
    return _I16.pack(1) + _text(record.group_id) + _text(record.topic) + _I32.pack(record.partition)


def _group_key(group_id: str) -> bytes:
    return _I16.pack(_GROUP_KEY_VERSION) + _text(group_id)


def _offset_value(record: OffsetRecord) -> bytes:
    metadata = record.metadata.encode()
    if record.topic_id != ZERO_UUID and record.expire_timestamp_ms < 0:
        fields = _TOPIC_ID_ONLY + record.topic_id.bytes
    else:
        fields = _tagged_fields(_offset_fields(record))
    return b"".join(
        (
            _OFFSET_HEAD.pack(_OFFSET_VALUE_VERSION, record.offset, record.leader_epoch),
            _varint(len(metadata) + 1),
            metadata,
            _I64.pack(record.commit_timestamp_ms),
            fields,
        )
    )


def _offset_fields(record: OffsetRecord) -> dict[int, bytes]:
    fields: dict[int, bytes] = {}
    if record.topic_id != ZERO_UUID:
        fields[_TOPIC_ID_TAG] = record.topic_id.bytes
    if record.expire_timestamp_ms >= 0:
        fields[_EXPIRY_TAG] = _I64.pack(record.expire_timestamp_ms)
    return fields


@lru_cache(maxsize=4096)
def _topic_id(raw: bytes) -> uuid.UUID:
    """One object for all offsets of a topic."""
    return uuid.UUID(bytes=_sized(raw, 16))


def _read_offset(group_id: str, topic: str, partition: int, reader: _Reader) -> OffsetRecord:
    version = reader.i16()
    if not 0 <= version <= _OFFSET_VALUE_VERSION:
        raise GroupFormatError(f"offset value version {version} is not supported")
    flexible = version >= 4
    offset = reader.i64()
    leader_epoch = reader.i32() if version >= 3 else -1
    metadata = reader.compact_text() if flexible else reader.text()
    committed = reader.i64()
    expires = reader.i64() if version == 1 else -1
    topic_id = ZERO_UUID
    if flexible:
        topic_id, expires = _read_offset_fields(reader)
    return OffsetRecord(
        group_id=group_id,
        topic=topic,
        partition=partition,
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp_ms=committed,
        expire_timestamp_ms=expires,
        topic_id=topic_id,
    )


def _read_offset_fields(reader: _Reader) -> tuple[uuid.UUID, int]:
    if reader.left == len(_TOPIC_ID_ONLY) + 16 and reader.starts_with(_TOPIC_ID_ONLY):
        return _topic_id(reader.rest()[len(_TOPIC_ID_ONLY) :]), -1
    fields = reader.tagged_fields()
    topic_id = _topic_id(fields[_TOPIC_ID_TAG]) if _TOPIC_ID_TAG in fields else ZERO_UUID
    expires = int(_I64.unpack(_sized(fields[_EXPIRY_TAG], _I64.size))[0]) if _EXPIRY_TAG in fields else -1
    return topic_id, expires


def _sized(content: bytes, size: int) -> bytes:
    if len(content) != size:
        raise GroupFormatError(f"a tagged field of {len(content)} bytes where {size} are due")
    return content


def _group_value(record: GroupRecord) -> bytes:
    parts = [
        _I16.pack(_GROUP_VALUE_VERSION),
        _text(record.protocol_type),
        _I32.pack(record.generation_id),
        _text(record.protocol_name),
        _text(record.leader),
        _I64.pack(record.state_timestamp_ms),
        _I32.pack(len(record.members)),
    ]
    for member in record.members:
        parts += (
            _text(member.member_id),
            _text(member.group_instance_id),
            _text(member.client_id),
            _text(member.client_host),
            _I32.pack(member.rebalance_timeout_ms),
            _I32.pack(member.session_timeout_ms),
            _data(member.subscription),
            _data(member.assignment),
        )
    return b"".join(parts)


def _read_group(group_id: str, reader: _Reader) -> GroupRecord:
    version = reader.i16()
    if not 0 <= version <= _GROUP_VALUE_VERSION:
        raise GroupFormatError(f"group value version {version} is not supported")
    protocol_type, generation = reader.text(), reader.i32()
    protocol_name, leader = reader.nullable_text(), reader.nullable_text()
    stamp = reader.i64() if version >= 2 else -1
    count = reader.i32()
    return GroupRecord(
        group_id=group_id,
        protocol_type=protocol_type,
        generation_id=generation,
        protocol_name=protocol_name,
        leader=leader,
        state_timestamp_ms=stamp,
        members=tuple(_read_member(reader, version) for _ in range(max(count, 0))),
    )


def _read_member(reader: _Reader, version: int) -> MemberRecord:
    member_id = reader.text()
    instance = reader.nullable_text() if version >= 3 else None
    client_id, client_host = reader.text(), reader.text()
    rebalance = reader.i32() if version >= 1 else -1
    session = reader.i32()
    return MemberRecord(
        member_id=member_id,
        group_instance_id=instance,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=rebalance if rebalance >= 0 else session,
        session_timeout_ms=session,
        subscription=reader.data(),
        assignment=reader.data(),
    )
