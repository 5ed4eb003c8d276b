"""The newest status arrives, also after the cluster was away."""

import asyncio
from dataclasses import replace

import pytest

from tests.mirror.conftest import Pair
from tests.mirror.test_flow import until
from tidemill.core.client.admin import Admin
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.runtime.clock import SystemClock
from tidemill.mirror.inspection import read_rows
from tidemill.mirror.status_records import TOPIC_SETTINGS, FlowState, StatusRow
from tidemill.mirror.status_writer import PAUSE_SECONDS, StatusWriter

pytestmark = pytest.mark.integration

ROW = StatusRow(flow="A->B", mirror="m:1:1", state=FlowState.RUNNING, started_ms=1, written_ms=1)


async def test_the_newest_row_is_written_when_the_cluster_is_back(pair: Pair) -> None:
    addresses = ["127.0.0.1:1"]
    tried: list[str] = []

    def connect() -> ClusterClient:
        tried.append(addresses[0])
        return ClusterClient(addresses[0], call_timeout_ms=200)

    topic = f"status.{pair.topic}.internal"
    writer = StatusWriter(connect, topic, factor=3, clock=SystemClock(), failing={})
    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(writer.run())
        writer.put(ROW)
        await until(lambda: len(tried) == 1, "nobody tries")
        writer.put(replace(ROW, written_ms=2))
        writer.put(replace(ROW, written_ms=3))
        addresses[0] = pair.b

        async def arrived() -> bool:
            view = await pair.target.metadata()
            return topic in view.topics and [row.written_ms for row in await read_rows(pair.target, topic)] == [3]

        await until(arrived, "the newest row does not arrive, alone")
        work.cancel()
    await writer.last(replace(ROW, state=FlowState.STOPPED))
    writer.close()
    assert [row.state for row in await read_rows(pair.target, topic)] == [FlowState.RUNNING, FlowState.STOPPED]
    entries = (await Admin(pair.target).topic_configs([topic]))[topic]
    assert {entry.name: entry.value for entry in entries if not entry.is_default} == TOPIC_SETTINGS


async def test_the_last_word_keeps_nobody_waiting() -> None:
    failing: dict[str, str] = {}
    writer = StatusWriter(
        lambda: ClusterClient("127.0.0.1:1", call_timeout_ms=200), "t", factor=1, clock=SystemClock(), failing=failing
    )
    await writer.last(ROW)
    writer.close()
    assert not failing, "a cluster that does not answer is named as such"


async def test_a_cluster_that_refuses_is_named_and_asked_seldom(pair: Pair) -> None:
    connected: list[ClusterClient] = []

    def connect() -> ClusterClient:
        connected.append(ClusterClient(pair.b, call_timeout_ms=5000))
        return connected[-1]

    forbidden = "no/topic/has/such/a/name"
    failing: dict[str, str] = {}
    writer = StatusWriter(connect, forbidden, factor=1, clock=SystemClock(), failing=failing)
    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(writer.run())
        writer.put(ROW)
        await until(lambda: forbidden in failing, "nobody is told")
        writer.put(replace(ROW, written_ms=2))
        await asyncio.sleep(3 * PAUSE_SECONDS)
        assert len(connected) == 1
        work.cancel()
    writer.close()
