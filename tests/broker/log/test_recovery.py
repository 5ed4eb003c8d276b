"""Recovery: torn tails at every byte, bit flips everywhere, rebuilt state"""

import errno
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.log.log_world import NOW_MS, LogWorld, batch, look_up, payload, read_all
from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.checkpoints import read_epochs, write_epochs
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.segment import Segment
from tidemill.broker.log.segment_files import segment_name
from tidemill.core.errors import CorruptMessage, KafkaStorageError
from tidemill.core.records.batch import BatchView, stamp

CONFIG = LogConfig(segment_bytes=1200, index_interval_bytes=100)


async def written(directory: object, batches: list[bytes], config: LogConfig = CONFIG) -> LogWorld:
    """A log with these batches, left without a clean shutdown."""
    world = LogWorld(directory, config)  # type: ignore[arg-type]
    log = world.open()
    for data in batches:
        result = log.append(data, now_ms=NOW_MS)
        await log.durable(result.last_offset)
    return world


async def test_a_tail_torn_at_any_byte_is_cut_back_to_the_last_whole_batch() -> None:
    batches = [batch(number % 3 + 1, value_bytes=20) for number in range(4)]
    sizes = [len(data) for data in batches]
    whole = sum(sizes)
    for length in range(whole + 1):
        disk = SimulatedDisk()
        world = await written(disk.root, batches, LogConfig())
        disk.root.open(segment_name(0)).truncate(length)
        log = world.open()
        kept = [payload(view) for view in read_all(log)]
        count = sum(1 for number in range(4) if sum(sizes[: number + 1]) <= length)
        assert kept == [payload(BatchView(data)) for data in batches[:count]]
        assert log.active.size_bytes == sum(sizes[:count])
        assert log.append(batch(1), now_ms=NOW_MS).base_offset == log.log_start_offset + sum(
            BatchView(data).record_count for data in batches[:count]
        )


@pytest.mark.parametrize("recovery_point", [0, 6, 20])
async def test_what_a_failed_sync_left_in_memory_is_on_the_disk_when_the_log_is_open_again(recovery_point: int) -> None:
    disk = SimulatedDisk()
    batches = [batch(2, value_bytes=100) for _ in range(20)]
    world = await written(disk.root, batches[:10], LogConfig())
    log = world.open(recovery_point=recovery_point)
    disk.forgets_after_failed_sync = True
    disk.fail_sync = OSError(errno.EIO, "Input/output error")
    for data in batches[10:]:
        log.append(data, now_ms=NOW_MS)
    with pytest.raises(KafkaStorageError):
        await log.durable(log.log_end_offset - 1)
    disk.fail_sync = None
    disk.kill()

    served = [payload(view) for view in read_all(world.open(recovery_point=recovery_point))]
    assert len(served) > 10
    for seed in range(20):
        disk.crash(random.Random(seed))
        assert [payload(view) for view in read_all(world.open(recovery_point=recovery_point))] == served


async def test_garbage_behind_the_last_batch_is_cut_off() -> None:
    rng = random.Random(5)
    for length in (1, 11, 60, 61, 200, 5000):
        disk = SimulatedDisk()
        world = await written(disk.root, [batch(2)] * 3, LogConfig())
        file = disk.root.open(segment_name(0))
        size = file.size()
        file.write_at(size, rng.randbytes(length))
        assert world.open().log_end_offset == 6
        assert file.size() == size


@pytest.mark.parametrize("recovery_point", [0, 10])
async def test_a_bit_flip_at_any_byte_is_never_served_and_costs_no_other_batch(recovery_point: int) -> None:
    batches = [batch(2, value_bytes=30, timestamp=NOW_MS + number) for number in range(5)]
    originals = [payload(BatchView(data)) for data in batches]
    size = len(batches[0])
    for position in range(5 * size):
        disk = SimulatedDisk()
        world = await written(disk.root, batches, LogConfig())
        file = disk.root.open(segment_name(0))
        byte = file.read_at(position, 1)[0]
        file.write_at(position, bytes([byte ^ 1 << position % 8]))
        log = world.open(recovery_point=recovery_point)
        damaged, within = divmod(position, size)
        served = collect(log)
        if 12 <= within < 16:  # the leader epoch, which no CRC covers and no reader relies on
            assert served == originals
        elif damaged == 4 and recovery_point == 0:
            assert served == originals[:4], "the last batch cannot be told from a torn write"
        else:
            assert served == originals[:damaged] + originals[damaged + 1 :]


