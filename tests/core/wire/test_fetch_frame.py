"""The short way to read a Fetch request against the general codec"""

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.codec import DecodeError, decode
from tidemill.core.wire.fetch_frame import FetchFrame, read_fetch_frame
from tidemill.core.wire.framing import RequestHeader, decode_request_header, encode_request
from tidemill.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState

VERSIONS = range(4, 19)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.one_of(st.text(max_size=8), st.sampled_from(["", "t", "x" * 126, "x" * 127, "é" * 63, "x" * 249]))
TOPIC_IDS = st.integers(0, 2**128 - 1).map(lambda number: uuid.UUID(int=number))
PLAIN_PARTITIONS = st.builds(
    FetchPartition,
    partition=INT32,
    current_leader_epoch=INT32,
    fetch_offset=INT64,
    last_fetched_epoch=INT32,
    log_start_offset=INT64,
    partition_max_bytes=INT32,
)
FOLLOWED_PARTITIONS = st.builds(
    FetchPartition, partition=INT32, fetch_offset=INT64, replica_directory_id=TOPIC_IDS, high_watermark=INT64
)
MANY_PARTITIONS = st.sampled_from([125, 126, 127, 128, 300]).map(
    lambda count: tuple(FetchPartition(partition=number, fetch_offset=-number) for number in range(count))
)
FORGOTTEN = st.builds(
    ForgottenTopic, topic=NAMES, topic_id=TOPIC_IDS, partitions=st.lists(INT32, max_size=3).map(tuple)
)


def requests(partitions: st.SearchStrategy[FetchPartition], **more: st.SearchStrategy[Any]) -> Any:
    several = st.one_of(st.lists(partitions, max_size=3).map(tuple), partitions.map(lambda one: (one,)))
    topics = st.builds(FetchTopic, topic=NAMES, topic_id=TOPIC_IDS, partitions=several | MANY_PARTITIONS)
    return st.builds(
        FetchRequest,
        replica_id=INT32,
        max_wait_ms=INT32,
        min_bytes=INT32,
        max_bytes=INT32,
        isolation_level=st.integers(-128, 127),
        session_id=INT32,
        session_epoch=INT32,
        topics=st.lists(topics, max_size=3).map(tuple),
        forgotten_topics_data=st.one_of(st.just(()), st.lists(FORGOTTEN, max_size=2).map(tuple)),
        rack_id=st.one_of(st.just(""), NAMES),
        **more,
    )


COMMON = requests(PLAIN_PARTITIONS)
ANY = requests(
    st.one_of(PLAIN_PARTITIONS, FOLLOWED_PARTITIONS),
    cluster_id=st.one_of(st.none(), NAMES),
    replica_state=st.one_of(st.just(ReplicaState()), st.builds(ReplicaState, replica_id=INT32, replica_epoch=INT64)),
)
CLIENT_IDS = st.one_of(st.none(), NAMES)


def encoded(request: FetchRequest, version: int, client_id: str | None = "c") -> bytes:
    return encode_request(ApiKey.FETCH, version, 7, client_id, request)[4:]


def generally(frame: bytes, version: int) -> tuple[RequestHeader, FetchRequest, int] | None:
    """What the general codec makes of a frame; None if it refuses it."""
    try:
        header, body = decode_request_header(frame)
        return header, *decode(FetchRequest, version, frame, body)
    except DecodeError:
        return None


def has_more_to_it(request: FetchRequest) -> bool:
    """Whether there are tagged fields, which the short way leaves alone."""
    default = FetchPartition()
    return (
        request.cluster_id is not None
        or request.replica_state != ReplicaState()
        or any(
            (partition.replica_directory_id, partition.high_watermark)
            != (default.replica_directory_id, default.high_watermark)
            for topic in request.topics
            for partition in topic.partitions
        )
    )


