"""A process and the tasks in it, as the worker knows them

A task sits in a process, alone or beside others. What belongs to one of them is on its seat: what it was told, what it
reports, how it ended. All else is the process's: what it prints, whether it stands still, why it was killed.
"""

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tidemill.connect.api import Json
from tidemill.connect.problem import Problem
from tidemill.connect.remote import plugin_pb2 as pb
from tidemill.connect.remote import standstill
from tidemill.connect.remote.cgroups import TaskCgroup
from tidemill.connect.remote.frames import frame
from tidemill.connect.remote.guarded import Guarded
from tidemill.connect.remote.messages import spec_to_message
from tidemill.connect.remote.process_facts import FamilyFacts, out_of_memory_kills
from tidemill.connect.task_limits import MEMORY_MAX, TaskLimits
from tidemill.connect.task_spec import EXIT_LOST_WORKER, TaskReport, TaskSpec

LOG_TAIL_LINES = 20  # of the output, quoted when a process ends without a word
LESS_MEMORY = "raise the limit, or have the task hold less at a time"
SHARED_STEP_BYTES = 1 << 20  # of the memory of a shared process, which is told of by each of its tasks
STEP_S = 0.01  # of processor time, for each task of a process


@dataclass(slots=True, eq=False)
class Seat:
    """One start of a task."""

    spec: TaskSpec
    process: "TaskProcess"
    number: int = 0  # of a process of its own there is one
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    facts: dict[str, Json] = field(default_factory=dict)
    problem: Problem | None = None
    explained: bool = False  # it said itself how it ended

    @property
    def order(self) -> pb.ToTask:
        """To start the task."""
        return pb.ToTask(seat=self.number, start=spec_to_message(self.spec))

    @property
    def report(self) -> TaskReport:
        """What is known of it now."""
        return TaskReport(
            task=self.spec.task,
            incarnation=self.spec.incarnation,
            facts=dict(self.facts),
            problem=self.process.standing_still or self.problem,
        )


@dataclass(slots=True, eq=False)
class TaskProcess:
    """A process of one task, of several, or of a preflight."""

    label: str
    order: pb.ToTask  # the first
    process: Guarded
    limits: TaskLimits
    shared: int = 0  # its number among those that several tasks share
    closing: Callable[[], None] = lambda: None
    oom_kills_before: int = field(default_factory=out_of_memory_kills)
    seats: dict[int, Seat] = field(default_factory=dict)
    cgroup: TaskCgroup | None = None
    attached: asyncio.Event = field(default_factory=asyncio.Event)
    dismissed: asyncio.Event = field(default_factory=asyncio.Event)  # nothing runs in it, nor will
    killing: asyncio.Event = field(default_factory=asyncio.Event)
    silent: asyncio.Event = field(default_factory=asyncio.Event)  # its stream has ended
    told: asyncio.Event = field(default_factory=asyncio.Event)  # the answer to a question, or that there is none
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    pid: int = 0
    standstill_fd: int = standstill.NONE
    standing_still: Problem | None = None
    stands: standstill.Watch = field(default_factory=standstill.Watch)
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_TAIL_LINES))
    cpu_told_s: float = 0.0  # in steps that never go back, however many tasks there are
    stop_requested: bool = False
    killed_because: str = ""
    blameless: bool = False  # it was killed for what is known, so that nobody else is to blame
    checked: pb.Checked | None = None
    answer: pb.Answer | None = None

    def send(self, message: pb.ToTask) -> None:
        """Have a command sent, after those before it; one that comes too late is no error.

        Nobody waits until it is: a process that stands still reads nothing, and is to be ended all the same. What waits
        for it is little, as nobody else is put into one that is known to stand still.
        """
        if not self.gone.is_set():
            self.process.writer.write(frame(message))

    def kill(self, because: str, *, blameless: bool = False) -> None:
        """End the process and all it started."""
        if self.gone.is_set():
            return
        if not self.killing.is_set():
            self.killed_because, self.blameless = because, blameless
            self.closing()
            self.killing.set()
            self.process.kill()

    @property
    def is_watched(self) -> bool:
        """Whether nobody but this worker keeps it below its limit of memory."""
        return self.limits.memory_bytes > 0 and self.cgroup is None

    def facts(self, family: FamilyFacts) -> dict[str, Json]:
        """What each of its tasks reports of it; of a shared one in steps, so that one that works makes few of them."""
        if not self.shared:
            return {"process-rss-bytes": family.rss_bytes, "process-cpu-seconds": round(family.cpu_s, 2)}
        if family.cpu_s - self.cpu_told_s >= STEP_S * len(self.seats):
            self.cpu_told_s = family.cpu_s
        return {
            "process-rss-bytes": family.rss_bytes // SHARED_STEP_BYTES * SHARED_STEP_BYTES,
            "process-cpu-seconds": round(self.cpu_told_s, 2),
            "process-tasks": len(self.seats),
        }

    def reason(self, seat: Seat | None = None) -> str:
        """How it ended, in a sentence; for one of its tasks, if it is asked for that."""
        if seat is None or not self.shared:
            return self._reason(explained=seat is not None and seat.explained)
        ended = "its process ended without saying why" if self.process.returncode == 0 else self._reason()
        return ended if len(self.seats) == 1 else f"{ended} (a process that {len(self.seats)} tasks shared)"

    def _reason(self, *, explained: bool = False) -> str:
        code, child = self.process.returncode, self.process
        if code == 0:
            return "ended by itself"  # be it at the moment it was to be killed: its work was done
        if self.killed_because:
            return f"killed: {self.killed_because}"
        if self.cgroup is not None and self.cgroup.was_too_large:
            return f"killed: it used more memory than {MEMORY_MAX}={self.limits.memory_bytes}: {LESS_MEMORY}"
        if child.reason:
            return child.reason
        if code == EXIT_LOST_WORKER:
            return "ended because it had lost its worker"
        if code is not None and code < 0:
            name = _signal_name(-code)
            chosen = self.cgroup is not None and self.cgroup.was_chosen  # else nobody knows whom the kernel has
            if -code == signal.SIGKILL and (chosen or out_of_memory_kills() > self.oom_kills_before):
                return f"killed by {name}: the machine ran out of memory"
            return f"killed by {name}"
        if explained:
            return failed_with(code)
        said = "\n".join(self._quoted())
        return f"ended with code {code} without saying why" + (f"; its last output:\n{said}" if said else "")

    def _quoted(self) -> Iterator[str]:
        yield from (f"  {line}" for line in self.tail)


def failed_with(code: int | None) -> str:
    """The sentence for one that has said why before."""
    return f"ended with code {code} after it failed"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # of those for real time, only the first and the last have names
        return f"signal {number}"
