"""Threads as a constructor argument

Who needs work done beside the event loop asks a `Threads` for an executor, by the name that it shows in a process list.
The operating system's come into being with their first work; those of a simulated world
(`tidemill.core.runtime.virtual_threads`) are none at all.
"""

from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Protocol


class Threads(Protocol):
    """Where executors come from."""

    def pool(self, name: str, workers: int = 1) -> Executor:
        """An executor with at most that many pieces of work in hand; its owner shuts it down."""
        ...


class OsThreads:
    """Threads of this process."""

    __slots__ = ()

    def pool(self, name: str, workers: int = 1) -> Executor:
        """An executor whose threads are called `tidemill-NAME`."""
        return ThreadPoolExecutor(max_workers=workers, thread_name_prefix=f"tidemill-{name}")


OS_THREADS = OsThreads()
"""Those of this process."""
