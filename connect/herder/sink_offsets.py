"""A sink's offsets: those of its consumer group, in Connect's words

A sink has no offsets of its own; its progress is what its consumer group committed. The REST API shows it as partition
`{"kafka_topic", "kafka_partition"}` and offset `{"kafka_offset"}`, and takes numbers written as text as well, because
clients send both. Calls block: they belong on a thread.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tidemill.connect.topic_log import Settings

TOPIC, PARTITION, OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"


class BadSinkOffset(ValueError):
    """An entry that is not a topic partition or an offset."""


class GroupFailed(Exception):
    """The cluster did not do what was asked of the group."""


def parse_entry(partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> TopicPartition:
    """Read one entry of a request; an offset of None becomes -1, which asks for the commit to be dropped.

    >>> parse_entry({"kafka_topic": "t", "kafka_partition": "3"}, {"kafka_offset": 10}).offset
    10
    """
    topic = partition.get(TOPIC)
    if not isinstance(topic, str) or not topic or PARTITION not in partition:
        raise BadSinkOffset(
            f"A sink connector's partition must contain the keys '{TOPIC}' and '{PARTITION}', got {partition}"
        )
    number = _number(partition[PARTITION], PARTITION)
    if offset is None:
        return TopicPartition(topic, number, -1)
    if OFFSET not in offset:
        raise BadSinkOffset(f"A sink connector's offset must contain the key '{OFFSET}', got {dict(offset)}")
    return TopicPartition(topic, number, _number(offset[OFFSET], OFFSET))


def _number(value: Any, name: str) -> int:
    try:
        number = -1 if isinstance(value, bool | float) else int(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise BadSinkOffset(f"The value of '{name}' must be a number of at least 0, got {value!r}")
    return number


def committed(client: Settings, group: str, timeout_s: float) -> list[TopicPartition]:
    """What the group has committed, in the order of topics and partitions."""
    admin = AdminClient(dict(client))
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=timeout_s)
    try:
        found = asked[group].result(timeout_s).topic_partitions
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return []
        raise GroupFailed(f"cannot read the offsets of group {group}: {error.args[0].str()}") from error
    return sorted((each for each in found if each.offset >= 0), key=lambda each: (each.topic, each.partition))


def alter(client: Settings, group: str, wanted: Sequence[TopicPartition], timeout_s: float) -> None:
    """Commit `wanted` for the group; an offset of -1 drops the commit of that partition."""
    admin = AdminClient(dict(client))
    moves = [each for each in wanted if each.offset >= 0]
    drops = {(each.topic, each.partition) for each in wanted if each.offset < 0}
    if moves:
        _alter(admin, group, moves, timeout_s)
    if drops:
        # librdkafka cannot delete single commits of a group: the group is deleted and the other commits put back.
        kept = [each for each in committed(client, group, timeout_s) if (each.topic, each.partition) not in drops]
        reset(client, group, timeout_s)
        if kept:
            _alter(admin, group, kept, timeout_s)


def _alter(admin: AdminClient, group: str, offsets: list[TopicPartition], timeout_s: float) -> None:
    asked = admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, offsets)], request_timeout=timeout_s
    )
    try:
        done = asked[group].result(timeout_s).topic_partitions
    except KafkaException as error:
        raise GroupFailed(f"cannot move group {group}: {error.args[0].str()}") from error
    refused = [f"{each.topic}-{each.partition}: {each.error.str()}" for each in done if each.error is not None]
    if refused:
        raise GroupFailed(f"cannot move group {group}: {'; '.join(refused)}")


def reset(client: Settings, group: str, timeout_s: float) -> None:
    """Forget everything the group has committed."""
    admin = AdminClient(dict(client))
    try:
        admin.delete_consumer_groups([group], request_timeout=timeout_s)[group].result(timeout_s)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
            raise GroupFailed(f"cannot delete group {group}: {error.args[0].str()}") from error
