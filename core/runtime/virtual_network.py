"""A network in memory, with everything that a network does to its users

Servers and connections of a `VirtualLoop`. Bytes of one direction arrive in order, in pieces cut anywhere, each after
a delay of its own; what TCP hides (loss, duplicates, reordering) is a delay here too. What it cannot hide is a path
that is cut, in one direction or both: bytes wait until it is whole again, or until the sender gives up. A connection of
which one end has vanished without a word stays half-open until the other end says something into it.

Ends belong to the place of the code that made them (`virtual_time.place`), which is also their address. A place that is
`down` answers nothing; when it is up again its old connections are refused as unknown, as a restarted machine does.

Not here: TLS, names that are not places, more than one address for a place.
"""

import asyncio
import errno
import random
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from typing import Any, Final

from tidemill.core.runtime.virtual_time import VirtualLoop, current_place

ANYWHERE: Final = ("0.0.0.0", "::", "", "localhost", "127.0.0.1")
"""Hosts that stand for the place of whoever says them."""

KERNEL_BYTES: Final = 256 * 1024
"""Of one direction on their way or not taken yet, before a sender's own buffer begins to fill."""

CONNECT_TRIES_S: Final = (1.0, 2.0, 4.0, 8.0)
"""Pauses between attempts to reach a place that does not answer, about as Linux makes them."""

GIVE_UP_S: Final = 30.0
"""So long bytes wait on a path that is cut; operating systems wait longer by default, which hides faults only."""

FIRST_FREE_PORT: Final = 40_000

Address = tuple[str, int]


