"""Progress lines and metrics of a flow."""

import asyncio

import pytest
from structlog.testing import capture_logs

from tests.mirror.conftest import Pair
from tests.mirror.test_flow import caught_up, mirroring, until
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.runtime.clock import ManualClock, SystemClock
from tidemill.core.runtime.collected_parts import CollectedParts
from tidemill.mirror.health import FlowHealth
from tidemill.mirror.probing import ClusterProbe
from tidemill.mirror.progress import FlowMetrics, Progress

pytestmark = pytest.mark.integration


async def test_metrics_are_read_off_the_machines(pair: Pair) -> None:
    await pair.create(partitions=1)
    await pair.write(0, [b"x"] * 3)
    async with mirroring(pair) as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
        clock = ManualClock()
        probes = {alias: ClusterProbe(lambda: ClusterClient("127.0.0.1:1"), clock) for alias in "AB"}
        health = FlowHealth(flow, probes, clock, mirror="m", jobs={}, groups={})
        health.look()
        metrics = CollectedParts(FlowMetrics([health], SystemClock()).parts())
        text = metrics.text().decode()
        flow.topics.problems["A.t"] = "cannot be created"
        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(probes["B"].run())
            await until(lambda: bool(probes["B"].reason), "the outage is not seen")
            clock.advance(7000)
            health.look()
            later = metrics.text().decode()
            work.cancel()
    labels = f'{{partition="0",source="A",target="B",topic="{pair.topic}"}}'
    assert f"tidemill_mirror_lag_records{labels} 0.0" in text
    assert f"tidemill_mirror_batches_total{labels} 1.0" in text
    copy = f'{{partition="0",source="A",target="B",topic="{pair.remote}"}}'
    assert f"kafka_connect_mirror_mirrorsourceconnector_record_count{copy} 3.0" in text
    assert f"kafka_connect_mirror_mirrorsourceconnector_replication_latency_ms_max{copy} " in text
    assert f"tidemill_mirror_partition_running{labels} 1.0" in text
    assert f"tidemill_mirror_lag_seconds{labels} 0.0" in text
    assert f"tidemill_mirror_records_lost_total{labels} 0.0" in text
    state = f'{{partition="0",source="A",state="running",target="B",topic="{pair.topic}"}}'
    assert f"tidemill_mirror_partition_state{state} 1.0" in text
    assert 'tidemill_mirror_cluster_unreachable_seconds{cluster="B",source="A",target="B"} 0.0' in text
    assert 'tidemill_mirror_cluster_unreachable_seconds{cluster="B",source="A",target="B"} 7.0' in later
    assert 'tidemill_mirror_troubles{kind="cluster",source="A",target="B"} 1.0' in later
    assert 'tidemill_mirror_troubles{kind="topic",source="A",target="B"} 1.0' in later
    assert f"tidemill_mirror_partition_running{labels} 0.0" in later


async def test_a_quiet_flow_is_quiet(pair: Pair) -> None:
    await pair.create(partitions=1)
    clock = ManualClock()
    async with mirroring(pair) as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
        progress = Progress(flow, clock)
        with capture_logs() as lines:
            await progress.report()
            await progress.report()
            await pair.write(0, [b"x"])
            await until(lambda: sum(e.link.progress.batches for e in flow.entries.values()) == 1, "nothing arrives")
            clock.advance(1000)
            await progress.report()
    found = [line for line in lines if line["event"] == "progress"]
    assert [line["batches"] for line in found] == [0, 1]
    assert found[1]["lag"] == 0
    assert found[1]["partitions"] == {"running": 1}
