"""What the config and status topics say, as state

The config topic is a log of wishes: `ConfigState.apply` folds it, record by record, into the connectors that should
exist, their target states and their tasks. The same function runs at replay and live, so what a restarted worker knows
is what it knew. The status topic is folded into a `StatusBoard`: what every worker last said about every instance.

Task configurations are written one by one and count only with the commit record that follows them. A commit counts the
first so many; what it leaves out is no task any more. A commit whose task records are not all there (a worker died in
between, or compaction took some) makes the connector *inconsistent*: its tasks must be computed anew before any may
run.

What a worker does about all this is `machine`'s business.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tidemill.connect.stores import (
    ConfigRecord,
    ConnectorConfig,
    InstanceGone,
    InstanceStatus,
    LoggerLevel,
    RestartRequest,
    State,
    StatusRecord,
    TargetState,
    TargetStateChange,
    TaskConfig,
    TasksCommit,
    TasksFencing,
    TopicUnused,
    TopicUse,
    WorkerClaim,
)

Config = Mapping[str, str]

NO_TASKS: Sequence[Config] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A connector's configuration; its offset in the log is its version."""

    config: Config
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSet:
    """A connector's committed tasks."""

    configs: tuple[Config, ...]
    offset: int  # of the commit
    consistent: bool  # false: the commit counted task records that were not there


class ConfigState:
    """Everything the config topic says."""

    def __init__(self) -> None:
        self.end_offset = 0  # one past the last record applied
        self._submitted: dict[str, Submitted] = {}
        self._targets: dict[str, TargetState] = {}
        self._tasks: dict[str, TaskSet] = {}
        self._buffered: dict[str, dict[int, Config]] = {}  # task records that wait for their commit

    def apply(self, record: ConfigRecord | None, offset: int) -> None:
        """Take in the record at `offset`; None stands for one that is not understood."""
        assert offset >= self.end_offset, f"offset {offset} after {self.end_offset - 1}"
        self.end_offset = offset + 1
        match record:
            case ConnectorConfig(connector=name, properties=None):
                self._forget(name)
            case ConnectorConfig(connector=name, properties=properties) if properties is not None:
                self._submitted[name] = Submitted(config=MappingProxyType(dict(properties)), offset=offset)
            case TargetStateChange(connector=name, state=None):
                self._targets.pop(name, None)
            case TargetStateChange(connector=name, state=state) if state is not None:
                self._targets[name] = state
            case TaskConfig(connector=name, task=task, properties=properties):
                self._buffered.setdefault(name, {})[task] = MappingProxyType(dict(properties))
            case TasksCommit(connector=name, tasks=tasks):
                self._commit(name, tasks, offset)
            case RestartRequest() | TasksFencing() | LoggerLevel() | None:
                pass  # requests leave no state behind

    def _forget(self, connector: str) -> None:
        self._submitted.pop(connector, None)
        self._tasks.pop(connector, None)
        self._buffered.pop(connector, None)

    def _commit(self, connector: str, count: int, offset: int) -> None:
        if connector not in self._submitted:  # deleted, its records not yet compacted away
            self._forget(connector)
            return
        buffered = self._buffered.pop(connector, {})
        # Whatever number the record claims, no more is looked at than there is. There may be more tasks than it counts:
        # compaction keeps the last record of a task that a later commit has left out, and takes the commit before.
        consistent = len(buffered) >= count and all(task in buffered for task in range(count))
        configs = tuple(buffered[task] for task in range(count)) if consistent else ()
        self._tasks[connector] = TaskSet(configs=configs, offset=offset, consistent=consistent)

    def names(self) -> list[str]:
        """Every connector that exists."""
        return list(self._submitted)

    def submitted(self, connector: str) -> Submitted | None:
        """The connector's configuration, None if there is no such connector."""
        return self._submitted.get(connector)

    def target(self, connector: str) -> TargetState:
        """What the connector was told to be."""
        return self._targets.get(connector, TargetState.STARTED)

    def task_set(self, connector: str) -> TaskSet | None:
        """The connector's last commit, None before the first."""
        return self._tasks.get(connector)

    def tasks(self, connector: str) -> Sequence[Config]:
        """The connector's task configurations in force."""
        tasks = self._tasks.get(connector)
        return NO_TASKS if tasks is None else tasks.configs


class StatusBoard:
    """The last word on every instance and every topic in use.

    Of two statuses of an instance the one of the higher generation counts: what a worker that has lost the instance has
    to say may come late. Where Apache's workers write statuses, too, it is the last one (`in_order`): their generations
    are the group's, which begins anew when its coordinator has forgotten it. But nobody can say of what another has
    that it is nobody's: a worker that was cut off says so late of what it had.
    """

    def __init__(self, *, in_order: bool = False) -> None:
        self._in_order = in_order
        self.generation = 0  # the highest that anybody has written
        self.claim: WorkerClaim | None = None  # the last one of a worker without a group
        self._instances: dict[str, dict[int | None, InstanceStatus]] = {}  # by connector and task
        self._topics: dict[str, dict[str, TopicUse]] = {}

    def apply(self, record: StatusRecord | None) -> None:
        """Take in a record of the status topic; None stands for one that is not understood."""
        match record:
            case InstanceStatus():
                self.generation = max(self.generation, record.generation)
                known = self.instance(record.connector, record.task)
                if known is None or self._follows(record, known):
                    self._instances.setdefault(record.connector, {})[record.task] = record
            case InstanceGone(connector=name, task=task):
                left = self._instances.get(name, {})
                left.pop(task, None)
                if not left:
                    self._instances.pop(name, None)
            case TopicUse(connector=name, topic=topic):
                self._topics.setdefault(name, {})[topic] = record
            case TopicUnused(connector=name, topic=topic):
                self._topics.get(name, {}).pop(topic, None)
            case WorkerClaim():
                self.claim = record
                self.generation = max(self.generation, record.generation)
            case None:
                pass

    def _follows(self, record: InstanceStatus, known: InstanceStatus) -> bool:
        if not self._in_order:
            return known.generation <= record.generation
        return not self.takes_away(record)

    def takes_away(self, record: StatusRecord) -> bool:
        """Whether this says, where the last word counts, of what another has that it is nobody's."""
        if not self._in_order or not isinstance(record, InstanceStatus) or record.state is not State.UNASSIGNED:
            return False
        known = self.instance(record.connector, record.task)
        return known is not None and known.worker_id != record.worker_id

    def instance(self, connector: str, task: int | None = None) -> InstanceStatus | None:
        """What was last said about the connector itself or, with a task, about that task."""
        return self._instances.get(connector, {}).get(task)

    def instances(self, connector: str) -> list[InstanceStatus]:
        """Every status under the connector's name."""
        return list(self._instances.get(connector, {}).values())

    def every(self) -> list[InstanceStatus]:
        """Every status there is."""
        return [status for statuses in self._instances.values() for status in statuses.values()]

    def topics(self, connector: str) -> list[str]:
        """Topics the connector has used, sorted."""
        return sorted(self._topics.get(connector, {}))
