"""Calls among nodes over real sockets"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc
import pytest
from structlog.testing import capture_logs

from tidemill.broker.quorum import grpc_transport
from tidemill.broker.quorum.grpc_transport import SERVICE, GrpcTransport
from tidemill.broker.quorum.transport import MESSAGE_BYTES_MAX, Unreachable, encode_answer
from tidemill.core.client.connection import Address
from tidemill.core.errors import InvalidRequest
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidemill.core.wire.messages.envelope import EnvelopeRequest
from tidemill.core.wire.messages.vote import VoteRequest, VoteResponse

ASK_S = 5.0


async def heartbeats(request: Message) -> Message:
    assert isinstance(request, BrokerHeartbeatRequest)
    return BrokerHeartbeatResponse(is_caught_up=request.broker_id == 3)


@asynccontextmanager
async def serving(serve: Callable[[Message], Awaitable[Message]]) -> AsyncIterator[tuple[GrpcTransport, Address]]:
    here, there = GrpcTransport(), GrpcTransport()
    port = await there.serve(Address("127.0.0.1", 0), serve)
    try:
        yield here, Address("127.0.0.1", port)
    finally:
        await here.close()
        await there.close()


async def test_a_call_is_answered() -> None:
    async with serving(heartbeats) as (here, there):
        for broker, caught_up in ((3, True), (4, False)):
            answer = await here.call(there, BrokerHeartbeatRequest(broker_id=broker), timeout_s=ASK_S)
            assert isinstance(answer, BrokerHeartbeatResponse)
            assert answer.is_caught_up is caught_up


async def test_a_request_that_is_too_large_would_be_so_again() -> None:
    async with serving(heartbeats) as (here, there):
        large = EnvelopeRequest(
            request_data=bytes(MESSAGE_BYTES_MAX), request_principal=b"", client_host_address=b"\x7f\0\0\1"
        )
        with pytest.raises(Unreachable, match="larger than max") as raised:
            await here.call(there, large, timeout_s=ASK_S)
        assert raised.value.lasting


async def test_many_calls_share_a_connection_and_none_waits_for_another() -> None:
    first = asyncio.Event()

    async def serve(request: Message) -> Message:
        assert isinstance(request, BrokerHeartbeatRequest)
        if request.broker_id == 0:
            await first.wait()
        first.set()
        return BrokerHeartbeatResponse()

    async with serving(serve) as (here, there):
        calls = (here.call(there, BrokerHeartbeatRequest(broker_id=each), timeout_s=ASK_S) for each in range(20))
        assert len(await asyncio.gather(*calls)) == 20


async def test_nobody_there_is_told_at_once_and_found_again_when_it_is_back() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = Address("127.0.0.1", taken.getsockname()[1])
    here, there = GrpcTransport(), GrpcTransport()
    try:
        with pytest.raises(Unreachable, match="not reachable"):
            await here.call(address, BrokerHeartbeatRequest(), timeout_s=ASK_S)
        await there.serve(address, heartbeats)
        while True:  # gRPC connects again by itself, after a moment
            try:
                await here.call(address, BrokerHeartbeatRequest(), timeout_s=ASK_S)
                break
            except Unreachable:
                await asyncio.sleep(0.05)
    finally:
        await here.close()
        await there.close()


async def test_a_node_that_hangs_is_not_waited_for_beyond_the_deadline() -> None:
    async def hang(_request: Message) -> Message:
        await asyncio.sleep(60)
        raise AssertionError

    async with serving(hang) as (here, there):
        with pytest.raises(Unreachable, match="no answer in time"):
            await here.call(there, BrokerHeartbeatRequest(), timeout_s=0.05)


async def test_a_caller_that_goes_away_ends_the_work_for_it() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def hang(_request: Message) -> Message:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        raise AssertionError

    async with serving(hang) as (here, there):
        call = asyncio.ensure_future(here.call(there, BrokerHeartbeatRequest(), timeout_s=ASK_S))
        await began.wait()
        call.cancel()
        await ended.wait()


async def test_a_fault_of_the_other_side_is_no_trouble_of_the_network_and_its_log_has_all_of_it() -> None:
    async def stumble(_request: Message) -> Message:
        raise ZeroDivisionError("a bug")

    async with serving(stumble) as (here, there):
        with capture_logs() as lines, pytest.raises(Unreachable, match="ZeroDivisionError: a bug") as raised:
            await here.call(there, BrokerHeartbeatRequest(), timeout_s=ASK_S)
    assert raised.value.lasting
    assert [(each["log_level"], each["exc_info"]) for each in lines] == [("error", True)]


async def test_what_makes_no_sense_is_refused_and_told_once_without_a_trace() -> None:
    async def refuse(_request: Message) -> Message:
        raise InvalidRequest("the quorum has one partition")

    async with serving(refuse) as (here, there):
        with capture_logs() as lines:
            for _ in range(3):
                with pytest.raises(Unreachable, match="INVALID_ARGUMENT: the quorum has one partition"):
                    await here.call(there, BrokerHeartbeatRequest(), timeout_s=ASK_S)
    assert [(each["log_level"], each["api"]) for each in lines] == [("warning", "BrokerHeartbeat")]


async def test_another_server_is_not_taken_for_a_node() -> None:
    async def refuse(_request: Message) -> Message:
        return VoteResponse(error_code=87)

    async with serving(refuse) as (here, there):
        with pytest.raises(Unreachable, match="no node of a quorum"):
            await here.call(there, BrokerHeartbeatRequest(), timeout_s=ASK_S)


async def test_an_older_node_is_asked_in_its_own_version() -> None:
    """As if of an older release: it knows Vote up to version 1 only."""
    asked: list[int] = []

    async def vote(data: bytes, context: grpc.aio.ServicerContext) -> bytes:
        asked.append(data[1])
        if data[1] > 1:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "0-1")
        return encode_answer(VoteResponse(error_code=74), 1)

    class Old(grpc.GenericRpcHandler):  # type: ignore[type-arg]
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
            named = details.method == f"/{SERVICE}/Vote"  # type: ignore[attr-defined]
            return grpc.unary_unary_rpc_method_handler(vote) if named else None

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Old(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    here = GrpcTransport()
    try:
        for _ in range(2):
            answer = await here.call(Address("127.0.0.1", port), VoteRequest(), timeout_s=ASK_S)
            assert isinstance(answer, VoteResponse)
            assert answer.error_code == 74
        assert asked == [2, 1, 1]
    finally:
        await here.close()
        await server.stop(None)


async def test_two_nodes_cannot_have_one_port() -> None:
    async with serving(heartbeats) as (_here, there):
        second = GrpcTransport()
        with pytest.raises(OSError, match="cannot listen on"):
            await second.serve(there, heartbeats)
        await second.close()


async def test_nobody_is_held_on_to_who_has_not_been_asked_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    asking, servers = GrpcTransport(), [GrpcTransport(), GrpcTransport()]
    try:
        monkeypatch.setattr(grpc_transport, "IDLE_S", 0.05)
        addresses = [Address("127.0.0.1", await each.serve(Address("127.0.0.1", 0), heartbeats)) for each in servers]
        await asking.call(addresses[0], BrokerHeartbeatRequest(), timeout_s=ASK_S)
        await asyncio.sleep(0.1)
        await asking.call(addresses[1], BrokerHeartbeatRequest(), timeout_s=ASK_S)
        assert asking.connected == {addresses[1]}
        await asking.call(addresses[0], BrokerHeartbeatRequest(), timeout_s=ASK_S)
    finally:
        for each in (asking, *servers):
            await each.close()


async def test_whoever_connects_and_says_nothing_is_sent_away() -> None:
    there = GrpcTransport(handshake_ms=300)
    port = await there.serve(Address("127.0.0.1", 0), heartbeats)
    silent, writer = await asyncio.open_connection("127.0.0.1", port)
    half, other = await asyncio.open_connection("127.0.0.1", port)
    other.write(b"PRI * HTTP/2.0")
    try:
        async with asyncio.timeout(10):
            while await silent.read(1024) or await half.read(1024):
                pass
    finally:
        writer.close()
        other.close()
        await there.close()


@asynccontextmanager
async def far_away(there: Address, one_way_s: float, forgotten: asyncio.Event | None = None) -> AsyncIterator[Address]:
    """The same node, at the end of a long line; connections of before it has `forgotten` them lead nowhere."""
    loop = asyncio.get_running_loop()
    forgotten = forgotten or asyncio.Event()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_new = forgotten.is_set()
        while data := await reader.read(65_536):
            if forgotten.is_set() is is_new:
                loop.call_later(one_way_s, writer.write, data)
        loop.call_later(one_way_s, writer.close)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(there.host, there.port)
        await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield Address("127.0.0.1", server.sockets[0].getsockname()[1])


async def test_a_node_that_is_far_away_is_reached_by_the_first_attempt() -> None:
    async with serving(heartbeats) as (here, there), far_away(there, 0.25) as address:
        answer = await here.call(address, BrokerHeartbeatRequest(broker_id=3), timeout_s=ASK_S)
        assert isinstance(answer, BrokerHeartbeatResponse)
        await here.close()


async def test_a_connection_that_leads_nowhere_any_more_is_given_up() -> None:
    """Nobody closes it: a firewall has forgotten it, or the network is whole again and TCP waits."""
    here, there, forgotten = GrpcTransport(silent_s=0.5), GrpcTransport(), asyncio.Event()
    port = await there.serve(Address("127.0.0.1", 0), heartbeats)
    async with far_away(Address("127.0.0.1", port), 0.0, forgotten) as address, asyncio.timeout(20):
        await here.call(address, BrokerHeartbeatRequest(), timeout_s=ASK_S)
        forgotten.set()
        unanswered = 0
        while True:
            try:
                await here.call(address, BrokerHeartbeatRequest(), timeout_s=1.0)
                break
            except Unreachable:
                unanswered += 1
        await here.close()
        await there.close()
    assert unanswered > 0
