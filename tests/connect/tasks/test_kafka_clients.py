"""Client settings of tasks"""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tidemill.connect.task_spec import TaskSpec
from tidemill.connect.tasks import kafka_clients as clients


def test_librdkafka_takes_them(spec: Callable[..., TaskSpec]) -> None:
    given = spec("p", name="c")
    Producer(clients.producer_config(given))
    Producer(clients.dead_letter_config(given))
    Consumer(clients.consumer_config(given)).close()
    AdminClient(clients.admin_config(given))


def test_names_are_kafka_connects(spec: Callable[..., TaskSpec]) -> None:
    given = spec("p", name="c", task=2)
    assert clients.producer_config(given)["client.id"] == "connector-producer-c-2"
    assert clients.consumer_config(given)["client.id"] == "connector-consumer-c-2"
    assert clients.consumer_config(given)["group.id"] == "connect-c"
    assert clients.admin_config(given)["client.id"] == "connector-adminclient-c-2"
    assert clients.dead_letter_config(given)["client.id"] == "connector-dlq-producer-c-2"


@pytest.mark.parametrize("make", [clients.producer_config, clients.consumer_config])
def test_the_connector_has_the_last_word_but_for_the_address(
    spec: Callable[..., TaskSpec], make: Callable[[TaskSpec], dict[str, Any]]
) -> None:
    override = {"client.id": "mine", "bootstrap.servers": "elsewhere:1"}
    given = spec("p", client_config={"client.id": "worker"}, producer_config=override, consumer_config=override)
    assert make(given)["client.id"] == "mine"
    assert make(given)["bootstrap.servers"] == given.bootstrap_servers


def test_errors_say_what_to_do() -> None:
    error = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    assert clients.kafka_error(KafkaException(error)) is error
    assert clients.explain(error, "cannot do it").startswith("cannot do it: Broker: Message size too large; raise")
    assert clients.explain(KafkaError(KafkaError._TIMED_OUT), "x") == "x: Local: Timed out"


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC])
def test_a_reader_is_not_told_what_helps_a_writer(code: int) -> None:
    assert "topic.creation.default.partitions" in clients.explain(KafkaError(code), "x")
    assert clients.explain(KafkaError(code), "x", reading=True).endswith("; create the topic, or correct its name")
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert clients.explain(refused, "x", reading=True).endswith("; allow the worker's user to read the topic")
