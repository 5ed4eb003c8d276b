"""The door of a TLS listener, where handshakes wait their turn

A handshake costs the event loop about a millisecond, a thousand times what a small request does, and all clients of a
broker come back at once after a restart. So a connection is accepted here as a bare socket. It costs nothing until its
first bytes are there, and they are looked at before OpenSSL sees them: a client that does not speak TLS is told from
one whose handshake fails. Of those that may begin, `STARTS_PER_TURN` do so in one turn of the loop, and between two
turns everybody else is served.

Handshakes have `HANDSHAKE_S` from the first byte on, silence before it as long. At most `WAITING_MAX` connections are
here at a time; one more drives out the one that has been here longest without a word, or if all have begun, the one
that has been here longest: a handshake takes milliseconds, unless it is none. Where there are too many connections
already, one more is `welcome` no further than here, so that it costs no handshake.

The context is asked for with every connection, so a new certificate counts from the next one on.

Not here: what is spoken once a connection is encrypted (`connection`), files and their changes (`tls_watch`).
"""

import asyncio
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from tidemill.core.runtime.tls import keeping_alerts, server_trouble

HANDSHAKE_S = 10.0  # Apache Kafka has no limit but connections.max.idle.ms; asyncio's own is a minute
SHUTDOWN_S = 1.0  # for the client's goodbye when we hang up
STARTS_PER_TURN = 2
WAITING_MAX = 1000
ACCEPT_PAUSE_S = 0.1  # when there are no file descriptors

_HANDSHAKE_RECORD = b"\x16"
_LEFT_BYTES_MAX = 64 * 1024
NOT_TLS = "the client does not speak TLS: set security.protocol=SSL there, or connect to a PLAINTEXT listener"
SILENT = "no handshake was begun in time"
CROWDED = "too many connections wait for their handshakes, and this one has waited longest"

Refused = Callable[[str, str], None]
"""`(client host, reason)`: told of every connection that does not get in, but for those that just leave."""

Welcome = Callable[[str, int], bool]
"""`(client host, how many of it are at the door)`: whether one more connection has a chance; tells of those without."""


class Turnstile:
    """Lets so many pass in one turn of the event loop, in the order in which they came."""

    def __init__(self, per_turn: int = STARTS_PER_TURN) -> None:
        self._per_turn = per_turn
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._turns = False

    async def passed(self) -> None:
        """Wait for one's turn."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiting)
        if not self._turns:
            self._turns = True
            loop.call_soon(self._turn)
        await waiting

    def _turn(self) -> None:
        let_through = 0
        while self._waiting and let_through < self._per_turn:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                let_through += 1
        self._turns = bool(self._waiting)
        if self._turns:
            asyncio.get_running_loop().call_soon(self._turn)


class TlsDoor:
    """The listening sockets of one listener; `tasks` outlive it."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        *,
        tasks: asyncio.TaskGroup,
        context: Callable[[], ssl.SSLContext],
        connection: Callable[[], asyncio.BufferedProtocol],
        refused: Refused,
        welcome: Welcome,
    ) -> None:
        self.sockets = tuple(sockets)
        self._tasks = tasks
        self._context = context
        self._connection = connection
        self._refused = refused
        self._welcome = welcome
        self._turnstile = Turnstile()
        self._silent: dict[asyncio.Task[None], None] = {}  # longest first, as all here
        self._inside: dict[asyncio.Task[None], str] = {}  # with the client's host
        self._of_host: Counter[str] = Counter()
        self._accepting = [tasks.create_task(self._accept(each)) for each in self.sockets]

    @property
    def waiting(self) -> int:
        """Connections that have not finished their handshakes."""
        return len(self._inside)

    def close(self) -> None:
        """Let in nobody any more."""
        for task in (*self._accepting, *self._inside):
            task.cancel()
        for each in self.sockets:
            each.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except ConnectionError:
                continue  # it left before it was accepted
            except OSError as error:
                self._refused("", f"cannot accept: {error.strerror}")
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            host = str(address[0])
            if not self._welcome(host, self._of_host[host]):
                accepted.close()
                continue
            self._make_room()
            task = self._tasks.create_task(self._let_in(accepted, host))
            self._inside[task] = host
            self._of_host[host] += 1
            self._silent[task] = None
            task.add_done_callback(self._left)

    def _make_room(self) -> None:
        if len(self._inside) >= WAITING_MAX:
            longest = next(iter(self._silent or self._inside))
            self._left(longest)
            longest.cancel(CROWDED)

    def _left(self, task: asyncio.Task[None]) -> None:
        """It is here no more, or will soon be."""
        self._silent.pop(task, None)
        host = self._inside.pop(task, None)
        if host is not None:
            self._of_host[host] -= 1
            if not self._of_host[host]:
                del self._of_host[host]

    async def _let_in(self, accepted: socket.socket, host: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        reason: str | None = None
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                first = await _first_byte(accepted)
            self._silent.pop(task, None)
            if first == _HANDSHAKE_RECORD:
                await self._turnstile.passed()
                await self._shake_hands(accepted)
            elif first:
                reason = NOT_TLS
                accepted.recv(_LEFT_BYTES_MAX)  # what is not read would make a reset of our goodbye
        except TimeoutError:
            reason = SILENT
        except Exception as error:  # whatever becomes of one of them, the listener goes on
            reason = server_trouble(error)
        except asyncio.CancelledError as cancelled:
            if CROWDED not in cancelled.args:
                raise
            reason = CROWDED
        finally:
            self._silent.pop(task, None)
            accepted.close()
        if reason is not None:
            self._refused(host, reason)

    async def _shake_hands(self, accepted: socket.socket) -> None:
        with accepted.dup() as still_open, keeping_alerts() as alerts:
            try:
                await asyncio.get_running_loop().connect_accepted_socket(
                    self._connection,
                    _handed_over(accepted),
                    ssl=self._context(),
                    ssl_handshake_timeout=HANDSHAKE_S,
                    ssl_shutdown_timeout=SHUTDOWN_S,
                )
            except Exception:
                with suppress(OSError):
                    still_open.send(b"".join(alerts))  # so that the client's log says what is wrong, too
                raise


def _handed_over(accepted: socket.socket) -> socket.socket:
    """The same connection in a socket that is its transport's from now on."""
    taken = socket.socket(fileno=accepted.detach())
    taken.setblocking(False)
    return taken


async def _first_byte(accepted: socket.socket) -> bytes:
    """What comes first, left where it is; nothing if the client has gone."""
    loop = asyncio.get_running_loop()
    there: asyncio.Future[None] = loop.create_future()

    def arrived() -> None:
        if not there.done():
            there.set_result(None)

    loop.add_reader(accepted, arrived)
    try:
        await there
    finally:
        loop.remove_reader(accepted)
    return accepted.recv(1, socket.MSG_PEEK)
