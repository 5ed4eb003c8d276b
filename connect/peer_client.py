"""HTTP to the other workers of a group

What a worker needs of HTTP is little: one request with a body that it has, one answer, over connections that are kept
for the next request. The protocol is h11's, the same that serves the REST API; the sockets are asyncio's.

What failed matters to whoever asks. `Unreachable` says that nothing was sent: to ask somebody else, or again, does no
harm. `HungUp` says that the connection ended before anything of an answer came, as when a worker stops or is killed.
That and any other `PeerFailure` leaves open whether the other worker has done what it was asked.

A worker that hangs takes connections and requests as one that works long does: its system does that for it. So before
a request is sent the worker is asked whether it lives, and while the request is out it is asked again and again, on
another connection to the address that the request went to: its name may be looked up too late, or lead elsewhere by
then. Any answer is a sign of life, also that of a worker that does not know the question (Kafka's). Who gives none is
`Silent`, with nothing sent, or `FellSilent`, with a request that it may yet carry out; who lives is waited for. What
keeps this worker itself from asking is nobody's silence.

An answer that comes back is an answer, whatever its status. It is read up to a limit, within a time limit, and a
connection on which anything went wrong is not used again: what the other side has not taken yet is taken back, and it
can see that nobody waits for its answer. A connection is kept for less time than the other side keeps it (uvicorn:
5 s), or requests would run into connections that are just being closed.
"""

import asyncio
import errno
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import h11

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
"""An answer holds a configuration, of 4 MiB at most, and what there is to say about it."""

CONNECTIONS_MAX: Final = 32
"""To one worker at a time. The requests are few and short; who asks for more waits."""

IDLE_S: Final = 2.0
CONNECT_TIMEOUT_S: Final = 5.0

SIGN_PATH: Final = "/health/live"
"""Answered by the event loop itself: no work of the worker's holds it up."""

SIGN_S: Final = 2.0
"""How long a worker has to give a sign of life before a request is sent; whoever asks may then look who decides now."""

SILENCE_S: Final = 10.0
"""How long a request that was sent waits without a sign of life. A leader that hangs has lost its office by then: its
session ends after `session.timeout.ms`, 6 s."""

LOOK_S: Final = 2.0
"""How often a worker is asked for a sign of life while a request is out."""

_READ_BYTES: Final = 64 * 1024

_WAY_IS_CUT: Final = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)


class PeerFailure(Exception):
    """There is no answer; the request may have been carried out."""


class Unreachable(PeerFailure):
    """There was nobody to send the request to: it was not carried out."""


class Silent(Unreachable):
    """Somebody may be there, and gives no sign of life: the request was not sent."""


class HungUp(PeerFailure):
    """The connection ended before a word of an answer."""


