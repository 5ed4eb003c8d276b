"""The whole process inside the test: jobs by name, readiness, shutdown."""

import asyncio

import pytest

from tests.mirror.conftest import Pair, read_records
from tests.mirror.test_flow import until
from tidemill.core.client.admin import Admin, CommittedOffset
from tidemill.core.types import TopicPartition
from tidemill.mirror.formats import Heartbeat
from tidemill.mirror.naming import HEARTBEATS
from tidemill.mirror.runner import LOOK_PAUSE_MAX_SECONDS, LOOK_SHARE_MAX, MirrorRunner, rest_s

pytestmark = pytest.mark.integration

EVERYTHING = """\
heartbeats.replication.enabled = true
emit.heartbeats.enabled = true
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 1
emit.checkpoints.interval.seconds = 1
refresh.groups.interval.seconds = 1
refresh.topics.interval.seconds = 1
"""


async def test_flows_and_jobs_run_until_cancelled(pair: Pair) -> None:
    await pair.create(partitions=1)
    await pair.write(0, [b"x"] * 5)
    group = f"g-{pair.topic}"
    position = CommittedOffset(offset=3, metadata="")
    await Admin(pair.source).commit_offsets(group, {TopicPartition(pair.topic, 0): position})
    runner = MirrorRunner(pair.config(EVERYTHING))
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(runner.run(ready.set))
        await asyncio.wait_for(ready.wait(), 20)
        assert {"A->B heartbeat", "B->A heartbeat", "A->B refresh topics", "A->B checkpoints"} <= set(runner.jobs())

        async def carried() -> bool:
            found = await Admin(pair.target).committed_offsets(group)
            return found == {TopicPartition(pair.remote, 0): position}

        async def beating() -> bool:
            if f"A.{HEARTBEATS}" not in (await pair.target.metadata()).topics:
                return False
            rows = await read_records(pair.target, f"A.{HEARTBEATS}")
            return any(Heartbeat.decode(r.key or b"", r.value or b"").source_alias == "B" for r in rows)

        await until(carried, "the group's position is not carried")
        await until(beating, "the heartbeat of B->A does not come back as A.heartbeats")
        work.cancel()
    assert [row.value for row in await read_records(pair.target, pair.remote)] == [b"x"] * 5


async def test_only_flows_into_the_named_clusters(pair: Pair) -> None:
    config = pair.config("B->A.enabled = true\n")
    assert [flow.config.name for flow in MirrorRunner(config, targets=["A"]).flows] == ["B->A"]
    assert [flow.config.name for flow in MirrorRunner(config).flows] == ["A->B", "B->A"]


async def test_a_second_process_is_ready_and_waits(pair: Pair) -> None:
    await pair.create(partitions=1)
    runners = [MirrorRunner(pair.config()) for _ in range(2)]
    works = []
    async with asyncio.TaskGroup() as tasks:
        for runner in runners:
            ready = asyncio.Event()
            works.append(tasks.create_task(runner.run(ready.set)))
            await asyncio.wait_for(ready.wait(), 20)
        assert [bool(runner.flows[0].standby) for runner in runners] == [False, True]
        works[0].cancel()
        await pair.write(0, [b"x"])

        async def arrived() -> bool:
            return bool(await read_records(pair.target, pair.remote))

        await until(arrived, "the second process does not take over")
        works[1].cancel()


async def test_both_ways_does_not_go_in_circles(pair: Pair) -> None:
    await pair.create(partitions=1)
    await pair.write(0, [b"from A"])
    more = f"B->A.enabled = true\nrefresh.topics.interval.seconds = 1\ntopics = .*{pair.topic}\n"
    runner = MirrorRunner(pair.config(more))
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(runner.run(ready.set))
        await asyncio.wait_for(ready.wait(), 20)

        async def arrived() -> bool:
            return pair.remote in (await pair.target.metadata()).topics and bool(
                await read_records(pair.target, pair.remote)
            )

        await until(arrived, "nothing arrives")
        for flow in runner.flows * 3:
            await flow.refresh_topics()
        work.cancel()
    there, here = await pair.target.metadata(), await pair.source.metadata()
    assert [name for name in there.topics if pair.topic in name] == [pair.remote]
    assert [name for name in here.topics if pair.topic in name] == [pair.topic]
    assert len(await read_records(pair.target, pair.remote)) == 1


@pytest.mark.parametrize("took_s", [0.001, 0.05, 0.25, 1.0, 12.0, 300.0])
def test_a_look_that_took_long_is_followed_by_the_next_all_the_same(took_s: float) -> None:
    """One that waited until a cluster that was cut off had not answered told of nothing for minutes."""
    rest = rest_s(took_s)
    assert rest == LOOK_PAUSE_MAX_SECONDS or took_s / rest == pytest.approx(LOOK_SHARE_MAX)
    assert 0 < rest <= 5, "what is over is told within five seconds"
