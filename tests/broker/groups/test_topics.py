"""Which topic an offset belongs to."""

import uuid

import pytest

from tests.broker.groups.group_world import image_of
from tidemill.broker.groups.events import CommittedOffset, OffsetToCommit
from tidemill.broker.groups.topics import Topics
from tidemill.core.error_code import ErrorCode
from tidemill.core.types import ZERO_UUID

FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)
TOPICS = Topics(image=image_of({"t": FIRST}, 3))


def offset(topic_id: uuid.UUID) -> CommittedOffset:
    return CommittedOffset(offset=1, leader_epoch=-1, metadata="", commit_timestamp_ms=0, topic_id=topic_id)


@pytest.mark.parametrize(
    ("name", "topic_id", "partition", "error"),
    [
        ("t", ZERO_UUID, 2, ErrorCode.NONE),
        ("t", SECOND, 2, ErrorCode.NONE),  # a version that names topics has no ids
        ("t", ZERO_UUID, 3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", ZERO_UUID, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("x", ZERO_UUID, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, FIRST, 0, ErrorCode.NONE),
        (None, FIRST, 3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, SECOND, 0, ErrorCode.UNKNOWN_TOPIC_ID),
        (None, ZERO_UUID, 0, ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_a_commit_names_a_topic_that_is_there(
    name: str | None, topic_id: uuid.UUID, partition: int, error: ErrorCode
) -> None:
    topic, found = TOPICS.named(OffsetToCommit(name, partition, 0, 0, "", topic_id))
    assert found is error
    assert (topic is not None) == (error is ErrorCode.NONE)


def test_an_offset_is_that_of_the_topic_it_was_committed_for() -> None:
    assert TOPICS.has("t", offset(FIRST))
    assert not TOPICS.has("t", offset(SECOND))
    assert not TOPICS.has("x", offset(FIRST))
    assert TOPICS.after(image_of({"t": SECOND})).has("t", offset(SECOND))


def test_an_offset_without_an_id_counts_for_the_topic_found_at_the_start_only() -> None:
    topics = Topics(image=TOPICS.image, at_start={"t": FIRST})
    assert topics.has("t", offset(ZERO_UUID))
    assert not topics.after(image_of({})).has("t", offset(ZERO_UUID))
    assert not topics.after(image_of({"t": SECOND})).has("t", offset(ZERO_UUID))
    assert not TOPICS.has("t", offset(ZERO_UUID)), "it was not there at the start"
