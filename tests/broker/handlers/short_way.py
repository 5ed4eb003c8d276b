"""Two brokers to compare, one of which serves Produce in the short way and counts how often"""

import dataclasses
import itertools
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.broker.broker_world import WireClient, wire_client
from tests.broker.handlers.data_path import make_topic, out_of_sync
from tidemill.broker.config import BrokerConfig
from tidemill.broker.dispatch import Exchange, Peer
from tidemill.broker.handlers.produce_memo import ProduceMemo
from tidemill.broker.node import Broker, open_broker
from tidemill.broker.routes import ROUTES
from tidemill.broker.surroundings import Surroundings
from tidemill.core.runtime.clock import ManualClock

TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "a-much-longer-name": {},
    "stamped": {"message_timestamp_type": "LogAppendTime"},
    "keyed": {"cleanup_policy": "compact"},
    "careful": {"min_insync_replicas": "2"},
    "small": {"max_message_bytes": "200"},
}


PEER = Peer(client_host="10.0.0.9", listener="PLAINTEXT", connection_id="c1")


class Served:
    """Counts what the short way served."""

    def __init__(self) -> None:
        self.count = 0

    def memo(self, broker: Any, version: int, peer: Peer) -> Any:
        memo = ProduceMemo(broker, version, peer)

        def counting(frame: memoryview) -> Exchange | None:
            exchange = memo(frame)
            self.count += exchange is not None
            return exchange

        return counting


@asynccontextmanager
async def one(folder: Path, served: Served | None, policy: str = "os") -> AsyncIterator[tuple[Broker, WireClient]]:
    """A broker that uses the short way if there is somebody to count it, and a client of it."""
    routes = tuple(
        dataclasses.replace(route, shortcut=served.memo if served else None) if route.shortcut else route
        for route in ROUTES
    )
    raw = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0", "flush.policy": policy}
    numbers = itertools.count(1)
    config = BrokerConfig.parse(raw)
    around = Surroundings(clock=ManualClock(), new_uuid=lambda: uuid.UUID(int=next(numbers) << 64))
    async with open_broker(config, around=around, routes=routes) as broker, wire_client(broker) as client:
        for name, settings in TOPICS.items():
            topic = await make_topic(broker, name, partitions=2, **settings)
            if name == "careful":
                out_of_sync(broker, topic)
        yield broker, client


async def answer_bytes(client: WireClient, frame: bytes) -> bytes:
    client.send(frame)
    return await client.receive()
