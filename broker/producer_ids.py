"""Producer ids, handed out one by one from blocks of the cluster

The metadata quorum gives a broker a block of ids that no other broker will get; asking it for every single one would
put the quorum on the path of every new producer. Ids left over when the broker stops are never used, which is fine.
"""

import asyncio
from collections.abc import Awaitable, Callable


class ProducerIds:
    """The current block of one broker."""

    def __init__(self, allocate_block: Callable[[], Awaitable[range]]) -> None:
        self._allocate_block = allocate_block
        self._block = range(0)
        self._lock = asyncio.Lock()

    async def take(self) -> int:
        """An id that was never handed out before."""
        async with self._lock:  # one request for the next block, however many producers wait for it
            if not self._block:
                self._block = await self._allocate_block()
            taken, self._block = self._block[0], self._block[1:]
            return taken
