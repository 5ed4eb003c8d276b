"""Consumers of confluent-kafka that name their rack read there, also while leaders come and go (KIP-392)"""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill.broker.config import RACK_AWARE
from tidemill.free_ports import free_ports
from tidemill.services import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

TOPIC, RACKS = "t", ("a", "b", "c")
RECORDS = 200


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = {
        "replica.selector.class": RACK_AWARE,
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }
    found = Cluster("racks", tmp_path, free_ports(6), settings=settings, racks=RACKS)
    try:
        yield found.start()
    finally:
        found.kill()


class Reader:
    """A consumer in one rack, and at which broker it reads by its own account."""

    def __init__(self, bootstrap: str, rack: str) -> None:
        self.values: list[bytes] = []
        self.reads_at = -1
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": rack,
                "client.rack": rack,
                "statistics.interval.ms": 100,
                "stats_cb": self._told,
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])

    def _told(self, text: str) -> None:
        partitions = json.loads(text).get("topics", {}).get(TOPIC, {}).get("partitions", {})
        self.reads_at = partitions.get("0", {}).get("broker", -1)

    def read(self, until: int) -> None:
        """Go on until there are so many records."""
        deadline = time.monotonic() + 60
        while len(self.values) < until:
            assert time.monotonic() < deadline, f"{len(self.values)} of {until} records"
            for message in self._consumer.consume(100, 0.2):
                assert message.error() is None, message.error()
                self.values.append(message.value() or b"")

    def goes_to(self, node: int) -> None:
        """Return when it reads at that broker."""
        deadline = time.monotonic() + 60
        while self.reads_at != node:
            assert time.monotonic() < deadline, f"it reads at {self.reads_at}, not at {node}"
            assert self._consumer.poll(0.1) is None

    def close(self) -> None:
        self._consumer.close()


def write(bootstrap: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(first, first + RECORDS):
        producer.produce(TOPIC, b"%d" % number, partition=0)
    assert producer.flush(60) == 0


def test_consumers_read_in_their_rack_and_go_elsewhere_when_that_is_away(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(30)
    write(cluster.bootstrap, 0)
    leader = admin.list_topics(TOPIC, 10).topics[TOPIC].partitions[0].leader
    followers = [node for node in (1, 2, 3) if node != leader]
    readers = {node: Reader(cluster.bootstrap, RACKS[node - 1]) for node in (1, 2, 3)}
    try:
        for node, reader in readers.items():
            reader.read(RECORDS)
            reader.goes_to(node)
        write(cluster.bootstrap, RECORDS)
        for reader in readers.values():
            reader.read(2 * RECORDS)

        victim = followers[0]
        cluster.nodes[victim].kill()
        write(cluster.bootstrap, 2 * RECORDS)
        for reader in readers.values():
            reader.read(3 * RECORDS)
        cluster.nodes[leader].stop()
        cluster.nodes[victim].restart()
        write(cluster.bootstrap, 3 * RECORDS)
        for reader in readers.values():
            reader.read(4 * RECORDS)
            assert reader.values == [b"%d" % number for number in range(4 * RECORDS)]
    finally:
        for reader in readers.values():
            reader.close()
