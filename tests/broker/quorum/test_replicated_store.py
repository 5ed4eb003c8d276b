"""The metadata log of a member of a quorum of several: appends, cuts, reads, snapshots from elsewhere."""

import contextlib
import errno
import itertools
import random
import uuid

import pytest

from tests.broker.quorum.replicated_log import (
    NOW_MS,
    batch,
    batches,
    control,
    crash,
    decision,
    everything,
    opened,
    with_snapshot,
)
from tests.sim.disk import PowerCut, SimulatedDisk
from tidemill.broker.quorum.control import KRaftVersion, LeaderChange, Voters
from tidemill.broker.quorum.floor import DURABLE_END, DurableFloor
from tidemill.broker.quorum.log_batches import FetchedDataRefused, decode_log
from tidemill.broker.quorum.raft.voters import Voter, VoterSet
from tidemill.broker.quorum.records import MetadataFormatError, MetadataRecord
from tidemill.broker.quorum.snapshot import SnapshotDamaged, SnapshotId, encode
from tidemill.broker.quorum.store import (
    FILE,
    FOLDER,
    MetadataCorruptError,
    MetadataStore,
    MetadataStoreError,
    SnapshotStopped,
    TruncationRefused,
)
from tidemill.core.errors import OffsetOutOfRange, PositionOutOfRange, SnapshotNotFound
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord

ONE = VoterSet.of([Voter(node_id=1, directory_id=uuid.UUID(int=1))])
TWO = ONE.adding(Voter(node_id=2, directory_id=uuid.UUID(int=2)))


def names(disk: SimulatedDisk) -> list[str]:
    """The files of the log."""
    return [each for each in disk.root.subdirectory(FOLDER).list() if each != DURABLE_END]


# --- appends


def test_a_follower_keeps_the_bytes_of_its_leader() -> None:
    leader_disk, disk = SimulatedDisk(), SimulatedDisk()
    leader, follower = opened(leader_disk), opened(disk)
    leader.append_control([LeaderChange(leader_id=1, voters=(1, 2))], NOW_MS, epoch=2)
    leader.append(decision(1, 3), NOW_MS, epoch=2)
    leader.append(decision(2), NOW_MS, epoch=4)
    while follower.offset_end < leader.offset_end:
        follower.append_fetched(leader.read(follower.offset_end, 100))
    assert follower.epochs.entries() == leader.epochs.entries() == [(2, 0), (4, 4)]
    follower.sync()
    again = opened(disk)
    assert everything(again) == leader_disk.root.subdirectory(FOLDER).read(FILE)
    assert again.epochs.entries() == [(2, 0), (4, 4)]
    assert [each.offset_end for each in decode_log(everything(again))] == [1, 4, 5]


def test_what_cannot_follow_is_refused_and_nothing_is_stored() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    store.append_fetched(batches(0, 3, epoch=2))
    before = disk.root.subdirectory(FOLDER).read(FILE)
    for bad in (batch(3, 2) + batch(5, 2), batch(3, 1), batch(2, 2), batch(3, 3)[:-1], batch(3, 2) + b"x"):
        with pytest.raises(FetchedDataRefused):
            store.append_fetched(bad)
        assert (store.offset_end, store.epochs.latest) == (3, 2)
        assert disk.root.subdirectory(FOLDER).read(FILE) == before
    assert store.append_fetched(b"") == 3
    with pytest.raises(AssertionError, match="a leader of the past"):
        store.append(decision(1), NOW_MS, epoch=1)


def test_what_is_durable_is_known_apart_from_the_end() -> None:
    store = opened(SimulatedDisk())
    store.append_fetched(batches(0, 3, epoch=2))
    assert (store.offset_end, store.durable_end) == (3, 0)
    store.sync()
    assert (store.offset_end, store.durable_end) == (3, 3)
    store.append(decision(3, 2), NOW_MS, epoch=2)
    assert (store.offset_end, store.durable_end) == (5, 3)
    store.truncate(4)
    assert (store.offset_end, store.durable_end) == (3, 3)


