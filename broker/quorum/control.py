"""Control records: what the quorum writes into its log about itself

Who leads, who votes, which version of the quorum's records is in force, where a snapshot begins and ends. They are in
batches with the control bit, in Kafka's formats, so that its dump tool reads them: the key is a version and a type, the
value a message in flexible encoding that begins with a version of its own. They take offsets like all others, and the
image never hears of them. Of the value of an unknown type nothing is known; a version that is not known is refused, for
a voter set that is read wrongly elects two leaders.

A change of leaders is written in version 0, which has no directories: it is the one that Kafka's tools read.
"""

import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from tidemill.broker.quorum.raft.voters import Voter, VoterEndpoint, VoterSet
from tidemill.broker.quorum.records import Cursor, MetadataFormatError
from tidemill.core.errors import KafkaError
from tidemill.core.records.batch import BatchView
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, decode_records
from tidemill.core.wire.primitives import uvarint

LEADER_CHANGE: Final = 2
SNAPSHOT_HEADER: Final = 3
SNAPSHOT_FOOTER: Final = 4
KRAFT_VERSION: Final = 5
KRAFT_VOTERS: Final = 6

_KEY = struct.Struct(">hh")  # version, type
_I16, _I32, _I64, _U16 = (struct.Struct(">" + form) for form in "hiqH")
_NO_TAGS = b"\0"

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChange:
    """An epoch has begun: who leads it, among which voters, and who voted for it."""

    leader_id: int
    voters: tuple[int, ...] = ()
    granting_voters: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeader:
    """The first record of a snapshot; the time is that of the last record that is in it."""

    last_contained_log_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFooter:
    """The last record of a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersion:
    """From here on the quorum's records are of this version; 1 is the one with voters in the log (KIP-853)."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Voters:
    """From here on these vote."""

    voters: VoterSet


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherControl:
    """A type that this version has no use for."""

    kind: int


ControlRecord: TypeAlias = LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | Voters | OtherControl
StandingRecord: TypeAlias = KRaftVersion | Voters
"""What holds until another of its kind comes, so that a snapshot has to say it too."""


def control_batch(records: Sequence[ControlRecord], *, base_offset: int, epoch: int, now_ms: int) -> bytes:
    """One batch of these; there is no writing an OtherControl."""
    values = [NewRecord(now_ms, _KEY.pack(0, kind), value) for kind, value in map(_encode, records)]
    return build_batch(values, base_offset=base_offset, leader_epoch=epoch, control=True)


def control_records(view: BatchView) -> tuple[ControlRecord, ...]:
    """What is in a control batch; raises MetadataFormatError."""
    try:
        records = decode_records(view)
    except KafkaError as error:
        raise MetadataFormatError(str(error)) from None
    return tuple(_decode(record.key or b"", record.value or b"") for record in records)


# --- writing


def _encode(record: ControlRecord) -> tuple[int, bytes]:
    match record:
        case LeaderChange():
            body = _I32.pack(record.leader_id) + _ids(record.voters) + _ids(record.granting_voters)
            return LEADER_CHANGE, _message(body)
        case SnapshotHeader():
            return SNAPSHOT_HEADER, _message(_I64.pack(record.last_contained_log_ms))
        case SnapshotFooter():
            return SNAPSHOT_FOOTER, _message(b"")
        case KRaftVersion():
            return KRAFT_VERSION, _message(_I16.pack(record.version))
        case Voters():
            return KRAFT_VOTERS, _message(_array([_voter(each) for each in record.voters]))
        case OtherControl():
            raise ValueError(f"control records of type {record.kind} are not written")


def _message(body: bytes) -> bytes:
    return _I16.pack(0) + body + _NO_TAGS


def _array(items: Sequence[bytes]) -> bytes:
    return uvarint(len(items) + 1) + b"".join(items)


def _ids(node_ids: Sequence[int]) -> bytes:
    return _array([_I32.pack(each) + _NO_TAGS for each in node_ids])


def _voter(voter: Voter) -> bytes:
    end_points = [_text(each.name) + _text(each.host) + _U16.pack(each.port) + _NO_TAGS for each in voter.endpoints]
    versions = b"".join(map(_I16.pack, voter.kraft_versions)) + _NO_TAGS
    return _I32.pack(voter.node_id) + voter.directory_id.bytes + _array(end_points) + versions + _NO_TAGS


def _text(value: str) -> bytes:
    raw = value.encode()
    return uvarint(len(raw) + 1) + raw


