"""An event loop whose time passes only when nothing else can happen"""

import asyncio
import random
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tidemill.core.runtime.virtual_time import REFUSED, NotSimulated, Standstill, VirtualLoop, current_place, place


def run(main: Coroutine[Any, Any, Any], loop: VirtualLoop | None = None) -> Any:
    """The result of `main` in a world of its own."""
    with asyncio.Runner(loop_factory=lambda: loop or VirtualLoop()) as runner:
        return runner.run(main)


def test_hours_pass_at_once() -> None:
    async def main() -> float:
        await asyncio.sleep(36_000)
        return asyncio.get_running_loop().time()

    assert run(main()) == 36_000


def test_what_is_due_at_one_moment_runs_in_the_order_in_which_it_was_asked_for() -> None:
    seen = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for name in "abc":
            loop.call_later(2, seen.append, name)
        loop.call_later(1, seen.append, "first")
        loop.call_soon(seen.append, "soon")
        await asyncio.sleep(2)
        seen.append("after")

    run(main())
    assert seen == ["soon", "first", "a", "b", "c", "after"]


def test_a_cancelled_timer_never_runs_and_holds_nothing_up() -> None:
    seen: list[str] = []

    async def main() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(5, seen.append, "no").cancel()
        late = loop.call_later(3, seen.append, "no")
        loop.call_later(2, late.cancel)
        await asyncio.sleep(4)
        return loop.time()

    assert run(main()) == 4
    assert seen == []


def test_a_timeout_ends_what_takes_longer() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7):
                await asyncio.Event().wait()
        async with asyncio.timeout(7):
            await asyncio.sleep(6.9)
        return loop.time()

    assert run(main()) == pytest.approx(13.9)


def test_tasks_groups_and_exceptions_are_those_of_asyncio() -> None:
    ended = []

    async def waits() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(asyncio.get_running_loop().time())

    async def fails() -> None:
        await asyncio.sleep(1)
        raise ValueError("no")

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(waits())
            tasks.create_task(fails())

    with pytest.raises(ExceptionGroup) as raised:
        run(main())
    assert isinstance(raised.value.exceptions[0], ValueError)
    assert ended == [1]


def test_an_exception_in_a_callback_goes_to_the_handler() -> None:
    told: list[dict[str, Any]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: told.append(context))
        loop.call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    run(main())
    assert [type(context["exception"]) for context in told] == [ZeroDivisionError]


def test_nobody_left_to_wake_anybody_is_an_error() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Standstill, match="everybody waits"):
        run(main())


def test_a_circle_without_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.core.runtime.virtual_time.TURNS_AT_ONCE_MAX", 100)

    async def main() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(Standstill, match="no time passes"):
        run(main())


def test_a_circle_of_timers_that_are_due_at_once_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.core.runtime.virtual_time.TURNS_AT_ONCE_MAX", 100)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        rounds = 0

        def again() -> None:
            nonlocal rounds
            rounds += 1
            if rounds < 1000:
                loop.call_later(0, again)

        again()
        await asyncio.sleep(1)

    with pytest.raises(Standstill, match="no time passes"):
        run(main())


def test_work_that_takes_time_makes_others_late() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        when = loop.create_future()
        loop.call_later(1, lambda: when.set_result(loop.time()))
        loop.spend(3)
        return float(await when)

    assert run(main()) == 3


def test_a_place_is_inherited_and_can_be_held() -> None:
    seen: list[tuple[str, float]] = []

    async def works() -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            seen.append((current_place(), asyncio.get_running_loop().time()))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        async with asyncio.TaskGroup() as tasks:
            for name in ("a", "b"):
                with place(name):
                    tasks.create_task(works())
            loop.call_later(1.5, loop.hold, "a")
            loop.call_later(10, loop.release, "a")

    run(main())
    assert seen == [("a", 1), ("b", 1), ("b", 2), ("b", 3), ("a", 10), ("a", 11)]
    assert current_place() == "localhost"


def test_work_of_threads_runs_on_the_loop_and_is_heard_of_later() -> None:
    async def main() -> tuple[float, float, str]:
        loop = asyncio.get_running_loop()
        with place("there"):
            began, where = await loop.run_in_executor(None, lambda: (loop.time(), current_place()))
        return began, loop.time(), where

    began, heard, where = run(main())
    assert 0 < began < heard
    assert where == "there"


def test_asyncio_to_thread_is_a_virtual_thread() -> None:
    async def main() -> int:
        with pytest.raises(KeyError):
            await asyncio.to_thread({}.__getitem__, "no")
        return await asyncio.to_thread(sum, (1, 2))

    assert run(main()) == 3


def test_real_threads_are_refused() -> None:
    async def main() -> None:
        with ThreadPoolExecutor() as pool:
            await asyncio.get_running_loop().run_in_executor(pool, print)

    with pytest.raises(NotSimulated, match="real threads"):
        run(main())


@pytest.mark.parametrize("name", REFUSED)
def test_what_only_an_operating_system_has_is_refused(name: str) -> None:
    loop = VirtualLoop()
    with pytest.raises(NotSimulated, match=name):
        getattr(loop, name)()
    loop.close()


def test_subprocesses_and_connections_without_a_network_are_refused() -> None:
    async def main() -> None:
        with pytest.raises(NotSimulated, match="subprocess_exec"):
            await asyncio.create_subprocess_exec("true")
        with pytest.raises(NotSimulated, match="no network"):
            await asyncio.open_connection("host", 1)

    run(main())


def trace(seed: int) -> list[str]:
    """What happens in a small world with chance in it."""
    seen = []
    rng = random.Random(seed)

    async def worker(name: str) -> None:
        loop = asyncio.get_running_loop()
        for step in range(5):
            await asyncio.sleep(rng.random())
            await asyncio.to_thread(seen.append, f"{loop.time():.9f} {name} {step}")

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for name in "abcd":
                tasks.create_task(worker(name))

    run(main(), VirtualLoop(rng))
    return seen


def test_one_seed_is_one_course_of_events() -> None:
    assert trace(1) == trace(1)
    assert trace(1) != trace(2)
