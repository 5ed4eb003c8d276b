"""A whole flow between two real clusters, run inside the test."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.mirror.conftest import Pair, read_records
from tidemill.core.client.admin import Admin, NewTopic
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.runtime.clock import SystemClock
from tidemill.core.types import TopicPartition
from tidemill.mirror import flow as flow_module
from tidemill.mirror.flow import Flow, PartitionEntry, Preflight
from tidemill.mirror.link import PartitionLink, State
from tidemill.mirror.map_join import SEGMENTS_PER_TURN, MapJoin
from tidemill.mirror.map_records import SegmentKey, SegmentValue
from tidemill.mirror.map_store import Fenced, MapStore
from tidemill.mirror.memory import Memory
from tidemill.mirror.offsets import RUNS_PER_SEGMENT, Run
from tidemill.mirror.producing import Sender

pytestmark = pytest.mark.integration


@asynccontextmanager
async def mirroring(pair: Pair, more: str = "") -> AsyncIterator[Flow]:
    """A flow that has taken its topics on; ends with the `with`."""
    config = pair.config(more)
    async with ClusterClient(pair.a) as source, ClusterClient(pair.b) as target, asyncio.TaskGroup() as group:
        flow = Flow(config.flow("A", "B"), source, target, config.clusters["A"], SystemClock())
        work = group.create_task(flow.run())
        await asyncio.wait_for(flow.ready.wait(), 20)
        yield flow
        work.cancel()


async def until(condition: Callable[[], bool] | Callable[[], Awaitable[bool]], what: str, within_s: float = 20) -> None:
    """Poll with a deadline."""
    deadline = time.monotonic() + within_s
    while True:
        found = condition()
        if found if isinstance(found, bool) else await found:
            return
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


def caught_up(flow: Flow) -> bool:
    return bool(flow.entries) and all(entry.link.is_caught_up for entry in flow.entries.values())


def only(flow: Flow, number: int = 0) -> PartitionEntry:
    return next(entry for partition, entry in flow.entries.items() if partition.partition == number)


async def test_records_arrive_and_go_on_arriving(pair: Pair) -> None:
    await pair.create(partitions=2, retention_ms="100000")
    for number, codec in enumerate(("none", "zstd")):
        await pair.write(number, [b"early"] * 3, codec)
    async with mirroring(pair) as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
        assert [row.value for row in await read_records(pair.target, pair.remote, 1)] == [b"early"] * 3
        await pair.write(0, [b"late"])
        await until(lambda: only(flow).link.progress.target_end == 4, "the late record does not arrive")
        settings = (await Admin(pair.target).topic_configs([pair.remote]))[pair.remote]
        assert {entry.name: entry.value for entry in settings}["retention.ms"] == "100000"
        assert flow.lag() == 0
        assert flow.states() == {State.RUNNING: 2}


async def test_a_restart_goes_on_where_the_target_ends(pair: Pair) -> None:
    await pair.create(partitions=1)
    for round_number in range(3):
        await pair.write(0, [b"%d" % round_number] * 2)
        async with mirroring(pair) as flow:
            await until(lambda flow=flow: caught_up(flow), "the mirror does not catch up")  # type: ignore[misc]
            assert only(flow).link.progress.batches == 1, "nothing is sent again"
    values = [row.value for row in await read_records(pair.target, pair.remote)]
    assert values == [b"0", b"0", b"1", b"1", b"2", b"2"]


async def test_a_start_at_the_end_skips_nothing_after_a_restart(pair: Pair) -> None:
    await pair.create(partitions=1)
    await pair.write(0, [b"before"])
    for written in (b"between", b"later"):
        async with mirroring(pair, "A.consumer.auto.offset.reset = latest\n") as flow:
            await until(lambda flow=flow: caught_up(flow), "the mirror does not catch up")  # type: ignore[misc]
        await pair.write(0, [written])
    async with mirroring(pair, "A.consumer.auto.offset.reset = latest\n") as flow:
        await until(lambda: only(flow).link.progress.target_end == 2, "what came in between is skipped")
    assert [row.value for row in await read_records(pair.target, pair.remote)] == [b"between", b"later"]


async def test_new_topics_and_partitions_are_taken_on(pair: Pair) -> None:
    async with mirroring(pair) as flow:
        assert not flow.entries
        await pair.create(partitions=1)
        await flow.refresh_topics()
        assert len(flow.entries) == 1
        await Admin(pair.source).create_partitions({pair.topic: 3})
        await flow.refresh_topics()
        assert len(flow.entries) == 3
        await pair.write(2, [b"x"])
        await until(lambda: only(flow, 2).link.progress.target_end == 1, "the new partition is not mirrored")


def map_store(pair: Pair) -> MapStore:
    return MapStore(pair.target, source_alias="A", target_alias="B", clock=SystemClock(), replication_factor=1)


async def test_of_two_mirrors_one_stands_by_until_the_other_ends(pair: Pair) -> None:
    await pair.create(partitions=1)
    await pair.write(0, [b"0"])
    async with AsyncExitStack() as later:
        async with mirroring(pair) as first:
            await until(lambda: caught_up(first), "the first does not catch up")
            second = await later.enter_async_context(mirroring(pair))
            assert "stands by" in second.standby
            for number in range(1, 30):
                await pair.write(0, [b"%d" % number])
            await until(lambda: only(first).link.progress.target_end == 30, "the first does not go on")
            await second.refresh_topics()
            assert not second.entries
        await pair.write(0, [b"30"])
        await until(lambda: caught_up(second) and only(second).link.progress.target_end == 31, "nobody takes over")
        assert not second.standby
    assert [row.value for row in await read_records(pair.target, pair.remote)] == [b"%d" % n for n in range(31)]


async def test_a_mirror_that_was_shut_out_stands_by_and_comes_back(pair: Pair) -> None:
    await pair.create(partitions=1)
    await pair.write(0, [b"0"])
    async with mirroring(pair) as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
        other = map_store(pair)
        await other.open()
        await until(lambda: bool(flow.standby), "nobody noticed")
        assert "another mirror has taken over" in flow.standby
        assert not flow.entries
        await pair.write(0, [b"1"])
        await until(lambda: caught_up(flow) and only(flow).link.progress.target_end == 2, "it does not come back")
        with pytest.raises(Fenced):
            await other.write([[(b"\0\0", None)]])
    assert [row.value for row in await read_records(pair.target, pair.remote)] == [b"0", b"1"]


async def test_nothing_is_sent_once_the_next_mirror_need_not_wait(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    class Watched(Sender[PartitionEntry]):
        def end(self) -> None:
            order.append("no more batches")
            super().end()

    let_go = MapStore.let_go

    async def watched(store: MapStore) -> None:
        order.append("the map is let go of")
        await let_go(store)

    monkeypatch.setattr(flow_module, "Sender", Watched)
    monkeypatch.setattr(MapStore, "let_go", watched)
    await pair.create(partitions=1)
    await pair.write(0, [b"0"])
    async with mirroring(pair) as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
    assert order == ["no more batches", "the map is let go of"]


async def test_answers_for_a_partition_that_was_given_up_are_let_go_of(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    memories: list[Memory] = []

    class Watched(Memory):
        def __init__(self) -> None:
            super().__init__()
            memories.append(self)

    def pinned() -> int:
        return memories[-1].held_bytes - memories[-1].in_flight_bytes

    monkeypatch.setattr(flow_module, "Memory", Watched)
    await pair.create(partitions=1)
    await pair.write(0, [b"0"])
    async with mirroring(pair, "A.consumer.fetch.max.wait.ms = 3000\n") as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
        await until(lambda: memories[-1].in_flight_bytes > 0, "it does not wait for more")
        entry = only(flow)
        await Admin(pair.target).delete_topics([pair.remote])
        await until(lambda: given_up(flow, entry), "the copy is not missed")
        await pair.write(0, [bytes(1000)])
        await until(lambda: only(flow).link.progress.target_end == 2, "the copy is not begun anew")
        await until(lambda: pinned() == 0, "an answer that nobody reads stays in memory")


async def given_up(flow: Flow, entry: PartitionEntry) -> bool:
    await flow.look_after()
    return flow.entries.get(entry.source) is not entry


async def test_a_foreign_record_on_the_target_stops_the_partition(pair: Pair) -> None:
    await pair.create(partitions=1)
    await pair.write(0, [b"1"])
    async with mirroring(pair) as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
    foreign = build_batch([NewRecord(timestamp=1, key=None, value=b"foreign")])
    await pair.target.append(TopicPartition(pair.remote, 0), foreign)
    async with mirroring(pair) as flow:
        await until(lambda: only(flow).link.state is State.FAILED, "nobody noticed")
        assert "was not written by this mirror" in only(flow).link.reason
    assert len(await read_records(pair.target, pair.remote)) == 2


async def test_a_foreign_record_while_mirroring_stops_the_partition(pair: Pair) -> None:
    await pair.create(partitions=1)
    await pair.write(0, [b"1"])
    async with mirroring(pair) as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
        foreign = build_batch([NewRecord(timestamp=1, key=None, value=b"foreign")])
        await pair.target.append(TopicPartition(pair.remote, 0), foreign)
        await pair.write(0, [b"2"])
        await until(lambda: only(flow).link.state is State.FAILED, "nobody noticed")
        assert "somebody else writes" in only(flow).link.reason


async def test_a_source_topic_made_anew_stops_the_partition(pair: Pair) -> None:
    await pair.create(partitions=1)
    await pair.write(0, [b"1"])
    async with mirroring(pair) as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
        await Admin(pair.source).delete_topics([pair.topic])
        await pair.create(partitions=1)
        await flow.refresh_topics()
        assert only(flow).link.state is State.FAILED
        assert "deleted and created again" in only(flow).link.reason
    async with mirroring(pair) as flow:
        assert only(flow).link.state is State.FAILED
        assert f"delete {pair.remote}" in only(flow).link.reason


async def test_a_target_topic_made_anew_is_filled_from_the_start(pair: Pair) -> None:
    await pair.create(partitions=1)
    await pair.write(0, [b"1", b"2"])
    async with mirroring(pair) as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
    await Admin(pair.target).delete_topics([pair.remote])
    async with mirroring(pair) as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
    assert [row.value for row in await read_records(pair.target, pair.remote)] == [b"1", b"2"]


async def test_an_oversize_batch_parks_and_the_others_go_on(pair: Pair) -> None:
    await pair.create(partitions=2)
    remote = NewTopic(name=pair.remote, partitions=2, configs={"max.message.bytes": "1000"})
    await Admin(pair.target).create_topics([remote])
    await pair.write(0, [bytes(5000)])
    await pair.write(1, [b"small"])
    async with mirroring(pair) as flow:
        await until(lambda: only(flow, 0).link.state is State.PARKED, "the large batch is not noticed")
        assert "max.message.bytes" in only(flow, 0).link.reason
        await until(lambda: only(flow, 1).link.is_caught_up, "the other partition stands still")


async def test_a_cluster_is_not_mirrored_into_itself(pair: Pair) -> None:
    config = pair.config()
    flow = Flow(config.flow("A", "B"), pair.source, pair.source, config.clusters["A"], SystemClock())
    with pytest.raises(BaseExceptionGroup) as caught:
        await flow.run()
    assert caught.group_contains(Preflight, match="A and B are the same cluster")


async def test_a_bug_ends_the_flow_and_is_seen(pair: Pair) -> None:
    await pair.create(partitions=1)

    async def stumble() -> None:
        async with mirroring(pair) as flow:
            flow._perform = None  # type: ignore[method-assign, assignment]
            await pair.write(0, [b"1"])
            await asyncio.sleep(20)

    with pytest.raises(BaseExceptionGroup) as caught:
        await stumble()
    assert caught.group_contains(TypeError)


async def test_a_bug_is_seen_also_after_another_mirror_was_at_work(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    await pair.create(partitions=1)

    async def stumble() -> None:
        async with mirroring(pair) as flow:
            await until(lambda: caught_up(flow), "the mirror does not catch up")
            await map_store(pair).open()
            await until(lambda: bool(flow.standby), "nobody noticed")
            await until(lambda: caught_up(flow), "it does not come back")
            monkeypatch.setattr(PartitionLink, "step", None)
            await pair.write(0, [b"1"])
            await asyncio.sleep(20)

    with pytest.raises(BaseExceptionGroup) as caught:
        await asyncio.wait_for(stumble(), 40)
    assert caught.group_contains(TypeError)


async def test_a_map_that_contradicts_itself_stops_only_its_partition(pair: Pair) -> None:
    await pair.create(partitions=2)
    for number in range(2):
        await pair.write(number, [b"1"] * 3)
    async with mirroring(pair) as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
        ids = only(flow).source_id, only(flow).target_id
    store = map_store(pair)
    await store.open()
    rows = []
    for number, runs in ((0, [Run(2 * i, i) for i in range(RUNS_PER_SEGMENT)]), (1, [Run(100, 1000)])):
        value = SegmentValue(source_topic_id=ids[0], target_topic_id=ids[1], target_topic=pair.remote, runs=tuple(runs))
        rows.append((SegmentKey(topic=pair.topic, partition=0, segment=number).encode(), value.encode()))
    await store.write([rows])
    await store.let_go()
    async with mirroring(pair) as flow:
        await until(lambda: only(flow).link.state is State.FAILED, "nobody noticed")
        assert "offset map is damaged" in only(flow).link.reason
        assert "delete the target topic" in only(flow).link.reason
        await pair.write(1, [b"2"])
        await until(lambda: only(flow, 1).link.progress.target_end == 4, "the other partition stands still")
        await Admin(pair.target).delete_topics([pair.remote])
        await until(lambda: begun_anew(flow), "a target that is deleted is not begun anew")
    assert len(await read_records(pair.target, pair.remote)) == 3


async def begun_anew(flow: Flow) -> bool:
    await flow.look_after()
    return caught_up(flow)


async def test_a_long_map_is_joined_while_others_have_their_turns(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    await pair.create(partitions=1)
    async with mirroring(pair) as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
        entry = only(flow)
    at = 0

    class Watched(MapJoin):
        def take(self, count: int = SEGMENTS_PER_TURN) -> bool:
            assert count == SEGMENTS_PER_TURN
            turns.append(at)
            return super().take(count)

    turns: list[int] = []
    monkeypatch.setattr(flow_module, "MapJoin", Watched)
    store = map_store(pair)
    await store.open()
    rows = []
    for number in range(3 * SEGMENTS_PER_TURN):
        first = number * RUNS_PER_SEGMENT
        value = SegmentValue(
            source_topic_id=entry.source_id,
            target_topic_id=entry.target_id,
            target_topic=pair.remote,
            runs=tuple(Run(2 * index, index) for index in range(first, first + RUNS_PER_SEGMENT)),
        )
        rows.append((SegmentKey(topic=pair.topic, partition=0, segment=number).encode(), value.encode()))
    await store.write([rows])
    await store.let_go()

    async def count_turns() -> None:
        nonlocal at
        while True:
            at += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        counting = group.create_task(count_turns())
        async with mirroring(pair) as flow:
            await until(lambda: bool(flow.entries), "the partition is not taken on")
            assert len(only(flow).link.offsets) == 3 * SEGMENTS_PER_TURN * RUNS_PER_SEGMENT
        counting.cancel()
    assert len(turns) == 3
    assert len(set(turns)) == 3, "nobody else had a turn"
