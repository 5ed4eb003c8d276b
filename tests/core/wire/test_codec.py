"""Round trips, hostile input and an independent implementation, for every message and version"""

import dataclasses
import importlib
import random
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.wire.message_strategies import (
    CASE_IDS,
    CASES,
    KIND_IDS,
    KINDS,
    message_class,
    messages,
    root,
    sample,
)
from tidemill.core.wire.codec import (
    DecodeError,
    EncodeError,
    UnsupportedVersionError,
    decode,
    decode_exact,
    encode,
    encode_chunks,
)
from tidemill.core.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tidemill.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidemill.core.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidemill.core.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tidemill.core.wire.schema import ApiSchema, FieldLayout, StructLayout


@pytest.mark.parametrize(("schema", "kind"), KINDS, ids=KIND_IDS)
def test_what_is_encoded_decodes_to_the_same(schema: ApiSchema, kind: str) -> None:
    cls = message_class(schema, kind)

    @settings(max_examples=30)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        version = data.draw(st.integers(schema.versions.first, schema.versions.last))
        message = data.draw(messages(schema, kind, version))
        encoded = encode(message, version)
        assert b"".join(encode_chunks(message, version)) == encoded
        assert decode(cls, version, encoded) == (message, len(encoded))
        padded = memoryview(b"\xff" + encoded + b"\xff")
        assert decode(cls, version, padded, 1) == (message, len(encoded) + 1)
        with pytest.raises(DecodeError, match="1 bytes behind"):
            decode_exact(cls, version, encoded + b"\0")

    check()


@pytest.mark.parametrize(("schema", "kind", "version"), CASES, ids=CASE_IDS)
def test_a_full_sample_survives_and_no_prefix_of_it_decodes(schema: ApiSchema, kind: str, version: int) -> None:
    cls = message_class(schema, kind)
    message = sample(schema, kind, version)
    encoded = encode(message, version)
    assert decode_exact(cls, version, bytearray(encoded)) == message
    for end in range(len(encoded)):
        with pytest.raises(DecodeError, match=rf"{cls.__name__} v{version}: "):
            decode(cls, version, encoded[:end])


