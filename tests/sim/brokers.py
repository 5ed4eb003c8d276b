"""Brokers that come and go, an active controller that decides, and what acknowledged records make of it

What is decided is production's (`decide`, `Sessions`); around it is the least that can go wrong with it. A broker sees
some earlier image than the controller has, and acts on that one: a leader appends and acknowledges with the ISR that it
knows of, a follower follows whom it believes to lead, and proposals are under way for long, twice, or for ever. How far
a replica holds what was acknowledged is a number. Where a broker's power is cut it may fall, unless everything is
durable before it is acknowledged.

After every decision: who leads is in the ISR, and holds all that was acknowledged, as does everybody in ISR or ELR;
these are as many as min.insync.replicas says, once they have been; epochs go forward. Only a decision that says that it
may lose records is let off. The image is what its records lead to, read back from their bytes.
"""

import random
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidemill.broker.quorum.balance import ElectPreferred
from tidemill.broker.quorum.brokers import (
    BrokerHeartbeat,
    FenceBrokers,
    HeartbeatResult,
    MendPartitions,
    UnregisterBroker,
)
from tidemill.broker.quorum.image import RESOURCE_TOPIC, ClusterImage, PartitionImage, TopicImage, apply, apply_batch
from tidemill.broker.quorum.in_sync import AlterPartition, IsrProposal
from tidemill.broker.quorum.leadership import AlterReassignments, ElectLeaders, Reassignment
from tidemill.broker.quorum.metadata import (
    AlterConfigs,
    ConfigChange,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewTopic,
    PartitionIncrease,
    RegisterBroker,
    Registration,
    Request,
    ResourceChange,
    Response,
    Rules,
    TopicRef,
    decide,
)
from tidemill.broker.quorum.records import MetadataRecord, decode_record, encode_record
from tidemill.broker.quorum.sessions import Sessions
from tidemill.core.client.balance import Holdings, Place, plan

NODES = (1, 2, 3, 4, 5)
RACKS = {1: "a", 2: "b", 3: "a", 4: "b", 5: None}
MIN_IN_SYNC = "min.insync.replicas"


class Violation(AssertionError):
    """What must never happen has."""


class Where(NamedTuple):
    """A partition."""

    topic_id: uuid.UUID
    number: int


class Copy(NamedTuple):
    """A replica."""

    where: Where
    node: int


class Sent(NamedTuple):
    """A proposal under way, with the epoch of the broker that sent it."""

    broker_id: int
    broker_epoch: int
    where: Where
    proposal: IsrProposal


@dataclass(slots=True)
class Node:
    """Mutable: one broker. `seen` is the newest of all images that it knows of."""

    node_id: int
    up: bool = False
    epoch: int = -1
    seen: int = 0
    stopped_in_order: bool = False
    was_cut: bool = False
    wants_to_stop: bool = False
    asked: dict[Where, tuple[int, frozenset[int]]] = field(default_factory=dict)
    """By partition, what was asked for in which partition epoch: that may hold as well."""
    followers: dict[Where, tuple[int, dict[int, int]]] = field(default_factory=dict)
    """By partition, who has everything, and in which broker epoch it did, in the leader epoch."""


def holdings_of(image: ClusterImage) -> Holdings:
    """What a plan goes by, of an image."""
    return Holdings(
        racks={node: broker.rack for node, broker in image.brokers.items()},
        away=frozenset(node for node, broker in image.brokers.items() if not broker.active),
        replicas={
            Place(name, partition.partition): partition.replicas
            for name, topic in image.topics.items()
            for partition in topic.partitions
            if not partition.reassigned
        },
    )


