"""Requests for the active controller, of clients that turned to any broker

Clients send what is for the controller to any broker. One that does not decide puts the request, as it came, into an
Envelope with the client's name and address, and the active controller's broker serves it as if the client had come
there (KIP-590). What comes of it reaches this broker as all metadata does, which may be a moment after the answer.

Controllers change while requests are under way. A client does not hear of that: its request is put to the next one,
also where the answer of the one before was lost, as Kafka's brokers do it. None does its work twice, for each says
what is to be and not what is to be added. But it may have been done when it is asked again, and is answered then as
one that comes too late: TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC_OR_PARTITION of a topic to be deleted, INVALID_PARTITIONS
of one that has so many, ELECTION_NOT_NEEDED, BROKER_ID_NOT_REGISTERED, DUPLICATE_VOTER, VOTER_NOT_FOUND. So it is in
Kafka: nobody can tell the client's own topic from one that another client has made meanwhile, and whoever deletes by
name may meet the other's. Where nobody has answered in time the client is told REQUEST_TIMED_OUT; and where the
controller has stumbled over a bug, which another try would only meet again, UNKNOWN_SERVER_ERROR at once.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from typing import Any, Final

import structlog

from tidemill.broker.dispatch import (
    BrokerServices,
    Dispatcher,
    DropConnection,
    Peer,
    RequestContext,
    Route,
    UnservedRequest,
)
from tidemill.broker.principals import ANONYMOUS, Principal
from tidemill.broker.quorum.channel import ControllerChannel
from tidemill.broker.quorum.transport import Unreachable
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import NotController, RequestTimedOut, UnknownServerError, error_for_code
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import decode_response, encode_request
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

log = structlog.get_logger("tidemill.broker.forwarding")

TIMEOUT_S: Final = 30.0
"""So long a client's request waits for an active controller, and another; as long as clients wait for an answer."""

FORWARDED: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)

_SIZE_BYTES: Final = 4
_STUMBLED: Final = "the active controller failed unexpectedly while serving this request; see its log"
_ENVELOPE: Final = "forwarded"
"""The connection by which requests come that another broker has forwarded: they go no further."""


class Forwarder:
    """The way of one broker's clients to the active controller."""

    def __init__(self, channel: ControllerChannel) -> None:
        self._channel = channel
        self.asked = 0

    async def ask(
        self, key: ApiKey, version: int, message: Message, *, client_id: str | None, principal: Principal, host: str
    ) -> Message:
        """The active controller's answer to a client's request; raises RequestTimedOut where there is none."""
        self.asked += 1
        envelope = EnvelopeRequest(
            request_data=encode_request(key, version, 0, client_id, message)[_SIZE_BYTES:],
            request_principal=str(principal).encode(),
            client_host_address=_packed(host),
        )
        try:
            answer = await self._channel.ask(envelope, timeout_s=TIMEOUT_S, again=True)
        except NotController as error:
            raise RequestTimedOut(str(error)) from None
        except Unreachable as error:
            if error.lasting:
                raise UnknownServerError(f"the active controller cannot answer this request: {error}") from None
            raise RequestTimedOut(f"the active controller did not answer, and may have done it: {error}") from None
        assert isinstance(answer, EnvelopeResponse)
        if answer.error_code or answer.response_data is None:
            code = answer.error_code or ErrorCode.UNKNOWN_SERVER_ERROR
            bug = code == ErrorCode.UNKNOWN_SERVER_ERROR
            raise error_for_code(code, _STUMBLED if bug else "the active controller refused it")
        return decode_response(key, version, answer.response_data)[1]

    def wrapped(self, routes: Iterable[Route]) -> tuple[Route, ...]:
        """The same routes, of which those that are for the controller get there."""
        return tuple(
            replace(route, handle=partial(self._handle, route)) if route.key in FORWARDED else route for route in routes
        )

    async def _handle(self, route: Route, broker: BrokerServices, request: Any, ctx: RequestContext) -> Any:
        if broker.controller.leads or ctx.connection_id == _ENVELOPE:
            try:
                answer = route.handle(broker, request, ctx)
                return await answer if isawaitable(answer) else answer
            except NotController:
                if ctx.connection_id == _ENVELOPE:
                    raise
        return await self.ask(
            route.key,
            ctx.api_version,
            request,
            client_id=ctx.client_id,
            principal=ctx.principal,
            host=ctx.client_host,
        )


async def serve_envelope(envelope: EnvelopeRequest, dispatcher: Dispatcher, listener: str) -> EnvelopeResponse:
    """Serve the request inside as if its client had come here, by the listener of brokers."""
    peer = Peer(
        client_host=_unpacked(envelope.client_host_address),
        listener=listener,
        connection_id=_ENVELOPE,
        principal=_principal(envelope.request_principal),
    )
    try:
        exchange = dispatcher.start(envelope.request_data, peer)
        if exchange.pending is not None:
            try:
                response = await exchange.pending
            except NotController:
                return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)  # whoever has forwarded it finds another
            except Exception as error:
                dispatcher.fail(exchange, error, peer)
            else:
                dispatcher.answer(exchange, response, peer)
    except (UnservedRequest, DropConnection) as error:
        log.warning("a forwarded request cannot be served", reason=str(error))
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    assert exchange.chunks is not None
    return EnvelopeResponse(response_data=b"".join(exchange.chunks)[_SIZE_BYTES:])


def _principal(data: bytes | None) -> Principal:
    kind, colon, name = (data or b"").decode().partition(":")
    return Principal(kind, name) if colon else ANONYMOUS


def _packed(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return b""


def _unpacked(data: bytes) -> str:
    return str(ipaddress.ip_address(data)) if len(data) in (4, 16) else ""
