"""What is said to a Produce request, whichever way it was read

versions: 3-13, as in `produce`
  8  which records of a refused batch are at fault (KIP-467)

Every batch of a request comes to an outcome: where it is stored, or the error that says why it is not. The answer is
due when all outcomes are known and, unless the producer wants no answer, what was stored is acknowledged as it asked.
A round of fsync covers everything that was appended before it began, so where nobody but this broker counts the first
partition that has something to wait for speaks for all.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, cast

from tidemill.broker.admission import Outcome
from tidemill.broker.dispatch import Exchange
from tidemill.broker.handlers.leader_hints import LeaderHints
from tidemill.broker.log.appended import AppendResult, StoredBefore
from tidemill.broker.replication.replica import ACKS_ALL, Replica
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError, NotEnoughReplicas, NotEnoughReplicasAfterAppend, NotLeaderOrFollower
from tidemill.core.records.validate import RECORD_ERRORS_MAX
from tidemill.core.types import ZERO_UUID
from tidemill.core.wire.framing import encode_response
from tidemill.core.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tidemill.core.wire.primitives import uuid_from_bytes
from tidemill.core.wire.produce_frame import TOPIC_ID_FROM

AskedTopic = tuple[str, uuid.UUID, Sequence[int]]
"""Name, topic id and partitions as a request has them; the response says them back."""

Places = Sequence[Replica | None]
"""Of each batch of a request, the replica it was for; None where none was found."""

Outcomes = Sequence["Outcome | asyncio.Future[Outcome]"]


def named(topic: bytes, version: int) -> tuple[str, uuid.UUID]:
    """Name and topic id as a request has them, from the bytes that name the topic in it."""
    if version >= TOPIC_ID_FROM:
        return "", uuid_from_bytes(topic)
    return topic.decode(), ZERO_UUID


def produce_response(
    topics: Iterable[AskedTopic], places: Places, outcomes: Sequence[Outcome], hints: LeaderHints | None = None
) -> ProduceResponse:
    """The response that says all `outcomes`, of which there is one for each partition that `topics` name."""
    responses = []
    number = 0
    room = RECORD_ERRORS_MAX  # a batch of few bytes may have as many: not more in a response than in one batch
    for name, topic_id, indexes in topics:
        rows = []
        for index in indexes:
            row = _partition_response(index, places[number], outcomes[number], room)
            room -= len(row.record_errors)
            if row.error_code and hints is not None:
                told = hints.beside(row.error_code, name, topic_id, index)
                leader = LeaderIdAndEpoch(leader_id=told.leader_id, leader_epoch=told.leader_epoch)
                row = row._replace(current_leader=leader)
            rows.append(row)
            number += 1
        responses.append(TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=tuple(rows)))
    endpoints = () if hints is None else hints.endpoints
    return ProduceResponse(
        responses=tuple(responses), node_endpoints=tuple(NodeEndpoint(**each._asdict()) for each in endpoints)
    )


def all_failed(topics: Iterable[AskedTopic], error: KafkaError) -> ProduceResponse:
    """The same error for every partition of a request."""
    asked = list(topics)
    count = sum(len(indexes) for _, _, indexes in asked)
    return produce_response(asked, [None] * count, [error] * count)


def _code(outcome: Outcome) -> int:
    """The error code that says it; 0 for what was stored."""
    if isinstance(outcome, StoredBefore):
        return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    return 0 if isinstance(outcome, AppendResult) else outcome.code


def _partition_response(index: int, place: Replica | None, outcome: Outcome, room: int) -> PartitionProduceResponse:
    if isinstance(outcome, StoredBefore):
        return PartitionProduceResponse(
            index=index,
            error_code=_code(outcome),
            base_offset=-1,
            log_start_offset=outcome.log_start_offset,
            error_message="these sequence numbers are stored already; their offsets are not known any more",
        )
    if isinstance(outcome, AppendResult):
        return PartitionProduceResponse(
            index=index,
            base_offset=outcome.base_offset,
            log_append_time_ms=outcome.append_time_ms,
            log_start_offset=outcome.log_start_offset,
        )
    faults = outcome.record_errors
    return PartitionProduceResponse(
        index=index,
        error_code=outcome.code,
        base_offset=-1,
        # as Kafka has it: the log was found and is fine, records were not
        log_start_offset=place.log_start_offset if faults and place is not None else -1,
        record_errors=tuple(
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=reason)
            for number, reason in faults[:room]
        ),
        error_message=str(outcome) or None,
    )


class _Later:
    """One answer that is due later, a future of its own request: the client may go away.

    Then the batches that are not stored yet are not wanted any more; see `tidemill.broker.admission`.
    """

    __slots__ = ("_acks", "_cuts", "_known", "_outcomes", "_places", "_respond", "_room", "_waiting", "answer")

    def __init__(
        self, places: Places, outcomes: Outcomes, acks: int, respond: Callable[[Sequence[Outcome]], Any]
    ) -> None:
        self._places = places
        self._cuts = [0 if place is None else place.log.cuts for place in places]
        self._outcomes = outcomes
        self._acks = acks
        self._respond = respond
        self._known: list[Outcome] = []
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting = [outcome for outcome in outcomes if asyncio.isfuture(outcome)]
        self.answer.add_done_callback(self._left)
        self._room = RECORD_ERRORS_MAX

    def begin(self) -> None:
        """Wait for the batches that have no outcome yet."""
        for outcome in self._outcomes:
            if asyncio.isfuture(outcome):
                outcome.add_done_callback(self._judged)
            elif isinstance(outcome, KafkaError):
                self._keep_named(outcome)
        if self._waiting:
            asyncio.gather(*self._waiting, return_exceptions=True).add_done_callback(self._settled)
        else:
            self._settled(None)

    def _judged(self, outcome: "asyncio.Future[Outcome]") -> None:
        if not outcome.cancelled() and isinstance(error := outcome.result(), KafkaError):
            self._keep_named(error)

    def _keep_named(self, error: KafkaError) -> None:
        """Of the records at fault as many as a response has room for, now: the rest of the request may take long."""
        if error.record_errors:
            error.record_errors = error.record_errors[: self._room]
            self._room -= len(error.record_errors)

    def _left(self, answer: "asyncio.Future[Any]") -> None:
        if answer.cancelled():
            for outcome in self._waiting:
                outcome.cancel()

    def _settled(self, _all: object) -> None:
        """All outcomes are known."""
        if self.answer.done():
            return
        try:
            self._known = [
                outcome.result() if isinstance(outcome, asyncio.Future) else outcome for outcome in self._outcomes
            ]
            self._acknowledge(0)
        except Exception as error:
            self.answer.set_exception(error)

    def _acknowledge(self, first: int) -> None:
        """Wait for what is not acknowledged yet, one after the other from number `first` on, then answer."""
        for number in range(first, len(self._places)):
            place, outcome = self._places[number], self._known[number]
            if place is not None and isinstance(outcome, AppendResult):
                try:
                    pending = self._pending(number, place, outcome)
                except KafkaError as error:
                    self._known[number] = error
                    continue
                if pending is not None:
                    pending.add_done_callback(partial(self._look_again, number))
                    return
        self.answer.set_result(self._respond(self._known))

    def _pending(self, number: int, place: Replica, outcome: AppendResult) -> "asyncio.Future[None] | None":
        """What to wait for before that batch is acknowledged.

        As long as others of the request were waited for nobody waited for it, and who waits was told what it was not:
        that its log is cut, so what is at its offset now may be another leader's, or that too few are in sync.
        """
        if place.log.cuts != self._cuts[number]:
            raise NotLeaderOrFollower(f"the end of {place.log.topic_partition} has been cut off")
        pending = place.pending(outcome.last_offset, self._acks)
        if pending is not None and self._acks == ACKS_ALL:
            try:
                place.machine.check_in_sync(place.log.config.min_insync_replicas)
            except NotEnoughReplicas as error:
                raise NotEnoughReplicasAfterAppend(str(error)) from error
        return pending

    def _look_again(self, number: int, pending: "asyncio.Future[None]") -> None:
        if self.answer.done():
            return
        try:
            if isinstance(error := pending.exception(), KafkaError):
                self._known[number] = error
            elif error is not None:
                raise error
            self._acknowledge(number)
        except Exception as error:
            self.answer.set_exception(error)


def answer_exchange(
    exchange: Exchange,
    places: Places,
    outcomes: Outcomes,
    acks: int,
    respond: Callable[[Sequence[Outcome]], ProduceResponse],
) -> None:
    """Answer a request of which not everything is stored, or not by everybody, at once if that can be."""
    if any(map(asyncio.isfuture, outcomes)) or not all(place is None or place.machine.alone for place in places):
        exchange.pending = answer_later(places, outcomes, acks, respond)
        return
    settled = cast(Sequence[Outcome], outcomes)
    header = exchange.header
    chunks = encode_response(header.api_key, header.api_version, header.correlation_id, respond(settled))
    exchange.errors = [code for outcome in settled if (code := _code(outcome))]
    for place, outcome in zip(places, settled, strict=True):
        if place is not None and isinstance(outcome, AppendResult):
            pending = place.pending(outcome.last_offset, acks)
            if pending is not None:  # a round of fsync, and what was appended before it began is in it
                exchange.after, exchange.due = pending, chunks
                return
    exchange.chunks = chunks


def answer_later(
    places: Places, outcomes: Outcomes, acks: int, respond: Callable[[Sequence[Outcome]], Any]
) -> "asyncio.Future[Any]":
    """What `respond` makes of all outcomes, once they are known and what was stored is acknowledged.

    Without `places` nothing has to be. What is not acknowledged after all has the error that says why.
    """
    later = _Later(places, outcomes, acks, respond)
    later.begin()
    return later.answer
