"""The JSON bodies of the REST API

One pydantic model per body, with Kafka Connect's field names, in the order in which Apache's worker writes them. What
is absent there when there is nothing to say (`trace`, `version`) is absent here, never null; what is null there is
null here. `body` turns a model into the JSON a client receives.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer


class Entity(BaseModel):
    """A body; fields nobody knows are refused when read."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Sparse(Entity):
    """A body whose fields with a default of None are absent when empty."""

    @model_serializer(mode="wrap")
    def _without_empty(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        optional = {
            info.serialization_alias or name
            for name, info in type(self).model_fields.items()
            if not info.is_required() and info.default is None
        }
        return {name: value for name, value in write(self).items() if value is not None or name not in optional}


def body(entity: Entity) -> dict[str, Any]:
    """The JSON object of an entity, without the fields that are absent when empty."""
    return entity.model_dump(mode="json", by_alias=True)


API_VERSION = "4.3.1"
"""The release of Apache Connect whose API this is. Tools read it as the version of the worker and refuse commands that
came in a later one, so it is no place for a version of our own: `commit` has that."""


class ServerInfo(Entity):
    """GET /"""

    version: str
    commit: str
    kafka_cluster_id: str


class Health(Entity):
    """GET /health"""

    status: str
    message: str


class ErrorMessage(Entity):
    """The body of every answer of 400 and above; `error_code` is the HTTP status."""

    error_code: int
    message: str


class Message(Entity):
    """The body of an answer that only says that it worked."""

    message: str


class TaskKey(Entity):
    """A task as ConnectorInfo and TaskInfo name it."""

    connector: str
    task: int


class ConnectorInfo(Sparse):
    """A connector: its configuration as submitted and the tasks it has; after a write also what is doubtful in it."""

    name: str
    config: dict[str, str]
    tasks: tuple[TaskKey, ...]
    type: str
    warnings: tuple[str, ...] | None = None  # not Apache's: settings without effect


class TaskInfo(Entity):
    """A task's configuration."""

    id: TaskKey
    config: dict[str, str]


class ProblemInfo(Sparse):
    """What keeps a task from its work although it has not failed; times are ISO 8601, UTC. Not in Apache's answers."""

    message: str
    since: str
    attempts: int | None = None
    next_try: str | None = None


class GroupWorker(Entity):
    """A worker of GET /tidemill/group, and how much it is to do."""

    url: str
    connectors: int
    tasks: int


class WorkerInfo(Sparse):
    """GET /tidemill/worker: what is so of this worker alone."""

    url: str
    cgroup: str | None = None  # the part of cgroup v2 in which its tasks have groups of their own
    no_cgroup: str | None = None  # why they have none


class GroupInfo(Sparse):
    """GET /tidemill/group: the workers that share the work, as this one knows them. Times are ISO 8601, UTC."""

    group: str
    url: str
    leader: str | None  # null while none is known
    generation: int
    phase: str  # stable, rebalancing, joining
    since: str
    workers: tuple[GroupWorker, ...]
    problem: ProblemInfo | None = None


class RunInfo(Sparse):
    """One start of a connector or a task, and its end once it has come; times are ISO 8601, UTC."""

    worker_id: str
    generation: int
    started: str
    ended: str | None = None
    ran_ms: int | None = None
    failure: str | None = None  # absent where the end was asked for, or the input has ended
    reason: str | None = None
    next_try: str | None = None


class InstanceHistory(Sparse):
    """The runs of a connector itself, or with an id of one of its tasks, the oldest first."""

    id: int | None = None
    runs: tuple[RunInfo, ...] = ()


class HistoryOfWorker(Sparse):
    """Since when a worker knows, or why it was not heard."""

    url: str
    since: str | None = None
    problem: str | None = None


class ConnectorHistory(Entity):
    """GET /tidemill/connectors/{name}/history: what the workers of the group know of it."""

    name: str
    workers: tuple[HistoryOfWorker, ...]
    connector: InstanceHistory
    tasks: tuple[InstanceHistory, ...]


class ConnectorState(Sparse):
    """Whether the connector itself runs, where, and why not; only strings, for so do programs in Go read it."""

    state: str
    worker_id: str
    trace: str | None = None
    version: str | None = None
    failure: str | None = None  # not Apache's: the class of the failure the trace tells


class TaskState(Sparse):
    """The same of one of its tasks, and what it last told of itself."""

    id: int
    state: str
    worker_id: str
    trace: str | None = None
    version: str | None = None
    failure: str | None = None
    problem: ProblemInfo | None = None
    facts: dict[str, Any] | None = None


class ConnectorStateInfo(Sparse):
    """GET …/status"""

    name: str
    connector: ConnectorState
    tasks: tuple[TaskState, ...]
    type: str
    problem: ProblemInfo | None = None  # not Apache's: the problems of its tasks
    warnings: tuple[str, ...] | None = None  # not Apache's: settings without effect


class PluginInfo(Sparse):
    """One of GET /connector-plugins"""

    plugin_class: str = Field(serialization_alias="class")
    type: str
    version: str | None = None


class ConfigKeyInfo(Entity):
    """What a setting is."""

    name: str
    type: str
    required: bool
    default_value: str | None
    importance: str
    documentation: str
    group: str | None
    order_in_group: int
    width: str
    display_name: str
    dependents: tuple[str, ...] = ()


class ConfigValueInfo(Sparse):
    """What a setting is set to, and what is wrong with that."""

    name: str
    value: str | None
    recommended_values: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    visible: bool = True
    warnings: tuple[str, ...] | None = None  # not Apache's


class ConfigInfo(Entity):
    """A setting; without definition when nobody knows it."""

    definition: ConfigKeyInfo | None
    value: ConfigValueInfo


class ConfigInfos(Sparse):
    """PUT …/config/validate"""

    name: str
    error_count: int
    groups: tuple[str, ...]
    configs: tuple[ConfigInfo, ...]
    warning_count: int | None = None  # not Apache's

    def problems(self) -> list[str]:
        """Every error message, in order."""
        return [error for info in self.configs for error in info.value.errors]


class ConnectorOffset(Entity):
    """One entry of GET …/offsets: the place and how far it got; None resets it."""

    partition: dict[str, Any]
    offset: dict[str, Any] | None


class ConnectorOffsets(Entity):
    """GET and PATCH …/offsets"""

    offsets: tuple[ConnectorOffset, ...]


class LoggerLevelInfo(Entity):
    """A logger of GET /admin/loggers"""

    level: str
    last_modified: int | None
