"""Connections over real sockets: framing, order, limits, back-pressure"""

import asyncio
import random
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
    large,
    later,
    left,
    produce,
    shared,
    until,
)
from tidemill.broker.server import (
    BUFFER_BUSY_BYTES,
    BUFFER_IDLE_BYTES,
    PENDING_BYTES_MAX,
    PENDING_MAX,
    SEND_BUFFER_BYTES_MAX,
    Connection,
    Server,
)
from tidemill.broker.server_limits import ConnectionCounts, ServerLimits
from tidemill.core.errors import NotCoordinator
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import encode_request
from tidemill.core.wire.messages.heartbeat import HeartbeatResponse
from tidemill.core.wire.messages.leave_group import LeaveGroupRequest


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
        client = Client(*await asyncio.open_connection("127.0.0.1", server.port, limit=10**8))
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
    await until(lambda: connection._end == 4)
    assert len(connection._buffer) < LIMITS.socket_request_max_bytes / 2


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
    assert len(connection._buffer) == BUFFER_BUSY_BYTES
    client.writer.write(shared(0))
    await client.response(ApiKey.JOIN_GROUP)
    assert connection._shortcuts
    connection.shrink()
    assert len(connection._buffer) == BUFFER_IDLE_BYTES
    assert not connection._shortcuts
    client.writer.write(heartbeat(1) + shared(0))
    assert [(await client.response(key))[0] for key in (ApiKey.HEARTBEAT, ApiKey.JOIN_GROUP)] == [1, 0]


async def test_a_client_that_does_not_read_is_not_served_on(connect: Any, stage: Stage, server: Server) -> None:
    client = await connect()
    transport = client.writer.transport
    transport.pause_reading()
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
    assert connection._transport is not None
    assert connection._transport.get_write_buffer_size() < 4 * 2**20
    assert len(connection._buffer) <= 4 * 65536
    assert sent > len(stage.started)


async def test_the_more_connections_the_less_each_may_leave_unread(stage: Stage) -> None:
    limits = ServerLimits(queued_max_request_bytes=8 * 2**20)
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server:

        async def deaf() -> Client:
            client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.writer.write(later(len(server.connections)) + at_length() * 100)
            return client

        clients = [await deaf()]
        await until(lambda: held_answers(server)[0] > SEND_BUFFER_BYTES_MAX)
        clients += [await deaf() for _ in range(15)]
        await until(lambda: len(server.connections) == 16 and min(held_answers(server)) > 2**18)
        await asyncio.sleep(0.05)
        assert min(held_answers(server)) < 2**18 + 2 * LONG_ANSWER_BYTES
        assert sum(held_answers(server)) < 16 * SEND_BUFFER_BYTES_MAX * 2 / 3
        for connection in server.connections:
            connection.hold_answers(server.answer_bytes_share())
        assert {connection._answer_bytes_max for connection in server.connections} == {2**18}
        for client in clients:
            client.writer.transport.abort()
        await until(lambda: not server.connections)
        assert server.answer_bytes_share() == SEND_BUFFER_BYTES_MAX


def held_answers(server: Server) -> list[int]:
    return [connection._answered_bytes for connection in server.connections]


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
    assert (connection._answered_bytes, connection._pending) == (0, 0)


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


async def test_a_thousand_connections_get_their_answers_and_hold_little(stage: Stage) -> None:
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=LIMITS) as server:
        clients = [Client(*await asyncio.open_connection("127.0.0.1", server.port)) for _ in range(1000)]
        for number, client in enumerate(clients):
            client.writer.write(heartbeat(number)[:-3])
        await until(lambda: len(server.connections) == 1000)
        assert sum(len(connection._buffer) for connection in server.connections) <= 1000 * BUFFER_IDLE_BYTES
        assert stage.started == []
        for number, client in enumerate(clients):
            client.writer.write(heartbeat(number)[-3:])
        for number, client in enumerate(clients):
            assert (await client.response())[0] == number
        for client in clients:
            client.writer.close()
        await until(lambda: not server.connections)
        assert (server.counts.count, server.counts.per_host) == (0, {})


def server_is_full(server: Server) -> bool:
    return any(connection._send_buffer_full for connection in server.connections)


