"""Produce (0): record batches into partitions

versions: 3-13, advertised from 0 (see `api_versions`)
  5  log start offset in the response
  7  zstd
  8  error message per partition
  9  flexible
  10 current leader as a tagged field
  12 transactions add partitions implicitly (not served)
  13 topic ids for names

acks=0 gets no response; if such a request fails the connection is closed, which is all that can be said. acks=1 and
acks=all wait for the disk under `flush.policy=group`. All batches are appended when the handler is called, in the order
of the requests on the connection; what comes later is only the answer. A batch that was stored before (same producer,
same sequence numbers) is answered with its original offset, once that is durable.

Not here: transactions, quotas, `timeout_ms` (nothing but the local disk is waited for), and the short ways that most
requests take (`produce_memo`, `produce_several`).
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from tidemill.broker.dispatch import BrokerServices, DropConnection, RequestContext, Route
from tidemill.broker.handlers.produce_memo import ProduceMemo
from tidemill.broker.handlers.produce_several import failed_partition
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.partitions import find_log, find_topic
from tidemill.broker.quorum.image import TopicImage
from tidemill.core.errors import (
    InvalidRequiredAcks,
    InvalidTopicException,
    KafkaError,
    NotEnoughReplicas,
    TransactionalIdAuthorizationFailed,
)
from tidemill.core.records.batch import ATTRIBUTES_AT, HEADER_BYTES, TRANSACTIONAL_BIT
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1

Pending = list[tuple[PartitionLog, int]]


def handle(
    broker: BrokerServices, request: ProduceRequest, ctx: RequestContext
) -> "ProduceResponse | asyncio.Future[ProduceResponse] | None":
    """Append every batch; the response is due when those that were stored are durable."""
    if request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        raise InvalidRequiredAcks(f"acks={request.acks}: only 0, 1 and -1 (all) have a meaning")
    if request.transactional_id is not None:
        raise TransactionalIdAuthorizationFailed("transactions are not available on this broker")
    stored: Pending = []
    now_ms = broker.clock.now_ms()
    topics = tuple(_append_topic(broker, topic, request.acks, ctx, now_ms, stored) for topic in request.topic_data)
    response = ProduceResponse(responses=topics)
    if request.acks == ACKS_NONE:
        _check_nothing_failed(topics)
        return None
    for partition_log, last_offset in stored:
        pending = partition_log.pending(last_offset)
        if pending is not None:
            return _respond_after(pending, request, response)
    return response


def _append_topic(
    broker: BrokerServices, data: TopicProduceData, acks: int, ctx: RequestContext, now_ms: int, stored: Pending
) -> TopicProduceResponse:
    try:
        topic = find_topic(broker, data.name, data.topic_id)
        if topic.internal:
            raise InvalidTopicException(f"topic {topic.name!r} is written by the cluster only")
    except KafkaError as error:
        answers = tuple(failed_partition(partition.index, error) for partition in data.partition_data)
    else:
        answers = tuple(
            _append_partition(broker, topic, partition, acks, ctx, now_ms, stored) for partition in data.partition_data
        )
    return TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=answers)


def _append_partition(
    broker: BrokerServices,
    topic: TopicImage,
    data: PartitionProduceData,
    acks: int,
    ctx: RequestContext,
    now_ms: int,
    stored: Pending,
) -> PartitionProduceResponse:
    try:
        partition_log, image = find_log(broker, topic, data.index)
        if acks == ACKS_ALL and len(image.isr) < partition_log.config.min_insync_replicas:
            raise NotEnoughReplicas(
                f"{len(image.isr)} replicas in sync; min.insync.replicas is {partition_log.config.min_insync_replicas}"
            )
        records = data.records if data.records is not None else b""
        if len(records) >= HEADER_BYTES and records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT:
            raise TransactionalIdAuthorizationFailed("a transactional batch without a transactional id")
        result = partition_log.append(
            records, now_ms=now_ms, leader_epoch=image.leader_epoch, produce_version=ctx.api_version
        )
    except KafkaError as error:
        return failed_partition(data.index, error)
    stored.append((partition_log, result.last_offset))
    return PartitionProduceResponse(
        index=data.index,
        base_offset=result.base_offset,
        log_append_time_ms=result.append_time_ms,
        log_start_offset=result.log_start_offset,
    )


def _check_nothing_failed(topics: Sequence[TopicProduceResponse]) -> None:
    for topic in topics:
        for partition in topic.partition_responses:
            if partition.error_code:
                raise DropConnection(
                    f"acks=0 produce to {topic.name}-{partition.index} failed: {partition.error_message}"
                )


def _respond_after(
    pending: "asyncio.Future[None]", request: ProduceRequest, response: ProduceResponse
) -> "asyncio.Future[ProduceResponse]":
    """A future of this request alone (the client may go away), done when the shared `pending` is."""
    answer: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
    pending.add_done_callback(partial(_finish, answer, request, response))
    return answer


def _finish(
    answer: "asyncio.Future[ProduceResponse]",
    request: ProduceRequest,
    response: ProduceResponse,
    pending: "asyncio.Future[None]",
) -> None:
    if answer.done():
        return
    error = pending.exception()
    if error is None:
        answer.set_result(response)
    elif isinstance(error, KafkaError):
        answer.set_result(_all_failed(request, error))
    else:
        answer.set_exception(error)


def error_response(request: ProduceRequest, error: KafkaError, _api_version: int) -> ProduceResponse:
    """The same error for every partition of the request."""
    if request.acks == ACKS_NONE:
        raise DropConnection(f"acks=0 produce failed: {error}")
    return _all_failed(request, error)


def _all_failed(request: ProduceRequest, error: KafkaError) -> ProduceResponse:
    return ProduceResponse(
        responses=tuple(
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=tuple(
                    failed_partition(partition.index, error) for partition in topic.partition_data
                ),
            )
            for topic in request.topic_data
        )
    )


ROUTES = (
    Route(
        key=ApiKey.PRODUCE,
        handle=handle,
        min_version=3,
        max_version=13,
        advertised_min=0,
        error_response=error_response,
        shortcut=ProduceMemo,
    ),
)
