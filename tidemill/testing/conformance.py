"""What every plugin must do, as a test of a few lines

    def test_orders_conform(tmp_path):
        conformance.check_source(orders, {"topic": "orders", "interval.seconds": "0"}, count=5)

    def test_lines_conform(tmp_path):
        file = tmp_path / "lines"
        conformance.check_sink(lines, {"file": str(file)}, records, read=lambda: file.read_text().splitlines())

A plugin is put through the situations a worker brings it into: settings that are missing or wrong, a start without a
poll, a stop while it waits, a restart from each offset that may have been stored, a batch that comes twice. Every
behaviour has a name; `check_source`, `check_sink` and `check_settings` raise `NotConforming` with all that were not
kept, and `problems_of_…` return them. Nothing needs a broker: what a source yields and a sink takes is what they see.

What is not tested because no test can know it: whether a record is right.
"""

import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import orjson

from tidemill.connect.api import (
    ConverterSpec,
    EncodedBatch,
    EndOfInput,
    InvalidConfig,
    Json,
    PartialFailure,
    Plugin,
    Record,
    RetryAfter,
    Schema,
    SinkTask,
    SourceOffset,
    SourceOutput,
    SourcePartition,
    SourceTask,
    TaskContext,
)
from tidemill.connect.converters.registry import make_converter
from tidemill.connect.settings import model_problems, parse_settings
from tidemill.connect.validation import key_infos

STOP_S = 4.0  # a worker gives a task five seconds by default (task.shutdown.graceful.timeout.ms)
TIMEOUT_S = 30.0  # for a source to yield what is asked for
RESTARTS_MAX = 10  # offsets a source is restarted from, spread over all that there are
BIG_BATCH = 5_000  # records: ten times what a sink gets at once by default

_NUMBERS = ("INT", "SHORT", "LONG", "DOUBLE", "BOOLEAN")

ResultT = TypeVar("ResultT")

