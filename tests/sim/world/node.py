"""A whole broker on a simulated machine: started, killed, cut off from power, stopped, paused

The broker is the real one (`open_broker`); what it stands on is the world's. A life that is ended from outside is not
told: its disk is gone, its threads do nothing more, its connections are closed or forgotten by the network, and then
its tasks are cancelled so that nothing of it is left. Whatever they still try has no effect.
"""

import asyncio
import errno
import random
import uuid
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tests.sim.disk import PowerCut, SimulatedDisk
from tests.sim.world.calls import LifeDialer, NetworkTransport
from tests.sim.world.events import Ended, Fault, Replayed, Started
from tests.sim.world.guarded_disk import GuardedDirectory, LifeOfDisk, copy_of
from tests.sim.world.invariants import Violation
from tests.sim.world.rare import Rationing
from tests.sim.world.topology import in_small_pieces, name_of
from tidemill.broker.config import BrokerConfig
from tidemill.broker.formatting import format_folder
from tidemill.broker.log.identity import FolderRefused
from tidemill.broker.node import Broker, StartRefused, open_broker
from tidemill.broker.quorum.image import ClusterImage, Draft
from tidemill.broker.quorum.store import FOLDER, MetadataStore
from tidemill.broker.surroundings import OpenFolder, Surroundings
from tidemill.core.errors import KafkaError
from tidemill.core.runtime.jobs import Work
from tidemill.core.runtime.virtual_threads import VirtualThreads
from tidemill.core.runtime.virtual_time import VirtualLoop, place

if TYPE_CHECKING:
    from tests.sim.world.world import World

BEGAN_MS = 1_700_000_000_000

INDEXES = (".index", ".timeindex")
"""Files that say nothing which the logs do not say: what happens to them may cost time, and no record."""


