"""Repair of a partition on the disk, planned before it is done

The plan comes from recovery itself: it runs over an overlay of the folder, so it decides as a start of the broker
would, and what it would change becomes the plan. Indexes that do not fit the log are made anew on the way, and so are
the leader epochs. Whatever is cut off or removed, indexes excepted, is first copied to `cut-by-repair/` in the
partition's folder and synced: nothing is ever thrown away.

A corrupt range in the middle stays where it is, fenced off, because consumers should hear of a loss. `quarantine`
moves its bytes out and puts an empty batch in their place that takes their offsets, so that consumers go on behind
it: for an operator who has decided that these records are lost.

The caller holds the lock of the data folder. Doing a plan twice, or again after a crash half-way, does no harm.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.broker.log.checkpoints import read_epochs, write_epochs
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.epochs import LeaderEpochs
from tidemill.broker.log.recovery import LoadedLog, load
from tidemill.broker.log.segment import Segment
from tidemill.broker.log.segment_files import CLEANED_SUFFIX, DELETED_SUFFIX, INDEX_SUFFIXES, LOG_SUFFIX, segment_name
from tidemill.core.records.batch import BatchHeader
from tidemill.core.records.builder import build_empty_batch
from tidemill.core.runtime.disk import OsDirectory
from tidemill.core.runtime.overlay import Change, Cut, OverlayDirectory, Removed, Renamed, Written

from .audit import PartitionFacts

SIDE_FOLDER = "cut-by-repair"
_LEFT_OVER_SUFFIXES = (".tmp", CLEANED_SUFFIX, DELETED_SUFFIX)
_COPY_BYTES = 4 * 2**20
_OFFSET_DELTA_MAX = 2**31 - 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """A corrupt range `[position, end)` of a segment; `offset_start` to `offset_end` cannot be read because of it."""

    name: str
    position: int
    end: int
    offset_start: int
    offset_end: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan:
    """What a repair of one partition will do, and what it has to leave."""

    changes: tuple[Change, ...]
    fenced: tuple[Fenced, ...]
    offset_start: int
    offset_end: int


def plan(
    overlay: OverlayDirectory,
    facts: PartitionFacts,
    *,
    recovery_point: int | None,
    log_start_offset: int,
    now_ms: int,
    cleaned_offset: int | None = None,
) -> RepairPlan:
    """Run recovery over `overlay`; `facts` are what an audit of it has found."""
    doubtful = {segment.base_offset for segment in facts.segments if segment.bad_ranges > 0 or not segment.index_sound}
    for base_offset in doubtful:
        for suffix in INDEX_SUFFIXES:
            overlay.remove(segment_name(base_offset, suffix))
    loaded = load(
        overlay,
        LogConfig(),
        clean=False,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        now_ms=now_ms,
        cleaned_offset=cleaned_offset,
    )
    fenced: list[Fenced] = []
    for segment in loaded.segments:
        if segment.base_offset in doubtful:
            assert segment.index is not None  # asking for it makes both anew
            segment.seal()
            segment.take_index_writes()()
            fenced += _fenced(segment, loaded.epochs)
    _mend_epochs(overlay, facts, loaded)
    for segment in loaded.segments:
        segment.close()
    return RepairPlan(
        changes=tuple(overlay.changes()),
        fenced=tuple(fenced),
        offset_start=loaded.log_start_offset,
        offset_end=loaded.segments[-1].next_offset,
    )


def _mend_epochs(overlay: OverlayDirectory, facts: PartitionFacts, loaded: LoadedLog) -> None:
    """Write what recovery knows of the epochs, or all that the batches say if their file says less than they do."""
    written = read_epochs(overlay)
    epochs = loaded.epochs
    if written and set(written) < set(facts.epochs):  # without a file recovery has asked all batches
        epochs = LeaderEpochs(facts.epochs)
        epochs.truncate_from_end(loaded.segments[-1].next_offset)
        epochs.truncate_from_start(loaded.log_start_offset)
    if epochs.entries() != written:
        write_epochs(overlay, epochs.entries())


def _fenced(segment: Segment, epochs: LeaderEpochs) -> list[Fenced]:
    """The damaged ranges of a segment, with the offsets that are lost in them."""
    if not segment.damaged:
        return []
    damaged = sorted(segment.damaged, key=lambda damage: damage.position)
    before: list[BatchHeader | None] = []
    last: BatchHeader | None = None
    for position, header in segment.batches():
        while len(before) < len(damaged) and damaged[len(before)].position < position:
            before.append(last)
        last = header
    before += [last] * (len(damaged) - len(before))
    found: list[Fenced] = []
    for damage, batch in zip(damaged, before, strict=True):
        offset_start = segment.base_offset if batch is None else batch.last_offset + 1
        found.append(
            Fenced(
                name=segment_name(segment.base_offset),
                position=damage.position,
                end=damage.end,
                offset_start=offset_start,
                offset_end=damage.next_offset if damage.end < segment.size_bytes else segment.next_offset,
                leader_epoch=epochs.epoch_at(offset_start),
            )
        )
    return found


def carry_out(directory: OsDirectory, changes: "tuple[Change, ...]", stamp: str) -> None:
    """Do what was planned; what is cut off or removed is kept under `stamp` in the side folder."""
    renamed = {change.name: change for change in changes if isinstance(change, Renamed)}
    lost = [change for change in changes if _loses(change)]
    if lost:
        side = _side(directory, stamp)
        for change in lost:
            if isinstance(change, Cut):
                source = renamed[change.name].old if change.name in renamed else change.name
                _copy(directory, source, change.size_bytes, None, side, f"{change.name}@{change.size_bytes}")
            else:
                _copy(directory, change.name, 0, None, side, change.name)
        side.sync()
    for change in changes:
        if isinstance(change, Removed):
            directory.remove(change.name)
    # As a start finishes a replacement of segments: old ones go first, the name of the new log comes last.
    for rename in sorted(renamed.values(), key=lambda each: each.name.endswith(LOG_SUFFIX)):
        directory.rename(rename.old, rename.name)
    directory.sync()
    for change in changes:
        if isinstance(change, Written):
            directory.replace(change.name, change.data)
        elif isinstance(change, Cut):
            file = directory.open(change.name)
            file.truncate(change.size_bytes)
            file.sync()
            file.close()
    directory.sync()


def _loses(change: Change) -> bool:
    """Whether something goes that could not be made anew from the log."""
    if change.name.endswith((*INDEX_SUFFIXES, *_LEFT_OVER_SUFFIXES)):
        return False
    match change:
        case Written():
            return not change.is_new
        case Renamed():
            return change.replaced_bytes > 0
        case _:
            return True


def quarantine(directory: OsDirectory, fenced: "tuple[Fenced, ...]", stamp: str) -> None:
    """Move corrupt ranges out of their segments and let an empty batch take their offsets.

    The indexes of these segments are removed: plan and carry out another repair to have them made anew.
    """
    side = _side(directory, stamp)
    for name in sorted({each.name for each in fenced}):
        ranges = sorted((each for each in fenced if each.name == name), key=lambda each: each.position)
        for each in ranges:
            _copy(directory, name, each.position, each.end, side, f"{name}@{each.position}")
        side.sync()
        _rewrite(directory, name, ranges)
        for suffix in INDEX_SUFFIXES:
            directory.remove(name.removesuffix(".log") + suffix)
        directory.sync()


def _rewrite(directory: OsDirectory, name: str, ranges: "list[Fenced]") -> None:
    old, new = directory.open(name), directory.create(name + ".tmp")
    try:
        at = position = 0
        for each in ranges:
            at = _copy_range(old.read_at, position, each.position, new.write_at, at)
            for filler in _fillers(each):
                new.write_at(at, filler)
                at += len(filler)
            position = each.end
        _copy_range(old.read_at, position, old.size(), new.write_at, at)
        new.sync()
    finally:
        old.close()
        new.close()
    directory.rename(name + ".tmp", name)


def _fillers(fenced: Fenced) -> list[bytes]:
    """Empty batches for the offsets that are lost."""
    fillers: list[bytes] = []
    first = fenced.offset_start
    while first < fenced.offset_end:
        last = min(fenced.offset_end - 1, first + _OFFSET_DELTA_MAX)
        fillers.append(build_empty_batch(first, last, leader_epoch=fenced.leader_epoch))
        first = last + 1
    return fillers


def _side(directory: OsDirectory, stamp: str) -> OsDirectory:
    side = directory.subdirectory(SIDE_FOLDER).subdirectory(stamp)
    directory.subdirectory(SIDE_FOLDER).sync()
    directory.sync()
    return side


def _copy(directory: OsDirectory, name: str, start: int, end: int | None, side: OsDirectory, side_name: str) -> None:
    source, target = directory.open(name), side.create(side_name)
    try:
        _copy_range(source.read_at, start, source.size() if end is None else end, target.write_at, 0)
        target.sync()
    finally:
        source.close()
        target.close()


def _copy_range(
    read_at: Callable[[int, int], bytes], start: int, end: int, write_at: Callable[[int, bytes], None], to: int
) -> int:
    """Copy `[start, end)` to position `to`; the position behind it."""
    while start < end and (data := read_at(start, min(_COPY_BYTES, end - start))):
        write_at(to, data)
        start += len(data)
        to += len(data)
    return to
