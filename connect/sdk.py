"""A plugin as one decorated function

    @source("numbers", version="1.0")
    def numbers(cfg: Settings, pos: Pos) -> Iterator[Record]:
        ...

The function's annotations say what it gets: the parameter annotated with a pydantic model receives the settings, one
annotated `Pos` the stored offsets, one annotated `TaskContext` everything the runtime knows; a sink's list of
`Record` is its batch. A source is a generator of records, a sink a function that returns when its batch is in the
target; either may be asynchronous. A transform is a function of a `Record`, or of a list of values. What the decorator
leaves under the function's name is a `Plugin`, ready for an entry point, and still the function when it is called;
`@task_split`, `@check` and `@flush` complete it.

What a function works with, such as a connection, is opened by a `setup` (see `held`), once for a sink's task and for
each call of a source, and arrives in the parameter annotated with its type.

A generator runs on a thread of its own behind a small buffer, so one that waits for its next record holds up neither
the sending of those before nor the storing of offsets. `RetryAfter` from a generator calls the function again, with a
`Pos` that knows everything it has yielded.
"""

import asyncio
import contextlib
import contextvars
import functools
import inspect
import threading
import typing
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from pydantic import BaseModel

from tidemill.connect.api import (
    Computing,
    EncodedBatch,
    EndOfInput,
    Headers,
    Json,
    Plugin,
    PluginKind,
    Record,
    RetryAfter,
    Schema,
    SinkTask,
    SourceOffset,
    SourceOutput,
    SourcePartition,
    SourceTask,
    TaskContext,
    Transform,
    ValueTransform,
)
from tidemill.connect.held import Setup, held, held_async, setup_of
from tidemill.core.runtime.clock import SystemClock
from tidemill.core.runtime.thread_time import busy_s

