"""What a broker tells those who watch it

A broker is alive as long as its event loop answers. While it starts and while it stops the loop has long work to do and
nobody is served: then it is alive and not ready, and says what it is about. Once it serves it is ready as long as every
partition that lives here can be written and read, and its cluster counts on it.

Readiness is not asked of clients' requests: a partition that one client may not use, or a group that rebalances, is an
answer like any other. Where the disk is full, reads go on; but whoever spreads load should know.
"""

import asyncio
import enum
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Final, Protocol

from tidemill.broker.cluster_health import is_out, waits
from tidemill.broker.figures import PARTS, CountedBroker, Figures, take_figures
from tidemill.broker.log.store import Opening
from tidemill.broker.log.turns import Turns
from tidemill.broker.metrics import DISK, LEFT_OUT, STATE, of_disk, of_figures, of_folder, of_state
from tidemill.core.runtime.disk_space import disk_space
from tidemill.core.runtime.exposition import Family, give_way, write
from tidemill.core.runtime.metric_parts import MetricParts
from tidemill.core.runtime.probe import LOOP_PATIENCE_S, LoopSilent, Probe, Reason, on_loop

ROOM_BYTES: Final = 16 * 2**20
"""Below this much usable space a disk that has refused an append is still full; above it the next one is tried."""


REFUSED_S: Final = 30.0
"""So long after an append was refused although there is room, as by a quota or without inodes, that is still so."""


class WatchedBroker(CountedBroker, Protocol):
    """What is looked at; `tidemill.broker.node.Broker` is the real one."""

    stop: asyncio.Event
    failure: OSError | None


class Life(enum.IntEnum):
    """How far a broker is, in Kafka's numbers."""

    STARTING = 1
    RECOVERING = 2
    RUNNING = 3
    STOPPING = 7


