"""One connection over a real socket: frames, order, limits, back-pressure"""

import asyncio
import gc
import itertools
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.broker.server_stage import (
    LIMITS,
    LONG_ANSWER_BYTES,
    Client,
    Stage,
    alone,
    at_length,
    heartbeat,
    held_beyond_ordinary,
    large,
    later,
    left,
    produce,
    server_is_full,
    shared,
    until,
)
from tidemill.broker.answer_queue import PENDING_BYTES_MAX, PENDING_MAX
from tidemill.broker.connection import BUFFER_KEPT_SECONDS
from tidemill.broker.dispatch import Exchange
from tidemill.broker.input_buffer import BUFFER_BUSY_BYTES, BUFFER_IDLE_BYTES
from tidemill.broker.server import SEND_BUFFER_BYTES_MAX, Server
from tidemill.broker.server_limits import ServerLimits
from tidemill.core.errors import NotCoordinator
from tidemill.core.runtime.at_once import future_at_once
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.heartbeat import HeartbeatResponse


@pytest.fixture
async def stage() -> Stage:
    return Stage()


@pytest.fixture
async def server(stage: Stage) -> AsyncIterator[Server]:
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=LIMITS) as server:
        yield server


@pytest.fixture
async def connect(server: Server) -> AsyncIterator[Callable[[], Any]]:
    clients: list[Client] = []

    async def connect() -> Client:
        client = await Client.of(server)
        clients.append(client)
        return client

    yield connect
    for client in clients:
        client.writer.close()


async def test_pipelined_requests_are_answered_in_order(connect: Any) -> None:
    client = await connect()
    client.writer.write(b"".join(heartbeat(number) for number in range(500)))
    for number in range(500):
        correlation_id, response = await client.response()
        assert (correlation_id, response.error_code) == (number, number)


async def test_a_burst_of_requests_gives_way_to_others_and_loses_nothing(stage: Stage) -> None:
    """By a clock that goes on a millisecond with every request."""
    monotonic = lambda: len(stage.started) / 1000  # noqa: E731
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=LIMITS, monotonic=monotonic) as server:
        client = await Client.of(server)
        burst = [heartbeat(number) for number in range(1000)]
        client.writer.write(b"".join(burst) + later(1000) + heartbeat(1001))
        seen = [0]
        async with asyncio.timeout(20):
            while len(stage.started) < 1002:
                await asyncio.sleep(0)  # one turn of everybody
                seen.append(len(stage.started))
        assert max(after - before for before, after in itertools.pairwise(seen)) <= 10
        for number in range(1000):
            assert (await client.response())[0] == number
        stage.futures[1000].set_result(left())
        assert (await client.response(ApiKey.LEAVE_GROUP))[0] == 1000
        assert (await client.response())[0] == 1001
        client.writer.close()


@pytest.mark.parametrize("seed", range(3))
async def test_requests_cut_into_any_pieces_arrive_whole(connect: Any, stage: Stage, seed: int) -> None:
    rng = random.Random(seed)
    client = await connect()
    payloads = [rng.randbytes(rng.choice((1, 100, 70_000, 150_000))) for _ in range(12)]
    stream = b"".join(produce(payload, number) for number, payload in enumerate(payloads))
    while stream:
        cut = rng.choice((1, 3, 1000, 100_000))
        client.writer.write(stream[:cut])
        stream = stream[cut:]
        await client.writer.drain()
        if rng.random() < 0.2:
            await asyncio.sleep(0)
    for number in range(len(payloads)):
        assert (await client.response(ApiKey.PRODUCE, 3))[0] == number
    assert stage.produced == payloads


async def test_one_byte_at_a_time(connect: Any) -> None:
    client = await connect()
    for byte in heartbeat(3) + heartbeat(4):
        client.writer.write(bytes([byte]))
        await client.writer.drain()
    assert [(await client.response())[0] for _ in range(2)] == [3, 4]


