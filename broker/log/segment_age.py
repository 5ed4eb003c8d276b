"""How old the newest record of a segment is, read off the event loop

Retention asks it of the oldest segments of a log. The last entry of the time index file has the answer, in twelve
bytes; without any timestamp the file's own time counts. An index file carries no checksum, though, and one flipped bit
in it makes a segment decades older, or younger. So an age that something is to be done about is *proven*: the batch
that the entry names must say the same, or else the indexes are made anew from the whole log file.

All of that waits for the disk, so it happens in another thread, on a file of its own; the event loop takes over what
was found, if the segment is still there.
"""

from collections.abc import Callable
from dataclasses import dataclass

from .segment import Segment
from .segment_files import segment_name
from .segment_indexes import Latest


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentAge:
    """When the newest record was written, wall-clock milliseconds; 0 without records."""

    newest_ms: int
    proven: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAge:
    """What reading has shown: the age, and a segment whose indexes were made anew if those in the files were wrong."""

    age: SegmentAge
    latest: Latest
    reread: Segment | None


def age_in_memory(segment: Segment) -> SegmentAge | None:
    """The age of a segment as far as it is known without reading; None if it is not."""
    if segment.size_bytes == 0:
        return SegmentAge(newest_ms=0, proven=True)  # the cleaner leaves some; their file's time is the cleaner's
    latest_ms, _ = segment.indexes.latest
    if latest_ms >= 0:
        return SegmentAge(newest_ms=latest_ms, proven=segment.age_proven or segment.indexes.noted_here)
    if segment.modified_ms >= 0:
        return SegmentAge(newest_ms=segment.modified_ms, proven=True)
    return None


def age_on_disk(segment: Segment, needs_proof: Callable[[int], bool]) -> Callable[[], FoundAge]:
    """What finds the age of a sealed segment in another thread; raises OSError if its files are gone meanwhile."""
    directory, base_offset, next_offset, dense = (
        segment.directory,
        segment.base_offset,
        segment.next_offset,
        segment.dense,
    )

    def read() -> FoundAge:
        found = Segment.open(directory, base_offset)
        try:
            found.next_offset, found.dense = next_offset, dense
            return _read_age(found, needs_proof)
        finally:
            found.close()

    return read


def _read_age(segment: Segment, needs_proof: Callable[[int], bool]) -> FoundAge:
    newest_ms = newest_of(segment)
    proven = segment.indexes.noted_here or segment.latest[0] < 0
    if not proven and needs_proof(newest_ms):
        prove_latest(segment)
        newest_ms, proven = newest_of(segment), True
    reread = segment if segment.indexes.noted_here else None
    return FoundAge(age=SegmentAge(newest_ms=newest_ms, proven=proven), latest=segment.latest, reread=reread)


def take_over_age(segment: Segment, found: FoundAge) -> None:
    """Let the event loop's segment know what was found."""
    if found.reread is not None:
        segment.take_over(found.reread)
    segment.indexes.latest = found.latest
    segment.age_proven = found.age.proven
    if found.latest[0] < 0:
        segment.modified_ms = found.age.newest_ms


def newest_of(segment: Segment) -> int:
    """When the newest record was written, read from the disk if need be; 0 without records."""
    if segment.size_bytes == 0:
        return 0
    newest_ms, _ = segment.latest
    return newest_ms if newest_ms >= 0 else segment.directory.modified_ms(segment_name(segment.base_offset))


def prove_latest(segment: Segment) -> bool:
    """Whether the batch that `latest` names says the same; if not, the indexes are made anew from the log."""
    timestamp, offset = segment.latest
    if timestamp < 0 or segment.indexes.noted_here:
        return True
    for _, batch in segment.batches(segment.index.before(max(0, offset - segment.base_offset))):
        if batch.last_offset >= offset:
            if batch.base_offset <= offset and batch.max_timestamp == timestamp:
                return True
            break
    segment.rebuild_past_damage("its largest timestamp is not the one of the batch that it names")
    return False