Wrong: TypeAlias = Mapping[str, str]
"""A wrong value for some settings, each to be refused under its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """One behaviour that a plugin does not have."""

    behaviour: str
    why: str

    def __str__(self) -> str:
        return f"{self.behaviour}: {self.why}"


class NotConforming(AssertionError):
    """What a plugin does not do as it must."""

    def __init__(self, plugin: Plugin, problems: Sequence[Broken]) -> None:
        super().__init__("\n".join([f"{plugin.name} does not conform:", *(f"  {each}" for each in problems)]))
        self.problems = tuple(problems)


def check_settings(plugin: Plugin, config: Mapping[str, str], *, wrong: Wrong | None = None) -> None:
    """The settings of any plugin; `config` is complete and right. Raises NotConforming."""
    _raise(plugin, problems_of_settings(plugin, config, wrong=wrong))


def check_source(plugin: Plugin, config: Mapping[str, str], **more: Any) -> None:
    """The settings and the life of a source, as `problems_of_source`. Raises NotConforming."""
    _raise(plugin, problems_of_source(plugin, config, **more))


def check_sink(plugin: Plugin, config: Mapping[str, str], records: Sequence[Record], **more: Any) -> None:
    """The settings and the life of a sink, as `problems_of_sink`. Raises NotConforming."""
    _raise(plugin, problems_of_sink(plugin, config, records, **more))


def _raise(plugin: Plugin, problems: Sequence[Broken]) -> None:
    if problems:
        raise NotConforming(plugin, problems)


# -------------------------------------------------------------------- settings


def problems_of_settings(plugin: Plugin, config: Mapping[str, str], *, wrong: Wrong | None = None) -> list[Broken]:
    """What is wrong with how a plugin describes and checks its settings."""
    return [*_described(plugin), *_accepted(plugin, config), *_refused(plugin, config, wrong or {})]


def _described(plugin: Plugin) -> Iterator[Broken]:
    if not plugin.doc:
        yield Broken(behaviour="described", why="the plugin has no description: give its function a docstring")
    for info in key_infos(plugin):
        if not info.documentation:
            yield Broken(behaviour="settings-described", why=f"{info.name} has no description")


def _accepted(plugin: Plugin, config: Mapping[str, str]) -> Iterator[Broken]:
    for name, texts in model_problems(plugin, config).items():
        yield Broken(behaviour="settings-accepted", why=f"the configuration of the test: {name}: {texts[0]}")
    found = _preflight(plugin, config)
    if found is not None:
        yield Broken(behaviour="settings-accepted", why=f"the check refuses the test's configuration: {found!r}")


def _refused(plugin: Plugin, config: Mapping[str, str], wrong: Wrong) -> Iterator[Broken]:
    for info in key_infos(plugin):
        if info.required:
            without = {name: value for name, value in config.items() if name != info.name}
            if info.name not in model_problems(plugin, without):
                yield Broken(behaviour="settings-missing", why=f"{info.name} is required and may be missing")
        if info.type in _NUMBERS and info.name not in model_problems(plugin, {**config, info.name: "?"}):
            yield Broken(behaviour="settings-wrong", why=f"{info.name} is of type {info.type} and may be '?'")
    for name, value in wrong.items():
        yield from _refused_value(plugin, {**config, name: value}, name)


def _refused_value(plugin: Plugin, config: Mapping[str, str], name: str) -> Iterator[Broken]:
    shown = f"{name}={config[name]}"
    problems = model_problems(plugin, config)
    if problems:
        if name not in problems:
            yield Broken(behaviour="settings-wrong", why=f"{shown} is refused, but not under its name: {problems}")
        return
    found = _preflight(plugin, config)
    if found is None:
        yield Broken(behaviour="settings-wrong", why=f"{shown} is accepted")
    elif not isinstance(found, InvalidConfig):
        yield Broken(behaviour="settings-invalid-config", why=f"for {shown} the check raised {found!r}")
    elif found.field_name != name:
        yield Broken(behaviour="settings-wrong", why=f"for {shown} the check names {found.field_name}")


def _preflight(plugin: Plugin, config: Mapping[str, str]) -> Exception | None:
    """What the plugin's check raises about settings that the model accepts."""
    if plugin.check is None or model_problems(plugin, config):
        return None
    try:
        plugin.check(parse_settings(plugin, config))
    except Exception as error:
        return error
    return None


# ------------------------------------------------------------ calling a task


def _rests(
    task: SourceTask | SinkTask, config: Mapping[str, str], stored: Mapping[bytes, SourceOffset]
) -> Iterator[Broken]:
    hand = _Hand()
    try:
        hand("start", lambda: task.start(_context(config, stored)))
    except Exception as error:
        yield Broken(behaviour="start-stop", why=_told("start", error))
    yield from _stopped(hand, task, "start-stop")
    hand.leave()


class _Hung(Exception):
    """A call has not returned in time."""


class _Hand:
    """The one thread that calls a task, as in production; it is left alone with a call that hangs."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="conformance", daemon=True).start()

    def __call__(self, what: str, call: Callable[[], ResultT], limit_s: float = TIMEOUT_S) -> ResultT:
        """Have it called; raises what it raises, or _Hung."""
        future: Future[ResultT] = Future()
        self._calls.put((call, future))
        wait([future], limit_s)
        if not future.done():
            raise _Hung(f"{what} takes more than {limit_s:g} s")
        return future.result()

    def leave(self) -> None:
        """Let the thread end after the call it is at."""
        self._calls.put(None)

    def _work(self) -> None:
        while (order := self._calls.get()) is not None:
            call, future = order
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)


def _stopped(hand: _Hand, task: SourceTask | SinkTask, behaviour: str) -> Iterator[Broken]:
    """It stops without an error and in time."""
    try:
        hand("stop", task.stop, STOP_S)
    except Exception as error:
        yield Broken(behaviour=behaviour, why=_told("stop", error))


def _polled_after(hand: _Hand, task: SourceTask) -> Iterator[Broken]:
    """A poll after the stop may fail but not hang; then it is stopped again."""

    def poll() -> None:
        with contextlib.suppress(Exception):
            task.poll()

    try:
        hand("poll after stop", poll, STOP_S)
        hand("the second stop", task.stop, STOP_S)
    except Exception as error:
        yield Broken(behaviour="poll-after-stop", why=_told("the second stop", error))


def _told(what: str, error: Exception) -> str:
    return str(error) if isinstance(error, _Hung) else f"{what}: {error!r}"


def _context(config: Mapping[str, str], stored: Mapping[bytes, SourceOffset]) -> TaskContext:
    converter = ConverterSpec(kind="json", options={"schemas.enable": "false"})
    return TaskContext(
        connector=config.get("name", "conformance"),
        task=0,
        config=config,
        bootstrap_servers="",
        client_config={},
        key_converter=converter,
        value_converter=converter,
        offsets=lambda partition: stored.get(_key(partition)),
        stopping=lambda: False,
        report=lambda facts: None,
    )


# --------------------------------------------------------------------- sources


def _same(record: Record) -> Any:
    return (record.topic, record.key, record.value)


@dataclass(slots=True)
class _Life:
    """One life of a source's task, from its start to its stop."""

    outputs: list[SourceOutput]
    spelled: list[bytes]  # partition and offset of each as they were when it was yielded
    ended: bool = False


