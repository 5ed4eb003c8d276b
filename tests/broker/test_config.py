"""Settings of a node: Kafka's files as they are, mistakes in sentences."""

import dataclasses
from collections.abc import Mapping

import pytest

from tidemill.broker.config import BROKER_CONFIG, NO_EFFECT, BrokerConfig, ignored_keys
from tidemill.broker.listeners import ListenAddress
from tidemill.core.config import ConfigError, ConfigType, parse_properties

STOCK = """
# as shipped with a single-node Kafka
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def test_a_stock_file_is_read_as_it_is() -> None:
    raw = parse_properties(STOCK)
    config = BrokerConfig.parse(raw)
    assert config.listen == (ListenAddress("PLAINTEXT", "", 9092),)
    assert dict(config.advertised) == {"PLAINTEXT": ListenAddress("PLAINTEXT", "localhost", 9092)}
    assert config.data_dir == "/tmp/kraft-combined-logs"
    assert "num.io.threads" in ignored_keys(raw)
    assert set(ignored_keys(raw)) <= set(NO_EFFECT)


def test_a_quorum_of_this_node_is_what_there_is() -> None:
    config = BrokerConfig.parse({"controller.quorum.voters": "1@localhost:9093"})
    assert config.cluster is None
    assert config.offsets_topic_replication_factor == 1


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_half_a_node_without_others_is_refused(role: str) -> None:
    listeners = {"listeners": "CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"}
    with pytest.raises(ConfigError, match=f"is {role} only, and no other node is named"):
        BrokerConfig.parse({"process.roles": role, **(listeners if role == "controller" else {})})


def test_nothing_given_is_a_broker_on_this_machine_only() -> None:
    config = BrokerConfig.parse({})
    assert config.listen == (ListenAddress("PLAINTEXT", "127.0.0.1", 9092),)
    assert config.flush_policy == "group"
    assert config.group_initial_rebalance_delay_ms == 0
    assert config.advertised == {}


def test_every_attribute_has_the_type_of_its_row() -> None:
    kinds = {ConfigType.INT: "int", ConfigType.LONG: "int", ConfigType.BOOLEAN: "bool", ConfigType.STRING: "str"}
    kinds[ConfigType.DOUBLE] = "float"
    names = {name.replace(".", "_"): name for name in BROKER_CONFIG.names()}
    checked = 0
    for field in dataclasses.fields(BrokerConfig):
        if field.name in names:
            key = BROKER_CONFIG[names[field.name]]
            text = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
            assert kinds[key.type] in text, field.name
            checked += 1
    assert checked > 20


def test_every_default_is_valid_and_documented() -> None:
    for key in BROKER_CONFIG:
        assert key.doc.endswith("."), key.name
        if key.valid is not None and key.default is not None:
            assert key.valid(key.default) is None, key.name  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({"num.partition": "3"}, "did you mean 'num.partitions'"),
        ({"num.partitions": "0"}, "at least 1"),
        ({"flush.policy": "never"}, "not one of group, os"),
        ({"ssl.keystore.location": "x"}, "'ssl.keystore.location' has no effect: no listener has the protocol SSL"),
        ({"ssl.engine.factory.class": "x"}, "TLS is OpenSSL's"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "SASL is not available yet"),
        ({"zookeeper.connect": "x"}, "no ZooKeeper"),
        ({"log.dirs": "/a,/b"}, "give exactly one"),
        ({"log.dir": ""}, "log.dir is empty"),
        ({"listeners": "127.0.0.1:9092"}, "expected NAME://host:port"),
        ({"listeners": "PLAINTEXT://h:port"}, "expected NAME://host:port"),
        ({"listeners": "PLAINTEXT://h:99999"}, "port 99999 is not in 0..65535"),
        ({"listeners": "SSL://h:1"}, "Listener SSL://h:1: it has no certificate: set ssl.keystore.location"),
        ({"listeners": "SASL_SSL://h:1"}, "asks for SASL_SSL: SASL is not available yet"),
        ({"listeners": "INTERNAL://h:1"}, "listener.security.protocol.map"),
        ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "Each listener must have a different name"),
        ({"listeners": "CONTROLLER://h:1", "controller.listener.names": "CONTROLLER"}, "no listener for clients"),
        (
            {
                "advertised.listeners": "OTHER://h:1",
                "listener.security.protocol.map": "OTHER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            },
            "equal to or a subset of the ones defined in listeners. Found OTHER.",
        ),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "cannot use the nonroutable meta-address 0.0.0.0"),
        ({"advertised.listeners": "PLAINTEXT://:1"}, "no host that a client could connect to"),
    ],
)
def test_mistakes_are_said_in_a_sentence(raw: Mapping[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse(raw)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_mistakes_are_listed_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse({"num.partitions": "x", "sasl.key": "y", "nonsense": "1"})
    assert len(caught.value.problems) == 3


def test_several_listeners_each_with_its_own_advertised_address() -> None:
    config = BrokerConfig.parse(
        {
            "listeners": "INTERNAL://10.0.0.1:9092,EXTERNAL://:9094",
            "advertised.listeners": "EXTERNAL://broker.example.org:19094",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
        }
    )
    assert [address.name for address in config.listen] == ["INTERNAL", "EXTERNAL"]
    assert dict(config.advertised) == {"EXTERNAL": ListenAddress("EXTERNAL", "broker.example.org", 19094)}


def test_the_old_name_of_the_node_id_is_understood() -> None:
    assert BrokerConfig.parse({"broker.id": "7"}).node_id == 7


def test_the_address_for_those_who_watch() -> None:
    assert BrokerConfig.parse({}).metrics_address is None
    assert BrokerConfig.parse({"metrics.listener": "[::1]:9404"}).metrics_address == ("::1", 9404)
    assert BrokerConfig.parse({"metrics.listener": ":9404"}).metrics_address == ("127.0.0.1", 9404)
    with pytest.raises(ConfigError, match=r"'a:b' for configuration metrics\.listener: expected HOST:PORT"):
        BrokerConfig.parse({"metrics.listener": "a:b"})
