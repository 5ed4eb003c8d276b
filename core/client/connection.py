"""One connection: requests pipelined, responses matched in order

A Kafka broker answers the requests of a connection in the order in which they were sent, so a queue of waiting futures
is all the bookkeeping there is: `send` writes a request at once and returns the future of its response. Versions are
negotiated when the connection opens; a request then takes the highest version that both sides know, unless told.

A timeout closes the connection, since the answer that is still to come would be taken for the next one. Whatever ends a
connection fails everything that is in flight on it, with an error that names the address.

Not here: finding brokers, retrying (`tidemill.core.client.cluster`). SASL slots in between `open` and the first
request.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from ..error_code import ErrorCode
from ..errors import UnsupportedVersion, error_for_code
from ..runtime.net import Dialer, Stream
from ..runtime.tls import client_trouble
from ..types import new_tuple
from ..wire.api import ApiKey, api
from ..wire.codec import DecodeError, decode
from ..wire.framing import decode_response_message, encode_request_chunks, response_correlation_id
from ..wire.message import Message
from ..wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

CONNECT_TIMEOUT_MS = 10_000  # socket.connection.setup.timeout.ms of Kafka's clients
REQUEST_TIMEOUT_MS = 30_000  # request.timeout.ms of Kafka's clients
CLOSED_BY_PEER = "peer closed the connection"
NOT_WELCOME = "a listener that wants TLS or SASL does so with whoever comes without: see security.protocol"
_API_VERSIONS_FIRST = 3  # what every broker since 2.4 knows; an older one answers with what it does know
_CORRELATIONS = 2**31

ResponseT = TypeVar("ResponseT", bound=Message)


class Address(NamedTuple):
    """Host and port of a listener."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(bootstrap: str) -> tuple[Address, ...]:
    """Read `host:port,host:port`; raises ValueError with what is wrong.

    >>> parse_addresses("a:9092, [::1]:9093")
    (Address(host='a', port=9092), Address(host='::1', port=9093))
    """
    found = []
    for part in filter(None, (piece.strip() for piece in bootstrap.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or not host or not port.isdigit() or not 0 < int(port) < 65_536:
            raise ValueError(f"expected host:port, got {part!r}")
        found.append(Address(host.removeprefix("[").removesuffix("]"), int(port)))
    if not found:
        raise ValueError("no bootstrap address given")
    return tuple(found)


class ConnectionFailed(ConnectionError):
    """The connection to `address` is gone or was never made."""

    def __init__(self, address: Address, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason


class RequestTimedOut(ConnectionFailed):
    """No answer in time; the request may or may not have been carried out."""


class ApiNotSupported(UnsupportedVersion):
    """The broker does not serve an API, or no version of it that we know."""


class _Pending(NamedTuple):
    key: ApiKey
    version: int
    correlation_id: int
    deadline: float  # of the event loop's clock
    timeout_ms: int
    answer: "asyncio.Future[Message]"


class Connection:
    """An open, negotiated connection; made by `Connection.open`."""

    def __init__(self, address: Address, client_id: str, request_timeout_ms: int = REQUEST_TIMEOUT_MS) -> None:
        self.address = address
        self.versions: Mapping[int, tuple[int, int]] = {}
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._stream: Stream | None = None
        self._pending: deque[_Pending] = deque()
        self._next_correlation_id = 0
        self._failure: ConnectionFailed | None = None
        self._negotiated: dict[tuple[ApiKey, int | None], int] = {}
        self._watchdog: asyncio.TimerHandle | None = None

    @classmethod
    async def open(
        cls,
        address: Address,
        *,
        client_id: str,
        dialer: Dialer,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> "Connection":
        """Connect and negotiate versions; raises ConnectionFailed naming the address."""
        connection = cls(address, client_id, request_timeout_ms)
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                connection._stream = await dialer.dial(
                    address.host, address.port, connection._on_frame, connection._on_lost
                )
                await connection._negotiate()
        except TimeoutError:
            connection.close()
            raise RequestTimedOut(address, f"no answer within {connect_timeout_ms} ms") from None
        except ConnectionFailed as failed:
            if failed.reason == CLOSED_BY_PEER or isinstance(failed.__cause__, ConnectionResetError):
                raise ConnectionFailed(address, f"{failed.reason}; {NOT_WELCOME}") from None
            raise
        except OSError as error:
            raise ConnectionFailed(address, f"cannot connect: {error.strerror or error}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    # -- state

    @property
    def usable(self) -> bool:
        """Whether a request may still be sent."""
        return self._failure is None

    @property
    def in_flight(self) -> int:
        """Requests waiting for their response."""
        return len(self._pending)

    def version_of(self, key: ApiKey, cap: int | None = None) -> int:
        """The highest version both sides know, at most `cap`; raises ApiNotSupported."""
        known = self._negotiated.get((key, cap))
        if known is not None:
            return known
        ours = api(key)
        low, high = self.versions.get(key, (1, 0))
        version = min(high, ours.max_version if cap is None else min(cap, ours.max_version))
        if version < max(low, ours.min_version):
            theirs = f"versions {low} to {high}" if low <= high else "no version"
            wanted = f"{ours.min_version} to {ours.max_version if cap is None else cap}"
            raise ApiNotSupported(f"{self.address} serves {theirs} of {ours.name}, needed is one of {wanted}")
        self._negotiated[key, cap] = version
        return version

    def serves(self, key: ApiKey) -> bool:
        """Whether the broker lists the API at all."""
        return key in self.versions

    # -- requests

    def send(
        self, key: ApiKey, message: Message, *, version: int | None = None, timeout_ms: int | None = None
    ) -> "asyncio.Future[Message]":
        """Write a request behind those already sent and return the future of its response."""
        if self._failure is not None:
            raise self._failure
        assert self._stream is not None
        if version is None:
            version = self.version_of(key)
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) % _CORRELATIONS
        chunks = encode_request_chunks(key, version, correlation_id, self._client_id, message)
        loop = asyncio.get_running_loop()
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        answer: asyncio.Future[Message] = loop.create_future()
        deadline = loop.time() + limit_ms / 1000
        self._pending.append(new_tuple(_Pending, (key, version, correlation_id, deadline, limit_ms, answer)))
        if self._watchdog is None or deadline < self._watchdog.when():
            self._watch_until(deadline)
        self._stream.write(chunks)
        return answer

    async def request(
        self,
        key: ApiKey,
        message: Message,
        expect: type[ResponseT],
        *,
        version: int | None = None,
        timeout_ms: int | None = None,
    ) -> ResponseT:
        """Send one request and wait for its response; on timeout the connection is closed."""
        stream = self._stream
        if stream is not None and not stream.writable:
            await self.drain()
        response = await self.send(key, message, version=version, timeout_ms=timeout_ms)
        assert isinstance(response, expect), f"expected {expect.__name__}, got {type(response).__name__}"
        return response

    def _watch_until(self, deadline: float) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._watchdog = asyncio.get_running_loop().call_at(deadline, self._watch)

    def _watch(self) -> None:
        """Close the connection when a request has waited too long; look again when the next one will have."""
        self._watchdog = None
        if not self._pending or self._failure is not None:
            return
        due = min(self._pending, key=lambda waiting: waiting.deadline)
        if due.deadline <= asyncio.get_running_loop().time():
            reason = f"no answer to {due.key.name} within {due.timeout_ms} ms"
            self._fail(RequestTimedOut(self.address, reason))
        else:
            self._watch_until(due.deadline)

    @property
    def writable(self) -> bool:
        """Whether a request may be sent without waiting for the broker to read what was sent before."""
        return self._failure is None and self._stream is not None and self._stream.writable

    async def drain(self) -> None:
        """Wait while the broker reads more slowly than we write."""
        if self._stream is not None and self._failure is None:
            await self._stream.drain()

    def close(self) -> None:
        """Drop the connection; everything in flight fails."""
        self._fail(ConnectionFailed(self.address, "connection was closed"))

    # -- the stream's side

    async def _negotiate(self) -> None:
        request = ApiVersionsRequest(client_software_name="tidemill", client_software_version="1")
        response = await self._api_versions(request, _API_VERSIONS_FIRST)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            highest = next((row.max_version for row in response.api_keys if row.api_key == ApiKey.API_VERSIONS), 0)
            response = await self._api_versions(request, min(highest, _API_VERSIONS_FIRST))
        if response.error_code:
            raise error_for_code(response.error_code, f"{self.address} refused to name its API versions")
        self.versions = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}

    async def _api_versions(self, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        answer = await self.send(ApiKey.API_VERSIONS, request, version=version)
        assert isinstance(answer, ApiVersionsResponse)
        return answer

    def _on_frame(self, frame: bytearray) -> None:
        if not self._pending:
            self._fail(ConnectionFailed(self.address, "peer sent a response nobody asked for"))
            return
        waiting = self._pending.popleft()
        try:
            response = self._decode(waiting, frame)
        except DecodeError as error:
            failure = ConnectionFailed(self.address, f"unreadable answer to {waiting.key.name}: {error}")
            if not waiting.answer.done():
                waiting.answer.set_exception(failure)
            self._fail(failure)
            return
        if not waiting.answer.done():
            waiting.answer.set_result(response)

    def _decode(self, waiting: _Pending, frame: bytearray) -> Message:
        view: Any = memoryview(frame)
        if waiting.key is ApiKey.API_VERSIONS and view[4:6] == b"\x00\x23":  # unsupported: the answer is in version 0
            response, _ = decode(ApiVersionsResponse, 0, view, 4)
            return response
        correlation_id = response_correlation_id(view)
        if correlation_id != waiting.correlation_id:
            raise DecodeError(f"correlation id {correlation_id} instead of {waiting.correlation_id}")
        return decode_response_message(waiting.key, waiting.version, view)

    def _on_lost(self, error: Exception | None) -> None:
        reason = CLOSED_BY_PEER
        if error is not None:
            reason = f"connection lost: {client_trouble(error, self.address.host) or error}"
        failure = ConnectionFailed(self.address, reason)
        failure.__cause__ = error
        self._fail(failure)

    def _fail(self, failure: ConnectionFailed) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        if self._stream is not None:
            self._stream.close()
        pending, self._pending = self._pending, deque()
        for waiting in pending:
            if not waiting.answer.done():
                waiting.answer.set_exception(failure)
                waiting.answer.exception()  # retrieved: a pipelined answer may have nobody waiting yet
