"""What the herder machine hears and says

The events of one worker's machine and its actions, as values. A line of a trace is one of these; a test or a simulator
needs nothing else to play the world around the machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tidemill.connect.api import Json
from tidemill.connect.failure import Failure
from tidemill.connect.herder.state import Config
from tidemill.connect.stores import ConfigRecord, StatusRecord
from tidemill.connect.task_spec import InitialState, TaskEvent, TaskId

INFO, WARNING, ERROR = 20, 30, 40
"""Levels of a note, as the standard library numbers them."""

# ---------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSeen:
    """A record of the config topic, in order; None for one that is not understood."""

    record: ConfigRecord | None
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSeen:
    """A record of the status topic."""

    record: StatusRecord | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """From now on these instances are this worker's; None means all there are, now and later.

    The first one also ends the replay: before it nothing is started and no request is acted on. `generation` orders
    all assignments of an instance, to whomever. Who leads clears the statuses of what no longer exists, but for what
    others may still be doing (`busy`; None as its task is the connector itself).
    """

    generation: int
    connectors: frozenset[str] | None = None
    tasks: frozenset[TaskId] | None = None
    leads: bool = True
    busy: frozenset[tuple[str, int | None]] = frozenset()

    def owns(self, connector: str, task: int | None = None) -> bool:
        """Whether the instance is this worker's."""
        if task is None:
            return self.connectors is None or connector in self.connectors
        return self.tasks is None or TaskId(connector, task) in self.tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """The time, told before every event that needs it and whenever `WakeAfter` asked for it.

    `now_ms` is the wall clock, which somebody may set, for what people read. `up_ms` never goes back: it counts from
    anywhere, and says how long something has taken and has to wait.
    """

    now_ms: int
    up_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The plugin's answer to `SplitConnector`: its tasks, or the trace of why there are none."""

    connector: str
    config_offset: int
    version: str | None
    tasks: tuple[Config, ...] = ()
    trace: str | None = None
    failure: Failure = Failure.BUG  # with a trace


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksRefused:
    """The config topic does not take a connector's tasks and never will."""

    connector: str
    config_offset: int
    trace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnFailed:
    """The process of a `StartTask` could not be made."""

    task: TaskId
    incarnation: int
    trace: str
    failure: Failure = Failure.BUG


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartConnector:
    """Somebody asked for this connector instance alone."""

    connector: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartTask:
    """Somebody asked for this task."""

    task: TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetTopics:
    """Somebody asked to empty the record of topics a connector used."""

    connector: str


Event: TypeAlias = (
    ConfigSeen
    | StatusSeen
    | Assigned
    | Tick
    | Split
    | TasksRefused
    | SpawnFailed
    | RestartConnector
    | RestartTask
    | ForgetTopics
    | TaskEvent
)

# --------------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitConnector:
    """Ask the plugin for the connector's tasks, then tell `Split`."""

    connector: str
    config: Config
    config_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTask:
    """Start a process."""

    task: TaskId
    incarnation: int
    config: Config
    initial_state: InitialState


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTask:
    """End a process; its `TaskExited` follows."""

    task: TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseTask:
    """Make a task stop polling."""

    task: TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeTask:
    """Make a task poll again."""

    task: TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTasks:
    """Append a connector's tasks to the config topic, in this order and if `wants` still says so."""

    connector: str
    config_offset: int
    records: tuple[ConfigRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStatus:
    """Append to the status topic."""

    record: StatusRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAfter:
    """Send a `Tick` after so long, because of this task."""

    task: TaskId
    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLevel:
    """Change the level of a logger of this process."""

    logger: str
    level: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A line for the log; a trace among its facts is shown as one."""

    message: str
    facts: Mapping[str, Json]
    level: int = INFO


Action: TypeAlias = (
    SplitConnector
    | StartTask
    | StopTask
    | PauseTask
    | ResumeTask
    | WriteTasks
    | WriteStatus
    | WakeAfter
    | SetLevel
    | Note
)
