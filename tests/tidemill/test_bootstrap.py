"""What the hands-on commands say when there is no cluster."""

import socket

import pytest
import typer
from confluent_kafka import KafkaError, KafkaException

from tidemill.bootstrap import LastError, client_settings, connect_admin, reason_of, unreachable


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("", "no broker answers at h:1: start one"),
        (
            "h:1/bootstrap: Connect to ipv4#1.2.3.4:1 failed: Connection refused (after 0ms in state CONNECT)",
            "(Connection refused)",
        ),
    ],
)
def test_the_sentence_has_the_reason_and_what_to_do(reason: str, says: str) -> None:
    text = unreachable("h:1", reason)
    assert says in text
    assert "tidemill broker start" in text
    assert "--bootstrap-server" in text


def test_the_first_complaint_is_kept() -> None:
    last = LastError()
    last(KafkaError(KafkaError._TRANSPORT, "first"))
    last(KafkaError(KafkaError._ALL_BROKERS_DOWN, "second"))
    assert last.text == "first"


def test_settings_can_be_added_to() -> None:
    settings = client_settings("h:1", LastError(), {"acks": "all"})
    assert (settings["bootstrap.servers"], settings["acks"]) == ("h:1", "all")


def test_an_unknown_topic_is_said_in_our_words() -> None:
    assert "tidemill topic list" in reason_of(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
    assert reason_of(KafkaException(KafkaError(KafkaError._FAIL, "odd"))) == "odd"


@pytest.mark.integration
def test_a_port_nobody_listens_on_ends_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        with pytest.raises(typer.Exit) as ended:
            connect_admin(address)
    assert ended.value.exit_code == 1
    err = capsys.readouterr().err
    assert err.startswith(f"tidemill: no broker answers at {address} (Connection refused)")
    assert err.count("\n") == 1
