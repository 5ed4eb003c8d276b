"""Producer states written down, so that a start reads less of the log

A snapshot `<offset>.snapshot` says how the producer states were before the batch at that offset: one is taken
whenever a segment is sealed and one at a clean shutdown, and a start replays only the batches behind the newest that
can be read.

The file is Kafka's: version 1, CRC-32C of all that follows, then one entry per producer with its last batch. Kafka
forgets the batches before the last one over a restart. We do not, because a producer with five batches in flight may
retry all of them: behind Kafka's entries, where its tools do not look, every kept batch is listed once more in full,
and behind these how long the run of sequence numbers is that ends with them, where it began before. Pure; a file that
cannot be read is as good as none, just slower.
"""

import struct
from collections.abc import Iterable, Iterator

from tidemill.core.records.crc import crc32c

from .producers import BATCHES_KEPT, KeptBatch, ProducerState, unbroken_run

VERSION = 1
_HEAD = struct.Struct(">hI")  # version, CRC
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_MORE_MAGIC = b"TMB1"
_MORE = struct.Struct(">qhiiqqq")
_RUNS_MAGIC = b"TMR1"
_RUN = struct.Struct(">qI")
_RUN_MAX = 2**32 - 1
_NO_BATCH = KeptBatch(-1, -1, -1, -1, -1)


class SnapshotDamaged(ValueError):
    """Bytes that are no snapshot."""


def encode(states: Iterable[ProducerState]) -> bytes:
    """The file for these states."""
    entries: list[bytes] = []
    more: list[bytes] = []
    runs: list[bytes] = []
    for state in states:
        last = state.batches[-1] if state.batches else _NO_BATCH
        entries.append(
            _ENTRY.pack(
                state.producer_id,
                state.epoch,
                last.last_sequence,
                last.last_offset,
                last.last_offset - last.base_offset,
                last.timestamp,
                state.coordinator_epoch,
                state.transaction_start,
            )
        )
        more += [_MORE.pack(state.producer_id, state.epoch, *kept) for kept in state.batches]
        if state.run > unbroken_run(state.batches):
            runs.append(_RUN.pack(state.producer_id, min(state.run, _RUN_MAX)))
    body = b"".join([_COUNT.pack(len(entries)), *entries, _MORE_MAGIC, _COUNT.pack(len(more)), *more])
    if runs:
        body += b"".join([_RUNS_MAGIC, _COUNT.pack(len(runs)), *runs])
    return _HEAD.pack(VERSION, crc32c(body)) + body


def decode(data: bytes) -> list[ProducerState]:
    """The states in a file, ours or Kafka's, none of them ever seen; raises SnapshotDamaged."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise SnapshotDamaged(f"{len(data)} bytes")
    version, crc = _HEAD.unpack_from(data)
    if version != VERSION:
        raise SnapshotDamaged(f"version {version}")
    if crc32c(memoryview(data)[_HEAD.size :]) != crc:
        raise SnapshotDamaged("it does not match its CRC")
    try:
        return list(_states(data))
    except struct.error as error:
        raise SnapshotDamaged(str(error)) from error


def _states(data: bytes) -> Iterator[ProducerState]:
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    at = _HEAD.size + _COUNT.size
    end = at + count * _ENTRY.size
    batches, runs = None, dict[int, int]()
    if data[end : end + len(_MORE_MAGIC)] == _MORE_MAGIC:
        batches, end = _batches(data, end + len(_MORE_MAGIC))
        runs = _runs(data, end)
    for number in range(count):
        entry = _ENTRY.unpack_from(data, at + number * _ENTRY.size)
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, start = entry
        if batches is not None:
            kept = tuple(batches.get(producer_id, ())[-BATCHES_KEPT:])
        elif last_sequence >= 0:
            first_sequence = (last_sequence - delta) & 0x7FFFFFFF
            kept = (KeptBatch(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp),)
        else:
            kept = ()  # only a transaction marker is known
        yield ProducerState(
            producer_id, epoch, kept, 0, start, coordinator_epoch, runs.get(producer_id) or unbroken_run(kept)
        )


def _batches(data: bytes, at: int) -> tuple[dict[int, list[KeptBatch]], int]:
    """By producer, of each the oldest first; and where their list ends."""
    (count,) = _COUNT.unpack_from(data, at)
    found: dict[int, list[KeptBatch]] = {}
    for number in range(count):
        producer_id, _, *batch = _MORE.unpack_from(data, at + _COUNT.size + number * _MORE.size)
        found.setdefault(producer_id, []).append(KeptBatch(*batch))
    return found, at + _COUNT.size + max(count, 0) * _MORE.size


def _runs(data: bytes, at: int) -> dict[int, int]:
    """By producer; none in the files of before."""
    if data[at : at + len(_RUNS_MAGIC)] != _RUNS_MAGIC:
        return {}
    (count,) = _COUNT.unpack_from(data, at + len(_RUNS_MAGIC))
    first = at + len(_RUNS_MAGIC) + _COUNT.size
    return dict(_RUN.unpack_from(data, first + number * _RUN.size) for number in range(count))
