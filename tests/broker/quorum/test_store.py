"""The metadata log on a disk that crashes, fills up and decays."""

import contextlib
import errno
import itertools
import random
import uuid
from collections.abc import Iterable

import pytest

from tests.sim.disk import NAME_BYTES, PowerCut, SimulatedDisk, SimulatedFile
from tidemill.broker.quorum.records import MetadataRecord, ProducerIdsRecord, TopicRecord
from tidemill.broker.quorum.snapshot import SnapshotId, encode
from tidemill.broker.quorum.store import (
    FILE,
    FOLDER,
    ROOM_BYTES,
    MetadataCorruptError,
    MetadataStore,
    MetadataStoreError,
    SnapshotStopped,
)
from tidemill.core.records.batch import iter_batches
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.runtime.disk import OsDirectory

NOW_MS = 1_700_000_000_000


def decision(number: int, size: int = 1) -> tuple[MetadataRecord, ...]:
    ids = ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=number)
    topics = [
        TopicRecord(name=f"t{number}-{index}", topic_id=uuid.UUID(int=number * 100 + index)) for index in range(size)
    ]
    return (ids, *topics)


def commit(store: MetadataStore, records: tuple[MetadataRecord, ...]) -> None:
    store.append(records, NOW_MS)
    store.sync()


def load(disk: SimulatedDisk) -> tuple[MetadataStore, tuple[tuple[MetadataRecord, ...], ...]]:
    store = MetadataStore(disk.root)
    batches: list[tuple[MetadataRecord, ...]] = []
    store.load(batches.append)
    return store, tuple(batches)


def test_decisions_come_back_as_they_were_made() -> None:
    disk = SimulatedDisk()
    store, batches = load(disk)
    assert batches == ()
    made = [decision(number, size) for number, size in enumerate([1, 4, 2])]
    offsets = []
    for records in made:
        offsets.append(store.append(records, NOW_MS))
        store.sync()
    assert offsets == [2, 7, 10]
    store, batches = load(disk)
    assert list(batches) == made
    assert store.offset_end == 10


def test_the_file_is_one_of_kafkas() -> None:
    disk = SimulatedDisk()
    store, _ = load(disk)
    commit(store, decision(0))
    commit(store, decision(1))
    raw = disk.root.subdirectory(FOLDER).read(FILE)
    views = list(iter_batches(raw))
    assert [(view.base_offset, view.record_count, view.magic, view.leader_epoch) for view in views] == [
        (0, 2, 2, 1),
        (2, 2, 2, 1),
    ]
    assert all(view.verify_crc() for view in views)


@pytest.mark.parametrize("number", range(40))
def test_a_power_cut_loses_nothing_that_was_synced(number: int) -> None:
    rng = random.Random(number)
    disk = SimulatedDisk()
    store, _ = load(disk)
    synced: list[tuple[MetadataRecord, ...]] = []
    for life in range(4):
        for step in range(rng.randint(0, 4)):
            records = decision(life * 10 + step, rng.randint(1, 40))
            commit(store, records)
            synced.append(records)
        unsynced = decision(life * 10 + 9, rng.randint(1, 60))
        store.append(unsynced, NOW_MS)
        disk.crash(rng)
        store, batches = load(disk)
        assert list(batches[: len(synced)]) == synced
        assert batches[len(synced) :] in ((), (unsynced,))
        synced = list(batches)


def test_a_process_killed_at_any_step_leaves_nothing_that_a_power_cut_takes_later() -> None:
    for steps in range(8):
        for seed in range(10):
            disk = SimulatedDisk()
            disk.cut_power_in = steps
            with contextlib.suppress(PowerCut):
                load(disk)
            disk.kill()
            store, _ = load(disk)
            commit(store, decision(0))
            disk.crash(random.Random(seed))
            assert load(disk)[1] == (decision(0),), (steps, seed)


def test_every_torn_length_is_cut_back_to_the_last_whole_decision() -> None:
    disk = SimulatedDisk()
    store, _ = load(disk)
    commit(store, decision(0))
    folder = disk.root.subdirectory(FOLDER)
    first = folder.read(FILE)
    commit(store, decision(1))
    whole = folder.read(FILE)
    for length in range(len(first), len(whole)):
        for filler in (b"", bytes(100)):  # a file system may have lengthened the file before writing it
            if (whole[:length] + filler).startswith(whole):
                continue  # what is missing were zeros
            folder.replace(FILE, whole[:length] + filler)
            store = MetadataStore(disk.root)
            batches: list[tuple[MetadataRecord, ...]] = []
            loaded = store.load(batches.append)
            assert batches == [decision(0)]
            assert loaded.torn_bytes == length - len(first) + len(filler)
            assert folder.read(FILE) == first
            commit(store, decision(2))
            assert load(disk)[1] == (decision(0), decision(2))