@pytest.mark.parametrize(("schema", "kind"), KINDS, ids=KIND_IDS)
def test_damaged_bytes_decode_or_raise_decode_error(schema: ApiSchema, kind: str) -> None:
    cls = message_class(schema, kind)
    chance = random.Random(schema.key)
    for version in range(schema.versions.first, schema.versions.last + 1):
        encoded = encode(sample(schema, kind, version), version)
        for _ in range(60 if encoded else 0):
            damaged = bytearray(encoded)
            for _ in range(chance.randint(1, 3)):
                damaged[chance.randrange(len(damaged))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            try:
                message, end = decode(cls, version, bytes(damaged))
            except DecodeError:
                continue
            assert end <= len(damaged)
            assert type(message) is cls


@pytest.mark.parametrize(("schema", "kind"), KINDS, ids=KIND_IDS)
def test_random_bytes_decode_or_raise_decode_error(schema: ApiSchema, kind: str) -> None:
    cls = message_class(schema, kind)
    chance = random.Random(schema.key)
    for version in range(schema.versions.first, schema.versions.last + 1):
        for size in (0, 1, 4, 16, 64):
            try:
                decode(cls, version, chance.randbytes(size))
            except DecodeError:
                continue


def kafka_python_class(schema: ApiSchema, kind: str) -> Any:
    for package in ("producer", "consumer", "metadata", "admin"):
        module = importlib.import_module(f"kafka.protocol.{package}")
        found = getattr(module, root(schema, kind).name, None)
        if found is not None:
            return found
    raise AssertionError(f"kafka-python has no {root(schema, kind).name}")


def same(layout: FieldLayout, ours: Any, theirs: Any) -> bool:
    """Whether both libraries hold the same value; theirs spells a zero UUID and an absent tagged struct None."""
    if layout.array and ours is not None:
        single = dataclasses.replace(layout, array=False, nullable=False)
        return len(ours) == len(theirs) and all(same(single, a, b) for a, b in zip(ours, theirs, strict=True))
    if layout.struct is not None and ours is not None:
        if theirs is None and layout.tag is not None:
            return bool(ours == type(ours)())
        return same_struct(layout.struct, ours, theirs)
    if layout.type == "uuid":
        return bool(ours == (theirs or uuid.UUID(int=0)))
    if layout.type in ("bytes", "records") and ours is not None:
        return bytes(ours) == bytes(theirs)
    return bool(ours == theirs)


def same_struct(layout: StructLayout, ours: Any, theirs: Any) -> bool:
    fields = [f for f in (*layout.fields, *layout.tagged) if not f.name.endswith("authorized_operations")]
    return all(same(field, getattr(ours, field.name), getattr(theirs, field.name)) for field in fields)


AMONG_NODES = {
    "AddRaftVoter", "AllocateProducerIds", "AlterPartition", "BeginQuorumEpoch", "BrokerHeartbeat",
    "BrokerRegistration", "EndQuorumEpoch", "Envelope", "FetchSnapshot", "RemoveRaftVoter", "UpdateRaftVoter", "Vote",
}  # fmt: skip
KAFKA_PYTHON_LACKS = {"UnregisterBroker", *AMONG_NODES}  # tests/integration/test_wire_java.py has Kafka's own classes
KAFKA_PYTHON_CASES = [
    pytest.param(*case, id=name)
    for case, name in zip(CASES, CASE_IDS, strict=True)
    if case[0].name not in KAFKA_PYTHON_LACKS
]


@pytest.mark.parametrize(("schema", "kind", "version"), KAFKA_PYTHON_CASES)
def test_kafka_python_reads_the_same_values_from_our_bytes(schema: ApiSchema, kind: str, version: int) -> None:
    theirs = kafka_python_class(schema, kind)
    full: Any = sample(schema, kind, version)
    if schema.name == "ApiVersions" and kind == "response":
        full = dataclasses.replace(full, error_code=0)  # after an error kafka-python reads on as version 0
    for message in (full, message_class(schema, kind)()):
        encoded = encode(message, version)
        parsed = theirs.decode(encoded, version=version)
        assert same_struct(schema.layout(root(schema, kind), version), message, parsed)
        parsed._header = None  # encode() wants it, decode() without a header leaves it unset
        assert parsed.encode(version=version) == encoded


def test_golden_bytes_of_a_metadata_request() -> None:
    classic = MetadataRequest(topics=(MetadataRequestTopic(name="orders"),), allow_auto_topic_creation=False)
    assert encode(classic, 4).hex() == "00000001" + "0006" + b"orders".hex() + "00"
    assert encode(MetadataRequest(topics=None), 1).hex() == "ffffffff"
    assert encode(MetadataRequest(topics=()), 1).hex() == "00000000"
    flexible = MetadataRequest(topics=(MetadataRequestTopic(topic_id=uuid.UUID(int=7), name=None),))
    assert encode(flexible, 12).hex() == "02" + "00" * 15 + "07" + "00" + "00" + "01" + "00" + "00"


def test_golden_bytes_of_a_produce_request() -> None:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1500,
        topic_data=(TopicProduceData(name="t", partition_data=(PartitionProduceData(index=3, records=b"\xaa\xbb"),)),),
    )
    assert encode(
        request, 3
    ).hex() == "ffff" + "ffff" + "000005dc" + "00000001" + "000174" + "00000001" + "00000003" + ("00000002" + "aabb")
    assert encode(request, 9).hex() == "00" + "ffff" + "000005dc" + "02" + "0274" + "02" + "00000003" + "03aabb" + (
        "00" + "00" + "00"
    )


def test_golden_bytes_of_an_unregister_broker_request_and_its_answer() -> None:
    assert encode(UnregisterBrokerRequest(broker_id=7), 0).hex() == "00000007" + "00"
    answer = UnregisterBrokerResponse(error_code=102, error_message="no")
    assert encode(answer, 0).hex() == "00000000" + "0066" + "03" + b"no".hex() + "00"


