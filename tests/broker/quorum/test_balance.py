"""Leaders back where they are preferred."""

import uuid
from types import MappingProxyType
from typing import Any

import pytest

from tidemill.broker.quorum.balance import BalanceResult, ElectPreferred
from tidemill.broker.quorum.image import BrokerImage, ClusterImage, PartitionImage, TopicImage, apply_batch
from tidemill.broker.quorum.metadata import Rules, decide
from tidemill.broker.quorum.shared_map import SharedMap

TOPIC_ID = uuid.UUID(int=1)


def cluster(
    racks: dict[int, str | None], *replicas: tuple[int, ...], fenced: frozenset[int] = frozenset(), **more: Any
) -> ClusterImage:
    topic = TopicImage(
        name="t",
        topic_id=TOPIC_ID,
        partitions=tuple(
            PartitionImage(
                partition=number, replicas=nodes, isr=nodes, leader=nodes[0], leader_epoch=1, partition_epoch=1, **more
            )
            for number, nodes in enumerate(replicas)
        ),
    )
    return ClusterImage(
        topics=SharedMap({"t": topic}),
        topic_names=SharedMap({TOPIC_ID: "t"}),
        brokers=MappingProxyType(
            {
                node: BrokerImage(
                    node_id=node,
                    epoch=1,
                    incarnation_id=uuid.UUID(int=node),
                    end_points=(),
                    rack=rack,
                    fenced=node in fenced,
                )
                for node, rack in racks.items()
            }
        ),
        partition_count=len(replicas),
    )


def no_racks(*nodes: int) -> dict[int, str | None]:
    return dict.fromkeys(nodes)


def led_by(image: ClusterImage, leader: int, *numbers: int) -> ClusterImage:
    partitions = [
        PartitionImage(
            partition=each.partition,
            replicas=each.replicas,
            isr=each.isr,
            leader=leader if each.partition in numbers else each.leader,
            leader_epoch=1,
            partition_epoch=1,
        )
        for each in image.topics["t"].partitions
    ]
    topic = TopicImage(name="t", topic_id=TOPIC_ID, partitions=tuple(partitions))
    return ClusterImage(
        topics=SharedMap({"t": topic}), topic_names=SharedMap({TOPIC_ID: "t"}), brokers=image.brokers, partition_count=9
    )


@pytest.mark.parametrize(
    ("away", "percentage", "elected"),
    [((), 0, 0), ((0,), 10, 0), ((0,), 9, 1), ((0, 1), 10, 2), ((0, 1, 2, 3), 40, 0), ((0, 1, 2, 3), 39, 4)],
)
def test_leaders_go_back_when_too_many_are_away(away: tuple[int, ...], percentage: int, elected: int) -> None:
    image = led_by(cluster(no_racks(1, 2), *[(1, 2)] * 10), 2, *away)
    result = decide(image, ElectPreferred(), Rules(leader_imbalance_percentage=percentage))
    assert result.response == BalanceResult(elected=elected)
    after = apply_batch(image, result.records).topics["t"].partitions
    assert sum(each.leader == 2 for each in after) == len(away) - elected
    assert sum(each.leader_epoch == 2 for each in after) == elected


def test_leaders_do_not_go_back_to_who_is_away() -> None:
    image = led_by(cluster(no_racks(1, 2), *[(1, 2)] * 4, fenced=frozenset({1})), 2, 0, 1, 2, 3)
    assert decide(image, ElectPreferred(), Rules()).records == ()
