"""The last batches of every producer, so that a retry is not stored twice

An idempotent producer numbers its records per partition. The log keeps, per producer id, the epoch and the last five
batches (as many as a producer may have in flight), and compares the sequence numbers of a new batch with them:

* the same first and last number as a kept batch: a duplicate, answered with the offsets of the original;
* the number after the last one: new;
* all of its numbers among those that came without a gap up to the last one: a duplicate as well, whose offsets nobody
  knows any more (`KNOWN_BY_SEQUENCE`), answered with DUPLICATE_SEQUENCE_NUMBER, which clients take for stored. The Java
  client sends more than five batches while one that it had sent to the leader before is not answered; to be told
  OUT_OF_ORDER_SEQUENCE_NUMBER then, it would ask again until its delivery timeout;
* anything else: OUT_OF_ORDER_SEQUENCE_NUMBER, because storing it would hide that something before it is missing; but if
  that was refused here, for a reason that passes, whatever comes behind it is refused for the same (`refuse`): clients
  have several batches under way, and take a wrong number for a sign that the broker has lost some. librdkafka then
  begins a new epoch and sends in it what it was told is not stored, which need not be so where a leader had to step
  down: those records would be there twice;
* an older epoch: INVALID_PRODUCER_EPOCH, that producer has been replaced;
* a newer epoch must begin at 0; a producer id that is not known, or only by a marker, may begin anywhere: its history
  has expired.

Sequence numbers count offsets and start again at 0 after 2**31 - 1. Pure: `check` only reads, `update` is the only
mutator and is also how the state is rebuilt from the batches in the log after a restart.

A producer expires by when it was last heard of, not by the timestamps in its batches: a mirror writes batches that are
years old, and forgetting it at once would let its retries through.

A transaction is open from a producer's first transactional batch to the marker that its coordinator writes. A marker of
a newer epoch replaces the producer as a batch of that epoch would. What consumers of committed records may see ends
before the first transaction that is open, or whose marker is not committed itself (`first_undecided`).
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidemill.core.errors import (
    InvalidProducerEpoch,
    KafkaError,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
    error_for_code,
)
from tidemill.core.records.batch import TRANSACTIONAL_BIT, BatchHeader
from tidemill.core.types import new_tuple

BATCHES_KEPT = 5
"""Kafka's number: max.in.flight.requests.per.connection of an idempotent producer is at most 5."""

REFUSED_MAX = 1000
"""Producers of one partition that are waiting for room, replicas or a leader; of more the first are forgotten."""

REFUSED_MS = 60_000
"""So long at least it is known what was refused: clients ask again within seconds."""

SEQUENCE_END = 2**31
KNOWN_BY_SEQUENCE = -1
"""The base offset of a duplicate that is not among the batches kept."""

NO_TRANSACTION = NOT_FOLLOWED = NOT_COPIED = -1
NO_COORDINATOR = -1


def is_behind(sequence: int, first: int) -> bool:
    """Whether a batch that begins with `sequence` comes after the one that begins with `first`."""
    return 0 < (sequence - first) % SEQUENCE_END < SEQUENCE_END // 2


