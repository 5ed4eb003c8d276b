"""Finding the cluster, and saying what to do when it is not there

Every hands-on command takes `--bootstrap-server HOST:PORT` (or the variable TIDEMILL_BOOTSTRAP) and asks the cluster
for its topics first: that one question turns a wrong address, a stopped broker and a firewall into one sentence instead
of a stream of retries. librdkafka's own log is kept quiet; what it says last becomes the reason.
"""

import logging
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package re-exports without saying so
    AdminClient,
    ClusterMetadata,
)

from tidemill.output import fail

REPLY_TIMEOUT_S = 5.0  # a broker that is up answers in milliseconds; a person waits this long without wondering

_silent = logging.getLogger("tidemill.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


class LastError:
    """What librdkafka complained about most recently."""

    def __init__(self) -> None:
        self.text = ""

    def __call__(self, error: KafkaError) -> None:
        self.text = self.text or error.str()


def client_settings(bootstrap: str, last_error: LastError, extra: dict[str, str] | None = None) -> dict[str, Any]:
    """Settings of every client of the command line."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "tidemill-cli",
        "socket.timeout.ms": 10_000,
        "error_cb": last_error,
        "logger": _silent,
        **(extra or {}),
    }


def connect_admin(bootstrap: str, topic: str | None = None) -> tuple[AdminClient, ClusterMetadata]:
    """An admin client and what the cluster says of `topic`, or of all topics; ends the command when nobody answers."""
    last_error = LastError()
    admin = AdminClient(client_settings(bootstrap, last_error))
    try:
        return admin, admin.list_topics(topic, timeout=REPLY_TIMEOUT_S)
    except KafkaException as error:
        admin.poll(0)  # hear the reason
        problem = error.args[0]
        if problem.code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN):
            fail(unreachable(bootstrap, last_error.text))
        fail(problem.str())


def unreachable(bootstrap: str, reason: str) -> str:
    """The sentence for a cluster that does not answer."""
    _, _, told = reason.rpartition("failed: ")
    told = told.split(" (after")[0].strip()
    return (
        f"no broker answers at {bootstrap}{f' ({told})' if told else ''}: start one with 'tidemill broker start', "
        "or say where it is with --bootstrap-server HOST:PORT"
    )


def reason_of(error: KafkaException) -> str:
    """The text of a client's exception."""
    problem = error.args[0]
    if isinstance(problem, KafkaError) and problem.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return "there is no such topic: 'tidemill topic list' shows those that are"
    return str(problem.str() if isinstance(problem, KafkaError) else problem)