def assert_same(found: FetchFrame, frame: bytes, version: int) -> None:
    general = generally(frame, version)
    assert general is not None, "only what the general codec accepts"
    header, request, end = general
    assert end == len(frame)
    assert not has_more_to_it(request)
    assert (found.correlation_id, found.client_id) == (header.correlation_id, header.client_id)
    for name in ("replica_id", "max_wait_ms", "min_bytes", "max_bytes", "isolation_level"):
        assert getattr(found, name) == getattr(request, name), name
    assert (found.session_id, found.session_epoch) == (request.session_id, request.session_epoch)
    assert found.topics == tuple(
        (
            topic.topic,
            topic.topic_id,
            tuple(
                (
                    partition.partition,
                    partition.current_leader_epoch,
                    partition.fetch_offset,
                    partition.last_fetched_epoch,
                    partition.partition_max_bytes,
                )
                for partition in topic.partitions
            ),
        )
        for topic in request.topics
    )
    assert found.forgotten_topics_data == tuple(
        (topic.topic, topic.topic_id, topic.partitions) for topic in request.forgotten_topics_data
    )


@given(st.sampled_from(VERSIONS), ANY, CLIENT_IDS)
def test_what_it_reads_is_what_the_general_codec_reads(
    version: int, request: FetchRequest, client_id: str | None
) -> None:
    frame = encoded(request, version, client_id)
    general = generally(frame, version)
    assert general is not None
    for buffer in (frame, memoryview(bytearray(frame))):
        found = read_fetch_frame(buffer, version)
        assert (found is None) == has_more_to_it(general[1])
        if found is not None:
            assert_same(found, frame, version)


@given(st.sampled_from(VERSIONS), COMMON, st.data())
def test_damaged_frames_are_left_to_the_general_codec_or_read_as_it_reads_them(
    version: int, request: FetchRequest, data: Any
) -> None:
    frame = bytearray(encoded(request, version))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(8, min(len(frame) - 1, 160)))
        frame[at] = data.draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF, frame[at] ^ 1]))
    cut = data.draw(st.sampled_from([None, None, *range(1, 40)]))
    damaged = bytes(frame if cut is None else frame[:-cut]) + data.draw(st.sampled_from([b"", b"", b"\0", b"abc"]))
    found = read_fetch_frame(memoryview(damaged), version)
    if found is not None:
        assert_same(found, damaged, version)


def every_shape(version: int) -> bytes:
    """A topic with one partition, one with several, one forgotten, a rack."""
    partition = FetchPartition(partition=1, fetch_offset=5)
    request = FetchRequest(
        topics=(
            FetchTopic(topic="a", topic_id=uuid.UUID(int=1), partitions=(partition,)),
            FetchTopic(topic="b", topic_id=uuid.UUID(int=2), partitions=(partition, partition)),
        ),
        forgotten_topics_data=(ForgottenTopic(topic="c", topic_id=uuid.UUID(int=3), partitions=(1, 2)),),
        rack_id="r",
    )
    return encoded(request, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_beginning_of_a_frame_is_left_to_the_general_codec(version: int) -> None:
    frame = every_shape(version)
    assert read_fetch_frame(frame, version) is not None
    for end in range(len(frame)):
        assert read_fetch_frame(memoryview(frame)[:end], version) is None
    for tail in (b"\0", b"\1\1\0", bytes(6)):
        assert read_fetch_frame(frame + tail, version) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_every_changed_byte_is_left_to_the_general_codec_or_read_as_it_reads_it(version: int) -> None:
    topics = [FetchTopic(partitions=(FetchPartition(),) * count) for count in (1, 2)]
    short = [encoded(FetchRequest(topics=(topic,)), version) for topic in topics]
    for frame in (every_shape(version), *short):
        for at in range(8, len(frame)):
            for value in (0, 1, 2, 3, 0x7F, 0x80, 0xFF):
                changed = frame[:at] + bytes((value,)) + frame[at + 1 :]
                found = read_fetch_frame(memoryview(changed), version)
                if found is not None:
                    assert_same(found, changed, version)


@given(st.sampled_from(VERSIONS), st.binary(max_size=120))
def test_noise_is_left_to_the_general_codec_or_read_as_it_reads_it(version: int, noise: bytes) -> None:
    frame = encoded(FetchRequest(), version)[:10] + noise
    found = read_fetch_frame(memoryview(frame), version)
    if found is not None:
        assert_same(found, frame, version)


@pytest.mark.parametrize("version", [0, 3, 19])
def test_versions_that_are_not_served_are_not_read(version: int) -> None:
    assert read_fetch_frame(bytes(100), version) is None
