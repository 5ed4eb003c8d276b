"""Producer ids come in blocks and are handed out one by one"""

import asyncio

from tidemill.broker.producer_ids import ProducerIds


async def test_ids_are_taken_in_order_and_a_block_is_fetched_once() -> None:
    blocks = iter([range(10, 13), range(40, 50)])
    asked = 0

    async def allocate() -> range:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return next(blocks)

    ids = ProducerIds(allocate)
    assert sorted(await asyncio.gather(*(ids.take() for _ in range(5)))) == [10, 11, 12, 40, 41]
    assert asked == 2


async def test_a_refused_block_is_asked_for_again() -> None:
    answers: list[range | Exception] = [OSError("full"), range(3)]

    async def allocate() -> range:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    ids = ProducerIds(allocate)
    try:
        await ids.take()
    except OSError:
        assert await ids.take() == 0
