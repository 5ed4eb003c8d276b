"""A plugin as one decorated function

    @source("numbers", version="1.0")
    def numbers(cfg: Settings, pos: Pos) -> Iterator[Record]:
        ...

The function's annotations say what it gets: the parameter annotated with a pydantic model receives the settings, one
annotated `Pos` the stored offsets, one annotated `TaskContext` everything the runtime knows; a sink's list of
`Record` is its batch. A source is a generator of records, a sink a function that returns when its batch is in the
target; either may be asynchronous. What the decorator leaves under the function's name is a `Plugin`, ready for an
entry point, and still the function when it is called; `@task_split` and `@check` complete it.

A generator runs on a thread of its own behind a small buffer, so one that waits for its next record holds up neither
the sending of those before nor the storing of offsets. `RetryAfter` from a generator calls the function again, with a
`Pos` that knows everything it has yielded.
"""

import asyncio
import inspect
import threading
import typing
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar, cast

from pydantic import BaseModel

from tidemill.connect.api import (
    EncodedBatch,
    EndOfInput,
    Json,
    Plugin,
    PluginKind,
    Record,
    RetryAfter,
    SinkTask,
    SourceOffset,
    SourceOutput,
    SourcePartition,
    SourceTask,
    TaskContext,
)

BUFFERED_MAX = 2_000  # outputs between the generator and the producer: one batch as FileStream hands it over
BUFFERED_BYTES_MAX = 8 << 20  # of these outputs: a quarter of what a task may have in flight behind them
RECORD_BYTES = 64  # what a record takes beside its key and value, about
VALUE_BYTES = 16  # a value that is neither text nor a collection, and what holds one together, about
DEPTH_MAX = 20  # of nested collections that are looked into
POLL_S = 0.5
STOP_S = 2.0  # for a generator to notice that it should end; its thread does not outlive the process

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
ParametersT = ParamSpec("ParametersT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionPlugin(Plugin, Generic[ParametersT, ResultT]):
    """A plugin made of a function; called, it is that function, so that a unit test needs nothing else."""

    function: Callable[ParametersT, ResultT]

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
        return self._stored(partition) if found is None else found

    def advance(self, output: SourceOutput) -> None:
        """Remember where a yielded output stands."""
        partition, offset = output.partition, output.offset
        if partition is None or offset is None:
            return
        if self._last is None or self._last[0] is not partition:
            self._last = (partition, _identity(partition))
        self._yielded[self._last[1]] = offset


def _identity(partition: SourcePartition) -> Hashable:
    """Equal for equal maps, whatever the order of their members; these are flat."""
    return tuple(sorted(partition.items()))


# ------------------------------------------------------------------ decorators


def source(
    name: str, *, version: str, aliases: Sequence[str] = (), ignored: Sequence[str] = ()
) -> Callable[[Callable[ParametersT, ResultT]], FunctionPlugin[ParametersT, ResultT]]:
    """Make a source plugin of a generator of records."""

    def decorate(function: Callable[ParametersT, ResultT]) -> FunctionPlugin[ParametersT, ResultT]:
        signature = _Signature(function)
        generates: bool = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
        if not generates:
            raise TypeError(f"source {name!r}: {function.__name__} must be a generator: it has to yield records")
        return FunctionPlugin(
            function=function,
            name=name,
            kind=PluginKind.SOURCE,
            version=version,
            config=signature.model,
            task=lambda settings: GeneratorSource(function, signature, settings),
            doc=inspect.getdoc(function) or "",
            aliases=tuple(aliases),
            ignored=tuple(ignored),
        )

    return decorate


def sink(
    name: str, *, version: str, aliases: Sequence[str] = (), ignored: Sequence[str] = ()
) -> Callable[[Callable[ParametersT, ResultT]], FunctionPlugin[ParametersT, ResultT]]:
    """Make a sink plugin of a function that takes a batch."""

    def decorate(function: Callable[ParametersT, ResultT]) -> FunctionPlugin[ParametersT, ResultT]:
        signature = _Signature(function)
        if signature.batch is None:
            raise TypeError(f"sink {name!r}: {function.__name__} needs a parameter annotated list[Record]")
        return FunctionPlugin(
            function=function,
            name=name,
            kind=PluginKind.SINK,
            version=version,
            config=signature.model,
            task=lambda settings: FunctionSink(function, signature, settings),
            doc=inspect.getdoc(function) or "",
            aliases=tuple(aliases),
            ignored=tuple(ignored),
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


def _complete(plugin: Plugin, hook: str, function: Callable[..., Any]) -> None:
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

    def __init__(self, function: Callable[..., Any]) -> None:
        hints = typing.get_type_hints(function)
        self.model: type[BaseModel] = NoSettings
        self.settings: str | None = None
        self.pos: str | None = None
        self.context: str | None = None
        self.batch: str | None = None
        for name in inspect.signature(function).parameters:
            hint = hints.get(name)
            if isinstance(hint, type) and issubclass(hint, BaseModel):
                self.settings, self.model = name, hint
            elif hint is Pos:
                self.pos = name
            elif hint is TaskContext:
                self.context = name
            elif typing.get_args(hint) == (Record,):
                self.batch = name
            else:
                raise TypeError(
                    f"{function.__name__}: parameter {name!r} must be annotated with a settings model, "
                    "Pos, TaskContext or list[Record]"
                )

    def arguments(
        self, settings: BaseModel, context: TaskContext, pos: Pos | None = None, batch: Sequence[Record] | None = None
    ) -> dict[str, Any]:
        """The arguments of one call."""
        given = ((self.settings, settings), (self.context, context), (self.pos, pos), (self.batch, batch))
        return {name: value for name, value in given if name is not None}


# --------------------------------------------------------------------- sources


class GeneratorSource(SourceTask):
    """Runs a generator behind a buffer."""

    def __init__(self, function: Callable[..., Any], signature: _Signature, settings: BaseModel) -> None:
        self._function = function
        self._signature = signature
        self._settings = settings
        self._buffer = _Buffer()
        self._thread: threading.Thread | None = None

    def start(self, context: TaskContext) -> None:
        """Take up the stored offsets."""
        self._context = context
        self._pos = Pos(context.offsets)

    def poll(self) -> Sequence[SourceOutput]:
        """Return what the generator has yielded; raise what it raised once that is empty."""
        if self._thread is None:
            self._buffer = _Buffer()
            self._thread = threading.Thread(target=self._run, args=(self._buffer,), name="generator", daemon=True)
            self._thread.start()
        outputs, failure = self._buffer.take(POLL_S)
        if outputs:
            return outputs
        if isinstance(failure, RetryAfter):
            self._thread = None  # a generator that raised is over: the next poll calls the function again
        if failure is not None:
            raise failure
        return []

    def stop(self) -> None:
        """Ask the generator to end."""
        self._buffer.close()
        if self._thread is not None:
            self._thread.join(STOP_S)

    def _run(self, buffer: "_Buffer") -> None:
        failure: Exception = EndOfInput("the source has yielded everything")
        try:
            produced = self._function(**self._signature.arguments(self._settings, self._context, self._pos))
            if inspect.isasyncgen(produced):
                asyncio.run(self._drive_async(cast("AsyncIterator[SourceOutput]", produced), buffer))
            else:
                self._drive(produced, buffer)
        except Exception as error:
            failure = error
        except BaseException as error:  # sys.exit(), which ends a thread without a word: poll would wait for ever
            failure = RuntimeError(f"the source ended its thread: {error!r}")
        buffer.end(failure)

    def _drive(self, outputs: Iterator[SourceOutput], buffer: "_Buffer") -> None:
        for output in outputs:
            if not self._accept(output, buffer):
                return  # leaving the loop closes the generator: its `finally` runs here

    async def _drive_async(self, outputs: AsyncIterator[SourceOutput], buffer: "_Buffer") -> None:
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        assert this is not None
        buffer.on_close(lambda: loop.call_soon_threadsafe(this.cancel))
        try:
            async for output in outputs:
                if not self._accept(output, buffer):
                    return
        except asyncio.CancelledError:
            if not buffer.closed:
                raise RuntimeError("the source cancelled itself") from None

    def _accept(self, output: SourceOutput, buffer: "_Buffer") -> bool:
        if not isinstance(output, (Record, EncodedBatch)):
            raise TypeError(f"a source yields Record or EncodedBatch, not {type(output).__name__}")
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
    """Calls a function with every batch; its return means the batch is in the target."""

    def __init__(self, function: Callable[..., Any], signature: _Signature, settings: BaseModel) -> None:
        self._function = function
        self._signature = signature
        self._settings = settings
        self._runner: asyncio.Runner | None = None

    def start(self, context: TaskContext) -> None:
        """Remember what the function may ask for."""
        self._context = context
        if inspect.iscoroutinefunction(self._function):
            self._runner = asyncio.Runner()  # one loop for all batches, so that clients can be kept open

    def put(self, records: Sequence[Record]) -> None:
        """Hand a batch over."""
        result = self._function(**self._signature.arguments(self._settings, self._context, batch=list(records)))
        if self._runner is not None:
            self._runner.run(result)

    def stop(self) -> None:
        """End the event loop."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None