def problems_of_source(
    plugin: Plugin,
    config: Mapping[str, str],
    *,
    count: int = 10,
    offsets: Sequence[tuple[SourcePartition, SourceOffset]] = (),
    wrong: Wrong | None = None,
    same: Callable[[Record], Any] = _same,
    resumes: bool = True,
    timeout_s: float = TIMEOUT_S,
) -> list[Broken]:
    """What a source does not do as it must.

    It is run until it has yielded `count` records; its input has to yield the same ones again after a restart, where
    `same` says what of a record is compared (topic, key and value). `offsets` are stored when it first starts. With
    `resumes=False` it may begin again after a restart, because nothing can be resumed. `wrong` has wrong values of
    settings.
    """
    found = problems_of_settings(plugin, config, wrong=wrong)
    if any(each.behaviour == "settings-accepted" for each in found):
        return found
    source = _Source(plugin, config, timeout_s)
    before = {_key(partition): offset for partition, offset in offsets}
    found += source.rests(before)
    try:
        life = source.live(count, before)
    except Exception as error:
        return [*found, Broken(behaviour="yields", why=f"running it: {error!r}")]
    records = [record for output in life.outputs for record in _records(output)]
    if len(records) < count:
        found.append(Broken(behaviour="yields", why=f"{len(records)} records instead of {count}"))
    found += source.problems
    found += _valid(life)
    if resumes and not any(each.behaviour.startswith("offsets") for each in found):
        found += source.resumes(life, before, same)
    return list(dict.fromkeys(found))


