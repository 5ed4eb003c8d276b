"""The Kafka clients of a task: Connect's defaults in librdkafka's words

A source must not lose a record and must keep the order of a key, so its producer asks for every replica, is
idempotent and never gives up on its own: an unreachable cluster means waiting. A sink's consumer starts at the
beginning of a topic that its group has never read, and commits only what the task says is safe.

Connectors override anything here with `producer.override.*` and `consumer.override.*`.
"""

from collections.abc import Mapping
from typing import TypeAlias

from confluent_kafka import KafkaError, KafkaException

from tidemill.connect.task_spec import TaskSpec

ClientConfig: TypeAlias = dict[str, str | int | float | bool]


class ClientLost(Exception):
    """A client can do nothing more; a new one, started from what is stored, can."""


def producer_config(spec: TaskSpec) -> ClientConfig:
    """Settings of a source's producer."""
    return {
        "client.id": f"connector-producer-{spec.task}",
        "acks": "all",
        "enable.idempotence": True,
        "message.timeout.ms": 0,  # for ever
        "linger.ms": 5,
        # The partition a Java producer would choose for the key, so that both write a key to the same place.
        "partitioner": "murmur2_random",
        # The task bounds what is in flight itself, by bytes; the client's own limit would only get in the way.
        "queue.buffering.max.messages": 0,
        "queue.buffering.max.kbytes": 2_097_151,
        **spec.client_config,
        **spec.producer_config,
        "bootstrap.servers": spec.bootstrap_servers,
    }


ONE_BY_ONE: ClientConfig = {"batch.num.messages": 1, "linger.ms": 0}
"""Over a producer's settings: every record in a batch of its own."""


def dead_letter_config(spec: TaskSpec) -> ClientConfig:
    """Settings of the producer that writes a sink's dead letters."""
    return {**producer_config(spec), "client.id": f"connector-dlq-producer-{spec.task}"}


def admin_config(spec: TaskSpec) -> ClientConfig:
    """Settings of the client that creates topics."""
    return {
        "client.id": f"connector-adminclient-{spec.task}",
        **spec.client_config,
        "bootstrap.servers": spec.bootstrap_servers,
    }


def consumer_config(spec: TaskSpec) -> ClientConfig:
    """Settings of a sink's consumer."""
    return {
        "client.id": f"connector-consumer-{spec.task}",
        "group.id": f"connect-{spec.task.connector}",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_uncommitted",  # Java's default, unlike librdkafka's
        "session.timeout.ms": 10_000,  # what a killed task's partitions wait before the next process reads them
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        **spec.client_config,
        **spec.consumer_config,
        "bootstrap.servers": spec.bootstrap_servers,
    }


def offsets_reader_config(spec: TaskSpec) -> Mapping[str, str]:
    """Settings of the consumer that reads stored offsets."""
    return {**spec.client_config, "bootstrap.servers": spec.bootstrap_servers}


def kafka_error(error: KafkaException) -> KafkaError:
    """The error inside librdkafka's exception."""
    found: KafkaError = error.args[0]
    return found


def raise_if_lost(error: KafkaError) -> None:
    """Raise ClientLost for an error after which the client does nothing more."""
    if error.fatal() or error.code() in (KafkaError._FATAL, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
        raise ClientLost(f"the producer cannot go on: {error.str()}")


def explain(error: KafkaError, what: str, *, reading: bool = False) -> str:
    """One line for people: what failed and what to do about it, for whoever writes unless `reading`."""
    advice = (reading and _ADVICE_FOR_READERS.get(error.code())) or _ADVICE.get(error.code(), "")
    return f"{what}: {error.str()}" + (f"; {advice}" if advice else "")


_ADVICE = {
    KafkaError.MSG_SIZE_TOO_LARGE: (
        "raise max.message.bytes of the topic and producer.override.message.max.bytes of the connector"
    ),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow the worker's user to write to the topic",
    KafkaError._UNKNOWN_TOPIC: "create the topic, or set topic.creation.default.partitions and .replication.factor",
    KafkaError.UNKNOWN_TOPIC_OR_PART: (
        "create the topic, or set topic.creation.default.partitions and .replication.factor"
    ),
}
_ADVICE_FOR_READERS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow the worker's user to read the topic",
    KafkaError._UNKNOWN_TOPIC: "create the topic, or correct its name",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic, or correct its name",
}
