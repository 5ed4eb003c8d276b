"""From what a source returned to messages of the producer

Records pass through the transforms and the converters; encoded batches go as they are unless there are transforms.
Whatever can be handed over as a batch is, since a call into librdkafka costs more than a record does; headers,
timestamps and explicit partitions need a call each.

A record that no converter can write, or that is too large for any request, is left out if the error policy allows it
and fails the task if not. What a source may not do at all, such as writing to its own offsets topic, fails it always.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tidemill.connect.api import EncodedBatch, Fatal, Headers, Json, NotConnected, Poison, Record
from tidemill.connect.converters.registry import make_converter
from tidemill.connect.task_spec import TaskSpec
from tidemill.connect.tasks.chained import chain_of, log_notices, unless_encoded
from tidemill.connect.tasks.kafka_clients import admin_config, explain, kafka_error, raise_if_lost
from tidemill.connect.tasks.meter import TaskMeter
from tidemill.connect.tasks.resting_producer import RestingProducer
from tidemill.connect.tasks.topic_creation import TopicCreation
from tidemill.connect.tolerance import ErrorPolicy, Stage, Verdict
from tidemill.connect.transforms.chain import Chain, Encode

log = structlog.get_logger("tidemill.connect.source")

QUEUE_WAIT_S = 0.1  # for room in the client's queue, which the task's own bound makes rare
TOPIC_CREATION_TIMEOUT_S = 30.0

TOPICS_MAX = 1_000
"""Topics in use at a time. More than any capture has tables; topics named after the hour pass through them in weeks."""


class Outgoing(NamedTuple):
    """A record ready to be produced."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class Delivery:
    """The acknowledgements of one run, counted by librdkafka's callback and collected from the inbox."""

    __slots__ = ("_inbox", "acknowledged", "left_out", "listed", "refused", "token")

    def __init__(self, token: int, inbox: list["Delivery"]) -> None:
        self.token = token
        self.acknowledged = 0
        self.left_out = 0
        self.refused: list[tuple[KafkaError, str]] = []  # with the topic
        self.listed = False
        self._inbox = inbox

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.refused.append((error, message.topic() or ""))
        if not self.listed:
            self._list()

    def leave_out(self) -> None:
        """One record of the run is not produced."""
        self.left_out += 1
        if not self.listed:
            self._list()

    def _list(self) -> None:
        self.listed = True
        self._inbox.append(self)


class SourceCounters:
    """Totals of the task, across its sessions, under Connect's metric names."""

    __slots__ = ("commit_failures", "commits", "meter", "polled", "skipped", "topics", "written")

    def __init__(self, meter: TaskMeter) -> None:
        self.meter = meter
        self.polled = 0
        self.written = 0
        self.skipped = 0
        self.commits = 0
        self.commit_failures = 0
        self.topics: Counter[str] = Counter()  # batches written to each


