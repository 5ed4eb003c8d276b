"""A sink's offsets are its group's"""

import asyncio
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.broker.broker_world import running_broker
from tests.librdkafka_clients import clients, no_more_than
from tidemill.connect.herder import sink_offsets
from tidemill.connect.herder.sink_offsets import BadSinkOffset, GroupFailed, parse_entry
from tidemill.connect.topic_log import TopicSpec, ensure_topics
from tidemill.core.errors import CoordinatorNotAvailable, KafkaError, NotCoordinator


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
        ({"kafka_topic": "a\0b", "kafka_partition": 0}, None, "'kafka_topic' must be the name of a topic"),
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
    assert (left.partition, left.offset) == (0, 5)
    consumer = Consumer({**client, "group.id": group})
    (left,) = consumer.committed([TopicPartition(topic, 0)], timeout=20)
    consumer.close()
    assert left.metadata == "mine"
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


ASKED = """
import sys
from tidemill.connect.herder import sink_offsets
print(sink_offsets.committed({"bootstrap.servers": sys.argv[1]}, "g", 20))
"""


@pytest.mark.integration
@pytest.mark.parametrize("refusal", [NotCoordinator, CoordinatorNotAvailable])
async def test_a_coordinator_that_has_just_moved_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: type[KafkaError]
) -> None:
    """In a process of its own: librdkafka ends the one it is in."""
    async with running_broker(tmp_path) as broker:
        address = f"127.0.0.1:{broker.servers[0].port}"
        client, committed, asked = {"bootstrap.servers": address}, broker.groups.committed_offsets, 0
        topic = TopicSpec(name="t", partitions=2, replication_factor=1, config={})
        await asyncio.to_thread(ensure_topics, client, topic, timeout_s=20)
        await asyncio.to_thread(sink_offsets.alter, client, "g", [TopicPartition("t", 1, 5)], 20)

        async def moved_at_first(*arguments: Any) -> Any:
            nonlocal asked
            asked += 1
            if asked == 1:
                raise refusal
            return await committed(*arguments)

        monkeypatch.setattr(broker.groups, "committed_offsets", moved_at_first)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ASKED, address, stdout=asyncio.subprocess.PIPE
        )
        told, _ = await process.communicate()
    assert (process.returncode, asked) == (0, 2)
    assert b"partition=1,offset=5" in told


NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}
WITH_SASL = NOWHERE | {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
WITH_SASL |= {"sasl.username": "u", "sasl.password": "p"}


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (lambda: sink_offsets.committed(NOWHERE, "g", 1.0), "cannot read the offsets of group g: "),
        (lambda: sink_offsets.committed(WITH_SASL, "g", 1.0), "cannot read the offsets of group g: "),
        (lambda: sink_offsets.alter(NOWHERE, "g", [TopicPartition("t", 0, 5)], 1.0), "cannot move group g: "),
        (lambda: sink_offsets.reset(NOWHERE, "g", 1.0), "cannot delete group g: "),
    ],
)
def test_a_cluster_that_does_not_answer_is_said_and_the_client_goes_meanwhile(
    question: Callable[[], Any], said: str
) -> None:
    """While the error is still there, and without a search for cycles: whoever drops these may have other work."""
    gc.disable()
    try:
        before = clients()
        with pytest.raises(GroupFailed, match=f"{said}.") as caught:
            question()
        assert no_more_than(before)
        assert caught.value.args
    finally:
        gc.enable()
