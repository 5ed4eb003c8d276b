"""The pgoutput protocol, decoded

What PostgreSQL's own logical decoding plugin writes, version 1 in text form, turned into values: a transaction is
Begin, any number of Relation, Type, Insert, Update, Delete, Truncate and Message, then Commit. The decoder holds no
state and no names: rows carry the number of their relation, whoever listens keeps the relations.

Every message is checked to its last byte. Anything else is a `DecodeError`, never an `IndexError` or a silently short
value. Times are microseconds since 1970, positions are integers.

Not here: the decoders of rows that carry the load. They are generated per relation in `codegen`; `decode` is what
they are tested against.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final, TypeAlias

POSTGRES_EPOCH_US: Final = 946_684_800_000_000
"""2000-01-01, from which PostgreSQL counts, in microseconds since 1970."""

INSERT: Final = 73  # I
UPDATE: Final = 85  # U
DELETE: Final = 68  # D
BEGIN: Final = 66  # B
COMMIT: Final = 67  # C

_INT16 = Struct("!H")
_INT32 = Struct("!I")
_SIGNED32 = Struct("!i")
_INT64 = Struct("!Q")
_SIGNED64 = Struct("!q")


class DecodeError(ValueError):
    """The server sent bytes that are not pgoutput version 1."""


class Unchanged:
    """The type of `UNCHANGED`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()
"""A large value that an update did not touch and that the server therefore did not send."""

Value: TypeAlias = bytes | Unchanged | None
Row: TypeAlias = tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """A transaction that committed at `final_lsn` is about to be sent."""

    final_lsn: int
    commit_time_us: int
    xid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The transaction is complete; `end_lsn` is where to resume after it."""

    commit_lsn: int
    end_lsn: int
    commit_time_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The transaction came here by replication."""

    lsn: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationColumn:
    """A published column; `part_of_key` is about the replica identity, not the primary key."""

    name: str
    type_oid: int
    type_modifier: int
    part_of_key: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """The shape of a table's rows from here on."""

    oid: int
    schema: str
    table: str
    replica_identity: str  # d: primary key, f: full, i: index, n: nothing
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """The name of a type that is not built in."""

    oid: int
    schema: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """A new row."""

    relation: int
    new: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A changed row; `key` or `old` is there when the replica identity changed or is FULL."""

    relation: int
    new: Row
    key: Row | None = None
    old: Row | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """A row that is gone, by its key or, with REPLICA IDENTITY FULL, in full."""

    relation: int
    key: Row | None = None
    old: Row | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncate:
    """Tables emptied by one statement."""

    relations: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a program wrote into the log with `pg_logical_emit_message`."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


PgoutputMessage: TypeAlias = Begin | Commit | Origin | Relation | Type | Insert | Update | Delete | Truncate | Message


class _Reader:
    """A cursor over one message that never reads past its end."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 1

    def take(self, size: int) -> bytes:
        end = self.at + size
        if size < 0 or end > len(self.data):
            raise DecodeError(f"{size} bytes wanted at {self.at} of {len(self.data)} in {self.data[:1]!r}")
        part = self.data[self.at : end]
        self.at = end
        return part

    def number(self, layout: Struct) -> int:
        value: int = layout.unpack(self.take(layout.size))[0]
        return value

    def text(self) -> str:
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise DecodeError(f"text without an end at {self.at} in {self.data[:1]!r}")
        part = self.data[self.at : end]
        self.at = end + 1
        try:
            return part.decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"text at {self.at} in {self.data[:1]!r} is not UTF-8") from error

    def tag(self, expected: bytes) -> bytes:
        found = self.take(1)
        if found not in (expected[i : i + 1] for i in range(len(expected))):
            raise DecodeError(f"{found!r} at {self.at - 1} in {self.data[:1]!r}, expected one of {expected!r}")
        return found

    def row(self) -> Row:
        return tuple(self._value() for _ in range(self.number(_INT16)))

    def _value(self) -> Value:
        kind = self.tag(b"tnu")
        if kind == b"t":
            return self.take(self.number(_SIGNED32))
        return None if kind == b"n" else UNCHANGED