async def test_answers_wait_for_earlier_ones(connect: Any, stage: Stage) -> None:
    client = await connect()
    client.writer.write(later(1) + heartbeat(2) + later(3) + heartbeat(4))
    await until(lambda: stage.started == [1, 2, 3, 4])
    stage.futures[3].set_result(left())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.reader.read(1), 0.05)
    stage.futures[1].set_result(left())
    keys = [ApiKey.LEAVE_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.HEARTBEAT]
    assert [(await client.response(key))[0] for key in keys] == [1, 2, 3, 4]


async def test_a_coroutine_holds_back_later_requests_of_its_own_connection_only(connect: Any, stage: Stage) -> None:
    client, other = await connect(), await connect()
    client.writer.write(alone(1) + heartbeat(2))
    await until(lambda: stage.started == [1])
    other.writer.write(heartbeat(9))
    assert (await other.response())[0] == 9
    assert stage.started == [1, 9]
    stage.futures[1].set_result(HeartbeatResponse())
    assert (await client.response(ApiKey.SYNC_GROUP))[0] == 1
    assert (await client.response())[0] == 2


async def test_requests_that_wait_for_the_same_are_answered_together_and_in_order(connect: Any, stage: Stage) -> None:
    client, other = await connect(), await connect()
    for each in (client, other):
        each.writer.write(shared(0))
        assert (await each.response(ApiKey.JOIN_GROUP))[0] == 0, "the first one goes the general way"
    client.writer.write(shared(1) + heartbeat(2) + shared(3) + shared(-4) + shared(5))
    other.writer.write(shared(6))
    await until(lambda: len(stage.started) == 6)
    assert await other.is_silent() and await client.is_silent()
    stage.rounds[-1].set_exception(NotCoordinator())
    assert await client.is_silent(), "the second round is over, the first is not"
    stage.rounds[1].set_result(None)
    assert (await other.response(ApiKey.JOIN_GROUP))[0] == 6
    answers = [await client.response(key) for key in (ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, *[ApiKey.JOIN_GROUP] * 3)]
    assert [correlation_id for correlation_id, _ in answers] == [1, 2, 3, -4, 5]
    assert [answer.error_code for _, answer in answers] == [0, 2, 0, NotCoordinator.code, 0]


@pytest.mark.parametrize("leaves", [False, True], ids=["answered", "client_gone"])
async def test_what_waited_with_others_leaves_nothing_to_the_collector(
    stage: Stage, server: Server, connect: Any, leaves: bool
) -> None:
    client = await connect()
    client.writer.write(shared(0))
    assert (await client.response(ApiKey.JOIN_GROUP))[0] == 0, "the first one goes the general way"
    gc.collect()
    gc.disable()
    try:
        client.writer.write(shared(1) + shared(2) + shared(3))
        await until(lambda: len(stage.started) == 3)
        if leaves:
            client.writer.close()
            await until(lambda: not server.connections)
        stage.rounds[1].set_result(None)
        if not leaves:
            assert [(await client.response(ApiKey.JOIN_GROUP))[0] for _ in range(3)] == [1, 2, 3]
        await asyncio.sleep(0)
        assert not [each for each in gc.get_objects() if isinstance(each, Exchange)]
    finally:
        gc.enable()


