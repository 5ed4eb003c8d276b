"""Three nodes that speak TLS with certificates on both sides, everywhere: leaders killed, certificates replaced

Strangers are refused, and say so.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from tests.certificates import Authority
from tests.integration.numbered_records import until
from tidemill import services
from tidemill.broker.node import CERTIFICATES_INTERVAL_S
from tidemill.free_ports import free_ports

pytestmark = [pytest.mark.integration, pytest.mark.crash, pytest.mark.timeout(240)]

TOPIC = "t"
RECORDS = 500


class World:
    """A cluster all of whose listeners want certificates, its authority, and one client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "authority")
        self.store, self.trusted = folder / "node.pem", folder / "trusted.pem"
        self.put(self.authority, self.authority)
        self.client = self.authority.signed("/CN=client")
        self.cluster = services.Cluster(
            "cluster", folder, free_ports(6), settings=self.terms(self.store, self.trusted), listener="SSL"
        )
        self.written = 0

    @staticmethod
    def terms(store: Path, trusted: Path) -> dict[str, str]:
        return {
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "listener.security.protocol.map": "SSL:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "SSL",
            "ssl.keystore.location": str(store),
            "ssl.truststore.location": str(trusted),
            "ssl.client.auth": "required",
        }

    def put(self, shown: Authority, *trusted: Authority) -> None:
        """What nodes show and trust from now on."""
        for file, text in (
            (self.store, shown.signed("/CN=node").both.read_text()),
            (self.trusted, "".join(each.certificate.read_text() for each in trusted)),
        ):
            new = file.with_suffix(".new")
            new.write_text(text)
            new.rename(file)

    def settings(self, **more: object) -> dict[str, object]:
        return {
            "bootstrap.servers": self.cluster.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.trusted),
            "ssl.certificate.location": str(self.client.certificate),
            "ssl.key.location": str(self.client.key),
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def admin(self) -> AdminClient:
        return AdminClient(self.settings())

    def write(self) -> None:
        refused: list[KafkaError] = []

        def told(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                refused.append(error)

        producer = Producer(self.settings(enable_idempotence=True))
        for number in range(self.written, self.written + RECORDS):
            producer.produce(TOPIC, b"%d" % number, partition=0, on_delivery=told)
        assert producer.flush(60) == 0
        assert refused == []
        self.written += RECORDS

    def read(self) -> list[bytes]:
        consumer = Consumer(self.settings(group_id="g", enable_partition_eof=True))
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found: list[bytes] = []
        deadline = time.monotonic() + 60
        while len(found) < self.written:
            assert time.monotonic() < deadline, f"{len(found)} of {self.written} records"
            found += [each.value() for each in consumer.consume(1000, 1.0) if each.error() is None]
        consumer.close()
        return found

    def log_of(self, node: int) -> str:
        return (self.folder / f"node-{node}.log").read_text()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path)
    try:
        found.cluster.start()
        yield found
    finally:
        for node in found.cluster.nodes.values():
            node.kill()


def partition(admin: AdminClient) -> PartitionMetadata | None:
    return admin.list_topics(TOPIC, 10).topics[TOPIC].partitions.get(0)


def leader_of(admin: AdminClient) -> int:
    found = partition(admin)
    assert found is not None
    return found.leader


def in_sync(admin: AdminClient) -> bool:
    found = partition(admin)
    return found is not None and len(found.isrs) == 3


def test_a_cluster_of_certificates(world: World) -> None:
    cluster, admin = world.cluster, world.admin()
    admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(30)
    until(lambda: in_sync(admin), "all replicas in sync")
    world.write()

    victim = leader_of(admin)
    cluster.nodes[victim].kill()
    world.write()
    cluster.nodes[victim].restart()
    until(lambda: in_sync(admin), "all replicas in sync again")

    second = Authority(world.folder / "second", "Second Authority")
    world.put(world.authority, world.authority, second)  # whom to trust first, then what to show
    time.sleep(CERTIFICATES_INTERVAL_S + 1)
    world.put(second, second)
    world.client = second.signed("/CN=client")
    until(lambda: all(world.log_of(node).count("certificate changed") >= 4 for node in (1, 2, 3)), "new certificates")
    admin = world.admin()
    victim = leader_of(admin)
    cluster.nodes[victim].stop()
    world.write()
    cluster.nodes[victim].restart()
    until(lambda: in_sync(admin), "all replicas in sync, with new certificates")
    world.write()
    assert world.read() == [b"%d" % number for number in range(world.written)]

    stranger = Authority(world.folder / "stranger", "Stranger")
    own = world.folder / "stranger.pem"
    own.write_text(stranger.signed("/CN=node").both.read_text())
    fourth = cluster.add_broker(*free_ports(1), settings={"ssl.keystore.location": str(own)})
    fourth.begin()
    until(lambda: "no connection to a controller: TLS" in world.log_of(4), "what a stranger says")
    said = next(line for line in world.log_of(4).splitlines() if "no connection to a controller" in line)
    assert "certificate" in said
    fourth.kill()
