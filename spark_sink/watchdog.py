"""A thread that acts when another one is no longer heard

Every question to the JVM waits for its answer without a limit, and a JVM that is stopped or chokes on its own garbage
gives none. The thread that asks cannot notice that; this one can.
"""

import threading
from collections.abc import Callable
from types import TracebackType


class Watchdog:
    """Calls `act` once, from its own thread, when there was no `beat` for `limit_s` seconds; 0 means never."""

    def __init__(self, limit_s: float, act: Callable[[], None]) -> None:
        self._limit_s = limit_s
        self._act = act
        self._heard = threading.Event()
        self._done = False
        self._thread: threading.Thread | None = None

    def beat(self) -> None:
        """Say that all is well."""
        self._heard.set()

    def __enter__(self) -> "Watchdog":
        if self._limit_s:
            self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done = True
        self._heard.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._heard.wait(self._limit_s):
            self._heard.clear()
            if self._done:  # asked after clearing, so that the last signal cannot be lost
                return
        self._act()
