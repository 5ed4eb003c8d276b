"""One node, its clients and everything that can go wrong, in one thread and from one seed

A world lives for a while under faults, then everything is made whole, all of it is read, the node is restarted and all
is read again. After every event every invariant is asked. The trace is the same whenever the seed is.
"""

import asyncio
import errno
import random
from collections.abc import Callable
from typing import Any

from structlog.testing import capture_logs

from tests.sim.disk import PowerCut
from tests.sim.world.clients import Admin, Client, IdempotentProducer, Member, Producer, Reader
from tests.sim.world.events import Event, Fault, Started
from tests.sim.world.invariants import Violation, all_invariants
from tests.sim.world.node import SimulatedNode
from tests.sim.world.plan import Plan, shrunk
from tests.sim.world.rare import CrumblingNetwork, Rationing, bulky_settings, busy_share, settings
from tidemill.core.runtime.virtual_time import VirtualLoop, place

SETTLED_WITHIN_S = 300
"""So long a world that was made whole may take until everything is answered."""

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
        self.bad_until = 0.0
        self.counts: dict[str, int] = {}
        self.faults: dict[str, int] = {}
        self.lived_s = 0.0
        self.page_cache = self.rng.random() < 0.25
        self.invariants = all_invariants(page_cache=self.page_cache)
        self._number = 0
        self._served = asyncio.Event()
        self._failed: asyncio.Future[None] | None = None
        self._usual_slowness = self.rng.choice((1.0, 1.0, 30.0, 300.0))
        self.flips_bits = self.rng.random() < 0.3
        self._strikes = self.rng.random() < 0.5
        self._latency_s = self.rng.choice((0.0002, 0.001, 0.02))
        self.settings = settings(self.rng)
        if bulky := bulky_settings(seed):
            self.settings = {**self.settings, **bulky}
            self.settings.pop("socket.request.max.bytes", None)  # it lets nothing large in at all
        self.is_bulky = bool(bulky)
        policy = "os" if self.page_cache else "group"
        self.node = SimulatedNode(
            self,
            "node-1",
            {**self.settings, "flush.policy": policy},
            rations=Rationing.of(seed),
            busy=busy_share(seed),
        )
        clients: list[Client] = [
            Admin(self, "admin"),
            Producer(self, "producer"),
            IdempotentProducer(self, "exact"),
            Reader(self, "reader"),
            Member(self, "member-1"),
            Member(self, "member-2"),
            Member(self, "loner", "h", commits=False),
        ]
        self.clients = [client for client in clients if client.name in plan.clients]

    def _delay_s(self, _source: str, _target: str) -> float:
        spread = self.rng.random()
        return self._latency_s * (0.5 + spread) + (self.rng.random() if spread > 0.99 else 0.0)

    def next_number(self) -> int:
        """One that nobody has had."""
        self._number += 1
        return self._number

    # -- what happens

    def happened(self, event: Event) -> None:
        """Write it down and ask every invariant."""
        self.trace.append(event.line())
        kind = type(event).__name__
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if isinstance(event, Fault):
            kind = next((each for each in DETAILED if event.what.startswith(each)), event.what)
            self.faults[kind] = self.faults.get(kind, 0) + 1
        if isinstance(event, Started):
            self._served.set()
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

    # -- the course of a world

    def run(self) -> None:
        """Live; raises what went wrong, with the seed in a note."""
        with capture_logs(), asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._live())
        if self.failure is not None:
            tail = "\n".join(self.trace[-12:])
            again = f"TIDEMILL_SIM_SEED={self.plan.seed} TIDEMILL_SIM_WORLDS=1 reproduces it"
            self.failure.add_note(f"seed {self.plan.text()}: {again}; the last events:\n{tail}")
            raise self.failure

    async def _live(self) -> None:
        self._failed = self.loop.create_future()
        course = asyncio.ensure_future(self._course())
        await asyncio.wait([course, self._failed], return_when=asyncio.FIRST_COMPLETED)
        if not course.done():
            course.cancel()
            await asyncio.wait([course])
        elif (error := course.exception()) is not None:
            self.fail(Violation("it does not settle") if isinstance(error, TimeoutError) else error)
        self.over, self.lived_s = True, self.loop.time()
        self.node.crash(power=True)
        await asyncio.sleep(SETTLED_WITHIN_S)

    async def _course(self) -> None:
        self.node.slowness = self._usual_slowness
        self.node.start()
        running = []
        for client in self.clients:
            with place(client.name):
                running.append(asyncio.ensure_future(client.run()))
        with place("world"):
            running.append(asyncio.ensure_future(self._faults()))
        try:
            await asyncio.sleep(self.plan.seconds)
            self.enough = True
            self._make_whole()
            async with asyncio.timeout(SETTLED_WITHIN_S):
                await asyncio.gather(*running)
                await self._read_everything()
                await self._restart()
                await self._read_everything()
        finally:
            for task in running:
                task.cancel()

    def _make_whole(self) -> None:
        self.network.heal_all()
        self.loop.release(self.node.name)
        self.node.set_slowness(1.0)
        self._usual_slowness = 1.0
        self.node.disk.capacity_bytes = None
        self.node.disk.fail_sync = None
        self.node.disk.cut_power_in = None
        self.node.bad_folder = None
        if self.node.rations is not None:
            self.node.rations.is_over = True
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
        self.node.compare_replay()

    async def _restart(self) -> None:
        choice = self.rng.randrange(3)
        self._served.clear()
        if self.node.life is None:
            pass
        elif choice == 0:
            self.node.stop()
        else:
            self.node.crash(power=choice == 1 and not self.page_cache)
        await self._served.wait()

    # -- faults

    async def _faults(self) -> None:
        kinds: list[Callable[[], float]] = [
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
        ]
        sample = self.rng.sample(kinds, self.rng.randrange(1, len(kinds)))
        chosen = [kind for kind in sample if kind.__name__.removeprefix("_") in self.plan.faults]
        rest_s = self.rng.choice((1.0, 4.0, 12.0))
        while chosen and not self.enough:
            await asyncio.sleep(rest_s * self.rng.random())
            if not self.enough:
                lasts_s = self.rng.choice(chosen)()
                await asyncio.sleep(lasts_s)
                self._lift()

    def _note(self, what: str) -> None:
        self.happened(Fault(self.loop.time(), "world", what))

    def _lift(self) -> None:
        """What goes on ends."""
        self.network.heal_all()
        self.loop.release(self.node.name)
        self.node.set_slowness(self._usual_slowness)
        self.node.disk.capacity_bytes = None
        self.node.disk.fail_sync = None
        self.node.bad_folder = None

    def _kill(self) -> float:
        self._note("kill")
        self.node.crash(power=False)
        return 0.0

    def _power_cut(self) -> float:
        self._note("power_cut")
        self.node.crash(power=True)
        return 0.0

    def _power_cut_soon(self) -> float:
        self._note("power_cut_soon")
        self.node.cut_power_within(self.rng.randrange(30))
        return self.rng.random() * 2

    def strike_soon(self, changes: int) -> None:
        """In some worlds the power fails in the middle of a decision more often than by chance."""
        if self._strikes and not self.enough and self.rng.random() < 0.3:
            self._note("power_cut_in_a_decision")
            self.node.cut_power_within(changes)

    def _stop(self) -> float:
        self._note("stop")
        self.node.stop()
        return self.rng.random() * 3

    def _pause(self) -> float:
        self._note("pause")
        self.loop.hold(self.node.name)
        return self.rng.choice((0.1, 2.0, 8.0)) * self.rng.random()

    def _cut(self) -> float:
        client = self.rng.choice(self.clients).name
        ways = self.rng.choice(("in", "out", "both"))
        self._note(f"cut_{ways}_{client}")
        if ways in ("in", "both"):
            self.network.cut(client, self.node.name)
        if ways in ("out", "both"):
            self.network.cut(self.node.name, client)
        return self.rng.choice((1.0, 10.0, 40.0)) * self.rng.random()

    def _break(self) -> float:
        self._note("break")
        self.network.break_one(self.rng.randrange(100))
        return 0.0

    def _slow(self) -> float:
        self._note("slow_disk")
        self.node.set_slowness(self.rng.choice((20.0, 300.0)))
        return self.rng.random() * 8

    def _full(self) -> float:
        self._note("full_disk")
        self.bad_until = self.loop.time() + 20
        self.node.disk.capacity_bytes = self.node.disk.used_bytes() + self.rng.randrange(3000)
        return self.rng.random() * 6

    def _bad_sync(self) -> float:
        self._note("failing_sync")
        self.bad_until = self.loop.time() + 20
        self.node.disk.fail_sync = OSError(errno.EIO, "Input/output error")
        self.node.disk.forgets_after_failed_sync = True
        return self.rng.random() * 2

    def _bad_read(self) -> float:
        self._note("bad_read")
        self.bad_until = self.loop.time() + 20
        self.node.bad_folder = "/disk/" + self.rng.choice(("__consumer_offsets-", "__consumer_offsets-", "a-", "b-"))
        if self.rng.random() < 0.8:
            self.node.crash(power=False)  # most of it is read at a start
        return 2 + self.rng.random() * 6

    def _jump(self) -> float:
        self.node.jump(self.rng.choice((-1, 1)) * self.rng.choice((50, 5000, 3_600_000)))
        return 0.0

    @property
    def disk_is_bad(self) -> bool:
        """Whether a broker may have met a disk that is full or fails: it tells of it a little later."""
        return self.loop.time() < self.bad_until


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
