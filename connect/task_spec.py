"""The words worker and task host share: what to run, what became of it

The herder decides which tasks should run here; the host gives every one of them a process. This file is all they say
to each other, so either side can be replaced: the herder is tested against a host made of lists, the host against
a script. Values only, no behaviour.

A task may be started many times under one `TaskId`: after an edit, a restart, a kill. Each start has a new
`incarnation`, and every event names the incarnation it speaks of, so the last words of a process that was stopped can
never be taken for its successor's.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tidemill.connect.api import ConverterSpec, Json, PluginKind
from tidemill.connect.failure import Failure
from tidemill.connect.problem import Problem

EXIT_LOST_WORKER = 75
"""EX_TEMPFAIL, how a task process or its guardian ends that has lost its worker: nothing is wrong with the task."""


class TaskId(NamedTuple):
    """One task of one connector."""

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


class InitialState(enum.StrEnum):
    """Whether a started task polls at once or waits to be resumed."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """Everything a task process is told when it starts."""

    task: TaskId
    incarnation: int  # grows with every start of this task on this worker
    plugin: str  # a name the loader knows
    kind: PluginKind
    config: Mapping[str, str]  # the task's configuration, references resolved
    bootstrap_servers: str
    key_converter: ConverterSpec
    value_converter: ConverterSpec
    offsets_topic: str
    worker_id: str
    client_config: Mapping[str, str] = field(default_factory=dict)  # librdkafka settings of every client
    producer_config: Mapping[str, str] = field(default_factory=dict)  # further ones of the source's producer
    consumer_config: Mapping[str, str] = field(default_factory=dict)  # further ones of the sink's consumer
    offset_flush_interval_ms: int = 60_000
    offset_flush_timeout_ms: int = 5_000
    environment: str = ""  # the plugin's, where it has one of its own
    initial_state: InitialState = InitialState.STARTED


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStarted:
    """The plugin's `start` returned; the task polls, or waits if it started paused."""

    task: TaskId
    incarnation: int
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed:
    """The task gave up and says why; its process ends by itself."""

    task: TaskId
    incarnation: int
    trace: str
    failure: Failure = Failure.BUG


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCompleted:
    """A source reached the end of its input; everything it read is acknowledged and its offsets are stored."""

    task: TaskId
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPaused:
    """The task has stopped polling and holds what it has open."""

    task: TaskId
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResumed:
    """The task polls again."""

    task: TaskId
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """News from inside: counters and what else the plugin reported, e.g. {"lag_bytes": 12}, and what it waits for."""

    task: TaskId
    incarnation: int
    facts: Mapping[str, Json]
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskExited:
    """The process is gone: the last event of an incarnation, sent exactly once, also after a failure or a stop.

    `returncode` is as `subprocess` has it: negative when a signal killed the process. `reason` is a sentence for the
    log and, when nobody asked for the end and no `TaskFailed` explained it, for the status.
    """

    task: TaskId
    incarnation: int
    returncode: int
    reason: str
    with_others: bool = False  # its process has ended, which others shared

    @property
    def killed(self) -> bool:
        """Whether it was ended from outside: by a signal, by its guardian (the worker told it to), or with others."""
        return self.with_others or self.returncode < 0 or self.returncode == EXIT_LOST_WORKER


TaskEvent: TypeAlias = TaskStarted | TaskFailed | TaskCompleted | TaskPaused | TaskResumed | TaskReport | TaskExited


class PluginFailed(Exception):
    """A plugin that was asked something in a process of its own has failed."""

    def __init__(self, trace: str, failure: Failure) -> None:
        super().__init__(trace.strip().rpartition("\n")[2])
        self.trace = trace
        self.failure = failure


class SettingProblem(NamedTuple):
    """A setting that a plugin's preflight refused; an empty name speaks of the configuration as a whole."""

    name: str
    message: str
