"""What the hands-on commands say when there is no cluster."""

import socket
from pathlib import Path

import pytest
import typer
from confluent_kafka import KafkaError, KafkaException

from tidemill.bootstrap import LastError, client_settings, connect_admin, reason_of, unanswered, unreachable
from tidemill.core.client.connection import Address, ConnectionFailed, RequestTimedOut
from tidemill.core.runtime.net import HandshakeFailed


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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("broker certificate could not be verified, verify that ssl.ca.location is", "ssl.truststore.location"),
        ("error:0A00045C:SSL routines::tlsv13 alert certificate required: SSL alert", "ssl.keystore.location"),
        ("error:0A000418:SSL routines::tlsv1 alert unknown ca: SSL alert number 48", "who signed the certificate"),
        ("error:0A000410:SSL routines::sslv3 alert handshake failure", "alert handshake failure; the broker's log"),
    ],
)
def test_a_handshake_that_fails_is_no_broker_that_is_not_there(words: str, says: str) -> None:
    text = unreachable("h:1", f"ssl://h:1/bootstrap: SSL handshake failed: {words} (after 8ms in state SSL_HANDSHAKE)")
    assert says in text
    assert "no broker" not in text


def test_a_broker_that_is_slow_or_strange_is_not_said_to_be_away() -> None:
    silent = RequestTimedOut(Address("h", 1), "no answer to DESCRIBE_QUORUM within 10000 ms")
    assert "h:1 gives no answer to DESCRIBE_QUORUM within 10000 ms: it" in unanswered("h:1", silent)
    strange = ConnectionFailed(Address("h", 1), "cannot connect: no")
    strange.__cause__ = HandshakeFailed("the broker's certificate has expired: renew it")
    assert unanswered("h:1", strange) == (
        "no encrypted connection to h:1: the broker's certificate has expired: renew it"
    )
    assert "no broker answers at h:1 (gone): start one" in unanswered("h:1", ConnectionFailed(Address("h", 1), "gone"))


def test_a_no_that_comes_behind_the_handshake_is_one_too() -> None:
    told = "ssl://h:1/bootstrap: Receive failed: error:0A00045C:SSL routines::tlsv13 alert certificate required"
    assert "the broker wants a certificate" in unreachable("h:1", told)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("ssl.trustore.location=x", "did you mean ssl.truststore.location?"),
        ("ssl.truststore.location=nowhere.pem", "nowhere.pem cannot be read: No such file"),
    ],
)
def test_what_is_wrong_in_a_file_of_client_settings_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, says: str
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol=SSL\n{line}\n")
    with pytest.raises(typer.Exit) as ended:
        client_settings("h:1", LastError(), None, file)
    assert ended.value.exit_code == 2
    assert says in capsys.readouterr().err


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
    assert "tidemill doctor" in reason_of(KafkaException(KafkaError(KafkaError._TIMED_OUT)))


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
