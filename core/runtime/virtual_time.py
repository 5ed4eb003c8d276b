"""An event loop whose time passes only when nothing else can happen

Ordinary asyncio code runs on it unchanged: tasks, timers, `asyncio.timeout`, executors and, where the loop was given a
network, servers and connections. Time is a number. When nothing is ready the clock jumps to the next timer, so an hour
of waiting costs nothing; callbacks run in the order in which they became due, those of one moment in the order in which
they were asked for. With one seed a program does the same in every run, and there is no thread, socket or sleep.

Code belongs to the place that it was started in (`place`): a name that every task, timer and callback inherits, as
processes on different machines would be told apart. `hold` stops all that belongs to one, as SIGSTOP would.

What a simulation cannot own (file descriptors, signals, subprocesses, threads) is refused with a sentence.

Not here: the network (`virtual_network`), threads that are none (`virtual_threads`), and disks.
"""

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, NoReturn, Protocol, TypeVar, cast

from tidemill.core.runtime.virtual_threads import VirtualThreads

TURNS_AT_ONCE_MAX: Final = 1_000_000
"""Rounds of callbacks without any time passing; a program that needs more waits for itself in a circle."""

_Result = TypeVar("_Result")

_PLACE: ContextVar[str] = ContextVar("tidemill_virtual_place", default="localhost")


class Standstill(RuntimeError):
    """Nothing is left that could ever happen, or things happen without an end while the clock stands still."""


class NotSimulated(RuntimeError):
    """The program asked for something that a simulated world does not have."""


