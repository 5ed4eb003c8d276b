"""Which logs a path on the disk holds, for tools that run without a broker

A path may be a whole data folder or the folder of one partition; in the second case the data folder around it, if it
is one, still has the checkpoints and the lock. Everything is read through an overlay, so looking at a folder never
changes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemill.broker.folders import lost_decisions
from tidemill.broker.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANED,
    LOG_STARTS,
    RECOVERY_POINTS,
    find_offsets,
    read_offsets,
)
from tidemill.broker.log.identity import META
from tidemill.broker.log.partition_folders import METADATA_FOLDER, parse_partition_folder
from tidemill.broker.quorum.election_state import ELECTION_STATE, ElectionStateFile
from tidemill.broker.quorum.image import ClusterImage, Draft, ImageError
from tidemill.broker.quorum.store import KAFKA_ASIDE, KAFKA_STATE, MetadataCorruptError, MetadataStore
from tidemill.broker.tools.audit import segment_bases
from tidemill.core.runtime.disk import is_locked
from tidemill.core.runtime.overlay import OverlayDirectory
from tidemill.core.types import TopicPartition


class NotALog(Exception):
    """The path holds nothing that these tools can read; the message is one line that says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFolder:
    """One partition on the disk and what the data folder around it says about it; -1 where it says nothing."""

    path: Path
    partition: TopicPartition
    recovery_point: int = -1
    log_start_offset: int = -1
    cleaned_offset: int | None = None

    @property
    def is_metadata(self) -> bool:
        """Whether it is the metadata log, which has no indexes and no checkpoints."""
        return self.path.name == METADATA_FOLDER


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFolder:
    """What was found under a path."""

    path: Path
    data: Path | None  # the data folder, if there is one
    clean: bool  # closed in order: everything in it should be whole
    in_use: bool  # by a broker, now
    metadata_problem: str | None
    partitions: tuple[PartitionFolder, ...]
    skipped: tuple[str, ...]  # folders that no broker opens: deleted topics, strays


def look(path: Path) -> LogFolder:
    """Find the logs under `path`; raises NotALog, and OSError for what cannot be read."""
    if not path.exists():
        raise NotALog(f"{path} does not exist")
    if not path.is_dir():
        raise NotALog(f"{path} is not a folder: give a data folder or the folder of one partition")
    path = path.resolve()
    if any(child.suffix == ".log" for child in path.iterdir()):
        return _look_into(path, path.parent if _is_data_folder(path.parent) else None, [path.name])
    names = [child.name for child in path.iterdir() if child.is_dir()]
    if not _is_data_folder(path) and not any(map(parse_partition_folder, names)):
        raise NotALog(
            f"{path} holds no log: a data folder has {META} and folders such as orders-0, "
            "the folder of a partition has .log files"
        )
    return _look_into(path, path, sorted(names))


def _is_data_folder(path: Path) -> bool:
    return (path / META).exists()


def _look_into(path: Path, data: Path | None, names: "list[str]") -> LogFolder:
    recovery_points: Mapping[TopicPartition, int] = {}
    log_starts: Mapping[TopicPartition, int] = {}
    cleaned: Mapping[TopicPartition, int] | None = {}
    metadata_problem, image = None, ClusterImage()
    if data is not None:
        overlay = OverlayDirectory(data)
        recovery_points = read_offsets(overlay, RECOVERY_POINTS)
        log_starts = read_offsets(overlay, LOG_STARTS)
        cleaned = find_offsets(overlay, CLEANED)
        metadata_problem, image = _metadata(overlay)
    partitions: list[PartitionFolder] = []
    skipped: list[str] = []
    for name in names:
        partition = parse_partition_folder(name)
        if partition is None:
            if path.name == name:  # a copy of a partition's folder under another name
                partition = TopicPartition(name, 0)
            else:
                skipped.append(name)
                continue
        folder = path if path.name == name else path / name
        partitions.append(
            PartitionFolder(
                path=folder,
                partition=partition,
                recovery_point=recovery_points.get(partition, -1),
                log_start_offset=log_starts.get(partition, -1),
                cleaned_offset=_maybe_cleaned(folder, partition, image) if cleaned is None else cleaned.get(partition),
            )
        )
    return LogFolder(
        path=path,
        data=data,
        clean=data is not None and (data / CLEAN_SHUTDOWN).exists(),
        in_use=data is not None and is_locked(data),
        metadata_problem=metadata_problem,
        partitions=tuple(partitions),
        skipped=tuple(skipped),
    )


def _maybe_cleaned(folder: Path, partition: TopicPartition, image: ClusterImage) -> int | None:
    """How far a log may have been compacted when the cleaner's checkpoint is lost, as a start of the broker sees it."""
    topic = image.topics.get(partition.topic)
    if topic is None or "compact" not in topic.configs.get("cleanup.policy", ""):
        return None
    return max(segment_bases([path.name for path in folder.iterdir()]), default=None)


def _metadata(data: OverlayDirectory) -> tuple[str | None, ClusterImage]:
    """Why the metadata log cannot be replayed, None if it can or is not ours; and what it says, as far as it can."""
    draft = Draft(ClusterImage())
    if not data.is_directory(METADATA_FOLDER):
        image = draft.freeze()
        return None if data.is_directory(KAFKA_ASIDE) else lost_decisions(data, image), image
    try:
        of_a_member = data.subdirectory(METADATA_FOLDER).exists(ELECTION_STATE)
        store = MetadataStore(data, replicated=of_a_member)
        loaded = store.load(draft.apply_all)
        ElectionStateFile(data).load(store.epochs.latest)
    except (MetadataCorruptError, ImageError) as error:
        problem = None if data.subdirectory(METADATA_FOLDER).exists(KAFKA_STATE) else str(error)
        return problem, draft.freeze()
    image = draft.freeze(store.offset_end)
    if loaded.damaged:
        return f"{'; '.join(loaded.damaged)}; a start takes the one before it and the log behind that", image
    return lost_decisions(data, image), image
