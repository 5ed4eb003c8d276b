"""A sink's offsets: those of its consumer group, in Connect's words

A sink has no offsets of its own; its progress is what its consumer group committed. The REST API shows it as partition
`{"kafka_topic", "kafka_partition"}` and offset `{"kafka_offset"}`, and takes numbers written as text as well, because
clients send both. Calls block: they belong on a thread.

librdkafka for Python cannot forget the position of a single partition, so that one request goes through the client of
our own, which speaks to clusters without encryption and log-in only. To delete the group and put the rest back would
lose everything if anything happens in between.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from tidemill.connect.topic_log import Settings, admin_client, ask
from tidemill.core import errors
from tidemill.core.client.admin import Admin
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.security import dialer_of
from tidemill.core.config import ConfigError
from tidemill.core.runtime.net import TcpDialer
from tidemill.core.security.client_tls import is_security
from tidemill.core.types import TopicPartition as Partition

TOPIC, PARTITION, OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"
PARTITION_MAX, OFFSET_MAX = 2**31 - 1, 2**63 - 1

_DIGITS = re.compile(r"\+?[0-9]{1,40}")
"""What Java takes for a number; Python's "1_000" and " 5 " are typing errors here."""


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
            f"The partition for a sink connector offset must contain the keys '{TOPIC}' and '{PARTITION}'"
        )
    if "\0" in topic:
        raise BadSinkOffset(f"The value of '{TOPIC}' must be the name of a topic, got {topic!r}")
    number = _number(partition[PARTITION], PARTITION, PARTITION_MAX)
    if offset is None:
        return TopicPartition(topic, number, -1)
    if OFFSET not in offset:
        raise BadSinkOffset(f"The offset for a sink connector should either be null or contain the key '{OFFSET}'")
    return TopicPartition(topic, number, _number(offset[OFFSET], OFFSET, OFFSET_MAX))


def _number(value: Any, name: str, most: int) -> int:
    number = -1
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and _DIGITS.fullmatch(value):
        number = int(value)
    if not 0 <= number <= most:
        raise BadSinkOffset(f"The value of '{name}' must be a number of at least 0, got {value!r}")
    return number


def committed(client: Settings, group: str, timeout_s: float) -> list[TopicPartition]:
    """What the group has committed, in the order of topics and partitions.

    Our own client asks where it can: librdkafka's (2.16, its issue 5040) ends the whole process by SIGSEGV when the
    coordinator has just moved, that is, when OffsetFetch is answered with NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE.
    """
    try:
        dialer = _dialer(client)
    except ConfigError:
        found = _told_to_librdkafka(client, group, timeout_s)
    else:
        found = asyncio.run(_told(client["bootstrap.servers"], dialer, group, timeout_s))
    return sorted((each for each in found if each.offset >= 0), key=lambda each: (each.topic, each.partition))


async def _told(bootstrap: str, dialer: TcpDialer, group: str, timeout_s: float) -> list[TopicPartition]:
    try:
        async with ClusterClient(bootstrap, dialer=dialer, call_timeout_ms=int(timeout_s * 1000)) as cluster:
            found = await Admin(cluster).committed_offsets(group)
    except errors.GroupIdNotFound:
        return []
    except (errors.KafkaError, OSError) as error:
        raise GroupFailed(f"cannot read the offsets of group {group}: {error}") from error
    return [TopicPartition(*at, each.offset) for at, each in found.items()]


def _told_to_librdkafka(client: Settings, group: str, timeout_s: float) -> list[TopicPartition]:
    wanted = [ConsumerGroupTopicPartitions(group)]
    try:
        answer = ask(
            lambda: admin_client(client),
            lambda admin: admin.list_consumer_group_offsets(wanted, request_timeout=timeout_s)[group].result(),
        )
        return list(answer.topic_partitions)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return []
        raise GroupFailed(f"cannot read the offsets of group {group}: {error.args[0].str()}") from error


def alter(client: Settings, group: str, wanted: Sequence[TopicPartition], timeout_s: float) -> None:
    """Commit `wanted` for the group; an offset of -1 drops the commit of that partition."""
    moves = [each for each in wanted if each.offset >= 0]
    drops = [Partition(each.topic, each.partition) for each in wanted if each.offset < 0]
    try:
        dialer = _dialer(client) if drops else None
    except ConfigError as error:
        raise GroupFailed(
            f"single partitions of group {group} cannot be reset on this cluster ({error}): move them to an offset, or "
            "reset all of them"
        ) from None
    if moves:
        _alter(client, group, moves, timeout_s)
    if dialer is not None:
        asyncio.run(_drop(client["bootstrap.servers"], dialer, group, drops, timeout_s))


def _dialer(client: Settings) -> TcpDialer:
    """How our own client gets there, which asks for what librdkafka cannot; raises ConfigError."""
    return dialer_of({name: str(value) for name, value in client.items() if is_security(name)})


async def _drop(
    bootstrap: str, dialer: TcpDialer, group: str, partitions: Sequence[Partition], timeout_s: float
) -> None:
    try:
        async with ClusterClient(bootstrap, dialer=dialer, call_timeout_ms=int(timeout_s * 1000)) as cluster:
            outcomes = await Admin(cluster).delete_offsets(group, partitions)
    except errors.GroupIdNotFound:
        return  # nothing is committed
    except (errors.KafkaError, OSError) as error:
        raise GroupFailed(f"cannot reset partitions of group {group}: {error}") from error
    refused = [
        f"{partition.topic}-{partition.partition}: {error}"
        for partition, error in outcomes.items()
        if error is not None and not isinstance(error, errors.UnknownTopicOrPartition)
    ]
    if refused:
        raise GroupFailed(f"cannot reset partitions of group {group}: {'; '.join(refused)}")


def _alter(client: Settings, group: str, offsets: list[TopicPartition], timeout_s: float) -> None:
    wanted = [ConsumerGroupTopicPartitions(group, offsets)]
    try:
        done = ask(
            lambda: admin_client(client),
            lambda admin: admin.alter_consumer_group_offsets(wanted, request_timeout=timeout_s)[group].result(),
        ).topic_partitions
    except KafkaException as error:
        raise GroupFailed(f"cannot move group {group}: {error.args[0].str()}") from error
    refused = [f"{each.topic}-{each.partition}: {each.error.str()}" for each in done if each.error is not None]
    if refused:
        raise GroupFailed(f"cannot move group {group}: {'; '.join(refused)}")


def reset(client: Settings, group: str, timeout_s: float) -> None:
    """Forget everything the group has committed."""
    try:
        ask(
            lambda: admin_client(client),
            lambda admin: admin.delete_consumer_groups([group], request_timeout=timeout_s)[group].result(),
        )
    except KafkaException as error:
        if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
            raise GroupFailed(f"cannot delete group {group}: {error.args[0].str()}") from error
