"""The topic for records a sink could not take in

A dead letter is the record as it was read (key, value, headers and timestamp untouched), perhaps with headers that
tell what went wrong. The sink's offsets must not pass a dead letter that is not stored yet, so `flush` comes before
the commit and fails when it cannot be kept.
"""

from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tidemill.connect.api import Fatal, NotConnected
from tidemill.connect.task_spec import TaskSpec
from tidemill.connect.tasks.kafka_clients import admin_config, dead_letter_config, explain, kafka_error
from tidemill.connect.tolerance import ErrorPolicy, FailedRecord, dead_letter_headers
from tidemill.connect.topic_log import copies

log = structlog.get_logger("tidemill.connect.dead_letters")

CREATION_TIMEOUT_S = 30.0
FLUSH_TIMEOUT_S = 30.0

REPLICATION_FACTOR = "errors.deadletterqueue.topic.replication.factor"


class DeadLetters:
    """Writes dead letters; the producer and the topic are made when the first one comes."""

    def __init__(self, spec: TaskSpec, policy: ErrorPolicy) -> None:
        self.sent = self.refused = 0
        self._spec = spec
        self._policy = policy
        self._producer: Producer | None = None
        self._error: KafkaError | None = None

    def send(self, message: Message, failed: FailedRecord) -> None:
        """Queue a record for the dead-letter topic."""
        if self._producer is None:
            self._create_topic()
            self._producer = Producer(dead_letter_config(self._spec))
        headers: list[Any] = list(message.headers() or ())
        if self._policy.dead_letter_headers:
            headers += dead_letter_headers(failed, self._spec.task.connector, self._spec.task.task)
        _, timestamp_ms = message.timestamp()
        try:
            self._producer.produce(
                self._policy.dead_letter_topic,
                message.value(),
                message.key(),
                headers=headers,
                timestamp=max(0, timestamp_ms),
                on_delivery=self._delivered,
            )
        except KafkaException as error:
            raise Fatal(explain(kafka_error(error), f"cannot write to {self._policy.dead_letter_topic}")) from error
        self.sent += 1
        self._producer.poll(0)

    def flush(self) -> None:
        """Return once every dead letter is stored."""
        if self._producer is None:
            return
        waiting = self._producer.flush(FLUSH_TIMEOUT_S)
        if self._error is not None:
            raise Fatal(explain(self._error, f"cannot write to {self._policy.dead_letter_topic}"))
        if waiting:
            raise NotConnected(f"{waiting} dead letters were not acknowledged within {FLUSH_TIMEOUT_S:g} s")

    def close(self) -> None:
        """Give up what is not stored; its offsets were not committed either."""
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(1.0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused += 1
            self._error = error

    def _create_topic(self) -> None:
        topic, wanted = self._policy.dead_letter_topic, self._policy.dead_letter_replication_factor
        admin = AdminClient(admin_config(self._spec))
        try:
            found = admin.list_topics(timeout=CREATION_TIMEOUT_S)
            if topic in found.topics:
                return  # who may write to it need not be allowed to create topics
            replicas = copies(wanted, len(found.brokers), at_most=REPLICATION_FACTOR not in self._spec.config)
            admin.create_topics([NewTopic(topic, 1, replicas)])[topic].result(CREATION_TIMEOUT_S)
            log.info("dead-letter topic created", topic=topic, replicas=replicas)
        except KafkaException as error:
            reason = kafka_error(error)
            if reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            advice = ""
            if reason.code() == KafkaError.INVALID_REPLICATION_FACTOR:
                advice = f"; set {REPLICATION_FACTOR} to the number of brokers, or leave it out"
            what = explain(reason, f"cannot create the dead-letter topic {topic}") + advice
            if reason.retriable() or reason.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
                raise NotConnected(what) from error
            raise Fatal(what) from error
