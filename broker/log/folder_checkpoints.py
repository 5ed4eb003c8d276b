"""What a folder's checkpoints say, and how that is kept true

Four files tell a start what it need not find out again: how far each log is durable, where it begins, how far it was
known to be committed (the high watermark), and how far the cleaner has been. Written in the file thread only, where the
making of partitions happens too: a checkpoint that was asked for before a partition was made again never follows it
with what was true of the old one. The logs are asked in that thread as well, so that writing costs the event loop
nothing; what they say only ever grows, and a newer answer is as good as an older one. The exception is a log whose end
is being cut off: nothing beyond its `caps` is written, and `lower` takes back what was. A cap may be taken off again
while the logs are being asked, so those are looked at first: one that comes later has its `lower` still to come.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tidemill.core.runtime.disk import Directory
from tidemill.core.types import TopicPartition

from .checkpoints import (
    CLEANED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    find_offsets,
    read_offsets,
    write_offsets,
)
from .partition import PartitionLog

Offsets = dict[TopicPartition, int]


@dataclass(slots=True)
class FolderCheckpoints:
    """The checkpoints as the folder has them."""

    directory: Directory
    points: Offsets = field(default_factory=dict)
    starts: Offsets = field(default_factory=dict)
    high_watermarks: Offsets = field(default_factory=dict)
    cleaned: Offsets = field(default_factory=dict)
    caps: Offsets = field(default_factory=dict)  # where logs will end that are being cut off; set on the event loop
    _in_doubt: set[str] = field(default_factory=set)  # files that may have what could not be written after all

    def read(self) -> bool:
        """Read all of them; False if the cleaner's is missing, so that it may have been anywhere."""
        self.points = read_offsets(self.directory, RECOVERY_POINTS)
        self.starts = read_offsets(self.directory, LOG_STARTS)
        self.high_watermarks = read_offsets(self.directory, HIGH_WATERMARKS)
        cleaned = find_offsets(self.directory, CLEANED)
        self.cleaned = cleaned or {}
        return cleaned is not None

    def correct(self, logs: Iterable[PartitionLog], *, cleaner_known: bool) -> None:
        """Where a log ends before what the checkpoints say of it, they would pass judgement on what is appended now.

        The cleaner's is there from the first start on, or a lost one could not be told from one that never was.
        """
        if not cleaner_known:
            self._write_cleaned(self.cleaned)
        known = (self.points, self.starts, self.high_watermarks)
        ends = {each.topic_partition: each.log_end_offset for each in logs}
        if any(offset > ends.get(key, offset) for each in known for key, offset in each.items()):
            # Nothing else: of a log that nobody owns yet nobody knows how far it is committed.
            self._write(*(_within(each, ends) for each in known))

    def write(self, logs: Iterable[PartitionLog]) -> None:
        """Write down how far `logs` are durable and committed, and where they begin."""
        caps, points, starts, high_watermarks = dict(self.caps), {}, {}, {}
        for each in logs:
            points[each.topic_partition] = each.recovery_point
            starts[each.topic_partition] = each.log_start_offset
            high_watermarks[each.topic_partition] = each.committed_offset
        if caps:
            points, starts, high_watermarks = (_within(each, caps) for each in (points, starts, high_watermarks))
        self._write(points, starts, high_watermarks)

    def lower(self, key: TopicPartition, end: int) -> None:
        """Let nothing be said of what one log has from `end` on.

        What is there after a crash would pass for durable and committed otherwise, whatever it is by then.
        """
        known = (self.points, self.starts, self.high_watermarks)
        if self._in_doubt or any(each.get(key, 0) > end for each in known):
            self._write(*({**each, key: end} if each.get(key, 0) > end else each for each in known))
        if CLEANED in self._in_doubt or self.cleaned.get(key, 0) > end:
            self._write_cleaned({**self.cleaned, key: min(end, self.cleaned.get(key, end))})

    def _write(self, points: Offsets, starts: Offsets, high_watermarks: Offsets) -> None:
        if points != self.points or RECOVERY_POINTS in self._in_doubt:
            self._replace(RECOVERY_POINTS, points)
            self.points = points
        if starts != self.starts or LOG_STARTS in self._in_doubt:
            self._replace(LOG_STARTS, starts)
            self.starts = starts
        if high_watermarks != self.high_watermarks or HIGH_WATERMARKS in self._in_doubt:
            self._replace(HIGH_WATERMARKS, high_watermarks)
            self.high_watermarks = high_watermarks

    def forget(self, gone: Collection[TopicPartition]) -> None:
        """Take out what is said of earlier partitions of the same names.

        After a crash their offsets would hide records of the new ones, or pass what was never durable for durable.
        """
        stale = set(gone)
        known = (self.points, self.starts, self.high_watermarks)
        if self._in_doubt or not all(stale.isdisjoint(each) for each in known):
            self._write(*(_without(each, stale) for each in known))
        if CLEANED in self._in_doubt or not stale.isdisjoint(self.cleaned):
            self._write_cleaned(_without(self.cleaned, stale))

    def note_cleaned(
        self, topic_partition: TopicPartition, offset: int, is_there: Callable[[TopicPartition], bool]
    ) -> None:
        """Remember how far the cleaner has been in one log, and forget it of logs that are not there any more."""
        offsets = {**self.cleaned, topic_partition: min(offset, self.caps.get(topic_partition, offset))}
        self._write_cleaned({key: offset for key, offset in offsets.items() if is_there(key)})

    def _write_cleaned(self, offsets: Offsets) -> None:
        self._replace(CLEANED, offsets)
        self.cleaned = offsets

    def _replace(self, name: str, offsets: Offsets) -> None:
        self._in_doubt.add(name)  # an error may come after the file has its name
        write_offsets(self.directory, name, offsets)
        self._in_doubt.discard(name)


def _within(offsets: Offsets, ends: Offsets) -> Offsets:
    """None beyond the end that is given for it, if one is."""
    return {key: min(offset, ends.get(key, offset)) for key, offset in offsets.items()}


def _without(offsets: Mapping[TopicPartition, int], keys: set[TopicPartition]) -> Offsets:
    return {key: offset for key, offset in offsets.items() if key not in keys}
