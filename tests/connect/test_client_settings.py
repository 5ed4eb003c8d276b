"""Java client settings in librdkafka's words; librdkafka itself is the judge"""

import pytest
from confluent_kafka import Consumer, Producer

from tidemill.connect.client_settings import RENAMED, SAME, security_settings, translate, with_prefix


@pytest.mark.parametrize(
    ("java", "librdkafka"),
    [
        ({"acks": "all", "linger.ms": "5"}, {"acks": "all", "linger.ms": "5"}),
        ({"max.request.size": "1000"}, {"message.max.bytes": "1000"}),
        ({"buffer.memory": "33554432"}, {"queue.buffering.max.kbytes": "32768"}),
        (
            {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"},
            {"partition.assignment.strategy": "cooperative-sticky"},
        ),
        ({"key.serializer": "org.example.Serializer"}, {}),
    ],
)
def test_settings_are_translated(java: dict[str, str], librdkafka: dict[str, str]) -> None:
    assert translate(java).settings == librdkafka
    assert translate(java).unknown == ()


def test_a_login_sentence_becomes_user_and_password() -> None:
    sentence = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required\n"
        'username="alice" password="a \\"quoted\\" se=cret;";'
    )
    assert translate({"sasl.jaas.config": sentence}).settings == {
        "sasl.username": "alice",
        "sasl.password": 'a "quoted" se=cret;',
    }


@pytest.mark.parametrize("java", [{"nonsense": "1"}, {"sasl.jaas.config": "no options"}, {"buffer.memory": "lots"}])
def test_what_has_no_counterpart_is_reported(java: dict[str, str]) -> None:
    translation = translate(java)
    assert translation.unknown == tuple(java)
    assert translation.settings == {}


@pytest.mark.parametrize("name", sorted({*SAME, *RENAMED.values()}))
def test_librdkafka_knows_every_name(name: str) -> None:
    """A name it does not know is refused in another way than a value it does not like."""
    for client in (Producer, Consumer):
        complaint = ""
        try:
            client({"group.id": "g", name: "no such value"})
        except Exception as error:
            complaint = str(error)
        assert "No such configuration property" not in complaint


def test_prefixes_are_cut_off() -> None:
    assert with_prefix({"producer.acks": "1", "producerless": "2"}, "producer.") == {"acks": "1"}


def test_security_of_the_worker() -> None:
    assert security_settings({"ssl.ca.location": "x", "security.protocol": "SSL", "group.id": "g"}) == {
        "ssl.ca.location": "x",
        "security.protocol": "SSL",
    }
