"""Trouble aimed at elections of the quorum: in some clusters a voter dies of its vote while two want it

What a vote that was forgotten does harm by is seldom there by chance: two candidates of one epoch who do not hear of
each other, a voter that both of them ask, and its death between the one and the other. So in one cluster of four
whoever leads the quorum dies every few seconds and is back at once, the other controllers are in two halves meanwhile
that do not hear each other, what asks for a vote or tells of a new leader takes its time, and who has given its vote
away often dies then, and is back at once.

A chance of its own decides all that: a world without it is what it would be if there were none.
"""

import asyncio
import random
from typing import TYPE_CHECKING, Final, Self

from tests.sim.world.events import Fault
from tests.sim.world.node import SimulatedNode
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
                apart = self._begin()
                await asyncio.sleep(APART_S)
                for one, other in apart:
                    self._world.network.heal(one, other)
                    self._world.network.heal(other, one)

    def _begin(self) -> list[tuple[str, str]]:
        """End the leader's life, and part the others; returns who is parted from whom."""
        first = self._leader() or self._rng.choice(self._world.controllers)
        others = [node.name for node in self._world.controllers if node is not first]
        self._rng.shuffle(others)
        half = len(others) // 2
        apart = [(one, other) for one in others[:half] for other in others[half:]]
        for one, other in apart:
            self._world.network.cut(one, other)
            self._world.network.cut(other, one)
        self._note("election")
        self._end(first)
        return apart

    def _end(self, node: SimulatedNode) -> None:
        power = self._rng.random() < 0.3 and "power_cut" in self._world.plan.faults
        node.crash(power=power, rest_s=BACK_AFTER_S)

    def _leader(self) -> SimulatedNode | None:
        for node in self._world.controllers:
            member = None if node.inside is None or node.inside.place is None else node.inside.place.member
            if member is not None and member.machine.leads:
                return node
        return None

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
        if not asked.pre_vote and isinstance(told, VoteResponse) and told.granted and self._rng.random() < 0.7:
            with place("world"):
                self._world.loop.call_later(DIES_WITHIN_S * self._rng.random(), self._die, node, node.lives)

    def _die(self, node: SimulatedNode, lives: int) -> None:
        if node.life is not None and node.lives == lives and not self._world.enough:
            self._note("voter_dies")
            self._end(node)


def _asked(message: VoteMessage) -> VoteRequest:
    request = request_from_wire(message)
    assert isinstance(request, VoteRequest)
    return request
