"""The partition machine in a simulated world: crashes, lost answers, zombies, restarts, one seed each

The world has one source log with everything that makes offsets part (markers, aborted data, holes, append-time
batches), one target log that checks batches and sequences as a broker does, and one stored map. Whatever happens, the
target must end up with exactly the records a read-committed reader of the source sees, and the map must translate
every one.
"""

import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from tidemill.core.records.batch import BatchView, iter_batches, stamp
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import Record, decode_records
from tidemill.mirror.link import DISPUTES_MAX, PartitionLink, State
from tidemill.mirror.link_events import (
    Action,
    Event,
    Fetch,
    Fetched,
    Halted,
    LocateSource,
    LocateTarget,
    LookupFailed,
    OutOfRange,
    Produce,
    Produced,
    ProduceFailed,
    Report,
    Reset,
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
from tidemill.mirror.passthrough import Verdict

PID = (1 << 62) + 7


class SourceLog:
    """A source partition with every kind of batch; knows what a read-committed reader sees."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.batches: list[bytes] = []
        self.end = 0
        self.start = 0
        self.aborted: list[tuple[int, int, int]] = []  # producer id, first offset, marker offset
        self.visible: list[Record] = []
        self._serial = 0

    def _records(self, offsets: list[int]) -> list[Record]:
        self._serial += 1
        return [
            Record(offset, 1000 + offset, b"k%d" % offset, b"v%d.%d" % (self._serial, offset)) for offset in offsets
        ]

    def _append(self, records: list[Record], base: int, end: int, **kind: object) -> None:
        batch = bytearray(build_batch(records, base_offset=base, keep_offsets=True, **kind))  # type: ignore[arg-type]
        stamp(batch, 0, base, 3)
        self.batches.append(bytes(batch))
        self.end = end

    def grow(self) -> None:
        base, count = self.end, self._rng.randint(1, 4)
        offsets = list(range(base, base + count))
        match self._rng.choice(["plain", "plain", "plain", "lz4", "holes", "commit", "abort", "append-time", "jump"]):
            case "holes":
                kept = sorted(self._rng.sample(offsets, self._rng.randint(1, count)))
                records = self._records(kept)
                self._append(records, base, kept[-1] + 1)
                self.visible.extend(records)
            case "commit" | "abort" as kind:
                records = self._records(offsets)
                producer = self._rng.randint(1, 3)
                self._append(
                    records,
                    base,
                    base + count,
                    transactional=True,
                    producer_id=producer,
                    producer_epoch=0,
                    base_sequence=0,
                )
                marker = [Record(self.end, 0, b"\0\0\0\0", b"")]
                self._append(
                    marker,
                    self.end,
                    self.end + 1,
                    transactional=True,
                    control=True,
                    producer_id=producer,
                    producer_epoch=0,
                )
                if kind == "abort":
                    self.aborted.append((producer, base, self.end - 1))
                else:
                    self.visible.extend(records)
            case "append-time":
                records = self._records(offsets)
                self._append(records, base, base + count, timestamp_type=1)
                self.visible.extend(record._replace(timestamp=records[-1].timestamp) for record in records)
            case "jump":  # compaction removed whole batches, never the newest
                self.end += count
                self.grow()
            case codec:
                records = self._records(offsets)
                self._append(records, base, base + count, codec="lz4" if codec == "lz4" else "none")
                self.visible.extend(records)

    def fetch(self, action: Fetch) -> Event:
        if not self.start <= action.offset <= self.end:
            return OutOfRange(turn=action.turn)
        chosen = [batch for batch in self.batches if BatchView(batch).last_offset >= action.offset]
        data = b"".join(chosen[: self._rng.randint(1, 6)])
        if len(chosen) > 1 and self._rng.random() < 0.3:
            data += chosen[-1][: self._rng.randint(1, 70)] if data != b"".join(chosen) else b""
        aborted = tuple((pid, first) for pid, first, marker in self.aborted if marker >= action.offset)
        return Fetched(turn=action.turn, data=bytearray(data), end=self.end, aborted=aborted)


class TargetLog:
    """A target partition that judges batches as a broker does."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end = 0
        self.acknowledged = 0
        self.remembered: list[tuple[int, int, int]] | None = None  # first, last sequence, base offset

    def append(self, batch: bytes) -> int | Trouble:
        view = BatchView(batch)
        assert view.verify_crc() and view.base_offset == 0 and view.record_count == view.last_offset_delta + 1
        assert not view.is_transactional and not view.is_control and view.timestamp_type == 0
        assert [record.offset for record in decode_records(view)] == list(range(view.record_count))
        if self.remembered is not None and view.producer_id == PID:
            for first, last, base in self.remembered[-5:]:
                if (first, last) == (view.base_sequence, view.last_sequence):
                    return base
            if view.base_sequence != self.remembered[-1][1] + 1:
                return Trouble.OUT_OF_ORDER
        base = self.end
        stamped = bytearray(batch)
        stamp(stamped, 0, base, 0)
        self.batches.append(bytes(stamped))
        self.end += view.record_count
        self.remembered = [*(self.remembered or []), (view.base_sequence, view.last_sequence, base)]
        return base

    def lose_unacknowledged(self, rng: random.Random) -> None:
        while self.batches and self.end > self.acknowledged and rng.random() < 0.5:
            lost = BatchView(self.batches[-1])
            if lost.base_offset < self.acknowledged:
                break
            self.batches.pop()
            self.end = lost.base_offset
            if self.remembered is not None:
                self.remembered = [row for row in self.remembered if row[2] < self.end] or None

    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in decode_records(BatchView(batch))]


