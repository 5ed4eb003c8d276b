"""A log taken up as a stop in order left it, without reading its files

`describe` says at the stop what `reopen` needs at the start. Both would rather not: a log of which anything is out of
the ordinary is not described, and one that is not what its description says is not reopened. It is loaded then, as
after any other stop in order, and what a loading would put right is put right.

The log files are opened, because their size is the proof that nothing was cut off or added. The indexes of the active
segment are read when somebody appends or looks something up, and have to say what they said at the stop.
"""

import contextlib
from collections.abc import Collection
from itertools import pairwise

from tidemill.core.runtime.disk import Directory

from .checkpoints import LEADER_EPOCHS
from .epochs import LeaderEpochs
from .identity import PARTITION_METADATA
from .partition import PartitionLog
from .producers import ProducerStates
from .recovery import LoadedLog, snapshot_offsets, take_snapshot
from .segment import IndexClaim, Segment
from .segment_files import SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, SPARSE, segment_name
from .stopped_logs import StoppedLog

INDEX_ENTRIES_MAX = 4096
"""Of an active segment. They are read on the event loop, a millisecond or two for so many; more are read at the start.
With an entry for every 4 KiB that is a segment of 16 MiB."""

ACTIVE_BYTES_MAX = 16 * 2**20
"""Of an active segment. Index files that are not those of the stop are made anew on the event loop, by reading all of
it; with large batches a segment of a gigabyte has few entries."""


def describe(partition_log: PartitionLog, data: Directory) -> StoppedLog | None:
    """What a start may believe of a log that has been finished; None if it had better look itself.

    Snapshots of producers that no start would take are removed. Blocks.
    """
    segments, active = partition_log.segments, partition_log.active
    entries = active.index_entries
    if sum(entries) > INDEX_ENTRIES_MAX or active.size_bytes > ACTIVE_BYTES_MAX:
        return None
    if active.size_bytes and active.latest[0] < 0:
        return None
    if any(segment.damaged for segment in segments):
        return None
    try:
        names = _without_old_snapshots(partition_log)
        folder_modified_ms = data.modified_ms(str(partition_log.topic_partition))
    except FileNotFoundError:
        return None  # a topic is deleted meanwhile, which keeps no other log from being closed in order
    bases = {segment.base_offset for segment in segments}
    if not _as_ever(names, bases, partition_log):
        return None
    return StoppedLog(
        topic_id=partition_log.topic_id,
        folder_modified_ms=folder_modified_ms,
        segments=[(segment.base_offset, segment.size_bytes) for segment in segments],
        log_end_offset=partition_log.log_end_offset,
        latest=active.latest,
        index_entries=entries,
        epochs=partition_log.epochs.entries(),
        producers=len(partition_log.producers),
        sparse=SPARSE in names,
    )


def _without_old_snapshots(partition_log: PartitionLog) -> set[str]:
    """The names in the folder; a start that does not look removes nothing, and each stop adds a snapshot."""
    names = set(partition_log.directory.list())
    used = {partition_log.log_end_offset, *(segment.base_offset for segment in partition_log.segments)}
    for offset in snapshot_offsets(names):
        if offset not in used:
            partition_log.directory.remove(name := segment_name(offset, SNAPSHOT_SUFFIX))
            names.discard(name)
    return names


def _as_ever(names: Collection[str], bases: Collection[int], partition_log: PartitionLog) -> bool:
    """Whether in the folder is everything that belongs there and nothing that a start would remove."""
    end = partition_log.log_end_offset
    needed = {PARTITION_METADATA, *(segment_name(base, suffix) for base in bases for suffix in SEGMENT_SUFFIXES[:3])}
    if partition_log.epochs.entries():
        needed.add(LEADER_EPOCHS)
    if len(partition_log.producers):
        needed.add(segment_name(end, SNAPSHOT_SUFFIX))
    allowed = {LEADER_EPOCHS, SPARSE, segment_name(end, SNAPSHOT_SUFFIX)}
    allowed.update(segment_name(base, suffix) for base in bases for suffix in SEGMENT_SUFFIXES)
    return needed <= set(names) <= needed | allowed


def reopen(
    directory: Directory,
    stopped: StoppedLog,
    *,
    recovery_point: int | None,
    log_start_offset: int,
    cleaned_offset: int | None,
    now_ms: int,
) -> LoadedLog | None:
    """The log as it was at the stop; None if it is not, or the checkpoints do not say the same.

    The arguments are those of `recovery.load`.
    """
    end, first_base = stopped.log_end_offset, stopped.segments[0][0]
    if recovery_point != end:
        return None
    log_start_offset = min(max(log_start_offset, first_base), end)
    if stopped.epochs[0][1] > log_start_offset if stopped.epochs else end > first_base:
        return None
    segments = _open(directory, stopped, may_have_gaps=cleaned_offset is not None)
    if segments is None:
        return None
    producers = ProducerStates()
    if stopped.producers and not _restore(directory, segments, producers, now_ms):
        _close(segments)
        return None
    return LoadedLog(
        topic_id=stopped.topic_id,
        segments=segments,
        epochs=LeaderEpochs((epoch, start) for epoch, start in stopped.epochs),
        producers=producers,
        log_start_offset=log_start_offset,
    )


def _open(directory: Directory, stopped: StoppedLog, *, may_have_gaps: bool) -> list[Segment] | None:
    """The segments, if the files have their sizes; all of what is sealed lies below the recovery point."""
    segments: list[Segment] = []
    for base_offset, size_bytes in stopped.segments:
        try:
            segment = Segment.open(directory, base_offset)
        except FileNotFoundError:
            break
        segments.append(segment)
        if segment.size_bytes != size_bytes:
            break
        segment.dense = not (stopped.sparse or may_have_gaps)
    else:
        for segment, following in pairwise(segments):
            segment.next_offset = following.base_offset
        active = segments[-1]
        active.dense = not stopped.sparse
        active.next_offset = stopped.log_end_offset
        timestamp, offset = stopped.latest
        offset_entries, time_entries = stopped.index_entries
        active.claim_indexes(IndexClaim(offset_entries, time_entries, (timestamp, offset)))
        return segments
    _close(segments)
    return None


def _restore(directory: Directory, segments: list[Segment], producers: ProducerStates, now_ms: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return take_snapshot(directory, [segments[-1].next_offset], producers, segments, now_ms) is not None
    return False


def _close(segments: list[Segment]) -> None:
    for segment in segments:
        segment.close()