class TickedJobs:
    """Scheduled work on the world's clock; satisfies `tidemill.core.runtime.jobs.Jobs`."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[float, Work]] = {}
        self._running: list[asyncio.Task[None]] = []

    def add(self, name: str, seconds: float, work: Work) -> None:
        self._jobs[name] = (seconds, work)

    def names(self) -> list[str]:
        return list(self._jobs)

    def run_now(self, name: str) -> None:
        self._running.append(asyncio.ensure_future(self._once(self._jobs[name][1])))

    def start(self) -> None:
        self._running += [asyncio.ensure_future(self._keep(*job)) for job in self._jobs.values()]

    def stop(self) -> None:
        for task in self._running:
            task.cancel()

    async def _keep(self, seconds: float, work: Work) -> None:
        while True:
            await asyncio.sleep(seconds)
            await self._once(work)

    @staticmethod
    async def _once(work: Work) -> None:
        await work()


class NodeClock:
    """A machine's clocks: the wall may be set, and asking for the time takes some now and then.

    It does so more often where the processor is `busy`, a share of all times, with others' work.
    """

    def __init__(self, loop: VirtualLoop, rng: random.Random, busy: float) -> None:
        self._loop = loop
        self._rng = rng
        self._busy = busy
        self.skew_ms = 0

    def now_ms(self) -> int:
        return BEGAN_MS + int(self._loop.time() * 1000) + self.skew_ms

    def monotonic(self) -> float:
        if self._rng.random() < self._busy:
            self._loop.spend(self._rng.random() * 0.01)
        return self._loop.time()


class Life:
    """One process."""

    def __init__(self, number: int, disk: LifeOfDisk, threads: VirtualThreads) -> None:
        self.number = number
        self.disk = disk
        self.threads = threads
        self.stop = asyncio.Event()
        self.inside: Broker | None = None
        """The broker, from when it is put together."""
        self.broker: Broker | None = None
        """The same, as long as it serves."""
        self.task: asyncio.Task[None] | None = None


class SimulatedNode:
    """One machine."""

    def __init__(
        self,
        world: "World",
        node_id: int,
        settings: dict[str, str],
        *,
        rations: Rationing | None,
        busy: float,
        repeats: float,
        syncs_everything: bool,
    ) -> None:
        self.node_id = node_id
        self.name = name_of(node_id)
        self.config = in_small_pieces(BrokerConfig.parse({"log.dirs": "/disk", **settings}), world.plan.seed)
        self.disk = SimulatedDisk(syncs_everything=syncs_everything)
        self.bad_until = 0.0
        """So long its broker may have met a disk that is full or fails."""
        self._repeats = repeats
        self._world = world
        self._rng = random.Random(world.rng.getrandbits(64))
        self.clock = NodeClock(world.loop, self._rng, busy)
        self.rations = rations
        self.bad_folder: str | None = None
        """What the paths of folders begin with whose files are hard to read at the moment."""
        self.served = asyncio.Event()
        """Set when it serves; whoever waits for that clears it."""
        self.lives = 0
        self.life: Life | None = None
        self.slowness = 1.0

    @property
    def broker(self) -> Broker | None:
        """The one that serves now."""
        return None if self.life is None else self.life.broker

    @property
    def inside(self) -> Broker | None:
        """The one that runs now, whether it serves already or not."""
        return None if self.life is None else self.life.inside

    @property
    def disk_is_bad(self) -> bool:
        """Whether a broker may have met a disk that is full or fails: it tells of it a little later."""
        return self._world.loop.time() < self.bad_until

    # -- beginning

    def start(self) -> None:
        """Begin a life, unless one goes on."""
        if self.life is not None or self._world.over:
            return
        self.lives += 1
        self._world.network.appear(self.name)
        life = Life(
            self.lives,
            LifeOfDisk(lambda: self._soon(lambda: self._power_failed(life)), self._before_read),
            VirtualThreads(self._world.loop, random.Random(self._rng.getrandbits(64))),
        )
        life.threads.slowness = self.slowness
        self.life = life
        with place(self.name):
            life.task = asyncio.ensure_future(self._run(life))

    def _soon(self, call: Callable[[], None]) -> None:
        with place("world"):
            self._world.loop.call_soon(call)

    def _surroundings(self, life: Life) -> Surroundings:
        rng = random.Random(self._rng.getrandbits(64))
        folder = GuardedDirectory(self.disk.root, life.disk)

        def is_over() -> bool:
            return life.disk.over

        return Surroundings(
            clock=self.clock,
            threads=life.threads,
            new_uuid=lambda: uuid.UUID(int=rng.getrandbits(128), version=4),
            open_folder=lambda _path: OpenFolder(folder, lambda: None),
            new_jobs=TickedJobs,
            new_transport=lambda: self._transport(is_over, rng),
            new_dialer=lambda: LifeDialer(is_over),
        )

    def _transport(self, is_over: Callable[[], bool], rng: random.Random) -> NetworkTransport:
        elections = self._world.elections
        if elections is None:
            return NetworkTransport(is_over, rng, self._repeats)
        return NetworkTransport(is_over, rng, self._repeats, elections.held_s, partial(elections.answered, self))

    def format(self, first_voters: str) -> None:
        """Make the folder that of one of the first voters of its cluster."""
        folder = OpenFolder(
            GuardedDirectory(self.disk.root, LifeOfDisk(lambda: None, lambda _path: None)), lambda: None
        )
        format_folder(self.config, first_voters, Surroundings(open_folder=lambda _path: folder))

    def put_together(self, broker: Broker) -> bool:
        """Whether a broker that was made is of this node; it may decide and lead before it serves."""
        if self.life is None or broker.around.threads is not self.life.threads:
            return False
        self.life.inside = broker
        return True

    async def _run(self, life: Life) -> None:
        how = "stopped"
        try:
            async with open_broker(self.config, around=self._surroundings(life)) as broker:
                life.broker = broker
                if self.rations is not None:
                    broker.quotas = self.rations
                self._serves(life, broker)
                waits = [asyncio.ensure_future(each.wait()) for each in (life.stop, broker.stop)]
                try:
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for each in waits:
                        each.cancel()
                driven_out = "" if broker.place is None else broker.place.driven_out
                if broker.failure is not None or driven_out:
                    how = "driven out" if broker.failure is None else "disk failed"
                    if not self.disk_is_bad and not life.disk.over:
                        self._world.fail(Violation(f"{how}, and its disk is well: {broker.failure or driven_out}"))
        except (StartRefused, FolderRefused, KafkaError, OSError) as error:
            how = f"refused: {error}"
            if not self.disk_is_bad and not life.disk.over:
                self._world.fail(error)
        except (PowerCut, asyncio.CancelledError):
            pass
        except BaseException as error:
            if not life.disk.over:
                self._world.fail(error)
        if not life.disk.over:
            self._soon(lambda: self._ended(life, how))

    def _serves(self, life: Life, broker: Broker) -> None:
        image = broker.controller.image
        topics = tuple(sorted((topic.name, topic.topic_id) for topic in image.topics.values()))
        self._world.happened(Started(self._world.loop.time(), self.name, life.number, topics))
        self.served.set()
        self.compare_replay()

    # -- ending

    def crash(self, *, power: bool, rest_s: float | None = None) -> None:
        """End the life from outside; `rest_s` later the next one begins, if that is not left to chance."""
        if self.life is not None:
            self._end(self.life, "power cut" if power else "kill", power=power, rest_s=rest_s)

    def stop(self) -> None:
        """Ask the broker to stop in order."""
        if self.life is not None:
            self.life.stop.set()

    def _power_failed(self, life: Life) -> None:
        if self.life is life:
            self._end(life, "power cut", power=True)

    def _ended(self, life: Life, how: str) -> None:
        if self.life is life:
            self._end(life, how, power=False)

    def _end(self, life: Life, how: str, *, power: bool, rest_s: float | None = None) -> None:
        self.life = None
        life.disk.over = True
        life.threads.stop()
        self._world.loop.release(self.name)
        if power:
            self._world.network.vanish(self.name)
            self.disk.crash(self._rng)
        else:
            self._world.network.kill(self.name)
            self.disk.kill()
        if self._world.flips_bits and (path := self.disk.flip_bit(self._rng, INDEXES)) is not None:
            self._world.happened(Fault(self._world.loop.time(), self.name, f"flipped_bit_of_{path}"))
        self._dismiss(life)
        self._world.happened(Ended(self._world.loop.time(), self.name, life.number, how.split(":")[0]))
        with place("world"):
            self._world.loop.call_later(self._rest_s() * self._rng.random() if rest_s is None else rest_s, self.start)

    def _rest_s(self) -> float:
        """The longest that it may be off; without others everybody waits for it."""
        return self._rng.choice((0.01, 0.5, 3.0) if self.config.cluster is None else (0.01, 0.5, 3.0, 8.0))

    def _dismiss(self, life: Life) -> None:
        """Let go of what is left of a program, again and again: it may wait for what never comes more than once."""
        assert life.task is not None
        if not life.task.done():
            life.task.cancel()
            with place("world"):
                self._world.loop.call_later(0.05, self._dismiss, life)

    # -- faults that go on

    def _before_read(self, folder: str) -> None:
        """Sectors that are hard to read take long, whether they can be read in the end or not."""
        if self.bad_folder is not None and folder.startswith(self.bad_folder):
            self._world.loop.spend(self._rng.random() * 0.2)
            if self._rng.random() < 0.2:
                raise OSError(errno.EIO, "Input/output error")

    def set_slowness(self, times: float) -> None:
        """Let threads take so many times longer."""
        self.slowness = times
        if self.life is not None:
            self.life.threads.slowness = times

    def cut_power_within(self, changes: int) -> None:
        """Let the disk take so many changes, and no more."""
        if self.life is not None:
            self.disk.cut_power_in = changes

    def jump(self, by_ms: int) -> None:
        """Set the wall clock."""
        self.clock.skew_ms += by_ms
        self._world.happened(Fault(self._world.loop.time(), self.name, f"clock_{by_ms:+}ms"))

    # -- looking

    def compare_replay(self) -> None:
        """Read the metadata log anew, from a copy, and compare what is committed of it with what the broker goes by."""
        broker = self.broker
        if broker is None or not self.disk.root.is_directory(FOLDER):
            return
        image, several = broker.controller.image, broker.place is not None
        if not several and broker.controller.log_end_offset != image.offset:
            return  # a decision is on its way
        copy = SimulatedDisk()
        copy_of(self.disk.root.subdirectory(FOLDER), copy.root.subdirectory(FOLDER))
        store = MetadataStore(copy.root, replicated=several)
        draft = Draft(ClusterImage())
        store.load(draft.apply_all, committed_end=image.offset if several else None)
        if store.log_start_offset > image.offset:
            return  # a snapshot is on its way
        found = draft.freeze(image.offset if several else store.offset_end)
        self._world.happened(Replayed(self._world.loop.time(), self.name, image.offset, found == image))
