"""Settings out of Kafka's metadata: which of them are any here, and what is said of the others."""

import pytest

from tidemill.broker.config import BROKER_CONFIG
from tidemill.broker.tools.kafka_settings import why_no_setting
from tidemill.broker.topic_config import TOPIC_CONFIG


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("retention.ms", "5", None),
        ("retention.ms", "soon", "retention.ms"),
        ("remote.storage.enable", "true", "tiered storage"),
        ("what.is.this", "1", "not a setting here"),
    ],
)
def test_a_topics_setting(name: str, value: str, says: str | None) -> None:
    found = why_no_setting(TOPIC_CONFIG, name, value)
    assert found is None if says is None else says in (found or "")


def test_a_brokers_setting_that_only_a_file_can_hold() -> None:
    assert why_no_setting(BROKER_CONFIG, "log.retention.ms", "5") is None
    assert "set it in the file" in (why_no_setting(BROKER_CONFIG, "num.partitions", "5") or "")


def test_what_controller_and_leader_go_by_both_is_taken_for_all_brokers_only() -> None:
    assert why_no_setting(BROKER_CONFIG, "min.insync.replicas", "1") is None
    assert "for no single broker" in (why_no_setting(BROKER_CONFIG, "min.insync.replicas", "1", of="2") or "")
    assert why_no_setting(BROKER_CONFIG, "log.retention.ms", "5", of="2") is None