async def test_large_requests_wait_for_one_another_when_memory_is_short(stage: Stage) -> None:
    limits = ServerLimits(socket_request_max_bytes=10**6, queued_max_request_bytes=250_000)
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server:
        clients = [Client(*await asyncio.open_connection("127.0.0.1", server.port)) for _ in range(4)]
        frames = [produce(bytes([65 + number]) * 200_000, number) for number in range(4)]
        for client, frame in zip(clients[:3], frames[:3], strict=True):
            client.writer.write(frame[:100_000])
        await until(lambda: len(server.memory._waiting) == 2)
        holding = next(number for number in range(3) if server_side(server, clients[number])._memory_taken)
        assert server.memory.held_bytes < 2 * 200_000
        clients[3].writer.write(heartbeat(5))
        assert (await clients[3].response())[0] == 5, "small requests do not wait"
        gone, other = (number for number in range(3) if number != holding)
        clients[gone].writer.transport.abort()
        clients[other].writer.write(frames[other][100_000:])
        assert stage.produced == []
        clients[holding].writer.write(frames[holding][100_000:])
        assert (await clients[holding].response(ApiKey.PRODUCE, 3))[0] == holding
        assert (await clients[other].response(ApiKey.PRODUCE, 3))[0] == other
        assert held_beyond_ordinary(server) <= server.memory.held_bytes < 2 * 200_000


async def test_a_large_request_counts_until_it_is_answered(stage: Stage) -> None:
    limits = ServerLimits(socket_request_max_bytes=10**6, queued_max_request_bytes=250_000)
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server:
        first, second = [Client(*await asyncio.open_connection("127.0.0.1", server.port)) for _ in range(2)]
        request = LeaveGroupRequest(member_id="1", group_id="g" * 20_000)
        frame = large(encode_request(ApiKey.LEAVE_GROUP, 0, 1, "c", request), 180_000)
        first.writer.write(frame)
        await until(lambda: 1 in stage.futures)
        assert len(frame) <= server.memory.held_bytes <= 2 * len(frame)
        second.writer.write(produce(bytes(200_000), 2))
        await until(lambda: server.memory.is_short)
        stage.futures[1].set_result(left())
        assert (await second.response(ApiKey.PRODUCE, 3))[0] == 2
        second.writer.write(frame)
        await until(lambda: len(stage.started) == 2)
        assert len(frame) <= server.memory.held_bytes <= 2 * len(frame)
        second.writer.transport.abort()
        await until(lambda: server.memory.held_bytes == 0)


async def test_a_request_that_dawdles_loses_its_memory_only_when_others_need_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.broker.server.ARRIVAL_SECONDS", 0.05)
    monkeypatch.setattr("tidemill.broker.server.ARRIVAL_BYTES_PER_S", 10**9)
    monkeypatch.setattr("tidemill.broker.server.SWEEP_SECONDS_MAX", 0.02)
    limits = ServerLimits(socket_request_max_bytes=10**6, queued_max_request_bytes=250_000)
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server:
        slow, honest = [Client(*await asyncio.open_connection("127.0.0.1", server.port)) for _ in range(2)]
        slow.writer.write(produce(bytes(200_000))[:1000])
        await until(lambda: server.memory.held_bytes > 0)
        await asyncio.sleep(0.3)
        assert len(server.connections) == 2, "nobody waits for it"
        honest.writer.write(produce(bytes(200_000), 2))
        assert (await honest.response(ApiKey.PRODUCE, 3))[0] == 2
        assert await slow.is_closed()
        honest.writer.close()
        await until(lambda: server.memory.held_bytes == 0)


def held_beyond_ordinary(server: Server) -> int:
    sizes = [len(connection._buffer) for connection in server.connections]
    return sum(size for size in sizes if size > BUFFER_BUSY_BYTES)


