"""Work in order per key, keys side by side"""

import asyncio
from collections.abc import Callable

from tidemill.connect.herder.lanes import Lanes, Work


async def test_one_key_in_order_other_keys_meanwhile() -> None:
    done: list[str] = []
    gate, other_done = asyncio.Event(), asyncio.Event()

    def work(name: str, wait: bool = False) -> Callable[[], Work]:
        async def run() -> None:
            if wait:
                await gate.wait()
            done.append(name)
            if name == "b1":
                other_done.set()

        return run

    async with asyncio.TaskGroup() as tasks:
        lanes = Lanes(lambda coroutine, name: void(tasks.create_task(coroutine, name=name)))
        lanes.put("a", work("a1", wait=True))
        lanes.put("a", work("a2"))
        lanes.put("b", work("b1"))
        await other_done.wait()
        assert done == ["b1"]
        gate.set()
    assert done == ["b1", "a1", "a2"]


async def test_a_lane_opens_again_after_it_was_empty() -> None:
    done: list[int] = []

    noted = asyncio.Event()

    async def note(number: int) -> None:
        done.append(number)
        noted.set()

    async with asyncio.TaskGroup() as tasks:
        lanes = Lanes(lambda coroutine, name: void(tasks.create_task(coroutine, name=name)))
        lanes.put("a", lambda: note(1))
        await noted.wait()
        await asyncio.sleep(0)  # the lane ends in the turn after its last work
        lanes.put("a", lambda: note(2))
    assert done == [1, 2]


def void(_: object) -> None:
    """A spawn function returns nothing."""
