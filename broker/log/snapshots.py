"""Producer states written down, so that a start reads less of the log

A snapshot `<offset>.snapshot` says how the producer states were before the batch at that offset: one is taken
whenever a segment is sealed and one at a clean shutdown, and a start replays only the batches behind the newest that
can be read.

The file is Kafka's: version 1, CRC-32C of all that follows, then one entry per producer with its last batch. Kafka
forgets the batches before the last one over a restart. We do not, because a producer with five batches in flight may
retry all of them: behind Kafka's entries, where its tools do not look, every kept batch is listed once more in full.
Pure; a file that cannot be read is as good as none, just slower.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidemill.core.records.crc import crc32c

from .producers import KeptBatch, ProducerState

VERSION = 1
_HEAD = struct.Struct(">hI")  # version, CRC
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_MORE_MAGIC = b"TMB1"
_MORE = struct.Struct(">qhiiqqq")

_NO_COORDINATOR_EPOCH = -1
_NO_TRANSACTION = -1


class SnapshotDamaged(ValueError):
    """Bytes that are no snapshot."""


class RememberedBatch(NamedTuple):
    """One kept batch of one producer; of one producer the oldest comes first."""

    producer_id: int
    epoch: int
    batch: KeptBatch


def encode(states: Iterable[ProducerState]) -> bytes:
    """The file for these states."""
    entries: list[bytes] = []
    more: list[bytes] = []
    for state in states:
        last = state.batches[-1]
        entries.append(
            _ENTRY.pack(
                state.producer_id,
                state.epoch,
                last.last_sequence,
                last.last_offset,
                last.last_offset - last.base_offset,
                last.timestamp,
                _NO_COORDINATOR_EPOCH,
                _NO_TRANSACTION,
            )
        )
        more += [_MORE.pack(state.producer_id, state.epoch, *kept) for kept in state.batches]
    body = b"".join([_COUNT.pack(len(entries)), *entries, _MORE_MAGIC, _COUNT.pack(len(more)), *more])
    return _HEAD.pack(VERSION, crc32c(body)) + body


def decode(data: bytes) -> list[RememberedBatch]:
    """The batches in a file, ours or Kafka's; raises SnapshotDamaged."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise SnapshotDamaged(f"{len(data)} bytes")
    version, crc = _HEAD.unpack_from(data)
    if version != VERSION:
        raise SnapshotDamaged(f"version {version}")
    if crc32c(memoryview(data)[_HEAD.size :]) != crc:
        raise SnapshotDamaged("it does not match its CRC")
    try:
        return _entries(data)
    except struct.error as error:
        raise SnapshotDamaged(str(error)) from error


def _entries(data: bytes) -> list[RememberedBatch]:
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    at = _HEAD.size + _COUNT.size
    end = at + count * _ENTRY.size
    if data[end : end + len(_MORE_MAGIC)] == _MORE_MAGIC:
        at = end + len(_MORE_MAGIC)
        (count,) = _COUNT.unpack_from(data, at)
        return list(_full(data, at + _COUNT.size, count))
    return list(_last_only(data, at, count))


def _full(data: bytes, at: int, count: int) -> Iterator[RememberedBatch]:
    for number in range(count):
        producer_id, epoch, *batch = _MORE.unpack_from(data, at + number * _MORE.size)
        yield RememberedBatch(producer_id, epoch, KeptBatch(*batch))


def _last_only(data: bytes, at: int, count: int) -> Iterator[RememberedBatch]:
    for number in range(count):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, _, _ = _ENTRY.unpack_from(
            data, at + number * _ENTRY.size
        )
        if last_sequence >= 0:  # else only a transaction marker is known
            first_sequence = (last_sequence - delta) & 0x7FFFFFFF
            kept = KeptBatch(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp)
            yield RememberedBatch(producer_id, epoch, kept)
