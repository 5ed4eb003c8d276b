"""The way between controllers, over the simulated network

As gRPC does it over a real one: one connection to each address, many calls on it at once, a deadline for each; a
connection that cannot be had is tried again a moment later, longer each time, and calls fail at once until then. Calls
of one connection arrive in order and may overtake one another where they are answered. What is said among voters may
be delivered twice in some worlds: the machine promises to bear it.

A life that is over says nothing more, whatever is left of its program.
"""

import asyncio
import random
import struct
from collections.abc import Callable
from typing import Final

from tidemill.broker.quorum.raft.wire import REQUESTS
from tidemill.broker.quorum.transport import (
    Call,
    Serve,
    Unreachable,
    Versions,
    VersionUnknown,
    decode_answer,
    decode_call,
    encode_answer,
    encode_call,
)
from tidemill.core.client.connection import Address
from tidemill.core.runtime.net import Dialer, FrameStream, OnFrame, OnLost, Stream, TcpDialer
from tidemill.core.wire.message import Message

_HEAD: Final = struct.Struct(">ih")
"""Number of the call; of a call the length of its name, of an answer what it is."""

_SIZE: Final = struct.Struct(">i")

ANSWERED, OTHER_VERSIONS, FAILED = 0, 1, 2

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
"""Before a connection is tried again that could not be had."""

CONNECT_WITHIN_S: Final = 20.0


class LifeDialer:
    """Connections of one life; satisfies `tidemill.core.runtime.net.Dialer`."""

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._is_over = is_over
        self._dialer = TcpDialer()

    async def dial(self, host: str, port: int, on_frame: OnFrame, on_lost: OnLost) -> Stream:
        if self._is_over():
            raise ConnectionError("this program has ended")
        stream = await self._dialer.dial(host, port, on_frame, on_lost)
        if self._is_over():
            stream.close()
            raise ConnectionError("this program has ended")
        return stream


class Link:
    """The connection to one address, as far as there is one."""

    def __init__(self, address: Address, dialer: Dialer) -> None:
        self.address = address
        self._dialer = dialer
        self._stream: Stream | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._pause_s, self._not_before = 0.0, 0.0
        self._failure: Unreachable | None = None
        self._waiting: dict[int, asyncio.Future[tuple[int, bytes]]] = {}
        self._calls = 0

    async def ask(self, call: Call) -> tuple[int, bytes]:
        """What is answered to it; raises Unreachable."""
        while self._stream is None:
            now = asyncio.get_running_loop().time()
            if self._failure is not None and now < self._not_before:
                raise Unreachable(self.address, self._failure.reason, refused=self._failure.refused)
            if self._connecting is None or self._connecting.done():
                self._connecting = asyncio.ensure_future(self._connect())
            await asyncio.shield(self._connecting)
        self._calls += 1
        number = self._calls
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        name = call.name.encode()
        body = _HEAD.pack(number, len(name)) + name + call.data
        self._stream.write((_SIZE.pack(len(body)), body))
        try:
            return await answer
        finally:
            self._waiting.pop(number, None)

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                stream = await self._dialer.dial(self.address.host, self.address.port, self._take, self._lost)
        except OSError as error:
            refused = isinstance(error, ConnectionRefusedError)
            self._failure = Unreachable(self.address, f"not reachable ({error})", refused=refused)
            self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
            self._not_before = loop.time() + self._pause_s
        else:
            self._stream, self._failure, self._pause_s = stream, None, 0.0

    def _take(self, frame: bytearray) -> None:
        number, kind = _HEAD.unpack_from(frame)
        waiting = self._waiting.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_result((kind, bytes(frame[_HEAD.size :])))

    def _lost(self, _error: Exception | None) -> None:
        self._stream = None
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(Unreachable(self.address, "the connection is lost"))

    def close(self) -> None:
        """Let go of it."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self._stream is not None:
            self._stream.close()


class NetworkTransport:
    """Satisfies `tidemill.broker.quorum.transport.Transport` for one life of a node.

    `repeats` is the share of calls among voters that are delivered twice. `held_s` says how long a call takes to be
    heard, and `answered` is told of each one that was.
    """

    def __init__(
        self,
        is_over: Callable[[], bool],
        rng: random.Random,
        repeats: float,
        held_s: Callable[[Message], float] = lambda _request: 0.0,
        answered: Callable[[Message, Message], None] = lambda _request, _answer: None,
    ) -> None:
        self._is_over = is_over
        self._rng = rng
        self._repeats = repeats
        self._held_s = held_s
        self._answered = answered
        self._links: dict[Address, Link] = {}
        self._versions = Versions()
        self._server: asyncio.AbstractServer | None = None
        self._streams: dict[FrameStream, None] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def call(self, address: Address, request: Message, *, timeout_s: float) -> Message:
        """The answer of the node at `address`; raises Unreachable."""
        if self._is_over():
            raise Unreachable(address, "this program has ended")
        version = self._versions.of(address, request)
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = Link(address, LifeDialer(self._is_over))
        try:
            async with asyncio.timeout(timeout_s):
                kind, data = await link.ask(encode_call(request, version))
        except TimeoutError:
            raise Unreachable(address, "no answer in time") from None
        if kind == OTHER_VERSIONS:
            self._versions.take(address, request, VersionUnknown.parse(data.decode()))
            return await self.call(address, request, timeout_s=timeout_s)
        if kind == FAILED:
            raise Unreachable(address, data.decode())
        return decode_answer(request, version, data)

    async def serve(self, address: Address, serve: Serve) -> int:
        """Answer what comes to `address` until closed; returns the port. Raises OSError."""

        def accept() -> FrameStream:
            def take(frame: bytearray) -> None:
                task = asyncio.ensure_future(self._answer(stream, frame, serve))
                self._tasks[task] = None
                task.add_done_callback(lambda done: self._tasks.pop(done, None))

            stream = FrameStream(take, lambda _error: self._streams.pop(stream, None))
            self._streams[stream] = None
            return stream

        self._server = await asyncio.get_running_loop().create_server(accept, address.host, address.port)
        return address.port

    async def _answer(self, stream: FrameStream, frame: bytearray, serve: Serve) -> None:
        number, name_size = _HEAD.unpack_from(frame)
        at = _HEAD.size + name_size
        call = Call(frame[_HEAD.size : at].decode(), bytes(frame[at:]))
        if self._rng.random() < 0.05:
            await asyncio.sleep(self._rng.random() * 0.02)
        if self._is_over():
            return
        kind, data = ANSWERED, b""
        try:
            request, version = decode_call(call)
            if held_s := self._held_s(request):
                await asyncio.sleep(held_s)
            if type(request) in REQUESTS and self._rng.random() < self._repeats:
                await asyncio.sleep(self._rng.random() * 0.5)
                await serve(request)
            answer = await serve(request)
            data = encode_answer(answer, version)
            self._answered(request, answer)
        except VersionUnknown as known:
            kind, data = OTHER_VERSIONS, str(known).encode()
        except Exception as error:
            kind, data = FAILED, f"{type(error).__name__}: {error}".encode()
        body = _HEAD.pack(number, kind) + data
        stream.write((_SIZE.pack(len(body)), body))

    async def close(self) -> None:
        """Answer nothing more, and let go of all connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        for stream in list(self._streams):
            stream.close()
        for link in self._links.values():
            link.close()
        self._links.clear()
