"""Offsets by time against a scan of all records"""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.log.log_world import NOW_MS, LogWorld, look_up, run
from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.lookup import Search, first_at_or_after, with_max_timestamp
from tidemill.broker.log.segment_files import segment_name
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord

BASE = NOW_MS - 100_000


@given(
    st.lists(st.lists(st.integers(0, 200), min_size=1, max_size=5), max_size=25),
    st.integers(0, 60),
    st.sampled_from(["open", "reopened", "indexes forgotten", "index files lost"]),
    st.sampled_from(["none", "gzip"]),
)
@settings(max_examples=60)
def test_lookups_find_what_a_scan_finds(times: list[list[int]], log_start: int, state: str, codec: str) -> None:
    async def scenario() -> None:
        world = LogWorld(SimulatedDisk().root, LogConfig(segment_bytes=600, index_interval_bytes=150))
        log = world.open()
        records: list[tuple[int, int]] = []
        for batch_times in times:
            data = build_batch([NewRecord(BASE + time, None, b"v" * 20) for time in batch_times], codec=codec)
            result = log.append(data, now_ms=NOW_MS)
            await log.durable(result.last_offset)
            records += [(BASE + time, len(records) + number) for number, time in enumerate(batch_times)]
        if state != "open":
            log.detach()
            log.finish()
            if state == "index files lost":
                for name in world.directory.list():
                    if name.endswith("index"):
                        world.directory.remove(name)
            log = world.open(clean=True, recovery_point=log.recovery_point)
        if state == "indexes forgotten":
            for segment in log.segments[:-1]:
                segment.indexes.forget()
        log.advance_log_start(min(log_start, len(records)))
        visible = records[log.log_start_offset :]
        for time in range(BASE - 1, BASE + 202, 7):
            expected = next(((t, o) for t, o in visible if t >= time), None)
            assert look_up(log, time) == expected
        largest = max((t for t, _ in visible), default=None)
        first = next(((t, o) for t, o in visible if t == largest), None)
        assert run(with_max_timestamp(log.view())) == first

    asyncio.run(scenario())


async def test_records_that_are_not_visible_are_not_found() -> None:
    log = LogWorld(SimulatedDisk().root).open()
    first = log.append(build_batch([NewRecord(BASE, None, b"a")]), now_ms=NOW_MS)
    await log.durable(first.last_offset)
    log.append(build_batch([NewRecord(BASE + 5, None, b"b")]), now_ms=NOW_MS)
    assert look_up(log, BASE + 1) is None
    assert run(with_max_timestamp(log.view())) == (BASE, 0)


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
    assert look_up(log, BASE + damaged) == (BASE + damaged + 1, damaged + 1)


def steps(search: Search) -> int:
    return sum(1 for _ in search)


@pytest.mark.parametrize("group_commit", [True, False])
async def test_the_largest_timestamp_is_known_without_a_walk(group_commit: bool) -> None:
    log = LogWorld(SimulatedDisk().root, group_commit=group_commit).open()
    for number in range(3000):
        last = log.append(build_batch([NewRecord(BASE + number, None, b"a")]), now_ms=NOW_MS)
    await log.durable(last.last_offset)
    log.append(build_batch([NewRecord(BASE + 5000, None, b"b")]), now_ms=NOW_MS)
    newest = (BASE + 2999, 2999) if group_commit else (BASE + 5000, 3000)
    assert run(with_max_timestamp(log.view())) == newest
    assert steps(with_max_timestamp(log.view())) < 5


@pytest.mark.parametrize("group_commit", [True, False])
@given(
    st.lists(
        st.one_of(st.lists(st.integers(0, 50), min_size=1, max_size=3), st.sampled_from(["flush", "roll", "delete"])),
        max_size=30,
    )
)
@settings(max_examples=60)
def test_the_largest_visible_timestamp_through_rolls_flushes_and_deletions(
    group_commit: bool, events: list[list[int] | str]
) -> None:
    async def scenario() -> None:
        log = LogWorld(SimulatedDisk().root, group_commit=group_commit).open()
        records: list[tuple[int, int]] = []
        for event in events:
            if event == "flush":
                await log.durable(log.log_end_offset - 1)
            elif event == "roll":
                log.roll()
            elif event == "delete":
                log.advance_log_start((log.log_start_offset + log.committed_offset + 1) // 2)
            else:
                log.append(build_batch([NewRecord(BASE + time, None, b"v") for time in event]), now_ms=NOW_MS)
                records += [(BASE + time, len(records) + number) for number, time in enumerate(event)]
            visible = records[log.log_start_offset : log.committed_offset]
            expected = max(visible, key=lambda record: (record[0], -record[1]), default=None)
            assert run(with_max_timestamp(log.view())) == expected

    asyncio.run(scenario())


@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_of_a_large_batch_no_more_is_read_than_needed(codec: str) -> None:
    log = LogWorld(SimulatedDisk().root).open()
    data = build_batch([NewRecord(BASE + number, None, None) for number in range(5000)], codec=codec)
    await log.durable(log.append(data, now_ms=NOW_MS).last_offset)
    assert look_up(log, BASE + 4321) == (BASE + 4321, 4321)
    assert steps(first_at_or_after(log.view(), BASE + 10)) < steps(first_at_or_after(log.view(), BASE + 4321)) < 10


async def test_an_index_that_leads_astray_is_not_believed() -> None:
    disk = SimulatedDisk()
    world = LogWorld(disk.root, LogConfig(segment_bytes=2000, index_interval_bytes=150))
    log = world.open()
    for number in range(40):
        data = build_batch([NewRecord(BASE + number, None, b"a" * 40)])
        await log.durable(log.append(data, now_ms=NOW_MS).last_offset)
    log.detach()
    log.finish()
    name = segment_name(0, ".index")
    entry = disk.root.read(name)[8:16]
    disk.root.open(name).write_at(8, entry[:7] + bytes([entry[7] ^ 4]))
    log = world.open(clean=True, recovery_point=40)
    for number in range(40):
        assert look_up(log, BASE + number) == (BASE + number, number)
