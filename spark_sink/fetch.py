"""One range of offsets read by an executor: always the same records

Spark replays ranges after a failure, so what a range yields may depend on nothing but the range: not on how fetches cut
the log, not on where batches begin, not on markers of transactions or the holes that compaction leaves.

Two readers with the same contract. `read_raw` fetches record batches with `tidemill.core.client` and decodes them in
columns (`rows`); while Spark takes one piece, the next is already on its way. `read_secured` reads record by record
with librdkafka, for clusters that are reached by TLS or SASL.

Connections are kept for the life of a Python worker, which Spark reuses from task to task: `_client` holds one client
per cluster, on an event loop in a thread of its own.
"""

import asyncio
import functools
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientTopicPartition

from tidemill.spark_sink.cluster import Cluster, UnknownTopic
from tidemill.spark_sink.core_api import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ZERO_UUID,
    ClusterClient,
    ConnectionFailed,
    Fetched,
    FetchWant,
    FrameBuffers,
    OffsetOutOfRange,
    SystemClock,
    TcpDialer,
    UnknownTopicId,
    error_for_code,
)
from tidemill.spark_sink.offsets import DataLoss, OffsetRange, SourceStopped, TopicRecreated
from tidemill.spark_sink.options import SourceOptions
from tidemill.spark_sink.rows import HEADERS_TYPE, Aborted, Rows, decode_groups, visible_batches

MAX_WAIT_MS = 500  # fetch.max.wait.ms of Kafka's clients
LANE = "spark"
_CONSUME_RECORDS = 10_000
_RECREATED = "topic {} was deleted and created again while it was read"
_OUT_OF_RANGE = (ClientError._AUTO_OFFSET_RESET, ClientError.OFFSET_OUT_OF_RANGE)
_CONSUME_S = 0.05  # librdkafka waits this long for a call's records to be complete


class FetchFailed(RuntimeError):
    """A range could not be read; the message says which and why."""


class Refused(SourceStopped):
    """The cluster will not give the records of a range: they are damaged, or there is no right to them."""


def read_range(wanted: OffsetRange, options: SourceOptions) -> Iterator[Rows]:
    """Yield the records of a range in order, in pieces of a few megabytes."""
    return read_raw(wanted, options) if options.is_plaintext else read_secured(wanted, options)


# -- record batches


@functools.cache
def _loop(process_id: int) -> asyncio.AbstractEventLoop:
    """The event loop of this process, running in a daemon thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name=f"tidemill-fetch-{process_id}", daemon=True).start()
    return loop


@functools.cache
def _client(process_id: int, bootstrap: str, client_id: str) -> tuple[ClusterClient, FrameBuffers]:
    """The client for a cluster; the process id keeps a forked worker from using its parent's sockets."""
    buffers = FrameBuffers()
    return ClusterClient(bootstrap, client_id=client_id, dialer=TcpDialer(buffers=buffers)), buffers


def read_raw(wanted: OffsetRange, options: SourceOptions) -> Iterator[Rows]:
    """Yield the records of a range, read as record batches."""
    process_id = os.getpid()
    loop = _loop(process_id)
    client, buffers = _client(process_id, options.bootstrap, options.client.get("client.id", "tidemill-spark"))

    def ask(offset: int) -> "Future[Fetched]":
        return asyncio.run_coroutine_threadsafe(_fetch(client, wanted, offset, options), loop)

    position = wanted.start
    pending = ask(position)
    try:
        while position < wanted.end:
            try:
                fetched = pending.result()
            except OffsetOutOfRange as error:
                position = _after_loss(client, loop, wanted, position, options, error)
                if position < wanted.end:
                    pending = ask(position)
                continue
            batches, behind = visible_batches(
                fetched.data,
                position,
                wanted.end,
                Aborted(fetched.aborted),
                options.client.get("check.crcs") != "false",
            )
            if behind == position:
                raise FetchFailed(
                    f"{wanted.partition}: nothing at offset {position} within {options.poll_timeout_ms} ms"
                )
            first, position = position, behind
            if position < wanted.end:
                pending = ask(position)
            yield from decode_groups(batches, first, wanted.end, options.include_headers)
            frame = fetched.data.obj
            del batches, fetched  # rows hold copies: nobody looks into the frame any more
            if isinstance(frame, bytearray):
                buffers.give(frame)
    except ConnectionFailed as error:
        raise FetchFailed(f"{wanted.partition}: {error}") from None
    except UnknownTopicId:
        raise TopicRecreated(f"topic {wanted.partition.topic} was deleted while it was read") from None
    finally:
        pending.cancel()


async def _fetch(client: ClusterClient, wanted: OffsetRange, offset: int, options: SourceOptions) -> Fetched:
    """Fetch from the leader until there is something at `offset`, at most for the poll timeout."""
    level = READ_COMMITTED if options.read_committed else READ_UNCOMMITTED

    async def attempt() -> Fetched:
        leader = await client.leader(wanted.partition)
        topic_id = client.view.topic_id(wanted.partition.topic)
        if ZERO_UUID not in (topic_id, wanted.topic_id) and topic_id != wanted.topic_id:
            raise TopicRecreated(_RECREATED.format(wanted.partition.topic))
        want = FetchWant(wanted.partition, offset, options.fetch_bytes, wanted.topic_id)
        answers = await client.fetch(
            leader, [want], lane=LANE, max_wait_ms=MAX_WAIT_MS, max_bytes=options.fetch_bytes, isolation_level=level
        )
        if answers[0].error_code:
            error = error_for_code(answers[0].error_code)
            if error.permanent:  # asked again it would say the same
                raise Refused(f"{wanted.partition} at offset {offset}: {error}")
            raise error_for_code(answers[0].error_code, f"{wanted.partition} at offset {offset}")
        return answers[0]

    deadline = asyncio.get_running_loop().time() + options.poll_timeout_ms / 1000
    while True:
        fetched = await client.retrying(attempt, timeout_ms=options.poll_timeout_ms)
        if len(fetched.data) or asyncio.get_running_loop().time() > deadline:
            return fetched


