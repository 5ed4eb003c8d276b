"""What a follower is answered with, and what its leader learns from being asked"""

import asyncio
import dataclasses
import gc
import struct
import uuid
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker_world import WireClient, broker_and_client, wire_client
from tests.broker.deny_some import DenySome
from tests.broker.handlers.data_path import fetch, make_topic, produce, produce_request, records
from tidemill.broker.answer_queue import PENDING_MAX
from tidemill.broker.authorization import THE_CLUSTER, topic_named
from tidemill.broker.config import RACK_AWARE
from tidemill.broker.handlers import fetch_follower
from tidemill.broker.handlers.fetch_follower import WAIT_WHILE_DELETING_MS
from tidemill.broker.node import Broker
from tidemill.broker.operations import Operation
from tidemill.broker.quorum.brokers import BrokerHeartbeat
from tidemill.broker.quorum.image import PartitionImage, TopicImage
from tidemill.broker.quorum.metadata import RegisterBroker, Registration
from tidemill.broker.replication.actions import ProposeIsr
from tidemill.broker.replication.replica import Replica, Wish
from tidemill.broker.replication.throttle import RateThrottle
from tidemill.core.error_code import ErrorCode
from tidemill.core.records.batch import iter_batches
from tidemill.core.types import ZERO_UUID
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import decode_response, encode_request
from tidemill.core.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tidemill.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData, ReplicaState

OTHER, THIRD = 77, 78
OTHER_ID = uuid.UUID(int=4)
EPOCH_AT = 3


def replicated(broker: Broker, topic: TopicImage, partition: int = 0, **more: Any) -> Replica:
    """Let a partition of `broker` have a follower, in sync if nothing else is said."""
    replica = broker.replicas.get(topic.name, partition)
    assert replica is not None
    assert replica.image is not None
    both = (broker.node_id, OTHER)
    image = {"replicas": both, "isr": both, "leader_epoch": EPOCH_AT} | more
    before = replica.image
    changed = dataclasses.replace(before, partition_epoch=before.partition_epoch + 1, **image)
    replica.assign(changed, now_ms=int(broker.clock.monotonic() * 1000))
    return replica


