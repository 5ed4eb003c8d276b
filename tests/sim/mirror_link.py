"""One mirrored partition between a source and a target that do to it what clusters do

The source has everything that makes offsets part (markers, aborted data, holes, append-time batches), is compacted and
loses its oldest records at any moment. The target judges batches and sequences as a broker does, refuses one of several
in flight, keeps what it appended invisible for a while, forgets the producer when it was idle for a day, and loses its
oldest records too. Map writes fail, half of them carried out; connections break; requests sent over one that is gone
are read late, but not later than `ARRIVAL_MS`; the mirror and the target are killed.

Whatever happens, every record that lands on the target comes behind the one before it, no record that the source still
has is left out between two, and in the end the target has them all and the map, in memory and as stored, translates
each. That the machine gives up counts as a failure: nothing here deserves it.
"""

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tidemill.core.records.batch import BatchView, stamp
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import Record, decode_records
from tidemill.mirror.link import PartitionLink, State
from tidemill.mirror.link_events import (
    Action,
    Event,
    Fetch,
    Fetched,
    LocateSource,
    LocateTarget,
    LogStartFound,
    LookupFailed,
    OutOfRange,
    Produce,
    Produced,
    ProduceFailed,
    Release,
    Report,
    RunsStored,
    SourceLocated,
    Started,
    StoreFailed,
    StoreRuns,
    TargetLocated,
    Trouble,
    Wake,
    Woken,
)
from tidemill.mirror.offsets import OffsetMap, Run
from tidemill.mirror.resuming import ARRIVAL_MS

PID = (1 << 62) + 7
SEGMENT_RUNS = 2
DAY_MS = 86_400_000


