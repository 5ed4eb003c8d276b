"""Folders that do not belong: moved aside, never opened, never deleted without proof."""

import itertools
import random
import uuid

from tests.sim.disk import SimulatedDisk
from tidemill.broker.folders import set_aside, still_there
from tidemill.broker.log.identity import write_topic_id
from tidemill.broker.log.partition_folders import find_partition_folders
from tidemill.broker.quorum.image import ClusterImage, apply_batch
from tidemill.broker.quorum.records import PartitionRecord, TopicRecord
from tidemill.core.runtime.disk import Directory

MINE, OTHER, GONE = uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=3)
IMAGE = apply_batch(
    ClusterImage(),
    [
        TopicRecord(name="t", topic_id=MINE),
        PartitionRecord(partition_id=0, topic_id=MINE, replicas=(1,), isr=(1,), leader=1),
    ],
)


def folder(root: Directory, name: str, topic_id: uuid.UUID | None, data: bytes = b"") -> None:
    made = root.subdirectory(name)
    if topic_id is not None:
        write_topic_id(made, topic_id)
    file = made.create("00000000000000000000.log")
    file.write_at(0, data)


def names_after(**folders: tuple[uuid.UUID | None, bytes]) -> list[str]:
    root = SimulatedDisk().root
    for name, (topic_id, data) in folders.items():
        folder(root, name.replace("_", "-"), topic_id, data)
    numbers = itertools.count()
    set_aside(root, IMAGE, {GONE}, lambda: uuid.UUID(int=next(numbers)))
    return [name.rpartition(".")[0] + name[name.rfind("-") :] if "." in name else name for name in root.list()]


def test_a_folder_of_a_partition_stays() -> None:
    assert names_after(t_0=(MINE, b"data")) == ["t-0"]


def test_a_folder_of_a_deleted_topic_goes_the_way_of_the_topic() -> None:
    assert names_after(old_0=(GONE, b"data"), t_0=(MINE, b"")) == ["old-0-delete", "t-0"]


def test_a_folder_of_an_unknown_topic_is_kept_aside() -> None:
    assert names_after(x_0=(OTHER, b"data")) == ["x-0-stray"]


def test_an_older_life_of_a_topic_is_not_mistaken_for_it() -> None:
    assert names_after(t_0=(OTHER, b"data")) == ["t-0-stray"]


def test_a_partition_the_topic_does_not_have_is_kept_aside() -> None:
    assert names_after(t_1=(MINE, b"data")) == ["t-1-stray"]


def test_a_folder_that_was_being_made_is_removed_and_one_with_data_is_not() -> None:
    assert names_after(t_0=(None, b"")) == ["t-0-delete"]
    assert names_after(t_0=(None, b"data")) == ["t-0"]


def test_other_folders_and_the_metadata_log_are_left_alone() -> None:
    root = SimulatedDisk().root
    for name in ("__cluster_metadata-0", "lost+found", "t-0.abc-delete", "t-0.abc-stray"):
        root.subdirectory(name)
    root.replace("file-0", b"")
    assert set_aside(root, IMAGE, set(), uuid.uuid4).moved == []


def test_what_is_known_of_a_folder_is_not_asked_again() -> None:
    root = SimulatedDisk().root
    folder(root, "t-0", MINE)
    checked = set_aside(root, IMAGE, set(), uuid.uuid4)
    ((key, known),) = checked.known.items()
    assert (str(key), known.topic_id, known.directory.path) == ("t-0", MINE, root.subdirectory("t-0").path)
    root.subdirectory("t-1")
    root.subdirectory("x-0-delete")
    found = dict(find_partition_folders(root, checked.known))
    assert {str(key): each.topic_id for key, each in found.items()} == {"t-0": MINE, "t-1": None}
    assert found[key] is known


def test_a_name_at_its_limit_is_shortened() -> None:
    root = SimulatedDisk().root
    name = "n" * 249 + "-10000"
    folder(root, name, OTHER, b"data")
    (moved,) = set_aside(root, IMAGE, set(), uuid.uuid4).moved
    assert len(moved.new_name) == 255
    assert moved.new_name.endswith("-stray")
    assert root.list() == [moved.new_name]


def test_which_removed_topics_may_have_left_a_folder() -> None:
    disk = SimulatedDisk()
    removed = {GONE: "old", OTHER: "t", uuid.UUID(int=4): "nowhere"}
    for name in ("old-0", "t-0", "t-1", "nowhere-0.abc-delete", "x-0"):
        folder(disk.root, name, GONE)
    open_now = {("t", 0)}
    assert still_there(disk.root, removed, lambda *each: each in open_now) == [GONE, OTHER]
    open_now.add(("t", 1))
    assert still_there(disk.root, removed, lambda *each: each in open_now) == [GONE]


def test_a_folder_that_was_not_seen_any_more_does_not_come_back() -> None:
    for seed in range(20):
        disk = SimulatedDisk()
        folder(disk.root, "old-0", GONE)
        disk.root.sync()
        disk.root.rename("old-0", "old-0.abc-delete")
        assert still_there(disk.root, {GONE: "old"}, lambda *_: False) == []
        disk.crash(random.Random(seed))
        assert "old-0" not in disk.root.list()
