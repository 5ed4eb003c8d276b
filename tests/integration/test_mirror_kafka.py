"""The mirror between Apache Kafka and Tidemill, and what MirrorMaker 2's own classes make of what it writes.

Apache Kafka judges the batches we produce, and as a source it brings what our broker does not: transactions, and
batches with holes that its cleaner left.
"""

import struct
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import peers
from benchmarks.peers import Peer
from tidemill import services
from tidemill.mirror.formats import OffsetSync
from tidemill.services import Service

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka_peer,
    pytest.mark.java,
    pytest.mark.timeout(300),
]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DEADLINE_S = 60

PROPERTIES = """\
clusters = A, B
A.bootstrap.servers = {a}
B.bootstrap.servers = {b}
A->B.enabled = true
topics = {topic}
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 1
emit.checkpoints.interval.seconds = 1
refresh.groups.interval.seconds = 1
"""

Row = tuple[bytes | None, bytes | None, tuple[int, int], tuple[tuple[str, bytes], ...]]


def until(condition: Callable[[], bool], what: str) -> None:
    """Poll with a deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def create(address: str, topic: str, partitions: int, **configs: str) -> None:
    """Create a topic."""
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    new = NewTopic(topic, partitions, 1, config=settings)
    admin = AdminClient({"bootstrap.servers": address})  # has to outlive the call
    admin.create_topics([new])[topic].result(30)


def read(address: str, topic: str, partition: int, start: int | None = None) -> list[Row]:
    """Records of a partition that a read-committed consumer sees, from an offset on."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    rows: list[Row] = []
    try:
        low, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
        consumer.assign([TopicPartition(topic, partition, low if start is None else start)])
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.name() == "_PARTITION_EOF", error
                return rows
            rows.append((message.key(), message.value(), message.timestamp(), tuple(message.headers() or ())))
        raise AssertionError(f"no end of {topic}-{partition}")
    finally:
        consumer.close()


def committed(address: str, group: str, topic: str, partitions: int) -> list[int]:
    """A group's positions, negative where it has none; empty while a new node is still loading its groups."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False})
    try:
        wanted = [TopicPartition(topic, number) for number in range(partitions)]
        return [found.offset for found in consumer.committed(wanted, timeout=20)]
    except KafkaException:
        return []
    finally:
        consumer.close()


def commit(address: str, group: str, topic: str, offsets: list[int]) -> None:
    """Commit positions without joining."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False})
    try:
        positions = [TopicPartition(topic, number, offset) for number, offset in enumerate(offsets)]
        consumer.commit(offsets=positions, asynchronous=False)
    finally:
        consumer.close()


@contextmanager
def mirroring(folder: Path, a: str, b: str, topic: str) -> Iterator[Service]:
    """A mirror from `a` to `b`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "mm2.properties"
    file.write_text(PROPERTIES.format(a=a, b=b, topic=topic))
    service = services.mirror("mirror", file, log=folder / "mirror.log").start()
    try:
        yield service
    finally:
        service.stop()


def fill_transactions(address: str, topic: str) -> None:
    """Committed and aborted transactions of several sizes, plain records between them."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": topic, "compression.type": "lz4"})
    producer.init_transactions()
    plain = Producer({"bootstrap.servers": address})
    for number in range(40):
        producer.begin_transaction()
        for record in range(number % 6 + 1):
            producer.produce(topic, key=b"%d" % record, value=b"%d.%d" % (number, record), partition=record % 2)
        producer.flush()
        if number % 4 == 1:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
        plain.produce(topic, value=b"plain %d" % number, partition=0)
        plain.flush()


def test_transactions_arrive_as_a_committed_reader_sees_them(
    kafka_peer: tuple[str, Peer], tidemill_broker: Service, tmp_path: Path
) -> None:
    a, b = kafka_peer[0], tidemill_broker.facts["address"]
    topic = f"txn-{uuid.uuid4().hex[:8]}"
    create(a, topic, 2)
    fill_transactions(a, topic)
    original = [read(a, topic, number) for number in range(2)]
    groups = {f"{topic}-{name}": offsets for name, offsets in (("start", [0, 0]), ("mid", [17, 9]), ("late", [90, 60]))}
    for group, offsets in groups.items():
        commit(a, group, topic, offsets)
    with mirroring(tmp_path, a, b, topic) as mirror:
        until(lambda: lengths(b, topic) == [len(rows) for rows in original], "the mirror does not catch up")
        mirror.kill()
        mirror.restart()
        for group, offsets in groups.items():
            rest = [read(a, topic, number, offsets[number]) for number in range(2)]
            expected = [len(original[number]) - len(rest[number]) for number in range(2)]
            until(
                lambda group=group, expected=expected: committed(b, group, f"A.{topic}", 2) == expected,  # type: ignore[misc]
                f"{group} is not carried exactly",
            )
            assert [read(b, f"A.{topic}", number, expected[number]) for number in range(2)] == rest
    assert [read(b, f"A.{topic}", number) for number in range(2)] == original