@dataclass(slots=True)
class SourceBatch:
    """Mutable: a batch of the source, of which compaction takes records."""

    records: list[Record]
    end: int
    kind: dict[str, object]
    is_data: bool = True
    is_committed: bool = True
    raw: bytes = b""

    def encode(self) -> None:
        """Build the bytes anew."""
        base = self.records[0].offset
        batch = bytearray(build_batch(self.records, base_offset=base, keep_offsets=True, **self.kind))  # type: ignore[arg-type]
        stamp(batch, 0, base, 3)
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

    def _records(self, offsets: list[int]) -> list[Record]:
        self._serial += 1
        return [
            Record(offset, 1000 + offset, b"k%d" % offset, b"v%d.%d" % (self._serial, offset)) for offset in offsets
        ]

    def _append(
        self, records: list[Record], end: int, *, is_data: bool = True, is_committed: bool = True, **kind: object
    ) -> None:
        batch = SourceBatch(records, end, kind, is_data, is_committed)
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
                if batch.kind.get("timestamp_type"):  # all have the time of the append, whichever are left
                    time = self.written[batch.records[-1].value or b""].timestamp
                    batch.records[-1] = batch.records[-1]._replace(timestamp=time)
                batch.encode()
            kept.append(batch)
        self.batches = kept + self.batches[-1:]

    def delete_oldest(self) -> None:
        """Move the log start over a few batches."""
        if len(self.batches) > 3 and self._rng.random() < 0.3:
            del self.batches[: self._rng.randint(1, len(self.batches) // 3)]
            self.start = self.batches[0].records[0].offset

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
        chosen = [batch.raw for batch in self.batches if batch.end > action.offset]
        data = b"".join(chosen[: self._rng.randint(1, 6)])
        if len(chosen) > 1 and self._rng.random() < 0.3:
            data += chosen[-1][: self._rng.randint(1, 70)] if data != b"".join(chosen) else b""
        aborted = tuple((pid, first) for pid, first, marker in self.aborted if marker >= action.offset)
        return Fetched(turn=action.turn, data=bytearray(data), end=self.end, aborted=aborted)


class TargetLog:
    """A target partition that judges batches as a broker does, and records as this world does."""

    def __init__(self, source: SourceLog, rng: random.Random) -> None:
        self._source = source
        self._rng = rng
        self.batches: list[bytes] = []
        self.deleted: list[bytes] = []
        self.end = 0
        self.durable = 0  # acknowledged or seen by somebody
        self.remembered: list[tuple[int, int, int]] | None = None  # first, last sequence, base offset
        self.is_idle = False  # for so long that the broker may forget the producer

    @property
    def start(self) -> int:
        """The log start."""
        return BatchView(self.batches[0]).base_offset if self.batches else self.end

    def append(self, batch: bytes) -> int | Trouble:
        """The base offset, or what is wrong."""
        view = BatchView(batch)
        assert view.verify_crc() and view.base_offset == 0 and view.record_count == view.last_offset_delta + 1
        assert not view.is_transactional and not view.is_control and view.timestamp_type == 0
        assert [record.offset for record in decode_records(view)] == list(range(view.record_count))
        assert view.producer_id == PID
        if self.is_idle and self._rng.random() < 0.7:
            self.remembered = None
        self.is_idle = False
        if self.remembered is not None:
            for first, last, base in self.remembered[-5:]:
                if (first, last) == (view.base_sequence, view.last_sequence):
                    return base
            if view.base_sequence != self.remembered[-1][1] + 1:
                return Trouble.OUT_OF_ORDER
        base = self.end
        stamped = bytearray(batch)
        stamp(stamped, 0, base, 0)
        self._judge(decode_records(view))
        self.batches.append(bytes(stamped))
        self.end += view.record_count
        self.remembered = [*(self.remembered or []), (view.base_sequence, view.last_sequence, base)]
        return base

    def _judge(self, records: list[Record]) -> None:
        """Nothing twice, nothing out of order, nothing left out that the source still has."""
        last = max((self._origin(record) for record in self._last_records()), default=-1)
        surviving = [record.offset for record in self._source.visible()]
        for record in records:
            origin = self._origin(record)
            assert record[1:] == self._source.written[record.value or b""][1:], f"{record} was changed on the way"
            assert origin > last, f"{record} (source offset {origin}) is mirrored again"
            lost = [offset for offset in surviving if last < offset < origin]
            assert last < 0 or not lost, f"{lost} are left out before {origin}"
            last = origin

    def _last_records(self) -> list[Record]:
        newest = self.batches[-1:] or self.deleted[-1:]
        return decode_records(BatchView(newest[0])) if newest else []

    def _origin(self, record: Record) -> int:
        return self._source.written[record.value or b""].offset

    def lose_unacknowledged(self) -> None:
        """What a crash of the leader may take."""
        while self.batches and self.end > self.durable and self._rng.random() < 0.5:
            lost = BatchView(self.batches[-1])
            if lost.base_offset < self.durable:
                break
            self.batches.pop()
            self.end = lost.base_offset
            if self.remembered is not None:
                self.remembered = [row for row in self.remembered if row[2] < self.end] or None

    def delete_oldest(self) -> None:
        """Retention takes the oldest batches, not the last."""
        old = [batch for batch in self.batches if BatchView(batch).last_offset < self.durable]
        count = self._rng.randint(0, len(old) // 2)
        self.deleted += self.batches[:count]
        del self.batches[:count]

    def everything(self) -> list[Record]:
        """Every record that was ever kept, also what retention took."""
        return [record for batch in (*self.deleted, *self.batches) for record in decode_records(BatchView(batch))]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the broker says about one batch."""

    token: int
    outcome: int | Trouble
    in_doubt: bool = False


@dataclass
class MirrorWorld:
    """Everything between the machine and the two logs."""

    seed: int
    stored: dict[int, tuple[Run, ...]] = field(default_factory=dict)
    lookups: list[Action] = field(default_factory=list)
    wakes: list[Wake] = field(default_factory=list)
    stores: deque[StoreRuns] = field(default_factory=deque)
    wire: deque[Produce] = field(default_factory=deque)  # not yet read by the broker
    answers: deque[Answer] = field(default_factory=deque)
    late: deque[tuple[int, bytes]] = field(default_factory=deque)  # (until when, batch) of connections that are gone
    connection: int = 0
    bound: int = -1
    reports: list[Report] = field(default_factory=list)
    frames: set[int] = field(default_factory=set)
    now_ms: int = 1_700_000_000_000
    met: set[str] = field(default_factory=set)  # what happened at least once
    link: PartitionLink = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.source = SourceLog(self.rng)
        self.target = TargetLog(self.source, self.rng)
        self._frame = 0
        self.start_mirror()

    def start_mirror(self) -> None:
        """A mirror that knows what is stored and nothing else."""
        self.frames.clear()
        self.link = PartitionLink(
            producer_id=PID,
            offsets=OffsetMap.from_segments(self.stored, segment_runs=SEGMENT_RUNS)
            if self.stored
            else OffsetMap(segment_runs=SEGMENT_RUNS),
            buffer_bytes_max=600,
            segments_stored=max(self.stored, default=-1) + 1,
        )
        self.feed(Started())

    def feed(self, event: Event) -> None:
        """One step of the machine."""
        for action in self.link.step(event, self.now_ms):
            match action:
                case LocateTarget() | LocateSource() | Fetch():
                    self.lookups.append(action)
                case Wake():
                    self.wakes.append(action)
                case StoreRuns():
                    self.stores.append(action)
                    if action.deleted and not action.segments:
                        self.met.add("garbage")
                case Produce():
                    if self.bound == self.connection:
                        self.wire.append(action)
                    else:
                        self.answers.append(Answer(action.token, Trouble.RETRY))
                case Release(frame=frame):
                    self.frames.remove(frame)
                case Report():
                    self.reports.append(action)
        assert len(self.wire) + len(self.answers) <= 5, "more in flight than a broker remembers"
        assert self.link.state is not State.FAILED, self.link.reason

    # -- what the world does

    def look_up(self) -> None:
        action = self.lookups.pop(self.rng.randrange(len(self.lookups)))
        if isinstance(action, Fetch):
            answer = self.source.fetch(action)
            if isinstance(answer, Fetched):
                self._frame += 1
                self.frames.add(self._frame)
                answer = replace(answer, frame=self._frame)
            self.feed(answer)
        elif isinstance(action, LocateSource):
            self.feed(SourceLocated(turn=action.turn, log_start=self.source.start, log_end=self.source.end))
        else:
            assert isinstance(action, LocateTarget)
            self._locate_target(action)

    def _locate_target(self, action: LocateTarget) -> None:
        self.bound = self.connection
        end = self.rng.choice([self.target.durable, self.target.end])  # the high watermark may lag behind
        seen = [batch for batch in self.target.batches if BatchView(batch).last_offset < end]
        end = BatchView(seen[-1]).last_offset + 1 if seen else self.target.start
        if end < self.target.end:
            self.met.add("invisible")
        self.target.durable = max(self.target.durable, end)
        tail = seen[-1] if seen else b""
        self.feed(TargetLocated(turn=action.turn, log_start=self.target.start, log_end=end, tail=tail))

    def store(self) -> None:
        action = self.stores.popleft()
        outcome = self.rng.random()
        if outcome < 0.95:
            self._write(action)
        if outcome < 0.9:
            self.feed(RunsStored(token=action.token))
        else:
            self.feed(StoreFailed(token=action.token, reason="no answer"))

    def _write(self, action: StoreRuns) -> None:
        self.stored.update(action.segments)
        for number in action.deleted:
            self.stored.pop(number, None)

    def read_wire(self) -> None:
        action = self.wire.popleft()
        chance = self.rng.random()
        if chance < 0.06:
            if self.wire:
                self.met.add("refused with others behind it")
                if self.target.is_idle:
                    self.met.add("refused after a day")
            outcome = self.rng.choice([Trouble.RETRY, Trouble.PARK, Trouble.REREAD])
            self.answers.append(Answer(action.token, outcome))
            return
        outcome_or_offset = self.target.append(bytes(action.batch))
        if chance < 0.10 and not isinstance(outcome_or_offset, Trouble):  # not enough replicas, after the append
            self.answers.append(Answer(action.token, Trouble.RETRY, in_doubt=True))
        else:
            self.answers.append(Answer(action.token, outcome_or_offset))

    def answer(self) -> None:
        answer = self.answers.popleft()
        if isinstance(answer.outcome, Trouble):
            failed = ProduceFailed(
                token=answer.token, trouble=answer.outcome, reason="refused", in_doubt=answer.in_doubt
            )
            self.feed(failed)
            return
        known = self.rng.random() < 0.9
        end = next(BatchView(b).last_offset + 1 for b in self._landed() if BatchView(b).base_offset == answer.outcome)
        self.target.durable = max(self.target.durable, end)
        self.feed(Produced(token=answer.token, target_offset=answer.outcome if known else None))

    def _landed(self) -> Iterator[bytes]:
        yield from reversed(self.target.batches)
        yield from reversed(self.target.deleted)

    def break_connection(self) -> None:
        self.late.extend((self.now_ms + ARRIVAL_MS, bytes(action.batch)) for action in self.wire)
        tokens = [answer.token for answer in self.answers] + [action.token for action in self.wire]
        self.wire.clear()
        self.answers.clear()
        self.connection += 1
        for token in tokens:
            self.feed(ProduceFailed(token=token, trouble=Trouble.RETRY, reason="connection lost", in_doubt=True))

    def read_late(self) -> None:
        _, batch = self.late.popleft()
        self.met.add("late")
        self.target.append(batch)

    def crash_target(self) -> None:
        self.late.clear()
        self.break_connection()
        self.late.clear()
        self.target.lose_unacknowledged()

    def crash_mirror(self) -> None:
        self.late.extend((self.now_ms + ARRIVAL_MS, bytes(action.batch)) for action in self.wire)
        self.connection += 1
        self.lookups.clear()
        self.wakes.clear()
        while self.stores and self.rng.random() < 0.5:  # a write that was on its way may still arrive
            action = self.stores.popleft()
            self._write(action)
        self.stores.clear()
        self.wire.clear()
        self.answers.clear()
        self.start_mirror()

    def pass_a_day(self) -> None:
        """With nothing under way, so that the broker may forget the producer before or after more is sent."""
        if self.wire or self.answers or self.late:
            return
        self._advance(DAY_MS)
        self.target.durable = self.target.end
        self.target.is_idle = True

    def find_log_start(self) -> None:
        self.feed(LogStartFound(log_start=self.target.start))

    def compact_source(self) -> None:
        self.source.compact()

    def fail_lookup(self) -> None:
        action = self.lookups.pop(self.rng.randrange(len(self.lookups)))
        assert isinstance(action, LocateTarget | LocateSource | Fetch)
        self.feed(LookupFailed(turn=action.turn, trouble=Trouble.RETRY, reason="away"))

    def wake(self) -> None:
        action = self.wakes.pop(self.rng.randrange(len(self.wakes)))
        self._advance(action.after_ms)
        self.feed(Woken(turn=action.turn))

    def _advance(self, duration_ms: int) -> None:
        """Let time pass; what is late arrives before its time is over, or the rest of it never does."""
        self.now_ms += duration_ms
        while self.late and self.late[0][0] <= self.now_ms:
            if self.rng.random() < 0.8:
                self.read_late()
            else:
                until = self.late[0][0]
                self.late = deque(entry for entry in self.late if entry[0] != until)

    # -- turns

    def turn(self, faults: bool) -> bool:
        """One event; False when nothing is left to happen."""
        self._advance(self.rng.randint(0, 20))
        choices = []
        if self.lookups:
            choices += [self.look_up] * 20 + ([self.fail_lookup] if faults else [])
        if self.stores:
            choices += [self.store] * 12
        if self.wire:
            choices += [self.read_wire] * 12
        if self.answers:
            choices += [self.answer] * 12
        if self.wakes:
            choices += [self.wake] * 12
        if self.late:
            choices += [self.read_late] * 4
        if faults:
            choices += [self.break_connection, self.crash_mirror, self.crash_target, self.pass_a_day]
            choices += [self.find_log_start, self.target.delete_oldest, self.source.delete_oldest]
            choices += [self.source.grow] * 6 + [self.compact_source] * 2
        if not choices:
            return False
        self.rng.choice(choices)()
        return True

    def settle(self) -> None:
        """Let everything come to rest without further faults."""
        for _ in range(20_000):
            idle = [a for a in self.lookups if isinstance(a, Fetch) and a.offset >= self.source.end]
            if self.link.is_caught_up and len(idle) == len(self.lookups) and not (self.wire or self.answers):
                while self.stores or self.late:
                    self.store() if self.stores else self.read_late()
                if self.link.is_caught_up and not (self.stores or self.wire or self.answers):
                    return
            if not self.turn(faults=False):
                break
        raise AssertionError(f"does not settle: {self.link.state} {self.link.reason}")

    def check(self) -> None:
        """The invariants of a world at rest."""
        mirrored = self.target.everything()
        assert [record.offset for record in mirrored] == list(range(self.target.end))
        places = {record.value: record.offset for record in mirrored}
        assert len(places) == len(mirrored), "a record is on the target twice"
        restored = OffsetMap.from_segments(self.stored, segment_runs=SEGMENT_RUNS)
        start = max(self.target.start, self.link.progress.target_start)
        for record in self.source.visible():
            assert record.value in places, f"{record} is not on the target"
            target = places[record.value]
            assert self.link.translate(record.offset) == max(target, self.link.progress.target_start)
            if target >= start:
                assert self.link.offsets.source_for(target) == record.offset
                assert restored.source_for(target) == record.offset
        assert self.link.translate(self.source.end) == self.target.end
        assert self.link.progress.lag == 0
        assert self.link.buffered_bytes == self.link.own_bytes == 0
        assert not self.frames, "answers are still held"


def run_world(seed: int, turns: int = 300) -> MirrorWorld:
    """One life of a partition; a failure names its seed."""
    world = MirrorWorld(seed)
    try:
        for _ in range(turns):
            world.turn(faults=True)
        world.settle()
        world.check()
    except BaseException as error:
        error.add_note(f"seed {seed}: TIDEMILL_SIM_SEED={seed} TIDEMILL_SIM_RUNS=1 reproduces it")
        raise
    return world
