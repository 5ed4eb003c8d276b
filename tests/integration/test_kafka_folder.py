"""Partition folders that Apache Kafka wrote, served by our broker, and Kafka's dump tool on what became of them

A Kafka node writes a partition with every codec, by idempotent and plain producers, over several segments and two
leader epochs, and is stopped once and killed once. Each of the two folders is put in the place of an empty partition
of ours; a consumer reads every record, times and epochs are found, and what is appended afterwards is still a log to
Kafka.
"""

import random
import shutil
import time
import uuid
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from benchmarks import peers
from tidemill import services
from tidemill.broker.log.config import LogConfig
from tidemill.broker.log.identity import claim_folder
from tidemill.broker.log.store import LogStore
from tidemill.core.runtime.clock import SystemClock
from tidemill.core.runtime.disk import OsDirectory

pytestmark = [
    pytest.mark.integration,
    pytest.mark.java,
    pytest.mark.kafka_peer,
    pytest.mark.timeout(240),
]

TOPIC = "from-kafka"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS_EACH = 250
SEGMENT_BYTES = 1_048_576  # the least that Kafka 4 takes


class Written(NamedTuple):
    """A partition folder of Kafka's and what is in it, by offset."""

    folder: Path
    records: dict[int, tuple[bytes, bytes, int]]
    epochs: int


def write(
    address: str, round_number: int, records: dict[int, tuple[bytes, bytes, int]], *, idempotent: bool = True
) -> None:
    """Produce with every codec; `records` is told key, value and time of every offset."""
    rng = random.Random(round_number)

    def delivered(error: object, message: Message) -> None:
        assert error is None
        records[message.offset()] = (message.key(), message.value(), message.timestamp()[1])

    for codec in CODECS:
        settings = {"bootstrap.servers": address, "compression.type": codec, "linger.ms": 5}
        producer = Producer({**settings, "enable.idempotence": idempotent and codec != "gzip"})
        for number in range(RECORDS_EACH):
            value = rng.randbytes(rng.randrange(2600))
            producer.produce(TOPIC, key=f"{codec}-{round_number}-{number}", value=value, on_delivery=delivered)
        assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    """The partition as it was after an orderly stop and, with more in it, after kill -9."""
    reason = peers.available()
    if reason:
        pytest.skip(f"Apache Kafka cannot be started here: {reason}")
    node = tmp_path_factory.mktemp("kafka-node")
    records: dict[int, tuple[bytes, bytes, int]] = {}
    found = {}
    for round_number, end in enumerate(("stopped", "killed")):
        with peers.kafka_node(node, heap="400M") as (address, peer):
            if round_number == 0:
                admin = AdminClient({"bootstrap.servers": address})
                topic = NewTopic(TOPIC, 1, 1, config={"segment.bytes": str(SEGMENT_BYTES)})
                admin.create_topics([topic])[TOPIC].result(30)
            write(address, round_number, records)
            if end == "killed":
                peer.process.kill()
                peer.process.wait(20)
        kept = tmp_path_factory.mktemp("kept") / end
        shutil.copytree(node / "data" / f"{TOPIC}-0", kept)
        found[end] = Written(kept, dict(records), round_number + 1)
    return found


def put_in_place(written: Written, data: Path, log: Path) -> None:
    """Make the topic on a broker of ours and give it Kafka's files."""
    broker = services.broker("empty", data, log=log).start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.facts["address"]})
        topic = NewTopic(TOPIC, 1, 1, config={"segment.bytes": str(SEGMENT_BYTES)})
        admin.create_topics([topic])[TOPIC].result(30)
    finally:
        broker.stop()
    ours = data / f"{TOPIC}-0"
    name = (ours / "partition.metadata").read_bytes()
    shutil.rmtree(ours)
    shutil.copytree(written.folder, ours)
    (ours / "partition.metadata").write_bytes(name)


