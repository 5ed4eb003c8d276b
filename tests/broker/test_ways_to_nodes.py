"""The ways to other nodes, by what the listeners say"""

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.certificates import Authority
from tidemill.broker.config import BrokerConfig
from tidemill.broker.opening import StartRefused
from tidemill.broker.surroundings import Surroundings
from tidemill.broker.ways_to_nodes import WaysToNodes
from tidemill.core.runtime.net import Dialer, TcpDialer

NODE = {
    "node.id": "1",
    "controller.quorum.voters": "1@a:9093,2@b:9093,3@c:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "SSL://a:9092,PLAINTEXT://a:9094,CONTROLLER://:9093",
    "listener.security.protocol.map": "SSL:SSL,CONTROLLER:SSL,PLAINTEXT:PLAINTEXT",
    "inter.broker.listener.name": "SSL",
}


def encrypted(authority: Authority, **more: str) -> BrokerConfig:
    stores = {
        "ssl.keystore.location": str(authority.signed().both),
        "ssl.truststore.location": str(authority.certificate),
    }
    return BrokerConfig.parse({**NODE, **stores, **{name.replace("_", "."): value for name, value in more.items()}})


def test_nodes_that_encrypt_nothing_have_the_plain_ways() -> None:
    plain = {**NODE, "listener.security.protocol.map": "SSL:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"}
    dialer = TcpDialer()
    ways = WaysToNodes(BrokerConfig.parse(plain), Surroundings(new_dialer=lambda: dialer))
    assert ways.control is None
    assert ways.dialer() is dialer


def test_brokers_and_controllers_are_reached_as_their_listeners_say(tmp_path: Path) -> None:
    contexts: list[ssl.SSLContext] = []

    def dial(context: Callable[[], ssl.SSLContext]) -> Dialer:
        contexts.append(context())
        return TcpDialer(context)

    ways = WaysToNodes(encrypted(Authority(tmp_path)), Surroundings(new_tls_dialer=dial))
    ways.dialer()
    assert [each.check_hostname for each in contexts] == [True]
    assert ways.control is not None
    assert ways.control.watch.listener == "CONTROLLER"


def test_only_what_the_listener_for_brokers_says_counts_for_brokers(tmp_path: Path) -> None:
    plain = TcpDialer()
    ways = WaysToNodes(
        encrypted(Authority(tmp_path), inter_broker_listener_name="PLAINTEXT"), Surroundings(new_dialer=lambda: plain)
    )
    assert ways.control is not None
    assert ways.dialer() is plain


def test_files_that_are_not_there_refuse_the_start(tmp_path: Path) -> None:
    config = encrypted(Authority(tmp_path))
    (tmp_path / "authority.pem").unlink()
    with pytest.raises(StartRefused, match=r"CONTROLLER cannot speak TLS: .*authority\.pem cannot be read"):
        WaysToNodes(config, Surroundings())