def test_records_are_slices_of_the_input_and_chunks_of_the_output() -> None:
    records = bytes(1000)
    partitions = tuple(PartitionData(partition_index=i, records=memoryview(records)) for i in range(2))
    response = FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=partitions),))
    chunks = encode_chunks(response, 12)
    assert [chunk for chunk in chunks if isinstance(chunk, memoryview)] == [p.records for p in partitions]
    assert all(chunk.obj is records for chunk in chunks if isinstance(chunk, memoryview))
    frame = b"".join(chunks)
    decoded = decode_exact(FetchResponse, 12, frame)
    for partition in decoded.responses[0].partitions:
        assert isinstance(partition.records, memoryview)
        assert partition.records.obj is frame
        assert partition.records == records


def test_a_fetch_partition_without_records_is_empty_not_null() -> None:
    response = FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=(PartitionData(),)),))
    decoded = decode_exact(FetchResponse, 4, encode(response, 4))
    assert decoded.responses[0].partitions[0].records == b""


def test_fields_that_a_version_lacks_take_their_default() -> None:
    response = MetadataResponse(throttle_time_ms=9, cluster_id="c", controller_id=4)
    assert decode_exact(MetadataResponse, 0, encode(response, 0)) == MetadataResponse()
    assert decode_exact(MetadataResponse, 2, encode(response, 2)) == MetadataResponse(cluster_id="c", controller_id=4)


def test_unknown_tagged_fields_are_skipped() -> None:
    encoded = encode(MetadataRequest(), 12)
    assert encoded.endswith(b"\0")
    tags = b"\x02" + b"\x05\x03abc" + b"\xc8\x01\x00"  # two tags: 5 with three bytes, 200 with none
    assert decode_exact(MetadataRequest, 12, encoded[:-1] + tags) == MetadataRequest()


@pytest.mark.parametrize("size", [b"\x04", b"\x80\x80\x80\x80\x08", b"\xff\xff\xff\xff\xff"])
def test_a_tag_may_not_reach_behind_the_message(size: bytes) -> None:
    encoded = encode(MetadataRequest(), 12)[:-1] + b"\x01" + b"\x05" + size + b"abc"
    with pytest.raises(DecodeError):
        decode(MetadataRequest, 12, encoded)


def test_a_known_tag_must_fill_its_size() -> None:
    encoded = encode(FetchResponse(), 16)
    with pytest.raises(DecodeError, match="tagged field 0 ends"):
        decode(FetchResponse, 16, encoded[:-1] + b"\x01\x00\x05\x01" + b"\0" * 4)


@pytest.mark.parametrize("count", [2**31 - 1, 10**6, 3])
def test_a_hostile_count_is_refused_before_anything_is_built(count: int) -> None:
    with pytest.raises(DecodeError, match=f"length {count} at byte 4"):
        decode(MetadataRequest, 1, count.to_bytes(4, "big") + b"\0\0")


def test_null_where_none_is_allowed_is_refused_both_ways() -> None:
    with pytest.raises(DecodeError, match="null at byte 4"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    with pytest.raises(EncodeError, match="MetadataRequest v0"):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(EncodeError, match="MetadataRequest v9"):
        encode(MetadataRequest(topics=(MetadataRequestTopic(name=None),)), 9)


def test_values_that_do_not_fit_are_encode_errors() -> None:
    with pytest.raises(EncodeError, match="ProduceRequest v9"):
        encode(ProduceRequest(acks=70000), 9)
    with pytest.raises(EncodeError, match="ProduceRequest v3"):
        encode(ProduceRequest(transactional_id="x" * 40000), 3)
    with pytest.raises(EncodeError, match="ProduceRequest v9"):
        encode(ProduceRequest(transactional_id="\ud800"), 9)


def test_bad_utf8_is_a_decode_error() -> None:
    with pytest.raises(DecodeError, match="not UTF-8"):
        decode(MetadataRequest, 0, b"\0\0\0\1\0\2\xc3\x28")


@pytest.mark.parametrize("version", [-1, 2, 14, 32767])
def test_versions_outside_the_window_are_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersionError, match=f"ProduceRequest has no version {version}"):
        decode(ProduceRequest, version, b"")
    with pytest.raises(EncodeError, match="no version"):
        encode(ProduceRequest(), version)
