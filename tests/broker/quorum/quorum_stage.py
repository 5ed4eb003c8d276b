"""Nodes of a quorum in one thread: real members and controllers; network, disks and time of the stage's own"""

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

from structlog.testing import capture_logs

from tests.sim.disk import SimulatedDisk
from tidemill.broker.quorum.active import ActiveController
from tidemill.broker.quorum.broker_life import BrokerIdentity, BrokerLife
from tidemill.broker.quorum.channel import ControllerChannel
from tidemill.broker.quorum.controller import Controller, SnapshotRules
from tidemill.broker.quorum.delta import ImageDelta
from tidemill.broker.quorum.disk_thread import DiskThread, ResultT
from tidemill.broker.quorum.elected import Elected, Identity
from tidemill.broker.quorum.election_state import ElectionStateFile
from tidemill.broker.quorum.lifecycle import LifeSettings
from tidemill.broker.quorum.metadata import NewTopic, Rules, TopicResult
from tidemill.broker.quorum.raft.settings import QuorumSettings
from tidemill.broker.quorum.raft.voters import VoterEndpoint, VoterSet, parse_voters
from tidemill.broker.quorum.records import BrokerEndpoint
from tidemill.broker.quorum.store import MetadataStore
from tidemill.broker.quorum.transport import (
    Serve,
    Unreachable,
    decode_answer,
    decode_call,
    encode_answer,
    encode_call,
)
from tidemill.core.client.connection import Address
from tidemill.core.runtime.virtual_threads import VirtualThreads
from tidemill.core.runtime.virtual_time import VirtualLoop
from tidemill.core.wire.message import Message

CLUSTER = "a-cluster"
PORT = 9093
ENDPOINT = BrokerEndpoint(name="PLAINTEXT", host="h", port=9092)


class Wires:
    """A network: every call takes a moment, and no call gets through between nodes that are apart."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.serving: dict[Address, Serve] = {}
        self.apart: set[frozenset[str]] = set()
        self.deaf: set[tuple[str, str]] = set()
        """From whom to whom nothing gets, though it does the other way."""
        self.asked = Counter[str]()
        """How often each kind of request was sent."""

    def transport(self, host: str) -> "Wire":
        """Of one node."""
        return Wire(self, host)

    async def pass_on(self, source: str, target: str) -> None:
        """Take as long as a message does; waits for ever where it is lost."""
        await asyncio.sleep(0.0005 + self._rng.random() * 0.002)
        if frozenset((source, target)) in self.apart or (source, target) in self.deaf:
            await asyncio.get_running_loop().create_future()


class Wire:
    """Satisfies `tidemill.broker.quorum.transport.Transport`."""

    def __init__(self, wires: Wires, host: str) -> None:
        self._wires = wires
        self._host = host

    async def call(self, address: Address, request: Message, *, timeout_s: float) -> Message:
        call = encode_call(request, 18 if type(request).__name__ == "FetchRequest" else _newest(request))
        self._wires.asked[type(request).__name__] += 1
        try:
            async with asyncio.timeout(timeout_s):
                await self._wires.pass_on(self._host, address.host)
                serve = self._wires.serving.get(address)
                if serve is None:
                    raise Unreachable(address, "not reachable")
                heard, version = decode_call(call)
                data = encode_answer(await serve(heard), version)
                await self._wires.pass_on(address.host, self._host)
        except TimeoutError:
            raise Unreachable(address, "no answer in time") from None
        return decode_answer(request, version, data)

    async def serve(self, address: Address, serve: Serve) -> int:
        self._wires.serving[address] = serve
        return address.port

    async def close(self) -> None:
        self._wires.serving = {at: each for at, each in self._wires.serving.items() if at.host != self._host}


def _newest(request: Message) -> int:
    from tidemill.core.wire.api import api_of

    found = api_of(type(request))
    assert found is not None
    return found.max_version


class SlowDisk(DiskThread):
    """Whatever it is asked for from now on takes `more_s` longer."""

    more_s = 0.0

    async def run(self, call: Callable[[], ResultT]) -> ResultT:
        if self.more_s:
            await asyncio.sleep(self.more_s)
        return await super().run(call)


class Node:
    """One machine: its disk stays, its lives come and go."""

    def __init__(self, stage: "Stage", node_id: int) -> None:
        self.node_id = node_id
        self.host = f"node-{node_id}"
        self.disk = SimulatedDisk()
        self.directory_id = uuid.UUID(int=node_id)
        self.failure: BaseException | None = None
        self._stage = stage
        self._work: list[asyncio.Task[None]] = []
        self._threads: VirtualThreads | None = None
        self.thread: SlowDisk
        self.store: MetadataStore
        self.member: Elected
        self.controller: Controller
        self.active: ActiveController
        self.channel: ControllerChannel

    async def start(self, *, voters: VoterSet | None = None) -> None:
        """Come up with what the disk has."""
        stage = self._stage
        address = Address(self.host, PORT)
        self._threads = VirtualThreads(stage.loop, random.Random(stage.rng.getrandbits(64)))
        thread = self.thread = SlowDisk(self._threads.pool("metadata", 2))
        store = self.store = MetadataStore(self.disk.root, replicated=True)
        election = ElectionStateFile(self.disk.root)
        wire = stage.wires.transport(self.host)

        def join(controller: Controller) -> Elected:
            return Elected(
                store,
                election,
                wire,
                controller,
                identity=Identity(
                    node_id=self.node_id,
                    cluster_id=CLUSTER,
                    directory_id=self.directory_id,
                    endpoints=(VoterEndpoint("CONTROLLER", self.host, PORT),),
                ),
                clock=stage.clock,
                thread=thread,
                voters=stage.voters if voters is None else voters,
                settings=QuorumSettings(),
                chance=random.Random(stage.rng.getrandbits(64)),
            )

        self.controller = Controller(
            store,
            clock=stage.clock,
            rules=Rules(cluster_id=CLUSTER),
            node_id=self.node_id,
            new_uuid=lambda: uuid.UUID(int=stage.rng.getrandbits(128), version=4),
            join=join,
            snapshots=SnapshotRules(max_bytes=stage.snapshot_bytes),
            executor=self._threads.pool("snapshots"),
        )
        self.controller.load()
        assert isinstance(self.controller.member, Elected)
        self.member = self.controller.member
        self.active = ActiveController(self.controller, self.member.serve, clock=stage.clock)
        self.channel = ControllerChannel(self.member, wire, self.active.serve)
        await wire.serve(address, self.active.serve)
        work = (self._take_part, self.controller.run, self.controller.keep_snapshots, self.active.run)
        self._work = [asyncio.ensure_future(self._keep(each)) for each in work]

    async def _take_part(self) -> None:
        await asyncio.sleep(self._stage.begins_after_s)
        await self.member.run()

    async def _keep(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.failure = error

    async def end(self, *, power: bool = False) -> None:
        """Be killed, or cut off from power."""
        assert self._threads is not None
        self._threads.stop()
        for task in self._work:
            task.cancel()
        for task in self._work:
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task], timeout=0.01)
        await self._stage.wires.transport(self.host).close()
        if power:
            self.disk.crash(self._stage.rng)
        else:
            self.disk.kill()
        self._work = []

    async def create(self, name: str) -> TopicResult:
        """Ask this node for a topic."""
        (result,) = await self.controller.create_topics([NewTopic(name=name)])
        return result


class Member:
    """A broker on a node: it goes by what the node's controller knows."""

    def __init__(self, stage: "Stage", node: Node, broker_id: int, cluster_id: str) -> None:
        self.node = node
        self.life = BrokerLife(
            node.channel,
            BrokerIdentity(
                broker_id=broker_id,
                cluster_id=cluster_id,
                incarnation_id=uuid.UUID(int=stage.rng.getrandbits(128)),
                end_points=(BrokerEndpoint(name="PLAINTEXT", host=f"broker-{broker_id}", port=9092),),
                loses_nothing=True,
            ),
            clock=stage.clock,
            settings=LifeSettings(),
        )
        self.running = asyncio.ensure_future(self.life.run())
        node.controller.watch(self._taken)
        self.life.metadata_taken(node.controller.image.offset)

    def _taken(self, delta: ImageDelta) -> None:
        self.life.metadata_taken(delta.after.offset)

    async def end(self) -> None:
        """Be killed, with its node."""
        self.running.cancel()
        await self.node.end()


