"""A cluster of five brokers as its image says it, seen from broker 1

Brokers 1 and 2 are well, 3 is fenced, 4 has no listener EXTERNAL, 5 is gone without a trace.
"""

import uuid
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import Any

from tidemill.broker.authorization import ALLOW_ALL
from tidemill.broker.config import BrokerConfig
from tidemill.broker.dispatch import RequestContext
from tidemill.broker.groups.coordinator import OFFSETS_TOPIC
from tidemill.broker.quorum.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from tidemill.broker.quorum.leadership import AlterReassignments, ElectLeaders
from tidemill.broker.quorum.member import QuorumReplica, QuorumState
from tidemill.broker.quorum.metadata import Rules, decide
from tidemill.broker.quorum.records import BrokerEndpoint
from tidemill.broker.quorum.shared_map import SharedMap

CONFIG = BrokerConfig.parse({"log.dirs": "nowhere", "broker.rack": "a", "listeners": "PLAINTEXT://plaintext-1:9001"})
LISTENERS = {
    1: ("PLAINTEXT", "EXTERNAL"),
    2: ("PLAINTEXT", "EXTERNAL"),
    3: ("PLAINTEXT", "EXTERNAL"),
    4: ("PLAINTEXT",),
}
RACKS = {1: "a", 2: "b", 3: "c", 4: None}
FENCED = (3,)


def _broker(node_id: int) -> BrokerImage:
    end_points = tuple(
        BrokerEndpoint(name=name, host=f"{name.lower()}-{node_id}", port=9000 + node_id) for name in LISTENERS[node_id]
    )
    return BrokerImage(
        node_id=node_id,
        epoch=node_id,
        incarnation_id=uuid.UUID(int=node_id),
        end_points=end_points,
        rack=RACKS[node_id],
        fenced=node_id in FENCED,
    )


def topic_led_by(name: str, topic_id: int, *leaders: int) -> TopicImage:
    """A partition per leader, on all five brokers; the fenced one and the one that is gone are not in sync."""
    return TopicImage(
        name=name,
        topic_id=uuid.UUID(int=topic_id),
        partitions=tuple(
            PartitionImage(
                partition=number,
                replicas=(1, 2, 3, 4, 5),
                isr=(1, 2, 4),
                leader=leader,
                leader_epoch=7,
                partition_epoch=9,
            )
            for number, leader in enumerate(leaders)
        ),
    )


class FakeController:
    """Decides, and forgets what it has decided; a quorum of three, of which it leads none."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.asked: list[Any] = []

    async def elect_leaders(self, request: ElectLeaders) -> Any:
        return self._decide(request)

    async def alter_reassignments(self, request: AlterReassignments) -> Any:
        return self._decide(request)

    def _decide(self, request: Any) -> Any:
        self.asked.append(request)
        return decide(self.image, request, Rules()).response

    def quorum(self) -> QuorumState:
        return QuorumState(
            leader_id=2,
            leader_epoch=17,
            high_watermark=90,
            voters=tuple(QuorumReplica(node_id=node, log_end_offset=90 + node) for node in (1, 2, 4)),
            observers=(QuorumReplica(node_id=5, log_end_offset=80, last_fetch_ms=7, last_caught_up_ms=6),),
        )


def moving(topic: TopicImage, *numbers: int) -> TopicImage:
    """The same with some partitions on their way from 4 and 5 to 1 and 3."""
    return replace(
        topic,
        partitions=tuple(
            replace(each, adding_replicas=(1, 3), removing_replicas=(4, 5)) if each.partition in numbers else each
            for each in topic.partitions
        ),
    )


def cluster(
    *,
    offsets_led_by: tuple[int, ...] = (1, 2, 3, 4, 5, -1),
    moving_partitions: tuple[int, ...] = (),
    missed: tuple[int, ...] = (),
) -> Any:
    """What handlers see of it: topic t with a partition for each leader that there might be, and none."""
    topics = {
        "t": moving(topic_led_by("t", 1, 1, 2, 3, 4, 5, -1), *moving_partitions),
        OFFSETS_TOPIC: topic_led_by(OFFSETS_TOPIC, 2, *offsets_led_by),
    }
    image = ClusterImage(
        topics=SharedMap(topics),
        topic_names=SharedMap({topic.topic_id: name for name, topic in topics.items()}),
        brokers=MappingProxyType({node_id: _broker(node_id) for node_id in (4, 2, 1, 3)}),
    )

    async def nothing() -> None:
        pass

    return SimpleNamespace(
        node_id=1,
        cluster_id="c",
        host="localhost",
        port=9001,
        config=CONFIG,
        controller=FakeController(image),
        groups=SimpleNamespace(trouble=lambda _group: None),
        ensure_offsets_topic=nothing,
        misses=lambda node_id: node_id in missed,
        authorizer=ALLOW_ALL,
    )


def context(version: int, listener: str = "EXTERNAL") -> RequestContext:
    """Of a client that came to broker 1 by `listener`."""
    return RequestContext(
        api_version=version,
        client_id="c",
        client_host="10.0.0.9",
        listener=listener,
        connection_id="x",
        server_host=f"{listener.lower()}-1",
        server_port=9001,
    )