@dataclass
class World:
    """Everything between the machine and the two logs."""

    rng: random.Random
    source: SourceLog
    target: TargetLog = field(default_factory=TargetLog)
    stored: dict[int, tuple[Run, ...]] = field(default_factory=dict)
    lookups: list[Action] = field(default_factory=list)
    wakes: list[Wake] = field(default_factory=list)
    stores: deque[StoreRuns] = field(default_factory=deque)
    wire: deque[tuple[int, Produce]] = field(default_factory=deque)  # not yet read by the broker
    answers: deque[tuple[int, int, int | Trouble]] = field(default_factory=deque)  # connection, token, outcome
    zombies: deque[bytes] = field(default_factory=deque)  # sent over a dead connection, may still be read
    connection: int = 0
    bound: int = -1
    reports: list[Report] = field(default_factory=list)
    link: PartitionLink = field(init=False)

    def __post_init__(self) -> None:
        self.start_mirror()

    def start_mirror(self) -> None:
        self.link = PartitionLink(producer_id=PID, offsets=OffsetMap.from_segments(self.stored), buffer_bytes_max=600)
        self.feed(Started())

    def feed(self, event: Event) -> None:
        for action in self.link.step(event):
            match action:
                case LocateTarget() | LocateSource() | Fetch():
                    self.lookups.append(action)
                case Wake():
                    self.wakes.append(action)
                case StoreRuns():
                    self.stores.append(action)
                case Produce():
                    if self.bound == self.connection:
                        self.wire.append((self.connection, action))
                    else:
                        self.answers.append((self.bound, action.token, Trouble.RETRY))
                case Report():
                    self.reports.append(action)
        flying = len(self.wire) + len(self.answers)
        assert flying <= 5, "more in flight than a broker remembers"

    # -- what the world does

    def look_up(self) -> None:
        action = self.lookups.pop(self.rng.randrange(len(self.lookups)))
        if isinstance(action, Fetch):
            self.feed(self.source.fetch(action))
        elif isinstance(action, LocateSource):
            self.feed(SourceLocated(turn=action.turn, log_start=self.source.start, log_end=self.source.end))
        else:
            self.bound = self.connection
            end = self.rng.choice([self.target.acknowledged, self.target.end])  # the high watermark may lag behind
            ends = [b for b in self.target.batches if BatchView(b).last_offset < end]
            end = BatchView(ends[-1]).last_offset + 1 if ends else 0
            tail = ends[-1] if ends else b""
            self.feed(TargetLocated(turn=action.turn, log_start=0, log_end=end, tail=tail))

    def store(self) -> None:
        action = self.stores.popleft()
        outcome = self.rng.random()
        if outcome < 0.95:
            self.stored.update(action.segments)
            for number in action.deleted:
                self.stored.pop(number, None)
        if outcome < 0.9:
            self.feed(RunsStored(token=action.token))
        else:
            self.feed(StoreFailed(token=action.token, reason="no answer"))

    def read_wire(self) -> None:
        connection, action = self.wire.popleft()
        self.answers.append((connection, action.token, self.target.append(bytes(action.batch))))

    def answer(self) -> None:
        _, token, outcome = self.answers.popleft()
        if isinstance(outcome, Trouble):
            self.feed(ProduceFailed(token=token, trouble=outcome, reason="refused"))
        else:
            known = self.rng.random() < 0.9
            batch = next(b for b in self.target.batches if BatchView(b).base_offset == outcome)
            self.target.acknowledged = max(self.target.acknowledged, BatchView(batch).last_offset + 1)
            self.feed(Produced(token=token, target_offset=outcome if known else None))

    def break_connection(self) -> None:
        self.zombies.extend(bytes(action.batch) for _, action in self.wire)
        tokens = [token for _, token, _ in self.answers] + [action.token for _, action in self.wire]
        self.wire.clear()
        self.answers.clear()
        self.connection += 1
        for token in tokens:
            self.feed(ProduceFailed(token=token, trouble=Trouble.RETRY, reason="connection lost"))

    def read_zombie(self) -> None:
        self.target.append(self.zombies.popleft())

    def crash_target(self) -> None:
        self.zombies.clear()
        self.break_connection()
        self.zombies.clear()
        self.target.lose_unacknowledged(self.rng)

    def crash_mirror(self) -> None:
        self.zombies.extend(bytes(action.batch) for _, action in self.wire)
        self.connection += 1
        self.lookups.clear()
        self.wakes.clear()
        while self.stores and self.rng.random() < 0.5:  # a write that was on its way may still arrive
            action = self.stores.popleft()
            self.stored.update(action.segments)
            for number in action.deleted:
                self.stored.pop(number, None)
        self.stores.clear()
        self.wire.clear()
        self.answers.clear()
        self.start_mirror()

    def forget_producer(self) -> None:
        if self.target.end == self.target.acknowledged and not self.zombies and not self.wire:
            self.target.remembered = None

    def fail_lookup(self) -> None:
        action = self.lookups.pop(self.rng.randrange(len(self.lookups)))
        assert isinstance(action, LocateTarget | LocateSource | Fetch)
        self.feed(LookupFailed(turn=action.turn, trouble=Trouble.RETRY, reason="away"))

    def wake(self) -> None:
        self.feed(Woken(turn=self.wakes.pop(self.rng.randrange(len(self.wakes))).turn))

    def turn(self, faults: bool) -> bool:
        """One event; False when nothing is left to happen."""
        choices = []
        if self.lookups:
            choices += [self.look_up] * 6 + ([self.fail_lookup] if faults else [])
        if self.stores:
            choices += [self.store] * 6
        if self.wire:
            choices += [self.read_wire] * 6
        if self.answers:
            choices += [self.answer] * 6
        if self.wakes:
            choices += [self.wake] * 2
        if self.zombies:
            choices += [self.read_zombie] * 2
        if faults:
            choices += [self.break_connection, self.crash_mirror, self.crash_target, self.forget_producer]
            choices += [self.source.grow] * 6
        if not choices:
            return False
        self.rng.choice(choices)()
        return True

    def settle(self) -> None:
        for _ in range(20_000):
            idle = [a for a in self.lookups if isinstance(a, Fetch) and a.offset >= self.source.end]
            if self.link.is_caught_up and len(idle) == len(self.lookups) and not (self.wire or self.answers):
                while self.stores or self.zombies:
                    self.store() if self.stores else self.read_zombie()
                if self.link.is_caught_up:
                    return
            if not self.turn(faults=False):
                break
        raise AssertionError(f"does not settle: {self.link.state} {self.link.reason}")


