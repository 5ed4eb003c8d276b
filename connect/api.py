"""The whole contract between a plugin and the Connect runtime

A plugin author reads this file and nothing else (through `tidemill`, which re-exports it). The same plugin runs in a
unit test, in preview and in production, because it only ever sees what is defined here.

Two ways to write a plugin. The short one decorates a function: `@source` (a generator of records) or `@sink` (a
function that takes a batch). The long one subclasses `SourceTask`, `SinkTask` or `JobTask` where a plugin needs to
own its loop: change capture, bulk copies, a supervised program. The decorators compile to those classes, so the
runtime knows only tasks.

What lies between a plugin and the converters is a `Transform`, by `@transform` or by subclassing, and a `Predicate`
says which records it applies to.

Delivery. A source's offset is stored only after every record at or before it was acknowledged by the broker:
at-least-once, resumed from the last stored offset. A sink's `put` that returns means the batch is in the target; its
consumer offsets are committed after that.

Failure is a small vocabulary. Raise `RetryAfter` to get the same call again later, `PartialFailure` to name the bad
records of a batch, `NotConnected` when the other side is away (retried with back-off for ever, shown in the status),
`EndOfInput` when a source is done, `Fatal` when only a human can help, `Poison` when that is for one record. Anything
else is a bug in the plugin: the task fails with its trace. What would help is told beside a failure (`failure`).
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeAlias, final

from pydantic import BaseModel

Json: TypeAlias = Any
"""Whatever JSON can hold."""

SourcePartition: TypeAlias = Mapping[str, Json]
"""What a source is reading from: a flat map, the key of its stored offset."""

SourceOffset: TypeAlias = Mapping[str, Json]
"""How far it got there: a flat map."""


class PluginError(Exception):
    """Parent of the control errors; anything else that escapes a plugin is a bug in it."""


class NotConnected(PluginError):
    """The other system is out of reach; the runtime retries with back-off for as long as it takes."""


class RetryAfter(PluginError):
    """Call again with the same input after `seconds`."""

    def __init__(self, seconds: float, message: str = "") -> None:
        super().__init__(message or f"retry after {seconds} s")
        self.seconds = seconds


class PartialFailure(PluginError):
    """Some records of a batch were refused; `errors` maps their index in the batch to the reason."""

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        super().__init__(f"{len(errors)} records were refused")
        self.errors = dict(errors)


class EndOfInput(PluginError):
    """The source has nothing more to read, ever; its task completes."""


class Fatal(PluginError):
    """The task cannot go on until somebody changes something; the message says what."""


class Poison(Fatal):
    """A record cannot be processed and may not be left out: the task cannot get past it; the message says where it is.

    For what a source reads. The records a sink refuses are named by `PartialFailure`; the error policy decides.
    """


class InvalidConfig(PluginError):
    """A setting is wrong; `field` is its name as the user wrote it, `fix` says what to do about it."""

    def __init__(self, field_name: str, message: str, fix: str = "") -> None:
        super().__init__(f"{message} {fix}".strip())
        self.field_name = field_name


class SchemaType(enum.StrEnum):
    """Connect's types, spelled as the JSON converter's envelope spells them."""

    BOOLEAN = "boolean"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float"
    FLOAT64 = "double"
    BYTES = "bytes"
    STRING = "string"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A Connect schema; logical types are a `name` (and `parameters`) over a plain type."""

    type: SchemaType
    optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    default: Json = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    fields: tuple["SchemaField", ...] = ()  # STRUCT
    items: "Schema | None" = None  # ARRAY and MAP values
    keys: "Schema | None" = None  # MAP keys


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaField:
    """A named member of a STRUCT."""

    name: str
    schema: Schema


Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record on its way from a source or to a sink.

    A source sets `topic`, `key`, `value` and, so that it can resume, `partition` and `offset`. A sink receives the
    place the record was read from in `topic`, `kafka_partition` and `kafka_offset`. Values are plain Python (dict,
    list, str, int, float, bool, bytes, Decimal, None); a schema beside them is optional.
    """

    topic: str | None = None
    key: Json = None
    value: Json = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    partition: SourcePartition | None = None
    offset: SourceOffset | None = None
    kafka_partition: int | None = None
    kafka_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBatch:
    """Records a source has serialised itself, in order, for one topic: the fast path of change capture.

    `keys`, `values` and, unless empty, `headers` and `timestamps_ms` have one entry per record; a None value is a
    tombstone. `offset` is where `partition` stands once all of them are acknowledged; None means "no safe point here
    yet". With `offset_now` it is stored as soon as that is so, instead of with the next flush: for the rare point the
    source must not have to go back behind.
    """

    topic: str
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers] = ()
    timestamps_ms: Sequence[int] = ()
    partition: SourcePartition | None = None
    offset: SourceOffset | None = None
    offset_now: bool = False


SourceOutput: TypeAlias = Record | EncodedBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ConverterSpec:
    """The converter in force for keys or values: its kind (`json`, `string`, `bytes`) and its options."""

    kind: str
    options: Mapping[str, str] = field(default_factory=dict)

    def flag(self, name: str, default: bool) -> bool:
        """Read a boolean option of the converter."""
        return self.options.get(name, str(default)).strip().lower() == "true"


class ReportProblem(Protocol):
    """Says what keeps a task from its work while it goes on waiting; the connector's status shows it until it is over.

    `about` tells one problem of a task from another; `message` is one line for people: what is the matter and what to
    do about it. Saying it again counts as another attempt and keeps the time since when it stands; None ends it. What
    is raised as `NotConnected` or `RetryAfter` is said by the runtime: a plugin calls this for what it waits for, or
    works around, on its own.
    """

    def __call__(self, about: str, message: str | None, *, retry_s: float | None = None) -> None:
        """`retry_s`: in how many seconds it is tried again; None if it is not for the task to try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """What a task is told when it starts."""

    connector: str
    task: int
    config: Mapping[str, str]  # the connector's configuration as submitted, references resolved
    bootstrap_servers: str  # of the Kafka cluster this worker belongs to
    client_config: Mapping[str, str]  # librdkafka settings for further clients (security, client.id)
    key_converter: ConverterSpec
    value_converter: ConverterSpec
    offsets: Callable[[SourcePartition], SourceOffset | None]  # last stored offset of a source partition
    stopping: Callable[[], bool]  # true once the task has been asked to stop
    report: Callable[[Mapping[str, Json]], None]  # facts for the status and the metrics, e.g. {"lag_bytes": 12}
    problem: ReportProblem = lambda about, message, *, retry_s=None: None  # what the task waits for, for the status


