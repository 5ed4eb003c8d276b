"""A sink's offsets are its group's"""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tidemill.connect.herder import sink_offsets
from tidemill.connect.herder.sink_offsets import BadSinkOffset, GroupFailed, parse_entry
from tidemill.connect.topic_log import TopicSpec, ensure_topics


@pytest.mark.parametrize(
    ("partition", "offset", "expected"),
    [
        ({"kafka_topic": "t", "kafka_partition": 3}, {"kafka_offset": 10}, ("t", 3, 10)),
        ({"kafka_topic": "t", "kafka_partition": "3"}, {"kafka_offset": "10"}, ("t", 3, 10)),
        ({"kafka_topic": "t", "kafka_partition": 0}, None, ("t", 0, -1)),
    ],
)
def test_entries(partition: Any, offset: Any, expected: tuple[str, int, int]) -> None:
    found = parse_entry(partition, offset)
    assert (found.topic, found.partition, found.offset) == expected


@pytest.mark.parametrize(
    ("partition", "offset", "text"),
    [
        ({}, {"kafka_offset": 1}, "must contain the keys 'kafka_topic' and 'kafka_partition'"),
        ({"kafka_topic": 1, "kafka_partition": 0}, None, "must contain the keys"),
        ({"kafka_topic": "", "kafka_partition": 0}, None, "must contain the keys"),
        ({"kafka_topic": "t", "kafka_partition": "x"}, None, "'kafka_partition' must be a number"),
        ({"kafka_topic": "t", "kafka_partition": 1.5}, None, "'kafka_partition' must be a number"),
        ({"kafka_topic": "t", "kafka_partition": True}, None, "'kafka_partition' must be a number"),
        ({"kafka_topic": "t", "kafka_partition": 2**31}, None, "'kafka_partition' must be a number"),
        ({"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": 2**63}, "'kafka_offset' must be a number"),
        ({"kafka_topic": "t", "kafka_partition": 0}, {}, "contain the key 'kafka_offset'"),
        ({"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": -5}, "'kafka_offset' must be a number"),
        ({"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": None}, "'kafka_offset' must be a number"),
    ],
)
def test_entries_that_make_no_sense(partition: Any, offset: Any, text: str) -> None:
    with pytest.raises(BadSinkOffset, match=text):
        parse_entry(partition, offset)


@pytest.mark.integration
def test_a_group_is_moved_and_reset(bootstrap: str, unique: Callable[[str], str]) -> None:
    client, group, topic = {"bootstrap.servers": bootstrap}, unique("group"), unique("topic")
    ensure_topics(client, TopicSpec(name=topic, partitions=3, replication_factor=1, config={}), timeout_s=20)

    def stored() -> list[tuple[int, int]]:
        return [(each.partition, each.offset) for each in sink_offsets.committed(client, group, 20)]

    assert stored() == []
    sink_offsets.alter(client, group, [TopicPartition(topic, partition, 5) for partition in (2, 0, 1)], 20)
    assert stored() == [(0, 5), (1, 5), (2, 5)]
    sink_offsets.alter(client, group, [TopicPartition(topic, 0, 7), TopicPartition(topic, 1, -1)], 20)
    assert stored() == [(0, 7), (2, 5)]
    sink_offsets.reset(client, group, 20)
    assert stored() == []
    sink_offsets.reset(client, group, 20)  # nothing left to forget


@pytest.mark.integration
def test_to_reset_one_partition_touches_no_other(bootstrap: str, unique: Callable[[str], str]) -> None:
    """What stands beside a position, and no request could put back, is still there."""
    client, group, topic = {"bootstrap.servers": bootstrap}, unique("group"), unique("topic")
    ensure_topics(client, TopicSpec(name=topic, partitions=2, replication_factor=1, config={}), timeout_s=20)
    consumer = Consumer({**client, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 5, "mine"), TopicPartition(topic, 1, 6)], asynchronous=False)
    consumer.close()
    sink_offsets.alter(client, group, [TopicPartition(topic, 1, -1)], 20)
    (left,) = sink_offsets.committed(client, group, 20)
    assert (left.partition, left.offset, left.metadata) == (0, 5, "mine")
    sink_offsets.alter(client, unique("nobody"), [TopicPartition(topic, 1, -1)], 20)  # nothing to forget
    sink_offsets.alter(client, group, [TopicPartition(unique("nowhere"), 1, -1)], 20)


def test_a_cluster_the_request_cannot_be_sent_to_is_said() -> None:
    client = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    client |= {"sasl.username": "u", "sasl.password": "p"}
    with pytest.raises(GroupFailed, match="move them to an offset, or reset all of them"):
        sink_offsets.alter(client, "g", [TopicPartition("t", 1, -1)], 1)


@pytest.mark.parametrize("number", ["1_000", " 5 ", "\N{ARABIC-INDIC DIGIT ONE}", "-1", ""])
def test_a_number_with_a_typing_error_moves_nothing(number: str) -> None:
    with pytest.raises(BadSinkOffset, match="kafka_offset"):
        parse_entry({"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": number})