def run_world(seed: int, turns: int) -> World:
    rng = random.Random(seed)
    world = World(rng=rng, source=SourceLog(rng))
    for _ in range(turns):
        world.turn(faults=True)
        assert world.link.state is not State.FAILED, world.link.reason
    world.settle()
    return world


@pytest.mark.parametrize("seed", range(150))
def test_every_record_once_and_in_order(seed: int) -> None:
    world = run_world(seed, turns=300)
    mirrored, visible = world.target.records(), world.source.visible
    assert [r[1:] for r in mirrored] == [r[1:] for r in visible]
    assert [r.offset for r in mirrored] == list(range(len(visible)))
    for target, record in enumerate(visible):
        assert world.link.translate(record.offset) == target
        assert world.link.offsets.source_for(target) == record.offset
    assert world.link.translate(world.source.end) == len(visible)
    restored = OffsetMap.from_segments(world.stored)
    assert [restored.source_for(t) for t in range(len(visible))] == [r.offset for r in visible]
    assert world.link.progress.lag == 0
    assert world.link.buffered_bytes == 0


def test_the_same_seed_tells_the_same_story() -> None:
    assert run_world(7, 200).target.batches == run_world(7, 200).target.batches


def test_the_world_can_find_a_fault() -> None:
    """A machine that trusts its memory instead of the target's log loses or doubles records in this world."""
    found = 0
    for seed in range(40):
        rng = random.Random(seed)
        world = World(rng=rng, source=SourceLog(rng))
        original = world.target.append

        def forgetful(batch: bytes, world: World = world, original: object = original) -> int | Trouble:
            world.target.remembered = None  # a target that recognises no repeats
            return original(batch)  # type: ignore[operator,no-any-return]

        world.target.append = forgetful  # type: ignore[method-assign]
        for _ in range(300):
            world.turn(faults=True)
            if world.link.state is State.FAILED:
                break
        found += [r[1:] for r in world.target.records()] != [r[1:] for r in world.source.visible][: world.target.end]
    assert found > 0


