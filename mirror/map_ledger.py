"""The ledger of one partition's offset map and of its writes

The machine writes runs into the map here and asks which map write a batch has to wait for. Every write holds everything
that may differ from what the topic holds, so the newest confirmed write makes up for each one before it that failed.

Segments below the target's log start are forgotten only while nothing is on its way: a write that deletes them must not
be taken for one that stored something else. What a failed deletion left in the topic goes with the next write, oldest
first, so that no hole opens between the segments that are stored.

With the map goes what is known of the source's leaders (`tidemill.mirror.lineage`), in the last segment.
"""

from collections.abc import Iterable

from tidemill.mirror.lineage import Lineage, Span
from tidemill.mirror.link_events import StoreRuns
from tidemill.mirror.offsets import OffsetMap, Run


class MapLedger:
    """The map of one partition and the numbers of its writes.

    `segments_stored` is the number behind the last segment that may be in the topic and is not part of `offsets`;
    `damaged_from` is the first of those that precede it and have to go, if there are such.
    """

    def __init__(
        self,
        offsets: OffsetMap | None = None,
        segments_stored: int = 0,
        damaged_from: int | None = None,
        spans: Iterable[Span] = (),
    ) -> None:
        self.lineage = Lineage(spans)
        self.offsets = OffsetMap() if offsets is None else offsets
        numbers = self.offsets.segment_numbers()
        self._in_topic_from = 0 if not len(self.offsets) else numbers.start
        if damaged_from is not None:
            self._in_topic_from = damaged_from
        self._in_topic_to = max(segments_stored, numbers.stop)
        self._dirty_from: int | None = None  # first segment that may not be stored as it is here
        self._is_new = damaged_from is not None  # something is dirty that no write holds yet
        self._asked = 0  # number of the last write
        self._confirmed = 0

    @property
    def is_settled(self) -> bool:
        """Whether the topic holds the map as it is here."""
        return self._asked == self._confirmed and not self._is_new

    @property
    def asked(self) -> int:
        """The last write."""
        return self._asked

    @property
    def confirmed(self) -> int:
        """Everything up to this write is stored."""
        return self._confirmed

    def add(self, target_offset: int, pieces: Iterable[tuple[int, int]]) -> int:
        """Note the (source offset, records) of a batch; returns the write that it has to wait for."""
        target, offsets = target_offset, self.offsets
        for source, records in pieces:
            if offsets.source_for(target) != source:
                self._change_from(offsets.append(Run(source, target)))
            target += records
            if offsets.source_for(target - 1) != source + records - 1:  # written ahead, and cut off at the source since
                self._change_from(offsets.drop_behind(target - records))
        return self._asked + 1 if self._is_new else self._asked

    def note(self, spans: Iterable[Span]) -> None:
        """Note the leader epochs of what was read, before `add` is told of it."""
        numbers = self.offsets.segment_numbers()
        if self.lineage.note(spans) and numbers:
            self._change_from(numbers.stop - 1)

    def write(self) -> StoreRuns | None:
        """The write that makes the topic equal to the map; None when one with everything is on its way or confirmed."""
        return self.rewrite() if self._is_new else None

    def rewrite(self) -> StoreRuns | None:
        """The same, also for what was asked for before and may have failed."""
        if self.is_settled:
            return None
        numbers = self.offsets.segment_numbers()
        first = numbers.stop if self._dirty_from is None else max(self._dirty_from, numbers.start)
        return self._ask(range(first, numbers.stop))

    def affirm(self) -> StoreRuns | None:
        """A write also if nothing has changed: who carries it out sees whether the topic lost what was stored."""
        stop = self.offsets.segment_numbers().stop
        return self.rewrite() or self._ask(range(stop, stop))

    def collect(self, target_start: int) -> StoreRuns | None:
        """Forget the segments below the target's log start; the write that deletes them, if there are any."""
        if not self.is_settled or not self.offsets.collect(target_start):
            return None
        numbers = self.offsets.segment_numbers()
        return self._ask(range(numbers.stop, numbers.stop))

    def stored(self, token: int) -> None:
        """A write is confirmed."""
        self._confirmed = max(self._confirmed, token)
        if self._asked == self._confirmed:
            numbers = self.offsets.segment_numbers()
            self._in_topic_from, self._in_topic_to = numbers.start, numbers.stop
            if not self._is_new:
                self._dirty_from = None

    def _change_from(self, number: int) -> None:
        self._dirty_from = number if self._dirty_from is None else min(self._dirty_from, number)
        self._is_new = True

    def _ask(self, changed: range) -> StoreRuns:
        """A write of these segments, the last ones there are, and the deletion of what ceased to be."""
        numbers = self.offsets.segment_numbers()
        self._asked += 1
        self._is_new = False
        deleted = (*range(self._in_topic_from, numbers.start), *range(numbers.stop, self._in_topic_to))
        self._in_topic_to = max(self._in_topic_to, numbers.stop)
        segments = {number: self.offsets.segment(number) for number in changed}
        return StoreRuns(token=self._asked, segments=segments, deleted=deleted, spans=self.lineage.spans())
