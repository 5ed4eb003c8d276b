"""The dispatcher, which makes a response of every request frame

A `Route` says which handler serves an API key, in which versions, and how that API says "error". The dispatcher
decodes the header, finds the route, decodes the request and calls the handler. Whatever goes wrong then, on any of the
ways below or while the response is encoded, becomes that API's own error response here and nowhere else (`fail`); what
is not a KafkaError is UNKNOWN_SERVER_ERROR to the client and one line with its traceback in the log. Where not even an
error response can be made, the connection is closed.

A handler may answer in three ways, and the way says how much of its connection it needs:

* it returns the response (or None: no response at all, as Produce with acks=0);
* it returns a future: everything the request changes has already happened and only the answer is still to come (Produce
  waiting for the disk, Fetch waiting for data), so the next request of the connection may begin;
* it is a coroutine: it runs as a task, and the next request of the connection begins when it is done.

The future is the request's own: it is cancelled when the client goes away, while a coroutine always runs to its end.
Responses leave in request order in every case (`broker/answer_queue.py` sees to that).

An API that is asked for far more often than all others may bring a `Shortcut`: it sees a frame before it is decoded and
may serve it in a cheaper way, as long as nobody can tell the difference.

Before a handler is called it is looked at whether the connection may ask at all (`broker/standing.py`) and whether its
principal may do what the route needs (`broker/authorization.py`). While there are quotas each request is charged, and
its answer says for how long its connection is not heard (`broker/quotas.py`).

Deliberately not here: sockets, limits, order. Those are the server's.
"""

import asyncio
import dataclasses
import struct
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from tidemill.broker.authorization import ALLOW_ALL, Authorizer, Need
from tidemill.broker.fetch_sessions import is_follower
from tidemill.broker.principals import ANONYMOUS, Principal
from tidemill.broker.quotas import UNLIMITED, Quota, QuotaManager
from tidemill.broker.refusals import Refusal
from tidemill.broker.response_errors import error_codes
from tidemill.broker.standing import Standing
from tidemill.core.errors import KafkaError, UnknownServerError
from tidemill.core.runtime.clock import Clock
from tidemill.core.wire.api import ApiKey, api
from tidemill.core.wire.codec import DecodeError, decode
from tidemill.core.wire.framing import RequestHeader, decode_request_header, encode_response
from tidemill.core.wire.message import Buffer

if TYPE_CHECKING:
    from tidemill.broker.admission import Admission
    from tidemill.broker.config import BrokerConfig
    from tidemill.broker.fetch_sessions import FetchSessions
    from tidemill.broker.groups.coordinator import GroupCoordinator
    from tidemill.broker.log.store import LogStore
    from tidemill.broker.producer_ids import ProducerIds
    from tidemill.broker.quorum.controller import Controller
    from tidemill.broker.replication.replicas import Replicas
    from tidemill.broker.topic_config import Layers

log = structlog.get_logger("tidemill.broker.dispatch")

_read_key_and_version = struct.Struct(">i").unpack_from  # as one number
_KEY = struct.Struct(">h")
_KNOWN = Standing.KNOWN
_VERSION_BITS = 16

Chunks = list[Buffer]
"""A framed response in pieces: record batches stay where they are until the socket takes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """What a handler may know about where a request came from.

    `server_host` and `server_port` are the address that the client connected to; `principal` is who it is.
    """

    api_version: int
    client_id: str | None
    client_host: str
    listener: str
    connection_id: str
    server_host: str = ""
    server_port: int = 0
    principal: Principal = ANONYMOUS


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One connection as the dispatcher knows it; `principal` counts once its `standing` is known."""

    client_host: str
    listener: str
    connection_id: str
    server_host: str = ""
    server_port: int = 0
    principal: Principal = ANONYMOUS
    standing: Standing = Standing.KNOWN

    def context(self, header: RequestHeader, api_version: int) -> RequestContext:
        """The context of one request on this connection."""
        return RequestContext(
            api_version=api_version,
            client_id=header.client_id,
            client_host=self.client_host,
            listener=self.listener,
            connection_id=self.connection_id,
            server_host=self.server_host,
            server_port=self.server_port,
            principal=self.principal,
        )


