"""The watch over an event loop: what it blames on the process"""

import asyncio
import gc
import time
from pathlib import Path

from tests.loop_watch import HERTZ, Processors, watched_loop


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
        await asyncio.to_thread(sum, range(50_000_000))  # one call in C, which never lets go
    assert watch.longest_own_ms > 50


async def test_the_heap_of_before_does_not_count() -> None:
    heap: list[object] = [[] for _ in range(3_000_000)]
    async with watched_loop() as watch:
        gc.collect()
    assert watch.longest_own_ms < 50
    assert gc.get_freeze_count() == 0
    assert len(heap) == 3_000_000


async def test_a_pause_without_work_does_not_count_as_work() -> None:
    async with watched_loop() as watch:
        time.sleep(0.08)  # noqa: ASYNC251 - the loop is to be blocked
    assert watch.longest_ms > 70
    assert watch.longest_own_ms < 50


def test_the_processor_that_was_away_longest_tells_what_was_stolen(tmp_path: Path) -> None:
    account = tmp_path / "stat"
    account.write_text("cpu  9 0 9 9 0 0 0 30 0 0\ncpu0 4 0 4 4 0 0 0 10 0 0\ncpu1 5 0 5 5 0 0 0 20 0 0\nintr 7\n")
    processors = Processors(account)
    assert processors.stolen_s() == 0
    account.write_text("cpu  9 0 9 9 0 0 0 41 0 0\ncpu0 4 0 4 4 0 0 0 20 0 0\ncpu1 5 0 5 5 0 0 0 21 0 0\nintr 8\n")
    assert processors.stolen_s() * HERTZ == 10
    assert processors.stolen_s() == 0
    processors.close()


def test_a_system_without_that_account_tells_of_nothing_stolen(tmp_path: Path) -> None:
    processors = Processors(tmp_path / "none")
    assert processors.stolen_s() == 0
    processors.close()
