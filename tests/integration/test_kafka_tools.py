"""Apache Kafka's own command-line tools on our broker and on our files

What an operator knows works unchanged: topics, settings, groups, reassignments, elections, log folders and the quorum
over the wire, and the dump tool on the metadata log and on `__consumer_offsets`, whose records are Kafka's own.
"""

import json
import re
import shutil
import subprocess
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill import services
from tidemill.services import Service

pytestmark = [
    pytest.mark.integration,
    pytest.mark.java,
    pytest.mark.kafka_peer,
    pytest.mark.timeout(300),
]

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"


@pytest.fixture(scope="module")
def classpath() -> str:
    from benchmarks import peers

    reason = peers.available()
    if reason:
        pytest.skip(f"Kafka's tools cannot be had here: {reason}")
    return f"{peers.libraries('kafka', peers.KAFKA)}/*"


def tool(classpath: str, name: str, *arguments: str) -> str:
    """Standard output of a tool that has to succeed."""
    java = shutil.which("java")
    assert java is not None
    command = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", classpath, name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Exception" not in done.stderr, done.stderr
    return done.stdout


def test_topics_settings_and_groups_are_managed_with_kafkas_tools(classpath: str, tidemill_broker: Service) -> None:
    address = tidemill_broker.facts["address"]
    topic, group = f"tools-{uuid.uuid4().hex[:8]}", f"group-{uuid.uuid4().hex[:8]}"
    at = ("--bootstrap-server", address)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tool(classpath, TOPICS, *at, "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=50000000")
    tool(classpath, TOPICS, *at, "--alter", "--topic", topic, "--partitions", "3")
    shown = tool(classpath, TOPICS, *at, "--describe", "--topic", topic)
    assert re.search(rf"Topic: {topic}\s+TopicId: \S{{22}}\s+PartitionCount: 3\s+ReplicationFactor: 1", shown)
    assert "retention.ms=50000000" in shown
    tool(classpath, CONFIGS, *at, *entity, "--alter", "--add-config", "cleanup.policy=[compact,delete]")
    settings = tool(classpath, CONFIGS, *at, *entity, "--describe")
    assert "cleanup.policy=compact,delete" in settings
    assert "DEFAULT_CONFIG:log.retention.hours=168" in settings

    producer = Producer({"bootstrap.servers": address})
    for number in range(10):
        producer.produce(topic, key=str(number), value=str(number), partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    consumer.close()
    described = tool(classpath, GROUPS, *at, "--describe", "--group", group)
    assert re.search(rf"{group}\s+{topic}\s+0\s+4\s+10\s+6", described), described
    dropped = tool(classpath, GROUPS, *at, "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert re.search(rf"{topic}\s+0\s+Successful", dropped), dropped
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    consumer.close()
    reset = ("--reset-offsets", "--topic", topic, "--to-earliest", "--execute")
    assert re.search(rf"{group}\s+{topic}\s+0\s+0", tool(classpath, GROUPS, *at, "--group", group, *reset))
    assert "was successful" in tool(classpath, GROUPS, *at, "--delete", "--group", group)
    tool(classpath, TOPICS, *at, "--delete", "--topic", topic)
    assert topic not in tool(classpath, TOPICS, *at, "--list")


def test_the_node_is_looked_after_with_kafkas_tools(classpath: str, tidemill_broker: Service, tmp_path: Path) -> None:
    topic = f"tools-{uuid.uuid4().hex[:8]}"
    at = ("--bootstrap-server", tidemill_broker.facts["address"])
    tool(classpath, TOPICS, *at, "--create", "--topic", topic, "--partitions", "1")

    status = tool(classpath, QUORUM, *at, "describe", "--status")
    assert re.search(r"LeaderId:\s+1\n", status), status
    assert re.search(r'CurrentVoters:\s+\[\{"id": 1, "directoryId": "\S{22}"', status), status
    folders = json.loads(tool(classpath, LOG_DIRS, *at, "--describe", "--topic-list", topic).splitlines()[-1])
    ((folder,),) = (broker["logDirs"] for broker in folders["brokers"])
    assert [(entry["partition"], entry["size"]) for entry in folder["partitions"]] == [(f"{topic}-0", 0)]

    elected = tool(classpath, ELECT, *at, "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert f"Valid replica already elected for partitions {topic}-0" in elected
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [1]}]}))
    moving = ("--reassignment-json-file", str(plan))
    started = tool(classpath, REASSIGN, *at, *moving, "--execute", "--throttle", "1000000")
    assert f"Successfully started partition reassignment for {topic}-0" in started
    assert f"Reassignment of partition {topic}-0 is completed" in tool(classpath, REASSIGN, *at, *moving, "--verify")

    node = ("--entity-type", "brokers", "--entity-name", "1")
    tool(classpath, CONFIGS, *at, *node, "--alter", "--add-config", "log.roll.ms=70000")
    settings = tool(classpath, CONFIGS, *at, *node, "--describe")
    assert "log.roll.ms=70000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.roll.ms=70000}" in settings
    assert "throttled.rate" not in settings, "the reassignment has cleared its throttle"
    tool(classpath, CONFIGS, *at, *node, "--alter", "--delete-config", "log.roll.ms")


