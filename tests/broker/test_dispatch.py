"""From frame to response: routes, versions, errors"""

import asyncio
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidemill.broker.authorization import ALLOW_ALL
from tidemill.broker.dispatch import (
    NONE_LATER,
    BrokerServices,
    Dispatcher,
    DropConnection,
    Exchange,
    LaterRoutes,
    Peer,
    RequestContext,
    Route,
    UnservedRequest,
    served_apis,
    top_level_error,
)
from tidemill.broker.handlers import api_versions
from tidemill.broker.quotas import UNLIMITED
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError, NotCoordinator
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import decode_response, encode_request
from tidemill.core.wire.messages.api_versions import ApiVersionsRequest
from tidemill.core.wire.messages.create_topics import CreateTopicsResponse
from tidemill.core.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidemill.core.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

PEER = Peer(client_host="10.0.0.9", listener="PLAINTEXT", connection_id="c1", server_host="10.0.0.1", server_port=9092)


def heartbeat(handle: Any) -> Route:
    return Route(key=ApiKey.HEARTBEAT, handle=handle, min_version=0, max_version=3, needs=())


def dispatcher(*routes: Route, later: LaterRoutes = NONE_LATER) -> Dispatcher:
    table: dict[str, Mapping[ApiKey, tuple[int, int]]] = {"served_apis": served_apis(routes)}
    broker = SimpleNamespace(**table, authorizer=ALLOW_ALL, quotas=UNLIMITED)
    return Dispatcher(cast(BrokerServices, broker), routes, later)


def frame(key: ApiKey, version: int, request: Any, correlation_id: int = 7) -> bytes:
    return encode_request(key, version, correlation_id, "me", request)[4:]


def answer(exchange: Exchange, key: ApiKey, version: int) -> Any:
    assert exchange.chunks is not None
    correlation_id, response = decode_response(key, version, b"".join(bytes(c) for c in exchange.chunks)[4:])
    assert correlation_id == 7
    return response


def test_a_plain_handler_is_answered_at_once_and_sees_its_context() -> None:
    seen: list[RequestContext] = []

    def handle(_broker: BrokerServices, request: HeartbeatRequest, ctx: RequestContext) -> HeartbeatResponse:
        seen.append(ctx)
        return HeartbeatResponse(error_code=request.generation_id)

    exchange = dispatcher(heartbeat(handle)).start(frame(ApiKey.HEARTBEAT, 2, HeartbeatRequest(generation_id=5)), PEER)
    assert answer(exchange, ApiKey.HEARTBEAT, 2).error_code == 5
    (ctx,) = seen
    assert (ctx.api_version, ctx.client_id, ctx.client_host, ctx.server_port) == (2, "me", "10.0.0.9", 9092)


def test_none_means_no_response() -> None:
    exchange = dispatcher(heartbeat(lambda *_: None)).start(frame(ApiKey.HEARTBEAT, 0, HeartbeatRequest()), PEER)
    assert exchange.chunks == []


async def test_a_future_lets_the_next_request_begin_and_a_coroutine_does_not() -> None:
    future: asyncio.Future[HeartbeatResponse] = asyncio.get_running_loop().create_future()

    async def coroutine(*_: Any) -> HeartbeatResponse:
        return HeartbeatResponse()

    data = frame(ApiKey.HEARTBEAT, 0, HeartbeatRequest())
    first = dispatcher(heartbeat(lambda *_: future)).start(data, PEER)
    assert (first.pending, first.exclusive, first.chunks) == (future, False, None)
    second = dispatcher(heartbeat(coroutine)).start(data, PEER)
    assert (second.exclusive, second.chunks) == (True, None)
    assert second.pending is not None
    await second.pending


@pytest.mark.parametrize(
    ("raised", "code"),
    [(NotCoordinator("elsewhere"), ErrorCode.NOT_COORDINATOR), (ValueError("bug"), ErrorCode.UNKNOWN_SERVER_ERROR)],
)
def test_what_a_handler_raises_becomes_the_error_of_its_api(raised: Exception, code: int) -> None:
    def handle(*_: Any) -> None:
        raise raised

    exchange = dispatcher(heartbeat(handle)).start(frame(ApiKey.HEARTBEAT, 1, HeartbeatRequest()), PEER)
    assert answer(exchange, ApiKey.HEARTBEAT, 1).error_code == code


