"""Raw record batches from one cluster made acceptable to another

A batch travels as the bytes the source holds: only its header changes, and the checksum follows by algebra without
reading the payload. A payload damaged on the way therefore keeps a wrong checksum and the target refuses it.

What changes: base offset 0 and leader epoch -1 (the target writes its own), transactional and delete-horizon bits
cleared, producer id, epoch and sequence replaced by the mirror's. The sequence is the target offset modulo 2^31, so a
batch sent twice is recognised by the target whatever happened in between.

What cannot travel as bytes is rebuilt from its records: batches with offsets missing inside (compaction), the tail of a
batch whose head is already on the target, append-time batches (a client may not send that timestamp type), and the
old message formats. What carries nothing to copy is dropped: transaction markers, empty batches, aborted data.

Setting `lastOffsetDelta` of a batch with holes to match its count would be accepted by some brokers and corrupt the
log; nothing here does that.
"""

import enum
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidemill.core.errors import KafkaError
from tidemill.core.records.batch import BATCH_LENGTH_AT, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC_AT, MAGIC_V2, BatchView
from tidemill.core.records.builder import build_batch
from tidemill.core.records.crc import patch_crc
from tidemill.core.records.record import Record, decode_records
from tidemill.mirror.legacy import OldMessageView, decode_message_set
from tidemill.mirror.lineage import UNKNOWN_EPOCH, Span

SEQUENCES = 2**31  # sequences run 0 .. 2^31-1 and start over
_TRANSACTIONAL, _DELETE_HORIZON = 0x10, 0x40
_CHECKED = struct.Struct(">hiqqqhii")  # bytes 21..60: the header fields under the checksum
_CHECKED_AT = 21
_LENGTH = struct.Struct(">i")
_FRONT = struct.Struct(">qiibI")  # bytes 0..20: base offset, length, leader epoch, magic, checksum


SourceView = BatchView | OldMessageView
"""What a source may hold."""


class Verdict(enum.Enum):
    """What to do with one source batch."""

    PASS = "pass"
    REBUILD = "rebuild"
    DROP_CONTROL = "control"
    DROP_EMPTY = "empty"
    DROP_ABORTED = "aborted"
    DROP_REPLICATED = "replicated"


class Unmirrorable(Exception):
    """A batch that can be neither passed on nor rebuilt; the message says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A batch ready to be produced at `target_offset`."""

    batch: bytes | memoryview
    target_offset: int
    records: int
    pieces: tuple[tuple[int, int], ...]  # (source offset, records) of each stretch without holes

    @property
    def source_end(self) -> int:
        """Source offset behind the last record."""
        offset, records = self.pieces[-1]
        return offset + records

    @property
    def target_end(self) -> int:
        """Target offset behind the last record."""
        return self.target_offset + self.records


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayed:
    """What came of one partition's fetched bytes."""

    outgoing: tuple[Outgoing, ...]
    next_source: int  # where the next fetch starts
    verdicts: tuple[Verdict, ...]
    barren: tuple[tuple[int, int], ...] = ()  # (first, end) of offsets that never had a record to copy
    spans: tuple[Span, ...] = ()  # leader epochs of the batches, also of those that are dropped


