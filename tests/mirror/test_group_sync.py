"""Positions of groups on the other side: exact, complete, never backwards."""

import asyncio
import uuid

import pytest

from tests.mirror.conftest import Pair, read_records
from tests.mirror.test_flow import caught_up, mirroring, until
from tidemill.core.client.admin import Admin, CommittedOffset
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.runtime.clock import SystemClock
from tidemill.core.types import TopicPartition
from tidemill.mirror.formats import Checkpoint
from tidemill.mirror.group_sync import GroupSync

pytestmark = pytest.mark.integration


def positions(topic: str, *offsets: int | None) -> dict[TopicPartition, CommittedOffset]:
    return {
        TopicPartition(topic, number): CommittedOffset(offset=offset, metadata="")
        for number, offset in enumerate(offsets)
        if offset is not None
    }


async def fill(pair: Pair) -> None:
    """Partition 0 without holes, 1 with markers every second offset, 2 empty."""
    await pair.create(partitions=3)
    for _ in range(5):
        await pair.write(0, [b"x"] * 4)
        record = [NewRecord(timestamp=1, key=None, value=b"x")]
        await pair.source.append(TopicPartition(pair.topic, 1), build_batch(record))
    assert await pair.source.bounds(TopicPartition(pair.topic, 1)) == (0, 5)


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
    rows = await read_records(pair.target, "A.checkpoints.internal")
    found = [Checkpoint.decode(row.key or b"", row.value or b"") for row in rows]
    assert [row for row in found if row.group == group] == [
        Checkpoint(group=group, topic=pair.remote, partition=0, upstream_offset=offset, offset=offset)
        for offset in (9, 11)
    ]


async def test_a_group_in_use_on_the_target_is_left_alone(pair: Pair) -> None:
    from confluent_kafka import Consumer

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


async def test_groups_are_filtered(pair: Pair) -> None:
    await fill(pair)
    await Admin(pair.source).commit_offsets(f"connect-{pair.topic}", positions(pair.topic, 9))
    async with mirroring(pair) as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
        sync = GroupSync(flow.config, pair.source, pair.target, flow.entries, SystemClock())
        await sync.sync_offsets()
    assert await Admin(pair.target).committed_offsets(f"connect-{pair.topic}") == {}
