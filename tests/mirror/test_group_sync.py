"""Positions of groups on the other side: exact, complete, never backwards."""

import asyncio
import random
import uuid
from collections.abc import Mapping
from dataclasses import replace

import pytest
import structlog
from confluent_kafka import Consumer, Producer

from tests.mirror.conftest import Pair, read_records
from tests.mirror.test_flow import caught_up, mirroring, until
from tidemill.core.client.admin import Admin, CommittedOffset
from tidemill.core.client.batches import READ_COMMITTED
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.errors import GroupAuthorizationFailed, KafkaError
from tidemill.core.records.batch import iter_batches
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, decode_records
from tidemill.core.runtime.clock import SystemClock
from tidemill.core.types import TopicPartition
from tidemill.mirror.flow import Flow
from tidemill.mirror.formats import Checkpoint
from tidemill.mirror.group_sync import GroupSync
from tidemill.mirror.passthrough import AbortedTransactions, Verdict, judge
from tidemill.mirror.runner import MirrorRunner
from tidemill.testing.plugin import BrokerFactory

pytestmark = pytest.mark.integration


def positions(topic: str, *offsets: int | None) -> dict[TopicPartition, CommittedOffset]:
    return {
        TopicPartition(topic, number): CommittedOffset(offset=offset, metadata="")
        for number, offset in enumerate(offsets)
        if offset is not None
    }


async def fill(pair: Pair) -> None:
    """Partitions 0 and 1 with records, 2 empty; no offset is missing anywhere."""
    await pair.create(partitions=3)
    for _ in range(5):
        await pair.write(0, [b"x"] * 4)
        record = [NewRecord(timestamp=1, key=None, value=b"x")]
        await pair.source.append(TopicPartition(pair.topic, 1), build_batch(record))
    assert await pair.source.bounds(TopicPartition(pair.topic, 1)) == (0, 5)


async def offsets_to_read(client: ClusterClient, topic: str) -> list[int]:
    """The offsets of partition 0 at which a read-committed consumer is given a record."""
    found: list[int] = []
    async for answer in client.read(TopicPartition(topic, 0), isolation_level=READ_COMMITTED):
        filters = AbortedTransactions(answer.aborted)
        for view in iter_batches(answer.data):
            if judge(view, view.base_offset, filters) in (Verdict.PASS, Verdict.REBUILD):
                found.extend(record.offset for record in decode_records(view))
    return found


async def assert_every_offset_is_translated(pair: Pair, flow: Flow, readable: list[int]) -> None:
    """Whatever a group has committed, on the target it reads on with the same record.

    `readable` has the source offsets of the records on the target, in order.
    """
    _, end = await pair.source.bounds(TopicPartition(pair.topic, 0))
    sync = GroupSync(flow.config, pair.source, pair.target, flow.entries, SystemClock())
    assert readable != list(range(end)), "offsets are missing"
    for offset in range(end + 1):
        group = f"{pair.topic}-{offset}"
        await Admin(pair.source).commit_offsets(group, positions(pair.topic, offset))
        (checkpoint,) = await sync.checkpoints(group)
        assert checkpoint.offset == sum(found < offset for found in readable), f"group position {offset}"


async def test_positions_behind_what_compaction_left_are_exact(
    pair: Pair, tidemill_broker_factory: BrokerFactory
) -> None:
    address = tidemill_broker_factory(log_cleaner_backoff_ms="100").facts["address"]
    async with ClusterClient(address) as source:
        compacted = replace(pair, a=address, source=source)
        await compacted.create(
            partitions=1, cleanup_policy="compact", segment_bytes="4000", min_cleanable_dirty_ratio="0.01"
        )
        rng = random.Random(7)
        for first in range(0, 120, 3):  # each value tells the record's offset
            rows = [
                NewRecord(timestamp=first, key=b"k%d" % rng.randrange(12), value=b"%040d" % (first + number))
                for number in range(3)
            ]
            await source.append(TopicPartition(pair.topic, 0), build_batch(rows))

        async def holes() -> bool:
            return len(await offsets_to_read(source, pair.topic)) < 100

        await until(holes, "nothing is compacted")
        async with mirroring(compacted) as flow:
            await until(lambda: caught_up(flow), "the mirror does not catch up")
            mirrored = [int(row.value or b"") for row in await read_records(pair.target, pair.remote)]
            await assert_every_offset_is_translated(compacted, flow, mirrored)


@pytest.mark.kafka_peer
@pytest.mark.java
@pytest.mark.timeout(240)
async def test_positions_at_transaction_markers_are_exact(pair: Pair, kafka_peer: tuple[str, object]) -> None:
    address = kafka_peer[0]
    async with ClusterClient(address) as source:
        transactional = replace(pair, a=address, source=source)
        await transactional.create(partitions=1)
        await asyncio.to_thread(write_transactions, address, pair.topic)
        async with mirroring(transactional) as flow:
            await until(lambda: caught_up(flow), "the mirror does not catch up")
            readable = await offsets_to_read(source, pair.topic)
            await assert_every_offset_is_translated(transactional, flow, readable)


