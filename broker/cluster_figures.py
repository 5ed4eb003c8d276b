"""A cluster in numbers, as one of its nodes knows it

Two kinds: partitions, by a walk over the image in short turns, and what the node is in its cluster, which is there to
be read. A node by itself has the same numbers, with nobody else in them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tidemill.broker.following import Following
from tidemill.broker.log.turns import Turns
from tidemill.broker.quorum.controller import Controller
from tidemill.broker.quorum.image import PartitionImage
from tidemill.broker.replication import replicas as served
from tidemill.broker.replication.replica import Replica

if TYPE_CHECKING:
    from tidemill.broker.clustered import ClusterPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """The partitions of this node and of the cluster, counted."""

    here: int = 0
    led: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0
    """Led here, as are those above."""
    offline: int = 0
    """Of this node, without a log."""
    unusable: int = 0
    """Of the cluster without a leader, and led here without a log."""
    not_preferred: int = 0
    """Of the cluster, led by another broker than the first of their replicas."""
    topics: int = 0
    partitions: int = 0
    lag_max: int = 0
    """Records that this node, as a follower, is behind what is committed, where it is most."""
    followers: Mapping[int, int] = field(default_factory=dict)
    """By broker that follows here: records that it lacks of the partition of which it lacks most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What this node is among the others, and who they are."""

    active_controller: bool = False
    state: str = "unattached"
    """Of this node in the quorum: `leader`, `follower`, `observer`, `candidate`, ..."""
    leader_id: int = -1
    epoch: int = 0
    high_watermark: int = 0
    log_end: int = 0
    voters: int = 0
    observers: int = 0
    lags: Mapping[int, int] = field(default_factory=dict)
    """Told by the leader: metadata records that each node of the quorum lacks."""
    applied: int = 0
    brokers_active: int = 0
    brokers_fenced: int = 0
    elections: int = 0
    elections_from_eligible: int = 0
    elections_unclean: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    forwarded: int = 0
    bytes_to_followers: int = 0


class ClusteredBroker(Protocol):
    """What is counted; `tidemill.broker.node.Broker` is the real one."""

    replicas: served.Replicas
    controller: Controller
    following: Following
    place: "ClusterPlace | None"

    @property
    def node_id(self) -> int:
        """`node.id` of this broker."""


class _Count:
    """Of the walk over all partitions."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.here = self.led = self.under_replicated = self.under_min_isr = self.at_min_isr = self.reassigning = 0
        self.unusable = self.not_preferred = self.lag_max = 0
        self.followers: dict[int, int] = {}

    def add(self, partition: PartitionImage, replica: Replica | None) -> None:
        """Take one in; `replica` is that of this node."""
        self.unusable += partition.leader < 0
        self.not_preferred += 0 <= partition.leader != partition.replicas[0]
        if self.node_id not in partition.replicas:
            return
        self.here += 1
        if partition.leader == self.node_id:
            self._add_led(partition, replica)
        elif replica is not None and not replica.closed:
            self.lag_max = max(self.lag_max, replica.machine.leader_high_watermark - replica.log_end_offset)

    def _add_led(self, partition: PartitionImage, replica: Replica | None) -> None:
        self.led += 1
        self.reassigning += partition.reassigned
        wanted = len(partition.replicas) - len(partition.adding_replicas)  # who is only coming is not missed
        self.under_replicated += len(partition.isr) < wanted
        if replica is None or replica.closed:
            self.unusable += 1
            return
        needed = min(replica.log.config.min_insync_replicas, len(partition.replicas))
        self.under_min_isr += len(partition.isr) < needed
        self.at_min_isr += len(partition.isr) == needed
        end = replica.log_end_offset
        for node in partition.replicas:
            if node != self.node_id:
                progress = replica.machine.progress(node)
                held = replica.log_start_offset if progress is None or progress.held < 0 else progress.held
                self.followers[node] = max(self.followers.get(node, 0), end - held)


async def take_replicas(broker: ClusteredBroker, turns: Turns) -> Replicas:
    """Go over all partitions of the cluster."""
    image, count = broker.controller.image, _Count(broker.node_id)
    for topic in image.topics.values():
        for partition in topic.partitions:
            count.add(partition, broker.replicas.get(topic.name, partition.partition))
            await turns.give_way()
    return Replicas(
        here=count.here,
        led=count.led,
        under_replicated=count.under_replicated,
        under_min_isr=count.under_min_isr,
        at_min_isr=count.at_min_isr,
        reassigning=count.reassigning,
        offline=len(await broker.following.without_logs(turns)),
        unusable=count.unusable,
        not_preferred=count.not_preferred,
        topics=len(image.topics),
        partitions=image.partition_count,
        lag_max=count.lag_max,
        followers=count.followers,
    )


def take_cluster(broker: ClusteredBroker) -> Cluster:
    """What is there to be read."""
    controller, changes, place = broker.controller, broker.following.changes, broker.place
    quorum, leads = controller.member.state(), controller.leads
    members = (*quorum.voters, *quorum.observers)
    log_end, brokers = controller.log_end_offset, controller.image.brokers.values()
    return Cluster(
        active_controller=leads,
        state="leader" if place is None else place.member.machine.role.value,
        leader_id=quorum.leader_id,
        epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        log_end=log_end,
        voters=len(quorum.voters),
        observers=len(quorum.observers),
        lags={each.node_id: log_end - max(each.log_end_offset, 0) for each in members} if leads else {},
        applied=controller.image.offset,
        elections=changes.elections,
        elections_from_eligible=changes.from_eligible,
        elections_unclean=changes.unclean,
        isr_shrinks=changes.isr_shrinks,
        isr_expands=changes.isr_expands,
        forwarded=0 if place is None else place.forwarder.asked,
        bytes_to_followers=broker.replicas.bytes_to_followers,
        brokers_active=sum(not each.fenced for each in brokers),
        brokers_fenced=sum(each.fenced for each in brokers),
    )
