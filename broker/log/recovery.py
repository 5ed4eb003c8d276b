"""Recovery of a partition: what may be trusted at the start

After a clean shutdown everything is: only the batches behind the last index entry are walked, to find the log end.
After a crash nothing at or beyond the recovery point is, and every batch from there on is checked against its CRC.
What is found decides:

* The log ends in something that is not a batch: a torn write. It was never acknowledged, so it is cut off.
* Something that is not a batch is followed by whole batches, and it holds a disk sector of zeros: the power went
  before that sector was written, so the fsync covering it never returned and neither it nor anything behind it was
  ever acknowledged. Cut off from there, or the batches behind it would stand without those before.
* Something that is not a batch is followed by whole batches and has no such hole: it was written and has changed
  since. What follows may well have been acknowledged and stays; the bad range answers CORRUPT_MESSAGE.

Below the recovery point a bad batch is always of the third kind. The indexes, the leader epochs and the producer
states are rebuilt on the way.

What stays is written once more before it is synced. After an fsync that failed the operating system takes the pages for
written, and another fsync leaves them alone: a log read from memory only would be built upon, until the power goes.
"""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import structlog

from tidemill.core.errors import CorruptMessage
from tidemill.core.records.batch import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    MAGIC_AT,
    BatchHeader,
    BatchView,
    plausible_size,
    read_header,
)
from tidemill.core.records.crc import crc32c
from tidemill.core.runtime.disk import DISK_FULL, Directory

from . import markers, snapshots, swap
from .checkpoints import LEADER_EPOCHS, read_epochs, write_epochs
from .config import LogConfig
from .epochs import LeaderEpochs
from .identity import read_topic_id
from .index import RELATIVE_OFFSET_MAX, IndexDamaged
from .producers import ProducerStates
from .scan import BadBatch, resync
from .segment import Segment
from .segment_age import prove_latest
from .segment_files import DELETED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, SPARSE, segment_name

log = structlog.get_logger("tidemill.broker.log")

SECTOR_BYTES = 512
_NAME_DIGITS = 20


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """A partition as it was found."""

    topic_id: uuid.UUID | None
    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerStates
    log_start_offset: int
    epochs_written: bool = True  # else the batches say more than their file


def load(
    directory: Directory,
    config: LogConfig,
    *,
    clean: bool,
    recovery_point: int | None,
    log_start_offset: int,
    now_ms: int,
    cleaned_offset: int | None = None,
    topic_id: uuid.UUID | None = None,
) -> LoadedLog:
    """Open the partition in `directory`, repairing what a crash left behind.

    `topic_id` is given by who has looked for it in the folder already.

    `recovery_point` is None if no checkpoint says it. `cleaned_offset` is the cleaner's checkpoint, None if the cleaner
    has never been at work here. It cleans only what lies below the recovery point, so that gaps between offsets are to
    be expected there and nowhere else; where that is not known any more, in all segments but the last.
    """
    names = swap.recover(directory)
    segments = [Segment.open(directory, base) for base in _segment_bases(directory, names)]
    if recovery_point is None:
        recovery_point = segments[-1].base_offset if segments and cleaned_offset is not None else 0
    if cleaned_offset is not None:
        recovery_point = max(recovery_point, cleaned_offset)
        for segment, following in pairwise(segments):
            segment.dense = following.base_offset > recovery_point
    if SPARSE in names:
        for segment in segments:
            segment.dense = False
    if not segments:
        segments = [Segment.create(directory, log_start_offset)]
        directory.sync()
    if not clean:
        directory.sync()  # what a killed process left may be in memory only, and from here on it is built upon
    if not clean or _open_clean(segments[-1], config) is not None:
        segments = _recover(segments, config, recovery_point)
        names = directory.list()
    for segment, following in pairwise(segments):
        segment.next_offset = following.base_offset
        if not segment.indexes.are_written:
            _write_indexes(segment)
    prove_latest(segments[-1])
    log_end_offset = segments[-1].next_offset
    if log_end_offset < recovery_point:
        log.error(
            "the log ends before what was durable: acknowledged records are missing",
            partition=directory.path,
            log_end_offset=log_end_offset,
            recovery_point=recovery_point,
        )
    log_start_offset = min(max(log_start_offset, segments[0].base_offset), log_end_offset)
    written = _read_epochs(directory, log_end_offset)
    producers = ProducerStates()
    replay_from = _restore_producers(directory, snapshot_offsets(names), segments, producers, now_ms)
    if written and written[0][1] <= log_start_offset:
        epochs = LeaderEpochs(written)
        _replay(segments, replay_from, replay_from, epochs, producers, now_ms)
    else:
        said = LeaderEpochs()
        _replay(segments, replay_from, segments[0].base_offset, said, producers, now_ms)
        epochs = _completed(written, said)
    epochs.truncate_from_start(log_start_offset)  # the file may be older than that
    return LoadedLog(
        topic_id=topic_id or read_topic_id(directory),
        segments=segments,
        epochs=epochs,
        producers=producers,
        log_start_offset=log_start_offset,
        epochs_written=epochs.entries() == written,
    )


