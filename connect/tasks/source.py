"""The loop around a source task: poll, produce, store offsets

The machine decides when an offset may be stored; this file talks to the plugin, the producer and the clock. One
thread does it all, so a plugin never sees two calls at once; sending and acknowledging go on inside librdkafka
meanwhile.

A session is one life of the plugin's task object and one producer. It ends when the task is to stop, when the input
has ended, or when something was lost that a new session can get back: the other system (`NotConnected`) or the
producer. Then what is in flight is finished, its offsets are stored, and after a pause a new session starts from the
stored offsets, exactly as a new process would.

A broker refuses batches, not records: a record that is too large, or has no key where one is needed, takes its
neighbours with it. To send those again behind what followed them would put old values over new ones. So the session
ends, and the next one reads on from the stored offsets and sends every record in a batch of its own, until it has met
the one to blame and some quiet time has passed. What becomes of that one is for the error policy (see `tolerance`).
"""

from collections.abc import Callable, Sequence
from typing import Any

import structlog
from confluent_kafka import KafkaError, Producer
from pydantic import BaseModel

from tidemill.connect.api import (
    Computing,
    EncodedBatch,
    EndOfInput,
    Fatal,
    NotConnected,
    Plugin,
    Poison,
    Record,
    RetryAfter,
    SourceOffset,
    SourceOutput,
    SourcePartition,
    SourceTask,
)
from tidemill.connect.stores import SourceOffsetRecord, encode_offset, partition_identity
from tidemill.connect.task_spec import TaskSpec
from tidemill.connect.tasks import source_machine as machine
from tidemill.connect.tasks.chained import TRANSFORMING_PATIENCE_S, records_of
from tidemill.connect.tasks.context import task_context
from tidemill.connect.tasks.control import TaskControl
from tidemill.connect.tasks.kafka_clients import (
    ONE_BY_ONE,
    ClientLost,
    explain,
    offsets_reader_config,
    producer_config,
    raise_if_lost,
)
from tidemill.connect.tasks.kafka_watch import KafkaWatch
from tidemill.connect.tasks.meter import PAUSED, RUNNING, TaskMeter
from tidemill.connect.tasks.resting_producer import RestingProducer
from tidemill.connect.tasks.sessions import RETRYING, Sessions
from tidemill.connect.tasks.source_offsets import SourceOffsets, load_offsets
from tidemill.connect.tasks.source_sender import Delivery, Sender, SourceCounters, check_columns, column_bytes, length
from tidemill.connect.tolerance import Stage
from tidemill.core.runtime.clock import Clock

log = structlog.get_logger("tidemill.connect.source")

IN_FLIGHT_BYTES_MAX = 32 << 20  # as much as a Java producer buffers
IN_FLIGHT_RECORDS_MAX = 200_000  # each costs librdkafka a few hundred bytes beside its payload
OFFSETS_LOAD_TIMEOUT_S = 30.0
STALLED_S = 3.0  # without an acknowledgement that is waited for, after which the status says so
REPORT_INTERVAL_S = 1.0
REPORT_IDLE_S = 10.0  # while the source brings nothing: averages of half a minute and shares of a life change slowly
PAUSED_S = 1.0  # between looks at the client while nothing is read and nothing is in flight; a wish ends it
IDLE_S = 0.1  # between looks at the wishes while nothing may be polled
FAREWELL_S = 2.0  # for acknowledgements of records, then of offsets, when the task has failed
STOP_RESERVE = 0.8  # of the grace period is for draining, the rest for the plugin's own stop

SINGLY_S = 60.0  # without a refusal, from the first record on, after which they go out in batches again

DELIVERY = "delivery"

NAMES_RECORD = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP}
"""Refusals that only the record is to blame for, if it was alone."""

REFUSED_WITH_ITS_BATCH = {*NAMES_RECORD, KafkaError._INVALID_DIFFERENT_RECORD}


class RefusedBatch(Exception):
    """The broker refused records that came in one batch; which of them is to blame shows when each comes alone."""