BUFFERED_MAX = 2_000  # outputs between the generator and the producer: one batch as FileStream hands it over
BUFFERED_BYTES_MAX = 8 << 20  # of these outputs: a quarter of what a task may have in flight behind them
RECORD_BYTES = 64  # what a record takes beside its key and value, about
VALUE_BYTES = 16  # a value that is neither text nor a collection, and what holds one together, about
DEPTH_MAX = 20  # of nested collections that are looked into
POLL_S = 0.5
COMPUTING_S = 3.0  # at work without an output, before a generator that computes is told from one that waits
COMPUTING_SHARE = 0.25  # of the time since its last output; one that asks its system now and then has less
STOP_S = 2.0  # for a generator to notice that it should end; its thread does not outlive the process

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
ParametersT = ParamSpec("ParametersT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionPlugin(Plugin, Generic[ParametersT, ResultT]):
    """A plugin made of a function; called, it is that function, so that a unit test needs nothing else."""

    function: Callable[ParametersT, ResultT]
    setup: Setup | None = None
    flush: "_Call | None" = None

    def __call__(self, *arguments: ParametersT.args, **named: ParametersT.kwargs) -> ResultT:
        """Call the function."""
        return self.function(*arguments, **named)


class NoSettings(BaseModel):
    """The settings of a plugin that has none."""


class Pos:
    """Where each source partition stands: stored before this start, or yielded since.

    In a unit test `Pos()` is the very beginning, and `advance` of a record is what a restart after it would find.
    """

    def __init__(self, stored: Callable[[SourcePartition], SourceOffset | None] = lambda partition: None) -> None:
        self._stored = stored
        self._yielded: dict[Hashable, SourceOffset] = {}
        self._last: tuple[SourcePartition, Hashable] | None = None  # a source mostly yields the same map again

    def get(self, partition: SourcePartition) -> SourceOffset | None:
        """The offset to go on after; None at the very beginning."""
        found = self._yielded.get(_identity(partition))
        if found is None:
            found = self._stored(partition)
        return None if found is None else dict(found)  # whoever counts on in it has not yielded that yet

    def source_partition(self, partition: SourcePartition | None = None, /, **more: Json) -> "PartitionPos":
        """Where one partition stands, and records of it: `pos.source_partition(file=settings.file)`."""
        return PartitionPos(self, {**(partition or {}), **more})

    def advance(self, output: SourceOutput) -> None:
        """Remember where a yielded output stands."""
        partition, offset = output.partition, output.offset
        if partition is None or offset is None:
            return
        if self._last is None or self._last[0] is not partition:
            self._last = (partition, _identity(partition))
        self._yielded[self._last[1]] = offset


class PartitionPos:
    """One source partition: where it stands, and how its records say so."""

    def __init__(self, pos: Pos, partition: SourcePartition) -> None:
        self._pos = pos
        self.partition = partition

    def get(self, name: str, default: Json = None) -> Json:
        """A member of the offset to go on after; `default` at the very beginning."""
        return (self._pos.get(self.partition) or {}).get(name, default)

    def record(
        self,
        *,
        offset: SourceOffset,
        topic: str,
        key: Json = None,
        value: Json = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        key_schema: Schema | None = None,
        value_schema: Schema | None = None,
    ) -> Record:
        """A record of this partition; `offset` is where the partition stands after it."""
        return Record(
            topic=topic,
            key=key,
            value=value,
            headers=headers,
            timestamp_ms=timestamp_ms,
            key_schema=key_schema,
            value_schema=value_schema,
            partition=self.partition,
            offset=offset,
        )


def _identity(partition: SourcePartition) -> Hashable:
    """Equal for equal maps, whatever the order of their members; these are flat."""
    return tuple(sorted(partition.items()))


# ------------------------------------------------------------------ decorators


def source(
    name: str,
    *,
    version: str,
    aliases: Sequence[str] = (),
    ignored: Sequence[str] = (),
    setup: Callable[..., Any] | None = None,
) -> Callable[[Callable[ParametersT, ResultT]], FunctionPlugin[ParametersT, ResultT]]:
    """Make a source plugin of a generator of records."""

    def decorate(function: Callable[ParametersT, ResultT]) -> FunctionPlugin[ParametersT, ResultT]:
        call = _call(f"source {name!r}", function, setup)
        signature = call.signature
        generates: bool = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
        if signature.record is not None:
            raise TypeError(f"source {name!r}: {function.__name__} yields records, it takes none")
        if not generates:
            raise TypeError(f"source {name!r}: {function.__name__} must be a generator: it has to yield records")
        return FunctionPlugin(
            function=function,
            name=name,
            kind=PluginKind.SOURCE,
            version=version,
            config=signature.model,
            task=lambda settings: GeneratorSource(call, settings),
            doc=inspect.getdoc(function) or "",
            aliases=tuple(aliases),
            ignored=tuple(ignored),
        )

    return decorate


def sink(
    name: str,
    *,
    version: str,
    aliases: Sequence[str] = (),
    ignored: Sequence[str] = (),
    setup: Callable[..., Any] | None = None,
) -> Callable[[Callable[ParametersT, ResultT]], FunctionPlugin[ParametersT, ResultT]]:
    """Make a sink plugin of a function that takes a batch."""

    def decorate(function: Callable[ParametersT, ResultT]) -> FunctionPlugin[ParametersT, ResultT]:
        call = _call(f"sink {name!r}", function, setup)
        if call.signature.batch is None:
            raise TypeError(f"sink {name!r}: {function.__name__} needs a parameter annotated list[Record]")
        if call.signature.pos or call.signature.record:
            raise TypeError(f"sink {name!r}: {function.__name__} takes batches: it has no Pos and no single Record")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"sink {name!r}: {function.__name__} must not yield: what it opens belongs into a setup")
        made = FunctionPlugin(
            function=function,
            name=name,
            kind=PluginKind.SINK,
            version=version,
            config=call.signature.model,
            task=lambda settings: FunctionSink(call, settings, made.flush),
            doc=inspect.getdoc(function) or "",
            aliases=tuple(aliases),
            ignored=tuple(ignored),
            setup=call.setup,
        )
        return made

    return decorate


