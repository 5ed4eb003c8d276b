"""The mirror of one partition as a machine

Hears what was fetched, what the target acknowledged and what failed; says what to fetch, produce, store and look up. It
owns three numbers that always belong together: the next source offset to fetch, the next target offset to write, and
the target offset up to which everything is acknowledged. What it knows of its parts lies beside it: the map and its
writes (`map_ledger`), the batches on their way (`outbox`), the doubts of a restart (`resuming`), the comparison of the
target's end with the source (`tail_check`), the source's leaders (`lineage`).

The position is never stored. On start and after any trouble the machine asks for the end of the target log and
translates it back through the offset map, so whatever was lost or repeated in between, it goes on exactly behind the
last record the target holds. Five things make that sound:

1. A run of the map is stored before the first batch behind a hole is produced (`needs` of a parcel).
2. Batches carry a fixed producer id and the target offset as sequence: one that arrives twice is recognised.
3. What may have been appended without being acknowledged is sent again as the same bytes, however the source has been
   compacted meanwhile; after a restart, which has lost those bytes, the stored map is not contradicted before the
   target's log has told what is in it.
4. The last batch on the target must be the mirror's own, and its records must be those of the source. If not, somebody
   else wrote there or a topic was created anew: the machine stops and says so, and skips nothing.
5. Before anything is read, and again when the next batch is of another leader epoch than the last, the source is asked
   where the epochs ended in which it was read. If before that, its log was cut and has grown again: the machine stops.

Several batches are in flight only while the target has accepted one not long ago: a broker that knows nothing of the
producer, or has forgotten it for being idle, accepts any first sequence, and a refused batch would leave a gap.

What was found of the target holds as long as the connection over which it was found. After that the machine looks
again, also when it has nothing to send: a target that was put back to an older state lacks what it had acknowledged,
and may lack what was stored of the map. So no batch is sent then before a write of the map, an empty one if need be,
has shown to whoever carries it out that what was stored is still there.

Trouble drops everything that was not sent, waits until nothing is in flight (a batch sent earlier may still arrive),
pauses, and looks again. States and their successors are in `TRANSITIONS`.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidemill.core.client.retries import backoff_ms
from tidemill.mirror.latency import Latency
from tidemill.mirror.lineage import UNKNOWN_EPOCH, Claim, Span
from tidemill.mirror.link_events import (
    Action,
    EpochEndFound,
    Event,
    Fetch,
    Fetched,
    Halted,
    LocateEpochEnd,
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
    Reset,
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
from tidemill.mirror.map_join import Damage
from tidemill.mirror.map_ledger import MapLedger
from tidemill.mirror.offsets import OffsetMap
from tidemill.mirror.outbox import Outbox, Parcel
from tidemill.mirror.passthrough import Outgoing, Relayed, Unmirrorable, Verdict, relay
from tidemill.mirror.resuming import Resumption
from tidemill.mirror.tail_check import Mismatch, TailCheck, foreign_tail

IN_FLIGHT_MAX = 5  # brokers remember that many batches per producer to recognise repeats
IDLE_MS = 60_000  # without an acknowledgement for so long the target may have forgotten the producer
BUFFER_BYTES_MAX = 4 * 1024 * 1024  # per partition: covers a fetch round trip at a few hundred MB/s
PARK_MS = 30_000  # pause after something an operator has to mend; it is tried again in case they did
CONFIRM_MS = 2_000  # a source that contradicts what was read is asked again before the partition is stopped
DISPUTES_MAX = 6  # out-of-order answers at an unchanged log end before an operator is asked
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
    records: int = 0
    latency: Latency = field(default_factory=Latency)
    rebuilt: int = 0
    lost: int = 0  # offsets the source deleted before they were mirrored
    dropped: Counter[Verdict] = field(default_factory=Counter)

    @property
    def lag(self) -> int | None:
        """Offsets between the source's end and what is mirrored; None when not known yet."""
        return None if self.source_end is None else max(0, self.source_end - self.source_next)


