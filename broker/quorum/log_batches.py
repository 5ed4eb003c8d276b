"""Batches of the metadata log as they go from node to node

The leader sends what is on its disk, and a follower keeps exactly these bytes: where the logs of two nodes have the
same offset in the same leader epoch, they are the same up to there. So what arrives is looked at before any of it is
stored: whole batches that match their CRC, the first at the offset that is due, no gap, no epoch older than before it.
Base offset and leader epoch lie outside the CRC; that both follow is all that can be asked of them.

What the records mean is looked at when they count, not when they are stored. Control records are the exception: voters
count as soon as they are in the log.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tidemill.broker.quorum.batches import sound_batches
from tidemill.broker.quorum.control import ControlRecord, control_records
from tidemill.broker.quorum.records import MetadataFormatError, MetadataRecord
from tidemill.broker.quorum.snapshot import decode_batch
from tidemill.core.records.batch import HEADER_BYTES, BatchView, plausible_size, read_header


class FetchedDataRefused(ValueError):
    """What a leader sent cannot be the log behind ours; the message says where and why, and nothing was stored."""


class LogBatch(NamedTuple):
    """One batch: metadata records or control records, never both."""

    base_offset: int
    offset_end: int
    epoch: int
    records: tuple[MetadataRecord, ...]
    control: tuple[ControlRecord, ...]


def decode_log(data: bytes) -> Iterator[LogBatch]:
    """The batches in `data`, which are whole and sound; raises MetadataFormatError for what cannot be read."""
    position = 0
    for view, end in sound_batches(data):
        control = control_records(view) if view.is_control else ()
        records = () if view.is_control else decode_batch(view)
        yield LogBatch(view.base_offset, view.next_offset, view.leader_epoch, records, control)
        position = end
    if position != len(data):
        raise MetadataFormatError(f"what is at byte {position} is not a whole batch")


def check_fetched(data: bytes, *, offset_due: int, epoch_min: int) -> list[BatchView]:
    """The batches in what was fetched; raises FetchedDataRefused."""
    found: list[BatchView] = []
    position = 0
    for view, end in sound_batches(data):
        _check_follows(view, position, offset_due, epoch_min)
        found.append(view)
        position, offset_due, epoch_min = end, view.next_offset, view.leader_epoch
    if position != len(data):
        raise FetchedDataRefused(
            f"the batch at byte {position} of {len(data)}, offset {offset_due}, {_why(data[position:])}"
        )
    return found


def _check_follows(view: BatchView, position: int, offset_due: int, epoch_min: int) -> None:
    where = f"the batch at byte {position}"
    if view.base_offset != offset_due:
        raise FetchedDataRefused(f"{where} begins at offset {view.base_offset}, {offset_due} is due")
    if view.leader_epoch < epoch_min:
        raise FetchedDataRefused(f"{where}, offset {offset_due}, is of epoch {view.leader_epoch} behind {epoch_min}")
    if view.record_count < 1 or view.record_count != view.last_offset_delta + 1:
        raise FetchedDataRefused(
            f"{where}, offset {offset_due}, has {view.record_count} records up to {view.last_offset}"
        )
    if view.is_control:
        try:
            control_records(view)
        except MetadataFormatError as error:
            raise FetchedDataRefused(f"{where}, offset {offset_due}, cannot be read: {error}") from None


def _why(rest: bytes) -> str:
    if len(rest) < HEADER_BYTES:
        return f"ends after {len(rest)} bytes"
    header = read_header(rest)
    if not plausible_size(header):
        return f"has magic {header.magic} and {header.size_bytes} bytes"
    if header.size_bytes > len(rest):
        return f"ends after {len(rest)} of {header.size_bytes} bytes"
    return "does not match its CRC"
