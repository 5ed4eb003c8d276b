"""What address a client is told"""

from types import SimpleNamespace
from typing import Any

from tidemill.broker.config import BrokerConfig
from tidemill.broker.dispatch import RequestContext
from tidemill.broker.endpoints import end_points_of, own_endpoint
from tidemill.broker.listeners import ListenAddress


def broker(advertised: dict[str, ListenAddress]) -> Any:
    config = SimpleNamespace(advertised=advertised, broker_rack="r1")
    return SimpleNamespace(node_id=4, host="0.0.0.0", port=9092, config=config)


def context(**more: Any) -> RequestContext:
    return RequestContext(
        api_version=9, client_id=None, client_host="c", listener="PLAINTEXT", connection_id="1", **more
    )


def test_the_advertised_address_wins() -> None:
    told = own_endpoint(broker({"PLAINTEXT": ListenAddress("PLAINTEXT", "public", 1234)}), context(server_host="x"))
    assert told == (4, "public", 1234, "r1")


def test_an_advertised_port_of_0_is_the_real_one() -> None:
    told = own_endpoint(broker({"PLAINTEXT": ListenAddress("PLAINTEXT", "public", 0)}), context())
    assert told == (4, "public", 9092, "r1")


def test_an_advertised_port_of_0_is_that_of_the_listener_that_was_asked() -> None:
    advertised = {"PLAINTEXT": ListenAddress("PLAINTEXT", "public", 0)}
    assert own_endpoint(broker(advertised), context(server_port=9094)) == (4, "public", 9094, "r1")


def test_else_the_client_is_told_what_it_connected_to() -> None:
    assert own_endpoint(broker({}), context(server_host="10.0.0.1", server_port=5)) == (4, "10.0.0.1", 5, "r1")
    assert own_endpoint(broker({}), context()) == (4, "0.0.0.0", 9092, "r1")


def test_what_is_registered_is_what_is_advertised_with_the_port_that_is_open() -> None:
    config = BrokerConfig.parse(
        {"listeners": "PLAINTEXT://a:0,INNER://b:9094", "advertised.listeners": "PLAINTEXT://outside:0",
         "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT"}
    )  # fmt: skip
    told = [(each.name, each.host, each.port) for each in end_points_of(config, [40_000, 9094])]
    assert told == [("PLAINTEXT", "outside", 40_000), ("INNER", "b", 9094)]
    assert [each.port for each in end_points_of(config)] == [0, 9094]
