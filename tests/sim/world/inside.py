"""What has to hold inside of the nodes of a cluster, asked after every event

Clients notice most of what is wrong sooner or later; these rules notice it when it happens, and what no client happens
to look at. They read what brokers hold in memory and on their disks, beside everything that delays or refuses it to
the brokers themselves, and change nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from tests.sim.disk import SimulatedDirectory
from tests.sim.world.clients import TOPICS
from tests.sim.world.events import Acknowledged, Event, Fetched, RecordsDeleted
from tests.sim.world.insight import Insight, Partition
from tests.sim.world.invariants import Begun, Era, Invariant, Violation, nothing_is_deleted, one_era
from tests.sim.world.node import SimulatedNode
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.quorum.delta import ImageDelta
from tidemill.broker.quorum.image import ClusterImage, PartitionImage
from tidemill.broker.replication.replica import Replica
from tidemill.core.errors import CorruptMessage
from tidemill.core.records.batch import BatchView, iter_batches

ENOUGH = 2
"""min.insync.replicas of all topics that clients write to, where there are three replicas."""


class Held(NamedTuple):
    """A partition of one of the clients' topics as one node has it."""

    node: SimulatedNode
    key: Partition
    topic: str
    replica: Replica


class Nodes:
    """All of them, as rules look at them."""

    def __init__(self, nodes: Sequence[SimulatedNode], insight: Insight) -> None:
        self.nodes = nodes
        self.insight = insight

    def held(self) -> Iterator[Held]:
        """Every partition on every node that runs."""
        for node in self.nodes:
            broker = node.inside
            if broker is None:
                continue
            for replica in broker.replicas:
                name, number = replica.log.topic_partition
                topic_id = replica.log.topic_id
                if name in TOPICS and not replica.closed:
                    yield Held(node, (topic_id, number), name, replica)

    def image(self) -> ClusterImage:
        """The newest that any node has had: those that are left may have missed what was decided."""
        return self.insight.newest

    def partition(self, key: Partition) -> PartitionImage | None:
        """What the newest image says of a partition, if it has it."""
        topic = self.image().topic_by_id(key[0])
        return None if topic is None else topic.partitions[key[1]]


class OneLeaderPerEpoch:
    """No two brokers ever lead a partition in one epoch, and no two controllers the quorum.

    A controller leads once its log has its own epoch. By then its disk knows that it has been elected; before, nobody
    goes by it, and it may begin anew in the epoch before.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._leaders: dict[tuple[Partition, int], int] = {}
        self._controllers: dict[int, int] = {}

    def after(self, _event: Event) -> None:
        for held in self._nodes.held():
            machine = held.replica.machine
            if machine.leads:
                first = self._leaders.setdefault((held.key, machine.leader_epoch), held.node.node_id)
                if first != held.node.node_id:
                    raise Violation(
                        f"{held.topic}-{held.key[1]} has two leaders in epoch {machine.leader_epoch}: "
                        f"{first} and {held.node.node_id}"
                    )
        for node in self._nodes.nodes:
            place = None if node.inside is None else node.inside.place
            if place is None or not place.member.machine.leads:
                continue
            epoch = place.member.machine.epoch
            if place.store.epochs.latest == epoch:
                first = self._controllers.setdefault(epoch, node.node_id)
                if first != node.node_id:
                    raise Violation(f"two controllers lead in epoch {epoch}: {first} and {node.node_id}")


class HighWatermarksRise:
    """As long as one broker leads in one epoch its high watermark goes up only."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._last: dict[tuple[int, int, Partition, int], int] = {}

    def after(self, _event: Event) -> None:
        for held in self._nodes.held():
            machine = held.replica.machine
            if machine.leads:
                key = (held.node.node_id, held.node.lives, held.key, machine.leader_epoch)
                last = self._last.get(key, 0)
                if machine.high_watermark < last:
                    raise Violation(f"the high watermark of {held.topic}-{held.key[1]} goes back on its leader")
                self._last[key] = machine.high_watermark


