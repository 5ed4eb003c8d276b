"""A source partition with everything that makes offsets part, under leaders that come and go

Markers, aborted data, holes and append-time batches; it is compacted, loses its oldest records and, if asked to, its
newest ones, as in an unclean election or when an old back-up is restored. What its leaders know of those before them is
what Kafka's do: kept through compaction and retention, and by some replicas known only as far as records are left.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from tidemill.core.records.batch import stamp
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import Record
from tidemill.mirror.link_events import EpochEndFound, Event, Fetch, Fetched, LocateEpochEnd, OutOfRange


class Leaders:
    """Epochs and the offsets where they began, in the log of the leader there is."""

    def __init__(self) -> None:
        self.epoch = 3
        self.starts: list[tuple[int, int]] = [(3, 0)]

    def begin(self, epoch: int, start: int) -> None:
        """A leader takes over a log that ends at `start`."""
        self.epoch = epoch
        self._assign(epoch, start)

    def learn(self, batches: Iterable[tuple[int, int]]) -> None:
        """Know no more than a replica that copied these batches, (epoch, base offset) each."""
        self.starts = []
        for epoch, base in batches:
            if not self.starts or epoch > self.starts[-1][0]:
                self._assign(epoch, base)

    def _assign(self, epoch: int, start: int) -> None:
        while self.starts and self.starts[-1][1] >= start:
            self.starts.pop()
        self.starts.append((epoch, start))

    def truncate_from_start(self, start: int) -> None:
        """The log begins at `start` now."""
        while len(self.starts) > 1 and self.starts[1][1] <= start:
            self.starts.pop(0)
        if self.starts and self.starts[0][1] < start:
            self.starts[0] = (self.starts[0][0], start)

    def truncate_from_end(self, end: int) -> None:
        """The log ends at `end` now."""
        self.starts = [row for row in self.starts if row[1] < end]

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` and where it ended."""
        if epoch == self.epoch:
            return epoch, log_end
        higher = [row for row in self.starts if row[0] > epoch]
        lower = [row for row in self.starts if row[0] <= epoch]
        if not higher:
            return -1, -1
        return (lower[-1][0] if lower else epoch), higher[0][1]


@dataclass(slots=True)
class SourceBatch:
    """Mutable: a batch of the source, of which compaction takes records."""

    records: list[Record]
    end: int
    kind: dict[str, object]
    is_data: bool = True
    is_committed: bool = True
    raw: bytes = b""
    epoch: int = 0

    def encode(self) -> None:
        """Build the bytes anew."""
        base = self.records[0].offset
        batch = bytearray(build_batch(self.records, base_offset=base, keep_offsets=True, **self.kind))  # type: ignore[arg-type]
        stamp(batch, 0, base, self.epoch)
        self.raw = bytes(batch)


