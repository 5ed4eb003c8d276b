"""Whoever has had more than its share is told in every answer, and not heard until then"""

import asyncio
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.broker.broker_world import WireClient, broker_and_client, running_broker, wire_client
from tests.broker.deny_some import DenySome
from tests.broker.handlers.data_path import decoded, fetch_request, make_topic, produce, produce_request, records
from tests.broker.rationed import Rationed
from tests.broker.server_stage import large, until
from tests.broker.test_permissions import PLAYED
from tidemill.broker.authorization import ALLOW_ALL
from tidemill.broker.connection import Connection
from tidemill.broker.dispatch import Dispatcher, Route
from tidemill.broker.forwarding import Forwarder
from tidemill.broker.input_buffer import InputBuffer
from tidemill.broker.node import Broker
from tidemill.broker.quorum.channel import ControllerChannel
from tidemill.broker.quorum.controller import Controller
from tidemill.broker.quotas import UNLIMITED, Quota
from tidemill.broker.routes import ROUTES
from tidemill.core.wire.api import ApiKey, api
from tidemill.core.wire.framing import decode_response, encode_request, encode_response
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidemill.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidemill.core.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidemill.core.wire.messages.envelope import EnvelopeResponse
from tidemill.core.wire.messages.heartbeat import HeartbeatRequest
from tidemill.core.wire.messages.list_groups import ListGroupsRequest

WAIT_MS = 3
LONG_WAIT_MS = 400


def says_throttle_time(key: ApiKey, version: int) -> bool:
    """Whether answers of that version have the field."""
    kind = api(key).response
    if "throttle_time_ms" not in kind.__slots__:
        return False
    frame = b"".join(bytes(chunk) for chunk in encode_response(key, version, 1, kind(throttle_time_ms=WAIT_MS)))
    return bool(decode_response(key, version, frame[4:])[1].throttle_time_ms == WAIT_MS)


def only_connection(broker: Broker) -> Connection:
    (connection,) = broker.servers[0].connections
    return connection


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.key.name)
@pytest.mark.parametrize("is_refused", [False, True], ids=["served", "refused"])
async def test_every_answer_says_it_and_mutes(tmp_path: Path, route: Route, is_refused: bool) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        for name in ("seen", "hidden"):
            await make_topic(broker, name)
        broker.quotas = quotas = Rationed({Quota.REQUEST_SECONDS: WAIT_MS})
        for scene in PLAYED[route.key]:
            broker.authorizer = DenySome(*scene.denied) if is_refused else ALLOW_ALL
            before = asyncio.get_running_loop().time()
            response = await client.ask(scene.key, scene.version, scene.request)
            if says_throttle_time(scene.key, scene.version):
                assert response.throttle_time_ms == WAIT_MS, scene
            assert only_connection(broker).muted_until >= before + WAIT_MS / 1000
        assert quotas.who == {("User:ANONYMOUS", "127.0.0.1", "test-client")}
        assert all(seconds >= 0 for seconds in quotas.used[Quota.REQUEST_SECONDS])


def test_only_one_api_cannot_say_it() -> None:
    mute = {route.key for route in ROUTES if not says_throttle_time(route.key, route.max_version)}
    assert mute == {ApiKey.DESCRIBE_QUORUM}


@pytest.mark.parametrize("partitions", [(0,), (0, 1)], ids=["memo", "several"])
@pytest.mark.parametrize("version", [3, 9, 13])
@pytest.mark.parametrize("policy", ["os", "group"])
async def test_produced_bytes_are_charged_whatever_way_they_come(
    tmp_path: Path, partitions: tuple[int, ...], version: int, policy: str
) -> None:
    async with broker_and_client(tmp_path, flush_policy=policy) as (broker, client):
        topic = await make_topic(broker, "t", partitions=2)
        request = produce_request(topic, dict.fromkeys(partitions, records(b"x" * 100)), version)
        size_bytes = len(encode_request(ApiKey.PRODUCE, version, 1, "test-client", request)) - 4
        for warm_up in (UNLIMITED, Rationed({Quota.PRODUCED_BYTES: WAIT_MS}), UNLIMITED):
            broker.quotas = warm_up
            for number in range(3):
                response = await client.ask(ApiKey.PRODUCE, version, request)
                assert [row.error_code for row in response.responses[0].partition_responses] == [0] * len(partitions)
                assert response.throttle_time_ms == (0 if warm_up is UNLIMITED else WAIT_MS)
                if isinstance(warm_up, Rationed):
                    assert warm_up.used[Quota.PRODUCED_BYTES] == [size_bytes] * (number + 1)
                    assert warm_up.who == {("User:ANONYMOUS", "127.0.0.1", "test-client")}


async def test_a_produce_without_an_answer_mutes_too(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, "t")
        broker.quotas = Rationed({Quota.PRODUCED_BYTES: LONG_WAIT_MS})
        began = asyncio.get_running_loop().time()
        client.send(encode_request(ApiKey.PRODUCE, 9, 1, "c", produce_request(topic, {0: records(b"x")}, 9, acks=0)))
        await client.ask(ApiKey.LIST_GROUPS, 4, ListGroupsRequest())
        assert asyncio.get_running_loop().time() - began >= LONG_WAIT_MS / 1000