def transform(
    name: str, *, version: str, aliases: Sequence[str] = (), uses: Collection[str] | None = None
) -> Callable[[Callable[ParametersT, ResultT]], FunctionPlugin[ParametersT, ResultT]]:
    """Make a transformation of a function of a `Record`, which returns what becomes of it: a record, or None.

    A function of a `list[Record]` returns a list of as many. `uses` says what of a record is looked at beside topic,
    headers and timestamp, by default key and value: what is not used is not read, and may be bytes.

    A function of another list, such as `list[dict[str, Any]]`, gets the values alone, without those that are None, and
    returns as many (see `ValueTransform`). That is by far the fastest for what a source has serialised itself.
    """

    def decorate(function: Callable[ParametersT, ResultT]) -> FunctionPlugin[ParametersT, ResultT]:
        signature = _Signature(function, of_values=True)
        taken = [each for each in (signature.batch, signature.record, signature.values) if each is not None]
        if len(taken) != 1 or signature.pos or signature.context:
            raise TypeError(
                f"transform {name!r}: {function.__name__} takes settings and a Record, a list[Record] or a list of "
                "values"
            )
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise TypeError(f"transform {name!r}: {function.__name__} must be a plain function")
        if signature.values is not None and uses is not None and set(uses) != {"value"}:
            raise TypeError(f"transform {name!r}: {function.__name__} takes values, and can use nothing else")
        used = ("key", "value") if uses is None else uses
        return FunctionPlugin(
            function=function,
            name=name,
            kind=PluginKind.TRANSFORMATION,
            version=version,
            config=signature.model,
            task=lambda settings: (
                FunctionTransform(function, signature, settings, used)
                if signature.values is None
                else ValueFunction(function, signature, settings)
            ),
            doc=inspect.getdoc(function) or "",
            aliases=tuple(aliases),
        )

    return decorate


def task_split(plugin: Plugin) -> Callable[[FunctionT], FunctionT]:
    """Let a function divide the work: it takes the settings and `tasks.max`, and returns the settings of each task."""

    def decorate(function: FunctionT) -> FunctionT:
        def split(settings: BaseModel, tasks_max: int) -> Sequence[Mapping[str, str]]:
            return [_overrides(settings, part) for part in function(settings, tasks_max)]

        _complete(plugin, "split", split)
        return function

    return decorate


def check(plugin: Plugin) -> Callable[[FunctionT], FunctionT]:
    """Have a function look at the settings before a connector is accepted; it raises `InvalidConfig`."""

    def decorate(function: FunctionT) -> FunctionT:
        def preflight(settings: BaseModel) -> None:
            result = function(settings)
            if inspect.isawaitable(result):
                asyncio.run(_finish(result))

        _complete(plugin, "check", preflight)
        return function

    return decorate


def flush(plugin: Plugin) -> Callable[[FunctionT], FunctionT]:
    """Have a function make durable what a sink took in: the consumer's offsets are committed after it returns.

    It takes what the sink takes, apart from the batch. A sink without it has written a batch when it returns.
    """

    def decorate(function: FunctionT) -> FunctionT:
        if not isinstance(plugin, FunctionPlugin) or plugin.kind is not PluginKind.SINK:
            raise TypeError(f"flush is for what @sink has made, and {plugin.name!r} is not")
        call = _Call(function, _Signature(function, plugin.setup), plugin.setup)
        signature = call.signature
        if signature.batch or signature.record or signature.pos:
            raise TypeError(f"flush of {plugin.name!r}: {function.__name__} takes neither records nor a Pos")
        if signature.settings and signature.model is not plugin.config:
            raise TypeError(f"flush of {plugin.name!r}: its settings are {plugin.config.__name__}")
        if call.asynchronous and not inspect.iscoroutinefunction(plugin.function):
            raise TypeError(f"flush of {plugin.name!r}: an asynchronous flush belongs to an asynchronous sink")
        _complete(plugin, "flush", call)
        return function

    return decorate


