"""Ends of logs cut off, against the list of batches that is left

What a power cut may do in between is tried in `tests/sim/test_log_store.py`.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.log.log_world import NOW_MS, TOPIC_ID, batch, look_up, payload, read_all
from tests.sim.disk import SimulatedDisk
from tidemill.broker.log import truncation
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.markers import Marker, encode
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.log.store import LogStore
from tidemill.core.errors import (
    CorruptMessage,
    KafkaStorageError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
)
from tidemill.core.records.batch import BatchView, iter_batches, stamp
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.runtime.clock import ManualClock
from tidemill.core.runtime.disk import MAPPED_READ_BYTES_MIN

SMALL = LogConfig(segment_bytes=700, index_interval_bytes=100, file_delete_delay_ms=0)


@contextlib.asynccontextmanager
async def opened(disk: SimulatedDisk, config: LogConfig = SMALL) -> AsyncIterator[tuple[LogStore, PartitionLog]]:
    """A store with one log, made if it is not there; closed in order."""
    store = LogStore(disk.root, clock=ManualClock(NOW_MS), node_id=1)
    store.open_all(lambda _topic: config)
    try:
        log = store.get("t", 0) or store.create("t", TOPIC_ID, 0, config)
        yield store, log
    finally:
        await store.close()


def append(log: PartitionLog, count: int = 1, epoch: int = 0, **more: object) -> int:
    """The base offset."""
    return log.append(batch(count, **more), now_ms=NOW_MS, leader_epoch=epoch).base_offset  # type: ignore[arg-type]


def replicated(offset: int, count: int = 1, epoch: int = 0, **more: object) -> bytes:
    data = bytearray(batch(count, **more))  # type: ignore[arg-type]
    stamp(data, 0, offset, epoch)
    return bytes(data)


async def test_nothing_of_what_was_cut_off_is_left_anywhere() -> None:
    disk = SimulatedDisk()
    async with opened(disk) as (store, log):
        for number in range(30):
            append(log, 2, epoch=number // 10, timestamp=NOW_MS + number, producer=(1, 0, 2 * number))
        await log.durable(log.log_end_offset - 1)
        assert len(log.segments) > 4
        assert await store.truncate(log, 25, unclean=True) == 24
        assert (log.log_end_offset, log.held_offset, log.committed_offset) == (24, 24, 24)
        assert [view.base_offset for view in read_all(log)] == list(range(0, 24, 2))
        assert log.epochs.entries() == [(0, 0), (1, 20)]
        assert look_up(log, NOW_MS + 13) is None
        assert look_up(log, NOW_MS + 12) == (NOW_MS + 12, 23)
        with pytest.raises(OutOfOrderSequenceNumber):
            append(log, 2, producer=(1, 0, 30))
        assert append(log, 2, epoch=5, producer=(1, 0, 24)) == 24
        assert log.epochs.entries() == [(0, 0), (1, 20), (5, 24)]
        await log.durable(25)
        names = disk.root.subdirectory("t-0").list()
        assert [name for name in names if name[:20].isdigit() and int(name[:20]) > 26 and "deleted" not in name] == []
    async with opened(disk) as (_, log):
        assert [view.base_offset for view in read_all(log)] == list(range(0, 26, 2))
        assert log.epochs.entries() == [(0, 0), (1, 20), (5, 24)]


async def test_what_is_committed_goes_only_if_that_is_said() -> None:
    async with opened(SimulatedDisk()) as (store, log):
        append(log, 5)
        await log.durable(4)
        append(log, 5)
        for offset in (0, 4, 11):
            with pytest.raises(OffsetOutOfRange):
                await store.truncate(log, offset)
        assert await store.truncate(log, 10) == 10
        assert await store.truncate(log, 7) == 5
        assert await store.truncate(log, 3, unclean=True) == 0
        assert read_all(log) == []
        with pytest.raises(NotLeaderOrFollower):
            await log.durable(4)


async def test_nothing_is_appended_while_the_end_is_being_cut_off() -> None:
    async with opened(SimulatedDisk()) as (store, log):
        append(log, 5)
        append(log, 5)
        waiting = asyncio.ensure_future(log.durable(9))
        cutting = asyncio.ensure_future(store.truncate(log, 5, unclean=True))
        await asyncio.sleep(0)
        with pytest.raises(NotLeaderOrFollower):
            append(log)
        with pytest.raises(KafkaStorageError, match="already"):
            await store.truncate(log, 5, unclean=True)
        await cutting
        with contextlib.suppress(NotLeaderOrFollower):  # it may have been durable before
            await asyncio.wait_for(waiting, 10)
        assert append(log) == 5


async def test_who_is_cancelled_leaves_no_log_half_cut() -> None:
    """A follower is cancelled whenever its leader changes, and who follows next has to find a log that goes on."""
    for steps in range(12):
        disk = SimulatedDisk()
        async with opened(disk) as (store, log):
            for number in range(8):
                append(log, 5, producer=(1, 0, 5 * number))
            await log.durable(39)
            cutting = asyncio.ensure_future(store.truncate(log, 20, unclean=True))
            for _ in range(steps):
                await asyncio.sleep(0)
            cutting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                assert await cutting == 20
            assert not log.cutting
            end = log.log_end_offset
            assert end == (20 if log.cuts else 40)
            assert append(log, 5, epoch=1, producer=(1, 0, end)) == end
            await log.durable(end)
            assert log.directory.open("00000000000000000000.log").size() == log.segments[0].size_bytes
        async with opened(disk) as (_, log):
            assert log.log_end_offset == end + 5
            assert log.epochs.entries() == [(0, 0), (1, end)]


async def test_the_checkpoints_are_lowered_before_anything_goes() -> None:
    disk = SimulatedDisk()
    async with opened(disk) as (store, log):
        for _ in range(10):
            append(log, 5)
        await log.durable(49)
        await store.checkpoint()
        assert store.checkpointed_offset(log.topic_partition) == 50
        await store.truncate(log, 20, unclean=True)
        assert store.checkpointed_offset(log.topic_partition) <= 20
        assert store.high_watermarks[log.topic_partition] <= 20


async def test_a_full_disk_leaves_everything_as_it_was() -> None:
    disk = SimulatedDisk()
    async with opened(disk) as (store, log):
        append(log, 5)
        await log.durable(4)
        await store.checkpoint()
        disk.capacity_bytes = disk.used_bytes()
        with pytest.raises(KafkaStorageError):
            await store.truncate(log, 0, unclean=True)
        disk.capacity_bytes = None
        assert (log.log_end_offset, log.cutting) == (5, False)
        assert append(log) == 5
        assert await store.truncate(log, 5, unclean=True) == 5


async def test_a_log_that_could_not_be_cut_takes_nothing_more() -> None:
    disk = SimulatedDisk()
    failures: list[OSError] = []
    store = LogStore(disk.root, clock=ManualClock(NOW_MS), node_id=1, on_failure=failures.append)
    store.open_all()
    log = store.create("t", TOPIC_ID, 0, SMALL)
    append(log, 5)
    append(log, 5)
    await log.durable(9)
    disk.fail_sync = OSError(5, "Input/output error")
    with pytest.raises(KafkaStorageError):
        await store.truncate(log, 5, unclean=True)
    assert failures
    with pytest.raises((NotLeaderOrFollower, KafkaStorageError)):
        append(log)
    await store.close()


async def test_bytes_that_are_still_being_sent_keep_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads a map behind the end of its file is killed."""
    monkeypatch.setattr(truncation, "VIEWS_LOOKED_AT_MAX", 2)
    store = LogStore.at(str(tmp_path), clock=ManualClock(NOW_MS), node_id=1)
    store.open_all()
    log = store.create("t", TOPIC_ID, 0, LogConfig())
    for _ in range(2):
        append(log, value_bytes=2 * MAPPED_READ_BYTES_MIN)
    await log.durable(1)
    sent = log.read(0, 2**20)
    assert isinstance(sent, memoryview)
    with pytest.raises(KafkaStorageError, match="still being sent"):
        await store.truncate(log, 1, unclean=True)
    assert len(list(iter_batches(bytes(sent)))) == 2
    assert log.log_end_offset == 2
    del sent
    assert await store.truncate(log, 1, unclean=True) == 1
    assert len(read_all(log)) == 1
    await store.close()


