"""What is done to the machines of a world, and taken back again

One fault after the other, each on a machine that chance chooses, or on several of them at once where there are several;
after a while it ends. What a seed may do at all is a sample of everything, so that some worlds know one kind of trouble
only, and much of it. In half of all clusters machines die beside all that, so that troubles meet.
"""

import asyncio
import errno
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tests.sim.world.events import Fault
from tests.sim.world.node import SimulatedNode

if TYPE_CHECKING:
    from tests.sim.world.world import World

BAD_FOR_S = 20.0
"""So long a broker may come to speak of a disk that was bad."""


class Faults:
    """All of one world."""

    def __init__(self, world: "World", rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._kinds: tuple[Callable[[], float], ...] = (
            self._kill,
            self._power_cut,
            self._power_cut_soon,
            self._power_cut_soon,
            self._stop,
            self._pause,
            self._cut,
            self._break,
            self._slow,
            self._full,
            self._bad_sync,
            self._bad_read,
            self._jump,
        )

    async def run(self) -> None:
        """Do one thing after the other until it is enough."""
        sample = self._rng.sample(self._kinds, self._rng.randrange(1, len(self._kinds)))
        chosen = [kind for kind in sample if kind.__name__.removeprefix("_") in self._world.plan.faults]
        rest_s = self._rng.choice((1.0, 4.0, 12.0))
        while chosen and not self._world.enough:
            await asyncio.sleep(rest_s * self._rng.random())
            if not self._world.enough:
                lasts_s = self._rng.choice(chosen)()
                await asyncio.sleep(lasts_s)
                self._world.lift()

    async def run_beside(self) -> None:
        """Let machines die now and then, whatever else is going on."""
        kinds = [
            kind for kind in (self._kill, self._power_cut) if kind.__name__.removeprefix("_") in self._world.plan.faults
        ]
        rest_s = self._rng.choice((0.0, 0.0, 8.0, 16.0))
        while kinds and rest_s and not self._world.enough:
            await asyncio.sleep(rest_s * self._rng.random())
            if not self._world.enough:
                self._rng.choice(kinds)()

    def _note(self, what: str) -> None:
        self._world.happened(Fault(self._world.loop.time(), "world", what))

    # -- whom

    def _one(self) -> SimulatedNode:
        nodes = self._world.nodes
        return nodes[0] if len(nodes) == 1 else self._rng.choice(nodes)

    def _some(self) -> Sequence[SimulatedNode]:
        """Mostly one of them, now and then several or all."""
        nodes = self._world.nodes
        if len(nodes) == 1:
            return nodes
        count = self._rng.choice((1, 1, 1, 1, 2, len(nodes)))
        return sorted(self._rng.sample(nodes, count), key=lambda node: node.node_id)

    # -- processes and machines

    def _kill(self) -> float:
        self._note("kill")
        for node in self._some():
            node.crash(power=False)
        return 0.0

    def _power_cut(self) -> float:
        self._note("power_cut")
        for node in self._some():
            node.crash(power=True)
        return 0.0

    def _power_cut_soon(self) -> float:
        self._note("power_cut_soon")
        self._one().cut_power_within(self._rng.randrange(30))
        return self._rng.random() * 2

    def _stop(self) -> float:
        self._note("stop")
        for node in self._some():
            node.stop()
        return self._rng.random() * 3

    def _pause(self) -> float:
        self._note("pause")
        for node in self._some():
            self._world.loop.hold(node.name)
        return self._rng.choice((0.1, 2.0, 8.0)) * self._rng.random()

    def _jump(self) -> float:
        self._one().jump(self._rng.choice((-1, 1)) * self._rng.choice((50, 5000, 3_600_000)))
        return 0.0

    # -- the network

    def _cut(self) -> float:
        nodes, network = self._world.nodes, self._world.network
        if len(nodes) > 1 and self._rng.random() < 0.7:
            self._cut_between_nodes()
        else:
            client, node = self._rng.choice(self._world.clients).name, self._one().name
            ways = self._rng.choice(("in", "out", "both"))
            self._note(f"cut_{ways}_{client}")
            if ways in ("in", "both"):
                network.cut(client, node)
            if ways in ("out", "both"):
                network.cut(node, client)
        return self._rng.choice((1.0, 10.0, 40.0)) * self._rng.random()

    def _cut_between_nodes(self) -> None:
        """One link, or one machine from all others, or some from the rest; clients reach everybody."""
        nodes = [node.name for node in self._world.nodes]
        ways = self._rng.choice(("in", "out", "both"))
        some = self._rng.sample(nodes, self._rng.randrange(1, len(nodes) // 2 + 1))
        rest = [name for name in nodes if name not in some]
        if self._rng.random() < 0.3:
            some, rest = some[:1], [self._rng.choice(rest)]
        self._note(f"cut_{ways}_{'+'.join(sorted(some))}_{'+'.join(rest)}")
        for one in some:
            for other in rest:
                if ways in ("in", "both"):
                    self._world.network.cut(other, one)
                if ways in ("out", "both"):
                    self._world.network.cut(one, other)

    def _break(self) -> float:
        self._note("break")
        self._world.network.break_one(self._rng.randrange(100))
        return 0.0

    # -- disks

    def _slow(self) -> float:
        self._note("slow_disk")
        self._one().set_slowness(self._rng.choice((20.0, 300.0)))
        return self._rng.random() * 8

    def _full(self) -> float:
        self._note("full_disk")
        node = self._bad()
        node.disk.capacity_bytes = node.disk.used_bytes() + self._rng.randrange(3000)
        return self._rng.random() * 6

    def _bad_sync(self) -> float:
        self._note("failing_sync")
        node = self._bad()
        node.disk.fail_sync = OSError(errno.EIO, "Input/output error")
        node.disk.forgets_after_failed_sync = True
        return self._rng.random() * 2

    def _bad_read(self) -> float:
        self._note("bad_read")
        node = self._bad()
        node.bad_folder = "/disk/" + self._rng.choice(("__consumer_offsets-", "__consumer_offsets-", "a-", "b-"))
        if self._rng.random() < 0.8:
            node.crash(power=False)  # most of it is read at a start
        return 2 + self._rng.random() * 6

    def _bad(self) -> SimulatedNode:
        node = self._one()
        node.bad_until = self._world.loop.time() + BAD_FOR_S
        return node