def collect(log: object) -> list[bytes]:
    """What a consumer gets that skips over offsets it gets an error for."""
    from tidemill.broker.log.partition import PartitionLog
    from tidemill.core.records.batch import iter_batches

    assert isinstance(log, PartitionLog)
    got: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.committed_offset:
        try:
            data = bytes(log.read(offset, 10_000))
        except CorruptMessage:
            offset += 1
            continue
        if not data:
            break
        for view in iter_batches(data):
            got.append(payload(view))
            offset = view.next_offset
    return got


async def test_a_batch_inside_a_damaged_batch_is_not_taken_for_one_of_the_log() -> None:
    disk = SimulatedDisk()
    inner = bytearray(batch(1))
    inner[:8] = (2).to_bytes(8, "big")  # a record whose value looks like the batch due next
    world = await written(disk.root, [batch(2), batch([bytes(inner)] * 3), batch(1)], LogConfig())
    file = disk.root.open(segment_name(0))
    at = len(batch(2)) + 25
    file.write_at(at, bytes([file.read_at(at, 1)[0] ^ 255]))
    log = world.open(recovery_point=6)
    assert [BatchView(bytes(log.read(5, 1000))).base_offset] == [5]
    with pytest.raises(CorruptMessage):
        log.read(3, 1000)


async def test_indexes_are_rebuilt_when_they_are_missing_or_wrong() -> None:
    batches = [batch(1, value_bytes=80, timestamp=NOW_MS + number) for number in range(40)]
    for spoil in ("missing", "short", "garbage", "decreasing"):
        disk = SimulatedDisk()
        world = await written(disk.root, batches)
        log = world.open()
        log.detach()
        log.finish()
        for base in [segment.base_offset for segment in log.segments]:
            for suffix in (".index", ".timeindex"):
                name = segment_name(base, suffix)
                data = disk.root.read(name)
                if spoil == "missing":
                    disk.root.remove(name)
                elif spoil == "short":
                    disk.root.replace(name, data[:-3])
                elif spoil == "garbage":
                    disk.root.replace(name, b"\xff" * 24)
                else:
                    disk.root.replace(name, bytes(48))
        log = world.open(clean=True)
        assert len(read_all(log)) == 40
        assert look_up(log, NOW_MS + 33) == (NOW_MS + 33, 33)
        for offset in range(40):
            assert BatchView(bytes(log.read(offset, 1))).base_offset == offset


async def test_a_clean_start_trusts_the_files_and_finds_the_end() -> None:
    disk = SimulatedDisk()
    world = await written(disk.root, [batch(3, value_bytes=50)] * 20)
    log = world.open()
    log.detach()
    log.finish()
    log = world.open(clean=True, recovery_point=60)
    assert (log.log_end_offset, log.committed_offset) == (60, 60)
    assert len(read_all(log)) == 20


async def test_left_over_files_go_and_foreign_files_stay() -> None:
    disk = SimulatedDisk()
    world = await written(disk.root, [batch(1)])
    for name in ("00000000000000000009.index", "00000000000000000004.log.deleted", "x.tmp", "notes.txt"):
        disk.root.create(name)
    world.open()
    names = disk.root.list()
    assert "notes.txt" in names
    assert not {"00000000000000000009.index", "00000000000000000004.log.deleted", "x.tmp"} & set(names)


async def test_an_empty_folder_becomes_an_empty_log() -> None:
    log = LogWorld(SimulatedDisk().root).open(log_start_offset=7)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.integers(0, 2**32))
def test_state_after_a_crash_equals_state_without_one(counts: list[int], seed: int) -> None:
    import asyncio

    async def scenario() -> None:
        disk = SimulatedDisk()
        sequences = {1: 0, 2: 0}
        rng = random.Random(seed)
        batches = []
        for count in counts:
            producer = rng.choice((1, 2))
            batches.append(batch(count, producer=(producer, 3, sequences[producer])))
            sequences[producer] += count
        world = await written(disk.root, batches)
        before = world.open()
        disk.crash(rng)
        after = world.open()
        assert list(after.producers) == list(before.producers)
        assert after.epochs.entries() == before.epochs.entries() == [(0, 0)]
        assert after.log_end_offset == before.log_end_offset == sum(counts)

    asyncio.run(scenario())


async def cleaned(world: LogWorld) -> None:
    """What a cleaner leaves: batches of the epochs 0, 1 and 3 at offsets 2, 25 and 36; the log ends at 39."""
    log = world.open()
    for offset, epoch in ((2, 0), (25, 1), (36, 3)):
        data = bytearray(batch(3))
        stamp(data, 0, offset, epoch)
        log.append_at(log.log_end_offset, bytes(data), now_ms=NOW_MS)
    await log.durable(38)


