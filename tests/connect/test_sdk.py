"""Functions as plugins"""

import asyncio
import contextlib
import itertools
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from tidemill.connect import sdk
from tidemill.connect.api import (
    ConverterSpec,
    EncodedBatch,
    EndOfInput,
    InvalidConfig,
    Plugin,
    PluginKind,
    Record,
    RetryAfter,
    SinkTask,
    SourceOutput,
    SourceTask,
    TaskContext,
    Transform,
    ValueTransform,
)
from tidemill.connect.sdk import Pos, check, flush, sink, source, task_split, transform

DEADLINE_S = 20


class Cfg(BaseModel):
    """Settings of the test plugins."""

    count: int = 3
    tables: list[str] = []
    quiet: bool = False


def context(offsets: Mapping[str, Mapping[str, Any]] | None = None) -> TaskContext:
    stored = offsets or {}
    return TaskContext(
        connector="c",
        task=0,
        config={},
        bootstrap_servers="",
        client_config={},
        key_converter=ConverterSpec(kind="string"),
        value_converter=ConverterSpec(kind="string"),
        offsets=lambda partition: stored.get(partition["p"]),
        stopping=lambda: False,
        report=lambda facts: None,
    )


def started(plugin: Plugin, settings: BaseModel | None = None, **more: Any) -> SourceTask:
    task = plugin.task(settings or plugin.config())
    assert isinstance(task, SourceTask)
    task.start(context(**more))
    return task


def drain(task: SourceTask) -> list[SourceOutput]:
    """Everything until the end of the input."""
    found: list[SourceOutput] = []
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            found += task.poll()
        except EndOfInput:
            return found
    raise AssertionError("the source did not end")


def record(n: int, value: Any = None) -> Record:
    return Record(topic="t", value=n if value is None else value, partition={"p": "x"}, offset={"n": n})


@source("numbers", version="1.2", aliases=["java.Numbers"], ignored=["old.setting"])
def numbers(cfg: Cfg, pos: Pos) -> Iterator[Record]:
    """Counts on from where it was."""
    start = (pos.get({"p": "x"}) or {"n": -1})["n"] + 1
    for n in range(start, cfg.count):
        yield record(n)


def test_a_source_is_a_plugin() -> None:
    assert (numbers.name, numbers.kind, numbers.version) == ("numbers", PluginKind.SOURCE, "1.2")
    assert (numbers.config, numbers.doc) == (Cfg, "Counts on from where it was.")
    assert (numbers.aliases, numbers.ignored) == (("java.Numbers",), ("old.setting",))


def test_a_decorated_function_can_still_be_called() -> None:
    """A unit test of a plugin needs nothing but the function."""
    assert list(numbers(Cfg(count=2), Pos())) == [record(0), record(1)]
    pos = Pos()
    pos.advance(record(0))
    assert list(numbers(Cfg(count=2), pos)) == [record(1)]

    written: list[Record] = []

    @sink("list", version="1")
    def to_list(batch: list[Record]) -> None:
        written.extend(batch)

    to_list([record(1)])
    assert written == [record(1)]


def test_a_source_yields_and_ends() -> None:
    task = started(numbers)
    assert drain(task) == [record(0), record(1), record(2)]
    task.stop()


def test_a_source_goes_on_from_its_offset() -> None:
    task = started(numbers, Cfg(count=9), offsets={"x": {"n": 6}})
    assert drain(task) == [record(7), record(8)]


def test_an_asynchronous_source() -> None:
    closed = threading.Event()

    @source("a", version="1")
    async def endless(ctx: TaskContext) -> AsyncIterator[SourceOutput]:
        assert ctx.connector == "c"
        try:
            yield record(0)
            yield EncodedBatch(topic="t", keys=[], values=[])
            await asyncio.sleep(600)
        finally:
            closed.set()

    task = started(endless)
    found: list[SourceOutput] = []
    while len(found) < 2:
        found += task.poll()
    assert found[0] == record(0)
    task.stop()
    assert closed.wait(DEADLINE_S), "the generator was not closed"