def _complete(plugin: Plugin, hook: str, function: Any) -> None:
    """Set a hook while the plugin's module is being loaded; after that a plugin never changes."""
    if getattr(plugin, hook) is not None:
        raise TypeError(f"plugin {plugin.name!r} has a {hook} already")
    object.__setattr__(plugin, hook, function)


async def _finish(awaitable: Any) -> None:
    await awaitable


def _overrides(settings: BaseModel, part: BaseModel | Mapping[str, str]) -> Mapping[str, str]:
    """What one task's settings change, as flat strings."""
    if not isinstance(part, BaseModel):
        return part
    whole, mine = settings.model_dump(mode="json", by_alias=True), part.model_dump(mode="json", by_alias=True)
    return {name: _text(value) for name, value in mine.items() if value != whole[name]}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(_text(each) for each in value)
    return "" if value is None else str(value)


class _Signature:
    """Which parameter of a plugin function is which, by their annotations."""

    def __init__(self, function: Callable[..., Any], setup: Setup | None = None, *, of_values: bool = False) -> None:
        hints = typing.get_type_hints(function)
        self.resource: str | None = None
        self.model: type[BaseModel] = NoSettings
        self.settings: str | None = None
        self.pos: str | None = None
        self.context: str | None = None
        self.batch: str | None = None
        self.record: str | None = None
        self.values: str | None = None
        for name in inspect.signature(function).parameters:
            hint = hints.get(name)
            if setup is not None and hint == setup.yields:
                self.resource = name
            elif isinstance(hint, type) and issubclass(hint, BaseModel):
                self.settings, self.model = name, hint
            elif hint is Pos:
                self.pos = name
            elif hint is TaskContext:
                self.context = name
            elif hint is Record:
                self.record = name
            elif typing.get_args(hint) == (Record,):
                self.batch = name
            elif of_values and self.values is None and _is_list_of_values(hint):
                self.values = name
            else:
                more = "" if setup is None else f", or {_spelled(setup.yields)}, which the setup yields"
                more += ", or one list of values, such as list[dict[str, Any]]" if of_values else ""
                raise TypeError(
                    f"{function.__name__}: parameter {name!r} must be annotated with a settings model, "
                    f"Pos, TaskContext, Record or list[Record]{more}"
                )

    def arguments(
        self,
        settings: BaseModel,
        context: TaskContext,
        pos: Pos | None = None,
        batch: Sequence[Record] | None = None,
        resource: Any = None,
    ) -> dict[str, Any]:
        """The arguments of one call."""
        given = (
            (self.settings, settings),
            (self.context, context),
            (self.pos, pos),
            (self.batch, batch),
            (self.resource, resource),
        )
        return {name: value for name, value in given if name is not None}


def _is_list_of_values(hint: Any) -> bool:
    """Whether it is a list, and of nothing that plain values are not."""
    items = typing.get_args(hint)
    named = {part for item in items for part in (item, *typing.get_args(item)) if isinstance(part, type)}
    return (hint is list or typing.get_origin(hint) is list) and not any(
        issubclass(part, (Record, BaseModel)) for part in named
    )


def _spelled(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)


class _Call:
    """A function of a plugin, which parameter of it is which, and its setup."""

    def __init__(self, function: Callable[..., Any], signature: _Signature, setup: Setup | None) -> None:
        self.function = function
        self.signature = signature
        self.setup = setup
        self.asynchronous = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        self._setup_signature = None if setup is None else _Signature(setup.function)

    def setup_arguments(self, settings: BaseModel, context: TaskContext) -> dict[str, Any]:
        """The arguments of the setup."""
        return {} if self._setup_signature is None else self._setup_signature.arguments(settings, context)


