"""Tasks that end together"""

import asyncio

import pytest

from tidemill.broker.running import working


async def test_what_was_started_ends_with_the_body() -> None:
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(name)

    async with working() as start:
        start(work("a"))
        start(work("b"))
        await asyncio.sleep(0)
    assert sorted(ended) == ["a", "b"]


async def test_a_failure_ends_the_body_and_is_what_it_is() -> None:
    async def fail() -> None:
        raise ValueError("why")

    async def work() -> None:
        async with working() as start:
            start(fail())
            await asyncio.sleep(60)

    with pytest.raises(ValueError, match="why"):
        await work()


async def test_several_failures_are_told_together() -> None:
    async def fail(reason: str) -> None:
        raise ValueError(reason)

    async def work() -> None:
        async with working() as start:
            start(fail("one"))
            start(fail("two"))
            await asyncio.sleep(60)

    with pytest.raises(ExceptionGroup) as found:
        await work()
    assert len(found.value.exceptions) == 2
