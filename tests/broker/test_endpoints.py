"""What address a client is told"""

from types import SimpleNamespace
from typing import Any

import pytest

from tidemill.broker.config import BrokerConfig
from tidemill.broker.dispatch import RequestContext
from tidemill.broker.endpoints import end_points_of, named, nameless, own_endpoint


def broker(advertised: str = "", listeners: str = "PLAINTEXT://0.0.0.0:9092") -> Any:
    given = {"listeners": listeners, "broker.rack": "r1", "advertised.listeners": advertised}
    return SimpleNamespace(node_id=4, host="0.0.0.0", port=9092, config=BrokerConfig.parse(given))


def context(**more: Any) -> RequestContext:
    return RequestContext(
        api_version=9, client_id=None, client_host="c", listener="PLAINTEXT", connection_id="1", **more
    )


def test_the_advertised_address_wins() -> None:
    told = own_endpoint(broker("PLAINTEXT://public:1234"), context(server_host="x"))
    assert told == (4, "public", 1234, "r1")


def test_an_advertised_port_of_0_is_the_real_one() -> None:
    assert own_endpoint(broker("PLAINTEXT://public:0"), context()) == (4, "public", 9092, "r1")


def test_an_advertised_port_of_0_is_that_of_the_listener_that_was_asked() -> None:
    assert own_endpoint(broker("PLAINTEXT://public:0"), context(server_port=9094)) == (4, "public", 9094, "r1")


def test_else_it_is_the_listener_as_others_tell_it() -> None:
    named = broker(listeners="PLAINTEXT://one.example:9093")
    assert own_endpoint(named, context(server_host="10.0.0.1", server_port=5)) == (4, "one.example", 9093, "r1")
    anew = broker(listeners="PLAINTEXT://one.example:0")
    assert own_endpoint(anew, context(server_host="10.0.0.1", server_port=5)) == (4, "one.example", 5, "r1")


@pytest.mark.parametrize("everywhere", ["", "0.0.0.0", "[::]"])
def test_and_where_that_is_every_interface_what_the_client_has_connected_to(everywhere: str) -> None:
    anywhere = broker(listeners=f"PLAINTEXT://{everywhere}:9092")
    assert own_endpoint(anywhere, context(server_host="10.0.0.1", server_port=9092)) == (4, "10.0.0.1", 9092, "r1")
    assert own_endpoint(anywhere, context()) == (4, "0.0.0.0", 9092, "r1")


def test_whoever_speaks_tls_at_every_interface_has_the_name_of_the_machine() -> None:
    given = {
        "listeners": "SSL://:9093,OUT://0.0.0.0:9094,IN://one:9095,PLAINTEXT://:9092",
        "advertised.listeners": "OUT://out.example:9094",
        "listener.security.protocol.map": "SSL:SSL,OUT:SSL,IN:SSL,PLAINTEXT:PLAINTEXT",
        "ssl.keystore.location": "broker.pem",
    }
    config = BrokerConfig.parse(given)
    assert [each.name for each in nameless(config)] == ["SSL"]
    after = named(config, "host.example")
    assert nameless(after) == ()
    told = {each.name: (each.host, each.port) for each in end_points_of(after)}
    assert told["SSL"] == ("host.example", 9093)
    assert (told["OUT"], told["IN"], told["PLAINTEXT"]) == (("out.example", 9094), ("one", 9095), ("", 9092))


def test_what_is_registered_is_what_is_advertised_with_the_port_that_is_open() -> None:
    config = BrokerConfig.parse(
        {"listeners": "PLAINTEXT://a:0,INNER://b:9094", "advertised.listeners": "PLAINTEXT://outside:0",
         "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT"}
    )  # fmt: skip
    told = [(each.name, each.host, each.port) for each in end_points_of(config, [40_000, 9094])]
    assert told == [("PLAINTEXT", "outside", 40_000), ("INNER", "b", 9094)]
    assert [each.port for each in end_points_of(config)] == [0, 9094]