class Clock:
    """The stage's."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()


class Stage:
    """So many nodes, of which those in `voters` elect."""

    def __init__(self, seed: int, nodes: int = 3, *, snapshot_bytes: int = 20 * 2**20) -> None:
        self.rng = random.Random(seed)
        self.loop = VirtualLoop(random.Random(self.rng.getrandbits(64)))
        self.clock = Clock(self.loop)
        self.snapshot_bytes = snapshot_bytes
        self.begins_after_s = 0.0
        """So long nodes have to do with themselves before they take part."""
        self.wires = Wires(random.Random(self.rng.getrandbits(64)))
        self.voters = parse_voters(",".join(f"{each}@node-{each}:{PORT}" for each in range(1, nodes + 1)))
        self.members: list[Member] = []
        self.nodes = {each: Node(self, each) for each in range(1, nodes + 1)}

    def run(self, course: Callable[["Stage"], Awaitable[None]]) -> None:
        """Play it; every node that fails fails the test."""

        async def play() -> None:
            await course(self)
            for member in self.members:
                member.running.cancel()
            for node in self.nodes.values():
                if node.failure is not None:
                    raise node.failure
                await node.end()

        with capture_logs(), asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(play())

    async def start(self) -> None:
        """All of them."""
        for node in self.nodes.values():
            await node.start()

    async def leader(self, among: "list[Node] | None" = None) -> Node:
        """The one that decides, once there is one."""
        async with asyncio.timeout(60):
            while True:
                for node in among or self.nodes.values():
                    if node.controller.leads:
                        return node
                await asyncio.sleep(0.01)

    async def join(self, node: Node, *, like: int | None = None, cluster_id: str = CLUSTER) -> Member:
        """A broker on `node`; `like` is the id that it says it has."""
        member = Member(self, node, node.node_id if like is None else like, cluster_id)
        self.members.append(member)
        return member

    def others(self, than: Node) -> list[Node]:
        """All nodes but one."""
        return [each for each in self.nodes.values() if each is not than]

    async def register(self, leader: Node) -> None:
        """Let there be a broker, so that topics can be placed."""
        await leader.controller.register_broker([ENDPOINT], None)

    async def agree(self, nodes: "list[Node] | None" = None) -> None:
        """Return when all of them know the same."""
        everyone = nodes or list(self.nodes.values())
        async with asyncio.timeout(60):
            while len({each.controller.image.offset for each in everyone}) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        first = everyone[0].controller.image
        assert all(each.controller.image == first for each in everyone)
