"""The mirror of one partition as a machine

Hears what was fetched, what the target acknowledged and what failed; says what to fetch, produce, store and look up. It
owns three numbers that always belong together: the next source offset to fetch, the next target offset to write, and
the target offset up to which everything is acknowledged.

The position is never stored. On start and after any trouble the machine asks for the end of the target log and
translates it back through the offset map, so whatever was lost or repeated in between, it goes on exactly behind the
last record the target holds. Three things make that sound:

1. A run of the map is stored before the first batch behind a hole is produced (`needs` of a waiting batch).
2. Batches carry a fixed producer id and the target offset as sequence: one that arrives twice is recognised.
3. The last batch on the target must be the mirror's own, and its records must be those of the source. If not, somebody
   else wrote there or a topic was created anew: the machine stops and says so, and skips nothing.

Several batches may be in flight once the target has accepted one since the last look at its log end; before that, one,
because a broker that knows nothing of the producer accepts any first sequence and would leave a gap.

Trouble drops everything buffered, waits until nothing is in flight (a batch sent earlier may still arrive), pauses, and
looks again. States and their successors are in `TRANSITIONS`.
"""

import enum
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill.core.client.retries import backoff_ms
from tidemill.core.records.batch import BatchView
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
from tidemill.mirror.passthrough import (
    SEQUENCES,
    AbortedTransactions,
    Outgoing,
    Unmirrorable,
    Verdict,
    decoded,
    judge,
    relay,
    split_batches,
)

IN_FLIGHT_MAX = 5  # brokers remember that many batches per producer to recognise repeats
BUFFER_BYTES_MAX = 4 * 1024 * 1024  # per partition: covers a fetch round trip at a few hundred MB/s
PARK_MS = 30_000  # pause after something an operator has to mend; it is tried again in case they did
DISPUTES_MAX = 6  # out-of-order answers at an unchanged log end before giving up
FETCH_BYTES = 1024 * 1024
FETCH_BYTES_MAX = 64 * 1024 * 1024


class State(enum.StrEnum):
    """Where a partition's mirror is."""

    IDLE = "idle"  # not started
    LOCATING = "locating"  # asking for the target's log end
    RUNNING = "running"
    DRAINING = "draining"  # waiting for answers to what is still in flight
    BACKING_OFF = "backing-off"
    PARKED = "parked"  # like backing off, but somebody has to do something
    FAILED = "failed"  # stopped for good, a restart asks again


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.IDLE: frozenset({State.LOCATING, State.FAILED}),
    State.LOCATING: frozenset({State.RUNNING, State.BACKING_OFF, State.PARKED, State.FAILED}),
    State.RUNNING: frozenset({State.DRAINING, State.BACKING_OFF, State.PARKED, State.FAILED}),
    State.DRAINING: frozenset({State.BACKING_OFF, State.PARKED, State.FAILED}),
    State.BACKING_OFF: frozenset({State.LOCATING, State.FAILED}),
    State.PARKED: frozenset({State.LOCATING, State.FAILED}),
    State.FAILED: frozenset(),
}


