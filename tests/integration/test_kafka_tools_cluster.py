"""Apache Kafka's own command-line tools on a cluster of ours in two racks: placement, elections, moves, settings"""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, PartitionMetadata

from tests.integration.test_kafka_tools import CONFIGS, ELECT, REASSIGN, TOPICS, classpath, tool
from tidemill.free_ports import free_ports
from tidemill.services import Cluster

__all__ = ["classpath"]  # a fixture

pytestmark = [
    pytest.mark.integration,
    pytest.mark.java,
    pytest.mark.kafka_peer,
    pytest.mark.timeout(600),
]

CLUSTER_TOOL = "org.apache.kafka.tools.ClusterTool"
TOPIC, PARTITIONS = "t", 6
RACKS = {1: "a", 2: "b", 3: "a", 4: "b"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = {"broker.heartbeat.interval.ms": "500"}
    racks = [RACKS[node] for node in (1, 2, 3)]
    found = Cluster("tools", tmp_path, free_ports(6), settings=settings, racks=racks)
    try:
        found.start()
        found.add_broker(*free_ports(1), settings={"broker.rack": RACKS[4]})
        found.start()
        yield found
    finally:
        found.kill()


def partitions(cluster: Cluster) -> dict[int, PartitionMetadata]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return admin.list_topics(TOPIC, 10).topics[TOPIC].partitions


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, f"not within a minute: {what}"
        time.sleep(0.1)


def test_a_cluster_is_looked_after_with_kafkas_tools(classpath: str, cluster: Cluster, tmp_path: Path) -> None:
    at = ("--bootstrap-server", cluster.addresses[1])
    create = ("--create", "--topic", TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "2")
    tool(classpath, TOPICS, *at, *create)
    until(lambda: all(len(each.isrs) == 2 for each in partitions(cluster).values()), "in sync")
    assert all({RACKS[node] for node in each.replicas} == {"a", "b"} for each in partitions(cluster).values())

    preferred = {number: each.replicas[0] for number, each in partitions(cluster).items()}
    moved = preferred[0]
    cluster.nodes[moved].stop()
    until(lambda: moved not in {each.leader for each in partitions(cluster).values()}, "led by others")
    cluster.nodes[moved].restart()
    until(lambda: all(len(each.isrs) == 2 for each in partitions(cluster).values()), "in sync again")
    elected = tool(classpath, ELECT, *at, "--election-type", "preferred", "--all-topic-partitions")
    assert "Successfully completed leader election (PREFERRED)" in elected
    until(lambda: {each.id: each.leader for each in partitions(cluster).values()} == preferred, "led as preferred")

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 10})
    for number in range(6000):
        producer.produce(TOPIC, b"x" * 1000, partition=number % 2)
    assert producer.flush(60) == 0
    before = {number: partitions(cluster)[number].replicas for number in (0, 1)}
    after = {number: [node for node in RACKS if node not in before[number]] for number in (0, 1)}
    plan = tmp_path / "plan.json"
    rows = [{"topic": TOPIC, "partition": number, "replicas": nodes} for number, nodes in after.items()]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    moving = (*at, "--reassignment-json-file", str(plan))
    tool(classpath, REASSIGN, *moving, "--execute", "--throttle", "1000")
    listed = tool(classpath, REASSIGN, *at, "--list")
    assert re.search(rf"{TOPIC}-[01]: replicas: [\d,]+\. adding: ", listed), listed
    cancelled = tool(classpath, REASSIGN, *moving, "--cancel")
    assert "Successfully cancelled partition reassignments" in cancelled, cancelled
    assert "Clearing broker-level throttles" in cancelled
    assert "No partition reassignments found" in tool(classpath, REASSIGN, *at, "--list")
    tool(classpath, REASSIGN, *moving, "--execute")
    until(
        lambda: all(set(partitions(cluster)[number].replicas) == set(nodes) for number, nodes in after.items()), "moved"
    )
    assert "is completed" in tool(classpath, REASSIGN, *moving, "--verify")

    second = ("--entity-type", "brokers", "--entity-name", "2")
    tool(classpath, CONFIGS, *at, *second, "--alter", "--add-config", "max.connections=222")
    shown = tool(classpath, CONFIGS, *at, *second, "--describe")
    assert "max.connections=222 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:max.connections=222" in shown
    assert "throttled.rate" not in shown
    cluster.nodes[4].stop()
    assert "is no longer registered" in tool(classpath, CLUSTER_TOOL, "unregister", *at, "--id", "4")
