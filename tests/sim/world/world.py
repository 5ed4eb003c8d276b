"""One node, its clients and everything that can go wrong, in one thread and from one seed

A world lives for a while under faults, then everything is made whole, all of it is read, the node is restarted and all
is read again. After every event every invariant is asked. The trace is the same whenever the seed is.
"""

import asyncio
import random
import sys
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from structlog import DropEvent
from structlog.testing import capture_logs
from structlog.typing import EventDict

from tests.sim.disk import PowerCut
from tests.sim.world.admins import Admin
from tests.sim.world.clients import Client
from tests.sim.world.deletions import Beginnings, Deleter, deletes, keeping_settings
from tests.sim.world.elections import Elections
from tests.sim.world.events import Event, Fault
from tests.sim.world.faults import Faults
from tests.sim.world.inside import DecisionsStay, Nodes, inside_rules
from tests.sim.world.insight import Insight
from tests.sim.world.invariants import Violation, all_invariants
from tests.sim.world.losses import Losses, may_lose, needed, topics_allow_it
from tests.sim.world.members import Member
from tests.sim.world.node import SimulatedNode
from tests.sim.world.operators import Operator
from tests.sim.world.plan import Plan, shrunk
from tests.sim.world.producers import IdempotentProducer, PipelinedProducer, Producer, SpreadProducer
from tests.sim.world.rare import (
    CrumblingNetwork,
    Rationing,
    bulky_settings,
    busy_share,
    settings,
    snapshot_settings,
    syncs_everything,
)
from tests.sim.world.readers import NearbyReader, Reader
from tests.sim.world.topology import node_settings, shape_of
from tidemill.broker.log import flusher, partition_folders
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.node import Broker
from tidemill.broker.quorum import leadership
from tidemill.core.errors import KafkaError
from tidemill.core.runtime.virtual_time import VirtualLoop, place
from tidemill.core.wire.messages.create_topics import CreatableTopicConfig

SETTLED_WITHIN_S = 300
"""So long a world that was made whole may take until everything is answered."""

LOSING = CreatableTopicConfig(name="unclean.leader.election.enable", value="true")

DETAILED = ("cut", "clock", "flipped_bit")
"""Faults whose names go on with what they were done to."""


