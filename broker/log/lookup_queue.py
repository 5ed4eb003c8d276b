"""Searches by time, one after the other in a thread of their own

A search is a generator of short steps (`lookup`). A slice of them runs in the thread, then the event loop has its turn:
that is when it gets the interpreter without having to ask for it, and when a search is dropped that nobody waits for
any more, or begun anew because its log has replaced or removed segments. Searches take turns, except that one which
holds the records of a batch goes on until it has let go of them. So whatever is asked at once, there is one batch in
memory, of `message.max.bytes`, and its records, of at most `DECOMPRESSED_BYTES_MAX`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from tidemill.core.errors import KafkaStorageError

from .lookup import Found, LogView, Search
from .partition import PartitionLog

Question = Callable[[LogView], Search]

SLICE_S = 0.001
"""As long as the event loop may have to wait for the interpreter."""


class _Lookup:
    """A question, how far the search for its answer has got, and who waits for it."""

    __slots__ = ("_log", "_monotonic", "_question", "_search", "_view", "answer", "holds_batch")

    def __init__(
        self, log: PartitionLog, question: Question, answer: "asyncio.Future[Found]", monotonic: Callable[[], float]
    ) -> None:
        self._log = log
        self._monotonic = monotonic
        self._question = question
        self.answer = answer
        self._begin()

    def _begin(self) -> None:
        self._view = self._log.view()
        self._search = self._question(self._view)
        self.holds_batch = False

    def advance(self) -> tuple[Found] | None:
        """In the thread: a slice of the search; what it found, in brackets, once it is done."""
        end = self._monotonic() + SLICE_S
        while True:
            try:
                self.holds_batch = next(self._search)
            except StopIteration as stop:
                return (stop.value,)
            if self._monotonic() >= end:
                return None

    def judge(self, slice_done: "asyncio.Future[tuple[Found] | None]") -> None:
        """On the event loop, after a slice: may it go on, and if it is over, can it be believed?"""
        error = slice_done.exception()
        if self._log.closed:
            self.fail(KafkaStorageError(f"{self._log.topic_partition} is closed"))
        elif self._log.changes != self._view.changes:  # segments are gone that it may have been reading
            self._search.close()
            self._begin()
        elif isinstance(error, OSError):
            self.fail(KafkaStorageError(f"cannot read {self._log.directory.path}: {error.strerror}"))
        elif error is not None:
            self.fail(error)
        elif (found := slice_done.result()) is not None and not self.answer.done():
            self.answer.set_result(found[0])

    def fail(self, error: BaseException) -> None:
        """Nothing will be found."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def drop(self) -> None:
        """Let go of everything; not while the thread is at work on it."""
        self._search.close()


class LookupQueue:
    """The searches in work; used on the event loop only."""

    def __init__(self, monotonic: Callable[[], float], thread: Executor) -> None:
        self._monotonic = monotonic
        self._thread = thread
        self._waiting: deque[_Lookup] = deque()
        self._is_busy = False

    def ask(self, log: PartitionLog, question: Question) -> "asyncio.Future[Found]":
        """What `question` finds in what is visible of `log` now; raises KafkaStorageError when the log is closed."""
        if log.closed:
            raise KafkaStorageError(f"{log.topic_partition} is closed")
        lookup = _Lookup(log, question, asyncio.get_running_loop().create_future(), self._monotonic)
        self._waiting.append(lookup)
        if not self._is_busy:
            self._next()
        return lookup.answer

    def _next(self) -> None:
        """Begin a slice of the search whose turn it is."""
        self._is_busy = False
        while self._waiting:
            lookup = self._waiting.popleft()
            if not lookup.answer.done():
                self._slice(lookup)
                return
            lookup.drop()

    def _slice(self, lookup: _Lookup) -> None:
        self._is_busy = True
        done = asyncio.get_running_loop().run_in_executor(self._thread, lookup.advance)
        done.add_done_callback(partial(self._sliced, lookup))

    def _sliced(self, lookup: _Lookup, done: "asyncio.Future[tuple[Found] | None]") -> None:
        lookup.judge(done)
        if lookup.answer.done():
            lookup.drop()
        elif lookup.holds_batch:
            self._slice(lookup)
            return
        else:
            self._waiting.append(lookup)
        self._next()

    def close(self) -> None:
        """End all searches; the logs must be closed."""
        for lookup in self._waiting:
            lookup.fail(KafkaStorageError("the logs are being closed"))
            lookup.drop()
        self._waiting.clear()
        self._thread.shutdown()  # waits for a slice, of which no more is made: its log is closed
