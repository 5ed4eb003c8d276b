"""What changed between two images: all of it, nothing else, and at the price of the change."""

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.quorum.random_records import histories
from tidemill.broker.quorum import shared_map
from tidemill.broker.quorum.delta import ImageDelta
from tidemill.broker.quorum.image import ClusterImage, apply_batch
from tidemill.broker.quorum.records import (
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)


def topic(name: str, number: int, partitions: int = 1) -> list[MetadataRecord]:
    topic_id = uuid.UUID(int=number)
    rows = [
        PartitionRecord(partition_id=index, topic_id=topic_id, replicas=(1, 2, 3), isr=(1, 2, 3), leader=1)
        for index in range(partitions)
    ]
    return [TopicRecord(name=name, topic_id=topic_id), *rows]


def different(before: dict[str, object], after: dict[str, object]) -> set[str]:
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


@settings(max_examples=300, deadline=None)
@given(histories(), st.data())
def test_a_delta_has_what_a_comparison_of_everything_finds(records: list[MetadataRecord], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(records)))
    before = apply_batch(ClusterImage(), records[:cut])
    after = apply_batch(before, records[cut:])
    delta = ImageDelta.between(before, after)
    for keys, old, new in (
        (delta.topics, before.topics, after.topics),
        (delta.brokers, before.brokers, after.brokers),
        (delta.broker_configs, before.broker_configs, after.broker_configs),
        (delta.features, before.features, after.features),
        (delta.acls, before.security.acls, after.security.acls),
        (delta.scram, before.security.scram, after.security.scram),
        (delta.quotas, before.security.quotas, after.security.quotas),
        (delta.tokens, before.security.tokens, after.security.tokens),
    ):
        found = different(dict(old), dict(new))  # type: ignore[call-overload]
        assert found <= set(keys)
        assert list(keys) == sorted(keys)
        assert not set(keys) - found - {key for key in keys if key in old and key in new}, "equal, but made anew"
    ids = [{name: image.topics[name].topic_id for name in image.topics} for image in (before, after)]
    assert set(delta.gone) == {name for name, topic_id in ids[0].items() if ids[1].get(name) != topic_id}


def test_nothing_is_in_a_delta_of_an_image_with_itself() -> None:
    image = apply_batch(ClusterImage(), topic("a", 1))
    delta = ImageDelta.between(image, image)
    assert (delta.topics, delta.gone, delta.brokers, delta.features) == ((), (), (), ())


def test_a_topic_that_came_again_is_gone_and_one_that_came_and_went_is_not_there() -> None:
    before = apply_batch(ClusterImage(), topic("a", 1))
    after = apply_batch(before, [RemoveTopicRecord(topic_id=uuid.UUID(int=1)), *topic("a", 2)])
    after = apply_batch(after, [*topic("b", 3), RemoveTopicRecord(topic_id=uuid.UUID(int=3))])
    delta = ImageDelta.between(before, after)
    assert (delta.topics, delta.gone) == (("a",), ("a",))


def test_one_isr_change_among_ten_thousand_topics_is_one_topic_and_looks_at_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = [record for number in range(10_000) for record in topic(f"t{number}", number + 1)]
    before = apply_batch(ClusterImage(), records)
    change = PartitionChangeRecord(partition_id=0, topic_id=uuid.UUID(int=778), isr=(1, 2))
    after = apply_batch(before, [change])
    delta = ImageDelta.between(before, after)
    assert (delta.topics, delta.gone) == (("t777",), ())
    assert after.topics["t777"].partitions[0].isr == (1, 2)
    others = sum(before.topics[name] is after.topics[name] for name in before.topics)
    assert others == 9_999
    feature = apply_batch(after, [FeatureLevelRecord(name="f", feature_level=1)])
    assert ImageDelta.between(after, feature).topics == ()
    assert shared_map.SHARD_ENTRIES <= 64, "so many at most are compared, on average"
