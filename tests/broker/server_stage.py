"""A server whose handlers do as the test says, and a client of raw bytes"""

import asyncio
import os
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tidemill.broker.answer_queue import Hold
from tidemill.broker.authorization import ALLOW_ALL
from tidemill.broker.connection import Connection
from tidemill.broker.dispatch import BrokerServices, Dispatcher, Exchange, Route
from tidemill.broker.input_buffer import BUFFER_BUSY_BYTES
from tidemill.broker.quotas import UNLIMITED
from tidemill.broker.server import Server
from tidemill.broker.server_limits import ServerLimits
from tidemill.core.errors import NotCoordinator
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import RequestHeader, decode_response, encode_request, encode_response
from tidemill.core.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidemill.core.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidemill.core.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidemill.core.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidemill.core.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidemill.core.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PATIENCE_S = 30
"""How long what happens in a moment may take on a machine that does much else."""

LONG_ANSWER_BYTES = 30_000
BARE = cast(BrokerServices, SimpleNamespace(authorizer=ALLOW_ALL, quotas=UNLIMITED))
"""A broker of which nothing is asked but whether a request may be served."""

LIMITS = ServerLimits(socket_request_max_bytes=200_000)


class Stage:
    """A server whose Heartbeat answers as the test says: generation ids choose a behaviour."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.futures: dict[int, asyncio.Future[HeartbeatResponse]] = {}
        self.produced: list[bytes] = []
        self.rounds: dict[int, asyncio.Future[None]] = {}
        routes = (
            Route(
                key=ApiKey.JOIN_GROUP,
                handle=lambda *_: JoinGroupResponse(),
                min_version=0,
                max_version=0,
                needs=(),
                shortcut=self.shortcut,
            ),
            Route(key=ApiKey.HEARTBEAT, handle=self.at_once, min_version=0, max_version=0, needs=()),
            Route(key=ApiKey.LEAVE_GROUP, handle=self.later, min_version=0, max_version=0, needs=()),
            Route(key=ApiKey.SYNC_GROUP, handle=self.alone, min_version=0, max_version=0, needs=()),
            Route(key=ApiKey.FIND_COORDINATOR, handle=self.at_length, min_version=1, max_version=1, needs=()),
            Route(
                key=ApiKey.PRODUCE,
                handle=self.produce,
                min_version=3,
                max_version=3,
                needs=(),
                error_response=lambda *_: ProduceResponse(),
            ),
        )
        self.dispatcher = Dispatcher(BARE, routes)

    def at_once(self, _broker: Any, request: HeartbeatRequest, _ctx: Any) -> HeartbeatResponse:
        if request.generation_id < 0:
            raise NotCoordinator
        self.started.append(request.generation_id)
        return HeartbeatResponse(error_code=request.generation_id)

    def at_length(self, _broker: Any, request: FindCoordinatorRequest, _ctx: Any) -> FindCoordinatorResponse:
        self.started.append(len(self.started))
        return FindCoordinatorResponse(error_message="x" * LONG_ANSWER_BYTES)

    def later(self, _broker: Any, request: Any, _ctx: Any) -> "asyncio.Future[Any]":
        number = int(request.member_id)
        self.started.append(number)
        self.futures[number] = asyncio.get_running_loop().create_future()
        return self.futures[number]

    async def alone(self, _broker: Any, request: Any, _ctx: Any) -> Any:
        self.started.append(request.generation_id)
        future = self.futures[request.generation_id] = asyncio.get_running_loop().create_future()
        return SyncGroupResponse(error_code=(await future).error_code)

    def shortcut(self, _broker: Any, _version: int, _peer: Any) -> Any:
        return self.share

    def share(self, frame: memoryview) -> Exchange:
        """Negative correlation ids wait for one future, the others for another."""
        (number,) = struct.unpack_from(">i", frame, 4)
        self.started.append(number)
        round_ = self.rounds.setdefault(1 if number > 0 else -1, asyncio.get_running_loop().create_future())
        header = RequestHeader(ApiKey.JOIN_GROUP, 0, number, None)
        exchange = Exchange(header, None, lambda _request, error, _version: JoinGroupResponse(error_code=error.code))
        exchange.after = round_
        exchange.due = encode_response(ApiKey.JOIN_GROUP, 0, number, JoinGroupResponse())
        return exchange

    def produce(self, _broker: Any, request: ProduceRequest, _ctx: Any) -> ProduceResponse:
        records = request.topic_data[0].partition_data[0].records
        assert records is not None
        self.produced.append(bytes(records))
        return ProduceResponse()


class Client:
    """Raw bytes out, decoded responses in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._size: asyncio.Task[bytes] | None = None  # the beginning of the next response, once it was asked for

    @classmethod
    async def of(cls, server: Server, **options: Any) -> "Client":
        """A new connection to `server`; one that is refused although the server listens says what the system knows."""
        port = server.port
        try:
            return cls(*await asyncio.open_connection("127.0.0.1", port, limit=10**8, **options))
        except ConnectionRefusedError as error:
            error.add_note(_sockets_at(port))
            raise

    async def response(self, key: ApiKey = ApiKey.HEARTBEAT, version: int = 0) -> tuple[int, Any]:
        (size,) = struct.unpack(">i", await self._next_size())
        self._size = None
        return decode_response(key, version, await self.reader.readexactly(size))

    async def is_silent(self) -> bool:
        """Whether nothing comes for a while."""
        done, _ = await asyncio.wait([self._next_size()], timeout=0.05)
        return not done

    def _next_size(self) -> "asyncio.Task[bytes]":
        if self._size is None:
            self._size = asyncio.get_running_loop().create_task(self.reader.readexactly(4))
            self._size.add_done_callback(
                lambda size: size.cancelled() or size.exception()
            )  # the test may not ask again
        return self._size

    async def is_closed(self) -> bool:
        """Whether nothing comes but the end, as soon as either does."""
        try:
            return await asyncio.wait_for(self.reader.read(1), PATIENCE_S) == b""
        except ConnectionError:
            return True