# -- single situations


def plain(base: int, count: int, **kind: object) -> bytes:
    records = [Record(base + i, 1, b"k%d" % (base + i), b"v") for i in range(count)]
    batch = bytearray(build_batch(records, base_offset=base, **kind))  # type: ignore[arg-type]
    stamp(batch, 0, base, 0)
    return bytes(batch)


def mirrored(base: int, count: int, producer: int = PID, sequence: int | None = None) -> bytes:
    return plain(
        base, count, producer_id=producer, producer_epoch=0, base_sequence=base if sequence is None else sequence
    )


def only(actions: list[Action], kind: type[Action]) -> Action:
    found = [action for action in actions if isinstance(action, kind)]
    assert len(found) == 1, actions
    return found[0]


def located(link: PartitionLink, end: int, tail: bytes = b"", start: int = 0) -> list[Action]:
    action = only(link.step(Started()), LocateTarget)
    return link.step(TargetLocated(turn=action.turn, log_start=start, log_end=end, tail=tail))


def test_a_target_with_unknown_records_is_left_alone() -> None:
    link = PartitionLink(producer_id=PID)
    located(link, 10, mirrored(0, 10))
    assert link.state is State.FAILED
    assert "no offset map" in link.reason


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        (mirrored(5, 5, producer=99), "not written by this mirror"),
        (mirrored(5, 5, sequence=3), "does not fit a log end"),
        (mirrored(4, 5), "does not fit a log end"),
    ],
)
def test_a_foreign_tail_stops_the_partition(tail: bytes, words: str) -> None:
    link = PartitionLink(producer_id=PID, offsets=OffsetMap([Run(0, 0)]))
    located(link, 10, tail)
    assert link.state is State.FAILED
    assert words in link.reason


def test_a_source_with_other_records_stops_the_partition() -> None:
    link = PartitionLink(producer_id=PID, offsets=OffsetMap([Run(0, 0)]))
    fetch = only(located(link, 10, mirrored(5, 5)), Fetch)
    assert fetch.offset == 5, "the look back starts at the target's last batch"
    other = build_batch([Record(i, 1, b"other", b"v") for i in range(5)], base_offset=5)
    link.step(Fetched(turn=fetch.turn, data=other, end=20))
    assert link.state is State.FAILED
    assert "is not the one that was mirrored" in link.reason


def test_a_source_with_the_same_records_goes_on() -> None:
    link = PartitionLink(producer_id=PID, offsets=OffsetMap([Run(0, 0)]))
    fetch = only(located(link, 10, mirrored(5, 5)), Fetch)
    actions = link.step(Fetched(turn=fetch.turn, data=plain(5, 5) + plain(10, 2), end=12))
    produce = only(actions, Produce)
    view = BatchView(produce.batch)
    assert (view.base_sequence, view.record_count, view.producer_id) == (10, 2, PID)