class PartitionLink:
    """The machine. `offsets` is the stored map; `producer_id` is the flow's for this target partition.

    `segments_stored` tells of stored segments that are not part of `offsets`: they are deleted with the first store.
    `damage` says what is wrong with the stored map, of which `offsets` is what nothing contradicts. `spans`
    are the leader epochs of the source that are stored with it.
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
        damage: Damage | None = None,
        spans: Iterable[Span] = (),
    ) -> None:
        self.progress = Progress()
        self.state = State.IDLE
        self.reason = ""  # why it is not running
        self._producer_id = producer_id
        self._reset = reset
        self._in_flight_max = in_flight_max
        self._buffer_bytes_max = buffer_bytes_max
        self._actions: list[Action] = []
        self._now_ms = 0
        self._turn = 0  # look-ups and fetches of an older turn are void
        self._located = False
        self._located_ms = 0
        self._failures = 0
        self._disputes = 0
        self._after_drain = Trouble.RETRY
        self._pause_ms: int | None = None  # of the next pause; None for the usual one
        # positions of what is fetched but not yet acknowledged
        self._next_source = 0
        self._next_target = 0
        self._hole_end = 0  # from the position to here the map knows of nothing to copy; a source that was cut may
        self._lost_to = 0  # what the source deleted before it was mirrored is told and counted up to here
        self._fetching = False
        self._fetch_bytes = FETCH_BYTES
        self._waits = False  # reading waits until the outbox is empty
        self._affirmed_by = 0  # the map write that shows that what was stored before is still there
        self._accepted_ms: int | None = None  # when the target last took a batch, since it was located
        self._tail: TailCheck | None = None  # the target's last batch, until compared with the source
        self._resumption: Resumption | None = None
        self._outbox = Outbox()
        self._claims: list[Claim] = []  # what the source has still to be asked before anything is read
        self._is_suspected = False  # it contradicted one of them at the last look
        self._announced_epoch = UNKNOWN_EPOCH  # of the batch that was the reason to ask
        self._ledger = MapLedger(offsets, segments_stored, None if damage is None else damage.first_segment, spans)
        self._damage = damage

    # -- reading

    @property
    def offsets(self) -> OffsetMap:
        """The map, to be read only."""
        return self._ledger.offsets

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the batches held for the target."""
        return self._outbox.buffered_bytes

    @property
    def own_bytes(self) -> int:
        """Bytes held for the target beside those of fetch answers (`Release`)."""
        return self._outbox.own_bytes

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

    def step(self, event: Event, now_ms: int) -> list[Action]:
        """Take in one event, at a time of day in milliseconds, and return what to do, in order."""
        self._now_ms = now_ms
        match event:
            case Fetched():
                self._on_fetched(event)
            case Produced():
                self._on_produced(event)
            case RunsStored(token=token):
                self._on_stored(token)
            case Started():
                if len(self.offsets):
                    self._resumption = Resumption(now_ms)
                self._locate()
            case Woken(turn=turn):
                if turn == self._turn and self.state in (State.BACKING_OFF, State.PARKED):
                    self._locate()
            case TargetLocated():
                self._on_target_located(event)
            case SourceLocated():
                self._on_source_located(event)
            case EpochEndFound():
                self._on_epoch_end(event)
            case OutOfRange(turn=turn):
                self._on_out_of_range(turn)
            case LookupFailed(turn=turn, trouble=trouble, reason=reason):
                if turn == self._turn and self.state in (State.LOCATING, State.RUNNING):
                    self._stumble(trouble, reason)
            case ProduceFailed():
                self._on_produce_failed(event)
            case StoreFailed(reason=reason):
                if self.state is State.RUNNING:
                    self._stumble(Trouble.RETRY, reason)
            case LogStartFound(log_start=log_start):
                self._on_log_start(log_start)
            case TargetUnbound():
                self._on_unbound()
            case Halted(reason=reason):
                self._halt(reason)
        for frame in self._outbox.released():
            self._actions.append(Release(frame=frame))
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
        problem = self._missing(event) or foreign_tail(event, self._producer_id, has_map=len(self.offsets) > 0)
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
            self._lost_to = 0  # what the source does not have any more is now missing on both sides
        self.progress.target_start, self.progress.target_end = event.log_start, event.log_end
        self._located, self._located_ms = True, self._now_ms
        self._next_target = event.log_end
        if not self._outbox.resume(event.log_end):
            self._doubt()
        self._judge_probe(event)
        self._forget_doubts()
        self._forget_damage()
        # Runs beyond the log end stay: what they were written ahead for may have been appended and not be visible yet.
        position = self.offsets.source_for(event.log_end)
        if position is None:
            self._actions.append(LocateSource(turn=self._turn))
            return
        self._hole_end = position
        last_record = self.offsets.source_for(event.log_end - 1)
        self._next_source = self.progress.source_next = position if last_record is None else last_record + 1
        if not self._check_tail(event):
            return
        last = self._outbox.last
        if last is not None:  # sent before, and to be sent again as it is
            self._next_source, self._next_target = last.source_end, last.target_end
        self._ledger.lineage.reach(self._next_source)
        self._claims = list(self._ledger.lineage.claims(self._next_source))
        if self._claims:
            self._store(self._ledger.write())  # what is found out now is to be found out again after a restart
        self._ask_or_run()

    def _ask_or_run(self) -> None:
        if self._claims:
            self._actions.append(LocateEpochEnd(turn=self._turn, epoch=self._claims[0].epoch))
        else:
            self._is_suspected = False
            self._run()

    def _on_epoch_end(self, event: EpochEndFound) -> None:
        if event.turn != self._turn or self.state is not State.LOCATING:
            return
        claim = self._claims.pop(0)
        if not claim.is_refuted(event.epoch, event.end_offset):
            self._ask_or_run()
        elif not self._is_suspected:  # one answer may come from a leader that has not found its own end yet
            self._is_suspected = True
            reason = f"the source says that leader epoch {claim.epoch} ended at offset {event.end_offset}: asking again"
            self._stumble(Trouble.RETRY, reason, pause_ms=CONFIRM_MS)
        else:
            self._stumble(Trouble.FAIL, self._cut(event.end_offset, claim.epoch))

    def _cut(self, end_offset: int, epoch: int) -> str:
        first = self.offsets.target_for(end_offset, self._next_target)
        return (
            f"the source's log was cut at offset {end_offset}, where its leader epoch {epoch} ends now, after it was "
            f"mirrored up to offset {self._next_source}, and may have grown again with other records (an unclean "
            "election, or a back-up that was restored): what the target has from offset "
            f"{self._next_target if first is None else first} on is not the source's any more; delete the target "
            "topic, and the source is mirrored from its start"
        )

    def _missing(self, event: TargetLocated) -> str:
        """What the map does not tell of the target's records, empty if nothing is missing.

        A map of which only that is damaged which told of deleted records, or of a copy that holds nothing, is whole.
        """
        if not event.log_end or not (self._damage or len(self.offsets)):
            return ""
        first = min(event.log_start, event.log_end)
        if self.offsets.source_for(first) is not None:
            return ""
        known = self.offsets.first_target
        what = f"target offsets {first} to {(event.log_end if known is None else min(known, event.log_end)) - 1}"
        if first == event.log_end:
            what = f"the target's log end {first}"
        cause = "" if self._damage is None else f" ({self._damage.what})"
        return (
            f"the stored offset map is damaged{cause} and says nothing about {what}: "
            "delete the target topic, and it is mirrored from the source's start"
        )

    def _forget_damage(self) -> None:
        if self._damage is not None:
            what, self._damage = self._damage.what, None
            message = f"the stored offset map was damaged ({what}) where nothing needs it any more: put right"
            self._actions.append(Report(message=message))

    def _check_tail(self, event: TargetLocated) -> bool:
        """Begin to compare the target's last batch with the source; False when it cannot be read."""
        self._tail = None
        try:
            if len(event.tail):
                self._tail = TailCheck(event.tail, self.offsets, self._next_source)
        except Unmirrorable as problem:
            self._stumble(Trouble.PARK, f"the target's last batch: {problem}")
            return False
        return True

    def _judge_probe(self, event: TargetLocated) -> None:
        """See what the target has where the probe was sent to."""
        resumption = self._resumption
        if resumption is None or resumption.probe is None:
            return
        if event.log_end >= resumption.probe.target_end:
            if resumption.probe_landed(event.log_end, event.tail):
                self._ledger.add(resumption.probe.target_offset, resumption.probe.pieces)
                self._resumption = None
            else:
                resumption.probe = None
        elif self._outbox.is_empty:  # it was refused
            resumption.probe = None

    def _doubt(self) -> None:
        """A batch that may still arrive had to be forgotten."""
        if self._resumption is None:
            self._resumption = Resumption(self._now_ms)
        else:
            self._resumption.begin_anew(self._now_ms)

    def _forget_doubts(self) -> None:
        resumption = self._resumption
        if resumption is not None and resumption.probe is None and resumption.is_over(self._now_ms):
            self._resumption = None

    def _on_source_located(self, event: SourceLocated) -> None:
        if event.turn != self._turn:
            return
        self.progress.source_end = event.log_end
        if self.state is State.LOCATING:  # nothing mirrored yet: begin
            self._next_source = event.log_end if self._reset is Reset.LATEST else event.log_start
            self.progress.source_next = self._next_source
            if self._reset is Reset.LATEST:  # the next start has to know: by then the source's end is another one
                self._ledger.add(self._next_target, [(self._next_source, 1)])
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
        elif self._first_lost < event.log_start and self._reset is not Reset.EARLIEST:
            self._stumble(
                Trouble.FAIL,
                f"the source deleted offsets {self._first_lost} to {event.log_start - 1} before they were mirrored, "
                f"and auto.offset.reset={self._reset} forbids going on behind them: set it to earliest for that, "
                "or delete the target topic to begin anew",
            )
        else:
            if self._tail is not None:
                self._tail.begin_at(event.log_start)
            if self._next_source < event.log_start:
                self._skip_to(event.log_start)
            self._want_more()

    @property
    def _first_lost(self) -> int:
        """Where something begins that is lost if the source does not have it any more."""
        return max(self._next_source, self._hole_end)

    def _skip_to(self, log_start: int) -> None:
        first = max(self._first_lost, self._lost_to)  # after a stumble the same gap is met again
        if first < log_start:
            self._actions.append(
                Report(
                    message=f"the source deleted offsets {first} to {log_start - 1} "
                    "before they were mirrored; going on behind them"
                )
            )
            self.progress.lost += log_start - first
            self._lost_to = log_start
        self._next_source = log_start

    def _on_out_of_range(self, turn: int) -> None:
        if turn != self._turn or self.state is not State.RUNNING:
            return
        self._actions.append(LocateSource(turn=self._turn))  # reading goes on with the answer

    def _run(self) -> None:
        self._move(State.RUNNING)
        self._accepted_ms = None
        self._fetching = self._waits = False
        self._store(self._ledger.affirm() if len(self.offsets) else self._ledger.rewrite())
        self._affirmed_by = self._ledger.asked
        self._pump()
        self._want_more()

    def _on_unbound(self) -> None:
        """Look at the target again: it may have been put back to an older state while it was away."""
        if self.state is State.RUNNING and not self._outbox.in_flight:  # else the answers tell
            self._stumble(Trouble.RETRY, "the connection to the target was lost: looking at its log again", pause_ms=0)

    # -- source to buffer

    def _want_more(self) -> None:
        if self._fetching or self.state is not State.RUNNING or self._outbox.buffered_bytes >= self._buffer_bytes_max:
            return
        if self._waits:
            if not self._outbox.is_empty:
                return
            self._waits = False
        self._fetching = True
        offset = self._next_source if self._tail is None else self._tail.offset
        self._actions.append(Fetch(turn=self._turn, offset=offset, max_bytes=self._fetch_bytes))

    def _on_fetched(self, event: Fetched) -> None:
        self._outbox.open(event.frame)
        if event.turn == self._turn and self.state is State.RUNNING:
            self._fetching = False
            try:
                self._read(event)
            except Unmirrorable as problem:
                self._stumble(Trouble.PARK, str(problem))
            except Mismatch as problem:
                self._stumble(Trouble.FAIL, str(problem))
        self._outbox.close(event.frame)

    def _read(self, event: Fetched) -> None:
        self.progress.source_end = max(event.end, self._next_source)
        if self._tail is not None and not self._compare(event, self._tail):
            return
        data = memoryview(event.data)
        relayed = relay(
            data,
            next_source=self._next_source,
            next_target=self._next_target,
            producer_id=self._producer_id,
            aborted=event.aborted,
        )
        if not self._fit(event, self._next_source, bool(relayed.verdicts)) or not self._follows(relayed):
            return
        if not relayed.outgoing and self._outbox.is_empty:
            self._failures = 0
        for verdict in relayed.verdicts:
            if verdict is Verdict.REBUILD:
                self.progress.rebuilt += 1
            elif verdict is not Verdict.PASS:
                self.progress.dropped[verdict] += 1
        if self._take(relayed, event.frame, data):
            self._next_source = relayed.next_source
        self._settle()
        self._pump()
        self._want_more()

    def _follows(self, relayed: Relayed) -> bool:
        """See whether the same leader wrote what was read last and what comes next, or the source was asked since."""
        if not relayed.spans:
            return True
        epoch, before = relayed.spans[0].epoch, self._ledger.lineage.epoch_before(self._next_source)
        if UNKNOWN_EPOCH not in (epoch, before) and epoch != before and epoch != self._announced_epoch:
            self._announced_epoch = epoch
            reason = f"the source has a new leader (epoch {epoch}): asking where epoch {before} ended"
            self._stumble(Trouble.RETRY, reason, pause_ms=0)
            return False
        self._announced_epoch = UNKNOWN_EPOCH
        self._ledger.note(relayed.spans)
        return True

    def _compare(self, event: Fetched, tail: TailCheck) -> bool:
        """Go on with the comparison; True when it is done and the same bytes may be relayed."""
        before = tail.offset
        finding = tail.take(event)
        if finding is None:
            if self._fit(event, before, tail.offset > before):
                self._want_more()
            return False
        self._tail = None
        try:
            for run in finding.corrections:
                self._ledger.add(run.target, [(run.source, 1)])
        except ValueError as problem:
            raise Mismatch(
                f"the target's last batch does not fit the offset map ({problem}): re-create the target topic"
            ) from problem
        self._store(self._ledger.write())
        if finding.corrections and self._outbox.is_empty:
            self._next_source = self._hole_end = self.progress.source_next = finding.next_source
        return True

    def _fit(self, event: Fetched, position: int, has_batches: bool) -> bool:
        """Ask for more bytes while there is data and not one whole batch of it comes; False when none ever will.

        A broker sends only the first batch of an answer whatever its size, so another partition may be in the way.
        """
        if has_batches or event.end <= position:
            self._fetch_bytes = FETCH_BYTES
        elif self._fetch_bytes < FETCH_BYTES_MAX:
            self._fetch_bytes *= 2
        elif len(event.data):
            self._stumble(Trouble.PARK, f"the source batch at offset {position} exceeds any fetch size")
            return False
        return True

    def _take(self, relayed: Relayed, frame: int, data: memoryview) -> bool:
        """Buffer batches, noting where the offsets of the two sides part; False if not all of them."""
        if self._resumption is not None:
            expected = self.offsets.source_for(self._next_target)
            self._resumption.note(relayed, self._next_source if expected is None else expected)
        answer = data.obj
        for item in relayed.outgoing:
            batch = item.batch
            is_part = isinstance(batch, memoryview) and batch.obj is answer
            if self._resumption is not None and self._contradiction(self._resumption, item):
                self._contradicted(self._resumption, item)
                return False
            needs = self._ledger.add(item.target_offset, item.pieces)
            self._outbox.put(Parcel(item=item, needs=needs, frame=frame if is_part else 0))
            self._next_source, self._next_target = item.source_end, item.target_end
        self._store(self._ledger.write())
        return True

    def _contradiction(self, resumption: Resumption, item: Outgoing) -> bool:
        target = item.target_offset
        for source, records in item.pieces:
            if resumption.contradicts(self.offsets.source_for(target), source):
                return True
            target += records
            last = self.offsets.source_for(target - 1)
            if last is not None and last > source + records - 1:  # the source was cut: it has more than it had
                return True
        return False

    def _contradicted(self, resumption: Resumption, item: Outgoing) -> None:
        """The source has lost what the stored map expects next, which may be on its way to the target."""
        self._store(self._ledger.write())
        self._waits = True
        remaining_ms = resumption.remaining_ms(self._now_ms)
        if not self._outbox.is_empty:
            return  # what is known to be right goes first
        if remaining_ms:
            reason = "the source was compacted at the position: waiting for what was sent before the restart"
            self._stumble(Trouble.RETRY, reason, pause_ms=remaining_ms)
            return
        resumption.probe = probe = replace(item, batch=bytes(item.batch))
        self._outbox.put(Parcel(item=probe, needs=self._ledger.asked))  # the map up to here first
        self._next_source, self._next_target = item.source_end, item.target_end

    # -- the map

    def _store(self, write: StoreRuns | None) -> None:
        if write is not None:
            self._actions.append(write)

    def _on_stored(self, token: int) -> None:
        self._ledger.stored(token)
        self._collect()
        self._pump()

    def _on_log_start(self, log_start: int) -> None:
        if not self._located:
            return
        self.progress.target_start = max(self.progress.target_start, log_start)
        if log_start >= self.progress.target_end:
            self._accepted_ms = None  # brokers before 2.5 forget a producer with its last record
        self._collect()

    def _collect(self) -> None:
        if self.state is not State.FAILED:
            self._store(self._ledger.collect(self.progress.target_start))

    # -- buffer to target

    @property
    def _window(self) -> int:
        if self._accepted_ms is None or not 0 <= self._now_ms - self._accepted_ms <= IDLE_MS:
            return 1
        return self._in_flight_max

    def _is_outdated(self) -> bool:
        """Whether what a previous life sent may have become visible behind the log end since it was looked at."""
        last_ms = self._located_ms if self._accepted_ms is None else self._accepted_ms
        return not 0 <= self._now_ms - last_ms <= IDLE_MS

    def _pump(self) -> None:
        if self.state is not State.RUNNING:
            return
        outbox = self._outbox
        if (self._accepted_ms is None or self._resumption is not None) and not outbox.is_empty and self._is_outdated():
            self._stumble(Trouble.RETRY, "looking at the target again after a while", pause_ms=0)
            return
        confirmed = self._ledger.confirmed
        if confirmed < self._affirmed_by:
            return
        for _ in range(self._window - outbox.in_flight):
            sent = outbox.send(confirmed)
            if sent is None:
                return
            self._actions.append(Produce(token=sent[0], batch=sent[1].item.batch))

    def _on_produced(self, event: Produced) -> None:
        parcel = self._outbox.land(event.token)
        if parcel is None:
            return
        if self.state is not State.RUNNING:
            self._drained()
            return
        item = parcel.item
        if event.target_offset is not None and event.target_offset != item.target_offset:
            self._stumble(
                Trouble.FAIL,
                f"the target put a batch at offset {event.target_offset} instead of {item.target_offset}: "
                "somebody else writes to the target topic; stop them, then re-create it",
            )
            return
        if self._resumption is not None and self._resumption.probe is not None:
            self._stumble(Trouble.RETRY, "looking at what the target has at the end of its log", pause_ms=0)
            return
        self._accepted_ms = self._now_ms
        self._failures = self._disputes = 0
        self.progress.target_end = item.target_end
        self.progress.source_next = item.source_end
        self.progress.batches += 1
        self.progress.bytes += parcel.size_bytes
        self.progress.records += item.records
        self.progress.latency.arrived(item.batch, self._now_ms)
        self._settle()
        self._pump()
        self._want_more()

    def _settle(self) -> None:
        """With nothing on its way to the target, offsets that carry no record count as mirrored too."""
        if self._outbox.is_empty:
            self.progress.source_next = self._next_source

    def _on_produce_failed(self, event: ProduceFailed) -> None:
        parcel = self._outbox.land(event.token)
        if parcel is None:
            return
        if event.trouble is Trouble.REREAD:
            self._outbox.spoil(parcel)
        else:
            self._outbox.take_back(parcel, in_doubt=event.in_doubt)
        if self.state is State.RUNNING:
            self._stumble(event.trouble, event.reason)
        else:
            self._drained()

    # -- trouble

    def _stumble(self, trouble: Trouble, reason: str, pause_ms: int | None = None) -> None:
        """Drop what was not sent and, once nothing is in flight, pause or stop."""
        self._turn += 1
        self._fetching = False
        self._tail = None
        self._pause_ms = pause_ms
        self._outbox.drop_queue()
        if trouble is Trouble.OUT_OF_ORDER:
            self._disputes += 1
            trouble = Trouble.RETRY
            if self._disputes >= DISPUTES_MAX:
                trouble = Trouble.PARK
                reason = (
                    f"the target refuses the sequence that follows from its own log end ({reason}): either its "
                    "replicas lag behind, or another producer used this mirror's id there; if it stays so, "
                    "re-create the target topic"
                )
        elif trouble is Trouble.REREAD:
            trouble = Trouble.RETRY
        self._after_drain = trouble
        if self.state is State.RUNNING and self._outbox.in_flight:
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
        if self.state is State.DRAINING and not self._outbox.in_flight:
            self._pause(self._after_drain, self.reason)

    def _pause(self, trouble: Trouble, reason: str) -> None:
        if trouble is Trouble.FAIL:
            self._move(State.FAILED, reason)
            self._outbox.drop_all()
            self._actions.append(Report(message=reason, severe=True))
            return
        if trouble is Trouble.PARK:
            self._failures += 1
            self._move(State.PARKED, reason)
            self._actions.append(Report(message=reason, severe=True))
            self._actions.append(Wake(turn=self._turn, after_ms=PARK_MS))
            return
        self._move(State.BACKING_OFF, reason)
        after_ms, self._pause_ms = self._pause_ms, None
        if after_ms is None:
            self._failures += 1
            after_ms = backoff_ms(self._failures)
        self._actions.append(Wake(turn=self._turn, after_ms=after_ms))