class _Source:
    """A source under test."""

    def __init__(self, plugin: Plugin, config: Mapping[str, str], timeout_s: float) -> None:
        self._plugin = plugin
        self._config = config
        self._timeout_s = timeout_s
        self.problems: list[Broken] = []

    def _made(self) -> SourceTask:
        task = self._plugin.task(parse_settings(self._plugin, self._config))
        if not isinstance(task, SourceTask):
            raise TypeError(f"{self._plugin.name} is not a source")
        return task

    def rests(self, stored: Mapping[bytes, SourceOffset]) -> Iterator[Broken]:
        """It can be started and stopped without a poll between, as by a connector that is paused and deleted."""
        yield from _rests(self._made(), self._config, stored)

    def live(self, count: int, stored: Mapping[bytes, SourceOffset], *, until: "_Rest | None" = None) -> _Life:
        """Run it from stored offsets on until there are `count` records, or all that are waited for."""
        task, life, hand = self._made(), _Life([], []), _Hand()
        deadline = time.monotonic() + self._timeout_s
        records = 0
        try:
            hand("start", lambda: task.start(_context(self._config, stored)))
            while (records < count if until is None else not until.seen) and time.monotonic() < deadline:
                try:
                    outputs = hand("poll", task.poll)
                except RetryAfter as later:
                    time.sleep(min(later.seconds, 1.0))
                    continue
                for output in outputs:
                    life.outputs.append(output)
                    life.spelled.append(_spelled(output))
                    found = list(_records(output))
                    records += len(found)
                    if until is not None:
                        until.see(found)
        except EndOfInput:
            life.ended = True
        finally:
            self.problems += _stopped(hand, task, "stop")
            self.problems += _polled_after(hand, task)
            hand.leave()
        return life

    def resumes(
        self, first: _Life, before: Mapping[bytes, SourceOffset], same: Callable[[Record], Any]
    ) -> Iterator[Broken]:
        """After a restart from each offset that may be stored, all that followed it comes; what came before may."""
        stored = dict(before)
        points = []
        for index, output in enumerate(first.outputs):
            if (
                isinstance(output, (Record, EncodedBatch))
                and output.partition is not None
                and output.offset is not None
            ):
                stored[_key(output.partition)] = orjson.loads(orjson.dumps(dict(output.offset)))
                points.append((index, dict(stored)))
        if not points:
            yield Broken(behaviour="resumes", why="nothing it yields has a partition and an offset")
        for index, offsets in _spread(points, RESTARTS_MAX):
            after = [same(record) for output in first.outputs[index + 1 :] for record in _records(output)]
            rest = _Rest(after, same)
            try:
                self.live(0, offsets, until=rest)
            except Exception as error:
                yield Broken(behaviour="resumes", why=f"from {list(offsets.values())} on: {error!r}")
                return
            if not rest.seen:
                where = list(offsets.values())
                yield Broken(behaviour="resumes", why=f"restarted from {where} it skips {rest.missing[0]!r}")
                return


class _Rest:
    """The records that have to come, in any order, others between them."""

    def __init__(self, wanted: Sequence[Any], same: Callable[[Record], Any]) -> None:
        self.missing = list(wanted)
        self._same = same

    @property
    def seen(self) -> bool:
        """Whether all have come."""
        return not self.missing

    def see(self, records: Sequence[Record]) -> None:
        """Take note of records."""
        for record in records:
            with contextlib.suppress(ValueError):
                self.missing.remove(self._same(record))


def _records(output: SourceOutput) -> Iterator[Record]:
    """The records of an output; those of an encoded batch have bytes."""
    if isinstance(output, Record):
        yield output
        return
    for key, value in zip(output.keys, output.values, strict=False):
        yield Record(topic=output.topic, key=key, value=value, partition=output.partition, offset=output.offset)


def _spread(points: Sequence[Any], most: int) -> Sequence[Any]:
    """At most so many of them, the first and the last among them."""
    if len(points) <= most:
        return points
    return [points[round(each * (len(points) - 1) / (most - 1))] for each in range(most)]


def _key(partition: Mapping[str, Json]) -> bytes:
    return orjson.dumps(dict(partition), option=orjson.OPT_SORT_KEYS)


def _spelled(output: SourceOutput) -> bytes:
    return repr((output.partition, output.offset)).encode() if isinstance(output, (Record, EncodedBatch)) else b""


def _valid(life: _Life) -> Iterator[Broken]:
    """Outputs are what the contract says."""
    plain = make_converter(ConverterSpec(kind="json", options={"schemas.enable": "false"}))
    with_schema = make_converter(ConverterSpec(kind="json", options={"schemas.enable": "true"}))
    for output, spelled in zip(life.outputs, life.spelled, strict=True):
        if not isinstance(output, (Record, EncodedBatch)):
            yield Broken(behaviour="records-valid", why=f"it yields a {type(output).__name__}: {output!r}"[:500])
            continue
        if not isinstance(output.topic, str) or not output.topic:
            yield Broken(behaviour="records-valid", why=f"a record without a topic: {output!r}"[:500])
        if isinstance(output, EncodedBatch):
            yield from _valid_batch(output)
        else:
            for role, value, schema in (
                ("key", output.key, output.key_schema),
                ("value", output.value, output.value_schema),
            ):
                yield from _convertible(role, value, schema, with_schema if schema else plain)
        yield from _valid_offset(output, spelled)