class BrokersSimulation:
    """Mutable: the cluster, step by step from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.durable = self.rng.random() < 0.3
        self.rules = Rules(
            unclean_leader_election_enable=self.rng.random() < 0.1,
            leader_imbalance_percentage=0,
            changes_max=self.rng.choice((1, 2, 10_000)),
        )
        self.now_ms = 0
        self.images = [ClusterImage()]
        self.replayed = ClusterImage()
        self.sessions = Sessions(timeout_ms=9_000)
        self.nodes = {node: Node(node) for node in NODES}
        self.network: list[Sent] = []
        self.held: Counter[Copy] = Counter()
        self.acknowledged: Counter[Where] = Counter()
        self.lost_in_epoch: dict[Where, int] = {}  # what earlier leaders acknowledge counts no more
        self.reached: set[Where] = set()
        self.numbers = 0
        self.counts: Counter[str] = Counter()

    @property
    def image(self) -> ClusterImage:
        """What the controller knows."""
        return self.images[-1]

    def run(self, steps: int) -> None:
        """So many, with everything judged after each decision."""
        for node in self.nodes.values():
            self.start(node)
            self.take_in(node, newest=True)
            self.beat(node)
        self.create()
        for _ in range(steps):
            self.step()
        if self.replayed != self.image:
            raise Violation("the image is not what its records lead to")

    def step(self) -> None:
        rng, node = self.rng, self.rng.choice(list(self.nodes.values()))
        roll = rng.random()
        where = self.somewhere(node if roll < 0.54 else None, leads=not 0.2 <= roll < 0.42)
        self.now_ms += rng.choice((0, 10, 100))
        if roll < 0.2:
            self.produce(node, where)
        elif roll < 0.42:
            self.follow(node, where)
        elif roll < 0.54:
            self.propose(node, where)
        elif roll < 0.66:
            self.from_network()
        elif roll < 0.78:
            self.take_in(node, newest=rng.random() < 0.7)
        elif roll < 0.90:
            self.beat(node)
        elif roll < 0.93:
            self.start(node)
        elif roll < 0.94:
            self.cut_power(node)
        elif roll < 0.945:
            node.wants_to_stop = node.up
        elif roll < 0.98:
            self.look()
        else:
            self.administer(where)

    # -- what the controller hears

    def ask(self, request: Request) -> Response:
        """Decide, write, apply, judge."""
        before = self.image
        result = decide(before, request, self.rules)
        for record in result.records:
            self.replayed = apply(self.replayed, decode_record(encode_record(record)))
        unclean = {(each.topic, each.partition) for each in result.unclean}
        self.counts["unclean"] += len(unclean)
        if result.records:
            self.images.append(apply_batch(before, result.records))
            self.counts[type(request).__name__] += 1
        lost = request.broker_id if isinstance(request, RegisterBroker) else None
        self.judge(before, result.records, unclean, lost)
        if not getattr(result.response, "unfinished", False):
            self.judge_activity()
            return result.response
        self.counts["unfinished"] += 1
        if isinstance(request, RegisterBroker | ElectPreferred):
            return self.ask(request)
        self.ask(MendPartitions())
        return result.response

    def look(self) -> None:
        """Time goes on: who was not heard of is fenced. Now and then another controller takes over."""
        if self.rng.random() < 0.1:
            self.sessions = Sessions(timeout_ms=9_000)
            self.sessions.begin(self.image.brokers, self.now_ms)
            self.ask(MendPartitions())
        for _ in range(self.rng.randrange(12)):
            self.now_ms += 1_000
            for node in self.nodes.values():
                if node.up and self.rng.random() < 0.8:
                    self.beat(node)
            over = self.sessions.expired(self.image.brokers, self.now_ms)
            if over:
                self.ask(FenceBrokers(brokers=over))

    def start(self, node: Node) -> None:
        """A new process; it retries later if the one before it is still believed to be there."""
        if node.up:
            return
        self.numbers += 1
        known = self.image.brokers.get(node.node_id)
        held = self.held.copy()
        self.lose(node)
        answer = self.ask(
            RegisterBroker(
                broker_id=node.node_id,
                incarnation_id=uuid.UUID(int=self.numbers),
                end_points=(),
                rack=RACKS[node.node_id],
                fenced=True,
                previous_broker_epoch=node.epoch if node.stopped_in_order else -1,
                loses_nothing=self.durable and known is not None,
                session_live=self.sessions.is_live(node.node_id, self.now_ms),
            )
        )
        assert isinstance(answer, Registration)
        if answer.error is not None:
            self.held = held  # it has not begun, so nobody can have noticed
            return
        node.up, node.epoch = True, answer.broker_epoch
        node.stopped_in_order = node.was_cut = node.wants_to_stop = False
        node.seen = self.rng.randrange(len(self.images))
        node.asked, node.followers = {}, {}
        self.sessions.heard(node.node_id, node.epoch, self.now_ms)

    def beat(self, node: Node) -> None:
        if not node.up:
            return
        offset = self.images[node.seen].offset - 1
        answer = self.ask(
            BrokerHeartbeat(
                broker_id=node.node_id,
                broker_epoch=node.epoch,
                metadata_offset=offset,
                want_shut_down=node.wants_to_stop,
                others_know=self.sessions.others_know(node.node_id, self.image.brokers, self.now_ms),
            )
        )
        assert isinstance(answer, HeartbeatResult)
        if answer.error is not None:
            node.up = False  # another incarnation is registered
            return
        self.sessions.heard(node.node_id, node.epoch, self.now_ms, metadata_offset=offset, left_at=answer.left_at)
        if answer.should_shut_down:
            node.up, node.stopped_in_order = False, True
            self.sessions.forget(node.node_id, node.epoch)
            self.counts["stopped"] += 1

    def from_network(self) -> None:
        if not self.network:
            return
        index = self.rng.randrange(len(self.network))
        sent = self.network[index] if self.rng.random() < 0.2 else self.network.pop(index)
        if self.rng.random() < 0.1:
            return
        self.ask(
            AlterPartition(
                broker_id=sent.broker_id,
                broker_epoch=sent.broker_epoch,
                topics=((sent.where.topic_id, (sent.proposal,)),),
            )
        )

    def administer(self, where: Where) -> None:
        rng, topic = self.rng, self.topic(where)
        roll = rng.random()
        if roll < 0.1:
            if len(self.image.topics) < 3:
                self.create()
        elif roll < 0.4:
            replicas = tuple(rng.sample(NODES, rng.randint(1, 4))) if rng.random() < 0.8 else None
            move = Reassignment(topic=topic.name, partition=where.number, replicas=replicas)
            self.ask(AlterReassignments(partitions=(move,)))
        elif roll < 0.5:
            moves = plan(holdings_of(self.image), leaving=rng.sample(NODES, rng.randrange(2))).moves
            wanted = (Reassignment(topic=each.topic, partition=each.partition, replicas=each.after) for each in moves)
            self.ask(AlterReassignments(partitions=tuple(wanted)))
        elif roll < 0.7:
            self.ask(ElectPreferred())
        elif roll < 0.75:
            self.ask(ElectLeaders(partitions=None, unclean=True))
        elif roll < 0.8:
            self.ask(UnregisterBroker(broker_id=rng.choice(NODES)))
        elif roll < 0.84:
            self.ask(CreatePartitions(topics=(PartitionIncrease(name=topic.name, count=rng.randint(2, 3)),)))
        elif roll < 0.88:
            self.ask(DeleteTopics(topics=(TopicRef(name=topic.name),)))
            self.create()
        else:
            self.alter_min_in_sync(topic)

    def alter_min_in_sync(self, topic: TopicImage) -> None:
        change = ConfigChange(name=MIN_IN_SYNC, op=0, value=str(self.rng.randint(1, 3)))
        resource = ResourceChange(resource_type=RESOURCE_TOPIC, resource_name=topic.name, changes=(change,))
        self.reached = {where for where in self.reached if where.topic_id != topic.topic_id}
        self.ask(AlterConfigs(resources=(resource,)))

    def create(self) -> None:
        self.numbers += 1
        rng = self.rng
        topic = NewTopic(
            name=f"t{self.numbers}",
            topic_id=uuid.UUID(int=self.numbers),
            partitions=rng.randint(1, 2),
            replication_factor=rng.choice((1, 2, 3, 3, 3, 4)),
            configs={MIN_IN_SYNC: str(rng.randint(1, 3))} if rng.random() < 0.7 else {},
        )
        self.ask(CreateTopics(topics=(topic,)))

    # -- what brokers do

    def topic(self, where: Where) -> TopicImage:
        topic = self.image.topic_by_id(where.topic_id)
        assert topic is not None
        return topic

    def somewhere(self, node: Node | None, *, leads: bool) -> Where:
        """Any partition; for a broker one that it believes to lead, or to follow, if there is any."""
        while not self.image.topics:
            anybody = self.rng.choice(list(self.nodes.values()))
            self.start(anybody)
            self.take_in(anybody, newest=True)
            self.beat(anybody)
            self.look()
            self.create()
        every = [
            Where(topic.topic_id, partition.partition)
            for topic in self.image.topics.values()
            for partition in topic.partitions
        ]
        views = [(where, self.view(node, where)) for where in every] if node is not None else []
        part = [where for where, seen in views if seen and node and (seen[1].leader == node.node_id) == leads]
        return self.rng.choice(part or every)

    def view(self, node: Node, where: Where) -> tuple[TopicImage, PartitionImage] | None:
        """A partition as a broker sees it, once it has seen its own registration: before it does nothing."""
        image = self.images[node.seen]
        topic = image.topic_by_id(where.topic_id)
        if not node.up or image.offset <= node.epoch or topic is None or where.number >= len(topic.partitions):
            return None
        return topic, topic.partitions[where.number]

    def take_in(self, node: Node, *, newest: bool) -> None:
        if not node.up:
            return
        node.seen = len(self.images) - 1 if newest else self.rng.randrange(node.seen, len(self.images))
        if self.images[node.seen].offset <= node.epoch:
            return  # this may be older than the logs are
        for topic in self.images[node.seen].topics.values():
            for partition in topic.partitions:
                if node.node_id not in partition.replicas:  # its log goes
                    self.held.pop(Copy(Where(topic.topic_id, partition.partition), node.node_id), None)

    def may_count(self, node: Node, where: Where, partition: PartitionImage) -> frozenset[int]:
        """The maximal ISR."""
        epoch, asked = node.asked.get(where, (-1, frozenset()))
        return frozenset(partition.isr) | (asked if epoch == partition.partition_epoch else frozenset())

    def produce(self, node: Node, where: Where) -> None:
        """Append and acknowledge at once, where everybody who counts takes part in this leadership."""
        seen = self.view(node, where)
        if seen is None or seen[1].leader != node.node_id:
            return
        topic, partition = seen
        least = self.rules.min_in_sync(topic.configs, {})
        if len(partition.isr) < min(least, len(partition.replicas)):
            return
        if partition.leader_epoch < self.lost_in_epoch.get(where, 0):
            return  # told that it may lose this
        for member in self.may_count(node, where, partition):
            other = self.view(self.nodes[member], where)
            if other is None or other[1].leader_epoch != partition.leader_epoch:
                return
            if self.held[Copy(where, member)] < self.acknowledged[where] and member != node.node_id:
                return
        if self.held[Copy(where, node.node_id)] < self.acknowledged[where]:
            raise Violation(f"broker {node.node_id} leads {where} without what was acknowledged")
        self.acknowledged[where] += 1
        for member in self.may_count(node, where, partition):
            self.held[Copy(where, member)] = self.acknowledged[where]
        _, followers = node.followers.get(where, (0, {}))
        for follower in [each for each in followers if each not in self.may_count(node, where, partition)]:
            del followers[follower]  # it lacks this one
        self.counts["acknowledged"] += 1

    def follow(self, node: Node, where: Where) -> None:
        """Fetch all that the leader has, which learns of it."""
        seen = self.view(node, where)
        if seen is None or node.node_id not in seen[1].replicas or seen[1].leader in (-1, node.node_id):
            return
        leader = self.nodes[seen[1].leader]
        theirs = self.view(leader, where)
        epoch = seen[1].leader_epoch
        if theirs is None or theirs[1].leader_epoch != epoch:
            return
        self.held[Copy(where, node.node_id)] = self.held[Copy(where, leader.node_id)]
        known = leader.followers.get(where)
        if known is None or known[0] != epoch:
            known = leader.followers[where] = (epoch, {})
        known[1][node.node_id] = node.epoch

    def propose(self, node: Node, where: Where) -> None:
        """Ask for another ISR: with who has everything, or without somebody."""
        seen = self.view(node, where)
        if seen is None or seen[1].leader != node.node_id:
            return
        partition = seen[1]
        epoch, followers = node.followers.get(where, (-1, {}))
        ready = followers if epoch == partition.leader_epoch else {}
        isr = [each for each in partition.isr if each == node.node_id or self.rng.random() < 0.8]
        isr += [each for each in ready if each not in partition.isr and each in partition.replicas]
        epochs = tuple(ready.get(each, -1) if each != node.node_id else node.epoch for each in isr)
        proposal = IsrProposal(
            partition=where.number,
            isr=tuple(isr),
            broker_epochs=epochs,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
        )
        before = self.may_count(node, where, partition)
        node.asked[where] = (partition.partition_epoch, before | frozenset(isr))
        self.network.append(Sent(node.node_id, node.epoch, where, proposal))

    def cut_power(self, node: Node) -> None:
        node.up = node.stopped_in_order = False
        node.was_cut = True
        self.counts["cut"] += 1

    def lose(self, node: Node) -> None:
        """What a power cut has taken is found out at the next start, unless it was durable first."""
        if node.was_cut and not self.durable:
            for copy in [copy for copy in self.held if copy.node == node.node_id]:
                self.held[copy] = self.rng.choice((self.held[copy], self.rng.randint(0, self.held[copy])))

    # -- what must hold

    def judge(
        self,
        before: ClusterImage,
        records: Sequence[MetadataRecord],
        unclean: set[tuple[str, int]],
        registered: int | None,
    ) -> None:
        if not records:
            return
        for topic in self.image.topics.values():
            earlier = before.topics.get(topic.name)
            known = earlier.partitions if earlier is not None else ()
            for partition in topic.partitions:
                old = known[partition.partition] if partition.partition < len(known) else None
                if partition is old:
                    continue
                where = Where(topic.topic_id, partition.partition)
                if (topic.name, partition.partition) in unclean:
                    self.let_off(where, partition)
                if old is not None:
                    self.judge_change(where, old, partition)
                    eligible = {*old.isr, *old.eligible_leader_replicas}
                    if set(old.replicas) != set(partition.replicas) or registered in eligible:
                        self.reached.discard(where)
                self.judge_partition(topic, where, partition)

    def let_off(self, where: Where, partition: PartitionImage) -> None:
        """Records may be lost, and it was said."""
        self.reached.discard(where)
        self.lost_in_epoch[where] = partition.leader_epoch
        held = self.held[Copy(where, partition.leader)]
        self.acknowledged[where] = min(self.acknowledged[where], held)

    def judge_change(self, where: Where, old: PartitionImage, new: PartitionImage) -> None:
        if new == old:
            return
        if new.partition_epoch <= old.partition_epoch:
            raise Violation(f"{where} changes and its partition epoch does not go on")
        if new.leader_epoch < old.leader_epoch or (new.leader != old.leader and new.leader_epoch == old.leader_epoch):
            raise Violation(f"{where} has another leader, and its leader epoch does not go on")

    def judge_partition(self, topic: TopicImage, where: Where, partition: PartitionImage) -> None:
        isr, eligible = set(partition.isr), set(partition.eligible_leader_replicas)
        if partition.leader >= 0 and partition.leader not in isr:
            raise Violation(f"{where} is led from outside its ISR")
        if not isr | eligible <= set(partition.replicas) or isr & eligible:
            raise Violation(f"ISR and ELR of {where} are not parts of its replicas: {partition}")
        for node in isr | eligible:
            if self.held[Copy(where, node)] < self.acknowledged[where]:
                raise Violation(f"broker {node} may lead {where} and lacks what was acknowledged: {partition}")
        enough = min(self.rules.min_in_sync(topic.configs, {}), len(partition.replicas))
        if len(isr) >= enough:
            self.reached.add(where)
            if eligible:
                raise Violation(f"{where} has eligible leader replicas besides an ISR that is large enough")
        if where in self.reached and len(isr | eligible) < enough:
            raise Violation(f"fewer than {enough} could lead {where}: {partition}")

    def judge_activity(self) -> None:
        """Nobody leads or is in sync who is not there."""
        active = {node for node, broker in self.image.brokers.items() if broker.active}
        for topic in self.image.topics.values():
            for partition in topic.partitions:
                if not active.issuperset(partition.isr) or (partition.leader >= 0 and partition.leader not in active):
                    raise Violation(f"{topic.name}-{partition.partition} has members who are not there: {partition}")