class SourceLog:
    """A source partition with every kind of batch; knows what a read-committed reader sees."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.batches: list[SourceBatch] = []
        self.start = self.end = 0
        self.aborted: list[tuple[int, int, int]] = []  # producer id, first offset, marker offset
        self.written: dict[bytes, Record] = {}  # every record a read-committed reader ever could see, by its value
        self._serial = 0
        self.tells_epochs = True  # in its batches, and when it is asked
        self.answers_epochs = True
        self.leaders = Leaders()
        self.read_to = 0  # behind what was ever given to a reader
        self.cut_values: set[bytes] = set()  # of records that were cut off
        self.is_proven_cut = False  # below what a reader was given

    def _records(self, offsets: list[int]) -> list[Record]:
        self._serial += 1
        return [
            Record(offset, 1000 + offset, b"k%d" % offset, b"v%d.%d" % (self._serial, offset)) for offset in offsets
        ]

    def _append(
        self, records: list[Record], end: int, *, is_data: bool = True, is_committed: bool = True, **kind: object
    ) -> None:
        epoch = self.leaders.epoch if self.tells_epochs else -1
        batch = SourceBatch(records, end, kind, is_data, is_committed, epoch=epoch)
        batch.encode()
        self.batches.append(batch)
        self.end = end
        if is_data and is_committed:
            times = records[-1].timestamp if kind.get("timestamp_type") else None
            for record in records:
                seen = record if times is None else record._replace(timestamp=times)
                self.written[seen.value or b""] = seen

    def grow(self) -> None:
        """Append something."""
        base, count = self.end, self._rng.randint(1, 4)
        offsets = list(range(base, base + count))
        match self._rng.choice(["plain", "plain", "plain", "lz4", "holes", "commit", "abort", "append-time", "jump"]):
            case "holes":
                kept = sorted(self._rng.sample(offsets, self._rng.randint(1, count)))
                self._append(self._records(kept), kept[-1] + 1)
            case "commit" | "abort" as kind:
                producer = self._rng.randint(1, 3)
                more = {"transactional": True, "producer_id": producer, "producer_epoch": 0}
                is_committed = kind == "commit"
                self._append(self._records(offsets), base + count, is_committed=is_committed, base_sequence=0, **more)
                self._append([Record(self.end, 0, b"\0\0\0\0", b"")], self.end + 1, is_data=False, control=True, **more)
                if not is_committed:
                    self.aborted.append((producer, base, self.end - 1))
            case "append-time":
                self._append(self._records(offsets), base + count, timestamp_type=1)
            case "jump":  # compaction removed whole batches, never the newest
                self.end += count
                self.grow()
            case codec:
                self._append(self._records(offsets), base + count, codec="lz4" if codec == "lz4" else "none")

    def compact(self) -> None:
        """Take some records away, never of the newest batch."""
        kept = []
        for batch in self.batches[:-1]:
            if batch.is_data and self._rng.random() < 0.4:
                batch.records = [record for record in batch.records if self._rng.random() < 0.6]
                if not batch.records:
                    continue
                self._encode(batch)
            kept.append(batch)
        self.batches = kept + self.batches[-1:]

    def _encode(self, batch: SourceBatch) -> None:
        if (
            batch.kind.get("timestamp_type") and batch.is_committed
        ):  # all have the time of the append, whichever are left
            time = self.written[batch.records[-1].value or b""].timestamp
            batch.records[-1] = batch.records[-1]._replace(timestamp=time)
        batch.encode()

    def delete_oldest(self) -> None:
        """Move the log start over a few batches."""
        if len(self.batches) > 3 and self._rng.random() < 0.3:
            del self.batches[: self._rng.randint(1, len(self.batches) // 3)]
            self.start = self.batches[0].records[0].offset
            self.leaders.truncate_from_start(self.start)

    def elect(self) -> None:
        """A replica that has everything takes over; what it knows of earlier leaders may be only what was left."""
        if self._rng.random() < 0.3:
            self.leaders.learn((batch.epoch, batch.records[0].offset) for batch in self.batches)
        self.leaders.begin(self.leaders.epoch + self._rng.randint(1, 2), self.end)

    def cut(self, *, restored: bool) -> None:
        """Take the newest batches away, or a part of one, as an unclean election does or an old back-up."""
        if not self.batches:
            return
        chosen = self._rng.choice(self.batches[-8:])
        end = self._rng.choice([chosen.records[0].offset, self._rng.choice(chosen.records).offset])
        for _, first, marker in self.aborted:
            if first < end <= marker:
                end = first
        self.aborted = [row for row in self.aborted if row[2] < end]
        self.cut_values.update(value for value, record in self.written.items() if record.offset >= end)
        kept = []
        for batch in self.batches:
            if batch.end > end:
                batch.records = [record for record in batch.records if record.offset < end]
                batch.end = end
                if not batch.records:
                    continue
                if batch.is_data:
                    self._encode(batch)
            kept.append(batch)
        self.batches, self.end, self.start = kept, end, min(self.start, end)
        self.is_proven_cut = self.is_proven_cut or end < self.read_to
        self.leaders.truncate_from_end(end)
        known = self.leaders.starts[-1][0] if restored and self.leaders.starts else self.leaders.epoch
        self.leaders.begin(known + 1, end)

    def visible(self) -> list[Record]:
        """What a read-committed reader finds now."""
        return [
            self.written[record.value or b""]
            for batch in self.batches
            if batch.is_data and batch.is_committed
            for record in batch.records
        ]

    def fetch(self, action: Fetch) -> Event:
        """Answer a fetch with some batches, perhaps the beginning of one more."""
        if not self.start <= action.offset <= self.end:
            return OutOfRange(turn=action.turn)
        batches = [batch for batch in self.batches if batch.end > action.offset]
        chosen = [batch.raw for batch in batches]
        count = self._rng.randint(1, 6)
        data = b"".join(chosen[:count])
        self.read_to = max([self.read_to, action.offset, *(batch.end for batch in batches[:count])])
        if len(chosen) > 1 and self._rng.random() < 0.3:
            data += chosen[-1][: self._rng.randint(1, 70)] if data != b"".join(chosen) else b""
        aborted = tuple((pid, first) for pid, first, marker in self.aborted if marker >= action.offset)
        return Fetched(turn=action.turn, data=bytearray(data), end=self.end, aborted=aborted)

    def epoch_end(self, action: LocateEpochEnd) -> Event:
        """Answer the question where an epoch ended."""
        epoch, end_offset = self.leaders.end_of(action.epoch, self.end) if self.answers_epochs else (-1, -1)
        return EpochEndFound(turn=action.turn, epoch=epoch, end_offset=end_offset)
