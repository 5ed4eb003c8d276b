"""Elections that may lose records, because somebody has said that they may (KIP-966)

In one cluster of four either the topics allow it (`unclean.leader.election.enable`), or an operator asks for it where
nobody leads (ElectLeaders). There is trouble aimed at that: a replica is kept from copying until it has fallen out of
the ISR, then all die at once that have what was acknowledged, and it is heard again.

Such an election begins another *era* of its partition (`tests.sim.world.insight`): what was promised before it binds
nobody who has heard of it, and whatever is promised in it binds as ever. So it has to be one that nothing could spare:
where somebody is there who has everything, none may be.

A chance of its own decides all that: a world without it is what it would be if there were none.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

from tests.sim.world.clients import PARTITIONS, TOPICS
from tests.sim.world.events import Fault
from tests.sim.world.invariants import Violation
from tests.sim.world.topology import name_of
from tidemill.broker.quorum import leadership
from tidemill.broker.quorum.image import BrokerImage, PartitionImage
from tidemill.core.runtime.virtual_time import place

if TYPE_CHECKING:
    from tests.sim.world.world import World

KEPT_AWAY_S: Final = 12.0
"""So long a replica does not copy at most; some leaders wait ten seconds for one."""

AWAY_S: Final = (3.0, 9.0)
"""So long are away who have everything, as long as a session and more."""


def may_lose(nodes: int, seed: int) -> bool:
    """Whether there are unclean elections in a world."""
    return nodes > 1 and random.Random(f"{seed} losses").random() < 0.25


def topics_allow_it(nodes: int, seed: int) -> bool:
    """Whether nobody has to ask for them."""
    return may_lose(nodes, seed) and random.Random(f"{seed} topics that lose").random() < 0.5


Elect = Callable[..., leadership.Choice]


def needed(real: Elect, fail: Callable[[Violation], None]) -> Elect:
    """What elects, held to that no election may lose records where somebody who has everything is active."""

    def elect(
        leader: int, replicas: Sequence[int], isr: Sequence[int], brokers: Mapping[int, BrokerImage], **named: Any
    ) -> leadership.Choice:
        choice = real(leader, replicas, isr, brokers, **named)
        have = {node for node in (*isr, *named.get("eligible", ())) if node in brokers and brokers[node].active}
        if choice.loses and have:
            fail(
                Violation(f"node {choice.leader} is elected, which may lack records, and {sorted(have)} have them all")
            )
        return choice

    return elect


class Losses:
    """What is done to the partitions of one world so that nobody is left who has everything."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._rng = random.Random(f"{world.plan.seed} lost")

    @classmethod
    def of(cls, world: "World") -> "Self | None":
        """None where there are no unclean elections, or nobody may die or be cut off."""
        may = {"kill", "cut"} <= set(world.plan.faults)
        return cls(world) if may and may_lose(world.plan.nodes, world.plan.seed) else None

    async def run(self) -> None:
        """Have one partition after the other lose records until it is enough."""
        while not self._world.enough:
            await asyncio.sleep(4 * self._rng.random())
            await self._lose(self._rng.choice(TOPICS), self._rng.randrange(PARTITIONS))

    async def _lose(self, topic: str, number: int) -> None:
        """Keep one of the followers away from the leader until it is out of the ISR, and end all who are in it."""
        before = self._world.insight.partition(topic, number)
        others = [] if before is None else [node for node in before.isr if node != before.leader]
        if before is None or before.leader < 0 or not others:
            return
        behind = self._rng.choice(others)
        self._keep_away(name_of(behind), name_of(before.leader))
        for _ in range(int(KEPT_AWAY_S)):
            await asyncio.sleep(1.0)
            now = self._world.insight.partition(topic, number)
            if self._world.enough or now is None or now.leader < 0:
                return
            if behind not in (*now.isr, *now.eligible_leader_replicas):
                await asyncio.sleep(2 * self._rng.random())
                self._end(now, behind)
                return

    def _keep_away(self, one: str, other: str) -> None:
        network = self._world.network
        for way in ((one, other), (other, one)):
            network.cut(*way)
            with place("world"):
                self._world.loop.call_later(KEPT_AWAY_S, network.heal, *way)

    def _end(self, partition: PartitionImage, behind: int) -> None:
        """All who have everything; the one that has not is heard again."""
        if self._world.enough:
            return
        self._world.happened(Fault(self._world.loop.time(), "world", "nobody_left_who_has_everything"))
        self._world.network.heal_all()
        power = self._rng.random() < 0.3 and "power_cut" in self._world.plan.faults
        for node in (*partition.isr, *partition.eligible_leader_replicas):
            if node != behind:
                self._world.nodes[node - 1].crash(power=power, rest_s=self._rng.uniform(*AWAY_S))
