"""Work at an interval: one at a time, in spite of failures, until cancelled."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from broker.jobs import Job


async def run_until(stop: asyncio.Event, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` at a short interval until it sets `stop`."""
    task = asyncio.create_task(Job(name="work", interval_s=0.001, work=work).run())
    await asyncio.wait_for(stop.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_it_waits_an_interval_before_the_first_time() -> None:
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()

    task = asyncio.create_task(Job(name="work", interval_s=60, work=work).run())
    await asyncio.sleep(0.01)
    assert not begun.is_set()
    task.cancel()


async def test_it_runs_again_and_never_twice_at_a_time() -> None:
    stop = asyncio.Event()
    running, most, times = 0, 0, 0

    async def work() -> None:
        nonlocal running, most, times
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)  # longer than the interval
        running -= 1
        times += 1
        if times == 3:
            stop.set()

    await run_until(stop, work)
    assert most == 1


async def test_a_failure_is_reported_and_the_next_turn_comes() -> None:
    stop = asyncio.Event()
    turns = 0

    async def work() -> None:
        nonlocal turns
        turns += 1
        if turns == 1:
            raise OSError("disk full")
        stop.set()

    with capture_logs() as lines:
        await run_until(stop, work)
    assert [(line["log_level"], line["job"], line["reason"]) for line in lines] == [("error", "work", "disk full")]


async def test_a_job_in_work_is_cancelled() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await run_until(begun, work)
    assert ended.is_set()
