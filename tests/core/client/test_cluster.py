"""Routing, retry and raw batches against a real broker."""

import asyncio

import pytest

from tidemill.core.client.batches import EARLIEST, LATEST, EpochEnd, FetchWant
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.client.metadata import NO_LEADER
from tidemill.core.errors import LeaderNotAvailable, UnknownTopicOrPartition
from tidemill.core.records.batch import iter_batches
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, decode_records
from tidemill.core.types import TopicPartition

pytestmark = pytest.mark.integration


def batch(*values: bytes, codec: str = "none") -> bytes:
    return build_batch([NewRecord(timestamp=1, key=None, value=value) for value in values], codec=codec)


async def values(client: ClusterClient, partition: TopicPartition) -> list[bytes | None]:
    return [
        record.value
        async for answer in client.read(partition)
        for view in iter_batches(answer.data)
        for record in decode_records(view)
    ]


async def test_what_is_appended_can_be_read(client: ClusterClient, topic: str) -> None:
    partition = TopicPartition(topic, 1)
    assert await client.append(partition, batch(b"a", b"b")) == 0
    assert await client.append(partition, batch(b"c", codec="zstd")) == 2
    assert await values(client, partition) == [b"a", b"b", b"c"]
    assert await client.bounds(partition) == (0, 3)
    assert await values(client, TopicPartition(topic, 0)) == []


async def test_many_partitions_in_one_request(client: ClusterClient, topic: str) -> None:
    await client.ensure_fresh([topic])
    node_id = client.view.leader_of(TopicPartition(topic, 0))
    batches = {TopicPartition(topic, number): batch(b"%d" % number) for number in range(3)}
    answers = await client.produce(node_id, batches)
    assert sorted((row.partition.partition, row.error_code, row.base_offset) for row in answers) == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
    ]
    wants = [FetchWant(partition, 0, 1000, client.view.topic_id(topic)) for partition in batches]
    fetched = await client.fetch(node_id, wants)
    assert {row.partition.partition: row.high_watermark for row in fetched} == {0: 1, 1: 1, 2: 1}
    found = await client.list_offsets(dict.fromkeys(batches, LATEST))
    assert [answer.offset for answer in found.values()] == [1, 1, 1]


async def test_where_leader_epochs_ended(client: ClusterClient, topic: str) -> None:
    partition, missing = TopicPartition(topic, 0), TopicPartition(topic, 99)
    await client.append(partition, batch(b"a", b"b"))
    node_id = await client.leader(partition)
    found = await client.epoch_ends_on(node_id, {partition: 0, missing: 0})
    assert found[partition] == EpochEnd(0, 0, 2)
    assert found[missing].error_code == UnknownTopicOrPartition.code
    assert await client.epoch_ends_on(node_id, {partition: 8}) == {partition: EpochEnd(0, -1, -1)}


async def test_a_long_poll_does_not_hold_up_other_lanes(client: ClusterClient, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    await client.ensure_fresh([topic])
    node_id = client.view.leader_of(partition)
    waiting = asyncio.ensure_future(
        client.fetch(node_id, [FetchWant(partition, 0, 1000)], lane="fetch-0", max_wait_ms=10_000)
    )
    await asyncio.sleep(0)
    assert await asyncio.wait_for(client.append(partition, batch(b"x")), 5) == 0
    answers = await asyncio.wait_for(waiting, 5)
    assert [view.record_count for view in iter_batches(answers[0].data)] == [1]


async def test_a_lost_connection_is_replaced(client: ClusterClient, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    await client.append(partition, batch(b"1"))
    client.close()
    await client.append(partition, batch(b"2"))
    assert await values(client, partition) == [b"1", b"2"]


async def test_unknown_topics(client: ClusterClient) -> None:
    missing = TopicPartition("no-such-topic", 0)
    with pytest.raises(UnknownTopicOrPartition, match="'no-such-topic' does not exist"):
        await client.leader(missing)
    answer = (await client.list_offsets({missing: EARLIEST}))[missing]
    assert answer.error_code == LeaderNotAvailable.code
    view = await client.metadata(["no-such-topic"])
    assert view.leader_of(missing) == NO_LEADER
    assert view.topic_errors == {"no-such-topic": UnknownTopicOrPartition.code}


async def test_retries_end_at_the_deadline(client: ClusterClient) -> None:
    calls = 0

    async def attempt() -> None:
        nonlocal calls
        calls += 1
        raise LeaderNotAvailable("not yet")

    with pytest.raises(LeaderNotAvailable):
        await client.retrying(attempt, timeout_ms=500)
    assert calls >= 2


async def test_nobody_there() -> None:
    async with ClusterClient("127.0.0.1:1,127.0.0.1:2", call_timeout_ms=50) as client:
        with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1 cannot connect.*127\.0\.0\.1:2 cannot connect"):
            await client.metadata()
