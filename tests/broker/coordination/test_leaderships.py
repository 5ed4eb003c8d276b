"""What an image changes about the partitions that a coordinator has, and the states of a shard."""

import doctest
import uuid

import pytest

from tidemill.broker.coordination import leaderships
from tidemill.broker.coordination.leaderships import Leadership, ShardMove, ShardState, Turnover, after, turnover
from tidemill.broker.quorum.image import PartitionImage, TopicImage

TOPIC, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)


def topic(*led: tuple[int, int], topic_id: uuid.UUID = TOPIC) -> TopicImage:
    """By partition: who leads, in which epoch."""
    partitions = tuple(
        PartitionImage(
            partition=number, replicas=(1, 2), isr=(1, 2), leader=leader, leader_epoch=epoch, partition_epoch=0
        )
        for number, (leader, epoch) in enumerate(led)
    )
    return TopicImage(name="t", topic_id=topic_id, partitions=partitions)


def lead(epoch: int, topic_id: uuid.UUID = TOPIC) -> Leadership:
    return Leadership(topic_id, epoch)


@pytest.mark.parametrize(
    ("held", "image", "expected"),
    [
        ({}, None, Turnover((), {}, {})),
        ({}, topic((1, 0), (2, 0), (-1, 3)), Turnover((), {0: lead(0)}, {})),
        ({0: lead(0)}, topic((1, 0)), Turnover((), {}, {0: lead(0)})),
        ({0: lead(0)}, topic((1, 1)), Turnover((), {}, {0: lead(1)})),  # chosen again: nobody led in between
        ({0: lead(0)}, topic((1, 2)), Turnover((0,), {0: lead(2)}, {})),  # somebody may have
        ({0: lead(3)}, topic((1, 2)), Turnover((0,), {0: lead(2)}, {})),
        ({0: lead(0), 1: lead(0)}, topic((2, 1), (1, 0)), Turnover((0,), {}, {1: lead(0)})),
        ({0: lead(0)}, topic((-1, 1)), Turnover((0,), {}, {})),
        ({0: lead(0)}, None, Turnover((0,), {}, {})),
        ({0: lead(0)}, topic((1, 0), topic_id=OTHER), Turnover((0,), {0: lead(0, OTHER)}, {})),
    ],
)
def test_what_is_given_up_taken_up_and_kept(
    held: dict[int, Leadership], image: TopicImage | None, expected: Turnover
) -> None:
    assert turnover(held, image, 1) == expected


def test_the_table_is_the_whole_truth() -> None:
    assert doctest.testmod(leaderships).failed == 0
    assert after(ShardState.LOADING, ShardMove.LOADED) is ShardState.ACTIVE
    for state, move in ((ShardState.ACTIVE, ShardMove.LOADED), (ShardState.OVER, ShardMove.GIVEN_UP)):
        with pytest.raises(AssertionError, match="cannot be moved"):
            after(state, move)
