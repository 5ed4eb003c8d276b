"""An outage has a beginning and an end."""

import asyncio

import pytest

from tests.mirror.conftest import Pair
from tests.mirror.test_flow import until
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.runtime.clock import ManualClock
from tidemill.mirror import probing
from tidemill.mirror.probing import ClusterProbe

pytestmark = pytest.mark.integration


async def test_an_outage_is_seen_and_its_end_too(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "PROBE_SECONDS", 0.01)
    addresses = ["127.0.0.1:1"]
    clock = ManualClock()
    probe = ClusterProbe(lambda: ClusterClient(addresses[0], clock=ManualClock()), clock)
    assert (probe.reason, probe.unreachable_seconds) == ("", 0.0)
    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(probe.run())
        await until(lambda: "127.0.0.1:1: cannot connect" in probe.reason, "the outage is not seen")
        clock.advance(5000)
        assert probe.unreachable_seconds == 5.0
        addresses[0] = pair.a
        await until(lambda: not probe.reason, "its end is not seen")
        assert probe.unreachable_seconds == 0.0
        work.cancel()
