"""Three replicas of one partition, a controller, and a network that loses, repeats and reorders

The machines are production's, that of the partition and that of the fetches, and so are the leaders' fetch sessions.
The log is a list of entries with epochs, of which what is not durable goes with a power cut, and the controller is the
smallest one that keeps Kafka's rules: it elects out of the ISR only, and takes a proposal only in the epochs it was
made in. Whatever any machine acknowledges is written down and must stay.
"""

import random
import struct
import uuid
from dataclasses import dataclass, field
from typing import NamedTuple

from tidemill.broker.fetch_sessions import FetchSessions, Marks
from tidemill.broker.log.epochs import LeaderEpochs
from tidemill.broker.quorum.image import PartitionImage
from tidemill.broker.replication.actions import Action, Follow, ProposeIsr, RefuseWaiting, Truncate
from tidemill.broker.replication.fetching import Action as FetchAction
from tidemill.broker.replication.fetching import (
    BeginAnew,
    Copied,
    FetchSettings,
    Held,
    Key,
    LeaderFetches,
    Parted,
)
from tidemill.broker.replication.moved import Moved, Stir
from tidemill.broker.replication.partition import Divergence, PartitionMachine, Role
from tidemill.core.errors import KafkaError
from tidemill.core.types import TopicPartition
from tidemill.core.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

LAG_MAX_MS = 1000
NODES = (1, 2, 3)
KEY = Key.of(uuid.UUID(int=7), 0)
NAME = TopicPartition("t", 0)
SETTINGS = FetchSettings(replica_fetch_backoff_ms=200)
BY_ID = 17  # the version of the requests


class Violation(AssertionError):
    """What must never happen has."""


class Entry(NamedTuple):
    """One record: the epoch of the leader that appended it, and which one it is."""

    epoch: int
    number: int


_ENTRY = struct.Struct(">ii")


def packed(entries: list[Entry]) -> bytes:
    """As records are: bytes."""
    return b"".join(_ENTRY.pack(*entry) for entry in entries)


class Asked(NamedTuple):
    """A follower's request, and by which connection it came."""

    correlation_id: int
    request: FetchRequest


class Answer(NamedTuple):
    """The leader's."""

    correlation_id: int
    response: FetchResponse


class Refusal(NamedTuple):
    """The controller's."""

    partition_epoch: int


Payload = Asked | Answer | PartitionImage | ProposeIsr | Refusal


class Message(NamedTuple):
    """Under way; node 0 is the controller."""

    source: int
    target: int
    payload: Payload


@dataclass(slots=True, weakref_slot=True, eq=False)
class Node:
    """Mutable: one broker. `entries[:durable]`, `checkpoint` and the image outlive a crash."""

    node_id: int
    machine: PartitionMachine
    entries: list[Entry] = field(default_factory=list)
    durable: int = 0
    checkpoint: int = 0
    broker_epoch: int = 0
    up: bool = True
    leader: int = -1
    correlation_id: int = 0
    asked: int = -1  # the correlation id of the request that is under way
    fetches: dict[int, LeaderFetches] = field(default_factory=dict)  # by leader
    sessions: FetchSessions = field(default_factory=lambda: new_sessions(0))
    image: PartitionImage | None = None  # the last that was told
    log_start_offset: int = 0
    closed: bool = False
    waiting: list[tuple[int, int, bool]] = field(default_factory=list)  # offset, minimum then, by the round alone
    shown: dict[int, int] = field(default_factory=dict)  # HW by leader epoch
    listening: dict[Stir, tuple[object, ...]] = field(default_factory=dict)  # and the marks when they began to

    def marks(self) -> tuple[object, ...]:
        """What quiet partitions of sessions wait for, any of it."""
        return self.high_watermark, self.log_end_offset, self.image

    def listen(self, stir: Stir, *, of_appends: bool) -> None:
        assert of_appends, "there are only followers"
        self.listening[stir] = self.marks()

    def ignore(self, stir: Stir) -> None:
        self.listening.pop(stir, None)

    def stir(self) -> None:
        """Tell whoever listens if anything has moved since."""
        marks = self.marks()
        for stir in [stir for stir, before in self.listening.items() if before != marks]:
            del self.listening[stir]
            stir(Moved.OTHER)

    @property
    def high_watermark(self) -> int:
        return self.machine.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.machine.high_watermark

    @property
    def log_end_offset(self) -> int:
        return len(self.entries)

    def epochs(self, end: int | None = None) -> LeaderEpochs:
        """As the log's own file has them."""
        found = LeaderEpochs()
        for offset, entry in enumerate(self.entries[:end]):
            found.assign(entry.epoch, offset)
        return found