class Watch:
    """The answers of one broker, from before its folder is opened until after it is closed.

    Its state changes on the event loop; `probe` is asked on another thread.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        data_dir: str,
        series_max: int = 10_000,
        patience_s: float = LOOP_PATIENCE_S,
    ) -> None:
        self.life = Life.STARTING
        self.broker: WatchedBroker | None = None
        self._data_dir = data_dir
        self._series_max = series_max
        self._refused = 0  # appends, at the last look
        self._refused_at: float | None = None  # the latest look that found more of them although there was room
        self._parts = MetricParts(STATE, DISK, *PARTS, LEFT_OUT)
        self._ask_loop = on_loop(loop, _nothing, patience_s)
        self._ask_broker = on_loop(loop, self._look, patience_s)
        self._ask_figures = on_loop(loop, self._count, patience_s)
        self.probe = Probe(live=self._live, ready=self._ready, metrics=self._metrics)

    @contextmanager
    def running(self) -> Iterator[None]:
        """The broker serves from enter to exit; then it stops."""
        self.life = Life.RUNNING
        try:
            yield
        finally:
            self.life = Life.STOPPING

    def _stops(self) -> bool:
        return self.life is Life.STOPPING or (self.broker is not None and self.broker.stop.is_set())

    def _live(self) -> str | None:
        if self.life is not Life.RUNNING or self._stops():
            return None
        try:
            self._ask_loop()
        except LoopSilent:
            if not self._stops():  # else it has begun meanwhile, and what has to be closed may take long
                raise
        return None

    def _ready(self) -> Sequence[Reason]:
        broker = self.broker
        if self._stops():
            failure = None if broker is None else broker.failure
            return [*offline(self._data_dir, failure), Reason(what="broker", why="it is about to stop")]
        if self.life is not Life.RUNNING or broker is None:
            return self._starting(broker)
        without_log, refusing, refused = self._ask_broker()
        usable_bytes = disk_space(self._data_dir).usable_bytes if refusing else ROOM_BYTES
        despite_room = self._despite_room(refused, usable_bytes, broker.clock.monotonic())
        return [
            *offline(self._data_dir, broker.failure),
            *unusable(without_log),
            *no_room(self._data_dir, refusing, 0 if despite_room else usable_bytes),
            *(() if broker.place is None else is_out(broker.place, int(broker.clock.monotonic() * 1000))),
        ]

    def _starting(self, broker: WatchedBroker | None) -> Sequence[Reason]:
        opening = None if broker is None else broker.logs.opening
        if broker is not None and broker.place is not None:
            are_open = opening is not None and opening.opened >= opening.found
            if waiting := list(waits(broker.place, are_open)):
                return waiting
        return [starting(self._data_dir, opening)]

    def _despite_room(self, refused: int, usable_bytes: int, now: float) -> bool:
        if refused > self._refused and usable_bytes >= ROOM_BYTES:
            self._refused_at = now
        self._refused = refused
        return self._refused_at is not None and now - self._refused_at < REFUSED_S

    def _metrics(self) -> bytes:
        """While the broker starts or stops, and when its loop hangs, little is told and the rest left out."""
        broker, life = self.broker, self._stage()
        failed = broker is not None and broker.failure is not None
        text = [
            self._written(STATE, chain(of_state(life), of_folder(failed))),
            self._parts.written(DISK, self._disk),
        ]
        if life is Life.RUNNING:
            with suppress(LoopSilent):
                for part, families in of_figures(self._ask_figures(), self._data_dir):
                    text.append(self._written(part, families))
                    give_way()
        return b"".join([*text, self._parts.text()])

    def _written(self, part: str, families: Iterable[Family]) -> bytes:
        return self._parts.written(part, lambda: write(families))

    def _disk(self) -> bytes:
        try:
            space = disk_space(self._data_dir)
        except FileNotFoundError:  # before the folder is made
            return b""
        return write(of_disk(self._data_dir, space))

    def _stage(self) -> Life:
        if self._stops():
            return Life.STOPPING
        return Life.RECOVERING if self.life is Life.STARTING and self.broker is not None else self.life

    async def _count(self) -> Figures:
        assert self.broker is not None
        return await take_figures(self.broker, self._series_max, self._parts)

    async def _look(self) -> tuple[list[str], list[str], int]:
        """Partitions without a log, those whose last append found no room, and how many appends these have refused."""
        broker = self.broker
        assert broker is not None
        refusing, refused, turns = [], 0, Turns(broker.clock.monotonic)
        for partition_log in broker.logs:
            if partition_log.disk_full:
                refusing.append(str(partition_log.topic_partition))
                refused += partition_log.appends_refused
            await turns.give_way()
        return await broker.following.without_logs(turns), refusing, refused


async def _nothing() -> None:
    return None


def starting(data_dir: str, opening: Opening | None) -> Reason:
    """What a broker is about that does not serve yet; `opening` is None before it looks for partitions."""
    where = f"log directory {data_dir}"
    if opening is None:
        return Reason(what=where, why="recovering: the metadata log is read")
    if not opening.found:
        return Reason(what=where, why="recovering: its partitions are looked for")
    if opening.opened < opening.found:
        return Reason(what=where, why=f"recovering: {opening.opened} of {opening.found} partitions are open")
    return Reason(what="broker", why="its partitions are open; groups are taken up and listeners opened")


def offline(data_dir: str, failure: OSError | None) -> Iterable[Reason]:
    """A folder that failed; there is only one, so the broker stops."""
    if failure is not None:
        yield Reason(what=f"log directory {data_dir}", why=f"offline: {failure}; repair the disk and start again")


def unusable(without_log: Sequence[str]) -> Iterable[Reason]:
    """Partitions that should be here and are not."""
    if without_log:
        count = f"{len(without_log)} offline, {without_log[0]} among them"
        yield Reason(what="partitions", why=f"{count}: their logs could not be made, see the broker's log")


def no_room(data_dir: str, refusing: Sequence[str], usable_bytes: int) -> Iterable[Reason]:
    """A full disk: some append was `refusing` for it, and there is no room since."""
    if refusing and usable_bytes < ROOM_BYTES:
        free = "free some (a quota, inodes?), they go on by themselves"
        why = f"no space left, appends to {refusing[0]} were refused; {free}"
        yield Reason(what=f"log directory {data_dir}", why=why)