class AbortedTransactions:
    """Which batches of one fetch answer belong to aborted transactions, by their headers alone.

    The answer lists (producer id, first offset) for all that overlap it; such a transaction ends at its marker.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._pending = sorted(aborted, key=lambda item: item[1], reverse=True)
        self._open: set[int] = set()

    def drops(self, view: BatchView) -> bool:
        """Whether `view` is aborted data; to be asked for every batch in order, markers included."""
        while self._pending and self._pending[-1][1] <= view.last_offset:
            self._open.add(self._pending.pop()[0])
        if view.is_control:
            self._open.discard(view.producer_id)
            return False
        return view.is_transactional and view.producer_id in self._open


def judge(view: SourceView, next_source: int, aborted: AbortedTransactions) -> Verdict:
    """Decide on one source batch from its header."""
    if isinstance(view, OldMessageView):
        return Verdict.DROP_REPLICATED if view.base_offset < next_source else Verdict.REBUILD
    is_aborted = aborted.drops(view)
    if view.last_offset < next_source:
        return Verdict.DROP_REPLICATED
    if view.is_control:
        return Verdict.DROP_CONTROL
    if view.record_count == 0:
        return Verdict.DROP_EMPTY
    if is_aborted:
        return Verdict.DROP_ABORTED
    whole = view.base_offset >= next_source and view.record_count == view.last_offset_delta + 1
    return Verdict.PASS if whole and view.timestamp_type == 0 else Verdict.REBUILD


def patch(batch: memoryview, target_offset: int, producer_id: int) -> None:
    """Edit the header of a whole v2 batch in place and move the checksum along."""
    _, length, _, magic, crc = _FRONT.unpack_from(batch)
    old = bytes(batch[_CHECKED_AT:HEADER_BYTES])
    attributes, last_delta, base_timestamp, max_timestamp, _, _, _, count = _CHECKED.unpack(old)
    new = _CHECKED.pack(
        attributes & ~(_TRANSACTIONAL | _DELETE_HORIZON),
        last_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        0,
        target_offset % SEQUENCES,
        count,
    )
    difference = (int.from_bytes(old, "big") ^ int.from_bytes(new, "big")).to_bytes(len(old), "big")
    _FRONT.pack_into(batch, 0, 0, length, -1, magic, patch_crc(crc, difference, len(batch) - HEADER_BYTES))
    batch[_CHECKED_AT:HEADER_BYTES] = new


def relay(
    data: bytes | bytearray | memoryview,
    *,
    next_source: int,
    next_target: int,
    producer_id: int,
    aborted: Iterable[tuple[int, int]] = (),
) -> Relayed:
    """Turn fetched bytes into batches to produce from `next_target` on; edits `data` in place where it may.

    A truncated batch at the end is left for the next fetch. Raises Unmirrorable.
    """
    filters, outgoing, verdicts = AbortedTransactions(aborted), list[Outgoing](), list[Verdict]()
    barren: list[tuple[int, int]] = []
    spans: list[Span] = []
    buffer = memoryview(data)
    for view in split_batches(buffer):
        verdict = judge(view, next_source, filters)
        verdicts.append(verdict)
        if verdict is Verdict.DROP_REPLICATED:
            continue
        _extend(spans, view)
        if verdict is Verdict.PASS:
            assert isinstance(view, BatchView)
            item = _passed(view, next_target, producer_id)
        elif verdict is Verdict.REBUILD:
            rebuilt = _rebuilt(view, next_source, next_target, producer_id)
            next_source = max(next_source, view.last_offset + 1)
            if rebuilt is None:
                continue
            item = rebuilt
        else:
            if verdict is not Verdict.DROP_EMPTY:  # that one had records before it was compacted
                barren.append((view.base_offset, view.last_offset + 1))
            next_source = view.last_offset + 1
            continue
        outgoing.append(item)
        next_target += item.records
        next_source = max(next_source, item.source_end)
    return Relayed(
        outgoing=tuple(outgoing),
        next_source=next_source,
        verdicts=tuple(verdicts),
        barren=tuple(barren),
        spans=tuple(spans),
    )


def _extend(spans: list[Span], view: SourceView) -> None:
    epoch = UNKNOWN_EPOCH if isinstance(view, OldMessageView) else view.leader_epoch
    end = view.last_offset + 1
    if spans and spans[-1].epoch == epoch:
        spans[-1] = spans[-1]._replace(end=end)
    else:
        spans.append(Span(epoch, view.base_offset, end))


def split_batches(buffer: memoryview) -> Iterator[SourceView]:
    """Each whole batch or old message; stops before a truncated one. Raises Unmirrorable."""
    at = 0
    while len(buffer) - at > MAGIC_AT:
        size = _LENGTH.unpack_from(buffer, at + BATCH_LENGTH_AT)[0] + LOG_OVERHEAD_BYTES
        if at + size > len(buffer):
            return
        try:
            view = OldMessageView(buffer, at) if buffer[at + MAGIC_AT] < MAGIC_V2 else BatchView(buffer, at)
        except (ValueError, KafkaError) as error:
            raise Unmirrorable(f"the source sent something that is not a record batch: {error}") from error
        yield view
        at += size


def _passed(view: BatchView, target_offset: int, producer_id: int) -> Outgoing:
    batch = view.batch_bytes()
    if batch.readonly:
        batch = memoryview(bytearray(batch))
    patch(batch, target_offset, producer_id)
    return Outgoing(
        batch=batch,
        target_offset=target_offset,
        records=view.record_count,
        pieces=((view.base_offset, view.record_count),),
    )


def _rebuilt(view: SourceView, next_source: int, target_offset: int, producer_id: int) -> Outgoing | None:
    records = [record for record in decoded(view) if record.offset >= next_source]
    if not records:
        return None
    rebuilt = build_batch(
        records,
        codec=view.codec,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=target_offset % SEQUENCES,
    )
    return Outgoing(batch=rebuilt, target_offset=target_offset, records=len(records), pieces=_pieces(records))


def decoded(view: SourceView) -> list[Record]:
    """Records of a batch of any format, checksum verified, with the append time where that is what counts."""
    try:
        if isinstance(view, OldMessageView):
            return decode_message_set(view.message_bytes())
        if not view.verify_crc():
            raise ValueError("its checksum is wrong")
        return decode_records(view)
    except (ValueError, KafkaError) as error:
        raise Unmirrorable(f"the batch at offset {view.base_offset} cannot be read: {error}") from error


def _pieces(records: list[Record]) -> tuple[tuple[int, int], ...]:
    pieces: list[tuple[int, int]] = []
    for record in records:
        if pieces and sum(pieces[-1]) == record.offset:
            pieces[-1] = (pieces[-1][0], pieces[-1][1] + 1)
        else:
            pieces.append((record.offset, 1))
    return tuple(pieces)
