"""Progress lines and metrics of a flow."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from tests.mirror.conftest import Pair
from tests.mirror.test_flow import caught_up, mirroring, until
from tidemill.core.runtime.clock import ManualClock
from tidemill.mirror.progress import FlowCollector, Progress

pytestmark = pytest.mark.integration


async def test_metrics_are_read_off_the_machines(pair: Pair) -> None:
    await pair.create(partitions=1)
    await pair.write(0, [b"x"] * 3)
    async with mirroring(pair) as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
        registry = CollectorRegistry()
        registry.register(FlowCollector([flow]))
        text = generate_latest(registry).decode()
    labels = f'{{partition="0",source="A",target="B",topic="{pair.topic}"}}'
    assert f"tidemill_mirror_lag_records{labels} 0.0" in text
    assert f"tidemill_mirror_batches_total{labels} 1.0" in text
    assert f"tidemill_mirror_partition_running{labels} 1.0" in text


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
