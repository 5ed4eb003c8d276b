"""One client: bytes in, answers out, between a socket and two machines

The protocol object of one connection. It moves bytes from its transport into an `InputBuffer`, hands the frames that
come out of it to the dispatcher one after the other as long as the `AnswerQueue` lets requests start, and writes what
may leave; it waits for futures, tasks and memory on behalf of both. A produced batch goes from the input buffer to the
file without a copy in between.

A client that has had more than its share is muted (KIP-219): it has its answers, and nothing more is read from it until
`muted_until`.

What cannot be understood closes the connection that sent it, with one line in the log. What fails unexpectedly here,
outside any request, does the same: `_advance`, `finish`, `_after` and `look_after`, by one of which the event loop gets
to everything else, let no exception through to it.

Not here: what a request means (`dispatch`, `handlers`), which clients are let in (`server`), TLS (`tls_door`).
"""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, cast

import structlog

from tidemill.broker.answer_queue import AnswerQueue, Hold
from tidemill.broker.dispatch import Dispatcher, DropConnection, Exchange, Peer, Shortcuts, UnservedRequest
from tidemill.broker.input_buffer import PREFIX_BYTES, FrameRefused, InputBuffer
from tidemill.broker.log.turns import TURN_S
from tidemill.broker.principals import Principal
from tidemill.broker.refusals import Refusal
from tidemill.broker.request_meter import HOT_KEY_MAX, Arrivals, RequestMeter
from tidemill.broker.server_limits import RequestMemory, ServerLimits
from tidemill.broker.standing import Standing

log = structlog.get_logger("tidemill.broker.connection")

BUFFER_KEPT_SECONDS = 30.0  # a grown buffer is given back when the client has been silent for so long

NOT_PLAINTEXT = (
    "the client speaks TLS and this listener does not: set security.protocol=PLAINTEXT there, or connect to an SSL "
    "listener"
)
_HANDSHAKE = b"\x16\x03"  # of a TLS record: as the size of a request that would be more than 350 MB

_CONGESTION_ON_LOOPBACK = b"cubic"  # BBR paces loopback traffic down to a fraction of what the kernel can do


class Listener(Protocol):
    """What a connection asks of the server that has accepted it."""

    dispatcher: Dispatcher
    limits: ServerLimits
    memory: RequestMemory
    meter: RequestMeter | None
    stopping: bool

    @property
    def listener(self) -> str:
        """The listener's name."""

    monotonic: Callable[[], float]
    drained: asyncio.Event

    @property
    def standing(self) -> Standing:
        """What a new connection may ask."""

    def enter(self, connection: "Connection", client_host: str) -> int:
        """The number of a new connection; 0 if it is one too many."""

    def identify(self, transport: asyncio.BaseTransport) -> Principal:
        """Who is at the other end; raises ValueError if that is nobody."""

    def warn(self, event: str, client_host: str, **facts: object) -> None:
        """One line in the log, unless there was the same about this client a moment ago."""

    def leave(self, connection: "Connection", client_host: str) -> None:
        """A connection that had entered is gone."""

    def answer_bytes_share(self) -> int:
        """How much may wait in a connection, and as much again in its socket."""

    def run(self, connection: "Connection", exchange: Exchange) -> None:
        """Run a handler's coroutine and `finish` with its result."""


