"""The partition log against a list of batches, with crashes, full disks and damage"""

import asyncio
import errno
import random
from pathlib import Path

import pytest

from tests.broker.log.log_world import NOW_MS, LogWorld, batch, look_up, payload, read_all, run
from tests.sim.disk import SimulatedDisk, SimulatedFile
from tidemill.broker.log.appended import StoredBefore
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.lookup import with_max_timestamp
from tidemill.broker.log.partition import INDEXES_KEPT_MAX, PartitionLog
from tidemill.broker.log.segment_files import segment_name
from tidemill.core.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaStorageError,
    MessageTooLarge,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
)
from tidemill.core.records.batch import BatchView, iter_batches
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, decode_records
from tidemill.core.runtime.disk import OsDirectory

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=200)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def world(disk: SimulatedDisk) -> LogWorld:
    return LogWorld(disk.root, SMALL)


async def append(log: PartitionLog, data: bytes, now_ms: int = NOW_MS, **more: int) -> int:
    """Append and wait until it may be acknowledged; returns the base offset."""
    result = log.append(data, now_ms=now_ms, **more)
    await log.durable(result.last_offset)
    return result.base_offset


async def test_offsets_follow_one_another_and_batches_come_back_as_they_were(world: LogWorld) -> None:
    log = world.open()
    sent = [batch(count, value_bytes=50) for count in (1, 3, 7, 2, 9, 4) * 5]
    offsets = [await append(log, data) for data in sent]
    assert offsets == [sum(BatchView(data).record_count for data in sent[:number]) for number in range(len(sent))]
    views = read_all(log)
    assert [view.base_offset for view in views] == offsets
    assert [payload(view) for view in views] == [payload(BatchView(data)) for data in sent]
    assert all(view.leader_epoch == 0 and view.verify_crc() for view in views)
    assert len(log.segments) > 1


async def test_what_is_not_durable_is_not_visible(world: LogWorld, disk: SimulatedDisk) -> None:
    log = world.open()
    result = log.append(batch(3), now_ms=NOW_MS)
    assert (log.log_end_offset, log.committed_offset) == (3, 0)
    assert log.read(0, 1000) == b""
    syncs = disk.syncs
    await log.durable(result.last_offset)
    assert disk.syncs > syncs
    assert log.committed_offset == 3
    assert [view.record_count for view in read_all(log)] == [3]


async def test_under_the_policy_os_appends_are_visible_at_once_and_not_synced(disk: SimulatedDisk) -> None:
    log = LogWorld(disk.root, SMALL, group_commit=False).open()
    syncs = disk.syncs
    result = log.append(batch(3), now_ms=NOW_MS)
    assert log.pending(result.last_offset) is None
    assert (log.committed_offset, disk.syncs) == (3, syncs)


async def test_flush_messages_makes_the_policy_os_sync_in_the_background(disk: SimulatedDisk) -> None:
    config = LogConfig(flush_messages=4)
    log = LogWorld(disk.root, config, group_commit=False).open()
    log.append(batch(3), now_ms=NOW_MS)
    await asyncio.sleep(0)
    assert log.recovery_point == 0
    log.append(batch(3), now_ms=NOW_MS)
    for _ in range(5):
        await asyncio.sleep(0)
    assert log.recovery_point == 6


async def test_flush_ms_counts_from_the_first_append_and_survives_a_clock_that_goes_back(disk: SimulatedDisk) -> None:
    log = LogWorld(disk.root, LogConfig(flush_ms=1000), group_commit=False).open()
    assert not log.flush_is_due(NOW_MS + 5000), "nothing to flush"
    log.append(batch(1), now_ms=NOW_MS + 5000)
    assert not log.flush_is_due(NOW_MS + 5999)
    assert log.flush_is_due(NOW_MS + 6000)
    assert not log.flush_is_due(NOW_MS - 3_600_000)
    assert log.flush_is_due(NOW_MS - 3_600_000 + 1000)


