"""Folders of partitions: named, made together or not at all, taken away whatever room there is"""

import contextlib
import random
import uuid
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim.disk import PowerCut, SimulatedDisk
from tidemill.broker.log.identity import PARTITION_METADATA, read_topic_id
from tidemill.broker.log.partition_folders import (
    PartitionFolders,
    find_partition_folders,
    name_of_deleted,
    parse_partition_folder,
)
from tidemill.broker.log.segment import Segment
from tidemill.core.errors import KafkaStorageError
from tidemill.core.runtime.disk import Directory
from tidemill.core.types import TopicPartition

TOPIC_ID = uuid.UUID(int=5)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MANY = {TopicPartition(f"t{number}", 0): uuid.UUID(int=number + 1) for number in range(40)}


def forget_nothing(_keys: Sequence[TopicPartition]) -> None:
    return None


def test_folder_names() -> None:
    assert parse_partition_folder("a-b.c-12") == TopicPartition("a-b.c", 12)
    assert parse_partition_folder("t-0") == TopicPartition("t", 0)
    for name in ("t", "t-", "-1", "t-01", "t-0.abc-delete", "t-x", "lost+found"):
        assert parse_partition_folder(name) is None
    longest = name_of_deleted(TopicPartition("x" * 249, 0), TOPIC_ID)
    assert len(longest) == 255
    assert longest.endswith(f".{TOPIC_ID.hex}-delete")


def test_folders_are_made_and_found_and_what_was_deleted_goes_when_they_are_looked_for() -> None:
    disk = SimulatedDisk()
    folders = PartitionFolders(disk.root, forget_nothing)
    made = folders.make({T0: TOPIC_ID, T1: TOPIC_ID})
    assert [read_topic_id(folder) for folder, _ in made] == [TOPIC_ID, TOPIC_ID]
    assert folders.retire([("t-1", "t-1.1-delete")]) is None
    disk.root.subdirectory("__cluster_metadata-0")
    disk.root.subdirectory("lost+found")
    assert [key for key, _ in find_partition_folders(disk.root, {})] == [T0]
    assert disk.root.list() == ["__cluster_metadata-0", "lost+found", "t-0"]


def test_a_full_disk_makes_none_of_them_and_still_takes_them_away() -> None:
    disk = SimulatedDisk()
    folders = PartitionFolders(disk.root, forget_nothing)
    folders.make({T0: TOPIC_ID})
    disk.capacity_bytes = disk.used_bytes() + 100
    with pytest.raises(KafkaStorageError):
        folders.make({T1: TOPIC_ID, TopicPartition("t", 2): TOPIC_ID})
    assert disk.root.list() == ["t-0"]
    disk = SimulatedDisk()
    folders = PartitionFolders(disk.root, forget_nothing)
    folders.make({T0: TOPIC_ID})
    disk.capacity_bytes = disk.used_bytes()
    assert folders.retire([("t-0", "t-0.1-delete")]) is None
    assert disk.root.list() == []
    folders.remove_deleted("t-0.1-delete")  # it has gone already


def test_many_are_made_with_two_syncs_of_everything() -> None:
    disk = SimulatedDisk(syncs_everything=True)
    made = PartitionFolders(disk.root, forget_nothing).make(MANY)
    assert disk.syncs == 4, "and with each one of a folder, which tells of a file system that was given up"
    assert {read_topic_id(folder): segment.base_offset for folder, segment in made} == dict.fromkeys(MANY.values(), 0)
    disk.crash(random.Random(0))
    assert {key: read_topic_id(folder.directory) for key, folder in find_partition_folders(disk.root, {})} == MANY


@pytest.mark.parametrize("room_bytes", [100, 900, 1_770])
def test_a_disk_that_is_full_for_many_makes_none_of_them(room_bytes: int) -> None:
    disk = SimulatedDisk(capacity_bytes=room_bytes, syncs_everything=True)
    with pytest.raises(KafkaStorageError):
        PartitionFolders(disk.root, forget_nothing).make(MANY)
    assert disk.root.list() == []


@pytest.mark.parametrize("syncs_everything", [False, True])
def test_none_that_was_made_stays_open_where_another_cannot_be(
    monkeypatch: pytest.MonkeyPatch, syncs_everything: bool
) -> None:
    opened = list[Segment]()

    def full(folder: Directory, base_offset: int) -> Segment:
        if len(opened) >= 20:
            raise OSError(28, "No space left on device")
        opened.append(real(folder, base_offset))
        return opened[-1]

    real = Segment.create
    monkeypatch.setattr(Segment, "create", full)
    disk = SimulatedDisk(syncs_everything=syncs_everything)
    with pytest.raises(KafkaStorageError):
        PartitionFolders(disk.root, forget_nothing).make(MANY)
    assert len(opened) >= 20
    for segment in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            segment.file.size()


@given(changes=st.integers(0, 900), seed=st.integers(0, 1000))
def test_after_a_power_cut_each_of_many_names_its_topic_or_has_nothing(changes: int, seed: int) -> None:
    disk = SimulatedDisk(syncs_everything=True)
    disk.cut_power_in = changes
    with contextlib.suppress(PowerCut):
        PartitionFolders(disk.root, forget_nothing).make(MANY)
    disk.crash(random.Random(seed))
    for name in disk.root.list():
        folder = disk.root.subdirectory(name)
        key = parse_partition_folder(name)
        assert key is not None
        if PARTITION_METADATA in folder.list():
            assert read_topic_id(folder) == MANY[key]
        else:
            assert set(folder.list()) <= {PARTITION_METADATA + ".tmp"}


def test_a_folder_that_kept_its_name_makes_way_and_a_foreign_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    folders = PartitionFolders(disk.root, forget_nothing)
    folders.make({T0: TOPIC_ID, T1: TOPIC_ID})

    def failing(old: str, new: str) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(disk.root, "rename", failing)
        assert folders.retire([("t-0", "t-0.1-delete"), ("t-1", "t-1.1-delete")]) is not None
    (folder, segment), _ = folders.make(dict.fromkeys([T0, T1], uuid.UUID(int=6)))
    assert (read_topic_id(folder), segment.base_offset) == (uuid.UUID(int=6), 0)
    with pytest.raises(KafkaStorageError, match="did not make"):
        folders.make({T0: TOPIC_ID})
