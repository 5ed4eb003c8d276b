"""Executors whose work is done on a virtual event loop

A worker takes the next piece of work when it has none, does all of it at one moment that the seed chooses, and its
owner hears of it a little later still: between any two of the three anything else may happen, as with real threads.
Work of one worker stays in order; several of one executor overtake one another.

`stop` is the end of the process that had the threads: what is not done yet never is.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from contextvars import Context, copy_context
from typing import Any, Final, TypeVar

_Result = TypeVar("_Result")

QUICK_S: Final = 0.001
"""Most work, a write or an fsync among other things, begins and ends within about that."""


class VirtualThreads:
    """All executors of one place; satisfies `tidemill.core.runtime.threads.Threads`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: random.Random) -> None:
        self._loop = loop
        self._rng = rng
        self._made: list[VirtualExecutor] = []
        self.slowness = 1.0
        """How many times longer everything takes; may be changed at any time."""
        self.default = self.pool("default", 4)

    def pool(self, name: str, workers: int = 1) -> "VirtualExecutor":
        """An executor with that many workers."""
        made = VirtualExecutor(self._loop, self._delay_s, name, workers)
        self._made.append(made)
        return made

    def owns(self, executor: Executor) -> bool:
        """Whether it works on this loop: another process of the world may have made it."""
        return isinstance(executor, VirtualExecutor) and executor.loop is self._loop

    def stop(self) -> None:
        """End all of them in the middle of whatever they were to do."""
        for executor in self._made:
            executor.stop()

    def _delay_s(self) -> float:
        scale = self._rng.choice((0.05, 0.3, 1.0, 1.0, 4.0)) * self.slowness
        return self._rng.random() * QUICK_S * scale


class _Work:
    """One call, where it belongs, and who waits for it."""

    __slots__ = ("call", "context", "future", "timer")

    def __init__(self, future: "Future[Any]", call: Callable[[], Any]) -> None:
        self.future = future
        self.call = call
        self.context: Context = copy_context()
        self.timer: asyncio.TimerHandle | None = None


class VirtualExecutor(Executor):
    """Workers that take turns on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, delay_s: Callable[[], float], name: str, workers: int) -> None:
        self.loop = loop
        self.name = name
        self._delay_s = delay_s
        self._idle = workers
        self._waiting: deque[_Work] = deque()
        self._in_hand: dict[_Work, None] = {}  # a worker has them, and has not begun
        self._done: dict[Future[Any], None] = {}  # and nobody has heard of it
        self._shut = self._stopped = False

    def submit(self, call: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> "Future[_Result]":
        """Have `call` done; raises RuntimeError after a shutdown."""
        if self._shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[_Result] = Future()
        if self._stopped:
            future.cancel()
            return future
        self._waiting.append(_Work(future, lambda: call(*args, **kwargs)))
        self._next()
        return future

    def map(
        self,
        fn: Callable[..., _Result],
        /,
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[_Result]:
        """At once and in order: who asks for it waits for it, in a thread of its own."""
        return iter([fn(*each) for each in zip(*iterables, strict=False)])

    def _next(self) -> None:
        if self._idle and self._waiting:
            self._idle -= 1
            work = self._waiting.popleft()
            self._in_hand[work] = None
            work.timer = self.loop.call_later(self._delay_s(), self._begin, work, context=work.context)

    def _begin(self, work: _Work) -> None:
        if self._in_hand.pop(work, work) is work:
            return  # it was done by a shutdown, or never will be
        self._done[work.future] = None
        tell = self._do(work)
        self.loop.call_later(self._delay_s(), self._end, work.future, tell, context=work.context)

    def _do(self, work: _Work) -> Callable[[], None]:
        """Do the work now; returns what lets its owner know."""
        future = work.future
        if self._stopped or not future.set_running_or_notify_cancel():
            return lambda: None
        try:
            result = work.call()
        except BaseException as error:
            failure = error
            return lambda: future.set_exception(failure)
        return lambda: future.set_result(result)

    def _end(self, future: "Future[Any]", tell: Callable[[], None]) -> None:
        self._idle += 1
        if not self._stopped:
            del self._done[future]
            tell()
        self._next()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take nothing more. With `wait` what there is is done now, as a caller would stand still until then."""
        self._shut = True
        if cancel_futures:
            self._cancel_waiting()
        if not wait:
            return
        todo = [*self._in_hand, *self._waiting]
        self._in_hand.clear()
        self._waiting.clear()
        for work in todo:
            if work.timer is not None:
                work.timer.cancel()
            self.loop.call_soon(self._do(work), context=work.context)

    def stop(self) -> None:
        """Nothing more is done and nobody hears of what was: whoever waits is cancelled."""
        self._stopped = True
        self._cancel_waiting()
        for work in self._in_hand:
            work.future.cancel()
        self._in_hand.clear()
        for future in self._done:
            if future.running():
                future.set_exception(CancelledError())
        self._done.clear()

    def _cancel_waiting(self) -> None:
        while self._waiting:
            self._waiting.popleft().future.cancel()
