"""A compacted topic as a log that is read to its end, then followed

Connect's stores are topics. A store starts by reading its topic to the end, so that it knows everything that was ever
acknowledged, and from then on sees its own writes come back in the order in which everybody else sees them. `append`
therefore returns only when the broker has acknowledged the record *and* the follower has handed it to `on_record`:
who appended may read the store and find what it wrote.

confluent-kafka is driven from one thread per log; records are handed over to the event loop in batches. A broker that
goes away is waited for: appends fail after their time limit, following resumes by itself.

What records mean is not known here; see `stores` for the bytes.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

log = structlog.get_logger("tidemill.connect.topic_log")

Settings: TypeAlias = Mapping[str, str]
"""librdkafka settings."""

STORE_PRODUCER: Settings = {
    "acks": "all",
    # One request at a time keeps the order; a repeated record does a dictionary no harm.
    "max.in.flight.requests.per.connection": "1",
    "linger.ms": "0",
    "compression.type": "none",
    # Apache's workers place a key with murmur2; a key must stay in one partition or compaction cannot find it.
    "partitioner": "murmur2_random",
}
"""How every writer of an internal topic is configured, in the worker and in task processes."""

POLL_S = 0.5
"""How long a follower waits for a record before it looks whether it has been closed."""

FETCH_RECORDS_MAX = 1_000
"""Records handed to the event loop in one turn: small enough that a long replay does not freeze the REST API."""


class TopicLogError(Exception):
    """The topic could not be created, read or written; the message says which and why."""


class LogRecord(NamedTuple):
    """One record as it was read."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """An internal topic as it is to be if it is missing."""

    name: str
    partitions: int
    replication_factor: int  # -1 leaves it to the broker
    config: Mapping[str, str]


def ensure_topic(client: Settings, spec: TopicSpec, *, timeout_s: float) -> None:
    """Create the topic unless it is there; blocking. Refuses one that would not be compacted.

    A cluster with fewer brokers than the wanted copies gets as many copies as it has brokers: a laptop should not need
    a configuration of its own.
    """
    admin = AdminClient(dict(client))
    metadata = admin.list_topics(timeout=timeout_s)
    topic = metadata.topics.get(spec.name)
    if topic is None or topic.error is not None:
        copies = min(spec.replication_factor, len(metadata.brokers))
        if copies != spec.replication_factor:
            log.info("fewer brokers than copies", topic=spec.name, wanted=spec.replication_factor, replicas=copies)
        config = {"cleanup.policy": "compact", **spec.config}
        wanted = NewTopic(spec.name, num_partitions=spec.partitions, replication_factor=copies, config=config)
        try:
            admin.create_topics([wanted], operation_timeout=timeout_s)[spec.name].result(timeout_s)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicLogError(f"cannot create topic {spec.name!r}: {error.args[0].str()}") from error
        return
    if spec.partitions == 1 and len(topic.partitions) != 1:
        raise TopicLogError(
            f"topic {spec.name!r} has {len(topic.partitions)} partitions but must have 1: name another topic, "
            f"or delete this one and let the worker create it"
        )


class _Waiter(NamedTuple):
    """Somebody who wants to hear when these offsets have been handed over."""

    offsets: Mapping[int, int]  # by partition
    applied: asyncio.Future[None]


class TopicLog:
    """One internal topic; an async context manager that is ready when everything in the topic has been applied."""

    def __init__(
        self,
        topic: str,
        client: Settings,
        on_records: Callable[[Sequence[LogRecord]], None],
        *,
        start_timeout_s: float,
        append_timeout_s: float,
    ) -> None:
        self.topic = topic
        self._client = dict(client)
        self._on_records = on_records
        self._start_timeout_s = start_timeout_s
        self._append_timeout_s = append_timeout_s
        self._applied: dict[int, int] = {}  # partition -> last offset handed to on_records
        self._waiters: list[_Waiter] = []
        self._closing = threading.Event()
        self._caught_up = asyncio.Event()
        self._producer: Producer | None = None
        self._failed = asyncio.Event()
        self._failure: TopicLogError | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._producer = Producer({**self._client, **STORE_PRODUCER, "message.timeout.ms": self._append_timeout_ms})
        self._thread = threading.Thread(target=self._follow, name=f"follow {self.topic}", daemon=True)
        self._thread.start()
        try:
            async with asyncio.timeout(self._start_timeout_s):
                await self._caught_up.wait()
        except TimeoutError:
            await self._close()
            raise TopicLogError(
                f"topic {self.topic!r} could not be read to its end within {self._start_timeout_s:g} s"
            ) from None
        except BaseException:
            await self._close()
            raise
        if self._failure is not None:
            await self._close()
            raise self._failure
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    @property
    def _append_timeout_ms(self) -> str:
        return str(int(self._append_timeout_s * 1000))

    async def _close(self) -> None:
        self._closing.set()
        producer, self._producer = self._producer, None
        if producer is not None:
            await asyncio.to_thread(producer.flush, POLL_S)
        await asyncio.to_thread(self._thread.join)

    async def failure(self) -> TopicLogError:
        """Wait until the topic can no longer be followed, which normally never happens, and say why."""
        await self._failed.wait()
        assert self._failure is not None
        return self._failure

    async def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write `records` in order; returns once all are acknowledged and have been handed to `on_records`."""
        if not records:
            return
        producer = self._producer
        if producer is None:
            raise TopicLogError(f"topic {self.topic!r} is closed")
        acknowledged: asyncio.Future[None] = self._loop.create_future()
        remaining = len(records)
        offsets: dict[int, int] = {}

        def delivered(error: KafkaError | None, message: Message) -> None:
            nonlocal remaining
            if error is not None:
                self._loop.call_soon_threadsafe(_fail, acknowledged, TopicLogError(self._refusal(error)))
                return
            record = _read_message(message)
            offsets[record.partition] = max(offsets.get(record.partition, -1), record.offset)
            remaining -= 1
            if not remaining:
                self._loop.call_soon_threadsafe(_succeed, acknowledged)

        def send() -> None:
            for key, value in records:
                producer.produce(self.topic, key=key, value=value, on_delivery=delivered)
            while producer.flush(POLL_S) and not self._closing.is_set():
                pass

        await asyncio.to_thread(send)
        await acknowledged
        await self._handed_over(offsets)

    async def _handed_over(self, offsets: Mapping[int, int]) -> None:
        if self._failure is not None:
            raise self._failure
        if self._has_applied(offsets):
            return
        waiter = _Waiter(offsets, self._loop.create_future())
        self._waiters.append(waiter)
        await waiter.applied

    def _refusal(self, error: KafkaError) -> str:
        return f"cannot write to topic {self.topic!r}: {error.str()}"

    def _has_applied(self, offsets: Mapping[int, int]) -> bool:
        return all(self._applied.get(partition, -1) >= offset for partition, offset in offsets.items())

    # ------------------------------------------------------------ the follower

    def _follow(self) -> None:
        consumer = Consumer(
            {
                **self._client,
                "group.id": f"tidemill-follow-{self.topic}",  # librdkafka wants one; nothing is committed to it
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
                "auto.offset.reset": "earliest",
                "fetch.error.backoff.ms": "100",
                "fetch.wait.max.ms": "200",  # also the time an empty topic takes to be known as read
            }
        )
        try:
            self._assign(consumer)
            self._read(consumer)
        except Exception as error:
            self._post(self._stop_following, error)
        finally:
            consumer.close()

    def _assign(self, consumer: Consumer) -> None:
        metadata = consumer.list_topics(self.topic, timeout=self._start_timeout_s)
        topic = metadata.topics[self.topic]
        if topic.error is not None:
            raise KafkaException(topic.error)
        self._unread = set(topic.partitions)
        consumer.assign([TopicPartition(self.topic, partition, OFFSET_BEGINNING) for partition in topic.partitions])

    def _read(self, consumer: Consumer) -> None:
        while not self._closing.is_set():
            first = consumer.poll(POLL_S)
            if first is None:
                continue
            records = []
            for message in [first, *consumer.consume(FETCH_RECORDS_MAX - 1, 0)]:
                record = self._record(message)
                if record is not None:
                    records.append(record)
            self._post(self._apply, records, not self._unread)

    def _record(self, message: Message) -> LogRecord | None:
        error = message.error()
        if error is None:
            return _read_message(message)
        if error.code() == KafkaError._PARTITION_EOF:
            self._unread.discard(message.partition() or 0)
        elif error.fatal():
            raise KafkaException(error)
        else:
            log.warning("following interrupted", topic=self.topic, error=error.str())
        return None

    def _post(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Run `function` on the event loop and wait for it: a fast reader may not flood a slow loop."""
        done = threading.Event()

        def run() -> None:
            try:
                function(*arguments)
            except Exception as error:  # a record that cannot be applied must not be skipped in silence
                self._closing.set()
                self._stop_following(error)
            finally:
                done.set()

        try:
            self._loop.call_soon_threadsafe(run)
        except RuntimeError:  # the loop is closed: nobody is left to hear
            return
        while not done.wait(POLL_S) and not self._closing.is_set():
            pass

    def _apply(self, records: Sequence[LogRecord], caught_up: bool) -> None:
        if records:
            self._on_records(records)
            for record in records:
                self._applied[record.partition] = record.offset
        if caught_up:
            self._caught_up.set()
        waiting = []
        for waiter in self._waiters:
            if self._has_applied(waiter.offsets):
                _succeed(waiter.applied)
            else:
                waiting.append(waiter)
        self._waiters = waiting

    def _stop_following(self, error: BaseException) -> None:
        self._failure = TopicLogError(f"topic {self.topic!r} cannot be followed: {_reason(error)}")
        self._failure.__cause__ = error
        log.error("following stopped", topic=self.topic, error=_reason(error))
        self._failed.set()
        self._caught_up.set()
        for waiter in self._waiters:
            _fail(waiter.applied, self._failure)
        self._waiters.clear()


def _read_message(message: Message) -> LogRecord:
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None  # both are known of a delivered message
    key, value = message.key(), message.value()
    return LogRecord(partition, offset, _as_bytes(key), _as_bytes(value))


def _as_bytes(content: bytes | str | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def _reason(error: BaseException) -> str:
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return str(error.args[0].str())
    return str(error) or type(error).__name__


def _succeed(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _fail(future: asyncio.Future[None], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
