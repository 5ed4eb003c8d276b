"""The listener: which clients are let in, and what they share

A `Server` accepts connections on one address, counts them against the limits, owns the tasks that their handlers need,
looks after the silent and the slow ones from time to time, and lets requests in work finish when it stops.

Every connection has limits, and reaching one stops the reading of that connection only: answers that the client does
not take, too many requests in work, a request that must be finished before the next may start. A connection has an
ordinary buffer of bounded size; larger ones share `queued.max.request.bytes`:

* A large request takes what its buffer will need with its first bytes, or waits, and holds it until it is answered, or
  until its batches are stored. If it dawdles while others wait for its share, it loses its connection.
* A grown buffer receives nothing but the large request that it has grown for. So between two of them it has at most an
  ordinary buffer's worth in it and can be replaced at any time: it stays, and stays counted, until the client has been
  silent for a while or until others need the memory. If the answer is still to be made, it goes with the request.

What else a connection can hold is bounded for each: requests in work by their number and size, a produced batch that
waits for the disk by the round of the flusher, what shortcuts remember by themselves. Of unsent answers each may have
the less the more connections there are, and the last one beyond it; record batches from 64 KiB up are pages of files.

Not here: how one connection is served (`connection`, and its machines `input_buffer` and `answer_queue`), and how one
becomes encrypted (`tls_door`).
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import structlog

from tidemill.broker.answer_queue import Hold
from tidemill.broker.connection import Connection
from tidemill.broker.dispatch import Dispatcher, Exchange
from tidemill.broker.listeners import ListenerSpec
from tidemill.broker.principals import ANONYMOUS, Principal, principal_of
from tidemill.broker.repeated_warnings import RepeatedWarnings
from tidemill.broker.request_meter import RequestMeter
from tidemill.broker.server_limits import ConnectionCounts, RequestMemory, ServerLimits
from tidemill.broker.standing import Standing
from tidemill.core.runtime.clock import SystemClock
from tidemill.core.runtime.listening import open_listening

if TYPE_CHECKING:
    from tidemill.broker.tls_door import TlsDoor
    from tidemill.broker.tls_watch import ListenerTls

log = structlog.get_logger("tidemill.broker.server")

PLAINTEXT = ListenerSpec(name="PLAINTEXT")
SEND_BUFFER_BYTES_MAX = 1024 * 1024  # beyond this much unsent response no further request is started; the share ...
SEND_BUFFER_BYTES_MIN = 64 * 1024  # ... of each connection becomes smaller as they become more
SWEEP_SECONDS_MAX = 5.0
BACKLOG = 512
TOO_MANY, NOBODY = WHY_REFUSED = ("too_many", "nobody")
"""Why a connection is refused: max.connections and max.connections.per.ip, or no principal for its certificate."""

DRAIN_SECONDS = 1.0  # how long requests in work may take to finish when the server stops; most fetches wait for less


class Server:
    """One listener; an async context manager that serves from enter to exit.

    Listeners of one broker share their `memory` and count connections together, in `counts`; requests are measured
    where there is a `meter`.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        host: str,
        port: int,
        spec: ListenerSpec = PLAINTEXT,
        tls: "ListenerTls | None" = None,
        limits: ServerLimits | None = None,
        memory: RequestMemory | None = None,
        counts: ConnectionCounts | None = None,
        monotonic: Callable[[], float] | None = None,
        meter: RequestMeter | None = None,
    ) -> None:
        self.dispatcher = dispatcher
        self.meter = meter
        self.spec = spec
        self.tls = tls
        self.handshakes_failed = 0
        self.refused = dict.fromkeys(WHY_REFUSED, 0)
        self.limits = limits or ServerLimits()
        self.memory = memory or RequestMemory(self.limits.queued_max_request_bytes)
        self.counts = counts or ConnectionCounts()
        self.monotonic = monotonic or SystemClock().monotonic
        self.connections: dict[Connection, None] = {}  # in the order in which they came
        self.connections_made = 0
        self.stopping = False
        self.drained = asyncio.Event()  # set whenever a connection may have nothing left in work
        self._host = host
        self._port = port
        self._door: asyncio.Server | TlsDoor | None = None
        self._tls_door: TlsDoor | None = None
        self._warnings = RepeatedWarnings()
        self._tasks = asyncio.TaskGroup()
        self._running: dict[asyncio.Task[None], None] = {}
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port that is listened on."""
        assert self._door is not None
        return int(self._door.sockets[0].getsockname()[1])

    @property
    def listener(self) -> str:
        """The listener's name."""
        return self.spec.name

    @property
    def at_the_door(self) -> int:
        """Connections that are not encrypted yet, and have to be."""
        return self._tls_door.waiting if self._tls_door is not None else 0

    @property
    def standing(self) -> Standing:
        """What a new connection may ask: all it wants, unless clients have to log in."""
        return Standing.UNKNOWN if self.spec.protocol.has_sasl else Standing.KNOWN

    async def __aenter__(self) -> "Server":
        if self.tls is None:
            self._door = await asyncio.get_running_loop().create_server(
                lambda: Connection(self), self._host or None, self._port, backlog=BACKLOG, reuse_address=True
            )
            await self._tasks.__aenter__()
        else:
            from tidemill.broker.tls_door import TlsDoor  # a broker that encrypts nothing starts without

            sockets = await open_listening(self._host, self._port, BACKLOG)
            await self._tasks.__aenter__()
            self._door = self._tls_door = TlsDoor(
                sockets,
                tasks=self._tasks,
                context=self.tls.context,
                connection=lambda: Connection(self),
                refused=self._handshake_failed,
                welcome=self._is_welcome,
            )
        self._sweeper = self._tasks.create_task(self._sweep())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self.stopping = True
        for connection in self.connections:
            connection.answers.hold(Hold.ENDING)
        assert self._door is not None
        self._door.close()
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
            self._refuse_one_more(client_host)
            return 0
        self.connections[connection] = None
        self.connections_made += 1
        return self.connections_made

    def identify(self, transport: asyncio.BaseTransport) -> Principal:
        """Who is at the other end, by the certificate that was shown; raises NoRuleMatches, CertificateUnreadable."""
        encrypted = transport.get_extra_info("ssl_object")
        shown = None if encrypted is None else encrypted.getpeercert(binary_form=True)
        if shown is None:
            return ANONYMOUS
        from tidemill.core.security.certificate import read_certificate

        try:
            return principal_of(read_certificate(shown).subject, self.spec.principal_rules)
        except ValueError:
            self.refused[NOBODY] += 1
            raise

    def warn(self, event: str, client_host: str, **facts: object) -> None:
        """One line in the log, unless there was the same about this client a moment ago."""
        untold = self._warnings.take((event, facts.get("reason"), client_host), self.monotonic())
        if untold is not None:
            more = {"since_then": untold} if untold else {}
            log.warning(event, client=client_host, listener=self.listener, **facts, **more)

    def _is_welcome(self, client_host: str, at_the_door: int) -> bool:
        if self.counts.has_room(client_host, self.limits, at_the_door):
            return True
        self._refuse_one_more(client_host)
        return False

    def _refuse_one_more(self, client_host: str) -> None:
        self.refused[TOO_MANY] += 1
        self.warn("connection refused: too many", client_host, connections=self.counts.count)

    def _handshake_failed(self, client_host: str, reason: str) -> None:
        self.handshakes_failed += 1
        self.warn("no connection: TLS", client_host, reason=reason)

    def leave(self, connection: Connection, client_host: str) -> None:
        """A connection is gone; one that was refused had never entered."""
        if connection in self.connections:
            del self.connections[connection]
            self.counts.leave(client_host)
            self.drained.set()

    def answer_bytes_share(self) -> int:
        """How much may wait in a connection, and as much again in its socket: a power of two, so it seldom changes."""
        share = self.memory.limit_bytes // (2 * max(self.counts.count, 1))
        return min(max(1 << (share.bit_length() - 1 if share else 0), SEND_BUFFER_BYTES_MIN), SEND_BUFFER_BYTES_MAX)

    def run(self, connection: Connection, exchange: Exchange) -> None:
        """Run a handler's coroutine; it always ends in an answer, wanted or not."""
        task = self._tasks.create_task(self._run(connection, exchange))
        self._running[task] = None
        task.add_done_callback(self._running.pop)

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
