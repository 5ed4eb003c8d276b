"""Transaction markers: control batches that say how one ended

A marker is a batch of one control record under the producer's id and epoch: the key says how the transaction ended, the
value which coordinator says so. Both begin with a version, which Kafka has left at 0. Other control records (those of a
metadata log) are no markers. Pure.
"""

import struct
from typing import NamedTuple

from tidemill.core.errors import CorruptMessage
from tidemill.core.records.batch import BatchView
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, decode_records

from .producers import NO_COORDINATOR

_KEY = struct.Struct(">hh")  # version, type
_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_VERSION = 0
_ABORT, _COMMIT = 0, 1


class Marker(NamedTuple):
    """How a transaction ended."""

    commit: bool
    coordinator_epoch: int


UNREADABLE = Marker(commit=False, coordinator_epoch=NO_COORDINATOR)
"""What one counts as that cannot be read."""


def encode(marker: Marker, *, producer_id: int, producer_epoch: int, now_ms: int) -> bytes:
    """The batch that says so of a producer's transaction."""
    record = NewRecord(
        now_ms,
        _KEY.pack(_VERSION, _COMMIT if marker.commit else _ABORT),
        _VALUE.pack(_VERSION, marker.coordinator_epoch),
    )
    return build_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )


def decode(view: BatchView) -> Marker | None:
    """The marker in a control batch, None if it is about something else; raises CorruptMessage."""
    records = decode_records(view)
    key, value = (records[0].key, records[0].value) if records else (None, None)
    if key is None or len(key) < _KEY.size:
        return None
    kind = _KEY.unpack_from(key)[1]
    if kind not in (_ABORT, _COMMIT):
        return None
    if value is None or len(value) < _VALUE.size:
        raise CorruptMessage("a transaction marker that does not say which coordinator wrote it")
    return Marker(kind == _COMMIT, _VALUE.unpack_from(value)[1])


def decode_any(view: BatchView) -> Marker | None:
    """The same for a log that has it already: one that cannot be read ends its transaction as an aborted one.

    Else that would never end, and a follower that refused it would wait for ever: its leader has nothing better.
    """
    try:
        return decode(view)
    except CorruptMessage:
        return UNREADABLE
