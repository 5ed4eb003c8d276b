"""Fetch over the wire: versions, limits, waiting"""

import asyncio
import dataclasses
import itertools
import threading
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker_world import WireClient, broker_and_client, wire_client
from tests.broker.handlers.data_path import (
    decoded,
    fetch,
    fetch_request,
    make_topic,
    produce,
    records,
    unknown_topic,
)
from tests.broker.handlers.short_way import PEER
from tidemill.broker.config import BrokerConfig
from tidemill.broker.dispatch import Exchange, Peer
from tidemill.broker.fetch_sessions import FetchSessions
from tidemill.broker.handlers import fetch as fetch_module
from tidemill.broker.handlers.fetch import FetchShortcut, serve
from tidemill.broker.log.segment_files import segment_name
from tidemill.broker.node import Broker, open_broker
from tidemill.broker.partitions import find_replica
from tidemill.broker.quorum.metadata import TopicRef
from tidemill.broker.routes import ROUTES
from tidemill.broker.surroundings import Surroundings
from tidemill.core.error_code import ErrorCode
from tidemill.core.runtime.clock import ManualClock
from tidemill.core.runtime.disk import MAPPED_READ_BYTES_MIN, OsFile
from tidemill.core.types import ZERO_UUID
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import encode_request
from tidemill.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData


