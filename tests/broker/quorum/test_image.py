"""Images: what each record changes, and what an image refuses."""

import uuid

import pytest

from tidemill.broker.quorum.image import ClusterImage, ImageError, apply, apply_batch
from tidemill.broker.quorum.records import (
    BrokerEndpoint,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2)


def topic(name: str, topic_id: uuid.UUID, partitions: int = 1) -> list[MetadataRecord]:
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(
            PartitionRecord(partition_id=index, topic_id=topic_id, replicas=(1,), isr=(1,), leader=1)
            for index in range(partitions)
        ),
    ]


def config(name: str, key: str, value: str | None, kind: int = 2) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)


def test_a_topic_comes_with_its_partitions_and_goes_with_them() -> None:
    image = apply_batch(ClusterImage(), topic("a", ONE, 3))
    assert [partition.partition for partition in image.topics["a"].partitions] == [0, 1, 2]
    assert image.topic_names[ONE] == "a"
    assert image.topic_by_id(ONE) is image.topics["a"]
    assert (image.partition_count, image.offset) == (3, 4)
    image = apply(image, RemoveTopicRecord(topic_id=ONE))
    assert (dict(image.topics), dict(image.topic_names), image.partition_count, image.offset) == ({}, {}, 0, 5)
    assert image.topic_by_id(ONE) is None


def test_one_by_one_and_as_a_batch_give_the_same() -> None:
    records = [*topic("a", ONE, 2), config("a", "retention.ms", "1"), *topic("b", TWO), RemoveTopicRecord(topic_id=ONE)]
    single = ClusterImage()
    for record in records:
        single = apply(single, record)
    assert single == apply_batch(ClusterImage(), records)


def test_an_image_does_not_change_when_the_next_one_is_made() -> None:
    before = apply_batch(ClusterImage(), topic("a", ONE))
    after = apply_batch(before, [*topic("b", TWO), config("a", "retention.ms", "5")])
    assert list(before.topics) == ["a"]
    assert dict(before.topics["a"].configs) == {}
    assert after.topics["a"].partitions is before.topics["a"].partitions
    with pytest.raises(TypeError):
        before.topics["c"] = before.topics["a"]  # type: ignore[index]


def test_settings_are_set_and_taken_away() -> None:
    image = apply_batch(
        ClusterImage(), [*topic("a", ONE), config("a", "k", "v"), config("1", "log.retention.ms", "3", 4)]
    )
    assert dict(image.topics["a"].configs) == {"k": "v"}
    assert dict(image.broker_configs["1"]) == {"log.retention.ms": "3"}
    image = apply_batch(image, [config("a", "k", None), config("1", "log.retention.ms", None, 4)])
    assert dict(image.topics["a"].configs) == dict(image.broker_configs["1"]) == {}


def test_brokers_come_back_and_leave() -> None:
    record = RegisterBrokerRecord(
        broker_id=1, incarnation_id=ONE, broker_epoch=0, end_points=(BrokerEndpoint(name="P", host="h", port=1),)
    )
    image = apply(ClusterImage(), record)
    assert image.brokers[1].end_points[0].host == "h"
    image = apply(image, UnregisterBrokerRecord(broker_id=1, broker_epoch=0))
    assert dict(image.brokers) == {}


def test_internal_topics_are_the_clusters_own() -> None:
    image = apply_batch(ClusterImage(), [*topic("__consumer_offsets", ONE), *topic("mine", TWO)])
    assert image.topics["__consumer_offsets"].internal
    assert not image.topics["mine"].internal


@pytest.mark.parametrize(
    "records",
    [
        [*topic("a", ONE), TopicRecord(name="a", topic_id=TWO)],
        [*topic("a", ONE), TopicRecord(name="b", topic_id=ONE)],
        [PartitionRecord(partition_id=0, topic_id=ONE, replicas=(), isr=())],
        [TopicRecord(name="a", topic_id=ONE), PartitionRecord(partition_id=1, topic_id=ONE, replicas=(), isr=())],
        [RemoveTopicRecord(topic_id=ONE)],
        [config("missing", "k", "v")],
        [config("x", "k", "v", 9)],
        [
            ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=5),
            ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=4),
        ],
    ],
)
def test_a_log_that_contradicts_itself_is_refused(records: list[MetadataRecord]) -> None:
    with pytest.raises(ImageError):
        apply_batch(ClusterImage(), records)
