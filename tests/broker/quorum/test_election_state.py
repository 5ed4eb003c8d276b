"""What a member remembers of elections: whole, on the disk, or the start is refused."""

import errno
import itertools
import json
import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim.disk import PowerCut, SimulatedDisk
from tidemill.broker.quorum.election_state import ELECTION_STATE, ROOM, ElectionStateFile, decode, encode
from tidemill.broker.quorum.loading import MetadataCorruptError
from tidemill.broker.quorum.raft.election import ElectionState
from tidemill.broker.quorum.store import FOLDER, MetadataStore, MetadataStoreError, why_not_ours
from tidemill.core.runtime.disk import OsDirectory

ids = st.integers(0, 2**31 - 1)
states = st.one_of(
    st.builds(ElectionState, epoch=ids, leader_id=ids),
    st.builds(ElectionState, epoch=ids, leader_id=ids, voted_id=ids, voted_directory_id=st.uuids()),
)


@given(states)
def test_every_state_comes_back(state: ElectionState) -> None:
    assert decode(encode(state)) == state


def test_the_fields_are_kafkas() -> None:
    state = ElectionState(epoch=5, leader_id=2, voted_id=3, voted_directory_id=uuid.UUID(int=1))
    assert json.loads(encode(state)) == {
        "leaderId": 2,
        "leaderEpoch": 5,
        "votedId": 3,
        "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAQ",
        "data_version": 1,
    }


def test_what_is_stored_survives_a_power_cut_at_any_step() -> None:
    for steps in itertools.count():
        for seed in range(5):
            disk = SimulatedDisk()
            MetadataStore(disk.root).load(lambda _: None)
            first, second = ElectionState(epoch=4, voted_id=1), ElectionState(epoch=5, leader_id=2)
            file = ElectionStateFile(disk.root)
            file.store(first)
            disk.cut_power_in = steps
            try:
                file.store(second)
                stored = True
            except PowerCut:
                stored = False
            disk.kill() if seed == 0 else disk.crash(random.Random(seed))
            found = ElectionStateFile(disk.root).load()
            assert found == second if stored else found in (first, second)
            disk.crash(random.Random(seed))
            assert ElectionStateFile(disk.root).load() == found, "what a start has read is on the disk"
        if stored:
            break
    assert steps >= 2


def test_a_folder_that_never_voted_begins_in_the_epoch_of_its_log() -> None:
    disk = SimulatedDisk()
    assert ElectionStateFile(disk.root).load() == ElectionState(epoch=0)
    assert ElectionStateFile(disk.root).load(log_epoch=1) == ElectionState(epoch=1)
    assert ElectionStateFile(disk.root).load(log_epoch=-1) == ElectionState(epoch=0)


WHOLE = encode(ElectionState(epoch=5, leader_id=2))


@pytest.mark.parametrize(
    ("contents", "says"),
    [
        *((WHOLE[:length], "cannot be used") for length in range(len(WHOLE))),
        (bytes(len(WHOLE)), "cannot be used"),
        (b"\xff" + WHOLE, "cannot be used"),
        (b"[]", "not a JSON object"),
        (b'{"data_version": 0, "leaderId": 1}', "its data_version is 0"),
        (WHOLE.replace(b"leaderEpoch", b"epoch"), "it has no leaderEpoch"),
        (WHOLE.replace(b":5", b":true"), "it has no leaderEpoch"),
        (WHOLE.replace(b":5", b":-5"), "no such state"),
        (WHOLE.replace(b"AAAA", b"A"), "is not an id|badly formed|16-char"),
    ],
)
def test_a_torn_or_foreign_file_refuses_the_start_and_says_what_to_do(contents: bytes, says: str) -> None:
    disk = SimulatedDisk()
    disk.root.subdirectory(FOLDER).replace(ELECTION_STATE, contents)
    with pytest.raises(MetadataCorruptError, match=says) as refused:
        ElectionStateFile(disk.root).load()
    assert f"{FOLDER}/{ELECTION_STATE}" in str(refused.value)
    assert "Restore the file" in str(refused.value) and "join again" in str(refused.value)


def test_a_file_that_is_older_than_the_log_is_refused() -> None:
    disk = SimulatedDisk()
    ElectionStateFile(disk.root).store(ElectionState(epoch=3))
    assert ElectionStateFile(disk.root).load(log_epoch=3).epoch == 3
    with pytest.raises(MetadataCorruptError, match="knows of epoch 3, the log beside it has epoch 4"):
        ElectionStateFile(disk.root).load(log_epoch=4)


def test_a_disk_that_fails_ends_it() -> None:
    disk = SimulatedDisk()
    file = ElectionStateFile(disk.root)
    disk.fail_sync = OSError(errno.EIO, "Input/output error")
    with pytest.raises(MetadataStoreError, match="start again"):
        file.store(ElectionState(epoch=1))
    disk.fail_sync = None
    with pytest.raises(MetadataStoreError, match="start again"):
        file.store(ElectionState(epoch=2))


def test_a_full_disk_has_room_for_every_next_state() -> None:
    disk = SimulatedDisk()
    file = ElectionStateFile(disk.root)
    file.load()
    disk.root.replace("filler", bytes(1000))
    disk.capacity_bytes = disk.used_bytes()
    for epoch in range(1, 10):
        file.store(ElectionState(epoch=epoch, voted_id=2**31 - 1 if epoch % 2 else 1))
        assert ElectionStateFile(disk.root).load() == ElectionState(epoch=epoch, voted_id=2**31 - 1 if epoch % 2 else 1)
    disk.root.subdirectory(FOLDER).remove(ROOM)
    disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(MetadataStoreError, match="No space left"):
        file.store(ElectionState(epoch=10))


def test_a_full_disk_and_a_power_cut_leave_one_state_or_the_other() -> None:
    for steps in itertools.count():
        disk = SimulatedDisk()
        file = ElectionStateFile(disk.root)
        disk.root.sync()
        file.load()
        file.store(ElectionState(epoch=1))
        disk.capacity_bytes = disk.used_bytes()
        disk.cut_power_in = steps
        try:
            file.store(ElectionState(epoch=2))
            stored = True
        except PowerCut:
            stored = False
        disk.crash(random.Random(steps))
        again = ElectionStateFile(disk.root)
        assert again.load().epoch in ((2,) if stored else (1, 2))
        again.store(ElectionState(epoch=3))
        if stored:
            break
    assert steps > 5


def test_a_folder_with_it_is_ours_and_its_log_opens(tmp_path: object) -> None:
    data = OsDirectory(str(tmp_path))
    ElectionStateFile(data).store(ElectionState(epoch=2, voted_id=1))
    assert why_not_ours(data) is None
    store = MetadataStore(data)
    store.load(lambda _: None)
    store.close()
    assert ElectionStateFile(data).load() == ElectionState(epoch=2, voted_id=1)