class _Flush:
    """The acknowledgements of one flush of offsets."""

    __slots__ = ("error", "number", "records", "started", "waiting")

    def __init__(self, number: int, records: list[tuple[bytes, bytes | None]], started: float) -> None:
        self.number = number
        self.records = records
        self.started = started
        self.waiting = len(records)
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        self.waiting -= 1
        if error is not None:
            self.error = error


class SourceRunner:
    """Runs one source task until it is stopped, completes or fails."""

    def __init__(self, plugin: Plugin, settings: BaseModel, spec: TaskSpec, control: TaskControl, clock: Clock) -> None:
        self._plugin = plugin
        self._settings = settings
        self._spec = spec
        self._control = control
        self._clock = clock
        self._counters = SourceCounters(TaskMeter(clock))

    def run(self) -> None:
        """Return after a stop or at the end of the input; raise what makes the task fail."""
        sessions = Sessions(str(self._spec.task), self._control, log)
        send_failed = False

        def session() -> None:
            nonlocal send_failed
            singly_s, stored = 0.0, -1
            while True:
                one = self._session(singly_s, prove_by_send=send_failed)
                try:
                    one.run(on_healthy=sessions.healthy)
                    return
                except RefusedBatch as refused:
                    if self._control.stopping:
                        return  # it will be refused again when the task is started again
                    log.warning("records are sent one by one now", task=str(self._spec.task), reason=str(refused))
                    # With nothing stored in between, as in a snapshot, the same way lies ahead: it may take longer.
                    singly_s = 2 * singly_s if self._counters.commits == stored else SINGLY_S
                    stored = self._counters.commits
                finally:
                    send_failed = one.prove_by_send

        sessions.run(session)

    def _session(self, singly_s: float, *, prove_by_send: bool) -> "_Session":
        return _Session(
            self._plugin,
            self._settings,
            self._spec,
            self._control,
            self._clock,
            self._counters,
            singly_s=singly_s,
            prove_by_send=prove_by_send,
        )


