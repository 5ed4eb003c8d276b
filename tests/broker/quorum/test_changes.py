"""Elections and ISRs that change, counted once each and told apart."""

import uuid

import pytest

from tidemill.broker.quorum.changes import ChangeCounts
from tidemill.broker.quorum.delta import ImageDelta
from tidemill.broker.quorum.image import ClusterImage, apply_batch
from tidemill.broker.quorum.records import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

TOPIC = uuid.UUID(int=7)


def made(**partition: object) -> list[MetadataRecord]:
    first = {"replicas": (1, 2, 3), "isr": (1, 2, 3), "leader": 1, **partition}
    return [TopicRecord(name="t", topic_id=TOPIC), PartitionRecord(partition_id=0, topic_id=TOPIC, **first)]  # type: ignore[arg-type]


def change(**what: object) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=0, topic_id=TOPIC, **what)  # type: ignore[arg-type]


def counted(node_id: int, begin: list[MetadataRecord], *steps: MetadataRecord) -> ChangeCounts:
    counts, image = ChangeCounts(node_id), apply_batch(ClusterImage(), begin)
    counts.hear(ImageDelta.between(ClusterImage(), image))
    for step in steps:
        after = apply_batch(image, [step])
        counts.hear(ImageDelta.between(image, after))
        image = after
    return counts


def elections(counts: ChangeCounts) -> tuple[int, int, int]:
    return counts.elections, counts.from_eligible, counts.unclean


def test_what_is_made_or_goes_is_no_change() -> None:
    found = counted(1, made(), RemoveTopicRecord(topic_id=TOPIC))
    assert (elections(found), found.isr_shrinks, found.isr_expands) == ((0, 0, 0), 0, 0)


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        ({"isr": (1, 2)}, {"leader": 2}, (1, 0, 0)),
        ({"isr": (1,), "eligible_leader_replicas": (2,)}, {"leader": 2}, (1, 1, 0)),
        (
            {"isr": (1,), "eligible_leader_replicas": (2,)},
            {"leader": 3, "isr": (3,), "leader_recovery_state": 1},
            (1, 0, 1),
        ),
        ({}, {"leader": 1}, (0, 0, 0)),  # the same broker once more, as after a start out of order
        ({}, {"leader": -1}, (0, 0, 0)),  # nobody
    ],
)
def test_an_election_is_told_by_what_the_new_leader_had(
    before: dict[str, object], after: dict[str, object], counts: tuple[int, int, int]
) -> None:
    assert elections(counted(1, made(**before), change(**after))) == counts


def test_a_node_that_was_away_takes_no_election_for_one_that_loses_records() -> None:
    """What it hears of at once: another joined the ISR, and then led."""
    before = apply_batch(ClusterImage(), made(isr=(1,)))
    after = apply_batch(before, [change(isr=(1, 2)), change(isr=(2,), leader=2)])
    counts = ChangeCounts(3)
    counts.hear(ImageDelta.between(before, after))
    assert elections(counts) == (1, 0, 0)


def test_isrs_count_where_they_are_led() -> None:
    steps = [change(isr=(1, 2)), change(isr=(1, 2, 3)), change(isr=(1, 3))]
    leader, other = counted(1, made(), *steps), counted(2, made(), *steps)
    assert (leader.isr_shrinks, leader.isr_expands) == (2, 1)
    assert (other.isr_shrinks, other.isr_expands) == (0, 0)
    swapped = counted(1, made(isr=(1, 2)), change(isr=(1, 3)))
    assert (swapped.isr_shrinks, swapped.isr_expands) == (1, 1)