class WhoMayLeadHoldsAll:
    """Whoever is in the ISR or may be elected holds, on its disk, all that was acknowledged; so does whoever leads.

    And as many as min.insync.replicas do when a producer is told, unless the record was deleted before. What a consumer
    was told to be committed, by whichever replica, they hold as well.
    """

    def __init__(self, nodes: Nodes, begun: Begun = nothing_is_deleted, era: Era = one_era) -> None:
        self._nodes = nodes
        self._begun = begun
        self._era = era
        self._ends: dict[Partition, dict[int, tuple[int, int]]] = {}  # by era: of what was promised, the epoch by then

    def after(self, event: Event) -> None:
        match event:
            case Acknowledged():
                self._promise(event, event.offset + 1, event.epoch)
                self._count(event)
            case Fetched():
                self._promise(event, event.high_watermark, event.newest_epoch)
        for held in self._nodes.held():
            ends = self._ends.get(held.key, {})
            if any(held.replica.log.held_offset < end for end, _ in ends.values()):
                self._judge(held, ends)

    def _promise(self, event: Acknowledged | Fetched, end: int, epoch: int) -> None:
        ends = self._ends.setdefault((event.topic_id, event.partition), {})
        era = self._era(event.topic_id, event.partition, event.made_in)
        ends[era] = max(ends.get(era, (0, 0)), (end, epoch))

    def _judge(self, held: Held, ends: Mapping[int, tuple[int, int]]) -> None:
        """Of somebody who lacks something."""
        for why, epoch in _may_lead(self._nodes, held):
            end, promised_in = ends.get(self._era(*held.key, epoch), (0, 0))
            if held.replica.log.held_offset < end and epoch >= promised_in:
                raise Violation(
                    f"node {held.node.node_id} {why} and holds {held.topic}-{held.key[1]} below "
                    f"{held.replica.log.held_offset} only, and {end} were promised"
                )

    def _count(self, event: Acknowledged) -> None:
        topic = self._nodes.image().topic_by_id(event.topic_id)
        if topic is None:
            return  # deleted meanwhile
        key = (event.topic_id, event.partition)
        if event.offset < self._begun(*key) or self._era(*key, event.epoch) != self._era(*key, event.made_in):
            return  # it may be gone again
        enough = min(ENOUGH, len(topic.partitions[event.partition].replicas))
        folder = f"{topic.name}-{event.partition}"
        found = [_durable(node, folder, event.offset) for node in self._nodes.nodes]
        have = max((found.count(batch) for batch in found if batch), default=0)
        if have < enough:
            raise Violation(f"offset {event.offset} of {folder} was acknowledged, and is on {have} disks only")


class SameBytesBelowHighWatermarks:
    """What one broker takes for committed is the same, byte for byte, in all that others take for it.

    Behind an election that may lose records only in what is read: who has yet to find out what was lost is not.
    """

    def __init__(self, nodes: Nodes, era: Era = one_era) -> None:
        self._nodes = nodes
        self._era = era
        self._known: dict[tuple[Partition, int], dict[int, bytes]] = {}
        self._checked: dict[tuple[int, Partition], tuple[PartitionLog, int, int, int]] = {}  # which log, as it was

    def after(self, _event: Event) -> None:
        for held in self._nodes.held():
            log, key = held.replica.log, (held.node.node_id, held.key)
            era = self._era(*held.key, held.replica.machine.leader_epoch)
            if era > 0 and not held.replica.machine.readable:
                continue
            last, cuts, before, checked = self._checked.get(key, (None, 0, 0, 0))
            if last is not log or cuts != log.cuts or before != era:  # also where it was begun anew
                checked = 0
            if (end := held.replica.high_watermark) > checked and not log.cutting and era >= 0:
                self._compare(held, era, max(checked, log.log_start_offset), end)  # below, nobody reads it there
                self._checked[key] = (log, log.cuts, era, end)

    def _compare(self, held: Held, era: int, start: int, end: int) -> None:
        known = self._known.setdefault((held.key, era), {})
        for view in _batches(held.node.disk.root, f"{held.topic}-{held.key[1]}", start, end):
            data = bytes(view.batch_bytes())
            if known.setdefault(view.base_offset, data) != data:
                raise Violation(
                    f"offset {view.base_offset} of {held.topic}-{held.key[1]} on node {held.node.node_id} differs from "
                    "what was committed"
                )


class NothingElseIsDeleted:
    """No log begins further on than where some broker has let one begin, which was committed there."""

    def __init__(self, nodes: Nodes, begun: Begun = nothing_is_deleted) -> None:
        self._nodes = nodes
        self._begun = begun

    def after(self, _event: Event) -> None:
        for held in self._nodes.held():
            start = held.replica.log.log_start_offset
            if start > 0 and start > (furthest := self._begun(*held.key)):
                raise Violation(
                    f"{held.topic}-{held.key[1]} begins at {start} on node {held.node.node_id}, and was deleted up to "
                    f"{furthest} only"
                )


