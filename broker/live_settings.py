"""Broker settings that take effect while the broker runs

Most dynamic settings reach the logs as part of what holds for a topic (`broker.topic_config`). Those here belong to the
node itself: what its listeners let clients use. They are read once at start-up, so that a restart does not forget
them, and again whenever the image brings other broker settings. Connections that are open already stay open.
"""

from typing import cast

from broker.config import BROKER_CONFIG, BrokerConfig
from broker.server import ServerLimits
from broker.topic_config import Layers


def server_limits(config: BrokerConfig, layers: Layers) -> ServerLimits:
    """What a listener lets its clients use now."""
    return ServerLimits(
        socket_request_max_bytes=config.socket_request_max_bytes,
        connections_max_idle_ms=config.connections_max_idle_ms,
        max_connections=_held(layers, "max.connections"),
        max_connections_per_ip=_held(layers, "max.connections.per.ip"),
        queued_max_request_bytes=config.queued_max_request_bytes,
    )


def _held(layers: Layers, name: str) -> int:
    return cast(int, layers.walk(BROKER_CONFIG[name])[0].value)
