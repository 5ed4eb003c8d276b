"""Requests measured on real connections, by a clock of the test's."""

import asyncio
import struct
from itertools import pairwise

import pytest

from tests.broker.server_stage import LIMITS, Client, Stage, alone, heartbeat, later, left, produce, shared, until
from tidemill.broker.refusals import Refusal
from tidemill.broker.request_meter import ARRIVALS_MAX, BOUNDS_S, GAP_MEAN, Arrivals, RequestMeter
from tidemill.broker.server import Server
from tidemill.broker.server_limits import RequestMemory
from tidemill.core.error_code import ErrorCode
from tidemill.core.runtime.clock import ManualClock
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import encode_request
from tidemill.core.wire.messages.heartbeat import HeartbeatRequest
from tidemill.core.wire.messages.sync_group import SyncGroupResponse


def frame_of(size: int) -> bytes:
    """How a frame of `size` bytes begins."""
    return struct.pack(">i", size)


def request_of(api_key: int, version: int) -> bytes:
    """A Heartbeat under another number."""
    data = bytearray(encode_request(ApiKey.HEARTBEAT, 0, 1, "c", HeartbeatRequest()))
    data[4:8] = struct.pack(">hh", api_key, version)
    return bytes(data)


def measured(stage: Stage, meter: RequestMeter, memory: RequestMemory | None = None) -> Server:
    return Server(stage.dispatcher, host="127.0.0.1", port=0, limits=LIMITS, meter=meter, memory=memory)


async def counted(meter: RequestMeter, key: ApiKey, count: int) -> None:
    await until(lambda: key in meter.times and meter.times[key].count == count)


async def test_requests_that_are_answered_at_once() -> None:
    stage, meter = Stage(), RequestMeter(ManualClock().monotonic)
    async with measured(stage, meter) as server:
        client = await Client.of(server)
        client.writer.write(b"".join(heartbeat(number) for number in range(300)))
        for _ in range(300):
            await client.response()
        await counted(meter, ApiKey.HEARTBEAT, 300)
    stats = meter.times[ApiKey.HEARTBEAT]
    assert stats.buckets[0] == 300
    assert stats.total_s == 0.0


async def test_what_a_request_waits_for_is_remote_and_what_is_behind_it_waits_for_its_turn() -> None:
    clock, stage = ManualClock(), Stage()
    meter = RequestMeter(clock.monotonic)
    async with measured(stage, meter) as server:
        client = await Client.of(server)
        client.writer.write(later(1) + heartbeat(2))
        await until(lambda: stage.started == [1, 2])
        clock.advance(40)
        stage.futures[1].set_result(left())
        await client.response(ApiKey.LEAVE_GROUP)
        await client.response()
        await counted(meter, ApiKey.HEARTBEAT, 1)
    waited, behind = meter.times[ApiKey.LEAVE_GROUP], meter.times[ApiKey.HEARTBEAT]
    assert (waited.remote_s, waited.response_queue_s, waited.total_s) == (0.04, 0.0, 0.04)
    assert (behind.remote_s, behind.response_queue_s, behind.total_s) == (0.0, 0.04, 0.04)
    assert waited.buckets[BOUNDS_S.index(0.05)] == 1


async def test_a_request_that_may_not_begin_waits_in_the_queue() -> None:
    clock, stage = ManualClock(), Stage()
    meter = RequestMeter(clock.monotonic)
    async with measured(stage, meter) as server:
        client = await Client.of(server)
        client.writer.write(alone(1) + heartbeat(2))
        await until(lambda: stage.started == [1] and 1 in stage.futures)
        clock.advance(30)
        stage.futures[1].set_result(SyncGroupResponse())
        await client.response(ApiKey.SYNC_GROUP)
        await client.response()
        await counted(meter, ApiKey.HEARTBEAT, 1)
        clock.advance(1000)
        client.writer.write(heartbeat(3))
        await client.response()
        await counted(meter, ApiKey.HEARTBEAT, 2)
    assert meter.times[ApiKey.SYNC_GROUP].remote_s == 0.03
    assert meter.times[ApiKey.HEARTBEAT].queue_s == 0.03, "only the one that had to wait"