def write_transactions(address: str, topic: str) -> None:
    """Committed and aborted ones by turns, so that markers and aborted records take offsets that nobody reads."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": topic})
    producer.init_transactions()
    for number in range(12):
        producer.begin_transaction()
        for _ in range(number % 3 + 1):
            producer.produce(topic, value=b"%d" % number, partition=0)
        producer.flush()
        if number % 3 == 1:
            producer.abort_transaction()
        else:
            producer.commit_transaction()


async def test_a_group_that_appears_later_is_carried_at_the_next_sync(pair: Pair) -> None:
    """With `refresh.groups.interval.seconds` at its 600; the group is a real consumer's."""
    await fill(pair)
    runner = MirrorRunner(pair.config("sync.group.offsets.enabled = true\nsync.group.offsets.interval.seconds = 1\n"))
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(runner.run(ready.set))
        await asyncio.wait_for(ready.wait(), 20)
        early, late = f"{pair.topic}-early", f"{pair.topic}-late"
        for group in (early, late):  # the second one appears when a look at the groups is over for certain
            await asyncio.to_thread(consume, pair.a, group, pair.topic, 7)

            async def carried(group: str = group) -> bool:
                found = await Admin(pair.target).committed_offsets(group)
                return sum(position.offset for position in found.values()) == 7

            await until(carried, f"the position of {group} is not carried")
        work.cancel()


def consume(address: str, group: str, topic: str, count: int) -> None:
    """Read and commit that many records as applications do."""
    settings = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    try:
        for _ in range(count):
            message = None
            while message is None:
                message = consumer.poll(1)
            assert message.error() is None
            consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()


async def test_every_position_is_carried_exactly(pair: Pair) -> None:
    await fill(pair)
    group = f"g{uuid.uuid4().hex[:8]}"
    source, target = Admin(pair.source), Admin(pair.target)
    await source.commit_offsets(group, positions(pair.topic, 20, 3, 0))
    async with mirroring(pair) as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
        sync = GroupSync(flow.config, pair.source, pair.target, flow.entries, SystemClock())
        await sync.sync_offsets()
        assert await target.committed_offsets(group) == positions(pair.remote, 20, 3, 0)
        await source.commit_offsets(group, positions(pair.topic, 7, 4))
        await sync.sync_offsets()
        assert await target.committed_offsets(group) == positions(pair.remote, 20, 4, 0), "never backwards"


async def test_checkpoints_are_written_once_per_change(pair: Pair) -> None:
    await fill(pair)
    group = f"g{uuid.uuid4().hex[:8]}"
    await Admin(pair.source).commit_offsets(group, positions(pair.topic, 9))
    async with mirroring(pair, f"groups = {group}\n") as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
        sync = GroupSync(flow.config, pair.source, pair.target, flow.entries, SystemClock())
        for _ in range(3):
            await sync.emit_checkpoints()
        await Admin(pair.source).commit_offsets(group, positions(pair.topic, 11))
        await sync.emit_checkpoints()
        sync.forget_written()  # the cluster was put back to an older state
        await sync.emit_checkpoints()
    rows = await read_records(pair.target, "A.checkpoints.internal")
    found = [Checkpoint.decode(row.key or b"", row.value or b"") for row in rows]
    assert [row for row in found if row.group == group] == [
        Checkpoint(group=group, topic=pair.remote, partition=0, upstream_offset=offset, offset=offset)
        for offset in (9, 11, 11)
    ]


async def test_a_group_in_use_on_the_target_is_left_alone(pair: Pair) -> None:
    await fill(pair)
    group = f"g{uuid.uuid4().hex[:8]}"
    await Admin(pair.source).commit_offsets(group, positions(pair.topic, 9))
    async with mirroring(pair) as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
        consumer = Consumer({"bootstrap.servers": pair.b, "group.id": group, "enable.auto.commit": False})
        consumer.subscribe([pair.remote])
        try:

            async def stable() -> bool:
                await asyncio.to_thread(consumer.poll, 0.05)
                return await Admin(pair.target).group_state(group) == "Stable"

            await until(stable, "the consumer does not join")
            sync = GroupSync(flow.config, pair.source, pair.target, flow.entries, SystemClock())
            await sync.sync_offsets()
            assert await Admin(pair.target).committed_offsets(group) == {}
        finally:
            await asyncio.to_thread(consumer.close)
        await sync.sync_offsets()
        assert await Admin(pair.target).committed_offsets(group) == positions(pair.remote, 9)


async def test_a_position_the_target_refuses_is_a_problem_until_it_is_taken(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(pair)
    group = f"g{uuid.uuid4().hex[:8]}"
    await Admin(pair.source).commit_offsets(group, positions(pair.topic, 9, 2))

    async def refuse(
        self: Admin, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, KafkaError | None]:
        return dict.fromkeys(offsets, GroupAuthorizationFailed("not yours"))

    async with mirroring(pair, f"groups = {group}\n") as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
        sync = GroupSync(flow.config, pair.source, pair.target, flow.entries, SystemClock())
        with monkeypatch.context() as patched, structlog.testing.capture_logs() as lines:
            patched.setattr(Admin, "commit_offsets", refuse)
            await sync.sync_offsets()
            assert "group positions committed" not in [line["event"] for line in lines]
        assert list(sync.problems) == [group]
        assert "not yours" in sync.problems[group]
        await sync.emit_checkpoints()
        assert list(sync.problems) == [group], "checkpoints are another matter"
        await sync.sync_offsets()
        assert not sync.problems


async def test_groups_are_filtered(pair: Pair) -> None:
    await fill(pair)
    await Admin(pair.source).commit_offsets(f"connect-{pair.topic}", positions(pair.topic, 9))
    async with mirroring(pair) as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
        sync = GroupSync(flow.config, pair.source, pair.target, flow.entries, SystemClock())
        await sync.sync_offsets()
    assert await Admin(pair.target).committed_offsets(f"connect-{pair.topic}") == {}