# --- reading


def kind_of(key: bytes) -> int:
    """The type of a control record; raises MetadataFormatError."""
    if len(key) != _KEY.size:
        raise MetadataFormatError(f"the key of a control record has {len(key)} bytes")
    kind: int = _KEY.unpack(key)[1]
    return kind


def _decode(key: bytes, value: bytes) -> ControlRecord:
    kind = kind_of(key)
    read = _READERS.get(kind)
    if read is None:
        return OtherControl(kind=kind)
    cursor = Cursor(value)
    version = _number(cursor, _I16)
    record = read(cursor, version)
    _skip_tags(cursor)
    if cursor.position != cursor.end:
        raise MetadataFormatError(f"control record type {kind} has {cursor.end - cursor.position} bytes too many")
    return record


def _read_leader_change(cursor: Cursor, version: int) -> ControlRecord:
    _refuse_above(1, version, "leader change")

    def voter() -> int:
        node_id = _number(cursor, _I32)
        if version >= 1:
            cursor.skip(16)  # the directory
        _skip_tags(cursor)
        return node_id

    leader_id = _number(cursor, _I32)
    return LeaderChange(
        leader_id=leader_id,
        voters=tuple(_items(cursor, voter)),
        granting_voters=tuple(_items(cursor, voter)),
    )


def _read_header(cursor: Cursor, version: int) -> ControlRecord:
    _refuse_above(0, version, "snapshot header")
    return SnapshotHeader(last_contained_log_ms=_number(cursor, _I64))


def _read_footer(_cursor: Cursor, version: int) -> ControlRecord:
    _refuse_above(0, version, "snapshot footer")
    return SnapshotFooter()


def _read_kraft_version(cursor: Cursor, version: int) -> ControlRecord:
    _refuse_above(0, version, "kraft version")
    return KRaftVersion(version=_number(cursor, _I16))


def _read_voters(cursor: Cursor, version: int) -> ControlRecord:
    _refuse_above(0, version, "voters")
    try:
        return Voters(voters=VoterSet.of(_items(cursor, lambda: _read_voter(cursor))))
    except ValueError as error:
        raise MetadataFormatError(str(error)) from None


def _read_voter(cursor: Cursor) -> Voter:
    node_id, directory_id = _number(cursor, _I32), uuid.UUID(bytes=cursor.take(16))
    end_points = tuple(_items(cursor, lambda: _read_endpoint(cursor)))
    versions = _number(cursor, _I16), _number(cursor, _I16)
    _skip_tags(cursor)  # of the range of versions
    _skip_tags(cursor)
    return Voter(node_id=node_id, directory_id=directory_id, endpoints=end_points, kraft_versions=versions)


def _read_endpoint(cursor: Cursor) -> VoterEndpoint:
    name, host, port = _read_text(cursor), _read_text(cursor), _number(cursor, _U16)
    _skip_tags(cursor)
    return VoterEndpoint(name, host, port)


def _refuse_above(known: int, version: int, what: str) -> None:
    if not 0 <= version <= known:
        raise MetadataFormatError(f"version {version} of the {what} record is not known to this version of the broker")


def _number(cursor: Cursor, form: struct.Struct) -> int:
    value: int = form.unpack_from(cursor.buffer, cursor.skip(form.size))[0]
    return value


def _read_text(cursor: Cursor) -> str:
    length = cursor.varint()
    if length == 0:
        raise MetadataFormatError("null where text is required")
    try:
        return cursor.take(length - 1).decode()
    except UnicodeDecodeError:
        raise MetadataFormatError("text is not UTF-8") from None


def _items(cursor: Cursor, item: Callable[[], _Item]) -> Iterator[_Item]:
    count = cursor.varint() - 1
    if not 0 <= count <= cursor.end - cursor.position:
        raise MetadataFormatError(f"array of {count} elements does not fit in the record")
    for _ in range(count):
        yield item()


def _skip_tags(cursor: Cursor) -> None:
    for _ in range(cursor.varint()):
        cursor.varint()
        cursor.skip(cursor.varint())


_READERS: Final[dict[int, Callable[[Cursor, int], ControlRecord]]] = {
    LEADER_CHANGE: _read_leader_change,
    SNAPSHOT_HEADER: _read_header,
    SNAPSHOT_FOOTER: _read_footer,
    KRAFT_VERSION: _read_kraft_version,
    KRAFT_VOTERS: _read_voters,
}
