"""The short way to read a Produce request, and to answer it, against the general codec"""

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.codec import DecodeError, decode
from tidemill.core.wire.framing import decode_request_header, encode_request, encode_response
from tidemill.core.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidemill.core.wire.produce_frame import (
    PREFIX_AT,
    TOPIC_ID_FROM,
    ProduceFrame,
    encode_stored,
    read_produce_frame,
    records_span,
)

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
PLAIN_PARTITIONS = st.builds(PartitionProduceData, index=INT32, records=st.binary(max_size=150))
PLAIN = st.builds(
    ProduceRequest,
    acks=st.integers(-2, 2),
    timeout_ms=INT32,
    topic_data=st.lists(
        st.builds(
            TopicProduceData,
            name=st.text(max_size=8),
            topic_id=st.integers(0, 2**128 - 1).map(lambda number: uuid.UUID(int=number)),
            partition_data=st.lists(PLAIN_PARTITIONS, max_size=4).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
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


def is_plain(request: ProduceRequest) -> bool:
    """Whether the short way has to be able to read the request."""
    return request.transactional_id is None and all(
        partition.records is not None for topic in request.topic_data for partition in topic.partition_data
    )


def assert_same(found: ProduceFrame, frame: bytes, version: int) -> None:
    general = generally(frame, version)
    assert general is not None, "only what the general codec accepts"
    request, end = general
    assert request.transactional_id is None
    assert (found.acks, found.timeout_ms) == (request.acks, request.timeout_ms)
    expected = [
        (
            topic.topic_id.bytes if version >= TOPIC_ID_FROM else topic.name.encode(),
            [(partition.index, partition.records) for partition in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    assert [
        (topic, [(index, frame[start:stop]) for index, start, stop in spans]) for topic, spans in found.topics
    ] == expected
    assert end == len(frame)


@given(st.sampled_from(VERSIONS), REQUESTS, CLIENT_IDS)
def test_what_it_reads_is_what_the_general_codec_reads(
    version: int, request: ProduceRequest, client_id: str | None
) -> None:
    frame = encoded(request, version, client_id)
    found = read_produce_frame(memoryview(frame), version)
    assert (found is not None) == is_plain(request)
    if found is not None:
        assert_same(found, frame, version)


@given(st.sampled_from(VERSIONS), st.one_of(COMMON, PLAIN), st.data())
def test_damaged_frames_are_left_to_the_general_codec_or_read_as_it_reads_them(
    version: int, request: ProduceRequest, data: Any
) -> None:
    frame = bytearray(encoded(request, version))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(PREFIX_AT, min(len(frame) - 1, 200)))
        frame[at] = data.draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF, frame[at] ^ 1]))
    cut = data.draw(st.sampled_from([None, None, *range(1, 40)]))
    damaged = bytes(frame if cut is None else frame[:-cut]) + data.draw(st.sampled_from([b"", b"", b"\0", b"abc"]))
    found = read_produce_frame(memoryview(damaged), version)
    if found is not None:
        assert_same(found, damaged, version)


@given(st.sampled_from(VERSIONS), PLAIN)
def test_no_frame_that_ends_too_early_or_too_late_is_read(version: int, request: ProduceRequest) -> None:
    frame = encoded(request, version)
    for end in range(len(frame)):
        assert read_produce_frame(memoryview(frame)[:end], version) is None
    assert read_produce_frame(frame + b"\0", version) is None


@pytest.mark.parametrize("version", [9, 12, 13])
def test_requests_with_tags_are_left_to_the_general_codec(version: int) -> None:
    partition = PartitionProduceData(index=1, records=b"batch")
    topic = TopicProduceData(name="t", topic_id=uuid.UUID(int=1), partition_data=(partition, partition))
    frame = encoded(ProduceRequest(topic_data=(topic,)), version)
    assert read_produce_frame(frame, version) is not None
    tag = b"\1\0\2xy"
    header, first, second = frame.index(b"c") + 1, frame.index(b"batch") + 5, frame.rindex(b"batch") + 5
    for at in (header, first, second, second + 1, second + 2):
        assert frame[at] == 0
        tagged = frame[:at] + tag + frame[at + 1 :]
        general = generally(tagged, version)
        assert general is not None and general[1] == len(tagged)
        assert read_produce_frame(tagged, version) is None
        promised = frame[:at] + b"\1" + frame[at + 1 :]  # a tag that is not there
        assert read_produce_frame(promised, version) is None


@pytest.mark.parametrize("version", range(3, 9))
def test_the_reading_never_goes_backwards(version: int) -> None:
    partition = PartitionProduceData(index=1, records=None)
    frame = encoded(ProduceRequest(topic_data=(TopicProduceData(name="t", partition_data=(partition,) * 2),)), version)
    overlapping = frame[:-8] + bytes(7)  # whole, if the second partition begins with the last byte of the first
    assert generally(overlapping, version) is None
    assert read_produce_frame(overlapping, version) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_count_that_promises_more_than_the_frame_has_costs_nothing(version: int) -> None:
    many = b"\x7f\xff\xff\xff" if version < 9 else b"\xff\xff\xff\xff\x0f"
    settings = b"\xff\xff" if version < 9 else b"\0\0"
    frame = bytes(PREFIX_AT) + b"\xff\xff" + settings + bytes(6) + many
    assert read_produce_frame(frame, version) is None
    assert generally(frame, version) is None


@given(st.sampled_from(VERSIONS), COMMON, st.binary(max_size=300))
def test_a_known_prefix_leads_to_the_batch_of_the_next_request(
    version: int, request: ProduceRequest, batch: bytes
) -> None:
    first = encoded(request, version)
    known = read_produce_frame(first, version)
    assert known is not None and known.has_one_batch
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


INT64 = st.integers(-(2**63), 2**63 - 1)
STORED = st.lists(
    st.tuples(
        st.one_of(NAMES, st.integers(1, 300).map(lambda length: "n" * length)),
        st.integers(0, 2**128 - 1),
        st.one_of(
            st.lists(st.tuples(INT32, INT64, INT64, INT64), max_size=3),
            st.just([(number, 1, -1, 0) for number in range(200)]),
        ),
    ),
    max_size=3,
)


@given(st.sampled_from(VERSIONS), INT32, STORED)
def test_the_answer_is_what_the_general_codec_makes_of_it(
    version: int, correlation_id: int, topics: list[tuple[str, int, list[tuple[int, int, int, int]]]]
) -> None:
    by_id = version >= TOPIC_ID_FROM
    responses = tuple(
        TopicProduceResponse(
            name="" if by_id else name,
            topic_id=uuid.UUID(int=topic_id if by_id else 0),
            partition_responses=tuple(
                PartitionProduceResponse(
                    index=index, base_offset=base, log_append_time_ms=time_ms, log_start_offset=start
                )
                for index, base, time_ms, start in rows
            ),
        )
        for name, topic_id, rows in topics
    )
    expected = encode_response(ApiKey.PRODUCE, version, correlation_id, ProduceResponse(responses=responses))
    named = [(uuid.UUID(int=topic_id).bytes if by_id else name.encode(), rows) for name, topic_id, rows in topics]
    assert encode_stored(version, correlation_id, named) == b"".join(expected)


def test_the_answer_has_room_for_more_topics_than_one_byte_counts() -> None:
    row = PartitionProduceResponse(index=3, base_offset=1, log_append_time_ms=-1, log_start_offset=0)
    responses = tuple(TopicProduceResponse(name=f"t{number}", partition_responses=(row,)) for number in range(200))
    expected = encode_response(ApiKey.PRODUCE, 9, 1, ProduceResponse(responses=responses))
    named = [(topic.name.encode(), [(3, 1, -1, 0)]) for topic in responses]
    assert encode_stored(9, 1, named) == b"".join(expected)