def decode(data: bytes) -> PgoutputMessage:
    """Return the message that `data` is; raises DecodeError for anything else."""
    if not data:
        raise DecodeError("an empty message")
    decoder = _DECODERS.get(data[0])
    if decoder is None:
        raise DecodeError(f"unknown message {data[:1]!r}: the connector speaks pgoutput version 1")
    reader = _Reader(data)
    message = decoder(reader)
    if reader.at != len(data):
        raise DecodeError(f"{len(data) - reader.at} bytes too many in {data[:1]!r}")
    return message


def _time_us(reader: _Reader) -> int:
    return reader.number(_SIGNED64) + POSTGRES_EPOCH_US


def _begin(reader: _Reader) -> Begin:
    return Begin(final_lsn=reader.number(_INT64), commit_time_us=_time_us(reader), xid=reader.number(_INT32))


def _commit(reader: _Reader) -> Commit:
    reader.take(1)  # flags, none defined
    return Commit(commit_lsn=reader.number(_INT64), end_lsn=reader.number(_INT64), commit_time_us=_time_us(reader))


def _origin(reader: _Reader) -> Origin:
    return Origin(lsn=reader.number(_INT64), name=reader.text())


def _relation(reader: _Reader) -> Relation:
    return Relation(
        oid=reader.number(_INT32),
        schema=reader.text() or "pg_catalog",  # which the protocol leaves empty
        table=reader.text(),
        replica_identity=reader.tag(b"dfin").decode(),
        columns=tuple(_column(reader) for _ in range(reader.number(_INT16))),
    )


def _column(reader: _Reader) -> RelationColumn:
    return RelationColumn(
        part_of_key=bool(reader.take(1)[0] & 1),
        name=reader.text(),
        type_oid=reader.number(_INT32),
        type_modifier=reader.number(_SIGNED32),
    )


def _type(reader: _Reader) -> Type:
    return Type(oid=reader.number(_INT32), schema=reader.text() or "pg_catalog", name=reader.text())


def _insert(reader: _Reader) -> Insert:
    relation = reader.number(_INT32)
    reader.tag(b"N")
    return Insert(relation=relation, new=reader.row())


def _update(reader: _Reader) -> Update:
    relation = reader.number(_INT32)
    kind = reader.tag(b"KON")
    if kind == b"N":
        return Update(relation=relation, new=reader.row())
    before = reader.row()
    reader.tag(b"N")
    if kind == b"K":
        return Update(relation=relation, key=before, new=reader.row())
    return Update(relation=relation, old=before, new=reader.row())


def _delete(reader: _Reader) -> Delete:
    relation = reader.number(_INT32)
    if reader.tag(b"KO") == b"K":
        return Delete(relation=relation, key=reader.row())
    return Delete(relation=relation, old=reader.row())


def _truncate(reader: _Reader) -> Truncate:
    count = reader.number(_INT32)
    flags = reader.take(1)[0]
    if count * _INT32.size > len(reader.data) - reader.at:
        raise DecodeError(f"{count} relations do not fit into {len(reader.data)} bytes")
    return Truncate(
        relations=tuple(reader.number(_INT32) for _ in range(count)),
        cascade=bool(flags & 1),
        restart_identity=bool(flags & 2),
    )


def _message(reader: _Reader) -> Message:
    flags = reader.take(1)[0]
    return Message(
        transactional=bool(flags & 1),
        lsn=reader.number(_INT64),
        prefix=reader.text(),
        content=reader.take(reader.number(_SIGNED32)),
    )


_DECODERS: Final[Mapping[int, Callable[[_Reader], PgoutputMessage]]] = {
    ord("B"): _begin,
    ord("C"): _commit,
    ord("O"): _origin,
    ord("R"): _relation,
    ord("Y"): _type,
    ord("I"): _insert,
    ord("U"): _update,
    ord("D"): _delete,
    ord("T"): _truncate,
    ord("M"): _message,
}
