"""The short way to read a Produce request against the general codec"""

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.wire.api import ApiKey
from core.wire.codec import DecodeError, decode
from core.wire.framing import decode_request_header, encode_request
from core.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from core.wire.produce_frame import PREFIX_AT, TOPIC_ID_FROM, ProduceFrame, read_produce_frame, records_span

VERSIONS = range(3, 14)

NAMES = st.one_of(st.text(max_size=8), st.sampled_from(["", "t", "x" * 126, "x" * 127, "é" * 63, "x" * 249]))
RECORDS = st.one_of(st.none(), st.binary(max_size=200), st.sampled_from([126, 127, 16_382, 16_383]).map(bytes))
INT32 = st.integers(-(2**31), 2**31 - 1)
PARTITIONS = st.builds(PartitionProduceData, index=INT32, records=RECORDS)
TOPICS = st.builds(
    TopicProduceData,
    name=NAMES,
    topic_id=st.integers(0, 2**128 - 1).map(lambda number: uuid.UUID(int=number)),
    partition_data=st.one_of(PARTITIONS.map(lambda one: (one,)), st.lists(PARTITIONS, max_size=3).map(tuple)),
)
REQUESTS = st.builds(
    ProduceRequest,
    transactional_id=st.one_of(st.none(), st.none(), st.none(), NAMES),
    acks=st.integers(-2, 2),
    timeout_ms=INT32,
    topic_data=st.one_of(TOPICS.map(lambda one: (one,)), st.lists(TOPICS, max_size=3).map(tuple)),
)
COMMON = st.builds(
    lambda acks, timeout_ms, name, topic_id, partition, records: ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=(
            TopicProduceData(
                name=name,
                topic_id=uuid.UUID(int=topic_id),
                partition_data=(PartitionProduceData(index=partition, records=records),),
            ),
        ),
    ),
    st.integers(-2, 2),
    INT32,
    NAMES.filter(lambda name: len(name.encode()) < 127),
    st.integers(0, 2**128 - 1),
    INT32,
    st.binary(max_size=300),
)
CLIENT_IDS = st.one_of(st.none(), NAMES)


def encoded(request: ProduceRequest, version: int, client_id: str | None = "c", correlation_id: int = 7) -> bytes:
    return encode_request(ApiKey.PRODUCE, version, correlation_id, client_id, request)[4:]


def generally(frame: bytes, version: int) -> tuple[ProduceRequest, int] | None:
    """What the general codec makes of a frame; None if it refuses it."""
    try:
        _, body = decode_request_header(frame)
        return decode(ProduceRequest, version, frame, body)
    except DecodeError:
        return None


def is_common(request: ProduceRequest, version: int) -> bool:
    """Whether the short way has to be able to read the request."""
    return (
        request.transactional_id is None
        and len(request.topic_data) == 1
        and len(request.topic_data[0].partition_data) == 1
        and request.topic_data[0].partition_data[0].records is not None
        and (version < 9 or version >= TOPIC_ID_FROM or len(request.topic_data[0].name.encode()) < 127)
    )


def assert_same(found: ProduceFrame, frame: bytes, version: int) -> None:
    general = generally(frame, version)
    assert general is not None, "only what the general codec accepts"
    request, end = general
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    assert request.transactional_id is None
    assert (found.acks, found.timeout_ms, found.partition) == (request.acks, request.timeout_ms, partition.index)
    assert found.topic == (topic.topic_id.bytes if version >= TOPIC_ID_FROM else topic.name.encode())
    assert partition.records is not None
    assert frame[found.records_at : found.records_end] == bytes(partition.records)
    assert end == len(frame)


@given(st.sampled_from(VERSIONS), REQUESTS, CLIENT_IDS)
def test_what_it_reads_is_what_the_general_codec_reads(
    version: int, request: ProduceRequest, client_id: str | None
) -> None:
    frame = encoded(request, version, client_id)
    found = read_produce_frame(memoryview(frame), version)
    assert (found is not None) == is_common(request, version)
    if found is not None:
        assert_same(found, frame, version)


@given(st.sampled_from(VERSIONS), COMMON, st.data())
def test_damaged_frames_are_left_to_the_general_codec_or_read_as_it_reads_them(
    version: int, request: ProduceRequest, data: Any
) -> None:
    frame = bytearray(encoded(request, version))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(PREFIX_AT, min(len(frame) - 1, 120)))
        frame[at] = data.draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF, frame[at] ^ 1]))
    cut = data.draw(st.sampled_from([None, None, *range(1, 40)]))
    damaged = bytes(frame if cut is None else frame[:-cut]) + data.draw(st.sampled_from([b"", b"", b"\0", b"abc"]))
    found = read_produce_frame(memoryview(damaged), version)
    if found is not None:
        assert_same(found, damaged, version)


@given(st.sampled_from(VERSIONS), COMMON, st.binary(max_size=300))
def test_a_known_prefix_leads_to_the_batch_of_the_next_request(
    version: int, request: ProduceRequest, batch: bytes
) -> None:
    first = encoded(request, version)
    known = read_produce_frame(first, version)
    assert known is not None
    (topic,) = request.topic_data
    again = ProduceRequest(
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=(
            TopicProduceData(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_data=(PartitionProduceData(index=topic.partition_data[0].index, records=batch),),
            ),
        ),
    )
    frame = encoded(again, version, correlation_id=99)
    assert frame[PREFIX_AT : known.prefix_end] == first[PREFIX_AT : known.prefix_end]
    assert records_span(frame, known.prefix_end, flexible=version >= 9) == (
        frame.rindex(batch, 0, len(frame) - (3 if version >= 9 else 0)),
        len(frame) - (3 if version >= 9 else 0),
    )


@pytest.mark.parametrize("version", [0, 2, 14])
def test_versions_that_are_not_served_are_not_read(version: int) -> None:
    assert read_produce_frame(bytes(100), version) is None