@pytest.mark.parametrize("version", [4, 7, 13])
@pytest.mark.parametrize("waits", [False, True], ids=["at_once", "parked"])
async def test_fetched_bytes_are_those_of_the_answer(tmp_path: Path, version: int, waits: bool) -> None:
    async with broker_and_client(tmp_path) as (broker, client), wire_client(broker) as producer:
        topic = await make_topic(broker, "t")
        broker.quotas = quotas = Rationed({Quota.FETCHED_BYTES: WAIT_MS})
        batch = records(b"x" * 1000)
        if not waits:
            await produce(producer, topic, batch)
        request = fetch_request(topic, {0: 0}, version, max_wait_ms=20_000)
        client.send(encode_request(ApiKey.FETCH, version, 1, "c", request))
        if waits:
            await asyncio.sleep(0.05)
            assert quotas.used[Quota.FETCHED_BYTES] == []
            await produce(producer, topic, batch)
        frame = await client.receive()
        response: Any = decode_response(ApiKey.FETCH, version, frame)[1]
        assert response.throttle_time_ms == WAIT_MS
        (record,) = decoded(response.responses[0].partitions[0])
        assert record.value == b"x" * 1000, "the data is not held back"
        assert quotas.used[Quota.FETCHED_BYTES] == [len(frame) + 4]


async def test_what_a_broker_copies_is_not_charged(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, "t")
        broker.quotas = quotas = Rationed({Quota.FETCHED_BYTES: WAIT_MS})
        response = await client.ask(ApiKey.FETCH, 12, fetch_request(topic, {0: 0}, 12, replica_id=7))
        assert (response.throttle_time_ms, quotas.used[Quota.FETCHED_BYTES]) == (0, [])


async def test_partitions_made_and_deleted_are_charged(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        broker.quotas = quotas = Rationed({Quota.MUTATIONS: WAIT_MS})
        new = (CreatableTopic(name="t", num_partitions=3, replication_factor=1),)
        for only in (True, False, False):  # tried, made, there already
            await client.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=new, validate_only=only))
        more = (CreatePartitionsTopic(name="t", count=5, assignments=None),)
        grown = await client.ask(ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest(topics=more, timeout_ms=1000))
        gone = DeleteTopicsRequest(topics=(DeleteTopicState(name="t"), DeleteTopicState(name="u")))
        deleted = await client.ask(ApiKey.DELETE_TOPICS, 6, gone)
        assert (grown.throttle_time_ms, deleted.throttle_time_ms) == (WAIT_MS, WAIT_MS)
        assert quotas.used[Quota.MUTATIONS] == [3, 2, 5]


async def test_the_longest_wait_counts(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, "t")
        broker.quotas = Rationed({Quota.PRODUCED_BYTES: 5, Quota.REQUEST_SECONDS: 2})
        response = await client.ask(ApiKey.PRODUCE, 9, produce_request(topic, {0: records(b"x")}, 9))
        assert response.throttle_time_ms == 5
        response = await client.ask(ApiKey.LIST_GROUPS, 4, ListGroupsRequest())
        assert response.throttle_time_ms == 2


class OfAnother(ControllerChannel):
    """The way to an active controller whose broker says that the client has to wait."""

    def __init__(self) -> None:
        pass

    async def ask(self, request: Message, *, timeout_s: float, again: bool = False) -> Message:
        response = CreateTopicsResponse(throttle_time_ms=LONG_WAIT_MS)
        frame = b"".join(encode_response(ApiKey.CREATE_TOPICS, 7, 0, response))
        return EnvelopeResponse(response_data=frame[4:])


async def test_the_wait_that_another_broker_has_told_counts_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path) as broker:
        monkeypatch.setattr(Controller, "leads", False)
        broker.servers[0].dispatcher = Dispatcher(broker, Forwarder(OfAnother()).wrapped(ROUTES))
        async with wire_client(broker) as client:
            asked = asyncio.get_running_loop().time()
            answer = await client.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=()))
            assert (broker.quotas is UNLIMITED, answer.throttle_time_ms) == (True, LONG_WAIT_MS)
            await client.ask(ApiKey.LIST_GROUPS, 4, ListGroupsRequest())
            assert asyncio.get_running_loop().time() - asked >= LONG_WAIT_MS / 1000