async def test_each_of_many_that_may_not_begin_waits_since_it_came() -> None:
    clock, stage = ManualClock(), Stage()
    meter = RequestMeter(clock.monotonic)
    async with measured(stage, meter) as server:
        client = await Client.of(server)
        client.writer.write(alone(1) + alone(2) + heartbeat(3))
        await until(lambda: 1 in stage.futures)
        clock.advance(10)
        client.writer.write(heartbeat(4))
        (connection,) = server.connections
        lying = 12 + 2 * len(heartbeat(3))
        await until(lambda: connection.incoming.received_bytes > lying)
        clock.advance(20)
        stage.futures[1].set_result(SyncGroupResponse())
        await until(lambda: 2 in stage.futures)
        clock.advance(30)
        stage.futures[2].set_result(SyncGroupResponse())
        await counted(meter, ApiKey.HEARTBEAT, 2)
    times = meter.times[ApiKey.SYNC_GROUP], meter.times[ApiKey.HEARTBEAT]
    assert [round(each.queue_s * 1000) for each in times] == [30, 60 + 50]
    assert [round(each.total_s * 1000) for each in times] == [30 + 60, 60 + 50]


def test_moments_of_what_lies_in_a_connection_are_those_of_last_bytes_and_not_without_end() -> None:
    arrivals = Arrivals()
    arrivals.lie(10, 1.0)
    arrivals.lie(10, 2.0)
    arrivals.lie(16, 3.0)
    assert [arrivals.take(4, 9.0), arrivals.take(8, 9.0)] == [1.0, 3.0]
    assert arrivals.take(5, 9.0) == 9.0, "its last byte came just now"
    assert not arrivals.lying
    for number in range(2 * ARRIVALS_MAX):
        arrivals.lie(number + 1, float(number))
    assert len(arrivals.lying) == ARRIVALS_MAX
    assert [arrivals.take(1, 999.0) for _ in range(2 * ARRIVALS_MAX)][-1] == ARRIVALS_MAX - 1
    assert arrivals.take(1, 999.0) == 999.0


async def test_many_that_wait_for_the_same_each_have_their_time() -> None:
    clock, stage = ManualClock(), Stage()
    meter = RequestMeter(clock.monotonic)
    async with measured(stage, meter) as server:
        client = await Client.of(server)
        client.writer.write(shared(1))  # from the second on by the shortcut
        await client.response(ApiKey.JOIN_GROUP)
        client.writer.write(shared(2) + shared(3))
        await until(lambda: stage.started == [2, 3])
        clock.advance(20)
        stage.rounds[1].set_result(None)
        for _ in range(2):
            await client.response(ApiKey.JOIN_GROUP)
        await counted(meter, ApiKey.JOIN_GROUP, 3)
    assert meter.times[ApiKey.JOIN_GROUP].remote_s == 0.04


async def test_a_request_whose_client_went_away_is_not_counted() -> None:
    stage, meter = Stage(), RequestMeter(ManualClock().monotonic)
    async with measured(stage, meter) as server:
        client = await Client.of(server)
        client.writer.write(later(1))
        await until(lambda: stage.started == [1])
        client.writer.close()
        await until(lambda: not server.connections)
        await asyncio.sleep(0)
    assert ApiKey.LEAVE_GROUP not in meter.times


def test_hot_requests_are_timed_now_and_then_and_each_counts_for_those_between() -> None:
    meter = RequestMeter(ManualClock().monotonic, timed_first=10)
    weights = []
    for _ in range(10_000):
        meter.until_timed -= 1
        weights.append(meter.weigh(ApiKey.PRODUCE) if meter.until_timed <= 0 else 0)
    assert weights[:10] == [1] * 10
    assert set(weights[10:]) == {0, GAP_MEAN}
    assert abs(sum(weights) - 10_000) < 2 * GAP_MEAN
    timed = [number for number, weight in enumerate(weights) if weight == GAP_MEAN]
    assert len({after - before for before, after in pairwise(timed)}) > 10, "in no rhythm"
    assert meter.weigh(ApiKey.METADATA) == 1