def test_what_an_asynchronous_source_works_with_is_closed_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "BUFFERED_MAX", 10)
    closed: list[str] = []
    full, over, slowly = threading.Event(), threading.Event(), threading.Event()

    async def connection(ctx: TaskContext) -> AsyncIterator[list[str]]:
        yield closed
        await asyncio.to_thread(slowly.wait, DEADLINE_S)
        closed.append("connection")
        over.set()

    @source("a", version="1", setup=connection)
    async def endless(opened: list[str]) -> AsyncIterator[SourceOutput]:
        try:
            for number in itertools.count():
                if number == 9:
                    full.set()
                yield record(number)
        finally:
            await asyncio.sleep(0)
            opened.append("generator")

    monkeypatch.setattr(sdk, "STOP_S", 0)
    task = started(endless)
    while not full.is_set():
        task.poll()
    task.stop()
    task.stop()  # once more, while it is being closed
    slowly.set()
    assert over.wait(DEADLINE_S), f"closed was only: {closed}"
    assert closed == ["generator", "connection"]


def test_a_slow_generator_does_not_hold_up_what_came_before() -> None:
    release = threading.Event()

    @source("slow", version="1")
    def slow() -> Iterator[Record]:
        yield record(0)
        release.wait(DEADLINE_S)
        yield record(1)

    task = started(slow)
    assert list(task.poll()) == [record(0)]
    begun = time.monotonic()
    assert list(task.poll()) == []
    assert time.monotonic() - begun < DEADLINE_S / 2
    release.set()
    assert drain(task) == [record(1)]


def test_the_buffer_is_bounded_and_stop_closes_the_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "BUFFERED_MAX", 10)
    made: list[int] = []
    closed = threading.Event()

    @source("fast", version="1")
    def fast() -> Iterator[Record]:
        try:
            for n in range(10**9):
                made.append(n)
                yield record(n)
        finally:
            closed.set()

    task = started(fast)
    first = task.poll()
    threading.Event().wait(0.1)
    assert len(made) <= len(first) + 11
    task.stop()
    assert closed.wait(DEADLINE_S)


@pytest.mark.parametrize(
    "large",
    [
        record(0, "x" * 100_000),
        record(0, {"rows": [{"text": "x" * 100_000}]}),
        EncodedBatch(topic="t", keys=[b"k"] * 100, values=[b"x" * 1_000] * 100),
    ],
    ids=["text", "nested", "encoded"],
)
def test_the_buffer_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch, large: SourceOutput) -> None:
    monkeypatch.setattr(sdk, "BUFFERED_BYTES_MAX", 250_000)
    made = []

    @source("wide", version="1")
    def wide() -> Iterator[SourceOutput]:
        for _ in range(50):
            made.append(1)
            yield large

    task = started(wide)
    first = task.poll()
    threading.Event().wait(0.1)
    assert len(first) <= 2
    assert len(made) <= len(first) + 3
    assert len(first) + len(drain(task)) == 50


def test_an_output_larger_than_the_buffer_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "BUFFERED_BYTES_MAX", 10)
    assert len(drain(started(numbers))) == 3


def test_retry_calls_the_function_again_with_what_it_has_yielded() -> None:
    starts: list[int] = []

    @source("flaky", version="1")
    def flaky(pos: Pos) -> Iterator[Record]:
        at = (pos.get({"p": "x"}) or {"n": -1})["n"] + 1
        starts.append(at)
        yield record(at)
        if at < 2:
            raise RetryAfter(0)

    task = started(flaky)
    found: list[SourceOutput] = []
    retries = 0
    while len(found) < 3:
        try:
            found += task.poll()
        except RetryAfter:
            retries += 1
    assert found == [record(0), record(1), record(2)]
    assert (starts, retries) == ([0, 1, 2], 2)


def one_map(pos: Pos, turns: range) -> Iterator[SourceOutput]:
    """Has one map for its offsets, the one that it is given if there is one, and counts on in it."""
    offset: Any = pos.get({"p": "x"}) or {"n": 0}
    for turn in turns:
        offset["n"] += 1
        if offset["n"] == 3 and turn == 2:
            raise RetryAfter(0)  # before it has yielded the third
        if turn % 2:
            yield EncodedBatch(topic="t", keys=[None], values=[b""], partition={"p": "x"}, offset=offset)
        else:
            yield Record(topic="t", partition={"p": "x"}, offset=offset)


def test_an_output_keeps_its_offset_when_the_generator_counts_on_in_its_map() -> None:
    """Else the offset of a record that is on its way would be that of one which nobody has sent yet."""

    @source("counting", version="1")
    def counting(pos: Pos) -> Iterator[SourceOutput]:
        yield from one_map(pos, range(10, 16))

    @source("counting", version="1")
    async def counting_async(pos: Pos) -> AsyncIterator[SourceOutput]:
        for each in one_map(pos, range(10, 16)):
            yield each

    for plugin in (counting, counting_async):
        assert [each.offset for each in drain(started(plugin))] == [{"n": n} for n in range(1, 7)]


