"""From a request's words to a log"""

import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.broker.broker_world import running_broker
from tests.broker.handlers.data_path import make_topic
from tidemill.broker.partitions import find_partition, find_replica, find_topic
from tidemill.broker.quorum.image import ClusterImage, PartitionImage, TopicImage
from tidemill.core.errors import (
    FencedLeaderEpoch,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

ID = uuid.UUID(int=8)


def cluster(leader: int = 1) -> Any:
    """A broker 1 without any log, in a cluster where `leader` leads partition 0 of t in epoch 5."""
    partition = PartitionImage(partition=0, replicas=(1,), isr=(1,), leader=leader, leader_epoch=5, partition_epoch=0)
    topic = TopicImage(name="t", topic_id=ID, partitions=(partition,))
    image = ClusterImage(topics={"t": topic}, topic_names={ID: "t"})
    return SimpleNamespace(
        node_id=1,
        controller=SimpleNamespace(image=image),
        replicas=SimpleNamespace(get=lambda _topic, _partition: None),
    )


def test_topics_by_name_and_by_id() -> None:
    broker = cluster()
    assert find_topic(broker, "t") is find_topic(broker, None, ID) is find_topic(broker, "", ID)
    for name, topic_id, error in (
        ("x", ID, UnknownTopicOrPartition),
        (None, uuid.UUID(int=9), UnknownTopicId),
        (None, uuid.UUID(int=0), UnknownTopicOrPartition),
    ):
        with pytest.raises(error):
            find_topic(broker, name, topic_id)


@pytest.mark.parametrize("partition", [-1, 1])
def test_partitions_that_are_not_there(partition: int) -> None:
    with pytest.raises(UnknownTopicOrPartition):
        find_partition(find_topic(cluster(), "t"), partition)


@pytest.mark.parametrize(
    ("leader", "believed", "error"),
    [(2, -1, NotLeaderOrFollower), (1, 4, FencedLeaderEpoch), (1, 6, UnknownLeaderEpoch), (1, 5, KafkaStorageError)],
)
def test_why_there_is_no_log(leader: int, believed: int, error: type[KafkaError]) -> None:
    broker = cluster(leader)
    with pytest.raises(error):
        find_replica(broker, find_topic(broker, "t"), 0, believed)


async def test_a_replica_that_leads(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        topic = await make_topic(broker)
        replica = find_replica(broker, topic, 0, 0)
        assert (replica.log, replica.image) == (broker.logs.get("t", 0), topic.partitions[0])
        with pytest.raises(UnknownLeaderEpoch):
            find_replica(broker, topic, 0, 1)
