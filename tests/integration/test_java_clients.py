"""Apache Kafka's own producer and consumer, by way of its console, perf and verifiable tools, on our broker

Records go from the Java producer to librdkafka and back with every codec, keys and headers; groups commit; the perf
tools that the benchmarks rest on move exactly what they were asked to move.
"""

import json
import re
import subprocess
import uuid

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import peers
from tidemill.services import Service

pytestmark = [
    pytest.mark.integration,
    pytest.mark.java,
    pytest.mark.kafka_peer,
    pytest.mark.timeout(240),
]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 4
COUNT = 300
TOOLS = "org.apache.kafka.tools."

Row = tuple[str, str, str]  # headers as the tools print them, key, value


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    reason = peers.available()
    if reason:
        pytest.skip(f"Kafka's tools cannot be had here: {reason}")


@pytest.fixture
def address(tidemill_broker: Service) -> str:
    return tidemill_broker.facts["address"]


@pytest.fixture
def topic(address: str) -> str:
    name = f"java-{uuid.uuid4().hex[:8]}"
    wanted = NewTopic(name, num_partitions=PARTITIONS, replication_factor=1)
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([wanted])[name].result(30)
    return name


def rows(first: int, count: int = COUNT) -> list[Row]:
    return [
        (f"n:{number},kind:test", f"key-{number}", f"value {number} " + "x" * 80)
        for number in range(first, first + count)
    ]


def console_producer(address: str, topic: str, codec: str, sent: list[Row]) -> None:
    command = [
        "java", "-Xmx256M", "-cp", f"{peers.libraries('kafka', peers.KAFKA)}/*", TOOLS + "ConsoleProducer",
        "--bootstrap-server", address, "--topic", topic, "--compression-codec", codec,
        "--reader-property", "parse.key=true", "--reader-property", "parse.headers=true",
    ]  # fmt: skip
    lines = "".join("\t".join(row) + "\n" for row in sent)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "Exception" not in done.stderr, done.stderr


def console_consumer(address: str, topic: str, group: str, count: int) -> list[Row]:
    arguments = [
        "--bootstrap-server", address, "--topic", topic, "--group", group, "--from-beginning",
        "--max-messages", str(count), "--timeout-ms", "60000",
        "--formatter-property", "print.key=true", "--formatter-property", "print.headers=true",
    ]  # fmt: skip
    text = peers.run_tool(TOOLS + "consumer.ConsoleConsumer", arguments)
    return [tuple(line.split("\t")) for line in text.splitlines()]  # type: ignore[misc]


def librdkafka_consumer(address: str, topic: str, count: int) -> list[Row]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": uuid.uuid4().hex, "check.crcs": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    try:
        found = consumer.consume(count, timeout=60)
    finally:
        consumer.close()
    assert [message.error() for message in found if message.error()] == []
    return [
        (
            ",".join(f"{name}:{value.decode()}" for name, value in each.headers()),
            each.key().decode(),
            each.value().decode(),
        )
        for each in found
    ]


def librdkafka_producer(address: str, topic: str, codec: str, sent: list[Row]) -> None:
    producer = Producer({"bootstrap.servers": address, "compression.type": codec, "linger.ms": 5})
    for headers, key, value in sent:
        pairs = [(name, text.encode()) for name, text in (each.split(":") for each in headers.split(","))]
        producer.produce(topic, key=key, value=value, headers=pairs)
    assert producer.flush(60) == 0


def end_of(address: str, topic: str) -> int:
    """Records of a topic that nothing was removed from."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "ends"})
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=30)[1] for each in range(PARTITIONS)
        ]
    finally:
        consumer.close()
    return sum(ends)


@pytest.mark.parametrize("codec", CODECS)
def test_the_console_tools_and_librdkafka_read_each_other(address: str, topic: str, codec: str) -> None:
    console_producer(address, topic, codec, rows(0))
    librdkafka_producer(address, topic, codec, rows(COUNT))
    expected = sorted(rows(0, 2 * COUNT))
    assert sorted(librdkafka_consumer(address, topic, 2 * COUNT)) == expected
    assert sorted(console_consumer(address, topic, f"g-{topic}", 2 * COUNT)) == expected


def test_a_group_of_the_console_consumer_goes_on_where_it_was(address: str, topic: str) -> None:
    group = f"g-{topic}"
    console_producer(address, topic, "none", rows(0))
    assert sorted(console_consumer(address, topic, group, COUNT)) == sorted(rows(0))
    librdkafka_producer(address, topic, "lz4", rows(COUNT, 50))
    assert sorted(console_consumer(address, topic, group, 50)) == sorted(rows(COUNT, 50))


@pytest.mark.parametrize("idempotent", ["true", "false"])
def test_the_perf_tools_move_what_they_are_asked_to(address: str, topic: str, idempotent: str) -> None:
    count = 50_000
    written = peers.run_tool(
        TOOLS + "ProducerPerformance",
        [
            "--topic", topic, "--num-records", str(count), "--record-size", "200", "--throughput", "-1",
            "--producer-props", f"bootstrap.servers={address}", "acks=all", f"enable.idempotence={idempotent}",
            "compression.type=zstd", "linger.ms=5",
        ],
    )  # fmt: skip
    assert f"{count} records sent" in written.splitlines()[-1]
    assert end_of(address, topic) == count
    read = peers.run_tool(
        TOOLS + "ConsumerPerformance",
        ["--bootstrap-server", address, "--topic", topic, "--num-records", str(count), "--timeout", "60000"],
    )
    header, values = [[cell.strip() for cell in line.split(",")] for line in read.strip().splitlines()[-2:]]
    assert int(dict(zip(header, values, strict=True))["data.consumed.in.nMsg"]) >= count


def test_end_to_end_latency_makes_every_round_trip(address: str, topic: str) -> None:
    text = peers.run_tool(
        TOOLS + "EndToEndLatency",
        [
            "--bootstrap-server", address, "--topic", topic, "--num-records", "500", "--producer-acks", "all",
            "--record-size", "100",
        ],
    )  # fmt: skip
    assert re.search(r"Percentiles: 50th = [\d.]+, 99th = [\d.]+", text)
    assert end_of(address, topic) == 500


def test_the_verifiable_tools_agree_on_every_record(address: str, topic: str) -> None:
    arguments = ["--bootstrap-server", address, "--topic", topic, "--max-messages", "2000"]
    sent = events(peers.run_tool(TOOLS + "VerifiableProducer", [*arguments, "--acks", "-1"]))
    acknowledged = {(each["partition"], each["offset"]) for each in sent if each["name"] == "producer_send_success"}
    assert len(acknowledged) == 2000
    group = ["--group-id", f"g-{topic}", "--reset-policy", "earliest", "--verbose"]
    received = events(peers.run_tool(TOOLS + "VerifiableConsumer", [*arguments, *group]))
    assert {(each["partition"], each["offset"]) for each in received if each["name"] == "record_data"} == acknowledged


def events(text: str) -> list[dict[str, object]]:
    """What a verifiable tool tells, a JSON object a line."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