class World:
    """Everything that there is."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        seed = plan.seed
        self.rng = random.Random(seed)
        self.network = CrumblingNetwork(random.Random(self.rng.getrandbits(64)), self._delay_s)
        self.loop = VirtualLoop(random.Random(self.rng.getrandbits(64)), network=self.network)
        self.loop.set_exception_handler(self._unexpected)
        self.trace: list[str] = []
        self.failure: BaseException | None = None
        self.enough = self.over = False
        self.missing = ""
        self.counts: dict[str, int] = {}
        self.faults: dict[str, int] = {}
        self.lived_s = 0.0
        self.insight = Insight(alone=plan.nodes == 1, may_lose=may_lose(plan.nodes, seed))
        self.page_cache = self.rng.random() < 0.25 and plan.nodes == 1
        self.beginnings = Beginnings()
        self.topic_settings = (LOSING,) if topics_allow_it(plan.nodes, seed) else ()
        begun, era = self.beginnings.of, self.insight.era
        self.invariants = all_invariants(page_cache=self.page_cache, alone=plan.nodes == 1, begun=begun, era=era)
        self._number = 0
        self._failed: asyncio.Future[None] | None = None
        self._repeats = random.Random(f"{seed} repeats").choice((0.0, 0.0, 0.1))
        self._usual_slowness = self.rng.choice((1.0, 1.0, 30.0, 300.0) if plan.nodes == 1 else (1.0, 1.0, 3.0, 20.0))
        self.flips_bits = self.rng.random() < 0.3
        self._strikes = self.rng.random() < 0.5
        self._latency_s = self.rng.choice((0.0002, 0.001, 0.02))
        self.settings = {**settings(self.rng), **keeping_settings(plan.nodes, seed)}
        if bulky := bulky_settings(seed):
            self.settings = {**self.settings, **bulky}
            self.settings.pop("socket.request.max.bytes", None)  # it lets nothing large in at all
        self.is_bulky = bool(bulky)
        if plan.nodes > 1:
            self.settings.update(snapshot_settings(seed))
        self.elections = Elections.of(self)
        self.losses = Losses.of(self)
        policy = "os" if self.page_cache else "group"
        self.nodes = [
            SimulatedNode(
                self,
                node_id,
                {**own, **self.settings, "flush.policy": policy},
                rations=Rationing.of(seed),
                busy=busy_share(seed),
                repeats=self._repeats,
                syncs_everything=syncs_everything(seed),
            )
            for node_id, own in node_settings(plan.nodes, seed).items()
        ]
        self.shape = shape_of(plan.nodes, seed)
        if self.shape.first_voters:
            for node in self.controllers:
                node.format(self.shape.first_voters)
        self.decisions = DecisionsStay()
        if plan.nodes > 1:
            self.invariants += inside_rules(Nodes(self.nodes, self.insight), self.decisions, begun, era)
        clients: list[Client] = [
            Admin(self, "admin"),
            Producer(self, "producer"),
            IdempotentProducer(self, "exact"),
            Reader(self, "reader"),
            Member(self, "member-1"),
            Member(self, "member-2"),
            Member(self, "loner", "h", commits=False),
        ]
        if plan.nodes > 1:
            clients.append(Operator(self, "operator"))
        if PipelinedProducer.is_in(seed):
            clients.append(PipelinedProducer(self, "pipelined"))
        if SpreadProducer.is_in(seed):
            clients.append(SpreadProducer(self, "spread"))
        if NearbyReader.is_in(plan.nodes, seed):
            clients.append(NearbyReader(self, "nearby"))
        if deletes(plan.nodes, seed):
            clients.append(Deleter(self, "deleter"))
        self.clients = [client for client in clients if client.name in plan.clients]

    def _delay_s(self, _source: str, _target: str) -> float:
        spread = self.rng.random()
        calm = self.enough and len(self.nodes) > 1  # or it may be elections only for as long as anybody looks
        return self._latency_s * (0.5 + spread) + (self.rng.random() if spread > 0.99 and not calm else 0.0)

    def next_number(self) -> int:
        """One that nobody has had."""
        self._number += 1
        return self._number

    # -- what nobody in it knows

    def image_offset_known(self) -> int:
        """The end of the decisions that anybody knows of."""
        return self.insight.offset()

    def image_offset_of(self, node_id: int) -> int:
        """The end of those that one node knows of."""
        return self.insight.offset_of(self.nodes[node_id - 1])

    def newest_epoch(self, topic_id: uuid.UUID, partition: int) -> int:
        """In which anybody may lead a partition."""
        return self.insight.epoch(topic_id, partition)

    def newest_group_epoch(self, group: str) -> int:
        """In which anybody may keep a group."""
        return self.insight.group_epoch(group)

    def group_epoch_of(self, node_id: int, group: str) -> int:
        """In which one node keeps it, if it does."""
        return self.insight.group_epoch_of(self.nodes[node_id - 1], group)

    def knows(self, node_id: int | None, name: str, topic_id: uuid.UUID) -> bool:
        """Whether the topic of that name is this one, for one node, or for whoever knows most."""
        return self.insight.knows(None if node_id is None else self.nodes[node_id - 1], name, topic_id)

    def epoch_known_to(self, node_id: int, topic_id: uuid.UUID, partition: int) -> int:
        """In which anybody leads a partition as far as one node knows, -1 if it knows of none."""
        return self.insight.epoch_known_to(self.nodes[node_id - 1], topic_id, partition)

    def led_epoch(self, node_id: int, topic_id: uuid.UUID, partition: int) -> int:
        """In which one node leads a partition, -1 if it does not."""
        return self.insight.led_epoch(self.nodes[node_id - 1], topic_id, partition)

    def log_led_in(self, epoch: int, node_id: int, topic_id: uuid.UUID, partition: int) -> PartitionLog | None:
        """The log of a partition that one node leads, in that epoch still."""
        return self.insight.log_led_in(epoch, self.nodes[node_id - 1], topic_id, partition)

    def is_settled(self, node_id: int, topic_id: uuid.UUID, partition: int) -> bool:
        """Whether one node leads a partition and knows how far the leader before had come."""
        return self.insight.is_settled(self.nodes[node_id - 1], topic_id, partition)

    # -- what happens

    def happened(self, event: Event) -> None:
        """Write it down and ask every invariant."""
        self.trace.append(event.line())
        kind = type(event).__name__
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if isinstance(event, Fault):
            kind = next((each for each in DETAILED if event.what.startswith(each)), event.what)
            self.faults[kind] = self.faults.get(kind, 0) + 1
        try:
            for invariant in self.invariants:
                invariant.after(event)
        except Violation as violation:
            self.fail(violation)

    def fail(self, error: BaseException) -> None:
        """The world is not as it should be."""
        if self.failure is None:
            self.failure = error
            self.trace.append(f"{self.loop.time():012.6f} world     Violation     {type(error).__name__}: {error}")
        if self._failed is not None and not self._failed.done():
            self._failed.set_result(None)

    def _unexpected(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        expected = isinstance(error, PowerCut | OSError | asyncio.CancelledError)
        if error is not None and not expected and "never retrieved" not in context["message"]:
            self.fail(error)

    def _logged(self, _logger: object, _method: str, line: EventDict) -> EventDict:
        """A broker that writes a traceback has met a bug of its own, unless it is about a file or a connection."""
        error = line.get("exc_info")
        if error is True:
            error = sys.exc_info()[1]
        if isinstance(error, Exception) and not isinstance(error, OSError | KafkaError):
            found = Violation(f"{type(error).__name__} was logged by a broker: {error}")
            found.__cause__ = error
            self.fail(found)
        raise DropEvent

    # -- the course of a world

    def run(self) -> None:
        """Live; raises what went wrong, with the seed in a note."""
        with pytest.MonkeyPatch.context() as patch, capture_logs(processors=(self._logged,)):
            patch.setattr(Broker, "__init__", self._seen(Broker.__init__))
            if deletes(self.plan.nodes, self.plan.seed):
                self.beginnings.watch(patch)
            if may_lose(self.plan.nodes, self.plan.seed):
                patch.setattr(leadership, "elect", needed(leadership.elect, self.fail))
            patch.setattr(flusher, "WHOLE_FROM_FILES", 1)  # only where the disk has such a sync
            patch.setattr(partition_folders, "WHOLE_FROM_PARTITIONS", 1)
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                runner.run(self._live())
        if self.failure is not None:
            tail = "\n".join(self.trace[-12:])
            again = f"TIDEMILL_SIM_SEED={self.plan.seed} TIDEMILL_SIM_WORLDS=1 reproduces it"
            self.failure.add_note(f"seed {self.plan.text()}: {again}; the last events:\n{tail}")
            raise self.failure

    def _seen(self, make: Callable[..., None]) -> Callable[..., None]:
        """Nodes know their brokers as soon as there are any."""

        def made(broker: Broker, **parts: Any) -> None:
            make(broker, **parts)
            for node in self.nodes:
                if node.put_together(broker):
                    self.insight.watch(node)
                    broker.controller.watch(partial(self.decisions.hear, node))

        return made

    async def _live(self) -> None:
        self._failed = self.loop.create_future()
        course = asyncio.ensure_future(self._course())
        await asyncio.wait([course, self._failed], return_when=asyncio.FIRST_COMPLETED)
        if not course.done():
            course.cancel()
            await asyncio.wait([course])
        elif (error := course.exception()) is not None:
            self.fail(Violation(f"it does not settle: {self.missing}") if isinstance(error, TimeoutError) else error)
        self.over, self.lived_s = True, self.loop.time()
        for node in self.nodes:
            node.crash(power=True)
        await asyncio.sleep(SETTLED_WITHIN_S)

    async def _course(self) -> None:
        for node in self.nodes:
            node.slowness = self._usual_slowness
            node.start()
        running = []
        for client in self.clients:
            with place(client.name):
                running.append(asyncio.ensure_future(client.run()))
        with place("world"):
            running.append(asyncio.ensure_future(Faults(self, self.rng).run()))
            if len(self.nodes) > 1:
                beside = Faults(self, random.Random(f"{self.plan.seed} beside"))
                running.append(asyncio.ensure_future(beside.run_beside()))
            running += [asyncio.ensure_future(each.run()) for each in (self.elections, self.losses) if each is not None]
        try:
            await asyncio.sleep(self.plan.seconds)
            self.enough = True
            self._make_whole()
            async with asyncio.timeout(SETTLED_WITHIN_S):
                await asyncio.gather(*running)
                await self._settle()
                await self._read_everything()
                await self._restart()
                await self._settle()
                await self._read_everything()
        finally:
            for task in running:
                task.cancel()

    def _make_whole(self) -> None:
        self._usual_slowness = 1.0
        self.lift()
        for node in self.nodes:
            node.disk.cut_power_in = None
            if node.rations is not None:
                node.rations.is_over = True
        self.happened(Fault(self.loop.time(), "world", "whole"))

    async def _read_everything(self) -> None:
        for client in self.clients:
            if isinstance(client, Reader):
                with place(client.name):
                    await asyncio.ensure_future(_until(client.read_everything))
            elif isinstance(client, Producer) and self.is_bulky:
                with place(client.name):
                    await asyncio.ensure_future(_until(client.get_bulk_through))
            elif isinstance(client, Member) and client.topics:
                with place(client.name):
                    await asyncio.ensure_future(_until(client.look_up_offsets))
        for node in self.nodes:
            node.compare_replay()

    async def _settle(self) -> None:
        """Return once every partition is led and every replica of it in sync, as every node knows."""
        while missing := self._missing():
            self.missing = missing
            await asyncio.sleep(0.5)
        self.missing = ""

    def _missing(self) -> str:
        """What is not as it should be in a world that was made whole."""
        for node in self.nodes:
            if node.broker is None:
                return f"{node.name} does not serve"
            for topic in node.broker.controller.image.topics.values():
                for each in topic.partitions:
                    if each.leader < 0 or set(each.isr) != set(each.replicas):
                        return f"{node.name} knows of {topic.name}-{each.partition}: {each}"
        return ""

    async def _restart(self) -> None:
        """Start all nodes anew, at once or one after the other."""
        choice = self.rng.randrange(3)
        for node in self.nodes:
            node.served.clear()
            if node.life is None:
                pass
            elif choice == 0:
                node.stop()
            else:
                node.crash(power=choice == 1 and not self.page_cache)
        for node in self.nodes:
            await node.served.wait()

    # -- faults

    def lift(self) -> None:
        """What goes on ends."""
        self.network.heal_all()
        for node in self.nodes:
            self.loop.release(node.name)
            node.set_slowness(self._usual_slowness)
            node.disk.capacity_bytes = None
            node.disk.fail_sync = None
            node.bad_folder = None

    def strike_soon(self, changes: int) -> None:
        """In some worlds the power fails in the middle of a decision more often than by chance."""
        if self._strikes and not self.enough and self.rng.random() < 0.3:
            self.happened(Fault(self.loop.time(), "world", "power_cut_in_a_decision"))
            self.any_broker().cut_power_within(changes)

    @property
    def brokers(self) -> list[SimulatedNode]:
        """The nodes that clients talk to."""
        return [node for node in self.nodes if node.node_id in self.shape.brokers]

    @property
    def controllers(self) -> list[SimulatedNode]:
        """Those that agree on the metadata, or may."""
        return [node for node in self.nodes if node.node_id in self.shape.controllers]

    @property
    def has_dynamic_voters(self) -> bool:
        """Whether voters may be added and removed."""
        return bool(self.shape.first_voters)

    def any_broker(self) -> SimulatedNode:
        """One of them."""
        return self.nodes[0] if len(self.nodes) == 1 else self.rng.choice(self.brokers)


async def _until(look: Callable[[], Any]) -> None:
    while not await look():  # noqa: ASYNC110
        await asyncio.sleep(0.5)


def run(plan: Plan | int) -> World:
    """A world that has lived, with nothing left out if only its seed is named; raises what went wrong."""
    world = World(Plan(plan) if isinstance(plan, int) else plan)
    world.run()
    return world


def smallest(plan: Plan, failure: BaseException) -> Plan:
    """The smallest world found that goes wrong in the same way: by the same error, with the same first words."""

    def still_fails(smaller: Plan) -> bool:
        try:
            run(smaller)
        except BaseException as error:
            return _kind(error) == _kind(failure)
        return False

    return shrunk(plan, still_fails)


def _kind(error: BaseException) -> tuple[str, str]:
    words = [word for word in str(error).split() if word.isalpha()]
    return type(error).__name__, " ".join(words[:3])
