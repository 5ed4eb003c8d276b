"""The throttle of the cleaner's thread, where it also notices a stop

The thread says how many bytes it has read or written; every few batches it waits as long as they are worth at the rate
that is allowed, at least for a moment, so that the event loop's thread gets the interpreter. A new rate ends a wait
that an old one began: nobody sits out an hour that an operator has just taken back.
"""

import threading
from collections.abc import Callable

PAUSE_EVERY_BYTES = 64 * 1024
"""Bytes between two looks at the throttle: about a millisecond of work on small records."""

PAUSE_S = 0.00005
"""Least length of a pause; it lets the event loop's thread have the interpreter at once."""


class CleaningStopped(Exception):
    """The broker is going down."""


class Pacer:
    """Keeps reads and writes together within so many bytes a second."""

    __slots__ = ("_bytes_per_second", "_changed", "_monotonic", "_paused_at", "_pending_bytes", "_stopped")

    def __init__(
        self, bytes_per_second: float, monotonic: Callable[[], float], changed: threading.Condition | None = None
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._monotonic = monotonic
        self._changed = changed or threading.Condition()
        self._stopped = False
        self._pending_bytes = 0
        self._paused_at = monotonic()

    def set_rate(self, bytes_per_second: float) -> None:
        """Allow so many bytes a second from now on; from any thread."""
        with self._changed:
            self._bytes_per_second = bytes_per_second
            self._changed.notify_all()

    def stop(self) -> None:
        """Let the work end where it next pauses; from any thread."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def __call__(self, size_bytes: int) -> None:
        """So many bytes were read or written; waits if that was too fast, raises CleaningStopped at the end."""
        self._pending_bytes += size_bytes
        if self._pending_bytes < PAUSE_EVERY_BYTES:
            return
        with self._changed:
            while not self._stopped:
                rest_s = self._pending_bytes / self._bytes_per_second - (self._monotonic() - self._paused_at)
                if not self._changed.wait(max(rest_s, PAUSE_S)):
                    break
            if self._stopped:
                raise CleaningStopped
        self._pending_bytes = 0
        self._paused_at = self._monotonic()
