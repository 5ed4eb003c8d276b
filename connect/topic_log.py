"""A compacted topic as a log that is read to its end, then followed

Connect's stores are topics. A store starts by reading its topic to the end, so that it knows everything that was ever
acknowledged, and from then on sees its own writes come back in the order in which everybody else sees them. `append`
therefore returns only when the broker has acknowledged the record *and* the follower has handed it to `on_record`:
who appended may read the store and find what it wrote.

confluent-kafka is driven from one thread per log; records are handed over to the event loop in batches. A broker that
goes away is waited for: an append fails if it is not acknowledged in time, what is acknowledged is waited for until it
was read, and following resumes by itself. A topic that goes back (it was made anew, or has lost records) ends the
following: what was read stands nowhere any more, and what comes now would be mixed with it.

What records mean is not known here; see `stores` for the bytes.
"""

import asyncio
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

import structlog
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package re-exports without saying so
    AdminClient,
    ConfigResource,
    OffsetSpec,
)
from confluent_kafka.cimpl import NewTopic

log = structlog.get_logger("tidemill.connect.topic_log")

LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # untyped there

C = TypeVar("C")
T = TypeVar("T")

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

ASK_AGAIN_S, ASK_AGAIN_MAX_S = 0.1, 1.0
"""Before a broker is asked again where a topic begins or ends: one that was just created is not known everywhere at
once. Where it ends is asked less and less often."""

LAST_ASK_S = 2.0
"""With less time left no question is begun: its time limit would be told instead of what the cluster said before."""

LETTING_GO = "let go of a client"
"""The thread that waits for the threads of a client that nobody needs any more."""

MESSAGE_BYTES_MAX = 1_000_000
"""librdkafka's limit where no setting says otherwise."""

CLOSE_TIMEOUT_S = 2.0
"""How long closing waits for librdkafka's threads. They end when the name look-ups they have begun do, and that of a
broker that is gone takes up to half a minute; by then nothing is left that could be lost."""

FETCH_RECORDS_MAX = 1_000
"""Records handed to the event loop in one turn: small enough that a long replay does not freeze the REST API."""


POLICY, COMPACT = "cleanup.policy", "compact"

SIZE_OVERHEAD = 128
"""Bytes a record takes besides key and value, on the safe side."""


class TopicLogError(Exception):
    """The topic could not be created, read or written; the message says which and why."""


class RecordTooLarge(TopicLogError):
    """A record is larger than the topic takes; to try again is of no use."""

    def __init__(self, message: str, key: bytes) -> None:
        super().__init__(message)
        self.key = key


def another_topic(topic: str, sign: str) -> TopicLogError:
    """The error of a topic that is not the one that was read; `sign` is how that was seen."""
    return TopicLogError(
        f"topic {topic!r} is another one than this worker has read ({sign}): it was deleted and made anew, or has lost "
        "records. What the worker knows of it stands nowhere any more; started again, it goes by what is there now"
    )


Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


class LogRecord(NamedTuple):
    """One record as it was read."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    def header(self, name: str) -> bytes | None:
        """The last header of this name, as Kafka's clients take it."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """An internal topic as it is to be if it is missing."""

    name: str
    partitions: int
    replication_factor: int  # -1 leaves it to the broker
    at_most: bool = False  # the number was nobody's wish: a cluster with fewer brokers gets as many copies as it has
    config: Mapping[str, str]


def copies(wanted: int, brokers: int, *, at_most: bool) -> int:
    """How many replicas a topic gets that Connect creates for itself: one rule for all of them.

    A number that somebody wrote is kept to, as durability is not to be had silently for less; the cluster refuses it if
    it has too few brokers. A default adapts to a smaller cluster: a laptop should not need a configuration of its own.

    >>> copies(3, 1, at_most=True), copies(3, 1, at_most=False), copies(-1, 1, at_most=True)
    (1, 3, -1)
    """
    return min(wanted, brokers) if at_most and brokers > 0 else wanted


