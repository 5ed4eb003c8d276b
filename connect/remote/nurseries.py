"""Which process a task is forked from

The decisions of the guardian, a machine without a world. A nursery is a process that has imported what tasks need and
does nothing but fork. The first, a root, has the runtime of tasks and no plugin. It forks one more for every plugin
that is wanted, which imports that plugin and forks its tasks: what a plugin does to its process at import it does to
its own tasks only.

Plugins that were installed into an environment of their own have a root of their own, started with the environment's
interpreter when the first of its processes is wanted, and let go when none has been for a while. The worker's own root
stays.

Not every plugin can be imported ahead. One that fails to, that starts a thread (a fork would stop it in the middle of
anything), that takes too long or takes its nursery down is unfit for a while: its tasks are forked from the first
nursery and import it themselves, and so they say what is wrong with it. A nursery whose files have changed on disk is
retired: it forks no more and ends with the last of its processes.

Whoever was to be killed and is not gone in time is stuck in the kernel and given up, if its nursery says that it has
killed it. If the nursery says nothing it is itself killed, with all it has forked; and so is a root that does not say
that it has killed a nursery. What they had forked has ended when they have, not before.
"""

from collections.abc import Iterator
from enum import Enum
from math import inf
from typing import NamedTuple, TypeAlias

FIRST = 0
"""The worker's first own root; every other nursery has a negative number, and what the worker asks for a positive one.
No number is given twice."""

WORKERS_OWN = ""
"""The environment that the worker itself runs in."""

IDLE_S = 60.0  # before the root of an environment is let go that nothing is wanted of; a new one takes a second

UNFIT_S = 30.0  # before it is tried again to import a plugin ahead
IMPORT_S = 20.0  # for a plugin to be imported ahead
FIRST_S = 55.0  # for the first nursery, without which there are no tasks; the worker waits for a task for 60 s
ANSWER_S = 4.0  # for a nursery to say that it has killed: it may be forking many, and all of them pay for its delay
ROOT_ANSWER_S = 2.0  # for a root to say so of a nursery: it forks little, and the worker waits for both of them
DEATH_S = 3.0  # for the kernel to end what was killed

LEASE_OVER = "killed because its worker had lost its place in the group"

STUCK = "it was killed and is stuck in the kernel"

KILLED = 9
"""A wait status: by SIGKILL."""


# --------------------------------------------------------------------- events


class Begun(NamedTuple):
    """There is a guardian: the first nursery may import what everybody will need."""


class Wanted(NamedTuple):
    """The worker wants a process for a plugin."""

    start: int
    plugin: str
    leased: bool = False
    environment: str = WORKERS_OWN


class Leased(NamedTuple):
    """Until when the worker has a right to run what is leased; the last word counts. Before the first, always."""

    until: float


class Unneeded(NamedTuple):
    """The worker wants nothing of an environment any more: it need not stay ready."""

    environment: str


class Unwanted(NamedTuple):
    """The worker wants a process to be killed."""

    start: int


class Ready(NamedTuple):
    """A nursery has imported what it is for."""

    nursery: int


class Unfit(NamedTuple):
    """A nursery cannot fork safely, and ends."""

    nursery: int
    reason: str


class Stale(NamedTuple):
    """A nursery did not fork because its plugin has changed on disk."""

    nursery: int
    start: int


class Killed(NamedTuple):
    """A nursery has sent the signal; the kernel may still be at it."""

    number: int


class Died(NamedTuple):
    """A process that a nursery had forked is gone; of a nursery, the number is its own."""

    number: int
    status: int
    reason: str = ""


class Lost(NamedTuple):
    """A nursery has closed its end: it is as good as gone, and its root tells when it is."""

    nursery: int


class Tick(NamedTuple):
    """Time passes; comes at least once a second."""


Event: TypeAlias = Begun | Wanted | Leased | Unneeded | Unwanted | Ready | Unfit | Stale | Killed | Died | Lost | Tick


# -------------------------------------------------------------------- actions


class StartRoot(NamedTuple):
    """Run the program of a root with the interpreter of an environment."""

    nursery: int
    environment: str = WORKERS_OWN


class ForkNursery(NamedTuple):
    """Have a root fork a nursery for a plugin."""

    nursery: int
    plugin: str
    root: int = FIRST


class Fork(NamedTuple):
    """Have a nursery fork what the worker wants."""

    nursery: int
    start: int


class Kill(NamedTuple):
    """Have the nursery that forked it kill a process."""

    nursery: int
    number: int