def test_an_api_brings_its_own_error_response() -> None:
    def handle(*_: Any) -> None:
        raise NotCoordinator

    def error_response(request: InitProducerIdRequest, error: KafkaError, version: int) -> InitProducerIdResponse:
        return InitProducerIdResponse(error_code=error.code, producer_id=request.producer_id + version)

    route = Route(
        key=ApiKey.INIT_PRODUCER_ID,
        handle=handle,
        min_version=0,
        max_version=4,
        needs=(),
        error_response=error_response,
    )
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1, producer_id=40)
    exchange = dispatcher(route).start(frame(ApiKey.INIT_PRODUCER_ID, 3, request), PEER)
    response = answer(exchange, ApiKey.INIT_PRODUCER_ID, 3)
    assert (response.error_code, response.producer_id) == (ErrorCode.NOT_COORDINATOR, 43)


def test_an_api_without_a_top_level_error_must_bring_its_own() -> None:
    with pytest.raises(TypeError, match="error_response"):
        top_level_error(CreateTopicsResponse)
    with pytest.raises(ValueError, match="routed twice"):
        dispatcher(heartbeat(lambda *_: None), heartbeat(lambda *_: None))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "malformed request header"),
        (frame(ApiKey.HEARTBEAT, 0, HeartbeatRequest())[:9], "malformed request header"),
        (frame(ApiKey.HEARTBEAT, 0, HeartbeatRequest())[:-1], "malformed HEARTBEAT v0"),
        (frame(ApiKey.HEARTBEAT, 4, HeartbeatRequest()), "HEARTBEAT v4 is not served, only v0 to v3"),
        (frame(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()), "API key 18 is not served"),
        ((999).to_bytes(2, "big") + bytes(8), "API key 999 is not served"),
    ],
)
def test_what_is_not_a_served_request_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(UnservedRequest, match=reason):
        dispatcher(heartbeat(lambda *_: None)).start(data, PEER)


def test_bytes_after_a_request_are_let_pass_as_kafka_does() -> None:
    data = frame(ApiKey.HEARTBEAT, 0, HeartbeatRequest()) + b"\0\0\0"
    exchange = dispatcher(heartbeat(lambda *_: HeartbeatResponse())).start(data, PEER)
    assert answer(exchange, ApiKey.HEARTBEAT, 0).error_code == 0


def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    routes = (*api_versions.ROUTES, heartbeat(lambda *_: None))
    data = bytearray(frame(ApiKey.API_VERSIONS, 3, ApiVersionsRequest()))
    data[2:4] = (99).to_bytes(2, "big")
    response = answer(dispatcher(*routes).start(bytes(data), PEER), ApiKey.API_VERSIONS, 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.min_version, row.max_version) for row in response.api_keys] == [(12, 0, 3), (18, 0, 4)]


def test_routes_can_be_brought_by_the_first_request_for_one_of_them() -> None:
    loads: list[int] = []

    def load() -> Iterator[Route]:
        loads.append(1)
        if len(loads) == 1:
            raise ImportError
        yield heartbeat(lambda *_: HeartbeatResponse(error_code=7))

    later = LaterRoutes(windows={ApiKey.HEARTBEAT: (0, 3)}, load=load)
    served = dispatcher(*api_versions.ROUTES, later=later)
    assert served.served_apis == {ApiKey.HEARTBEAT: (0, 3), ApiKey.API_VERSIONS: (0, 4)}
    served.start(frame(ApiKey.API_VERSIONS, 3, ApiVersionsRequest()), PEER)
    assert not loads
    asked = frame(ApiKey.HEARTBEAT, 0, HeartbeatRequest())
    with pytest.raises(ImportError):
        served.start(asked, PEER)
    for _ in range(2):
        assert answer(served.start(asked, PEER), ApiKey.HEARTBEAT, 0).error_code == 7
    assert len(loads) == 2


