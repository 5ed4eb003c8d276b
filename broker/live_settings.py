"""Broker settings that take effect while the broker runs

Most dynamic settings reach the logs as part of what holds for a topic (`tidemill.broker.topic_config`). Those here
belong to the node itself: what its listeners let clients use, how its cleaner works, how long it knows an idle
producer, how closely its logs look at what is produced. They are read once at start-up, so that a restart does not
forget them, and again whenever the image brings other broker settings. Connections that are open already stay open.
"""

from typing import cast

from tidemill.broker.config import BROKER_CONFIG, BrokerConfig
from tidemill.broker.log.cleaner import CleanerSettings
from tidemill.broker.server_limits import ServerLimits
from tidemill.broker.topic_config import Layers


def server_limits(config: BrokerConfig, layers: Layers) -> ServerLimits:
    """What a listener lets its clients use now."""
    return ServerLimits(
        socket_request_max_bytes=config.socket_request_max_bytes,
        connections_max_idle_ms=config.connections_max_idle_ms,
        max_connections=_whole(layers, "max.connections"),
        max_connections_per_ip=_whole(layers, "max.connections.per.ip"),
        queued_max_request_bytes=config.queued_max_request_bytes,
    )


def cleaner_settings(layers: Layers) -> CleanerSettings:
    """How the cleaner works now."""
    return CleanerSettings(
        dedupe_buffer_bytes=_whole(layers, "log.cleaner.dedupe.buffer.size"),
        load_factor=_number(layers, "log.cleaner.io.buffer.load.factor"),
        io_bytes_per_second_max=_number(layers, "log.cleaner.io.max.bytes.per.second"),
        backoff_ms=_whole(layers, "log.cleaner.backoff.ms"),
    )


def producer_id_expiration_ms(layers: Layers) -> int:
    """How long a producer may be silent before its sequence numbers are forgotten."""
    return _whole(layers, "producer.id.expiration.ms")


def replication_rate(layers: Layers, role: str) -> int:
    """Bytes a second of the throttled replicas, as a `leader` or as a `follower`."""
    return _whole(layers, f"{role}.replication.throttled.rate")


def record_validation(layers: Layers) -> str:
    """How much of a produced batch is looked at: `header` or `records`."""
    return cast(str, layers.walk(BROKER_CONFIG["log.record.validation"])[0].value)


def _whole(layers: Layers, name: str) -> int:
    return cast(int, layers.walk(BROKER_CONFIG[name])[0].value)


def _number(layers: Layers, name: str) -> float:
    return cast(float, layers.walk(BROKER_CONFIG[name])[0].value)