def ensure_topics(client: Settings, *specs: TopicSpec, timeout_s: float) -> None:
    """Create those that are missing, once all others were found to be as they must be; blocking.

    Refuses a config topic of several partitions, and what forgets. Raises TopicLogError, also for a cluster that does
    not answer and for settings no client can use.
    """
    for spec in specs:
        _refuse_forgetting(spec.name, spec.config.get(POLICY, COMPACT))
    admin = admin_client(client)
    try:
        metadata = admin.list_topics(timeout=timeout_s)
    except KafkaException as error:
        names = ", ".join(repr(spec.name) for spec in specs)
        raise TopicLogError(f"cannot ask the Kafka cluster for topics {names}: {_reason(error)}") from error
    missing = []
    for spec in specs:
        topic = metadata.topics.get(spec.name)
        if topic is None or topic.error is not None:
            missing.append(spec)
            continue
        if spec.partitions == 1 and len(topic.partitions) != 1:
            raise TopicLogError(
                f"topic {spec.name!r} has {len(topic.partitions)} partitions but must have 1: name another topic, "
                f"or delete this one and let the worker create it"
            )
        _refuse_forgetting(spec.name, _cleanup_policy(admin, spec.name, timeout_s))
    for spec in missing:
        _create_topic(admin, spec, len(metadata.brokers), timeout_s)


def _refuse_forgetting(topic: str, policy: str) -> None:
    if {each.strip() for each in policy.split(",")} != {COMPACT}:
        raise TopicLogError(
            f"topic {topic!r} has cleanup.policy={policy} but must have cleanup.policy=compact: what it keeps would be "
            f"deleted after a while; change the topic's cleanup.policy, or name another topic"
        )