def test_a_full_disk_refuses_what_was_fetched_and_takes_it_later() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    data = build_batch([NewRecord(0, None, bytes(600_000))], leader_epoch=2)
    disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(MetadataStoreError) as refused:
        store.append_fetched(data)
    assert refused.value.errno == errno.ENOSPC
    assert (store.offset_end, store.epochs.latest, store.failure) == (0, -1, None)
    disk.capacity_bytes = None
    assert store.append_fetched(data) == 1


def test_decisions_that_are_not_known_to_be_committed_are_not_handed_out() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    for offset in range(6):
        store.append(decision(offset), NOW_MS, epoch=2)
    store.sync()
    for committed in (None, 0, 4, 6):
        heard: list[tuple[MetadataRecord, ...]] = []
        MetadataStore(disk.root, replicated=True).load(heard.append, committed_end=committed)
        assert heard == [decision(offset) for offset in range(6 if committed is None else committed)]


# --- voters


def test_voters_are_those_of_the_latest_record_and_go_with_it() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    assert (store.voter_sets, store.kraft_version) == ((), 0)
    store.append_control([KRaftVersion(version=1), Voters(voters=ONE)], NOW_MS, epoch=2)
    store.append(decision(1), NOW_MS, epoch=2)
    store.append_fetched(control(3, 2, Voters(voters=TWO)))
    assert store.voter_sets == ((1, ONE), (3, TWO))
    store.sync()
    assert opened(disk).voter_sets == store.voter_sets
    store.truncate(3)
    assert (store.voter_sets, store.kraft_version) == (((1, ONE),), 1)
    assert opened(disk).voter_sets == store.voter_sets


def test_a_snapshot_says_who_votes_at_its_end() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    store.append_control([KRaftVersion(version=1), Voters(voters=ONE)], NOW_MS, epoch=2)
    store.append(decision(1, 4), NOW_MS, epoch=2)
    store.append_control([Voters(voters=TWO)], NOW_MS, epoch=2)
    with_snapshot(store, 6, 100)
    again = opened(disk)
    assert again.voter_sets == ((5, ONE), (6, TWO))
    assert again.kraft_version == 1
    with_snapshot(again, 7, 101)
    assert opened(disk).voter_sets == ((6, TWO),)
    assert list(again.snapshot_records()) == [decision(101)]


# --- reading


def test_reads_go_over_segments() -> None:
    store = opened(SimulatedDisk())
    written = b""
    for number in range(5):
        store.append_fetched(batches(number * 3, 3, epoch=2))
        written += batches(number * 3, 3, epoch=2)
        store.roll(0)
    assert everything(store) == written
    assert store.read(15, 100) == b""
    assert store.read(4, 0) == batch(4, 2)
    for outside in (-1, 16):
        with pytest.raises(OffsetOutOfRange, match="0 to 15"):
            store.read(outside, 100)


# --- cuts


