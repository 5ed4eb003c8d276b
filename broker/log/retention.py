"""The rule of retention: which old segments of a partition may go

Pure: facts about a segment in, its fate out. Segments go from the oldest end only, so the log never has a hole: whoever
asks stops at the first that stays. The active segment never goes; it is rolled first when all of it is too old. A
segment is too old when its newest record is. Too large is meant as Kafka means it: a segment goes as long as what is
left is still at least `retention.bytes`.

How old a segment is has to be read from the disk, so the age comes last, and only of segments whose fate depends on it.
"""

from enum import Enum

from .config import LogConfig


class Fate(Enum):
    """What becomes of the oldest segment of a log."""

    STAYS = "stays"
    GOES = "goes"
    DEPENDS_ON_AGE = "depends on age"


def fate(end_offset: int, surplus_bytes: int, config: LogConfig, *, log_start_offset: int, durable_offset: int) -> Fate:
    """The fate of the oldest segment, which ends at `end_offset`; without it `surplus_bytes` more than allowed is left.

    `surplus_bytes` is negative when too little is left.
    """
    if end_offset > durable_offset:
        return Fate.STAYS
    if end_offset <= log_start_offset:
        return Fate.GOES
    if not config.deletes_by_age_or_size:
        return Fate.STAYS
    if config.retention_bytes >= 0 and surplus_bytes >= 0:
        return Fate.GOES
    return Fate.DEPENDS_ON_AGE if config.retention_ms >= 0 else Fate.STAYS


def too_old(newest_ms: int, config: LogConfig, now_ms: int) -> bool:
    """Whether `retention.ms` has passed since the newest record of a segment was written."""
    return 0 <= config.retention_ms < now_ms - newest_ms


def age_needs_proof(newest_ms: int, config: LogConfig, now_ms: int) -> bool:
    """Whether an age decides something that a wrong one must not decide: to delete records, or to keep them for ever
    because they seem to come from the future."""
    return newest_ms > now_ms or too_old(newest_ms, config, now_ms)


def active_may_be_due(size_bytes: int, config: LogConfig) -> bool:
    """Whether the active segment is to be rolled, and then removed, if everything in it is too old."""
    return config.deletes_by_age_or_size and size_bytes > 0 and config.retention_ms >= 0