def _read_epochs(directory: Directory, log_end_offset: int) -> list[tuple[int, int]]:
    """The leader epochs as their file has them."""
    epochs = LeaderEpochs(read_epochs(directory))
    if epochs.truncate_from_end(log_end_offset):
        # Or an epoch that begins earlier this time would never replace what is there.
        rewrite_epochs(directory, epochs.entries())
    return epochs.entries()


def _completed(written: list[tuple[int, int]], said: LeaderEpochs) -> LeaderEpochs:
    """What a file says that knows nothing of the log's first offsets, and the batches where it does not.

    It is missing, or was written when the log began further on, by a deletion that came to nothing. The batches have
    the second word: they do not know of epochs of which the cleaner has left none.
    """
    if not written:
        return said
    (epoch, start), *later = written
    before = [entry for entry in said.entries() if entry[0] < epoch]
    begun = min([start, *(begun for said_epoch, begun in said.entries() if said_epoch >= epoch)])
    return LeaderEpochs([*before, (epoch, begun), *later, *said.entries()])  # those that are known are not taken again


def _segment_bases(directory: Directory, names: Sequence[str]) -> list[int]:
    """Base offsets of the segments among all `names`; what deletions and crashes left behind is removed."""
    logs = {name for name in names if name.endswith(LOG_SUFFIX) and name[:-4].isdigit() and len(name) == 24}
    for name in names:
        stem = name[:_NAME_DIGITS]
        left_over = name.endswith((DELETED_SUFFIX, ".tmp"))
        of_segment = name[_NAME_DIGITS:] in SEGMENT_SUFFIXES and not name.endswith(SNAPSHOT_SUFFIX)
        orphan = stem.isdigit() and of_segment and stem + LOG_SUFFIX not in logs
        if left_over or orphan:
            directory.remove(name)
    return sorted(int(name[:_NAME_DIGITS]) for name in logs)


def _open_clean(active: Segment, config: LogConfig) -> BadBatch | None:
    return _reopen_indexes(active, None, config.index_interval_bytes)


def _reopen_indexes(segment: Segment, trusted_below: int | None, index_interval_bytes: int) -> BadBatch | None:
    """Keep of the index files what is about offsets below `trusted_below` and make the rest anew; None trusts all.

    Every batch behind what was kept is checked; the first bad one is returned.
    """
    indexes = segment.indexes
    try:
        offsets, _ = indexes.load(segment.size_bytes)
    except IndexDamaged:
        return segment.rebuild_indexes(index_interval_bytes)
    if trusted_below is None or trusted_below >= segment.base_offset + RELATIVE_OFFSET_MAX:
        indexes.write_anew()
    else:
        indexes.keep_below(trusted_below)
        try:
            segment.complete_latest(offsets.last_position)
        except BadBatch:
            return segment.rebuild_indexes(index_interval_bytes)
    position = offsets.last_position
    segment.next_offset = segment.base_offset
    if position:
        batch = read_header(segment.file.read_at(position, HEADER_BYTES).ljust(HEADER_BYTES, b"\0"))
        if batch.last_offset - segment.base_offset != offsets.last_offset_at(position):
            return segment.rebuild_indexes(index_interval_bytes)
        segment.next_offset = batch.base_offset
    return segment.extend_indexes(position, index_interval_bytes)


def _recover(segments: list[Segment], config: LogConfig, recovery_point: int) -> list[Segment]:
    """The segments that stay, all of them readable and indexed."""
    # Behind the segment with the last write there may be one that was made but never written to.
    end = max((number for number, segment in enumerate(segments) if segment.size_bytes), default=0)
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        following = None if is_last else segments[number + 1].base_offset
        if following is not None and following <= recovery_point:
            continue
        torn = _recover_segment(segment, config, recovery_point, following, is_end=number >= end)
        segment.write_again(recovery_point)
        segment.file.sync()
        if torn and not is_last:
            _drop(segments[number + 1 :])
            return segments[: number + 1]
    return segments


