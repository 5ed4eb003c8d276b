"""The pgoutput decoder: what goes in comes out, and nothing else goes in"""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.plugins.postgres.pgoutput import (
    POSTGRES_EPOCH_US,
    UNCHANGED,
    Begin,
    Commit,
    DecodeError,
    Delete,
    Insert,
    Message,
    Origin,
    PgoutputMessage,
    Relation,
    RelationColumn,
    Row,
    Truncate,
    Type,
    Update,
    decode,
)

names = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=20)
oids = st.integers(0, 2**32 - 1)
positions = st.integers(0, 2**63 - 1)
times = st.integers(-(2**62), 2**62)
values = st.one_of(st.none(), st.just(UNCHANGED), st.binary(max_size=40))
rows = st.lists(values, max_size=6).map(tuple)


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def row(value: Row) -> bytes:
    out = struct.pack("!H", len(value))
    for each in value:
        if each is None:
            out += b"n"
        elif isinstance(each, bytes):
            out += b"t" + struct.pack("!I", len(each)) + each
        else:
            out += b"u"
    return out


def encode(message: PgoutputMessage) -> bytes:
    match message:
        case Begin(final_lsn=lsn, commit_time_us=time, xid=xid):
            return b"B" + struct.pack("!QqI", lsn, time - POSTGRES_EPOCH_US, xid)
        case Commit(commit_lsn=lsn, end_lsn=end, commit_time_us=time):
            return b"C\0" + struct.pack("!QQq", lsn, end, time - POSTGRES_EPOCH_US)
        case Origin(lsn=lsn, name=name):
            return b"O" + struct.pack("!Q", lsn) + text(name)
        case Relation():
            out = b"R" + struct.pack("!I", message.oid) + text(message.schema) + text(message.table)
            out += message.replica_identity.encode() + struct.pack("!H", len(message.columns))
            for column in message.columns:
                out += bytes([column.part_of_key]) + text(column.name)
                out += struct.pack("!Ii", column.type_oid, column.type_modifier)
            return out
        case Type(oid=oid, schema=schema, name=name):
            return b"Y" + struct.pack("!I", oid) + text(schema) + text(name)
        case Insert(relation=oid, new=new):
            return b"I" + struct.pack("!I", oid) + b"N" + row(new)
        case Update(relation=oid, new=new, key=key, old=old):
            before = b"K" + row(key) if key is not None else b"O" + row(old) if old is not None else b""
            return b"U" + struct.pack("!I", oid) + before + b"N" + row(new)
        case Delete(relation=oid, key=key, old=old):
            return b"D" + struct.pack("!I", oid) + (b"K" + row(key) if key is not None else b"O" + row(old or ()))
        case Truncate(relations=oids, cascade=cascade, restart_identity=restart):
            flags = cascade | restart << 1
            return b"T" + struct.pack("!IB", len(oids), flags) + b"".join(struct.pack("!I", oid) for oid in oids)
        case Message(transactional=flag, lsn=lsn, prefix=prefix, content=content):
            out = b"M" + struct.pack("!BQ", flag, lsn) + text(prefix)
            return out + struct.pack("!I", len(content)) + content


columns = st.builds(
    RelationColumn,
    name=names,
    type_oid=oids,
    type_modifier=st.integers(-(2**31), 2**31 - 1),
    part_of_key=st.booleans(),
)
messages = st.one_of(
    st.builds(Begin, final_lsn=positions, commit_time_us=times, xid=oids),
    st.builds(Commit, commit_lsn=positions, end_lsn=positions, commit_time_us=times),
    st.builds(Origin, lsn=positions, name=names),
    st.builds(
        Relation,
        oid=oids,
        schema=names,
        table=names,
        replica_identity=st.sampled_from("dfin"),
        columns=st.lists(columns, max_size=4).map(tuple),
    ),
    st.builds(Type, oid=oids, schema=names, name=names),
    st.builds(Insert, relation=oids, new=rows),
    st.builds(Update, relation=oids, new=rows),
    st.builds(Update, relation=oids, new=rows, key=rows),
    st.builds(Update, relation=oids, new=rows, old=rows),
    st.builds(Delete, relation=oids, key=rows),
    st.builds(Delete, relation=oids, old=rows),
    st.builds(
        Truncate, relations=st.lists(oids, max_size=4).map(tuple), cascade=st.booleans(), restart_identity=st.booleans()
    ),
    st.builds(Message, transactional=st.booleans(), lsn=positions, prefix=names, content=st.binary(max_size=30)),
)


@given(messages)
def test_every_message_is_read_back(message: PgoutputMessage) -> None:
    assert decode(encode(message)) == message


@given(messages)
def test_a_message_cut_anywhere_is_refused(message: PgoutputMessage) -> None:
    data = encode(message)
    for end in range(len(data)):
        with pytest.raises(DecodeError):
            decode(data[:end])


@given(messages, st.binary(min_size=1, max_size=8))
def test_trailing_bytes_are_refused(message: PgoutputMessage, extra: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(encode(message) + extra)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_a_message_or_a_decode_error(data: bytes) -> None:
    try:
        decode(data)
    except DecodeError:
        return


@given(messages, st.integers(0, 10_000), st.integers(0, 255))
def test_one_wrong_byte_is_a_message_or_a_decode_error(message: PgoutputMessage, at: int, byte: int) -> None:
    data = bytearray(encode(message))
    data[at % len(data)] = byte
    try:
        decode(bytes(data))
    except DecodeError:
        return


def test_the_system_schema_travels_as_an_empty_name() -> None:
    assert decode(b"Y" + struct.pack("!I", 7) + b"\0int4\0") == Type(oid=7, schema="pg_catalog", name="int4")


def test_an_unknown_message_says_what_is_spoken() -> None:
    with pytest.raises(DecodeError, match="version 1"):
        decode(b"S1234")