class Sender:
    """Produces the records of one session."""

    def __init__(
        self,
        producer: RestingProducer,
        spec: TaskSpec,
        counters: SourceCounters,
        report: Callable[[Mapping[str, Json]], None],
    ) -> None:
        self._producer = producer
        self._spec = spec
        self._counters = counters
        self._report = report
        self._policy = ErrorPolicy.from_config(spec.config)
        self._creation = TopicCreation(spec.config)
        self._key_converter = make_converter(spec.key_converter)
        self._value_converter = make_converter(spec.value_converter)
        self._encode_key: Encode = self._key_converter.encode
        self._encode_value: Encode = self._value_converter.encode
        self.chain = chain_of(spec.config, self._key_converter, self._value_converter)
        if self.chain is not None:
            self._encode_key = unless_encoded(self._encode_key)
            self._encode_value = unless_encoded(self._encode_value)
        self._ready_topics: dict[str, None] = {}  # the one written to last stands last

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics written to of late; may be read on another thread."""
        return tuple(self._ready_topics)

    def transform(self, chain: Chain, records: Sequence[Record]) -> list[Record]:
        """Pass records through the transforms; those that are or must be left out are missing."""
        kept = []
        for record, outcome in zip(records, chain.apply(records), strict=True):
            if isinstance(outcome, Record):
                kept.append(outcome)
            elif outcome is not None:
                error = ValueError(f"{outcome.stage.alias} ({outcome.stage.name}): {outcome.error}")
                error.__cause__ = outcome.error
                self.leave_out(Stage.TRANSFORMATION, error, record.topic or "")
        log_notices(chain, log, str(self._spec.task))
        return kept

    def encode(self, records: Sequence[Record]) -> list[Outgoing]:
        """Pass records through the converters; those that must be left out are missing."""
        encode_key, encode_value = self._encode_key, self._encode_value
        messages = []
        for record in records:
            topic = record.topic
            if not topic:
                raise ValueError("the source returned a record without a topic")
            stage = Stage.KEY_CONVERTER
            try:
                key = encode_key(record.key, record.key_schema)
                stage = Stage.VALUE_CONVERTER
                value = encode_value(record.value, record.value_schema)
            except ValueError as error:
                self.leave_out(stage, error, topic)
                continue
            messages.append(Outgoing(topic, key, value, record.headers, record.timestamp_ms, record.kafka_partition))
        return messages

    def send(self, messages: Sequence[Outgoing], delivery: Delivery) -> None:
        """Produce messages in order, runs of plain ones as batches."""
        batch: list[dict[str, Any]] = []
        topic = ""
        for message in messages:
            plain = not message.headers and message.timestamp_ms is None and message.partition is None
            if batch and (message.topic != topic or not plain):
                self._produce_batch(topic, batch, delivery)
                batch = []
            if plain:
                topic = message.topic
                batch.append({"key": message.key, "value": message.value})
            else:
                self._produce(message, delivery)
        if batch:
            self._produce_batch(topic, batch, delivery)

    def send_encoded(self, batch: EncodedBatch, delivery: Delivery) -> None:
        """Produce a batch that the source has serialised."""
        if batch.headers or batch.timestamps_ms:
            headers = batch.headers or [()] * len(batch.values)
            timestamps: Sequence[int | None] = batch.timestamps_ms or [None] * len(batch.values)
            for key, value, header, timestamp in zip(batch.keys, batch.values, headers, timestamps, strict=True):
                self._produce(Outgoing(batch.topic, key, value, header, timestamp), delivery)
            return
        messages = [{"key": key, "value": value} for key, value in zip(batch.keys, batch.values, strict=True)]
        if messages:
            self._produce_batch(batch.topic, messages, delivery)

    def _produce(self, message: Outgoing, delivery: Delivery) -> None:
        options: dict[str, Any] = {"on_delivery": delivery}
        if message.headers:
            options["headers"] = list(message.headers)
        if message.timestamp_ms is not None:
            options["timestamp"] = message.timestamp_ms
        if message.partition is not None:
            options["partition"] = message.partition
        while True:
            try:
                self._producer.produce(message.topic, message.value, message.key, **options)
                return
            except BufferError:
                self._producer.poll(QUEUE_WAIT_S)
            except KafkaException as error:
                self._refused(message.topic, kafka_error(error), delivery)
                return

    def _produce_batch(self, topic: str, messages: list[dict[str, Any]], delivery: Delivery) -> None:
        while messages:
            if self._producer.produce_batch(topic, messages, on_delivery=delivery) == len(messages):
                return
            full = []
            for message in messages:
                error = message.pop("_error", None)
                if error is None:
                    continue
                if error.code() == KafkaError._QUEUE_FULL:
                    full.append(message)
                else:
                    self._refused(topic, error, delivery)
            messages = full
            self._producer.poll(QUEUE_WAIT_S)

    def _refused(self, topic: str, error: KafkaError, delivery: Delivery) -> None:
        """A record the producer would not even queue."""
        raise_if_lost(error)
        names_record = error.code() == KafkaError.MSG_SIZE_TOO_LARGE
        reason = (Poison if names_record else Fatal)(explain(error, f"cannot produce a record to topic {topic}"))
        self.leave_out(Stage.KAFKA_PRODUCE, reason, topic, names_record=names_record)
        delivery.leave_out()

    def tolerates(self, stage: Stage) -> bool:
        """Whether a record that failed at this stage may be left out."""
        return self._policy.verdict(stage) is not Verdict.FAIL

    def leave_out(self, stage: Stage, error: Exception, topic: str, *, names_record: bool = True) -> None:
        """Leave a record out, or raise when the policy does not allow it."""
        tolerated = self._policy.verdict(stage, names_record=names_record) is not Verdict.FAIL
        self._counters.meter.failed(tolerated=tolerated, logged=tolerated and self._policy.log_enable)
        if not tolerated:
            raise error if isinstance(error, Fatal) else Poison(f"{stage} for topic {topic}: {error}") from error
        self._counters.skipped += 1
        if self._policy.log_enable:
            log.error("record left out", task=str(self._spec.task), stage=stage.value, topic=topic, error=str(error))

    def close(self) -> None:
        """Release the transforms."""
        try:
            if self.chain is not None:
                self.chain.close()
        except Exception:
            log.exception("a transform failed while it was closed", task=str(self._spec.task))

    # ------------------------------------------------------------------ topics

    def use_topic(self, topic: str) -> None:
        """Make sure that a topic may be written to, and exists where the connector creates its topics."""
        if topic in self._ready_topics:
            self._counters.topics[topic] += 1
            self._ready_topics[topic] = self._ready_topics.pop(topic)
            return
        if topic == self._spec.offsets_topic:
            raise Fatal(f"a source must not write to the topic of its own offsets, {topic}")
        if self._creation.enabled:
            self._create_topic(topic)
        self._ready_topics[topic] = None
        self._counters.topics[topic] += 1
        if len(self._ready_topics) > TOPICS_MAX:
            idle = next(iter(self._ready_topics))
            del self._ready_topics[idle]
            self._counters.topics.pop(idle, None)
        self._report({"topics": dict(self._counters.topics)})

    def _create_topic(self, topic: str) -> None:
        recipe = self._creation.recipe(topic)
        wanted = NewTopic(topic, recipe.partitions, recipe.replication_factor, config=dict(recipe.config))
        admin = AdminClient(admin_config(self._spec))
        future = admin.create_topics([wanted], operation_timeout=TOPIC_CREATION_TIMEOUT_S)[topic]
        try:
            future.result(TOPIC_CREATION_TIMEOUT_S)
        except KafkaException as error:
            reason = kafka_error(error)
            if reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if reason.retriable() or reason.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
                raise NotConnected(explain(reason, f"cannot create topic {topic}")) from error
            raise Fatal(explain(reason, f"cannot create topic {topic}")) from error
        log.info("topic created", topic=topic, partitions=recipe.partitions)


def check_columns(batch: EncodedBatch) -> int:
    """How many records a batch has; raises ValueError when its columns disagree."""
    count = len(batch.values)
    for name in ("keys", "headers", "timestamps_ms"):
        column = getattr(batch, name)
        if len(column) != count and (name == "keys" or column):
            raise ValueError(f"an EncodedBatch with {count} values and {len(column)} {name}")
    return count


def column_bytes(column: Sequence[bytes | None]) -> int:
    """Bytes of keys or values."""
    return sum(map(len, filter(None, column)))


def length(data: bytes | None) -> int:
    """Bytes of a key or value."""
    return 0 if data is None else len(data)