def _after_loss(
    client: ClusterClient,
    loop: asyncio.AbstractEventLoop,
    wanted: OffsetRange,
    position: int,
    options: SourceOptions,
    error: OffsetOutOfRange,
) -> int:
    """Where to go on when `position` is gone; raises DataLoss unless that is allowed."""
    if options.fail_on_data_loss:
        raise _lost(wanted, position, "retention or truncation removed it") from error

    async def first_offset() -> int:
        found = await client.list_offsets({wanted.partition: -2})
        return found[wanted.partition].offset

    earliest = asyncio.run_coroutine_threadsafe(first_offset(), loop).result()
    return min(earliest, wanted.end) if earliest > position else wanted.end


def _lost(wanted: OffsetRange, position: int, why: str) -> DataLoss:
    return DataLoss(
        f"offset {position} of {wanted.partition} no longer exists ({why}); "
        "set failOnDataLoss=false to skip what is gone"
    )


# -- record by record


def read_secured(wanted: OffsetRange, options: SourceOptions) -> Iterator[Rows]:
    """Yield the records of a range, read with librdkafka."""
    settings = {
        "isolation.level": "read_uncommitted",  # Kafka's default, which librdkafka's is not
        **options.client,
        "group.id": options.client.get("group.id", "tidemill-spark"),  # required by librdkafka, never joined
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "auto.offset.reset": "error",
        "enable.partition.eof": "true",
        "fetch.queue.backoff.ms": "5",
    }
    _check_topic(wanted, options)
    consumer = Consumer(settings)
    try:
        yield from _consumed(consumer, wanted, options)
    except KafkaException as error:
        raise FetchFailed(f"{wanted.partition}: {error.args[0].str()}") from None
    finally:
        consumer.close()
    _check_topic(wanted, options)  # a topic's id never comes back: the same before and after is the same in between


def _check_topic(wanted: OffsetRange, options: SourceOptions) -> None:
    """Refuse another topic of the same name, which librdkafka would read without a word."""
    if wanted.topic_id == ZERO_UUID:
        return
    try:
        topic_id = Cluster(options).topic_id(wanted.partition.topic)
    except UnknownTopic:
        raise TopicRecreated(f"topic {wanted.partition.topic} was deleted while it was read") from None
    if topic_id not in (ZERO_UUID, wanted.topic_id):
        raise TopicRecreated(_RECREATED.format(wanted.partition.topic))


def _consumed(consumer: Consumer, wanted: OffsetRange, options: SourceOptions) -> Iterator[Rows]:
    consumer.assign([ClientTopicPartition(*wanted.partition, wanted.start)])
    position = wanted.start
    clock = SystemClock()
    deadline = clock.monotonic() + options.poll_timeout_ms / 1000
    while position < wanted.end:
        messages = consumer.consume(_CONSUME_RECORDS, _CONSUME_S)
        if not messages:
            if clock.monotonic() > deadline:
                raise FetchFailed(
                    f"{wanted.partition}: nothing at offset {position} within {options.poll_timeout_ms} ms"
                )
            continue
        deadline = clock.monotonic() + options.poll_timeout_ms / 1000
        records = []
        for message in messages:
            error = message.error()
            if error is not None and error.code() in _OUT_OF_RANGE:
                position = _after_gap(consumer, wanted, position, options, error)
                break  # what follows belongs to the old position
            if error is not None and error.code() != ClientError._PARTITION_EOF:
                raise FetchFailed(f"{wanted.partition}: {error.str()}")
            offset = message.offset() or 0
            position = max(position, offset + (error is None))
            if error is None and offset < wanted.end:
                records.append(message)
        if records:
            yield _message_rows(records, options.include_headers)


def _after_gap(
    consumer: Consumer, wanted: OffsetRange, position: int, options: SourceOptions, error: ClientError
) -> int:
    """Where to go on when `position` is gone, with the consumer set there; raises DataLoss unless that is allowed."""
    if options.fail_on_data_loss:
        raise _lost(wanted, position, error.str())
    earliest, _ = consumer.get_watermark_offsets(
        ClientTopicPartition(*wanted.partition), timeout=options.poll_timeout_ms / 1000
    )
    position = min(earliest, wanted.end) if earliest > position else wanted.end
    if position < wanted.end:
        consumer.assign([ClientTopicPartition(*wanted.partition, position)])
    return position


def _message_rows(messages: "list[Message]", headers: bool) -> Rows:
    times = [message.timestamp() for message in messages]
    found: list[Any] = [message.headers() for message in messages] if headers else []
    return Rows(
        key=pa.array([message.key() for message in messages], pa.binary()),
        value=pa.array([message.value() for message in messages], pa.binary()),
        offset=pa.array([message.offset() for message in messages], pa.int64()),
        timestamp_ms=pa.array([time for _, time in times], pa.int64()),
        timestamp_type=pa.array([max(kind - 1, 0) for kind, _ in times], pa.int32()),  # librdkafka counts from "none"
        headers=pa.array(
            [[{"key": name, "value": value} for name, value in each] if each else None for each in found], HEADERS_TYPE
        )
        if headers
        else None,
    )
