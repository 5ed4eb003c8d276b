"""Client connections: frames in, responses out in request order

One protocol object per connection, one buffer per connection. Requests are parsed where they were received and handed
to the dispatcher one after the other; a produced batch goes from this buffer to the file without a copy in between.
Answers may come back in any order and leave in the order of the requests.

Every connection has limits, and reaching one stops the reading of that connection only: answers that the client does
not take, too many requests in work, a request that must be finished before the next may start. A frame larger than
`socket.request.max.bytes` is refused by its size prefix, and the buffer grows with what has arrived, never with what
a prefix promises. What cannot be understood closes the connection that sent it, with one line in the log.

A connection has an ordinary buffer, of at most `BUFFER_BUSY_BYTES`. Larger ones share `queued.max.request.bytes`:

* A large request takes what its buffer will need with its first bytes, or waits, and holds it until it is answered. If
  it dawdles while others wait for its share, it loses its connection.
* A grown buffer receives nothing but the large request that it has grown for. So between two of them it has at most an
  ordinary buffer's worth in it and can be replaced at any time: it stays, and stays counted, until the client has been
  silent for a while or until others need the memory. If the answer is still to come, it goes with the request.

What else a connection can hold is bounded for each: requests in work by `PENDING_BYTES_MAX`, a produced batch that
waits for the disk by the round of the flusher, what shortcuts remember by themselves. Of unsent answers each may have
the less the more connections there are, and the last one beyond it; record batches from 64 KiB up are pages of files.

Not here: what a request means (`dispatch`, `handlers`), TLS, authentication.
"""

import asyncio
import contextlib
import socket
import struct
from collections import deque
from functools import partial
from typing import Any, cast

import structlog

from tidemill.broker.dispatch import Chunks, Dispatcher, DropConnection, Exchange, Peer, Shortcuts, UnservedRequest
from tidemill.broker.server_limits import ConnectionCounts, RequestMemory, ServerLimits

log = structlog.get_logger("tidemill.broker.server")

BUFFER_IDLE_BYTES = 4 * 1024  # of a connection that has not sent much yet, or not for a while: there may be thousands
BUFFER_BYTES = 64 * 1024  # holds a burst of small requests; requests larger than this are counted one by one
BUFFER_BUSY_BYTES = 128 * 1024  # of a connection that sends more than it holds: a tenth less CPU for batches of 16 KiB
BUFFER_KEPT_BYTES_MAX = 16 * 1024 * 1024  # one grown beyond this goes with the request that it was grown for
BUFFER_KEPT_SECONDS = 30.0  # and any larger than ordinary one when the client has been silent for so long
SEND_BUFFER_BYTES_MAX = 1024 * 1024  # beyond this much unsent response no further request is started; the share ...
SEND_BUFFER_BYTES_MIN = 64 * 1024  # ... of each connection becomes smaller as they become more
IN_FLIGHT_MAX = 1000  # requests of one connection in work; librdkafka has no limit of its own
PENDING_MAX = 64  # of those, requests whose answer is not known yet and may be large; clients have one fetch at a time
PENDING_BYTES_MAX = 64 * 1024  # of those, taken apart they are ten times as much; large ones are counted elsewhere
ARRIVAL_SECONDS = 30.0  # a large request may take so long to arrive, whatever its size ...
ARRIVAL_BYTES_PER_S = 64 * 1024  # ... and longer at this rate, if others wait for the memory that it holds
SWEEP_SECONDS_MAX = 5.0
BACKLOG = 512
DRAIN_SECONDS = 1.0  # how long requests in work may take to finish when the server stops; most fetches wait for less

