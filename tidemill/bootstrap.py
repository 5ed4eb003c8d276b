"""Finding the cluster, and saying what to do when it is not there

Every hands-on command takes `--bootstrap-server HOST:PORT` (or the variable TIDEMILL_BOOTSTRAP) and asks the cluster
for its topics first: that one question turns a wrong address, a stopped broker and a firewall into one sentence instead
of a stream of retries. librdkafka's own log is kept quiet; what it says last becomes the reason.
"""

import logging
import os
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package re-exports without saying so
    AdminClient,
    ClusterMetadata,
)

from tidemill.connect.client_settings import translate
from tidemill.core.client.connection import ConnectionFailed, RequestTimedOut
from tidemill.core.config import nearest, parse_config_text
from tidemill.core.runtime.net import HandshakeFailed
from tidemill.core.security.client_tls import CLIENT_NAMES
from tidemill.output import fail

REPLY_TIMEOUT_S = 5.0  # a broker that is up answers in milliseconds; a person waits this long without wondering

_silent = logging.getLogger("tidemill.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


_TLS_ADVICE = {
    "could not be verified": "the broker's certificate is not trusted: set ssl.truststore.location in the file of "
    "--command-config to the certificate of who signed it",
    "certificate required": "the broker wants a certificate: set ssl.keystore.location in the file of --command-config",
    "alert unknown ca": "the broker does not know who signed the certificate of ssl.keystore.location",
}


class LastError:
    """What librdkafka complained about most recently."""

    def __init__(self) -> None:
        self.text = ""

    def __call__(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # which says nothing
            self.text = self.text or error.str()


def read_command_config(file: Path | None) -> dict[str, str]:
    """Settings of the client from a file; ends the command when it cannot be read."""
    if file is None:
        return {}
    try:
        return parse_config_text(file.read_text(encoding="utf-8"), file.name)
    except OSError as error:
        fail(f"--command-config {file}: {error.strerror}", 2)
    except ValueError as error:
        fail(f"--command-config {file}: {error}", 2)


def _librdkafka(file: Path | None) -> dict[str, str]:
    """The same in librdkafka's words; ends the command at what has no counterpart there."""
    found = translate(read_command_config(file))
    for name in found.unknown:
        near = nearest(name, CLIENT_NAMES)
        hint = "" if near is None else f": did you mean {near}?"
        fail(f"--command-config {file}: {found.reasons.get(name, f'{name} is not a setting of a client{hint}')}", 2)
    for name, value in found.settings.items():
        if name in ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location") and value != "probe":
            try:  # librdkafka does not say which file it misses; "probe" is a word of its own
                os.stat(value)
            except OSError as error:
                fail(f"--command-config {file}: {value} cannot be read: {error.strerror}", 2)
    return dict(found.settings)


def client_settings(
    bootstrap: str,
    last_error: LastError,
    extra: dict[str, str] | None = None,
    command_config: Path | None = None,
) -> dict[str, Any]:
    """Settings of every client of the command line; those of `command_config` are stronger than its defaults."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "tidemill-cli",
        "socket.timeout.ms": 10_000,
        "error_cb": last_error,
        "logger": _silent,
        **_librdkafka(command_config),
        **(extra or {}),
    }


def connect_admin(
    bootstrap: str, command_config: Path | None = None, topic: str | None = None
) -> tuple[AdminClient, ClusterMetadata]:
    """An admin client and what the cluster says of `topic`, or of all topics; ends the command when nobody answers."""
    last_error = LastError()
    admin = _admin(client_settings(bootstrap, last_error, None, command_config))
    try:
        return admin, admin.list_topics(topic, timeout=REPLY_TIMEOUT_S)
    except KafkaException as error:
        admin.poll(0)  # hear the reason
        problem = error.args[0]
        if problem.code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN):
            fail(unreachable(bootstrap, last_error.text))
        fail(problem.str())


def _admin(settings: dict[str, Any]) -> AdminClient:
    try:
        return AdminClient(settings)
    except KafkaException as error:
        fail(f"librdkafka does not take these settings: {error.args[0].str()}", 2)


def unreachable(bootstrap: str, reason: str) -> str:
    """The sentence for a cluster that does not answer."""
    _, _, told = reason.rpartition("failed: ")
    told = told.split(" (after")[0].strip()
    if "handshake failed" in reason or "SSL routines" in reason:  # TLS 1.3 hears the broker's no behind its own yes
        return f"the TLS handshake with {bootstrap} failed: {_of_tls(told)}"
    hangs_up = "" if told else "; if it is there and hangs up, try security.protocol=SSL in a file for --command-config"
    return (
        f"no broker answers at {bootstrap}{f' ({told})' if told else ''}: start one with 'tidemill broker start', "
        f"or say where it is with --bootstrap-server HOST:PORT{hangs_up}"
    )


def unanswered(bootstrap: str, error: ConnectionFailed) -> str:
    """The sentence for a cluster that could not be asked, or has not answered."""
    if isinstance(error.__cause__, HandshakeFailed):
        return f"no encrypted connection to {error.address}: {error.__cause__}"
    if isinstance(error, RequestTimedOut):
        return (
            f"{error.address} gives {error.reason}: it is not to be reached from here, hangs, or finds no active "
            "controller; see 'tidemill cluster status' and its log"
        )
    return unreachable(bootstrap, f"failed: {error.reason}")


def _of_tls(told: str) -> str:
    """What to do about a handshake that failed, by librdkafka's words."""
    for words, advice in _TLS_ADVICE.items():
        if words in told:
            return advice
    return f"{told}; the broker's log says more"


def why_not_acknowledged(producer: Producer, bootstrap: str, reason: str) -> str:
    """Why records wait to be acknowledged: nobody answers, or somebody does and goes on refusing them.

    librdkafka sends a record again on a retriable error, a full disk for one, and keeps which error it was to itself.
    """
    try:
        producer.list_topics(timeout=REPLY_TIMEOUT_S)
    except KafkaException:
        return unreachable(bootstrap, reason)
    return (
        f"the cluster at {bootstrap} answers and does not take them: a full disk, too few replicas in sync or a "
        "partition without a leader; 'tidemill doctor' and the broker's log say which"
    )


def reason_of(error: KafkaException) -> str:
    """The text of a client's exception."""
    problem = error.args[0]
    if isinstance(problem, KafkaError) and problem.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return "there is no such topic: 'tidemill topic list' shows those that are"
    if isinstance(problem, KafkaError) and problem.code() == KafkaError._TIMED_OUT:  # the first address has answered
        return f"{problem.str()}: 'tidemill doctor' says which addresses of the cluster do not answer from here"
    return str(problem.str() if isinstance(problem, KafkaError) else problem)
