"""Consumers that are reading while the broker is killed: its leader epochs rise, and they go on where they were.

A client learns of the new epoch by FENCED_LEADER_EPOCH, asks where the one it knows has ended (KIP-320) and goes on.
"""

import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill import services
from tidemill.free_ports import free_port
from tidemill.services import Service

pytestmark = [pytest.mark.integration, pytest.mark.crash, pytest.mark.timeout(200)]

KILLS = 2
RECORDS = 200


@pytest.fixture(params=["group", "os"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    listen = f"127.0.0.1:{free_port()}"
    settings = {"flush.policy": request.param}
    service = services.broker("epochs", tmp_path / "data", listen=listen, settings=settings, log=tmp_path / "log")
    service.start()
    yield service
    service.stop()


def create(address: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)


def produce(address: str, topic: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for number in range(first, first + RECORDS):
        producer.produce(topic, value=str(number))
    assert producer.flush(60) == 0


def test_librdkafka_goes_on_under_the_new_epoch(broker: Service) -> None:
    address, topic = broker.facts["address"], f"epochs-{uuid.uuid4().hex[:8]}"
    create(address, topic)
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[int] = []
    epochs = set()
    for life in range(KILLS + 1):
        produce(address, topic, life * RECORDS)
        deadline = time.monotonic() + 60
        while len(found) < (life + 1) * RECORDS and time.monotonic() < deadline:
            for message in consumer.consume(500, timeout=0.5):
                if message.error() is None:
                    found.append(int(message.value()))
                    epochs.add(message.leader_epoch())
        if life < KILLS:
            broker.kill()
            broker.restart()
    consumer.close()
    assert found == list(range((KILLS + 1) * RECORDS)), "read once each, in order"
    assert epochs == set(range(KILLS + 1))


@pytest.mark.java
@pytest.mark.kafka_peer
def test_the_java_consumer_goes_on_under_the_new_epoch(broker: Service, tmp_path: Path) -> None:
    from benchmarks import peers

    reason = peers.available()
    if reason:
        pytest.skip(f"Kafka's tools cannot be had here: {reason}")
    address, topic = broker.facts["address"], f"epochs-{uuid.uuid4().hex[:8]}"
    create(address, topic)
    java = shutil.which("java")
    assert java is not None
    out = tmp_path / "consumed"
    classpath = f"{peers.libraries('kafka', peers.KAFKA)}/*"
    command = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", classpath]
    command += ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", address, "--topic", topic]
    command += [
        "--partition",
        "0",
        "--offset",
        "earliest",
        "--max-messages",
        str((KILLS + 1) * RECORDS),
        "--timeout-ms",
        "90000",
    ]
    with out.open("w") as file, subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL) as consumer:
        for life in range(KILLS + 1):
            produce(address, topic, life * RECORDS)
            deadline = time.monotonic() + 60
            while len(out.read_text().split()) < (life + 1) * RECORDS and time.monotonic() < deadline:
                time.sleep(0.2)
            if life < KILLS:
                broker.kill()
                broker.restart()
        assert consumer.wait(90) == 0
    assert [int(line) for line in out.read_text().split()] == list(range((KILLS + 1) * RECORDS))