_SIZE = struct.Struct(">i")
_CONGESTION_ON_LOOPBACK = b"cubic"  # BBR paces loopback traffic down to a fraction of what the kernel can do


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
    ) -> None:
        self.dispatcher = dispatcher
        self.listener = listener
        self.limits = limits or ServerLimits()
        self.memory = memory or RequestMemory(self.limits.queued_max_request_bytes)
        self.counts = counts or ConnectionCounts()
        self.connections: set[Connection] = set()
        self.connections_made = 0
        self.stopping = False
        self.drained = asyncio.Event()  # set whenever a connection has nothing left in work while stopping
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
                while any(connection.working for connection in self.connections):
                    self.drained.clear()
                    await self.drained.wait()

    def answer_bytes_share(self) -> int:
        """How much may wait in a connection, and as much again in its socket: a power of two, so it seldom changes."""
        share = self.memory.limit_bytes // (2 * max(self.counts.count, 1))
        return min(max(1 << (share.bit_length() - 1 if share else 0), SEND_BUFFER_BYTES_MIN), SEND_BUFFER_BYTES_MAX)

    def run(self, connection: "Connection", exchange: Exchange) -> None:
        """Run a handler's coroutine; it always ends in an answer, wanted or not."""
        task = self._tasks.create_task(self._run(connection, exchange))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, connection: "Connection", exchange: Exchange) -> None:
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
        """Close what is idle for too long or keeps others waiting; take back buffers that are too large for silence."""
        loop = asyncio.get_running_loop()
        while True:
            idle_ms = self.limits.connections_max_idle_ms
            limit_s = idle_ms / 1000 if idle_ms >= 0 else float("inf")
            await asyncio.sleep(min(limit_s / 4 + 0.01, SWEEP_SECONDS_MAX))
            now = loop.time()
            share = self.answer_bytes_share()
            for connection in list(self.connections):
                try:
                    self._look_after(connection, now, limit_s, share)
                except Exception:  # the others and the broker go on
                    connection.break_off()

    def _look_after(self, connection: "Connection", now: float, limit_s: float, share: int) -> None:
        connection.hold_answers(share)
        idle_s = connection.idle_seconds(now)
        if idle_s > limit_s:
            connection.expire()
        elif self.memory.is_short and connection.dawdles(now):
            connection.abort("a large request arrives too slowly while others wait for its memory")
        elif idle_s > BUFFER_KEPT_SECONDS:
            connection.shrink()


