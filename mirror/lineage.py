"""Which leaders wrote what was read of the source

A batch carries the epoch of the leader that appended it. Epochs never fall along a log, and a leader can tell where
each of them ended in its own log (OffsetForLeaderEpoch). So a batch that was read proves for ever: in the log it was
read from, its epoch ends behind it. A source that says that the epoch ended before was cut since, by an unclean
election or a restored back-up, however far it has grown again. Nothing else about it can say so wrongly: compaction,
retention and markers take records away, not the ends of epochs.

Spans hold what was read, oldest first. They are stored with the map before any batch of a new epoch is produced
(`tidemill.mirror.map_ledger`), so whatever an earlier life of the mirror sent was read in an epoch that is here: the
newest of those that were stored reaches at least to where the target's end is mapped to (`reach`). Nothing of the kind
holds for a map that was stored without them: then a span ends where this life has read to.

Epoch -1 stands for batches that do not tell: older formats, and brokers that write none. Of them nothing is claimed,
and where epochs fall, which in one log they cannot, everything is forgotten. Two things stay open. Batches that were on
their way when the mirror was killed, show only after it was started again, and were cut off at the source in between;
and a probe (`tidemill.mirror.resuming`) that is cut off at the source before its runs are stored: a restart takes its
records for those that the map expects there, which the source had lost to compaction.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

UNKNOWN_EPOCH = -1
SPANS_MAX = 16
"""As many changes of the leader as may lie between a batch that is read and its acknowledgement, and more."""


class Span(NamedTuple):
    """Batches of one epoch that were read: `start` of the first and `end` behind the last one."""

    epoch: int
    start: int
    end: int  # as far as is known: it may be further


class Claim(NamedTuple):
    """In the log that was mirrored, `epoch` ends at `end` or later."""

    epoch: int
    end: int

    def is_refuted(self, epoch: int, end_offset: int) -> bool:
        """Whether the source's answer, the largest epoch up to the claim's and where it ended, contradicts it."""
        return 0 <= epoch <= self.epoch and 0 <= end_offset < self.end


class Lineage:
    """The spans of one source partition."""

    __slots__ = ("_is_open", "_spans")

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._spans = list(spans)
        self._is_open = bool(self._spans)  # the newest was stored and may have been read further

    def spans(self) -> tuple[Span, ...]:
        """All spans, oldest first."""
        return tuple(self._spans)

    def epoch_before(self, position: int) -> int:
        """The epoch in which the last batch before a source offset was read."""
        index = bisect_left(self._spans, position, key=_start) - 1
        return UNKNOWN_EPOCH if index < 0 else self._spans[index].epoch

    def reach(self, position: int) -> None:
        """The target's end is mapped to `position`: the newest span that was stored has been read up to there."""
        if self._is_open and self._spans[-1].start < position:
            self._spans[-1] = self._spans[-1]._replace(end=max(self._spans[-1].end, position))

    def claims(self, position: int) -> tuple[Claim, ...]:
        """What the source must not contradict if all below `position`, where the target's end is mapped to, is its own.

        The epoch before is asked for as well: a log that was restored may give the number of the newest one anew.
        """
        last = bisect_left(self._spans, position, key=_start) - 1
        spans = [self._spans[index] for index in (last, last - 1) if index >= 0]
        return tuple(Claim(span.epoch, min(position, span.end)) for span in spans if span.epoch != UNKNOWN_EPOCH)

    def note(self, spans: Iterable[Span]) -> bool:
        """Take in what was read, in order; True if a span began."""
        changed = False
        for span in spans:
            changed |= self._note(span)
        del self._spans[:-SPANS_MAX]
        return changed

    def _note(self, span: Span) -> bool:
        index = bisect_right(self._spans, span.start, key=_start) - 1
        if index < 0:
            return self._precede(span)
        known = self._spans[index]
        if known.epoch == span.epoch:
            self._spans[index] = known._replace(end=max(known.end, span.end))
            return False
        if UNKNOWN_EPOCH != span.epoch < known.epoch:
            self._spans.clear()
        else:
            self._spans[index] = known._replace(end=min(known.end, span.start))
            del self._spans[index + 1 :]
        self._spans.append(span)
        self._is_open = False
        return True

    def _precede(self, span: Span) -> bool:
        """Something was read that lies before everything that is known."""
        if not self._spans and span.epoch == UNKNOWN_EPOCH:
            return False  # a source that never tells costs nothing
        if self._spans:
            first = self._spans[0]
            if first.epoch == span.epoch:
                self._spans[0] = first._replace(start=span.start)
                return False
            if span.end > first.start or UNKNOWN_EPOCH != first.epoch < span.epoch:
                self._spans.clear()
                self._is_open = False
        self._spans.insert(0, span)
        return True


def _start(span: Span) -> int:
    return span.start
