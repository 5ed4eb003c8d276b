"""The listener: which clients are let in, and what they share

A `Server` accepts connections on one address, counts them against the limits, owns the tasks that their handlers need,
looks after the silent and the slow ones from time to time, and lets requests in work finish when it stops.

Every connection has limits, and reaching one stops the reading of that connection only: answers that the client does
not take, too many requests in work, a request that must be finished before the next may start. A connection has an
ordinary buffer of bounded size; larger ones share `queued.max.request.bytes`:

* A large request takes what its buffer will need with its first bytes, or waits, and holds it until it is answered. If
  it dawdles while others wait for its share, it loses its connection.
* A grown buffer receives nothing but the large request that it has grown for. So between two of them it has at most an
  ordinary buffer's worth in it and can be replaced at any time: it stays, and stays counted, until the client has been
  silent for a while or until others need the memory. If the answer is still to come, it goes with the request.

What else a connection can hold is bounded for each: requests in work by their number and size, a produced batch that
waits for the disk by the round of the flusher, what shortcuts remember by themselves. Of unsent answers each may have
the less the more connections there are, and the last one beyond it; record batches from 64 KiB up are pages of files.

Not here: how one connection is served (`connection`, and its machines `input_buffer` and `answer_queue`).
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import structlog

from tidemill.broker.answer_queue import Hold
from tidemill.broker.connection import Connection
from tidemill.broker.dispatch import Dispatcher, Exchange
from tidemill.broker.server_limits import ConnectionCounts, RequestMemory, ServerLimits
from tidemill.core.runtime.clock import SystemClock

log = structlog.get_logger("tidemill.broker.server")

SEND_BUFFER_BYTES_MAX = 1024 * 1024  # beyond this much unsent response no further request is started; the share ...
SEND_BUFFER_BYTES_MIN = 64 * 1024  # ... of each connection becomes smaller as they become more
SWEEP_SECONDS_MAX = 5.0
BACKLOG = 512
DRAIN_SECONDS = 1.0  # how long requests in work may take to finish when the server stops; most fetches wait for less


class Server:
    """One listener; an async context manager that serves from enter to exit.

    Listeners of one broker share their `memory` and count connections together, in `counts`.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        host: str,
        port: int,
        listener: str = "PLAINTEXT",
        limits: ServerLimits | None = None,
        memory: RequestMemory | None = None,
        counts: ConnectionCounts | None = None,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        self.dispatcher = dispatcher
        self.listener = listener
        self.limits = limits or ServerLimits()
        self.memory = memory or RequestMemory(self.limits.queued_max_request_bytes)
        self.counts = counts or ConnectionCounts()
        self.monotonic = monotonic or SystemClock().monotonic
        self.connections: set[Connection] = set()
        self.connections_made = 0
        self.stopping = False
        self.drained = asyncio.Event()  # set whenever a connection may have nothing left in work
        self._host = host
        self._port = port
        self._asyncio_server: asyncio.Server | None = None
        self._tasks = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port that is listened on."""
        assert self._asyncio_server is not None
        return int(self._asyncio_server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> "Server":
        loop = asyncio.get_running_loop()
        self._asyncio_server = await loop.create_server(
            lambda: Connection(self), self._host or None, self._port, backlog=BACKLOG, reuse_address=True
        )
        await self._tasks.__aenter__()
        self._sweeper = self._tasks.create_task(self._sweep())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self.stopping = True
        for connection in self.connections:
            connection.answers.hold(Hold.ENDING)
        assert self._asyncio_server is not None
        self._asyncio_server.close()
        try:
            await self._drain()
        finally:
            for connection in list(self.connections):
                connection.close()
            if self._sweeper is not None:
                self._sweeper.cancel()
            for task in list(self._running):
                task.cancel()
            await self._tasks.__aexit__(kind, error, trace)

    async def _drain(self) -> None:
        """Let requests in work finish, within limits."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while any(connection.answers for connection in self.connections):
                    self.drained.clear()
                    await self.drained.wait()

    def enter(self, connection: Connection, client_host: str) -> int:
        """The number of a new connection; 0 if it is one too many."""
        if self.stopping:
            return 0
        if not self.counts.enter(client_host, self.limits):
            log.warning("connection refused: too many", client=client_host, connections=self.counts.count)
            return 0
        self.connections.add(connection)
        self.connections_made += 1
        return self.connections_made

    def leave(self, connection: Connection, client_host: str) -> None:
        """A connection is gone; one that was refused had never entered."""
        if connection in self.connections:
            self.connections.discard(connection)
            self.counts.leave(client_host)
            self.drained.set()

    def answer_bytes_share(self) -> int:
        """How much may wait in a connection, and as much again in its socket: a power of two, so it seldom changes."""
        share = self.memory.limit_bytes // (2 * max(self.counts.count, 1))
        return min(max(1 << (share.bit_length() - 1 if share else 0), SEND_BUFFER_BYTES_MIN), SEND_BUFFER_BYTES_MAX)

    def run(self, connection: Connection, exchange: Exchange) -> None:
        """Run a handler's coroutine; it always ends in an answer, wanted or not."""
        task = self._tasks.create_task(self._run(connection, exchange))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, connection: Connection, exchange: Exchange) -> None:
        assert exchange.pending is not None
        try:
            response = await exchange.pending
        except asyncio.CancelledError as error:
            if self.stopping:
                connection.give_up(exchange)
                raise
            connection.finish(exchange, None, error)  # not this task was cancelled, but what it waited for
        except Exception as error:
            connection.finish(exchange, None, error)
        else:
            connection.finish(exchange, response, None)

    async def _sweep(self) -> None:
        """Look after every connection from time to time."""
        loop = asyncio.get_running_loop()
        while True:
            idle_ms = self.limits.connections_max_idle_ms
            limit_s = idle_ms / 1000 if idle_ms >= 0 else float("inf")
            await asyncio.sleep(min(limit_s / 4 + 0.01, SWEEP_SECONDS_MAX))
            now = loop.time()
            share = self.answer_bytes_share()
            for connection in list(self.connections):
                connection.look_after(now, idle_limit_s=limit_s, answer_bytes_max=share)
