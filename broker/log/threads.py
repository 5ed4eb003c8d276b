"""The threads of a data folder

Each is an executor, so that a simulator can put steps of its own in their place. The flusher's thread is the only one
that touches files a round of fsync may be at work on: what closes or renames them queues there, in short pieces,
because every acknowledgement waits in the same queue. The file thread writes the folder's own small files, makes
partitions and removes what was deleted. The readers wait for the disk so that the event loop does not have to, and one
thread does searches by time.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from tidemill.core.runtime.threads import OS_THREADS, Threads

_Item = TypeVar("_Item")

READ_THREADS = 4  # reads from the disk at a time; more would only queue in the device
CREATE_THREADS = 8

OS_MAKERS = partial(OS_THREADS.pool, "make", CREATE_THREADS)
"""Threads of the operating system that make many partitions at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogThreads:
    """One worker each for `flush`, `files` and `lookups`, several for `reads`; `makers` are for one large task."""

    flush: Executor
    files: Executor
    reads: Executor
    lookups: Executor = field(default_factory=partial(OS_THREADS.pool, "lookup"))
    makers: Callable[[], Executor] = OS_MAKERS

    @classmethod
    def start(cls, threads: Threads = OS_THREADS) -> "LogThreads":
        """Threads of their own; the system has them once they have something to do."""
        return cls(
            flush=threads.pool("flush"),
            files=threads.pool("files"),
            reads=threads.pool("read", READ_THREADS),
            lookups=threads.pool("lookup"),
            makers=partial(threads.pool, "make", CREATE_THREADS),
        )

    def shutdown(self) -> None:
        """Let them finish what they have, and end them; `lookups` are ended before the logs are."""
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
