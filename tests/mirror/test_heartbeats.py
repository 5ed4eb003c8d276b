"""Heartbeats land in the target, readable as MirrorMaker 2's."""

import pytest

from tests.mirror.conftest import Pair, read_records
from tidemill.core.runtime.clock import ManualClock
from tidemill.mirror.formats import Heartbeat
from tidemill.mirror.heartbeats import Heartbeats
from tidemill.mirror.naming import HEARTBEATS

pytestmark = pytest.mark.integration


async def test_each_beat_is_a_record(pair: Pair) -> None:
    clock = ManualClock(1_700_000_000_000)
    heartbeats = Heartbeats(pair.config().flow("A", "B"), pair.target, clock)
    await heartbeats.beat()
    clock.advance(1000)
    await heartbeats.beat()
    rows = await read_records(pair.target, HEARTBEATS)
    found = [Heartbeat.decode(row.key or b"", row.value or b"") for row in rows]
    expected = [
        Heartbeat(source_alias="A", target_alias="B", timestamp_ms=1_700_000_000_000 + late) for late in (0, 1000)
    ]
    assert found[-2:] == expected