async def ask_in_advance(client: WireClient, requests: Sequence[bytes]) -> tuple[float, float]:
    """Send all at once; when the first and when the last of the answers came, in seconds from then."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    client.send(b"".join(requests))
    times = []
    for _ in requests:
        await client.receive()
        times.append(loop.time() - began)
    return times[0], times[-1]


def heartbeat(number: int) -> bytes:
    return bytes(encode_request(ApiKey.HEARTBEAT, 4, number, "c", HeartbeatRequest(group_id="g")))


async def test_the_answer_comes_at_once_and_the_next_one_after_that_time(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client), wire_client(broker) as other:
        broker.quotas = Rationed({Quota.REQUEST_SECONDS: LONG_WAIT_MS})
        first, last = await ask_in_advance(client, [heartbeat(1), heartbeat(2), heartbeat(3)])
        assert first < LONG_WAIT_MS / 1000 / 2
        assert 2 * LONG_WAIT_MS / 1000 <= last < 2 * LONG_WAIT_MS / 1000 + 1
        broker.quotas = UNLIMITED
        await asyncio.wait_for(other.ask(ApiKey.LIST_GROUPS, 4, ListGroupsRequest()), LONG_WAIT_MS / 1000 / 2)


async def test_nothing_is_read_from_who_is_muted_and_nothing_is_lost(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        broker.quotas = Rationed({Quota.REQUEST_SECONDS: LONG_WAIT_MS})
        client.send(heartbeat(1))
        await client.receive()
        connection = only_connection(broker)
        assert connection.muted_until > asyncio.get_running_loop().time()
        client.send(heartbeat(2))
        await asyncio.sleep(LONG_WAIT_MS / 1000 / 4)
        assert connection.incoming.received_bytes == 0, "it stays in the kernel"
        broker.quotas = UNLIMITED
        assert decode_response(ApiKey.HEARTBEAT, 4, await client.receive())[0] == 2


async def test_a_large_request_that_stops_half_way_is_not_late(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, "t")
        broker.quotas = Rationed({Quota.FETCHED_BYTES: LONG_WAIT_MS})
        whole = large(heartbeat(2), 1 << 20)
        client.send(encode_request(ApiKey.FETCH, 12, 1, "c", fetch_request(topic, {0: 0}, 12, max_wait_ms=200)))
        client.send(whole[: 1 << 19])
        connection = only_connection(broker)
        await until(lambda: connection.incoming.large_end > 0)
        began = asyncio.get_running_loop().time()
        await client.receive()
        client.send(whole[1 << 19 :] + heartbeat(3))
        assert connection.incoming.dawdles(began + 3600)
        for number in (2, 3):
            assert decode_response(ApiKey.HEARTBEAT, 4, await client.receive())[0] == number
        assert asyncio.get_running_loop().time() >= connection.muted_until


def test_time_begins_anew_for_who_could_not_send() -> None:
    incoming = InputBuffer(1 << 20)
    prefix = struct.pack(">i", 1 << 19)
    incoming.room()[: len(prefix)] = prefix
    incoming.received(len(prefix))
    assert incoming.next_frame() is None
    incoming.grant(incoming.claim(), 0.0)
    incoming.begin_large(0.0)
    assert incoming.dawdles(1000.0)
    incoming.excuse(1000.0)
    assert (incoming.dawdles(1000.5), incoming.dawdles(2000.0)) == (False, True)


async def test_whoever_is_muted_may_leave_and_the_broker_may_stop(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        broker.quotas = Rationed({Quota.REQUEST_SECONDS: 60_000})
        client.send(heartbeat(1))
        await client.receive()
        async with wire_client(broker) as other:
            other.send(heartbeat(1))
            await other.receive()
            connection = list(broker.servers[0].connections)[-1]
        now = asyncio.get_running_loop().time()
        connection.look_after(now + 3600, idle_limit_s=1, answer_bytes_max=1 << 20)
        assert connection in broker.servers[0].connections, "it is silent because it has to be"
    assert not broker.servers[0].connections


class Deaf(asyncio.Transport):
    """To a client that takes nothing, so that what was written never leaves; only by aborting is it lost."""

    def __init__(self) -> None:
        super().__init__()
        self.was_closed = self.was_aborted = False

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.was_closed or self.was_aborted

    def close(self) -> None:
        self.was_closed = True

    def abort(self) -> None:
        self.was_aborted = True


def hear(connection: Connection, data: bytes | bytearray) -> None:
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


@pytest.mark.parametrize("is_muted", [True, False], ids=["muted", "waiting"])
async def test_whoever_was_closed_and_takes_no_answers_goes_like_others(tmp_path: Path, is_muted: bool) -> None:
    loop = asyncio.get_running_loop()
    with capture_logs() as told:
        async with broker_and_client(tmp_path) as (broker, _):
            topic = await make_topic(broker, "t")
            broker.quotas = Rationed({Quota.REQUEST_SECONDS: 60_000})
            connection, deaf = Connection(broker.servers[0]), Deaf()
            connection.connection_made(deaf)
            parked = encode_request(ApiKey.FETCH, 12, 9, "c", fetch_request(topic, {0: 0}, 12, max_wait_ms=20_000))
            hear(connection, heartbeat(1) if is_muted else parked)
            await asyncio.sleep(0.05)
            assert (connection.muted_until > loop.time()) == is_muted
            connection.close()
            await asyncio.sleep(0.05)
            connection.look_after(loop.time() + 3600, idle_limit_s=1, answer_bytes_max=1 << 20)
            assert deaf.was_aborted
            connection.connection_lost(None)
    assert not [line for line in told if line["log_level"] == "error"], "it is no failure that nobody waits any more"