async def test_appends_of_one_turn_share_one_round_of_fsync(world: LogWorld, disk: SimulatedDisk) -> None:
    log = world.open()
    await append(log, batch())
    syncs = disk.syncs
    results = [log.append(batch(), now_ms=NOW_MS) for _ in range(5)]
    await asyncio.gather(*(log.durable(result.last_offset) for result in results))
    assert disk.syncs == syncs + 1


async def test_reads_cut_on_batches_but_give_at_least_one(world: LogWorld) -> None:
    log = world.open()
    for _ in range(6):
        await append(log, batch(2, value_bytes=100))
    size = BatchView(bytes(log.read(0, 1))).size_bytes
    assert len(log.read(0, 1)) == size
    assert log.read(0, size - 1, at_least_one=False) == b""
    assert len(log.read(0, 2 * size + 5)) == 2 * size
    assert [view.base_offset for view in iter_batches(bytes(log.read(3, 1)))] == [2], "the batch that has the offset"


async def test_offsets_outside_of_the_log_are_refused(world: LogWorld) -> None:
    log = world.open()
    await append(log, batch(4))
    for offset in (-1, 5):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 100)
    assert log.read(4, 100) == b""
    assert log.advance_log_start(2)
    with pytest.raises(OffsetOutOfRange):
        log.read(1, 100)
    with pytest.raises(OffsetOutOfRange):
        log.advance_log_start(5)


async def test_bad_batches_are_refused_and_leave_no_trace(world: LogWorld) -> None:
    log = world.open()
    good = batch(2)
    flipped = bytearray(good)
    flipped[-1] ^= 1
    cases = [
        (bytes(flipped), CorruptMessage),
        (good[:-1], InvalidRecord),
        (good + good, InvalidRecord),
        (b"", InvalidRecord),
        (batch(1, value_bytes=2_000_000), MessageTooLarge),
        (batch(1, timestamp=NOW_MS + 3_600_100), InvalidTimestamp),
    ]
    for data, error in cases:
        with pytest.raises(error):
            log.append(data, now_ms=NOW_MS)
    assert (log.log_end_offset, log.size_bytes) == (0, 0)
    assert await append(log, good) == 0


async def test_a_compacted_topic_takes_no_record_without_a_key(disk: SimulatedDisk) -> None:
    log = LogWorld(disk.root, LogConfig(cleanup_policy=("compact",))).open()
    with pytest.raises(InvalidRecord, match="no key"):
        log.append(batch(1), now_ms=NOW_MS)
    keyed = build_batch([NewRecord(NOW_MS, b"k", b"v")], codec="gzip")
    assert log.append(keyed, now_ms=NOW_MS).base_offset == 0


async def test_log_append_time_is_written_into_the_batch(disk: SimulatedDisk) -> None:
    log = LogWorld(disk.root, LogConfig(message_timestamp_type="LogAppendTime")).open()
    result = log.append(batch(2, timestamp=1000), now_ms=NOW_MS)
    await log.durable(result.last_offset)
    (view,) = read_all(log)
    assert view.verify_crc()
    assert (view.timestamp_type, view.max_timestamp, result.append_time_ms) == (1, NOW_MS, NOW_MS)
    assert [record.timestamp for record in decode_records(view)] == [NOW_MS, NOW_MS]
    assert look_up(log, NOW_MS) == (NOW_MS, 0)


async def test_append_time_of_another_log_is_taken_off_again(world: LogWorld) -> None:
    other = LogWorld(SimulatedDisk().root, LogConfig(message_timestamp_type="LogAppendTime")).open()
    await append(other, batch(1, timestamp=1000))
    copied = bytearray(other.read(0, 1000))
    copied[:8] = bytes(8)
    log = world.open()
    await append(log, bytes(copied))
    (view,) = read_all(log)
    assert view.timestamp_type == 0
    assert view.verify_crc()


