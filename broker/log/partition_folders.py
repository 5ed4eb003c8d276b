"""Folders of partitions, made and taken away

A folder is called `topic-partition` and names its topic's id in `partition.metadata`, which is the first file in it
and the last to go: so a start always knows whose it is. A topic that is deleted loses its folders by renaming them to
`….-delete`; what is in them is removed later. Where a full disk has no room for the new name, the folder is emptied and
removed on the spot.

Everything here blocks and belongs to a thread: making to the file thread, retiring to the flusher's.
"""

import errno
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple

from tidemill.core.errors import KafkaStorageError
from tidemill.core.runtime.disk import DISK_FULL, Directory
from tidemill.core.types import TopicPartition

from .flusher import Cheaper, SyncEverything
from .identity import PARTITION_METADATA, draft_topic_id, publish_topic_id, write_topic_id
from .segment import Segment
from .stopped_logs import StoppedLog
from .threads import OS_MAKERS

DELETE_SUFFIX = "-delete"
METADATA_FOLDER = "__cluster_metadata-0"  # looks like a partition, but the metadata quorum looks after it itself
_NAME_MAX = 255  # bytes of a file name on every file system we know
_UNIQUE_BYTES = 1 + 32 + len(DELETE_SUFFIX)

WHOLE_FROM_PARTITIONS = 32
"""From here on two syncs of the whole file system may be cheaper than two for each partition (measured: 12 ms against
70 ms for 150). Fewer would make others' unwritten data wait for the disk more often than it is worth."""


