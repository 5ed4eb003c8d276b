"""Delayed removal of files that a reader may still be in

What was deleted keeps its bytes for `file.delete.delay.ms` under a name that no start takes up, so that a reader in the
middle of it is not cut off. Then the file thread removes it; or when the folder is closed, whichever comes first.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

import structlog

log = structlog.get_logger("tidemill.broker.log")

Remove = Callable[[], None]


class DelayedRemovals:
    """What is still to be removed from one folder."""

    def __init__(self, file_thread: Executor) -> None:
        self._file_thread = file_thread
        self._timers: dict[int, tuple[asyncio.TimerHandle, Remove]] = {}
        self._last = 0

    def __len__(self) -> int:
        """How many wait for their time."""
        return len(self._timers)

    def later(self, delay_ms: int, remove: Remove) -> None:
        """Call `remove` in the file thread when `delay_ms` have passed."""
        if delay_ms == 0:
            self._file_thread.submit(_remove, remove)  # a timer without a delay is no timer to uvloop
            return
        self._last += 1
        handle = asyncio.get_running_loop().call_later(delay_ms / 1000, self._due, self._last)
        self._timers[self._last] = (handle, remove)

    def _due(self, number: int) -> None:
        _, remove = self._timers.pop(number)
        self._file_thread.submit(_remove, remove)

    def all_now(self) -> None:
        """Wait no longer: what is left is removed before anything that is handed to the file thread after this."""
        for handle, remove in self._timers.values():
            handle.cancel()
            self._file_thread.submit(_remove, remove)
        self._timers.clear()


def _remove(remove: Remove) -> None:
    try:
        remove()
    except OSError as error:
        log.warning("a deleted file could not be removed; the next start will", error=str(error))
