"""Which process takes a task that shares one

A machine without a world: the host tells it who comes, leaves and dies, and does what it says. Tasks of one place, a
plugin in an environment, sit together in processes, so many in each at most. A new one goes to the fullest process that
has room, so that the others run empty and end; where there is none, another is opened.

A process that dies takes along who sits in it, and nobody knows whose fault it was. Who has gone down twice, without a
quiet spell in between, therefore sits alone from then on until it leaves: the one to blame shows, and the others are
rid of it.
"""

from collections.abc import Hashable, Iterator
from typing import NamedTuple, TypeAlias

SUSPECT = 2
"""Processes that a task has gone down with, one after the other, after which it sits alone."""

QUIET_S = 60.0
"""Who has sat for so long has not brought its process down at its start, nor has it done so with those before."""

REMEMBERED_S = 600.0
"""How long what a task went down with counts; the longest pause before a restart is a minute."""


class Place(NamedTuple):
    """What a process has imported."""

    environment: str
    plugin: str


# --------------------------------------------------------------------- events


class Wanted(NamedTuple):
    """A task is to be started: a seat has a new number each time, the task is the same."""

    seat: int
    task: Hashable
    place: Place


class Left(NamedTuple):
    """A task has ended, and its process has not."""

    seat: int


class Closing(NamedTuple):
    """A process takes nobody any more: it is about to end, whoever sits in it, or has stood still."""

    process: int


class Gone(NamedTuple):
    """A process has ended; blameless where it is known that nobody in it has brought it down."""

    process: int
    blameless: bool = False


Event: TypeAlias = Wanted | Left | Closing | Gone


# -------------------------------------------------------------------- actions


class Open(NamedTuple):
    """Start a process."""

    process: int
    place: Place


class Sit(NamedTuple):
    """Have a process run a task."""

    process: int
    seat: int


class Dismiss(NamedTuple):
    """Have a process end: nobody sits in it any more."""

    process: int


Action: TypeAlias = Open | Sit | Dismiss


# -------------------------------------------------------------------- machine


class _Process:
    __slots__ = ("alone", "closing", "place", "seats")

    def __init__(self, place: Place, alone: bool) -> None:
        self.place = place
        self.alone = alone
        self.closing = False
        self.seats: set[int] = set()


class _Sitter(NamedTuple):
    task: Hashable
    process: int
    since_s: float


class _Downs(NamedTuple):
    times: int
    last_s: float


class Seating:
    """Who sits where; one per host."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._processes: dict[int, _Process] = {}
        self._sitters: dict[int, _Sitter] = {}
        self._downs: dict[Hashable, _Downs] = {}
        self._last = 0

    def step(self, event: Event, now_s: float) -> list[Action]:
        """Take in an event, by a clock that never goes back; what is to be done."""
        match event:
            case Wanted():
                return list(self._wanted(event, now_s))
            case Left():
                return list(self._left(event.seat))
            case Closing():
                if event.process in self._processes:
                    self._processes[event.process].closing = True
            case Gone():
                self._gone(event, now_s)
        return []

    def _wanted(self, event: Wanted, now_s: float) -> Iterator[Action]:
        assert event.seat not in self._sitters
        alone = self._is_suspect(event.task, now_s)
        number = None if alone else self._with_room(event.place)
        if number is None:
            self._last += 1
            number = self._last
            self._processes[number] = _Process(event.place, alone)
            yield Open(number, event.place)
        process = self._processes[number]
        process.seats.add(event.seat)
        assert len(process.seats) <= (1 if process.alone else self._most)
        self._sitters[event.seat] = _Sitter(event.task, number, now_s)
        yield Sit(number, event.seat)

    def _with_room(self, place: Place) -> int | None:
        """The fullest that has room, the oldest of several."""
        fitting = [
            number
            for number, each in self._processes.items()
            if each.place == place and not each.alone and not each.closing and len(each.seats) < self._most
        ]
        return max(fitting, key=lambda number: len(self._processes[number].seats), default=None)

    def _left(self, seat: int) -> Iterator[Action]:
        sitter = self._sitters.pop(seat, None)
        if sitter is None:
            return
        self._downs.pop(sitter.task, None)
        process = self._processes[sitter.process]
        process.seats.remove(seat)
        if not process.seats:
            del self._processes[sitter.process]
            yield Dismiss(sitter.process)

    def _gone(self, event: Gone, now_s: float) -> None:
        process = self._processes.pop(event.process, None)
        if process is None:
            return
        for seat in process.seats:
            sitter = self._sitters.pop(seat)
            if not event.blameless:
                before = 0 if now_s - sitter.since_s >= QUIET_S else self._count(sitter.task, now_s)
                self._downs[sitter.task] = _Downs(before + 1, now_s)

    def _is_suspect(self, task: Hashable, now_s: float) -> bool:
        for each in [each for each in self._downs if not self._count(each, now_s)]:
            del self._downs[each]
        return self._count(task, now_s) >= SUSPECT

    def _count(self, task: Hashable, now_s: float) -> int:
        downs = self._downs.get(task)
        return 0 if downs is None or now_s - downs.last_s > REMEMBERED_S else downs.times
