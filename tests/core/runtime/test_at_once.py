"""A future whose callbacks run in the turn that settles it"""

import asyncio
import gc
from typing import Any

import pytest

from tidemill.core.runtime.at_once import future_at_once


async def test_its_callbacks_have_run_when_it_is_settled() -> None:
    told: list[str] = []
    answer = future_at_once()
    answer.add_done_callback(lambda done: told.append(f"first {done.result()}"))
    answer.add_done_callback(lambda done: told.append(f"second {done.result()}"))
    answer.set_result("a")
    assert told == ["first a", "second a"]
    answer.add_done_callback(lambda _done: told.append("late"))
    assert told[2:] == ["late"]


async def test_so_they_have_when_it_fails_or_is_cancelled() -> None:
    told: list[object] = []
    failed, cancelled = future_at_once(), future_at_once()
    failed.add_done_callback(lambda done: told.append(str(done.exception())))
    cancelled.add_done_callback(lambda done: told.append(done.cancelled()))
    failed.set_exception(ValueError("no"))
    cancelled.cancel()
    assert told == ["no", True]


async def test_a_task_that_waits_for_one_is_told_that_it_cannot() -> None:
    with pytest.raises(RuntimeError, match="different loop"):
        await future_at_once()


async def test_a_failure_that_nobody_asks_for_is_told_to_the_event_loop() -> None:
    gc.collect()  # what tests before this one left
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
    forgotten = future_at_once()
    forgotten.set_exception(ValueError("no"))
    del forgotten
    gc.collect()
    assert [str(each["exception"]) for each in told] == ["no"]


async def test_a_callback_that_raises_keeps_nobody_from_going_on() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
    answer, heard = future_at_once(), []

    def raising(_done: object) -> None:
        raise OSError("gone")

    answer.add_done_callback(raising)
    answer.add_done_callback(lambda done: heard.append(done.result()))
    answer.set_result(1)
    assert heard == [1]
    assert [str(each["exception"]) for each in told] == ["gone"]
