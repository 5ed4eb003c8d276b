"""Compacted topics under real clients: what is left is the last record of every key, also after kill -9

The broker compacts while confluent-kafka writes; it is killed in between. A consumer then has to find the newest
acknowledged record of every key at its offset, nothing that was never written, and Apache Kafka's own dump tool has to
read what the cleaner wrote.
"""

import random
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill import services
from tidemill.free_ports import free_port
from tidemill.services import Service

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

KEYS = 40
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "30000",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}
Written = dict[int, tuple[bytes, bytes | None]]  # offset -> key and value


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Service]:
    settings = {
        "log.cleaner.backoff.ms": "100",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": "20000",
        "log.cleaner.min.cleanable.ratio": "0.01",
    }
    port = free_port()
    service = services.broker(
        "compacting", tmp_path / "data", listen=f"127.0.0.1:{port}", settings=settings, log=tmp_path / "broker.log"
    ).start()
    yield service
    service.stop()


def create(broker: Service, **settings: str) -> str:
    topic = f"compacted-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.facts["address"]})
    admin.create_topics([NewTopic(topic, 1, 1, config={**COMPACTED, **settings})])[topic].result(30)
    return topic


def write(broker: Service, topic: str, count: int, seed: int, codec: str = "none") -> Written:
    """Records with random keys, one in ten a tombstone; returns what was acknowledged."""
    rng, acknowledged = random.Random(seed), Written()
    producer = Producer(
        {
            "bootstrap.servers": broker.facts["address"],
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 2,
            "batch.num.messages": 20,
            "message.timeout.ms": 120_000,
        }
    )

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acknowledged[message.offset()] = (message.key(), message.value())

    for number in range(count):
        key = b"key-%d" % rng.randrange(KEYS)
        value = (
            None
            if rng.random() < 0.1
            else b"%d-%d-" % (seed, number) + rng.randbytes(rng.randrange(100)).hex().encode()
        )
        producer.produce(topic, key=key, value=value, partition=0, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(60) == 0
    return acknowledged


def read(broker: Service, topic: str, offset: int = OFFSET_BEGINNING) -> Written:
    """Everything a consumer finds from `offset` on."""
    consumer = Consumer(
        {"bootstrap.servers": broker.facts["address"], "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    found: Written = {}
    until = time.monotonic() + 60
    try:
        while time.monotonic() < until:
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return found
            assert message.offset() > max(found, default=-1), "offsets go up"
            found[message.offset()] = (message.key(), message.value())
    finally:
        consumer.close()
    raise AssertionError("the end of the partition never came")


def wait_until_clean(data: Path, topic: str) -> Path:
    """Return when the cleaner has been through everything but the active segment."""
    folder = data / f"{topic}-0"
    until = time.monotonic() + 60
    while time.monotonic() < until:
        active = max(int(path.stem) for path in folder.glob("*.log"))
        checkpoint = data / "cleaner-offset-checkpoint"
        if checkpoint.exists() and f"{topic} 0 {active}\n" in checkpoint.read_text():
            return folder
        time.sleep(0.1)
    raise AssertionError(f"{topic} was not compacted")


def newest(written: Written) -> Written:
    offsets = {key: offset for offset, (key, _) in sorted(written.items())}
    return {offset: written[offset] for offset in offsets.values()}


@pytest.mark.crash
def test_the_newest_record_of_every_key_outlives_compaction_and_kill_9(broker: Service, tmp_path: Path) -> None:
    topic, written, rng = create(broker), Written(), random.Random(5)
    for seed in range(4):
        written |= write(broker, topic, 2500, seed, codec=("none", "lz4", "zstd", "gzip")[seed])
        if seed:
            time.sleep(rng.uniform(4, 6))  # the checkpoint comes every five seconds and the cleaner right after it
        broker.kill()
        broker.start()
        found = read(broker, topic)
        assert found.items() <= written.items()
        assert newest(written).items() <= found.items()
    folder = wait_until_clean(tmp_path / "data", topic)
    found = read(broker, topic)
    assert newest(written).items() <= found.items() <= written.items()
    assert len(found) < len(written) / 5
    assert len(list(folder.glob("*.log"))) < 10
    middle = sorted(found)[len(found) // 2]
    assert read(broker, topic, middle - 1) == {offset: each for offset, each in found.items() if offset >= middle - 1}
    assert not re.search(r"corrupt|Traceback|cannot be compacted", broker.output())


def test_tombstones_go_after_their_retention(broker: Service, tmp_path: Path) -> None:
    topic = create(broker, **{"delete.retention.ms": "1"})
    written = write(broker, topic, 1500, seed=1)
    wait_until_clean(tmp_path / "data", topic)
    written |= write(broker, topic, 1500, seed=2)
    folder = wait_until_clean(tmp_path / "data", topic)
    active = max(int(path.stem) for path in folder.glob("*.log"))
    deleted = [value for offset, (_, value) in read(broker, topic).items() if value is None and offset < active]
    assert len(deleted) < len([value for _, value in written.values() if value is None]) / 10


def test_a_record_without_a_key_is_refused_as_kafka_does(broker: Service) -> None:
    producer, errors = Producer({"bootstrap.servers": broker.facts["address"]}), []
    producer.produce(create(broker), value=b"no key", on_delivery=lambda error, _message: errors.append(error.code()))
    assert producer.flush(30) == 0
    assert errors == [KafkaError.INVALID_RECORD]


def test_committed_offsets_are_found_in_a_compacted_log(broker: Service, tmp_path: Path) -> None:
    topic = create(broker)
    write(broker, topic, 10, seed=1)
    settings = {"bootstrap.servers": broker.facts["address"], "group.id": "committer", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.list_topics(topic)
    for offset in range(1, 400):
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        except KafkaException as error:
            if not error.args[0].retriable():  # it is while the coordinator is being made
                raise
    folder = wait_until_clean(tmp_path / "data", "__consumer_offsets")
    assert sum(path.stat().st_size for path in folder.glob("*.log")) < 25_000
    broker.kill()
    broker.start()
    (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
    consumer.close()
    assert committed.offset == 399


@pytest.mark.java
@pytest.mark.kafka_peer
def test_kafkas_dump_tool_reads_compacted_segments(broker: Service, tmp_path: Path) -> None:
    from benchmarks import peers

    reason = peers.available()
    if reason:
        pytest.skip(f"Kafka's tools cannot be had here: {reason}")
    topic = create(broker)
    for seed, codec in enumerate(("none", "lz4", "gzip", "snappy", "zstd")):
        write(broker, topic, 600, seed, codec)
    wait_until_clean(tmp_path / "data", topic)
    write(broker, topic, 600, 9)
    folder = wait_until_clean(tmp_path / "data", topic)
    broker.stop()
    java = shutil.which("java")
    assert java is not None
    files = ",".join(str(path) for path in sorted(folder.iterdir()) if path.suffix in (".log", ".index", ".timeindex"))
    command = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{peers.libraries('kafka', peers.KAFKA)}/*"]
    command += ["org.apache.kafka.tools.DumpLogSegments", "--files", files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    batches = [line for line in done.stdout.splitlines() if line.startswith("baseOffset:")]
    assert batches and all("isvalid: true" in line for line in batches)
    assert any("count: 20 " not in line for line in batches), "some batch must have lost records"
    assert any("deleteHorizonMs: OptionalLong[" in line for line in batches)
    complaints = [line for line in done.stdout.splitlines() if "ismatch" in line or "out of order" in line]
    assert complaints == []
