"""A cluster whose certificates hold names and no addresses: every broker is told by the name that it registers"""

import asyncio
import ssl
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.certificates import Authority
from tidemill.broker.config import BrokerConfig
from tidemill.broker.node import open_broker
from tidemill.broker.surroundings import Surroundings
from tidemill.core.client.connection import Address, Connection
from tidemill.core.error_code import ErrorCode
from tidemill.core.runtime.net import TcpDialer
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.describe_cluster import DescribeClusterRequest
from tidemill.core.wire.messages.find_coordinator import FindCoordinatorRequest
from tidemill.core.wire.messages.metadata import MetadataRequest
from tidemill.free_ports import free_ports

pytestmark = pytest.mark.integration

NODES = (1, 2, 3)
GROUPS = tuple(f"group-{number}" for number in range(20))
"""So many that each broker keeps one of them."""


def settings_of(folder: Path, ports: list[int], node_id: int, store: Path, trusted: Path) -> dict[str, str]:
    return {
        "node.id": str(node_id),
        "cluster.id": "dGlkZW1pbGwtY2x1c3Rlcg",
        "log.dirs": str(folder / f"node-{node_id}"),
        "listeners": f"SSL://localhost:{ports[node_id - 1]},CONTROLLER://localhost:{ports[2 + node_id]}",
        "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SSL",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{node}@localhost:{ports[2 + node]}" for node in NODES),
        "ssl.keystore.location": str(store),
        "ssl.truststore.location": str(trusted),
    }


async def told_by(address: Address, dialer: TcpDialer, nodes: int = len(NODES)) -> set[tuple[str, int]]:
    """Every address that the broker there names, whoever it is asked for."""
    connection = await Connection.open(address, client_id="c", dialer=dialer)
    try:
        keepers = FindCoordinatorRequest(coordinator_keys=GROUPS)
        async with asyncio.timeout(30):  # a broker may not have heard yet of the others, and who keeps which group
            metadata: Any = await connection.send(ApiKey.METADATA, MetadataRequest(topics=()))
            while len(metadata.brokers) < nodes:
                metadata = await connection.send(ApiKey.METADATA, MetadataRequest(topics=()))
            cluster: Any = await connection.send(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest())
            keeper: Any = await connection.send(ApiKey.FIND_COORDINATOR, keepers)
            while any(each.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE for each in keeper.coordinators):
                keeper = await connection.send(ApiKey.FIND_COORDINATOR, keepers)
        assert [each.error_code for each in keeper.coordinators] == [0] * len(GROUPS)
        answers: tuple[Iterable[Any], ...] = (metadata.brokers, cluster.brokers, keeper.coordinators)
        for answer in answers:
            assert len({each.port for each in answer}) == nodes, "all of them are named"
        return {(each.host, each.port) for answer in answers for each in answer}
    finally:
        connection.close()


def write_to_all(bootstrap: str, trusted: Path) -> list[object]:
    """A record to a partition of each broker, by a client that checks names; what was refused."""
    terms = {"bootstrap.servers": bootstrap, "security.protocol": "SSL", "ssl.ca.location": str(trusted)}
    wanted = NewTopic("t", len(NODES), replica_assignment=[[node] for node in NODES])
    admin = AdminClient(terms)
    admin.create_topics([wanted])["t"].result(30)
    refused: list[object] = []
    producer = Producer(terms)
    for partition in range(len(NODES)):
        producer.produce("t", b"x", partition=partition, on_delivery=lambda error, _: error and refused.append(error))
    assert producer.flush(30) == 0
    return refused


async def test_a_node_that_listens_at_every_interface_is_told_by_the_name_of_its_machine(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    given = {
        "listeners": "SSL://:0",
        "listener.security.protocol.map": "SSL:SSL",
        "ssl.keystore.location": str(authority.signed(names="DNS:localhost").both),
        "log.dirs": str(tmp_path / "data"),
    }
    context = ssl.create_default_context(cafile=authority.certificate)
    around = Surroundings(host_name=lambda: "localhost")
    async with open_broker(BrokerConfig.parse(given), around=around) as broker:
        port = broker.servers[0].port
        told = await told_by(Address("localhost", port), TcpDialer(lambda: context), nodes=1)
        assert told == {("localhost", port)}


async def test_a_client_that_checks_names_gets_everywhere_from_everywhere(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    store, trusted, ports = authority.signed(names="DNS:localhost").both, authority.certificate, free_ports(6)
    context = ssl.create_default_context(cafile=trusted)
    dialer = TcpDialer(lambda: context)
    configs = [BrokerConfig.parse(settings_of(tmp_path, ports, node, store, trusted)) for node in NODES]
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(60):
            await asyncio.gather(*(stack.enter_async_context(open_broker(config)) for config in configs))
        expected = {("localhost", port) for port in ports[:3]}
        for port in ports[:3]:
            assert await told_by(Address("localhost", port), dialer) == expected
        assert await asyncio.to_thread(write_to_all, f"localhost:{ports[0]}", trusted) == []