class BrokerServices(Protocol):
    """What handlers see of the broker they run in; `tidemill.broker.node.Broker` is the real one."""

    @property
    def node_id(self) -> int:
        """`node.id` of this broker."""

    @property
    def cluster_id(self) -> str:
        """Identity of the cluster, as in `meta.properties`."""

    @property
    def host(self) -> str:
        """Advertised host name."""

    @property
    def port(self) -> int:
        """Advertised port: the real one, also when the configuration asked for port 0."""

    @property
    def clock(self) -> "Clock":
        """The broker's clock."""

    @property
    def config(self) -> "BrokerConfig":
        """Parsed `server.properties`."""

    @property
    def logs(self) -> "LogStore":
        """The partitions stored here."""

    @property
    def replicas(self) -> "Replicas":
        """The partitions that are served here."""

    @property
    def admission(self) -> "Admission":
        """The way of produced batches into them."""

    @property
    def controller(self) -> "Controller":
        """Cluster metadata and the way to change it."""

    @property
    def groups(self) -> "GroupCoordinator":
        """Consumer groups."""

    @property
    def fetch_sessions(self) -> "FetchSessions":
        """Incremental fetch sessions."""

    @property
    def producer_ids(self) -> "ProducerIds":
        """Fresh producer ids."""

    @property
    def authorizer(self) -> Authorizer:
        """Who may do what; another object as soon as that changes."""

    @property
    def quotas(self) -> QuotaManager:
        """How much clients may use."""

    @property
    def served_apis(self) -> Mapping[ApiKey, tuple[int, int]]:
        """First and last version of every API that is answered, as `Dispatcher.served_apis`."""

    def config_layers(self) -> "Layers":
        """The broker's settings by strength, for DescribeConfigs."""

    def misses(self, node_id: int) -> bool:
        """Whether that broker's process has just gone, as far as can be seen from here."""

    async def ensure_offsets_topic(self) -> None:
        """Create `__consumer_offsets` if it is not there; raises KafkaError when it cannot be."""


UNSUPPORTED_VERSION = -1
"""The `api_version` with which the ApiVersions handler is asked for the answer to a version that is not served."""

Handler = Callable[[BrokerServices, Any, RequestContext], Any]
"""`handle(broker, request, ctx)`: plain function or coroutine function, see the module docstring."""

ErrorResponse = Callable[[Any, KafkaError, int], Any]
"""`(request, error, api_version) -> response`: how one API says that the whole request failed."""


Shortcut = Callable[[memoryview], "Exchange | None"]
"""`(frame) -> exchange` of one API, one version and one connection; None leaves the frame to the general way."""

Shortcuts = dict[int, Shortcut]
"""By the four bytes that a frame begins with, API key and version as one number. One per connection, filled by the
dispatcher, which keeps one of each API."""


class DropConnection(Exception):
    """The only honest answer is to close this connection (an acks=0 produce that failed).

    `codes` are the errors that an answer would have told, one for each partition that has one.
    """

    def __init__(self, reason: str, codes: Sequence[int]) -> None:
        super().__init__(reason)
        self.codes = codes


class UnservedRequest(ValueError):
    """A frame that cannot be answered in a shape its sender would understand."""

    def __init__(self, reason: str, why: Refusal) -> None:
        super().__init__(reason)
        self.why = why


