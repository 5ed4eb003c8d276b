"""Listeners by Kafka's rules"""

from collections.abc import Mapping

import pytest

from tidemill.broker.config import BrokerConfig, known_names
from tidemill.broker.listeners import ListenAddress, Listeners, SecurityProtocol
from tidemill.core.config import ConfigError
from tidemill.core.security.tls_settings import ClientAuth

TWO = {
    "listeners": "INTERNAL://10.0.0.1:9092,EXTERNAL://:9093",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,external:ssl",
    "ssl.keystore.location": "/all.pem",
}

DOTTED = {
    "listeners": "A://:9092,A.B://:9093",
    "listener.security.protocol.map": "A:PLAINTEXT,A.B:SSL,A:PLAINTEXT",
    "ssl.keystore.location": "/all.pem",
}


def read(raw: Mapping[str, str]) -> Listeners:
    return BrokerConfig.parse(raw).listening


def test_each_listener_has_its_protocol() -> None:
    found = read(TWO)
    assert found.listen == (ListenAddress("INTERNAL", "10.0.0.1", 9092), ListenAddress("EXTERNAL", "", 9093))
    assert [found.specs[name].protocol for name in ("INTERNAL", "EXTERNAL")] == [
        SecurityProtocol.PLAINTEXT,
        SecurityProtocol.SSL,
    ]
    assert found.specs["INTERNAL"].tls is None
    assert found.inter_broker == "INTERNAL"


def test_what_is_said_of_one_listener_wins_over_what_is_said_of_all() -> None:
    found = read(
        {
            **TWO,
            "listeners": TWO["listeners"] + ",MTLS://:9094",
            "listener.security.protocol.map": TWO["listener.security.protocol.map"] + ",MTLS:SSL",
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.mtls.ssl.truststore.location": "/trust.pem",
            "listener.name.mtls.ssl.keystore.location": "/own.pem",
            "listener.name.mtls.ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/,DEFAULT",
        }
    )
    own, general = found.specs["MTLS"], found.specs["EXTERNAL"]
    assert own.tls is not None
    assert general.tls is not None
    assert (own.tls.client_auth, general.tls.client_auth) == (ClientAuth.REQUIRED, ClientAuth.NONE)
    assert (own.tls.files, general.tls.files) == (("/own.pem", "/trust.pem"), ("/all.pem",))
    assert len(own.principal_rules) == 2


def test_a_listener_may_have_dots_in_its_name() -> None:
    found = read({**DOTTED, "listener.name.a.b.ssl.keystore.location": "/its.pem"})
    tls = found.specs["A.B"].tls
    assert tls is not None and tls.keystore_location == "/its.pem"


def test_settings_of_one_listener_have_names_that_the_environment_can_spell() -> None:
    assert "listener.name.external.ssl.key.password" in known_names(TWO)
    assert not [name for name in known_names({}) if name.startswith("listener.name.")]


def test_brokers_use_the_listener_that_is_named_for_them() -> None:
    assert read({**TWO, "inter.broker.listener.name": "external"}).inter_broker == "EXTERNAL"
    ssl = {"listeners": "PLAINTEXT://:1,SSL://:2", "ssl.keystore.location": "/k.pem"}
    assert read(ssl).inter_broker == "PLAINTEXT"
    assert read({**ssl, "security.inter.broker.protocol": "SSL"}).inter_broker == "SSL"


def test_a_controller_listener_needs_no_protocol_as_long_as_all_is_plain() -> None:
    plain = {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"}
    assert [each.name for each in read(plain).listen] == ["PLAINTEXT"]
    secure = {**plain, "listeners": "SSL://:9092,CONTROLLER://:9093", "ssl.keystore.location": "/k.pem"}
    with pytest.raises(ConfigError, match="No security protocol defined for listener CONTROLLER"):
        read(secure)


def test_one_port_for_both_families() -> None:
    both = {
        "listeners": "A://127.0.0.1:9092,B://[::1]:9092",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
    }
    assert [str(each) for each in read(both).listen] == ["A://127.0.0.1:9092", "B://[::1]:9092"]
    assert len(read({**both, "listeners": "A://h:0,B://i:0"}).listen) == 2


A_AND_B = {"listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({**A_AND_B, "listeners": "A://h:1,B://i:1"}, "Each listener must have a different port, listeners: A://h:1"),
        (
            {**A_AND_B, "listeners": "A://127.0.0.1:1,B://127.0.0.2:1"},
            "one needs to be IPv4 and the other IPv6, listeners: A://127.0.0.1:1,B://127.0.0.2:1, port: 1",
        ),
        ({**A_AND_B, "listeners": "PLAINTEXT://h:1"}, "No security protocol defined for listener PLAINTEXT"),
        ({"listener.security.protocol.map": "A:TLS"}, "Error parsing configuration property"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "Error parsing configuration property"),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,:SSL"}, "':SSL' is not NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "A:SSL,PLAINTEXT:SSL,a:PLAINTEXT"}, "A is there twice, with SSL and PLAIN"),
        ({"listeners": "://h:9092"}, "Invalid value '://h:9092' for configuration listeners: it has no name"),
        (
            {**DOTTED, "listener.name.a.b.c.ssl.client.auth": "none"},
            "cannot be honoured for one listener: did you mean",
        ),
        ({**DOTTED, "listener.name.a.ssl.client.auth": "none"}, "has no effect: listener A has not"),
        (
            {"inter.broker.listener.name": "X"},
            "Listener with name X defined in inter.broker.listener.name not found in listener.security.protocol.map.",
        ),
        (
            {"inter.broker.listener.name": "SSL"},
            "inter.broker.listener.name must be a listener name defined in advertised.listeners",
        ),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
        ),
        ({"controller.listener.names": "CONTROLLER"}, "controller.listener.names must contain at least one value"),
        (
            {
                "listeners": "PLAINTEXT://:1,CONTROLLER://:2",
                "controller.listener.names": "CONTROLLER",
                "inter.broker.listener.name": "CONTROLLER",
            },
            "controller.listener.names must not contain an explicitly set inter.broker.listener.name",
        ),
        ({**TWO, "listener.name.external.ssl.keystore.locaton": "x"}, "did you mean listener.name.external.ssl.key"),
        ({**TWO, "listener.name.other.ssl.client.auth": "none"}, "for a listener that there is not"),
        ({**TWO, "listener.name.external.sasl.enabled.mechanisms": "PLAIN"}, "SASL is not available yet"),
        ({**TWO, "listener.name.external.max.connections": "1"}, "cannot be honoured for one listener"),
        ({**TWO, "listener.name.internal.ssl.client.auth": "none"}, "has no effect: listener INTERNAL has not"),
        ({**TWO, "ssl.principal.mapping.rules": "RULE:x"}, "ssl.principal.mapping.rules: Invalid rule"),
        ({**TWO, "ssl.client.auth": "required"}, "Listener EXTERNAL://:9093: ssl.client.auth=required needs to know"),
    ],
)
def test_mistakes_are_said_in_a_sentence(raw: Mapping[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse(raw)
    assert says in str(caught.value)
