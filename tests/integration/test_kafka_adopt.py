"""The whole data folder of an Apache Kafka node, taken over with one command and served by our broker

A Kafka node makes topics with settings, deletes one, changes a setting, adds partitions, takes records of idempotent
producers over two of its lives and keeps the offsets of a group; the newest of its metadata is behind a snapshot. It
ends in order, and once more by kill -9.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from typer.testing import CliRunner

from benchmarks import peers
from tidemill import services
from tidemill.broker.tools.log_cli import app
from tidemill.core.records.batch import iter_batches

pytestmark = [
    pytest.mark.integration,
    pytest.mark.java,
    pytest.mark.kafka_peer,
    pytest.mark.timeout(240),
]

RECORDS_EACH = 120
SETTINGS = {
    "orders": {"segment.bytes": "1048576", "retention.ms": "3600000000"},
    "state": {"cleanup.policy": "compact"},
}
PARTITIONS = {"orders": 3, "state": 4}
KAFKA = {"metadata.log.max.record.bytes.between.snapshots": "2000"}

Records = dict[tuple[str, int, int], tuple[bytes, bytes]]


class Left(NamedTuple):
    """What a Kafka node left behind."""

    data: Path
    records: Records
    topic_ids: dict[str, str]
    committed: dict[int, int]


def produce(address: str, round_number: int, records: Records) -> None:
    """An idempotent producer writes to every partition."""

    def delivered(error: object, message: Message) -> None:
        assert error is None
        records[message.topic(), message.partition(), message.offset()] = (message.key(), message.value())

    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for topic, count in PARTITIONS.items():
        for number in range(RECORDS_EACH):
            partition = number % (count if round_number else min(count, 2))
            key, value = f"{round_number}-{number}", f"value {round_number} {number}"
            producer.produce(topic, value, key, partition, on_delivery=delivered)
    assert producer.flush(60) == 0


def prepare(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    first = {"orders": {"segment.bytes": "1048576", "retention.ms": "86400000"}, "state": SETTINGS["state"], "gone": {}}
    topics = [NewTopic(name, 3 if name == "orders" else 2, 1, config=config) for name, config in first.items()]
    for future in admin.create_topics(topics).values():
        future.result(30)
    admin.delete_topics(["gone"])["gone"].result(30)
    change = ConfigEntry("retention.ms", "3600000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "orders", incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(30)
    admin.create_partitions([NewPartitions("state", 4)])["state"].result(30)


def commit(address: str) -> dict[int, int]:
    """A group reads a part of a topic and says so."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "readers",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    places = [TopicPartition("orders", number, 10 + number) for number in range(PARTITIONS["orders"])]
    consumer.subscribe(["orders"])
    while not consumer.assignment():
        consumer.poll(0.2)
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()
    return {place.partition: place.offset for place in places}


@pytest.fixture(scope="module", params=["stopped", "killed"])
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Left:
    reason = peers.available()
    if reason:
        pytest.skip(f"Apache Kafka cannot be started here: {reason}")
    node = tmp_path_factory.mktemp("kafka-node")
    records: Records = {}
    committed: dict[int, int] = {}
    topic_ids: dict[str, str] = {}
    for round_number in range(2):
        with peers.kafka_node(node, heap="400M", settings=KAFKA) as (address, peer):
            if round_number == 0:
                prepare(address)
                status, output = log("adopt", node / "data")
                assert (status, "stop it first" in output) == (2, True), "Kafka has the folder"
            produce(address, round_number, records)
            if round_number == 1:
                committed = commit(address)
                topic_ids = ids_of(address)
                if request.param == "killed":
                    peer.process.kill()
                    peer.process.wait(20)
    assert list((node / "data" / "__cluster_metadata-0").glob("*.checkpoint"))
    return Left(node / "data", records, topic_ids, committed)


def ids_of(address: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": address})
    metadata = admin.list_topics(timeout=20)
    assert "gone" not in metadata.topics
    found = {}
    names = [*PARTITIONS, "__consumer_offsets"]
    for name, future in admin.describe_topics(TopicCollection(names)).items():
        topic = future.result(20)
        identity = topic.topic_id
        assert isinstance(identity, Uuid)
        found[name] = str(identity)
        if name in PARTITIONS:
            assert len(topic.partitions) == PARTITIONS[name]
    return found


def log(command: str, folder: Path, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, [command, *options, str(folder)])
    return result.exit_code, result.output


def test_everything_that_kafka_kept_is_served_after_one_command(left: Left, tmp_path: Path) -> None:
    data = shutil.copytree(left.data, tmp_path / "data")
    with pytest.raises(services.ServiceError, match="tidemill log adopt"):
        services.broker("refused", data, log=tmp_path / "refused.log").start()
    status, output = log("adopt", data)
    assert status == 0, output
    assert "committed offsets: 3 of 1 groups" in output
    assert "not taken" not in output
    served = services.broker("serving", data, log=tmp_path / "serving.log").start()
    try:
        address = served.facts["address"]
        assert ids_of(address) == left.topic_ids
        settings(address)
        assert read_all(address, len(left.records)) == left.records
        assert committed(address) == left.committed
        more: Records = dict(left.records)
        before = producer_ids(data)
        produce(address, 2, more)
        assert read_all(address, len(more)) == more
    finally:
        served.stop()
    fresh = producer_ids(data) - before
    assert fresh and min(fresh) > max(before), "an id that Kafka never gave out"
    status, output = log("verify", data)
    assert status == 0, output
    text = (tmp_path / "serving.log").read_text()
    assert "Traceback" not in text and "stray" not in text and "corrupt" not in text


def settings(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for topic, expected in SETTINGS.items():
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        (future,) = admin.describe_configs([resource]).values()
        found = future.result(20)
        # source 1: set on the topic itself
        assert {name: entry.value for name, entry in found.items() if entry.source == 1} == expected


def read_all(address: str, count: int) -> Records:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "everything", "check.crcs": True})
    consumer.assign([TopicPartition(topic, each, 0) for topic, size in PARTITIONS.items() for each in range(size)])
    found: Records = {}
    try:
        for message in messages(consumer):
            found[message.topic(), message.partition(), message.offset()] = (message.key(), message.value())
            if len(found) == count:
                break
    finally:
        consumer.close()
    return found


def messages(consumer: Consumer) -> Iterator[Message]:
    """Until ten seconds bring nothing."""
    while (message := consumer.poll(10)) is not None:
        assert message.error() is None, message.error()
        yield message


def committed(address: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "readers"})
    try:
        places = [TopicPartition("orders", number) for number in range(PARTITIONS["orders"])]
        return {place.partition: place.offset for place in consumer.committed(places, timeout=20)}
    finally:
        consumer.close()


def producer_ids(data: Path) -> set[int]:
    """Of every batch in the folder."""
    logs = [path for topic in PARTITIONS for path in data.glob(f"{topic}-*/*.log")]
    return {view.producer_id for path in logs for view in iter_batches(path.read_bytes()) if view.producer_id >= 0}
