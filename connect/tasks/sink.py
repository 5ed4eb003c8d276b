"""The loop around a sink task: read, put, flush, commit

The group's offsets say what is in the target: they are committed only after `flush` has returned, up to the last
record that `put` has taken in. Everything in between may be delivered again after a failure.

`RetryAfter` holds the batch back and offers it again; meanwhile the consumer keeps its place in the group.
`PartialFailure` names bad records, for which the error policy decides (see `tolerance`): left out, or offered again.
`NotConnected` ends the session: what the task object had buffered is lost with it, so a new one starts from the
committed offsets.

A rebalance asks the task to flush before partitions go, and to name better positions than the group's for those that
come. librdkafka calls back from inside `poll`, on this thread; an error of the plugin in there is kept and raised
when the call is over.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from pydantic import BaseModel

from tidemill.connect.api import Fatal, PartialFailure, Plugin, Poison, Record, RetryAfter, SinkTask
from tidemill.connect.converters.registry import make_converter
from tidemill.connect.task_spec import TaskSpec
from tidemill.connect.tasks.chained import TRANSFORMING_PATIENCE_S, chain_of, log_notices
from tidemill.connect.tasks.context import task_context
from tidemill.connect.tasks.control import TaskControl
from tidemill.connect.tasks.dead_letters import DeadLetters
from tidemill.connect.tasks.kafka_clients import ClientLost, consumer_config, explain, kafka_error
from tidemill.connect.tasks.kafka_watch import KafkaWatch
from tidemill.connect.tasks.meter import PAUSED, RUNNING, TaskMeter
from tidemill.connect.tasks.sessions import RETRYING, Sessions
from tidemill.connect.tasks.topic_selection import TopicSelection
from tidemill.connect.tolerance import ErrorPolicy, FailedRecord, Stage, Verdict
from tidemill.connect.transforms.chain import Chain
from tidemill.core.runtime.clock import Clock

log = structlog.get_logger("tidemill.connect.sink")

BATCH_RECORDS = 500  # Java's max.poll.records, which sinks are tuned for
POLL_S = 0.2
REPORT_INTERVAL_S = 1.0
TOPICS_REFRESH_S = 30.0  # between looks at the list of topics, for a pattern
LIST_TIMEOUT_S = 5.0
LEAVE_TIMEOUT_S = 2.0
STOP_RESERVE = 0.5  # of the grace period is for the last commit, the rest for leaving the group and the plugin's stop
WRITING_PATIENCE_S = 30.0  # after which a `put` that has not returned is told in the status
QUIET_TURNS = 10  # without a record, after which a sink that has its partitions counts as well

FLUSHING = "flush"

REFUSED = "the broker refuses to serve this sink"
_FATAL_ERRORS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.INVALID_GROUP_ID,
}
_GROUP_MOVED_ON = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError._NO_OFFSET,
    KafkaError._ASSIGNMENT_LOST,
}
"""Answers to a commit that came too late: the records will be delivered to whoever owns the partitions now."""

Place = tuple[str, int]


class _Refused(NamedTuple):
    """A record that the error policy allows to leave out."""

    message: Message
    stage: Stage
    error: Exception
    where: str


@dataclass(slots=True)
class _Batch:
    """Records offered to the task and the messages they were made from."""

    records: list[Record]
    messages: list[Message]
    ends: dict[Place, int]  # the offset after the last message of each partition, skipped ones included
    attempts: int = 0  # to write what is left of it after a refusal
    failing_since: float = 0.0
    refused: list[_Refused] = field(default_factory=list)  # left out once the others are taken: a batch may come again


class SinkCounters:
    """Totals of the task, across its sessions, under Connect's metric names."""

    __slots__ = (
        "commit_failures",
        "commits",
        "dead_letters",
        "filtered",
        "lost",
        "meter",
        "read",
        "sent",
        "skipped",
        "topics",
    )

    def __init__(self, meter: TaskMeter) -> None:
        self.meter = meter
        self.read = 0
        self.sent = 0
        self.skipped = 0
        self.filtered = 0  # left out by a transform
        self.lost = 0  # with a session, or with partitions, before they were written: whoever has these now reads them
        self.dead_letters = 0
        self.commits = 0
        self.commit_failures = 0
        self.topics: Counter[str] = Counter()  # batches read of each

    @property
    def active(self) -> int:
        """Records on their way into the target."""
        return self.read - self.sent - self.skipped - self.filtered - self.lost


