"""The records of Connect's three internal topics, byte for byte

Connect keeps what it must not lose in three compacted topics, each a dictionary: the config topic (what should run),
the offsets topic (how far every source got), the status topic (what became of it). Their bytes are a contract with
Apache Connect: a worker of either kind can be stopped and one of the other started on the same topics.

Every record is a frozen value here with one encoder and one decoder. Keys are UTF-8 text (a JSON array for offsets);
values are JSON without a schema envelope; None is a tombstone. A decoder answers None for what it does not know, so a
newer worker's records pass through an older one unharmed.

Reading and writing topics is `topic_log`'s business; what the records mean is the herder's.
"""

import base64
import binascii
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import orjson

from tidemill.connect.api import SourceOffset, SourcePartition
from tidemill.connect.failure import Failure, class_named
from tidemill.connect.problem import Problem, from_json, to_json

COUNT_MAX = 2**31 - 1
"""The largest number of a task, of tasks or of a generation: Java's int."""

KeyValue: TypeAlias = tuple[bytes, bytes | None]
"""A Kafka record as the stores see it."""


class TargetState(enum.StrEnum):
    """What a connector was told to be."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class State(enum.StrEnum):
    """What a connector or task is, spelled as the REST API and the status topic spell it."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    DESTROYED = "DESTROYED"