def _write_indexes(segment: Segment) -> None:
    """Nobody else does it for a sealed segment, and the next start trusts its files: they tell retention its age."""
    segment.seal()
    try:
        segment.take_index_writes()()
        segment.indexes.sync_files()
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        segment.indexes.remove_files()
    segment.directory.sync()


def _recover_segment(
    segment: Segment, config: LogConfig, recovery_point: int, following: int | None, *, is_end: bool
) -> bool:
    """Check one segment from the recovery point on; True if its end was torn off.

    `following` is the base offset of the next segment, `is_end` says that nothing was written to later ones.
    """
    interval = config.index_interval_bytes
    bad = _reopen_indexes(segment, recovery_point, interval)
    if bad is not None and segment.indexes.from_files:
        bad = segment.rebuild_indexes(interval)  # the index may have led to the wrong place
    while bad is not None:
        offset_end = segment.base_offset + RELATIVE_OFFSET_MAX + 1 if following is None else following
        found = resync(segment.file, bad.position + 1, segment.size_bytes, segment.next_offset + 1, offset_end)
        acknowledged = segment.next_offset < recovery_point
        resumes_at = found[0] if found is not None else segment.size_bytes
        if not acknowledged and (
            _is_torn_off(segment, bad.position, is_end)
            if found is None
            else _has_hole(segment, bad.position, resumes_at)
        ):
            _cut(segment, bad)
            return True
        damage = segment.add_damage(bad)
        segment.next_offset = max(damage.next_offset, segment.next_offset)
        if damage.end >= segment.size_bytes:
            segment.next_offset = max(segment.next_offset, recovery_point if following is None else following)
        bad = segment.extend_indexes(damage.end, interval)
    return following is not None and segment.next_offset < following and following > recovery_point


def _is_torn_off(segment: Segment, position: int, is_end: bool) -> bool:
    """Whether the segment ends inside of the batch that begins at `position`."""
    data = segment.file.read_at(position, segment.size_bytes - position)
    if is_end or len(data) < HEADER_BYTES or _has_hole(segment, position, segment.size_bytes):
        return True
    header = read_header(data)
    if not plausible_size(header) or header.size_bytes <= len(data):
        return False
    return crc32c(memoryview(data)[ATTRIBUTES_AT:]) != header.crc  # else all of it is there, only its length is wrong


def _has_hole(segment: Segment, start: int, end: int) -> bool:
    """Whether a sector in `[start, end)`, where the batch with offset `next_offset` was due, was never written.

    What was never written of a sector is zeros, up to its end; what was before `start` in it was there already.
    """
    data = segment.file.read_at(start, end - start + -end % SECTOR_BYTES)
    piece_start = 0
    while piece_start < len(data):
        piece_end = piece_start + SECTOR_BYTES - (start + piece_start) % SECTOR_BYTES
        if not any(data[piece_start:piece_end]):
            # Of the header that was due only the leading bytes of the offset may rightly be zeros.
            due = segment.next_offset.to_bytes(8, "big")
            if piece_end > MAGIC_AT or any(due[:piece_end]):
                return True
        piece_start = piece_end
    return False


def _cut(segment: Segment, bad: BadBatch) -> None:
    log.warning(
        "torn tail cut off: it was never acknowledged",
        segment=segment.label,
        bytes=segment.size_bytes - bad.position,
        log_end_offset=segment.next_offset,
        reason=bad.reason,
    )
    segment.truncate(bad.position)


def _drop(segments: list[Segment]) -> None:
    for segment in segments:
        log.warning("segment behind a torn one dropped: it was never acknowledged", segment=segment.label)
        segment.mark_deleted()
        segment.remove_deleted()
    segments[0].directory.sync()  # or a second crash could bring them back beside what is appended from now on


