"""A turn ends by the clock"""

import asyncio

from tidemill.broker.log.turns import TURN_S, Turns


async def test_others_have_the_loop_when_a_turn_is_over_and_not_before() -> None:
    now = 0.0
    turns = Turns(lambda: now)
    others = 0

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    for _ in range(100):
        await turns.give_way()
    assert (turns.over, others) == (False, 0)
    now += TURN_S
    assert turns.over
    await turns.give_way()
    assert (turns.over, others) == (False, 1)
    now += TURN_S
    turns.begin()
    assert not turns.over
    task.cancel()
