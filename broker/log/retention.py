"""Which old segments of a partition may go

Pure: facts about the segments in, the number to remove out. Segments go from the oldest end only, so the log never
has a hole, and the active segment never goes: the caller rolls it first when all of it is too old. A segment is too
old when its newest record is; without any timestamp in it the file's own age counts. Too large is meant as Kafka
means it: a segment goes as long as what is left is still at least `retention.bytes`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .config import LogConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """What retention needs to know of one segment, oldest first in a sequence; the last is the active one."""

    base_offset: int
    end_offset: int
    size_bytes: int
    newest_ms: int


def removable(
    segments: Sequence[SegmentFacts], config: LogConfig, now_ms: int, log_start_offset: int, durable_offset: int
) -> int:
    """How many of the oldest segments are to be removed."""
    count = 0
    surplus_bytes = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    for segment in segments[:-1]:
        if segment.end_offset > durable_offset:
            break
        surplus_bytes -= segment.size_bytes
        too_old = 0 <= config.retention_ms < now_ms - segment.newest_ms
        too_large = config.retention_bytes >= 0 and surplus_bytes >= 0
        below_start = segment.end_offset <= log_start_offset
        if not (below_start or (config.deletes_by_age_or_size and (too_old or too_large))):
            break
        count += 1
    return count


def active_is_due(active: SegmentFacts, config: LogConfig, now_ms: int) -> bool:
    """Whether everything in the active segment is too old, so that it should be rolled and then removed."""
    return (
        config.deletes_by_age_or_size and active.size_bytes > 0 and 0 <= config.retention_ms < now_ms - active.newest_ms
    )
