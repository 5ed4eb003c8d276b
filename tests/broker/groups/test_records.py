"""Group records: round trips, the bytes of Kafka, damaged bytes."""

import contextlib
import dataclasses
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.broker.groups.records import (
    CoordinatorRecord,
    GroupFormatError,
    GroupRecord,
    GroupTombstone,
    MemberRecord,
    OffsetRecord,
    OffsetTombstone,
    decode_record,
    encode_record,
    storable,
)

texts = st.text(max_size=20)
numbers = st.integers(-(2**31), 2**31 - 1)
long_numbers = st.integers(-(2**63), 2**63 - 1)
members = st.builds(
    MemberRecord,
    member_id=texts,
    group_instance_id=st.none() | texts,
    client_id=texts,
    client_host=texts,
    rebalance_timeout_ms=st.integers(0, 2**31 - 1),
    session_timeout_ms=numbers,
    subscription=st.binary(max_size=30),
    assignment=st.binary(max_size=30),
)
records = st.one_of(
    st.builds(
        OffsetRecord,
        group_id=texts,
        topic=texts,
        partition=numbers,
        offset=long_numbers,
        leader_epoch=numbers,
        metadata=texts,
        commit_timestamp_ms=long_numbers,
    ),
    st.builds(
        OffsetRecord,
        group_id=texts,
        topic=texts,
        partition=numbers,
        offset=long_numbers,
        leader_epoch=st.just(-1),  # the version with an expiry has no room for it
        metadata=texts,
        commit_timestamp_ms=long_numbers,
        expire_timestamp_ms=st.integers(0, 2**63 - 1),
    ),
    st.builds(OffsetTombstone, group_id=texts, topic=texts, partition=numbers),
    st.builds(GroupTombstone, group_id=texts),
    st.builds(
        GroupRecord,
        group_id=texts,
        protocol_type=texts,
        generation_id=numbers,
        protocol_name=st.none() | texts,
        leader=st.none() | texts,
        state_timestamp_ms=long_numbers,
        members=st.lists(members, max_size=3).map(tuple),
    ),
)


@given(records)
def test_round_trip(record: CoordinatorRecord) -> None:
    assert decode_record(*encode_record(record)) == record


@given(records, st.data())
def test_a_cut_record_is_an_error_and_nothing_else(record: CoordinatorRecord, data: st.DataObject) -> None:
    key, value = encode_record(record)
    if value:
        cut = data.draw(st.integers(0, len(value) - 1))
        with pytest.raises(GroupFormatError):
            decode_record(key, value[:cut])
    with pytest.raises(GroupFormatError):
        decode_record(key[: data.draw(st.integers(0, len(key) - 1))], value)


@given(st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_any_bytes_are_a_record_unknown_or_an_error(key: bytes, value: bytes | None) -> None:
    with contextlib.suppress(GroupFormatError):
        decode_record(key, value)


def test_bytes_of_an_offset_are_those_of_kafka() -> None:
    record = OffsetRecord(
        group_id="g",
        topic="t",
        partition=1,
        offset=2,
        leader_epoch=3,
        metadata="m",
        commit_timestamp_ms=4,
    )
    key, value = encode_record(record)
    assert key == b"\0\x01" + b"\0\x01g" + b"\0\x01t" + b"\0\0\0\x01"
    assert value == b"\0\x03" + bytes(7) + b"\x02" + b"\0\0\0\x03" + b"\0\x01m" + bytes(7) + b"\x04"


def test_older_values_are_read() -> None:
    key, _ = encode_record(OffsetTombstone(group_id="g", topic="t", partition=1))
    oldest = b"\0\0" + bytes(7) + b"\x09" + b"\0\0" + bytes(7) + b"\x07"
    record = decode_record(key, oldest)
    assert isinstance(record, OffsetRecord)
    assert (record.offset, record.leader_epoch, record.commit_timestamp_ms) == (9, -1, 7)
    group_key, _ = encode_record(GroupTombstone(group_id="g"))
    member = b"\0\x01a" + b"\0\x01b" + b"\0\x01c" + b"\0\0\0\x05" + bytes(4) + bytes(4)
    group = decode_record(
        group_key, b"\0\0" + b"\0\x01p" + b"\0\0\0\x02" + b"\xff\xff" + b"\xff\xff" + b"\0\0\0\x01" + member
    )
    assert isinstance(group, GroupRecord)
    assert group.members[0].session_timeout_ms == group.members[0].rebalance_timeout_ms == 5


def test_unknown_kinds_are_skipped_and_missing_keys_are_not() -> None:
    assert decode_record(b"\0\x09rest", b"value") is None
    with pytest.raises(GroupFormatError):
        decode_record(None, b"")


@pytest.mark.parametrize(("text", "fits"), [("g" * 32_767, True), ("g" * 32_768, False), ("ü" * 16_384, False)])
def test_what_is_called_storable_is_what_can_be_written(text: str, fits: bool) -> None:
    assert storable(None, "", text) is fits
    record = OffsetTombstone(group_id=text, topic="t", partition=0)
    if fits:
        assert decode_record(*encode_record(record)) == record
    else:
        with pytest.raises(struct.error):
            encode_record(record)


def test_an_offset_of_kafka_4_3_is_read_without_its_tagged_field() -> None:
    """As a node wrote it: version 4, compact text, the topic's id in tagged field 0."""
    key = bytes.fromhex("0001 0002 6731 0003 6f6e65 00000001")
    value = bytes.fromhex(
        "0004 0000000000000032 00000000 01 000001a200635f47 01 00 10 dcd1207fbe4c42e4888a0562da9ee3fc"
    )
    expected = OffsetRecord(
        group_id="g1",
        topic="one",
        partition=1,
        offset=50,
        leader_epoch=0,
        metadata="",
        commit_timestamp_ms=0x1A200635F47,
    )
    assert decode_record(key, value) == expected
    assert decode_record(key, value[:14] + b"\x03hi" + value[15:]) == dataclasses.replace(expected, metadata="hi")
    for size in range(len(value)):
        with pytest.raises(GroupFormatError):
            decode_record(key, value[:size])
    with pytest.raises(GroupFormatError, match="version 5"):
        decode_record(key, b"\0\5" + value[2:])
