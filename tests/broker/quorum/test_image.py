"""Images: what each record changes, and what an image refuses."""

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.quorum.random_records import histories
from tidemill.broker.quorum.image import ClusterImage, Draft, ImageError, apply, apply_batch
from tidemill.broker.quorum.records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
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
    assert dict(image.topics["a"].configs) == dict(image.broker_configs) == {}


def test_a_leadership_that_begins_raises_the_epoch() -> None:
    image = apply_batch(ClusterImage(), topic("a", ONE, 3))
    begins = PartitionChangeRecord(partition_id=1, topic_id=ONE, leader=1)
    after = apply_batch(image, [begins, begins])
    assert [each.leader_epoch for each in after.topics["a"].partitions] == [0, 2, 0]
    assert [each.partition_epoch for each in after.topics["a"].partitions] == [0, 2, 0]
    assert (after.offset, after.partition_count) == (6, 3)
    together = apply_batch(ClusterImage(), [*topic("a", ONE, 3), begins, begins])
    assert together == after


def test_a_change_without_a_leader_leaves_the_leadership_as_it_was() -> None:
    image = apply_batch(ClusterImage(), topic("a", ONE))
    changed = PartitionChangeRecord(partition_id=0, topic_id=ONE, isr=(1,), adding_replicas=(4,), replicas=(1, 4))
    partition = apply(image, changed).topics["a"].partitions[0]
    before = image.topics["a"].partitions[0]
    assert (partition.leader, partition.leader_epoch) == (before.leader, before.leader_epoch)
    assert (partition.isr, partition.replicas, partition.adding_replicas) == ((1,), (1, 4), (4,))
    assert (partition.partition_epoch, partition.reassigned, before.reassigned) == (1, True, False)
    again = apply(apply(image, changed), PartitionChangeRecord(partition_id=0, topic_id=ONE, adding_replicas=()))
    assert not again.topics["a"].partitions[0].reassigned


def test_a_broker_is_fenced_and_unfenced() -> None:
    image = apply(ClusterImage(), RegisterBrokerRecord(broker_id=1, incarnation_id=ONE, broker_epoch=7, end_points=()))

    def active(**change: int) -> bool:
        return apply(
            image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, **change)
        ).brokers[1].active  # fmt: skip

    assert active() and active(fenced=-1)
    assert not active(fenced=1) and not active(in_controlled_shutdown=1)
    for broker_id, epoch in ((1, 6), (2, 7)):
        with pytest.raises(ImageError):
            apply(image, BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=1))


def test_a_feature_has_a_level_until_it_is_zero() -> None:
    image = apply(ClusterImage(), FeatureLevelRecord(name="f", feature_level=2))
    assert dict(image.features) == {"f": 2}
    assert dict(apply(image, FeatureLevelRecord(name="f", feature_level=0)).features) == {}


@settings(max_examples=200, deadline=None)
@given(histories(), st.integers(1, 5))
def test_any_history_gives_the_same_in_batches_of_any_size(records: list[MetadataRecord], size: int) -> None:
    image = ClusterImage()
    for first in range(0, len(records), size):
        image = apply_batch(image, records[first : first + size])
    assert image == apply_batch(ClusterImage(), records)


def test_one_draft_for_many_batches_gives_the_same() -> None:
    batches = [topic("a", ONE, 2), [config("a", "k", "1")], topic("b", TWO), [RemoveTopicRecord(topic_id=ONE)]]
    image, draft = ClusterImage(), Draft(ClusterImage())
    for batch in batches:
        image = apply_batch(image, batch)
        draft.apply_all(batch)
    assert draft.freeze() == image
    assert draft.removed == {ONE: "a"}


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
        [PartitionChangeRecord(partition_id=0, topic_id=ONE, leader=1)],
        [*topic("a", ONE), PartitionChangeRecord(partition_id=1, topic_id=ONE, leader=1)],
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
