"""Clients of one server: what they share, how many there may be, and how it ends"""

import asyncio
import random

import pytest

from tests.broker.server_stage import (
    LIMITS,
    LONG_ANSWER_BYTES,
    Client,
    Stage,
    alone,
    at_length,
    heartbeat,
    held_answers,
    held_beyond_ordinary,
    large,
    later,
    left,
    produce,
    server_is_full,
    server_side,
    until,
)
from tidemill.broker.input_buffer import BUFFER_BUSY_BYTES, BUFFER_IDLE_BYTES
from tidemill.broker.server import SEND_BUFFER_BYTES_MAX, Server
from tidemill.broker.server_limits import ConnectionCounts, ServerLimits
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import encode_request
from tidemill.core.wire.messages.heartbeat import HeartbeatResponse
from tidemill.core.wire.messages.leave_group import LeaveGroupRequest


@pytest.fixture
async def stage() -> Stage:
    return Stage()


async def test_the_more_connections_the_less_each_may_leave_unread(stage: Stage) -> None:
    limits = ServerLimits(queued_max_request_bytes=8 * 2**20)
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server:

        async def deaf() -> Client:
            client = await Client.of(server)
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
            connection.look_after(0.0, idle_limit_s=1.0, answer_bytes_max=server.answer_bytes_share())
        assert {connection.answers.bytes_max for connection in server.connections} == {2**18}
        for client in clients:
            client.writer.transport.abort()
        await until(lambda: not server.connections)
        assert server.answer_bytes_share() == SEND_BUFFER_BYTES_MAX


async def test_a_thousand_connections_get_their_answers_and_hold_little(stage: Stage) -> None:
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=LIMITS) as server:
        clients = [await Client.of(server) for _ in range(1000)]
        for number, client in enumerate(clients):
            client.writer.write(heartbeat(number)[:-3])
        await until(lambda: len(server.connections) == 1000)
        assert sum(connection.incoming.capacity_bytes for connection in server.connections) <= 1000 * BUFFER_IDLE_BYTES
        assert stage.started == []
        for number, client in enumerate(clients):
            client.writer.write(heartbeat(number)[-3:])
        for number, client in enumerate(clients):
            assert (await client.response())[0] == number
        for client in clients:
            client.writer.close()
        await until(lambda: not server.connections)
        assert (server.counts.count, server.counts.per_host) == (0, {})


async def test_large_requests_wait_for_one_another_when_memory_is_short(stage: Stage) -> None:
    limits = ServerLimits(socket_request_max_bytes=10**6, queued_max_request_bytes=250_000)
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server:
        clients = [await Client.of(server) for _ in range(4)]
        frames = [produce(bytes([65 + number]) * 200_000, number) for number in range(4)]
        for client, frame in zip(clients[:3], frames[:3], strict=True):
            client.writer.write(frame[:100_000])
        await until(lambda: server.memory.waiting == 2)
        holding = next(number for number in range(3) if server_side(server, clients[number]).incoming.granted_bytes)
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
        first, second = [await Client.of(server) for _ in range(2)]
        request = LeaveGroupRequest(member_id="1", group_id="g" * 20_000)
        frame = large(encode_request(ApiKey.LEAVE_GROUP, 0, 1, "c", request), 180_000)
        first.writer.write(frame)
        await until(lambda: 1 in stage.futures)
        assert len(frame) <= server.memory.held_bytes <= 2 * len(frame)
        second.writer.write(produce(bytes(200_000), 2))
        await until(lambda: server.memory.waiting > 0)
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
    monkeypatch.setattr("tidemill.broker.input_buffer.ARRIVAL_SECONDS", 0.05)
    monkeypatch.setattr("tidemill.broker.input_buffer.ARRIVAL_BYTES_PER_S", 10**9)
    monkeypatch.setattr("tidemill.broker.server.SWEEP_SECONDS_MAX", 0.02)
    limits = ServerLimits(socket_request_max_bytes=10**6, queued_max_request_bytes=250_000)
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server:
        slow, honest = [await Client.of(server) for _ in range(2)]
        slow.writer.write(produce(bytes(200_000))[:1000])
        await until(lambda: server.memory.held_bytes > 0)
        await asyncio.sleep(0.3)
        assert len(server.connections) == 2, "nobody waits for it"
        honest.writer.write(produce(bytes(200_000), 2))
        assert (await honest.response(ApiKey.PRODUCE, 3))[0] == 2
        assert await slow.is_closed()
        honest.writer.close()
        await until(lambda: server.memory.held_bytes == 0)


async def test_what_large_requests_leave_behind_stays_within_their_memory(stage: Stage) -> None:
    limits = ServerLimits(socket_request_max_bytes=10**7, queued_max_request_bytes=8 * 2**20)
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server:
        clients = [await Client.of(server) for _ in range(20)]
        for number, client in enumerate(clients):
            # Nothing behind it, the beginning of a small request or of a large one: whatever keeps the buffer in use.
            begun = (b"", heartbeat(1)[:5], produce(bytes(1_500_000))[:100_000])[number % 3]
            client.writer.write(produce(bytes(1_900_000), number) + begun)
            assert (await client.response(ApiKey.PRODUCE, 3))[0] == number
        assert held_beyond_ordinary(server) <= limits.queued_max_request_bytes
        await until(lambda: sum(c.incoming.received_bytes > 4 for c in server.connections) == 13)
        assert held_beyond_ordinary(server) <= server.memory.held_bytes <= limits.queued_max_request_bytes
        clients[1].writer.write(heartbeat(1)[5:])
        assert (await clients[1].response())[0] == 1
        for client in clients:
            client.writer.close()
        await until(lambda: server.memory.held_bytes == 0)


