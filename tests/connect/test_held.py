"""What a plugin's function works with: opened once, closed whatever happens."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from tidemill.connect.api import (
    ConverterSpec,
    EndOfInput,
    NotConnected,
    Record,
    RetryAfter,
    SinkTask,
    SourceTask,
    TaskContext,
)
from tidemill.connect.held import held, held_async, setup_of
from tidemill.connect.sdk import FunctionPlugin, Pos, flush, sink, source

DEADLINE_S = 20.0


class Cfg(BaseModel):
    """Settings of the test plugins."""

    name: str = "x"


class Other(BaseModel):
    """Settings of something else."""


class Box:
    """Stands for a connection; what happened to it is in `told`."""

    def __init__(self, told: list[str]) -> None:
        self.told = told


CONTEXT = TaskContext(
    connector="c",
    task=0,
    config={},
    bootstrap_servers="",
    client_config={},
    key_converter=ConverterSpec(kind="string"),
    value_converter=ConverterSpec(kind="string"),
    offsets=lambda partition: None,
    stopping=lambda: False,
    report=lambda facts: None,
)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def box(told: list[str]) -> Callable[..., Iterator[Box]]:
    def opened(cfg: Cfg, context: TaskContext) -> Iterator[Box]:
        told.append(f"open {cfg.name} of {context.connector}")
        yield Box(told)
        told.append("close")

    return opened


def started(plugin: FunctionPlugin[Any, Any]) -> Any:
    task = plugin.task(plugin.config())
    task.start(CONTEXT)
    return task


def sink_of(plugin: FunctionPlugin[Any, Any]) -> SinkTask:
    task = started(plugin)
    assert isinstance(task, SinkTask)
    return task


def test_a_sink_has_one_for_all_batches_and_closes_it_at_the_end(
    box: Callable[..., Iterator[Box]], told: list[str]
) -> None:
    @sink("s", version="1", setup=box)
    def to_box(box: Box, batch: list[Record]) -> None:
        box.told.append(f"put {len(batch)}")

    @flush(to_box)
    def commit(cfg: Cfg, box: Box) -> None:
        box.told.append(f"flush {cfg.name}")

    assert to_box.config is Cfg, "the settings of the setup are the plugin's"
    task = sink_of(to_box)
    task.put([Record()])
    task.put([Record(), Record()])
    task.flush()
    task.stop()
    assert told == ["open x of c", "put 1", "put 2", "flush x", "close"]


def test_an_asynchronous_sink_works_on_one_loop_from_setup_to_the_end(told: list[str]) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def opened() -> AsyncIterator[Box]:
        loops.append(asyncio.get_running_loop())
        yield Box(told)
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())

    @sink("s", version="1", setup=opened)
    async def to_box(box: Box, batch: list[Record]) -> None:
        loops.append(asyncio.get_running_loop())

    @flush(to_box)
    async def commit(box: Box) -> None:
        loops.append(asyncio.get_running_loop())

    task = sink_of(to_box)
    task.put([Record()])
    task.flush()
    task.stop()
    assert len(loops) == 4 and len(set(loops)) == 1 and loops[0].is_closed()


@pytest.mark.parametrize("failure", [NotConnected("away"), ZeroDivisionError(), RetryAfter(1)])
def test_a_sink_that_failed_is_closed_all_the_same(
    box: Callable[..., Iterator[Box]], told: list[str], failure: Exception
) -> None:
    @sink("s", version="1", setup=box)
    def to_box(box: Box, batch: list[Record]) -> None:
        raise failure

    task = sink_of(to_box)
    with pytest.raises(type(failure)):
        task.put([Record()])
    task.stop()
    assert told == ["open x of c", "close"]


def test_a_setup_that_cannot_be_done_yet_is_asked_again() -> None:
    attempts = []

    def opened() -> Iterator[Box]:
        attempts.append(1)
        if len(attempts) < 3:
            raise RetryAfter(0)
        yield Box([])

    @sink("s", version="1", setup=opened)
    async def to_box(box: Box, batch: list[Record]) -> None: ...

    task = to_box.task(Cfg())
    assert isinstance(task, SinkTask)
    for _ in range(2):
        with pytest.raises(RetryAfter):
            task.start(CONTEXT)
    task.start(CONTEXT)
    task.put([Record()])
    task.stop()
    assert len(attempts) == 3


def drained(task: SourceTask) -> list[Any]:
    found: list[Any] = []
    with contextlib.suppress(EndOfInput):
        while True:
            try:
                found += task.poll()
            except RetryAfter:
                found.append("retry")
    return found


def test_a_source_has_it_on_the_thread_it_runs_on(told: list[str]) -> None:
    """SQLite refuses a connection that another thread has opened."""

    def database() -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(":memory:")
        yield connection
        connection.close()
        told.append("close")

    @source("s", version="1", setup=database)
    def rows(connection: sqlite3.Connection) -> Iterator[Record]:
        yield Record(topic="t", value=connection.execute("SELECT 7").fetchone()[0])

    task = started(rows)
    assert [each.value for each in drained(task)] == [7]
    task.stop()
    assert told == ["close"]


def test_a_source_is_set_up_anew_after_a_retry(box: Callable[..., Iterator[Box]], told: list[str]) -> None:
    @source("s", version="1", setup=box)
    def rows(cfg: Cfg, pos: Pos, box: Box) -> Iterator[Record]:
        here = pos.source_partition(table="t")
        yield here.record(topic="t", offset={"n": here.get("n", 0) + 1})
        if here.get("n") < 2:
            raise RetryAfter(0)

    task = started(rows)
    found = drained(task)
    assert [each if each == "retry" else each.offset for each in found] == [{"n": 1}, "retry", {"n": 2}]
    assert told == ["open x of c", "close"] * 2


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_generator_of_a_stopped_source_is_closed_first(told: list[str], asynchronous: bool) -> None:
    closed = threading.Event()

    def opened() -> Iterator[Box]:
        yield Box(told)
        told.append("close")
        closed.set()

    @source("s", version="1", setup=opened)
    def endless(box: Box) -> Iterator[Record]:
        try:
            while True:
                yield Record(topic="t")
        finally:
            box.told.append("left")

    async def opened_async() -> AsyncIterator[Box]:
        yield Box(told)
        await asyncio.sleep(0)
        told.append("close")
        closed.set()

    @source("a", version="1", setup=opened_async)
    async def endless_async(box: Box) -> AsyncIterator[Record]:
        try:
            yield Record(topic="t")
            await asyncio.sleep(600)
        finally:
            box.told.append("left")

    task = started(endless_async if asynchronous else endless)
    assert task.poll()
    task.stop()
    assert closed.wait(DEADLINE_S)
    assert told == ["left", "close"]


def test_an_error_in_closing_does_not_hide_the_one_before() -> None:
    def broken() -> Iterator[Box]:
        yield Box([])
        raise OSError("cannot close")

    @source("s", version="1", setup=broken)
    def away(box: Box) -> Iterator[Record]:
        yield Record(topic="t")
        raise NotConnected("away")

    @source("s", version="1", setup=broken)
    def orderly(box: Box) -> Iterator[Record]:
        yield Record(topic="t")

    for plugin, failure in ((away, NotConnected), (orderly, OSError)):
        task = started(plugin)
        with pytest.raises(failure):
            drained(task)


def test_a_context_manager_is_a_setup_too() -> None:
    @contextlib.contextmanager
    def opened() -> Iterator[Box]:
        yield Box([])

    @sink("s", version="1", setup=opened)
    def to_box(box: Box, batch: list[Record]) -> None:
        box.told.append("put")

    task = sink_of(to_box)
    task.put([Record()])
    task.stop()


async def test_blocks_around_nothing() -> None:
    with held(None, {}) as found:
        assert found is None
    async with held_async(None, {}) as found:
        assert found is None


def test_what_cannot_be_a_setup_is_told() -> None:
    def returns() -> Box: ...  # type: ignore[empty-body]

    def bare():  # type: ignore[no-untyped-def]
        yield Box([])

    async def bare_async():  # type: ignore[no-untyped-def]
        yield Box([])

    for function, says in (
        (returns, "setup returns: it must be a generator"),
        (bare, r"setup bare: annotate what it yields, for example '-> Iterator\[Connection\]'"),
        (bare_async, r"-> AsyncIterator\[Connection\]"),
    ):
        with pytest.raises(TypeError, match=says):
            setup_of(function)


def test_what_does_not_fit_together_is_told(box: Callable[..., Iterator[Box]]) -> None:
    async def later() -> AsyncIterator[Box]:
        yield Box([])

    def positioned(pos: Pos) -> Iterator[Box]:
        yield Box([])

    def without(cfg: Cfg, batch: list[Record]) -> None: ...
    def other(cfg: Other, box: Box, batch: list[Record]) -> None: ...
    def plain(box: Box, batch: list[Record]) -> None: ...
    def strange(thing: int, box: Box, batch: list[Record]) -> None: ...

    for setup, function, says in (
        (box, without, "sink 's': setup opened: without has no parameter annotated Box"),
        (box, other, "takes Cfg, other takes Other"),
        (later, plain, "setup later is asynchronous: plain must be, too"),
        (positioned, plain, "takes settings and a TaskContext, nothing else"),
        (box, strange, "'thing' must be annotated .* or Box, which the setup yields"),
    ):
        with pytest.raises(TypeError, match=says):
            sink("s", version="1", setup=setup)(function)