async def test_a_retry_is_answered_with_the_original_offset(world: LogWorld) -> None:
    log = world.open()
    first = log.append(batch(2, producer=(5, 0, 0)), now_ms=NOW_MS)
    log.append(batch(3, producer=(5, 0, 2)), now_ms=NOW_MS)
    again = log.append(batch(2, producer=(5, 0, 0)), now_ms=NOW_MS)
    assert (again.base_offset, again.last_offset, again.duplicate) == (0, first.last_offset, True)
    assert log.pending(again.last_offset) is not None, "a duplicate is as durable as its original"
    with pytest.raises(OutOfOrderSequenceNumber):
        log.append(batch(1, producer=(5, 0, 9)), now_ms=NOW_MS)
    assert log.log_end_offset == 5


async def test_a_retry_from_long_ago_is_as_durable_as_everything_of_its_producer(world: LogWorld) -> None:
    log = world.open()
    for number in range(10):
        newest = log.append(batch(2, producer=(5, 0, 2 * number)), now_ms=NOW_MS)
    late = batch(2, producer=(5, 0, 0))
    again = log.append(late, now_ms=NOW_MS)
    assert isinstance(again, StoredBefore)
    assert (again.base_offset, again.last_offset, again.duplicate) == (-1, newest.last_offset, True)
    assert isinstance(log.judge(late, now_ms=NOW_MS), StoredBefore)
    assert log.log_end_offset == 20


async def test_duplicates_are_known_after_a_crash(world: LogWorld, disk: SimulatedDisk) -> None:
    log = world.open()
    for number in range(7):
        await append(log, batch(1, producer=(5, 0, number)))
    disk.crash(random.Random(3))
    log = world.open()
    for number in range(2, 7):
        result = log.append(batch(1, producer=(5, 0, number)), now_ms=NOW_MS)
        assert (result.base_offset, result.duplicate) == (number, True)


async def test_a_full_disk_refuses_appends_serves_reads_and_recovers(world: LogWorld, disk: SimulatedDisk) -> None:
    log = world.open()
    await append(log, batch(5))
    disk.capacity_bytes = disk.used_bytes() + 30
    for _ in range(3):
        with pytest.raises(KafkaStorageError, match="no space left"):
            log.append(batch(5), now_ms=NOW_MS)
    assert [view.record_count for view in read_all(log)] == [5]
    disk.capacity_bytes = None
    assert await append(log, batch(2)) == 5
    assert [view.record_count for view in read_all(log)] == [5, 2]
    assert world.failures == []


async def test_a_full_disk_at_a_roll_is_no_failure_of_the_folder(world: LogWorld, disk: SimulatedDisk) -> None:
    log = world.open()
    while len(log.segments) == 1 and log.size_bytes < 1900:
        await append(log, batch(1, value_bytes=100))
    disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(KafkaStorageError):
        log.append(batch(1, value_bytes=100), now_ms=NOW_MS)
    disk.capacity_bytes = None
    end = log.log_end_offset
    assert await append(log, batch(1, value_bytes=100)) == end
    assert world.failures == []
    assert len(read_all(log)) == end + 1


async def test_a_failed_fsync_ends_the_folder(world: LogWorld, disk: SimulatedDisk) -> None:
    log = world.open()
    await append(log, batch(1))
    disk.fail_sync = OSError(errno.EIO, "Input/output error")
    result = log.append(batch(1), now_ms=NOW_MS)
    with pytest.raises(KafkaStorageError):
        await log.durable(result.last_offset)
    disk.fail_sync = None  # the next fsync would succeed and prove nothing
    with pytest.raises(KafkaStorageError):
        log.append(batch(1), now_ms=NOW_MS)
    assert log.committed_offset == 1
    assert [failure.errno for failure in world.failures] == [errno.EIO]