def lengths(address: str, topic: str, partitions: int = 2) -> list[int]:
    """Log ends of the copy; empty while it does not exist."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "lengths"})
    try:
        if f"A.{topic}" not in consumer.list_topics(timeout=20).topics:
            return []
        wanted = [TopicPartition(f"A.{topic}", number) for number in range(partitions)]
        return [consumer.get_watermark_offsets(each, timeout=20)[1] for each in wanted]
    finally:
        consumer.close()


def test_batches_with_holes_are_rebuilt(kafka_peer: tuple[str, Peer], tidemill_broker: Service, tmp_path: Path) -> None:
    """Apache Kafka's cleaner leaves one record of each key, and batches that span the ones it took."""
    a, b = kafka_peer[0], tidemill_broker.facts["address"]
    topic = f"compact-{uuid.uuid4().hex[:8]}"
    create(
        a, topic, 1, cleanup_policy="compact", segment_ms="200", min_cleanable_dirty_ratio="0.01",
        segment_bytes="1048576", max_compaction_lag_ms="300",
    )  # fmt: skip
    producer = Producer({"bootstrap.servers": a, "linger.ms": 50, "compression.type": "zstd"})
    for number in range(3000):
        key = b"once %d" % number if number % 50 == 7 else b"often %d" % (number % 20)
        producer.produce(topic, key=key, value=b"%d" % number, partition=0)
        if number % 500 == 499:
            producer.flush()
            time.sleep(0.3)  # the segment has to age before the cleaner may touch it
    producer.flush()

    def cleaned() -> bool:
        producer.produce(topic, key=b"tick", value=b"x", partition=0)
        producer.flush()
        return len(read(a, topic, 0)) < 1000

    until(cleaned, "Apache Kafka does not compact the topic")
    original = read(a, topic, 0)
    with mirroring(tmp_path, a, b, topic):
        until(lambda: lengths(b, topic, 1) == [len(read(a, topic, 0))], "the mirror does not catch up")
    copy = read(b, f"A.{topic}", 0)
    assert len(copy) < 3000
    assert set(copy) >= {row for row in original if row[0] is not None and row[0].startswith(b"once")}
    assert [row for row in copy if row[0] != b"tick"] == [row for row in original if row[0] != b"tick"]


def test_apache_kafka_takes_our_batches(kafka_peer: tuple[str, Peer], tidemill_broker: Service, tmp_path: Path) -> None:
    a, b = tidemill_broker.facts["address"], kafka_peer[0]
    topic = f"out-{uuid.uuid4().hex[:8]}"
    create(a, topic, 2)
    produced = [Producer({"bootstrap.servers": a, "compression.type": codec, "linger.ms": 2}) for codec in CODECS]
    with mirroring(tmp_path, a, b, topic) as mirror:
        for round_number in range(4):
            for number in range(2000):
                producer = produced[number % len(produced)]
                producer.produce(
                    topic, key=b"%d" % number, value=b"%d %d" % (round_number, number), headers=[("h", b"1")],
                    partition=number % 2,
                )  # fmt: skip
            for producer in produced:
                producer.flush()
            if round_number < 3:
                mirror.kill()
                mirror.restart()
        original = [read(a, topic, number) for number in range(2)]
        until(lambda: lengths(b, topic) == [len(rows) for rows in original], "the mirror does not catch up")
    assert [read(b, f"A.{topic}", number) for number in range(2)] == original
    shown = verify(tmp_path / "mm2.properties")
    assert f"{topic}-0: EQUAL, 4000 records" in shown


