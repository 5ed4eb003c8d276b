"""The admin calls of confluent-kafka and kafka-python, as their users make them

Settings, elections, reassignments, log folders, the quorum and committed offsets of one broker. What these libraries
take from an answer is theirs to decide, so it is asserted on their values and errors, not on bytes.
"""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
)
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import ConfigResource as KafkaPythonResource
from kafka.admin import ConfigResourceType, KafkaAdminClient
from kafka.errors import (
    InvalidReplicationAssignmentError,
    InvalidUpdateVersionError,
    LogDirNotFoundError,
    NoError,
    NoReassignmentInProgressError,
    UnknownTopicOrPartitionError,
)

from tidemill.services import Service

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

TIMEOUT_S = 30


@pytest.fixture
def address(tidemill_broker: Service) -> str:
    return str(tidemill_broker.facts["address"])


@pytest.fixture
def confluent(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address})


@pytest.fixture
def kafka_python(address: str) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=address)
    yield admin
    admin.close()


@pytest.fixture
def topic(confluent: AdminClient) -> str:
    name = f"admin-{uuid.uuid4().hex[:12]}"
    config = {"segment.ms": "70000"}
    confluent.create_topics([NewTopic(name, num_partitions=2, config=config)])[name].result(TIMEOUT_S)
    return name