def _cleanup_policy(admin: AdminClient, topic: str, timeout_s: float) -> str:
    """What the cluster says; where it does not say, because that is not permitted, the best is hoped for."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        entry = admin.describe_configs([resource], request_timeout=timeout_s)[resource].result().get(POLICY)
    except KafkaException as error:
        log.warning("the topic's cleanup.policy is not known; it must be compact", topic=topic, reason=_reason(error))
        return COMPACT
    return COMPACT if entry is None or entry.value is None else str(entry.value)


def _create_topic(admin: AdminClient, spec: TopicSpec, brokers: int, timeout_s: float) -> None:
    replicas = copies(spec.replication_factor, brokers, at_most=spec.at_most)
    if replicas != spec.replication_factor:
        log.warning("fewer brokers than copies", topic=spec.name, wanted=spec.replication_factor, replicas=replicas)
    config = {POLICY: COMPACT, **spec.config}
    wanted = NewTopic(spec.name, num_partitions=spec.partitions, replication_factor=replicas, config=config)
    try:
        admin.create_topics([wanted], operation_timeout=timeout_s, request_timeout=timeout_s)[spec.name].result()
    except KafkaException as error:
        code = error.args[0].code()
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return
        advice = ""
        if code == KafkaError.INVALID_REPLICATION_FACTOR:
            advice = f"; the cluster has {brokers} broker(s): lower its replication.factor, or leave it out"
        raise TopicLogError(f"cannot create topic {spec.name!r}: {_reason(error)}{advice}") from error
    log.info("topic created", topic=spec.name, partitions=spec.partitions, replicas=replicas)


def ask(make: Callable[[], C], question: Callable[[C], T]) -> T:
    """What a client answers that is made for this question and goes in a thread of its own; raises what either does.

    The frames of an error are cleared. They hold the client, and whoever dropped the error last, as the event loop
    may, would wait for the client's threads, and so for the name look-ups that they have begun.
    """
    clients = [make()]
    try:
        return question(clients[0])
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)
        raise
    finally:
        threading.Thread(target=clients.clear, name=LETTING_GO, daemon=True).start()


def _ends_of(admin: AdminClient, topic: str, until: float) -> dict[int, int] | str:
    """Where a topic's partitions end, or why nobody says so; each of two questions may take half of the time there is.

    The topic is looked for among all there are: asked for alone, it would be made.
    """
    found = admin.list_topics(timeout=_half(until)).topics.get(topic)
    if found is None:
        return "there is no such topic, or it may not be described"
    if found.error is not None:
        return found.error.str()
    asked = {TopicPartition(topic, partition): LATEST for partition in found.partitions}
    answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_half(until))
    ends = {each.partition: answer.result().offset for each, answer in answers.items()}
    if min(ends.values(), default=-1) < 0:  # librdkafka's word, and no error, where a connection ended
        return "no answer came"
    return ends


def _half(until: float) -> float:
    """Seconds; who does not answer in them may not be the one to ask any more."""
    return max(until - time.monotonic(), LAST_ASK_S) / 2


def admin_client(client: Settings, hear: Callable[[KafkaError], None] | None = None) -> AdminClient:
    """A client with these settings; raises TopicLogError if librdkafka cannot use them.

    `hear` is told, by its `poll`, of errors that belong to no call.
    """
    heard: dict[str, Any] = {} if hear is None else {"error_cb": hear}
    try:
        return AdminClient({**client, **heard})
    except (KafkaException, ValueError, TypeError) as error:
        raise TopicLogError(f"these client settings cannot be used: {_reason(error)}") from error


class _Delivery:
    """What became of the records of one write; touched on the event loop only."""

    def __init__(self, records: int, done: asyncio.Future[None]) -> None:
        self.done = done
        self.offsets: dict[int, int] = {}  # by partition, the highest
        self._remaining = records

    def succeed(self, record: LogRecord) -> None:
        self.offsets[record.partition] = max(self.offsets.get(record.partition, -1), record.offset)
        self._remaining -= 1
        if not self._remaining:
            _succeed(self.done)

    def fail(self, error: TopicLogError) -> None:
        _fail(self.done, error)


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
        may_begin_anew: bool = False,
    ) -> None:
        """With `may_begin_anew` a topic that turns out to be another one is read on, from its beginning."""
        self.topic = topic
        self._client = dict(client)
        self._on_records = on_records
        self._start_timeout_s = start_timeout_s
        self._append_timeout_s = append_timeout_s
        self._may_begin_anew = may_begin_anew
        self._applied: dict[int, int] = {}  # partition -> last offset handed to on_records
        self._read_to: dict[int, int] = {}  # partition -> where reading goes on; behind what is no record, too
        self._waiters: dict[asyncio.Future[None], Callable[[], bool]] = {}  # who waits until what was handed over
        self._followed: set[int] = set()  # partitions
        self._joining: deque[int] = deque()  # of these, those that came later and are not read yet
        self._closing = threading.Event()
        self._caught_up = asyncio.Event()
        self._producer: Producer | None = None
        self._failed = asyncio.Event()
        self._failure: TopicLogError | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        try:
            self._producer = Producer({**self._client, **STORE_PRODUCER, "message.timeout.ms": self._append_timeout_ms})
        except (KafkaException, ValueError, TypeError) as error:
            raise TopicLogError(f"these client settings cannot be used: {_reason(error)}") from error
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
        threads = [self._thread]
        if self._producer is not None:
            # Whoever lets go of a client last waits for its threads: that is to be nobody who has other work.
            arguments = (self._producer,)
            threads.append(threading.Thread(target=_let_go, args=arguments, name=f"close {self.topic}", daemon=True))
            self._producer = None
            del arguments
            threads[-1].start()
        if not await asyncio.to_thread(_all_ended, threads, CLOSE_TIMEOUT_S):
            log.warning("closed early: the client still looks for its broker", topic=self.topic)

    async def failure(self) -> TopicLogError:
        """Wait until the topic can no longer be followed, which normally never happens, and say why."""
        await self._failed.wait()
        assert self._failure is not None
        return self._failure

    def give_up(self, error: TopicLogError) -> None:
        """Follow no more, and write no more, for this reason."""
        self._closing.set()
        self._stop_following(error)

    @property
    def applied(self) -> Mapping[int, int]:
        """By partition, the last offset that was handed to `on_records`."""
        return dict(self._applied)

    async def reached(self, offsets: Mapping[int, int]) -> None:
        """Return when everything up to these offsets, by partition, has been handed to `on_records`."""
        await self._handed_over(offsets)

    async def catch_up(self, timeout_s: float) -> None:
        """Return when all that stands in the topic by now, whoever wrote it, has been handed to `on_records`.

        Raises TopicLogError if that cannot be known or does not come about in time.
        """
        until = time.monotonic() + timeout_s
        ends = await self._ends(until, timeout_s)
        self._follow_too(ends)
        try:
            async with asyncio.timeout(until - time.monotonic()):
                await self._until(lambda: not self._behind(ends))
        except TimeoutError:
            raise self._not_read("; ".join(self._behind(ends)), timeout_s) from None

    async def _ends(self, until: float, timeout_s: float) -> dict[int, int]:
        """Where the partitions end, transactions that are under way left out, as soon as a cluster says so."""
        pause_s = ASK_AGAIN_S
        while isinstance(ends := await self._ends_told(until), str):  # as while leaders change
            if self._failure is not None:
                raise self._failure
            if until - time.monotonic() < pause_s + LAST_ASK_S:
                raise self._not_read(ends, timeout_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, ASK_AGAIN_MAX_S)
        return ends

    async def _ends_told(self, until: float) -> dict[int, int] | str:
        """What one question brings: the ends, or why they are not known."""
        read_to = dict(self._read_to)
        try:
            ends = await asyncio.to_thread(
                ask, lambda: admin_client(self._client), lambda admin: _ends_of(admin, self.topic, until)
            )
        except KafkaException as error:
            return _reason(error)
        if isinstance(ends, dict):
            for partition, end in ends.items():
                if end < read_to.get(partition, 0):  # it is another, shorter one, or its leader has yet to learn more
                    return f"partition {partition} was read to {read_to[partition]}, and is said to end at {end}"
        return ends

    def _behind(self, ends: Mapping[int, int]) -> list[str]:
        """Which partitions have not been read to these ends, in words."""
        return [
            f"partition {partition} ends at {end}, and was read to {self._read_to.get(partition, 0)}"
            for partition, end in sorted(ends.items())
            if self._read_to.get(partition, 0) < end
        ]

    def _not_read(self, reason: str, timeout_s: float) -> TopicLogError:
        return TopicLogError(f"topic {self.topic!r} could not be read to its end within {timeout_s:g} s: {reason}")

    async def append(self, records: Sequence[tuple[bytes, bytes | None]], headers: Headers = ()) -> Mapping[int, int]:
        """Write `records` in order; returns once all are acknowledged and have been handed to `on_records`.

        Each gets the same headers. The answer is the highest offset that they got in each partition.

        Raises TopicLogError for whatever keeps the records out of the topic. RecordTooLarge names the one that no
        repetition gets in; if the client's own limit says so, nothing was written at all.
        """
        if not records:
            return {}
        self._refuse_large(records, headers)
        try:
            return await self._write(records, headers)
        except RecordTooLarge:
            if len(records) == 1:
                raise
            # What the broker measures is the batch. One by one everything gets in that can; to write a record of a
            # dictionary twice does no harm.
            offsets: dict[int, int] = {}
            for record in records:
                offsets |= await self._write([record], headers)
            return offsets

    def _refuse_large(self, records: Sequence[tuple[bytes, bytes | None]], headers: Headers) -> None:
        limit = int(self._client.get("message.max.bytes", MESSAGE_BYTES_MAX))
        overhead = SIZE_OVERHEAD + sum(len(name) + len(value or b"") for name, value in headers)
        for key, value in records:
            size = len(key) + len(value or b"") + overhead
            if size > limit:
                raise RecordTooLarge(f"a record of {size} bytes is too large for topic {self.topic!r}", key)

    async def _write(self, records: Sequence[tuple[bytes, bytes | None]], headers: Headers) -> Mapping[int, int]:
        delivery = _Delivery(len(records), self._loop.create_future())
        before = self.applied

        def send() -> None:
            for key, value in records:
                self._produce(key, value, headers, delivery)
            while self._open_producer().flush(POLL_S):
                pass

        try:
            await asyncio.to_thread(send)
        except BaseException:
            delivery.done.cancel()
            raise
        await delivery.done
        self._refuse_going_back(delivery.offsets, before)
        self._follow_too(delivery.offsets)
        await self._handed_over(delivery.offsets)
        return delivery.offsets

    def _refuse_going_back(self, offsets: Mapping[int, int], before: Mapping[int, int]) -> None:
        """What was written stands behind all that was read, or in another topic."""
        for partition, offset in offsets.items():
            if 0 <= offset <= before.get(partition, -1) and not self._may_begin_anew:
                error = another_topic(self.topic, f"a new record has offset {offset}, {before[partition]} was read")
                self.give_up(error)
                raise error

    def _open_producer(self) -> Producer:
        """The producer; nobody may keep it beyond a call, or closing would wait for them."""
        if self._failure is not None:
            raise self._failure
        if self._closing.is_set() or self._producer is None:
            raise TopicLogError(f"topic {self.topic!r} is closed")
        return self._producer

    def _produce(self, key: bytes, value: bytes | None, headers: Headers, delivery: "_Delivery") -> None:
        # Whichever thread flushes gets to hear of everybody's records, so all counting is left to the event loop.
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._loop.call_soon_threadsafe(delivery.succeed, _read_message(message))
            else:
                self._loop.call_soon_threadsafe(delivery.fail, self._refusal(error, key))

        while True:
            try:
                self._open_producer().produce(
                    self.topic, key=key, value=value, headers=list(headers), on_delivery=delivered
                )
                return
            except BufferError:  # more records than the client queues: let some leave first
                self._open_producer().poll(POLL_S)
            except KafkaException as error:
                raise self._refusal(error.args[0], key) from error

    def _follow_too(self, partitions: Iterable[int]) -> None:
        """Read these as well: there may be more than when the following began."""
        new = set(partitions) - self._followed
        self._followed |= new
        self._joining.extend(new)

    async def _handed_over(self, offsets: Mapping[int, int]) -> None:
        await self._until(lambda: self._has_applied(offsets))

    async def _until(self, holds: Callable[[], bool]) -> None:
        if self._failure is not None:
            raise self._failure
        if holds():
            return
        applied = self._loop.create_future()
        self._waiters[applied] = holds
        try:
            await applied
        finally:  # whoever gives up is gone: while the cluster is away nothing else would remove them
            del self._waiters[applied]

    def _refusal(self, error: KafkaError, key: bytes) -> TopicLogError:
        text = f"cannot write to topic {self.topic!r}: {error.str()}"
        if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
            return RecordTooLarge(text, key)
        return TopicLogError(text)

    def _has_applied(self, offsets: Mapping[int, int]) -> bool:
        return all(self._applied.get(partition, -1) >= offset for partition, offset in offsets.items())

    # ------------------------------------------------------------ the follower

    def _follow(self) -> None:
        try:
            consumer = Consumer(
                {
                    **self._client,
                    "group.id": f"tidemill-follow-{self.topic}",  # librdkafka wants one; nothing is committed to it
                    "enable.auto.commit": "false",
                    "enable.partition.eof": "true",
                    "auto.offset.reset": "earliest" if self._may_begin_anew else "error",
                    "fetch.error.backoff.ms": "100",
                    "fetch.wait.max.ms": "200",  # also the time an empty topic takes to be known as read
                }
            )
        except Exception as error:
            self._post(self._stop_following, error)
            return
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
        self._followed = set(topic.partitions)
        self._astray: dict[int, str] = {}  # partitions that the client has no position in any more, with the reason
        consumer.assign([TopicPartition(self.topic, partition, OFFSET_BEGINNING) for partition in topic.partitions])

    def _read(self, consumer: Consumer) -> None:
        while not self._closing.is_set():
            while self._joining:
                consumer.incremental_assign([TopicPartition(self.topic, self._joining.popleft(), OFFSET_BEGINNING)])
            first = consumer.consume(1, POLL_S)  # which, unlike its `poll`, sleeps for all of that time
            if not first:
                continue
            records = []
            ends: dict[int, int] = {}
            for message in [*first, *consumer.consume(FETCH_RECORDS_MAX - 1, 0)]:
                record = self._record(message)
                if record is not None:
                    records.append(record)
                    ends.pop(record.partition, None)  # it came behind what was the end
                elif (end := _end_told_by(message)) is not None:
                    ends[message.partition() or 0] = end
            self._post(self._apply, records, ends, not self._unread)
            if self._astray:
                self._begin_again(consumer)

    def _begin_again(self, consumer: Consumer) -> None:
        """Read from the beginning where nothing was read yet; where something was, what comes after it is gone."""
        for partition, reason in self._astray.items():
            if partition in self._applied:
                raise another_topic(self.topic, f"nothing comes after what was read: {reason}")
        self._closing.wait(ASK_AGAIN_S)
        partitions = [TopicPartition(self.topic, partition, OFFSET_BEGINNING) for partition in self._astray]
        self._astray.clear()
        consumer.incremental_unassign(partitions)
        consumer.incremental_assign(partitions)

    def _record(self, message: Message) -> LogRecord | None:
        error = message.error()
        if error is None:
            return _read_message(message)
        if error.code() == KafkaError._PARTITION_EOF:
            self._unread.discard(message.partition() or 0)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._astray[message.partition() or 0] = error.str()
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

    def _apply(self, records: Sequence[LogRecord], ends: Mapping[int, int], caught_up: bool) -> None:
        for record in records if not self._may_begin_anew else ():
            known = self._applied.get(record.partition, -1)
            if record.offset <= known:
                raise another_topic(self.topic, f"offset {record.offset} came after {known}")
        if records:
            self._on_records(records)
            for record in records:
                self._applied[record.partition] = record.offset
                self._read_to[record.partition] = record.offset + 1
        self._read_to.update(ends)
        if caught_up:
            self._caught_up.set()
        for applied, holds in self._waiters.items():
            if holds():
                _succeed(applied)

    def _stop_following(self, error: BaseException) -> None:
        if self._failure is not None:
            return
        if isinstance(error, TopicLogError):
            self._failure = error
        else:
            self._failure = TopicLogError(f"topic {self.topic!r} cannot be followed: {_reason(error)}")
            self._failure.__cause__ = error
        log.error("following stopped", topic=self.topic, error=_reason(error))
        self._failed.set()
        self._caught_up.set()
        for applied in self._waiters:
            _fail(applied, self._failure)


def _end_told_by(message: Message) -> int | None:
    """Where the partition ends, if the message says that it was read to there."""
    error = message.error()
    return message.offset() if error is not None and error.code() == KafkaError._PARTITION_EOF else None


def _let_go(producer: Producer) -> None:
    producer.flush(POLL_S)


def _all_ended(threads: Sequence[threading.Thread], timeout_s: float) -> bool:
    """Wait for all of them, at most that long; whether they have ended."""
    until = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def _read_message(message: Message) -> LogRecord:
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None  # both are known of a delivered message
    key, value = message.key(), message.value()
    headers = tuple((str(header[0]), _as_bytes(header[1])) for header in message.headers() or ())
    return LogRecord(partition, offset, _as_bytes(key), _as_bytes(value), headers)


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
