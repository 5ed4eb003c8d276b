"""One mirrored partition between a source and a target that do to it what clusters do

The source has everything that makes offsets part (markers, aborted data, holes, append-time batches), is compacted and
loses its oldest records at any moment. The target judges batches and sequences as a broker does, refuses one of several
in flight, keeps what it appended invisible for a while, forgets the producer when it was idle for a day, and loses its
oldest records too. Map writes fail, half of them carried out; connections break; requests sent over one that is gone
are read late, but not later than `ARRIVAL_MS`; the mirror and the target are killed.

If asked to, the target is put back to an older state while the mirror runs, as when a back-up is restored: with the map
that is stored on it, or the partition alone. With the map, whoever writes to it next sees that (`notice`), and has the
mirror begin anew.

Whatever happens, every record that lands on the target comes behind the one before it, no record that the source still
has is left out between two, and in the end the target has them all and the map, in memory and as stored, translates
each. That the machine gives up counts as a failure: nothing here deserves it.
"""

import random
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tests.sim.mirror_source import SourceLog
from tidemill.core.records.batch import BatchView, stamp
from tidemill.core.records.record import Record, decode_records
from tidemill.mirror.lineage import Span
from tidemill.mirror.link import PartitionLink, State
from tidemill.mirror.link_events import (
    Action,
    Event,
    Fetch,
    Fetched,
    LocateEpochEnd,
    LocateSource,
    LocateTarget,
    LogStartFound,
    LookupFailed,
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
    TargetUnbound,
    Trouble,
    Wake,
    Woken,
)
from tidemill.mirror.map_join import MapJoin, join_segments
from tidemill.mirror.offsets import Run
from tidemill.mirror.resuming import ARRIVAL_MS

PID = (1 << 62) + 7
SEGMENT_RUNS = 2
DAY_MS = 86_400_000