def _sockets_at(port: int) -> str:
    """The kernel's rows of a port, and this process's listening descriptors: was its socket closed, and by whom?"""
    row = f":{port:04X} "
    rows = [line for line in Path("/proc/net/tcp").read_text().splitlines() if row in line]
    links = {each.name: os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}
    return "\n".join([f"port {port} in /proc/net/tcp:", *rows, f"descriptors: {links}"])


def heartbeat(number: int, correlation_id: int | None = None) -> bytes:
    request = HeartbeatRequest(generation_id=number)
    return encode_request(ApiKey.HEARTBEAT, 0, number if correlation_id is None else correlation_id, "c", request)


def later(number: int) -> bytes:
    return encode_request(ApiKey.LEAVE_GROUP, 0, number, "c", LeaveGroupRequest(member_id=str(number)))


def shared(number: int) -> bytes:
    return encode_request(ApiKey.JOIN_GROUP, 0, number, "c", JoinGroupRequest())


def at_length() -> bytes:
    return encode_request(ApiKey.FIND_COORDINATOR, 1, 0, "c", FindCoordinatorRequest(key="k"))


def alone(number: int) -> bytes:
    return encode_request(ApiKey.SYNC_GROUP, 0, number, "c", SyncGroupRequest(generation_id=number))


def produce(records: bytes, number: int = 1) -> bytes:
    request = ProduceRequest(
        acks=1,
        topic_data=(TopicProduceData(name="t", partition_data=(PartitionProduceData(index=0, records=records),)),),
    )
    return encode_request(ApiKey.PRODUCE, 3, number, "c", request)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for `condition`, with patience."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def large(frame: bytes, padding_bytes: int) -> bytes:
    """`frame` with bytes behind the request, which pass."""
    return struct.pack(">i", len(frame) - 4 + padding_bytes) + frame[4:] + bytes(padding_bytes)


def left() -> Any:
    return LeaveGroupResponse()


def held_answers(server: Server) -> list[int]:
    return [connection.answers.unsent_bytes for connection in server.connections]


def server_is_full(server: Server) -> bool:
    return any(connection.answers.is_held(Hold.CLIENT_IS_SLOW) for connection in server.connections)


def held_beyond_ordinary(server: Server) -> int:
    sizes = [connection.incoming.capacity_bytes for connection in server.connections]
    return sum(size for size in sizes if size > BUFFER_BUSY_BYTES)


def server_side(server: Server, client: Client) -> Connection:
    port = client.writer.get_extra_info("sockname")[1]
    return next(c for c in server.connections if c.peer.connection_id.split("-")[1].endswith(f":{port}"))
