"""Executors whose work is done on a virtual event loop"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tidemill.core.runtime.virtual_threads import VirtualExecutor, VirtualThreads
from tidemill.core.runtime.virtual_time import VirtualLoop

Main = Callable[[VirtualThreads], Coroutine[Any, Any, Any]]


def run(main: Main, seed: int = 1) -> Any:
    """The result of `main` with threads of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main(VirtualThreads(runner.get_loop(), random.Random(seed))))


async def ask(executor: VirtualExecutor, call: Callable[..., Any], *args: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(executor, call, *args)


def test_one_worker_keeps_the_order_and_several_do_not() -> None:
    async def order(threads: VirtualThreads, workers: int) -> list[int]:
        done: list[int] = []
        pool = threads.pool("p", workers)
        await asyncio.gather(*(ask(pool, done.append, number) for number in range(30)))
        return done

    assert run(lambda threads: order(threads, 1)) == list(range(30))
    shuffled = run(lambda threads: order(threads, 4))
    assert shuffled != list(range(30))
    assert sorted(shuffled) == list(range(30))


def test_an_error_is_that_of_the_work() -> None:
    async def main(threads: VirtualThreads) -> None:
        with pytest.raises(ZeroDivisionError):
            await ask(threads.pool("p"), lambda: 1 // 0)

    run(main)


def test_what_is_cancelled_before_it_begins_is_not_done() -> None:
    async def main(threads: VirtualThreads) -> list[str]:
        done: list[str] = []
        pool = threads.pool("p")
        first = asyncio.get_running_loop().run_in_executor(pool, done.append, "first")
        second = asyncio.get_running_loop().run_in_executor(pool, done.append, "second")
        second.cancel()
        await first
        await ask(pool, done.append, "third")
        return done

    assert run(main) == ["first", "third"]


def test_a_shutdown_that_waits_does_what_there_is() -> None:
    async def main(threads: VirtualThreads) -> list[int]:
        done: list[int] = []
        pool = threads.pool("p")
        futures = [asyncio.get_running_loop().run_in_executor(pool, done.append, number) for number in range(3)]
        pool.shutdown()
        assert done == [0, 1, 2]
        await asyncio.gather(*futures)
        with pytest.raises(RuntimeError, match="after shutdown"):
            pool.submit(done.append, 3)
        return done

    assert run(main) == [0, 1, 2]


def test_a_shutdown_that_cancels_leaves_what_has_not_begun() -> None:
    async def main(threads: VirtualThreads) -> list[int]:
        done: list[int] = []
        pool = threads.pool("p")
        futures = [asyncio.get_running_loop().run_in_executor(pool, done.append, number) for number in range(3)]
        pool.shutdown(wait=False, cancel_futures=True)
        await asyncio.wait(futures)
        return done

    assert run(main) == [0]


def test_threads_of_a_process_that_ended_do_nothing() -> None:
    async def main(threads: VirtualThreads) -> list[int]:
        done: list[int] = []
        pool = threads.pool("p")
        future = asyncio.get_running_loop().run_in_executor(pool, done.append, 1)
        threads.stop()
        with pytest.raises(asyncio.CancelledError):
            await future
        with pytest.raises(asyncio.CancelledError):
            await ask(pool, done.append, 2)
        return done

    assert run(main) == []


def test_map_is_done_at_once() -> None:
    async def main(threads: VirtualThreads) -> list[int]:
        with threads.pool("p", 3) as pool:
            return list(pool.map(lambda a, b: a + b, [1, 2], [10, 20]))

    assert run(main) == [11, 22]


def test_slow_threads_take_longer() -> None:
    async def took_s(threads: VirtualThreads, slowness: float) -> float:
        threads.slowness = slowness
        pool = threads.pool("p")
        for _ in range(20):
            await ask(pool, int)
        return asyncio.get_running_loop().time()

    quick, slow = (run(lambda threads, by=by: took_s(threads, by)) for by in (1.0, 100.0))
    assert slow == pytest.approx(quick * 100)


def test_only_executors_of_this_loop_are_its_own() -> None:
    one, other = VirtualLoop(), VirtualLoop()
    assert one.threads.owns(VirtualThreads(one, random.Random(1)).pool("p"))
    assert not one.threads.owns(other.threads.pool("p"))
    one.close()
    other.close()