@pytest.mark.parametrize("stored", [None, {"n": 0}])
def test_what_a_generator_has_not_yielded_is_not_where_it_goes_on(stored: dict[str, int] | None) -> None:
    @source("counting", version="1")
    def counting(pos: Pos) -> Iterator[SourceOutput]:
        yield from one_map(pos, range(next(lives), 5))

    lives = iter([0, 3])
    task = started(counting, offsets={} if stored is None else {"x": stored})
    found: list[SourceOutput] = []
    while len(found) < 4:
        with contextlib.suppress(RetryAfter):
            found += task.poll()
    assert [each.offset for each in found] == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]


def test_a_position_is_not_moved_by_who_counts_on_in_it() -> None:
    pos = Pos(lambda partition: stored)
    stored = {"n": 5}
    given: Any = pos.get({"p": "x"})
    given["n"] += 1
    assert pos.get({"p": "x"}) == {"n": 5}


@pytest.mark.parametrize("failure", [ZeroDivisionError("a bug"), EndOfInput("enough")])
def test_what_a_generator_raises_comes_after_what_it_yielded(failure: Exception) -> None:
    @source("failing", version="1")
    def failing() -> Iterator[Record]:
        yield record(0)
        raise failure

    task = started(failing)
    assert list(task.poll()) == [record(0)]
    with pytest.raises(type(failure)):
        task.poll()


def test_a_generator_that_exits_is_a_failure_and_no_silence() -> None:
    @source("leaving", version="1")
    def leaving() -> Iterator[Record]:
        yield record(0)
        sys.exit(0)

    task = started(leaving)
    assert list(task.poll()) == [record(0)]
    with pytest.raises(RuntimeError, match=r"the source ended its thread: SystemExit\(0\)"):
        task.poll()