async def test_every_version_returns_what_was_produced(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        await produce(client, topic, records(b"a", b"b"))
        await produce(client, topic, records(b"c"))
        for version in range(4, 19):
            data = await fetch(client, topic, version=version)
            assert [record.value for record in decoded(data)] == [b"a", b"b", b"c"]
            assert (data.high_watermark, data.last_stable_offset) == (3, 3)
            assert data.log_start_offset == (0 if version >= 5 else -1)
            assert data.aborted_transactions is None
        data = await fetch(client, topic, offset=2, isolation_level=1)
        assert ([record.value for record in decoded(data)], data.aborted_transactions) == ([b"c"], ())


async def test_nothing_there_is_an_empty_record_set(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        data = await fetch(client, topic)
        assert (bytes(data.records or b""), data.error_code) == (b"", 0)
        response = await client.ask(ApiKey.FETCH, 12, FetchRequest(max_wait_ms=60_000, min_bytes=1))
        assert response.responses == ()


@pytest.mark.parametrize("version", [4, 12, 13, 18])
async def test_errors_are_told_at_once_however_long_the_wait(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        await produce(client, topic, records(b"a"))
        out_of_range = await fetch(client, topic, offset=7, version=version, max_wait_ms=60_000)
        assert out_of_range.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert out_of_range.high_watermark == 1
        missing = await fetch(client, topic, partition=3, version=version, max_wait_ms=60_000)
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        unknown = await fetch(client, unknown_topic(), version=version, max_wait_ms=60_000)
        expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert unknown.error_code == expected


async def test_a_parked_fetch_is_answered_by_the_first_record_and_holds_up_nobody(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client), wire_client(broker) as producer:
        topic = await make_topic(broker, partitions=3)
        request = fetch_request(topic, {0: 0, 1: 0, 2: 0}, 12, max_wait_ms=30_000)
        parked = asyncio.ensure_future(client.ask(ApiKey.FETCH, 12, request))
        await asyncio.sleep(0.05)
        assert not parked.done()
        await produce(producer, topic, records(b"hello"), partition=1)
        response = await asyncio.wait_for(parked, 5)
        values = [[record.value for record in decoded(data)] for data in response.responses[0].partitions]
        assert values == [[], [b"hello"], []]
        replica = broker.replicas.get("t", 1)
        assert replica is not None
        assert not replica.waiting, "nothing is left behind"


async def test_a_parked_fetch_is_answered_when_its_time_is_over(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        data = await fetch(client, topic, max_wait_ms=120)
        assert 0.1 < loop.time() - begun < 5
        assert decoded(data) == []


async def test_min_bytes_are_waited_for(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client), wire_client(broker) as producer:
        topic = await make_topic(broker)
        batch = records(b"x" * 100)
        request = fetch_request(topic, {0: 0}, 12, max_wait_ms=30_000, min_bytes=2 * len(batch) + 1)
        parked = asyncio.ensure_future(client.ask(ApiKey.FETCH, 12, request))
        for _ in range(2):
            await produce(producer, topic, batch)
        await asyncio.sleep(0.05)
        assert not parked.done()
        await produce(producer, topic, batch)
        response = await asyncio.wait_for(parked, 5)
        assert len(decoded(response.responses[0].partitions[0])) == 3


async def test_min_bytes_may_come_from_several_partitions_one_after_the_other(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client), wire_client(broker) as producer:
        topic = await make_topic(broker, partitions=4)
        batch = records(b"x" * 100)
        await produce(producer, topic, batch, partition=3)
        request = fetch_request(
            topic, dict.fromkeys(range(4), 0), 12, max_wait_ms=30_000, min_bytes=4 * len(batch), session_epoch=0
        )
        parked = asyncio.ensure_future(client.ask(ApiKey.FETCH, 12, request))
        for partition in (1, 1):
            await produce(producer, topic, batch, partition=partition)
            await asyncio.sleep(0.02)
        assert not parked.done()
        await produce(producer, topic, batch, partition=0)
        response = await asyncio.wait_for(parked, 5)
        data = response.responses[0].partitions
        assert [len(decoded(each)) for each in data] == [1, 2, 0, 1]
        assert [each.high_watermark for each in data] == [1, 2, 0, 1]
        assert not any(replica.waiting for replica in broker.replicas), "nothing is left behind"


async def test_what_is_not_in_memory_is_read_by_a_thread_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, partitions=2)
        for partition in range(2):
            await produce(client, topic, records(b"x" * 1000), partition=partition)
    threads: list[str] = []
    prefetch = OsFile.prefetch

    def noted(file: OsFile, position: int, size_bytes: int) -> None:
        threads.append(threading.current_thread().name)
        prefetch(file, position, size_bytes)

    monkeypatch.setattr(OsFile, "is_cached", lambda *_: False)
    monkeypatch.setattr(OsFile, "prefetch", noted)
    async with broker_and_client(tmp_path) as (broker, client):
        request = fetch_request(topic, {0: 0, 1: 0}, 12, max_wait_ms=30_000)
        assert all(await _sizes(client, request))
        assert len(threads) == 2
        assert all(name.startswith("tidemill-read") for name in threads)
        request = fetch_request(topic, {0: 1, 1: 0}, 12, max_wait_ms=0)
        sizes = await _sizes(client, request)
        assert (sizes[0], sizes[1] > 0) == (0, True)
        await produce(client, topic, records(b"new"), partition=0)
        threads.clear()
        assert (await _sizes(client, fetch_request(topic, {0: 1}, 12)))[0] > 0
        assert threads == [], "what this process wrote is in memory"
        request = fetch_request(topic, {0: 0}, 12, max_wait_ms=200, min_bytes=10**6)
        assert (await _sizes(client, request))[0] > 0, "parked after the prefetch, answered when its time is over"


async def test_a_parked_fetch_hears_of_the_deletion_of_its_topic(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        parked = asyncio.ensure_future(fetch(client, topic, max_wait_ms=30_000))
        await asyncio.sleep(0.05)
        await broker.controller.delete_topics([TopicRef(name="t")])
        assert (await asyncio.wait_for(parked, 5)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_byte_limits_are_kept_except_for_the_first_batch(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, partitions=3)
        batch = records(b"x" * 1000)
        for partition in range(3):
            for _ in range(3):
                await produce(client, topic, batch, partition=partition)
        request = fetch_request(topic, {0: 0, 1: 0, 2: 0}, 12, max_bytes=10)
        sizes = await _sizes(client, request)
        assert sorted(sizes) == [0, 0, len(batch)], "one whole batch of one partition"
        request = fetch_request(topic, {0: 0, 1: 0, 2: 0}, 12, partition_max_bytes=2 * len(batch) + 5)
        assert await _sizes(client, request) == [2 * len(batch)] * 3
        request = fetch_request(topic, {0: 0, 1: 0, 2: 0}, 12, partition_max_bytes=len(batch) - 1)
        assert sorted(await _sizes(client, request)) == [0, 0, len(batch)]
        request = fetch_request(topic, {0: 0, 1: 0, 2: 0}, 12, max_bytes=4 * len(batch))
        assert sum(await _sizes(client, request)) == 4 * len(batch)


async def _sizes(client: WireClient, request: FetchRequest) -> list[int]:
    response = await client.ask(ApiKey.FETCH, 12, request)
    return [len(data.records or b"") for data in response.responses[0].partitions]


async def test_small_pieces_fill_no_memory_however_often_they_are_asked_for(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, partitions=2)
        await produce(client, topic, records(bytes(50_000)))
        await produce(client, topic, records(bytes(MAPPED_READ_BYTES_MIN)), partition=1)
        for partition, answered in ((0, 21), (1, 200)):
            again = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
            for version in (11, 18):
                request = fetch_request(topic, {}, version, max_bytes=1 << 25, min_bytes=1 << 24, max_wait_ms=60_000)
                topics = (request.topics[0]._replace(partitions=(again,) * 200),)
                if partition:
                    request = dataclasses.replace(request, min_bytes=1 << 20)
                response = await client.ask(ApiKey.FETCH, version, dataclasses.replace(request, topics=topics))
                data = response.responses[0].partitions
                assert len(data) == 200
                assert sum(len(row.records or b"") > 0 for row in data) == answered


async def test_a_busy_partition_does_not_starve_the_others(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, partitions=3)
        for partition in range(3):
            await produce(client, topic, records(b"x" * 1000), partition=partition)
        request = fetch_request(topic, {0: 0, 1: 0, 2: 0}, 12, max_bytes=10)
        seen = set()
        for _ in range(6):
            sizes = await _sizes(client, request)
            seen.add(next(index for index, size in enumerate(sizes) if size))
        assert seen == {0, 1, 2}


async def test_leader_epochs_are_checked(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        await produce(client, topic, records(b"a"))
        epoch = topic.partitions[0].leader_epoch
        for believed, code in ((epoch, 0), (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, 0)):
            partition = FetchPartition(partition=0, current_leader_epoch=believed, partition_max_bytes=1000)
            request = FetchRequest(topics=(FetchTopic(topic="t", partitions=(partition,)),), max_bytes=1000)
            response = await client.ask(ApiKey.FETCH, 12, request)
            assert response.responses[0].partitions[0].error_code == code


async def test_a_reader_that_went_another_way_is_told_where_the_ways_part(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        log = broker.logs.get("t", 0)
        assert log is not None
        for epoch in (0, 2):
            result = log.append(records(b"a", b"b"), now_ms=broker.clock.now_ms(), leader_epoch=epoch)
            await log.durable(result.last_offset)
        partition = FetchPartition(partition=0, fetch_offset=3, last_fetched_epoch=1, partition_max_bytes=1000)
        request = FetchRequest(topics=(FetchTopic(topic=topic.name, partitions=(partition,)),), max_wait_ms=30_000)
        response = await client.ask(ApiKey.FETCH, 12, request)
        data = response.responses[0].partitions[0]
        assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 2)
        assert not data.records


RECORDS, NOTHING, OUT_OF_RANGE = "records", "nothing", "out of range"

KAFKAS_ANSWERS: dict[int, dict[int, dict[int, str | tuple[int, int]]]] = {
    # Three records of epoch 0, two of epoch 2. Log start -> last fetched epoch -> offset asked for -> what Kafka 4.3.1
    # answers; a pair is the diverging epoch and where it ended.
    0: {
        -1: {0: RECORDS, 3: RECORDS, 5: NOTHING, 6: OUT_OF_RANGE},
        0: {0: RECORDS, 3: RECORDS, 4: (0, 3), 5: (0, 3), 6: (0, 3)},
        1: {0: (0, 3), 3: (0, 3), 4: (0, 3), 5: (0, 3), 6: (0, 3)},
        2: {0: RECORDS, 3: RECORDS, 4: RECORDS, 5: NOTHING, 6: (2, 5)},
        3: {0: OUT_OF_RANGE, 3: OUT_OF_RANGE, 5: OUT_OF_RANGE, 6: OUT_OF_RANGE},
    },
    4: {
        -1: {3: OUT_OF_RANGE, 4: RECORDS, 5: NOTHING},
        0: {0: OUT_OF_RANGE, 3: OUT_OF_RANGE, 4: RECORDS, 5: (0, 4), 6: (0, 4)},
        1: {0: OUT_OF_RANGE, 3: OUT_OF_RANGE, 4: RECORDS, 5: (1, 4), 6: (1, 4)},
        2: {0: OUT_OF_RANGE, 3: OUT_OF_RANGE, 4: RECORDS, 5: NOTHING, 6: (2, 5)},
        3: {0: OUT_OF_RANGE, 3: OUT_OF_RANGE, 4: OUT_OF_RANGE, 5: OUT_OF_RANGE, 6: OUT_OF_RANGE},
    },
}


def answered(data: PartitionData) -> str | tuple[int, int]:
    if data.diverging_epoch.epoch >= 0:
        assert not data.records and data.error_code == 0
        return data.diverging_epoch.epoch, data.diverging_epoch.end_offset
    if data.error_code:
        assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        return OUT_OF_RANGE
    return RECORDS if data.records else NOTHING


@pytest.mark.parametrize("log_start", KAFKAS_ANSWERS)
@pytest.mark.parametrize("version", [12, 18])
async def test_a_last_fetched_epoch_is_judged_as_kafka_judges_it(tmp_path: Path, version: int, log_start: int) -> None:
    expected = KAFKAS_ANSWERS[log_start]
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        log = broker.logs.get("t", 0)
        assert log is not None
        for epoch, values in ((0, (b"a", b"b", b"c")), (2, (b"d", b"e"))):
            result = log.append(records(*values), now_ms=broker.clock.now_ms(), leader_epoch=epoch)
            await log.durable(result.last_offset)
        log.advance_log_start(log_start)
        for last_epoch, offsets in expected.items():
            for offset, answer in offsets.items():
                request = fetch_request(topic, {0: offset}, version)
                partition = request.topics[0].partitions[0]._replace(last_fetched_epoch=last_epoch)
                asked = request.topics[0]._replace(partitions=(partition,))
                response = await client.ask(ApiKey.FETCH, version, dataclasses.replace(request, topics=(asked,)))
                data = response.responses[0].partitions[0]
                assert answered(data) == answer, f"last epoch {last_epoch}, offset {offset}"


async def test_what_is_not_visible_yet_is_waited_for_and_not_out_of_range(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, _):
        topic = await make_topic(broker)
        log = broker.logs.get("t", 0)
        assert log is not None
        end = log.append(records(b"a", b"b"), now_ms=broker.clock.now_ms(), leader_epoch=0).last_offset + 1
        assert log.held_offset == 0
        served = [
            serve(broker, fetch_request(topic, {0: offset}, 12, max_wait_ms=0), 12, PEER)
            for offset in (1, end, end + 1)
        ]
        rows = [
            (await each if isinstance(each, asyncio.Future) else each).responses[0].partitions[0] for each in served
        ]
        out_of_range = ErrorCode.OFFSET_OUT_OF_RANGE
        assert [(row.error_code, bytes(row.records)) for row in rows] == [(0, b""), (0, b""), (out_of_range, b"")]
        parked = serve(broker, fetch_request(topic, {0: 1}, 12, max_wait_ms=30_000), 12, PEER)
        assert isinstance(parked, asyncio.Future)
        told = asyncio.Event()
        parked.add_done_callback(lambda _answer: told.set())
        await asyncio.wait_for(told.wait(), 5)
        (data,) = parked.result().responses[0].partitions
        assert (data.high_watermark, len(data.records) > 0) == (end, True)


@pytest.mark.parametrize("version", [7, 12, 13, 18])
async def test_in_a_session_only_news_is_told(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, partitions=3)
        full = fetch_request(topic, {0: 0, 1: 0, 2: 0}, version, session_epoch=0)
        response = await client.ask(ApiKey.FETCH, version, full)
        session_id = response.session_id
        assert session_id > 0
        assert [data.partition_index for data in response.responses[0].partitions] == [0, 1, 2]
        nothing = fetch_request(topic, {}, version, session_id=session_id, session_epoch=1)
        response = await client.ask(ApiKey.FETCH, version, nothing)
        assert (response.error_code, response.session_id, response.responses) == (0, session_id, ())
        await produce(client, topic, records(b"hello"), partition=1)
        nothing = fetch_request(topic, {}, version, session_id=session_id, session_epoch=2)
        response = await client.ask(ApiKey.FETCH, version, nothing)
        (data,) = response.responses[0].partitions
        assert (data.partition_index, [record.value for record in decoded(data)]) == (1, [b"hello"])
        assert response.responses[0].topic_id == (topic.topic_id if version >= 13 else ZERO_UUID)
        moved = fetch_request(topic, {1: 1}, version, session_id=session_id, session_epoch=3)
        assert (await client.ask(ApiKey.FETCH, version, moved)).responses == ()


async def test_a_fetch_in_a_session_waits_and_is_answered_with_what_arrived(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client), wire_client(broker) as producer:
        topic = await make_topic(broker, partitions=3)
        full = fetch_request(topic, {0: 0, 1: 0, 2: 0}, 12, session_epoch=0)
        session_id = (await client.ask(ApiKey.FETCH, 12, full)).session_id
        nothing = FetchRequest(max_wait_ms=30_000, min_bytes=1, session_id=session_id, session_epoch=1)
        parked = asyncio.ensure_future(client.ask(ApiKey.FETCH, 12, nothing))
        await asyncio.sleep(0.05)
        assert not parked.done()
        await produce(producer, topic, records(b"hello"), partition=2)
        response = await asyncio.wait_for(parked, 5)
        assert [data.partition_index for data in response.responses[0].partitions] == [2]


async def test_sessions_that_are_not_there_are_refused_and_end_when_told(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        response = await client.ask(ApiKey.FETCH, 12, fetch_request(topic, {0: 0}, 12, session_id=8, session_epoch=1))
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        full = fetch_request(topic, {0: 0}, 12, session_epoch=0)
        session_id = (await client.ask(ApiKey.FETCH, 12, full)).session_id
        late = fetch_request(topic, {0: 0}, 12, session_id=session_id, session_epoch=2)
        assert (await client.ask(ApiKey.FETCH, 12, late)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        by_id = fetch_request(topic, {0: 0}, 13, session_id=session_id, session_epoch=1)
        assert (await client.ask(ApiKey.FETCH, 13, by_id)).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        last = fetch_request(topic, {0: 0}, 12, session_id=session_id, session_epoch=-1)
        assert (await client.ask(ApiKey.FETCH, 12, last)).session_id == 0
        assert len(broker.fetch_sessions) == 0


async def test_without_slots_every_fetch_is_a_full_one(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path, max_incremental_fetch_session_cache_slots="0") as (broker, client):
        topic = await make_topic(broker)
        response = await client.ask(ApiKey.FETCH, 12, fetch_request(topic, {0: 0}, 12, session_epoch=0))
        assert (response.error_code, response.session_id) == (0, 0)


async def test_a_damaged_batch_is_an_error_and_not_data(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        for value in (b"a", b"b", b"c"):
            await produce(client, topic, records(value * 50))
    path = tmp_path / "t-0" / segment_name(0)
    data = bytearray(path.read_bytes())
    size = len(data) // 3
    data[size + 80] ^= 1
    path.write_bytes(data)
    async with broker_and_client(tmp_path) as (_, client):
        codes = [(await fetch(client, topic, offset=offset)).error_code for offset in range(3)]
        assert codes == [0, ErrorCode.CORRUPT_MESSAGE, 0]
        assert [record.value for record in decoded(await fetch(client, topic, offset=2))] == [b"c" * 50]


async def test_a_session_of_quiet_partitions_wakes_for_each_of_them_and_reads_only_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_and_client(tmp_path) as (broker, client), wire_client(broker) as producer:
        topic = await make_topic(broker, partitions=20)
        full = fetch_request(topic, dict.fromkeys(range(20), 0), 12, session_epoch=0)
        session_id = (await client.ask(ApiKey.FETCH, 12, full)).session_id
        looked: list[int] = []

        def noted(broker: Any, image: Any, partition: int, epoch: int = -1) -> Any:
            looked.append(partition)
            return find_replica(broker, image, partition, epoch)

        monkeypatch.setattr(fetch_module, "find_replica", noted)
        batch = records(b"x" * 100)
        nothing = FetchRequest(max_wait_ms=30_000, min_bytes=2 * len(batch), session_id=session_id, session_epoch=1)
        parked = asyncio.ensure_future(client.ask(ApiKey.FETCH, 12, nothing))
        await asyncio.sleep(0.05)
        await produce(producer, topic, batch, partition=7)
        await asyncio.sleep(0.05)
        assert (parked.done(), looked) == (False, [7])
        await produce(producer, topic, batch, partition=7)
        response = await asyncio.wait_for(parked, 5)
        assert [data.partition_index for data in response.responses[0].partitions] == [7]
        assert len(decoded(response.responses[0].partitions[0])) == 2
        assert set(looked) == {7}
        assert not any(replica.waiting for replica in broker.replicas), "nothing is left behind"


async def test_a_client_whose_session_ends_while_it_waits_hears_of_records_and_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    async with broker_and_client(tmp_path) as (broker, client), wire_client(broker) as other:
        topic = await make_topic(broker, partitions=2)
        replicas = list(broker.replicas)
        full = fetch_request(topic, {0: 0, 1: 0}, 12, session_epoch=0)
        session_id = (await client.ask(ApiKey.FETCH, 12, full)).session_id
        assert [replica.listening for replica in replicas] == [1, 1]
        nothing = FetchRequest(max_wait_ms=30_000, min_bytes=1, session_id=session_id, session_epoch=1)
        parked = asyncio.ensure_future(client.ask(ApiKey.FETCH, 12, nothing))
        async with asyncio.timeout(30):
            while not broker.fetch_sessions.waiting:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await other.ask(ApiKey.FETCH, 12, dataclasses.replace(full, session_id=session_id, session_epoch=-1))
        await produce(other, topic, records(b"a"), partition=1)
        response = await asyncio.wait_for(parked, 30)
        assert [data.partition_index for data in response.responses[0].partitions] == [1]
        assert [(replica.listening, replica.waiting) for replica in replicas] == [(0, 0), (0, 0)]


async def test_a_moved_log_start_is_told_of_quiet_partitions_too(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, partitions=2)
        await produce(client, topic, records(b"a"), partition=1)
        full = fetch_request(topic, {0: 0, 1: 1}, 12, session_epoch=0)
        session_id = (await client.ask(ApiKey.FETCH, 12, full)).session_id
        log = broker.logs.get("t", 1)
        assert log is not None
        log.advance_log_start(1)
        nothing = FetchRequest(session_id=session_id, session_epoch=1)
        (data,) = (await client.ask(ApiKey.FETCH, 12, nothing)).responses[0].partitions
        assert (data.partition_index, data.log_start_offset) == (1, 1)


async def test_a_session_hears_of_the_deletion_of_a_quiet_topic(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker)
        session_id = (await client.ask(ApiKey.FETCH, 12, fetch_request(topic, {0: 0}, 12, session_epoch=0))).session_id
        nothing = FetchRequest(max_wait_ms=30_000, min_bytes=1, session_id=session_id, session_epoch=1)
        parked = asyncio.ensure_future(client.ask(ApiKey.FETCH, 12, nothing))
        await asyncio.sleep(0.05)
        assert not parked.done()
        await broker.controller.delete_topics([TopicRef(name="t")])
        response = await asyncio.wait_for(parked, 5)
        (data,) = response.responses[0].partitions
        assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        again = await make_topic(broker)
        await produce(client, again, records(b"new"))
        nothing = FetchRequest(max_wait_ms=30_000, min_bytes=1, session_id=session_id, session_epoch=2)
        (data,) = (await client.ask(ApiKey.FETCH, 12, nothing)).responses[0].partitions
        assert [record.value for record in decoded(data)] == [b"new"]


class Served:
    """Counts what the short way served."""

    def __init__(self) -> None:
        self.count = 0

    def shortcut(self, broker: Any, version: int, peer: Peer) -> Any:
        serve = FetchShortcut(broker, version, peer)

        def counting(frame: memoryview) -> Exchange | None:
            self.count += 1  # also when it fails: the dispatcher makes an answer of that
            exchange = serve(frame)
            self.count -= exchange is None
            return exchange

        return counting


@asynccontextmanager
async def one(folder: Path, served: Served | None) -> AsyncIterator[tuple[Broker, WireClient]]:
    """A broker whose fetches take the short way if there is somebody to count them, and a client of it."""
    routes = tuple(
        dataclasses.replace(route, shortcut=served.shortcut if served else None) if route.key == ApiKey.FETCH else route
        for route in ROUTES
    )
    config = BrokerConfig.parse({"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0"})
    numbers = itertools.count(1)
    new_uuid = lambda: uuid.UUID(int=next(numbers) << 64)  # noqa: E731
    async with (
        open_broker(config, around=Surroundings(clock=ManualClock(), new_uuid=new_uuid), routes=routes) as broker,
        wire_client(broker) as client,
    ):
        broker.fetch_sessions = FetchSessions(1000, itertools.count(1).__next__)
        topic = await make_topic(broker, partitions=3)
        for value in (b"a" * 100, b"b" * 100, b"c"):
            for partition in (0, 1):
                await produce(client, topic, records(value), partition=partition)
        yield broker, client


def all_kinds(broker: Broker, version: int) -> list[FetchRequest]:
    """Good requests and bad ones, with and without sessions, tags and replicas."""
    topic = broker.controller.image.topics["t"]
    by_id = version >= 13

    def ask(offsets: dict[int, int], **more: Any) -> FetchRequest:
        return fetch_request(topic, offsets, version, **({"max_wait_ms": 20} | more))

    gone = dataclasses.replace(topic, name="gone", topic_id=uuid.UUID(int=3))
    made = [ask({0: offset}) for offset in (0, 1, 2, 3, 4, -1)]
    made += [ask({0: 0, 1: 1, 2: 0}, isolation_level=level) for level in (0, 1)]
    made += [ask({0: 0, 1: 0}, max_bytes=limit) for limit in (0, 150, 2**31 - 1)]
    made += [ask({0: 0}, min_bytes=10_000), ask({2: 0}, max_wait_ms=-5), ask({7: 0}), ask({}, max_wait_ms=30_000)]
    made += [fetch_request(gone, {0: 0}, version), ask({0: 0}, rack_id="r"), ask({0: 0}, replica_id=5)]
    odd: list[dict[str, Any]] = [{"last_fetched_epoch": 0}, {"last_fetched_epoch": 7}, {"current_leader_epoch": 9}]
    for more in odd:
        partition = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=10_000, **more)
        place = FetchTopic(
            topic="" if by_id else "t", topic_id=topic.topic_id if by_id else ZERO_UUID, partitions=(partition,)
        )
        made.append(FetchRequest(max_bytes=10_000, topics=(place,)))
    if version >= 12:
        made.append(ask({0: 0}, cluster_id="c"))
    if version >= 7:
        forgotten = ForgottenTopic(
            topic="" if by_id else "t", topic_id=topic.topic_id if by_id else ZERO_UUID, partitions=(1,)
        )
        made.append(ask({0: 0, 1: 3, 2: 0}, session_epoch=0))
        rounds: list[dict[int, int]] = [{}, {0: 2}, {0: 3}, {}, {1: 0}]
        made += [ask(changed, session_id=1, session_epoch=number) for number, changed in enumerate(rounds, 1)]
        made.append(ask({}, session_id=1, session_epoch=6, forgotten_topics_data=(forgotten,)))
        made += [ask({}, session_id=1, session_epoch=3), ask({}, session_id=77, session_epoch=1)]
        made += [ask({0: 0}, session_id=1, session_epoch=-1), ask({}, session_id=1, session_epoch=7)]
    return made


@pytest.mark.parametrize("version", range(4, 19))
async def test_nobody_can_tell_which_way_was_taken(tmp_path: Path, version: int) -> None:
    served = Served()
    async with (
        one(tmp_path / "a", served) as (short, client),
        one(tmp_path / "b", None) as (general, other),
    ):
        kinds = zip(all_kinds(short, version), all_kinds(general, version), strict=True)
        for number, (left, right) in enumerate(kinds):
            assert left == right
            frame = encode_request(ApiKey.FETCH, version, number, "c", left)
            expected = await answer_bytes(other, frame)
            assert await answer_bytes(client, frame) == expected, f"request {number}: {left}"
        assert served.count == number, "all but the first"


async def answer_bytes(client: WireClient, frame: bytes) -> bytes:
    client.send(frame)
    return await asyncio.wait_for(client.receive(), 5)


async def test_an_unexpected_failure_on_the_short_way_is_answered_and_logged_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served()
    async with one(tmp_path, served) as (broker, client):
        topic = broker.controller.image.topics["t"]
        assert (await client.ask(ApiKey.FETCH, 12, fetch_request(topic, {0: 0}, 12))).error_code == 0

        def fail(*_: object) -> None:
            raise ZeroDivisionError

        with monkeypatch.context() as patched:
            patched.setattr(fetch_module, "find_topic", fail)
            response = await client.ask(ApiKey.FETCH, 12, fetch_request(topic, {0: 0}, 12))
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await client.ask(ApiKey.FETCH, 12, fetch_request(topic, {0: 0}, 12))).error_code == 0
        assert served.count == 2