def _restore_producers(
    directory: Directory, offsets: list[int], segments: list[Segment], producers: ProducerStates, now_ms: int
) -> int:
    """Take the newest snapshot that can be read and remove those of no use; returns the offset that it stands for."""
    log_end_offset = segments[-1].next_offset
    bases = {segment.base_offset for segment in segments}
    taken = take_snapshot(directory, offsets, producers, segments, now_ms)
    changed = False
    for offset in offsets:
        if offset != taken and (offset > log_end_offset or taken is None or offset not in bases or offset > taken):
            # what lies behind the log end now would be wrong when the log has grown again
            directory.remove(segment_name(offset, SNAPSHOT_SUFFIX))
            changed = True
    if changed:
        directory.sync()
    return segments[0].base_offset if taken is None else taken


def take_snapshot(
    directory: Directory, offsets: list[int], producers: ProducerStates, segments: Sequence[Segment], now_ms: int
) -> int | None:
    """Restore the newest snapshot within the log that can be read; its offset, None without one."""
    for offset in offsets:
        if not segments[0].base_offset <= offset <= segments[-1].next_offset:
            continue  # from one before the log on some batches are not there any more
        name = segment_name(offset, SNAPSHOT_SUFFIX)
        try:
            remembered = snapshots.decode(directory.read(name))
        except snapshots.SnapshotDamaged as damaged:
            log.warning("producer snapshot ignored", snapshot=f"{directory.path}/{name}", reason=str(damaged))
        else:
            for state in remembered:
                producers.restore(state._replace(last_seen_ms=now_ms))
            return offset
    return None


def producers_at_end(directory: Directory, segments: Sequence[Segment], now_ms: int) -> ProducerStates:
    """What the snapshots and the batches of a log say of its producers; callable in a thread of its own.

    The files are read anew, up to where `segments` end; nothing is changed.
    """
    producers = ProducerStates()
    taken = take_snapshot(directory, snapshot_offsets(directory.list()), producers, segments, now_ms)
    replay_from = segments[0].base_offset if taken is None else taken
    for segment in segments:
        if segment.next_offset <= replay_from or not segment.size_bytes:
            continue
        found = Segment.open(directory, segment.base_offset)
        try:
            found.size_bytes, found.next_offset, found.dense = segment.size_bytes, segment.next_offset, False
            _replay([found], replay_from, segment.next_offset, LeaderEpochs(), producers, now_ms)
        finally:
            found.close()
    return producers


def snapshot_offsets(names: Iterable[str]) -> list[int]:
    """Those of the snapshots among all `names` of a folder, newest first."""
    stems = [name.removesuffix(SNAPSHOT_SUFFIX) for name in names if name.endswith(SNAPSHOT_SUFFIX)]
    return sorted((int(stem) for stem in stems if stem.isdigit() and len(stem) == _NAME_DIGITS), reverse=True)


def _replay(
    segments: list[Segment],
    producers_from: int,
    epochs_from: int,
    epochs: LeaderEpochs,
    producers: ProducerStates,
    now_ms: int,
) -> None:
    """Let the batches say which epochs and which producers wrote them, each from its own offset on.

    An epoch begins where the batch before its first one ended. Who wrote what the cleaner has taken between the two is
    not known; a replica told that it was the older epoch would keep what it has of that one, maybe other records.
    """
    first_offset, reached = min(producers_from, epochs_from), epochs_from
    for segment in segments:
        if segment.next_offset <= first_offset:
            continue
        for position, batch in segment.batches(segment.index.before(max(0, first_offset - segment.base_offset))):
            if batch.base_offset >= epochs_from:
                epochs.assign(batch.leader_epoch, reached)
                reached = batch.next_offset
            if batch.base_offset < producers_from or batch.producer_id < 0:
                continue
            if batch.is_control:
                _replay_marker(segment, position, batch, producers, now_ms)
            elif batch.base_sequence >= 0:  # the cleaner leaves some without records
                producers.update(batch, batch.base_offset, batch.max_timestamp, now_ms)


def _replay_marker(segment: Segment, position: int, batch: BatchHeader, producers: ProducerStates, now_ms: int) -> None:
    try:
        marker = markers.decode_any(BatchView(segment.file.read_at(position, batch.size_bytes)))
    except CorruptMessage:  # not even a batch
        marker = markers.UNREADABLE
    if marker is not None:
        producers.end_transaction(batch, batch.base_offset, marker.coordinator_epoch, now_ms)


def rewrite_epochs(directory: Directory, entries: list[tuple[int, int]]) -> None:
    """Write down the leader epochs; where a full disk has no room for that, let the batches say them."""
    try:
        write_epochs(directory, entries)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        directory.remove(LEADER_EPOCHS)
        directory.sync()
