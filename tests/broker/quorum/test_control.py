"""Control records: Kafka's bytes, and everything comes back."""

import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.broker.quorum.control import (
    KRAFT_VERSION,
    KRAFT_VOTERS,
    LEADER_CHANGE,
    ControlRecord,
    KRaftVersion,
    LeaderChange,
    OtherControl,
    SnapshotFooter,
    SnapshotHeader,
    Voters,
    control_batch,
    control_records,
)
from tidemill.broker.quorum.raft.voters import Voter, VoterEndpoint, VoterSet
from tidemill.broker.quorum.records import MetadataFormatError
from tidemill.broker.quorum.snapshot import encode
from tidemill.core.records.batch import BatchView
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, decode_records

DIRECTORY = uuid.UUID(int=0x0102030405060708090A0B0C0D0E0F10)

ids = st.integers(0, 2**31 - 1)
versions = st.integers(0, 2**15 - 1)
endpoints = st.builds(VoterEndpoint, st.text(max_size=20), st.text(max_size=20), st.integers(0, 2**16 - 1))
voters = st.builds(
    Voter,
    node_id=ids,
    directory_id=st.uuids(),
    endpoints=st.lists(endpoints, max_size=3).map(tuple),
    kraft_versions=st.tuples(versions, versions),
)
records = st.one_of(
    st.builds(
        LeaderChange,
        leader_id=ids,
        voters=st.lists(ids, max_size=200).map(tuple),
        granting_voters=st.lists(ids, max_size=5).map(tuple),
    ),
    st.builds(SnapshotHeader, last_contained_log_ms=st.integers(-(2**63), 2**63 - 1)),
    st.just(SnapshotFooter()),
    st.builds(KRaftVersion, version=versions),
    st.builds(
        Voters,
        voters=st.lists(voters, max_size=9, unique_by=lambda each: each.node_id).map(VoterSet.of),
    ),
)


def batch(*given: ControlRecord) -> BatchView:
    return BatchView(control_batch(given, base_offset=7, epoch=3, now_ms=1000))


def raw(kind: int, value: bytes, key_version: int = 0) -> BatchView:
    record = NewRecord(timestamp=0, key=struct.pack(">hh", key_version, kind), value=value)
    return BatchView(build_batch([record], control=True))


@given(st.lists(records, min_size=1, max_size=4))
def test_everything_comes_back(given: list[ControlRecord]) -> None:
    view = batch(*given)
    assert view.is_control and view.verify_crc()
    assert (view.base_offset, view.leader_epoch, view.record_count) == (7, 3, len(given))
    assert list(control_records(view)) == given


def test_the_bytes_are_kafkas() -> None:
    voter = Voter(node_id=1, directory_id=DIRECTORY, endpoints=(VoterEndpoint("C", "h", 9093),), kraft_versions=(0, 1))
    view = batch(
        LeaderChange(leader_id=2, voters=(1, 2), granting_voters=(2,)),
        KRaftVersion(version=1),
        Voters(voters=VoterSet.of([voter])),
    )
    found = [(bytes(record.key or b""), bytes(record.value or b"")) for record in decode_records(view)]
    assert found == [
        (b"\0\0\0\x02", bytes.fromhex("0000 00000002 03 00000001 00 00000002 00 02 00000002 00 00")),
        (b"\0\0\0\x05", bytes.fromhex("0000 0001 00")),
        (
            b"\0\0\0\x06",
            bytes.fromhex("0000 02 00000001 0102030405060708090a0b0c0d0e0f10 02 0243 0268 2385 00 0000 0001 00 00 00"),
        ),
    ]


def test_a_snapshot_begins_and_ends_with_the_same_bytes() -> None:
    first, last = encode((), epoch=3, now_ms=1000)
    assert first == control_batch([SnapshotHeader(last_contained_log_ms=1000)], base_offset=0, epoch=3, now_ms=1000)
    assert last == control_batch([SnapshotFooter()], base_offset=1, epoch=3, now_ms=1000)


def test_directories_in_a_change_of_leaders_are_passed_over() -> None:
    ids_with_directories = b"\x02" + struct.pack(">i", 4) + DIRECTORY.bytes + b"\0"
    value = struct.pack(">hi", 1, 4) + ids_with_directories * 2 + b"\0"
    assert control_records(raw(LEADER_CHANGE, value)) == (LeaderChange(leader_id=4, voters=(4,), granting_voters=(4,)),)


def test_tagged_fields_of_newer_writers_are_passed_over() -> None:
    value = bytes.fromhex("0000 0001 01 07 03 616263")
    assert control_records(raw(KRAFT_VERSION, value)) == (KRaftVersion(version=1),)


def test_types_that_are_not_ours_are_known_by_their_numbers() -> None:
    assert control_records(raw(1, b"whatever")) == (OtherControl(kind=1),)
    with pytest.raises(ValueError, match="type 1 are not written"):
        batch(OtherControl(kind=1))


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (KRAFT_VOTERS, b"\0\x01\x01\0", "version 1 of the voters record is not known"),
        (LEADER_CHANGE, b"\0\x02" + bytes(7), "version 2 of the leader change record"),
        (KRAFT_VERSION, b"\0\0\0", "ends in the middle"),
        (KRAFT_VERSION, bytes(6), "1 bytes too many"),
        (KRAFT_VOTERS, b"\0\0\x7f\0", "array of 126 elements"),
    ],
)
def test_what_cannot_be_read_is_refused_and_named(kind: int, value: bytes, says: str) -> None:
    with pytest.raises(MetadataFormatError, match=says):
        control_records(raw(kind, value))


@given(records, st.data())
def test_a_value_that_ends_too_soon_is_refused(given: ControlRecord, data: st.DataObject) -> None:
    (record,) = decode_records(batch(given))
    value = bytes(record.value or b"")
    kind = struct.unpack(">hh", bytes(record.key or b""))[1]
    with pytest.raises(MetadataFormatError):
        control_records(raw(kind, value[: data.draw(st.integers(0, len(value) - 1))]))
