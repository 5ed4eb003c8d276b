"""Metadata records: round trips, the bytes of Kafka, damaged bytes."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.broker.quorum.records import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    MetadataFormatError,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    decode_record,
    encode_record,
)

texts = st.text(max_size=200)
i16 = st.integers(-(2**15), 2**15 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
nodes = st.lists(i32, max_size=4).map(tuple)
records = st.one_of(
    st.builds(
        RegisterBrokerRecord,
        broker_id=i32,
        incarnation_id=st.uuids(),
        broker_epoch=i64,
        end_points=st.lists(
            st.builds(BrokerEndpoint, name=texts, host=texts, port=st.integers(0, 65535), security_protocol=i16),
            max_size=2,
        ).map(tuple),
        features=st.lists(
            st.builds(BrokerFeature, name=texts, min_supported_version=i16, max_supported_version=i16), max_size=2
        ).map(tuple),
        rack=st.none() | texts,
        fenced=st.booleans(),
        in_controlled_shutdown=st.booleans(),
    ),
    st.builds(UnregisterBrokerRecord, broker_id=i32, broker_epoch=i64),
    st.builds(PartitionChangeRecord, partition_id=i32, topic_id=st.uuids(), leader=i32),
    st.builds(TopicRecord, name=texts, topic_id=st.uuids()),
    st.builds(
        PartitionRecord,
        partition_id=i32,
        topic_id=st.uuids(),
        replicas=nodes,
        isr=nodes,
        removing_replicas=nodes,
        adding_replicas=nodes,
        leader=i32,
        leader_epoch=i32,
        partition_epoch=i32,
    ),
    st.builds(
        ConfigRecord,
        resource_type=st.integers(-128, 127),
        resource_name=texts,
        name=texts,
        value=st.none() | texts,
    ),
    st.builds(RemoveTopicRecord, topic_id=st.uuids()),
    st.builds(ProducerIdsRecord, broker_id=i32, broker_epoch=i64, next_producer_id=i64),
)


@given(records)
def test_round_trip(record: MetadataRecord) -> None:
    assert decode_record(encode_record(record)) == record


@given(records, st.data())
def test_a_cut_record_is_an_error_and_nothing_else(record: MetadataRecord, data: st.DataObject) -> None:
    value = encode_record(record)
    with pytest.raises(MetadataFormatError):
        decode_record(value[: data.draw(st.integers(0, len(value) - 1))])
    with pytest.raises(MetadataFormatError):
        decode_record(value + b"\0")


@given(st.binary(max_size=80))
def test_any_bytes_are_a_record_or_an_error(value: bytes) -> None:
    try:
        record = decode_record(b"\x01" + value)
    except MetadataFormatError:
        return
    assert decode_record(encode_record(record)) == record


def test_bytes_of_a_topic_are_those_of_kafka() -> None:
    topic_id = uuid.UUID(bytes=bytes(range(16)))
    assert (
        encode_record(TopicRecord(name="foo", topic_id=topic_id)) == b"\x01\x02\x00\x04foo" + bytes(range(16)) + b"\0"
    )


def test_tagged_fields_of_newer_writers_are_passed_over() -> None:
    value = encode_record(RemoveTopicRecord(topic_id=uuid.UUID(int=1)))
    tagged = value[:-1] + b"\x01" + b"\x07" + b"\x02" + b"xy"
    assert decode_record(tagged) == RemoveTopicRecord(topic_id=uuid.UUID(int=1))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"\x02\x02\x00", "frame version 2"),
        (b"\x01\x63\x00", "record type 99"),
        (b"\x01\x02\x05", "type 2 version 5"),
        (b"\x01" + b"\xff" * 6, "varint is too long"),
        (b"\x01\x02\x00\x00" + bytes(17), "null"),
        (b"\x01\x02\x00\x03\xff\xfe" + bytes(17), "UTF-8"),
        (b"\x01\x03\x00" + bytes(20) + b"\xff\xff\x7f", "does not fit"),
    ],
)
def test_errors_say_what_is_wrong(value: bytes, says: str) -> None:
    with pytest.raises(MetadataFormatError, match=says):
        decode_record(value)