class FellSilent(PeerFailure):
    """No sign of life since the request was sent; the connection stands, and the request may be read from it yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerAnswer:
    """What the other worker said. Names of headers are in small letters."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """The first header of this name."""
        return next((value for each, value in self.headers if each == name), None)


class _Address(NamedTuple):
    host: str
    port: int


class _Sending:
    """Whether a request was sent, and where to."""

    def __init__(self) -> None:
        self.begun = False
        self.address: _Address | None = None

    def begin(self, address: _Address | None) -> None:
        self.begun, self.address = True, address


class _Life:
    """What is known of whether a worker lives."""

    def __init__(self) -> None:
        self.asked = asyncio.Lock()
        self.heard_s = -math.inf


class _Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._protocol = h11.Connection(h11.CLIENT)
        self.heard = False  # anything of the answer
        self.idle_since = 0.0

    @property
    def is_open(self) -> bool:
        return not (self._reader.at_eof() or self._writer.is_closing())

    @property
    def address(self) -> _Address | None:
        """Where it leads, in numbers."""
        name = self._writer.get_extra_info("peername")
        return _Address(name[0], name[1]) if name else None

    def close(self) -> None:
        # Not by and by: a worker that hangs would keep what it was not given yet for as long as it does.
        self._writer.transport.abort()

    async def exchange(self, request: h11.Request, body: bytes) -> PeerAnswer:
        self._send(request)
        self._send(h11.Data(data=body))
        self._send(h11.EndOfMessage())
        await self._writer.drain()
        status = 0
        headers: tuple[tuple[str, str], ...] = ()
        content = bytearray()
        while True:
            match await self._next():
                case h11.Response(status_code=status, headers=found):
                    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in found)
                case h11.Data(data=part):
                    content += part
                    if len(content) > ANSWER_BYTES_MAX:
                        raise PeerFailure(f"its answer is longer than {ANSWER_BYTES_MAX} bytes")
                case h11.EndOfMessage():
                    return PeerAnswer(status=status, headers=headers, body=bytes(content))
                case h11.ConnectionClosed():
                    raise PeerFailure("it closed the connection")

    def renew(self) -> bool:
        """Whether the connection can take another request."""
        if self._protocol.our_state is not h11.DONE or self._protocol.their_state is not h11.DONE:
            return False
        self._protocol.start_next_cycle()
        self.heard = False
        return self.is_open

    def _send(self, event: h11.Request | h11.Data | h11.EndOfMessage) -> None:
        self._writer.write(self._protocol.send(event) or b"")

    async def _next(self) -> object:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            data = await self._reader.read(_READ_BYTES)
            if not data and not self.heard:
                raise HungUp("it closed the connection without an answer")
            self.heard = True
            self._protocol.receive_data(data)
        return event


class PeerClient:
    """Asks other workers; close it at the end."""

    def __init__(self) -> None:
        self._idle: dict[_Address, list[_Wire]] = {}
        self._slots: dict[_Address, asyncio.Semaphore] = {}
        self._lives: dict[_Address, _Life] = {}

    async def ask(
        self, url: str, method: str, target: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float
    ) -> PeerAnswer:
        """Send a request to the worker at `url` and return its answer; `target` is path and query, encoded.

        Raises Unreachable (Silent) or another PeerFailure (HungUp, FellSilent).
        """
        address, prefix = _parsed(url)
        try:
            request = self._request(url, method, prefix + target, headers, body)
        except h11.LocalProtocolError as error:
            raise PeerFailure(f"the request cannot be passed on: {error}") from None
        sign = self._request(url, "GET", prefix + SIGN_PATH, {}, b"")
        try:
            async with asyncio.timeout(timeout_s):
                await self._sign_of_life(address, sign, SIGN_S)
                return await self._while_alive(address, sign, request, body)
        except TimeoutError:
            raise PeerFailure(f"no answer within {timeout_s:g} s") from None

    async def _while_alive(self, address: _Address, sign: h11.Request, request: h11.Request, body: bytes) -> PeerAnswer:
        sending = _Sending()
        async with asyncio.TaskGroup() as tasks:
            call = tasks.create_task(self._called(address, sign, request, body, sending))
            silence = tasks.create_task(self._silence(address, sign, sending))
            await asyncio.wait((call, silence), return_when=asyncio.FIRST_COMPLETED)
            call.cancel()
            silence.cancel()
        if call.cancelled():
            failure = FellSilent if sending.begun else Silent
            raise failure(f"no sign of life for {SILENCE_S:g} s")
        answer = call.result()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _called(
        self, address: _Address, sign: h11.Request, request: h11.Request, body: bytes, sending: _Sending
    ) -> PeerAnswer | Exception:
        slots = self._slots.setdefault(address, asyncio.Semaphore(CONNECTIONS_MAX))
        has_to_wait = slots.locked()
        try:
            async with slots:
                if has_to_wait:  # its turn may have come because somebody else has given up
                    await self._sign_of_life(address, sign, SIGN_S)
                return await self._ask(address, request, body, sending)
        except Exception as error:  # as it is, and not as one of a group
            return error

    async def _silence(self, address: _Address, sign: h11.Request, sending: _Sending) -> None:
        """Return when the worker has given no sign of life for SILENCE_S.

        What counts is how long was waited in vain, not what a clock says: who was stopped itself has not listened.
        """
        silent_s = 0.0
        while silent_s < SILENCE_S:
            if not silent_s:
                await asyncio.sleep(LOOK_S)
                silent_s = LOOK_S
            try:
                await self._sign_of_life(sending.address or address, sign, SIGN_S)
                silent_s = 0.0
            except Silent:
                silent_s += SIGN_S
            except Unreachable as error:
                # It may take nobody any more and still finish what it has been asked, as a worker that stops. Whether
                # it has gone the connection of the request tells, unless the way there is cut.
                is_cut = isinstance(error.__cause__, OSError) and error.__cause__.errno in _WAY_IS_CUT
                await asyncio.sleep(SIGN_S)
                silent_s = silent_s + SIGN_S if is_cut else 0.0

    async def _sign_of_life(self, address: _Address, sign: h11.Request, within_s: float) -> None:
        """Return when the worker has said anything since the call, to whomever; one asks for all who wait for it.

        Raises Silent, or Unreachable for whatever else comes instead of an answer.
        """
        clock = asyncio.get_running_loop().time
        life = self._lives.setdefault(address, _Life())
        began_s = clock()
        try:
            async with asyncio.timeout(within_s), life.asked:
                if life.heard_s < began_s:
                    await self._ask(address, sign, b"", _Sending())
                    life.heard_s = clock()
        except TimeoutError:
            raise Silent(f"no sign of life within {within_s:g} s") from None
        except Unreachable:
            raise
        except PeerFailure as error:
            raise Unreachable(str(error)) from error

    def _request(self, url: str, method: str, target: str, headers: Mapping[str, str], body: bytes) -> h11.Request:
        return h11.Request(
            method=method,
            target=target.encode("latin-1"),
            headers=[
                (b"host", urlsplit(url).netloc.encode("ascii")),
                (b"content-length", str(len(body)).encode()),
                *((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()),
            ],
        )

    async def _ask(self, address: _Address, request: h11.Request, body: bytes, sending: _Sending) -> PeerAnswer:
        wire = self._kept(address) or await self._connected(address)
        reusable = False
        try:
            sending.begin(wire.address)
            answer = await wire.exchange(request, body)
            reusable = wire.renew()
            return answer
        except OSError as error:
            broken = PeerFailure if wire.heard else HungUp
            raise broken(f"the connection broke: {_reason(error)}") from error
        except h11.RemoteProtocolError as error:
            raise PeerFailure(f"it does not speak HTTP: {error}") from error
        finally:
            if reusable:
                wire.idle_since = asyncio.get_running_loop().time()
                self._idle.setdefault(address, []).append(wire)
            else:
                wire.close()

    def _kept(self, address: _Address) -> _Wire | None:
        """A connection that is kept and still good; all others that are not are closed, to whomever they lead."""
        now = asyncio.get_running_loop().time()
        for each, wires in list(self._idle.items()):
            good = [wire for wire in wires if wire.is_open and now - wire.idle_since < IDLE_S]
            for wire in wires:
                if wire not in good:
                    wire.close()
            self._idle[each] = good
            if not good:
                del self._idle[each]
        kept = self._idle.get(address)
        return kept.pop() if kept else None

    async def _connected(self, address: _Address) -> _Wire:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                return _Wire(*await asyncio.open_connection(address.host, address.port))
        except TimeoutError:
            raise Silent(f"no connection within {CONNECT_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise Unreachable(_reason(error)) from error
        except UnicodeError as error:
            raise Unreachable(f"{address.host!r} is no name of a host: {error}") from error

    def close(self) -> None:
        """Close the connections that are kept."""
        for wires in self._idle.values():
            for wire in wires:
                wire.close()
        self._idle.clear()


def _reason(error: OSError) -> str:
    # asyncio has words of its own for a refused connection, which name an address and no reason.
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)


def _parsed(url: str) -> tuple[_Address, str]:
    """Where to connect, and what stands before every path."""
    no_url = Unreachable(f"{url!r} is no http://HOST:PORT, and nothing else is spoken between workers")
    try:
        parts = urlsplit(url)
        port = parts.port or 80
    except ValueError:
        raise no_url from None
    if parts.scheme != "http" or not parts.hostname or not url.isascii():
        raise no_url
    return _Address(parts.hostname, port), parts.path.rstrip("/")
