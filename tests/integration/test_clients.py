"""Every client library writes and reads through the broker, with every codec, keys and headers.

What one library wrote is read by all: the broker hands on bytes it never looked into, so each pair of writer and
reader is a proof of its own.
"""

import asyncio
import json
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill.core.records.batch import iter_batches

if TYPE_CHECKING:
    from tidemill.services import Service

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

COUNT = 200
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
READ_TIMEOUT_S = 40


class Sent(NamedTuple):
    """One record as every client can write and read it."""

    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = (("origin", b"test"),)


RECORDS = [Sent(f"k{number % 7}".encode(), f"value {number} ".encode() * 20) for number in range(COUNT)]
WITHOUT_KEYS = [Sent(b"", record.value, ()) for record in RECORDS]


@pytest.fixture
def address(tidemill_broker: "Service") -> str:
    return tidemill_broker.facts["address"]


@pytest.fixture
def topic(address: str) -> str:
    name = f"clients-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)])[name].result(30)
    return name


def write_confluent(address: str, topic: str, codec: str, records: list[Sent]) -> None:
    producer = Producer({"bootstrap.servers": address, "compression.type": codec, "acks": "all", "linger.ms": 5})
    failures: list[object] = []
    for record in records:
        producer.produce(
            topic,
            key=record.key or None,
            value=record.value,
            headers=list(record.headers),
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(30) == 0
    assert not failures


def write_kafka_python(address: str, topic: str, codec: str, records: list[Sent]) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, compression_type=None if codec == "none" else codec, acks="all")
    futures = [producer.send(topic, key=r.key or None, value=r.value, headers=list(r.headers)) for r in records]
    producer.flush(30)
    for future in futures:
        future.get(30)
    producer.close(10)


def write_aiokafka(address: str, topic: str, codec: str, records: list[Sent]) -> None:
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        kind = None if codec == "none" else codec
        async with AIOKafkaProducer(bootstrap_servers=address, compression_type=kind, acks="all") as producer:
            sent = [
                await producer.send(topic, value=r.value, key=r.key or None, headers=list(r.headers)) for r in records
            ]
            await asyncio.gather(*sent)

    asyncio.run(run())


def write_kcat(address: str, topic: str, codec: str, records: list[Sent]) -> None:
    lines = b"".join((record.key + b"|" if record.key else b"") + record.value + b"\n" for record in records)
    command = ["kcat", "-P", "-b", address, "-t", topic, "-z", codec, "-X", "acks=all"]
    if records[0].key:
        command += ["-K", "|"]
    for name, value in records[0].headers:
        command += ["-H", f"{name}={value.decode()}"]
    subprocess.run(command, input=lines, check=True, timeout=60)


def read_confluent(address: str, topic: str) -> list[Sent]:
    config = {"bootstrap.servers": address, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = Consumer(config)
    consumer.subscribe([topic])
    found: list[Sent] = []
    deadline = time.monotonic() + READ_TIMEOUT_S
    while len(found) < COUNT and time.monotonic() < deadline:
        for message in consumer.consume(500, timeout=1):
            assert message.error() is None, message.error()
            headers = tuple((name, value) for name, value in message.headers() or [])
            found.append(Sent(message.key() or b"", message.value(), headers))
    consumer.close()
    return found


def read_kafka_python(address: str, topic: str) -> list[Sent]:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=address,
        auto_offset_reset="earliest",
        group_id=None,
        consumer_timeout_ms=READ_TIMEOUT_S * 1000,
    )
    found = []
    for message in consumer:
        found.append(Sent(message.key or b"", message.value, tuple(message.headers)))
        if len(found) == COUNT:
            break
    consumer.close()
    return found


def read_aiokafka(address: str, topic: str) -> list[Sent]:
    from aiokafka import AIOKafkaConsumer

    async def run() -> list[Sent]:
        found: list[Sent] = []
        async with AIOKafkaConsumer(topic, bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            async with asyncio.timeout(READ_TIMEOUT_S):
                while len(found) < COUNT:
                    message = await consumer.getone()
                    found.append(Sent(message.key or b"", message.value, tuple(message.headers)))
        return found

    return asyncio.run(run())


def read_kcat(address: str, topic: str) -> list[Sent]:
    command = ["kcat", "-C", "-b", address, "-t", topic, "-o", "beginning", "-e", "-q", "-J"]
    done = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    found = []
    for line in done.stdout.splitlines():
        message = json.loads(line)
        flat = message.get("headers") or []
        headers = tuple((name, value.encode()) for name, value in zip(flat[::2], flat[1::2], strict=True))
        found.append(Sent((message["key"] or "").encode(), message["payload"].encode(), headers))
    return found


WRITERS: dict[str, Callable[[str, str, str, list[Sent]], None]] = {
    "confluent-kafka": write_confluent,
    "kafka-python": write_kafka_python,
    "aiokafka": write_aiokafka,
    "kcat": write_kcat,
}
READERS: dict[str, Callable[[str, str], list[Sent]]] = {
    "confluent-kafka": read_confluent,
    "kafka-python": read_kafka_python,
    "aiokafka": read_aiokafka,
    "kcat": read_kcat,
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", WRITERS)
def test_what_one_client_writes_every_client_reads(
    address: str, topic: str, kcat: Path, writer: str, codec: str
) -> None:
    WRITERS[writer](address, topic, codec, RECORDS)
    for name, read in READERS.items():
        assert read(address, topic) == RECORDS, f"written by {writer} with {codec}, read by {name}"


@pytest.mark.parametrize("writer", WRITERS)
def test_records_without_key_and_headers(address: str, topic: str, kcat: Path, writer: str) -> None:
    WRITERS[writer](address, topic, "none", WITHOUT_KEYS)
    for name, read in READERS.items():
        assert read(address, topic) == WITHOUT_KEYS, f"written by {writer}, read by {name}"


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
@pytest.mark.parametrize("writer", WRITERS)
def test_compression_arrives_compressed(
    address: str, topic: str, kcat: Path, tidemill_broker: "Service", writer: str, codec: str
) -> None:
    """A broker that advertises Produce wrongly makes some clients send plain batches without a word."""
    WRITERS[writer](address, topic, codec, RECORDS)
    folder = Path(tidemill_broker.command[tidemill_broker.command.index("--data") + 1])
    stored = sum(path.stat().st_size for path in folder.glob(f"**/{topic}-0/*.log"))
    assert 0 < stored < sum(len(record.value) for record in RECORDS) / 2


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_with_a_codec_of_its_own_holds_only_that(
    address: str, kcat: Path, tidemill_broker: "Service", codec: str
) -> None:
    """Each client writes with another codec; the broker compresses anew and every client reads all of it."""
    topic = f"recoded-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, 1, 1, config={"compression.type": codec})])[topic].result(30)
    quarter = COUNT // len(WRITERS)
    for number, (name, written) in enumerate(zip(WRITERS, CODECS, strict=False)):
        WRITERS[name](address, topic, written, RECORDS[number * quarter : (number + 1) * quarter])
    for name, read in READERS.items():
        assert read(address, topic) == RECORDS, f"read by {name}"
    folder = Path(tidemill_broker.command[tidemill_broker.command.index("--data") + 1])
    data = b"".join(path.read_bytes() for path in sorted(folder.glob(f"**/{topic}-0/*.log")))
    expected = 0 if codec == "uncompressed" else CODECS.index(codec)
    assert {batch.codec for batch in iter_batches(data)} == {expected}