async def test_a_write_error_ends_the_folder(world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    log = world.open()

    def fail(_position: int, _data: bytes) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(log.active.file, "write_at", fail)
    with pytest.raises(KafkaStorageError):
        log.append(batch(1), now_ms=NOW_MS)
    assert len(world.failures) == 1


async def test_damage_is_never_served_and_the_rest_still_is(world: LogWorld, disk: SimulatedDisk) -> None:
    log = world.open()
    for _ in range(20):
        await append(log, batch(2, value_bytes=50))
    size = len(log.read(0, 1))
    in_first = log.segments[0].size_bytes // size
    log.detach()
    log.finish()
    damaged = disk.root.open(segment_name(0))
    byte = damaged.read_at(3 * size + 80, 1)
    damaged.write_at(3 * size + 80, bytes([byte[0] ^ 4]))
    log = world.open(clean=True, recovery_point=40)
    assert len(log.read(0, 10_000)) == 3 * size
    for offset in (6, 7):
        with pytest.raises(CorruptMessage):
            log.read(offset, 10_000)
    assert [view.base_offset for view in iter_batches(bytes(log.read(8, 10_000)))] == list(range(8, 2 * in_first, 2))
    assert log.committed_offset == 40
    assert log.append(batch(1), now_ms=NOW_MS).base_offset == 40


async def test_indexes_of_sealed_segments_are_freed_and_read_again(disk: SimulatedDisk) -> None:
    world = LogWorld(disk.root, LogConfig(segment_bytes=300, index_interval_bytes=50))
    log = world.open()
    for _ in range(30):
        await append(log, batch(1, value_bytes=50))
    assert len(log.segments) > 2 * INDEXES_KEPT_MAX
    for _ in range(2):
        assert len(read_all(log, max_bytes=1)) == 30
        loaded = [segment for segment in log.segments if segment.indexes.in_memory is not None]
        assert len(loaded) <= INDEXES_KEPT_MAX + 1


async def test_of_a_segment_just_sealed_the_largest_time_is_not_forgotten(disk: SimulatedDisk) -> None:
    world = LogWorld(disk.root, LogConfig(index_interval_bytes=300))
    log = world.open()

    async def fill(count: int, time_ms: int) -> None:
        for number in range(count):
            log.append(batch(1, timestamp=time_ms + number), now_ms=NOW_MS)
        await log.durable(log.log_end_offset - 1)

    for number in range(5):
        await fill(20, NOW_MS + 100 * number)
        log.roll()
    await fill(21, NOW_MS + 500)
    write = log.take_index_writes()
    assert write is not None
    write()
    await fill(1, NOW_MS + 600)  # too little for an entry of its own
    log.roll()
    for segment in (log.segments[-2], *log.segments[:5]):  # as others do that are behind, while a round is under way
        assert log.read(segment.base_offset, 1)
    await fill(1, NOW_MS + 900)
    assert look_up(log, NOW_MS + 600) == (NOW_MS + 600, 121)


async def test_the_newest_bytes_are_never_looked_at_for_being_cold(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.open()
    await append(log, batch(2))
    monkeypatch.setattr(SimulatedFile, "is_cached", lambda *_: False)
    assert log.cold(0, 100) is None
    log.detach()
    log.finish()
    monkeypatch.setattr("tidemill.broker.log.partition.HOT_BYTES", 1000)
    log = world.open(clean=True, recovery_point=2)
    await append(log, batch(2))
    assert log.cold(2, 100) is None
    prefetch = log.cold(0, 100)
    assert prefetch is not None
    prefetch()
    assert log.cold(4, 100) is None
    assert log.cold(9, 100) is None
    for _ in range(40):
        await append(log, batch(1, value_bytes=60))
    cold = [offset for offset in range(44) if log.cold(offset, 100) is not None]
    assert cold == list(range(cold[-1] + 1))
    assert 1000 <= (44 - cold[-1]) * len(batch(1, value_bytes=60)) <= 2200


async def test_an_owner_hears_of_what_is_held_and_commits(world: LogWorld) -> None:
    log = world.open()
    heard: list[int] = []
    log.own(lambda: heard.append(log.held_offset))
    await append(log, batch(2))
    await append(log, batch(2))
    assert (heard, log.held_offset, log.committed_offset) == ([2, 4], 4, 0)
    assert log.read(0, 1000) == b"", "nothing is committed"
    log.commit(log.position_of(2))
    assert [view.base_offset for view in read_all(log)] == [0]
    assert [view.base_offset for view in iter_batches(log.read(0, 1000, log.held))] == [0, 2], "to any bound"
    assert log.read(0, 1000, log.position_of(3)) == log.read(0, 1000), "of whole batches only"
    with pytest.raises(OffsetOutOfRange):
        log.advance_log_start(3)


async def test_what_is_not_committed_is_not_searched(world: LogWorld) -> None:
    log = world.open()
    log.own(lambda: None)
    for timestamp in (NOW_MS, NOW_MS + 500, NOW_MS + 100):
        await append(log, batch(1, timestamp=timestamp))
    log.commit(log.position_of(1))
    assert run(with_max_timestamp(log.view())) == (NOW_MS, 0)
    assert look_up(log, NOW_MS + 100) is None
    log.commit(log.position_of(2))
    assert run(with_max_timestamp(log.view())) == (NOW_MS + 500, 1)
    assert look_up(log, NOW_MS + 100) == (NOW_MS + 500, 1)


async def test_a_closed_log_refuses_everything_and_tells_its_owner(world: LogWorld) -> None:
    log = world.open()
    heard: list[bool] = []
    log.own(lambda: heard.append(log.closed))
    log.detach()
    assert heard == [True]
    with pytest.raises(KafkaStorageError):
        log.append(batch(1), now_ms=NOW_MS)
    with pytest.raises(KafkaStorageError):
        log.read(0, 1)


async def test_a_segment_is_rolled_by_age(world: LogWorld) -> None:
    world.config = LogConfig(segment_ms=1000)
    log = world.open()
    await append(log, batch(1), NOW_MS)
    await append(log, batch(1), NOW_MS + 1000)
    assert len(log.segments) == 1
    await append(log, batch(1), NOW_MS + 1001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


async def test_leader_epochs_are_stamped_and_kept(world: LogWorld, disk: SimulatedDisk) -> None:
    log = world.open()
    await append(log, batch(2), leader_epoch=1)
    await append(log, batch(2), leader_epoch=4)
    assert log.epochs.entries() == [(1, 0), (4, 2)]
    assert [view.leader_epoch for view in read_all(log)] == [1, 4]
    disk.crash(random.Random(1))
    assert world.open().epochs.entries() == [(1, 0), (4, 2)]


@pytest.mark.parametrize("timestamps", ["CreateTime", "LogAppendTime"])
async def test_a_batch_that_a_full_disk_refuses_is_as_it_was(timestamps: str) -> None:
    """Who gave it to the log may try again, or ask another what is wrong with it."""
    disk = SimulatedDisk()
    log = LogWorld(disk.root, LogConfig(message_timestamp_type=timestamps)).open()
    await log.durable(log.append(bytearray(batch(3)), now_ms=NOW_MS).last_offset)
    disk.capacity_bytes = disk.used_bytes()
    data = bytearray(batch(2))
    for _ in range(2):
        with pytest.raises(KafkaStorageError):
            log.append(data, now_ms=NOW_MS)
        assert data == batch(2)
    disk.capacity_bytes = None
    assert log.append(data, now_ms=NOW_MS).base_offset == 3


SEEDS_THAT_FOUND_SOMETHING = (1429, 1832, 4045, 4055, 4374, 5653)


@pytest.mark.parametrize("block", range(8))
def test_nothing_acknowledged_is_lost_whatever_happens(block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        asyncio.run(History(seed).run())


@pytest.mark.parametrize("seed", SEEDS_THAT_FOUND_SOMETHING)
def test_histories_that_once_failed(seed: int) -> None:
    asyncio.run(History(seed).run())


class History:
    """A random history of one log. Whatever happens, the log is a prefix of what was appended to it, at least as long
    as what was acknowledged, and a consumer never saw anything that is missing later."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.label = f"seed {seed}"
        self.disk = SimulatedDisk()
        self.world = LogWorld(self.disk.root, LogConfig(segment_bytes=3000, index_interval_bytes=150))
        self.log = self.world.open()
        self.appended: list[bytes] = []
        self.producers: list[tuple[int, int, int]] = []  # (producer, first, last sequence number) of every batch
        self.acknowledged = 0
        self.seen = 0

    async def run(self) -> None:
        actions = [self.append] * 12 + [self.turn] * 4 + [self.acknowledge] * 2
        actions += [self.roll, self.checkpoint, self.restart, self.crash, self.fill, self.free]
        for step in range(60):
            self.label += "."
            await self.rng.choice(actions)()
            self.check(step)
        assert self.world.failures == []

    async def append(self) -> None:
        count = self.rng.choice((1, 1, 2, 5))
        values = [b"%06d" % self.rng.getrandbits(19) + b"x" * self.rng.choice((5, 100, 700))] * count
        producer = self.rng.choice((1, 2))
        sequence = next((last + 1 for who, _, last in reversed(self.producers) if who == producer), 0)
        data = batch(values, producer=(producer, 0, sequence))
        try:
            self.log.append(data, now_ms=NOW_MS)
        except KafkaStorageError:
            assert self.disk.capacity_bytes is not None
        else:
            self.appended.append(payload(BatchView(data)))
            self.producers.append((producer, sequence, sequence + count - 1))

    async def turn(self) -> None:
        await asyncio.sleep(0)

    async def acknowledge(self) -> None:
        appended = len(self.appended)
        await self.log.durable(self.log.log_end_offset - 1)
        self.acknowledged = appended

    async def roll(self) -> None:
        if self.disk.capacity_bytes is None:
            self.log.roll()

    async def checkpoint(self) -> None:
        write = self.log.take_index_writes()
        if write is not None and self.disk.capacity_bytes is None:
            write()

    async def restart(self) -> None:
        self.disk.capacity_bytes = None
        await self.log.durable(self.log.log_end_offset - 1)
        await self.world.flusher.drain()
        self.acknowledged = len(self.appended)
        self.log.detach()
        self.log.finish()
        self.log = self.world.open(clean=True, recovery_point=self.log.recovery_point)

    async def crash(self) -> None:
        self.log.detach()
        self.disk.crash(self.rng)
        self.disk.capacity_bytes = None
        recovery_point = self.rng.choice((0, self.log.recovery_point))
        self.log = self.world.open(recovery_point=recovery_point)
        left = max(len(read_all(self.log)), self.acknowledged, self.seen)
        del self.appended[left:], self.producers[left:]

    async def fill(self) -> None:
        self.disk.capacity_bytes = self.disk.used_bytes() + self.rng.choice((0, 20, 200, 2000))

    async def free(self) -> None:
        self.disk.capacity_bytes = None

    def check(self, step: int) -> None:
        found = [payload(view) for view in read_all(self.log)]
        assert found == self.appended[: len(found)], f"{self.label} step {step}: not a prefix of what was appended"
        assert len(found) >= self.acknowledged, f"{self.label} step {step}: acknowledged batches are missing"
        assert len(found) >= self.seen, f"{self.label} step {step}: a consumer has seen more"
        self.seen = len(found)
        for producer in (1, 2):
            state = self.log.producers.get(producer)
            kept = [(kept.first_sequence, kept.last_sequence) for kept in state.batches] if state else []
            expected = [(first, last) for who, first, last in self.producers if who == producer]
            assert kept == expected[-5:], f"{self.label} step {step}: the batches of producer {producer}"


async def test_a_sealed_segment_keeps_no_room_to_grow(tmp_path: Path) -> None:
    log = LogWorld(OsDirectory(tmp_path), LogConfig(segment_bytes=12 << 20, max_message_bytes=2 << 20)).open()
    for _ in range(13):
        await append(log, batch(1, value_bytes=1 << 20))
    sealed, active = log.segments
    used = (tmp_path / segment_name(sealed.base_offset)).stat().st_blocks * 512
    assert sealed.size_bytes <= used < sealed.size_bytes + (1 << 16)
    assert len(read_all(log, 4 << 20)) == 13
    assert active.size_bytes > 0
