"""Shared value types."""

from tidemill.core.types import ZERO_UUID, TopicPartition, new_tuple


def test_a_topic_partition_is_a_key_and_prints_as_kafka_prints_it() -> None:
    assert {TopicPartition("orders", 3): 1}[TopicPartition("orders", 3)] == 1
    assert str(TopicPartition("orders", 3)) == "orders-3"


def test_the_zero_uuid_is_sixteen_zero_bytes() -> None:
    assert ZERO_UUID.bytes == bytes(16)


def test_a_new_tuple_is_what_its_constructor_makes() -> None:
    made = new_tuple(TopicPartition, ("orders", 3))
    assert (type(made), made) == (TopicPartition, TopicPartition("orders", 3))