def test_a_source_that_got_shorter_stops_the_partition() -> None:
    link = PartitionLink(producer_id=PID, offsets=OffsetMap([Run(0, 0)]))
    fetch = only(located(link, 10), Fetch)
    lookup = only(link.step(OutOfRange(turn=fetch.turn)), LocateSource)
    link.step(SourceLocated(turn=lookup.turn, log_start=0, log_end=4))
    assert link.state is State.FAILED
    assert "truncated or created anew" in link.reason


@pytest.mark.parametrize(("reset", "state"), [(Reset.EARLIEST, State.RUNNING), (Reset.NONE, State.FAILED)])
def test_records_deleted_before_they_were_mirrored(reset: Reset, state: State) -> None:
    link = PartitionLink(producer_id=PID, offsets=OffsetMap([Run(0, 0)]), reset=reset)
    fetch = only(located(link, 10), Fetch)
    lookup = only(link.step(OutOfRange(turn=fetch.turn)), LocateSource)
    actions = link.step(SourceLocated(turn=lookup.turn, log_start=50, log_end=60))
    assert link.state is state
    assert "deleted offsets 10 to 49" in only(actions, Report).message
    if state is State.RUNNING:
        assert only(actions, Fetch).offset == 50


@pytest.mark.parametrize(("reset", "offset"), [(Reset.EARLIEST, 30), (Reset.LATEST, 80)])
def test_where_a_new_partition_starts(reset: Reset, offset: int) -> None:
    link = PartitionLink(producer_id=PID, reset=reset)
    lookup = only(located(link, 0), LocateSource)
    actions = link.step(SourceLocated(turn=lookup.turn, log_start=30, log_end=80))
    assert only(actions, Fetch).offset == offset


def running(end: int = 0) -> tuple[PartitionLink, Fetch]:
    link = PartitionLink(producer_id=PID, offsets=OffsetMap([Run(0, 0)]))
    return link, only(located(link, end), Fetch)


def test_one_batch_in_flight_until_the_target_took_one() -> None:
    link, fetch = running()
    data = b"".join(plain(2 * i, 2) for i in range(10))
    actions = link.step(Fetched(turn=fetch.turn, data=data, end=20))
    first = only(actions, Produce)
    more = link.step(Produced(token=first.token, target_offset=0))
    assert len([a for a in more if isinstance(a, Produce)]) == 5


def test_no_batch_behind_a_hole_before_the_map_is_stored() -> None:
    link, fetch = running()
    actions = link.step(Fetched(turn=fetch.turn, data=plain(0, 2) + plain(5, 2), end=7))
    first, store = only(actions, Produce), only(actions, StoreRuns)
    assert store.segments == {0: (Run(0, 0), Run(5, 2))}
    assert not link.step(Produced(token=first.token, target_offset=0))
    assert only(link.step(RunsStored(token=store.token)), Produce)


def test_a_batch_in_the_wrong_place_stops_the_partition() -> None:
    link, fetch = running()
    first = only(link.step(Fetched(turn=fetch.turn, data=plain(0, 2), end=2)), Produce)
    link.step(Produced(token=first.token, target_offset=40))
    assert link.state is State.FAILED
    assert "somebody else writes" in link.reason


def test_an_oversize_batch_parks_the_partition_and_is_tried_again() -> None:
    link, fetch = running()
    first = only(link.step(Fetched(turn=fetch.turn, data=plain(0, 2), end=2)), Produce)
    actions = link.step(ProduceFailed(token=first.token, trouble=Trouble.PARK, reason="too large"))
    assert link.state is State.PARKED
    assert only(actions, Report).severe
    wake = only(actions, Wake)
    assert only(link.step(Woken(turn=wake.turn)), LocateTarget)


def test_a_corrupt_source_batch_that_must_be_rebuilt_parks_the_partition() -> None:
    link, fetch = running()
    damaged = bytearray(build_batch([Record(1, 1, b"k", b"value")], base_offset=0, keep_offsets=True))
    damaged[-3] ^= 1
    link.step(Fetched(turn=fetch.turn, data=bytes(damaged), end=2))
    assert link.state is State.PARKED
    assert "checksum" in link.reason