class WhoMayLeadHasDeleted:
    """What somebody was told to be gone is gone for whoever leads, is in the ISR or may be elected."""

    def __init__(self, nodes: Nodes, era: Era = one_era) -> None:
        self._nodes = nodes
        self._era = era
        self._starts: dict[Partition, dict[int, tuple[int, int]]] = {}  # by era: what was told, and in which epoch

    def after(self, event: Event) -> None:
        if isinstance(event, RecordsDeleted) and event.epoch >= 0:
            starts = self._starts.setdefault((event.topic_id, event.partition), {})
            era = self._era(event.topic_id, event.partition, event.epoch)
            starts[era] = max(starts.get(era, (0, 0)), (event.offset, event.epoch))
        for held in self._nodes.held():
            starts = self._starts.get(held.key, {})
            if any(held.replica.log.log_start_offset < start for start, _ in starts.values()):
                self._judge(held, starts)

    def _judge(self, held: Held, starts: Mapping[int, tuple[int, int]]) -> None:
        """Of somebody whose log begins too early."""
        for why, epoch in _may_lead(self._nodes, held):
            start, told_in = starts.get(self._era(*held.key, epoch), (0, 0))
            if held.replica.log.log_start_offset < start and epoch >= told_in:
                raise Violation(
                    f"node {held.node.node_id} {why} and lets {held.topic}-{held.key[1]} begin at "
                    f"{held.replica.log.log_start_offset}, and {start} was told"
                )


class DecisionsStay:
    """Where the metadata says something up to an offset, it says the same everywhere and ever after."""

    def __init__(self) -> None:
        self._images: dict[int, ClusterImage] = {}
        self._wrong: str = ""

    def hear(self, node: SimulatedNode, delta: ImageDelta) -> None:
        """A node has taken in something."""
        known = self._images.setdefault(delta.after.offset, delta.after)
        if known is not delta.after and known != delta.after and not self._wrong:
            self._wrong = f"the metadata up to offset {delta.after.offset} says something else on node {node.node_id}"

    def after(self, _event: Event) -> None:
        if self._wrong:
            raise Violation(self._wrong)


def _may_lead(nodes: Nodes, held: Held) -> Iterator[tuple[str, int]]:
    """Why a node leads a partition or may be made to, if so, and in which epoch that is."""
    image, machine = nodes.partition(held.key), held.replica.machine
    if machine.leads:
        yield "leads", machine.leader_epoch
    if image is not None and held.node.node_id in image.isr:
        yield "is in the ISR", image.leader_epoch
    if image is not None and held.node.node_id in image.eligible_leader_replicas:
        yield "is eligible", image.leader_epoch


def _batches(root: SimulatedDirectory, folder: str, start: int, end: int) -> Iterator[BatchView]:
    """The batches of a partition between two offsets, as they are in its files now."""
    if not root.is_directory(folder):
        return
    directory = root.subdirectory(folder)
    names = [name for name in directory.list() if name.endswith(".log")]
    for name, later in zip(names, [*names[1:], ""], strict=True):
        if later and int(later.split(".")[0]) <= start:
            continue
        for view in iter_batches(directory.read(name)):
            if view.base_offset >= end:
                return
            if view.next_offset > start:
                yield view


def _durable(node: SimulatedNode, folder: str, offset: int) -> bytes:
    """The batch with that offset as it has reached the platter; nothing if it has not."""
    if not node.disk.root.is_directory(folder):
        return b""
    for path, inode in node.disk.root.subdirectory(folder).files():
        if path.endswith(".log"):
            with suppress(CorruptMessage):
                for view in iter_batches(inode.durable):
                    if view.base_offset <= offset <= view.last_offset:
                        return bytes(view.batch_bytes()) if view.verify_crc() else b""
    return b""


def inside_rules(
    nodes: Nodes, decisions: DecisionsStay, begun: Begun = nothing_is_deleted, era: Era = one_era
) -> list[Invariant]:
    """Every rule of a cluster."""
    return [
        OneLeaderPerEpoch(nodes),
        HighWatermarksRise(nodes),
        WhoMayLeadHoldsAll(nodes, begun, era),
        SameBytesBelowHighWatermarks(nodes, era),
        NothingElseIsDeleted(nodes, begun),
        WhoMayLeadHasDeleted(nodes, era),
        decisions,
    ]