def asked(topic: TopicImage, offsets: Mapping[int, int], version: int = 18, **more: Any) -> FetchRequest:
    """A follower's request; more is of the request, or of each of its partitions."""
    by_id = version >= 13
    named = {name: more.pop(name) for name in list(more) if name in FetchPartition._fields}
    partition = {"current_leader_epoch": EPOCH_AT, "partition_max_bytes": 1 << 20} | named
    who = {"replica_state": ReplicaState(replica_id=OTHER, replica_epoch=9)} if version >= 15 else {"replica_id": OTHER}
    return FetchRequest(
        topics=(
            FetchTopic(
                topic="" if by_id else topic.name,
                topic_id=topic.topic_id if by_id else ZERO_UUID,
                partitions=tuple(
                    FetchPartition(partition=number, fetch_offset=offset, **partition)
                    for number, offset in offsets.items()
                ),
            ),
        ),
        **({"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 24} | who | more),
    )


async def copy(client: WireClient, topic: TopicImage, offset: int, version: int = 18, **more: Any) -> PartitionData:
    """The answer about partition 0."""
    response = await client.ask(ApiKey.FETCH, version, asked(topic, {0: offset}, version, **more))
    assert response.error_code == 0
    data: PartitionData = response.responses[0].partitions[0]
    return data


async def waits(replica: Replica) -> None:
    """Return once somebody waits for it."""
    async with asyncio.timeout(30):
        while not replica.waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def waits_for_quiet_ones(broker: Broker) -> None:
    """Return once somebody waits at all."""
    async with asyncio.timeout(30):
        while not broker.fetch_sessions.waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def offsets(data: PartitionData) -> list[int]:
    return [view.base_offset for view in iter_batches(data.records or b"")]


@pytest.mark.parametrize("version", [4, 9, 12, 14, 15, 18])
async def test_a_follower_reads_to_the_end_and_its_offset_moves_the_high_watermark(
    tmp_path: Path, version: int
) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        replica = replicated(broker, topic)
        await produce(client, topic, records(b"a"), acks=1)
        await produce(client, topic, records(b"b"), acks=1)
        assert replica.high_watermark == 0
        consumer = await fetch(client, topic, version=version)
        assert offsets(consumer) == []
        copied = await copy(client, topic, 0, version)
        assert (offsets(copied), copied.high_watermark, copied.error_code) == ([0, 1], 0, 0)
        copied = await copy(client, topic, 1, version)
        assert (offsets(copied), copied.high_watermark, replica.high_watermark) == ([1], 1, 1)
        copied = await copy(client, topic, 2, version)
        assert (offsets(copied), copied.high_watermark) == ([], 2)
        consumer = await fetch(client, topic, version=version)
        assert offsets(consumer) == [0, 1]
        known = replica.machine.progress(OTHER)
        assert known is not None
        assert known.broker_epoch == (9 if version >= 15 else -1)
        assert replica.log.traffic.bytes_out == len(consumer.records or b"")


async def test_what_is_read_again_while_more_is_waited_for_is_sent_once(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client), wire_client(broker) as other:
        topic = await make_topic(broker)
        replica, batch = replicated(broker, topic), records(b"a")
        await produce(client, topic, batch, acks=1)
        waiting = asyncio.get_running_loop().create_task(
            copy(other, topic, 0, max_wait_ms=60_000, min_bytes=2 * len(batch))
        )
        await waits(replica)
        await produce(client, topic, records(b"b"), acks=1)
        copied = await waiting
        assert offsets(copied) == [0, 1]
        assert broker.replicas.bytes_to_followers == len(copied.records or b"") == 2 * len(batch)
        assert replica.log.traffic.bytes_out == 0


async def test_what_is_appended_wakes_a_follower_before_it_is_committed(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client), wire_client(broker) as other:
        topic = await make_topic(broker, partitions=2)
        replica, _ = replicated(broker, topic), replicated(broker, topic, 1)
        request = asked(topic, {0: 0, 1: 0}, max_wait_ms=60_000)
        waiting = asyncio.get_running_loop().create_task(other.ask(ApiKey.FETCH, 18, request))
        await waits(replica)
        await produce(client, topic, records(b"a"), acks=1)
        response = await waiting
        rows = {row.partition_index: row for row in response.responses[0].partitions}
        assert (offsets(rows[0]), rows[0].high_watermark) == ([0], 0)
        assert (replica.waiting, replica.log.on_append) == (0, None)


async def test_acks_of_all_wait_for_the_follower(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client), wire_client(broker) as other:
        topic = await make_topic(broker)
        replicated(broker, topic)
        waiting = asyncio.get_running_loop().create_task(produce(client, topic, records(b"a")))
        while not offsets(await copy(other, topic, 0)):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert not waiting.done()
        await copy(other, topic, 1)
        assert (await waiting).error_code == 0


async def test_a_follower_that_may_not_be_in_sync_is_not_asked_in_until_it_may(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        wishes: list[Wish] = []
        broker.replicas.outlet = lambda _replica, wish: wishes.append(wish)
        registered = await broker.controller.decide(
            RegisterBroker(broker_id=OTHER, incarnation_id=uuid.UUID(int=7), end_points=(), fenced=True)
        )
        assert isinstance(registered, Registration)
        epoch = registered.broker_epoch
        who = ReplicaState(replica_id=OTHER, replica_epoch=epoch)
        replicated(broker, topic, isr=(broker.node_id,))
        await copy(client, topic, 0, replica_state=who)
        assert wishes == [], "the controller would refuse it, fetch after fetch"
        beat = BrokerHeartbeat(broker_id=OTHER, broker_epoch=epoch, metadata_offset=epoch)
        await broker.controller.decide(beat)
        assert not broker.replicas.somebody_may_join.is_set()
        await copy(client, topic, 0, replica_state=who)
        assert broker.replicas.somebody_may_join.is_set(), "also of partitions that it does not ask for anew"
        assert [type(wish) for wish in wishes] == [ProposeIsr]


async def test_in_a_session_a_moved_high_watermark_is_told_soon_and_quiet_partitions_are_not_read(
    tmp_path: Path,
) -> None:
    async with broker_and_client(tmp_path) as (broker, client), wire_client(broker) as other:
        topic = await make_topic(broker, partitions=3)
        replica = replicated(broker, topic)
        replicated(broker, topic, 2)
        opened = await other.ask(ApiKey.FETCH, 18, asked(topic, {0: 0, 2: 0}, session_epoch=0))
        session = {"session_id": opened.session_id, "max_wait_ms": 60_000}
        assert opened.session_id > 0
        await produce(client, topic, records(b"a"), acks=1)
        again = await other.ask(ApiKey.FETCH, 18, asked(topic, {}, session_epoch=1, **session))
        (row,) = again.responses[0].partitions
        assert (row.partition_index, offsets(row), row.high_watermark) == (0, [0], 0)
        told = await other.ask(ApiKey.FETCH, 18, asked(topic, {0: 1}, session_epoch=2, **session))
        (row,) = told.responses[0].partitions
        assert (offsets(row), row.high_watermark, replica.high_watermark) == ([], 1, 1)
        parked = asyncio.get_running_loop().create_task(
            other.ask(ApiKey.FETCH, 18, asked(topic, {}, session_epoch=3, **session))
        )
        await waits_for_quiet_ones(broker)
        await client.ask(ApiKey.PRODUCE, 9, produce_request(topic, {2: records(b"c")}, 9, acks=1))
        (row,) = (await parked).responses[0].partitions
        assert (row.partition_index, offsets(row)) == (2, [0])


async def test_what_is_committed_is_told_with_the_next_record_if_one_comes_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_follower, "COMMITTED_WAIT_MS", 60_000)
    async with broker_and_client(tmp_path) as (broker, client), wire_client(broker) as other:
        topic = await make_topic(broker)
        replica = replicated(broker, topic)
        await produce(client, topic, records(b"a"), acks=1)
        waiting = asyncio.get_running_loop().create_task(copy(other, topic, 1, max_wait_ms=60_000, high_watermark=0))
        await waits(replica)
        assert replica.high_watermark == 1, "of which the follower does not know"
        await produce(client, topic, records(b"b"), acks=1)
        copied = await waiting
        assert (offsets(copied), copied.high_watermark) == ([1], 1)


async def test_a_follower_that_waits_is_told_soon_what_another_one_has_committed(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client), wire_client(broker) as other:
        topic = await make_topic(broker)
        everybody = (broker.node_id, OTHER, THIRD)
        replica = replicated(broker, topic, replicas=everybody, isr=everybody)
        await produce(client, topic, records(b"a"), acks=1)
        waiting = asyncio.get_running_loop().create_task(copy(other, topic, 1, max_wait_ms=60_000, high_watermark=0))
        await waits(replica)
        assert replica.high_watermark == 0
        await copy(client, topic, 1, replica_state=ReplicaState(replica_id=THIRD, replica_epoch=9))
        copied = await waiting
        assert (offsets(copied), copied.high_watermark) == ([], 1)


async def test_where_consumers_read_at_followers_what_is_committed_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_follower, "COMMITTED_WAIT_MS", 60_000)
    async with broker_and_client(tmp_path, replica_selector_class=RACK_AWARE) as (broker, client):
        topic = await make_topic(broker)
        replicated(broker, topic)
        await produce(client, topic, records(b"a"), acks=1)
        copied = await copy(client, topic, 1, max_wait_ms=60_000, high_watermark=0)
        assert (offsets(copied), copied.high_watermark) == ([], 1)


async def test_a_follower_that_waits_is_told_at_once_where_the_log_begins(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client), wire_client(broker) as other:
        topic = await make_topic(broker)
        replica = replicated(broker, topic)
        await produce(client, topic, records(b"a"), acks=1)
        opened = await other.ask(ApiKey.FETCH, 18, asked(topic, {0: 1}, session_epoch=0, log_start_offset=0))
        session = {"session_id": opened.session_id, "max_wait_ms": 60_000}
        parked = asyncio.get_running_loop().create_task(
            other.ask(ApiKey.FETCH, 18, asked(topic, {}, session_epoch=1, **session))
        )
        await waits_for_quiet_ones(broker)
        await broker.logs.delete_records(replica.log, 1)
        (row,) = (await parked).responses[0].partitions
        assert (row.log_start_offset, offsets(row)) == (1, [])
        progress = replica.machine.progress(OTHER)
        assert progress is not None
        assert progress.log_start == 0, "it has not told yet that its own begins there"


async def test_a_follower_is_not_let_wait_for_long_while_somebody_waits_for_it(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client), wire_client(broker) as other:
        topic = await make_topic(broker)
        replicated(broker, topic)
        await produce(client, topic, records(b"a"), acks=1)
        opened = await other.ask(ApiKey.FETCH, 18, asked(topic, {0: 1}, session_epoch=0, log_start_offset=0))
        both = (broker.node_id, OTHER)
        replicated(broker, topic, replicas=(*both, THIRD), isr=both, eligible_leader_replicas=(THIRD,))
        session = {"session_id": opened.session_id, "max_wait_ms": 60_000}
        row = DeleteRecordsPartition(partition_index=0, offset=1)
        request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name="t", partitions=(row,)),), timeout_ms=60_000)
        deleted = asyncio.get_running_loop().create_task(client.ask(ApiKey.DELETE_RECORDS, 2, request))
        moved = await other.ask(ApiKey.FETCH, 18, asked(topic, {0: 1}, session_epoch=1, log_start_offset=0, **session))
        assert moved.responses[0].partitions[0].log_start_offset == 1
        await other.ask(ApiKey.FETCH, 18, asked(topic, {0: 1}, session_epoch=2, log_start_offset=0, **session))
        assert not deleted.done(), "the follower was still at it"
        told = asked(topic, {0: 1}, session_epoch=3, log_start_offset=1, **session)
        parked = asyncio.get_running_loop().create_task(other.ask(ApiKey.FETCH, 18, told))
        await asyncio.sleep(5 * WAIT_WHILE_DELETING_MS / 1000)
        assert not deleted.done(), "the third has not been heard of"
        assert not parked.done(), "this one has told all it had to"
        replicated(broker, topic)
        assert (await deleted).topics[0].partitions[0].low_watermark == 1
        await produce(client, topic, records(b"b"), acks=1)
        assert offsets((await parked).responses[0].partitions[0]) == [1]


