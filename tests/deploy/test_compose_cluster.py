"""The three brokers of compose.cluster.yaml in real containers: one cluster, of which any one may go"""

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.deploy.conftest import Images, Note
from tests.deploy.deployment import Deployment, commands_by_heading, eventually
from tests.deploy.engine import Engine

pytestmark = [pytest.mark.integration, pytest.mark.deploy, pytest.mark.timeout(400)]

PROJECT, FILE = "tidemill-cluster", "compose.cluster.yaml"
NODES = ("one", "two", "three")
TOPIC = "shop.public.orders"


@pytest.fixture
def deployment(engine: Engine, images: Images, tmp_path: Path) -> Iterator[Deployment]:
    found = engine("volume", "ls", "-q").stdout.split()
    if any(name.startswith(f"{PROJECT}_") for name in found):
        pytest.skip(f"this machine has a deployment named {PROJECT}, which the test would take for its own")
    folder = shutil.copytree(images.folder / "deploy", tmp_path / "deploy")
    started = Deployment(engine, folder, images.base, images.postgres, project=PROJECT, file=FILE)
    try:
        yield started
    finally:
        started.remove()


def test_three_brokers_are_a_cluster_and_one_may_go(deployment: Deployment, note: Note) -> None:
    page = commands_by_heading((deployment.folder / "README.md").read_text(encoding="utf-8"))
    begin, start, status, stopped = time.monotonic(), *page["Three brokers"]
    password, (identity, up), (ask, *_) = page["First start"][0], start.splitlines(), status.splitlines()
    away, read, back = stopped.splitlines()
    deployment.run(f"{password}{identity}\n{up} {' '.join(NODES)}")
    deployment.wait_ready(*NODES)
    note.timed("three brokers up, all ready", begin)
    deployment.until(ask)
    bootstrap = ",".join(f"localhost:{getattr(deployment.ports, each)}" for each in NODES)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(60)
    (partition,) = admin.list_topics(TOPIC, 30).topics[TOPIC].partitions.values()
    assert sorted(partition.replicas) == [1, 2, 3]
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce(TOPIC, b"first")
    assert producer.flush(60) == 0
    deployment.run(away)
    producer.produce(TOPIC, b"second")
    assert producer.flush(60) == 0
    missed = deployment.run(ask, check=False)
    assert (missed.returncode, "broker 2" in missed.stderr) == (1, True), missed
    assert re.findall("first|second", deployment.run(read).stdout) == ["first", "second"]
    deployment.run(back)
    deployment.until(ask)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    values: list[bytes] = []
    eventually(lambda: read_more(consumer, values), 60)
    consumer.close()
    assert values == [b"first", b"second"]
    note.timed("one of three brokers stopped and started", begin)


def read_more(consumer: Consumer, values: list[bytes]) -> None:
    """Raises AssertionError until both are there."""
    message = consumer.poll(1.0)
    if message is not None and message.error() is None:
        values.append(message.value() or b"")
    assert len(values) == 2