def verify(file: Path) -> str:
    """Output of `tidemill mirror verify`."""
    import sys

    command = [sys.executable, "-m", "tidemill.cli", "mirror", "verify", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout


def test_mirrormakers_formatters_read_our_records(
    kafka_peer: tuple[str, Peer], tidemill_broker: Service, tmp_path: Path
) -> None:
    a, b = tidemill_broker.facts["address"], kafka_peer[0]
    topic = f"fmt-{uuid.uuid4().hex[:8]}"
    group = f"g-{topic}"
    create(a, topic, 1)
    producer = Producer({"bootstrap.servers": a})
    for number in range(10):
        producer.produce(topic, value=b"%d" % number)
    producer.flush()
    commit(a, group, topic, [6])
    with mirroring(tmp_path, a, b, topic):
        until(lambda: committed(b, group, f"A.{topic}", 1) == [6], "the group is not carried")
        until(lambda: checkpointed_offset(b, group) == 6, "no checkpoint with the position is written")
        until(lambda: synced_offset(a, topic) == 9, "no offset sync with the last record is written")
    # Read after the mirror has stopped: the tool goes on for as long as heartbeats come.
    lines = [line for line in formatted(b, "A.checkpoints.internal", "Checkpoint").splitlines() if group in line]
    heartbeats = formatted(b, "heartbeats", "Heartbeat")
    syncs = formatted(a, "mm2-offset-syncs.B.internal", "OffsetSync")
    assert "upstreamOffset=6" in lines[-1]
    assert "downstreamOffset=6" in lines[-1]
    assert f"A.{topic}-0" in lines[-1]
    assert "sourceClusterAlias=A, targetClusterAlias=B" in heartbeats
    assert f"topicPartition={topic}-0, upstreamOffset=9, downstreamOffset=9" in syncs


def checkpointed_offset(address: str, group: str) -> int | None:
    """The offset on the target in the newest checkpoint of the group."""
    try:
        records = read(address, "A.checkpoints.internal", 0)
    except KafkaException:
        return None  # the mirror has not made the topic yet
    found = [value for key, value, *_ in records if value is not None and group.encode() in (key or b"")]
    return struct.unpack_from(">hqq", found[-1])[2] if found else None


def synced_offset(address: str, topic: str) -> int | None:
    """The offset on the source in the newest offset sync of the topic."""
    try:
        records = read(address, "mm2-offset-syncs.B.internal", 0)
    except KafkaException:
        return None  # the mirror has not made the topic yet
    syncs = [OffsetSync.decode(key, value) for key, value, *_ in records if key is not None and value is not None]
    return next((sync.upstream_offset for sync in reversed(syncs) if sync.topic == topic), None)


def formatted(address: str, topic: str, kind: str) -> str:
    """A topic as MirrorMaker 2's formatter prints it."""
    arguments = [
        "--bootstrap-server", address, "--topic", topic, "--from-beginning", "--timeout-ms", "6000",
        "--formatter", f"org.apache.kafka.connect.mirror.formatters.{kind}Formatter",
    ]  # fmt: skip
    return peers.run_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", arguments)


MIRROR_MAKER = """\
clusters = K, B
K.bootstrap.servers = {a}
B.bootstrap.servers = {b}
K->B.enabled = true
K->B.topics = {topic}
K->B.groups = g-.*
replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 1
emit.checkpoints.interval.seconds = 1
refresh.groups.interval.seconds = 1
offset.flush.interval.ms = 1000
emit.heartbeats.enabled = false
"""


def test_groups_are_nearer_than_with_mirrormaker_2(
    kafka_peer: tuple[str, Peer], tidemill_broker: Service, tmp_path: Path
) -> None:
    """A group that lags is carried to its exact position; MirrorMaker 2's sparse syncs leave it behind."""
    a, b = kafka_peer[0], tidemill_broker.facts["address"]
    topic = f"lag-{uuid.uuid4().hex[:8]}"
    group, records, position = f"g-{topic}", 100_000, 40_001
    create(a, topic, 1)
    producer = Producer({"bootstrap.servers": a, "linger.ms": 5, "queue.buffering.max.messages": 200_000})
    with (
        mirroring(tmp_path / "ours", a, b, topic),
        peers.mirror_maker(tmp_path / "theirs", MIRROR_MAKER.format(a=a, b=b, topic=topic)),
    ):
        for number in range(records):
            producer.produce(topic, value=b"%d" % number)
            if number % 10_000 == 9_999:
                producer.flush()
        producer.flush()
        commit(a, group, topic, [position])
        until(lambda: committed(b, group, f"A.{topic}", 1) == [position], "our group is not exact")
        until(
            lambda: max(committed(b, group, f"K.{topic}", 1), default=-1) >= 0, "MirrorMaker 2 does not carry the group"
        )
        until(lambda: lengths(b, topic, 1) == [records], "the mirror does not catch up")
        time.sleep(5)  # several of its rounds: it has every chance to come nearer
        theirs = committed(b, group, f"K.{topic}", 1)[0]
    assert committed(b, group, f"A.{topic}", 1) == [position]
    print(f"records read again after a switch: ours 0, MirrorMaker 2 {position - theirs}")
    assert theirs <= position