async def test_what_large_requests_leave_behind_stays_within_their_memory(stage: Stage) -> None:
    limits = ServerLimits(socket_request_max_bytes=10**7, queued_max_request_bytes=8 * 2**20)
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server:
        clients = [Client(*await asyncio.open_connection("127.0.0.1", server.port)) for _ in range(20)]
        for number, client in enumerate(clients):
            # Nothing behind it, the beginning of a small request or of a large one: whatever keeps the buffer in use.
            begun = (b"", heartbeat(1)[:5], produce(bytes(1_500_000))[:100_000])[number % 3]
            client.writer.write(produce(bytes(1_900_000), number) + begun)
            assert (await client.response(ApiKey.PRODUCE, 3))[0] == number
        assert held_beyond_ordinary(server) <= limits.queued_max_request_bytes
        await until(lambda: sum(c._end - c._start > 4 for c in server.connections) == 13)
        assert held_beyond_ordinary(server) <= server.memory.held_bytes <= limits.queued_max_request_bytes
        clients[1].writer.write(heartbeat(1)[5:])
        assert (await clients[1].response())[0] == 1
        for client in clients:
            client.writer.close()
        await until(lambda: server.memory.held_bytes == 0)


async def test_a_producer_of_large_batches_keeps_its_buffer_before_one_that_is_silent(stage: Stage) -> None:
    limits = ServerLimits(socket_request_max_bytes=10**7, queued_max_request_bytes=2 * 2**20)
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server:
        silent, busy, new = [Client(*await asyncio.open_connection("127.0.0.1", server.port)) for _ in range(3)]
        buffers = set()
        for client in (busy, silent, busy, busy):
            client.writer.write(produce(bytes(1_000_000)))
            await client.response(ApiKey.PRODUCE, 3)
            buffers.add(id(server_side(server, client)._buffer))
        assert len(buffers) == 2
        new.writer.write(produce(bytes(1_000_000)))
        await new.response(ApiKey.PRODUCE, 3)
        sizes = [len(server_side(server, client)._buffer) for client in (silent, busy, new)]
        assert sizes == [BUFFER_BUSY_BYTES, 2**20, 2**20]


async def test_a_buffer_is_as_large_as_what_was_counted_for_it(stage: Stage) -> None:
    limits = ServerLimits(socket_request_max_bytes=10**8)
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server:
        client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
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


async def test_large_requests_in_work_do_not_pin_more_than_is_counted(stage: Stage) -> None:
    limits = ServerLimits(socket_request_max_bytes=10**7, queued_max_request_bytes=4 * 2**20)
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server:
        client, other = [Client(*await asyncio.open_connection("127.0.0.1", server.port)) for _ in range(2)]
        frames = [large(later(number), 900_000) for number in range(10)]
        client.writer.write(b"".join(frames))
        await until(lambda: len(stage.started) == 4 and server.memory.is_short)
        assert server.memory.held_bytes <= limits.queued_max_request_bytes
        assert held_beyond_ordinary(server) == 0
        for number in range(10):
            await until(lambda number=number: number in stage.futures)  # type: ignore[misc]
            stage.futures[number].set_result(left())
            assert (await client.response(ApiKey.LEAVE_GROUP))[0] == number
        assert server.memory.held_bytes == 0
        other.writer.write(heartbeat(5))
        assert (await other.response())[0] == 5


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


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_clients_send_memory_is_counted_and_comes_back(stage: Stage, seed: int) -> None:
    """Requests of all sizes in pieces of all sizes, of clients some of which go away in the middle of one."""
    rng = random.Random(seed)
    limits = ServerLimits(socket_request_max_bytes=10**7, queued_max_request_bytes=(seed + 1) * 600_000)
    sizes = (10, 10, 5_000, 65_500, 65_540, 70_000, 131_000, 131_060, 140_000, 400_000, 1_500_000, 2_500_000)

    async def play(server: Server) -> None:
        client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        kinds = [(rng.random() < 0.25, rng.choice(sizes)) for _ in range(rng.randrange(1, 12))]
        stream = b"".join(
            large(later(rng.randrange(10**9)), size) if pending else produce(bytes(size)) for pending, size in kinds
        )
        goes_away = rng.random() < 0.3
        client.writer.write(stream[: rng.randrange(len(stream))] if goes_away else stream)
        if goes_away:
            await asyncio.sleep(0.1 * rng.random())
            client.writer.transport.abort()
            return
        for pending, _ in kinds:
            await client.response(*((ApiKey.LEAVE_GROUP, 0) if pending else (ApiKey.PRODUCE, 3)))

    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server, asyncio.timeout(30):
        playing = [asyncio.ensure_future(play(server)) for _ in range(15)]
        while not all(player.done() for player in playing):
            held_bytes = server.memory.held_bytes
            assert held_beyond_ordinary(server) <= held_bytes <= max(limits.queued_max_request_bytes, 3 * 2**20)
            for future in list(stage.futures.values()):
                if not future.done() and rng.random() < 0.5:
                    future.set_result(left())
            await asyncio.sleep(0)
        for player in playing:
            player.result()
        for connection in list(server.connections):
            connection.abort("the test is over")
        await until(lambda: server.memory.held_bytes == 0)
        assert not server.memory.is_short