async def test_a_follower_stores_what_its_leader_has() -> None:
    disk = SimulatedDisk()
    async with opened(disk) as (_, log):
        sent = replicated(0, 3, 1, producer=(7, 0, 0)) + replicated(3, 1, 2) + replicated(9, 2, 2)
        log.append_at(0, sent, now_ms=NOW_MS)
        assert log.log_end_offset == 11
        for offset, data in ((0, sent), (10, replicated(10)), (11, replicated(10)), (11, replicated(11, epoch=1))):
            with pytest.raises((OffsetOutOfRange, CorruptMessage)):
                log.append_at(offset, data, now_ms=NOW_MS)
        assert log.log_end_offset == 11
        await log.durable(10)
        assert b"".join(bytes(view.batch_bytes()) for view in read_all(log)) == sent
        assert log.epochs.entries() == [(1, 0), (2, 3)]
        state = log.producers.get(7)
        assert state is not None
        assert state.last_sequence == 2
    disk.kill()
    async with opened(disk) as (_, log):
        assert [view.base_offset for view in read_all(log)] == [0, 3, 9]


async def test_a_marker_that_cannot_be_read_is_stored_as_the_leader_has_it_and_ends_its_transaction() -> None:
    """The leader has nothing better, and whoever refuses it is out of sync for ever."""
    async with opened(SimulatedDisk()) as (_, log):
        log.append_at(0, _transactional(7, 0), now_ms=NOW_MS)
        assert log.producers.first_undecided(0) == 0
        end = log.log_end_offset
        nothing_said = NewRecord(NOW_MS, struct.pack(">hh", 0, 1), b"")
        marker = bytearray(
            build_batch([nothing_said], producer_id=7, producer_epoch=0, transactional=True, control=True)
        )
        stamp(marker, 0, end, 1)
        log.append_at(end, bytes(marker), now_ms=NOW_MS)
        assert (log.log_end_offset, log.leader_epoch) == (end + 1, 1)
        await log.durable(end)
        assert log.producers.first_undecided(end + 1) is None