def read_all(address: str, count: int) -> dict[int, tuple[bytes, bytes, int]]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reader", "check.crcs": True})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: dict[int, tuple[bytes, bytes, int]] = {}
    try:
        deadline = time.monotonic() + 60
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records"
            for message in consumer.consume(1000, timeout=0.5):
                assert message.error() is None, message.error()
                found[message.offset()] = (message.key(), message.value(), message.timestamp()[1])
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_what_kafka_wrote_is_served_appended_to_and_read_by_kafka_again(
    folders: dict[str, Written], tmp_path: Path, end: str
) -> None:
    written = folders[end]
    data = tmp_path / "data"
    put_in_place(written, data, tmp_path / "empty.log")
    if end == "killed":
        (data / ".kafka_cleanshutdown").unlink()
    broker = services.broker("serving", data, log=tmp_path / "serving.log").start()
    try:
        address = broker.facts["address"]
        assert read_all(address, len(written.records)) == written.records
        admin = AdminClient({"bootstrap.servers": address})
        middle = len(written.records) // 2
        time_ms = written.records[middle][2]
        first = min(offset for offset, record in written.records.items() if record[2] >= time_ms)
        for spec, expected in (
            (OffsetSpec.for_timestamp(time_ms), first),
            (OffsetSpec.earliest(), 0),
            (OffsetSpec.latest(), len(written.records)),
        ):
            (future,) = admin.list_offsets({TopicPartition(TOPIC, 0): spec}).values()
            assert future.result(20).offset == expected
        more: dict[int, tuple[bytes, bytes, int]] = {}
        # Another cluster hands out producer ids of its own: in these files they would be taken for the old producers.
        write(address, 9, more, idempotent=False)
        assert min(more) == len(written.records)
        assert read_all(address, len(written.records) + len(more)) == {**written.records, **more}
    finally:
        broker.stop()
    text = (tmp_path / "serving.log").read_text()
    assert "corrupt" not in text and "Traceback" not in text
    dumped(data / f"{TOPIC}-0", len(written.records) + len(more))


def dumped(folder: Path, end: int) -> None:
    """Kafka's dump tool finds nothing to complain of in what is now the work of both."""
    suffixes = (".log", ".index", ".timeindex", ".snapshot")
    files = sorted(str(path) for path in folder.iterdir() if path.suffix in suffixes)
    assert len([name for name in files if name.endswith(".log")]) >= 3
    output = peers.run_tool("org.apache.kafka.tools.DumpLogSegments", ["--files", ",".join(files)]).splitlines()
    batches = [line for line in output if line.startswith("baseOffset:")]
    assert batches and all("isvalid: true" in line for line in batches)
    assert f"lastOffset: {end - 1} " in batches[-1]
    assert [line for line in output if "ismatch" in line or "out of order" in line or "not found" in line] == []


@pytest.mark.parametrize("end", ["stopped", "killed"])
async def test_epochs_and_producers_of_kafka_are_known(folders: dict[str, Written], tmp_path: Path, end: str) -> None:
    written = folders[end]
    claim_folder(OsDirectory(tmp_path), 1, None, uuid.uuid4())
    shutil.copytree(written.folder, tmp_path / f"{TOPIC}-0")
    (tmp_path / f"{TOPIC}-0" / "partition.metadata").unlink()
    store = LogStore.at(str(tmp_path), clock=SystemClock(), node_id=1)
    store.open_all(lambda _topic: LogConfig(segment_bytes=SEGMENT_BYTES))
    log = store.get(TOPIC, 0)
    assert log is not None
    try:
        assert log.log_end_offset == len(written.records)
        starts = [start for _, start in log.epochs.entries()]
        assert starts == [0, len(CODECS) * RECORDS_EACH][: written.epochs]
        assert len(log.producers) == (len(CODECS) - 1) * written.epochs
        assert {state.last_sequence for state in log.producers} == {RECORDS_EACH - 1}
        assert [segment.damaged for segment in log.segments if segment.damaged] == []
    finally:
        await store.close()
