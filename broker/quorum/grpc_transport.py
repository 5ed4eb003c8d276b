"""Calls among nodes over gRPC

Each API is a unary method, `/tidemill.quorum/<name>`; its bytes are `tidemill.broker.quorum.transport`'s. gRPC brings
what calls over a bad network need: deadlines, one connection for many calls, an end to those whose caller is gone, and
TLS on the listener's own terms (`grpc_tls`).

A channel that has failed waits a moment before it connects again, longer each time; here not longer than a second, for
a quorum that has lost its leader has less patience. A node that hangs without closing its connections is noticed by the
deadline of each call. After some of them there is another connection: the one before may lead nowhere, because a
firewall has forgotten it, or wait for as long again as the network was cut, as TCP does.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import grpc
import structlog

from tidemill.broker.quorum.transport import (
    MESSAGE_BYTES_MAX,
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
from tidemill.broker.repeated_warnings import RepeatedWarnings
from tidemill.core.client.connection import Address
from tidemill.core.errors import KafkaError
from tidemill.core.wire.codec import DecodeError
from tidemill.core.wire.message import Message

if TYPE_CHECKING:
    from tidemill.broker.quorum.grpc_tls import NodeTls
    from tidemill.core.runtime.tls import PemTexts

    _Handler = grpc.GenericRpcHandler[bytes, bytes]
else:
    _Handler = grpc.GenericRpcHandler

log = structlog.get_logger("tidemill.broker.quorum")

SERVICE: Final = "tidemill.quorum"
IDLE_S: Final = 300.0
"""So long a connection is kept that nobody uses; members of a quorum ask one another twice in a second."""

CONNECTION_GRACE_S: Final = 0.2
"""How long calls that are being answered may take when this node stops."""

HANDSHAKE_MS: Final = 10_000
"""As long as at the other listeners; gRPC itself would keep whoever connects and says nothing for two minutes."""

CONNECT_MS: Final = 2_000
"""So long an attempt to connect may take, TLS included, far away or on a machine that is busy; not longer, for the next
one finds a network that is whole again. Where nobody listens an attempt ends at once."""

SILENT_S: Final = 6.0
"""After this long without any answer, and a call that waits in vain, the next call makes a connection of its own."""

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", CONNECT_MS),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.so_reuseport", 0),  # two brokers with one port must not share its connections
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # or another channel would be the same connection
)

_REFUSED: Final = "connection refused"
"""How gRPC's details tell it, in lower case; it has no code for that."""

_STUMBLED: Final = grpc.StatusCode.ABORTED
"""What a node says that has failed by a bug of its own: gRPC gives this code to no call, whatever the network does."""

_LASTING: Final = frozenset({_STUMBLED, grpc.StatusCode.RESOURCE_EXHAUSTED})
"""What the same request would meet again; of resources only the length of messages has a limit."""

_HUNG_UP: Final = "socket closed"
"""The same of a node that has taken the connection and ended it, as one does that waits for a TLS handshake."""

Method = Callable[[bytes, Any], Awaitable[bytes]]