def _call(of: str, function: Callable[..., Any], setup_function: Callable[..., Any] | None) -> _Call:
    """Look at a plugin's function and its setup; raises TypeError for two that do not fit together."""
    if setup_function is None:
        return _Call(function, _Signature(function), None)
    setup = setup_of(setup_function)
    named = f"{of}: setup {setup.function.__name__}"
    own, signature = _Signature(setup.function), _Signature(function, setup)
    call = _Call(function, signature, setup)
    if own.pos or own.batch or own.record:
        raise TypeError(f"{named} takes settings and a TaskContext, nothing else")
    if own.settings and signature.settings and own.model is not signature.model:
        raise TypeError(f"{named} takes {own.model.__name__}, {function.__name__} takes {signature.model.__name__}")
    if own.settings:
        signature.model = own.model
    if signature.resource is None and setup.yields is not type(None):
        raise TypeError(f"{named}: {function.__name__} has no parameter annotated {_spelled(setup.yields)}")
    if setup.asynchronous and not call.asynchronous:
        raise TypeError(f"{named} is asynchronous: {function.__name__} must be, too")
    return call


# --------------------------------------------------------------------- sources


class GeneratorSource(SourceTask):
    """Runs a generator behind a buffer."""

    def __init__(self, call: _Call, settings: BaseModel) -> None:
        self._call = call
        self._settings = settings
        self._buffer = _Buffer()
        self._thread: threading.Thread | None = None
        self._clock = SystemClock()
        self._quiet: tuple[float, float] | None = (
            None  # since when it has given nothing, and how long it had been at work then
        )

    def start(self, context: TaskContext) -> None:
        """Take up the stored offsets."""
        self._context = context
        self._pos = Pos(context.offsets)

    def poll(self) -> Sequence[SourceOutput]:
        """Return what the generator has yielded; raise what it raised once that is empty."""
        if self._thread is None:
            self._buffer = _Buffer()
            run = functools.partial(contextvars.copy_context().run, self._run, self._buffer)  # it logs as its task
            self._thread = threading.Thread(target=run, name="generator", daemon=True)
            self._thread.start()
        outputs, failure = self._buffer.take(POLL_S)
        if outputs:
            self._quiet = None
            return outputs
        if isinstance(failure, RetryAfter):
            self._thread, self._quiet = (
                None,
                None,
            )  # a generator that raised is over: the next poll calls the function again
        if failure is not None:
            raise failure
        return []

    def computing(self) -> Computing | None:
        """Whether the generator computes; one that waits for its system is at rest."""
        thread = self._thread
        if thread is None or thread.ident is None or thread.native_id is None:
            return None
        now, used = self._clock.monotonic(), busy_s(thread.native_id)
        if self._quiet is None:
            self._quiet = now, used
        since, used_before = self._quiet
        if used - used_before < max(COMPUTING_S, (now - since) * COMPUTING_SHARE):
            return None
        return Computing(thread.ident, now - since)

    def stop(self) -> None:
        """Ask the generator to end."""
        self._buffer.close()
        if self._thread is not None:
            self._thread.join(STOP_S)

    def _run(self, buffer: "_Buffer") -> None:
        failure: Exception = EndOfInput("the source has yielded everything")
        try:
            if self._call.asynchronous:
                asyncio.run(self._drive_async(buffer))
            else:
                self._drive(buffer)
        except Exception as error:
            failure = error
        except BaseException as error:  # sys.exit(), which ends a thread without a word: poll would wait for ever
            failure = RuntimeError(f"the source ended its thread: {error!r}")
        buffer.end(failure)

    def _begin(self, resource: Any) -> Any:
        """Call the function: a generator that has not run yet."""
        given = self._call.signature.arguments(self._settings, self._context, self._pos, resource=resource)
        return self._call.function(**given)

    def _held(self) -> dict[str, Any]:
        return self._call.setup_arguments(self._settings, self._context)

    def _drive(self, buffer: "_Buffer") -> None:
        with held(self._call.setup, self._held()) as resource, contextlib.closing(self._begin(resource)) as outputs:
            for output in outputs:
                if not self._accept(output, buffer):
                    return  # the generator is closed, its `finally` runs, then what was set up is closed

    async def _drive_async(self, buffer: "_Buffer") -> None:
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        assert this is not None
        ending = False  # once, and not while it is being closed: that would not be done to its end

        def end() -> None:
            nonlocal ending
            if not ending:
                ending = True
                this.cancel()

        buffer.on_close(lambda: loop.call_soon_threadsafe(end))
        try:
            async with (
                held_async(self._call.setup, self._held()) as resource,
                contextlib.aclosing(self._begin(resource)) as outputs,
            ):
                try:
                    async for output in outputs:
                        if not self._accept(output, buffer):
                            return
                finally:
                    ending = True
        except asyncio.CancelledError:
            if not buffer.closed:
                raise RuntimeError("the source cancelled itself") from None

    def _accept(self, output: SourceOutput, buffer: "_Buffer") -> bool:
        if not isinstance(output, (Record, EncodedBatch)):
            raise TypeError(f"a source yields Record or EncodedBatch, not {type(output).__name__}")
        if output.offset is not None:
            # The generator may have one map for all its offsets, and counts on in it while this output waits: it keeps
            # its map, the output gets what stood there. In place, since another record would take longer than all else.
            object.__setattr__(output, "offset", dict(output.offset))
        if not buffer.put(output):
            return False
        self._pos.advance(output)
        return True