def top_level_error(response_class: type[Any]) -> ErrorResponse:
    """The error response of every API whose response carries one error code for the whole request."""
    fields = {field.name for field in dataclasses.fields(response_class)}
    if "error_code" not in fields:
        raise TypeError(f"{response_class.__name__} has no error_code: its route must bring an error_response")

    def build(_request: Any, error: KafkaError, _api_version: int) -> Any:
        if "error_message" in fields:
            return response_class(error_code=error.code, error_message=str(error) or None)
        return response_class(error_code=error.code)

    return build


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One served API: its handler, its version window and its error response (default: the top-level error code).

    `needs` says what a client must be allowed to do. `advertised_min` differs from `min_version` only where clients
    read something into an old version being listed. `shortcut` makes a Shortcut for a connection that uses the given
    version; no need is looked at before it is taken, so each must be about resources that it looks up itself.
    """

    key: ApiKey
    handle: Handler
    min_version: int
    max_version: int
    needs: tuple[Need, ...]
    error_response: ErrorResponse | None = None
    advertised_min: int | None = None
    shortcut: Callable[[BrokerServices, int, Peer], Shortcut] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterRoutes:
    """Routes of which only the advertised `windows` are known until `load` brings them, with the first request."""

    windows: Mapping[ApiKey, tuple[int, int]]
    load: Callable[[], Iterable[Route]]


NONE_LATER = LaterRoutes(windows={}, load=tuple)


class Exchange:
    """One request and what has become of it so far: `chunks` once answered, `pending` until then.

    `chunks` is an empty list for a request that gets no response. `exclusive` says that no later request of the same
    connection may start before this one is answered. `due` with `after` are chunks that may leave once the future
    `after` is done, which many requests wait for; if it fails, they get its error. They are due `by_others` when those
    have to store something first, which may take long, and one of them says by whom it is `heard`. `memory_bytes` is
    what the server has set aside for a large request until it is answered, `pending_bytes` the size of another that is
    pending.

    `throttle_ms` is for how long its connection is not heard once it is answered. While there are quotas a shortcut
    must not answer by itself but leave it `pending`, so that what it has used is charged.

    `errors` are the error codes in the response, as far as somebody counts them. Where requests are measured
    (`tidemill.broker.request_meter`) the connection stamps the moments `arrived`, `began`, `worked` and `answered` of
    those whose `weight` is not 0; others have none of the four.
    """

    arrived: float
    began: float
    worked: float
    answered: float

    __slots__ = (
        "after",
        "answered",
        "arrived",
        "began",
        "by_others",
        "chunks",
        "due",
        "error_response",
        "errors",
        "exclusive",
        "header",
        "heard",
        "memory_bytes",
        "pending",
        "pending_bytes",
        "request",
        "throttle_ms",
        "weight",
        "worked",
    )

    def __init__(self, header: RequestHeader, request: Any, error_response: ErrorResponse) -> None:
        self.header = header
        self.request = request
        self.error_response = error_response
        self.chunks: Chunks | None = None
        self.pending: Awaitable[Any] | None = None
        self.after: asyncio.Future[None] | None = None
        self.due: Chunks | None = None
        self.by_others = False
        self.heard: Callable[[asyncio.Future[None]], None] | None = None
        self.exclusive = False
        self.errors: Sequence[int] = ()
        self.weight = 0
        self.memory_bytes = 0
        self.pending_bytes = 0
        self.throttle_ms = 0


class Dispatcher:
    """The routes of one broker, ready to serve; `notes_errors` says that exchanges are to tell their error codes."""

    def __init__(
        self,
        broker: BrokerServices,
        routes: Iterable[Route],
        later: LaterRoutes = NONE_LATER,
        *,
        notes_errors: bool = False,
    ) -> None:
        self._broker = broker
        self._notes_errors = notes_errors
        self._began = 0.0  # when the work did that is charged; of this turn of the loop
        self._routes: dict[int, tuple[Route, type[Any], ErrorResponse]] = {}
        self._later = later
        self._add(routes)
        windows = {**served_apis(route for route, _, _ in self._routes.values()), **later.windows}
        self.served_apis: Mapping[ApiKey, tuple[int, int]] = MappingProxyType(dict(sorted(windows.items())))

    def _add(self, routes: Iterable[Route]) -> None:
        for route in routes:
            description = api(route.key)
            if route.key in self._routes:
                raise ValueError(f"{route.key.name} is routed twice")
            if route.shortcut is not None and any(need.of is not None for need in route.needs):
                raise ValueError(f"{route.key.name} has a shortcut past a need of the whole request")
            error_response = route.error_response or top_level_error(description.response)
            self._routes[int(route.key)] = (route, description.request, error_response)

    def _load_later(self) -> None:
        self._add(self._later.load())
        self._later = NONE_LATER

    def start(self, frame: bytes | memoryview, peer: Peer, shortcuts: Shortcuts | None = None) -> Exchange:
        """Decode `frame` and begin to serve it, by one of the connection's `shortcuts` if that will do.

        Raises UnservedRequest for what is not a request that this broker serves, and DropConnection for what no answer
        can be made to; the caller closes the connection. Whatever else goes wrong is an answer.
        """
        if peer.standing is not _KNOWN:
            _check_standing(frame, peer)
        failure: Exception | None = None
        shortcut = None
        if shortcuts:
            try:
                shortcut = shortcuts.get(_read_key_and_version(frame)[0])
            except struct.error:
                shortcut = None  # too short for a header, as `_understand` will say
        is_charged = self._broker.quotas is not UNLIMITED
        if is_charged:
            self._began = self._broker.clock.monotonic()
        if shortcut is not None:
            try:
                exchange = shortcut(frame if type(frame) is memoryview else memoryview(frame))
            except Exception as error:
                failure = error  # whether anything was done is not known, so the handler must not do it again
            else:
                if exchange is not None:
                    if is_charged:
                        self._charge_request(exchange, peer, len(frame))
                        self._charge_time(exchange, peer)
                    return exchange
        exchange, route, api_version = self._understand(frame)
        if is_charged:
            self._charge_request(exchange, peer, len(frame))
        try:
            if failure is not None:
                raise failure
            if shortcuts is not None and route.shortcut is not None:
                self._make_shortcut(route.shortcut, exchange.header, shortcuts, peer)
            context = peer.context(exchange.header, api_version)
            authorizer = self._broker.authorizer
            if authorizer is not ALLOW_ALL and exchange.request is not None:
                for need in route.needs:
                    need.check(authorizer, context, exchange.request)
            result = route.handle(self._broker, exchange.request, context)
            if asyncio.isfuture(result):
                exchange.pending = result
            elif isinstance(result, Coroutine):
                exchange.pending = result
                exchange.exclusive = True
            else:
                self._encode(exchange, result, peer)
                return exchange
            if is_charged:
                self._charge_time(exchange, peer)
        except Exception as error:
            self._fail(exchange, error, peer)
        return exchange

    def answer(self, exchange: Exchange, response: Any, peer: Peer) -> None:
        """Encode `response` as the answer of `exchange`; None means that nothing is to be sent.

        Raises DropConnection as `fail` does.
        """
        if self._broker.quotas is not UNLIMITED:
            self._began = self._broker.clock.monotonic()
        try:
            self._encode(exchange, response, peer)
        except Exception as error:
            self._fail(exchange, error, peer)

    def fail(self, exchange: Exchange, error: BaseException, peer: Peer) -> None:
        """Answer `exchange` with the error response of its API, whichever way it was served.

        Raises DropConnection, and nothing else, if that is what `error` is or if no such response can be made.
        """
        if self._broker.quotas is not UNLIMITED:
            self._began = self._broker.clock.monotonic()
        self._fail(exchange, error, peer)

    def _fail(self, exchange: Exchange, error: BaseException, peer: Peer) -> None:
        header = exchange.header
        if isinstance(error, DropConnection):
            raise error
        if not isinstance(error, KafkaError):
            _log_failure("request failed unexpectedly", header, error)
            error = UnknownServerError("the broker failed unexpectedly while serving this request; see its log")
        try:
            self._encode(exchange, exchange.error_response(exchange.request, error, header.api_version), peer)
        except DropConnection:
            raise
        except Exception as second:
            _log_failure("error response cannot be made", header, second)
            reason = f"no answer to a request of API key {header.api_key} could be made"
            raise DropConnection(reason, [error.code]) from second

    def _understand(self, frame: bytes | memoryview) -> tuple[Exchange, Route, int]:
        """The request in `frame`, and the version in which its handler is asked."""
        try:
            header, body_offset = decode_request_header(frame)
        except DecodeError as error:
            raise UnservedRequest(f"malformed request header: {error}", Refusal.MALFORMED) from error
        found = self._routes.get(header.api_key)
        if found is None and header.api_key in self._later.windows:
            self._load_later()
            found = self._routes.get(header.api_key)
        if found is None:
            raise UnservedRequest(f"API key {header.api_key} is not served", Refusal.UNKNOWN_API)
        route, request_class, error_response = found
        version = header.api_version
        if not route.min_version <= version <= route.max_version:
            return Exchange(_stepped_down(header, route), None, error_response), route, UNSUPPORTED_VERSION
        try:
            # Bytes after the request pass, as in Kafka: librdkafka sends three with an all-topics Metadata 13.
            request, _end = decode(request_class, version, frame, body_offset)
        except DecodeError as error:
            reason = f"malformed {route.key.name} v{version} request: {error}"
            raise UnservedRequest(reason, Refusal.MALFORMED) from error
        return Exchange(header, request, error_response), route, version

    def _encode(self, exchange: Exchange, response: Any, peer: Peer) -> None:
        header = exchange.header
        if response is None:
            chunks: Chunks = []
        else:
            chunks = encode_response(header.api_key, header.api_version, header.correlation_id, response)
            if self._notes_errors:
                exchange.errors = error_codes(response)
        if self._broker.quotas is not UNLIMITED:
            chunks = self._charge_answer(exchange, peer, response, chunks)
        elif exchange.exclusive:  # another broker may have answered, and its quotas count here too
            exchange.throttle_ms = getattr(response, "throttle_time_ms", 0)
        exchange.chunks = chunks
        exchange.pending = None
        exchange.request = None

    def _charge_request(self, exchange: Exchange, peer: Peer, size_bytes: int) -> None:
        """Charge a request of so many bytes for what it brings."""
        if exchange.header.api_key == ApiKey.PRODUCE:
            self._charge(exchange, peer, Quota.PRODUCED_BYTES, size_bytes)

    def _charge_time(self, exchange: Exchange, peer: Peer) -> None:
        """Charge the time since the work began."""
        self._charge(exchange, peer, Quota.REQUEST_SECONDS, self._broker.clock.monotonic() - self._began)

    def _charge_answer(self, exchange: Exchange, peer: Peer, response: Any, chunks: Chunks) -> Chunks:
        """Charge the time since the work began and an answer of these `chunks`; returns what is to be sent.

        What the handler says itself counts too.
        """
        header = exchange.header
        self._charge_time(exchange, peer)
        if header.api_key == ApiKey.FETCH and not is_follower(exchange.request):
            self._charge(exchange, peer, Quota.FETCHED_BYTES, sum(map(len, chunks)))
        told_ms = getattr(response, "throttle_time_ms", None)
        if told_ms is None:
            return chunks
        exchange.throttle_ms = max(exchange.throttle_ms, told_ms)
        if exchange.throttle_ms == told_ms:
            return chunks
        throttled = dataclasses.replace(response, throttle_time_ms=exchange.throttle_ms)
        return encode_response(header.api_key, header.api_version, header.correlation_id, throttled)

    def _charge(self, exchange: Exchange, peer: Peer, quota: Quota, amount: float) -> None:
        wait_ms = self._broker.quotas.charge(quota, amount, peer, exchange.header.client_id)
        exchange.throttle_ms = max(exchange.throttle_ms, wait_ms)

    def _make_shortcut(
        self,
        make: Callable[[BrokerServices, int, Peer], Shortcut],
        header: RequestHeader,
        shortcuts: Shortcuts,
        peer: Peer,
    ) -> None:
        """One for requests like this, unless there is one; it replaces that of another version."""
        key = header.api_key << _VERSION_BITS | header.api_version
        if key not in shortcuts:
            for other in [other for other in shortcuts if other >> _VERSION_BITS == header.api_key]:
                del shortcuts[other]  # a client keeps to one version, and what a shortcut remembers takes memory
            shortcuts[key] = make(self._broker, header.api_version, peer)


def _check_standing(frame: Buffer, peer: Peer) -> None:
    """Raises UnservedRequest for what may not be asked before somebody has logged in."""
    if len(frame) >= _KEY.size and not peer.standing.may_ask(key := _KEY.unpack_from(frame)[0]):
        raise UnservedRequest(f"API key {key} is asked for before the client has logged in", Refusal.NOT_LOGGED_IN)


def _log_failure(event: str, header: RequestHeader, error: BaseException) -> None:
    log.error(event, api_key=header.api_key, api_version=header.api_version, client_id=header.client_id, exc_info=error)


def _stepped_down(header: RequestHeader, route: Route) -> RequestHeader:
    """ApiVersions steps down by an answer in version 0; for all other APIs clients have negotiated before."""
    if route.key is not ApiKey.API_VERSIONS:
        reason = f"{route.key.name} v{header.api_version} is not served"
        served = f"only v{route.min_version} to v{route.max_version}"
        raise UnservedRequest(f"{reason}, {served}", Refusal.UNSUPPORTED_VERSION)
    return header._replace(api_version=0)


def served_apis(routes: Iterable[Route]) -> Mapping[ApiKey, tuple[int, int]]:
    """First and last advertised version per API key."""
    return MappingProxyType(
        {
            route.key: (
                route.min_version if route.advertised_min is None else route.advertised_min,
                route.max_version,
            )
            for route in sorted(routes, key=lambda route: route.key)
        }
    )