class GrpcTransport:
    """Satisfies `tidemill.broker.quorum.transport.Transport`; without `tls` nothing is encrypted."""

    def __init__(
        self, tls: "NodeTls | None" = None, *, handshake_ms: int = HANDSHAKE_MS, silent_s: float = SILENT_S
    ) -> None:
        self._tls = tls
        self._handshake_ms = handshake_ms
        self._silent_s = silent_s
        self._server: Any = None
        self._links: dict[Address, _Link] = {}
        self._versions = Versions()

    async def call(self, address: Address, request: Message, *, timeout_s: float) -> Message:
        """The answer of the node at `address`; raises Unreachable."""
        while True:
            version = self._versions.of(address, request)
            try:
                data = await self._ask(address, encode_call(request, version), timeout_s)
            except VersionUnknown as known:
                self._versions.take(address, request, known)
                continue
            try:
                return decode_answer(request, version, data)
            except DecodeError as error:
                raise Unreachable(address, f"what answers there is no node of a quorum: {error}") from None

    async def _ask(self, address: Address, call: Call, timeout_s: float) -> bytes:
        link = await self._link(address)
        link.calls += 1
        link.used_s = asyncio.get_running_loop().time()
        try:
            answer: bytes = await link.channel.unary_unary(f"/{SERVICE}/{call.name}")(call.data, timeout=timeout_s)
            link.heard_s = asyncio.get_running_loop().time()
            return answer
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                try:
                    raise VersionUnknown.parse(error.details() or "") from None
                except ValueError:
                    pass
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and link.is_silent(self._silent_s):
                self._forget(address, link)
            unreachable = await self._unreachable(address, error)
            if self._expects_a_name and error.code() is grpc.StatusCode.UNAVAILABLE and not unreachable.refused:
                self._forget(address, link)  # the node may show another name by now
            raise unreachable from None
        finally:
            link.calls -= 1
            if not link.calls and self._links.get(address) is not link:
                await link.channel.close()

    @property
    def _expects_a_name(self) -> bool:
        """Whether a connection is for one name in a certificate, whatever the host is."""
        return self._tls is not None and not self._tls.checks_host

    def _forget(self, address: Address, link: "_Link") -> None:
        """The next call makes another one; this one is closed by its last call."""
        if self._links.get(address) is link:
            del self._links[address]

    async def _unreachable(self, address: Address, error: grpc.aio.AioRpcError) -> Unreachable:
        refused = _REFUSED in (error.details() or "").lower()
        reason = None
        if self._tls is not None and not refused and error.code() is grpc.StatusCode.UNAVAILABLE:
            reason = await self._tls.trouble(address)
        if self._tls is None and _HUNG_UP in (error.details() or "").lower():
            return Unreachable(address, "it hangs up: does it speak TLS there? See listener.security.protocol.map")
        words = _words(error) if reason is None else f"TLS: {reason}"
        return Unreachable(address, words, refused=refused, lasting=error.code() in _LASTING)

    async def _link(self, address: Address) -> "_Link":
        """The connection to that node, a new one where what this node shows has changed."""
        now = None if self._tls is None else self._tls.texts
        found = self._links.get(address)
        if found is None or found.texts is not now:
            channel = await self._connect(address)
            found, before = _Link(channel, now), self._links.get(address)
            self._links[address] = found
            if before is not None and not before.calls:
                await before.channel.close()
            await self._let_go()
        return found

    async def _let_go(self) -> None:
        """Of nodes that nobody has asked for long: they may have moved, or be gone."""
        since_s = asyncio.get_running_loop().time() - IDLE_S
        idle = {at: each for at, each in self._links.items() if each.used_s < since_s and not each.calls}
        for address in idle:
            del self._links[address]
        self._versions.forget(idle)
        for link in idle.values():
            await link.channel.close()

    @property
    def connected(self) -> frozenset[Address]:
        """The nodes for which a connection is kept."""
        return frozenset(self._links)

    async def _connect(self, address: Address) -> Any:
        if self._tls is None:
            return grpc.aio.insecure_channel(str(address), options=_OPTIONS)
        options: tuple[tuple[str, Any], ...] = _OPTIONS
        if not self._tls.checks_host:
            try:
                name = await self._tls.name_shown(address)
            except ConnectionRefusedError:
                raise Unreachable(address, "not reachable", refused=True) from None
            if name is None:
                reason = await self._tls.trouble(address)
                raise Unreachable(address, f"TLS: {reason}" if reason else "not reachable")
            options += (("grpc.ssl_target_name_override", name),)
        return grpc.aio.secure_channel(str(address), self._tls.channel_credentials(), options=options)

    async def serve(self, address: Address, serve: Serve) -> int:
        """Answer what comes to `address` until closed; returns the port. Raises OSError."""
        patience = ("grpc.server_handshake_timeout_ms", self._handshake_ms)
        self._server = grpc.aio.server(options=(*_OPTIONS, patience))
        self._server.add_generic_rpc_handlers((_Methods(serve),))
        try:
            if self._tls is None:
                port = self._server.add_insecure_port(str(address))
            else:
                port = self._server.add_secure_port(str(address), self._tls.server_credentials())
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: {str(error).partition(';')[0]}") from None
        await self._server.start()
        return int(port)

    async def close(self) -> None:
        """Answer nothing more, and let go of all connections."""
        if self._server is not None:
            await self._server.stop(CONNECTION_GRACE_S)
        links, self._links = list(self._links.values()), {}
        for link in links:
            await link.channel.close()


class _Link:
    """Mutable: a channel, what it was made of, the calls that are under way on it, and when the last one began.

    `heard_s` is when the last one was answered, or else when it was made.
    """

    def __init__(self, channel: Any, texts: "PemTexts | None") -> None:
        self.channel = channel
        self.texts = texts
        self.calls = 0
        self.used_s = self.heard_s = asyncio.get_running_loop().time()

    def is_silent(self, for_s: float) -> bool:
        """Whether nothing was heard for so long."""
        return asyncio.get_running_loop().time() - self.heard_s >= for_s


class _Methods(_Handler):
    """Every API is a method."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._told = RepeatedWarnings()

    def service(self, handler_call_details: Any) -> Any:
        service, _, name = handler_call_details.method.lstrip("/").partition("/")
        if service != SERVICE:
            return None
        return grpc.unary_unary_rpc_method_handler(_method(name, self._serve, self._told))


def _method(name: str, serve: Serve, told: RepeatedWarnings) -> Method:
    async def answer(data: bytes, context: Any) -> bytes:
        try:
            request, version = decode_call(Call(name, data))
        except VersionUnknown as known:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(known))
            raise
        except DecodeError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise
        try:
            return encode_answer(await serve(request), version)
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except KafkaError as error:  # nothing that a node of this release asks for
            if told.take((name, error.code), asyncio.get_running_loop().time()) is not None:
                log.warning("a call was refused", api=name, reason=str(error))
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise
        except Exception as error:
            log.exception("a call of another node was not answered", api=name)
            await context.abort(_STUMBLED, f"{type(error).__name__}: {error}")
            raise

    return answer


def _words(error: grpc.aio.AioRpcError) -> str:
    """Why there was no answer, without gRPC's own prose about its internals."""
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "no answer in time"
    if code is grpc.StatusCode.UNAVAILABLE:
        return "not reachable" if not details else f"not reachable ({details})"
    return f"{code.name}: {details}"