@pytest.mark.parametrize("cut", range(13))
def test_after_a_cut_it_is_as_if_the_rest_had_never_been(cut: int) -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    for number in range(4):
        store.append_fetched(batches(number * 3, 3, epoch=2 + number))
        store.roll(0)
    assert store.truncate(cut) == cut
    assert (store.offset_end, store.durable_end) == (cut, cut)
    kept = b"".join(batch(offset, 2 + offset // 3) for offset in range(cut))
    assert everything(store) == kept
    epochs = [(2 + number, number * 3) for number in range(4) if number * 3 < cut]
    assert store.epochs.entries() == epochs
    store.append_fetched(batches(cut, 2, epoch=9, number=500))
    store.sync()
    disk.crash(random.Random(cut))
    again = opened(disk)
    assert everything(again) == kept + batches(cut, 2, epoch=9, number=500)
    assert again.epochs.entries() == [*epochs, (9, cut)]


def test_a_cut_in_the_middle_of_a_batch_takes_all_of_it() -> None:
    store = opened(SimulatedDisk())
    store.append(decision(1, 3), NOW_MS, epoch=2)
    store.append(decision(2, 3), NOW_MS, epoch=2)
    assert store.truncate(6) == 6
    assert store.truncate(5) == 3
    assert store.truncate(2) == 0


def test_what_is_committed_or_in_a_snapshot_is_not_cut_off() -> None:
    store = opened(SimulatedDisk())
    store.append_fetched(batches(0, 8, epoch=2))
    store.high_watermark = 5
    with pytest.raises(TruncationRefused, match="to end at offset 4, but all below 5 is committed"):
        store.truncate(4)
    with_snapshot(store, 6, 100)
    store.high_watermark = 0
    for offset in (5, 3, -1):
        with pytest.raises(TruncationRefused, match="below 6"):
            store.truncate(offset)
    assert store.truncate(6) == 6
    assert store.epochs.latest == 2


@pytest.mark.parametrize("seed", range(6))
def test_a_cut_that_is_cut_off_at_any_step_leaves_a_log_that_can_be_cut_again(seed: int) -> None:
    for steps in itertools.count():
        disk = SimulatedDisk()
        store = opened(disk)
        for number in range(4):
            store.append_fetched(batches(number * 3, 3, epoch=2 + number))
            store.sync()
            store.roll(0)
        whole = everything(store)
        disk.cut_power_in = steps
        try:
            store.truncate(4)
            done = True
        except PowerCut:
            done = False
        crash(disk, seed)
        store = opened(disk)
        found = everything(store)
        assert whole.startswith(found) and (store.offset_end == 4 if done else store.offset_end >= 4)
        store.truncate(4)
        store.append_fetched(batches(4, 1, epoch=9))
        store.sync()
        disk.crash(random.Random(seed))
        assert everything(opened(disk)) == whole[: len(batch(0, 2)) * 4] + batch(4, 9)
        if done:
            break
    assert steps >= 5


@pytest.mark.parametrize("call", range(5))
def test_a_cut_that_the_disk_refuses_ends_the_store(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    store.append_fetched(batches(0, 3, epoch=2))
    store.roll(0)
    store.append_fetched(batches(3, 3, epoch=2))
    store.sync()
    whole = everything(store)
    calls = itertools.count()

    def sometimes() -> None:
        if next(calls) == call:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(disk, "sync", sometimes)
    if call >= 3:
        assert store.truncate(1) == 1
        return
    with pytest.raises(MetadataStoreError, match="start again"):
        store.truncate(1)
    with pytest.raises(MetadataStoreError, match="start again"):
        store.read(0, 100)
    monkeypatch.undo()
    disk.kill()
    assert whole.startswith(everything(opened(disk)))


# --- what was promised


def with_a_hole(disk: SimulatedDisk, at: int) -> None:
    """A sector of the log is zeros, as if it had never been written."""
    file = disk.root.subdirectory(FOLDER).open(FILE)
    file.write_at(at, bytes(512))
    file.sync()
    disk.crash(random.Random(0))


@pytest.mark.parametrize("power", [False, True])
def test_a_log_that_has_lost_what_was_synced_says_so_until_it_is_back(power: bool) -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    store.append_fetched(batches(0, 40, epoch=2))
    store.sync()
    store.sync_floor()
    assert not store.has_forgotten
    disk.crash(random.Random(1)) if power else disk.kill()
    with_a_hole(disk, 1024)
    for _ in range(2):  # a start changes nothing about it
        store = opened(disk)
        assert 0 < store.offset_end < 40
        assert store.has_forgotten
    store.append_fetched(batches(store.offset_end, 40 - store.offset_end, epoch=2))
    store.sync()
    assert store.has_forgotten, "what came may be another log's"
    store.remember()
    disk.crash(random.Random(2))
    assert not opened(disk).has_forgotten


def test_what_a_start_has_found_and_synced_is_missed_too() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    store.append_fetched(batches(0, 40, epoch=2))
    disk.kill()  # before it was synced
    assert opened(disk).durable_end == 40, "which others are told"
    disk.kill()
    with_a_hole(disk, 1024)
    assert opened(disk).has_forgotten


def test_a_log_whose_end_cannot_be_written_down_takes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(SimulatedDisk())
    store.append_fetched(batches(0, 3, epoch=2))

    def refuse(_floor: DurableFloor, _offset: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(DurableFloor, "note", refuse)
    with pytest.raises(MetadataStoreError, match="repair the disk"):
        store.sync()
    assert store.durable_end == 0, "nobody is told"
    with pytest.raises(MetadataStoreError, match="repair the disk"):
        store.append_fetched(batches(3, 1, epoch=2))


def test_what_a_crash_leaves_unwritten_was_promised_to_nobody() -> None:
    for seed in range(20):
        disk = SimulatedDisk()
        store = opened(disk)
        store.append_fetched(batches(0, 20, epoch=2))
        store.sync()
        store.sync_floor()
        store.append_fetched(batches(20, 30, epoch=2))
        disk.crash(random.Random(seed))
        store = opened(disk)
        assert store.offset_end >= 20
        assert not store.has_forgotten


@pytest.mark.parametrize("crash_in", [None, *range(1, 8)])
def test_what_the_leader_wants_cut_is_not_missed(crash_in: int | None) -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    store.append_fetched(batches(0, 20, epoch=2))
    store.sync()
    disk.cut_power_in = crash_in
    with contextlib.suppress(PowerCut):
        store.truncate(7)
        store.append_fetched(batches(7, 1, epoch=3))
        store.sync()
    disk.cut_power_in = None
    disk.crash(random.Random(crash_in or 0))
    assert not opened(disk).has_forgotten


# --- snapshots of the middle of the log


def test_a_snapshot_of_the_middle_of_a_segment_stands_for_what_is_below() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    store.append_fetched(batches(0, 4, epoch=2) + batches(4, 4, epoch=3))
    with_snapshot(store, 6, 100)
    assert store.snapshot == SnapshotId(6, 3)
    assert store.log_start_offset == 0
    heard: list[tuple[MetadataRecord, ...]] = []
    again = MetadataStore(disk.root, replicated=True)
    again.load(heard.append)
    assert heard == [decision(100), decision(6), decision(7)]
    assert everything(again) == batches(6, 2, epoch=3)
    assert again.epochs.entries() == [(3, 5)]
    again.append_fetched(batches(8, 2, epoch=4))
    with_snapshot(again, 9, 101)
    assert (again.log_start_offset, again.snapshot) == (6, SnapshotId(9, 4))
    assert everything(again) == batches(6, 2, epoch=3) + batches(8, 2, epoch=4)
    with_snapshot(again, 10, 102)
    assert names(disk) == [
        "00000000000000000008.log",
        "00000000000000000009-0000000004.checkpoint",
        "00000000000000000010-0000000004.checkpoint",
        "00000000000000000010.log",
    ]


def test_a_log_may_be_cut_where_a_snapshot_in_its_middle_ends() -> None:
    disk = SimulatedDisk()
    store = opened(disk)
    store.append_fetched(batches(0, 8, epoch=2))
    with_snapshot(store, 6, 100)
    assert store.truncate(6) == 6
    again = opened(disk)
    assert (again.offset_end, again.log_start_offset, everything(again)) == (6, 6, b"")
    again.append_fetched(batches(6, 2, epoch=3))
    again.sync()
    assert everything(opened(disk)) == batches(6, 2, epoch=3)


# --- snapshots for others, and from others


def leader_with_snapshot(at: int = 12, epoch: int = 5) -> tuple[MetadataStore, bytes]:
    leader = opened(SimulatedDisk())
    leader.append_control([KRaftVersion(version=1), Voters(voters=TWO)], NOW_MS, epoch=epoch)
    leader.append(decision(1, at - 2), NOW_MS, epoch=epoch)
    with_snapshot(leader, at, 777)
    assert leader.snapshot is not None
    data, size = leader.read_snapshot(leader.snapshot, 0, 10**6)
    assert len(data) == size
    return leader, data


def receive(store: MetadataStore, leader: MetadataStore, chunk_bytes: int = 50) -> None:
    assert leader.snapshot is not None
    incoming = store.receive(leader.snapshot)
    size = 1
    while incoming.position < size:
        chunk, size = leader.read_snapshot(incoming.id, incoming.position, chunk_bytes)
        incoming.add(incoming.position, chunk)
    store.install(incoming)


def test_a_snapshot_is_read_in_chunks() -> None:
    leader, data = leader_with_snapshot()
    which = SnapshotId(12, 5)
    assert leader.read_snapshot(which, 10, 20) == (data[10:30], len(data))
    assert leader.read_snapshot(which, len(data) - 1, 20) == (data[-1:], len(data))
    for outside in (-1, len(data)):
        with pytest.raises(PositionOutOfRange):
            leader.read_snapshot(which, outside, 20)
    with pytest.raises(SnapshotNotFound, match="00000000000000000012-0000000004"):
        leader.read_snapshot(SnapshotId(12, 4), 0, 20)


@pytest.mark.parametrize("have", [0, 3, 11, 12, 15])
def test_a_snapshot_of_the_leaders_takes_the_place_of_the_log(have: int) -> None:
    leader, _ = leader_with_snapshot()
    disk = SimulatedDisk()
    store = opened(disk)
    store.append_fetched(batches(0, have, epoch=2))
    if have > 5:
        with_snapshot(store, 4, 1)
    epochs = store.epochs
    receive(store, leader)
    for each in (store, opened(disk)):
        assert (each.log_start_offset, each.offset_end, each.durable_end) == (12, 12, 12)
        assert each.epochs.entries() == [(5, 11)]
        assert each.voter_sets == ((11, TWO),)
        assert list(each.snapshot_records()) == [decision(777)]
        assert each.read(12, 10) == b""
    assert store.epochs is epochs, "who holds them goes on with them"
    assert names(disk) == ["00000000000000000012-0000000005.checkpoint", "00000000000000000012.log"]
    store.append_fetched(leader.read(12, 100) + batch(12, 6))
    store.sync()
    assert everything(opened(disk)) == batch(12, 6)


def test_a_snapshot_that_is_not_whole_leaves_all_as_it_was() -> None:
    leader, data = leader_with_snapshot()
    disk = SimulatedDisk()
    store = opened(disk)
    store.append_fetched(batches(0, 15, epoch=2))
    store.sync()
    for bad in (data[:-1], data[:60], b"", data[:100] + bytes([data[100] ^ 1]) + data[101:]):
        incoming = store.receive(SnapshotId(12, 5))
        incoming.add(0, bad)
        with pytest.raises(SnapshotDamaged):
            store.install(incoming)
        assert everything(store) == batches(0, 15, epoch=2)
        assert names(disk) == [FILE]
    unknown = list(encode((), epoch=5, now_ms=0))
    unknown.insert(1, build_batch([NewRecord(0, None, b"\x01\x63\x00")], base_offset=1))
    unknown[2] = list(encode(decision(1), epoch=5, now_ms=0))[2]
    incoming = store.receive(SnapshotId(12, 5))
    incoming.add(0, b"".join(unknown))
    with pytest.raises(MetadataFormatError, match="record type 99"):
        store.install(incoming)
    assert everything(store) == batches(0, 15, epoch=2)


def test_a_snapshot_that_says_nothing_new_is_refused() -> None:
    store = opened(SimulatedDisk())
    store.append_fetched(batches(0, 15, epoch=2))
    store.high_watermark = 12
    with pytest.raises(ValueError, match="nothing new"):
        store.receive(SnapshotId(12, 2))
    incoming = store.receive(SnapshotId(13, 2))
    store.high_watermark = 13
    with pytest.raises(ValueError, match="nothing new"):
        store.install(incoming)


@pytest.mark.parametrize("have", [0, 3, 15])
@pytest.mark.parametrize("seed", range(5))
def test_a_snapshot_that_comes_is_there_or_not_whenever_the_power_goes(seed: int, have: int) -> None:
    leader, _ = leader_with_snapshot()
    for steps in itertools.count():
        disk = SimulatedDisk()
        store = opened(disk)
        store.append_fetched(batches(0, have, epoch=2))
        store.sync()
        disk.cut_power_in = steps
        try:
            receive(store, leader, chunk_bytes=100)
            done = True
        except PowerCut:
            done = False
        crash(disk, seed)
        loaded = MetadataStore(disk.root, replicated=True).load(lambda _: None)
        assert loaded.damaged == ()
        store = opened(disk)
        if store.snapshot is not None:
            assert (store.offset_end, store.voter_sets) == (12, ((11, TWO),))
        else:
            assert not done
            assert min(have, 11) <= store.offset_end <= have
            assert everything(store) == batches(0, store.offset_end, epoch=2)
            receive(store, leader)
        store.append_fetched(batches(12, 2, epoch=6))
        store.sync()
        disk.crash(random.Random(seed))
        assert everything(opened(disk)) == batches(12, 2, epoch=6)
        assert not [name for name in names(disk) if name.endswith(".part")]
        if done:
            break
    assert steps > 10


def test_no_room_for_a_snapshot_leaves_the_log_in_use() -> None:
    leader, data = leader_with_snapshot()
    disk = SimulatedDisk()
    store = opened(disk)
    store.append_fetched(batches(0, 3, epoch=2))
    store.sync()
    incoming = store.receive(SnapshotId(12, 5))
    incoming.add(0, data)
    disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(MetadataStoreError):
        store.install(incoming)
    assert store.failure is None
    assert names(disk) == [FILE]
    store.append_fetched(batch(3, 2))
    disk.capacity_bytes = None
    receive(store, leader)
    assert opened(disk).offset_end == 12


def test_our_own_snapshot_makes_way_for_a_newer_one_of_the_leaders() -> None:
    leader, _ = leader_with_snapshot()
    disk = SimulatedDisk()
    store = opened(disk)
    store.append_fetched(batches(0, 5, epoch=2))
    store.high_watermark = 5
    which = store.roll(5)
    receive(store, leader)
    with pytest.raises(SnapshotStopped):
        store.write_snapshot(which, decision(1), NOW_MS, lambda: False)
    assert names(disk) == ["00000000000000000012-0000000005.checkpoint", "00000000000000000012.log"]
    assert opened(disk).snapshot == SnapshotId(12, 5)


# --- what a start finds


def test_epochs_that_go_back_are_damage() -> None:
    disk = SimulatedDisk()
    disk.root.subdirectory(FOLDER).replace(FILE, batch(0, 3) + batch(1, 2))
    with pytest.raises(MetadataCorruptError, match="epoch 2 behind one of 3"):
        opened(disk)


def test_a_control_record_of_a_newer_version_refuses_to_start() -> None:
    disk = SimulatedDisk()
    record = NewRecord(0, b"\0\0\0\x06", b"\0\x07")
    disk.root.subdirectory(FOLDER).replace(FILE, build_batch([record], control=True))
    with pytest.raises(MetadataCorruptError, match="version 7 of the voters record"):
        opened(disk)


def test_a_log_of_a_quorum_of_one_opens_and_goes_on() -> None:
    disk = SimulatedDisk()
    alone = MetadataStore(disk.root)
    alone.load(lambda _: None)
    alone.append(decision(1), NOW_MS)
    alone.sync()
    store = opened(disk)
    assert store.epochs.entries() == [(1, 0)]
    store.append_control([LeaderChange(leader_id=1)], NOW_MS, epoch=2)
    store.append(decision(2), NOW_MS, epoch=2)
    store.sync()
    heard: list[tuple[MetadataRecord, ...]] = []
    alone = MetadataStore(disk.root)
    alone.load(heard.append)
    assert heard == [decision(1), decision(2)]
    assert alone.offset_end == 3