async def test_who_went_another_way_is_told_where_the_ways_part_and_nothing_is_noted(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        replica = replicated(broker, topic, leader_epoch=1)
        await produce(client, topic, records(b"a", b"b"), acks=1)
        replicated(broker, topic)
        await produce(client, topic, records(b"c"), acks=1)
        data = await copy(client, topic, 3, last_fetched_epoch=1, max_wait_ms=60_000)
        assert (data.error_code, data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 1, 2)
        assert (replica.high_watermark, offsets(data)) == (0, [])
        data = await copy(client, topic, 2, last_fetched_epoch=1)
        assert (data.diverging_epoch.epoch, offsets(data), replica.high_watermark) == (-1, [2], 2)


async def test_what_is_wrong_is_told_in_kafkas_words(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        replica = replicated(broker, topic)
        await produce(client, topic, records(b"a", b"b"), acks=1)

        async def error(offset: int = 0, **more: Any) -> ErrorCode:
            return ErrorCode((await copy(client, topic, offset, max_wait_ms=60_000, **more)).error_code)

        assert await error(current_leader_epoch=EPOCH_AT - 1) is ErrorCode.FENCED_LEADER_EPOCH
        assert await error(current_leader_epoch=EPOCH_AT + 1) is ErrorCode.UNKNOWN_LEADER_EPOCH
        assert await error(3) is ErrorCode.OFFSET_OUT_OF_RANGE
        stranger = ReplicaState(replica_id=5, replica_epoch=1)
        assert await error(replica_state=stranger) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await error() is ErrorCode.NONE
        assert await error(replica_state=ReplicaState(replica_id=OTHER, replica_epoch=8)) is (
            ErrorCode.STALE_BROKER_EPOCH
        )
        unknown = dataclasses.replace(topic, topic_id=OTHER_ID)
        data = await copy(client, unknown, 0)
        assert data.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        await copy(client, topic, 2)
        assert replica.log.advance_log_start(1)
        data = await copy(client, topic, 0)
        assert (data.error_code, data.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1)
        replica.log.topic_id = OTHER_ID
        assert await error(2) is ErrorCode.INCONSISTENT_TOPIC_ID
        replica.log.topic_id = topic.topic_id
        before = replica.image
        assert before is not None
        moved = dataclasses.replace(before, leader=OTHER, leader_epoch=EPOCH_AT + 1, partition_epoch=99)
        replica.assign(moved, now_ms=0)
        assert await error(2, current_leader_epoch=EPOCH_AT + 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_leader_that_is_one_no_more_tells_a_follower_that_waits(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        replica = replicated(broker, topic)
        request = asked(topic, {0: 0}, max_wait_ms=60_000)
        waiting = asyncio.get_running_loop().create_task(client.ask(ApiKey.FETCH, 18, request))
        await waits(replica)
        before: PartitionImage | None = replica.image
        assert before is not None
        moved = dataclasses.replace(before, leader=OTHER, leader_epoch=EPOCH_AT + 1, partition_epoch=99)
        replica.assign(moved, now_ms=0)
        (row,) = (await waiting).responses[0].partitions
        assert row.error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_who_is_not_in_sync_may_be_throttled(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        replicated(broker, topic, isr=(broker.node_id,))
        await produce(client, topic, records(b"a"), acks=1)
        rate = [1]
        broker.replicas.leader_throttle = RateThrottle(lambda: rate[0], lambda name, number: (name, number) == ("t", 0))
        assert offsets(await copy(client, topic, 0)) == [0]
        assert offsets(await copy(client, topic, 0)) == [], "for a minute, at a byte a second"
        replicated(broker, topic)
        assert offsets(await copy(client, topic, 0)) == [0], "what is in sync is waited for"


async def test_only_a_broker_may_ask_as_one(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        replicated(broker, topic)
        broker.authorizer = DenySome((Operation.CLUSTER_ACTION, THE_CLUSTER))
        data = await copy(client, topic, 0)
        assert data.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        broker.authorizer = DenySome((Operation.READ, topic_named(topic.name)))
        assert (await copy(client, topic, 0)).error_code == 0


def send_many(client: WireClient, topic: TopicImage, count: int) -> None:
    """So many requests that all replicas are to have, each with ten kilobytes."""
    request = produce_request(topic, {0: records(bytes(10_000))}, 10, acks=-1)
    for number in range(count):
        client.send(encode_request(ApiKey.PRODUCE, 10, number, "c", request))


async def ends(replica: Replica, offset: int) -> None:
    """Return once the log ends there."""
    async with asyncio.timeout(30):
        while replica.log.log_end_offset < offset:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_a_connection_has_a_limited_number_of_requests_that_others_are_to_store(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client), wire_client(broker) as other:
        topic = await make_topic(broker)
        replica = replicated(broker, topic)
        send_many(client, topic, PENDING_MAX + 5)
        await ends(replica, PENDING_MAX)
        await asyncio.sleep(0.05)
        assert replica.log_end_offset == PENDING_MAX
        await copy(other, topic, 3)
        await ends(replica, PENDING_MAX + 3)
        await copy(other, topic, PENDING_MAX)
        await copy(other, topic, PENDING_MAX + 5)
        for number in range(PENDING_MAX + 5):
            assert struct.unpack_from(">i", await client.receive())[0] == number


async def test_nothing_is_kept_of_a_producer_that_has_gone_while_others_were_to_store_its_batches(
    tmp_path: Path,
) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        replica = replicated(broker, topic)
        async with wire_client(broker) as gone:
            before = set(broker.servers[0].connections)
            send_many(gone, topic, 20)
            await ends(replica, 20)
            left = [weakref.ref(each) for each in broker.servers[0].connections]
        assert len(before) == len(left) == 2
        async with asyncio.timeout(30):
            while len(broker.servers[0].connections) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        before.clear()
        async with asyncio.timeout(30):
            while sum(each() is not None for each in left) > 1:
                await asyncio.sleep(0.01)
                gc.collect()
        await replica.log.durable(19)
        await copy(client, topic, 20)
        assert replica.high_watermark == 20


@pytest.mark.parametrize("outcome", ["copied", "refused"])
async def test_many_requests_wait_for_a_follower_and_all_are_answered(tmp_path: Path, outcome: str) -> None:
    """Their batches are stored: what waits is an answer, of which a connection may have as many as others."""
    async with broker_and_client(tmp_path) as (broker, client), wire_client(broker) as other:
        topic = await make_topic(broker)
        replica = replicated(broker, topic)
        count = 50
        send_many(client, topic, count)
        await ends(replica, count)
        if outcome == "copied":
            await copy(other, topic, count // 2)
            await copy(other, topic, count)
        else:
            changed = dataclasses.replace(replica.image, leader=OTHER, leader_epoch=EPOCH_AT + 1, partition_epoch=99)
            replica.assign(changed, now_ms=0)
        for number in range(count):
            answer = await client.receive()
            assert struct.unpack_from(">i", answer)[0] == number
            _, response = decode_response(ApiKey.PRODUCE, 10, answer)
            (row,) = response.responses[0].partition_responses
            code = 0 if outcome == "copied" else ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (row.error_code, row.base_offset) == (code, number if outcome == "copied" else -1)
