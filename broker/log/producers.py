"""The last batches of every producer, so that a retry is not stored twice

An idempotent producer numbers its records per partition. The log keeps, per producer id, the epoch and the last five
batches (as many as a producer may have in flight), and compares the sequence numbers of a new batch with them:

* the same first and last number as a kept batch: a duplicate, answered with the offsets of the original;
* the number after the last one: new;
* anything else: OUT_OF_ORDER_SEQUENCE_NUMBER, because storing it would hide that something before it is missing;
* an older epoch: INVALID_PRODUCER_EPOCH, that producer has been replaced;
* a newer epoch must begin at 0; a producer id that is not known may begin anywhere, its history has expired.

Sequence numbers count offsets and start again at 0 after 2**31 - 1. Pure: `check` only reads, `update` is the only
mutator and is also how the state is rebuilt from the batches in the log after a restart.

A producer expires by when it was last heard of, not by the timestamps in its batches: a mirror writes batches that are
years old, and forgetting it at once would let its retries through. Not here: transactions.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tidemill.core.errors import InvalidProducerEpoch, OutOfOrderSequenceNumber
from tidemill.core.records.batch import BatchHeader
from tidemill.core.types import new_tuple

BATCHES_KEPT = 5
"""Kafka's number: max.in.flight.requests.per.connection of an idempotent producer is at most 5."""

SEQUENCE_END = 2**31


class KeptBatch(NamedTuple):
    """What is remembered of one batch."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerState(NamedTuple):
    """One producer id: its epoch and its newest batches, oldest first, never empty."""

    producer_id: int
    epoch: int
    batches: tuple[KeptBatch, ...]
    last_seen_ms: int

    @property
    def last_sequence(self) -> int:
        """Sequence number of the newest record."""
        return self.batches[-1].last_sequence

    @property
    def last_timestamp(self) -> int:
        """Timestamp of the newest batch."""
        return self.batches[-1].timestamp


class ProducerStates:
    """All producers of one partition."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[int, ProducerState] = {}

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
        """None if `batch` is new, the original if it is a duplicate; raises if it is neither."""
        state = self._by_id.get(batch.producer_id)
        if state is None:
            return None
        if batch.producer_epoch < state.epoch:
            raise InvalidProducerEpoch(
                f"producer {batch.producer_id} sent epoch {batch.producer_epoch}, epoch {state.epoch} has replaced it"
            )
        if batch.producer_epoch > state.epoch:
            if batch.base_sequence != 0:
                raise OutOfOrderSequenceNumber(
                    f"epoch {batch.producer_epoch} of producer {batch.producer_id} begins with sequence number "
                    f"{batch.base_sequence}, not 0"
                )
            return None
        base_sequence = batch.base_sequence
        for kept in state.batches:
            if kept.first_sequence == base_sequence and kept.last_sequence == batch.last_sequence:
                return kept
        due = (state.batches[-1].last_sequence + 1) % SEQUENCE_END
        if base_sequence != due:
            raise OutOfOrderSequenceNumber(
                f"producer {batch.producer_id} sent sequence number {base_sequence} where {due} was due"
            )
        return None

    def update(self, batch: BatchHeader, base_offset: int, timestamp: int, now_ms: int) -> None:
        """Take note of a batch stored at `base_offset`; it need not have been checked (recovery does not)."""
        last_offset = base_offset + batch.last_offset_delta
        kept = new_tuple(KeptBatch, (batch.base_sequence, batch.last_sequence, base_offset, last_offset, timestamp))
        self.restore(batch.producer_id, batch.producer_epoch, kept, now_ms)

    def restore(self, producer_id: int, epoch: int, kept: KeptBatch, now_ms: int) -> None:
        """Take note of a batch as a snapshot remembers it."""
        state = self._by_id.get(producer_id)
        if state is None or state.epoch != epoch:
            batches: tuple[KeptBatch, ...] = (kept,)
        else:
            batches = (*state.batches[1 - BATCHES_KEPT :], kept)
        self._by_id[producer_id] = new_tuple(ProducerState, (producer_id, epoch, batches, now_ms))

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers not heard of for `expiration_ms`; returns how many."""
        old = [state.producer_id for state in self if now_ms - state.last_seen_ms >= expiration_ms]
        for producer_id in old:
            del self._by_id[producer_id]
        return len(old)

    def clear(self) -> None:
        """Forget everything."""
        self._by_id.clear()