def server_side(server: Server, client: Client) -> Connection:
    port = client.writer.get_extra_info("sockname")[1]
    return next(c for c in server.connections if c._peer.connection_id.split("-")[1].endswith(f":{port}"))


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


async def test_connections_are_capped(stage: Stage) -> None:
    limits = ServerLimits(max_connections=2)
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server:
        clients = [Client(*await asyncio.open_connection("127.0.0.1", server.port)) for _ in range(2)]
        await until(lambda: len(server.connections) == 2)
        refused = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        assert await refused.is_closed()
        clients[0].writer.close()
        await until(lambda: len(server.connections) == 1)
        again = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        again.writer.write(heartbeat(1))
        assert (await again.response())[0] == 1


async def test_the_caps_hold_for_all_listeners_together(stage: Stage) -> None:
    limits, counts = ServerLimits(max_connections=3, max_connections_per_ip=2), ConnectionCounts()
    async with (
        Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits, counts=counts) as one,
        Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits, counts=counts) as other,
    ):
        clients = [Client(*await asyncio.open_connection("127.0.0.1", each.port)) for each in (one, other)]
        await until(lambda: counts.count == 2)
        refused = Client(*await asyncio.open_connection("127.0.0.1", other.port))
        assert await refused.is_closed()
        elsewhere = Client(*await asyncio.open_connection("127.0.0.1", other.port, local_addr=("127.0.0.2", 0)))
        await until(lambda: counts.count == 3)
        assert counts.per_host == {"127.0.0.1": 2, "127.0.0.2": 1}
        too_many = Client(*await asyncio.open_connection("127.0.0.1", one.port, local_addr=("127.0.0.3", 0)))
        assert await too_many.is_closed()
        for client in (*clients, elsewhere):
            client.writer.close()
        await until(lambda: counts.count == 0)
    assert counts.per_host == {}


async def test_idle_connections_are_closed_and_waiting_ones_are_not(stage: Stage) -> None:
    limits = ServerLimits(connections_max_idle_ms=200)
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server:
        idle = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        waiting = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        waiting.writer.write(later(1))
        assert await idle.is_closed()
        stage.futures[1].set_result(left())
        assert (await waiting.response(ApiKey.LEAVE_GROUP))[0] == 1


async def test_an_idle_client_that_does_not_take_its_answers_is_dropped_with_them(stage: Stage) -> None:
    limits = ServerLimits(connections_max_idle_ms=200)
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server:
        deaf = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
        deaf.writer.write(at_length() * 1000)
        await until(lambda: server_is_full(server))
        await until(lambda: not server.connections)
        deaf.writer.transport.abort()


async def test_stopping_lets_requests_in_work_finish(stage: Stage) -> None:
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=LIMITS) as server:
        client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        client.writer.write(alone(1))
        await until(lambda: 1 in stage.futures)
        asyncio.get_running_loop().call_later(0.05, stage.futures[1].set_result, HeartbeatResponse())
    assert (await client.response(ApiKey.SYNC_GROUP))[0] == 1
    assert await client.is_closed()


async def test_stopping_does_not_wait_for_ever(stage: Stage) -> None:
    loop = asyncio.get_running_loop()
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=LIMITS) as server:
        client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        client.writer.write(alone(1) + later(2))
        await until(lambda: 1 in stage.futures)
        stopped = loop.time()
    assert loop.time() - stopped < 5
    assert await client.is_closed()
