"""The folders of an Apache Kafka cluster of three, taken over node by node and served by our three nodes

Kafka's nodes make topics with three replicas, take records, keep a group's offsets, lose one node and get it back, and
are stopped one after the other, so that no two metadata logs end at the same place.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from benchmarks import cluster, peers
from tests.integration.test_kafka_adopt import commit
from tidemill.broker.tools.log_cli import app
from tidemill.services import Service

pytestmark = [
    pytest.mark.integration,
    pytest.mark.java,
    pytest.mark.kafka_peer,
    pytest.mark.timeout(300),
]

PARTITIONS = 3
NODES = (1, 2, 3)
Records = dict[tuple[int, int], bytes]


def produce(address: str, begin: int, count: int) -> Records:
    acknowledged: Records = {}

    def delivered(error: object, message: Message) -> None:
        assert error is None
        acknowledged[message.partition(), message.offset()] = message.value()

    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for number in range(begin, begin + count):
        producer.produce("orders", f"value {number}", partition=number % PARTITIONS, on_delivery=delivered)
    assert producer.flush(60) == 0
    return acknowledged


def consume(address: str, count: int) -> Records:
    settings = {"bootstrap.servers": address, "group.id": "all", "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("orders", number, 0) for number in range(PARTITIONS)])
    found: Records = {}
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None and message.error() is None, f"{len(found)} of {count}"
        found[message.partition(), message.offset()] = message.value()
    consumer.close()
    return found


def in_sync(address: str) -> Callable[[], bool]:
    admin = AdminClient({"bootstrap.servers": address})

    def ask() -> bool:
        topics = admin.list_topics(timeout=10).topics
        return all(
            len(partition.isrs) == len(NODES) and partition.leader > 0
            for name in ("orders", "__consumer_offsets")
            for partition in topics[name].partitions.values()
        )

    return ask


def fill(target: cluster.Target) -> tuple[Records, dict[int, int]]:
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    config = {"min.insync.replicas": "2", "retention.ms": "3600000000"}
    admin.create_topics([NewTopic("orders", PARTITIONS, 3, config=config)])["orders"].result(30)
    records = produce(target.bootstrap, 0, 300)
    committed = commit(target.bootstrap)
    target.kill(1)
    records |= produce(target.bootstrap, 300, 300)
    target.restart(1)
    peers.wait_until(in_sync(target.bootstrap), 90, "all in sync")
    return records, committed


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Records, dict[int, int]]:
    reason = peers.available()
    if reason:
        pytest.skip(f"Apache Kafka cannot be started here: {reason}")
    folder = tmp_path_factory.mktemp("kafka")
    settings = {"metadata.log.max.record.bytes.between.snapshots": "4000", "offsets.topic.num.partitions": "4"}
    with cluster.kafka(folder, heap="400M", settings=settings) as target:
        records, committed = fill(target)
        target.stop(2)
        target.stop(3)
        target.kill(1)  # the last one has no quorum left to ask, and would wait for it for minutes
    return folder, records, committed


def adopt(folder: Path, *options: str) -> str:
    result = CliRunner().invoke(app, ["adopt", *options, str(folder)])
    assert result.exit_code == 0, result.output
    return result.output


def started(home: Path) -> Service:
    """One of our nodes, with the file that Kafka's had."""
    command = ["broker", "start", "--config", str(home / "server.properties")]
    ready = r"tidemill broker ready: listening on (?P<address>\S+?),"
    node = Service(home.name, command, ready=ready, log=home / "ours.log")
    node.begin()
    return node


def test_three_of_ours_go_on_where_three_of_kafka_stopped(left: tuple[Path, Records, dict[int, int]]) -> None:
    folder, records, committed = left
    ends = set()
    for node in NODES:
        said = adopt(folder / f"node-{node}" / "data", *(["--was-killed"] if node == 1 else []))
        assert "committed offsets: 3 of 1 groups" in said
        end = re.search(r"metadata up to offset (\d+), epoch (\d+)", said)
        assert end is not None
        ends.add(end.groups())
    assert len(ends) > 1, "the copies of the metadata do not end at the same place, and that is what is tried"
    nodes = [started(folder / f"node-{node}") for node in NODES]
    try:
        for each in nodes:
            each.wait(60)
        address = ",".join(each.facts["address"] for each in nodes)
        peers.wait_until(in_sync(address), 90, "all in sync")
        assert consume(address, len(records)) == records
        wanted = [TopicPartition("orders", number) for number in range(PARTITIONS)]
        admin = AdminClient({"bootstrap.servers": address})
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("readers", wanted)])
        offsets = {each.partition: each.offset for each in asked["readers"].result(30).topic_partitions}
        assert offsets == committed
        nodes[0].kill()
        more = produce(address, 600, 90)
        assert len(more) == 90
        assert not more.keys() & records.keys(), "no offset is given twice"
    finally:
        for each in nodes:
            each.kill()