def new_sessions(slots: int) -> FetchSessions:
    """Of one life of a broker."""
    numbers = iter(range(1, 2**31))
    return FetchSessions(slots, lambda: next(numbers))


class ReplicationSimulation:
    """Mutable: the cluster, step by step from a seed."""

    def __init__(
        self,
        seed: int,
        *,
        min_in_sync: int = 1,
        nodes: tuple[int, ...] = NODES,
        machine: type[PartitionMachine] = PartitionMachine,
        fetches: type[LeaderFetches] = LeaderFetches,
    ) -> None:
        self.rng = random.Random(seed)
        self.min_in_sync = min_in_sync
        self.slots = 100 * (seed // 4 % 2)  # without sessions a repeated request is served as if it were new
        self.make, self.make_fetches = machine, fetches
        self.now_ms = 1_000
        self.numbers = 0
        self.broker_epochs = 0
        self.image = PartitionImage(
            partition=0, replicas=nodes, isr=nodes, leader=nodes[0], leader_epoch=0, partition_epoch=0
        )
        self.fenced: set[int] = set()
        self.nodes = {each: self.start(Node(each, self.machine(each, 0, 0))) for each in nodes}
        self.network: list[Message] = []
        self.acknowledged: dict[int, Entry] = {}
        self.by_epoch: dict[int, int] = {}  # who has acknowledged in an epoch
        self.acks = self.elections = self.truncations = self.isr_changes = self.refusals = 0
        self.failures = self.quiet = 0

    def machine(self, node_id: int, held: int, high_watermark: int) -> PartitionMachine:
        return self.make(
            node_id, held=held, high_watermark=high_watermark, min_in_sync=self.min_in_sync, lag_max_ms=LAG_MAX_MS
        )

    def start(self, node: Node) -> Node:
        self.broker_epochs += 1
        node.broker_epoch, node.up = self.broker_epochs, True
        node.sessions = new_sessions(self.slots)
        return node

    # -- steps

    def run(self, steps: int) -> None:
        """So many, with everything judged after each."""
        for node in self.nodes.values():
            self.assign(node, self.image)
        for _ in range(steps):
            self.step()
            self.judge()

    def heal(self) -> None:
        """No more faults: everything has to come together."""
        for node in self.nodes.values():
            if not node.up:
                self.restart(node)
        for number in range(100):
            self.now_ms += 50
            self.fence_or_elect(voluntarily=False)
            for node in self.nodes.values():
                self.assign(node, self.image)
                self.flush(node)
                self.ask(node)
                if number % 5 == 0:
                    self.tick(node)
                self.judge()
            self.deliver_all()
            self.judge()

    def deliver_all(self) -> None:
        while self.network:
            self.deliver(self.network.pop(0))

    def step(self) -> None:
        self.now_ms += self.rng.choice((0, 1, 5, 50))
        node = self.rng.choice(list(self.nodes.values()))
        roll = self.rng.random()
        if roll < 0.45:
            self.from_network()
        elif roll < 0.60:
            self.produce(node)
        elif roll < 0.72:
            self.flush(node)
        elif roll < 0.87:
            self.ask(node)
        elif roll < 0.90:
            self.tick(node)
        elif roll < 0.93:
            self.push_image(node)
        elif roll < 0.95:
            self.fence_or_elect()
        elif roll < 0.955:
            self.now_ms += LAG_MAX_MS
        elif roll < 0.965:
            self.crash(node) if node.up else self.restart(node)
        elif roll < 0.985 and not node.up:
            self.restart(node)
        elif node.up:
            node.checkpoint = node.machine.high_watermark

    def from_network(self) -> None:
        if not self.network:
            return
        message = self.network.pop(self.rng.randrange(min(len(self.network), 4)))
        roll = self.rng.random()
        if roll < 0.1:
            return
        if roll < 0.2:
            self.network.append(message)
        self.deliver(message)

    def send(self, source: int, target: int, payload: Payload) -> None:
        self.network.append(Message(source, target, payload))

    def deliver(self, message: Message) -> None:
        payload = message.payload
        if message.target == 0:
            if isinstance(payload, ProposeIsr):
                self.decide(message.source, payload)
            return
        node = self.nodes[message.target]
        if not node.up:
            return
        if isinstance(payload, Asked):
            self.serve(node, message.source, payload)
        elif isinstance(payload, Answer):
            self.take_answer(node, message.source, payload)
        elif isinstance(payload, PartitionImage):
            self.assign(node, payload)
        elif isinstance(payload, Refusal):
            self.refusals += 1
            self.take(node, node.machine.refused(payload.partition_epoch, len(node.entries)))

    # -- brokers

    def assign(self, node: Node, image: PartitionImage) -> None:
        node.image = image
        self.take(node, node.machine.assigned(image, log_end=len(node.entries), now_ms=self.now_ms))

    def take(self, node: Node, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case ProposeIsr():
                    self.send(node.node_id, 0, action)
                case Follow():
                    self.follow(node, action)
                case Truncate():
                    self.truncations += 1
                    if action.lost:
                        raise Violation(f"broker {node.node_id} cuts {action.lost} below its HW")
                    del node.entries[action.offset :]
                    node.durable = min(node.durable, action.offset)
                    node.machine.truncated(action.offset)
                    self.note_held(node)
                case RefuseWaiting():
                    node.waiting.clear()
        self.acknowledge(node)

    def follow(self, node: Node, action: Follow) -> None:
        if node.leader != action.leader and node.leader >= 0:
            node.fetches[node.leader].unfollow(KEY)
        node.leader = action.leader
        if action.leader >= 0:
            fetches = node.fetches.get(action.leader)
            if fetches is None:
                fetches = node.fetches[action.leader] = self.make_fetches(node.node_id, SETTINGS)
            fetches.follow(KEY, NAME, action.leader_epoch)
            self.note_held(node)

    def note_held(self, node: Node) -> None:
        """Go on with fetching, unless what was fetched last is not durable yet."""
        if node.leader >= 0 and node.durable == len(node.entries):
            self.say_held(node)

    def say_held(self, node: Node) -> None:
        entries = node.entries
        held = Held(
            offset=len(entries),
            last_epoch=entries[-1].epoch if entries else -1,
            log_start=0,
            high_watermark=node.machine.high_watermark,
        )
        node.fetches[node.leader].held(KEY, node.machine.leader_epoch, held)

    def produce(self, node: Node) -> None:
        if not node.up or not node.machine.leads:
            return
        try:
            node.machine.check_in_sync(self.min_in_sync)
        except KafkaError:
            return
        self.numbers += 1
        node.entries.append(Entry(node.machine.leader_epoch, self.numbers))
        node.waiting.append((len(node.entries) - 1, self.min_in_sync, node.machine.alone))

    def flush(self, node: Node) -> None:
        if node.up:
            node.durable = len(node.entries)
            self.hear_of_flush(node)
            self.acknowledge(node)
            self.note_held(node)
            if node.asked < 0:
                self.ask(node)

    def hear_of_flush(self, node: Node) -> None:
        if node.machine.stored(node.durable):
            self.take(node, node.machine.ask_in(len(node.entries)))

    def ask(self, node: Node) -> None:
        """Ask the leader, or give up the connection on which nothing has come for long."""
        if not node.up or node.leader < 0:
            return
        fetches = node.fetches[node.leader]
        if node.asked >= 0:
            if self.rng.random() < 0.5:
                node.asked = -1
                self.failures += 1
                for each in node.fetches.values():
                    each.failed("nothing comes", self.now_ms)
            return
        request = fetches.next_request(self.now_ms, node.broker_epoch)
        if request is not None:
            node.correlation_id += 1
            node.asked = node.correlation_id
            self.send(node.node_id, node.leader, Asked(node.correlation_id, request))

    def serve(self, node: Node, follower: int, asked: Asked) -> None:
        """As the handler does it, by way of a fetch session."""
        node.stir()
        try:
            turn = node.sessions.begin(asked.request, BY_ID, self.now_ms)
        except KafkaError as error:
            self.send(node.node_id, follower, Answer(asked.correlation_id, FetchResponse(error_code=error.code)))
            return
        rows: list[PartitionData] = []
        sources: dict[int, Marks] = {}
        for number, wanted in enumerate(turn.wanted):
            rows.append(self.row(node, follower, wanted.partition, asked.request.replica_state.replica_epoch))
            if not rows[-1].error_code:
                sources[number] = node
        session_id, numbers = node.sessions.finish(turn, rows, self.now_ms, sources)
        self.quiet += turn.session is not None and not turn.wanted
        told = tuple(rows[number] for number in numbers)
        topics = (FetchableTopicResponse(topic_id=KEY.topic_id, partitions=told),) if told else ()
        response = FetchResponse(session_id=session_id, responses=topics)
        self.send(node.node_id, follower, Answer(asked.correlation_id, response))

    def row(self, node: Node, follower: int, asked: FetchPartition, broker_epoch: int) -> PartitionData:
        machine, end, offset = node.machine, len(node.entries), asked.fetch_offset
        try:
            self.check(node, asked)
            divergence = self.divergence(node, asked)
            if divergence is None:
                self.note_fetched(node, follower, asked, broker_epoch)
        except KafkaError as error:
            return PartitionData(error_code=error.code, high_watermark=-1, records=b"")
        entries = [] if divergence else node.entries[offset : offset + self.rng.randint(0, 4)]
        assert offset <= end or divergence
        return PartitionData(
            high_watermark=machine.high_watermark,
            last_stable_offset=machine.high_watermark,
            log_start_offset=0,
            diverging_epoch=EpochEndOffset()
            if divergence is None
            else EpochEndOffset(epoch=divergence.epoch, end_offset=divergence.end_offset),
            records=packed(entries),
        )

    def check(self, node: Node, asked: FetchPartition) -> None:
        """Whether the two mean the same leadership."""
        node.machine.check_epoch(asked.current_leader_epoch)
        node.machine.check_leads()

    def note_fetched(self, node: Node, follower: int, asked: FetchPartition, broker_epoch: int) -> None:
        actions = node.machine.fetched(
            follower,
            asked.fetch_offset,
            leader_epoch=asked.current_leader_epoch,
            log_end=len(node.entries),
            now_ms=self.now_ms,
            broker_epoch=broker_epoch,
        )
        self.take(node, actions)

    @staticmethod
    def divergence(node: Node, asked: FetchPartition) -> Divergence | None:
        if asked.last_fetched_epoch < 0:
            return None
        last_epoch = asked.last_fetched_epoch
        epoch, end = node.epochs().end_offset_for(last_epoch, node.machine.leader_epoch, len(node.entries))
        return None if epoch == last_epoch and end >= asked.fetch_offset else Divergence(max(epoch, 0), max(end, 0))

    def take_answer(self, node: Node, leader: int, answer: Answer) -> None:
        fetches = node.fetches.get(leader)
        if fetches is None or answer.correlation_id != node.asked:
            return  # of another connection
        node.asked = -1
        for action in fetches.answered(answer.response, self.now_ms):
            self.do(node, leader, action)
        if node.asked < 0 and self.rng.random() < 0.3:
            self.ask(node)

    def do(self, node: Node, leader: int, action: FetchAction) -> None:
        machine = node.machine
        if isinstance(action, BeginAnew):
            raise Violation(f"broker {node.node_id} would throw its log away")
        if not isinstance(action, Copied | Parted) or not self.still(node, leader, action.leader_epoch):
            return
        divergence = None
        if isinstance(action, Parted):
            divergence = action.divergence
        elif action.records:
            if action.offset != len(node.entries):
                raise Violation(f"broker {node.node_id} is to append at {action.offset}, not at {len(node.entries)}")
            node.entries += [Entry(*entry) for entry in _ENTRY.iter_unpack(action.records)]
        actions = machine.answered(
            action.leader_epoch,
            high_watermark=action.high_watermark if isinstance(action, Copied) else 0,
            divergence=divergence,
            epochs=node.epochs(),
            log_end=len(node.entries),
        )
        self.take(node, actions)
        if isinstance(action, Parted) and not actions:
            node.fetches[leader].refused(KEY, action.leader_epoch, "nothing to cut", self.now_ms)

    @staticmethod
    def still(node: Node, leader: int, leader_epoch: int) -> bool:
        machine = node.machine
        return machine.role is Role.FOLLOWER and (machine.leader, machine.leader_epoch) == (leader, leader_epoch)

    def tick(self, node: Node) -> None:
        if node.up:
            self.take(node, node.machine.tick(self.now_ms, len(node.entries)))

    def crash(self, node: Node) -> None:
        """Power is cut: what is not durable may go, and the machine is forgotten."""
        node.up = False
        kept = self.rng.choice((node.durable, len(node.entries)))
        del node.entries[kept:]
        node.durable = kept
        node.waiting.clear()

    def restart(self, node: Node) -> None:
        node.leader, node.asked, node.fetches = -1, -1, {}
        self.network = [each for each in self.network if (each.source, each.target) != (0, node.node_id)]
        node.machine = self.machine(node.node_id, node.durable, node.checkpoint)
        self.start(node)
        self.fence_or_elect(voluntarily=False, fenced={node.node_id})  # it registers anew: whatever it led is over

    # -- controller

    def push_image(self, node: Node) -> None:
        self.send(0, node.node_id, self.image)

    def fence_or_elect(self, *, voluntarily: bool = True, fenced: set[int] | frozenset[int] = frozenset()) -> None:
        """Leave out of the ISR who is away, and elect another leader where that one is, or now and then anyway."""
        image = self.image
        self.fenced = {node.node_id for node in self.nodes.values() if not node.up}
        eligible = [each for each in image.isr if each not in self.fenced | fenced]
        leader = image.leader
        if leader not in eligible or (voluntarily and self.rng.random() < 0.2):
            leader = self.rng.choice(eligible) if eligible else -1
        isr = tuple(eligible) if eligible else image.isr
        if (leader, isr) != (image.leader, image.isr):
            self.elections += 1
            self.change(isr, leader, image.leader_epoch + (leader != image.leader))

    def decide(self, source: int, proposal: ProposeIsr) -> None:
        image = self.image
        if source != image.leader or (proposal.leader_epoch, proposal.partition_epoch) != (
            image.leader_epoch,
            image.partition_epoch,
        ):
            return
        strangers = [
            each
            for each, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
            if each in self.fenced or (epoch >= 0 and each != source and epoch != self.nodes[each].broker_epoch)
        ]
        if strangers:
            self.send(0, source, Refusal(proposal.partition_epoch))
            return
        self.isr_changes += 1
        self.change(proposal.isr, image.leader, image.leader_epoch)

    def change(self, isr: tuple[int, ...], leader: int, leader_epoch: int) -> None:
        self.image = PartitionImage(
            partition=0,
            replicas=self.image.replicas,
            isr=isr,
            leader=leader,
            leader_epoch=leader_epoch,
            partition_epoch=self.image.partition_epoch + 1,
        )
        for node in self.nodes.values():
            self.push_image(node)

    # -- what must hold

    def acknowledge(self, node: Node) -> None:
        """Answer those who waited: by their round of fsync where the machine said so, else by HW."""
        machine = node.machine
        for waiting in list(node.waiting):
            offset, _, by_round = waiting
            if offset >= (node.durable if by_round else machine.high_watermark):
                continue
            node.waiting.remove(waiting)
            entry = node.entries[offset]
            self.acks += 1
            if self.acknowledged.setdefault(offset, entry) != entry:
                raise Violation(f"offset {offset} acknowledged as {self.acknowledged[offset]} and as {entry}")
            leader = self.by_epoch.setdefault(machine.leader_epoch, node.node_id)
            if leader != node.node_id:
                raise Violation(f"two leaders acknowledge in epoch {machine.leader_epoch}")

    def judge(self) -> None:
        """After every step."""
        for member in self.image.isr:
            held = self.nodes[member].entries[: self.nodes[member].durable]
            for offset, entry in self.acknowledged.items():
                if offset >= len(held) or held[offset] != entry:
                    raise Violation(f"broker {member} is in the ISR without {entry} at {offset}, acknowledged")
        for node in self.nodes.values():
            if not node.up:
                continue
            machine = node.machine
            if machine.high_watermark > node.durable:
                raise Violation(f"HW of broker {node.node_id} is beyond what it holds")
            if machine.leads:
                before = node.shown.get(machine.leader_epoch, 0)
                if machine.high_watermark < before:
                    raise Violation(f"HW of broker {node.node_id} goes back in an epoch it leads")
                node.shown[machine.leader_epoch] = machine.high_watermark
            self.judge_shown(node)

    def judge_shown(self, node: Node) -> None:
        """What consumers see here is on the disks of all who may lead next, and is the same there."""
        end = node.machine.high_watermark
        for member in self.image.isr:
            other = self.nodes[member]
            if other.durable < end or other.entries[:end] != node.entries[:end]:
                raise Violation(
                    f"broker {node.node_id} shows up to {end} what member {member} of the ISR does not hold"
                )


def final_state(simulation: ReplicationSimulation) -> tuple[list[tuple[Entry, ...]], tuple[int, ...], set[int]]:
    """Of a cluster that was healed: its logs, ISR and high watermarks."""
    nodes = simulation.nodes.values()
    logs = [tuple(node.entries) for node in nodes]
    return logs, tuple(sorted(simulation.image.isr)), {node.machine.high_watermark for node in nodes}
