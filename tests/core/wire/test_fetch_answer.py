"""The short way to write a Fetch response against the general codec"""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.codec import decode_exact, encode
from tidemill.core.wire.fetch_answer import NO_EPOCH, FetchAnswer, PartitionAnswer, TopicAnswer
from tidemill.core.wire.framing import encode_response
from tidemill.core.wire.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData

VERSIONS = range(4, 19)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.one_of(st.text(max_size=8), st.sampled_from(["", "x" * 126, "x" * 127, "é" * 63, "x" * 249]))
PARTITIONS = st.builds(
    PartitionAnswer,
    partition_index=INT32,
    error_code=st.integers(-(2**15), 2**15 - 1),
    high_watermark=INT64,
    last_stable_offset=INT64,
    log_start_offset=INT64,
    aborts=st.booleans(),
    records=st.one_of(st.just(b""), st.binary(max_size=9), st.sampled_from([126, 127, 16_383]).map(bytes)),
    diverging_epoch=st.one_of(
        st.just(NO_EPOCH), st.just(EpochEndOffset()), st.builds(EpochEndOffset, epoch=INT32, end_offset=INT64)
    ),
)
TOPICS = st.builds(
    TopicAnswer,
    topic=NAMES,
    topic_id=st.integers(0, 2**128 - 1).map(lambda number: uuid.UUID(int=number)),
    partitions=st.one_of(st.lists(PARTITIONS, max_size=3), PARTITIONS.map(lambda one: [one] * 130)),
)
ANSWERS = st.builds(FetchAnswer, INT32, st.one_of(st.lists(TOPICS, max_size=3), TOPICS.map(lambda one: [one] * 127)))


def general(answer: FetchAnswer) -> FetchResponse:
    return FetchResponse(
        session_id=answer.session_id,
        responses=tuple(
            FetchableTopicResponse(
                topic=name,
                topic_id=topic_id,
                partitions=tuple(
                    PartitionData(
                        partition_index=row.partition_index,
                        error_code=row.error_code,
                        high_watermark=row.high_watermark,
                        last_stable_offset=row.last_stable_offset,
                        log_start_offset=row.log_start_offset,
                        aborted_transactions=() if row.aborts else None,
                        preferred_read_replica=row.preferred_read_replica,
                        records=row.records,
                        diverging_epoch=row.diverging_epoch,
                    )
                    for row in rows
                ),
            )
            for name, topic_id, rows in answer.responses
        ),
    )


@given(st.sampled_from(VERSIONS), ANSWERS)
def test_its_bytes_are_those_of_the_general_message(version: int, answer: FetchAnswer) -> None:
    data = encode(answer, version)
    assert data == encode(general(answer), version)
    decode_exact(FetchResponse, version, data)


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_passed_on_uncopied(version: int) -> None:
    records = memoryview(bytearray(100))
    row = PartitionAnswer(0, 0, 5, 5, 0, False, records, NO_EPOCH)
    quiet = PartitionAnswer(1, 0, 5, 5, 0, False, b"", NO_EPOCH)
    topic = TopicAnswer("t", uuid.UUID(int=1), [row, quiet, row])
    chunks = encode_response(ApiKey.FETCH, version, 1, FetchAnswer(0, [topic]))
    assert [chunk is records for chunk in chunks] == [False, True, False, True, *([False] * (version >= 12))]