class KillRoot(NamedTuple):
    """Kill a root, and with it all that it has forked."""

    nursery: int


class Release(NamedTuple):
    """Close the line to a nursery, which ends if it has not."""

    nursery: int


class TellDied(NamedTuple):
    """Tell the worker of the end of a process; what it had started is to be gone by then."""

    start: int
    status: int
    reason: str = ""


class Note(NamedTuple):
    """Something to be told people who look for it."""

    text: str


Action: TypeAlias = StartRoot | ForkNursery | Fork | Kill | KillRoot | Release | TellDied | Note


# -------------------------------------------------------------------- machine


class _Phase(Enum):
    STARTING = "starting"
    READY = "ready"
    RETIRED = "retired"


class _Nursery:
    __slots__ = ("kill_confirmed", "killed_at", "number", "phase", "place", "root", "since")

    def __init__(self, number: int, place: "_Place", since: float, root: int | None = None) -> None:
        self.number = number
        self.place = place
        self.root = root  # that has forked it; None if it is one itself
        self.phase = _Phase.STARTING
        self.since = since
        self.killed_at: float | None = None
        self.kill_confirmed = False

    @property
    def is_root(self) -> bool:
        return self.root is None


class _Place(NamedTuple):
    """Where a process belongs: what its nursery has imported."""

    environment: str
    plugin: str = ""  # of a root none


class _Start:
    __slots__ = ("kill_confirmed", "killed_at", "leased", "nursery", "place", "reason")

    def __init__(self, place: _Place, leased: bool) -> None:
        self.place = place
        self.leased = leased
        self.reason = ""  # why it was killed, if the worker does not know
        self.nursery: int | None = None
        self.killed_at: float | None = None
        self.kill_confirmed = False