def test_a_response_that_cannot_be_encoded_is_a_failure_like_any_other() -> None:
    handle = lambda *_: HeartbeatResponse(error_code=10**9)  # noqa: E731
    exchange = dispatcher(heartbeat(handle)).start(frame(ApiKey.HEARTBEAT, 0, HeartbeatRequest()), PEER)
    assert answer(exchange, ApiKey.HEARTBEAT, 0).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_the_connection_is_dropped_where_no_error_response_can_be_made() -> None:
    def error_response(_request: Any, _error: KafkaError, _version: int) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=10**9)

    route = Route(
        key=ApiKey.HEARTBEAT,
        handle=lambda *_: 1 // 0,
        min_version=0,
        max_version=0,
        needs=(),
        error_response=error_response,
    )
    with pytest.raises(DropConnection, match="no answer to a request of API key 12"):
        dispatcher(route).start(frame(ApiKey.HEARTBEAT, 0, HeartbeatRequest()), PEER)


def test_a_shortcut_that_fails_is_not_followed_by_the_handler() -> None:
    def shortcut(_frame: memoryview) -> Exchange | None:
        raise NotCoordinator

    served: list[Any] = []
    route = Route(
        key=ApiKey.HEARTBEAT, handle=lambda *args: served.append(args), min_version=0, max_version=0, needs=()
    )
    data = frame(ApiKey.HEARTBEAT, 0, HeartbeatRequest())
    exchange = dispatcher(route).start(data, PEER, {ApiKey.HEARTBEAT << 16: shortcut})
    assert answer(exchange, ApiKey.HEARTBEAT, 0).error_code == ErrorCode.NOT_COORDINATOR
    assert not served
    with pytest.raises(UnservedRequest):
        dispatcher(route).start(data[:-1], PEER, {ApiKey.HEARTBEAT << 16: shortcut})


def test_advertised_versions_may_begin_earlier_than_served_ones() -> None:
    route = Route(key=ApiKey.PRODUCE, handle=lambda *_: None, min_version=3, max_version=9, needs=(), advertised_min=0)
    assert served_apis([route]) == {ApiKey.PRODUCE: (0, 9)}


def test_a_shortcut_sees_frames_from_the_second_on_and_may_leave_them_to_the_handler() -> None:
    seen: list[bytes] = []
    served = Exchange(cast(Any, None), None, cast(Any, None))

    def make(_broker: BrokerServices, version: int, _peer: Peer) -> Any:
        def shortcut(data: memoryview) -> Exchange | None:
            seen.append(bytes(data))
            return served if len(seen) == 2 else None

        assert version == 2
        return shortcut

    route = Route(
        key=ApiKey.HEARTBEAT,
        handle=lambda *_: HeartbeatResponse(error_code=3),
        min_version=0,
        max_version=3,
        needs=(),
        shortcut=make,
    )
    table, shortcuts = dispatcher(route), dict[int, Any]()
    data = frame(ApiKey.HEARTBEAT, 2, HeartbeatRequest())
    assert answer(table.start(data, PEER, shortcuts), ApiKey.HEARTBEAT, 2).error_code == 3
    assert seen == []
    assert answer(table.start(data, PEER, shortcuts), ApiKey.HEARTBEAT, 2).error_code == 3
    assert table.start(data, PEER, shortcuts) is served
    assert seen == [data, data]
    assert answer(table.start(data, PEER), ApiKey.HEARTBEAT, 2).error_code == 3, "only for a connection that has some"
    with pytest.raises(UnservedRequest):
        table.start(b"\0", PEER, shortcuts)


def test_a_connection_has_one_shortcut_of_each_api() -> None:
    routes = [
        Route(
            key=key,
            handle=lambda *_: None,
            min_version=0,
            max_version=3,
            needs=(),
            shortcut=lambda _broker, version, _peer: lambda _data: Exchange(cast(Any, version), None, cast(Any, None)),
        )
        for key in (ApiKey.HEARTBEAT, ApiKey.INIT_PRODUCER_ID)
    ]
    table, shortcuts = dispatcher(*routes), dict[int, Any]()
    table.start(frame(ApiKey.INIT_PRODUCER_ID, 0, InitProducerIdRequest()), PEER, shortcuts)
    for version in (0, 1, 2):
        data = frame(ApiKey.HEARTBEAT, version, HeartbeatRequest())
        table.start(data, PEER, shortcuts)
        assert table.start(data, PEER, shortcuts).header == cast(Any, version)
    assert set(shortcuts) == {ApiKey.INIT_PRODUCER_ID << 16, ApiKey.HEARTBEAT << 16 | 2}