class TargetLog:
    """A target partition that judges batches as a broker does, and records as this world does."""

    def __init__(self, source: SourceLog, rng: random.Random) -> None:
        self._source = source
        self._rng = rng
        self.batches: list[bytes] = []
        self.deleted: list[bytes] = []
        self._records: dict[bytes, list[Record]] = {}  # what was decoded before
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
        for record in records:
            assert record[1:] == self._source.written[record.value or b""][1:], f"{record} was changed on the way"
        if self.has_cut_records(records):
            return  # nothing more can be right
        last = max((self._origin(record) for record in self._last_records()), default=-1)
        surviving = [record.offset for record in self._source.visible()]
        for record in records:
            origin = self._origin(record)
            assert origin > last, f"{record} (source offset {origin}) is mirrored again"
            lost = [offset for offset in surviving if last < offset < origin]
            assert last < 0 or not lost, f"{lost} are left out before {origin}"
            last = origin

    def _last_records(self) -> list[Record]:
        newest = self.batches[-1:] or self.deleted[-1:]
        return decode_records(BatchView(newest[0])) if newest else []

    def _origin(self, record: Record) -> int:
        return self._source.written[record.value or b""].offset

    def has_cut_records(self, more: Iterable[Record] = ()) -> bool:
        """Whether something is here that was cut off at the source."""
        return bool(self.cut_origins(more))

    def cut_origins(self, more: Iterable[Record] = ()) -> list[int]:
        """Source offsets of records that were cut off there."""
        if not self._source.cut_values:
            return []
        cut = [record for record in (*self.everything(), *more) if record.value in self._source.cut_values]
        return [self._origin(record) for record in cut]

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

    def copy(self) -> "TargetLog":
        """The folder, copied while the broker is stopped."""
        other = TargetLog(self._source, self._rng)
        other.put_back(self)
        return other

    def put_back(self, other: "TargetLog") -> None:
        """Be as that one was."""
        self.batches, self.deleted = list(other.batches), list(other.deleted)
        self.end = self.durable = other.end
        self.remembered = None if other.remembered is None else list(other.remembered)

    def everything(self) -> list[Record]:
        """Every record that was ever kept, also what retention took."""
        return [record for batch in (*self.deleted, *self.batches) for record in self._decoded(batch)]

    def _decoded(self, batch: bytes) -> list[Record]:
        if batch not in self._records:
            self._records[batch] = decode_records(BatchView(batch))
        return self._records[batch]


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
    cuts: int = 0  # so many times the source is cut
    set_backs: int = 0  # so many times the target is put back to an older state
    stored_spans: dict[int, tuple[Span, ...]] = field(default_factory=dict)
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
        self.located_end: int | None = None  # what this life of the mirror saw first
        self.sent: tuple[set[bytes], set[bytes]] = (set(), set())  # values of records, by earlier lives and by this one
        self.is_blinded = False  # what an earlier life sent showed up later, and had been cut off at the source by then
        self.is_restored = False  # from a back-up, with numbers of epochs that were there before
        if not self.cuts:
            self.source.tells_epochs = self.rng.random() < 0.9
            self.source.answers_epochs = self.rng.random() < 0.9
        self._frame = 0
        self._backup: tuple[TargetLog, dict[int, tuple[Run, ...]], dict[int, tuple[Span, ...]]] | None = None
        self.is_set_back = False  # with the stored map, which its owner has not seen yet
        self.is_alone_set_back = False  # the partition, at least once
        self.start_mirror()

    def start_mirror(self) -> None:
        """A mirror that knows what is stored and nothing else."""
        self.frames.clear()
        join = MapJoin(self.stored, segment_runs=SEGMENT_RUNS)
        join.take(len(self.stored))
        assert join.damage is None
        self.link = PartitionLink(
            producer_id=PID,
            offsets=join.offsets,
            spans=self.stored_spans.get(join.last_segment, ()),
            buffer_bytes_max=600,
            segments_stored=max(self.stored, default=-1) + 1,
        )
        self.feed(Started())

    def feed(self, event: Event) -> None:
        """One step of the machine."""
        for action in self.link.step(event, self.now_ms):
            match action:
                case LocateTarget() | LocateSource() | LocateEpochEnd() | Fetch():
                    self.lookups.append(action)
                case Wake():
                    self.wakes.append(action)
                case StoreRuns():
                    self.stores.append(action)
                    if action.deleted and not action.segments:
                        self.met.add("garbage")
                case Produce():
                    self.sent[1].update(record.value or b"" for record in decode_records(BatchView(action.batch)))
                    if self.bound == self.connection:
                        self.wire.append(action)
                    else:
                        self.answers.append(Answer(action.token, Trouble.RETRY))
                case Release(frame=frame):
                    self.frames.remove(frame)
                case Report():
                    self.reports.append(action)
        assert len(self.wire) + len(self.answers) <= 5, "more in flight than a broker remembers"
        if self.link.state is State.FAILED and self.is_set_back:
            self.met.add("failed until the store notices")
        elif self.link.state is State.FAILED and "says nothing about" in self.link.reason and self.is_alone_set_back:
            self.met.add("told that the map does not fit")
        elif self.link.state is State.FAILED:
            assert self.source.is_proven_cut, self.link.reason
            self.met.add("cut")

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
        elif isinstance(action, LocateEpochEnd):
            self.feed(self.source.epoch_end(action))
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
        self.located_end = end if self.located_end is None else self.located_end
        tail = seen[-1] if seen else b""
        self.feed(TargetLocated(turn=action.turn, log_start=self.target.start, log_end=end, tail=tail))

    def store(self) -> None:
        if self.is_set_back:
            self.notice()
            return
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
        if action.segments:
            self.stored_spans[max(action.segments)] = action.spans
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

    def back_up(self) -> None:
        """A copy of the target's folder."""
        self._backup = (self.target.copy(), dict(self.stored), dict(self.stored_spans))

    def put_back(self) -> None:
        """The target's broker was stopped, and starts with the older copy, all of it or this partition."""
        if self._backup is None:
            return
        target, stored, spans = self._backup
        self.set_backs -= 1
        self.late.clear()
        self.break_connection()
        self.late.clear()
        if target.end < self.target.end:
            self.met.add("put back")
        self.target.put_back(target)
        if self.rng.random() < 0.6:
            self.stored, self.stored_spans = dict(stored), dict(spans)
            self.is_set_back = True
        else:
            self.is_alone_set_back = True

    def notice(self) -> None:
        """What the owner of the stored map writes next has a smaller offset than what it wrote before."""
        self.met.add("noticed")
        self.crash_mirror()

    def unbind(self) -> None:
        """The mirror's connection to the target is gone, and the target is there."""
        self.feed(TargetUnbound())

    def see_whether_blinded(self) -> None:
        """Nobody can know of records that were sent before a restart and came to light after it, cut off by then."""
        located_end = 0 if self.located_end is None else self.located_end
        unseen = {record.value or b"" for record in self.target.everything() if record.offset >= located_end}
        self.is_blinded = self.is_blinded or bool(unseen & self.source.cut_values & (self.sent[0] - self.sent[1]))

    def crash_mirror(self) -> None:
        self.see_whether_blinded()
        self.located_end = None
        self.sent = (self.sent[0] | self.sent[1], set())
        self.late.extend((self.now_ms + ARRIVAL_MS, bytes(action.batch)) for action in self.wire)
        self.connection += 1
        self.lookups.clear()
        self.wakes.clear()
        if self.is_set_back:  # what was under way has ended with the target's process
            self.stores.clear()
            self.is_set_back = False
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

    def cut_source(self) -> None:
        self.cuts -= 1
        restored = self.rng.random() < 0.3
        self.is_restored = self.is_restored or restored
        self.source.cut(restored=restored)
        if restored:  # its broker was away meanwhile
            while self.lookups:
                self.fail_lookup()

    def fail_lookup(self) -> None:
        action = self.lookups.pop(self.rng.randrange(len(self.lookups)))
        assert isinstance(action, LocateTarget | LocateSource | LocateEpochEnd | Fetch)
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
        if self.is_unbound:
            choices += [self.unbind]
        if self.is_set_back:
            choices += [self.notice]
        if faults:
            choices += [self.break_connection, self.crash_mirror, self.crash_target, self.pass_a_day]
            choices += [self.find_log_start, self.target.delete_oldest, self.source.delete_oldest]
            choices += [self.source.grow] * 6 + [self.compact_source] * 2 + [self.source.elect]
            choices += [self.cut_source] if self.cuts else []
            choices += [self.back_up, self.put_back] if self.set_backs else []
        if not choices:
            return False
        self.rng.choice(choices)()
        return True

    @property
    def is_unbound(self) -> bool:
        """Whether the mirror runs over a connection that is gone, with nothing under way that would tell it so."""
        return self.bound != self.connection and self.link.state is State.RUNNING and not (self.wire or self.answers)

    def settle(self) -> None:
        """Let everything come to rest without further faults."""
        for _ in range(20_000):
            if self.link.state is State.FAILED and not self.is_set_back:
                return
            if self.is_set_back or self.is_unbound:
                self.turn(faults=False)
                continue
            idle = [a for a in self.lookups if isinstance(a, Fetch) and a.offset >= self.source.end]
            if self.link.is_caught_up and len(idle) == len(self.lookups) and not (self.wire or self.answers):
                while self.stores or self.late:
                    self.store() if self.stores else self.read_late()
                if self.link.is_caught_up and not (self.stores or self.wire or self.answers):
                    return
            if not self.turn(faults=False):
                break
        raise AssertionError(f"does not settle: {self.link.state} {self.link.reason}")

    def end(self) -> None:
        """Let everything come to rest, and see that all is well or that it was noticed that it is not."""
        if self.source.cut_values:
            self.source.grow()  # a cut that nothing followed is not to be seen
        if self.set_backs and self.link.state is not State.FAILED:  # while the mirror has nothing to do
            self.settle()
            self.put_back()
        self.settle()
        if self.link.state is not State.FAILED:
            if not self.target.has_cut_records():
                self.check()
                return
            self.see_whether_blinded()
            assert self.may_miss_it, "nobody noticed that the source was cut"
            self.met.add("unnoticed")
        elif self.target.has_cut_records() and not self.may_miss_it:
            while self.stores:
                self.store()
            is_told = self._is_told
            self.crash_mirror()
            self.settle()
            self.see_whether_blinded()
            assert not is_told or self.is_blinded or self.link.state is State.FAILED, (
                "a restart forgets that the source was cut"
            )

    @property
    def may_miss_it(self) -> bool:
        """Whether nothing is left that proves the cut."""
        return self.is_restored or self.is_blinded or self._is_forgotten

    @property
    def _is_told(self) -> bool:
        """Whether the stored map tells the true origin of any record that was cut off: of a probe it does not yet."""
        stored = join_segments(self.stored, segment_runs=SEGMENT_RUNS)
        return any(
            stored.source_for(record.offset) == self.source.written[record.value or b""].offset
            for record in self.target.everything()
            if record.value in self.source.cut_values
        )

    @property
    def _is_forgotten(self) -> bool:
        """Whether the source deleted everything since of which the target has records."""
        return all(origin < self.source.start for origin in self.target.cut_origins())

    def check(self) -> None:
        """The invariants of a world at rest."""
        mirrored = self.target.everything()
        assert [record.offset for record in mirrored] == list(range(self.target.end))
        places = {record.value: record.offset for record in mirrored}
        assert len(places) == len(mirrored), "a record is on the target twice"
        restored = join_segments(self.stored, segment_runs=SEGMENT_RUNS)
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


def run_world(seed: int, turns: int = 300, cuts: int = 0, set_backs: int = 0) -> MirrorWorld:
    """One life of a partition whose source is cut, and target put back, so many times; a failure names its seed."""
    world = MirrorWorld(seed, cuts, set_backs)
    try:
        for _ in range(turns):
            world.turn(faults=True)
            if world.link.state is State.FAILED and not world.is_set_back:
                break
        world.end()
    except BaseException as error:
        error.add_note(f"seed {seed}: TIDEMILL_SIM_SEED={seed} TIDEMILL_SIM_RUNS=1 reproduces it")
        raise
    return world
