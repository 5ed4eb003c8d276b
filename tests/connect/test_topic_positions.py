"""Positions of topics: as text, and waiting for them"""

import asyncio
from collections.abc import Mapping

import pytest

from tidemill.connect.topic_positions import TEXT_MAX, TopicPositions, decoded, encoded


class Followed:
    """A topic that is read when the test says so."""

    def __init__(self, applied: dict[int, int] | None = None) -> None:
        self.applied: dict[int, int] = applied or {}
        self._more = asyncio.Condition()

    async def read(self, partition: int, offset: int) -> None:
        async with self._more:
            self.applied[partition] = offset
            self._more.notify_all()

    async def reached(self, offsets: Mapping[int, int]) -> None:
        async with self._more:
            await self._more.wait_for(lambda: all(self.applied.get(each, -1) >= offsets[each] for each in offsets))


def test_what_is_told_is_what_was_read() -> None:
    positions = TopicPositions(config=Followed({0: 17}), offset=Followed({1: 3, 0: 5}))
    assert positions.position(offsets=False) == "config:0=17"
    assert positions.position(offsets=True) == "config:0=17;offset:0=5,1=3"


async def test_who_has_read_as_far_waits_for_nothing() -> None:
    positions = TopicPositions(config=Followed({0: 17}), offset=Followed())
    assert await positions.reached("config:0=17", 0)
    assert await positions.reached("config:", 0)


async def test_who_is_behind_waits_until_all_is_read() -> None:
    config, offset = Followed({0: 1}), Followed()
    positions = TopicPositions(config=config, offset=offset)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(positions.reached("config:0=2;offset:3=0", 30))
        await config.read(0, 2)
        await asyncio.sleep(0)
        assert not waiting.done()
        await offset.read(3, 0)
    assert waiting.result()


async def test_nobody_waits_longer_than_the_limit() -> None:
    positions = TopicPositions(config=Followed({0: 1}), offset=Followed())
    assert not await positions.reached("config:0=2", 0.01)


async def test_what_another_version_tells_beside_is_passed_over() -> None:
    positions = TopicPositions(config=Followed({0: 1}), offset=Followed())
    assert await positions.reached("config:0=1;future:9=9", 0)


@pytest.mark.parametrize(
    "text", ["", "config", "config:x", "config:0=-1", "config:0=٣", "config:0=1=2", ":" * TEXT_MAX + ":"]
)
async def test_what_is_no_position_is_not_waited_for(text: str) -> None:
    positions = TopicPositions(config=Followed(), offset=Followed())
    assert decoded(text) is None
    assert not await positions.reached(text, 30)


def test_a_position_is_read_as_it_was_written() -> None:
    told = {"config": {0: 2**62}, "offset": {number: number * 3 for number in range(500)}}
    assert decoded(encoded(told)) == told
