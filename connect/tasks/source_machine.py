"""When a source's offset may be stored

A source hands over runs of records; the broker acknowledges them in whatever order it likes, per topic partition. The
machine keeps for every source partition the runs in the order they were read and lets an offset through once nothing
at or before it is unacknowledged. So after a crash the source resumes at or before the first record that may be
missing: records may come twice, none is lost.

Rules:

- A run belongs to one source partition, or to none; one without a partition holds back the offsets of all partitions,
  because nobody can say what it comes before.
- A run without an offset has no safe point of its own and is covered by the next offset of its partition.
- A run of no records moves the offset once everything before it is acknowledged: how a source tells that it read on
  although there was nothing to emit, or that transforms left nothing. The run it follows takes its offset over.
- Offsets are stored one flush at a time, every flush interval, or at once where the source asked for it (`offset_now`).
  `NotifyCommitted` follows the acknowledgement of the offset record itself.
- `Stop` drains: when nothing is in flight any more, the last offsets are stored, then `Drained`. `Abandon` does not
  wait for what is in flight: what is acknowledged is stored, the rest will be read again. So a task that fails repeats
  no more than it must.

Payloads never enter: a run is a token, a count and a size. Reading, producing and time are the shell's.
"""

from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

from tidemill.connect.api import SourceOffset