def size_of(output: SourceOutput) -> int:
    """About how many bytes of memory an output takes.

    >>> size_of(EncodedBatch(topic="t", keys=[b"12", None], values=[b"345", None]))
    133
    """
    if isinstance(output, EncodedBatch):
        size = RECORD_BYTES * len(output.values) + sum(len(each) for each in output.keys if each is not None)
        return size + sum(len(each) for each in output.values if each is not None)
    return RECORD_BYTES + _size(output.key) + _size(output.value)


def _size(value: Json, depth: int = 0) -> int:
    if isinstance(value, (str, bytes)):
        return len(value)
    if depth < DEPTH_MAX:
        if isinstance(value, dict):
            return VALUE_BYTES + sum(_size(name) + _size(each, depth + 1) for name, each in value.items())
        if isinstance(value, (list, tuple)):
            return VALUE_BYTES + sum(_size(each, depth + 1) for each in value)
    return VALUE_BYTES


class _Buffer:
    """A bounded buffer between the generator's thread and the task's."""

    def __init__(self) -> None:
        self.closed = False
        self._failure: Exception | None = None
        self._changed = threading.Condition()
        self._items: list[SourceOutput] = []
        self._bytes = 0
        self._listener: Callable[[], object] | None = None

    def put(self, item: SourceOutput) -> bool:
        """Add an item, waiting for room; False once nobody wants it any more. An empty buffer takes in any item."""
        size = size_of(item)
        with self._changed:
            while not self._has_room(size) and not self.closed:
                self._changed.wait()
            if self.closed:
                return False
            self._items.append(item)
            self._bytes += size
            if len(self._items) == 1:
                self._changed.notify_all()
        return True

    def _has_room(self, size: int) -> bool:
        return not self._items or (len(self._items) < BUFFERED_MAX and self._bytes + size <= BUFFERED_BYTES_MAX)

    def end(self, failure: Exception) -> None:
        """Say why nothing follows."""
        with self._changed:
            self._failure = failure
            self._listener = None
            self._changed.notify_all()

    def take(self, seconds: float) -> tuple[list[SourceOutput], Exception | None]:
        """Take everything, waiting for the first item, and why nothing follows what was taken, if that is so.

        Both in one look: asked for afterwards, the end may be behind items that came in between.
        """
        with self._changed:
            if not self._items and self._failure is None:
                self._changed.wait(seconds)
            items, self._items = self._items, []
            self._bytes = 0
            self._changed.notify_all()
            return items, self._failure

    def on_close(self, listener: Callable[[], object]) -> None:
        """Have `listener` called when nobody wants more."""
        with self._changed:
            self._listener = listener
        if self.closed:
            listener()

    def close(self) -> None:
        """Want no more."""
        with self._changed:
            self.closed = True
            listener = self._listener
            self._changed.notify_all()
        if listener is not None:
            listener()


