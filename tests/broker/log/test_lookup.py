"""Offsets by time against a scan of all records"""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.log.log_world import NOW_MS, LogWorld
from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.segment_files import segment_name
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord

BASE = NOW_MS - 100_000


@given(
    st.lists(st.lists(st.integers(0, 200), min_size=1, max_size=5), max_size=25),
    st.integers(0, 60),
    st.booleans(),
    st.sampled_from(["none", "gzip"]),
)
@settings(max_examples=60)
def test_lookups_find_what_a_scan_finds(times: list[list[int]], log_start: int, reopen: bool, codec: str) -> None:
    async def scenario() -> None:
        world = LogWorld(SimulatedDisk().root, LogConfig(segment_bytes=600, index_interval_bytes=150))
        log = world.open()
        records: list[tuple[int, int]] = []
        for batch_times in times:
            data = build_batch([NewRecord(BASE + time, None, b"v" * 20) for time in batch_times], codec=codec)
            result = log.append(data, now_ms=NOW_MS)
            await log.durable(result.last_offset)
            records += [(BASE + time, len(records) + number) for number, time in enumerate(batch_times)]
        if reopen:
            log.detach()
            log.finish()
            log = world.open(clean=True, recovery_point=log.recovery_point)
        log.advance_log_start(min(log_start, len(records)))
        visible = records[log.log_start_offset :]
        for time in range(BASE - 1, BASE + 202, 7):
            expected = next(((t, o) for t, o in visible if t >= time), None)
            assert log.offset_for_timestamp(time) == expected
        largest = max((t for t, _ in visible), default=None)
        first = next(((t, o) for t, o in visible if t == largest), None)
        assert log.offset_of_max_timestamp() == first

    asyncio.run(scenario())


async def test_records_that_are_not_visible_are_not_found() -> None:
    log = LogWorld(SimulatedDisk().root).open()
    first = log.append(build_batch([NewRecord(BASE, None, b"a")]), now_ms=NOW_MS)
    await log.durable(first.last_offset)
    log.append(build_batch([NewRecord(BASE + 5, None, b"b")]), now_ms=NOW_MS)
    assert log.offset_for_timestamp(BASE + 1) is None
    assert log.offset_of_max_timestamp() == (BASE, 0)


@pytest.mark.parametrize("damaged", [0, 1])
async def test_a_damaged_batch_is_passed_over(damaged: int) -> None:
    disk = SimulatedDisk()
    world = LogWorld(disk.root, LogConfig(index_interval_bytes=1))
    log = world.open()
    for number in range(3):
        data = build_batch([NewRecord(BASE + number, None, b"a" * 40)])
        await log.durable(log.append(data, now_ms=NOW_MS).last_offset)
    size = log.size_bytes // 3
    log.detach()
    log.finish()
    disk.root.open(segment_name(0)).write_at(damaged * size + 75, b"\xff")
    log = world.open(clean=True, recovery_point=3)
    assert log.offset_for_timestamp(BASE + damaged) == (BASE + damaged + 1, damaged + 1)
