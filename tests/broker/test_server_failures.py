"""What fails unexpectedly: the same answer on every way an answer is made, and nobody else notices"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from tests.broker.server_stage import BARE, PATIENCE_S, Client, large, server_side, until
from tidemill.broker.answer_queue import AnswerQueue
from tidemill.broker.dispatch import Dispatcher, DropConnection, Exchange, Route
from tidemill.broker.input_buffer import InputBuffer
from tidemill.broker.server import Server
from tidemill.broker.server_limits import ServerLimits
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError, NotCoordinator
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.codec import decode
from tidemill.core.wire.framing import decode_request_header, encode_request, encode_response
from tidemill.core.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

WAYS = ("handler", "future", "coroutine", "shortcut", "shortcut with a future", "shortcut due after")
"""How a request may be served; the group id of a Heartbeat names one."""

NOT_A_NUMBER = cast(int, "what no codec can encode")


class Ways:
    """Heartbeats that go the way that their group id says, and fail as their member id says."""

    def __init__(self) -> None:
        self.shortcut_is_broken = False
        route = Route(
            key=ApiKey.HEARTBEAT,
            handle=self.handle,
            min_version=0,
            max_version=0,
            needs=(),
            error_response=self.error_response,
            shortcut=self.make_shortcut,
        )
        self.dispatcher = Dispatcher(BARE, [route])

    def handle(self, _broker: Any, request: HeartbeatRequest, _ctx: Any) -> Any:
        if request.group_id == "future":
            return self.future(request.member_id)
        if request.group_id == "coroutine":
            return self.coroutine(request.member_id)
        return outcome(request.member_id)

    def future(self, what: str) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.01, settle, future, what)
        return future

    async def coroutine(self, what: str) -> HeartbeatResponse:
        if what == "cancelled":
            return cast(HeartbeatResponse, await self.future(what))
        await asyncio.sleep(0.01)
        return outcome(what)

    def make_shortcut(self, _broker: Any, _version: int, _peer: Any) -> Any:
        if self.shortcut_is_broken:
            raise RuntimeError("a bug")
        return self.shortcut

    def shortcut(self, frame: memoryview) -> Exchange | None:
        header, at = decode_request_header(frame)
        request, _ = decode(HeartbeatRequest, 0, frame, at)
        if not request.group_id.startswith("shortcut"):
            return None
        exchange = Exchange(header, request, self.error_response)
        if request.group_id == "shortcut with a future":
            exchange.pending = self.future(request.member_id)
        elif request.group_id == "shortcut due after" and request.member_id != "unencodable":
            exchange.after = self.future(request.member_id)
            exchange.due = encode_response(ApiKey.HEARTBEAT, 0, header.correlation_id, HeartbeatResponse())
        else:
            response = outcome(request.member_id)
            exchange.chunks = encode_response(ApiKey.HEARTBEAT, 0, header.correlation_id, response)
        return exchange

    def error_response(self, request: HeartbeatRequest, error: KafkaError, _version: int) -> HeartbeatResponse:
        if request.generation_id < 0:
            raise RuntimeError("a second bug")
        return HeartbeatResponse(error_code=error.code)


def outcome(what: str) -> HeartbeatResponse:
    """What becomes of a request whose member id is `what`."""
    if what == "bug":
        raise RuntimeError("a bug")
    if what == "refused":
        raise NotCoordinator
    if what == "dropped":
        raise DropConnection("nothing can be said", ())
    return HeartbeatResponse(error_code=NOT_A_NUMBER if what == "unencodable" else 0)


def settle(future: "asyncio.Future[Any]", what: str) -> None:
    """The same for a future."""
    if what == "cancelled":
        future.cancel()
    elif not future.done():
        try:
            future.set_result(outcome(what))
        except Exception as error:
            future.set_exception(error)


def ask(way: str, what: str, number: int = 1, *, mute: bool = False) -> bytes:
    """A Heartbeat; for a `mute` one no error response can be made."""
    request = HeartbeatRequest(group_id=way, member_id=what, generation_id=-1 if mute else 0)
    return encode_request(ApiKey.HEARTBEAT, 0, number, "c", request)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    limits = ServerLimits(queued_max_request_bytes=2**20)
    async with Server(Ways().dispatcher, host="127.0.0.1", port=0, limits=limits) as server:
        yield server


@pytest.fixture
async def connect(server: Server) -> AsyncIterator[Callable[[], Any]]:
    """New connections; each has its shortcut after a first request."""
    clients: list[Client] = []

    async def connect() -> Client:
        client = await Client.of(server)
        clients.append(client)
        client.writer.write(ask("handler", "well"))
        await client.response()
        return client

    yield connect
    for client in clients:
        client.writer.close()


def unexpected(logs: list[Any]) -> list[Any]:
    """Lines with a traceback."""
    return [line for line in logs if line.get("exc_info")]


async def is_served(client: Client) -> None:
    """Whether a request of each kind is answered."""
    for number, way in enumerate(WAYS):
        client.writer.write(ask(way, "well", number))
        async with asyncio.timeout(PATIENCE_S):
            correlation_id, response = await client.response()
        assert (correlation_id, response.error_code) == (number, 0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", ["bug", "unencodable", "refused"])
async def test_a_failure_is_one_line_in_the_log_and_one_error_response(connect: Any, way: str, what: str) -> None:
    client, other = await connect(), await connect()
    with capture_logs() as logs:
        client.writer.write(ask("handler", "well", 5) + ask(way, what, 6) + ask("handler", "well", 7))
        async with asyncio.timeout(PATIENCE_S):
            answers = [await client.response() for _ in range(3)]
    code = ErrorCode.NOT_COORDINATOR if what == "refused" else ErrorCode.UNKNOWN_SERVER_ERROR
    assert [(number, response.error_code) for number, response in answers] == [(5, 0), (6, code), (7, 0)]
    assert len(unexpected(logs)) == (0 if what == "refused" else 1)
    await is_served(client)
    await is_served(other)


@pytest.mark.parametrize("way", ["future", "coroutine", "shortcut with a future", "shortcut due after"])
async def test_what_somebody_else_cancels_is_answered_too(connect: Any, way: str) -> None:
    client = await connect()
    with capture_logs() as logs:
        client.writer.write(ask(way, "cancelled", 6))
        async with asyncio.timeout(PATIENCE_S):
            correlation_id, response = await client.response()
    assert (correlation_id, response.error_code) == (6, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert len(unexpected(logs)) == 1
    await is_served(client)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", ["bug", "unencodable", "refused"])
async def test_what_cannot_even_be_answered_with_an_error_closes_its_connection_alone(
    connect: Any, server: Server, way: str, what: str
) -> None:
    client, other = await connect(), await connect()
    with capture_logs() as logs:  # to print a traceback with such a request in it takes longer than all the rest
        client.writer.write(large(ask(way, what, mute=True), 100_000) + ask("handler", "well", 7))
        assert await client.is_closed()
    assert len(unexpected(logs)) == (1 if what == "refused" else 2)
    await is_served(other)
    await until(lambda: len(server.connections) == 1 and server.memory.held_bytes == 0)
    assert (server.counts.count, server.memory.waiting) == (1, 0)
    await is_served(await connect())


@pytest.mark.parametrize("way", WAYS)
async def test_where_closing_is_the_answer_nothing_is_sent_on_any_way(connect: Any, server: Server, way: str) -> None:
    client, other = await connect(), await connect()
    with capture_logs() as logs:
        client.writer.write(ask(way, "dropped", 6) + ask("handler", "well", 7) * 1000)
        assert await client.is_closed()
    assert not unexpected(logs)
    await is_served(other)
    await until(lambda: len(server.connections) == 1)


@pytest.mark.parametrize("way", WAYS)
async def test_what_fails_leaves_nothing_counted(connect: Any, server: Server, way: str) -> None:
    client = await connect()
    with capture_logs() as logs:
        for _ in range(20):  # 2 MB of large requests where 1 MB is the limit, and more than may be pending
            client.writer.write(large(ask(way, "bug"), 100_000) + ask(way, "bug") * 10)
            async with asyncio.timeout(PATIENCE_S):
                answers = [await client.response() for _ in range(11)]
            assert {response.error_code for _, response in answers} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert len(unexpected(logs)) == 20 * 11
    await is_served(client)
    client.writer.close()
    await until(lambda: server.memory.held_bytes == 0 and server.counts.count == 0)


async def test_a_shortcut_that_cannot_be_made_is_an_error_response(connect: Any) -> None:
    ways = Ways()
    ways.shortcut_is_broken = True
    async with Server(ways.dispatcher, host="127.0.0.1", port=0) as server:
        client = await Client.of(server)
        client.writer.write(ask("handler", "well"))
        assert (await client.response())[1].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        ways.shortcut_is_broken = False
        await is_served(client)
        client.writer.close()


def break_once(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, *, call: int = 1) -> None:
    """Let one call of a method fail, the `call`th from now on."""
    method = getattr(owner, name)
    calls = itertools.count(1)

    def broken(*args: Any) -> Any:
        if next(calls) == call:
            raise RuntimeError("a bug")
        return method(*args)

    monkeypatch.setattr(owner, name, broken)


@asynccontextmanager
async def broken_off_alone(server: Server, connect: Any) -> AsyncIterator[Client]:
    """A client whose connection the block breaks: it is closed with one line in the log, and all others are served."""
    client, other = await connect(), await connect()
    loop = asyncio.get_running_loop()
    strays: list[Any] = []
    loop.set_exception_handler(lambda _loop, context: strays.append(context))
    with capture_logs() as logs:
        yield client
        assert await client.is_closed()
        assert [line["event"] for line in unexpected(logs)] == ["connection failed unexpectedly"]
    await is_served(other)
    await until(lambda: len(server.connections) == 1 and server.memory.held_bytes == 0)
    assert (server.counts.count, server.memory.waiting) == (1, 0)
    await is_served(await connect())
    assert not strays, "the event loop was left with it"


@pytest.mark.parametrize("what", ["well", "refused"])
@pytest.mark.parametrize("way", ["future", "coroutine", "shortcut with a future", "shortcut due after"])
async def test_an_answer_that_cannot_be_kept_breaks_off_its_connection_alone(
    connect: Any, server: Server, monkeypatch: pytest.MonkeyPatch, way: str, what: str
) -> None:
    keeps = "all_due" if (way, what) == ("shortcut due after", "well") else "answered"
    async with broken_off_alone(server, connect) as client:
        break_once(monkeypatch, AnswerQueue, keeps)
        client.writer.write(large(ask(way, what), 100_000) + ask("handler", "well", 7))


@pytest.mark.parametrize("way", ["future", "coroutine", "shortcut with a future", "shortcut due after"])
async def test_an_answer_that_cannot_leave_breaks_off_its_connection_alone(
    connect: Any, server: Server, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    async with broken_off_alone(server, connect) as client:
        break_once(monkeypatch, AnswerQueue, "take", call=2)  # the first is in the turn in which the request starts
        client.writer.write(ask(way, "well"))


@pytest.mark.parametrize("answered", [0, 1], ids=["when it arrives", "when its turn comes"])
async def test_a_request_that_cannot_be_started_breaks_off_its_connection_alone(
    connect: Any, server: Server, monkeypatch: pytest.MonkeyPatch, answered: int
) -> None:
    async with broken_off_alone(server, connect) as client:
        break_once(monkeypatch, InputBuffer, "next_frame", call=1 + answered)
        client.writer.write(ask("coroutine", "well", 6) * answered + ask("handler", "well", 7))
        for _ in range(answered):  # and no other may start before
            assert (await client.response())[0] == 6


async def test_a_connection_that_cannot_be_looked_after_is_broken_off_alone(
    connect: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broken_off_alone(server, connect) as client:
        assert next(iter(server.connections)) is server_side(server, client)
        break_once(monkeypatch, InputBuffer, "shrink")
        now, share = asyncio.get_running_loop().time() + 3600, server.answer_bytes_share()
        for connection in list(server.connections):
            connection.look_after(now, idle_limit_s=10**6, answer_bytes_max=share)
