"""Files that go later, at once, or at the end"""

import asyncio

from tests.broker.log.log_world import InlineExecutor
from tidemill.broker.log.removals import DelayedRemovals


async def test_what_waits_goes_in_its_time_or_at_the_end() -> None:
    removals, gone = DelayedRemovals(InlineExecutor()), list[str]()
    removals.later(0, lambda: gone.append("at once"))
    removals.later(1, lambda: gone.append("soon"))
    removals.later(60_000, lambda: gone.append("at the end"))
    assert (gone, len(removals)) == (["at once"], 2)
    for _ in range(500):
        if len(removals) == 1:
            break
        await asyncio.sleep(0.01)
    assert gone == ["at once", "soon"]
    removals.all_now()
    assert (gone, len(removals)) == (["at once", "soon", "at the end"], 0)


async def test_a_file_that_cannot_be_removed_is_left_to_the_next_start() -> None:
    removals, gone = DelayedRemovals(InlineExecutor()), list[str]()

    def failing() -> None:
        raise OSError(5, "Input/output error")

    removals.later(60_000, failing)
    removals.later(60_000, lambda: gone.append("the other"))
    removals.all_now()
    assert gone == ["the other"]


async def test_thousands_wait_without_a_walk_over_all_of_them() -> None:
    removals = DelayedRemovals(InlineExecutor())
    begun = asyncio.get_running_loop().time()
    for _ in range(20_000):
        removals.later(60_000, lambda: None)
    assert asyncio.get_running_loop().time() - begun < 5  # it was minutes when each went over those before it
    removals.all_now()
