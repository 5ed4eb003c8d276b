"""A task between its start and its end, on one worker

The values the herder machine keeps of a task, and how long one that was killed waits. Which of them follows which is
the machine's business.
"""

from dataclasses import dataclass
from enum import Enum, auto

from tidemill.connect.failure import Failure
from tidemill.connect.herder.state import Config
from tidemill.connect.task_spec import TaskId

RESTART_TRANSIENT = "tidemill.restart.transient"
"""The setting of a connector whose tasks are started again after failures that may pass by themselves."""


class Phase(Enum):
    """Where a task is between two starts."""

    STARTING = auto()  # the process was asked for, the plugin's `start` has not returned
    RUNNING = auto()
    STOPPING = auto()  # asked to end
    COMPLETED = auto()  # a source that has read everything
    FAILED = auto()  # its trace is in the status
    WAITING = auto()  # was killed, or failed for now; starts again after a back-off and when its process is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """A task on this worker; its times are of the clock that nobody sets."""

    task: TaskId
    incarnation: int
    config: Config
    phase: Phase
    alive: bool  # from StartTask until TaskExited
    paused: bool  # what it was last told
    deaths: int = 0  # ends that nobody asked for, without a quiet spell between
    tries: int = 0  # those of them after which it was tried again because the failure may pass
    since_ms: int = 0  # when the phase began
    start_at_ms: int = 0  # WAITING: when to start again
    stopped_because: str = ""  # STOPPING
    topics_closed: bool = False  # the record of topics was emptied while it was stopping


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """How long a task waits before it is started again, how often, and how often a changing problem is written down.

    One death may be anything, and a task's neighbours have not died with it: it is started again at once. Only what
    keeps dying is made to wait.
    """

    first_ms: int = 500
    max_ms: int = 60_000
    quiet_ms: int = 60_000  # after so long a run, earlier deaths no longer count
    transient_max: int = 10  # transient failures in a row after which the next is taken for a lasting one
    problem_interval_ms: int = 10_000  # between two records of the status topic that differ in a task's problem only

    def tries_again(self, failure: Failure, config: Config, tries: int) -> bool:
        """Whether a task is started again by itself, if that is the n-th try in a row after a transient failure."""
        return failure is Failure.KILLED or (retriable(failure, config) and tries <= self.transient_max)

    def sentence(self, failure: Failure, deaths: int, tries: int) -> str:
        """What is said of the wait after the n-th death in a row, and of which try it is."""
        delay_ms = self.delay_ms(deaths)
        when = f"in {delay_ms / 1000:g} s" if delay_ms else "at once"
        if failure is Failure.TRANSIENT:
            return f"tried again {when}, {tries} of {self.transient_max}"
        return f"started again {when} (death {deaths} in a row)"

    def delay_ms(self, deaths: int) -> int:
        """The wait after the n-th death in a row."""
        return 0 if deaths <= 1 else int(min(self.max_ms, self.first_ms * 2 ** min(deaths - 2, 30)))


def retriable(failure: Failure, config: Config) -> bool:
    """Whether a task that failed so is to be tried again, as its connector is configured."""
    return failure is Failure.TRANSIENT and config.get(RESTART_TRANSIENT, "false").strip().lower() == "true"
