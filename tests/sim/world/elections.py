"""Trouble aimed at elections of the quorum: in some clusters a voter dies of its vote while two want it

What a vote that was forgotten does harm by is seldom there by chance: two candidates of one epoch who do not hear of
each other, a voter that both of them ask, and its death between the one and the other. So in one cluster of four
whoever leads the quorum dies every few seconds and is back at once, the other controllers are in two halves meanwhile
that do not hear each other, and what asks for a vote or tells of a new leader takes its time. Who has given its vote
away dies now and then, and is back at once; mostly so where somebody else wants to lead in that epoch, who does not
hear of the one that got it.

A chance of its own decides all that: a world without it is what it would be if there were none.
"""

import asyncio
import random
from typing import TYPE_CHECKING, Final, Self

from tests.sim.world.events import Fault
from tests.sim.world.node import SimulatedNode
from tests.sim.world.topology import name_of
from tidemill.broker.quorum.raft.machine import QuorumMachine
from tidemill.broker.quorum.raft.member import Role
from tidemill.broker.quorum.raft.messages import VoteRequest, VoteResponse
from tidemill.broker.quorum.raft.wire import answer_from_wire, request_from_wire
from tidemill.core.runtime.virtual_time import place
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from tidemill.core.wire.messages.vote import VoteRequest as VoteMessage

if TYPE_CHECKING:
    from tests.sim.world.world import World

HELD_MAX_S: Final = 0.3
"""So long a vote is not asked for yet, and a new leader is not told of: shorter than any election is tried."""

DIES_WITHIN_S: Final = 0.08
"""So long the answer of a voter that dies has to leave."""

BACK_AFTER_S: Final = 0.01

APART_S: Final = 2.5


class Elections:
    """What is done to those of one world."""

    def __init__(self, world: "World", rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._rest_s = rng.choice((0.5, 1.0, 3.0))

    @classmethod
    def of(cls, world: "World") -> "Self | None":
        """None in three clusters of four, and where nobody may die or be cut off."""
        rng = random.Random(f"{world.plan.seed} elections")
        may = {"kill", "cut"} <= set(world.plan.faults)
        return cls(world, rng) if world.plan.nodes > 1 and rng.random() < 0.25 and may else None

    async def run(self) -> None:
        """Have one after the other until it is enough."""
        while not self._world.enough:
            await asyncio.sleep(self._rest_s * (0.5 + self._rng.random()))
            if not self._world.enough:
                self._begin()
                await asyncio.sleep(APART_S)

    def _begin(self) -> None:
        """End the leader's life, and part the others."""
        first = self._leader() or self._rng.choice(self._world.controllers)
        others = [node.name for node in self._world.controllers if node is not first]
        self._rng.shuffle(others)
        half = len(others) // 2
        for one in others[:half]:
            for other in others[half:]:
                self._part(one, other)
        self._note("election")
        self._end(first)

    def _part(self, one: str, other: str) -> None:
        """For a while they do not hear each other."""
        network = self._world.network
        for way in ((one, other), (other, one)):
            network.cut(*way)
            with place("world"):
                self._world.loop.call_later(APART_S, network.heal, *way)

    def _end(self, node: SimulatedNode) -> None:
        power = self._rng.random() < 0.3 and "power_cut" in self._world.plan.faults
        node.crash(power=power, rest_s=BACK_AFTER_S)

    def _leader(self) -> SimulatedNode | None:
        for node in self._world.controllers:
            machine = self._machine(node)
            if machine is not None and machine.leads:
                return node
        return None

    @staticmethod
    def _machine(node: SimulatedNode) -> QuorumMachine | None:
        return None if node.inside is None or node.inside.place is None else node.inside.place.member.machine

    def _note(self, what: str) -> None:
        self._world.happened(Fault(self._world.loop.time(), "world", what))

    # -- what the way between controllers asks

    def held_s(self, message: Message) -> float:
        """How long a node takes to hear that."""
        if self._world.enough:
            return 0.0
        asks = isinstance(message, VoteMessage) and not _asked(message).pre_vote
        return HELD_MAX_S * self._rng.random() if asks or isinstance(message, BeginQuorumEpochRequest) else 0.0

    def answered(self, node: SimulatedNode, message: Message, answer: Message) -> None:
        """A node has answered; who has given away its vote may die of it."""
        if not isinstance(message, VoteMessage) or self._world.enough or node.life is None:
            return
        asked = _asked(message)
        told = answer_from_wire(asked, answer)
        if asked.pre_vote or not isinstance(told, VoteResponse) or not told.granted:
            return
        rivals = self._rivals(asked)
        for each in rivals:
            self._part(name_of(asked.candidate_id), each)
        if self._rng.random() < (0.9 if rivals else 0.3):
            what = "voter_of_two_dies" if rivals else "voter_dies"
            with place("world"):
                self._world.loop.call_later(DIES_WITHIN_S * self._rng.random(), self._die, node, node.lives, what)

    def _rivals(self, asked: VoteRequest) -> list[str]:
        """Who else wants to lead in that epoch."""
        found = []
        for node in self._world.controllers:
            machine = self._machine(node)
            if machine is not None and machine.role is Role.CANDIDATE and machine.epoch == asked.epoch:
                found.append(node.name)
        return [each for each in found if each != name_of(asked.candidate_id)]

    def _die(self, node: SimulatedNode, lives: int, what: str) -> None:
        if node.life is not None and node.lives == lives and not self._world.enough:
            self._note(what)
            self._end(node)


def _asked(message: VoteMessage) -> VoteRequest:
    request = request_from_wire(message)
    assert isinstance(request, VoteRequest)
    return request
