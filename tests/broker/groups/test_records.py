"""Group records: round trips, the bytes of Kafka, damaged bytes."""

import contextlib
import dataclasses
import struct
import uuid

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
    pieces,
    storable,
)
from tidemill.core.types import ZERO_UUID

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
        metadata=texts | st.text(min_size=126, max_size=130),  # where the length takes a second byte
        commit_timestamp_ms=long_numbers,
        expire_timestamp_ms=st.just(-1) | st.integers(0, 2**63 - 1),
        topic_id=st.just(ZERO_UUID) | st.uuids(),
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


def test_older_values_are_read() -> None:
    key, _ = encode_record(OffsetTombstone(group_id="g", topic="t", partition=1))
    assert key == b"\0\x01" + b"\0\x01g" + b"\0\x01t" + b"\0\0\0\x01"
    expected = OffsetRecord(
        group_id="g", topic="t", partition=1, offset=9, leader_epoch=-1, metadata="m", commit_timestamp_ms=7
    )
    head, tail = bytes(7) + b"\x09", b"\0\x01m" + bytes(7) + b"\x07"
    assert decode_record(key, b"\0\0" + head + tail) == decode_record(key, b"\0\2" + head + tail) == expected
    expiring = decode_record(key, b"\0\1" + head + tail + bytes(7) + b"\x08")
    assert expiring == dataclasses.replace(expected, expire_timestamp_ms=8)
    with_epoch = decode_record(key, b"\0\3" + head + b"\0\0\0\3" + tail)
    assert with_epoch == dataclasses.replace(expected, leader_epoch=3)
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


def test_bytes_of_an_offset_are_those_of_kafka_4_3() -> None:
    """As a node wrote it: version 4, compact text, the topic's id in tagged field 0."""
    key = bytes.fromhex("0001 0002 6731 0003 6f6e65 00000001")
    value = bytes.fromhex(
        "0004 0000000000000032 00000000 01 000001a200635f47 01 00 10 dcd1207fbe4c42e4888a0562da9ee3fc"
    )
    record = OffsetRecord(
        group_id="g1",
        topic="one",
        partition=1,
        offset=50,
        leader_epoch=0,
        metadata="",
        commit_timestamp_ms=0x1A200635F47,
        topic_id=uuid.UUID("dcd1207f-be4c-42e4-888a-0562da9ee3fc"),
    )
    assert encode_record(record) == (key, value)
    assert decode_record(key, value) == record
    assert decode_record(key, value[:14] + b"\x03hi" + value[15:]) == dataclasses.replace(record, metadata="hi")
    for size in range(len(value)):
        with pytest.raises(GroupFormatError):
            decode_record(key, value[:size])
    with pytest.raises(GroupFormatError, match="version 5"):
        decode_record(key, b"\0\5" + value[2:])
    with pytest.raises(GroupFormatError, match="15 bytes"):
        decode_record(key, value[:25] + b"\x0f" + value[26:-1])


def test_fields_of_later_versions_are_passed_over() -> None:
    key, value = encode_record(
        OffsetRecord(
            group_id="g", topic="t", partition=1, offset=9, leader_epoch=-1, metadata="m", commit_timestamp_ms=7
        )
    )
    assert value is not None and value[-1:] == b"\0"
    assert decode_record(key, value[:-1] + b"\1\x05\2ab") == decode_record(key, value)


def test_pieces_are_of_bounded_size_and_in_order() -> None:
    tombstones = [OffsetTombstone(group_id="g", topic="t" * 50, partition=index) for index in range(100)]
    found = list(pieces(tombstones, 1000))
    assert [record for piece in found for record in piece] == tombstones
    assert [len(piece) for piece in found] == [11] * 9 + [1]
    assert list(pieces(tombstones[:2], 1)) == [(tombstones[0],), (tombstones[1],)]
    assert list(pieces([], 1)) == []
