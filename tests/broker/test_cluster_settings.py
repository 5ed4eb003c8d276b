"""A node's place among several, as its settings say it"""

import pytest

from tidemill.broker.config import BrokerConfig
from tidemill.broker.listeners import ListenAddress
from tidemill.core.config import ConfigError
from tidemill.core.security.tls_settings import ClientAuth

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


def test_a_controller_serves_no_clients() -> None:
    config = BrokerConfig.parse({**THREE, "process.roles": "controller", "listeners": "CONTROLLER://:9093"})
    assert config.cluster is not None
    assert config.cluster.controller == ListenAddress("CONTROLLER", "", 9093)
    assert config.listen == ()
    one = {"process.roles": "controller", "listeners": "CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"}
    config = BrokerConfig.parse({**one, "controller.quorum.voters": "1@c:9093"})
    assert config.cluster is not None
    assert config.cluster.voters.ids == (1,)


GROWS = {
    "node.id": "2",
    "controller.quorum.bootstrap.servers": "a:9093,b:9093",
    "listeners": "PLAINTEXT://b:9092,CONTROLLER://:9093",
    "advertised.listeners": "PLAINTEXT://b:9092,CONTROLLER://b:9093",
    "controller.listener.names": "CONTROLLER",
}


def test_the_voters_may_be_those_of_the_metadata_log() -> None:
    config = BrokerConfig.parse(GROWS)
    assert config.cluster is not None
    assert len(config.cluster.voters) == 0
    assert config.cluster.bootstrap == (("a", 9093), ("b", 9093))
    assert config.cluster.told == ListenAddress("CONTROLLER", "b", 9093)
    assert config.default_replication_factor == 2
    broker = BrokerConfig.parse(
        {**GROWS, "process.roles": "broker", "listeners": "PLAINTEXT://b:9092", "advertised.listeners": ""}
    )
    assert broker.cluster is not None
    assert broker.cluster.told is None


@pytest.mark.parametrize("servers", ["localhost:9093", "b:9093", "127.0.0.1:9093,b:9093"])
def test_a_node_that_looks_for_nobody_but_itself_is_a_cluster_by_itself(servers: str) -> None:
    config = BrokerConfig.parse({**GROWS, "controller.quorum.bootstrap.servers": servers})
    assert config.cluster is None
    half = {**GROWS, "process.roles": "controller", "controller.quorum.bootstrap.servers": servers}
    half |= {"listeners": "CONTROLLER://:9093", "advertised.listeners": "CONTROLLER://b:9093"}
    assert BrokerConfig.parse(half).cluster is not None, "one without a broker is not all of a cluster"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"advertised.listeners": "PLAINTEXT://b:9092"}, "names no host for CONTROLLER://:9093, and the other contr"),
        ({"controller.quorum.bootstrap.servers": "a"}, r"controller\.quorum\.bootstrap\.servers: .*'a'"),
        ({"controller.quorum.bootstrap.servers": "a:0"}, "Expected HOST:PORT that can be called"),
    ],
)
def test_whoever_cannot_be_found_is_refused(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        BrokerConfig.parse({**GROWS, **given})


def test_topics_are_kept_on_three_nodes_where_nobody_says_otherwise() -> None:
    config = BrokerConfig.parse(THREE)
    assert (config.default_replication_factor, config.offsets_topic_replication_factor) == (3, 3)
    assert config.spread == {"default.replication.factor": 3, "offsets.topic.replication.factor": 3}
    assert BrokerConfig.parse({}).spread == {}
    config = BrokerConfig.parse({**THREE, "default.replication.factor": "1"})
    assert (config.default_replication_factor, config.offsets_topic_replication_factor) == (1, 3)
    assert config.spread == BrokerConfig.parse(THREE).spread, "the default is the same where something else is given"
    config = BrokerConfig.parse({**THREE, "controller.quorum.voters": "1@a:9093,2@b:9093"})
    assert config.default_replication_factor == 2


ENCRYPTED = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:SSL,BROKERS:SSL,PLAINTEXT:PLAINTEXT",
    "listener.name.controller.ssl.keystore.location": "node.pem",
    "listener.name.controller.ssl.truststore.location": "nodes.pem",
    "listener.name.controller.ssl.client.auth": "required",
    "listener.name.brokers.ssl.keystore.location": "broker.pem",
    "listener.name.brokers.ssl.endpoint.identification.algorithm": "",
    "inter.broker.listener.name": "BROKERS",
}


