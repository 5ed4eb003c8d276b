"""Which records of a refused batch are at fault: the answer, field by field as Apache Kafka gives it, and what a client
makes of it"""

import socket
import struct
import time
import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.peers import Peer
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import decode_response, encode_request
from tidemill.core.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidemill.services import Service

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

HOUR_MS = 3_600_000
COMPACTED = {"cleanup.policy": "compact"}
RECENT = {"message.timestamp.before.max.ms": str(HOUR_MS)}
INVALID_TIMESTAMP, INVALID_RECORD = 32, 87

# settings, hours ago and key of each record -> code, places of the records at fault
CASES: dict[str, tuple[dict[str, str], list[tuple[int, bytes | None]], int, list[int]]] = {
    "some without a key": (COMPACTED, [(0, b"k"), (0, None), (0, b"k"), (0, None)], INVALID_RECORD, [1, 3]),
    "none with a key": (COMPACTED, [(0, None), (0, None)], INVALID_RECORD, [0, 1]),
    "some too old": (RECENT, [(2, b"k"), (0, None), (2, b"k")], INVALID_TIMESTAMP, [0, 2]),
    "one ahead": ({}, [(0, b"k"), (-2, b"k")], INVALID_TIMESTAMP, [1]),
    "without a key, then too old": (
        COMPACTED | RECENT,
        [(0, None), (2, b"k"), (2, None)],
        INVALID_TIMESTAMP,
        [0, 1, 2],
    ),
    "too old and without a key": (COMPACTED | RECENT, [(2, None), (0, b"k")], INVALID_RECORD, [0]),
}


def new_topic(address: str, settings: dict[str, str]) -> str:
    name = f"faults-{uuid.uuid4().hex[:10]}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, 1, 1, config=settings)])[name].result(30)
    consumer, until = Consumer({"bootstrap.servers": address, "group.id": name}), time.monotonic() + 30
    while not is_led(consumer, TopicPartition(name, 0)):
        assert time.monotonic() < until, f"nobody leads {name}"
        time.sleep(0.05)
    consumer.close()
    return name


def is_led(consumer: Consumer, partition: TopicPartition) -> bool:
    """Whether its leader takes it for its own: Apache Kafka's metadata has a new topic, and its leader, before that."""
    try:
        consumer.get_watermark_offsets(partition, timeout=10)
    except KafkaException:
        return False
    return True


def answer(address: str, topic: str, batch: bytes, version: int) -> Any:
    """The broker's answer for the one partition."""
    data = TopicProduceData(name=topic, partition_data=(PartitionProduceData(index=0, records=batch),))
    frame = encode_request(
        ApiKey.PRODUCE, version, 1, "test", ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(data,))
    )
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as stream:
        stream.sendall(frame)
        file = stream.makefile("rb")
        (size,) = struct.unpack(">i", file.read(4))
        _, response = decode_response(ApiKey.PRODUCE, version, file.read(size))
    return response.responses[0].partition_responses[0]


def check_answers(address: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    for name, (settings, rows, code, at_fault) in CASES.items():
        topic = new_topic(address, settings)
        for codec in ("none", "zstd"):
            batch = build_batch([NewRecord(now_ms - hours * HOUR_MS, key, b"v") for hours, key in rows], codec=codec)
            for version in (7, 8, 10):
                found = answer(address, topic, batch, version)
                assert (found.error_code, found.base_offset, found.log_append_time_ms) == (code, -1, -1), name
                assert found.log_start_offset == 0
                if version < 8:
                    continue
                assert [row.batch_index for row in found.record_errors] == at_fault, name
                assert all(row.batch_index_error_message for row in found.record_errors)
                assert found.error_message


def check_client(address: str) -> None:
    """librdkafka fails the bad ones for what they are, and the others so that they may be sent again.

    That is one batch's fate: `flush` alone ends the lingering, however slowly this thread gets its turns. A record
    before them makes the client know the partition: what waits for that is handed over one by one, in any number of
    batches.
    """
    topic = new_topic(address, COMPACTED)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 60_000, "enable.idempotence": False})
    results: dict[bytes, int] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        results[message.value() or b""] = error.code() if error is not None else 0

    producer.produce(topic, b"before them", b"k", partition=0, on_delivery=delivered)
    assert producer.flush(30) == 0
    assert results == {b"before them": 0}
    for number in range(100):
        key = None if number % 10 == 3 else b"k%d" % number
        producer.produce(topic, b"%d" % number, key, partition=0, on_delivery=delivered)
    assert producer.flush(30) == 0
    codes = [results[b"%d" % number] for number in range(100)]
    assert codes[3::10] == [INVALID_RECORD] * 10
    others = [code for number, code in enumerate(codes) if number % 10 != 3]
    assert set(others) == {KafkaError._INVALID_DIFFERENT_RECORD}


def test_our_answer(tidemill_broker: Service) -> None:
    check_answers(tidemill_broker.facts["address"])


def test_a_client_of_ours(tidemill_broker: Service) -> None:
    check_client(tidemill_broker.facts["address"])


@pytest.mark.java
@pytest.mark.kafka_peer
def test_apache_kafkas_answer(kafka_peer: tuple[str, Peer]) -> None:
    check_answers(kafka_peer[0])


@pytest.mark.java
@pytest.mark.kafka_peer
def test_a_client_of_apache_kafka(kafka_peer: tuple[str, Peer]) -> None:
    check_client(kafka_peer[0])
