"""Settings of a worker's place in its group, as a worker reads them"""

import pytest

from tidemill.connect.config import parse_worker
from tidemill.connect.group import sessioned_words, words
from tidemill.connect.group_keys import PROTOCOLS
from tidemill.connect.worker import StartRefused, group_settings
from tidemill.core.config import ConfigError

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_the_protocols_are_those_of_the_groups() -> None:
    assert (words.PROTOCOL, sessioned_words.PROTOCOL) == PROTOCOLS


def test_workers_are_among_themselves_unless_it_is_said() -> None:
    assert parse_worker({}).group_protocol == "tidemill"
    assert parse_worker({"tidemill.group.protocol": "sessioned"}).group_protocol == "sessioned"


def test_what_files_of_apache_say_changes_nothing() -> None:
    """All of them mean `sessioned`, said or not; who moves a worker here does not want to wait as long as theirs."""
    worker = parse_worker({"connect.protocol": "sessioned"})
    assert worker.group_protocol == "tidemill"
    assert worker.notes == ("connect.protocol has no effect",)


def test_who_cannot_log_in_is_not_alone_beside_apaches_workers() -> None:
    """By our own protocol it would do everything, which they may be doing."""
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{LOGIN} required username="a" password="b";',
    }
    assert group_settings(parse_worker(settings), "w:1").alone_because
    with pytest.raises(StartRefused, match="cannot be in a group"):
        group_settings(parse_worker(settings | {"tidemill.group.protocol": "sessioned"}), "w:1")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"tidemill.group.protocol": "compatible"}, "tidemill.group.protocol"),
        ({"heartbeat.interval.ms": "6000"}, "heartbeat.interval.ms=6000 must be below session.timeout.ms=6000"),
    ],
)
def test_what_cannot_be(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_worker(settings)