def payloads(dump: str) -> list[dict[str, object]]:
    """The JSON payloads that the dump tool found."""
    assert "isvalid: false" not in dump
    found = [re.search(r"payload: (\{.*\})$", line) for line in dump.splitlines()]
    return [json.loads(match[1]) for match in found if match is not None]


def test_our_metadata_and_group_files_are_read_by_kafkas_dump_tool(classpath: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = {"offsets.topic.num.partitions": "1", "metadata.log.max.record.bytes.between.snapshots": "400"}
    broker = services.broker("dumped", data, settings=settings, log=tmp_path / "broker.log").start()
    try:
        address = broker.facts["address"]
        producer = Producer({"bootstrap.servers": address})
        producer.produce("t", value="x")
        assert producer.flush(30) == 0
        consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        assert consumer.consume(1, timeout=60)
        consumer.commit(asynchronous=False)
        consumer.close()
        broker.kill()
        # Out of order: with new leaderships, which no snapshot takes out of the log again.
        del settings["metadata.log.max.record.bytes.between.snapshots"]
        broker = services.broker("dumped", data, settings=settings, log=tmp_path / "second.log").start()
    finally:
        broker.stop()
    segment = "00000000000000000000.log"
    folder = data / "__cluster_metadata-0"

    def kinds(pattern: str) -> set[str]:
        return {
            str(record["type"])
            for file in sorted(folder.glob(pattern))
            for record in payloads(tool(classpath, DUMP, "--files", str(file), "--cluster-metadata-decoder"))
        }

    log_kinds = kinds("*.log")
    before = set(folder.glob("*.checkpoint"))
    settings["metadata.log.max.record.bytes.between.snapshots"] = "400"
    broker = services.broker("dumped", data, settings=settings, log=tmp_path / "third.log").start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.facts["address"]})
        topics = [NewTopic(f"more-{number}", 1, config={"retention.ms": "5"}) for number in range(5)]
        for created in admin.create_topics(topics).values():
            created.result(30)
        deadline = time.monotonic() + 60
        while set(folder.glob("*.checkpoint")) == before:
            assert time.monotonic() < deadline, "no snapshot is written"
            time.sleep(0.05)
    finally:
        broker.stop()
    snapshot_kinds = kinds("*.checkpoint")
    everything = {"REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD"}
    assert "PARTITION_CHANGE_RECORD" in log_kinds
    assert everything <= snapshot_kinds
    groups = payloads(
        tool(classpath, DUMP, "--files", str(data / "__consumer_offsets-0" / segment), "--offsets-decoder")
    )
    text = json.dumps(groups)
    assert '"protocolType": "consumer"' in text
    assert '"generation": 1' in text
    assert '"offset": 1' in text