def _convertible(role: str, value: Json, schema: Schema | None, converter: Any) -> Iterator[Broken]:
    if isinstance(value, bytes) and schema is None:
        return  # for the converter of bytes
    try:
        converter.encode(value, schema)
    except Exception as error:
        yield Broken(
            behaviour="records-valid", why=f"the JSON converter cannot write the {role} {value!r}: {error}"[:500]
        )


def _valid_batch(batch: EncodedBatch) -> Iterator[Broken]:
    size = len(batch.values)
    for name in ("keys", "headers", "timestamps_ms"):
        length = len(getattr(batch, name))
        if length != size and (length or name == "keys"):
            yield Broken(behaviour="records-valid", why=f"an encoded batch has {size} values and {length} {name}")
    for name in ("keys", "values"):
        if any(each is not None and not isinstance(each, bytes) for each in getattr(batch, name)):
            yield Broken(behaviour="records-valid", why=f"an encoded batch has {name} that are no bytes")


def _valid_offset(output: SourceOutput, spelled: bytes) -> Iterator[Broken]:
    for name, found in (("partition", output.partition), ("offset", output.offset)):
        if found is None:
            continue
        try:
            back = orjson.loads(orjson.dumps(dict(found)))
        except (TypeError, ValueError) as error:
            yield Broken(behaviour="offsets-serialisable", why=f"the {name} {found!r} cannot be JSON: {error}")
            continue
        if back != dict(found):
            yield Broken(behaviour="offsets-serialisable", why=f"the {name} {found!r} comes back from JSON as {back!r}")
    if output.offset is not None and output.partition is None:
        yield Broken(behaviour="offsets-placed", why=f"the offset {output.offset!r} has no partition")
    if _spelled(output) != spelled:
        yield Broken(
            behaviour="offsets-stable",
            why=f"{spelled.decode()} has become {_spelled(output).decode()}: yield a new map each time",
        )


# ----------------------------------------------------------------------- sinks


def problems_of_sink(
    plugin: Plugin,
    config: Mapping[str, str],
    records: Sequence[Record],
    *,
    read: Callable[[], Collection[Any]],
    of: Callable[[Record], Any] = lambda record: record.value,
    refused: Record | None = None,
    idempotent: bool = False,
    wrong: Wrong | None = None,
    big_batch: int = BIG_BATCH,
) -> list[Broken]:
    """What a sink does not do as it must.

    `read` returns what is in the target; after a flush `of` each of the `records` has to be there, and none of them may
    be refused. The last one comes only at the end of the big batch, so it should differ from the others. `idempotent`:
    a batch that comes twice is there once. `refused` is a record that the sink names in a `PartialFailure`.
    """
    found = problems_of_settings(plugin, config, wrong=wrong)
    if any(each.behaviour == "settings-accepted" for each in found):
        return found
    sink = _Sink(plugin, config, read, of)
    placed = _placed(records)
    found += sink.rests()
    before_last = placed[:-1] or placed  # the last is new at the end of the big batch, or nobody would see it missing
    found += sink.writes("batch-empty", [])
    found += sink.writes("flush", before_last)
    found += sink.writes_twice(before_last, idempotent=idempotent)
    cycled = itertools.islice(itertools.cycle(before_last), max(0, big_batch - 1))
    found += sink.writes("batch-big", _placed([*cycled, *records[-1:]], start=len(placed)))
    if refused is not None:
        found += sink.refuses(placed, refused)
    return list(dict.fromkeys(found))


