"""Pictures of a cluster and when to take a new one."""

import uuid

from tidemill.core.client.connection import Address
from tidemill.core.client.metadata import NO_LEADER, RefreshTimer, parse_metadata
from tidemill.core.error_code import ErrorCode
from tidemill.core.types import ZERO_UUID, TopicPartition
from tidemill.core.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def response(*topics: MetadataResponseTopic) -> MetadataResponse:
    return MetadataResponse(
        cluster_id="c", controller_id=1, brokers=(MetadataResponseBroker(node_id=1, host="h", port=9),), topics=topics
    )


def topic(name: str, *leaders: int, error: int = 0) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name,
        topic_id=uuid.uuid5(ZERO_UUID, name),
        error_code=error,
        partitions=tuple(
            MetadataResponsePartition(partition_index=number, leader_id=leader)
            for number, leader in reversed(list(enumerate(leaders)))
        ),
    )


def test_reading() -> None:
    view = parse_metadata(response(topic("a", 1, -1, 7), topic("gone", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
    assert (view.cluster_id, view.controller_id, view.nodes) == ("c", 1, {1: Address("h", 9)})
    assert list(view.topics["a"].partitions) == [0, 1, 2]
    assert view.leader_of(TopicPartition("a", 0)) == 1
    assert view.leader_of(TopicPartition("a", 1)) == NO_LEADER
    assert view.leader_of(TopicPartition("a", 2)) == NO_LEADER, "a leader that is not a known node is none"
    assert view.leader_of(TopicPartition("a", 9)) == NO_LEADER
    assert view.leader_of(TopicPartition("b", 0)) == NO_LEADER
    assert view.topic_id("a") == uuid.uuid5(ZERO_UUID, "a")
    assert view.topic_id("b") == ZERO_UUID
    assert view.topic_errors == {"gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_merging_keeps_what_was_not_asked_for() -> None:
    old = parse_metadata(response(topic("a", 1), topic("b", 1)))
    newer = parse_metadata(response(topic("a", 1, 1)))
    merged = old.merged(newer, ["a"])
    assert {name: len(found.partitions) for name, found in merged.topics.items()} == {"a": 2, "b": 1}
    gone = old.merged(parse_metadata(response(topic("a", error=3))), ["a"])
    assert set(gone.topics) == {"b"}
    assert gone.topic_errors == {"a": 3}
    assert set(old.merged(newer, None).topics) == {"a"}


def test_a_picture_ages_and_can_be_contradicted() -> None:
    timer = RefreshTimer(age_max_ms=1000, backoff_ms=100)
    assert timer.is_due(0)
    timer.mark_refreshed(5)
    assert not timer.is_due(1004)
    assert timer.is_due(1005)
    timer.mark_stale()
    assert timer.is_due(6)


def test_requests_are_held_back() -> None:
    timer = RefreshTimer(backoff_ms=100)
    assert timer.wait_ms(0) == 0
    timer.mark_refreshed(1000)
    assert timer.wait_ms(1030) == 70
    assert timer.wait_ms(2000) == 0