class Connection(asyncio.BufferedProtocol):
    """One client."""

    def __init__(self, server: Listener) -> None:
        self.incoming = InputBuffer(server.limits.socket_request_max_bytes)
        self.answers = AnswerQueue()
        self.peer = Peer(client_host="", listener=server.listener, connection_id="")
        self._server = server
        self._dispatcher = server.dispatcher
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._shortcuts: Shortcuts = {}
        self.muted_until = 0.0  # by the event loop's clock
        self._unmute_timer: asyncio.TimerHandle | None = None
        self._claim = 0  # memory that is waited for
        self._reading_paused = False
        self._advance_scheduled = False
        self._last_active = self._loop.time()
        self._meter = server.meter
        self._timed = 0  # exchanges in work whose times are wanted
        self._begun = 0.0  # when this turn of requests did
        self._arrivals = Arrivals()  # of requests that lie here and may not start

    # -- life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve, unless there are too many connections already."""
        self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername") or ("", 0)
        local = transport.get_extra_info("sockname") or ("", 0)
        host = str(address[0])
        try:
            principal = self._server.identify(transport)
        except ValueError as nobody:
            self._server.warn("connection refused: client is nobody", host, reason=str(nobody))
            number = 0
        else:
            number = self._server.enter(self, host)
        if not number:
            self._transport.abort()
            self._transport = None
            return
        self.peer = Peer(
            client_host=host,
            listener=self._server.listener,
            connection_id=f"{local[0]}:{local[1]}-{host}:{address[1]}-{number}",
            server_host=str(local[0]),
            server_port=int(local[1]),
            principal=principal,
            standing=self._server.standing,
        )
        self._limit_answers(self._server.answer_bytes_share())
        _tune(transport.get_extra_info("socket"), host)

    def logged_in(self, principal: Principal) -> None:
        """It is known from now on who the client is; what it was served as before counts no more."""
        self.peer = replace(self.peer, principal=principal, standing=Standing.KNOWN)
        self._shortcuts.clear()

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the client; nobody needs the answers it was waiting for."""
        self._transport = None
        self._server.leave(self, self.peer.client_host)
        self._give_back(self.incoming.close())
        if self._claim:
            self._server.memory.stop_waiting(self._let_in)
        self._forget()

    def close(self) -> None:
        """Close the connection once what was answered has been sent; nothing else will be started or answered."""
        if self._transport is not None:
            self._send()
            self._transport.close()
        self._forget()

    def abort(self, reason: str) -> None:
        """Close the connection at once."""
        log.warning("connection closed", client=self.peer.connection_id, reason=reason)
        if self._transport is not None:
            self._transport.abort()
        self._forget()

    def give_up(self, exchange: Exchange) -> None:
        """Leave `exchange` without an answer: the broker stops."""
        self._settle(exchange)
        self.close()

    def look_after(self, now: float, *, idle_limit_s: float, answer_bytes_max: int) -> None:
        """Close the connection if it is idle for too long or keeps others waiting; take back what silence allows."""
        try:
            self._limit_answers(answer_bytes_max)
            if self._unmute_timer is not None:
                return  # it is not the client that is silent or slow
            idle_s = 0.0 if self.answers else now - self._last_active
            if idle_s > idle_limit_s:
                self._expire()
            elif self._server.memory.waiting and self.incoming.dawdles(now):
                if self._meter is not None:
                    self._meter.refused[Refusal.TOO_SLOW] += 1
                self.abort("a large request arrives too slowly while others wait for its memory")
            elif idle_s > BUFFER_KEPT_SECONDS:
                self._shortcuts.clear()
                self._give_back(self.incoming.shrink())
        except Exception:
            self._break_off()

    def _expire(self) -> None:
        """Close the connection, at once if its client has not even taken the answers since the last time."""
        if self._transport is not None and self._transport.is_closing():
            self.abort("idle for too long, with answers that it does not take")
        self.close()

    def _break_off(self) -> None:
        """Log the exception that is being handled, which no request can be answered with, and close the connection."""
        log.exception("connection failed unexpectedly", client=self.peer.connection_id)
        self.abort("it cannot be served on")

    def _forget(self) -> None:
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
            self._unmute_timer = None  # nobody is waited for: what its client does not take ends it like others
        for exchange in self.answers.forget():
            if isinstance(exchange.pending, asyncio.Future):
                exchange.pending.cancel()  # which `finish`es it
            elif exchange.after is not None and exchange.heard is not None and not exchange.after.done():
                exchange.after.remove_done_callback(exchange.heard)  # it may be long until others have it
                exchange.heard = None

    def _limit_answers(self, bytes_max: int) -> None:
        """From now on start no request when more than this waits for the client to take it."""
        if self._transport is not None and bytes_max != self.answers.bytes_max:
            self.answers.bytes_max = bytes_max
            self._transport.set_write_buffer_limits(high=bytes_max)

    # -- receiving

    def get_buffer(self, sizehint: int) -> memoryview:
        """Room for what is received next; never empty."""
        return self.incoming.room()

    def buffer_updated(self, nbytes: int) -> None:
        """`nbytes` more have been received."""
        self.incoming.received(nbytes)
        self._advance()

    def _advance(self) -> None:
        """Start every request that has arrived in full and may start now, then send what is answered."""
        self._advance_scheduled = False
        self._last_active = self._loop.time()
        try:
            if self._meter is not None:
                self._begun = self._meter.now()
            self._start_requests()
            self._send()
            if self._reading_paused or not self.incoming.is_empty:
                self._control_reading()
        except (FrameRefused, UnservedRequest) as refused:
            if self._meter is not None and isinstance(refused, FrameRefused):
                self._meter.refused[Refusal.SIZE] += 1
            reason = NOT_PLAINTEXT if self._is_handshake() else str(refused)
            self._server.warn("connection closed: not a request", self.peer.client_host, reason=reason)
            self.close()
        except DropConnection as dropped:
            self._drop(dropped)
        except Exception:
            self._break_off()

    def _is_handshake(self) -> bool:
        """Whether the client speaks TLS where nobody does."""
        return self.incoming.begins_with(_HANDSHAKE) and self._transport is not None

    def _advance_soon(self) -> None:
        """Once for all that happens in this turn of the loop."""
        if not self._advance_scheduled:
            self._advance_scheduled = True
            self._loop.call_soon(self._advance)

    def _start_requests(self) -> None:
        """As many as may, but no more than a short turn of them: a thousand may lie here, each of them costly."""
        incoming, answers = self.incoming, self.answers
        answers.let_go(Hold.TURN_IS_OVER)
        turn_ends = 0.0
        while not incoming.is_empty:
            if not answers.may_start():
                self._send()  # what is answered already makes room for more
                if not answers.may_start():
                    self._keep_waiting()
                    return
            frame = incoming.next_frame()
            if frame is not None:
                self._start(frame)
                if incoming.is_empty:
                    return
                if not turn_ends:
                    turn_ends = self._server.monotonic() + TURN_S
                elif self._server.monotonic() >= turn_ends:
                    answers.hold(Hold.TURN_IS_OVER)
                    self._keep_waiting()
                    self._advance_soon()
                    return
            elif not incoming.announced_bytes or not self._begin_large():
                return

    def _keep_waiting(self) -> None:
        """The next request may not start; what is not known to lie here already came in this turn."""
        if self._meter is not None:
            self._arrivals.lie(self.incoming.received_bytes, self._begun)

    def _start(self, frame: memoryview) -> None:
        """Hand one frame to the dispatcher."""
        meter = self._meter
        if meter is None:
            exchange = self._dispatcher.start(frame, self.peer, self._shortcuts)
        else:
            exchange = self._start_counted(frame, meter)
        is_large = self.incoming.large_end
        group = self.answers.add(exchange, 0 if is_large else len(frame))
        if group is not None:
            self._await_all(group)
        elif exchange.pending is not None:
            self._await_answer(exchange)
        elif exchange.throttle_ms and exchange.chunks is not None:
            self._mute(exchange.throttle_ms)
        if is_large:
            self._large_started(exchange)

    def _start_counted(self, frame: memoryview, meter: RequestMeter) -> Exchange:
        """The same with a look at the clock now and then, as the meter wants it."""
        meter.until_timed -= 1
        is_due = meter.until_timed <= 0
        began = meter.now() if is_due else self._begun
        arrived = self._arrivals.take(PREFIX_BYTES + len(frame), self._begun) if self._arrivals.lying else self._begun
        try:
            exchange = self._dispatcher.start(frame, self.peer, self._shortcuts)
        except DropConnection as dropped:
            meter.note_dropped(frame, dropped.codes)
            raise
        except UnservedRequest as unserved:
            meter.note_unserved(frame, unserved.why)
            raise
        key = exchange.header[0]
        meter.counts[key] += 1
        if is_due or key > HOT_KEY_MAX:
            exchange.weight = meter.weigh(key)
            exchange.arrived, exchange.began, exchange.worked = arrived, began, meter.now()
            exchange.answered = exchange.worked
            self._timed += 1
        if exchange.errors:
            meter.note_errors(exchange)
        return exchange

    def _await_all(self, group: list[Exchange]) -> None:
        """One callback for all requests of this connection that wait for the same."""
        first = group[0]
        assert first.after is not None
        first.heard = partial(self._after, group)
        first.after.add_done_callback(first.heard)

    def _await_answer(self, exchange: Exchange) -> None:
        """See to it that `exchange`, which is pending, is answered in the end."""
        if exchange.exclusive:
            self._server.run(self, exchange)
        else:
            assert isinstance(exchange.pending, asyncio.Future)
            exchange.pending.add_done_callback(partial(self._future_done, exchange))

    def _control_reading(self) -> None:
        """Requests that may not start yet stay in the kernel once half of the buffer is full of them."""
        transport = self._transport
        if transport is None:
            return
        is_muted = self._unmute_timer is not None
        full = self._claim > 0 or is_muted or (self.incoming.is_crowded and not self.answers.may_start())
        if full and not self._reading_paused:
            transport.pause_reading()
            self._reading_paused = True
        elif self._reading_paused and not full:
            transport.resume_reading()
            self._reading_paused = False

    def _mute(self, throttle_ms: int) -> None:
        """Start no request for so long, and read none."""
        self.muted_until = max(self.muted_until, self._loop.time() + throttle_ms / 1000)
        if not self.answers.is_held(Hold.MUTED):
            self.answers.hold(Hold.MUTED)
            self._unmute_timer = self._loop.call_at(self.muted_until, self._unmute)
            self._control_reading()

    def _unmute(self) -> None:
        if self._loop.time() < self.muted_until:
            self._unmute_timer = self._loop.call_at(self.muted_until, self._unmute)
            return
        self._unmute_timer = None
        self.answers.let_go(Hold.MUTED)
        self.incoming.excuse(self._loop.time())
        self._advance()

    # -- memory for large requests

    def _begin_large(self) -> bool:
        """Begin the large request that comes next if there is memory for it; wait for that otherwise."""
        if self._claim:
            return False
        claim = self.incoming.claim()
        if claim:
            self._drop_buffer()
            if not self._server.memory.take(claim, self._let_in):
                self._claim = claim
                return False
            self.incoming.grant(claim, self._loop.time())
        self.incoming.begin_large(self._loop.time())
        return True

    def _let_in(self) -> None:
        claim, self._claim = self._claim, 0
        self.incoming.grant(claim, self._loop.time())
        self._advance_soon()

    def _large_started(self, exchange: Exchange) -> None:
        """What was taken for a large request stays with it until it is answered, or with the buffer for the next."""
        if exchange.pending is not None:
            exchange.memory_bytes = self.incoming.hand_over()
            self._server.memory.give_back(0, self._drop_buffer)
        elif not self.incoming.end_large() or not self._server.memory.keep(self._drop_buffer):
            self._drop_buffer()

    def _drop_buffer(self) -> None:
        self._give_back(self.incoming.drop())

    def _give_back(self, size_bytes: int) -> None:
        """Let others have what was granted to the input buffer."""
        if size_bytes:
            self._server.memory.give_back(size_bytes, self._drop_buffer)

    # -- answering

    def finish(self, exchange: Exchange, response: Any, error: BaseException | None) -> None:
        """Answer `exchange`; the bytes leave when all earlier requests are answered too."""
        try:
            self._settle(exchange)
            if self._transport is None or self._transport.is_closing():
                return  # nobody hears the answer
            meter = self._meter
            if meter is not None and exchange.weight:
                exchange.answered = meter.now()
            if error is not None:
                self._dispatcher.fail(exchange, error, self.peer)
            else:
                self._dispatcher.answer(exchange, response, self.peer)
            self.answers.answered(exchange)
            if exchange.throttle_ms:
                self._mute(exchange.throttle_ms)
            if meter is not None and exchange.errors:
                meter.note_errors(exchange)
        except DropConnection as dropped:
            if self._meter is not None:
                self._meter.note_codes(exchange.header.api_key, dropped.codes)
            self._drop(dropped)
        except Exception:
            self._break_off()
        self._let_leave()

    def _let_leave(self) -> None:
        """Send what may leave now. What may start then does that in a later turn: others may be in the middle."""
        self._last_active = self._loop.time()
        try:
            self._send()
        except Exception:
            self._break_off()
        if self._reading_paused or not self.incoming.is_empty:
            self._advance_soon()

    def _future_done(self, exchange: Exchange, future: "asyncio.Future[Any]") -> None:
        error = _failure(future)
        self.finish(exchange, None if error else future.result(), error)

    def _after(self, group: list[Exchange], done: "asyncio.Future[None]") -> None:
        """What `group` waited for is done: their answers are due."""
        try:
            self.answers.leave(group)
            group[0].heard = None  # it knows the group, and what is a ring goes only when the collector comes by
            error = _failure(done)
            if error is None and self._transport is not None:
                now = 0.0 if self._meter is None or not self._timed else self._meter.now()
                self.answers.all_due(group, now)
            else:
                for exchange in group:
                    self.finish(exchange, None, error)
        except Exception:
            self._break_off()
        self._let_leave()

    def _settle(self, exchange: Exchange) -> None:
        """`exchange` waits no longer; others may have the memory of a large one."""
        memory_bytes = self.answers.settle(exchange)
        if memory_bytes:
            self._server.memory.give_back(memory_bytes)

    def _drop(self, dropped: DropConnection) -> None:
        log.info("connection closed", client=self.peer.connection_id, reason=str(dropped))
        self.close()

    # -- sending

    def _send(self) -> None:
        """Send what may leave."""
        answers = self.answers
        if self._transport is None or not answers:
            return
        if self._meter is None or not self._timed:
            out = answers.take()
            if out:
                self._transport.writelines(out)
        else:
            self._send_measured(self._meter, self._transport)
        if self._server.stopping and not answers:
            self._server.drained.set()

    def _send_measured(self, meter: RequestMeter, transport: asyncio.Transport) -> None:
        leaving: list[Exchange] = []
        out = self.answers.take(leaving)
        sending = meter.now()
        if out:
            transport.writelines(out)
        if leaving:
            self._timed -= len(leaving)
            meter.left(leaving, sending)

    def pause_writing(self) -> None:
        """The client takes its responses more slowly than it asks."""
        self.answers.hold(Hold.CLIENT_IS_SLOW)

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.answers.let_go(Hold.CLIENT_IS_SLOW)
        self._advance_soon()


def _failure(future: "asyncio.Future[Any]") -> BaseException | None:
    """Why there is no result; somebody may have cancelled it while the client still waits."""
    return asyncio.CancelledError() if future.cancelled() else future.exception()


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