class VirtualNetwork:
    """All listeners, connections and cut paths of one world."""

    def __init__(self, rng: random.Random, delay_s: Callable[[str, str], float] | None = None) -> None:
        self._rng = rng
        self._delay_s = delay_s or (lambda _source, _target: 0.0001 + rng.random() * 0.0009)
        self._listeners: dict[Address, VirtualServer] = {}
        self._ends: dict[int, VirtualTransport] = {}  # that the operating systems of their places know of
        self._cut: set[tuple[str, str]] = set()
        self._down: set[str] = set()
        self._next_port = FIRST_FREE_PORT
        self._next_end = 0

    # -- faults

    def cut(self, source: str, target: str) -> None:
        """Let nothing through from `source` to `target`; the other direction stays as it is."""
        self._cut.add((source, target))

    def heal(self, source: str, target: str) -> None:
        """Let bytes through again, those that wait among them; no error if the path was whole."""
        self._cut.discard((source, target))
        self._look_again(lambda end: end.place == source and end.peer_place == target)

    def heal_all(self) -> None:
        """Let everything through again."""
        self._cut.clear()
        self._look_again(lambda _end: True)

    def vanish(self, name: str) -> None:
        """The power of `name` is off: nobody is told, and nothing is answered until `appear`."""
        self._down.add(name)
        for end in self._ends_of(name):
            end.forget(None)
        self._close_listeners(name)

    def appear(self, name: str) -> None:
        """`name` has power again, and knows nothing of what it was connected to."""
        self._down.discard(name)
        self._look_again(lambda end: end.peer_place == name)

    def kill(self, name: str) -> None:
        """The processes of `name` ended: its operating system resets their connections and closes their ports."""
        self._close_listeners(name)
        for end in self._ends_of(name):
            end.reset()

    def break_one(self, index: int) -> bool:
        """Reset one of the connections, counted round and round; False if there is none."""
        ends = list(self._ends.values())
        if not ends:
            return False
        ends[index % len(ends)].break_off()
        return True

    def _ends_of(self, name: str) -> "list[VirtualTransport]":
        return [end for end in self._ends.values() if end.place == name]

    def _close_listeners(self, name: str) -> None:
        for address in [each for each in self._listeners if each[0] == name]:
            del self._listeners[address]

    def _look_again(self, concerned: "Callable[[VirtualTransport], bool]") -> None:
        for end in list(self._ends.values()):
            if concerned(end):
                end.look_again()

    # -- what connections ask

    def is_open(self, source: str, target: str) -> bool:
        """Whether bytes from `source` reach `target` now."""
        return (source, target) not in self._cut and target not in self._down and source not in self._down

    def delay_s(self, source: str, target: str) -> float:
        """How long the next bytes take."""
        return 0.00001 if source == target else self._delay_s(source, target)

    def pieces(self, data: bytes) -> Iterable[bytes]:
        """`data` as it arrives: mostly in one piece, now and then cut anywhere."""
        if len(data) > 1 and self._rng.random() < 0.1:
            at = self._rng.randrange(1, len(data))
            return (data[:at], data[at:])
        return (data,)

    def enter(self, end: "VirtualTransport") -> int:
        """Remember an end."""
        self._next_end += 1
        self._ends[self._next_end] = end
        return self._next_end

    def leave(self, number: int) -> None:
        """Forget an end."""
        self._ends.pop(number, None)

    def free_port(self) -> int:
        """A port that nobody has."""
        self._next_port += 1
        return self._next_port

    def unlisten(self, server: "VirtualServer") -> None:
        """Nobody is let in by `server` any more."""
        if self._listeners.get(server.address) is server:
            del self._listeners[server.address]

    # -- what the loop asks

    async def listen(
        self, loop: VirtualLoop, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str | None, port: int
    ) -> asyncio.AbstractServer:
        """Serve at that address until the server is closed; raises OSError when it is taken."""
        name = current_place() if host is None or host in ANYWHERE else host
        address = (name, port or self.free_port())
        if address in self._listeners:
            raise OSError(errno.EADDRINUSE, f"{address[0]}:{address[1]} is in use")
        server = self._listeners[address] = VirtualServer(self, loop, protocol_factory, address)
        return server

    async def connect(
        self, loop: VirtualLoop, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """A connection to whoever listens there; raises OSError."""
        here = current_place()
        there = here if host in ANYWHERE else host
        for pause_s in CONNECT_TRIES_S:
            await asyncio.sleep(self.delay_s(here, there))
            if self.is_open(here, there):
                break
            await asyncio.sleep(pause_s)
        else:
            raise TimeoutError(errno.ETIMEDOUT, f"{host}:{port} does not answer")
        server = self._listeners.get((there, port))
        if server is None:
            await asyncio.sleep(self.delay_s(there, here))
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens at {host}:{port}")
        protocol = protocol_factory()
        mine = (here, self.free_port())
        near = VirtualTransport(self, loop, protocol, mine, server.address, copy_context())
        far = server.accept(mine)
        near.join(far)
        far.join(near)
        far.begin()
        try:
            await asyncio.sleep(self.delay_s(there, here))
        except BaseException:
            near.abort()
            raise
        if near.is_closing():
            raise ConnectionResetError(errno.ECONNRESET, f"{host}:{port} ended the connection at once")
        protocol.connection_made(near)
        near.begin(made=True)
        return near, protocol


class _Bound:
    """What a server has for a socket: its address."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def getsockname(self) -> Address:
        """Host and port."""
        return self._address


class VirtualServer(asyncio.AbstractServer):
    """A listener."""

    def __init__(
        self,
        network: VirtualNetwork,
        loop: VirtualLoop,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        address: Address,
    ) -> None:
        self.address = address
        self._network = network
        self._loop = loop
        self._protocol_factory = protocol_factory
        self._context = copy_context()
        self._serving = True

    @property
    def sockets(self) -> tuple[_Bound, ...]:
        """One, which knows its address and nothing else."""
        return (_Bound(self.address),)

    def accept(self, client: Address) -> "VirtualTransport":
        """This side's end of a new connection."""
        protocol = self._context.copy().run(self._protocol_factory)
        return VirtualTransport(self._network, self._loop, protocol, self.address, client, self._context.copy())

    def close(self) -> None:
        """Let nobody else in."""
        self._serving = False
        self._network.unlisten(self)

    def is_serving(self) -> bool:
        """Whether anybody is let in."""
        return self._serving

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The world's."""
        return self._loop

    async def start_serving(self) -> None:
        """It does already."""

    async def serve_forever(self) -> None:
        """It does without this."""
        await asyncio.Event().wait()

    async def wait_closed(self) -> None:
        """It is at once."""


class VirtualTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self,
        network: VirtualNetwork,
        loop: VirtualLoop,
        protocol: asyncio.BaseProtocol,
        local: Address,
        remote: Address,
        context: Context,
    ) -> None:
        super().__init__({"sockname": local, "peername": remote, "socket": None})
        self.place = local[0]
        self.peer_place = remote[0]
        self._network = network
        self._loop = loop
        self._protocol = protocol
        self._context = context
        self._peer: VirtualTransport | None = None
        self._number = network.enter(self)
        self._known = True  # to the operating system of its place
        self._closing = False
        self._lost = False
        self._made = False
        self._reading = True
        self._received: deque[bytes] = deque()
        self._received_end = False  # the peer has closed, behind what was received
        self._outbound: deque[tuple[float, bytes | None]] = deque()  # when it arrives; None is the end
        self._outbound_bytes = 0  # sent and not taken
        self._timer: asyncio.TimerHandle | None = None
        self._stuck_since: float | None = None
        self._paused = False
        self._high, self._low = 64 * 1024, 16 * 1024

    def join(self, peer: "VirtualTransport") -> None:
        """Know the other end."""
        self._peer = peer

    def begin(self, *, made: bool = False) -> None:
        """Tell the protocol of its connection, unless it has been told, and read."""
        if not made:
            self._soon(self._make)
        else:
            self._made = True
            self._soon(self._take)

    def _make(self) -> None:
        if not self._lost:
            self._protocol.connection_made(self)
            self._made = True
            self._take()

    def _soon(self, call: Callable[..., Any], *args: Any) -> None:
        self._loop.call_soon(call, *args, context=self._context)

    # -- sending

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes; they are copied, and lost once the connection is."""
        if self._closing or not data:
            return
        self._send(bytes(data))
        if not self._paused and self.get_write_buffer_size() > self._high:
            self._paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send them one behind the other."""
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        """Say that nothing more comes; reading goes on."""
        self._send(None)

    def can_write_eof(self) -> bool:
        """Yes."""
        return True

    def get_write_buffer_size(self) -> int:
        """Bytes that the operating system has no room for."""
        return max(0, self._outbound_bytes - KERNEL_BYTES)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Low and high water."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As asyncio has it: a quarter of `high` is `low`."""
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    def _send(self, data: bytes | None) -> None:
        for piece in (None,) if data is None else self._network.pieces(data):
            arrives = self._loop.time() + self._network.delay_s(self.place, self.peer_place)
            if self._outbound:
                arrives = max(arrives, self._outbound[-1][0])
            self._outbound.append((arrives, piece))
            self._outbound_bytes += len(piece or b"")
        if self._timer is None:
            self._wait_for_first()

    def _wait_for_first(self) -> None:
        self._timer = self._loop.call_at(self._outbound[0][0], self._arrive, context=Context())

    def _arrive(self) -> None:
        """What has been on its way long enough is there, if there is a way."""
        self._timer = None
        if not self._network.is_open(self.place, self.peer_place):
            self._stay_stuck()
            return
        self._stuck_since = None
        peer = self._peer
        if peer is None or not peer._known:
            self._outbound.clear()
            if not self._lost:
                self.forget(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
            return
        while self._outbound and self._outbound[0][0] <= self._loop.time():
            _, piece = self._outbound.popleft()
            peer.receive(piece)
        if self._outbound:
            self._wait_for_first()
        elif self._closing:
            self._leave()

    def _stay_stuck(self) -> None:
        now = self._loop.time()
        if self._stuck_since is None:
            self._stuck_since = now
        if now >= self._stuck_since + GIVE_UP_S:  # the very sum that the timer below is set to
            self._outbound.clear()
            self.forget(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
        else:
            self._timer = self._loop.call_at(self._stuck_since + GIVE_UP_S, self._arrive, context=Context())

    def look_again(self) -> None:
        """A path may be open that was cut."""
        if self._stuck_since is not None and self._outbound:
            if self._timer is not None:
                self._timer.cancel()
            delay_s = self._network.delay_s(self.place, self.peer_place)
            self._timer = self._loop.call_later(delay_s, self._arrive, context=Context())

    # -- receiving

    def receive(self, piece: bytes | None) -> None:
        """Bytes from the other end are here, or its last word."""
        if piece is None:
            self._received_end = True
        else:
            self._received.append(piece)
        if self._made:
            self._soon(self._take)

    def _take(self) -> None:
        while self._received and self._reading and not self._closing:
            piece = self._received.popleft()
            if self._peer is not None:
                self._peer.taken(len(piece))
            try:
                self._hand_over(piece)
            except Exception as error:
                self._loop.call_exception_handler(
                    {"message": "a protocol failed to take bytes", "exception": error, "protocol": self._protocol}
                )
                self.abort()
        if self._received_end and not self._received and not self._closing:
            self._received_end = False
            assert isinstance(self._protocol, asyncio.Protocol | asyncio.BufferedProtocol)
            if not self._protocol.eof_received():
                self.close()

    def _hand_over(self, piece: bytes) -> None:
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            assert isinstance(self._protocol, asyncio.Protocol)
            self._protocol.data_received(piece)
            return
        rest = memoryview(piece)
        while rest and not self._closing:
            room = memoryview(self._protocol.get_buffer(-1))
            size = min(len(room), len(rest))
            room[:size] = rest[:size]
            del room
            self._protocol.buffer_updated(size)
            rest = rest[size:]
            if rest and not self._reading:
                self._received.appendleft(bytes(rest))
                return

    def taken(self, size_bytes: int) -> None:
        """The other end has read so much."""
        self._outbound_bytes -= size_bytes
        if self._paused and self.get_write_buffer_size() <= self._low:
            self._paused = False
            if not self._lost:
                self._soon(self._protocol.resume_writing)

    def is_reading(self) -> bool:
        """Whether bytes are handed over."""
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        """Hand over nothing for now."""
        self._reading = False

    def resume_reading(self) -> None:
        """Go on."""
        if not self._reading:
            self._reading = True
            self._soon(self._take)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Who gets the bytes."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Let somebody else have the bytes."""
        self._protocol = protocol

    # -- ending

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._closing

    def close(self) -> None:
        """Send what was written, then end."""
        if not self._closing:
            self._send(None)
            self._closing = True
            self._soon(self._lose, None)

    def abort(self) -> None:
        """End at once; the other end hears of it if there is a way."""
        if not self._lost:
            self.reset()
            self._soon(self._lose, None)

    def break_off(self) -> None:
        """Both ends lose the connection, the other one a little later and only if there is a way."""
        self.reset()
        self._soon(self._lose, ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def reset(self) -> None:
        """Be gone without a word to the program here; the other end is told by the network."""
        peer = self._peer
        self.forget(None)
        if peer is not None and self._network.is_open(self.place, self.peer_place):
            delay_s = self._network.delay_s(self.place, self.peer_place)
            reset = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
            self._loop.call_later(delay_s, peer.forget, reset, context=Context())

    def forget(self, error: Exception | None) -> None:
        """Nothing is sent or received any more; the program here is told if there is an `error`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._outbound.clear()
        self._received.clear()
        self._closing = True
        self._leave()
        if error is not None:
            self._soon(self._lose, error)

    def _leave(self) -> None:
        self._known = False
        self._network.leave(self._number)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            if self._made:
                self._protocol.connection_lost(error)
