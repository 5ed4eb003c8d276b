"""One thing done in the background while the next is prepared

The warehouse job's commits: while one batch goes into the table, Spark already reads and decodes the next. There is one
place, so that at most two batches are in memory; who comes with the next one waits until the place is free.

That is safe because the table owns the offsets: a batch that Spark takes for done and that never reached the table is
read again by the next query. An error is told to whoever asks, again and again; nothing more is begun after it.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Background:
    """One thread that does one thing at a time."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._last: Future[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether something is being done."""
        return self._last is not None and not self._last.done()

    def check(self) -> None:
        """Raise what the last thing raised, if it has ended; never waits."""
        if self._last is not None and self._last.done():
            self._last.result()

    def start(self, action: Callable[[], None]) -> None:
        """Do something as soon as the last thing is done; raises what that raised, RuntimeError after `close`."""
        if self._last is not None:
            self._last.result()
        self._last = self._pool.submit(action)

    def close(self) -> BaseException | None:
        """Begin nothing more, wait for the last thing and return what it raised."""
        self._pool.shutdown(wait=True)
        return None if self._last is None else self._last.exception()