async def test_transactions_end_by_markers_of_either_kind() -> None:
    async with opened(SimulatedDisk()) as (store, log):
        append(log, 3)
        for producer_id in (7, 8):
            log.append_at(log.log_end_offset, _transactional(producer_id, log.log_end_offset), now_ms=NOW_MS)
        assert log.producers.first_undecided(0) == 3
        found = log.append_marker(Marker(True, 4), producer_id=7, producer_epoch=0, now_ms=NOW_MS)
        assert found.base_offset == 7
        assert log.producers.first_undecided(7) == 3, "the marker itself is not committed"
        assert log.producers.first_undecided(8) == 5
        marker = bytearray(encode(Marker(False, 4), producer_id=8, producer_epoch=1, now_ms=NOW_MS))
        stamp(marker, 0, 8, 0)
        log.append_at(8, marker, now_ms=NOW_MS)
        assert log.producers.first_undecided(9) is None
        assert await store.truncate(log, 8, unclean=True) == 8
        assert log.producers.first_undecided(8) == 5
        append(log, 2, producer=(9, 0, 0))  # outside of a transaction
        assert log.producers.first_undecided(20) == 5


def _transactional(producer_id: int, offset: int) -> bytes:
    records = [NewRecord(NOW_MS, None, b"x")] * 2
    return build_batch(
        records,
        base_offset=offset,
        leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


async def test_how_transactions_ended_is_forgotten_where_nobody_asks() -> None:
    async with opened(SimulatedDisk()) as (_, log):
        for _ in range(10):
            begun = log.log_end_offset
            log.append_at(begun, _transactional(7, begun), now_ms=NOW_MS)
            marker = bytearray(encode(Marker(False, 4), producer_id=7, producer_epoch=0, now_ms=NOW_MS))
            stamp(marker, 0, begun + 2, 0)
            log.append_at(begun + 2, marker, now_ms=NOW_MS)
            await log.durable(begun + 2)
        assert log.producers.first_undecided(0) == begun


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 4), st.integers(0, 1)),
            st.tuples(st.just("follow"), st.integers(1, 4), st.integers(0, 3)),
            st.tuples(st.just("cut"), st.integers(0, 60), st.integers(0, 0)),
            st.tuples(st.just("flush"), st.integers(0, 0), st.integers(0, 0)),
            st.tuples(st.just("restart"), st.integers(0, 1), st.integers(0, 0)),
        ),
        max_size=40,
    )
)
def test_a_log_is_the_list_of_its_batches(actions: list[tuple[str, int, int]]) -> None:
    asyncio.run(_played(actions))


async def _played(actions: list[tuple[str, int, int]]) -> None:
    disk, model, epoch = SimulatedDisk(), list[tuple[int, int, int, bytes]](), 0
    lives: list[list[tuple[str, int, int]]] = [[]]
    for action in actions:
        lives[-1].append(action)
        if action[0] == "restart":
            lives.append([])
    for life in lives:
        async with opened(disk, LogConfig(segment_bytes=400, index_interval_bytes=50, file_delete_delay_ms=0)) as (
            store,
            log,
        ):
            _check(log, model)
            for kind, size, more in life:
                if kind == "append":
                    epoch += more
                    data = batch(size, timestamp=NOW_MS + len(model))
                    offset = log.append(data, now_ms=NOW_MS, leader_epoch=epoch).base_offset
                    model.append((offset, offset + size, epoch, payload(BatchView(data))))
                elif kind == "follow":
                    offset = log.log_end_offset + more
                    data = replicated(offset, size, epoch)
                    log.append_at(log.log_end_offset, data, now_ms=NOW_MS)
                    model.append((offset, offset + size, epoch, payload(BatchView(data))))
                elif kind == "cut" and size <= log.log_end_offset:
                    end = await store.truncate(log, size, unclean=True)
                    model = [each for each in model if each[1] <= size]
                    assert end == (model[-1][1] if model else 0) or size == log.log_end_offset
                elif kind == "flush" and log.log_end_offset:
                    await log.durable(log.log_end_offset - 1)
            if log.log_end_offset > log.held_offset:
                await log.durable(log.log_end_offset - 1)
            _check(log, model)


def _check(log: PartitionLog, model: list[tuple[int, int, int, bytes]]) -> None:
    found = [(view.base_offset, view.next_offset, view.leader_epoch, payload(view)) for view in read_all(log)]
    assert found == model
    assert [log.epochs.epoch_at(offset) for offset, *_ in model] == [epoch for _, _, epoch, _ in model]
    assert log.log_end_offset == (model[-1][1] if model else 0)