def test_what_comes_while_a_poll_finds_nothing_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generator yields and ends between the look for outputs and what follows it."""
    monkeypatch.setattr(sdk, "POLL_S", 0.0)
    looked, ended = threading.Event(), threading.Event()

    @source("late", version="1")
    def late() -> Iterator[Record]:
        assert looked.wait(DEADLINE_S)
        yield record(1)

    def after_a_look(frame: Any, event: str, arg: Any) -> Any:
        if event == "return" and frame.f_code.co_name == "take" and not looked.is_set():
            looked.set()
            for thread in threading.enumerate():
                if thread.name == "generator":
                    thread.join(DEADLINE_S)
            ended.set()
        return after_a_look

    task = started(late)
    before = sys.gettrace()
    sys.settrace(after_a_look)
    try:
        outputs = list(task.poll())
    finally:
        sys.settrace(before)
    assert ended.is_set(), "nothing came between"
    assert outputs + drain(task) == [record(1)]


def test_yielding_something_else_is_a_mistake() -> None:
    @source("odd", version="1")
    def odd() -> Iterator[Any]:
        yield {"a": 1}

    with pytest.raises(TypeError, match="yields Record or EncodedBatch, not dict"):
        started(odd).poll()


def test_pos_knows_partitions_apart() -> None:
    pos = Pos(lambda partition: {"stored": partition["p"]})
    pos.advance(Record(partition={"p": "a"}, offset={"n": 1}))
    pos.advance(Record(partition={"p": "b"}, offset={"n": 2}))
    pos.advance(Record(partition={"p": "a"}, offset={"n": 3}))
    pos.advance(Record(partition={"p": "a"}))
    assert [pos.get({"p": each}) for each in "abc"] == [{"n": 3}, {"n": 2}, {"stored": "c"}]


# ----------------------------------------------------------------------- sinks


def put(plugin: Plugin, *batches: Sequence[Record]) -> None:
    task = plugin.task(plugin.config())
    assert isinstance(task, SinkTask)
    task.start(context())
    for batch in batches:
        task.put(batch)
    task.flush()
    task.stop()


def test_a_sink_takes_batches() -> None:
    taken: list[tuple[int, list[Record]]] = []

    @sink("memory", version="1")
    def memory(cfg: Cfg, batch: list[Record]) -> None:
        """Keeps everything."""
        taken.append((cfg.count, batch))

    put(memory, [record(0)], [record(1), record(2)])
    assert taken == [(3, [record(0)]), (3, [record(1), record(2)])]
    assert (memory.kind, memory.doc) == (PluginKind.SINK, "Keeps everything.")


def test_a_transform_is_a_function_of_a_record() -> None:
    @transform("mask", version="1", uses=["value"])
    def mask(cfg: Cfg, each: Record) -> Record | None:
        """Keeps small values."""
        return None if each.value > cfg.count else replace(each, key="seen")

    made = mask.task(Cfg(count=3))
    assert isinstance(made, Transform) and (made.uses_key, made.uses_value) == (False, True)
    assert made.apply([Record(value=3), Record(value=4)]) == [Record(key="seen", value=3), None]
    assert (mask.kind, mask.name, mask.doc) == (PluginKind.TRANSFORMATION, "mask", "Keeps small values.")
    assert mask(Cfg(count=1), Record(value=2)) is None


def test_a_transform_may_take_batches() -> None:
    @transform("batch", version="1")
    def batch(records: list[Record]) -> list[Record | None]:
        return [None, *records[1:]]

    made = batch.task(batch.config())
    assert isinstance(made, Transform) and made.apply([Record(value=1), Record(value=2)]) == [None, Record(value=2)]


def test_a_transform_may_take_values_alone() -> None:
    @transform("add", version="1", uses=["value"])
    def add(cfg: Cfg, rows: list[dict[str, int]]) -> list[dict[str, int] | None]:
        """Adds to small values."""
        return [{"n": row["n"] + cfg.count} if row["n"] < 5 else None for row in rows]

    made = add.task(Cfg(count=3))
    assert isinstance(made, ValueTransform) and (made.uses_key, made.uses_value) == (False, True)
    given = [Record(key=b"a", value={"n": 1}), Record(key=b"b"), Record(value={"n": 7})]
    assert made.apply(given) == [Record(key=b"a", value={"n": 4}), Record(key=b"b"), None]
    assert add(Cfg(count=1), [{"n": 1}]) == [{"n": 2}]


def test_as_many_values_come_back_as_were_given() -> None:
    @transform("few", version="1")
    def few(rows: list) -> list:  # type: ignore[type-arg]
        return rows[1:]

    @transform("none", version="1")
    def none(rows: list[int]) -> None: ...

    with pytest.raises(TypeError, match="1 values came back of 2"):
        few.task(few.config()).apply([Record(value=1), Record(value=2)])  # type: ignore[union-attr]
    with pytest.raises(TypeError, match="a NoneType came back, not a list of values"):
        none.task(none.config()).apply([Record(value=1)])  # type: ignore[union-attr]
    assert few.task(few.config()).apply([Record()]) == [Record()]  # type: ignore[union-attr]


def test_only_a_transform_takes_values() -> None:
    with pytest.raises(TypeError, match="must be annotated"):

        @sink("s", version="1")
        def keep(rows: list[dict[str, int]]) -> None: ...

    with pytest.raises(TypeError, match="can use nothing else"):

        @transform("t", version="1", uses=["key", "value"])
        def other(rows: list[dict[str, int]]) -> list[dict[str, int]]:
            return rows


def test_a_list_of_something_else_is_not_taken_for_values() -> None:
    def records_or_none(rows: list[Record | None]) -> None: ...
    def models(rows: list[Cfg]) -> None: ...
    def sequence(rows: Sequence[dict[str, int]]) -> None: ...
    def maybe(rows: list[int] | None) -> None: ...
    def two(rows: list[int], others: list[int]) -> None: ...

    for function in (records_or_none, models, sequence, maybe, two):
        with pytest.raises(TypeError, match=r"must be annotated .* or one list of values"):
            transform("t", version="1")(function)


def test_what_cannot_be_a_transform_is_told() -> None:
    def none(cfg: Cfg) -> None: ...
    def both(one: Record, several: list[Record]) -> None: ...
    def where(one: Record, pos: Pos) -> None: ...
    async def later(one: Record) -> None: ...

    for function in (none, both, where, later):
        with pytest.raises(TypeError, match="transform 't'"):
            transform("t", version="1")(function)
    with pytest.raises(TypeError, match="takes none"):

        @source("s", version="1")
        def numbers(one: Record) -> Iterator[Record]:
            yield one


def test_an_asynchronous_sink_has_one_loop() -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    @sink("async", version="1")
    async def push(batch: Sequence[Record]) -> None:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())

    put(push, [record(0)], [record(1)])
    assert len(loops) == 2
    assert loops[0] is loops[1]


def test_errors_of_a_sink_pass_through() -> None:
    @sink("failing", version="1")
    async def failing(batch: list[Record]) -> None:
        raise RetryAfter(3)

    with pytest.raises(RetryAfter):
        put(failing, [record(0)])


# ----------------------------------------------------------------------- hooks


def test_a_split_says_what_each_task_changes() -> None:
    @source("split", version="1")
    def split_me(cfg: Cfg) -> Iterator[Record]:
        yield record(0)

    @task_split(split_me)
    def split(cfg: Cfg, tasks_max: int) -> list[Any]:
        halves = [cfg.model_copy(update={"tables": cfg.tables[n::tasks_max], "quiet": True}) for n in range(tasks_max)]
        return [*halves, {"count": "7"}]

    assert split_me.split is not None
    assert split_me.split(Cfg(tables=["a", "b", "c"]), 2) == [
        {"tables": "a,c", "quiet": "true"},
        {"tables": "b", "quiet": "true"},
        {"count": "7"},
    ]
    assert split(Cfg(), 0) == [{"count": "7"}], "the function stays what it was"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_check_refuses_settings(asynchronous: bool) -> None:
    @sink("checked", version="1")
    def checked(cfg: Cfg, batch: list[Record]) -> None: ...

    def refuse(cfg: Cfg) -> None:
        if cfg.count < 0:
            raise InvalidConfig("count", "is negative.")

    async def refuse_later(cfg: Cfg) -> None:
        await asyncio.sleep(0)
        refuse(cfg)

    check(checked)(refuse_later if asynchronous else refuse)
    assert checked.check is not None
    checked.check(Cfg())
    with pytest.raises(InvalidConfig):
        checked.check(Cfg(count=-1))
    with pytest.raises(TypeError, match="has a check already"):
        check(checked)(refuse)


# -------------------------------------------------------------------- mistakes


def test_mistakes_are_found_when_the_module_is_loaded() -> None:
    with pytest.raises(TypeError, match="must be a generator"):

        @source("x", version="1")
        def no_generator(cfg: Cfg) -> list[Record]:
            return []

    with pytest.raises(TypeError, match=r"needs a parameter annotated list\[Record\]"):

        @sink("x", version="1")
        def no_batch(cfg: Cfg) -> None: ...

    with pytest.raises(TypeError, match="parameter 'what' must be annotated"):

        @sink("x", version="1")
        def unknown(what, batch: list[Record]) -> None: ...  # type: ignore[no-untyped-def]


def test_a_source_partition_says_where_it_stands_and_makes_its_records() -> None:
    pos = Pos(lambda partition: {"rows": 6} if partition == {"file": "a"} else None)
    here, elsewhere = pos.source_partition(file="a"), pos.source_partition({"file.name": "b"})
    assert (here.get("rows", 0), elsewhere.get("rows", 0), here.get("lines")) == (6, 0, None)
    made = here.record(topic="t", key="k", value=1, offset={"rows": 7})
    assert made == Record(topic="t", key="k", value=1, partition={"file": "a"}, offset={"rows": 7})
    pos.advance(made)
    assert here.get("rows", 0) == 7
    assert elsewhere.record(topic="t", offset={}).partition == {"file.name": "b"}


def test_what_cannot_be_a_sink_is_told() -> None:
    def positioned(pos: Pos, batch: list[Record]) -> None: ...
    def single(record: Record, batch: list[Record]) -> None: ...
    def yields(batch: list[Record]) -> Iterator[None]:
        yield

    for function, says in ((positioned, "no Pos"), (single, "no single Record"), (yields, "belongs into a setup")):
        with pytest.raises(TypeError, match=f"sink 's': {function.__name__} .*{says}"):
            sink("s", version="1")(function)


def test_what_cannot_be_a_flush_is_told() -> None:
    class Elsewhere(BaseModel):
        """Settings of another plugin."""

    @sink("s", version="1")
    def plain(cfg: Cfg, batch: list[Record]) -> None: ...

    def batched(batch: list[Record]) -> None: ...
    def other(cfg: Elsewhere) -> None: ...
    async def later() -> None: ...
    def right(cfg: Cfg, ctx: TaskContext) -> None: ...

    for function, says in ((batched, "neither records"), (other, "settings are Cfg"), (later, "asynchronous sink")):
        with pytest.raises(TypeError, match=f"flush of 's'.*{says}"):
            flush(plain)(function)
    with pytest.raises(TypeError, match="'numbers' is not"):
        flush(numbers)(right)
    assert flush(plain)(right) is right
    with pytest.raises(TypeError, match="has a flush already"):
        flush(plain)(right)