# ----------------------------------------------------------------------- sinks


class FunctionSink(SinkTask):
    """Calls a function with every batch; its return means the batch is in the target, or in the hands of `flush`."""

    def __init__(self, call: _Call, settings: BaseModel, flush: _Call | None = None) -> None:
        self._call = call
        self._flush = flush
        self._settings = settings
        self._runner: asyncio.Runner | None = None
        self._held = contextlib.ExitStack()
        self._held_async = contextlib.AsyncExitStack()
        self._resource: Any = None

    def start(self, context: TaskContext) -> None:
        """Open what the function works with."""
        self._context = context
        given = self._call.setup_arguments(self._settings, context)
        if self._call.asynchronous:
            self._runner = (
                self._runner or asyncio.Runner()
            )  # one loop for all batches, so that clients can be kept open
            entering = self._held_async.enter_async_context(held_async(self._call.setup, given))
            self._resource = self._runner.run(entering)
        else:
            self._resource = self._held.enter_context(held(self._call.setup, given))

    def put(self, records: Sequence[Record]) -> None:
        """Hand a batch over."""
        self._run(self._call, list(records))

    def flush(self) -> None:
        """Have what was handed over made durable."""
        if self._flush is not None:
            self._run(self._flush)

    def _run(self, call: _Call, batch: list[Record] | None = None) -> None:
        signature = call.signature
        given = signature.arguments(self._settings, self._context, batch=batch, resource=self._resource)
        result = call.function(**given)
        if call.asynchronous:
            assert self._runner is not None, "an asynchronous function has a loop from the start on"
            self._runner.run(result)

    def stop(self) -> None:
        """Close what was opened, and the event loop."""
        try:
            self._held.close()
            if self._runner is not None:
                self._runner.run(self._held_async.aclose())
        finally:
            if self._runner is not None:
                self._runner.close()
                self._runner = None


# ------------------------------------------------------------------ transforms


class FunctionTransform(Transform):
    """Calls a function with every record, or with every batch."""

    def __init__(
        self, function: Callable[..., Any], signature: _Signature, settings: BaseModel, uses: Collection[str]
    ) -> None:
        self.uses_key, self.uses_value = "key" in uses, "value" in uses
        given = {} if signature.settings is None else {signature.settings: settings}
        self._call = functools.partial(function, **given)
        self._batch, self._record = signature.batch, signature.record

    def apply(self, records: Sequence[Record]) -> Sequence[Record | None]:
        """Hand the records over."""
        if self._record is not None:
            return [self._call(**{self._record: record}) for record in records]
        assert self._batch is not None, "it takes a record or a batch"
        return list(self._call(**{self._batch: list(records)}))


class ValueFunction(ValueTransform):
    """Calls a function with the values of every batch."""

    def __init__(self, function: Callable[..., Any], signature: _Signature, settings: BaseModel) -> None:
        given = {} if signature.settings is None else {signature.settings: settings}
        self._call = functools.partial(function, **given)
        assert signature.values is not None, "it takes values"
        self._values = signature.values

    def of_values(self, values: list[Any]) -> Sequence[Json]:
        """Hand the values over."""
        made = self._call(**{self._values: values})
        if not isinstance(made, (list, tuple)):
            raise TypeError(f"a {type(made).__name__} came back, not a list of values")
        return made
