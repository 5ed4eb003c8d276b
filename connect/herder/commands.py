"""The meaning of REST commands: records to write, decided by reading alone

Every write of the REST API is a command. `decide` looks at the state and answers with the records that carry it out, or
refuses. It never changes anything: the records are appended to the config topic and take effect when they come back
through `ConfigState.apply`, on this worker as on any other.

Refusals are typed; their texts are the ones clients of Connect match.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tidemill.connect.herder.state import Config, ConfigState, StatusBoard
from tidemill.connect.stores import (
    ConfigRecord,
    ConnectorConfig,
    LoggerLevel,
    RestartRequest,
    State,
    TargetState,
    TargetStateChange,
    TaskConfig,
    TasksCommit,
)


class Refused(Exception):
    """The command cannot be carried out in the present state."""


class NotFound(Refused):
    """What the command names does not exist."""


class Conflict(Refused):
    """Somebody else was first."""


STALE = (
    "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent config change)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """POST /connectors."""

    connector: str
    config: Config
    initial_state: TargetState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Configure:
    """PUT or PATCH of a configuration; `seen_offset` is the version a PATCH was computed from."""

    connector: str
    config: Config
    seen_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTarget:
    """Pause, resume, stop."""

    connector: str
    target: TargetState


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """DELETE /connectors/{name}."""

    connector: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """POST …/restart with a query."""

    connector: str
    include_tasks: bool
    only_failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLogLevel:
    """PUT /admin/loggers/{logger}?scope=cluster."""

    logger: str
    level: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitTasks:
    """POST …/tasks from another worker: what a plugin made of the configuration at `seen_offset`, if that is known."""

    connector: str
    tasks: tuple[Config, ...]
    seen_offset: int | None = None


Command: TypeAlias = Create | Configure | SetTarget | Delete | Restart | SetLogLevel | SubmitTasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The records that carry a command out; `created` tells a new connector from a changed one."""

    records: tuple[ConfigRecord, ...]
    created: bool = False


def decide(state: ConfigState, command: Command) -> Decision:
    """Turn a command into records; raises NotFound or Conflict."""
    if isinstance(command, SetLogLevel):
        return Decision(records=(LoggerLevel(logger=command.logger, level=command.level),))
    exists = state.submitted(command.connector)
    match command:
        case Create(connector=name, config=config, initial_state=initial):
            if exists is not None:
                raise Conflict(f"Connector {name} already exists")
            return Decision(records=_new(state, name, config, initial), created=True)
        case Configure(connector=name, config=config, seen_offset=seen_offset):
            if seen_offset is not None and (exists is None or exists.offset != seen_offset):
                raise Conflict(STALE)
            if exists is None:
                return Decision(records=_new(state, name, config, None), created=True)
            return Decision(records=(ConnectorConfig(connector=name, properties=config),))
        case SetTarget(connector=name, target=target):
            if exists is None:
                raise NotFound(f"Unknown connector {name}")
            # A stopped connector has no tasks, and nobody may see it stopped with any.
            first_stop = (TasksCommit(connector=name, tasks=0),) if target is TargetState.STOPPED else ()
            return Decision(records=(*first_stop, TargetStateChange(connector=name, state=target)))
        case Delete(connector=name):
            if exists is None:
                raise NotFound(f"Connector {name} not found")
            gone = ConnectorConfig(connector=name, properties=None)
            return Decision(records=(gone, TargetStateChange(connector=name, state=None)))
        case SubmitTasks(connector=name):
            if exists is None:
                raise NotFound(f"Connector {name} not found")
            if command.seen_offset not in (None, exists.offset) or state.target(name) is TargetState.STOPPED:
                raise Conflict(STALE)
            return Decision(records=_tasks(state, name, command.tasks))
        case Restart(connector=name, include_tasks=include_tasks, only_failed=only_failed):
            if exists is None:
                raise NotFound(f"Unknown connector: {name}")
            return Decision(
                records=(RestartRequest(connector=name, include_tasks=include_tasks, only_failed=only_failed),)
            )


def _new(state: ConfigState, name: str, config: Config, initial: TargetState | None) -> tuple[ConfigRecord, ...]:
    """The records of a connector that does not exist yet.

    Its state goes first, so that no worker starts what should have been paused from the beginning. Where a deletion was
    cut short the state of an earlier connector of this name is still there, and is taken back.
    """
    left = state.target(name) is not TargetState.STARTED
    first = () if initial is None and not left else (TargetStateChange(connector=name, state=initial),)
    return (*first, ConnectorConfig(connector=name, properties=config))


def _tasks(state: ConfigState, name: str, tasks: tuple[Config, ...]) -> tuple[ConfigRecord, ...]:
    """The records of a connector's tasks, none if they are what the topic holds."""
    stored = state.task_set(name)
    if stored is not None and stored.consistent and list(stored.configs) == list(tasks):
        return ()
    configs = (TaskConfig(connector=name, task=number, properties=config) for number, config in enumerate(tasks))
    return (*configs, TasksCommit(connector=name, tasks=len(tasks)))


def patched(config: Config, patch: Mapping[str, str | None]) -> dict[str, str]:
    """`config` with the settings of `patch` put in and those it maps to None taken out.

    >>> patched({"a": "1", "b": "2"}, {"a": None, "c": "3"})
    {'b': '2', 'c': '3'}
    """
    kept = {name: value for name, value in config.items() if name not in patch}
    return kept | {name: value for name, value in patch.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPlan:
    """Which instances a restart request reaches."""

    connector: bool
    tasks: frozenset[int]


def plan_restart(state: ConfigState, board: StatusBoard, request: RestartRequest) -> RestartPlan:
    """Say what `request` restarts, from the statuses as they are; the same answer on every worker."""

    def wanted(task: int | None) -> bool:
        status = board.instance(request.connector, task)
        return not request.only_failed or (status is not None and status.state is State.FAILED)

    tasks = range(len(state.tasks(request.connector))) if request.include_tasks else range(0)
    return RestartPlan(connector=wanted(None), tasks=frozenset(task for task in tasks if wanted(task)))
