"""Searches take turns in their thread; what changes under one makes it begin anew, and no failure is another's"""

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.broker.log.log_world import NOW_MS, LogWorld, batch
from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.lookup import Found, LogView, Search, first_at_or_after
from tidemill.broker.log.lookup_queue import SLICE_S, LookupQueue
from tidemill.broker.log.partition import PartitionLog
from tidemill.core.errors import KafkaStorageError
from tidemill.core.runtime.threads import OsThreads


@pytest.fixture
def queue() -> Iterator[LookupQueue]:
    made = LookupQueue(time.monotonic, OsThreads().pool("lookup"))
    yield made
    made.close()


async def log_of(batches: int, segment_bytes: int = 300) -> PartitionLog:
    log = LogWorld(SimulatedDisk().root, LogConfig(segment_bytes=segment_bytes)).open()
    for number in range(batches):
        await log.durable(log.append(batch(timestamp=NOW_MS + number), now_ms=NOW_MS).last_offset)
    return log


async def until(is_so: Callable[[], bool]) -> None:
    """Let the event loop run until something is the case."""
    for _ in range(5000):
        if is_so():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never was")


def steps(view: LogView, *, name: str, told: list[str], count: int, holds_batch: bool = False) -> Search:
    """A search of so many slices."""
    for _ in range(count):
        told.append(name)
        time.sleep(1.1 * SLICE_S)
        yield holds_batch
    return (len(view.segments), view.log_start)


async def test_what_a_search_finds_is_the_answer(queue: LookupQueue) -> None:
    log = await log_of(20)
    found = await asyncio.gather(*(queue.ask(log, partial(first_at_or_after, timestamp=NOW_MS + n)) for n in range(21)))
    assert found == [*((NOW_MS + n, n) for n in range(20)), None]


async def test_searches_take_turns_but_not_with_one_that_holds_a_batch(queue: LookupQueue) -> None:
    log, told = await log_of(1), list[str]()
    asked = [queue.ask(log, partial(steps, name=name, told=told, count=3, holds_batch=name == "b")) for name in "abc"]
    await asyncio.gather(*asked)
    assert "".join(told) == "abbbcacac"


async def test_one_that_nobody_waits_for_is_dropped(queue: LookupQueue) -> None:
    log, told, dropped = await log_of(1), list[str](), list[str]()

    def endless(view: LogView) -> Search:
        try:
            yield from steps(view, name="a", told=told, count=10**6)
        finally:
            dropped.append("a")
        return None

    first, second = queue.ask(log, endless), queue.ask(log, partial(steps, name="b", told=told, count=3))
    await until(lambda: len(told) >= 3)
    first.cancel()
    await second
    await until(lambda: bool(dropped))
    assert told.count("a") < 20


async def test_a_search_begins_anew_when_segments_go(queue: LookupQueue) -> None:
    log, told = await log_of(10), list[str]()
    segments = len(log.segments)
    asked = queue.ask(log, partial(steps, name="a", told=told, count=5))
    await until(lambda: bool(told))
    log.advance_log_start(log.segments[2].base_offset)
    for gone in log.detach_segments(2):
        gone.close()
    assert await asked == (segments - 2, log.log_start_offset)
    assert len(told) > 5


async def test_an_error_over_segments_that_went_is_no_error(queue: LookupQueue) -> None:
    log, told = await log_of(10), list[str]()

    def reading(view: LogView) -> Search:
        yield from steps(view, name="a", told=told, count=2)
        if len(view.segments) > len(log.segments):
            raise FileNotFoundError(2, "No such file")
        return (len(view.segments), 0)

    asked = queue.ask(log, reading)
    await until(lambda: bool(told))
    log.advance_log_start(log.segments[1].base_offset)
    log.detach_segments(1)
    assert await asked == (len(log.segments), 0)


async def test_a_failure_is_told_to_the_one_who_asked_and_to_nobody_else(queue: LookupQueue) -> None:
    log = await log_of(3)

    def failing(_view: LogView, error: Exception) -> Search:
        yield False
        raise error

    asked: list[asyncio.Future[Found]] = [
        queue.ask(log, partial(failing, error=OSError(5, "Input/output error"))),
        queue.ask(log, partial(failing, error=ValueError("unexpected"))),
        queue.ask(log, partial(first_at_or_after, timestamp=NOW_MS + 1)),
    ]
    broken, unexpected, found = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(broken, KafkaStorageError) and "Input/output error" in str(broken)
    assert isinstance(unexpected, ValueError)
    assert found == (NOW_MS + 1, 1)


async def test_a_log_that_is_closed_ends_its_searches(queue: LookupQueue) -> None:
    log, told = await log_of(3), list[str]()
    asked = queue.ask(log, partial(steps, name="a", told=told, count=10**6))
    await until(lambda: bool(told))
    log.detach()
    with pytest.raises(KafkaStorageError, match="closed"):
        await asked
    with pytest.raises(KafkaStorageError, match="closed"):
        queue.ask(log, partial(first_at_or_after, timestamp=NOW_MS))


async def test_closing_ends_all_of_them(queue: LookupQueue) -> None:
    log, told = await log_of(3), list[str]()
    asked = [queue.ask(log, partial(steps, name=name, told=told, count=10**6)) for name in "ab"]
    await until(lambda: bool(told))
    log.detach()
    queue.close()
    for error in await asyncio.gather(*asked, return_exceptions=True):
        assert isinstance(error, KafkaStorageError)