def settings(admin: AdminClient, kind: ConfigResource.Type, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return found


def test_settings_of_a_topic_with_confluent_kafka(confluent: AdminClient, topic: str) -> None:
    kind = ConfigResource.Type.TOPIC
    entry = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(kind, topic, incremental_configs=[entry])
    confluent.incremental_alter_configs([change])[change].result(TIMEOUT_S)
    found = settings(confluent, kind, topic)
    assert (found["retention.ms"].value, found["segment.ms"].value) == ("60000", "70000")
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    replacement = ConfigResource(kind, topic, set_config={"max.message.bytes": "5000"})
    with pytest.warns(DeprecationWarning, match="incremental_alter_configs"):  # clients still send it
        confluent.alter_configs([replacement])[replacement].result(TIMEOUT_S)
    found = settings(confluent, kind, topic)
    assert found["max.message.bytes"].value == "5000"
    assert found["retention.ms"].source != ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    producer = Producer({"bootstrap.servers": confluent_address(confluent), "message.max.bytes": 1_000_000})
    failures: list[KafkaError | None] = []
    producer.produce(topic, value=b"x" * 6000, on_delivery=lambda error, _message: failures.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    (failure,) = failures
    assert failure is not None
    assert failure.code() == KafkaError.MSG_SIZE_TOO_LARGE


def confluent_address(admin: AdminClient) -> str:
    (broker,) = admin.list_topics(timeout=TIMEOUT_S).brokers.values()
    return f"{broker.host}:{broker.port}"


def test_settings_of_the_broker_with_confluent_kafka(confluent: AdminClient) -> None:
    kind = ConfigResource.Type.BROKER

    def change(name: str, value: str | None, how: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, value, incremental_operation=how)
        resource = ConfigResource(kind, "1", incremental_configs=[entry])
        confluent.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    before = settings(confluent, kind, "1")["log.segment.delete.delay.ms"].value
    change("log.segment.delete.delay.ms", "1234", AlterConfigOpType.SET)
    held = settings(confluent, kind, "1")["log.segment.delete.delay.ms"]
    assert (held.value, held.source) == ("1234", ConfigSource.DYNAMIC_BROKER_CONFIG.value)
    change("log.segment.delete.delay.ms", None, AlterConfigOpType.DELETE)
    assert settings(confluent, kind, "1")["log.segment.delete.delay.ms"].value == before
    assert settings(confluent, kind, "1")["num.partitions"].is_read_only
    with pytest.raises(KafkaException, match="Cannot update these configs dynamically"):
        change("num.partitions", "3", AlterConfigOpType.SET)


def test_elections_with_confluent_kafka(confluent: AdminClient, topic: str) -> None:
    asked = [TopicPartition(topic, 0), TopicPartition(topic, 7)]
    for election in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        outcome = confluent.elect_leaders(election, asked).result(TIMEOUT_S)
        codes = {partition.partition: error.code() for partition, error in outcome.items()}
        assert codes == {0: KafkaError.ELECTION_NOT_NEEDED, 7: KafkaError.UNKNOWN_TOPIC_OR_PART}
    outcome = confluent.elect_leaders(ElectionType.PREFERRED, None).result(TIMEOUT_S)
    assert outcome == {}


def test_settings_and_resources_with_kafka_python(kafka_python: KafkaAdminClient, topic: str) -> None:
    assert topic in kafka_python.list_config_resources(["TOPIC"])["topic"]
    assert kafka_python.list_config_resources(["BROKER"]) == {"broker": ["1"]}
    for incremental, value in ((False, "80000"), (True, "90000")):
        resource = KafkaPythonResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": value})
        assert kafka_python.alter_configs([resource], incremental=incremental) == {"topic": {topic: "OK"}}
        shown = kafka_python.describe_configs([KafkaPythonResource(ConfigResourceType.TOPIC, topic)])
        held = {name: row["value"] for name, row in shown["topic"][topic].items()}
        assert (held["retention.ms"], held["segment.ms"]) == (value, "70000")


def test_log_folders_with_kafka_python(kafka_python: KafkaAdminClient, address: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": address})
    producer.produce(topic, value=b"x" * 5000, partition=1)
    assert producer.flush(TIMEOUT_S) == 0
    ((folder,),) = (broker["log_dirs"] for broker in kafka_python.describe_log_dirs({topic: [0, 1]}))
    sizes = {entry["partition_index"]: entry["partition_size"] for t in folder["topics"] for entry in t["partitions"]}
    assert sizes[0] == 0
    assert sizes[1] == (Path(folder["log_dir"]) / f"{topic}-1" / "00000000000000000000.log").stat().st_size > 5000
    assert 0 < folder["usable_bytes"] <= folder["total_bytes"]
    moved = kafka_python.alter_replica_log_dirs({(topic, 0, 1): folder["log_dir"]})
    assert list(moved.values()) == [NoError]
    assert list(kafka_python.alter_replica_log_dirs({(topic, 0, 1): "/nowhere"}).values()) == [LogDirNotFoundError]


def test_replicas_leaders_and_the_quorum_with_kafka_python(kafka_python: KafkaAdminClient, topic: str) -> None:
    first, second, third = (KafkaPythonPartition(topic, number) for number in range(3))
    outcome = kafka_python.alter_partition_reassignments({first: [1], second: [1, 2], third: [1]})
    assert outcome == {first: None, second: InvalidReplicationAssignmentError, third: UnknownTopicOrPartitionError}
    assert kafka_python.alter_partition_reassignments({first: None}) == {first: NoReassignmentInProgressError}
    assert kafka_python.list_partition_reassignments() == {}
    kafka_python.elect_leaders(0, {topic: [0]})
    quorum = kafka_python.describe_metadata_quorum()
    ((partition,),) = (entry["partitions"] for entry in quorum["topics"])
    assert (partition["error"], partition["leader_id"]) == (None, 1)
    (voter,) = partition["current_voters"]
    assert voter["log_end_offset"] == partition["high_watermark"] > 0
    with pytest.raises(InvalidUpdateVersionError):
        kafka_python.update_features({"transaction.version": 2})


def test_committed_offsets_are_deleted_with_kafka_python(
    kafka_python: KafkaAdminClient, address: str, topic: str
) -> None:
    group = f"admin-{uuid.uuid4().hex[:8]}"
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 5)], asynchronous=False)
    consumer.close()
    gone, kept = (KafkaPythonPartition(topic, number) for number in range(2))
    assert kafka_python.delete_group_offsets(group, [gone]) == {gone: NoError}
    assert set(kafka_python.list_group_offsets([group])[group]) == {kept}
