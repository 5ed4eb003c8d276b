"""Starts and ends of what one worker has run, the last of each instance

A status says what is; this says what was: when an instance was started here, how long it ran, why it ended and whether
it is tried again. An instance is a connector itself, whose start is that its plugin is asked for tasks, or one of its
tasks.

Kept in memory, so it knows of nothing before `since_ms`, and of each instance no more than `RUNS_MAX` runs. It is about
a connector for as long as that exists, whoever has it meanwhile.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tidemill.connect.failure import Failure
from tidemill.connect.traces import headline

RUNS_MAX = 20
"""What somebody reads who wants to know whether it happens again and again; a few kilobytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One start of an instance and, once it has come, its end."""

    generation: int
    started_ms: int
    ended_ms: int | None = None
    reason: str | None = None  # of the end, in one line
    failure: Failure | None = None  # None for an end that was asked for, or of a source that has read everything
    next_try_ms: int | None = None  # as planned when it ended


class History:
    """What this worker has run."""

    def __init__(self) -> None:
        self.since_ms: int | None = None  # until this worker is given its first work
        self._runs: dict[str, dict[int | None, deque[Run]]] = {}  # by connector and task

    def started(self, connector: str, task: int | None, *, generation: int, now_ms: int) -> None:
        """An instance begins."""
        runs = self._runs.setdefault(connector, {}).setdefault(task, deque(maxlen=RUNS_MAX))
        runs.append(Run(generation=generation, started_ms=now_ms))

    def ended(
        self,
        connector: str,
        task: int | None,
        reason: str,
        *,
        now_ms: int,
        failure: Failure | None = None,
        next_try_ms: int | None = None,
    ) -> None:
        """The run at hand is over. What ends it first counts: a task that has failed also ends its process."""
        runs = self._runs.get(connector, {}).get(task)
        if runs and runs[-1].ended_ms is None:
            runs[-1] = replace(
                runs[-1], ended_ms=now_ms, reason=headline(reason), failure=failure, next_try_ms=next_try_ms
            )

    def forget(self, connector: str) -> None:
        """It is no more."""
        self._runs.pop(connector, None)

    def of(self, connector: str) -> Mapping[int | None, Sequence[Run]]:
        """The runs of every instance of a connector, the oldest first."""
        return {task: tuple(runs) for task, runs in self._runs.get(connector, {}).items()}