@pytest.mark.parametrize(
    ("file", "found"),
    [
        # A deletion of records up to 9 that came to nothing: only what was before it is asked of the batches.
        ([(0, 9), (1, 21), (2, 30), (3, 33)], [(0, 0), (1, 21), (2, 30), (3, 33)]),
        ([(1, 27), (3, 33)], [(0, 0), (1, 5), (3, 33)]),
        ([(2, 31), (3, 33)], [(0, 0), (1, 5), (2, 28), (3, 33)]),
        # Nobody knows who wrote what the cleaner took: an epoch too old would have a replica keep what is not ours.
        ([], [(0, 0), (1, 5), (3, 28)]),
    ],
)
async def test_epochs_are_not_taken_from_what_a_cleaner_left_as_if_nothing_were_missing(
    file: list[tuple[int, int]], found: list[tuple[int, int]]
) -> None:
    world = LogWorld(SimulatedDisk().root)
    await cleaned(world)
    write_epochs(world.directory, file)
    loaded = world.load()
    assert (loaded.log_start_offset, loaded.epochs.entries(), loaded.epochs_written) == (0, found, False)
    write_epochs(world.directory, found)
    again = world.load()
    assert (again.epochs.entries(), again.epochs_written) == (found, True)


@pytest.mark.parametrize("log_start", [4, 25, 30, 39])
async def test_epochs_below_the_log_start_are_forgotten_at_a_start_as_they_are_while_it_runs(log_start: int) -> None:
    """Or a leader would say that its copy of what is deleted is another, and have followers cut what is committed."""
    world = LogWorld(SimulatedDisk().root)
    await cleaned(world)
    running = world.open()
    running.commit(running.end_position())
    assert running.advance_log_start(log_start)
    loaded = world.load(log_start_offset=log_start)
    assert (loaded.epochs.entries(), loaded.epochs_written) == (running.epochs.entries(), False)


async def test_a_replica_that_copies_a_compacted_log_notes_its_epochs_from_where_the_one_before_ended() -> None:
    world = LogWorld(SimulatedDisk().root)
    await cleaned(world)
    assert read_epochs(world.directory) == [(0, 0), (1, 5), (3, 28)], "else every start would ask all batches"


async def test_snapshots_spare_the_replay_and_five_batches_are_known_across_a_roll() -> None:
    disk = SimulatedDisk()
    world = LogWorld(disk.root, LogConfig(segment_bytes=500))
    log = world.open()
    batches = [batch(1, producer=(5, 0, number), value_bytes=50) for number in range(23)]
    for data in batches:
        await log.durable(log.append(data, now_ms=NOW_MS).last_offset)
    bases = [segment.base_offset for segment in log.segments]
    assert [name for name in disk.root.list() if name.endswith(".snapshot")] == [
        segment_name(base, ".snapshot") for base in bases[1:]
    ]
    disk.root.open(segment_name(0)).write_at(0, bytes(100))  # would be noticed if it were replayed
    for clean in (False, True, False):
        log = world.open(clean=clean, recovery_point=log.recovery_point)
        for number in range(18, 23):
            result = log.append(batches[number], now_ms=NOW_MS)
            assert (result.duplicate, result.base_offset) == (True, number)
        assert log.segments[0].damaged == []
        log.detach()
        log.finish()
    kept = [name for name in disk.root.list() if name.endswith(".snapshot")]
    assert kept == [segment_name(base, ".snapshot") for base in (*bases[1:], 23)]


async def test_a_snapshot_beyond_the_log_end_is_never_used_again() -> None:
    disk = SimulatedDisk()
    world = LogWorld(disk.root, LogConfig())
    log = world.open()
    sizes = []
    for number in range(4):
        await log.durable(log.append(batch(1, producer=(5, 0, number)), now_ms=NOW_MS).last_offset)
        sizes.append(log.size_bytes)
    log.detach()
    log.finish()
    assert disk.root.exists(segment_name(4, ".snapshot"))
    disk.root.open(segment_name(0)).truncate(sizes[1])
    log = world.open()
    assert log.log_end_offset == 2
    assert not disk.root.exists(segment_name(4, ".snapshot"))
    for number in (2, 3):
        result = log.append(batch(1, producer=(5, 0, number)), now_ms=NOW_MS)
        assert (result.duplicate, result.base_offset) == (False, number)