class Network(Protocol):
    """Who makes servers and connections; `tidemill.core.runtime.virtual_network` has one."""

    async def listen(
        self, loop: "VirtualLoop", protocol_factory: Callable[[], asyncio.BaseProtocol], host: str | None, port: int
    ) -> asyncio.AbstractServer:
        """Serve at that address until the server is closed; raises OSError when it is taken."""

    async def connect(
        self, loop: "VirtualLoop", protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """A connection to whoever listens there; raises OSError."""


def current_place() -> str:
    """Where the running code belongs."""
    return _PLACE.get()


@contextmanager
def place(name: str) -> Iterator[None]:
    """What is started inside belongs to `name`."""
    token = _PLACE.set(name)
    try:
        yield
    finally:
        _PLACE.reset(token)


class _NumberedFuture(asyncio.Future[Any]):
    """A future with a place of its own in sets, the same in every process: asyncio goes through some."""

    _number = 0

    def __hash__(self) -> int:
        if not self._number:
            loop = self.get_loop()
            assert isinstance(loop, VirtualLoop)
            self._number = loop.next_number()
        return self._number


class _NumberedTask(asyncio.Task[Any]):
    """A task with such a place: those of a group are cancelled in the order of a set."""

    _number = 0
    __hash__ = _NumberedFuture.__hash__


class VirtualLoop(asyncio.BaseEventLoop):
    """One simulated world's event loop; `rng` decides how long threads take."""

    def __init__(self, rng: random.Random | None = None, *, network: Network | None = None) -> None:
        super().__init__()
        self._numbers = 0
        self._ended = False
        self.set_task_factory(_numbered_task)
        self._now = 0.0
        self._due: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_made = 0
        self._turns_at_once = 0
        self._held: dict[str, list[asyncio.Handle]] = {}
        self._network = network
        self.threads = VirtualThreads(self, rng or random.Random(0))

    def next_number(self) -> int:
        """One more than the last."""
        self._numbers += 1
        return self._numbers

    def create_future(self) -> "asyncio.Future[Any]":
        """A future that sets keep in the order of the numbers, in every process."""
        return _NumberedFuture(loop=self)

    # -- time

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._now

    def spend(self, seconds: float) -> None:
        """Let time pass while the running callback works: what became due meanwhile is late."""
        if seconds > 0:
            self._now += seconds
            self._turns_at_once = 0

    # -- places

    def hold(self, name: str) -> None:
        """Run nothing of this place until it is released; what becomes due meanwhile is kept in order."""
        self._held.setdefault(name, [])

    def release(self, name: str) -> None:
        """Let a place that was held go on; no error if it was not."""
        self._due.extend(self._held.pop(name, ()))

    # -- callbacks

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run `callback` in the next turn, in the order of the calls."""
        if self._ended:
            raise RuntimeError("Event loop is closed")
        handle = asyncio.Handle(callback, args, self, context)
        self._due.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """The same: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run `callback` when `time()` is `when`; after those that were asked for the same moment before."""
        if self._ended:
            raise RuntimeError("Event loop is closed")
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._timers_made += 1
        heapq.heappush(self._timers, (when, self._timers_made, handle))
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run `callback` after `delay` seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It stays where it is and is passed over."""

    def _run_once(self) -> None:
        """One turn; BaseEventLoop calls it until the loop is stopped."""
        if not self._due and not getattr(self, "_stopping", False):
            self._advance()
        self._turns_at_once += 1  # also where the next moment is this one
        if self._turns_at_once > TURNS_AT_ONCE_MAX:
            raise Standstill(f"{TURNS_AT_ONCE_MAX} turns of the loop at second {self._now}, and no time passes")
        while self._timers and self._timers[0][0] <= self._now:
            self._due.append(heapq.heappop(self._timers)[2])
        for _ in range(len(self._due)):
            handle = self._due.popleft()
            if handle.cancelled() or (self._held and self._keep(handle)):
                continue
            handle._run()

    def _keep(self, handle: asyncio.Handle) -> bool:
        kept = self._held.get(_context_of(handle).get(_PLACE, "localhost"))
        if kept is not None:
            kept.append(handle)
        return kept is not None

    def _advance(self) -> None:
        """Go to the next moment at which anything is due."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            raise Standstill(f"at second {self._now} everybody waits and nothing is due")
        when = self._timers[0][0]
        if when > self._now:
            self._now = when
            self._turns_at_once = 0

    def close(self) -> None:
        """Drop everything that was still to be done."""
        super().close()
        self._ended = True
        self._due.clear()
        self._timers.clear()
        self._held.clear()

    # -- threads, servers, connections

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., _Result], *args: Any
    ) -> "asyncio.Future[_Result]":
        """A virtual thread's work; raises NotSimulated for an executor with real ones."""
        if executor is None:
            executor = self.threads.default
        elif not self.threads.owns(executor):
            raise NotSimulated(
                f"{type(executor).__name__} has real threads: let the program take its executors from `loop.threads`"
            )
        return asyncio.wrap_future(executor.submit(func, *args), loop=self)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing to wait for."""

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        sock: object = None,
        **_options: object,
    ) -> asyncio.Server:
        """A server on the simulated network, without TLS; options of real sockets mean nothing here."""
        _plain(ssl=ssl, sock=sock)
        server = await self._net().listen(self, protocol_factory, host, port or 0)
        return cast(asyncio.Server, server)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        sock: object = None,
        **_options: object,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """A connection over the simulated network, without TLS."""
        _plain(ssl=ssl, sock=sock)
        return await self._net().connect(self, protocol_factory, host or current_place(), port or 0)

    def _net(self) -> Network:
        if self._network is None:
            raise NotSimulated("this world has no network: make the loop with VirtualLoop(network=VirtualNetwork(...))")
        return self._network


def _numbered_task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> "asyncio.Task[Any]":
    assert isinstance(loop, VirtualLoop)
    return _NumberedTask(coro, loop=loop, **options)


def _context_of(handle: asyncio.Handle) -> Context:
    """Where a callback runs; asyncio has a public name for it from Python 3.12 on."""
    return cast(Context, getattr(handle, "_context", None) or copy_context())


def _plain(*, ssl: object, sock: object) -> None:
    if ssl:
        raise NotSimulated("the simulated network has no TLS: use a listener without it")
    if sock is not None:
        raise NotSimulated("a socket of the operating system is not part of a simulated world: give a host and a port")


REFUSED: Final = (
    "add_reader",
    "remove_reader",
    "add_writer",
    "remove_writer",
    "add_signal_handler",
    "remove_signal_handler",
    "connect_accepted_socket",
    "connect_read_pipe",
    "connect_write_pipe",
    "create_datagram_endpoint",
    "create_unix_connection",
    "create_unix_server",
    "getaddrinfo",
    "getnameinfo",
    "sendfile",
    "sock_accept",
    "sock_connect",
    "sock_recv",
    "sock_recv_into",
    "sock_sendall",
    "sock_sendfile",
    "start_tls",
    "subprocess_exec",
    "subprocess_shell",
)
"""What an event loop of the operating system can do and this one cannot."""


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refused(self: VirtualLoop, *_args: object, **_options: object) -> NoReturn:
        raise NotSimulated(f"{name} is not part of a simulated world: run this on an ordinary event loop")

    refused.__name__ = name
    return refused


for _name in REFUSED:
    setattr(VirtualLoop, _name, _refuse(_name))
