"""Requests in envelopes: served as if their client had come, and answered in its words"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker_world import running_broker
from tidemill.broker.dispatch import BrokerServices, Dispatcher, Peer, RequestContext
from tidemill.broker.forwarding import Forwarder, serve_envelope
from tidemill.broker.principals import ANONYMOUS, Principal
from tidemill.broker.quorum.channel import ControllerChannel
from tidemill.broker.quorum.transport import Unreachable
from tidemill.broker.routes import ROUTES
from tidemill.core.client.connection import Address
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import NotController, RequestTimedOut, UnknownServerError
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import decode_response, encode_request
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidemill.core.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

REQUEST = CreateTopicsRequest(topics=(CreatableTopic(name="t", num_partitions=2, replication_factor=1),), timeout_ms=1)


def envelope(data: bytes) -> EnvelopeRequest:
    return EnvelopeRequest(request_data=data, request_principal=b"User:alice", client_host_address=b"\x7f\0\0\1")


async def test_the_request_inside_is_served(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        data = encode_request(ApiKey.CREATE_TOPICS, 7, 0, "c", REQUEST)[4:]
        answer = await serve_envelope(envelope(data), broker.dispatcher, "PLAINTEXT")
        assert answer.error_code == ErrorCode.NONE
        assert answer.response_data is not None
        _, response = decode_response(ApiKey.CREATE_TOPICS, 7, answer.response_data)
        assert isinstance(response, CreateTopicsResponse)
        assert response.topics[0].error_code == ErrorCode.NONE
        assert len(broker.controller.image.topics["t"].partitions) == 2


async def test_a_request_that_is_none_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        answer = await serve_envelope(envelope(b"\x7f\x7f rubbish"), broker.dispatcher, "PLAINTEXT")
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


class Way(ControllerChannel):
    """A way at whose end is what a test wants."""

    def __init__(self, answer: Message | Exception) -> None:
        self._answer = answer
        self.asked: list[Any] = []

    async def ask(self, request: Message, *, timeout_s: float, again: bool = False) -> Message:
        assert again
        self.asked.append((request, timeout_s))
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


async def ask(way: Way, principal: Principal = ANONYMOUS, host: str = "10.0.0.7") -> Message:
    return await Forwarder(way).ask(
        ApiKey.CREATE_TOPICS, 7, REQUEST, client_id="c", principal=principal, host=host
    )  # fmt: skip


async def test_who_has_asked_is_told_to_the_controller() -> None:
    way = Way(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
    with pytest.raises(NotController):
        await ask(way, Principal("User", "alice"))
    ((request, _),) = way.asked
    assert request.request_principal == b"User:alice"
    assert request.client_host_address == bytes([10, 0, 0, 7])


async def test_whoever_cannot_be_named_by_number_is_told_as_nobody() -> None:
    way = Way(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
    with pytest.raises(NotController):
        await ask(way, host="a-host")
    assert way.asked[0][0].client_host_address == b""


async def test_an_answer_that_is_lost_may_have_been_one() -> None:
    with pytest.raises(RequestTimedOut, match="may have done it"):
        await ask(Way(Unreachable(Address("h", 1), "not reachable")))


async def test_what_would_be_answered_as_little_another_time_is_no_matter_of_time() -> None:
    with pytest.raises(UnknownServerError, match="larger than max"):
        await ask(Way(Unreachable(Address("h", 1), "larger than max", lasting=True)))


async def test_a_client_does_not_hear_that_nobody_decides_but_that_time_is_over() -> None:
    with pytest.raises(RequestTimedOut, match="in time"):
        await ask(Way(NotController("no active controller was found in time")))


async def deposed(_broker: BrokerServices, _request: Any, _ctx: RequestContext) -> Any:
    """A handler whose controller hears at work that another decides."""
    raise NotController("node 2 is the active controller")


def dispatcher_of(broker: BrokerServices, way: Way) -> Dispatcher:
    """What serves the clients of a broker that is deposed whenever it makes a topic."""
    routes = [replace(each, handle=deposed) for each in ROUTES if each.key is ApiKey.CREATE_TOPICS]
    return Dispatcher(broker, Forwarder(way).wrapped(routes))


async def test_who_is_deposed_at_work_says_so_to_whoever_has_forwarded_the_request(tmp_path: Path) -> None:
    way = Way(AssertionError())
    async with running_broker(tmp_path) as broker:
        data = encode_request(ApiKey.CREATE_TOPICS, 7, 0, "c", REQUEST)[4:]
        answer = await serve_envelope(envelope(data), dispatcher_of(broker, way), "PLAINTEXT")
    assert (answer.error_code, answer.response_data) == (ErrorCode.NOT_CONTROLLER, None)
    assert way.asked == []


async def test_who_is_deposed_at_work_forwards_what_its_own_client_has_asked(tmp_path: Path) -> None:
    way = Way(Unreachable(Address("h", 1), "not reachable"))
    async with running_broker(tmp_path) as broker:
        peer = Peer(client_host="127.0.0.1", listener="PLAINTEXT", connection_id="1")
        data = encode_request(ApiKey.CREATE_TOPICS, 7, 0, "c", REQUEST)[4:]
        exchange = dispatcher_of(broker, way).start(data, peer)
        assert exchange.pending is not None
        with pytest.raises(RequestTimedOut, match="may have done it"):
            await exchange.pending
    assert len(way.asked) == 1