def test_damage_before_the_last_decision_refuses_to_start() -> None:
    disk = SimulatedDisk()
    store, _ = load(disk)
    commit(store, decision(0))
    folder = disk.root.subdirectory(FOLDER)
    first = len(folder.read(FILE))
    commit(store, decision(1))
    whole = folder.read(FILE)
    for position in range(8, first):  # the base offset lies outside the CRC and has its own check
        folder.replace(FILE, whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        if 12 <= position < 16:
            continue  # the leader epoch, which nobody reads: outside the CRC too
        with pytest.raises(MetadataCorruptError, match="corrupt at byte 0"):
            load(disk)
        assert len(folder.read(FILE)) == len(whole), "nothing may be cut off a corrupt log"


def test_offsets_that_do_not_follow_are_corruption() -> None:
    disk = SimulatedDisk()
    store, _ = load(disk)
    commit(store, decision(0))
    commit(store, decision(1))
    folder = disk.root.subdirectory(FOLDER)
    whole = bytearray(folder.read(FILE))
    whole[7] ^= 1
    folder.replace(FILE, bytes(whole))
    with pytest.raises(MetadataCorruptError, match="offset 1 follows 0"):
        load(disk)


def test_a_batch_that_was_torn_in_the_middle_of_its_offset_is_a_torn_tail() -> None:
    disk = SimulatedDisk()
    store, _ = load(disk)
    for number in range(300):
        commit(store, decision(number))
    folder = disk.root.subdirectory(FOLDER)
    whole = folder.read(FILE)
    (*_, before, last) = iter_batches(whole)
    at = len(whole) - last.size_bytes
    folder.replace(FILE, whole[:at] + bytes(7) + whole[at + 7 :])
    again, batches = load(disk)
    assert (len(batches), again.offset_end) == (299, before.last_offset + 1)
    assert folder.read(FILE) == whole[:at]


def test_a_record_of_an_unknown_kind_refuses_to_start() -> None:
    disk = SimulatedDisk()
    store, _ = load(disk)
    folder = disk.root.subdirectory(FOLDER)
    folder.replace(FILE, build_batch([NewRecord(timestamp=0, key=None, value=b"\x01\x63\x00")]))
    with pytest.raises(MetadataCorruptError, match="record type 99"):
        load(disk)


def test_a_full_disk_refuses_and_later_takes_the_same_decision() -> None:
    disk = SimulatedDisk()
    store, _ = load(disk)
    disk.capacity_bytes = disk.used_bytes() + 30
    made = []

    def fill() -> None:
        while len(made) < 1000:
            store.append(decision(len(made), 100), NOW_MS)
            made.append(decision(len(made), 100))
            store.sync()

    with pytest.raises(MetadataStoreError) as caught:
        fill()
    assert caught.value.errno == errno.ENOSPC
    disk.capacity_bytes = None
    commit(store, decision(len(made), 100))
    assert load(disk)[1] == (*made, decision(len(made), 100))


def test_a_disk_that_others_have_filled_still_takes_decisions() -> None:
    disk = SimulatedDisk()
    store, _ = load(disk)
    for _ in range(2):
        disk.capacity_bytes = disk.used_bytes()
        made = []
        for number in range(200):
            made.append(decision(number, size=3))
            commit(store, made[-1])
        store.close()
        disk.crash(random.Random(1))
        store, batches = load(disk)
        assert list(batches)[-200:] == made
        disk.capacity_bytes = None
        commit(store, decision(1))  # with room again, room is set aside again


def test_after_a_failed_sync_nothing_more_is_taken() -> None:
    disk = SimulatedDisk()
    store, _ = load(disk)
    commit(store, decision(0))
    store.append(decision(1), NOW_MS)
    disk.fail_sync = OSError(errno.EIO, "Input/output error")
    with pytest.raises(MetadataStoreError, match="start again"):
        store.sync()
    disk.fail_sync = None
    with pytest.raises(MetadataStoreError, match="start again"):
        store.append(decision(2), NOW_MS)


def test_a_failed_sync_leaves_nothing_to_build_upon() -> None:
    """Linux takes pages for written that it failed to write: the next start must not read them as decided."""
    disk = SimulatedDisk()
    store, _ = load(disk)
    commit(store, decision(0))
    store.append(decision(1), NOW_MS)
    disk.fail_sync = OSError(errno.EIO, "Input/output error")
    with pytest.raises(MetadataStoreError):
        store.sync()
    disk.fail_sync = None
    disk.kill()
    store, batches = load(disk)
    assert batches == (decision(0),)
    commit(store, decision(2))
    disk.crash(random.Random(1))
    assert load(disk)[1] == (decision(0), decision(2))


def test_a_write_that_fails_for_another_reason_than_a_full_disk_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    disk = SimulatedDisk()
    store, _ = load(disk)
    with monkeypatch.context() as patched:
        patched.setattr(SimulatedFile, "write_at", broken)
        with pytest.raises(MetadataStoreError, match="start again"):
            store.append(decision(0), NOW_MS)
    assert store.failure is not None
    with pytest.raises(MetadataStoreError, match="start again"):
        store.append(decision(0), NOW_MS)


# --- snapshots


def write_snapshot(store: MetadataStore, records: Iterable[MetadataRecord]) -> str:
    which = store.roll()
    store.write_snapshot(which, records, NOW_MS, lambda: False)
    return which.name


def flat(batches: Iterable[tuple[MetadataRecord, ...]]) -> list[MetadataRecord]:
    return [record for batch in batches for record in batch]


def some_snapshots(disk: SimulatedDisk) -> MetadataStore:
    """Three snapshots with decisions before, between and behind; each holds one record that names it."""
    store, _ = load(disk)
    for number in range(4):
        commit(store, decision(number))
        if number < 3:
            write_snapshot(store, decision(100 + number))
    return store


def test_a_snapshot_stands_for_what_was_before_it() -> None:
    disk = SimulatedDisk()
    some_snapshots(disk)
    store, batches = load(disk)
    assert flat(batches) == [*decision(102), *decision(3)]
    assert store.offset_end == 8
    assert store.snapshot == SnapshotId(6, 1)
    commit(store, decision(4))
    assert flat(load(disk)[1]) == [*decision(102), *decision(3), *decision(4)]


def test_the_snapshot_before_and_the_log_behind_it_stay_and_what_is_older_goes() -> None:
    disk = SimulatedDisk()
    some_snapshots(disk)
    assert disk.root.subdirectory(FOLDER).list() == [
        "00000000000000000004-0000000001.checkpoint",
        "00000000000000000004.log",
        "00000000000000000006-0000000001.checkpoint",
        "00000000000000000006.log",
    ]


def test_a_damaged_snapshot_is_gone_back_behind_wherever_the_damage_is() -> None:
    disk = SimulatedDisk()
    some_snapshots(disk)
    folder = disk.root.subdirectory(FOLDER)
    newest = SnapshotId(6, 1).name
    whole = folder.read(newest)
    for position in range(len(whole)):
        folder.replace(newest, whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        batches: list[tuple[MetadataRecord, ...]] = []
        store = MetadataStore(disk.root)
        loaded = store.load(batches.append)
        if loaded.damaged:
            assert newest in loaded.damaged[0]
            assert flat(batches) == [*decision(101), *decision(2), *decision(3)]
            assert store.snapshot == SnapshotId(4, 1)
        else:  # the leader epoch of a batch, outside the CRC, which nobody reads
            assert flat(batches) == [*decision(102), *decision(3)]
        assert store.offset_end == 8
    for length in range(len(whole)):
        folder.replace(newest, whole[:length])
        assert flat(load(disk)[1]) == [*decision(101), *decision(2), *decision(3)]


def test_the_next_snapshot_after_a_damaged_one_keeps_what_was_gone_back_to() -> None:
    disk = SimulatedDisk()
    some_snapshots(disk)
    folder = disk.root.subdirectory(FOLDER)
    folder.replace(SnapshotId(6, 1).name, b"damaged")
    store, _ = load(disk)
    newest = write_snapshot(store, decision(103))
    assert SnapshotId(6, 1).name not in folder.list()
    folder.replace(newest, b"damaged")
    assert flat(load(disk)[1]) == [*decision(101), *decision(2), *decision(3)]


def test_no_snapshot_that_can_be_read_and_no_log_before_it_refuses_to_start() -> None:
    disk = SimulatedDisk()
    some_snapshots(disk)
    folder = disk.root.subdirectory(FOLDER)
    for name in folder.list():
        if name.endswith(".checkpoint"):
            folder.replace(name, folder.read(name)[:-1])
    before = {name: folder.read(name) for name in folder.list()}
    with pytest.raises(MetadataCorruptError, match=r"0006-0000000001.checkpoint is damaged: .* Restore the folder"):
        load(disk)
    assert {name: folder.read(name) for name in folder.list()} == before


def test_a_log_that_is_missing_behind_a_snapshot_refuses_to_start() -> None:
    disk = SimulatedDisk()
    some_snapshots(disk)
    disk.root.subdirectory(FOLDER).remove("00000000000000000006.log")
    with pytest.raises(MetadataCorruptError, match=r"00000000000000000006.log is missing"):
        load(disk)


def test_damage_at_the_end_of_a_segment_that_is_not_the_last_refuses_to_start() -> None:
    disk = SimulatedDisk()
    store, _ = load(disk)
    commit(store, decision(0))
    commit(store, decision(1))
    store.roll()
    commit(store, decision(2))
    folder = disk.root.subdirectory(FOLDER)
    whole = folder.read(FILE)
    folder.replace(FILE, whole[:-3])
    with pytest.raises(MetadataCorruptError, match="goes on in another segment"):
        load(disk)
    assert folder.read(FILE) == whole[:-3]


def test_a_snapshot_of_a_newer_version_refuses_to_start() -> None:
    disk = SimulatedDisk()
    some_snapshots(disk)
    folder = disk.root.subdirectory(FOLDER)
    batches = list(encode(decision(0), epoch=1, now_ms=NOW_MS))
    batches[1] = build_batch([NewRecord(timestamp=0, key=None, value=b"\x01\x63\x00")] * 2, base_offset=1)
    folder.replace(SnapshotId(6, 1).name, b"".join(batches))
    with pytest.raises(MetadataCorruptError, match=r"checkpoint cannot be read: record type 99"):
        load(disk)


@pytest.mark.parametrize("cut", ["power", "process"])
def test_a_snapshot_that_is_cut_off_at_any_step_loses_nothing(cut: str) -> None:
    for steps in itertools.count():
        for seed in range(6):
            disk = SimulatedDisk()
            some_snapshots(disk)
            store, _ = load(disk)
            disk.cut_power_in = steps
            try:
                write_snapshot(store, decision(103))
                commit(store, decision(4))
                finished = True
            except PowerCut:
                finished = False
            disk.crash(random.Random(seed)) if cut == "power" else disk.kill()
            store, batches = load(disk)
            before, after = [*decision(102), *decision(3)], [*decision(103)]
            lawful = [after + [*decision(4)]] if finished else [before, after, after + [*decision(4)]]
            lawful += [] if finished else [before + [*decision(4)]]
            assert flat(batches) in lawful, (steps, seed)
            commit(store, decision(5))
            write_snapshot(store, decision(105))
            commit(store, decision(6))
            disk.crash(random.Random(seed))
            assert flat(load(disk)[1]) == [*decision(105), *decision(6)], (steps, seed)
            assert not [name for name in disk.root.subdirectory(FOLDER).list() if name.endswith(".part")]
        if finished:
            break
    assert steps > 8


def test_a_full_disk_refuses_a_snapshot_and_still_takes_decisions() -> None:
    disk = SimulatedDisk()
    store, _ = load(disk)
    commit(store, decision(0))
    for free in (0, 100, NAME_BYTES + 10, ROOM_BYTES + NAME_BYTES + 100):
        disk.capacity_bytes = disk.used_bytes() + free
        with pytest.raises(OSError, match="No space left"):
            write_snapshot(store, [record for number in range(200) for record in decision(number, 20)])
        assert not [name for name in disk.root.subdirectory(FOLDER).list() if "checkpoint" in name]
        commit(store, decision(1))
        disk.crash(random.Random(free))
        store, batches = load(disk)
        assert batches[-1] == decision(1)
        for _ in range(50):
            commit(store, decision(1, 10))
    disk.capacity_bytes = None
    write_snapshot(store, decision(100))
    assert load(disk)[1] == (decision(100),)


def test_a_stop_ends_a_snapshot_and_leaves_nothing_of_it() -> None:
    disk = SimulatedDisk()
    store, _ = load(disk)
    commit(store, decision(0))
    with pytest.raises(SnapshotStopped):
        store.write_snapshot(store.roll(), decision(1), NOW_MS, lambda: True)
    commit(store, decision(1))
    assert flat(load(disk)[1]) == [*decision(0), *decision(1)]


def test_on_a_real_disk(tmp_path: object) -> None:
    store = MetadataStore(OsDirectory(str(tmp_path)))
    store.load(lambda _: None)
    commit(store, decision(3, 5))
    store.close()
    batches: list[tuple[MetadataRecord, ...]] = []
    MetadataStore(OsDirectory(str(tmp_path))).load(batches.append)
    assert batches == [decision(3, 5)]
