"""Check of partition folders against the cluster image at the start

The image says which partitions live here; the disk may say otherwise after a crash or a restored backup. A folder of
a topic whose removal is in the metadata log is on its way out and gets the suffix that the log store removes. A
folder of a topic that the metadata log never heard of may be somebody's data: it is set aside under a name that is
not opened, never deleted. What is missing is made by the caller.

Where there are partitions and not one decision, it is the metadata log that is missing: nothing is moved then.
"""

import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from tidemill.broker.log.identity import read_topic_id
from tidemill.broker.log.partition_folders import DELETE_SUFFIX, KnownFolder, parse_partition_folder
from tidemill.broker.log.stopped_logs import StoppedLog, read_stopped_logs
from tidemill.broker.quorum.image import ClusterImage
from tidemill.broker.quorum.store import FOLDER as METADATA_FOLDER
from tidemill.core.runtime.disk import Directory
from tidemill.core.types import TopicPartition

STRAY_SUFFIX: Final = "-stray"
_NAME_BYTES_MAX: Final = 255  # of a file name on every file system we know


class Moved(NamedTuple):
    """A folder that was renamed, and why."""

    name: str
    new_name: str
    reason: str


class Checked(NamedTuple):
    """What became of the folders: those that were moved, and whose the others are."""

    moved: list[Moved]
    known: dict[TopicPartition, KnownFolder]


def lost_decisions(data: Directory, image: ClusterImage) -> str | None:
    """What to say when there are partitions but no decision at all in the metadata log; None when all is well.

    The first decision is on the disk before the first partition is made, so no crash leaves a folder like that.
    """
    if image.offset > 0:
        return None
    partitions = [name for name in data.list() if _names_a_topic(data, name)]
    if not partitions:
        return None
    return (
        f"The metadata log {data.path}/{METADATA_FOLDER} is missing or empty, but partitions are there, "
        f"{partitions[0]} among {len(partitions)}. Restore the folder from a backup; starting without it would forget "
        "topics. To begin without them, move their folders away."
    )


def set_aside(
    data: Directory, image: ClusterImage, removed: Collection[uuid.UUID], new_id: Callable[[], uuid.UUID]
) -> Checked:
    """Rename every partition folder that does not belong to a partition of `image`."""
    moved: list[Moved] = []
    known: dict[TopicPartition, KnownFolder] = {}
    stopped = read_stopped_logs(data)
    for name in data.list():
        partition = parse_partition_folder(name)
        if partition is None or name == METADATA_FOLDER:
            continue
        at_stop = stopped.get(partition)
        if at_stop is not None and _is_as_it_was(data, name, image, partition, at_stop):
            known[partition] = KnownFolder(data.subdirectory(name), at_stop.topic_id, at_stop)
            continue
        if not data.is_directory(name):
            continue
        folder = data.subdirectory(name)
        topic_id = read_topic_id(folder)
        if topic_id is None:
            if _holds_data(folder):
                continue  # a folder of an older Kafka: the log store takes it by its name
            suffix, reason = DELETE_SUFFIX, "it was being made when the broker died"
        elif _belongs(image, partition, topic_id):
            known[partition] = KnownFolder(folder, topic_id)
            continue
        elif topic_id in removed:
            suffix, reason = DELETE_SUFFIX, "its topic was deleted"
        else:
            suffix, reason = STRAY_SUFFIX, f"no topic has the id {topic_id} that it names; look at it and remove it"
        tail = f".{new_id().hex}{suffix}"
        new_name = name[: _NAME_BYTES_MAX - len(tail)] + tail
        data.rename(name, new_name)
        moved.append(Moved(name, new_name, reason))
    if moved:
        data.sync()
    return Checked(moved, known)


def still_there(
    data: Directory, removed: Mapping[uuid.UUID, str], is_open: Callable[[str, int], bool]
) -> list[uuid.UUID]:
    """Which of the `removed` topics, names by their ids, may have a folder that a start would meet.

    A folder whose log is open belongs to the topic that has the name now. What is not to be seen any more is made
    durable, so that no power cut brings it back. For a worker thread; opens no folder, for one may be on its way out.
    """
    names = set(removed.values())
    found = set()
    for name in data.list():
        partition = parse_partition_folder(name)
        if partition is not None and partition.topic in names and not is_open(*partition):
            found.add(partition.topic)
    data.sync()
    return [topic_id for topic_id, topic in removed.items() if topic in found]


def _names_a_topic(data: Directory, name: str) -> bool:
    if name == METADATA_FOLDER or parse_partition_folder(name) is None or not data.is_directory(name):
        return False
    return read_topic_id(data.subdirectory(name)) is not None


def _belongs(image: ClusterImage, partition: TopicPartition, topic_id: uuid.UUID) -> bool:
    topic = image.topics.get(partition.topic)
    return topic is not None and topic.topic_id == topic_id and partition.partition < len(topic.partitions)


def _is_as_it_was(
    data: Directory, name: str, image: ClusterImage, partition: TopicPartition, stopped: StoppedLog
) -> bool:
    return _belongs(image, partition, stopped.topic_id) and data.modified_ms(name) == stopped.folder_modified_ms


def _holds_data(folder: Directory) -> bool:
    for name in folder.list():
        if name.endswith(".log"):
            file = folder.open(name)
            try:
                if file.size() > 0:
                    return True
            finally:
                file.close()
    return False
