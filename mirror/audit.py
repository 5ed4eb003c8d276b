"""Whether a copy holds the records of its source, told mostly from headers

Both sides are walked in step. Where a batch was passed on as bytes, the checksum of its payload alone, which the
algebra of CRC-32C gives from header and batch checksum, is the same on both sides, and so are length, count and times:
equal without decoding anything. Where a batch was rebuilt, or the target stores another codec, the records themselves
are compared. Every batch's own checksum is verified on the way, so bit rot shows too.

CRC-32C finds accidents, not forgery.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from tidemill.core.records.batch import HEADER_BYTES, BatchView
from tidemill.core.records.crc import payload_crc
from tidemill.core.records.record import Record
from tidemill.mirror.passthrough import (
    AbortedTransactions,
    SourceView,
    Unmirrorable,
    Verdict,
    decoded,
    judge,
    split_batches,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first difference of a partition."""

    source_offset: int
    target_offset: int
    problem: str


class _Side:
    """One log, as whole batches with the records of a half-used one in front."""

    def __init__(self) -> None:
        self.views: deque[SourceView] = deque()
        self.records: deque[Record] = deque()

    def refill(self) -> bool:
        """Decode the next batch if no record is at hand; False when there is nothing."""
        if not self.records and self.views:
            self.records.extend(decoded(self.views.popleft()))
        return bool(self.records)


class Comparison:
    """One partition; feed both sides in any rhythm, then read `records` and `divergence`."""

    def __init__(self, source_start: int, target_start: int) -> None:
        self.records = 0
        self.batches_by_checksum = 0
        self.divergence: Divergence | None = None
        self._source = _Side()
        self._target = _Side()
        self._next_source = source_start
        self._next_target = target_start

    @property
    def needs_source(self) -> bool:
        """Whether the target is ahead in what was fed."""
        return not self._source.views and not self._source.records

    @property
    def needs_target(self) -> bool:
        """Whether the source is ahead in what was fed."""
        return not self._target.views and not self._target.records

    def feed_source(self, data: memoryview, aborted: Iterable[tuple[int, int]]) -> None:
        """Add source bytes; what a mirror drops is dropped."""
        filters = AbortedTransactions(aborted)
        for view in split_batches(data):
            verdict = judge(view, self._next_source, filters)
            if verdict is Verdict.DROP_REPLICATED:
                continue
            if verdict in (Verdict.PASS, Verdict.REBUILD):
                if view.base_offset >= self._next_source:
                    self._source.views.append(view)
                else:
                    kept = [record for record in decoded(view) if record.offset >= self._next_source]
                    self._source.records.extend(kept)
            self._next_source = view.last_offset + 1
        self._compare()

    def feed_target(self, data: memoryview) -> None:
        """Add target bytes."""
        for view in split_batches(data):
            if view.last_offset < self._next_target:
                continue
            if view.base_offset >= self._next_target:
                self._target.views.append(view)
            else:
                kept = [record for record in decoded(view) if record.offset >= self._next_target]
                self._target.records.extend(kept)
            self._next_target = view.last_offset + 1
        self._compare()

    def _compare(self) -> None:
        source, target = self._source, self._target
        try:
            while self.divergence is None:
                if not source.records and not target.records and source.views and target.views:
                    count = same_payload(source.views[0], target.views[0])
                    if count:
                        source.views.popleft()
                        target.views.popleft()
                        self.records += count
                        self.batches_by_checksum += 1
                        continue
                if not (source.refill() and target.refill()):
                    return
                self._compare_record(source.records.popleft(), target.records.popleft())
        except Unmirrorable as problem:
            self.divergence = Divergence(source_offset=-1, target_offset=-1, problem=str(problem))

    def _compare_record(self, source: Record, target: Record) -> None:
        for name in ("key", "value", "timestamp", "headers"):
            if getattr(source, name) != getattr(target, name):
                problem = f"the {name} differs"
                self.divergence = Divergence(source_offset=source.offset, target_offset=target.offset, problem=problem)
                return
        self.records += 1


def same_payload(source: SourceView, target: SourceView) -> int:
    """Number of records if both batches verifiably hold the same ones, 0 if decoding has to tell."""
    if not isinstance(source, BatchView) or not isinstance(target, BatchView):
        return 0
    if (
        source.record_count != target.record_count
        or source.record_count != source.last_offset_delta + 1
        or source.size_bytes != target.size_bytes
        or (source.codec, source.base_timestamp, source.max_timestamp, source.timestamp_type)
        != (target.codec, target.base_timestamp, target.max_timestamp, target.timestamp_type)
        or _payload(source) != _payload(target)
    ):
        return 0
    return source.record_count if source.verify_crc() and target.verify_crc() else 0


def _payload(view: BatchView) -> int:
    return payload_crc(view.crc, view.covered_header(), view.size_bytes - HEADER_BYTES)
