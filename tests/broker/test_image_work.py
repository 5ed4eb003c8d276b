"""What there is to do about an image: no topic is missed, and nothing is done for one that has gone meanwhile"""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

from tidemill.broker.image_work import as_of, lacks_log, work_of
from tidemill.broker.quorum.delta import ImageDelta
from tidemill.broker.quorum.image import RESOURCE_TOPIC, ClusterImage, TopicImage, apply_batch
from tidemill.broker.quorum.records import ConfigRecord, MetadataRecord, PartitionRecord, RemoveTopicRecord, TopicRecord

HERE = 2


def topic(name: str, number: int, *replicas: int) -> list[MetadataRecord]:
    partition = PartitionRecord(
        partition_id=0, topic_id=uuid.UUID(int=number), replicas=replicas, isr=replicas, leader=replicas[0]
    )
    return [TopicRecord(name=name, topic_id=uuid.UUID(int=number)), partition]


def setting(name: str) -> ConfigRecord:
    return ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name=name, name="segment.bytes", value="50000")


THREE = apply_batch(ClusterImage(), [*topic("a", 1, 1, 2), *topic("b", 2, 1), *topic("c", 3, 2)])


def work(before: ClusterImage, after: ClusterImage) -> Mapping[str, bool]:
    return {each.topic.name: each.obey for each in work_of(ImageDelta.between(before, after))}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ([], {}),
        (topic("d", 4, 2), {"d": False}),
        ([setting("b")], {"b": True}),
        ([*topic("d", 4, 2), setting("d")], {"d": False}),
        ([RemoveTopicRecord(topic_id=uuid.UUID(int=1))], {}),
        ([RemoveTopicRecord(topic_id=uuid.UUID(int=1)), *topic("a", 5, 2)], {"a": False}),
    ],
    ids=[
        "nothing",
        "a new one",
        "other settings",
        "a new one with settings",
        "one that is gone",
        "another of its name",
    ],
)
def test_a_topic_is_looked_at_where_it_is_another_than_before(
    change: list[MetadataRecord], expected: dict[str, bool]
) -> None:
    assert work(THREE, apply_batch(THREE, change)) == expected


def test_a_setting_of_brokers_is_about_all_topics() -> None:
    grown = apply_batch(THREE, topic("d", 4, 2))
    after = replace(grown, broker_configs=MappingProxyType({"": {"log.retention.ms": "77"}}))
    assert work(THREE, after) == {"a": True, "b": True, "c": True, "d": False}


def test_a_topic_that_has_gone_meanwhile_is_not_taken_for_another_of_its_name() -> None:
    old = THREE.topics["a"]
    assert as_of(THREE, old) is old
    gone = apply_batch(THREE, [RemoveTopicRecord(topic_id=old.topic_id)])
    assert as_of(gone, old) is None
    assert as_of(apply_batch(gone, topic("a", 9, 1)), old) is None


def test_a_log_is_lacking_where_a_replica_lives_and_has_none() -> None:
    def lacking(found: TopicImage, *logs: tuple[str, int]) -> list[int]:
        return [
            each.partition
            for each in found.partitions
            if lacks_log(found.name, each, HERE, lambda name, number: (name, number) in logs)
        ]

    assert lacking(THREE.topics["a"]) == [0]
    assert lacking(THREE.topics["a"], ("a", 0)) == []
    assert lacking(THREE.topics["a"], ("c", 0)) == [0]
    assert lacking(THREE.topics["b"]) == []
