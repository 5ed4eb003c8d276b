"""Clients that use fetch sessions read everything through one: Apache Kafka's own consumer and kafka-python

The broker runs in the test, so that its sessions can be looked at; the records come in rounds while the consumers
wait, a few partitions at a time, which is what sessions are for.
"""

import asyncio
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaConsumer

from tests.broker.broker_world import WireClient, broker_and_client
from tests.broker.handlers.data_path import make_topic, produce, records
from tidemill.broker.node import Broker
from tidemill.broker.quorum.image import TopicImage

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PARTITIONS = 30
ROUNDS = 8
PER_ROUND = 5
COUNT = ROUNDS * PER_ROUND


def values() -> list[str]:
    return [f"{number}" for number in range(COUNT)]


def read_with_kafka_python(address: str) -> list[str]:
    consumer = KafkaConsumer(
        "t",
        bootstrap_servers=address,
        group_id=None,
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
        fetch_max_wait_ms=100,
    )
    found: list[str] = []
    for record in consumer:
        found.append(record.value.decode())
        if len(found) == COUNT:
            break
    consumer.close()
    return found


def read_with_java(address: str) -> list[str]:
    from benchmarks import peers

    java = shutil.which("java")
    assert java is not None
    command = [
        *(java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{peers.libraries('kafka', peers.KAFKA)}/*"),
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", address, "--topic", "t", "--from-beginning"),
        *("--max-messages", str(COUNT), "--timeout-ms", "40000"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FETCH_SESSION" not in done.stderr
    return done.stdout.split()


async def produce_in_rounds(client: WireClient, topic: TopicImage, broker: Broker) -> None:
    for _ in range(600):
        if len(broker.fetch_sessions):
            break
        await asyncio.sleep(0.1)
    assert len(broker.fetch_sessions), "the consumer made no session"
    for round_number in range(ROUNDS):
        for number in range(round_number * PER_ROUND, (round_number + 1) * PER_ROUND):
            await produce(client, topic, records(str(number).encode()), partition=(number * 7) % PARTITIONS)
        await asyncio.sleep(0.15)


async def reads_all_through_a_session(folder: Path, read: Callable[[str], list[str]]) -> None:
    async with broker_and_client(folder) as (broker, client):
        topic = await make_topic(broker, partitions=PARTITIONS)
        reading = asyncio.to_thread(read, f"127.0.0.1:{broker.servers[0].port}")
        found, _ = await asyncio.gather(reading, produce_in_rounds(client, topic, broker))
        assert sorted(found, key=int) == values()


async def test_kafka_python_reads_through_a_session(tmp_path: Path) -> None:
    await reads_all_through_a_session(tmp_path, read_with_kafka_python)


@pytest.mark.java
@pytest.mark.kafka_peer
async def test_kafkas_console_consumer_reads_through_a_session(tmp_path: Path) -> None:
    from benchmarks import peers

    reason = peers.available()
    if reason:
        pytest.skip(f"Kafka's tools cannot be had here: {reason}")
    await reads_all_through_a_session(tmp_path, read_with_java)
