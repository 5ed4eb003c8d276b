"""The threads of a data folder

Each is an executor, so that a simulator can put steps of its own in their place. The flusher's thread is the only one
that touches files a round of fsync may be at work on: what closes or renames them queues there, in short pieces,
because every acknowledgement waits in the same queue. The file thread writes the folder's own small files, makes
partitions and removes what was deleted. The readers wait for the disk so that the event loop does not have to.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

_Item = TypeVar("_Item")

READ_THREADS = 4  # reads from the disk at a time; more would only queue in the device
CREATE_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LogThreads:
    """One worker each for `flush` and `files`, several for `reads`."""

    flush: Executor
    files: Executor
    reads: Executor

    @classmethod
    def start(cls) -> "LogThreads":
        """Threads of their own; the system has them once they have something to do."""
        return cls(
            flush=ThreadPoolExecutor(max_workers=1, thread_name_prefix="tidemill-flush"),
            files=ThreadPoolExecutor(max_workers=1, thread_name_prefix="tidemill-files"),
            reads=ThreadPoolExecutor(max_workers=READ_THREADS, thread_name_prefix="tidemill-read"),
        )

    def shutdown(self) -> None:
        """Let them finish what they have, and end them."""
        for executor in (self.reads, self.files, self.flush):
            executor.shutdown()


def run_all(calls: Iterable[Callable[[], None]]) -> None:
    """Several calls as one piece of work for a thread; an error ends it."""
    for call in calls:
        call()


def run_each(calls: Iterable[Callable[[], None]]) -> None:
    """The same for calls that have nothing to do with one another: all are made, then the first error is raised."""
    failure: OSError | None = None
    for call in calls:
        try:
            call()
        except OSError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def parts_of(items: Sequence[_Item], count: int) -> Iterator[Sequence[_Item]]:
    """`items` in their order, at most `count` at a time: what a thread does at once is short."""
    for first in range(0, len(items), count):
        yield items[first : first + count]
