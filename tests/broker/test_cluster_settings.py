"""A node's place among several, as its settings say it"""

import pytest

from tidemill.broker.config import BrokerConfig
from tidemill.broker.listeners import ListenAddress
from tidemill.core.config import ConfigError

THREE = {
    "node.id": "2",
    "controller.quorum.voters": "1@a:9093,2@b:9093,3@c:9093",
    "listeners": "PLAINTEXT://b:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
}


def test_a_kraft_file_of_three_nodes_is_understood() -> None:
    config = BrokerConfig.parse({**THREE, "process.roles": "broker,controller", "broker.session.timeout.ms": "18000"})
    assert config.cluster is not None
    assert config.cluster.voters.ids == (1, 2, 3)
    assert config.cluster.controller == ListenAddress("CONTROLLER", "", 9093)
    assert config.cluster.session_timeout_ms == 18_000
    assert config.cluster.quorum.fetch_timeout_ms == 2000
    assert [each.name for each in config.listen] == ["PLAINTEXT"]


def test_a_broker_has_controllers_elsewhere() -> None:
    config = BrokerConfig.parse({**THREE, "node.id": "4", "process.roles": "broker", "listeners": "PLAINTEXT://d:9092"})
    assert config.cluster is not None
    assert config.cluster.controller is None


def test_topics_are_kept_on_three_nodes_where_nobody_says_otherwise() -> None:
    config = BrokerConfig.parse(THREE)
    assert (config.default_replication_factor, config.offsets_topic_replication_factor) == (3, 3)
    config = BrokerConfig.parse({**THREE, "default.replication.factor": "1"})
    assert (config.default_replication_factor, config.offsets_topic_replication_factor) == (1, 3)
    config = BrokerConfig.parse({**THREE, "controller.quorum.voters": "1@a:9093,2@b:9093"})
    assert config.default_replication_factor == 2


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"process.roles": "controller"}, "controller only: a node without a broker"),
        ({"node.id": "9"}, "does not name this node .node.id=9."),
        ({"process.roles": "broker"}, "names this node .node.id=2., which is to be a broker only"),
        ({"controller.listener.names": "", "listeners": "PLAINTEXT://b:9092"}, "the other controllers cannot reach"),
        ({"listeners": "PLAINTEXT://b:9092,CONTROLLER://:0"}, "CONTROLLER://:0 needs a port"),
        ({"listeners": "PLAINTEXT://b:0,CONTROLLER://:9093"}, "PLAINTEXT://b:0 needs a port"),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}, "names no host for PLAINTEXT://:9092"),
        (
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL"},
            "CONTROLLER is encrypted, not available yet",
        ),
        ({"broker.heartbeat.interval.ms": "9000"}, "is not longer than broker.heartbeat.interval.ms"),
        ({"controller.quorum.voters": "1@a:9093,b"}, "expected ID@HOST:PORT, got 'b'"),
    ],
)
def test_what_cannot_be_a_cluster_is_refused(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        BrokerConfig.parse({**THREE, **given})