class SinkRunner:
    """Runs one sink task until it is stopped or fails."""

    def __init__(self, plugin: Plugin, settings: BaseModel, spec: TaskSpec, control: TaskControl, clock: Clock) -> None:
        self._plugin = plugin
        self._settings = settings
        self._spec = spec
        self._control = control
        self._clock = clock
        self._counters = SinkCounters(TaskMeter(clock))

    def run(self) -> None:
        """Return after a stop; raise what makes the task fail."""
        sessions = Sessions(str(self._spec.task), self._control, log)
        flush_failed = False

        def session() -> None:
            nonlocal flush_failed
            task = self._plugin.task(self._settings)
            if not isinstance(task, SinkTask):
                raise TypeError(f"plugin {self._plugin.name} made a {type(task).__name__}, not a SinkTask")
            one = _Session(task, self._spec, self._control, self._clock, self._counters, prove_by_flush=flush_failed)
            try:
                one.run(on_healthy=sessions.healthy)
            finally:
                flush_failed = one.prove_by_flush

        sessions.run(session)


class _Session:
    """One life of the plugin's task object and its consumer."""

    def __init__(
        self,
        task: SinkTask,
        spec: TaskSpec,
        control: TaskControl,
        clock: Clock,
        counters: SinkCounters,
        *,
        prove_by_flush: bool,
    ) -> None:
        self._task = task
        self._spec = spec
        self._control = control
        self._clock = clock
        self._counters = counters
        counters.lost += counters.active  # nothing is on its way yet
        self._selection = _selection(spec)
        self._subscribed: frozenset[str] = frozenset()
        self._look_at = 0.0
        self._policy = ErrorPolicy.from_config(spec.config)
        self._dead_letters = DeadLetters(spec, self._policy)
        self._key_converter = make_converter(spec.key_converter)
        self._value_converter = make_converter(spec.value_converter)
        self._chain = chain_of(spec.config, self._key_converter, self._value_converter)
        self._taken: dict[Place, int] = {}  # the next offset of what the task took in since the last commit
        self._position: dict[Place, int] = {}  # the same since the partitions came
        self._released = False  # the plugin may not be called any more
        self._unanswered = 0  # commits that are on their way
        self._committing_since = 0.0  # the last of them
        self._pending: _Batch | None = None
        self._retry_at = 0.0
        self._flush_at = 0.0
        self._report_at = 0.0
        self._holding = False  # partitions are paused at the consumer
        self._paused = False
        self._failure: Exception | None = None
        self._assigned: set[Place] = set()
        self._on_healthy: Callable[[], None] = lambda: None
        self.prove_by_flush = prove_by_flush  # the last flush failed: a `put` that returns shows nothing
        self._quiet_turns = 0

    # ------------------------------------------------------------------- life

    def run(self, on_healthy: Callable[[], None]) -> None:
        """Start, loop, flush, release."""
        self._on_healthy = on_healthy
        config = consumer_config(self._spec)
        self._cooperative = "cooperative" in str(config.get("partition.assignment.strategy", ""))
        self._consumer = Consumer({**config, "error_cb": self._client_error, "on_commit": self._committed})
        # A client of its own: while one thread is in `consume`, another gets no answer out of the same consumer.
        self._watch = KafkaWatch(
            Consumer({**config, "log_level": 0}),
            self._control,
            self._spec.bootstrap_servers,
            self._topics,
            reading=True,
        )
        self._watch.start()
        orderly = False
        try:
            if self._start():
                self._control.announce_start()
                self._counters.meter.enters(RUNNING)
                self._subscribe()
                self._loop()
            orderly = True
        finally:
            self._counters.meter.enters("")
            self._release(orderly)

    def _start(self) -> bool:
        context = task_context(self._spec, self._control)
        while not self._control.stopping:
            try:
                with self._control.calling("start"):
                    self._task.start(context)
                self._control.problem(RETRYING, None)
                return True
            except RetryAfter as retry:
                self._control.problem(RETRYING, str(retry), retry_s=retry.seconds)
                self._control.wait(retry.seconds)
                self._control.hold_while_paused(RETRYING)
        return False

    def _topics(self) -> frozenset[str]:
        return self._subscribed or self._selection.names

    def _subscribe(self) -> None:
        """Subscribe to what is selected, if that is not what is subscribed to already."""
        topics = self._selection.names
        if self._selection.by_pattern:
            self._look_at = self._clock.monotonic() + TOPICS_REFRESH_S
            try:
                topics = self._selection.matching(self._consumer.list_topics(timeout=LIST_TIMEOUT_S).topics)
            except KafkaException as error:
                log.warning("cannot list topics", task=str(self._spec.task), error=kafka_error(error).str())
                return
        if topics != self._subscribed:
            self._subscribed = topics
            self._consumer.subscribe(sorted(topics), on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose)

    def _loop(self) -> None:
        self._flush_at = self._clock.monotonic() + self._spec.offset_flush_interval_ms / 1000
        while not self._control.stopping:
            self._turn()

    def _turn(self) -> None:
        now = self._clock.monotonic()
        if self._paused != self._control.paused:
            self._paused = self._control.paused
            if self._paused:
                self._flush_and_commit(wait=False)
            self._control.announce_pause(self._paused)
            self._counters.meter.enters(PAUSED if self._paused else RUNNING)
        if now >= self._flush_at:
            self._flush_at = now + self._spec.offset_flush_interval_ms / 1000
            self._flush_and_commit(wait=False)
        if self._selection.by_pattern and now >= self._look_at:
            self._subscribe()
        if now >= self._report_at:
            self._report_at = now + REPORT_INTERVAL_S
            self._report()
        self._hold(self._paused or self._pending is not None)
        if self._holding:
            self._attend(now)
            return
        messages = self._consumer.consume(BATCH_RECORDS, POLL_S)
        self._raise_failure()
        self._quiet_turns = 0 if messages or not self._assigned else self._quiet_turns + 1
        if messages:
            self._offer(self._read(messages))
        elif self._quiet_turns == QUIET_TURNS and not self._taken:
            self.prove_by_flush = False
            self._on_healthy()  # there is nothing to write: what the target can do is not asked

    def _attend(self, now: float) -> None:
        """While nothing may be read: stay in the group, and offer a held batch again when it is due."""
        due = self._pending is not None and not self._paused
        message = self._consumer.poll(min(POLL_S, max(0.0, self._retry_at - now)) if due else POLL_S)
        self._raise_failure()
        if message is not None:
            self._put_back(message)
        batch = self._pending
        if batch is not None and not self._paused and self._clock.monotonic() >= self._retry_at:
            self._pending = None
            self._offer(batch)

    def _put_back(self, message: Message) -> None:
        """A message that slipped past the pause is read again later."""
        error = message.error()
        if error is not None:
            self._judge(error)
            return
        self._consumer.seek(TopicPartition(*_place_of(message)))

    def _hold(self, hold: bool) -> None:
        if hold == self._holding:
            return
        self._holding = hold
        partitions = [TopicPartition(*place) for place in self._assigned]
        if hold:
            self._consumer.pause(partitions)
        else:
            self._consumer.resume(partitions)

    def _release(self, orderly: bool) -> None:
        try:
            if orderly:
                self._flush_and_commit(wait=False)
                self._await_commit()
        finally:
            self._watch.close()
            for about in (RETRYING, FLUSHING):
                self._control.problem(about, None)
            self._report()
            self._taken.clear()  # nothing more may be committed
            self._close([TopicPartition(*place) for place in self._assigned])
            self._released = True
            try:
                with self._control.calling("stop"):
                    self._task.stop()
            except Exception:
                log.exception("the plugin failed while stopping", task=str(self._spec.task))
            self._close_chain()
            self._dead_letters.close()
            self._leave_group()

    def _close_chain(self) -> None:
        try:
            if self._chain is not None:
                self._chain.close()
        except Exception:
            log.exception("a transform failed while it was closed", task=str(self._spec.task))

    def _leave_group(self) -> None:
        """Close the consumer; with its cluster away that takes long, and nothing depends on it any more."""
        closing = threading.Thread(target=self._consumer.close, name="leave group", daemon=True)
        closing.start()
        closing.join(LEAVE_TIMEOUT_S)

    # ----------------------------------------------------------------- reading

    def _read(self, messages: Sequence[Message]) -> _Batch:
        batch = _Batch([], [], {})
        records, kept, ends = batch.records, batch.messages, batch.ends
        decode_key, decode_value = self._key_converter.decode, self._value_converter.decode
        errors = 0
        for message in messages:
            error = message.error()
            if error is not None:
                self._judge(error)
                errors += 1
                continue
            topic, partition, offset = _place_of(message)
            ends[topic, partition] = offset + 1
            stage = Stage.KEY_CONVERTER
            try:
                key, key_schema = decode_key(_bytes(message.key()))
                stage = Stage.VALUE_CONVERTER
                value, value_schema = decode_value(_bytes(message.value()))
            except ValueError as bad:
                where = self._key_converter if stage is Stage.KEY_CONVERTER else self._value_converter
                self._refuse(batch, _Refused(message, stage, bad, type(where).__name__))
                continue
            headers = message.headers()
            kind, timestamp_ms = message.timestamp()
            kept.append(message)
            records.append(
                Record(
                    topic=topic,
                    key=key,
                    value=value,
                    headers=tuple(headers) if headers else (),  # type: ignore[arg-type]  # pairs, as they were sent
                    timestamp_ms=timestamp_ms if kind else None,
                    key_schema=key_schema,
                    value_schema=value_schema,
                    kafka_partition=partition,
                    kafka_offset=offset,
                )
            )
        self._counters.read += len(messages) - errors
        self._counters.topics.update({topic for topic, _ in ends})
        return batch if self._chain is None else self._transformed(self._chain, batch)

    def _transformed(self, chain: Chain, batch: _Batch) -> _Batch:
        """What the transforms leave of a batch; it ends where it ended."""
        left = _Batch([], [], batch.ends, refused=batch.refused)
        with self._control.calling("apply", TRANSFORMING_PATIENCE_S, of="a transform"):
            outcomes = chain.apply(batch.records)
        log_notices(chain, log, str(self._spec.task))
        for message, outcome in zip(batch.messages, outcomes, strict=True):
            if isinstance(outcome, Record):
                left.records.append(outcome)
                left.messages.append(message)
            elif outcome is None:
                self._counters.filtered += 1
            else:
                self._refuse(left, _Refused(message, Stage.TRANSFORMATION, outcome.error, outcome.stage.name))
        return left

    def _refuse(self, batch: _Batch, refused: _Refused) -> None:
        """Keep in mind that a record is left out; raises where that is not allowed."""
        if self._policy.verdict(refused.stage) is Verdict.FAIL:
            self._left_out(*refused)
        batch.refused.append(refused)

    def _judge(self, error: KafkaError) -> None:
        """Errors in the place of a message: most pass by themselves."""
        if error.fatal():
            raise ClientLost(f"the consumer cannot go on: {error.str()}")
        if error.code() in _FATAL_ERRORS:
            raise Fatal(explain(error, REFUSED, reading=True))
        log.warning("consumer", task=str(self._spec.task), error=error.str())

    def _client_error(self, error: KafkaError) -> None:
        self._watch.heard(error)
        if error.fatal():
            self._failure = ClientLost(f"the consumer cannot go on: {error.str()}")
        elif error.code() in _FATAL_ERRORS:
            self._failure = Fatal(explain(error, REFUSED, reading=True))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    # ------------------------------------------------------------ the target

    def _offer(self, batch: _Batch) -> None:
        """Give a batch to the task."""
        if batch.records:
            meter, began = self._counters.meter, self._clock.monotonic()
            meter.batch_records.add(len(batch.records))
            try:
                with self._control.calling("put", WRITING_PATIENCE_S):
                    self._task.put(batch.records)
                meter.call_ms.add((self._clock.monotonic() - began) * 1000)
            except RetryAfter as retry:
                meter.retries += 1
                self._pending = batch
                self._retry_at = self._clock.monotonic() + retry.seconds
                self._control.problem(RETRYING, str(retry), retry_s=retry.seconds)
                return
            except PartialFailure as failure:
                again = self._refused(batch, failure)
                if again:
                    self._hold_back(batch, again)
                    return
        for each in sorted(batch.refused, key=lambda refused: _place_of(refused.message)):
            self._left_out(*each)
        self._control.problem(RETRYING, None)
        self._counters.sent += len(batch.records)
        self._taken.update(batch.ends)
        self._position.update(batch.ends)
        if self.prove_by_flush:
            self._flush_at = self._clock.monotonic()
        else:
            self._on_healthy()

    def _refused(self, batch: _Batch, failure: PartialFailure) -> dict[int, RetryAfter]:
        """Leave out what the sink has refused; return what is to be offered again, by its index."""
        now = self._clock.monotonic()
        batch.failing_since = batch.failing_since or now
        retries = self._policy.retries(int((now - batch.failing_since) * 1000))
        again = {}
        refused = []
        for index, error in sorted(failure.errors.items()):
            if not 0 <= index < len(batch.records):
                raise IndexError(f"the sink refused record {index} of a batch of {len(batch.records)}") from failure
            if retries and isinstance(error, RetryAfter):
                again[index] = error
            else:
                refused.append(_Refused(batch.messages[index], Stage.TASK_PUT, error, type(self._task).__name__))
        for each in sorted(refused, key=_may_pass):  # if one fails the task, then one for which waiting is no use
            self._refuse(batch, each)
        return again

    def _hold_back(self, batch: _Batch, again: Mapping[int, RetryAfter]) -> None:
        """Offer the refused records of a batch once more later; nothing behind them is read meanwhile."""
        attempts = batch.attempts + 1
        self._counters.meter.retries += 1
        delay_s = self._policy.retry_delay_ms(attempts) / 1000
        self._counters.sent += len(batch.records) - len(again)
        self._pending = _Batch(
            [batch.records[index] for index in again],
            [batch.messages[index] for index in again],
            batch.ends,
            attempts,
            batch.failing_since,
            batch.refused,
        )
        self._retry_at = self._clock.monotonic() + delay_s
        first = next(iter(again.values()))
        self._control.problem(RETRYING, f"{len(again)} records are refused for now: {first}", retry_s=delay_s)

    def _left_out(self, message: Message, stage: Stage, error: Exception, where: str) -> None:
        """Leave a record out as the policy says, or raise."""
        topic, partition, offset = _place_of(message)
        verdict = self._policy.verdict(stage)
        tolerated = verdict is not Verdict.FAIL
        self._counters.meter.failed(tolerated=tolerated, logged=tolerated and self._policy.log_enable)
        if not tolerated:
            told = f"{stage}: record {offset} of {topic}-{partition}"
            if isinstance(error, RetryAfter):
                raise RetryAfter(
                    error.seconds,
                    f"{told} is refused for now: {error}; errors.retry.timeout says how long it is offered again, "
                    "errors.tolerance=all would leave it out then",
                ) from error
            raise Poison(f"{told} cannot be processed: {error}; errors.tolerance=all would leave it out") from error
        failed = FailedRecord(topic=topic, partition=partition, offset=offset, stage=stage, error=error, where=where)
        if verdict is Verdict.DEAD_LETTER:
            self._dead_letters.send(message, failed)
            self._counters.dead_letters += 1
        self._counters.skipped += 1
        if self._policy.log_enable:
            extra: dict[str, Any] = {"value": message.value()} if self._policy.log_include_messages else {}
            place = f"{topic}-{partition}@{offset}"
            log.error(
                "record left out", task=str(self._spec.task), stage=stage.value, at=place, error=str(error), **extra
            )

    def _flush_and_commit(self, *, wait: bool) -> None:
        """Make everything taken in durable, then let the group know."""
        if not self._taken:
            self._control.problem(FLUSHING, None)  # its records are somebody else's now
            return
        before, self.prove_by_flush = self.prove_by_flush, True
        try:
            with self._control.calling("flush", WRITING_PATIENCE_S):
                self._task.flush()
        except RetryAfter as retry:
            self._control.problem(FLUSHING, str(retry), retry_s=retry.seconds)
            self._flush_at = self._clock.monotonic() + retry.seconds
            return
        self._control.problem(FLUSHING, None)
        self._dead_letters.flush()
        self.prove_by_flush = False
        if before:
            self._on_healthy()
        offsets = [TopicPartition(topic, partition, end) for (topic, partition), end in self._taken.items()]
        self._taken.clear()
        self._committing_since = self._clock.monotonic()
        try:
            # Waiting only where the process is about to let go: an answer that is late must not hold up the sink.
            if wait:
                self._consumer.commit(offsets=offsets, asynchronous=False)
            else:
                self._unanswered += 1
                self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            self._committed(kafka_error(error), offsets)

    def _await_commit(self) -> None:
        """Give the last commit a bounded time; what is read meanwhile is nobody's."""
        deadline = self._clock.monotonic() + self._control.grace_ms * STOP_RESERVE / 1000
        self._hold(True)
        while self._unanswered and self._clock.monotonic() < deadline:
            self._consumer.poll(POLL_S)

    def _committed(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        """The answer to a commit; one that failed is covered by the next."""
        self._unanswered = max(0, self._unanswered - 1)
        if error is None:
            self._counters.commits += 1
            self._counters.meter.commit_ms.add((self._clock.monotonic() - self._committing_since) * 1000)
            return
        self._counters.commit_failures += 1
        log.warning("commit failed", task=str(self._spec.task), error=error.str())
        if error.code() not in _GROUP_MOVED_ON:
            for each in offsets:
                if (each.topic, each.partition) in self._assigned:
                    self._taken.setdefault((each.topic, each.partition), each.offset)

    # --------------------------------------------------------------- rebalance

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._released:
            return
        places = [(each.topic, each.partition) for each in partitions]
        positions = {}
        try:
            with self._control.calling("open"):
                positions = dict(self._task.open(places))
        except Exception as error:
            self._failure = error
        for each in partitions:
            position = positions.get((each.topic, each.partition))
            if position is not None:
                each.offset = position
        if self._cooperative:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)
        if self._holding:
            consumer.pause(partitions)
        self._assigned.update(places)
        log.info("partitions assigned", task=str(self._spec.task), partitions=len(self._assigned))

    def _revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._released:
            return
        try:
            self._flush_and_commit(wait=True)
        except Exception as error:
            self._failure = error
        self._close(partitions)

    def _lose(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """The group gave the partitions to somebody else before we knew: nothing may be committed any more."""
        if self._released:
            return
        self._close(partitions)

    def _close(self, partitions: list[TopicPartition]) -> None:
        places = [(each.topic, each.partition) for each in partitions]
        self._assigned.difference_update(places)
        for place in places:
            self._taken.pop(place, None)
            self._position.pop(place, None)
        if self._pending is not None:
            held = len(self._pending.records)
            self._pending = _without(self._pending, set(places))
            self._counters.lost += held - (0 if self._pending is None else len(self._pending.records))
            if self._pending is None:
                self._control.problem(RETRYING, None)
        try:
            with self._control.calling("close"):
                self._task.close(places)
        except Exception as error:
            log.exception("the plugin failed while letting partitions go", task=str(self._spec.task))
            self._failure = error

    # ------------------------------------------------------------------- facts

    def _report(self) -> None:
        counters = self._counters
        counters.meter.active_records.add(counters.active)
        self._control.report(
            {
                "sink-record-read-total": counters.read,
                "sink-record-send-total": counters.sent,
                "sink-record-active-count": counters.active,
                "partition-count": len(self._assigned),
                "total-records-skipped": counters.skipped,
                "deadletterqueue-produce-requests": counters.dead_letters,
                "deadletterqueue-produce-failures": self._dead_letters.refused,
                "offset-commit-completion-total": counters.commits,
                "offset-commit-failure-total": counters.commit_failures,
                "sink-record-lag-max": self._lag(),
                "topics": dict(counters.topics),
                **counters.meter.facts("put", "sink"),
            }
        )

    def _lag(self) -> int:
        """Records behind the end, in the partition that is furthest behind, as the last fetches told."""
        lag = 0
        for place, position in self._position.items():
            ends = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
            lag = max(lag, (ends[1] if ends else 0) - position)
        return lag


def _selection(spec: TaskSpec) -> TopicSelection:
    try:
        return TopicSelection.from_config(spec.config)
    except ValueError as error:
        raise Fatal(str(error)) from error


def _place_of(message: Message) -> tuple[str, int, int]:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None and partition is not None and offset is not None, "a message without an error has a place"
    return topic, partition, offset


def _may_pass(refused: _Refused) -> bool:
    return isinstance(refused.error, RetryAfter)


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _without(batch: _Batch, places: set[Place]) -> _Batch | None:
    """What is left of a held batch when partitions are gone."""
    kept = [
        (record, message)
        for record, message in zip(batch.records, batch.messages, strict=True)
        if _place_of(message)[:2] not in places
    ]
    ends = {place: end for place, end in batch.ends.items() if place not in places}
    if not ends:
        return None
    return _Batch(
        [record for record, _ in kept],
        [message for _, message in kept],
        ends,
        batch.attempts,
        batch.failing_since,
        [each for each in batch.refused if _place_of(each.message)[:2] not in places],
    )
