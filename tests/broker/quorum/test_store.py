"""The metadata log on a disk that crashes, fills up and decays."""

import contextlib
import errno
import random
import uuid

import pytest

from tests.sim.disk import PowerCut, SimulatedDisk
from tidemill.broker.quorum.records import MetadataRecord, ProducerIdsRecord, TopicRecord
from tidemill.broker.quorum.store import FILE, FOLDER, MetadataCorruptError, MetadataStore, MetadataStoreError
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
    return store, store.load().batches


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
            loaded = store.load()
            assert loaded.batches == (decision(0),)
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
            MetadataStore(disk.root).load()
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
        MetadataStore(disk.root).load()


def test_a_record_of_an_unknown_kind_refuses_to_start() -> None:
    disk = SimulatedDisk()
    store, _ = load(disk)
    folder = disk.root.subdirectory(FOLDER)
    folder.replace(FILE, build_batch([NewRecord(timestamp=0, key=None, value=b"\x01\x63\x00")]))
    with pytest.raises(MetadataCorruptError, match="record type 99"):
        MetadataStore(disk.root).load()


def test_a_full_disk_refuses_and_later_takes_the_same_decision() -> None:
    disk = SimulatedDisk()
    store, _ = load(disk)
    disk.capacity_bytes = disk.used_bytes() + 30
    made = []
    while store._room_end - store._size > 10_000:
        made.append(decision(len(made), 100))
        commit(store, made[-1])
    with pytest.raises(MetadataStoreError) as caught:
        store.append(decision(len(made), 1000), NOW_MS)
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


def test_on_a_real_disk(tmp_path: object) -> None:
    store = MetadataStore(OsDirectory(str(tmp_path)))
    store.load()
    commit(store, decision(3, 5))
    store.close()
    assert MetadataStore(OsDirectory(str(tmp_path))).load().batches == (decision(3, 5),)
