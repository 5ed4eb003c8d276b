"""What is wrong at the moment, and since when

Whoever looks at a flow says each time everything that is wrong now; the book remembers since when, and tells what began
and what ended with this look. So a trouble that goes on has one beginning, however often it is found again, and its end
is told too.

Pure: `tidemill.mirror.health` looks.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tidemill.mirror.link import State

CLUSTER = "cluster"
TOPIC = "topic"
PARTITION = "partition"
GROUP = "group"
JOB = "job"
FLOW = "flow"
KINDS = (CLUSTER, FLOW, TOPIC, PARTITION, GROUP, JOB)

_NEXT = {
    State.FAILED: "put it right, then restart the mirror; a target topic that is deleted is begun anew without",
    State.PARKED: "put it right; it is tried again every 30 seconds",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something wrong as found by one look."""

    kind: str  # one of the constants above
    name: str  # of the cluster, topic, partition, …
    reason: str
    remedy: str  # what to do

    @property
    def key(self) -> tuple[str, str]:
        """What it is about; a problem whose reason changes goes on."""
        return self.kind, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A problem and since when it lasts, in milliseconds since 1970."""

    problem: Problem
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one look changed."""

    begun: tuple[Trouble, ...]
    ended: tuple[Trouble, ...]


class TroubleBook:
    """Everything that is wrong with one flow."""

    def __init__(self) -> None:
        self._troubles: dict[tuple[str, str], Trouble] = {}

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        """What is wrong, the oldest first."""
        return tuple(sorted(self._troubles.values(), key=lambda trouble: trouble.since_ms))

    def look(self, problems: Iterable[Problem], now_ms: int) -> Change:
        """Take note of everything that is wrong now; what was and is not named any more has ended."""
        before, self._troubles = self._troubles, {}
        begun = []
        for problem in problems:
            known = before.pop(problem.key, None)
            trouble = Trouble(problem=problem, since_ms=now_ms if known is None else known.since_ms)
            if known is None and problem.key not in self._troubles:
                begun.append(trouble)
            self._troubles.setdefault(problem.key, trouble)
        return Change(begun=tuple(begun), ended=tuple(before.values()))


def unreachable(alias: str, reason: str) -> Problem:
    """A cluster that does not answer."""
    remedy = f"start it or correct {alias}.bootstrap.servers; the mirror goes on by itself"
    if "closed the connection" in reason:
        remedy += f"; a listener that wants TLS closes plain connections: see {alias}.security.protocol"
    return Problem(kind=CLUSTER, name=alias, reason=f"unreachable: {reason}", remedy=remedy)


def standing(partition: str, state: State, reason: str) -> Problem:
    """A partition that is not mirrored at the moment."""
    remedy = _NEXT.get(state, "it is tried again by itself")
    return Problem(kind=PARTITION, name=partition, reason=f"{state}: {reason}", remedy=remedy)