class _Session:
    """One life of the plugin's task object and its producer."""

    def __init__(
        self,
        plugin: Plugin,
        settings: BaseModel,
        spec: TaskSpec,
        control: TaskControl,
        clock: Clock,
        counters: SourceCounters,
        *,
        singly_s: float,
        prove_by_send: bool,
    ) -> None:
        self._singly = singly_s > 0
        self._singly_s = singly_s
        self._quiet_since: float | None = None  # no record was refused since then; None before the first
        self._failing = False
        self._spec = spec
        self._control = control
        self._clock = clock
        self._counters = counters
        self._make_task: Callable[[], SourceTask] = lambda: _source_task(plugin, settings)
        self._machine = machine.SourceMachine(
            flush_interval_ms=spec.offset_flush_interval_ms,
            in_flight_bytes_max=IN_FLIGHT_BYTES_MAX,
            in_flight_records_max=IN_FLIGHT_RECORDS_MAX,
        )
        self._offsets = SourceOffsets(spec.task.connector)
        self._partitions: dict[bytes, SourcePartition] = {}
        self._token = 0
        self._inbox: list[Delivery] = []
        self._flush: _Flush | None = None
        self._flush_late = False
        self._drained = False
        self._notify = True
        self._paused = False
        self._still = False  # the last poll has brought nothing, and nothing else is under way
        self._polling = control.calling("poll")
        self._retry_at = 0.0
        self._measure_at = 0.0
        self._moved = True  # a total has changed since it was last reported
        self._fatal: KafkaError | None = None
        self._heard = False  # since it was last looked at, the cluster has acknowledged something
        self._heard_at = 0.0
        self._awaits = False  # it was waiting for an acknowledgement when it was last looked at
        self._healthy = False
        self.prove_by_send = prove_by_send  # the last records got no further than a transform, or had no topic
        self._on_healthy: Callable[[], None] = lambda: None

    # ------------------------------------------------------------------- life

    def run(self, on_healthy: Callable[[], None]) -> None:
        """Start, loop, drain, release."""
        self._on_healthy = on_healthy
        self._open_producer()
        try:
            self._offsets = self._load_offsets()
            self._task = self._make_task()
            try:
                if self._start():
                    self._control.announce_start()
                    self._counters.meter.enters(RUNNING)
                    self._loop()
            finally:
                self._counters.meter.enters("")
                self._stop_task()
        finally:
            self._release()

    def _open_producer(self) -> None:
        spec = self._spec
        config = producer_config(spec) | (ONE_BY_ONE if self._singly else {})
        self._producer = RestingProducer(
            config, self._watch, self._client_failed, clock=self._clock, wait=self._control.wait
        )
        self._sender = Sender(self._producer, spec, self._counters, self._control.report)
        self._producer.open()  # last: its watch asks the sender for topics, and a sender that is refused leaves none

    def _watch(self, client: Producer) -> KafkaWatch:
        return KafkaWatch(client, self._control, self._spec.bootstrap_servers, self._topics)

    def _client_failed(self, error: KafkaError) -> None:
        self._fatal = error

    def _load_offsets(self) -> SourceOffsets:
        spec = self._spec
        return load_offsets(
            spec.task.connector,
            spec.offsets_topic,
            offsets_reader_config(spec),
            clock=self._clock,
            timeout_s=OFFSETS_LOAD_TIMEOUT_S,
            stopping=lambda: self._control.stopping,
        )

    def _topics(self) -> Sequence[str]:
        """The topics without which the task cannot go on."""
        return (self._spec.offsets_topic, *self._sender.topics)

    def _start(self) -> bool:
        context = task_context(self._spec, self._control, offsets=self._offsets.get)
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

    def _loop(self) -> None:
        try:
            self._work()
        except (NotConnected, ClientLost):
            raise  # everything is stored, or nothing more can be
        except Exception:
            self._notify = False
            self._keep_what_is_acknowledged()
            raise

    def _work(self) -> None:
        """Turn after turn, and what is in flight at the end of them."""
        try:
            while not self._control.stopping:
                self._turn()
        except EndOfInput:
            self._drain()
            if self._drained:
                self._control.announce_completion()
            return
        except NotConnected:
            self._notify = False  # the plugin's connection is gone; the next session learns from the stored offsets
            self._drain()
            raise
        self._drain()

    def _turn(self) -> None:
        """One poll, and what comes of it; while the source brings nothing, as little beside it as can be."""
        now = self._clock.monotonic()
        if self._still and now < self._measure_at and not self._control.paused:
            self._producer.poll(0)
            if self._fatal is not None:
                self._still = False  # the next turn says so
                return
        elif not self._prepare(now):
            self._report_what_moved()  # what was sent before is acknowledged meanwhile
            return
        try:
            with self._polling:
                outputs = self._task.poll()
        except RetryAfter as retry:
            self._still = False
            self._retry_at = now + retry.seconds
            self._control.problem(RETRYING, str(retry), retry_s=retry.seconds)
            return
        computing = None if outputs else self._task.computing()
        if outputs or computing is not None or not self._still:
            self._take_outputs(outputs, computing, now)

    def _prepare(self, now: float) -> bool:
        """Whatever is to be done before a poll; whether there may be one."""
        self._serve(0)
        self._do(self._machine.step(machine.Tick(now_ms=int(now * 1000))))
        if now >= self._measure_at:
            self._measure_at = now + REPORT_IDLE_S
            self._measure()
        if self._paused != self._control.paused:
            self._paused = self._control.paused
            self._still = False  # until it was polled again: the end of a pause is to be told, too
            self._control.announce_pause(self._paused)
            self._counters.meter.enters(PAUSED if self._paused else RUNNING)
            self._measure_soon(now)
        if self._paused and not self._machine.in_flight_records and self._flush is None:
            self._control.wait_while_paused(PAUSED_S)
            return False
        if self._paused or now < self._retry_at or not self._machine.accepts_more:
            self._serve(IDLE_S)
            return False
        if self._singly and self._quiet_since is not None and now - self._quiet_since > self._singly_s:
            if self._machine.in_flight_records or self._flush is not None:
                self._serve(IDLE_S)
                return False
            self._send_batches_again()
        return True

    def _take_outputs(self, outputs: Sequence[SourceOutput], computing: Computing | None, now: float) -> None:
        self._control.problem(RETRYING, None)
        self._control.computes(computing)
        if not self.prove_by_send:
            self._works()
        if outputs:
            self._counters.meter.call_ms.add((self._clock.monotonic() - now) * 1000)
            polled = self._counters.polled
            self.prove_by_send = True
            self._send(outputs)
            self.prove_by_send = False
            self._works()
            self._counters.meter.batch_records.add(self._counters.polled - polled)
            self._measure_soon(now)
        self._report_what_moved()
        settled = self._machine.settled and not self._awaits and self._healthy
        self._still = not outputs and computing is None and settled and not self._singly

    def _measure_soon(self, now: float) -> None:
        self._moved = True
        self._measure_at = min(self._measure_at, now + REPORT_INTERVAL_S)

    def _send_batches_again(self) -> None:
        """Nothing is in flight: another producer may take over."""
        log.info("records are sent in batches again", task=str(self._spec.task))
        self._singly = False
        self._producer.close()
        self._sender.close()
        self._open_producer()

    def _works(self) -> None:
        """A poll has come back, or its records are sent: only that shows that the task has all it needs."""
        if not self._healthy:
            self._healthy = True
            self._on_healthy()

    def _drain(self) -> None:
        """Wait until everything is acknowledged and stored, or until the grace period is nearly over."""
        deadline: float | None = None
        self._do(self._machine.step(machine.Stop()))
        while not self._drained:
            now = self._clock.monotonic()
            if deadline is None and self._control.stopping:
                deadline = now + self._control.grace_ms * STOP_RESERVE / 1000
            if deadline is not None and now >= deadline:
                log.warning(
                    "stopped before everything was acknowledged; it will be read again",
                    task=str(self._spec.task),
                    records=self._machine.in_flight_records,
                )
                return
            self._serve(IDLE_S)

    def _keep_what_is_acknowledged(self) -> None:
        """Before a failure ends the task: what the broker has need not be sent again by the next start."""
        self._failing = True
        try:
            for event, wait_s in ((machine.Stop(), FAREWELL_S), (machine.Abandon(), FAREWELL_S)):
                self._do(self._machine.step(event))
                deadline = self._clock.monotonic() + wait_s
                while not self._drained and self._clock.monotonic() < deadline:
                    self._serve(IDLE_S)
        except Exception as error:
            log.warning("offsets not stored before the end", task=str(self._spec.task), error=str(error))

    def _stop_task(self) -> None:
        try:
            with self._control.calling("stop"):
                self._task.stop()
        except Exception:
            log.exception("the plugin failed while stopping", task=str(self._spec.task))

    def _release(self) -> None:
        self._sender.close()
        for about in (DELIVERY, RETRYING):
            self._control.problem(about, None)
        # What is still queued was either acknowledged or will be read again from the stored offsets.
        self._producer.close()
        self._report()
        self._measure()

    # -------------------------------------------------------- acknowledgements

    def _serve(self, seconds: float) -> None:
        """Let librdkafka call back, then tell the machine what it heard."""
        self._producer.poll(seconds)
        if self._fatal is not None:
            raise ClientLost(f"the producer cannot go on: {self._fatal.str()}")
        if self._inbox:
            self._measure_soon(self._clock.monotonic())
            inbox, self._inbox[:] = self._inbox[:], []
            refusals = [(delivery.token, *each) for delivery in inbox for each in self._take(delivery)]
            for token, error, topic in refusals:  # last: one may end the session, and the others are acknowledged
                self._take_refusal(token, error, topic)
        if self._flush is not None:
            self._look_after_flush(self._flush)
        self._look_after_delivery()

    def _look_after_delivery(self) -> None:
        """Tell when the cluster has acknowledged nothing for long although something waits for it."""
        machine = self._machine
        awaits, awaited = bool(machine.in_flight_records) or self._flush is not None, self._awaits
        if not awaits and not awaited:
            return
        now = self._clock.monotonic()
        self._awaits = awaits
        if not (awaits and awaited) or self._heard:
            self._heard = False
            self._heard_at = now
            self._control.problem(DELIVERY, None)
        elif now - self._heard_at > STALLED_S:
            what = f"{machine.in_flight_records} records" if machine.in_flight_records else "offsets"
            held = "" if machine.accepts_more else "; the source is not read until they are"
            self._control.problem(DELIVERY, f"{what} wait to be acknowledged by the Kafka cluster{held}")

    def _take(self, delivery: Delivery) -> list[tuple[KafkaError, str]]:
        """Count what has become of the records of a run; return refusals, with the topic."""
        delivery.listed = False
        refused, delivery.refused = delivery.refused, []
        records, delivery.acknowledged = delivery.acknowledged, 0
        left_out, delivery.left_out = delivery.left_out, 0
        if records:
            self._heard = True
            self._counters.written += records
        if records + left_out:
            self._do(self._machine.step(machine.Delivered(token=delivery.token, records=records + left_out)))
        return refused

    def _take_refusal(self, token: int, error: KafkaError, topic: str) -> None:
        """A record that the broker did not take, perhaps only for the company it was in."""
        if self._failing:
            return  # the task ends already; its run stays in flight and is read again
        raise_if_lost(error)
        reason = explain(error, f"the broker refused a record for topic {topic}")
        blames_record = self._singly and error.code() in NAMES_RECORD
        if error.code() in REFUSED_WITH_ITS_BATCH:
            if not self._singly:
                self._counters.meter.retries += 1
                raise RefusedBatch(reason)
            self._quiet_since = self._clock.monotonic()
            if blames_record and self._sender.tolerates(Stage.KAFKA_PRODUCE):
                self._sender.leave_out(Stage.KAFKA_PRODUCE, Fatal(reason), topic)
                self._do(self._machine.step(machine.Delivered(token=token, records=1)))
                return
        self._counters.meter.failed(tolerated=False)
        self._do(self._machine.step(machine.DeliveryFailed(token=token, reason=reason, blames_record=blames_record)))

    def _look_after_flush(self, flush: _Flush) -> None:
        if flush.error is not None:
            raise_if_lost(flush.error)
            self._flush = None
            reason = explain(flush.error, f"cannot store offsets in topic {self._spec.offsets_topic}")
            self._do(self._machine.step(machine.OffsetsFailed(flush=flush.number, reason=reason)))
        elif flush.waiting == 0:
            self._flush = None
            self._heard = True
            self._counters.commits += 1
            for key, value in flush.records:
                self._offsets.take(key, value)
            took_ms = (self._clock.monotonic() - flush.started) * 1000
            self._counters.meter.commit_ms.add(took_ms)
            self._measure_soon(self._clock.monotonic())
            self._control.report({"offset-commit-last-time-ms": int(took_ms)})
            self._do(self._machine.step(machine.OffsetsStored(flush=flush.number)))
        elif (
            not self._flush_late and self._clock.monotonic() - flush.started > self._spec.offset_flush_timeout_ms / 1000
        ):
            self._moved = True
            self._flush_late = True  # it stays queued and will get there; this only tells that it takes long
            self._counters.commit_failures += 1
            log.warning("storing offsets takes longer than offset.flush.timeout.ms", task=str(self._spec.task))

    # ----------------------------------------------------------------- actions

    def _do(self, actions: Sequence[machine.Action]) -> None:
        for action in actions:
            match action:
                case machine.StoreOffsets():
                    self._store(action)
                case machine.NotifyCommitted(partition=partition, offset=offset):
                    if self._notify:
                        with self._control.calling("committed"):
                            self._task.committed(self._partitions[partition], offset)
                case machine.Fail(reason=reason, blames_record=blames_record):
                    raise Poison(reason) if blames_record else Fatal(reason)
                case machine.Drained():
                    self._drained = True
                case machine.Produce():
                    pass  # done by the caller of Polled, who holds the payload

    def _store(self, action: machine.StoreOffsets) -> None:
        records = []
        for identity, offset in action.offsets:
            partition = self._partitions[identity]
            _, value = encode_offset(SourceOffsetRecord(self._spec.task.connector, partition, offset))
            records.append((self._offsets.key(partition), value))
        self._flush = _Flush(action.flush, records, self._clock.monotonic())
        self._flush_late = False
        for key, value in records:
            self._producer.produce(self._spec.offsets_topic, value, key, on_delivery=self._flush)

    def _report_what_moved(self) -> None:
        if self._moved:
            self._report()

    def _report(self) -> None:
        self._moved = False
        counters = self._counters
        self._control.report(
            {
                "source-record-poll-total": counters.polled,
                "source-record-write-total": counters.written,
                "source-record-active-count": self._machine.in_flight_records,
                "total-records-skipped": counters.skipped,
                "offset-commit-success-total": counters.commits,
                "offset-commit-failure-total": counters.commit_failures,
                "topics": dict(counters.topics),
            }
        )

    def _measure(self) -> None:
        meter = self._counters.meter
        meter.active_records.add(self._machine.in_flight_records)
        self._control.report(meter.facts("poll", "source"), soon=False)  # the reporter looks as often as that

    # --------------------------------------------------------------- producing

    def _send(self, outputs: Sequence[SourceOutput]) -> None:
        """Turn what was polled into runs of one source partition and produce them in order."""
        if self._quiet_since is None:
            self._quiet_since = self._clock.monotonic()
        start, count = 0, len(outputs)
        while start < count:
            first = outputs[start]
            if isinstance(first, EncodedBatch):
                self._send_encoded(first)
                start += 1
                continue
            end = start + 1
            while end < count and _continues(first, outputs[end]):
                end += 1
            self._send_records([each for each in outputs[start:end] if isinstance(each, Record)])
            start = end

    def _send_encoded(self, batch: EncodedBatch) -> None:
        count = check_columns(batch)
        self._counters.polled += count
        if count and self._sender.chain is not None:
            with self._control.calling("apply", TRANSFORMING_PATIENCE_S, of="a transform"):
                whole = self._sender.chain.apply_encoded(batch)
            if whole is None:
                self._produce(records_of(batch), batch.partition, batch.offset, offset_now=batch.offset_now)
                return
            batch, count = whole, len(whole.values)
        if count:  # a batch that only moves the offset names a topic it may never write to
            self._sender.use_topic(batch.topic)
        size = column_bytes(batch.keys) + column_bytes(batch.values)
        delivery = self._open_run(batch.partition, batch.offset, count, size, offset_now=batch.offset_now)
        self._sender.send_encoded(batch, delivery)

    def _send_records(self, records: list[Record]) -> None:
        self._counters.polled += len(records)
        offset = next((each.offset for each in reversed(records) if each.offset is not None), None)
        self._produce(records, records[0].partition, offset)

    def _produce(
        self,
        records: list[Record],
        partition: SourcePartition | None,
        offset: SourceOffset | None,
        *,
        offset_now: bool = False,
    ) -> None:
        """Send what the transforms leave of a run; its offset stands for all of it."""
        if self._sender.chain is not None:
            with self._control.calling("apply", TRANSFORMING_PATIENCE_S, of="a transform"):
                records = self._sender.transform(self._sender.chain, records)
        messages = self._sender.encode(records)
        for topic in {message.topic: None for message in messages}:
            self._sender.use_topic(topic)
        size = sum(length(message.key) + length(message.value) for message in messages)
        delivery = self._open_run(partition, offset, len(messages), size, offset_now=offset_now)
        self._sender.send(messages, delivery)

    def _open_run(
        self,
        partition: SourcePartition | None,
        offset: SourceOffset | None,
        records: int,
        size_bytes: int,
        *,
        offset_now: bool = False,
    ) -> Delivery:
        identity = None if partition is None else partition_identity(partition)
        if identity is not None and partition is not None:
            self._partitions.setdefault(identity, partition)
        self._token += 1
        event = machine.Polled(
            token=self._token,
            partition=identity,
            offset=None if offset is None else dict(offset),  # the source may have one map, and count on in it
            records=records,
            size_bytes=size_bytes,
            offset_now=offset_now,
        )
        self._do(self._machine.step(event))
        return Delivery(self._token, self._inbox)


def _source_task(plugin: Plugin, settings: BaseModel) -> SourceTask:
    task = plugin.task(settings)
    if not isinstance(task, SourceTask):
        raise TypeError(f"plugin {plugin.name} made a {type(task).__name__}, not a SourceTask")
    return task


def _continues(first: Record, other: SourceOutput) -> bool:
    return isinstance(other, Record) and (other.partition is first.partition or other.partition == first.partition)
