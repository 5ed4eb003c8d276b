"""Metadata records: round trips, the bytes of Kafka, damaged bytes."""

import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.quorum import kafka_records as kafka
from tidemill.broker.quorum.records import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    MetadataFormatError,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    decode_record,
    encode_record,
)

texts = st.text(max_size=200)
i8 = st.integers(-128, 127)
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
    st.builds(
        PartitionChangeRecord,
        partition_id=i32,
        topic_id=st.uuids(),
        isr=st.none() | nodes,
        leader=i32,
        replicas=st.none() | nodes,
        removing_replicas=st.none() | nodes,
        adding_replicas=st.none() | nodes,
        leader_recovery_state=i8,
        eligible_leader_replicas=st.none() | nodes,
        last_known_elr=st.none() | nodes,
    ),
    st.builds(BrokerRegistrationChangeRecord, broker_id=i32, broker_epoch=i64, fenced=i8, in_controlled_shutdown=i8),
    st.builds(FeatureLevelRecord, name=texts, feature_level=i16),
    st.builds(
        AccessControlEntryRecord,
        id=st.uuids(),
        resource_type=i8,
        resource_name=texts,
        pattern_type=i8,
        principal=texts,
        host=texts,
        operation=i8,
        permission_type=i8,
    ),
    st.builds(RemoveAccessControlEntryRecord, id=st.uuids()),
    st.builds(
        UserScramCredentialRecord,
        name=texts,
        mechanism=i8,
        salt=st.binary(max_size=40),
        stored_key=st.binary(max_size=200),
        server_key=st.binary(max_size=40),
        iterations=i32,
    ),
    st.builds(RemoveUserScramCredentialRecord, name=texts, mechanism=i8),
    st.builds(
        ClientQuotaRecord,
        entity=st.lists(st.builds(QuotaEntity, entity_type=texts, entity_name=st.none() | texts), max_size=3).map(
            tuple
        ),
        key=texts,
        value=st.floats(allow_nan=False),
        remove=st.booleans(),
    ),
    st.builds(
        DelegationTokenRecord,
        owner=texts,
        requester=texts,
        renewers=st.lists(texts, max_size=3).map(tuple),
        issue_timestamp=i64,
        max_timestamp=i64,
        expiration_timestamp=i64,
        token_id=texts,
    ),
    st.builds(RemoveDelegationTokenRecord, token_id=texts),
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
        leader_recovery_state=i8,
        eligible_leader_replicas=nodes,
        last_known_elr=nodes,
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


ID = uuid.UUID(bytes=bytes(range(16)))


@pytest.mark.parametrize(
    ("record", "value"),
    [
        (
            PartitionChangeRecord(partition_id=1, topic_id=ID, isr=(1, 2), leader=2, adding_replicas=()),
            kafka.change(1, ID, {0: kafka.int32s((1, 2)), 1: kafka.int32(2), 4: kafka.int32s(())}, version=0),
        ),
        (
            PartitionChangeRecord(
                partition_id=1, topic_id=ID, isr=(), eligible_leader_replicas=(2, 3), last_known_elr=(2,)
            ),
            kafka.change(1, ID, {0: kafka.int32s(()), 6: kafka.int32s((2, 3)), 7: kafka.int32s((2,))}, version=2),
        ),
        (
            PartitionChangeRecord(partition_id=1, topic_id=ID, eligible_leader_replicas=()),
            kafka.change(1, ID, {6: kafka.int32s(())}, version=2),
        ),
        (
            PartitionRecord(
                partition_id=1, topic_id=ID, replicas=(1, 2), isr=(1, 2), leader=1, eligible_leader_replicas=(3,)
            ),
            kafka.partition(1, ID, (1, 2), version=2)[:-4] + kafka.tagged({1: kafka.int32s((3,))}),
        ),
        (
            BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=7, fenced=-1),
            b"\x01\x11\x01" + kafka.int32(3) + bytes(7) + b"\x07" + kafka.tagged({0: b"\xff"}),
        ),
        (FeatureLevelRecord(name="f", feature_level=20), b"\x01\x0c\x00\x02f\x00\x14\x00"),
        (
            AccessControlEntryRecord(
                id=ID,
                resource_type=2,
                resource_name="t",
                pattern_type=3,
                principal="User:a",
                host="*",
                operation=4,
                permission_type=3,
            ),
            b"\x01\x12\x00" + ID.bytes + b"\x02\x02t\x03\x07User:a\x02*\x04\x03\x00",
        ),
        (RemoveAccessControlEntryRecord(id=ID), b"\x01\x13\x00" + ID.bytes + b"\x00"),
        (
            UserScramCredentialRecord(
                name="u", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
            ),
            b"\x01\x0b\x00\x02u\x01\x02s\x02k\x02v\x00\x00\x10\x00\x00",
        ),
        (RemoveUserScramCredentialRecord(name="u", mechanism=2), b"\x01\x16\x00\x02u\x02\x00"),
        (
            ClientQuotaRecord(entity=(QuotaEntity(entity_type="user", entity_name=None),), key="k", value=1.0),
            b"\x01\x0e\x00\x02\x05user\x00\x00\x02k\x3f\xf0" + bytes(6) + b"\x00\x00",
        ),
        (
            DelegationTokenRecord(
                owner="o",
                requester="r",
                renewers=("x",),
                issue_timestamp=1,
                max_timestamp=2,
                expiration_timestamp=3,
                token_id="t",
            ),
            b"\x01\x0a\x00\x02o\x02r\x02\x02x" + struct.pack(">3q", 1, 2, 3) + b"\x02t\x00",
        ),
        (RemoveDelegationTokenRecord(token_id="t"), b"\x01\x1a\x00\x02t\x00"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_bytes_are_those_that_the_schemas_say(record: MetadataRecord, value: bytes) -> None:
    assert encode_record(record) == value
    assert decode_record(value) == record


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({9: b"\0"}, "tag 9"),
        ({1: b"\0\0\0\1\0"}, "not as long"),
        ({0: b"\0"}, "does not fit"),
    ],
)
def test_a_change_that_is_not_understood_is_refused(fields: dict[int, bytes], says: str) -> None:
    with pytest.raises(MetadataFormatError, match=says):
        decode_record(kafka.change(0, ID, fields, version=0))


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
        (b"\x01\x0b\x00\x02u\x01\x00", "null where bytes"),
        (b"\x01\x0e\x00\x01\x02k\x7f\xf8" + bytes(7), "not a number"),
        (b"\x01\x03\x00" + bytes(20) + b"\xff\xff\x7f", "does not fit"),
    ],
)
def test_errors_say_what_is_wrong(value: bytes, says: str) -> None:
    with pytest.raises(MetadataFormatError, match=says):
        decode_record(value)