@dataclass(slots=True, kw_only=True)
class Progress:
    """Mutable: counters and positions for status and metrics, which the machine keeps."""

    source_next: int = 0  # the next record to mirror: all below are acknowledged by the target or carry nothing
    source_end: int | None = None  # None until a fetch has told
    target_start: int = 0
    target_end: int = 0  # acknowledged
    batches: int = 0
    bytes: int = 0
    rebuilt: int = 0
    dropped: Counter[Verdict] = field(default_factory=Counter)

    @property
    def lag(self) -> int | None:
        """Offsets between the source's end and what is mirrored; None when not known yet."""
        return None if self.source_end is None else max(0, self.source_end - self.source_next)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A batch that is buffered or in flight."""

    token: int
    item: Outgoing
    needs: int  # map token that must be stored first
    size_bytes: int


class PartitionLink:
    """The machine. `offsets` is the stored map; `producer_id` is the flow's for this target partition.

    `segments_stored` tells of stored segments that are not part of `offsets`: they are deleted with the first store.
    """

    def __init__(
        self,
        *,
        producer_id: int,
        offsets: OffsetMap | None = None,
        reset: Reset = Reset.EARLIEST,
        in_flight_max: int = IN_FLIGHT_MAX,
        buffer_bytes_max: int = BUFFER_BYTES_MAX,
        segments_stored: int = 0,
    ) -> None:
        self.offsets = OffsetMap() if offsets is None else offsets
        self.progress = Progress()
        self.state = State.IDLE
        self.reason = ""  # why it is not running
        self._producer_id = producer_id
        self._reset = reset
        self._in_flight_max = in_flight_max
        self._buffer_bytes_max = buffer_bytes_max
        self._actions: list[Action] = []
        self._turn = 0  # look-ups and fetches of an older turn are void
        self._next_token = 0
        self._located = False
        self._failures = 0
        self._disputes = 0
        self._after_drain = Trouble.RETRY
        # positions of what is fetched but not yet acknowledged
        self._next_source = 0
        self._next_target = 0
        self._fetching = False
        self._fetch_bytes = FETCH_BYTES
        self._accepted = False  # the target took a batch since it was located
        self._tail: bytes | memoryview | None = None  # the target's last batch, until compared with the source
        self._queue: deque[_Waiting] = deque()
        self._flying: deque[_Waiting] = deque()
        self._buffered_bytes = 0
        # the stored map
        self._store_token = 0
        self._stored_token = 0
        self._dirty_from: int | None = None  # first segment that may not be stored as it is here
        self._segments_stored = max(segments_stored, self.offsets.segment_numbers().stop)

    # -- reading

    @property
    def buffered_bytes(self) -> int:
        """Bytes held for the target."""
        return self._buffered_bytes

    @property
    def is_caught_up(self) -> bool:
        """Whether everything the last fetch could see is on the target."""
        return self.state is State.RUNNING and self.progress.lag == 0

    def translate(self, source_offset: int) -> int | None:
        """The target offset of a group position on the source; None while the target's log is not known."""
        if not self._located:
            return None
        end = self.progress.target_end
        found = self.offsets.target_for(source_offset, end)
        if found is None:
            return end
        return max(found, min(self.progress.target_start, end))

    # -- the machine

    def step(self, event: Event) -> list[Action]:
        """Take in one event and return what to do, in order."""
        match event:
            case Fetched():
                self._on_fetched(event)
            case Produced():
                self._on_produced(event)
            case RunsStored(token=token):
                self._on_stored(token)
            case Started():
                self._locate()
            case Woken(turn=turn):
                if turn == self._turn and self.state in (State.BACKING_OFF, State.PARKED):
                    self._locate()
            case TargetLocated():
                self._on_target_located(event)
            case SourceLocated():
                self._on_source_located(event)
            case OutOfRange(turn=turn):
                self._on_out_of_range(turn)
            case LookupFailed(turn=turn, trouble=trouble, reason=reason):
                if turn == self._turn and self.state in (State.LOCATING, State.RUNNING):
                    self._stumble(trouble, reason)
            case ProduceFailed(token=token, trouble=trouble, reason=reason):
                self._on_produce_failed(token, trouble, reason)
            case StoreFailed(reason=reason):
                if self.state is State.RUNNING:
                    self._stumble(Trouble.RETRY, reason)
            case Halted(reason=reason):
                self._halt(reason)
        actions, self._actions = self._actions, []
        return actions

    def _move(self, state: State, reason: str = "") -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} -> {state}"
        self.state = state
        self.reason = reason

    # -- finding the position

    def _locate(self) -> None:
        self._move(State.LOCATING)
        self._turn += 1
        self._actions.append(LocateTarget(turn=self._turn))

    def _on_target_located(self, event: TargetLocated) -> None:
        if event.turn != self._turn or self.state is not State.LOCATING:
            return
        problem = self._foreign_tail(event)
        if problem:
            self._stumble(Trouble.FAIL, problem)
            return
        lost = self.progress.target_end - event.log_end
        if self._disputes and lost:
            self._disputes = 0
        if lost > 0:
            self._actions.append(
                Report(message=f"the target lost {lost} acknowledged records; they are mirrored again")
            )
        self.progress.target_start, self.progress.target_end = event.log_start, event.log_end
        self._located = True
        self._next_target = event.log_end
        # Runs beyond the log end stay: what they were written ahead for may have been appended and not be visible yet.
        position = self.offsets.source_for(event.log_end)
        if position is None and event.log_end > 0:
            self._stumble(
                Trouble.FAIL,
                f"the offset map says nothing about the target's log end {event.log_end}: re-create the target topic",
            )
            return
        if position is None:
            self._actions.append(LocateSource(turn=self._turn))
            return
        self._next_source = self.progress.source_next = position
        self._tail = event.tail if len(event.tail) else None
        self._run()

    def _foreign_tail(self, event: TargetLocated) -> str:
        """What is wrong with the end of the target's log, empty if nothing."""
        if not len(self.offsets) and event.log_end > 0:
            return (
                f"the target partition already ends at offset {event.log_end} but has no offset map: "
                "it was not written by this mirror; delete the target topic or mirror under another name"
            )
        if not len(event.tail):
            return ""
        view = BatchView(event.tail)
        if view.producer_id != self._producer_id:
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

    def _on_source_located(self, event: SourceLocated) -> None:
        if event.turn != self._turn:
            return
        self.progress.source_end = event.log_end
        if self.state is State.LOCATING:  # nothing mirrored yet: begin
            self._next_source = event.log_end if self._reset is Reset.LATEST else event.log_start
            self.progress.source_next = self._next_source
            self._run()
            return
        if self.state is not State.RUNNING:
            return
        self._fetching = False
        if self._next_source > event.log_end:
            self._stumble(
                Trouble.FAIL,
                f"the source ends at offset {event.log_end}, before the mirrored position {self._next_source}: "
                "it was truncated or created anew; re-create the target topic to mirror it from the start",
            )
        elif self._next_source < event.log_start and self._reset is not Reset.EARLIEST:
            self._stumble(
                Trouble.FAIL,
                f"the source deleted offsets {self._next_source} to {event.log_start - 1} before they were mirrored, "
                f"and auto.offset.reset={self._reset} forbids going on behind them",
            )
        else:
            if self._next_source < event.log_start:
                self._actions.append(
                    Report(
                        message=f"the source deleted offsets {self._next_source} to {event.log_start - 1} "
                        "before they were mirrored; going on behind them"
                    )
                )
                self._next_source = event.log_start
            self._want_more()

    def _on_out_of_range(self, turn: int) -> None:
        if turn != self._turn or self.state is not State.RUNNING:
            return
        self._fetching = False
        if self._tail is not None:  # only the look back for comparison was out of range
            self._tail = None
            self._want_more()
            return
        self._fetching = True  # until the answer
        self._actions.append(LocateSource(turn=self._turn))

    def _run(self) -> None:
        self._move(State.RUNNING)
        self._accepted = False
        self._fetching = False
        if self._dirty_from is not None:
            self._store()
        self._want_more()

    # -- source to buffer

    def _want_more(self) -> None:
        if self._fetching or self.state is not State.RUNNING or self._buffered_bytes >= self._buffer_bytes_max:
            return
        self._fetching = True
        offset = self._next_source
        if self._tail is not None:
            looked_up = self.offsets.source_for(BatchView(self._tail).base_offset)
            offset = self._next_source if looked_up is None else min(looked_up, self._next_source)
        self._actions.append(Fetch(turn=self._turn, offset=offset, max_bytes=self._fetch_bytes))

    def _on_fetched(self, event: Fetched) -> None:
        if event.turn != self._turn or self.state is not State.RUNNING:
            return
        self._fetching = False
        self.progress.source_end = max(event.end, self._next_source)
        try:
            if self._tail is not None and len(event.data):
                problem = self._compare_tail(event, self._tail)
                self._tail = None
                if problem:
                    self._stumble(Trouble.FAIL, problem)
                    return
            relayed = relay(
                event.data,
                next_source=self._next_source,
                next_target=self._next_target,
                producer_id=self._producer_id,
                aborted=event.aborted,
            )
        except Unmirrorable as problem:
            self._stumble(Trouble.PARK, str(problem))
            return
        if not self._fit(event, bool(relayed.verdicts)):
            return
        if not relayed.outgoing and not self._flying:
            self._failures = 0
        self._take(relayed.outgoing)
        self._next_source = relayed.next_source
        for verdict in relayed.verdicts:
            if verdict is Verdict.REBUILD:
                self.progress.rebuilt += 1
            elif verdict is not Verdict.PASS:
                self.progress.dropped[verdict] += 1
        self._settle()
        self._pump()
        self._want_more()

    def _fit(self, event: Fetched, has_batches: bool) -> bool:
        """Ask for more bytes while there is data and not one whole batch of it comes; False when none ever will.

        A broker sends only the first batch of an answer whatever its size, so another partition may be in the way.
        """
        if has_batches or event.end <= self._next_source:
            self._fetch_bytes = FETCH_BYTES
        elif self._fetch_bytes < FETCH_BYTES_MAX:
            self._fetch_bytes *= 2
        elif len(event.data):
            self._stumble(Trouble.PARK, f"the source batch at offset {self._next_source} exceeds any fetch size")
            return False
        return True

    def _take(self, outgoing: tuple[Outgoing, ...]) -> None:
        """Buffer batches, noting where the offsets of the two sides part."""
        first_new: int | None = None
        token = self._store_token
        for item in outgoing:
            target = item.target_offset
            for source, records in item.pieces:
                if self.offsets.source_for(target) != source:
                    number = self.offsets.append(Run(source, target))
                    if first_new is None:
                        first_new = number
                        token += 1
                target += records
            self._next_token += 1
            size_bytes = len(item.batch)
            self._queue.append(_Waiting(token=self._next_token, item=item, needs=token, size_bytes=size_bytes))
            self._buffered_bytes += size_bytes
            self._next_target = target
        if first_new is not None:
            self._mark_dirty(first_new)
            self._store()

    def _compare_tail(self, event: Fetched, tail: bytes | memoryview) -> str:
        """Whether the target's last batch holds the records the source has at those offsets; empty if so."""
        view = BatchView(tail)
        ours = {self.offsets.source_for(record.offset): (record.key, record.value) for record in decoded(view)}
        filters = AbortedTransactions(event.aborted)
        for source in split_batches(memoryview(event.data)):
            if source.base_offset >= self._next_source:
                break
            if judge(source, source.base_offset, filters) not in (Verdict.PASS, Verdict.REBUILD):
                continue
            for record in decoded(source):
                if record.offset in ours and ours[record.offset] != (record.key, record.value):
                    return (
                        f"the source's record at offset {record.offset} is not the one that was mirrored: the source "
                        "topic was truncated or created anew; re-create the target topic to mirror it from the start"
                    )
        return ""

    # -- the map

    def _mark_dirty(self, segment: int) -> None:
        self._dirty_from = segment if self._dirty_from is None else min(self._dirty_from, segment)

    def _store(self) -> None:
        """Store every segment that may differ from what the topic holds; delete those that ceased to exist."""
        assert self._dirty_from is not None
        numbers = self.offsets.segment_numbers()
        first = max(self._dirty_from, numbers.start)
        self._store_token += 1
        self._actions.append(
            StoreRuns(
                token=self._store_token,
                segments={number: self.offsets.segment(number) for number in range(first, numbers.stop)},
                deleted=tuple(range(numbers.stop, self._segments_stored)),
            )
        )
        self._segments_stored = max(self._segments_stored, numbers.stop)

    def _on_stored(self, token: int) -> None:
        self._stored_token = max(self._stored_token, token)
        if self._stored_token == self._store_token:
            self._dirty_from = None
            self._segments_stored = self.offsets.segment_numbers().stop
        self._pump()

    def collect_garbage(self) -> StoreRuns | None:
        """Forget segments below the target's log start; the deletion to store, if any."""
        gone = self.offsets.collect(self.progress.target_start)
        if not gone:
            return None
        self._store_token += 1
        return StoreRuns(token=self._store_token, segments={}, deleted=gone)

    # -- buffer to target

    def _pump(self) -> None:
        window = self._in_flight_max if self._accepted else 1
        while (
            self.state is State.RUNNING
            and self._queue
            and len(self._flying) < window
            and self._queue[0].needs <= self._stored_token
        ):
            waiting = self._queue.popleft()
            self._flying.append(waiting)
            self._actions.append(Produce(token=waiting.token, batch=waiting.item.batch))

    def _on_produced(self, event: Produced) -> None:
        waiting = self._land(event.token)
        if waiting is None:
            return
        if self.state is not State.RUNNING:
            self._drained()
            return
        expected = waiting.item.target_offset
        if event.target_offset is not None and event.target_offset != expected:
            self._stumble(
                Trouble.FAIL,
                f"the target put a batch at offset {event.target_offset} instead of {expected}: "
                "somebody else writes to the target topic; stop them, then re-create it",
            )
            return
        self._accepted = True
        self._failures = self._disputes = 0
        self.progress.target_end = expected + waiting.item.records
        self.progress.source_next = waiting.item.source_end
        self.progress.batches += 1
        self.progress.bytes += waiting.size_bytes
        self._settle()
        self._pump()
        self._want_more()

    def _settle(self) -> None:
        """With nothing on its way to the target, offsets that carry no record count as mirrored too."""
        if not self._queue and not self._flying:
            self.progress.source_next = self._next_source

    def _on_produce_failed(self, token: int, trouble: Trouble, reason: str) -> None:
        if self._land(token) is None:
            return
        if self.state is State.RUNNING:
            self._stumble(trouble, reason)
        else:
            self._drained()

    def _land(self, token: int) -> _Waiting | None:
        """Take the answered batch out of flight; None for an answer that nobody waits for."""
        for waiting in self._flying:
            if waiting.token == token:
                self._flying.remove(waiting)
                self._buffered_bytes -= waiting.size_bytes
                return waiting
        return None

    # -- trouble

    def _stumble(self, trouble: Trouble, reason: str) -> None:
        """Drop what is buffered and, once nothing is in flight, pause or stop."""
        self._turn += 1
        self._fetching = False
        self._tail = None
        self._buffered_bytes -= sum(waiting.size_bytes for waiting in self._queue)
        self._queue.clear()
        if trouble is Trouble.OUT_OF_ORDER:
            self._disputes += 1
            trouble = Trouble.RETRY
            if self._disputes >= DISPUTES_MAX:
                trouble = Trouble.FAIL
                reason = (
                    f"the target refuses the sequence that follows from its own log end ({reason}): "
                    "another producer used this mirror's id there; re-create the target topic"
                )
        self._after_drain = trouble
        if self.state is State.RUNNING and self._flying:
            self._move(State.DRAINING, reason)
        else:
            self._pause(trouble, reason)

    def _halt(self, reason: str) -> None:
        if self.state in (State.LOCATING, State.RUNNING):
            self._stumble(Trouble.FAIL, reason)
        elif self.state is State.DRAINING:
            self._after_drain, self.reason = Trouble.FAIL, reason
        elif self.state is not State.FAILED:
            self._pause(Trouble.FAIL, reason)

    def _drained(self) -> None:
        if self.state is State.DRAINING and not self._flying:
            self._pause(self._after_drain, self.reason)

    def _pause(self, trouble: Trouble, reason: str) -> None:
        if trouble is Trouble.FAIL:
            self._move(State.FAILED, reason)
            self._actions.append(Report(message=reason, severe=True))
            return
        self._failures += 1
        if trouble is Trouble.PARK:
            self._move(State.PARKED, reason)
            self._actions.append(Report(message=reason, severe=True))
            self._actions.append(Wake(turn=self._turn, after_ms=PARK_MS))
        else:
            self._move(State.BACKING_OFF, reason)
            self._actions.append(Wake(turn=self._turn, after_ms=backoff_ms(self._failures)))