async def test_a_damaged_snapshot_costs_time_only() -> None:
    disk = SimulatedDisk()
    world = LogWorld(disk.root, LogConfig(segment_bytes=300))
    log = world.open()
    for number in range(9):
        await log.durable(log.append(batch(1, producer=(5, 0, number), value_bytes=50), now_ms=NOW_MS).last_offset)
    for name in disk.root.list():
        if name.endswith(".snapshot"):
            disk.root.replace(name, b"\0\1garbage")
    log = world.open(recovery_point=9)
    state = log.producers.get(5)
    assert state is not None
    assert [kept.base_offset for kept in state.batches] == [4, 5, 6, 7, 8]


async def test_a_time_index_that_a_crash_left_short_does_not_make_the_segment_older() -> None:
    disk = SimulatedDisk()
    batches = [batch(1, timestamp=NOW_MS - 9000 + 100 * number) for number in range(60)]
    world = await written(disk.root, batches, LogConfig(index_interval_bytes=200))
    log = world.open()
    newest = log.active.latest
    log.active.take_index_writes()()
    times = disk.root.read(segment_name(0, ".timeindex"))
    disk.root.replace(segment_name(0, ".timeindex"), times[:24])
    log = world.open(recovery_point=50)
    assert log.active.latest == newest
    for number in range(60):
        wanted = NOW_MS - 9000 + 100 * number
        assert look_up(log, wanted) == (wanted, number)


@pytest.mark.parametrize("full", [False, True])
async def test_nor_does_it_when_the_segment_was_sealed_and_the_next_crash_comes(full: bool) -> None:
    disk = SimulatedDisk()
    batches = [batch(1, timestamp=NOW_MS - 9000 + 100 * number) for number in range(30)]
    world = await written(disk.root, batches, LogConfig(index_interval_bytes=200))
    log = world.open()
    newest = log.active.latest
    log.active.take_index_writes()()
    times = disk.root.read(segment_name(0, ".timeindex"))
    Segment.create(disk.root, 30)  # the crash came right after a roll
    disk.root.replace(segment_name(0, ".timeindex"), times[:24])
    if full:
        disk.capacity_bytes = disk.used_bytes()
    log = world.open()
    assert [segment.base_offset for segment in log.segments] == [0, 30]
    disk.capacity_bytes = None
    disk.crash(random.Random(1))
    log = world.open(recovery_point=30)
    assert log.segments[0].latest == newest


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
async def test_a_bit_flip_in_an_index_costs_nothing_but_time(suffix: str, clean: bool) -> None:
    batches = [batch(2, value_bytes=40, timestamp=NOW_MS + 10 * number) for number in range(24)]
    disk = SimulatedDisk()
    world = await written(disk.root, batches, LogConfig(segment_bytes=2500, index_interval_bytes=200))
    log = world.open()
    log.detach()
    log.finish()
    first = log.segments[0]
    assert len(log.segments) == 2
    name = segment_name(0, suffix)
    sound = disk.root.read(name)
    assert len(sound) > 30
    for position in range(len(sound)):
        flipped = bytearray(sound)
        flipped[position] ^= 1 << position % 8
        disk.root.replace(name, bytes(flipped))
        log = world.open(clean=clean, recovery_point=48 if clean else 0)
        for offset in range(47, -1, -5):
            assert BatchView(bytes(log.read(offset, 1))).base_offset == offset // 2 * 2
        assert [payload(view) for view in read_all(log)] == [payload(BatchView(data)) for data in batches]
        assert log.segments[0].damaged == []
        for number in (3, 11, 17):
            if suffix == ".index":  # a wrong time in the time index is found by nobody
                assert look_up(log, NOW_MS + 10 * number) == (NOW_MS + 10 * number, 2 * number)
        disk.root.replace(name, sound)
    assert first.size_bytes > 0


async def test_a_torn_batch_before_a_segment_that_was_never_written_to_is_cut_off_with_it() -> None:
    disk = SimulatedDisk()
    world = await written(disk.root, [batch(1, value_bytes=300) for _ in range(2)])
    log = world.open()
    log.append(batch(1, value_bytes=300), now_ms=NOW_MS)  # nobody waited for it
    log.roll()
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    file = disk.root.open(segment_name(0))
    file.write_at(file.size() - 50, bytes(50))  # the last sector got only so far
    log = world.open()
    assert (log.log_end_offset, log.segments[0].damaged) == (2, [])
    assert [segment.base_offset for segment in log.segments] == [0]
    assert not disk.root.exists(segment_name(3))
