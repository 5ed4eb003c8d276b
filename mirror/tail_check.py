"""The end of the target's log, compared with the source

The last batch of the target must be the mirror's own, and its records must be those that the source has at the offsets
the map gives for them. If not, somebody else wrote there or a topic was created anew.

A record that the source no longer has proves nothing: it was compacted. But the batch may also be one that was sent to
try where the log ends (`tidemill.mirror.resuming`) and whose runs were not stored before the mirror was killed. Then
its records are found in the source behind the offsets that the map gives, in the same order, and the map is put right.
In a target that was put to another state they may be found before those offsets: the map was written for one without
what the source had lost.

Two neighbours that are the same in key, value, headers and time cannot be told apart if the first was compacted in that
very moment.
"""

from dataclasses import dataclass

from tidemill.core.records.batch import BatchView
from tidemill.core.records.record import Record
from tidemill.mirror.link_events import Fetched, TargetLocated
from tidemill.mirror.offsets import OffsetMap, Run
from tidemill.mirror.passthrough import SEQUENCES, AbortedTransactions, Verdict, decoded, judge, split_batches
from tidemill.mirror.resuming import content


def foreign_tail(event: TargetLocated, producer_id: int, *, has_map: bool) -> str:
    """What is wrong with the end of the target's log, empty if nothing."""
    if not has_map and event.log_end > 0:
        return (
            f"the target partition already ends at offset {event.log_end} but has no offset map: "
            "it was not written by this mirror; delete the target topic or mirror under another name"
        )
    if not len(event.tail):
        return ""
    view = BatchView(event.tail)
    if view.producer_id != producer_id:
        return (
            f"the target's last batch (offset {view.base_offset}) was not written by this mirror "
            f"(producer id {view.producer_id}): stop the other writer, then re-create the target topic"
        )
    if view.last_offset + 1 != event.log_end or view.last_sequence != (event.log_end - 1) % SEQUENCES:
        return (
            f"the target's last batch ends at offset {view.last_offset} with sequence {view.last_sequence}, "
            f"which does not fit a log end of {event.log_end}: re-create the target topic"
        )
    return ""


class Mismatch(Exception):
    """The source has another record where a mirrored one was; the message says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Where to go on, and the runs that the map got wrong."""

    next_source: int
    corrections: tuple[Run, ...]


class TailCheck:
    """The comparison, over as many fetches as it takes; `offset` is where the next one starts."""

    def __init__(self, tail: bytes | memoryview, offsets: OffsetMap, next_source: int) -> None:
        self._records = decoded(BatchView(tail))
        self._mapped = [offsets.source_for(record.offset) for record in self._records]
        self._next_source = next_source
        self._matched = 0  # records of the tail that are found in the source or were passed over
        self._corrections: list[Run] = []
        self.offset = min((source for source in self._mapped if source is not None), default=next_source)

    def begin_at(self, log_start: int) -> None:
        """The source has nothing before this offset."""
        self.offset = max(self.offset, log_start)

    def take(self, event: Fetched) -> Finding | None:
        """Compare what was fetched; None while more is needed. Raises Mismatch and Unmirrorable."""
        filters = AbortedTransactions(event.aborted)
        for view in split_batches(memoryview(event.data)):
            verdict = judge(view, self.offset, filters)
            if verdict is Verdict.DROP_REPLICATED:
                continue
            if verdict in (Verdict.PASS, Verdict.REBUILD):
                for record in decoded(view):
                    if record.offset >= self.offset and not self._place(record):
                        return self._finding()
            self.offset = view.last_offset + 1
            if self._matched == len(self._records):
                return self._finding()
        return self._finding() if self.offset >= event.end else None

    def _place(self, record: Record) -> bool:
        """Find a record of the source in the tail; False when it is one that is still to be mirrored."""
        index = self._index_of(record)
        if index is None:
            index = self._found_elsewhere(record)
            if index is None:
                if record.offset < self._next_source:
                    raise Mismatch(
                        f"the source's record at offset {record.offset} is not the one that was mirrored: the source "
                        "topic was truncated or created anew; re-create the target topic to mirror it from the start"
                    )
                return False
            self._correct(index, record.offset)
        self._matched = index + 1
        if self._corrections:  # how far the rest of the tail reaches the map does not tell: all that is left is behind
            self._next_source = record.offset + 1
        return True

    def _correct(self, index: int, source: int) -> None:
        """Begin a run with that record of the tail, or with one before it that the map puts too far."""
        first = index
        while first > self._matched and (self._mapped[first - 1] or 0) >= source - (index - first):
            first -= 1
        run = Run(source - (index - first), self._records[first].offset)
        self._corrections.append(run)
        self._mapped[first:] = range(run.source, run.source + len(self._mapped) - first)

    def _found_elsewhere(self, record: Record) -> int | None:
        """Index of the record that is this one, whatever the map says."""
        for index in range(self._matched, len(self._records)):
            mine = self._records[index]
            if content(mine) == content(record) and mine.timestamp == record.timestamp:
                return index
        return None

    def _index_of(self, record: Record) -> int | None:
        """Index of the record that the map takes for this one, if it is this one."""
        for index in range(self._matched, len(self._records)):
            if self._mapped[index] == record.offset:
                return index if content(self._records[index]) == content(record) else None
        return None

    def _finding(self) -> Finding:
        return Finding(next_source=self._next_source, corrections=tuple(self._corrections))