def test_nodes_that_speak_tls_to_each_other_are_understood() -> None:
    listeners = "PLAINTEXT://b:9092,BROKERS://b:9094,CONTROLLER://:9093"
    listening = BrokerConfig.parse({**THREE, **ENCRYPTED, "listeners": listeners}).listening
    assert listening.control is not None
    assert listening.control.tls is not None
    assert listening.control.tls.client_auth is ClientAuth.REQUIRED
    assert listening.control.tls.check_host
    between = listening.specs[listening.inter_broker].tls
    assert between is not None
    assert between.keystore_location == "broker.pem"
    assert not between.check_host


def test_a_broker_has_terms_for_a_listener_of_controllers_that_it_has_not() -> None:
    given = {"node.id": "4", "process.roles": "broker", "listeners": "PLAINTEXT://d:9092,BROKERS://d:9094"}
    config = BrokerConfig.parse({**THREE, **ENCRYPTED, **given})
    assert config.listening.controllers == ()
    assert config.listening.control is not None
    assert config.listening.control.tls is not None
    assert config.listening.control.tls.truststore_location == "nodes.pem"


def test_a_controller_that_is_no_broker_has_terms_for_the_listener_of_brokers_if_it_says_whom_to_trust() -> None:
    given = {"process.roles": "controller", "listeners": "CONTROLLER://:9093"}
    untold = BrokerConfig.parse({**THREE, **ENCRYPTED, **given}).listening
    assert untold.listen == ()
    assert "BROKERS" not in untold.specs
    given["listener.name.brokers.ssl.truststore.location"] = "nodes.pem"
    listening = BrokerConfig.parse({**THREE, **ENCRYPTED, **given}).listening
    between = listening.specs[listening.inter_broker].tls
    assert between is not None
    assert (between.keystore_location, between.truststore_location) == ("broker.pem", "nodes.pem")
    with pytest.raises(ConfigError, match="for a listener that there is not: listeners has CONTROLLER,BROKERS"):
        BrokerConfig.parse({**THREE, **ENCRYPTED, **given, "listener.name.other.ssl.client.auth": "none"})


def test_one_node_alone_takes_such_a_file_and_opens_no_listener_for_controllers() -> None:
    alone = {**ENCRYPTED, "listeners": "BROKERS://b:9094,CONTROLLER://:9093"}
    del alone["listener.name.controller.ssl.truststore.location"]
    assert BrokerConfig.parse(alone).cluster is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"process.roles": "controller"}, "listeners has PLAINTEXT, and with process.roles=controller"),
        ({"node.id": "9"}, "does not name this node .node.id=9."),
        ({"process.roles": "broker"}, "names this node .node.id=2., which is to be a broker only"),
        ({"controller.listener.names": "", "listeners": "PLAINTEXT://b:9092"}, "the other controllers cannot reach"),
        ({"listeners": "PLAINTEXT://b:9092,CONTROLLER://:0"}, "CONTROLLER://:0 needs a port"),
        ({"listeners": "PLAINTEXT://b:0,CONTROLLER://:9093"}, "PLAINTEXT://b:0 needs a port"),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}, "names no host for PLAINTEXT://:9092"),
        (
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL"},
            "Listener CONTROLLER://:9093: it has no certificate",
        ),
        (
            {
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL",
                "listener.name.controller.ssl.keystore.location": "own.pem",
                "listener.name.controller.ssl.enabled.protocols": "TLSv1.3",
                "listener.name.controller.ssl.key.password": "secret",
            },
            "(?s)who may vouch.*ssl.enabled.protocols is always.*cannot be encrypted",
        ),
        (
            {
                "process.roles": "broker",
                "node.id": "9",
                "listeners": "PLAINTEXT://b:9092",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
            },
            "Controller listener with name CONTROLLER defined in controller.listener.names not found",
        ),
        ({"broker.heartbeat.interval.ms": "9000"}, "is not longer than broker.heartbeat.interval.ms"),
        ({"controller.quorum.voters": "1@a:9093,b"}, "expected ID@HOST:PORT, got 'b'"),
    ],
)
def test_what_cannot_be_a_cluster_is_refused(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        BrokerConfig.parse({**THREE, **given})
