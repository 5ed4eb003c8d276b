"""Look-up of the topic and the replica that a request names

Clients name a topic by name or, in newer versions, by id; they may say which leader epoch they believe in. This is
the one place that turns those into a topic of the cluster image and a replica that leads, and that says what is wrong
otherwise, with the error that makes a client look the topic up again. What a client does to a topic it does to a
`permitted_topic`.
"""

import uuid

from tidemill.broker.authorization import ALLOW_ALL, Requester, permit, topic_named
from tidemill.broker.dispatch import BrokerServices
from tidemill.broker.operations import Operation
from tidemill.broker.quorum.image import PartitionImage, TopicImage
from tidemill.broker.replication.replica import Replica
from tidemill.core.errors import (
    FencedLeaderEpoch,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidemill.core.types import ZERO_UUID


def find_topic(broker: BrokerServices, name: str | None, topic_id: uuid.UUID = ZERO_UUID) -> TopicImage:
    """The topic of that name, or of that id if there is no name; raises UnknownTopicOrPartition, UnknownTopicId."""
    image = broker.controller.image
    if not name and topic_id != ZERO_UUID:
        name = image.topic_names.get(topic_id)
        if name is None:
            raise UnknownTopicId(f"no topic has the id {topic_id}")
    topic = image.topics.get(name or "")
    if topic is None:
        raise UnknownTopicOrPartition(f"there is no topic {name!r}")
    return topic


def permitted_topic(
    broker: BrokerServices, who: Requester, operation: Operation, name: str | None, topic_id: uuid.UUID = ZERO_UUID
) -> TopicImage:
    """The same, if `who` may do that to it; raises TopicAuthorizationFailed for a name whether there is such or not.

    An id is no secret: one that no topic has is told as that, as in Kafka.
    """
    authorizer = broker.authorizer
    if authorizer is not ALLOW_ALL:
        known = name or broker.controller.image.topic_names.get(topic_id)
        if known is not None:
            permit(authorizer, who, operation, topic_named(known))
    return find_topic(broker, name, topic_id)


def find_partition(topic: TopicImage, partition: int) -> PartitionImage:
    """Partition number `partition` of `topic`; raises UnknownTopicOrPartition."""
    if not 0 <= partition < len(topic.partitions):
        raise UnknownTopicOrPartition(f"topic {topic.name!r} has no partition {partition}")
    return topic.partitions[partition]


def find_hosted(broker: BrokerServices, topic: TopicImage, partition: int) -> Replica:
    """The replica of a partition here, whoever leads; raises the error that says why there is none."""
    replica = broker.replicas.get(topic.name, partition)
    if replica is None:
        raise _why_none(broker, topic, partition, -1)
    return replica


def find_replica(broker: BrokerServices, topic: TopicImage, partition: int, believed_epoch: int = -1) -> Replica:
    """The replica of a partition led by this broker; raises the error that says why there is none.

    `believed_epoch` is the leader epoch in the request, -1 if it has none.
    """
    replica = broker.replicas.get(topic.name, partition)
    if replica is None:
        raise _why_none(broker, topic, partition, believed_epoch)
    machine = replica.machine
    if believed_epoch >= 0 and believed_epoch != machine.leader_epoch:
        machine.check_epoch(believed_epoch)
    if not machine.leads:
        machine.check_leads()
    return replica


def find_readable(broker: BrokerServices, topic: TopicImage, partition: int, believed_epoch: int = -1) -> Replica:
    """The replica of a partition here, be it a follower in sync, where consumers may read at one; raises as above."""
    replica = broker.replicas.get(topic.name, partition)
    if replica is None:
        raise _why_none(broker, topic, partition, believed_epoch)
    machine = replica.machine
    if believed_epoch >= 0 and believed_epoch != machine.leader_epoch:
        machine.check_epoch(believed_epoch)
    if not machine.readable:
        machine.check_leads()
    return replica


def _why_none(broker: BrokerServices, topic: TopicImage, partition: int, believed_epoch: int) -> KafkaError:
    found = find_partition(topic, partition)
    if found.leader != broker.node_id:
        return NotLeaderOrFollower(f"broker {broker.node_id} does not lead {topic.name}-{partition}")
    if 0 <= believed_epoch < found.leader_epoch:
        return FencedLeaderEpoch(f"leader epoch {believed_epoch} is over, {found.leader_epoch} is the current one")
    if believed_epoch > found.leader_epoch:
        return UnknownLeaderEpoch(f"leader epoch {believed_epoch} is not known here yet")
    return KafkaStorageError(f"the log of {topic.name}-{partition} is not open")