class _Sink:
    """A sink under test."""

    def __init__(
        self,
        plugin: Plugin,
        config: Mapping[str, str],
        read: Callable[[], Collection[Any]],
        of: Callable[[Record], Any],
    ) -> None:
        self._plugin = plugin
        self._config = config
        self._read = read
        self._of = of

    def _made(self) -> SinkTask:
        task = self._plugin.task(parse_settings(self._plugin, self._config))
        if not isinstance(task, SinkTask):
            raise TypeError(f"{self._plugin.name} is not a sink")
        return task

    def rests(self) -> Iterator[Broken]:
        """It can be started and stopped without a record between."""
        yield from _rests(self._made(), self._config, {})

    def _life(
        self, behaviour: str, problems: list[Broken], batches: Sequence[Sequence[Record]], refused: dict[int, Exception]
    ) -> None:
        """Put, flush, look, close, stop, as the runtime does it."""
        task, hand = self._made(), _Hand()
        places = sorted({(str(each.topic), each.kafka_partition or 0) for batch in batches for each in batch})
        try:
            hand("start", lambda: task.start(_context(self._config, {})))
            hand("open", lambda: task.open(places))
            for batch in batches:
                self._put(hand, task, batch, problems, refused)
            hand("flush", task.flush)
            missing = self._missing([each for batch in batches for each in batch], refused)
            if missing:
                problems.append(Broken(behaviour=behaviour, why=f"after the flush {missing[0]!r} is not in the target"))
            hand("the second flush", task.flush)  # when partitions are taken away, right after another
            hand("close", lambda: task.close(places))
        except Exception as error:
            problems.append(Broken(behaviour=behaviour, why=_told("put, flush or close", error)))
        finally:
            problems += _stopped(hand, task, behaviour)
            hand.leave()

    def _put(
        self,
        hand: _Hand,
        task: SinkTask,
        batch: Sequence[Record],
        problems: list[Broken],
        refused: dict[int, Exception],
    ) -> None:
        try:
            hand("put", lambda: task.put(batch))
        except PartialFailure as failure:
            refused.update(failure.errors)
            problems += _indices(failure, batch)
            rest = [each for index, each in enumerate(batch) if index not in failure.errors]
            hand("put", lambda: task.put(rest))

    def _missing(self, records: Sequence[Record], refused: Mapping[int, Exception]) -> list[Any]:
        there = self._read() if records else ()
        wanted = {repr(self._of(each)): self._of(each) for index, each in enumerate(records) if index not in refused}
        return [each for each in wanted.values() if each not in there]

    def writes(self, behaviour: str, batch: Sequence[Record]) -> list[Broken]:
        """A batch is in the target after the flush."""
        problems: list[Broken] = []
        refused: dict[int, Exception] = {}
        self._life(behaviour, problems, [batch], refused)
        if refused:
            index, error = next(iter(refused.items()))
            why = f"{len(refused)} of {len(batch)} good records are refused, number {index!r} for {error!r}"
            problems.append(Broken(behaviour=behaviour, why=why))
        return problems

    def writes_twice(self, batch: Sequence[Record], *, idempotent: bool) -> list[Broken]:
        """A batch that was written before a crash and comes again after it."""
        before = len(self._read())
        problems = self.writes("redelivery", batch)
        after = len(self._read())
        if idempotent and after != before and not problems:
            problems.append(Broken(behaviour="redelivery", why=f"{before} became {after} by records that were there"))
        return problems

    def refuses(self, good: Sequence[Record], bad: Record) -> list[Broken]:
        """A record that cannot be written is named by its index, and the others can be written."""
        middle = len(good) // 2
        batch = _placed([*good[:middle], bad, *good[middle:]], start=1_000_000)
        problems: list[Broken] = []
        refused: dict[int, Exception] = {}
        self._life("partial-failure", problems, [batch], refused)
        if not problems and set(refused) != {middle}:
            why = f"of {len(batch)} records number {middle} is bad, it refuses {sorted(refused) or 'none'}"
            problems.append(Broken(behaviour="partial-failure", why=why))
        return problems


def _indices(failure: PartialFailure, batch: Sequence[Record]) -> Iterator[Broken]:
    for index in failure.errors:
        if not isinstance(index, int) or not 0 <= index < len(batch):
            why = f"it refuses record {index!r} of a batch of {len(batch)}"
            yield Broken(behaviour="partial-failure", why=why)


def _placed(records: Sequence[Record], start: int = 0) -> list[Record]:
    """The records as they come out of a topic."""
    return [
        replace(each, topic=each.topic or "conformance", kafka_partition=0, kafka_offset=start + index)
        for index, each in enumerate(records)
    ]