class Computing(NamedTuple):
    """A thread that computes and gives nothing."""

    thread: int  # as `threading.get_ident` has it
    took_s: float


class SourceTask(ABC):
    """Reads from somewhere; every method is called on one thread, `poll` in a loop."""

    @abstractmethod
    def start(self, context: TaskContext) -> None:
        """Open what is needed and position at the stored offsets; raises control errors."""

    @abstractmethod
    def poll(self) -> Sequence[SourceOutput]:
        """Return what is there, at the latest after about half a second; empty when there is nothing."""

    def computing(self) -> Computing | None:
        """A thread of the task's own that computes instead of giving records; asked when `poll` returned none."""
        return None

    def committed(self, partition: SourcePartition, offset: SourceOffset) -> None:
        """Hear that everything up to `offset` is acknowledged and the offset itself is stored durably."""

    def stop(self) -> None:
        """Release everything; called once, also after a failure."""


class SinkTask(ABC):
    """Writes batches somewhere; every method is called on one thread."""

    @abstractmethod
    def start(self, context: TaskContext) -> None:
        """Open what is needed; raises control errors."""

    @abstractmethod
    def put(self, records: Sequence[Record]) -> None:
        """Take in a batch; may buffer until `flush`."""

    def flush(self) -> None:
        """Make everything taken in durable; the runtime commits the consumer's offsets after it returns."""

    def open(self, partitions: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        """Hear of newly assigned partitions; return positions where the target knows better than the group."""
        return {}

    def close(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Hear that topic partitions are taken away; `flush` was called before."""

    def stop(self) -> None:
        """Release everything; called once, also after a failure."""


class JobTask(ABC):
    """Owns its own loop, e.g. supervises another program; the runtime only starts and stops it."""

    @abstractmethod
    def run(self, context: TaskContext) -> None:
        """Work until `context.stopping()` is true or `stop` is called; returning early without that is a failure."""

    def stop(self) -> None:
        """Ask `run` to return; called from another thread."""


class Transform(ABC):
    """Changes records on their way between the plugin and the converters.

    Nothing is kept from one record to the next: a batch for which `apply` raises is given again record by record, and
    the record for which it raises alone is for the connector's error policy. Only `Fatal` and `NotConnected` speak of
    the task, as everywhere. Values are plain Python with their schemas beside them; what is given is not changed in
    place, and a new schema is made once per old one, since converters remember what they know of a schema.

    A source such as change capture serialises its records itself. Where a transform says that it has no use for keys or
    values (`uses_key`, `uses_value`), it finds those as they are, in bytes, and nothing is read and written again.
    """

    uses_key: bool = True
    uses_value: bool = True

    @abstractmethod
    def apply(self, records: Sequence[Record]) -> Sequence[Record | None]:
        """Return as many as were given, None for one that is left out."""

    def close(self) -> None:
        """Release everything; called once."""


class ValueTransform(Transform):
    """A transform of values, which sees nothing else of a record and is not asked about one without (a tombstone).

    So what a source has serialised itself never becomes records: its values are read, changed and written as a batch,
    and `apply`, which is final, is not called. A value may be changed in place, though not what is nested in it.
    """

    uses_key = False

    @abstractmethod
    def of_values(self, values: list[Any]) -> Sequence[Json]:
        """Return as many as were given, in their order; None leaves the record out."""

    @final
    def apply(self, records: Sequence[Record]) -> Sequence[Record | None]:
        """The same of records; each value is a copy, for should one fail, all are given again."""
        values = [record.value for record in records if record.value is not None]
        made = iter(self.made_of([each.copy() if isinstance(each, (dict, list)) else each for each in values]))
        became: list[Record | None] = []
        for record in records:
            if record.value is None:
                became.append(record)
            else:
                value = next(made)
                became.append(None if value is None else replace(record, value=value))
        return became

    def made_of(self, values: list[Any]) -> Sequence[Json]:
        """What `of_values` returns; raises TypeError if that are not as many."""
        count = len(values)
        made = self.of_values(values) if values else ()
        if len(made) != count:
            raise TypeError(f"{len(made)} values came back of {count}")
        return made


class Predicate(ABC):
    """Tells which records a transform applies to."""

    uses_key: bool = True
    uses_value: bool = True

    @abstractmethod
    def test(self, record: Record) -> bool:
        """Whether it holds for the record."""

    def close(self) -> None:
        """Release everything; called once."""


class PluginKind(enum.StrEnum):
    """What the REST API calls a plugin's type."""

    SOURCE = "source"
    SINK = "sink"
    TRANSFORMATION = "transformation"
    PREDICATE = "predicate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    """A setting of the class a plugin replaces that may not be ignored, because records or guarantees depend on it.

    A `name` that ends in a point stands for a family. Values in `accepted` ask for what happens anyway; an empty value
    is always accepted. `why` says what would be wrong and what to do instead.
    """

    name: str
    why: str
    accepted: tuple[str, ...] = ()

    def refuses(self, name: str, value: str) -> bool:
        """Tell whether this is the setting, with a value that asks for more than there is."""
        meant = name.startswith(self.name) if self.name.endswith(".") else name == self.name
        given = value.strip().lower()
        return meant and given != "" and given not in (each.lower() for each in self.accepted)

    def problem(self, name: str) -> str:
        """Return the sentence for the user."""
        scope = f" but for {' and '.join(f'{name}={each}' for each in self.accepted)}" if self.accepted else ""
        return f"{name} is not supported{scope}: {self.why}"


TaskFactory: TypeAlias = Callable[[Any], SourceTask | SinkTask | JobTask | Transform | Predicate]
"""Makes what does the work from the parsed configuration model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A connector class, a transformation or a predicate: everything the runtime needs to list, validate and run it.

    `name` is its `connector.class`, or its `type` in a chain of transformations; `aliases` are other spellings that
    reach it, such as the Java class it replaces. `config` is a pydantic model whose field aliases are the dotted
    setting names; a field's `json_schema_extra` may carry `importance`, `group`, `width` and `display_name`. Settings
    of Connect itself (`topics`, `key.converter`, …) are not in the model.
    """

    name: str
    kind: PluginKind
    version: str
    config: type[BaseModel]
    task: TaskFactory
    doc: str = ""
    aliases: tuple[str, ...] = ()
    ignored: tuple[
        str, ...
    ] = ()  # settings of the class it replaces that have no effect here; accepted without complaint
    unsupported: tuple[Unsupported, ...] = ()  # those that are refused by name
    split: Callable[[Any, int], Sequence[Mapping[str, str]]] | None = None  # (config, tasks.max) -> overrides per task
    check: Callable[[Any], None] | None = None  # preflight; raises InvalidConfig, or an ExceptionGroup of several
    left_behind: Callable[[Any], Sequence[str]] | None = None  # what stays elsewhere after a delete, and how to drop it
    java_task: str = (
        ""  # the class of the tasks of the Java class it replaces, for groups that have Java's workers, too
    )

    def refusals(self, settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield (setting, problem) for what is unsupported."""
        for name, value in settings.items():
            yield from ((name, each.problem(name)) for each in self.unsupported if each.refuses(name, value))
