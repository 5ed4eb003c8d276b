"""Settings of the node that change while it runs."""

from pathlib import Path

import pytest

from broker.config import BrokerConfig
from broker.live_settings import server_limits
from broker.node import Broker
from broker.quorum.metadata import ConfigChange, ConfigOp, ResourceChange
from broker.topic_config import Layers
from core.wire.api import ApiKey
from core.wire.messages.describe_cluster import DescribeClusterRequest
from tests.broker.broker_world import WireClient, running_broker, wire_client


def test_the_stronger_layer_holds() -> None:
    config = BrokerConfig.parse({"max.connections": "50", "connections.max.idle.ms": "7"})
    limits = server_limits(config, Layers(dynamic_broker={}, dynamic_default={}, static=config.static))
    assert (limits.max_connections, limits.max_connections_per_ip) == (50, 2**31 - 1)
    assert limits.connections_max_idle_ms == 7
    layers = Layers(
        dynamic_broker={"max.connections": "5"},
        dynamic_default={"max.connections": "6", "max.connections.per.ip": "3"},
        static=config.static,
    )
    limits = server_limits(config, layers)
    assert (limits.max_connections, limits.max_connections_per_ip) == (5, 3)


async def set_most_connections(broker: Broker, value: str | None) -> None:
    change = ConfigChange(name="max.connections", op=ConfigOp.DELETE if value is None else ConfigOp.SET, value=value)
    (result,) = await broker.controller.alter_configs(
        [ResourceChange(resource_type=4, resource_name="1", changes=(change,))]
    )
    assert result.error is None


async def served(client: WireClient) -> bool:
    try:
        await client.ask(ApiKey.DESCRIBE_CLUSTER, 0, DescribeClusterRequest())
    except (EOFError, ConnectionError):
        return False
    return True


async def test_fewer_connections_are_let_in_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, wire_client(broker) as first:
        assert await served(first)
        await set_most_connections(broker, "1")
        async with wire_client(broker) as second:
            assert not await served(second)
        assert await served(first), "who is in stays in"
    async with running_broker(tmp_path) as broker, wire_client(broker) as first:
        assert await served(first)
        async with wire_client(broker) as second:
            assert not await served(second)
        await set_most_connections(broker, None)
        async with wire_client(broker) as second:
            assert await served(second)


@pytest.mark.parametrize("value", ["0", "many"])
async def test_a_limit_that_nobody_could_live_with_is_refused(tmp_path: Path, value: str) -> None:
    async with running_broker(tmp_path) as broker:
        with pytest.raises(AssertionError):
            await set_most_connections(broker, value)
        assert broker.servers[0].limits.max_connections == 10_000