def test_an_endless_dispute_over_the_sequence_stops_the_partition() -> None:
    link, fetch = running()
    for _ in range(DISPUTES_MAX):
        first = only(link.step(Fetched(turn=fetch.turn, data=plain(0, 2), end=2)), Produce)
        actions = link.step(ProduceFailed(token=first.token, trouble=Trouble.OUT_OF_ORDER, reason="sequence"))
        if link.state is State.FAILED:
            break
        locate = only(link.step(Woken(turn=only(actions, Wake).turn)), LocateTarget)
        fetch = only(link.step(TargetLocated(turn=locate.turn, log_start=0, log_end=0)), Fetch)
    assert link.state is State.FAILED
    assert "another producer" in link.reason


@pytest.mark.parametrize("data", [plain(0, 2)[:-1], b""])
def test_a_batch_larger_than_the_fetch_is_asked_for_again(data: bytes) -> None:
    link, fetch = running()
    again = only(link.step(Fetched(turn=fetch.turn, data=data, end=2)), Fetch)
    assert (again.offset, again.max_bytes) == (0, 2 * fetch.max_bytes)
    after = only(link.step(Fetched(turn=fetch.turn, data=plain(0, 2), end=2)), Fetch)
    assert (after.offset, after.max_bytes) == (2, fetch.max_bytes)


def test_a_batch_larger_than_any_fetch_parks_the_partition() -> None:
    link, fetch = running()
    for _ in range(20):
        actions = link.step(Fetched(turn=fetch.turn, data=plain(0, 2)[:-1], end=2))
        if link.state is State.PARKED:
            break
        fetch = only(actions, Fetch)
    assert link.state is State.PARKED
    assert "exceeds any fetch size" in link.reason


def test_markers_at_the_end_count_as_mirrored() -> None:
    link, fetch = running()
    marker = build_batch([Record(0, 0, b"\0\0\0\0", b"")], base_offset=0, control=True, transactional=True)
    link.step(Fetched(turn=fetch.turn, data=marker, end=1))
    assert link.is_caught_up
    assert link.progress.dropped[Verdict.DROP_CONTROL] == 1
    assert link.translate(1) == 0


def test_stale_answers_are_ignored() -> None:
    link, fetch = running()
    assert not link.step(Fetched(turn=fetch.turn - 1, data=plain(0, 2), end=2))
    assert not link.step(Produced(token=99, target_offset=0))
    assert not link.step(ProduceFailed(token=99, trouble=Trouble.FAIL, reason=""))
    assert not link.step(LookupFailed(turn=fetch.turn - 1, trouble=Trouble.FAIL, reason=""))
    assert link.state is State.RUNNING


def test_halting_waits_for_what_is_in_flight() -> None:
    link, fetch = running()
    first = only(link.step(Fetched(turn=fetch.turn, data=plain(0, 2), end=2)), Produce)
    link.step(Halted(reason="topic re-created"))
    assert link.state is State.DRAINING
    link.step(Produced(token=first.token, target_offset=0))
    assert (link.state, link.reason) == (State.FAILED, "topic re-created")


def test_positions_are_clamped_to_the_target_log() -> None:
    link = PartitionLink(producer_id=PID, offsets=OffsetMap([Run(0, 0)]))
    assert link.translate(3) is None, "nobody has looked at the target yet"
    located(link, 10, mirrored(5, 5), start=4)
    assert [link.translate(offset) for offset in (0, 4, 7, 10, 50)] == [4, 4, 7, 10, 10]


def test_segments_below_the_log_start_are_dropped() -> None:
    runs = [Run(2 * i, i) for i in range(300)]
    link = PartitionLink(producer_id=PID, offsets=OffsetMap(runs))
    located(link, 299, start=290)
    stale = link.collect_garbage()
    assert stale is not None
    assert stale.deleted == (0, 1)
    assert link.collect_garbage() is None
    assert link.translate(2 * 295) == 295


def test_an_old_map_is_deleted_when_a_new_one_begins() -> None:
    link = PartitionLink(producer_id=PID, segments_stored=3)
    lookup = only(located(link, 0), LocateSource)
    fetch = only(link.step(SourceLocated(turn=lookup.turn, log_start=0, log_end=2)), Fetch)
    store = only(link.step(Fetched(turn=fetch.turn, data=plain(0, 2), end=2)), StoreRuns)
    assert (store.segments, store.deleted) == ({0: (Run(0, 0),)}, (1, 2))


def test_the_world_source_is_readable() -> None:
    log = SourceLog(random.Random(1))
    for _ in range(50):
        log.grow()
    assert len(list(iter_batches(b"".join(log.batches)))) == len(log.batches)