class Connection(asyncio.BufferedProtocol):
    """One client."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._dispatcher = server.dispatcher
        self._frame_bytes_max = server.limits.socket_request_max_bytes
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray(BUFFER_IDLE_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0  # of the first frame not yet started
        self._end = 0  # of the received bytes
        self._stop = BUFFER_IDLE_BYTES  # how far may be received: what has grown for a large request is for it alone
        self._large_end = 0  # of the large request that is being received; 0 if there is none
        self._exchanges: deque[Exchange] = deque()
        self._exclusive = False
        self._closing = False
        self._pending = 0  # exchanges whose answer is not known yet ...
        self._pending_bytes = 0  # ... and the size of those requests that are not large
        self._answered_bytes = 0  # of answers that cannot leave yet
        self._answer_bytes_max = 0
        self._send_buffer_full = False
        self._memory_taken = 0  # for the large request that is being received, or the buffer that one has left
        self._large_since = 0.0
        self._memory_awaited = 0
        self._reading_paused = False
        self._send_scheduled = False
        self._last_active = self._loop.time()
        self._peer = Peer(client_host="", listener=server.listener, connection_id="")
        self._shortcuts: Shortcuts = {}
        self._awaited: asyncio.Future[None] | None = None  # what the newest exchange of `_awaiting` is due after
        self._awaiting: list[Exchange] = []

    # -- life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept, unless there are too many already."""
        self._transport = cast(asyncio.Transport, transport)
        server = self._server
        address = transport.get_extra_info("peername") or ("", 0)
        local = transport.get_extra_info("sockname") or ("", 0)
        host = str(address[0])
        if server.stopping or not server.counts.enter(host, server.limits):
            if not server.stopping:
                log.warning("connection refused: too many", client=host, connections=server.counts.count)
            self._transport.abort()
            self._transport = None
            return
        server.connections_made += 1
        server.connections.add(self)
        self._peer = Peer(
            client_host=host,
            listener=server.listener,
            connection_id=f"{local[0]}:{local[1]}-{host}:{address[1]}-{server.connections_made}",
            server_host=str(local[0]),
            server_port=int(local[1]),
        )
        self.hold_answers(server.answer_bytes_share())
        _tune(transport.get_extra_info("socket"), host)

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the client; nobody needs the answers it was waiting for."""
        self._transport = None
        server = self._server
        if self in server.connections:
            server.connections.discard(self)
            server.counts.leave(self._peer.client_host)
        self._give_memory_back()
        if self._memory_awaited:
            server.memory.stop_waiting(self._let_in)
        for exchange in self._exchanges:
            if isinstance(exchange.pending, asyncio.Future):
                exchange.pending.cancel()
        self._exchanges.clear()

    def break_off(self) -> None:
        """Log the exception that is being handled, which no request can be answered with, and close the connection."""
        log.exception("connection failed unexpectedly", client=self._peer.connection_id)
        self.abort("it cannot be served on")

    def give_up(self, exchange: Exchange) -> None:
        """Leave `exchange` without an answer: the broker stops."""
        self._settled(exchange)
        self.close()

    def abort(self, reason: str) -> None:
        """Close the connection at once."""
        log.warning("connection closed", client=self._peer.connection_id, reason=reason)
        if self._transport is not None:
            self._transport.abort()

    def dawdles(self, now: float) -> bool:
        """Whether the large request that is being received takes longer than it may."""
        allowed_s = ARRIVAL_SECONDS + self._memory_taken / ARRIVAL_BYTES_PER_S
        return self._memory_taken > 0 and now - self._large_since > allowed_s

    def hold_answers(self, bytes_max: int) -> None:
        """From now on start no request when more than this waits for the client to take it."""
        if bytes_max != self._answer_bytes_max and self._transport is not None:
            self._answer_bytes_max = bytes_max
            self._transport.set_write_buffer_limits(high=bytes_max)

    def close(self) -> None:
        """Close the connection once what was answered has been sent; what has not started never will."""
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def idle_seconds(self, now: float) -> float:
        """How long nothing has happened; 0 while a request is in work."""
        return 0.0 if self._exchanges else now - self._last_active

    def expire(self) -> None:
        """Close the connection, at once if its client has not even taken the answers since the last time."""
        if self._transport is not None and self._transport.is_closing():
            self.abort("idle for too long, with answers that it does not take")
        self.close()

    @property
    def working(self) -> bool:
        """Whether a request is in work."""
        return bool(self._exchanges)

    # -- receiving

    def get_buffer(self, sizehint: int) -> memoryview:
        """Room for what is received next; never empty."""
        if self._end == self._stop:
            self._make_room()
        return self._view[self._end : self._stop]

    def buffer_updated(self, nbytes: int) -> None:
        """`nbytes` more have been received."""
        self._end += nbytes
        self._last_active = self._loop.time()
        self._start_requests()

    def _make_room(self) -> None:
        """Move what is left to the front, or grow with what has arrived, or because it arrives so fast."""
        left, size = self._end - self._start, len(self._buffer)
        limit = self._memory_taken if self._large_end else BUFFER_BUSY_BYTES
        if size < limit and (left > size // 2 or BUFFER_BYTES <= size < BUFFER_BUSY_BYTES):
            self._replace_buffer(min(max(size * 2, BUFFER_BYTES), limit))
        else:
            self._buffer[:left] = self._buffer[self._start : self._end]
            self._is_at_front(left)

    def _replace_buffer(self, size_bytes: int) -> None:
        """A larger or smaller buffer; slices of the old one stay valid for whoever holds them."""
        other, left = bytearray(size_bytes), self._end - self._start
        other[:left] = self._view[self._start : self._end]
        self._buffer, self._view = other, memoryview(other)
        self._is_at_front(left)

    def _is_at_front(self, left: int) -> None:
        if self._large_end:
            self._large_end -= self._start
        self._start, self._end = 0, left
        self._stop = min(len(self._buffer), self._large_end or BUFFER_BUSY_BYTES)

    def _start_requests(self) -> None:
        """Start every request that has arrived in full and may start now, then send what they left to send."""
        try:
            self._start_arrived()
        except Exception:
            self.break_off()

    def _start_arrived(self) -> None:
        while True:
            if not self._may_start():
                self._send()  # what is answered already makes room for more
                if not self._may_start():
                    break
            available = self._end - self._start
            if available < 4:
                break
            size: int = _SIZE.unpack_from(self._buffer, self._start)[0]
            if not 0 < size <= self._frame_bytes_max:
                self._refuse(f"a frame of {size} bytes; socket.request.max.bytes is {self._frame_bytes_max}")
                return
            if size > BUFFER_BYTES and not self._large_end and not self._has_memory_for(size):
                break
            if available < 4 + size:
                break
            begin = self._start + 4
            self._start = begin + size
            if not self._start_request(self._view[begin : begin + size]):
                return
        if self._start == self._end:
            self._start = self._end = 0
        self._send()
        self._control_reading()

    def _has_memory_for(self, size_bytes: int) -> bool:
        """Before the buffer grows for a large request and before it starts: wait until there is room for it."""
        if self._memory_awaited:
            return False
        frame_bytes = 4 + size_bytes
        if frame_bytes > self._memory_taken:
            self._drop_buffer()
            needed = _buffer_bytes(frame_bytes)
            if not self._server.memory.take(needed, self._let_in):
                self._memory_awaited = needed
                return False
            self._memory_taken = needed
        self._large_since = self._loop.time()
        self._large_end = self._start + frame_bytes
        self._stop = min(len(self._buffer), self._large_end)
        return True

    def _let_in(self) -> None:
        self._memory_taken, self._memory_awaited = self._memory_awaited, 0
        self._large_since = self._loop.time()
        self._loop.call_soon(self._start_requests)

    def _large_started(self, exchange: Exchange) -> None:
        """What was taken for a large request stays with it until it is answered, or with the buffer for the next."""
        self._large_end = 0
        size, memory = len(self._buffer), self._server.memory
        if exchange.pending is not None:
            exchange.memory_bytes, self._memory_taken = self._memory_taken, 0
            memory.give_back(0, self._drop_buffer)
            if size > BUFFER_BUSY_BYTES:
                self._replace_buffer(BUFFER_BUSY_BYTES)
        elif not BUFFER_BUSY_BYTES < size <= BUFFER_KEPT_BYTES_MAX or not memory.keep(self._drop_buffer):
            self._drop_buffer()
        self._stop = min(len(self._buffer), BUFFER_BUSY_BYTES)

    def _drop_buffer(self) -> None:
        """Go on with an ordinary buffer, unless it cannot hold any more what has arrived of a large request."""
        if self._large_end and self._end - self._start >= BUFFER_BUSY_BYTES:
            return
        self._large_end = 0
        if len(self._buffer) > BUFFER_BUSY_BYTES:
            self._replace_buffer(BUFFER_BUSY_BYTES)
        self._give_memory_back()

    def _give_memory_back(self) -> None:
        if self._memory_taken:
            taken, self._memory_taken = self._memory_taken, 0
            self._server.memory.give_back(taken, self._drop_buffer)

    def _release(self, exchange: Exchange) -> None:
        """Let others have the memory of a large request that is done."""
        if exchange.memory_bytes:
            size_bytes, exchange.memory_bytes = exchange.memory_bytes, 0
            self._server.memory.give_back(size_bytes)

    def shrink(self) -> None:
        """Give back a grown buffer that hardly anything is in, and what was remembered to be faster."""
        self._shortcuts.clear()
        if self._end - self._start < BUFFER_IDLE_BYTES < len(self._buffer) and not self._large_end:
            self._replace_buffer(BUFFER_IDLE_BYTES)
            self._give_memory_back()

    def _may_start(self) -> bool:
        return (
            self._transport is not None
            and not self._exclusive
            and not self._closing
            and not self._send_buffer_full
            and not self._server.stopping
            and len(self._exchanges) < IN_FLIGHT_MAX
            and self._pending < PENDING_MAX
            and self._pending_bytes < PENDING_BYTES_MAX
            and self._answered_bytes <= self._answer_bytes_max
        )

    def _start_request(self, frame: memoryview) -> bool:
        """Hand one frame to the dispatcher; False if that ended the connection."""
        try:
            exchange = self._dispatcher.start(frame, self._peer, self._shortcuts)
        except UnservedRequest as refused:
            self._refuse(str(refused))
            return False
        except DropConnection as dropped:
            log.info("connection closed", client=self._peer.connection_id, reason=str(dropped))
            self.close()
            return False
        pending = exchange.pending
        self._exchanges.append(exchange)
        if exchange.after is not None:
            self._wait(exchange, exchange.after)
        elif pending is None:
            self._answered(exchange)
        else:
            self._pending += 1
            if not self._large_end:
                exchange.pending_bytes = len(frame)
                self._pending_bytes += len(frame)
            if exchange.exclusive:
                self._exclusive = True
                self._server.run(self, exchange)
            else:
                assert isinstance(pending, asyncio.Future)
                pending.add_done_callback(partial(self._future_done, exchange))
        if self._large_end:
            self._large_started(exchange)
        return True

    def _answered(self, exchange: Exchange) -> None:
        """Count what has to stay here until the client takes it."""
        exchange.request = None  # what it was taken apart into may be larger than the answer
        for chunk in exchange.chunks or ():
            self._answered_bytes += len(chunk)

    def _wait(self, exchange: Exchange, after: "asyncio.Future[None]") -> None:
        """Answer when `after` is done: one callback for all requests of this connection that wait for the same."""
        if after is not self._awaited:
            self._awaited, self._awaiting = after, []
            after.add_done_callback(partial(self._after, self._awaiting))
        self._awaiting.append(exchange)

    def _after(self, exchanges: list[Exchange], done: "asyncio.Future[None]") -> None:
        if done is self._awaited:
            self._awaited, self._awaiting = None, []
        error = _failure(done)
        for exchange in exchanges:
            if error is None:
                exchange.chunks = exchange.due
                self._answered(exchange)
            else:
                self._pending += 1
                self.finish(exchange, None, error)
        self._last_active = self._loop.time()
        self._start_requests()

    def _refuse(self, reason: str) -> None:
        log.warning("connection closed: not a request", client=self._peer.connection_id, reason=reason)
        self._send()
        self.close()
        self._start = self._end = 0

    def _control_reading(self) -> None:
        """Requests that may not start yet stay in the kernel once half of the buffer is full of them."""
        transport = self._transport
        if transport is None:
            return
        full = self._memory_awaited > 0 or (
            (self._end == self._stop or (self._end - self._start) * 2 > self._stop) and not self._may_start()
        )
        if full and not self._reading_paused:
            transport.pause_reading()
            self._reading_paused = True
        elif self._reading_paused and not full:
            transport.resume_reading()
            self._reading_paused = False

    # -- sending

    def _future_done(self, exchange: Exchange, future: "asyncio.Future[Any]") -> None:
        error = _failure(future)
        self.finish(exchange, None if error else future.result(), error)

    def finish(self, exchange: Exchange, response: Any, error: BaseException | None) -> None:
        """Answer `exchange`; the bytes leave when all earlier requests are answered too."""
        self._settled(exchange)
        if self._transport is None:
            return
        try:
            if error is not None:
                self._dispatcher.fail(exchange, error)
            else:
                self._dispatcher.answer(exchange, response)
            self._answered(exchange)
        except DropConnection as dropped:
            log.info("connection closed", client=self._peer.connection_id, reason=str(dropped))
            self.close()
        except Exception:
            self.break_off()
        if not self._send_scheduled:
            self._send_scheduled = True
            self._loop.call_soon(self._go_on)

    def _settled(self, exchange: Exchange) -> None:
        self._pending -= 1
        self._pending_bytes -= exchange.pending_bytes
        self._release(exchange)
        if exchange.exclusive:
            self._exclusive = False

    def _go_on(self) -> None:
        """Send what is answered, then start what had to wait: both once for all answers of this turn of the loop."""
        self._send_scheduled = False
        self._last_active = self._loop.time()
        self._start_requests()

    def _send(self) -> None:
        """Send the answers of the longest answered run at the head."""
        exchanges = self._exchanges
        if self._transport is None or not exchanges or exchanges[0].chunks is None:
            return
        out: Chunks = []
        while exchanges and (chunks := exchanges[0].chunks) is not None:
            out += chunks
            exchanges.popleft()
        if out:
            for chunk in out:
                self._answered_bytes -= len(chunk)
            self._transport.writelines(out)
        if self._server.stopping and not exchanges:
            self._server.drained.set()

    def pause_writing(self) -> None:
        """The client takes its responses more slowly than it asks."""
        self._send_buffer_full = True

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._send_buffer_full = False
        self._loop.call_soon(self._start_requests)


def _failure(future: "asyncio.Future[Any]") -> BaseException | None:
    """Why there is no result; somebody else than the client's going may have cancelled it."""
    return asyncio.CancelledError() if future.cancelled() else future.exception()


def _buffer_bytes(frame_bytes: int) -> int:
    """How large a buffer grows for a frame: its neighbours shall fit too."""
    unit = min(1 << (frame_bytes - 1).bit_length(), 2**20)
    return -(-frame_bytes // unit) * unit


def _tune(connected: Any, client_host: str) -> None:
    """No delay for small responses; on loopback a congestion control that does not pace."""
    if connected is None or getattr(connected, "family", None) == socket.AF_UNIX:
        return
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if client_host.startswith("127.") or client_host == "::1":
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _CONGESTION_ON_LOOPBACK)
        except OSError:
            log.debug("congestion control left as it is", client=client_host)