async def test_a_connection_that_ends_while_what_it_waits_for_tells_it_is_told_the_rest(
    stage: Stage, server: Server, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A future must not lose callbacks in the midst of calling them: the interpreter itself would go down."""
    share, settled = stage.share, future_at_once()

    def picky(frame: memoryview) -> Exchange:
        exchange = share(frame)
        if exchange.header.correlation_id == 2:
            exchange.error_response = lambda *_: 1 // 0
        return exchange

    monkeypatch.setattr(stage, "share", picky)
    client = await connect()
    client.writer.write(shared(0))
    assert (await client.response(ApiKey.JOIN_GROUP))[0] == 0, "the first one goes the general way"
    stage.rounds[1] = settled
    client.writer.write(b"".join(shared(number) + shared(-number) for number in range(1, 6)))
    await until(lambda: len(stage.started) == 10)
    settled.set_exception(NotCoordinator("gone"))
    await until(lambda: not server.connections)
    stage.rounds[-1].set_result(None)


async def test_errors_are_answers_and_the_connection_lives_on(connect: Any, stage: Stage) -> None:
    client = await connect()
    client.writer.write(heartbeat(-1, 5) + alone(1))
    correlation_id, response = await client.response()
    assert (correlation_id, response.error_code) == (5, NotCoordinator.code)
    await until(lambda: 1 in stage.futures)
    stage.futures[1].set_exception(RuntimeError("bug"))
    assert (await client.response(ApiKey.SYNC_GROUP))[1].error_code == -1
    client.writer.write(heartbeat(6))
    assert (await client.response())[0] == 6


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">i", LIMITS.socket_request_max_bytes + 1),
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        heartbeat(1)[:4] + b"\xff" * (len(heartbeat(1)) - 4),
    ],
)
async def test_garbage_closes_the_connection_that_sent_it_after_what_came_before(connect: Any, garbage: bytes) -> None:
    client, other = await connect(), await connect()
    client.writer.write(heartbeat(7) + garbage)
    assert (await client.response())[0] == 7
    assert await client.is_closed()
    other.writer.write(heartbeat(8))
    assert (await other.response())[0] == 8


async def test_a_large_frame_is_not_allocated_before_it_arrives(connect: Any, server: Server) -> None:
    client = await connect()
    client.writer.write(struct.pack(">i", LIMITS.socket_request_max_bytes))
    await until(lambda: len(server.connections) == 1)
    (connection,) = server.connections
    await until(lambda: connection.incoming.received_bytes == 4)
    assert connection.incoming.capacity_bytes < LIMITS.socket_request_max_bytes / 2


async def test_a_busy_connection_has_a_larger_buffer_and_a_silent_one_gives_it_back(
    connect: Any, stage: Stage, server: Server
) -> None:
    client = await connect()
    payloads = [bytes([number]) * 16_000 for number in range(200)]
    client.writer.write(b"".join(produce(payload, number) for number, payload in enumerate(payloads)))
    for number in range(len(payloads)):
        assert (await client.response(ApiKey.PRODUCE, 3))[0] == number
    assert stage.produced == payloads
    (connection,) = server.connections
    assert connection.incoming.capacity_bytes == BUFFER_BUSY_BYTES
    client.writer.write(shared(0) + shared(1))
    await until(lambda: stage.started == [1])
    stage.rounds[1].set_result(None)
    assert [(await client.response(ApiKey.JOIN_GROUP))[0] for _ in range(2)] == [0, 1]
    in_a_while = asyncio.get_running_loop().time() + BUFFER_KEPT_SECONDS + 1
    connection.look_after(in_a_while, idle_limit_s=10**6, answer_bytes_max=SEND_BUFFER_BYTES_MAX)
    assert connection.incoming.capacity_bytes == BUFFER_IDLE_BYTES
    client.writer.write(heartbeat(2) + shared(3))
    assert [(await client.response(key))[0] for key in (ApiKey.HEARTBEAT, ApiKey.JOIN_GROUP)] == [2, 3]
    assert stage.started == [1, 2], "what was remembered for a shorter way is gone too: 3 went the general way"


async def test_a_client_that_does_not_read_is_not_served_on(connect: Any, stage: Stage, server: Server) -> None:
    client = await connect()
    client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    client.writer.transport.pause_reading()
    sent = 0

    async def flood() -> None:
        nonlocal sent
        while True:
            client.writer.write(at_length() * 100)
            sent += 100
            await client.writer.drain()

    task = asyncio.ensure_future(flood())
    previous = -1
    async with asyncio.timeout(20):
        while previous != len(stage.started) or not server_is_full(server):
            previous = len(stage.started)
            await asyncio.sleep(0.1)
    task.cancel()
    (connection,) = server.connections
    assert len(stage.started) * LONG_ANSWER_BYTES < 16 * 2**20, "most of which the kernel holds"
    assert connection.incoming.capacity_bytes <= 4 * 65536
    assert sent > len(stage.started)


async def test_answers_that_have_to_wait_for_an_earlier_one_are_few(connect: Any, stage: Stage, server: Server) -> None:
    client = await connect()
    client.writer.write(later(1) + at_length() * 500)
    await until(lambda: len(stage.started) * LONG_ANSWER_BYTES > SEND_BUFFER_BYTES_MAX)
    await asyncio.sleep(0.05)
    assert len(stage.started) * LONG_ANSWER_BYTES < SEND_BUFFER_BYTES_MAX + 2 * LONG_ANSWER_BYTES
    stage.futures[1].set_result(left())
    assert (await client.response(ApiKey.LEAVE_GROUP))[0] == 1
    for _ in range(500):
        await client.response(ApiKey.FIND_COORDINATOR, 1)
    (connection,) = server.connections
    assert (connection.answers.unsent_bytes, connection.answers.pending) == (0, 0)


async def test_few_requests_wait_at_a_time_for_an_answer_that_may_be_large(connect: Any, stage: Stage) -> None:
    client = await connect()
    client.writer.write(b"".join(later(number) for number in range(PENDING_MAX + 10)))
    await until(lambda: len(stage.started) == PENDING_MAX)
    client.writer.write(heartbeat(1))
    await asyncio.sleep(0.05)
    assert len(stage.started) == PENDING_MAX
    for number in range(PENDING_MAX + 10):
        await until(lambda number=number: number in stage.futures)  # type: ignore[misc]
        stage.futures[number].set_result(left())
        assert (await client.response(ApiKey.LEAVE_GROUP))[0] == number
    assert (await client.response())[0] == 1


async def test_a_buffer_is_as_large_as_what_was_counted_for_it(stage: Stage) -> None:
    limits = ServerLimits(socket_request_max_bytes=10**8)
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server:
        client = await Client.of(server)
        rng = random.Random(7)
        sizes = (10, 60_000, 70_000, 140_000, 1_100_000, 4_200_000, 17_000_000)
        payloads = [rng.randbytes(rng.choice(sizes)) for _ in range(40)]
        stream = b"".join(produce(payload, number) for number, payload in enumerate(payloads))
        client.writer.write(stream)
        largest = 0
        for number in range(len(payloads)):
            while len(stage.produced) <= number:
                largest = max(largest, held_beyond_ordinary(server) - server.memory.held_bytes)
                await asyncio.sleep(0)
            assert (await client.response(ApiKey.PRODUCE, 3))[0] == number
        assert stage.produced == payloads
        assert largest <= 0, "the buffer was never larger than what was counted"


async def test_requests_that_wait_hold_little_however_many_they_are(connect: Any, stage: Stage) -> None:
    client = await connect()
    client.writer.write(b"".join(large(later(number), 30_000) for number in range(8)))
    await until(lambda: len(stage.started) * 30_000 >= PENDING_BYTES_MAX)
    await asyncio.sleep(0.05)
    assert len(stage.started) == 3
    for number in range(8):
        await until(lambda number=number: number in stage.futures)  # type: ignore[misc]
        stage.futures[number].set_result(left())
        assert (await client.response(ApiKey.LEAVE_GROUP))[0] == number


async def test_futures_of_a_client_that_went_away_are_cancelled(connect: Any, stage: Stage, server: Server) -> None:
    client = await connect()
    client.writer.write(later(1))
    await until(lambda: 1 in stage.futures)
    client.writer.transport.abort()
    await until(lambda: stage.futures[1].cancelled())
    assert not server.connections
    assert (server.counts.count, server.counts.per_host) == (0, {})


async def test_a_coroutine_of_a_client_that_went_away_runs_to_its_end(connect: Any, stage: Stage) -> None:
    client = await connect()
    client.writer.write(alone(1))
    await until(lambda: 1 in stage.futures)
    client.writer.transport.abort()
    await asyncio.sleep(0.05)
    assert not stage.futures[1].cancelled()
    stage.futures[1].set_result(HeartbeatResponse())
