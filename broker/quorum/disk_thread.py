"""What waits for the disk, off the event loop

A file must not be closed under a thread that writes to it. So whoever waits for the thread and is cancelled waits for
its end all the same; `stopping` tells work that takes long that it is not needed any more.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

ResultT = TypeVar("ResultT")


class DiskThread:
    """Runs calls on `executor`; None is the event loop's own."""

    def __init__(self, executor: Executor | None) -> None:
        self._executor = executor
        self.stopping = False

    async def run(self, call: Callable[[], ResultT]) -> ResultT:
        """The result of `call`."""
        working = asyncio.get_running_loop().run_in_executor(self._executor, call)
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            self.stopping = True
            await asyncio.wait([working])
            if not working.cancelled():
                working.exception()  # whatever it was, nobody waits for it any more
            raise