class Nurseries:
    """Who is forked where; one per guardian."""

    def __init__(self) -> None:
        self._nurseries: dict[int, _Nursery] = {}
        self._roots: dict[str, int] = {}  # by environment
        self._wanted_at: dict[str, float] = {}  # when something was last there of an environment that has a root
        self._current: dict[_Place, int] = {}  # the nursery that forks for a plugin
        self._unfit_until: dict[_Place, float] = {}
        self._starts: dict[int, _Start] = {}
        self._unanswered: dict[int, tuple[int, float]] = {}  # nurseries to be killed: by which root, since when
        self._last = FIRST + 1
        self._now = 0.0
        self._lease_until = inf

    @property
    def idle(self) -> bool:
        """Nothing is waited for with a limit."""
        waits = any(each.phase is _Phase.STARTING or each.killed_at is not None for each in self._nurseries.values())
        return not waits and not self._unanswered and all(each.killed_at is None for each in self._starts.values())

    @property
    def lease_end(self) -> float | None:
        """When something has to be killed because the lease is over; None if there is nothing."""
        held = any(each.leased and each.killed_at is None for each in self._starts.values())
        return self._lease_until if held and self._lease_until < inf else None

    def step(self, event: Event, now: float) -> list[Action]:
        """Take in an event; what is to be done."""
        self._now = now
        return list(self._step(event))

    def _step(self, event: Event) -> Iterator[Action]:
        match event:
            case Begun():
                yield from self._begin(WORKERS_OWN)
            case Wanted():
                self._starts[event.start] = _Start(_Place(event.environment, event.plugin), event.leased)
                yield from self._end_lease()
                if event.start in self._starts:
                    yield from self._place(event.start)
            case Leased():
                self._lease_until = event.until
                yield from self._end_lease()
            case Unneeded():
                self._wanted_at[event.environment] = -inf
                yield from self._let_go()
            case Unwanted():
                yield from self._kill(event.start)
            case Ready():
                yield from self._ready(event.nursery)
            case Unfit():
                plugin = self._nurseries[event.nursery].place.plugin if event.nursery in self._nurseries else ""
                yield Note(f"plugin {plugin} is not imported ahead: {event.reason}")
                yield from self._give_up(event.nursery)
            case Stale():
                if event.start in self._starts:
                    self._starts[event.start].nursery = None
                yield from self._retire(event.nursery)
                yield from self._replace(event.start)
            case Killed():
                self._unanswered.pop(event.number, None)
                killed = self._starts.get(event.number) or self._nurseries.get(event.number)
                if killed is not None:
                    killed.killed_at, killed.kill_confirmed = self._now, True
            case Died():
                yield from self._died(event)
            case Lost():
                yield from self._closed(event.nursery)
            case Tick():
                yield from self._tick()

    # -------------------------------------------------------------- placement

    def _begin(self, environment: str) -> Iterator[Action]:
        if environment in self._roots:
            return
        number = self._next()
        self._roots[environment], self._wanted_at[environment] = number, self._now
        self._nurseries[number] = _Nursery(number, _Place(environment), self._now)
        yield StartRoot(number, environment)

    def _next(self) -> int:
        self._last -= 1
        return self._last

    def _place(self, number: int) -> Iterator[Action]:
        """Have a process forked, now or as soon as there is a nursery for it."""
        place = self._starts[number].place
        if place.environment not in self._roots:
            yield from self._begin(place.environment)
            return
        root = self._roots[place.environment]
        if self._nurseries[root].phase is not _Phase.READY:
            return
        if self._unfit_until.get(place, 0.0) > self._now:
            yield self._fork(number, root)
            return
        current = self._current.get(place)
        nursery = None if current is None else self._nurseries.get(current)
        if nursery is None:
            new = self._current[place] = self._next()
            self._nurseries[new] = _Nursery(new, place, self._now, root)
            yield ForkNursery(new, place.plugin, root)
        elif nursery.phase is _Phase.READY:
            yield self._fork(number, nursery.number)

    def _fork(self, number: int, nursery: int) -> Fork:
        self._starts[number].nursery = nursery
        return Fork(nursery, number)

    def _place_waiting(self, place: _Place) -> Iterator[Action]:
        for number, start in list(self._starts.items()):
            if start.nursery is None and place in (start.place, _Place(start.place.environment)):
                yield from self._place(number)

    def _replace(self, number: int) -> Iterator[Action]:
        """Its nursery did not fork it; another will."""
        start = self._starts.get(number)
        if start is None:
            return
        if start.killed_at is None:
            yield from self._place(number)
        else:
            yield from self._tell(number, KILLED)

    # -------------------------------------------------------------- nurseries

    def _ready(self, number: int) -> Iterator[Action]:
        nursery = self._nurseries.get(number)
        if nursery is None or nursery.phase is not _Phase.STARTING:
            return
        nursery.phase = _Phase.READY
        yield from self._place_waiting(nursery.place)

    def _retire(self, number: int) -> Iterator[Action]:
        nursery = self._nurseries.get(number)
        if nursery is None:
            return
        self._forks_no_more(nursery)
        yield from self._release_if_idle(number)

    def _forks_no_more(self, nursery: _Nursery) -> None:
        nursery.phase = _Phase.RETIRED
        if nursery.is_root and self._roots.get(nursery.place.environment) == nursery.number:
            del self._roots[nursery.place.environment]
        if self._current.get(nursery.place) == nursery.number:
            del self._current[nursery.place]

    def _release_if_idle(self, number: int) -> Iterator[Action]:
        nursery = self._nurseries.get(number)
        if nursery is None or nursery.phase is not _Phase.RETIRED:
            return
        if not any(start.nursery == number for start in self._starts.values()):
            del self._nurseries[number]
            yield Release(number)

    def _give_up(self, number: int) -> Iterator[Action]:
        """A plugin cannot be imported ahead, for now."""
        nursery = self._nurseries.get(number)
        if nursery is None or nursery.is_root:
            return
        self._unfit_until[nursery.place] = self._now + UNFIT_S
        yield from self._retire(number)
        yield from self._place_waiting(nursery.place)

    def _closed(self, number: int) -> Iterator[Action]:
        nursery = self._nurseries.get(number)
        if nursery is None or nursery.root not in self._nurseries or nursery.phase is _Phase.STARTING:
            yield from self._lost(number)
        elif nursery.killed_at is None:
            yield self._kill_nursery(nursery, nursery.root)  # a process closes its files before its children are killed

    def _lost(self, number: int, reason: str = "") -> Iterator[Action]:
        nursery = self._nurseries.get(number)
        if nursery is None:
            return
        begun = nursery.phase is not _Phase.STARTING
        gone = [start for start, each in self._starts.items() if each.nursery == number]
        if nursery.is_root:
            # Whoever waits for it cannot wait for the next as well, which may end in the same way.
            environment = nursery.place.environment
            waiting = (start for start, each in self._starts.items() if each.place.environment == environment)
            gone += [start for start in waiting if self._starts[start].nursery is None]
            if not begun:
                reason = f"the process that tasks are forked from did not start{_where(environment)}"
        for start in gone:
            yield from self._tell(start, KILLED, reason)
        if begun or nursery.is_root:
            yield from self._retire(number)
        else:
            yield from self._give_up(number)
        for each in [each for each in self._nurseries.values() if each.root == number and each.killed_at is not None]:
            yield from self._lost(each.number)

    # ------------------------------------------------------------------- ends

    def _kill(self, number: int) -> Iterator[Action]:
        start = self._starts.get(number)
        if start is None or start.killed_at is not None:
            return
        if start.nursery is None:
            yield from self._tell(number, KILLED)
            return
        start.killed_at = self._now
        yield Kill(start.nursery, number)

    def _end_lease(self) -> Iterator[Action]:
        if self._now < self._lease_until:
            return
        for number, start in list(self._starts.items()):
            if start.leased and start.killed_at is None:
                start.reason = LEASE_OVER
                yield from self._kill(number)

    def _died(self, event: Died) -> Iterator[Action]:
        if event.number < 0:
            self._unanswered.pop(event.number, None)
            yield from self._lost(event.number)
        elif event.number in self._starts:
            yield from self._tell(event.number, event.status, event.reason)

    def _tell(self, number: int, status: int, reason: str = "") -> Iterator[Action]:
        start = self._starts.pop(number)
        yield TellDied(number, status, start.reason or reason)
        self._wanted_at[start.place.environment] = self._now
        if start.nursery is not None:
            yield from self._release_if_idle(start.nursery)

    def _let_go(self) -> Iterator[Action]:
        """End the nurseries of environments that nothing is wanted of."""
        used = {start.place.environment for start in self._starts.values()}
        for environment in [each for each in self._roots if each != WORKERS_OWN and each not in used]:
            if self._now - self._wanted_at[environment] >= IDLE_S:
                of_it = [each.number for each in self._nurseries.values() if each.place.environment == environment]
                for number in sorted(of_it):  # the root, which was there first, at last
                    yield from self._retire(number)

    def _tick(self) -> Iterator[Action]:
        yield from self._end_lease()
        for nursery in list(self._nurseries.values()):
            limit_s = FIRST_S if nursery.is_root else IMPORT_S
            if nursery.killed_at is not None:
                yield from self._late(nursery, self._now - nursery.killed_at)
            elif nursery.phase is _Phase.STARTING and self._now - nursery.since > limit_s:
                yield from self._too_slow(nursery)
        for number, start in list(self._starts.items()):
            if start.killed_at is None or number not in self._starts:
                continue
            waited = self._now - start.killed_at
            if start.kill_confirmed and waited > DEATH_S:
                yield from self._tell(number, KILLED, STUCK)
            elif not start.kill_confirmed and waited > ANSWER_S:
                yield from self._end_nursery(start.nursery)
        for number, (root, since) in list(self._unanswered.items()):
            if self._now - since > ROOT_ANSWER_S:
                del self._unanswered[number]
                yield from self._end_nursery(root)
        yield from self._let_go()

    def _too_slow(self, nursery: _Nursery) -> Iterator[Action]:
        if nursery.root is None:
            yield self._kill_root(nursery)
            return
        yield Note(f"plugin {nursery.place.plugin} is not imported ahead: that takes more than {IMPORT_S:g} s")
        yield self._kill_nursery(nursery, nursery.root)
        yield from self._give_up(nursery.number)

    def _end_nursery(self, number: int | None) -> Iterator[Action]:
        """Kill a nursery with all it has forked; its end shows."""
        nursery = None if number is None else self._nurseries.get(number)
        if nursery is None or nursery.killed_at is not None:
            return
        yield Note("a process that tasks are forked from does not answer and is killed, with its tasks")
        if nursery.root is None:
            yield self._kill_root(nursery)
        else:
            yield self._kill_nursery(nursery, nursery.root)

    def _kill_nursery(self, nursery: _Nursery, root: int) -> Kill:
        nursery.killed_at = self._now
        self._unanswered[nursery.number] = root, self._now
        self._forks_no_more(nursery)
        return Kill(root, nursery.number)

    def _kill_root(self, root: _Nursery) -> KillRoot:
        root.killed_at, root.kill_confirmed = self._now, True
        return KillRoot(root.number)

    def _late(self, nursery: _Nursery, waited: float) -> Iterator[Action]:
        """It has been killed, and its end does not show."""
        gone_with_its_root = nursery.root is not None and nursery.root not in self._nurseries
        if waited > DEATH_S and (nursery.kill_confirmed or gone_with_its_root):
            yield from self._lost(nursery.number, STUCK)


def _where(environment: str) -> str:
    return "" if environment == WORKERS_OWN else f" in the plugin environment {environment}"
