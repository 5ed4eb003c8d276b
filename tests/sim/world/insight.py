"""What the nodes of a world know together, which no client can

A client that is told something by a broker does not know whether that broker was the last to hear of it: one that is
cut off, or paused, goes by what was decided before. So what was promised counts for whoever has heard of a decision
that is as new as any that the promise can have rested on. A node that has no others always has.

An election that may lose records ends all promises about its partition for whoever leads in that epoch, or in a later
one, and another era of that partition begins: what was promised in one era binds nobody in another.
"""

import uuid
from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tidemill.broker.coordination.runtime import partition_of
from tidemill.broker.groups.coordinator import OFFSETS_TOPIC
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.quorum.delta import ImageDelta
from tidemill.broker.quorum.image import ClusterImage, PartitionImage, TopicImage
from tidemill.broker.quorum.leadership import RECOVERING
from tidemill.broker.replication.replica import Replica

if TYPE_CHECKING:
    from tests.sim.world.node import SimulatedNode

ALWAYS: Final = -1
"""The age of what counts for everybody."""

PROMISES_NOTHING: Final = -2
"""The age of what an answer says that has to be as new as nothing else."""

UNKNOWN_ERA: Final = -1
"""That of what was said in an epoch that nobody knows, of a partition that has lost records."""

Partition = tuple[uuid.UUID, int]


class Insight:
    """Grows with every image that any node takes in."""

    def __init__(self, *, alone: bool, may_lose: bool = False) -> None:
        """Where nobody has said that records may be lost no election begins an era, whatever it says of itself."""
        self._alone = alone
        self._may_lose = may_lose
        self._epochs: dict[Partition, int] = {}
        self._group_epochs: dict[int, int] = {}
        self._losses: dict[Partition, list[int]] = {}  # epochs that began with an election that may lose records
        self._sound: dict[Partition, int] = {}  # the newest epoch in which such an election had been got over
        self._newest = ClusterImage()

    def watch(self, node: "SimulatedNode") -> None:
        """Hear of all that the broker of this node takes in."""
        if not self._alone and node.inside is not None:
            controller = node.inside.controller
            self._see(controller.image, controller.image.topics.values())
            controller.watch(self._hear)

    def _hear(self, delta: ImageDelta) -> None:
        topics = delta.after.topics
        self._see(delta.after, [topics[name] for name in delta.topics if name in topics])

    def _see(self, image: ClusterImage, topics: Iterable[TopicImage]) -> None:
        if image.offset > self._newest.offset:
            self._newest = image
        for topic in topics:
            for each in topic.partitions:
                key = (topic.topic_id, each.partition)
                self._epochs[key] = max(self._epochs.get(key, 0), each.leader_epoch)
                if self._may_lose:
                    self._look_for_loss(key, each)
                if topic.name == OFFSETS_TOPIC:
                    self._group_epochs[each.partition] = self._epochs[key]

    def _look_for_loss(self, key: Partition, partition: PartitionImage) -> None:
        """Whoever is elected so may be gone again before any node has taken in that it led."""
        epoch, sound = partition.leader_epoch, self._sound.get(key, -1)
        if partition.leader_recovery_state != RECOVERING:
            self._sound[key] = max(sound, epoch)
        elif partition.leader >= 0:
            self._note_loss(key, epoch)
        elif epoch > sound and not any(sound < each <= epoch for each in self._losses.get(key, ())):
            self._note_loss(key, sound + 1)

    def _note_loss(self, key: Partition, epoch: int) -> None:
        losses = self._losses.setdefault(key, [])
        if epoch not in losses:
            losses.append(epoch)
            losses.sort()

    # -- eras

    def era(self, topic_id: uuid.UUID, partition: int, epoch: int) -> int:
        """That of a partition to which a leader epoch belongs."""
        losses = self._losses.get((topic_id, partition))
        if losses is None:
            return 0
        return bisect_right(losses, epoch) if epoch >= 0 else UNKNOWN_ERA

    @property
    def losses(self) -> int:
        """How often records may have been lost."""
        return sum(map(len, self._losses.values()))

    # -- as new as anything that anybody knows

    def partition(self, name: str, partition: int) -> PartitionImage | None:
        """How one stands, if there is a topic of that name."""
        topic = self._newest.topics.get(name)
        return None if topic is None else topic.partitions[partition]

    @property
    def newest(self) -> ClusterImage:
        """All the decisions; whoever had them may be gone."""
        return self._newest

    def offset(self) -> int:
        """The end of the decisions."""
        return ALWAYS if self._alone else self._newest.offset

    def epoch(self, topic_id: uuid.UUID, partition: int) -> int:
        """The newest in which anybody may lead a partition."""
        return ALWAYS if self._alone else self._epochs.get((topic_id, partition), 0)

    def group_epoch(self, group: str) -> int:
        """The newest in which anybody may keep a group."""
        count = len(self._group_epochs)
        return ALWAYS if self._alone or not count else self._group_epochs[partition_of(group, count)]

    # -- as new as what one node knows

    def offset_of(self, node: "SimulatedNode") -> int:
        """The end of the decisions that it has taken in."""
        if self._alone or node.inside is None:
            return ALWAYS
        return node.inside.controller.image.offset

    def group_epoch_of(self, node: "SimulatedNode", group: str) -> int:
        """The epoch in which it keeps a group, if it does."""
        if self._alone or node.inside is None:
            return ALWAYS
        topic = node.inside.controller.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return ALWAYS
        return topic.partitions[partition_of(group, len(topic.partitions))].leader_epoch

    def knows(self, node: "SimulatedNode | None", name: str, topic_id: uuid.UUID) -> bool:
        """Whether the topic of that name is this one, for a node, or for whoever knows most."""
        if self._alone:
            return True
        if node is not None and node.inside is None:
            return False
        image = self._newest if node is None or node.inside is None else node.inside.controller.image
        topic = image.topics.get(name)
        return topic is not None and topic.topic_id == topic_id

    def epoch_known_to(self, node: "SimulatedNode", topic_id: uuid.UUID, partition: int) -> int:
        """The leader epoch that a node knows of; -1 for none."""
        topic = None if node.inside is None else node.inside.controller.image.topic_by_id(topic_id)
        return -1 if self._alone or topic is None else topic.partitions[partition].leader_epoch

    def led_epoch(self, node: "SimulatedNode", topic_id: uuid.UUID, partition: int) -> int:
        """In which a node leads a partition; -1 if it does not, or cannot be asked."""
        replica = _replica(node, topic_id, partition)
        return -1 if replica is None else replica.led_epoch

    def log_led_in(self, epoch: int, node: "SimulatedNode", topic_id: uuid.UUID, partition: int) -> PartitionLog | None:
        """The log of a partition that a node leads, in that epoch still; None if it does not."""
        replica = _replica(node, topic_id, partition)
        is_it = replica is not None and replica.machine.leads and (self._alone or replica.led_epoch == epoch)
        return replica.log if replica is not None and is_it and not replica.log.closed else None

    def is_settled(self, node: "SimulatedNode", topic_id: uuid.UUID, partition: int) -> bool:
        """Whether a node leads a partition and knows how far the leader before had come."""
        if self._alone:
            return True
        replica = _replica(node, topic_id, partition)
        return replica is not None and replica.machine.leads and replica.machine.is_settled


def _replica(node: "SimulatedNode", topic_id: uuid.UUID, partition: int) -> Replica | None:
    topic = None if node.inside is None else node.inside.controller.image.topic_by_id(topic_id)
    return None if topic is None or node.inside is None else node.inside.replicas.get(topic.name, partition)
