"""One world in a line: its seed, and what was left out of it to make a failure small

A seed alone decides everything. Where it leads to a violation, a smaller world may too: one that is over earlier, with
fewer clients, with fewer kinds of faults. `shrunk` tries to leave out one thing after the other and keeps what still
fails in the same way. The line (`text`) is what `tests/sim/seeds/world.txt` keeps and what `Plan.parse` reads:

    17 nodes=3 seconds=6.5 clients=admin,producer faults=kill,pause

What is missing in it is as in every world.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Self

SECONDS = 25.0
CLIENTS = (
    "admin",
    "producer",
    "exact",
    "reader",
    "member-1",
    "member-2",
    "loner",
    "operator",
    "pipelined",
    "spread",
    "nearby",
    "deleter",
)
FAULTS = (
    "kill",
    "power_cut",
    "power_cut_soon",
    "stop",
    "pause",
    "cut",
    "break",
    "slow",
    "full",
    "bad_sync",
    "bad_read",
    "jump",
)


class Plan(NamedTuple):
    """Which world it is."""

    seed: int
    nodes: int = 1
    seconds: float = SECONDS
    clients: tuple[str, ...] = CLIENTS
    faults: tuple[str, ...] = FAULTS

    @classmethod
    def parse(cls, line: str) -> Self:
        """The plan in a line; what comes behind a # says nothing."""
        seed, *parts = line.split("#")[0].split()
        settings = dict(part.split("=", 1) for part in parts)
        nodes, seconds = int(settings.pop("nodes", 1)), float(settings.pop("seconds", SECONDS))
        names = {key: tuple(filter(None, text.split(","))) for key, text in settings.items()}
        return cls(int(seed), nodes, seconds, **names)

    def text(self) -> str:
        """The line that `parse` reads."""
        parts = [str(self.seed)]
        if self.nodes != 1:
            parts.append(f"nodes={self.nodes}")
        if self.seconds != SECONDS:
            parts.append(f"seconds={self.seconds}")
        if self.clients != CLIENTS:
            parts.append(f"clients={','.join(self.clients)}")
        if self.faults != FAULTS:
            parts.append(f"faults={','.join(self.faults)}")
        return " ".join(parts)

    def smaller(self) -> "Iterator[Plan]":
        """Worlds with one thing less, the most promising first."""
        if self.nodes > 3:
            yield self._replace(nodes=3)
        for share in (0.25, 0.5, 0.75, 0.9):
            yield self._replace(seconds=round(self.seconds * share, 3))
        for fault in self.faults:
            yield self._replace(faults=tuple(each for each in self.faults if each != fault))
        for client in self.clients:
            yield self._replace(clients=tuple(each for each in self.clients if each != client))


def shrunk(plan: Plan, still_fails: Callable[[Plan], bool], tries: int = 150) -> Plan:
    """A smaller plan that still fails, none smaller by one thing if the tries were enough to find that out."""
    getting_smaller = True
    while getting_smaller:
        getting_smaller = False
        for candidate in plan.smaller():
            if tries <= 0:
                return plan
            tries -= 1
            if still_fails(candidate):
                plan, getting_smaller = candidate, True
                break
    return plan
