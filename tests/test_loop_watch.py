"""The watch over an event loop: what it blames on the process"""

import asyncio
import time

from tests.loop_watch import watched_loop


def work(seconds: float) -> None:
    """Use that much processor time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def test_work_on_the_loop_counts() -> None:
    async with watched_loop() as watch:
        work(0.08)
    assert 70 < watch.longest_own_ms <= watch.longest_ms
    assert watch.longest_busy_ms > 70


async def test_work_of_another_thread_that_keeps_the_interpreter_counts() -> None:
    async with watched_loop() as watch:
        await asyncio.to_thread(sum, range(10_000_000))  # one call in C, which never lets go
    assert watch.longest_own_ms > 50


async def test_a_pause_without_work_does_not_count_as_work() -> None:
    async with watched_loop() as watch:
        time.sleep(0.08)  # noqa: ASYNC251 - the loop is to be blocked
    assert watch.longest_ms > 70
    assert watch.longest_own_ms < 50