class KeptBatch(NamedTuple):
    """What is remembered of one batch."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


def unbroken_run(batches: Sequence[KeptBatch]) -> int:
    """How many sequence numbers up to the last one follow each other in these batches, oldest first."""
    run, due = 0, -1
    for kept in batches:
        count = (kept.last_sequence - kept.first_sequence) % SEQUENCE_END + 1
        run = run + count if kept.first_sequence == due else count
        due = (kept.last_sequence + 1) % SEQUENCE_END
    return run


class _Refused(NamedTuple):
    """A batch that was refused, and what was said: the error itself holds on to its request.

    By a leader it was due; by a follower in `leader_epoch`, at `at_ms`, it may have been, as records may still come
    from who led before.
    """

    epoch: int
    first: int
    code: int
    why: str
    leader_epoch: int
    at_ms: int


class ProducerState(NamedTuple):
    """One producer id: its epoch and its newest batches, oldest first; none if a marker was the last that was heard.

    `transaction_start` is the first offset of its open transaction, `coordinator_epoch` that of its last marker, `run`
    how many sequence numbers are known to be stored without a gap up to the last one.
    """

    producer_id: int
    epoch: int
    batches: tuple[KeptBatch, ...]
    last_seen_ms: int
    transaction_start: int = NO_TRANSACTION
    coordinator_epoch: int = NO_COORDINATOR
    run: int = 0

    @property
    def last_sequence(self) -> int:
        """Sequence number of the newest record, -1 without one."""
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_timestamp(self) -> int:
        """Timestamp of the newest batch, -1 without one."""
        return self.batches[-1].timestamp if self.batches else -1

    def has(self, batch: BatchHeader) -> bool:
        """Whether a batch of its epoch lies in the run of numbers that are stored."""
        last = self.last_sequence
        behind_first = (last - batch.base_sequence) % SEQUENCE_END
        return (last - batch.last_sequence) % SEQUENCE_END <= behind_first < min(self.run, SEQUENCE_END // 2)

    def reaches(self, offset: int) -> bool:
        """Whether anything that it says may come from `offset` or later."""
        return self.coordinator_epoch >= 0 or not self.batches or self.batches[-1].last_offset >= offset


class ProducerStates:
    """All producers of one partition."""

    __slots__ = ("_by_id", "_ended", "_open", "_refused", "transactional")

    def __init__(self) -> None:
        self._by_id: dict[int, ProducerState] = {}
        self._open: dict[int, int] = {}  # producer id -> where its transaction began
        self._refused: dict[int, _Refused] = {}  # by producer id: the first batch that was
        self._ended: deque[tuple[int, int]] = deque()  # (offset of the marker, where the transaction began), in order
        self.transactional = False  # else `first_undecided` need not be asked

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self._by_id.values())

    def get(self, producer_id: int) -> ProducerState | None:
        """What is known about `producer_id`."""
        return self._by_id.get(producer_id)

    def states(self) -> tuple[ProducerState, ...]:
        """All states as they are now; they never change, so another thread may have them."""
        return tuple(self._by_id.values())

    def check(self, batch: BatchHeader) -> KeptBatch | None:
        """None if `batch` is new, the original if it is a duplicate; raises if it is neither.

        An original whose place is not kept has KNOWN_BY_SEQUENCE for it, and ends where the newest batch does.
        """
        state = self._by_id.get(batch.producer_id)
        if state is None:
            if self._refused:
                self._check_refused(batch)
            return None
        if batch.producer_epoch < state.epoch:
            raise InvalidProducerEpoch(
                f"producer {batch.producer_id} sent epoch {batch.producer_epoch}, epoch {state.epoch} has replaced it"
            )
        if batch.producer_epoch > state.epoch:
            if batch.base_sequence != 0:
                self._check_refused(batch)
                raise OutOfOrderSequenceNumber(
                    f"epoch {batch.producer_epoch} of producer {batch.producer_id} begins with sequence number "
                    f"{batch.base_sequence}, not 0"
                )
            return None
        base_sequence = batch.base_sequence
        for kept in state.batches:
            if kept.first_sequence == base_sequence and kept.last_sequence == batch.last_sequence:
                return kept
        due = (state.last_sequence + 1) % SEQUENCE_END
        if base_sequence != due and state.batches:
            if state.has(batch):
                newest = state.batches[-1]
                return newest._replace(
                    first_sequence=base_sequence, last_sequence=batch.last_sequence, base_offset=KNOWN_BY_SEQUENCE
                )
            self._check_refused(batch)
            raise OutOfOrderSequenceNumber(
                f"producer {batch.producer_id} sent sequence number {base_sequence} where {due} was due"
            )
        return None

    def refuse(self, batch: BatchHeader, error: KafkaError, *, followed_epoch: int = NOT_FOLLOWED, now_ms: int) -> None:
        """Take note that a batch is not stored, for a reason that passes; by a follower, in the epoch that it knows.

        A follower may be about to lead, and what stands behind this batch may come to it when it does.
        """
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        if producer_id < 0 or batch.base_sequence < 0:
            return
        if followed_epoch == NOT_FOLLOWED:
            try:
                if self.check(batch) is not None:
                    return
            except KafkaError:
                return  # it was not due: one before it was refused
        known = self._refused.pop(producer_id, None)
        refused = _Refused(epoch, batch.base_sequence, error.code, str(error), followed_epoch, now_ms)
        if known is not None and known.epoch > epoch:
            refused = known
        elif known is not None and known.epoch == epoch and is_behind(refused.first, known.first):
            why = known.why if error.code == known.code else refused.why  # it may be what was said of the first, again
            refused = refused._replace(first=known.first, why=why)
        if len(self._refused) >= REFUSED_MAX:
            del self._refused[next(iter(self._refused))]
        self._refused[producer_id] = refused

    def _check_refused(self, batch: BatchHeader) -> None:
        """Raise the same again for what comes behind a batch that was refused, never for what comes before it."""
        refused = self._refused.get(batch.producer_id)
        if refused is None or refused.epoch != batch.producer_epoch:
            return
        if is_behind(batch.base_sequence, refused.first):
            raise error_for_code(
                refused.code, f"sequence number {refused.first} of the same producer was refused: {refused.why}"
            )

    def _forget_refused(self, producer_id: int, copied_epoch: int) -> None:
        """A batch is stored: if not by who led when another was refused, its producer has got on since."""
        refused = self._refused.get(producer_id)
        if refused is not None and not NOT_COPIED < copied_epoch <= refused.leader_epoch:
            del self._refused[producer_id]

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """Raise InvalidProducerEpoch or TransactionCoordinatorFenced for a marker that comes too late."""
        state = self._by_id.get(producer_id)
        if state is None:
            return
        if producer_epoch < state.epoch:
            raise InvalidProducerEpoch(f"epoch {producer_epoch} of producer {producer_id} is over: it is {state.epoch}")
        if coordinator_epoch < state.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"coordinator epoch {coordinator_epoch} is over: {state.coordinator_epoch} has ended a transaction of "
                f"producer {producer_id}"
            )

    def update(
        self, batch: BatchHeader, base_offset: int, timestamp: int, now_ms: int, copied_epoch: int = NOT_COPIED
    ) -> None:
        """Take note of a batch stored at `base_offset`; it need not have been checked (recovery does not).

        A follower says in which epoch its leader stored it.
        """
        last_offset = base_offset + batch.last_offset_delta
        kept = new_tuple(KeptBatch, (batch.base_sequence, batch.last_sequence, base_offset, last_offset, timestamp))
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        batches: tuple[KeptBatch, ...] = (kept,)
        start, coordinator_epoch, run = NO_TRANSACTION, NO_COORDINATOR, batch.last_offset_delta + 1
        state = self._by_id.get(producer_id)
        if self._refused:
            self._forget_refused(producer_id, copied_epoch)
        if state is not None:
            if state.epoch == epoch:
                if batch.base_sequence == (state.last_sequence + 1) % SEQUENCE_END:
                    run += state.run
                batches = (*state.batches[1 - BATCHES_KEPT :], kept)
            start, coordinator_epoch = state.transaction_start, state.coordinator_epoch
        if batch.attributes & TRANSACTIONAL_BIT and start < 0:
            start = self._open[producer_id] = base_offset
            self.transactional = True
        self._by_id[producer_id] = new_tuple(
            ProducerState, (producer_id, epoch, batches, now_ms, start, coordinator_epoch, run)
        )

    def end_transaction(self, batch: BatchHeader, offset: int, coordinator_epoch: int, now_ms: int) -> None:
        """Take note of a marker stored at `offset`, whether or not there is a transaction for it to end."""
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        state = self._by_id.get(producer_id)
        if state is None or state.epoch != epoch:
            state = ProducerState(producer_id, epoch, (), now_ms)
        self._by_id[producer_id] = state._replace(
            last_seen_ms=now_ms, transaction_start=NO_TRANSACTION, coordinator_epoch=coordinator_epoch
        )
        start = self._open.pop(producer_id, None)
        if start is not None:
            self._ended.append((offset, start))

    def first_undecided(self, high_watermark: int) -> int | None:
        """Where the first transaction began of which it is not committed how it ended; None without one.

        Of those that had ended before the log was opened it is not known any more where their markers are: they count
        as committed.
        """
        self.decided(high_watermark)
        self.transactional = bool(self._open or self._ended)
        return min([*self._open.values(), *(start for _, start in self._ended)], default=None)

    def decided(self, high_watermark: int) -> None:
        """Forget how transactions ended whose markers are committed: on a follower nobody ever asks."""
        while self._ended and self._ended[0][0] < high_watermark:
            self._ended.popleft()

    def restore(self, state: ProducerState) -> None:
        """Take over what is said of a producer, by a snapshot for example."""
        self._by_id[state.producer_id] = state
        if state.transaction_start >= 0:
            self._open[state.producer_id] = state.transaction_start
            self.transactional = True
        else:
            self._open.pop(state.producer_id, None)

    def reach(self, offset: int) -> bool:
        """Whether anything of what is known may come from `offset` or later."""
        return any(state.reaches(offset) for state in self)

    def cut(self, offset: int, before: "ProducerStates") -> None:
        """The log ends at `offset` now; of producers heard of later holds what `before` says, states as of there."""
        for state in [state for state in self if state.reaches(offset)]:
            earlier = before.get(state.producer_id)
            if earlier is None:
                del self._by_id[state.producer_id]
                self._open.pop(state.producer_id, None)
            else:
                self.restore(earlier._replace(last_seen_ms=state.last_seen_ms))
        while self._ended and self._ended[-1][0] >= offset:
            self._ended.pop()

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers without a transaction not heard of for `expiration_ms`; returns how many."""
        for producer_id, refused in tuple(self._refused.items()):
            if now_ms - refused.at_ms >= REFUSED_MS:
                del self._refused[producer_id]
        old = [
            state.producer_id
            for state in self
            if now_ms - state.last_seen_ms >= expiration_ms and state.transaction_start < 0
        ]
        for producer_id in old:
            del self._by_id[producer_id]
        return len(old)

    def clear(self) -> None:
        """Forget everything."""
        self._refused.clear()
        self._by_id.clear()
        self._open.clear()
        self._ended.clear()