async def test_answers_that_are_not_timed_leave_beside_those_that_are() -> None:
    """Produce requests of one connection, all but few of them only counted."""
    stage, meter = Stage(), RequestMeter(ManualClock().monotonic, timed_first=1)
    async with measured(stage, meter) as server:
        client = await Client.of(server)
        for number in range(200):
            client.writer.write(produce(b"x", number) + heartbeat(number))
            assert (await client.response(ApiKey.PRODUCE, 3))[0] == number
            assert (await client.response())[0] == number
        await counted(meter, ApiKey.HEARTBEAT, 200)
    assert (meter.counts[ApiKey.PRODUCE], meter.counts[ApiKey.HEARTBEAT]) == (200, 200)
    assert abs(meter.times[ApiKey.PRODUCE].count - 200) < 3 * GAP_MEAN


async def test_what_cannot_be_a_request_is_refused_all_the_same() -> None:
    stage, meter = Stage(), RequestMeter(ManualClock().monotonic)
    async with measured(stage, meter) as server:
        client = await Client.of(server)
        client.writer.write(b"\0\0\0\x01\0")
        assert await client.is_closed()


REFUSED: list[tuple[bytes, Refusal, tuple[int, int] | None]] = [
    (frame_of(LIMITS.socket_request_max_bytes + 1), Refusal.SIZE, None),
    (frame_of(-1), Refusal.SIZE, None),
    (frame_of(1) + b"\0", Refusal.MALFORMED, None),
    (frame_of(9) + struct.pack(">hhih", 12, 0, 1, 9)[:9], Refusal.MALFORMED, (12, ErrorCode.INVALID_REQUEST)),
    (frame_of(10) + struct.pack(">hhih", 12, 0, 1, -1), Refusal.MALFORMED, (12, ErrorCode.INVALID_REQUEST)),
    (request_of(ApiKey.HEARTBEAT, 4), Refusal.UNSUPPORTED_VERSION, (ApiKey.HEARTBEAT, ErrorCode.UNSUPPORTED_VERSION)),
    (request_of(ApiKey.VOTE, 0), Refusal.UNKNOWN_API, (ApiKey.VOTE, ErrorCode.INVALID_REQUEST)),
    (request_of(999, 0), Refusal.UNKNOWN_API, None),
    (request_of(-1, 0), Refusal.UNKNOWN_API, None),
]


@pytest.mark.parametrize(("data", "why", "error"), REFUSED)
async def test_a_request_that_is_refused_is_counted(data: bytes, why: Refusal, error: tuple[int, int] | None) -> None:
    stage, meter = Stage(), RequestMeter(ManualClock().monotonic)
    async with measured(stage, meter) as server:
        client = await Client.of(server)
        client.writer.write(data)
        assert await client.is_closed()
    assert meter.refused == dict.fromkeys(Refusal, 0) | {why: 1}
    assert meter.errors == ({} if error is None else {error: 1})
    assert sum(meter.counts) == (error is not None)
    assert error is None or meter.counts[error[0]] == 1


async def test_a_request_that_dawdles_while_others_need_its_memory_is_counted() -> None:
    meter = RequestMeter(ManualClock().monotonic)
    memory = RequestMemory(150_000)
    async with measured(Stage(), meter, memory) as server:
        slow, waits = await Client.of(server), await Client.of(server)
        slow.writer.write(frame_of(100_000) + bytes(70_000))
        await until(lambda: memory.held_bytes > 0)
        waits.writer.write(frame_of(100_000) + bytes(1_000))
        await until(lambda: memory.waiting == 1)
        later = asyncio.get_running_loop().time() + 1_000
        for connection in list(server.connections):
            connection.look_after(later, idle_limit_s=10_000, answer_bytes_max=10**6)
        assert await slow.is_closed()
    assert meter.refused[Refusal.TOO_SLOW] == 1
