"""Work that waits for the disk: its result, and its end before whoever began it goes away"""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tidemill.broker.quorum.disk_thread import DiskThread


async def test_the_result_or_the_error_comes_back() -> None:
    thread = DiskThread(None)
    assert await thread.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await thread.run(lambda: 1 // 0)
    assert not thread.stopping


async def test_who_is_cancelled_waits_for_the_end_and_says_that_it_is_not_needed() -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(10)
        ended.set()

    with ThreadPoolExecutor(1) as executor:
        thread = DiskThread(executor)
        asked = asyncio.ensure_future(thread.run(work))
        assert await asyncio.to_thread(begun.wait, 10)
        asked.cancel()
        await asyncio.sleep(0)
        assert thread.stopping
        assert not asked.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert ended.is_set()


async def test_an_error_that_nobody_waits_for_any_more_is_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(10)
        raise OSError

    thread = DiskThread(None)
    asked = asyncio.ensure_future(thread.run(work))
    assert await asyncio.to_thread(begun.wait, 10)
    asked.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert not caplog.records