async def test_a_producer_of_large_batches_keeps_its_buffer_before_one_that_is_silent(stage: Stage) -> None:
    limits = ServerLimits(socket_request_max_bytes=10**7, queued_max_request_bytes=2 * 2**20)
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server:
        silent, busy, new = [await Client.of(server) for _ in range(3)]
        for client in (busy, silent, busy, busy):
            client.writer.write(produce(bytes(1_000_000)))
            await client.response(ApiKey.PRODUCE, 3)
        assert held_beyond_ordinary(server) == 2 * 2**20
        new.writer.write(produce(bytes(1_000_000)))
        await new.response(ApiKey.PRODUCE, 3)
        sizes = [server_side(server, client).incoming.capacity_bytes for client in (silent, busy, new)]
        assert sizes == [BUFFER_BUSY_BYTES, 2**20, 2**20]


async def test_large_requests_in_work_do_not_pin_more_than_is_counted(stage: Stage) -> None:
    limits = ServerLimits(socket_request_max_bytes=10**7, queued_max_request_bytes=4 * 2**20)
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server:
        client, other = [await Client.of(server) for _ in range(2)]
        frames = [large(later(number), 900_000) for number in range(10)]
        client.writer.write(b"".join(frames))
        await until(lambda: len(stage.started) == 4 and server.memory.waiting > 0)
        assert server.memory.held_bytes <= limits.queued_max_request_bytes
        assert held_beyond_ordinary(server) == 0
        for number in range(10):
            await until(lambda number=number: number in stage.futures)  # type: ignore[misc]
            stage.futures[number].set_result(left())
            assert (await client.response(ApiKey.LEAVE_GROUP))[0] == number
        assert server.memory.held_bytes == 0
        other.writer.write(heartbeat(5))
        assert (await other.response())[0] == 5


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_clients_send_memory_is_counted_and_comes_back(stage: Stage, seed: int) -> None:
    """Requests of all sizes in pieces of all sizes, of clients some of which go away in the middle of one."""
    rng = random.Random(seed)
    limits = ServerLimits(socket_request_max_bytes=10**7, queued_max_request_bytes=(seed + 1) * 600_000)
    sizes = (10, 10, 5_000, 65_500, 65_540, 70_000, 131_000, 131_060, 140_000, 400_000, 1_500_000, 2_500_000)

    async def play(server: Server) -> None:
        client = await Client.of(server)
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
        assert server.memory.waiting == 0


async def test_connections_are_capped(stage: Stage) -> None:
    limits = ServerLimits(max_connections=2)
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server:
        clients = [await Client.of(server) for _ in range(2)]
        await until(lambda: len(server.connections) == 2)
        refused = await Client.of(server)
        assert await refused.is_closed()
        assert server.refused["too_many"] == 1
        clients[0].writer.close()
        await until(lambda: len(server.connections) == 1)
        again = await Client.of(server)
        again.writer.write(heartbeat(1))
        assert (await again.response())[0] == 1


async def test_the_caps_hold_for_all_listeners_together(stage: Stage) -> None:
    limits, counts = ServerLimits(max_connections=3, max_connections_per_ip=2), ConnectionCounts()
    async with (
        Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits, counts=counts) as one,
        Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits, counts=counts) as other,
    ):
        clients = [await Client.of(each) for each in (one, other)]
        await until(lambda: counts.count == 2)
        refused = await Client.of(other)
        assert await refused.is_closed()
        elsewhere = await Client.of(other, local_addr=("127.0.0.2", 0))
        await until(lambda: counts.count == 3)
        assert counts.per_host == {"127.0.0.1": 2, "127.0.0.2": 1}
        too_many = await Client.of(one, local_addr=("127.0.0.3", 0))
        assert await too_many.is_closed()
        for client in (*clients, elsewhere):
            client.writer.close()
        await until(lambda: counts.count == 0)
    assert counts.per_host == {}


async def test_idle_connections_are_closed_and_waiting_ones_are_not(stage: Stage) -> None:
    limits = ServerLimits(connections_max_idle_ms=200)
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server:
        idle = await Client.of(server)
        waiting = await Client.of(server)
        waiting.writer.write(later(1))
        assert await idle.is_closed()
        stage.futures[1].set_result(left())
        assert (await waiting.response(ApiKey.LEAVE_GROUP))[0] == 1


async def test_an_idle_client_that_does_not_take_its_answers_is_dropped_with_them(stage: Stage) -> None:
    limits = ServerLimits(connections_max_idle_ms=200)
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=limits) as server:
        deaf = await Client.of(server)
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
        deaf.writer.write(at_length() * 1000)
        await until(lambda: server_is_full(server))
        await until(lambda: not server.connections)
        deaf.writer.transport.abort()


async def test_stopping_lets_requests_in_work_finish(stage: Stage) -> None:
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=LIMITS) as server:
        client = await Client.of(server)
        client.writer.write(alone(1))
        await until(lambda: 1 in stage.futures)
        asyncio.get_running_loop().call_later(0.05, stage.futures[1].set_result, HeartbeatResponse())
    assert (await client.response(ApiKey.SYNC_GROUP))[0] == 1
    assert await client.is_closed()


async def test_stopping_does_not_wait_for_ever(stage: Stage) -> None:
    loop = asyncio.get_running_loop()
    async with Server(stage.dispatcher, host="127.0.0.1", port=0, limits=LIMITS) as server:
        client = await Client.of(server)
        client.writer.write(alone(1) + later(2))
        await until(lambda: 1 in stage.futures)
        stopped = loop.time()
    assert loop.time() - stopped < 5
    assert await client.is_closed()