PartitionKey: TypeAlias = bytes
"""A source partition by its canonical bytes; the machine only compares them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """The source handed over a run of records that share a source partition; tokens grow."""

    token: int
    partition: PartitionKey | None
    offset: SourceOffset | None
    records: int
    size_bytes: int
    offset_now: bool = False  # the offset does not wait for the next flush


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The broker acknowledged `records` more of a run, or the error policy gave them up."""

    token: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFailed:
    """A record of a run will never be acknowledged."""

    token: int
    reason: str
    blames_record: bool = False  # nothing but that record is at fault


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsStored:
    """Every offset record of a flush is acknowledged."""

    flush: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsFailed:
    """An offset record of a flush will never be acknowledged."""

    flush: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time went on."""

    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Nothing more will be polled: drain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandon:
    """Nothing more will be polled or waited for: store what is acknowledged."""


Event: TypeAlias = Polled | Delivered | DeliveryFailed | OffsetsStored | OffsetsFailed | Tick | Stop | Abandon


@dataclass(frozen=True, slots=True, kw_only=True)
class Produce:
    """Send the records of a run."""

    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOffsets:
    """Write these offsets to the offsets topic."""

    flush: int
    offsets: tuple[tuple[PartitionKey, SourceOffset], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyCommitted:
    """Tell the source that everything up to `offset` is acknowledged and the offset itself is stored."""

    partition: PartitionKey
    offset: SourceOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """Give up: what was promised to the source cannot be kept."""

    reason: str
    blames_record: bool = False  # nothing but one record is at fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """After a stop: all is acknowledged and stored; after `Abandon`: what was acknowledged is."""


Action: TypeAlias = Produce | StoreOffsets | NotifyCommitted | Fail | Drained


class _Run:
    """A run in flight; 0 <= pending <= records."""

    __slots__ = ("offset", "offset_now", "partition", "pending", "size_bytes", "token")

    def __init__(self, event: Polled) -> None:
        self.token = event.token
        self.partition = event.partition
        self.offset = event.offset
        self.offset_now = event.offset_now
        self.pending = event.records
        self.size_bytes = event.size_bytes


class SourceMachine:
    """The offsets of one source task, from poll to storage."""

    def __init__(self, *, flush_interval_ms: int, in_flight_bytes_max: int, in_flight_records_max: int) -> None:
        self.in_flight_bytes = 0
        self.in_flight_records = 0
        self._flush_interval_ms = flush_interval_ms
        self._bytes_max = in_flight_bytes_max
        self._records_max = in_flight_records_max
        self._runs: dict[int, _Run] = {}  # unacknowledged, by token
        self._lines: dict[PartitionKey, deque[_Run]] = {}  # by source partition, in the order they were read
        self._unplaced: deque[_Run] = deque()  # without a source partition
        self._token_last = -1
        self._committable: dict[PartitionKey, SourceOffset] = {}
        self._storing: dict[PartitionKey, SourceOffset] | None = None
        self._flush = 0
        self._flush_now = False  # what is committable does not wait for the interval
        self._flush_due_ms: int | None = None
        self._stopping = False
        self._abandoned = False
        self._failed = False  # a record will never be acknowledged: its run stays, and holds back what follows it
        self._over = False  # drained, or offsets cannot be stored: every later event is too late to matter

    @property
    def accepts_more(self) -> bool:
        """Whether the source may be polled: in flight there is room, and no stop was asked."""
        return (
            not self._stopping
            and not self._failed
            and not self._over
            and self.in_flight_bytes < self._bytes_max
            and self.in_flight_records < self._records_max
        )

    @property
    def flush_pending(self) -> bool:
        """Whether an offset flush waits for its acknowledgement."""
        return self._storing is not None

    @property
    def settled(self) -> bool:
        """Whether all is acknowledged, and every offset stored."""
        return not self._runs and not self._committable and self._storing is None

    def step(self, event: Event) -> list[Action]:
        """Take in what happened; say what to do."""
        if self._over:
            return []
        match event:
            case Polled():
                return self._polled(event)
            case Delivered(token=token, records=records):
                self._delivered(token, records)
                return self._settle()
            case DeliveryFailed(reason=reason, blames_record=blames_record):
                failed, self._failed = self._failed, True
                return [] if failed else [Fail(reason=reason, blames_record=blames_record)]
            case OffsetsFailed(reason=reason):
                self._over = True
                return [Fail(reason=reason)]
            case OffsetsStored(flush=flush):
                return [*self._stored(flush), *self._settle()]
            case Tick(now_ms=now_ms):
                return self._tick(now_ms)
            case Stop():
                self._stopping = True
                return self._settle()
            case Abandon():
                self._stopping = self._abandoned = True
                return self._settle()

    def _polled(self, event: Polled) -> list[Action]:
        assert event.token > self._token_last, "tokens grow"
        assert not self._stopping, "nothing is polled after a stop"
        self._token_last = event.token
        run = _Run(event)
        if not run.pending and self._joins_the_last(run):
            return []
        if run.partition is None:
            if run.pending:
                self._unplaced.append(run)
        else:
            self._lines.setdefault(run.partition, deque()).append(run)
        if not run.pending:
            self._advance()
            return self._settle()
        self._runs[run.token] = run
        self.in_flight_records += run.pending
        self.in_flight_bytes += run.size_bytes
        return [Produce(token=run.token)]

    def _joins_the_last(self, run: _Run) -> bool:
        """Let the run before it in its line, if there is one, stand for a run of no records: no line grows of these."""
        line = None if run.partition is None else self._lines.get(run.partition)
        if not line or (self._unplaced and self._unplaced[-1].token > line[-1].token):
            return False
        if run.offset is not None:
            line[-1].offset = run.offset
            line[-1].offset_now |= run.offset_now
        return True

    def _delivered(self, token: int, records: int) -> None:
        run = self._runs[token]
        assert 0 < records <= run.pending, "a record is acknowledged once"
        run.pending -= records
        self.in_flight_records -= records
        if run.pending:
            return
        del self._runs[token]
        self.in_flight_bytes -= run.size_bytes
        self._advance(run)

    def _advance(self, acknowledged: _Run | None = None) -> None:
        """Let through every offset before which nothing is in flight any more."""
        if acknowledged is not None and acknowledged.partition is not None:
            lines = [acknowledged.partition]  # only this line can have moved
        else:
            while self._unplaced and not self._unplaced[0].pending:
                self._unplaced.popleft()
            lines = list(self._lines)
        barrier = self._unplaced[0].token if self._unplaced else self._token_last + 1
        for partition in lines:
            line = self._lines[partition]
            while line and not line[0].pending and line[0].token < barrier:
                run = line.popleft()
                if run.offset is not None:
                    self._committable[partition] = run.offset
                    self._flush_now |= run.offset_now
            if not line:
                del self._lines[partition]

    def _tick(self, now_ms: int) -> list[Action]:
        if self._flush_due_ms is None:
            self._flush_due_ms = now_ms + self._flush_interval_ms
        if now_ms < self._flush_due_ms:
            return []
        self._flush_due_ms = now_ms + self._flush_interval_ms
        return self._store()

    def _store(self) -> list[Action]:
        if self._storing is not None or not self._committable:
            return []
        self._storing, self._committable = self._committable, {}
        self._flush_now = False
        self._flush += 1
        return [StoreOffsets(flush=self._flush, offsets=tuple(self._storing.items()))]

    def _stored(self, flush: int) -> list[Action]:
        assert self._storing is not None and flush == self._flush, "one flush at a time"
        stored, self._storing = self._storing, None
        return [NotifyCommitted(partition=partition, offset=offset) for partition, offset in stored.items()]

    def _settle(self) -> list[Action]:
        """Store what may not wait; while stopping: store what is left, then say that all is done."""
        if self._flush_now:
            return self._store()
        if not self._stopping or self._storing is not None or (self._runs and not self._abandoned):
            return []
        if self._committable:
            return self._store()
        self._over = True
        return [Drained()]
