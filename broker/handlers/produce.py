"""Produce (0): record batches into partitions

versions: 3-13, advertised from 0 (see `api_versions`)
  5  log start offset in the response
  7  zstd
  8  error message per partition, and which records are at fault
  9  flexible
  10 current leader as a tagged field (`leader_hints`)
  12 transactions add partitions implicitly (not served)
  13 topic ids for names

acks=0 gets no response; if such a request fails the connection is closed, which is all that can be said. acks=1 and
acks=all wait for the disk under `flush.policy=group`, acks=all for the other replicas in sync as well. All batches are
appended when the handler is called, in the order of the requests on the connection; what comes later is only the
answer. The exception are batches whose records have to be looked at first: they and what follows them in their
partitions are appended later, in the same order (`tidemill.broker.admission`, which all ways to read a request share).
A batch that was stored before (same producer, same sequence numbers) is answered with its original offset, once that
is acknowledged, or with DUPLICATE_SEQUENCE_NUMBER where that offset is not known any more.

Not here: transactions, `timeout_ms` (the local disk does not take that long, and who holds up the others in
sync is no longer one of them), and the short ways that most
requests take (`produce_memo`, `produce_several`).
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from tidemill.broker.admission import Outcome, find_place
from tidemill.broker.authorization import Resource, ResourceKind, on_each, permit
from tidemill.broker.dispatch import BrokerServices, DropConnection, RequestContext, Route
from tidemill.broker.handlers.leader_hints import HINTS_FROM, LeaderHints
from tidemill.broker.handlers.produce_answer import AskedTopic, all_failed, answer_later, produce_response
from tidemill.broker.handlers.produce_memo import ProduceMemo
from tidemill.broker.operations import Operation
from tidemill.broker.partitions import find_topic
from tidemill.broker.replication.replica import ACKS_ALL, ACKS_LEADER, ACKS_NONE, Replica
from tidemill.core.errors import InvalidRequiredAcks, KafkaError, KafkaStorageError, TransactionalIdAuthorizationFailed
from tidemill.core.types import TopicPartition
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.produce import ProduceRequest, ProduceResponse


def handle(
    broker: BrokerServices, request: ProduceRequest, ctx: RequestContext
) -> "ProduceResponse | asyncio.Future[Any] | None":
    """Admit every batch; the response is due when those that were stored are durable."""
    if request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        raise InvalidRequiredAcks(f"acks={request.acks}: only 0, 1 and -1 (all) have a meaning")
    if request.transactional_id is not None:
        permit(
            broker.authorizer,
            ctx,
            Operation.WRITE,
            Resource(ResourceKind.TRANSACTIONAL_ID, request.transactional_id),
        )
        raise TransactionalIdAuthorizationFailed("transactions are not available on this broker")
    now_ms = broker.clock.now_ms()
    places: list[Replica | None] = []
    outcomes: list[Outcome | asyncio.Future[Outcome]] = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            batch = data.records if data.records is not None else b""
            try:
                place = find_place(broker, ctx, topic.name, topic.topic_id, data.index)
            except KafkaError as error:
                if isinstance(error, KafkaStorageError):  # this broker leads, and its log is not open yet
                    known = find_topic(broker, topic.name, topic.topic_id)
                    broker.admission.turned_away.note(TopicPartition(known.name, data.index), batch, now_ms)
                places.append(None)
                outcomes.append(error)
            else:
                places.append(place)
                outcomes.append(broker.admission.admit(place, batch, request.acks, now_ms, ctx.api_version))
    asked = list(_asked(request))
    hints = LeaderHints(broker, ctx) if ctx.api_version >= HINTS_FROM else None

    def respond(settled: Sequence[Outcome]) -> ProduceResponse:
        return produce_response(asked, places, settled, hints)

    if request.acks == ACKS_NONE:
        later = answer_later((), outcomes, ACKS_NONE, lambda settled: _check_nothing_failed(asked, settled))
    else:
        later = answer_later(places, outcomes, request.acks, respond)
    return later.result() if later.done() else later


def _asked(request: ProduceRequest) -> Iterator[AskedTopic]:
    for topic in request.topic_data:
        yield topic.name, topic.topic_id, [data.index for data in topic.partition_data]


def _check_nothing_failed(asked: Sequence[AskedTopic], outcomes: Sequence[Outcome]) -> None:
    """The answer to acks=0 is no answer, or the end of the connection."""
    names = ((name or topic_id, index) for name, topic_id, indexes in asked for index in indexes)
    codes = [outcome.code for outcome in outcomes if isinstance(outcome, KafkaError)]
    for (topic, index), outcome in zip(names, outcomes, strict=True):
        if isinstance(outcome, KafkaError):
            raise DropConnection(f"acks=0 produce to {topic}-{index} failed: {outcome}", codes)


def error_response(request: ProduceRequest, error: KafkaError, _api_version: int) -> ProduceResponse:
    """The same error for every partition of the request."""
    if request.acks == ACKS_NONE:
        codes = [error.code for _, _, indexes in _asked(request) for _ in indexes]
        raise DropConnection(f"acks=0 produce failed: {error}", codes)
    return all_failed(_asked(request), error)


ROUTES = (
    Route(
        key=ApiKey.PRODUCE,
        handle=handle,
        min_version=3,
        max_version=13,
        needs=(
            on_each(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID),
            on_each(Operation.WRITE, ResourceKind.TOPIC),
        ),
        advertised_min=0,
        error_response=error_response,
        shortcut=ProduceMemo,
    ),
)