# ---------------------------------------------------------------- config topic


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorConfig:
    """`connector-<name>`: the configuration as submitted; None deletes the connector."""

    connector: str
    properties: Mapping[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConfig:
    """`task-<name>-<n>`: takes effect with the next `TasksCommit`."""

    connector: str
    task: int
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksCommit:
    """`commit-<name>`: the connector has exactly `tasks` tasks, configured by the records before this one."""

    connector: str
    tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStateChange:
    """`target-state-<name>`: None returns to the default, STARTED."""

    connector: str
    state: TargetState | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRequest:
    """`restart-connector-<name>`: acted on only when it arrives, never when it is replayed."""

    connector: str
    include_tasks: bool
    only_failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksFencing:
    """`tasks-fencing-<name>`: how many transactional producers of the tasks before have to be fenced."""

    connector: str
    tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggerLevel:
    """`logger-cluster-<logger>`: a level for every worker, acted on only when it arrives."""

    logger: str
    level: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKey:
    """`session-key`: with this secret workers sign what they ask of each other, until there is another one."""

    key: bytes = field(repr=False)
    algorithm: str
    created_ms: int


ConfigRecord: TypeAlias = (
    ConnectorConfig
    | TaskConfig
    | TasksCommit
    | TargetStateChange
    | RestartRequest
    | TasksFencing
    | LoggerLevel
    | SessionKey
)

SESSION_KEY = "session-key"

SESSION_KEY_BYTES_MAX = 8_192
"""A longer one is not understood: HMAC uses 128 bytes at most and would hash the rest with every request."""


def encode_config(record: ConfigRecord) -> KeyValue:
    """Write a record of the config topic.

    >>> encode_config(TargetStateChange(connector="c", state=TargetState.STOPPED))
    (b'target-state-c', b'{"state":"PAUSED","state.v2":"STOPPED"}')
    """
    match record:
        case ConnectorConfig(connector=name, properties=properties):
            value = None if properties is None else {"properties": dict(properties)}
            return _keyed(f"connector-{name}", value)
        case TaskConfig(connector=name, task=task, properties=properties):
            return _keyed(f"task-{name}-{task}", {"properties": dict(properties)})
        case TasksCommit(connector=name, tasks=tasks):
            return _keyed(f"commit-{name}", {"tasks": tasks})
        case TargetStateChange(connector=name, state=state):
            return _keyed(f"target-state-{name}", None if state is None else _target_state_value(state))
        case RestartRequest(connector=name, include_tasks=include_tasks, only_failed=only_failed):
            return _keyed(f"restart-connector-{name}", {"include-tasks": include_tasks, "only-failed": only_failed})
        case TasksFencing(connector=name, tasks=tasks):
            return _keyed(f"tasks-fencing-{name}", {"task-count": tasks})
        case LoggerLevel(logger=logger, level=level):
            return _keyed(f"logger-cluster-{logger}", {"level": level})
        case SessionKey(key=key, algorithm=algorithm, created_ms=created_ms):
            encoded = base64.b64encode(key).decode()
            return _keyed(SESSION_KEY, {"key": encoded, "algorithm": algorithm, "creation-timestamp": created_ms})


def _target_state_value(state: TargetState) -> dict[str, str]:
    # Workers from before STOPPED existed read `state` only, and would fail on a value they do not know.
    old = TargetState.PAUSED if state is TargetState.STOPPED else state
    return {"state": old.value, "state.v2": state.value}


def decode_config(key: bytes | None, value: bytes | None) -> ConfigRecord | None:
    """Read a record of the config topic; None for one that is unknown or malformed."""
    name = _text(key)
    content = _json_object(value)
    if name is None or (value is not None and content is None):
        return None
    if name == SESSION_KEY:
        return _decode_session_key(content)
    # "task-" and "tasks-fencing-" differ in their fifth letter, so the order of Apache's reader is kept.
    for prefix, decoder in _CONFIG_DECODERS:
        if name.startswith(prefix):
            return decoder(name.removeprefix(prefix), content)
    return None


def _decode_target_state(connector: str, content: dict[str, Any] | None) -> ConfigRecord | None:
    if content is None:
        return TargetStateChange(connector=connector, state=None)
    text = content.get("state.v2")
    if not isinstance(text, str):  # Apache's reader, too, goes by the older field where the newer one holds no text
        text = content.get("state")
    if not isinstance(text, str) or text not in TargetState.__members__:
        return None
    return TargetStateChange(connector=connector, state=TargetState(text))


def _decode_connector(connector: str, content: dict[str, Any] | None) -> ConfigRecord | None:
    if content is None:
        return ConnectorConfig(connector=connector, properties=None)
    properties = _properties(content)
    return None if properties is None else ConnectorConfig(connector=connector, properties=properties)


def _decode_task(rest: str, content: dict[str, Any] | None) -> ConfigRecord | None:
    # A connector's name may hold dashes: the task is what follows the last one.
    connector, _, digits = rest.rpartition("-")
    task, properties = _task_number(digits), _properties(content)
    if not connector or task is None or properties is None:
        return None
    return TaskConfig(connector=connector, task=task, properties=properties)


def _decode_commit(connector: str, content: dict[str, Any] | None) -> ConfigRecord | None:
    tasks = _count(content, "tasks")
    return None if tasks is None else TasksCommit(connector=connector, tasks=tasks)


def _decode_restart(connector: str, content: dict[str, Any] | None) -> ConfigRecord | None:
    if content is None:
        return None
    include_tasks, only_failed = content.get("include-tasks", False), content.get("only-failed", False)
    return RestartRequest(connector=connector, include_tasks=include_tasks is True, only_failed=only_failed is True)


def _decode_fencing(connector: str, content: dict[str, Any] | None) -> ConfigRecord | None:
    tasks = _count(content, "task-count")
    return None if tasks is None else TasksFencing(connector=connector, tasks=tasks)


def _decode_logger(logger: str, content: dict[str, Any] | None) -> ConfigRecord | None:
    level = None if content is None else content.get("level")
    return LoggerLevel(logger=logger, level=level) if isinstance(level, str) else None


def _decode_session_key(content: dict[str, Any] | None) -> ConfigRecord | None:
    if content is None:
        return None
    encoded, algorithm, created_ms = content.get("key"), content.get("algorithm"), content.get("creation-timestamp")
    if not isinstance(encoded, str) or not isinstance(algorithm, str) or type(created_ms) is not int:
        return None
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None
    if not 0 < len(key) <= SESSION_KEY_BYTES_MAX:  # Java makes no empty ones
        return None
    return SessionKey(key=key, algorithm=algorithm, created_ms=created_ms)


_CONFIG_DECODERS = (
    ("target-state-", _decode_target_state),
    ("connector-", _decode_connector),
    ("task-", _decode_task),
    ("commit-", _decode_commit),
    ("restart-connector-", _decode_restart),
    ("tasks-fencing-", _decode_fencing),
    ("logger-cluster-", _decode_logger),
)


def _properties(content: dict[str, Any] | None) -> dict[str, str] | None:
    properties = None if content is None else content.get("properties")
    if not isinstance(properties, dict):
        return None
    # Apache keeps a null among the properties; a setting without a value is no setting.
    return {
        name: value if isinstance(value, str) else str(value) for name, value in properties.items() if value is not None
    }


def _count(content: dict[str, Any] | None, field: str) -> int | None:
    number = None if content is None else content.get(field)
    in_range = isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= COUNT_MAX
    return number if in_range else None


def _task_number(digits: str) -> int | None:
    # The length is looked at first: Python refuses to read numbers of thousands of digits.
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        return None
    return int(digits) if int(digits) <= COUNT_MAX else None


# --------------------------------------------------------------- offsets topic


class SourceOffsetRecord(NamedTuple):
    """How far `connector` got in `partition`; an offset of None forgets it."""

    connector: str
    partition: SourcePartition
    offset: SourceOffset | None


def encode_offset_key(connector: str, partition: SourcePartition) -> bytes:
    """Write the key of a source offset; the order of the map's keys is kept, because equality is by bytes.

    >>> encode_offset_key("c", {"server": "x"})
    b'["c",{"server":"x"}]'
    """
    return orjson.dumps([connector, dict(partition)])


def encode_offset(record: SourceOffsetRecord) -> KeyValue:
    """Write a record of the offsets topic."""
    value = None if record.offset is None else orjson.dumps(dict(record.offset))
    return encode_offset_key(record.connector, record.partition), value


def decode_offset(key: bytes | None, value: bytes | None) -> SourceOffsetRecord | None:
    """Read a record of the offsets topic; None for a key that is not a connector and a partition, or a bad value."""
    parsed = _json(key)
    if not isinstance(parsed, list) or len(parsed) != 2:
        return None
    connector, partition = parsed
    if not isinstance(connector, str) or not isinstance(partition, dict):
        return None
    try:
        partition_identity(partition)
    except TypeError:  # what is read may be nested deeper than what can be written
        return None
    offset = _json_object(value)
    if value is not None and offset is None:
        return None
    return SourceOffsetRecord(connector, partition, offset)


def partition_identity(partition: SourcePartition) -> bytes:
    """Name a source partition so that two spellings of the same map are equal: for lookups, never for keys."""
    return orjson.dumps(dict(partition), option=orjson.OPT_SORT_KEYS)


# ---------------------------------------------------------------- status topic


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStatus:
    """`status-connector-<name>` or, with a task, `status-task-<name>-<n>`."""

    connector: str
    task: int | None
    state: State
    worker_id: str
    generation: int
    trace: str | None = None
    version: str | None = None  # of the plugin, since Apache Connect 4.1
    problem: Problem | None = None  # ours; Apache's reader takes what it knows and leaves the rest
    failure: Failure | None = None  # ours, the class of what the trace tells


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceGone:
    """The tombstone of an instance's status."""

    connector: str
    task: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicUse:
    """`status-topic-<topic>:connector-<name>`: the connector has used the topic since it was created or reset."""

    connector: str
    topic: str
    task: int
    discovered_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicUnused:
    """The tombstone of a topic use."""

    connector: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerClaim:
    """`worker-claim`: who runs everything from here on. Of several the last one in the topic is right.

    One key lies in one partition, so all workers see the claims in one order, whatever their names and clocks say.
    """

    worker_id: str
    generation: int
    life: str  # one start of one worker; no two are alike
    group: str


StatusRecord: TypeAlias = InstanceStatus | InstanceGone | TopicUse | TopicUnused | WorkerClaim

_CLAIM = "worker-claim"
_STATUS_CONNECTOR = "status-connector-"
_STATUS_TASK = "status-task-"
_STATUS_TOPIC = "status-topic-"
_TOPIC_OWNER = ":connector-"


def _instance_key(connector: str, task: int | None) -> str:
    return f"{_STATUS_CONNECTOR}{connector}" if task is None else f"{_STATUS_TASK}{connector}-{task}"


def encode_status(record: StatusRecord) -> KeyValue:
    """Write a record of the status topic."""
    match record:
        case InstanceStatus():
            value: dict[str, Any] = {
                "state": record.state.value,
                "trace": record.trace,
                "worker_id": record.worker_id,
                "generation": record.generation,
                "version": record.version,
            }
            if record.problem is not None:
                value["problem"] = to_json(record.problem)
            if record.failure is not None:
                value["failure"] = record.failure.value
            return _keyed(_instance_key(record.connector, record.task), value)
        case InstanceGone(connector=connector, task=task):
            return _keyed(_instance_key(connector, task), None)
        case TopicUse(connector=connector, topic=topic, task=task, discovered_ms=discovered_ms):
            use = {"name": topic, "connector": connector, "task": task, "discoverTimestamp": discovered_ms}
            return _keyed(f"{_STATUS_TOPIC}{topic}{_TOPIC_OWNER}{connector}", {"topic": use})
        case TopicUnused(connector=connector, topic=topic):
            return _keyed(f"{_STATUS_TOPIC}{topic}{_TOPIC_OWNER}{connector}", None)
        case WorkerClaim(worker_id=worker_id, generation=generation, life=life, group=group):
            claim = {"worker_id": worker_id, "generation": generation, "life": life, "group": group}
            return _keyed(_CLAIM, claim)


def decode_status(key: bytes | None, value: bytes | None) -> StatusRecord | None:
    """Read a record of the status topic; None for one that is unknown or malformed."""
    name = _text(key)
    content = _json_object(value)
    if name is None or (value is not None and content is None):
        return None
    if name == _CLAIM:
        return _decode_claim(content)
    if name.startswith(_STATUS_TOPIC):
        return _decode_topic_use(name.removeprefix(_STATUS_TOPIC), content)
    if name.startswith(_STATUS_CONNECTOR):
        return _decode_instance(name.removeprefix(_STATUS_CONNECTOR), None, content)
    if name.startswith(_STATUS_TASK):
        connector, _, digits = name.removeprefix(_STATUS_TASK).rpartition("-")
        task = _task_number(digits)
        if connector and task is not None:
            return _decode_instance(connector, task, content)
    return None


def _decode_instance(connector: str, task: int | None, content: dict[str, Any] | None) -> StatusRecord | None:
    if content is None:
        return InstanceGone(connector=connector, task=task)
    state, generation = content.get("state"), content.get("generation", 0)
    if not isinstance(state, str) or state not in State.__members__:
        return None
    if not isinstance(generation, int) or not -1 <= generation <= COUNT_MAX:
        return None
    trace, version, failure = content.get("trace"), content.get("version"), content.get("failure")
    return InstanceStatus(
        connector=connector,
        task=task,
        state=State(state),
        worker_id=str(content.get("worker_id", "")),
        generation=generation,
        trace=trace if isinstance(trace, str) else None,
        version=version if isinstance(version, str) else None,
        problem=from_json(content.get("problem")),
        failure=class_named(failure) if isinstance(failure, str) else None,
    )


def _decode_claim(content: dict[str, Any] | None) -> StatusRecord | None:
    generation, life = _count(content, "generation"), None if content is None else content.get("life")
    if content is None or generation is None or not isinstance(life, str):
        return None
    worker_id, group = str(content.get("worker_id", "")), str(content.get("group", ""))
    return WorkerClaim(worker_id=worker_id, generation=generation, life=life, group=group)


def _decode_topic_use(rest: str, content: dict[str, Any] | None) -> StatusRecord | None:
    # A topic's name holds no colon, a connector's may.
    topic, sign, connector = rest.partition(_TOPIC_OWNER)
    if not sign or not topic:
        return None
    if content is None:
        return TopicUnused(connector=connector, topic=topic)
    use = content.get("topic")
    if not isinstance(use, dict):
        return None
    task, discovered_ms = use.get("task"), use.get("discoverTimestamp")
    if not isinstance(task, int) or not isinstance(discovered_ms, int):
        return None
    return TopicUse(connector=connector, topic=topic, task=task, discovered_ms=discovered_ms)


# ------------------------------------------------------------------------ JSON


def _keyed(key: str, value: Mapping[str, Any] | None) -> KeyValue:
    return key.encode(), None if value is None else orjson.dumps(value)


def _text(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


def _json(data: bytes | None) -> Any:
    try:
        return None if data is None else orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def _json_object(data: bytes | None) -> dict[str, Any] | None:
    parsed = _json(data)
    return parsed if isinstance(parsed, dict) else None
