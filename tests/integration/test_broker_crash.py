"""kill -9 of the broker under load: each acknowledged record is there afterwards, at its acknowledged offset.

The producers are idempotent, so besides loss the test finds duplicates: one value at two offsets.
"""

import random
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill import services
from tidemill.free_ports import free_port

pytestmark = [pytest.mark.integration, pytest.mark.crash, pytest.mark.timeout(240)]

PARTITIONS = 3
KILLS = 6
SECONDS_BETWEEN_KILLS = (0.3, 1.2)


class AckLog:
    """What the broker acknowledged: value -> (partition, offset)."""

    def __init__(self) -> None:
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.refused = 0

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        """Called by the producer for every record."""
        if error is not None:
            self.refused += 1
        else:
            self.acknowledged[message.value()] = (message.partition(), message.offset())


@pytest.mark.parametrize("seed", [1, 2])
def test_no_acknowledged_record_is_lost_or_duplicated(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    port = free_port()
    settings = {"log.segment.bytes": "262144"}
    broker = services.broker(
        "crash", tmp_path / "data", listen=f"127.0.0.1:{port}", settings=settings, log=tmp_path / "broker.log"
    ).start()
    try:
        address = broker.facts["address"]
        topic = f"crash-{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
        log = AckLog()
        producer = Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 2, "message.timeout.ms": 120_000}
        )
        number = 0
        for _ in range(KILLS):
            until = time.monotonic() + chance.uniform(*SECONDS_BETWEEN_KILLS)
            while time.monotonic() < until:
                for _ in range(50):
                    number += 1
                    producer.produce(topic, value=f"{number}".encode() * 20, on_delivery=log.on_delivery)
                producer.poll(0.005)
            broker.kill()
            broker.restart()
        assert producer.flush(120) == 0
        assert log.refused == 0
        assert len(log.acknowledged) == number
        found = read_all(address, topic)
        values = Counter(found.values())
        assert [value for value, count in values.items() if count > 1] == []
        lost = [value for value, place in log.acknowledged.items() if found.get(place) != value]
        assert lost == []
        assert len(found) == number
    finally:
        broker.stop()


def read_all(address: str, topic: str) -> dict[tuple[int, int], bytes]:
    """Every record of the topic by partition and offset."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "all", "enable.auto.commit": False})
    found: dict[tuple[int, int], bytes] = {}
    try:
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=20)[1] for p in range(PARTITIONS)}
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        deadline = time.monotonic() + 60
        while len(found) < sum(ends.values()) and time.monotonic() < deadline:
            for message in consumer.consume(1000, timeout=1):
                assert message.error() is None, message.error()
                found[(message.partition(), message.offset())] = message.value()
        assert len(found) == sum(ends.values())
        return found
    finally:
        consumer.close()
