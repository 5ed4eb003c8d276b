"""Where a batch went that was to be appended, or that it is there already

A duplicate is answered with the offsets of its original as long as these are known (`producers`). Of one from long ago
only the sequence numbers are: it counts as acknowledged when everything that its producer has stored is.
"""

from typing import NamedTuple

from tidemill.core.records.validate import NO_TIMESTAMP

from .producers import KNOWN_BY_SEQUENCE, KeptBatch


class AppendResult(NamedTuple):
    """Where a batch went; for a duplicate, where the original is."""

    base_offset: int
    last_offset: int
    append_time_ms: int  # -1 unless the broker's clock stamps records
    log_start_offset: int
    duplicate: bool


class StoredBefore(AppendResult):
    """A duplicate whose offsets are not known: its base offset is -1, its last one that of its producer's newest."""

    __slots__ = ()


def stored_already(original: KeptBatch, log_start_offset: int, *, stamps: bool) -> AppendResult:
    """The answer to a batch with that original, in a log that `stamps` records with the broker's clock or does not."""
    if original.base_offset == KNOWN_BY_SEQUENCE:
        return StoredBefore(KNOWN_BY_SEQUENCE, original.last_offset, NO_TIMESTAMP, log_start_offset, True)
    append_time = original.timestamp if stamps else NO_TIMESTAMP
    return AppendResult(original.base_offset, original.last_offset, append_time, log_start_offset, True)