def parse_partition_folder(name: str) -> TopicPartition | None:
    """The partition whose folder is called `name`; None for folders of anything else."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isdigit() or (len(number) > 1 and number[0] == "0"):
        return None
    return TopicPartition(topic, int(number))


class KnownFolder(NamedTuple):
    """The folder of a partition, and the topic id that it names; None where that has not been asked.

    `stopped` is what the stop said of its log, in a folder that has not changed since.
    """

    directory: Directory
    topic_id: uuid.UUID | None
    stopped: StoppedLog | None = None


def find_partition_folders(
    directory: Directory, known: Mapping[TopicPartition, KnownFolder]
) -> Iterator[tuple[TopicPartition, KnownFolder]]:
    """Every partition in a data folder, those that are `known` too; what deletions left behind is removed."""
    for name in directory.list():
        topic_partition = parse_partition_folder(name)
        if topic_partition is not None and (found := known.get(topic_partition)) is not None:
            yield topic_partition, found
        elif name == METADATA_FOLDER or not directory.is_directory(name):
            continue
        elif name.endswith(DELETE_SUFFIX):
            directory.remove_tree(name)
        elif topic_partition is not None:
            yield topic_partition, KnownFolder(directory.subdirectory(name), None)


def name_of_deleted(topic_partition: TopicPartition, unique: uuid.UUID) -> str:
    """What the folder of a deleted partition is called until it is removed."""
    return f"{str(topic_partition)[: _NAME_MAX - _UNIQUE_BYTES]}.{unique.hex}{DELETE_SUFFIX}"


class PartitionFolders:
    """Makes and retires the folders of partitions in one data folder."""

    def __init__(
        self,
        directory: Directory,
        forget: Callable[[Sequence[TopicPartition]], None],
        makers: Callable[[], Executor] = OS_MAKERS,
        *,
        monotonic: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._directory = directory
        self._monotonic = monotonic
        self._sync_everything = directory.file_system_sync()  # of its own: an error is told to each of them once
        self._cheaper = Cheaper(WHOLE_FROM_PARTITIONS)
        self._makers = makers
        self._forget = forget
        self._undeleted: set[str] = set()  # folders of deleted partitions that still have their names

    def make(
        self, topic_ids: Mapping[TopicPartition, uuid.UUID], base_offset: int = 0
    ) -> list[tuple[Directory, Segment]]:
        """Folders with an empty log each, all of them durable or none there; raises KafkaStorageError."""
        topic_partitions = list(topic_ids)
        where = f"{self._directory.path}/{topic_partitions[0]}"
        try:
            for topic_partition in topic_partitions:
                self._make_way(str(topic_partition))
        except OSError as error:
            raise KafkaStorageError(f"cannot make {where}: what is there cannot be removed: {error}") from error
        try:
            self._forget(topic_partitions)
            made = self._make_all(topic_ids, base_offset)
        except OSError as error:
            for topic_partition in topic_partitions:
                self._undo(str(topic_partition))
            raise KafkaStorageError(f"cannot make {where}: {error.strerror}") from error
        return made

    def _make_all(
        self, topic_ids: Mapping[TopicPartition, uuid.UUID], base_offset: int
    ) -> list[tuple[Directory, Segment]]:
        begun = self._monotonic()
        if self._sync_everything is not None and self._cheaper.whole(len(topic_ids)):
            made = self._make_as_one(topic_ids, base_offset, self._sync_everything)
            self._cheaper.note_whole(self._monotonic() - begun, len(topic_ids))
        else:
            made = self._make_each(topic_ids, base_offset)
            self._cheaper.note_each(self._monotonic() - begun, len(topic_ids))
        return made

    def _make_as_one(
        self, topic_ids: Mapping[TopicPartition, uuid.UUID], base_offset: int, sync: SyncEverything
    ) -> list[tuple[Directory, Segment]]:
        folders = [self._directory.subdirectory(str(key)) for key in topic_ids]
        for folder, topic_id in zip(folders, topic_ids.values(), strict=True):
            draft_topic_id(folder, topic_id)
        sync(folders[0].sync)
        made: list[tuple[Directory, Segment]] = []
        try:
            for folder in folders:
                publish_topic_id(folder)
                made.append((folder, Segment.create(folder, base_offset)))
            sync(folders[0].sync)
        except OSError:
            for _, segment in made:
                segment.close()
            raise
        return made

    def _make_each(
        self, topic_ids: Mapping[TopicPartition, uuid.UUID], base_offset: int
    ) -> list[tuple[Directory, Segment]]:
        opened: list[Segment] = []
        make = partial(self._make_one, base_offset=base_offset, opened=opened)
        try:
            if len(topic_ids) == 1:
                made = [make(*each) for each in topic_ids.items()]
            else:
                with self._makers() as pool:  # their syncs share the disk's journal
                    made = list(pool.map(make, topic_ids.keys(), topic_ids.values()))
            self._directory.sync()
        except OSError:
            for segment in opened:
                segment.close()
            raise
        return made

    def _make_one(
        self, topic_partition: TopicPartition, topic_id: uuid.UUID, *, base_offset: int, opened: list[Segment]
    ) -> tuple[Directory, Segment]:
        folder = self._directory.subdirectory(str(topic_partition))
        write_topic_id(folder, topic_id)
        segment = Segment.create(folder, base_offset)
        opened.append(segment)
        folder.sync()
        return folder, segment

    def _make_way(self, name: str) -> None:
        """A new log never takes up files that are there: they would come back as its own with the next start."""
        if not self._directory.exists(name):
            return
        if name not in self._undeleted:
            raise FileExistsError(errno.EEXIST, "a folder that this broker did not make", name)
        self._empty(name)

    def _undo(self, name: str) -> None:
        if self._directory.exists(name):
            try:
                self._directory.remove_tree(name)
            except OSError:
                self._undeleted.add(name)

    def retire(self, renames: Sequence[tuple[str, str]]) -> OSError | None:
        """Give folders, whose files are closed, the names of deleted ones; returns the last error.

        A folder that keeps its name makes way when it is made again, or with the next start.
        """
        failure = None
        renamed = False
        for name, deleted in renames:
            self._undeleted.add(name)
            try:
                renamed |= self._retire_one(name, deleted)
            except OSError as error:
                failure = error
        if renamed:
            try:
                self._directory.sync()
            except OSError as error:
                failure = error
        return failure

    def _retire_one(self, name: str, deleted: str) -> bool:
        try:
            self._directory.rename(name, deleted)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self._empty(name)  # there is no room for a name, and soon there will be
            return False
        self._undeleted.discard(name)
        return True

    def _empty(self, name: str) -> None:
        """Remove the folder of a partition so that it names its topic until nothing else is in it."""
        folder = self._directory.subdirectory(name)
        for each in folder.list():
            if each != PARTITION_METADATA and not folder.is_directory(each):
                folder.remove(each)
        folder.sync()
        self._directory.remove_tree(name)
        self._directory.sync()
        self._undeleted.discard(name)

    def remove_deleted(self, deleted: str) -> None:
        """Remove a retired folder for good, if it has not gone at once."""
        if self._directory.exists(deleted):
            self._directory.remove_tree(deleted)
